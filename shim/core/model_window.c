/* model_window.c - operations come into the window and, executed, leave it. */
#include <string.h>

#include "model_state.h"
#include "pump_ring.h"

static uint32_t op_index(int64_t position) {
  return (uint32_t)((uint64_t)position & (OPS - 1));
}

static int32_t use_index(int64_t position) {
  return (int32_t)((uint64_t)position & (USES - 1));
}

/* ---- retiring -------------------------------------------------------------------- */

/* The oldest use of the block has executed: the chain's head moves on. */
static void advance_chain(struct pump_model *m, int32_t block) {
  struct block *b = &m->blocks[block];
  int32_t next = m->uses[b->first].next;
  while (next != NONE && m->ops[m->uses[next].op].executed) next = m->uses[next].next;
  b->first = next;
  if (next == NONE) {
    b->last = NONE;
    b->next_use = PUMP_NOT_NEEDED;
  } else {
    b->next_use = (int64_t)m->ops[m->uses[next].op].seq;
  }
}

/* What the operation met in this block. True when it was there. */
static bool count_use(struct pump_model *m, const struct op *op, int32_t block) {
  struct block *b = &m->blocks[block];
  struct device *device = &m->devices[b->device];
  device->tally.blocks++;
  if (b->state == PUMP_BLOCK_RESIDENT || b->state == PUMP_BLOCK_DOUBTED) {
    device->tally.hit++;
    return true;
  }
  if (b->state == PUMP_BLOCK_ARRIVING) {
    device->tally.late++;
    return false;
  }
  device->missed++;
  if (device->short_of_room || op->larger)
    device->tally.no_room++;
  else
    device->tally.unseen++;
  return false;
}

/* Blocks, their next uses and those uses' operations lie anywhere in memory. Asked for in
 * turn, each when the one before has come, they are there when the loop needs them. */
#define FETCH_AHEAD 6 /* uses, for each of the three */

static void fetch_ahead(const struct pump_model *m, const struct op *op, uint32_t i) {
  const int64_t first = op->first_use;
  if (i + 3 * FETCH_AHEAD < op->uses) {
    int32_t block = m->uses[use_index(first + i + 3 * FETCH_AHEAD)].block;
    if (block != NONE) __builtin_prefetch(&m->blocks[block], 1);
  }
  if (i + 2 * FETCH_AHEAD < op->uses) {
    int32_t next = m->uses[use_index(first + i + 2 * FETCH_AHEAD)].next;
    if (next != NONE) __builtin_prefetch(&m->uses[next]);
  }
  if (i + FETCH_AHEAD < op->uses) {
    int32_t next = m->uses[use_index(first + i + FETCH_AHEAD)].next;
    if (next != NONE) __builtin_prefetch(&m->ops[m->uses[next].op], 1);
  }
}

static void retire_op(struct pump_model *m, uint32_t index) {
  struct op *op = &m->ops[index];
  bool hit = true;
  op->executed = true;
  for (uint32_t i = 0; i < op->uses; i++) {
    int32_t use = use_index((int64_t)op->first_use + i), block = m->uses[use].block;
    fetch_ahead(m, op, i);
    if (block == NONE) continue;
    struct block *b = &m->blocks[block];
    hit &= count_use(m, op, block);
    bool advanced = b->first == use;
    if (advanced) advance_chain(m, block);
    /* It came by fault. A LEAVING block stays so: its end decides where it is. */
    if (b->state == PUMP_BLOCK_ABSENT || b->state == PUMP_BLOCK_HOST)
      model_set_state(m, block, PUMP_BLOCK_RESIDENT);
    else if (advanced)
      model_relist(m, block);
  }
  m->totals.operations++;
  m->totals.operations_hit += hit;
  m->totals.window_depth--;
}

static void retire_head(struct pump_model *m, struct stream *stream) {
  int32_t op = stream->head;
  retire_op(m, (uint32_t)op);
  stream->head = m->ops[op].next;
  if (stream->head == NONE) stream->tail = NONE;
}

