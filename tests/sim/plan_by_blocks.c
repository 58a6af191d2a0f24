/* plan_by_blocks.c - plans rehearsed again, block by block, and held against the real ones.
 *
 * model_plan.c goes by runs of blocks; its DESIGN says what of each block. Here that is
 * done as it is said, slowly. Linked over the real one (-Wl,--wrap=model_rehearse) both are
 * asked for each plan, and the first that differs ends the process.
 */
#include <stdio.h>
#include <stdlib.h>

#include "daemon/core/model/model_state.h"

#define REACH_BLOCKS 512 /* in each direction: 1 GiB */
#define ROOMS 1024
#define SPENT 1024

/* So many blocks of room, once the operation has executed and so much has left. */
struct room {
  int64_t blocks;
  uint64_t after_seq, left_bytes, step_bytes; /* step: more for each block that is taken */
  uint32_t after_stream;
};

/* An operation that has executed by then, and which of its blocks is looked at next. */
struct spent {
  int64_t again_seq; /* when most of what it used is needed again; a heap by that */
  uint32_t op, use;
};

struct walk {
  struct pump_model *m;
  struct model_rehearsal *out;
  uint32_t device;
  int64_t blocks[PUMP_DIRECTIONS];
  struct room rooms[ROOMS];
  uint32_t rooms_taken, rooms_made;
  uint64_t left_bytes; /* once all that leaves so far has left */
  int64_t horizon;     /* the first operation that uses what has left */
  struct spent spent[SPENT];
  uint32_t spent_count;
  int64_t at, ran; /* operations: that of the walk; the first that does not count as
                      executed yet, */
  int64_t behind;  /* and the room that is taken from there on */
  int32_t idle;    /* next of the idle ones; behind them those of operation `later` */
  int64_t later;
  uint32_t later_use;
  int32_t there; /* the next that may go at once, NONE: not looked for yet */
};

/* ---- what may leave ---------------------------------------------------------------- */

/* The block of the operation's i-th use, if the operation is the next to use it and it
 * belongs to the device; else NONE. */
static int32_t due_block(const struct pump_model *m, const struct op *op, uint32_t i,
                         uint32_t device) {
  int32_t use = use_index((int64_t)op->first_use + i), block = m->window.uses[use].block;
  if (block == NONE || m->blocks.all[block].first != use) return NONE;
  return m->blocks.all[block].device == device ? block : NONE;
}

static int32_t look_there(struct walk *w) {
  struct pump_model *m = w->m;
  if (w->there != NONE) return w->there;
  if (w->idle != NONE) {
    w->there = w->idle;
    w->idle = m->blocks.all[w->idle].idle_next;
    return w->there;
  }
  while (w->later >= m->window.op_tail) {
    const struct op *op = &m->window.ops[op_index(w->later)];
    while (w->later_use > 0) {
      int32_t block = due_block(m, op, --w->later_use, w->device);
      if (block == NONE) continue;
      uint8_t state = m->blocks.all[block].state;
      if (state == PUMP_BLOCK_RESIDENT || state == PUMP_BLOCK_MAYBE_EVICTED)
        return w->there = block;
    }
    w->later = model_previous_set(m, m->window.can_leave, w->later - 1);
    if (w->later >= m->window.op_tail)
      w->later_use = m->window.ops[op_index(w->later)].uses;
  }
  return NONE;
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
  if (w->m->window.again[op] == 0 || w->spent_count == SPENT) return;
  uint32_t i = w->spent_count++;
  struct spent added = {.again_seq = w->m->window.again_seq[op], .op = op};
  for (; i > 0 && w->spent[(i - 1) / 2].again_seq < added.again_seq; i = (i - 1) / 2)
    w->spent[i] = w->spent[(i - 1) / 2];
  w->spent[i] = added;
}

static int64_t takes(const struct walk *w, uint32_t i) {
  return w->m->window.op_device[i] == w->device
             ? w->m->window.away[i] + w->m->window.allocates_blocks[i]
             : 0;
}

/* One more operation counts as executed. */
static void run_on(struct walk *w) {
  uint32_t i = op_index(w->ran++);
  w->behind -= takes(w, i);
  if (w->m->window.op_device[i] == w->device) add_spent(w, i);
}

