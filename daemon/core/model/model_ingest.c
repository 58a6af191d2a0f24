/* model_ingest.c - applies a batch: adds and removes ranges, adds operations to the
 * window.
 *
 * An ALLOC describes the whole range, and each allocation in a slot has its own
 * generation. Events may overtake each other (two threads; a table that was read before
 * the ring), so rows with an older generation are ignored.
 */
#include <string.h>

#include "model_state.h"
#include "pump_ring.h"

static bool is_newer(uint32_t a, uint32_t b) {
  return (int32_t)(a - b) > 0;
}

static void alloc_row(struct pump_model *m, const struct pump_batch *batch, uint32_t row) {
  uint32_t use = batch->use_begin[row];
  if (use == batch->use_begin[row + 1]) return;
  const struct pump_range found = {.base = batch->function[row],
                                   .length_bytes = batch->length_bytes[use],
                                   .generation = batch->generation[use],
                                   .device = batch->device[row],
                                   .range_kind = PUMP_RANGE_CONVERTED};
  const struct range *known = &m->ranges.all[batch->slot[use]];
  if (known->generation != 0 && !is_newer(found.generation, known->generation)) return;
  /* The shim populates a new range while all allocated memory fits. */
  const struct device *device = &m->devices[found.device];
  int64_t blocks = (int64_t)((found.length_bytes + PUMP_BLOCK_BYTES - 1) >> 21);
  int64_t others = model_occupied(device) + device->counts[PUMP_BLOCK_HOST] +
                   device->counts[PUMP_BLOCK_ABSENT];
  bool room = device->facts.budget - others >= blocks;
  model_range_add(m, batch->slot[use], &found,
                  room ? PUMP_BLOCK_RESIDENT : PUMP_BLOCK_ABSENT);
}

static void free_row(struct pump_model *m, const struct pump_batch *batch, uint32_t row) {
  uint32_t use = batch->use_begin[row];
  if (use == batch->use_begin[row + 1]) return;
  uint32_t slot = batch->slot[use], generation = batch->generation[use];
  struct range *known = &m->ranges.all[slot];
  if (known->generation != 0 && is_newer(known->generation, generation)) return;
  model_range_remove(m, slot);
  known->generation = generation; /* ignore a late ALLOC of this generation */
}

/* ---- blocks ------------------------------------------------------------------------ */

/* Returns the live range that an access reaches, or NULL: the slot is empty, its range is
 * another one, or the access begins beyond it. */
static const struct range *find_range(const struct pump_model *m, uint32_t slot,
                                      uint32_t generation, uint64_t offset_bytes) {
  const struct range *range = &m->ranges.all[slot & (PUMP_MAX_RANGES - 1)];
  bool known = range->first_block != NONE && range->generation == generation &&
               offset_bytes < range->length_bytes;
  return known ? range : NULL;
}

static const struct range *range_of(const struct pump_model *m,
                                    const struct pump_batch *batch, uint32_t use) {
  return find_range(m, batch->slot[use], batch->generation[use], batch->offset_bytes[use]);
}

/* Notes that a discard has executed after the operation `seq` (0: after every issued one).
 * A later use may have been issued. If it has even executed, faults have brought the
 * block. */
static void block_discarded(struct pump_model *m, int32_t block, uint64_t seq) {
  struct block *b = &m->blocks.all[block];
  if (seq == 0) b->discarded = true;
  b->discard_pending = false;
  model_used_up(m, block, seq == 0 ? PUMP_NOT_NEEDED : seq);
  bool fresh = b->first != NONE && (m->window.uses[b->first].flags & USE_FRESH) != 0;
  if (model_is_moving(b) || (!b->discarded && !fresh)) return;
  model_duplicate_ended(m, block);
  model_set_state(m, block, PUMP_BLOCK_ABSENT);
}

/* Applies a row to a block of the pool that was freed, discarded or populated again, or to
 * a block without a tensor, as the program's allocator reports. A block in flight keeps its
 * state until the transfer ends.
 *
 * FREED with an operation's number promises a discard after that operation, so the next
 * use is fresh. From the operation's end on, the block is DISCARDING, until DISCARDED
 * with the same number reports the discard's end.
 */
static void block_row(struct pump_model *m, uint16_t kind, uint64_t seq, int32_t block) {
  struct block *b = &m->blocks.all[block];
  if (kind == PUMP_EVENT_DEAD) {
    model_set_dead(m, block);
    model_in_place_freed(m, b->slot);
  } else if (kind == PUMP_EVENT_POPULATED) {
    if (!model_is_moving(b)) model_set_state(m, block, PUMP_BLOCK_RESIDENT);
  } else if (kind == PUMP_EVENT_DISCARDED) {
    block_discarded(m, block, seq);
  } else if (seq == 0) {
    model_set_discard_pending(m, block);
  } else {
    b->discarded = true;
    if (!model_ends(m, block)) model_discarding(m, block, seq);
  }
}