static void retire_stream(struct pump_model *m, uint32_t index, uint64_t executed_seq) {
  struct stream *stream = &m->streams[index];
  while (stream->head != NONE && m->ops[stream->head].seq <= executed_seq)
    retire_head(m, stream);
}

static void reclaim(struct pump_model *m) {
  while (m->op_tail < m->op_head && m->ops[op_index(m->op_tail)].executed) {
    m->use_tail += m->ops[op_index(m->op_tail)].uses;
    m->op_tail++;
  }
}

/* ---- what faults did ---------------------------------------------------------------- */

/* Faults brought in more than fits: believe what the driver then did. Its own eviction
 * takes the block that migrated longest ago. With an emulated budget the card has room;
 * the overshoot is the policy's to remove. */
static void settle(struct pump_model *m, struct device *device) {
  int64_t occupied = model_occupied(device);
  if (occupied < device->left_over) device->left_over = occupied;
  bool within = device->left_over <= device->facts.budget;
  int64_t over = occupied - (within ? device->facts.budget : device->left_over);
  if (over > (int64_t)device->tally.overshoot) device->tally.overshoot = (uint64_t)over;
  int64_t excess = occupied - device->facts.capacity;
  struct list *const oldest[] = {&device->doubted, &device->sure};
  for (int i = 0; i < 2 && excess > 0; i++) {
    for (int32_t b = oldest[i]->head, next; b != NONE && excess > 0; b = next) {
      next = m->blocks[b].age_next;
      if (m->blocks[b].state == PUMP_BLOCK_LEAVING) continue;
      model_set_state(m, b, PUMP_BLOCK_HOST);
      excess--;
    }
  }
}

/* Faults found room somewhere, at times by the driver's own eviction, before we knew of
 * them. Which blocks went nobody tells; prefetching them again tells. */
static void doubt(struct pump_model *m, struct device *device, uint64_t count) {
  for (int32_t b = device->sure.head, next; b != NONE && count > 0; b = next) {
    next = m->blocks[b].age_next;
    if (m->blocks[b].state == PUMP_BLOCK_LEAVING) continue;
    model_set_state(m, b, PUMP_BLOCK_DOUBTED);
    count--;
  }
}

static void after_retiring(struct pump_model *m) {
  reclaim(m);
  for (uint32_t i = 0; i < PUMP_MAX_DEVICES; i++) {
    struct device *device = &m->devices[i];
    uint64_t missed = device->missed;
    if (!device->known) continue;
    device->missed = 0;
    device->faults += (int64_t)missed;
    settle(m, device);
    if (missed > 0) doubt(m, device, missed * m->bounds.doubts_per_fault);
  }
}

static void drop_idle_streams(struct pump_model *m) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < m->busy_count; i++) {
    uint32_t index = m->busy[i];
    if (m->streams[index].head == NONE)
      m->streams[index].listed = false;
    else
      m->busy[kept++] = index;
  }
  m->busy_count = kept;
}

EXPORT void pump_model_progress(struct pump_model *m, const uint64_t *executed_seq,
                                uint32_t stride) {
  uint64_t before = m->totals.operations;
  for (uint32_t i = 0; i < m->busy_count; i++) {
    uint32_t index = m->busy[i];
    retire_stream(m, index, PUMP_LOAD(&executed_seq[(size_t)index * stride]));
  }
  if (m->totals.operations == before) return;
  drop_idle_streams(m);
  after_retiring(m);
}

void model_retire_head(struct pump_model *m, uint32_t stream) {
  retire_head(m, &m->streams[stream]);
}

void model_retired(struct pump_model *m) {
  drop_idle_streams(m);
  after_retiring(m);
}

EXPORT void pump_model_forget_window(struct pump_model *m) {
  model_look_again(m);
  for (uint32_t i = 0; i < m->busy_count; i++) retire_stream(m, m->busy[i], UINT64_MAX);
  drop_idle_streams(m);
  after_retiring(m);
}

/* ---- appending ---------------------------------------------------------------------- */

