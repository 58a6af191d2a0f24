/* model_plan.c - what will be sent next, and when: rehearsed over what is known.
 *
 * DESIGN. The walk goes over the operations in order, as look_for_room does, with the room
 * that each takes and gives back. Room is handed out in the order in which it is known to
 * come: what is free, what is leaving already, what discards give back behind an operation
 * that has executed. Each block that an operation lacks takes one of these and has to wait
 * for what brings it. Where none is left, a block leaves: the one that is needed last,
 *
 *   - of those that are there and not needed before, which may go at once, and
 *   - of those that operations use meanwhile, which may go when these have executed;
 *
 * but for that no operation counts as executed which runs so late that what comes in would
 * not be on its way in time: so much room ahead as may be in flight. That is the rule of
 * policy `planned` for what has to leave in any case, block by block (`surplus`). If nobody
 * can leave by it, the first to be used meanwhile that are needed late enough do.
 *
 * The walk ends where nothing may leave for what comes in, where a block is used that has
 * left in the course of it, at an operation that is too large for the budget, or after
 * REACH_BLOCKS. What is behind that, the next plan will tell. There is none at all where
 * something is expected that will reach what does not exist yet: nobody knows what room
 * that will take, and plans would take it before.
 *
 * A worker makes several plans for each operation, so it goes by runs: consecutive blocks
 * that are lacked by the same operation, or needed again by the same one, follow each other
 * in the tables, and whatever is said here of a block holds for all of a run. What comes
 * out is what would come out block by block (tests/sim/plan_by_blocks.c).
 */
#include "model_state.h"

#define REACH_BLOCKS 512 /* in each direction: 1 GiB */
#define ROOMS 1024
#define SPENT 1024
#define RING_PLACES 256 /* transfers that are left for commands */

/* What a transfer has to wait for: an operation has executed (0: none), so much has left.
 */
struct awaited {
  uint64_t after_seq, left_bytes;
  uint32_t after_stream;
};

/* So many blocks of room, once that has come about. */
struct room {
  int64_t blocks;
  struct awaited awaited;
  uint64_t step_bytes; /* so much more has to leave for each block that is taken */
};

/* An operation that has executed by then, and which of its blocks is looked at next. */
struct spent {
  int64_t again_seq; /* when most of what it used is needed again; a heap by that */
  uint32_t op, use;
};

/* Consecutive blocks of one range, in the order in which they go. */
struct run {
  int32_t block, step; /* the first of them; 1 or -1 */
  uint32_t count, slot;
};

struct walk {
  struct pump_model *m;
  struct model_rehearsal *out;
  uint32_t device;
  uint32_t slice[PUMP_DIRECTIONS], blocks[PUMP_DIRECTIONS];
  struct room rooms[ROOMS];
  uint32_t rooms_taken, rooms_made;
  uint64_t left_bytes; /* once all that leaves so far has left */
  int64_t horizon;     /* the first operation that uses what has left */
  struct spent spent[SPENT];
  uint32_t spent_count;
  int64_t at, ran; /* operations: that of the walk; the first that does not count as
                      executed yet, */
  int64_t behind;  /* and the room that is taken from there on */
  int32_t idle;    /* next of the idle ones; behind them those of operation `later`, */
  int64_t later, later_use; /* of which uses up to this one have not been looked at */
  int32_t there;            /* the next that may go at once, NONE: not looked for yet */
  bool full;                /* there is no place for more that leaves */
};

/* ---- what may leave ---------------------------------------------------------------- */

static bool is_due(const struct pump_model *m, uint32_t kind, int32_t use) {
  return m->due_uses[use >> 6][kind] >> (use & 63) & 1;
}

/* Up to which block, from this one on, the run can go at most. */
static struct run begin_run(const struct pump_model *m, int32_t block, int32_t step,
                            uint32_t *most) {
  uint32_t slot = m->blocks[block].slot;
  const struct range *range = &m->ranges[slot];
  int32_t place = block - range->first_block;
  uint32_t there = (uint32_t)(step > 0 ? range->blocks - place : place + 1);
  if (there < *most) *most = there;
  return (struct run){.block = block, .step = step, .count = 1, .slot = slot};
}

static void look_at_later(struct walk *w, int64_t from) {
  const struct pump_model *m = w->m;
  w->later = model_previous_set(m, m->can_leave, from);
  if (w->later < m->op_tail) return;
  const struct op *op = &m->ops[op_index(w->later)];
  w->later_use = (int64_t)op->first_use + op->uses;
}