/* Of what was used meanwhile, the block that is needed again last, behind `need`. */
static int32_t look_spent(struct walk *w, int64_t need) {
  struct pump_model *m = w->m;
  while (w->spent_count > 0 && w->spent[0].again_seq > need) {
    struct spent *top = &w->spent[0];
    const struct op *op = &m->window.ops[top->op];
    for (; top->use < op->uses; top->use++) {
      const struct use *use = &m->window.uses[use_index((int64_t)op->first_use + top->use)];
      if (use->block == NONE || use->next == NONE) continue;
      const struct use *next = &m->window.uses[use->next];
      if ((next->flags & USE_FRESH) == 0 &&
          (int64_t)m->window.ops[next->op].seq == top->again_seq &&
          m->blocks.all[use->block].device == w->device)
        return use->block;
    }
    *top = w->spent[--w->spent_count];
    sift_down(w, 0);
  }
  return NONE;
}

/* ---- slices ------------------------------------------------------------------------ */

static bool joins(const struct walk *w, uint32_t way, const struct model_planned *last,
                  const struct model_planned *more) {
  const struct pump_model *m = w->m;
  int32_t begin = last->first_block, end = begin + last->blocks;
  bool front = way == PUMP_TO_HOST && more->first_block == begin - 1;
  if (!front && more->first_block != end) return false;
  if (m->blocks.all[begin].slot != m->blocks.all[more->first_block].slot) return false;
  if ((uint32_t)last->blocks >= model_slice(m, &m->devices[w->device], (int)way))
    return false;
  if (last->need != more->need) return false;
  if (way == PUMP_TO_HOST) return last->after_seq == more->after_seq;
  return last->after_seq == 0 || more->after_seq == 0 ||
         last->after_stream == more->after_stream;
}

/* One block, joined to the slice before it if it can be. False when there is no place. */
static bool add(struct walk *w, uint32_t way, const struct model_planned *more) {
  uint32_t *count = &w->out->count[way];
  if (w->blocks[way] == REACH_BLOCKS) return false;
  struct model_planned *last = *count > 0 ? &w->out->entries[way][*count - 1] : NULL;
  if (last != NULL && joins(w, way, last, more)) {
    last->blocks++;
    if (more->first_block < last->first_block) last->first_block = more->first_block;
    if (more->after_seq > last->after_seq) {
      last->after_seq = more->after_seq;
      last->after_stream = more->after_stream;
    }
    if (more->left_bytes > last->left_bytes) last->left_bytes = more->left_bytes;
  } else if (*count < PUMP_PLAN_ENTRIES) {
    w->out->entries[way][(*count)++] = *more;
  } else {
    return false;
  }
  w->blocks[way]++;
  return true;
}

/* ---- room -------------------------------------------------------------------------- */

static bool add_room(struct walk *w, struct room room) {
  if (w->rooms_made == ROOMS) return false;
  if (room.blocks > 0) w->rooms[w->rooms_made++] = room;
  return true;
}

/* A block leaves for one that is needed by that operation. */
static bool leave(struct walk *w, int64_t need) {
  struct pump_model *m = w->m;
  int32_t there = look_there(w), spent = look_spent(w, need);
  int64_t there_next = there == NONE ? 0 : m->blocks.all[there].next_use;
  while (there_next <= need && spent == NONE && w->ran < w->at) {
    run_on(w);
    spent = look_spent(w, need);
  }
  int64_t spent_next = spent == NONE ? 0 : w->spent[0].again_seq;
  struct model_planned more = {.first_block = there, .blocks = 1};
  int64_t next_use = there_next;
  if (there_next <= need && spent == NONE) return false;
  if (there_next < spent_next) {
    const struct op *op = &m->window.ops[w->spent[0].op];
    more.first_block = spent;
    more.after_seq = op->seq;
    more.after_stream = op->stream;
    next_use = spent_next;
  }
  if (!add(w, PUMP_TO_HOST, &more)) return false;
  if (more.after_seq == 0)
    w->there = NONE;
  else
    w->spent[0].use++;
  if (next_use < w->horizon) w->horizon = next_use;
  w->left_bytes +=
      model_span(&m->ranges.all[m->blocks.all[more.first_block].slot], more.first_block, 1)
          .length_bytes;
  return add_room(w, (struct room){.blocks = 1, .left_bytes = w->left_bytes});
}

