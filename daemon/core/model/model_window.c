/* model_window.c - adds operations to the window and retires executed ones. */
#include <string.h>

#include "model_state.h"
#include "pump_ring.h"

/* ---- retiring -------------------------------------------------------------------- */

/* Counts the operation's use of the block. Returns true if the block was resident. The
 * first use of a block that never moved does not count: there is nothing to fetch, and it
 * is unknown whether the shim populated it in time. */
static bool count_use(struct pump_model *m, const struct op *op, int32_t block) {
  struct block *b = &m->blocks.all[block];
  struct device *device = &m->devices[b->device];
  bool first = !b->used;
  b->used = true;
  if (first && (b->state == PUMP_BLOCK_RESIDENT || b->state == PUMP_BLOCK_ABSENT)) {
    device->missed += b->state == PUMP_BLOCK_ABSENT;
    return true;
  }
  device->tally.blocks++;
  if (b->state == PUMP_BLOCK_RESIDENT || b->state == PUMP_BLOCK_MAYBE_EVICTED) {
    device->tally.hit++;
    return true;
  }
  if (b->state == PUMP_BLOCK_ARRIVING) {
    device->tally.late++;
    return false;
  }
  device->missed++;
  if (device->short_of_memory || op->larger)
    device->tally.no_room++;
  else
    device->tally.unseen++;
  return false;
}

/* Prefetches scattered data into the CPU cache before the loop needs it: blocks, their
 * next uses, and their operations. Each step starts when the previous step's data has
 * arrived. FETCH_AHEAD: uses between two of the three steps [guessed]. */
#define FETCH_AHEAD 6

static void fetch_ahead(const struct pump_model *m, const struct op *op, uint32_t i) {
  const int64_t first = op->first_use;
  if (i + 3 * FETCH_AHEAD < op->uses) {
    int32_t block = m->window.uses[use_index(first + i + 3 * FETCH_AHEAD)].block;
    if (block != NONE) __builtin_prefetch(&m->blocks.all[block], 1);
  }
  if (i + 2 * FETCH_AHEAD < op->uses) {
    int32_t next = m->window.uses[use_index(first + i + 2 * FETCH_AHEAD)].next;
    if (next != NONE) __builtin_prefetch(&m->window.uses[next]);
  }
  if (i + FETCH_AHEAD < op->uses) {
    int32_t next = m->window.uses[use_index(first + i + FETCH_AHEAD)].next;
    if (next != NONE) __builtin_prefetch(&m->window.ops[m->window.uses[next].op], 1);
  }
}

/* Marks blocks as evicted by the driver, the least recently migrated first, if faults
 * have brought more than fits. */
static void push_out(struct pump_model *m, struct device *device) {
  if (!device->known || m->schedules.settling) return;
  int64_t excess = model_occupied(device) - device->facts.capacity;
  struct list *const oldest[] = {&device->maybe_evicted, &device->sure};
  for (int i = 0; i < 2 && excess > 0; i++) {
    for (int32_t b = oldest[i]->head, next; b != NONE && excess > 0; b = next) {
      next = m->blocks.all[b].age_next;
      if (m->blocks.all[b].state == PUMP_BLOCK_LEAVING) continue;
      model_set_state(m, b, PUMP_BLOCK_HOST);
      excess--;
    }
  }
}

static void note_least(struct device *device, const struct op *op) {
  uint64_t blocks = ((uint64_t)op->uses * 100 + LARGER_PERCENT - 1) / LARGER_PERCENT;
  if (blocks > device->tally.least) device->tally.least = blocks;
}

static void retire_op(struct pump_model *m, uint32_t index) {
  struct op *op = &m->window.ops[index];
  note_least(&m->devices[m->window.op_device[index]], op);
  bool hit = true, untouched = false;
  struct timing_met met = {0};
  op->executed = true;
  /* Its blocks are eviction candidates now, or absent. */
  m->window.again_seq[index] = m->window.again[index] = 0;
  for (uint32_t i = 0; i < op->uses; i++) {
    int32_t use = use_index((int64_t)op->first_use + i), block = m->window.uses[use].block;
    fetch_ahead(m, op, i);
    if (block == NONE) continue;
    struct block *b = &m->blocks.all[block];
    if (m->arrived_ns != NULL && m->arrived_ns[block] > met.arrived_ns)
      met.arrived_ns = m->arrived_ns[block];
    untouched |= !b->used;
    met.doubted += b->state == PUMP_BLOCK_MAYBE_EVICTED;
    bool there = count_use(m, op, block);
    hit &= there;
    met.missed += !there;
    bool advanced = b->first == use;
    bool ended = advanced && model_advance_chain(m, block);
    /* Faults brought the block. The state of a LEAVING block changes when the transfer
     * ends. */
    if (b->state == PUMP_BLOCK_ABSENT || b->state == PUMP_BLOCK_HOST ||
        b->state == PUMP_BLOCK_DISCARDING) {
      met.faulted += b->state == PUMP_BLOCK_HOST;
      model_set_state(m, block, PUMP_BLOCK_RESIDENT);
      push_out(m, &m->devices[b->device]);
    } else if (advanced) {
      model_relist(m, block);
    }
    if (ended) model_discarding(m, block, op->seq);
  }
  m->devices[m->window.op_device[index]].args_truncated |= op->args_truncated;
  met.known = !untouched && !op->args_truncated && !op->in_place;
  if (m->timing != NULL) timing_retired(m->timing, op->seq, &met);
  model_in_place_retired(m, op->seq);
  m->totals.operations++;
  m->totals.operations_hit += hit;
  m->totals.window_depth--;
}