static int32_t look_there(struct walk *w) {
  const struct pump_model *m = w->m;
  if (w->there != NONE) return w->there;
  if (w->idle != NONE) {
    w->there = w->idle;
    w->idle = m->blocks[w->idle].idle_next;
    return w->there;
  }
  while (w->later >= m->op_tail) {
    int64_t begin = m->ops[op_index(w->later)].first_use;
    while ((w->later_use = model_previous_due(m, DUE_SURE, begin, w->later_use)) >= begin) {
      int32_t block = m->uses[use_index(w->later_use)].block;
      if (m->blocks[block].device == w->device) return w->there = block;
    }
    look_at_later(w, w->later - 1);
  }
  return NONE;
}

/* It and those behind it, at most so many, that are needed at the same time. */
static struct run take_there(struct walk *w, uint32_t most) {
  const struct pump_model *m = w->m;
  struct run run = begin_run(m, w->there, -1, &most);
  w->there = NONE;
  if (m->blocks[run.block].first == NONE) return run;
  int64_t begin = m->ops[op_index(w->later)].first_use;
  for (; run.count < most && w->later_use > begin; run.count++, w->later_use--) {
    int32_t use = use_index(w->later_use - 1);
    if (m->uses[use].block != run.block - (int32_t)run.count) break;
    if (!is_due(m, DUE_SURE, use) && !is_due(m, DUE_DOUBTED, use)) break;
  }
  return run;
}

static void sift_down(struct walk *w, uint32_t i) {
  for (;;) {
    uint32_t child = 2 * i + 1;
    if (child >= w->spent_count) return;
    if (child + 1 < w->spent_count &&
        w->spent[child + 1].again_seq > w->spent[child].again_seq)
      child++;
    if (w->spent[child].again_seq <= w->spent[i].again_seq) return;
    struct spent moved = w->spent[i];
    w->spent[i] = w->spent[child];
    w->spent[child] = moved;
    i = child;
  }
}

static void add_spent(struct walk *w, uint32_t op) {
  if (w->m->again[op] == 0 || w->spent_count == SPENT) return;
  uint32_t i = w->spent_count++;
  struct spent added = {.again_seq = w->m->again_seq[op], .op = op};
  for (; i > 0 && w->spent[(i - 1) / 2].again_seq < added.again_seq; i = (i - 1) / 2)
    w->spent[i] = w->spent[(i - 1) / 2];
  w->spent[i] = added;
}

static int64_t takes(const struct walk *w, uint32_t i) {
  return w->m->op_device[i] == w->device ? w->m->away[i] + w->m->births[i] : 0;
}

/* One more operation counts as executed. */
static void run_on(struct walk *w) {
  uint32_t i = op_index(w->ran++);
  w->behind -= takes(w, i);
  if (w->m->op_device[i] == w->device) add_spent(w, i);
}

/* The block of the operation's next use, if it is one that is needed again last. */
static int32_t spent_block(const struct walk *w, const struct spent *top) {
  const struct pump_model *m = w->m;
  const struct op *op = &m->ops[top->op];
  const struct use *use = &m->uses[use_index((int64_t)op->first_use + top->use)];
  if (use->block == NONE || use->next == NONE) return NONE;
  const struct use *next = &m->uses[use->next];
  if ((next->flags & USE_FRESH) != 0 || (int64_t)m->ops[next->op].seq != top->again_seq)
    return NONE;
  return m->blocks[use->block].device == w->device ? use->block : NONE;
}

/* Of what was used meanwhile, the block that is needed again last, behind `need`. */
static int32_t look_spent(struct walk *w, int64_t need) {
  while (w->spent_count > 0 && w->spent[0].again_seq > need) {
    struct spent *top = &w->spent[0];
    for (; top->use < w->m->ops[top->op].uses; top->use++) {
      int32_t block = spent_block(w, top);
      if (block != NONE) return block;
    }
    *top = w->spent[--w->spent_count];
    sift_down(w, 0);
  }
  return NONE;
}

/* That block and those behind it, at most so many, that are needed again at that time. */
static struct run take_spent(struct walk *w, int32_t block, uint32_t most) {
  const struct pump_model *m = w->m;
  struct spent *top = &w->spent[0];
  struct run run = begin_run(m, block, 1, &most);
  uint32_t uses = m->ops[top->op].uses;
  for (top->use++; run.count < most && top->use < uses; run.count++, top->use++)
    if (spent_block(w, top) != block + (int32_t)run.count) break;
  return run;
}