static void use_one(struct walk *w, struct room *room) {
  room->blocks--;
  while (w->rooms_taken < w->rooms_made && w->rooms[w->rooms_made - 1].blocks == 0)
    w->rooms_made--;
  while (w->rooms_taken < w->rooms_made && w->rooms[w->rooms_taken].blocks == 0)
    w->rooms_taken++;
}

static bool take_room(struct walk *w, int64_t need, struct model_planned *more) {
  if (w->rooms_taken == w->rooms_made && !leave(w, need)) return false;
  struct room *room = &w->rooms[w->rooms_taken];
  room->left_bytes += room->step_bytes;
  more->left_bytes = room->left_bytes;
  more->after_seq = room->after_seq;
  more->after_stream = room->after_stream;
  use_one(w, room);
  return true;
}

/* What is written anew takes the first room that is given back behind its discard. */
static bool bear(struct walk *w, const struct op *op) {
  struct pump_model *m = w->m;
  int32_t allocates_blocks = m->window.allocates_blocks[op - m->window.ops];
  for (uint32_t i = 0; i < op->uses && allocates_blocks > 0; i++) {
    int32_t at = use_index((int64_t)op->first_use + i);
    const struct use *use = &m->window.uses[at];
    if (use->block == NONE || (use->flags & USE_FRESH) == 0) continue;
    if (m->blocks.all[use->block].first == at) continue;
    allocates_blocks--;
    if (w->rooms_taken == w->rooms_made && !leave(w, (int64_t)op->seq)) return false;
    uint64_t from = m->window.ops[m->window.uses[use->prev].op].seq;
    uint32_t found = w->rooms_made - 1;
    for (uint32_t r = w->rooms_made; r-- > w->rooms_taken;) {
      const struct room *room = &w->rooms[r];
      if (room->after_seq == 0) continue;
      if (room->after_seq < from) break;
      if (room->blocks > 0) found = r;
    }
    use_one(w, &w->rooms[found]);
  }
  return true;
}

/* ---- the walk ---------------------------------------------------------------------- */

static bool bring(struct walk *w, const struct op *op) {
  struct pump_model *m = w->m;
  uint32_t left = op->due[DUE_AWAY] + op->due[DUE_MAYBE_EVICTED];
  for (uint32_t i = 0; i < op->uses && left > 0; i++) {
    int32_t block = due_block(m, op, i, w->device);
    if (block == NONE) continue;
    uint8_t state = m->blocks.all[block].state;
    struct model_planned more = {
        .first_block = block, .blocks = 1, .need = (int64_t)op->seq};
    if (state == PUMP_BLOCK_HOST || state == PUMP_BLOCK_ABSENT) {
      if (!take_room(w, more.need, &more)) return false;
    } else if (state != PUMP_BLOCK_MAYBE_EVICTED) {
      continue;
    }
    if (!add(w, PUMP_TO_GPU, &more)) return false;
    left--;
  }
  return true;
}

/* Whose progress tells that discards behind an operation of the stream have ended. */
static uint32_t discards_in(const struct pump_model *m, uint32_t stream) {
  return m->streams.discard_stream != 0 ? m->streams.discard_stream : stream;
}

/* False where the walk ends. */
static bool step(struct walk *w, uint32_t i) {
  struct pump_model *m = w->m;
  const struct op *op = &m->window.ops[i];
  if (op->larger) return false;
  if (op->due[DUE_AWAY] + op->due[DUE_MAYBE_EVICTED] > 0 && !bring(w, op)) return false;
  if (m->window.allocates_blocks[i] > 0 && !bear(w, op)) return false;
  return add_room(w, (struct room){.blocks = m->window.frees_blocks[i],
                                   .after_seq = op->seq,
                                   .after_stream = discards_in(m, op->stream)});
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
  add_room(w, (struct room){.blocks = device->counts[PUMP_BLOCK_DISCARDING],
                            .after_seq = device->discarding_seq,
                            .after_stream = w->m->streams.discard_stream});
  return add_room(
      w, (struct room){.blocks = leaving - owed,
                       .left_bytes = device->left_bytes + (uint64_t)owed * PUMP_BLOCK_BYTES,
                       .step_bytes = PUMP_BLOCK_BYTES});
}