static void retire_head(struct pump_model *m, struct stream *stream) {
  int32_t op = stream->head;
  retire_op(m, (uint32_t)op);
  stream->head = m->window.ops[op].next;
  if (stream->head == NONE) stream->tail = NONE;
}

static void retire_stream(struct pump_model *m, uint32_t index, uint64_t executed_seq) {
  struct stream *stream = &m->streams.all[index];
  while (stream->head != NONE && m->window.ops[stream->head].seq <= executed_seq)
    retire_head(m, stream);
}

static void reclaim(struct pump_model *m) {
  while (m->window.op_tail < m->window.op_head &&
         m->window.ops[op_index(m->window.op_tail)].executed) {
    m->window.use_tail += m->window.ops[op_index(m->window.op_tail)].uses;
    m->window.op_tail++;
  }
}

/* ---- effects of faults ------------------------------------------------------------- */

/* Tracks the overshoot. With an emulated budget the GPU has more memory, and the policy
 * must remove the overshoot. */
static void note_overshoot(struct device *device) {
  int64_t occupied = model_occupied(device);
  if (occupied < device->left_over) device->left_over = occupied;
  bool within = device->left_over <= device->facts.budget;
  int64_t over = occupied - (within ? device->facts.budget : device->left_over);
  if (over > (int64_t)device->tally.overshoot) device->tally.overshoot = (uint64_t)over;
}

/* Marks the `count` least recently migrated blocks as maybe evicted. Faults took memory,
 * at times by the driver's eviction, before the worker read about them. Until the next
 * prefetch it is unknown which blocks the driver evicted. If an operation used more
 * memory than its record names, even their number is unknown. */
static void mark_maybe_evicted(struct pump_model *m, struct device *device,
                               uint64_t count) {
  for (int32_t b = device->sure.head, next; b != NONE && count > 0; b = next) {
    next = m->blocks.all[b].age_next;
    if (m->blocks.all[b].state == PUMP_BLOCK_LEAVING) continue;
    model_set_state(m, b, PUMP_BLOCK_MAYBE_EVICTED);
    count--;
  }
}

static void update_devices_after_retirement(struct pump_model *m) {
  reclaim(m);
  if (m->schedules.settling) return;
  for (uint32_t i = 0; i < PUMP_MAX_DEVICES; i++) {
    struct device *device = &m->devices[i];
    uint64_t missed = device->missed;
    if (!device->known) continue;
    device->missed = 0;
    device->faults += (int64_t)missed;
    model_give_up_pending_discards(m, device);
    note_overshoot(device);
    push_out(m, device);
    uint64_t evicted = missed * m->bounds.doubts_per_fault;
    if (device->args_truncated) evicted = UINT64_MAX;
    device->args_truncated = false;
    if (evicted > 0) mark_maybe_evicted(m, device, evicted);
  }
}

static void drop_idle_streams(struct pump_model *m) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < m->streams.busy_count; i++) {
    uint32_t index = m->streams.busy[i];
    if (m->streams.all[index].head == NONE)
      m->streams.all[index].listed = false;
    else
      m->streams.busy[kept++] = index;
  }
  m->streams.busy_count = kept;
}

void model_retired(struct pump_model *m) {
  drop_idle_streams(m);
  update_devices_after_retirement(m);
}

EXPORT void pump_model_progress(struct pump_model *m, const uint64_t *executed_seq,
                                uint32_t stride) {
  uint64_t before = m->totals.operations;
  for (uint32_t i = 0; i < m->streams.busy_count; i++) {
    uint32_t index = m->streams.busy[i];
    retire_stream(m, index, PUMP_LOAD(&executed_seq[(size_t)index * stride]));
  }
  if (m->totals.operations != before) model_retired(m);
}