/* Applies a row about blocks to all whole blocks of its uses. */
static void blocks_row(struct pump_model *m, const struct pump_batch *batch, uint32_t row) {
  uint16_t kind = batch->kind[row];
  uint64_t seq = batch->seq[row];
  if (kind == PUMP_EVENT_FREED && seq != 0) m->streams.discard_stream = batch->stream[row];
  for (uint32_t use = batch->use_begin[row]; use < batch->use_begin[row + 1]; use++) {
    const struct range *range = range_of(m, batch, use);
    if (range == NULL) continue;
    uint64_t offset = range->lead_bytes + batch->offset_bytes[use];
    uint64_t end = (offset + batch->length_bytes[use]) >> 21;
    for (uint64_t i = (offset + PUMP_BLOCK_BYTES - 1) >> 21;
         i < end && i < (uint64_t)range->blocks; i++)
      block_row(m, kind, seq, range->first_block + (int32_t)i);
  }
}

/* ---- operations -------------------------------------------------------------------- */

/* Estimates how many bytes a kernel uses after each of its pointers. */
static void measure(struct pump_model *m, struct pump_batch *batch, uint32_t row) {
  struct pump_pointer pointers[PUMP_MAX_EXTENTS];
  uint32_t place[PUMP_MAX_EXTENTS];
  uint64_t length_bytes[PUMP_MAX_EXTENTS];
  uint32_t count = 0;
  for (uint32_t use = batch->use_begin[row]; use < batch->use_begin[row + 1]; use++) {
    if (batch->access[use] != PUMP_ACCESS_ARGUMENT || count == PUMP_MAX_EXTENTS) continue;
    if (range_of(m, batch, use) == NULL) continue;
    pointers[count] = (struct pump_pointer){.slot = batch->slot[use],
                                            .generation = batch->generation[use],
                                            .offset_bytes = batch->offset_bytes[use],
                                            .argument = batch->argument[use],
                                            .block_units = batch->block_units[use]};
    place[count++] = use;
  }
  if (count == 0) return;
  pump_extents_kernel(m->extents, batch->function[row], batch->signature[row], count,
                      pointers, length_bytes);
  for (uint32_t i = 0; i < count; i++) batch->length_bytes[place[i]] = length_bytes[i];
}

bool model_run_of(const struct pump_model *m, struct pump_access *access,
                  struct model_run *run) {
  const struct range *range =
      find_range(m, access->slot, access->generation, access->offset_bytes);
  if (range == NULL || access->length_bytes == 0) return false;
  uint64_t left_bytes = range->length_bytes - access->offset_bytes;
  if (access->length_bytes > left_bytes) access->length_bytes = left_bytes;
  uint64_t begin = range->lead_bytes + access->offset_bytes;
  uint64_t first = begin >> 21, last = (begin + access->length_bytes - 1) >> 21;
  *run = (struct model_run){.first = range->first_block + (int32_t)first,
                            .count = (int32_t)(last - first) + 1,
                            .fresh = access->access};
  return true;
}

/* Returns PUMP_FRESH_* of the run's blocks: of the first, a sample of those in between, the
 * last. */
static uint32_t freshness(const struct pump_model *m, const struct model_run *run) {
  const struct block *first = &m->blocks.all[run->first];
  return (first->discarded ? PUMP_FRESH_FIRST : 0) |
         (first[run->count / 2].discarded ? PUMP_FRESH : 0) |
         (first[run->count - 1].discarded ? PUMP_FRESH_LAST : 0);
}

/* Hands the operation to each consumer in turn: extents (a kernel's are estimated before
 * its operation is complete), history, window, time. `runs`: the blocks of its accesses. */
static void apply(struct pump_model *m, const struct pump_operation *op,
                  const struct model_run *runs) {
  for (uint32_t i = 0; op->kind != PUMP_EVENT_KERNEL && i < op->count; i++)
    pump_extents_bytes(m->extents, op->accesses[i].slot, op->accesses[i].generation,
                       op->accesses[i].offset_bytes, op->accesses[i].length_bytes);
  bool predicted = model_learn_operation(m, op);
  model_op_add(m, op, runs, predicted);
  model_in_place_issued(m, op, runs);
  model_graph_weigh(m, op->seq);
  if (m->timing != NULL) timing_issued(m->timing, op, m->totals.window_depth);
  if (op->seq > m->totals.observed_seq) m->totals.observed_seq = op->seq;
}

/* Makes the operation of a row, with its accesses to live ranges, and applies it. */
static void operation_row(struct pump_model *m, struct pump_batch *batch, uint32_t row) {
  struct pump_access accesses[PUMP_MAX_EXTENTS];
  struct model_run runs[PUMP_MAX_EXTENTS];
  struct pump_operation op = {.seq = batch->seq[row],
                              .issued_ns = batch->time_ns[row],
                              .function = batch->function[row],
                              .signature = batch->signature[row],
                              .stream = batch->stream[row],
                              .kind = batch->kind[row],
                              .dropped = batch->dropped[row],
                              .accesses = accesses};
  if (op.seq >= PUMP_NOT_NEEDED) return; /* not a valid number */
  if (op.kind == PUMP_EVENT_KERNEL) measure(m, batch, row);
  for (uint32_t use = batch->use_begin[row];
       use < batch->use_begin[row + 1] && op.count < PUMP_MAX_EXTENTS; use++) {
    struct pump_access *access = &accesses[op.count];
    *access = (struct pump_access){.slot = batch->slot[use],
                                   .generation = batch->generation[use],
                                   .offset_bytes = batch->offset_bytes[use],
                                   .length_bytes = batch->length_bytes[use]};
    if (!model_run_of(m, access, &runs[op.count])) continue;
    access->access = freshness(m, &runs[op.count]);
    op.count++;
  }
  apply(m, &op, runs);
}