static void by_blocks(struct pump_model *m, uint32_t device, uint64_t until_seq,
                      struct model_rehearsal *out) {
  static struct walk walk; /* one thread at a time, and too large for a stack */
  struct walk *w = &walk;
  w->m = m;
  w->out = out;
  w->device = device;
  w->blocks[0] = w->blocks[1] = 0;
  w->rooms_taken = w->rooms_made = w->spent_count = 0;
  w->ran = m->window.op_tail;
  w->behind = 0;
  w->horizon = PUMP_NOT_NEEDED;
  w->idle = m->devices[device].idle.head;
  w->later = m->window.op_head;
  w->later_use = 0;
  w->there = NONE;
  out->count[0] = out->count[1] = 0;
  if (!begin(w)) return;
  w->later = model_previous_set(m, m->window.can_leave, m->window.op_head - 1);
  if (w->later >= m->window.op_tail) w->later_use = m->window.ops[op_index(w->later)].uses;
  int64_t ahead = model_flight_most(m, &m->devices[device]);
  for (w->at = m->window.op_tail; w->at < m->window.op_head; w->at++) {
    uint32_t i = op_index(w->at);
    if (m->window.ops[i].seq > until_seq || (int64_t)m->window.ops[i].seq >= w->horizon)
      return;
    w->behind += takes(w, i);
    while (w->ran < w->at && w->behind - takes(w, op_index(w->ran)) >= ahead) run_on(w);
    if (m->window.op_device[i] == device && !step(w, i)) return;
  }
}

/* ---- compared ---------------------------------------------------------------------- */

void __real_model_rehearse(struct pump_model *m, uint32_t device, uint64_t until_seq,
                           struct model_rehearsal *out);
void __wrap_model_rehearse(struct pump_model *m, uint32_t device, uint64_t until_seq,
                           struct model_rehearsal *out);

static uint64_t plans, slices, blocks_of_all;

static bool same(const struct pump_model *m, const struct model_planned *a,
                 const struct model_planned *b) {
  return a->first_block == b->first_block && a->blocks == b->blocks &&
         a->slot == m->blocks.all[b->first_block].slot && a->after_seq == b->after_seq &&
         (a->after_seq == 0 || a->after_stream == b->after_stream) &&
         a->left_bytes == b->left_bytes && a->need == b->need;
}

static void compare(const struct pump_model *m, uint32_t way,
                    const struct model_rehearsal *real,
                    const struct model_rehearsal *right) {
  uint32_t count = real->count[way], i = 0;
  if (count > right->count[way]) count = right->count[way];
  while (i < count && same(m, &real->entries[way][i], &right->entries[way][i])) i++;
  if (i < real->count[way] || i < right->count[way]) {
    fprintf(stderr, "plan %lu, way %u: slice %u of %u, block by block %u, differs\n",
            (unsigned long)plans, way, i, real->count[way], right->count[way]);
    abort();
  }
  slices += count;
  for (i = 0; i < count; i++) blocks_of_all += (uint32_t)real->entries[way][i].blocks;
}

void __wrap_model_rehearse(struct pump_model *m, uint32_t device, uint64_t until_seq,
                           struct model_rehearsal *out) {
  static struct model_rehearsal right;
  by_blocks(m, device, until_seq, &right);
  __real_model_rehearse(m, device, until_seq, out);
  plans++;
  for (uint32_t way = 0; way < PUMP_DIRECTIONS; way++) compare(m, way, out, &right);
}

__attribute__((destructor)) static void tell(void) {
  fprintf(stderr, "%lu plans, %lu slices, %lu blocks\n", (unsigned long)plans,
          (unsigned long)slices, (unsigned long)blocks_of_all);
}
