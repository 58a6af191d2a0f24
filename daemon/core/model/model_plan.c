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
 * What is discarded in the course of it and written anew later takes room as well. It
 * cannot come before its discard, so it takes the first room that is given back from then
 * on, mostly its own, and leaves what comes before to others.
 *
 * A worker makes many plans, so it goes by runs: consecutive blocks
 * that are lacked by the same operation, or needed again by the same one, follow each other
 * in the tables, and whatever is said here of a block holds for all of a run. What comes
 * out is what would come out block by block (tests/sim/plan_by_blocks.c).
 */
#include "model_state.h"

#define REACH_BLOCKS 512 /* in each direction: 1 GiB */
#define ROOMS 1024
#define SPENT 1024

/* What a transfer has to wait for: an operation has executed (0: none), so much has left.
 */
struct awaited {
  uint64_t after_seq, left_bytes;
  uint64_t step_bytes; /* of several blocks each but the last so much less than the next */
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

/* What goes one way, in slices of at most so many blocks: the newest (at first one that
 * nothing continues), where the next one is written, and places that are left. */
struct goes {
  struct model_planned *newest, *next;
  uint32_t slice, slices_left, blocks_left;
};

struct walk {
  struct pump_model *m;
  uint32_t device;
  struct goes goes[PUMP_DIRECTIONS];
  struct room rooms[ROOMS];
  uint32_t rooms_taken, rooms_made;
  uint32_t reborn_at;  /* the room that was taken last by a block discarded on the way, */
  int64_t reborn_seq;  /* behind that operation */
  uint64_t left_bytes; /* once all that leaves so far has left */
  int64_t horizon;     /* the first operation that uses what has left */
  struct spent spent[SPENT];
  uint32_t spent_count;
  int64_t at, ran; /* operations: that of the walk; the first that does not count as
                      executed yet, */
  int64_t behind;  /* and the room that is taken from there on; */
  int64_t takes;   /* what that one takes of it */
  int32_t idle;    /* next of the idle ones; behind them those of operation `later`, */
  int64_t later, later_use; /* of which uses up to this one have not been looked at */
  int32_t there;            /* the next that may go at once, NONE: not looked for yet */
  bool ended;               /* before operations did */
  bool full;                /* there is no place for more that leaves */
};

/* ---- what may leave ---------------------------------------------------------------- */

/* How many uses from this one on are due and of that kind; of one word at most. */
static inline uint32_t due_run(const struct pump_model *m, uint32_t kind, int32_t use) {
  uint64_t others = ~m->due_uses[use >> 6][kind] >> (use & 63);
  return others == 0 ? 64u - (uint32_t)(use & 63) : (uint32_t)__builtin_ctzll(others);
}

static inline bool is_there(const struct pump_model *m, int32_t use) {
  const uint64_t *words = m->due_uses[use >> 6];
  return (words[DUE_SURE] | words[DUE_DOUBTED]) >> (use & 63) & 1;
}

/* Up to which block, from this one on, the run can go at most. */
static inline struct run begin_run(const struct pump_model *m, int32_t block, int32_t step,
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
    if (!is_there(m, use)) break;
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

static inline int64_t takes(const struct walk *w, int64_t at) {
  uint32_t i = op_index(at);
  return w->m->op_device[i] == w->device ? w->m->away[i] + w->m->births[i] : 0;
}

/* One more operation counts as executed. */
static void run_on(struct walk *w) {
  uint32_t i = op_index(w->ran++);
  w->behind -= w->takes;
  w->takes = takes(w, w->ran);
  if (w->m->op_device[i] == w->device) add_spent(w, i);
}

/* The block of the operation's next use, if it is one that is needed again last. */
static inline int32_t spent_block(const struct walk *w, const struct spent *top) {
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

/* How many blocks the newest slice may have more, or one more slice (not `with`); 0: there
 * is no place. */
static inline uint32_t places(const struct goes *goes, bool with) {
  uint32_t most = goes->slice;
  if (with)
    most -= (uint32_t)goes->newest->blocks;
  else if (goes->slices_left == 0)
    return 0;
  return most < goes->blocks_left ? most : goes->blocks_left;
}

/* The first blocks of the run are of the newest slice (`with`), or make one more. */
static inline void add(struct goes *goes, bool with, struct run *run, uint32_t count,
                       const struct awaited *awaited) {
  int32_t blocks = (int32_t)count, lowest = run->block;
  if (run->step < 0) lowest -= blocks - 1;
  run->block += run->step < 0 ? -blocks : blocks;
  run->count -= count;
  goes->blocks_left -= count;
  if (!with) {
    struct model_planned *slice = goes->newest = goes->next++;
    goes->slices_left--;
    slice->first_block = lowest;
    slice->blocks = blocks;
    slice->slot = run->slot;
    slice->after_stream = awaited->after_stream;
    slice->after_seq = awaited->after_seq;
    slice->left_bytes = awaited->left_bytes;
    slice->first = (struct model_wait){.after_seq = awaited->after_seq,
                                       .left_bytes = awaited->left_bytes -
                                                     awaited->step_bytes * (count - 1),
                                       .after_stream = awaited->after_stream};
    return;
  }
  struct model_planned *slice = goes->newest;
  if (lowest < slice->first_block) slice->first_block = lowest;
  slice->blocks += blocks;
  if (awaited->after_seq > slice->after_seq) {
    slice->after_seq = awaited->after_seq;
    slice->after_stream = awaited->after_stream;
  }
  if (awaited->left_bytes > slice->left_bytes) slice->left_bytes = awaited->left_bytes;
}

/* ---- room -------------------------------------------------------------------------- */

static bool add_room(struct walk *w, struct room room) {
  if (w->rooms_made == ROOMS) return false;
  if (room.blocks > 0) w->rooms[w->rooms_made++] = room;
  return true;
}

/* Whether the run continues the slice that leaves just before. */
static inline bool leaves_with(const struct goes *goes, const struct run *run,
                               const struct awaited *awaited) {
  const struct model_planned *last = goes->newest;
  bool near =
      run->block == last->first_block - 1 || run->block == last->first_block + last->blocks;
  return near && last->slot == run->slot && last->after_seq == awaited->after_seq &&
         (uint32_t)last->blocks < goes->slice;
}

/* The run leaves, as far as there are places; returns how many blocks do. */
static uint32_t let_go(struct walk *w, struct run run, const struct awaited *awaited) {
  struct goes *goes = &w->goes[PUMP_TO_HOST];
  uint32_t wanted = run.count;
  int32_t first = run.block;
  while (run.count > 0) {
    bool with = leaves_with(goes, &run, awaited);
    uint32_t count = places(goes, with);
    if (count > run.count) count = run.count;
    if (count == 0) break;
    add(goes, with, &run, count, awaited);
    goes->newest->need = 0;
    goes->newest->need_stream = 0;
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
  int32_t there = look_there(w), spent = NONE;
  int64_t there_next = there == NONE ? 0 : m->blocks[there].next_use;
  /* Looked for only if it may be needed later than who is there. */
  if (there_next <= need || (w->spent_count > 0 && w->spent[0].again_seq > there_next))
    spent = look_spent(w, need);
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

/* Neither the first of those that are left nor the last is used up. */
static inline void use_up(struct walk *w, struct room *room, uint32_t blocks) {
  room->blocks -= blocks;
  if (room->blocks > 0) return;
  while (w->rooms_taken < w->rooms_made && w->rooms[w->rooms_made - 1].blocks == 0)
    w->rooms_made--;
  while (w->rooms_taken < w->rooms_made && w->rooms[w->rooms_taken].blocks == 0)
    w->rooms_taken++;
}

/* Room for blocks, at most so many, that come for that operation, and what they have to
 * wait for. Returns for how many; 0: there is none. */
static inline uint32_t take_room(struct walk *w, int64_t need, uint32_t most,
                                 struct awaited *awaited) {
  if (w->rooms_taken == w->rooms_made) {
    uint32_t gone = leave(w, need, most);
    *awaited =
        (struct awaited){.left_bytes = w->left_bytes, .step_bytes = PUMP_BLOCK_BYTES};
    return gone;
  }
  struct room *room = &w->rooms[w->rooms_taken];
  if (room->blocks < (int64_t)most) most = (uint32_t)room->blocks;
  room->awaited.left_bytes += room->step_bytes * most;
  *awaited = room->awaited;
  awaited->step_bytes = room->step_bytes;
  use_up(w, room, most);
  return most;
}

/* The first room that a discard gives back once that operation has executed; if there is
 * none, the last of all. */
static uint32_t room_from(const struct walk *w, int64_t seq) {
  uint32_t found = w->rooms_made - 1;
  if (w->reborn_seq == seq && w->reborn_at >= w->rooms_taken && w->reborn_at <= found &&
      (int64_t)w->rooms[w->reborn_at].awaited.after_seq >= seq &&
      w->rooms[w->reborn_at].blocks > 0)
    return w->reborn_at;
  for (uint32_t i = w->rooms_made; i-- > w->rooms_taken;) {
    const struct room *room = &w->rooms[i];
    if (room->awaited.after_seq == 0) continue;
    if ((int64_t)room->awaited.after_seq < seq) break;
    if (room->blocks > 0) found = i;
  }
  return found;
}

/* Room for what the operation writes anew. */
static bool bear(struct walk *w, const struct op *op, int32_t births) {
  const struct pump_model *m = w->m;
  for (uint32_t i = 0; i < op->uses && births > 0; i++) {
    int32_t at = use_index((int64_t)op->first_use + i);
    const struct use *use = &m->uses[at];
    if (use->block == NONE || (use->flags & USE_FRESH) == 0) continue;
    if (m->blocks[use->block].first == at) continue; /* discarded by now: it is missing */
    births--;
    if (w->rooms_taken == w->rooms_made) {
      if (leave(w, (int64_t)op->seq, 1) == 0) return false;
      continue; /* its room is taken at once */
    }
    int64_t from = (int64_t)m->ops[m->uses[use->prev].op].seq;
    w->reborn_at = room_from(w, from);
    w->reborn_seq = from;
    use_up(w, &w->rooms[w->reborn_at], 1);
  }
  return true;
}

/* ---- the walk ---------------------------------------------------------------------- */

/* Whether the run continues the slice that comes just before. */
static inline bool comes_with(const struct goes *goes, const struct run *run,
                              int64_t need) {
  const struct model_planned *last = goes->newest;
  return run->block == last->first_block + last->blocks && last->need == need &&
         last->slot == run->slot && (uint32_t)last->blocks < goes->slice;
}

/* The run comes for that operation; false where the walk ends. */
static inline bool come(struct walk *w, struct run run, bool away, const struct op *op) {
  struct goes *goes = &w->goes[PUMP_TO_GPU];
  int64_t need = (int64_t)op->seq;
  while (run.count > 0) {
    bool with = comes_with(goes, &run, need);
    struct awaited awaited = {0};
    uint32_t count = places(goes, with);
    if (count > run.count) count = run.count;
    if (away) {
      uint32_t room = take_room(w, need, count > 0 ? count : 1, &awaited);
      if (room < count) count = room;
    }
    /* One slice waits for operations of one stream. */
    if (with && goes->newest->after_seq != 0 && awaited.after_seq != 0 &&
        goes->newest->after_stream != awaited.after_stream) {
      with = false;
      if (goes->slices_left == 0) return false;
    }
    if (count == 0) return false;
    add(goes, with, &run, count, &awaited);
    goes->newest->need = need;
    goes->newest->need_stream = op->stream;
  }
  return true;
}

/* What the operation lacks comes, in the order in which it uses it. */
static bool bring(struct walk *w, const struct op *op) {
  const struct pump_model *m = w->m;
  int64_t at = op->first_use, end = at + op->uses;
  while ((at = model_next_due(m, DUE_AWAY, at, end)) < end) {
    int32_t use = use_index(at), block = m->uses[use].block;
    uint32_t most = due_run(m, DUE_AWAY, use), away = most;
    if (most == 0) most = due_run(m, DUE_DOUBTED, use);
    if (most > end - at) most = (uint32_t)(end - at);
    at++;
    if (m->blocks[block].device != w->device) continue;
    struct run run = begin_run(m, block, 1, &most);
    const struct use *next = &m->uses[use + 1];
    for (; run.count < most && next->block == block + (int32_t)run.count; at++, next++)
      run.count++;
    if (!come(w, run, away > 0, op)) return false;
  }
  return true;
}

/* False where the walk ends. */
static bool step(struct walk *w, uint32_t i) {
  struct pump_model *m = w->m;
  const struct op *op = &m->ops[i];
  if (op->larger) return false;
  if (op->due[DUE_AWAY] + op->due[DUE_DOUBTED] > 0 && !bring(w, op)) return false;
  if (m->births[i] > 0 && !bear(w, op, m->births[i])) return false;
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

/* Goes over what is known, up to that position. */
static void walk_over(struct walk *w, int64_t end) {
  const struct pump_model *m = w->m;
  int64_t ahead = model_flight_most(m, &m->devices[w->device]);
  for (w->at = m->op_tail; w->at < end; w->at++) {
    uint32_t i = op_index(w->at);
    if ((int64_t)m->ops[i].seq >= w->horizon) return;
    w->behind += takes(w, w->at);
    while (w->ran < w->at && w->behind - w->takes >= ahead) run_on(w);
    if (m->op_device[i] == w->device && !step(w, i)) return;
  }
  w->ended = false;
}

void model_rehearse(struct pump_model *m, uint32_t device, uint64_t until_seq,
                    struct model_rehearsal *out) {
  static struct walk walk; /* one thread at a time, and too large for a stack */
  static struct model_planned nothing = {.blocks = INT32_MAX};
  struct walk *w = &walk;
  w->m = m;
  w->device = device;
  for (int way = 0; way < PUMP_DIRECTIONS; way++)
    w->goes[way] = (struct goes){.newest = &nothing,
                                 .next = out->entries[way],
                                 .slice = model_slice(m, &m->devices[device], way),
                                 .slices_left = PUMP_PLAN_ENTRIES,
                                 .blocks_left = REACH_BLOCKS};
  w->rooms_taken = w->rooms_made = w->spent_count = 0;
  w->ran = m->op_tail;
  w->behind = 0;
  w->horizon = PUMP_NOT_NEEDED;
  w->idle = m->devices[device].idle.head;
  w->there = NONE;
  w->full = false;
  w->ended = true;
  w->reborn_seq = -1;
  w->takes = takes(w, w->ran);
  look_at_later(w, m->op_head - 1);
  int64_t known = m->op_issued + (int64_t)(until_seq - m->added_seq);
  if (begin(w)) walk_over(w, known < m->op_head ? known : m->op_head);
  for (int way = 0; way < PUMP_DIRECTIONS; way++)
    out->count[way] = PUMP_PLAN_ENTRIES - w->goes[way].slices_left;
  out->short_of_ops = !w->ended;
}