/* The oldest operation, which is the first of its stream, makes room without having
 * been seen to execute. */
static void lose_oldest(struct pump_model *m) {
  retire_head(m, &m->streams[m->ops[op_index(m->op_tail)].stream]);
  m->totals.lost++;
  reclaim(m);
}

static void begin(struct pump_model *m, uint64_t seq, uint32_t stream_index) {
  while (m->op_head - m->op_tail >= OPS) lose_oldest(m);
  uint32_t index = op_index(m->op_head++);
  struct stream *stream = &m->streams[stream_index];
  struct op *op = &m->ops[index];
  *op = (struct op){.seq = seq,
                    .rank = stream->issued++,
                    .first_use = use_index(m->use_head),
                    .next = NONE,
                    .stream = stream_index};
  m->can_leave[index >> 6] &= ~(1ull << (index & 63));
  m->misses[index >> 6] &= ~(1ull << (index & 63));
  if (stream->head == NONE)
    stream->head = (int32_t)index;
  else
    m->ops[stream->tail].next = (int32_t)index;
  stream->tail = (int32_t)index;
  if (!stream->listed) {
    stream->listed = true;
    m->busy[m->busy_count++] = stream_index;
  }
  m->totals.window_depth++;
}

static void use_blocks(struct pump_model *m, int32_t first, int32_t count) {
  uint32_t index = op_index(m->op_head - 1);
  struct op *op = &m->ops[index];
  for (int32_t block = first; block < first + count; block++) {
    struct block *b = &m->blocks[block];
    if (block + 1 < m->high && b[1].last != NONE)
      __builtin_prefetch(&m->uses[b[1].last], 1);
    if (b->state == PUMP_BLOCK_FREE) continue;
    if (b->last != NONE && m->uses[b->last].op == (int32_t)index) continue; /* twice */
    while (m->use_head - m->use_tail >= USES) {
      if (m->op_tail == m->op_head - 1) return; /* alone larger than the ring */
      lose_oldest(m);
    }
    int32_t use = use_index(m->use_head++);
    m->uses[use] = (struct use){.block = block, .op = (int32_t)index, .next = NONE};
    op->uses++;
    b->last_use = (int64_t)op->seq;
    b->dead = false;
    if (b->last != NONE) {
      m->uses[b->last].next = use;
      b->last = use;
      continue;
    }
    b->first = b->last = use;
    b->next_use = (int64_t)op->seq;
    model_relist(m, block);
  }
}

static void note_larger(struct pump_model *m, const struct device *device) {
  struct op *op = &m->ops[op_index(m->op_head - 1)];
  int64_t most = device->facts.budget * LARGER_PERCENT / 100;
  op->larger = device->known && (int64_t)op->uses > most;
  m->totals.larger += op->larger;
}

#define STEPS_MAX 64
#define FETCH_RUN 16 /* blocks of each run that are asked for beforehand */

void model_op_add(struct pump_model *m, uint64_t seq, uint32_t stream,
                  const struct model_run *runs, uint32_t count) {
  int32_t longest = 0;
  for (uint32_t i = 0; i < count; i++)
    if (runs[i].count > longest) longest = runs[i].count;
  int32_t slice = (int32_t)m->bounds.slice_least;
  int32_t steps = (longest + slice - 1) / slice;
  for (uint32_t i = 0; i < count; i++)
    for (int32_t b = 0; b < runs[i].count && b < FETCH_RUN; b++)
      __builtin_prefetch(&m->blocks[runs[i].first + b], 1);
  if (steps > STEPS_MAX) steps = STEPS_MAX;
  begin(m, seq, stream);
  for (int64_t step = 0; step < steps; step++) {
    for (uint32_t i = 0; i < count; i++) {
      int32_t from = (int32_t)(runs[i].count * step / steps);
      int32_t to = (int32_t)(runs[i].count * (step + 1) / steps);
      if (to > from) use_blocks(m, runs[i].first + from, to - from);
    }
  }
  if (count > 0) note_larger(m, &m->devices[m->blocks[runs[0].first].device]);
}