/* ---- slices ------------------------------------------------------------------------ */

static struct model_planned *newest(const struct walk *w, uint32_t way) {
  uint32_t count = w->out->count[way];
  return count > 0 ? &w->out->entries[way][count - 1] : NULL;
}

/* How many blocks one more slice may have, or this one more; 0: there is no place. */
static uint32_t places(const struct walk *w, uint32_t way,
                       const struct model_planned *slice) {
  uint32_t reach = REACH_BLOCKS - w->blocks[way], most = w->slice[way];
  if (slice != NULL)
    most -= (uint32_t)slice->blocks;
  else if (w->out->count[way] == PUMP_PLAN_ENTRIES)
    return 0;
  return most < reach ? most : reach;
}

/* The first blocks of the run are of that slice, or one more (NULL). */
static void add(struct walk *w, uint32_t way, struct model_planned *slice, struct run *run,
                uint32_t count, const struct awaited *awaited) {
  int32_t blocks = (int32_t)count;
  int32_t lowest = run->step > 0 ? run->block : run->block - blocks + 1;
  if (slice == NULL) {
    slice = &w->out->entries[way][w->out->count[way]++];
    *slice = (struct model_planned){.first_block = lowest, .slot = run->slot};
  }
  if (lowest < slice->first_block) slice->first_block = lowest;
  slice->blocks += blocks;
  if (awaited->after_seq > slice->after_seq) {
    slice->after_seq = awaited->after_seq;
    slice->after_stream = awaited->after_stream;
  }
  if (awaited->left_bytes > slice->left_bytes) slice->left_bytes = awaited->left_bytes;
  run->block += run->step * blocks;
  run->count -= count;
  w->blocks[way] += count;
}

/* ---- room -------------------------------------------------------------------------- */

static bool add_room(struct walk *w, struct room room) {
  if (w->rooms_made == ROOMS) return false;
  if (room.blocks > 0) w->rooms[w->rooms_made++] = room;
  return true;
}

/* The slice that leaves just before, if the run continues it. */
static struct model_planned *leaves_with(const struct walk *w, const struct run *run,
                                         const struct awaited *awaited) {
  struct model_planned *last = newest(w, PUMP_TO_HOST);
  if (last == NULL || last->slot != run->slot || last->after_seq != awaited->after_seq ||
      (uint32_t)last->blocks >= w->slice[PUMP_TO_HOST])
    return NULL;
  bool near =
      run->block == last->first_block - 1 || run->block == last->first_block + last->blocks;
  return near ? last : NULL;
}

/* The run leaves, as far as there are places; returns how many blocks do. */
static uint32_t let_go(struct walk *w, struct run run, const struct awaited *awaited) {
  uint32_t wanted = run.count;
  int32_t first = run.block;
  while (run.count > 0) {
    struct model_planned *with = leaves_with(w, &run, awaited);
    uint32_t count = places(w, PUMP_TO_HOST, with);
    if (count > run.count) count = run.count;
    if (count == 0) break;
    add(w, PUMP_TO_HOST, with, &run, count, awaited);
  }
  w->full = run.count > 0;
  if (run.block == first) return 0;
  int32_t lowest = run.step > 0 ? first : run.block + 1;
  int32_t gone = (int32_t)(wanted - run.count);
  w->left_bytes += model_span(&w->m->ranges[run.slot], lowest, gone).length_bytes;
  return (uint32_t)gone;
}

/* As many blocks leave, at most so many, as then come for that operation. Returns how
 * many; 0: nobody may. */
static uint32_t leave(struct walk *w, int64_t need, uint32_t most) {
  struct pump_model *m = w->m;
  if (w->full) return 0;
  int32_t there = look_there(w), spent = look_spent(w, need);
  int64_t there_next = there == NONE ? 0 : m->blocks[there].next_use;
  while (there_next <= need && spent == NONE && w->ran < w->at) {
    run_on(w);
    spent = look_spent(w, need);
  }
  if (there_next <= need && spent == NONE) return 0;
  int64_t spent_next = spent == NONE ? 0 : w->spent[0].again_seq;
  int64_t next_use = there_next < spent_next ? spent_next : there_next;
  uint32_t left = ROOMS - w->rooms_made; /* each block that leaves is one */
  if (most > left) most = left > 0 ? left : 1;
  struct awaited awaited = {0};
  uint32_t gone;
  if (there_next < spent_next) {
    const struct op *op = &m->ops[w->spent[0].op];
    awaited.after_seq = op->seq;
    awaited.after_stream = op->stream;
    gone = let_go(w, take_spent(w, spent, most), &awaited);
  } else {
    gone = let_go(w, take_there(w, most), &awaited);
  }
  if (gone > 0 && next_use < w->horizon) w->horizon = next_use;
  if (left == 0) return 0;
  w->rooms_made += gone; /* and are taken at once */
  w->rooms_taken += gone;
  return gone;
}