void model_retire_head(struct pump_model *m, uint32_t stream) {
  retire_head(m, &m->streams.all[stream]);
}

EXPORT void pump_model_forget_window(struct pump_model *m) {
  model_learn_loss(m);
  model_deviate(m);
  for (uint32_t i = 0; i < m->streams.busy_count; i++)
    retire_stream(m, m->streams.busy[i], UINT64_MAX);
  model_retired(m);
}

/* ---- appending ---------------------------------------------------------------------- */

/* Retires the oldest operation, the head of its stream, without seeing it execute. */
static void lose_oldest(struct pump_model *m) {
  retire_head(m, &m->streams.all[m->window.ops[op_index(m->window.op_tail)].stream]);
  m->totals.lost++;
  reclaim(m);
}

/* Frees slots for uses of the newest operation. Returns false if there is no older
 * operation. */
static bool lose_another(struct pump_model *m) {
  if (m->window.op_tail == m->window.op_head - 1) return false;
  lose_oldest(m);
  return true;
}

/* Appends the operation to its stream. */
static void link_to_stream(struct pump_model *m, struct op *op) {
  int32_t index = (int32_t)(op - m->window.ops);
  struct stream *stream = &m->streams.all[op->stream];
  op->rank = stream->issued++;
  if (stream->head == NONE)
    stream->head = index;
  else
    m->window.ops[stream->tail].next = index;
  stream->tail = index;
  if (!stream->listed) {
    stream->listed = true;
    m->streams.busy[m->streams.busy_count++] = op->stream;
  }
  m->window.added_seq = op->seq;
  m->totals.window_depth++;
  m->totals.larger += op->larger;
}

/* Issues the next expected operation if the issued one matches it. */
static bool issue_expected(struct pump_model *m, const struct pump_operation *issued,
                           const struct model_run *runs, uint64_t access_hash,
                           bool predicted) {
  struct op *next = &m->window.ops[op_index(m->window.op_issued)];
  bool right = next->access_hash == access_hash, same = right;
  if (!same && predicted && next->stream == issued->stream && next->seq == issued->seq) {
    same = model_op_replace(m, runs, issued->count);
    m->schedules.deviations++;
  }
  if (!same || next->seq != issued->seq) return false;
  next->access_hash = access_hash;
  m->totals.predicted += right;
  model_adopt(m);
  link_to_stream(m, next);
  return true;
}

/* Notes that the newest operation used more memory than its record names, so the resident
 * blocks after it are unknown. Estimates the size of the dropped accesses from the recorded
 * ones. If it is large, nothing is expected for two iterations. */
static void note_truncated(struct pump_model *m, const struct pump_operation *issued) {
  uint32_t index = op_index(m->window.op_issued - 1);
  struct op *op = &m->window.ops[index];
  op->args_truncated = true;
  int64_t alike =
      issued->count > 0 ? (int64_t)op->uses * issued->dropped / issued->count : 0;
  if (!model_is_share(m, index, alike, TRUNCATED_PERCENT)) return;
  m->window.args_truncated_seq = op->seq;
  pump_model_expect_nothing(m);
}

void model_op_add(struct pump_model *m, const struct pump_operation *issued,
                  const struct model_run *runs, bool predicted) {
  uint64_t access_hash = model_access_hash(issued->stream, runs, issued->count);
  bool expects = m->window.op_issued < m->window.op_head;
  if (!expects || !issue_expected(m, issued, runs, access_hash, predicted)) {
    if (expects) pump_model_expect_nothing(m);
    while (m->window.op_head - m->window.op_tail >= OPS) lose_oldest(m);
    struct op *op = model_op_begin(m, issued->seq, issued->stream);
    m->window.op_issued++;
    op->access_hash = access_hash;
    link_to_stream(m, op);
    model_op_uses(m, runs, issued->count, lose_another);
    m->totals.larger += op->larger;
  }
  if (issued->dropped != 0) note_truncated(m, issued);
}

void model_discarding(struct pump_model *m, int32_t block, uint64_t seq) {
  struct block *b = &m->blocks.all[block];
  struct device *device = &m->devices[b->device];
  model_duplicate_ended(m, block);
  if (b->state != PUMP_BLOCK_RESIDENT && b->state != PUMP_BLOCK_MAYBE_EVICTED) return;
  model_set_state(m, block, PUMP_BLOCK_DISCARDING);
  if (seq > device->discarding_seq) device->discarding_seq = seq;
}

bool model_ends(struct pump_model *m, int32_t block) {
  int32_t use = m->blocks.all[block].issued;
  if (use == NONE) return false;
  m->window.uses[use].flags |= USE_ENDS;
  model_count_freed_block(m, use);
  return true;
}