/* ---- other rows ---------------------------------------------------------------------- */

static void sync_row(struct pump_model *m, const struct pump_batch *batch, uint32_t row) {
  const struct timing_wait wait = {.seq = batch->seq[row],
                                   .began_ns = batch->signature[row],
                                   .ended_ns = batch->time_ns[row],
                                   .stream = batch->stream[row]};
  if (m->timing != NULL) timing_waited(m->timing, &wait);
}

static void graph_row(struct pump_model *m, const struct pump_batch *batch, uint32_t row) {
  uint64_t first = batch->seq[row], count = batch->signature[row];
  const struct graph_launch launch = {.first = first,
                                      .last = first + count - 1,
                                      .executable = batch->function[row],
                                      .stream = batch->stream[row]};
  if (m->timing != NULL) timing_graph(m->timing, first, count, launch.executable);
  model_graph_add(m, &launch);
}

static void params_row(struct pump_model *m, const struct pump_batch *batch, uint32_t row) {
  struct pump_params head;
  uint32_t bytes = batch->payload_bytes[row];
  if (bytes < sizeof head) return;
  const uint8_t *payload = &batch->payload[batch->payload_begin[row]];
  memcpy(&head, payload, sizeof head);
  uint32_t there = bytes - (uint32_t)sizeof head;
  if (head.parameter_bytes < there) there = head.parameter_bytes;
  if (m->expected.learner != NULL)
    pump_learner_shape(m->expected.learner, batch->signature[row], head.identity, head.grid,
                       head.block);
  if (m->timing != NULL) timing_params(m->timing, batch->signature[row], &head);
  pump_extents_params(m->extents, batch->function[row], batch->signature[row], head.grid,
                      head.block, payload + sizeof head, there);
}

EXPORT void pump_model_ingest(struct pump_model *m, struct pump_batch *batch) {
  for (uint32_t row = 0; row < batch->rows; row++) {
    switch (batch->kind[row]) {
    case PUMP_EVENT_KERNEL:
    case PUMP_EVENT_COPY:
    case PUMP_EVENT_MEMSET:
      operation_row(m, batch, row);
      break;
    case PUMP_EVENT_TIMED:
      if (m->timing != NULL)
        timing_timed(m->timing, batch->seq[row], batch->signature[row],
                     batch->time_ns[row]);
      model_in_place_timed(m, batch->seq[row], batch->signature[row], batch->time_ns[row]);
      break;
    case PUMP_EVENT_SYNC:
      sync_row(m, batch, row);
      break;
    case PUMP_EVENT_GRAPH:
      graph_row(m, batch, row);
      break;
    case PUMP_EVENT_ALLOC:
      model_deviate(m);
      alloc_row(m, batch, row);
      break;
    case PUMP_EVENT_FREE:
      model_deviate(m);
      free_row(m, batch, row);
      break;
    case PUMP_EVENT_PARAMS:
      params_row(m, batch, row);
      break;
    case PUMP_EVENT_NAME:
      pump_extents_name(m->extents, batch->function[row],
                        (const char *)&batch->payload[batch->payload_begin[row]],
                        batch->payload_bytes[row]);
      break;
    case PUMP_EVENT_FREED:
      /* Without a number, the schedule did not expect the discard. */
      if (batch->seq[row] == 0) m->schedules.deviations++;
      /* fall through */
    case PUMP_EVENT_DISCARDED:
      /* A discard never deviates: it was predicted, or frees more memory than expected. */
      m->schedules.changes++;
      blocks_row(m, batch, row);
      break;
    case PUMP_EVENT_POPULATED:
    case PUMP_EVENT_DEAD:
      model_deviate(m);
      blocks_row(m, batch, row);
      break;
    default: /* HINT, PROGRESS: not used by the model */
      break;
    }
  }
}

EXPORT void pump_model_device(struct pump_model *m, uint32_t index,
                              const struct pump_model_device *facts) {
  model_deviate(m);
  struct device *device = &m->devices[index & (PUMP_MAX_DEVICES - 1)];
  device->facts = *facts;
  device->known = true;
}

EXPORT void pump_model_switched(struct pump_model *m) {
  model_deviate(m);
  for (uint32_t i = 0; i < PUMP_MAX_DEVICES; i++) {
    struct device *device = &m->devices[i];
    device->short_of_memory = false;
    device->tally.overshoot = 0;
    device->left_over = model_occupied(device);
  }
}