/* Room for blocks, at most so many, that come for that operation, and what they have to
 * wait for. Returns for how many; 0: there is none. */
static uint32_t take_room(struct walk *w, int64_t need, uint32_t most,
                          struct awaited *awaited) {
  if (w->rooms_taken == w->rooms_made) {
    uint32_t gone = leave(w, need, most);
    *awaited = (struct awaited){.left_bytes = w->left_bytes};
    return gone;
  }
  struct room *room = &w->rooms[w->rooms_taken];
  if (room->blocks < (int64_t)most) most = (uint32_t)room->blocks;
  room->awaited.left_bytes += room->step_bytes * most;
  room->blocks -= most;
  w->rooms_taken += room->blocks == 0;
  *awaited = room->awaited;
  return most;
}

/* ---- the walk ---------------------------------------------------------------------- */

/* The slice that comes just before, if the run continues it. */
static struct model_planned *comes_with(const struct walk *w, const struct run *run,
                                        int64_t need) {
  struct model_planned *last = newest(w, PUMP_TO_GPU);
  bool with = last != NULL && last->need == need && last->slot == run->slot &&
              run->block == last->first_block + last->blocks &&
              (uint32_t)last->blocks < w->slice[PUMP_TO_GPU];
  return with ? last : NULL;
}

/* The run comes for that operation; false where the walk ends. */
static bool come(struct walk *w, struct run run, bool away, const struct op *op) {
  int64_t need = (int64_t)op->seq;
  while (run.count > 0) {
    struct model_planned *with = comes_with(w, &run, need);
    struct awaited awaited = {0};
    uint32_t count = places(w, PUMP_TO_GPU, with);
    if (count > run.count) count = run.count;
    if (away) {
      uint32_t room = take_room(w, need, count > 0 ? count : 1, &awaited);
      if (room < count) count = room;
    }
    /* One slice waits for operations of one stream. */
    if (with != NULL && with->after_seq != 0 && awaited.after_seq != 0 &&
        with->after_stream != awaited.after_stream) {
      with = NULL;
      if (places(w, PUMP_TO_GPU, NULL) == 0) return false;
    }
    if (count == 0) return false;
    add(w, PUMP_TO_GPU, with, &run, count, &awaited);
    newest(w, PUMP_TO_GPU)->need = need;
    newest(w, PUMP_TO_GPU)->need_stream = op->stream;
  }
  return true;
}

/* What the operation lacks comes, in the order in which it uses it. */
static bool bring(struct walk *w, const struct op *op) {
  const struct pump_model *m = w->m;
  int64_t at = op->first_use, end = at + op->uses;
  while ((at = model_next_due(m, DUE_AWAY, at, end)) < end) {
    int32_t use = use_index(at++), block = m->uses[use].block;
    if (m->blocks[block].device != w->device) continue;
    uint32_t kind = is_due(m, DUE_AWAY, use) ? DUE_AWAY : DUE_DOUBTED, most = op->uses;
    struct run run = begin_run(m, block, 1, &most);
    for (; run.count < most && at < end; run.count++, at++) {
      use = use_index(at);
      if (m->uses[use].block != block + (int32_t)run.count || !is_due(m, kind, use)) break;
    }
    if (!come(w, run, kind == DUE_AWAY, op)) return false;
  }
  return true;
}

/* False where the walk ends. */
static bool step(struct walk *w, uint32_t i) {
  struct pump_model *m = w->m;
  const struct op *op = &m->ops[i];
  struct awaited nobody;
  if (op->larger) return false;
  if (op->due[DUE_AWAY] + op->due[DUE_DOUBTED] > 0 && !bring(w, op)) return false;
  for (int64_t born = m->births[i]; born > 0;) {
    uint32_t room = take_room(w, (int64_t)op->seq, (uint32_t)born, &nobody);
    if (room == 0) return false;
    born -= room;
  }
  struct awaited executed = {.after_seq = op->seq, .after_stream = op->stream};
  return add_room(w, (struct room){.blocks = m->gives[i], .awaited = executed});
}

/* Room at the beginning; false when there is too little of it to plan with. */
static bool begin(struct walk *w) {
  const struct device *device = &w->m->devices[w->device];
  int64_t free = device->facts.budget - model_occupied(device);
  int64_t leaving = device->counts[PUMP_BLOCK_LEAVING];
  if (free + leaving < 0) return false;
  add_room(w, (struct room){.blocks = free});
  int64_t owed = free < 0 ? -free : 0;
  w->left_bytes = device->left_bytes + device->leaving_bytes;
  struct awaited owed_left = {.left_bytes =
                                  device->left_bytes + (uint64_t)owed * PUMP_BLOCK_BYTES};
  return add_room(w, (struct room){.blocks = leaving - owed,
                                   .awaited = owed_left,
                                   .step_bytes = PUMP_BLOCK_BYTES});
}

void model_rehearse(struct pump_model *m, uint32_t device, uint64_t until_seq,
                    struct model_rehearsal *out) {
  static struct walk walk; /* one thread at a time, and too large for a stack */
  struct walk *w = &walk;
  w->m = m;
  w->out = out;
  w->device = device;
  for (int way = 0; way < PUMP_DIRECTIONS; way++) {
    w->slice[way] = model_slice(m, &m->devices[device], way);
    w->blocks[way] = out->count[way] = 0;
  }
  w->rooms_taken = w->rooms_made = w->spent_count = 0;
  w->ran = m->op_tail;
  w->behind = 0;
  w->horizon = PUMP_NOT_NEEDED;
  w->idle = m->devices[device].idle.head;
  w->there = NONE;
  w->full = false;
  if (!begin(w)) return;
  look_at_later(w, m->op_head - 1);
  int64_t ahead = model_flight_most(m, &m->devices[device]);
  for (w->at = m->op_tail; w->at < m->op_head; w->at++) {
    uint32_t i = op_index(w->at);
    if (m->ops[i].seq > until_seq || (int64_t)m->ops[i].seq >= w->horizon) return;
    w->behind += takes(w, i);
    while (w->ran < w->at && w->behind - takes(w, op_index(w->ran)) >= ahead) run_on(w);
    if (m->op_device[i] == device && !step(w, i)) return;
  }
}

/* ---- transfers that may be taken ----------------------------------------------------- */

uint32_t model_plan_hold(struct pump_model *m, uint32_t device, uint32_t way,
                         const struct model_planned *planned, uint32_t count,
                         uint16_t *places) {
  uint32_t held = 0;
  for (; held < count && m->unused_count > RING_PLACES; held++, planned++) {
    const struct range *range = &m->ranges[planned->slot];
    uint32_t place = m->unused_transfers[--m->unused_count];
    m->transfers[place] = (struct transfer){
        .ticket = model_ticket(m, place),
        .first_block = planned->first_block,
        .blocks = planned->blocks,
        .slot = planned->slot,
        .generation = range->generation,
        .bytes = model_span(range, planned->first_block, planned->blocks).length_bytes,
        .device = (uint8_t)device,
        .direction = (uint8_t)way,
        .expected = true,
        .planned = true};
    places[held] = (uint16_t)place;
  }
  m->plan_places += held;
  return held;
}

void model_plan_give_back(struct pump_model *m, uint32_t place) {
  m->transfers[place].ticket = 0;
  m->unused_transfers[m->unused_count++] = place;
  m->plan_places--;
}

void model_plan_taken(struct pump_model *m, uint32_t place) {
  struct transfer *transfer = &m->transfers[place];
  const struct range *range = &m->ranges[transfer->slot];
  struct device *device = &m->devices[transfer->device];
  bool to_gpu = transfer->direction == PUMP_TO_GPU;
  m->plan_places--;
  transfer->observed_seq = (int64_t)m->totals.observed_seq;
  if (!to_gpu) device->leaving_bytes += transfer->bytes;
  if (!to_gpu) model_unsettle(m);
  if (range->first_block == NONE || range->generation != transfer->generation) return;
  for (int32_t b = transfer->first_block; b < transfer->first_block + transfer->blocks;
       b++) {
    uint8_t state = m->blocks[b].state;
    bool there = state == PUMP_BLOCK_RESIDENT || state == PUMP_BLOCK_DOUBTED;
    bool away = state == PUMP_BLOCK_HOST || state == PUMP_BLOCK_ABSENT;
    if (to_gpu && away && --device->allowance < 0) model_ask(device);
    if (there || (to_gpu && away))
      model_set_state(m, b, to_gpu ? PUMP_BLOCK_ARRIVING : PUMP_BLOCK_LEAVING);
  }
}
