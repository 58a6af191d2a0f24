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
  struct model_found found = {.slot = batch->slot[use],
                              .generation = batch->generation[use],
                              .device = batch->device[row],
                              .base = batch->function[row],
                              .length_bytes = batch->length_bytes[use]};
  const struct range *known = &m->ranges.all[found.slot];
  if (known->generation != 0 && !is_newer(found.generation, known->generation)) return;
  if (found.base >= PUMP_ADDRESS_END || found.length_bytes == 0 ||
      found.length_bytes >= PUMP_ADDRESS_END)
    return;
  /* The shim populates a new range while all allocated memory fits. */
  const struct device *device = &m->devices[found.device];
  int64_t blocks = (int64_t)((found.length_bytes + PUMP_BLOCK_BYTES - 1) >> 21);
  int64_t others = model_occupied(device) + device->counts[PUMP_BLOCK_HOST] +
                   device->counts[PUMP_BLOCK_ABSENT];
  bool room = device->facts.budget - others >= blocks;
  model_range_add(m, &found, room ? PUMP_BLOCK_RESIDENT : PUMP_BLOCK_ABSENT);
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

/* ---- operations ------------------------------------------------------------------- */

/* Returns the range of a use, or NULL if the known range is another one. */
static const struct range *range_of(const struct pump_model *m,
                                    const struct pump_batch *batch, uint32_t use) {
  const struct range *range = &m->ranges.all[batch->slot[use]];
  bool known = range->first_block != NONE && range->generation == batch->generation[use] &&
               batch->offset_bytes[use] < range->length_bytes;
  return known ? range : NULL;
}

/* Applies a row about blocks: blocks of the pool that were freed, discarded or populated
 * again, or blocks without a tensor, as the program's allocator reports. Blocks in flight
 * keep their state until the transfer ends.
 *
 * FREED with an operation's number promises a discard after that operation, so the next
 * use is fresh. From the operation's end on, the block is DISCARDING, until DISCARDED
 * with the same number reports the discard's end. A later use may have been issued. If it
 * has even executed, the discard has ended and faults have brought the block.
 */
static void blocks_use(struct pump_model *m, const struct pump_batch *batch, uint32_t row,
                       uint32_t use) {
  const struct range *range = range_of(m, batch, use);
  if (range == NULL) return;
  uint64_t offset = range->lead_bytes + batch->offset_bytes[use];
  uint64_t end = offset + batch->length_bytes[use];
  uint64_t first = (offset + PUMP_BLOCK_BYTES - 1) >> 21, last = end >> 21;
  uint16_t kind = batch->kind[row];
  for (uint64_t i = first; i < last && i < (uint64_t)range->blocks; i++) {
    int32_t block = range->first_block + (int32_t)i;
    uint32_t state = m->blocks.all[block].state;
    if (kind == PUMP_EVENT_DEAD) {
      model_set_dead(m, block);
      continue;
    }
    if (kind == PUMP_EVENT_FREED && batch->seq[row] != 0) {
      m->blocks.all[block].discarded = true;
      if (!model_ends(m, block)) model_discarding(m, block, batch->seq[row]);
      continue;
    }
    if (kind == PUMP_EVENT_FREED) {
      model_set_discard_pending(m, block);
      continue;
    }
    if (kind == PUMP_EVENT_POPULATED) {
      if (state != PUMP_BLOCK_ARRIVING && state != PUMP_BLOCK_LEAVING)
        model_set_state(m, block, PUMP_BLOCK_RESIDENT);
      continue;
    }
    uint64_t behind = batch->seq[row];
    struct block *b = &m->blocks.all[block];
    if (behind == 0) b->discarded = true;
    b->discard_pending = false;
    model_used_up(m, block, behind == 0 ? PUMP_NOT_NEEDED : behind);
    if (state == PUMP_BLOCK_ARRIVING || state == PUMP_BLOCK_LEAVING) continue;
    bool fresh = b->first != NONE && (m->window.uses[b->first].flags & USE_FRESH) != 0;
    if (!b->discarded && !fresh) continue;
    model_duplicate_ended(m, block);
    model_set_state(m, block, PUMP_BLOCK_ABSENT);
  }
}

static void blocks_row(struct pump_model *m, const struct pump_batch *batch, uint32_t row) {
  bool ordered = batch->kind[row] == PUMP_EVENT_FREED && batch->seq[row] != 0;
  if (ordered) m->streams.discard_stream = batch->stream[row];
  for (uint32_t use = batch->use_begin[row]; use < batch->use_begin[row + 1]; use++)
    blocks_use(m, batch, row, use);
}

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

/* Returns the extent's length, cut at its range's end. */
static uint64_t within(const struct pump_model *m, const struct pump_model_extent *extent) {
  uint64_t left = m->ranges.all[extent->slot].length_bytes - extent->offset_bytes;
  return extent->length_bytes < left ? extent->length_bytes : left;
}

bool model_run_of(const struct pump_model *m, const struct pump_model_extent *extent,
                  struct model_run *run) {
  const struct range *range = &m->ranges.all[extent->slot & (PUMP_MAX_RANGES - 1)];
  uint64_t offset = range->lead_bytes + extent->offset_bytes;
  if (range->first_block == NONE || range->generation != extent->generation ||
      extent->offset_bytes >= range->length_bytes || extent->length_bytes == 0)
    return false;
  uint64_t begin = offset >> 21, end = ((offset + within(m, extent) - 1) >> 21) + 1;
  *run = (struct model_run){.first = range->first_block + (int32_t)begin,
                            .count = (int32_t)(end - begin),
                            .fresh = extent->fresh};
  return true;
}

static void operation_row(struct pump_model *m, struct pump_batch *batch, uint32_t row) {
  uint64_t seq = batch->seq[row];
  if (seq >= PUMP_NOT_NEEDED) return; /* not a valid number */
  if (batch->kind[row] == PUMP_EVENT_KERNEL) measure(m, batch, row);
  struct pump_model_extent extents[PUMP_MAX_EXTENTS];
  struct model_run runs[PUMP_MAX_EXTENTS];
  uint32_t count = 0;
  for (uint32_t use = batch->use_begin[row]; use < batch->use_begin[row + 1]; use++) {
    struct pump_model_extent extent = {.slot = batch->slot[use],
                                       .generation = batch->generation[use],
                                       .offset_bytes = batch->offset_bytes[use],
                                       .length_bytes = batch->length_bytes[use]};
    struct model_run run;
    if (!model_run_of(m, &extent, &run)) continue;
    extent.length_bytes = within(m, &extent);
    if (batch->kind[row] != PUMP_EVENT_KERNEL)
      pump_extents_bytes(m->extents, extent.slot, extent.generation, extent.offset_bytes,
                         extent.length_bytes);
    if (count == PUMP_MAX_EXTENTS) continue;
    model_note_fresh(m, &run);
    extent.fresh = run.fresh;
    extents[count] = extent;
    runs[count++] = run;
  }
  bool predicted = model_learn_operation(m, batch, row, extents, count);
  model_op_add(m, seq, batch->stream[row], runs, count, predicted);
  if (batch->dropped[row] != 0) model_op_truncated(m, count, batch->dropped[row]);
  if (m->graphs.count != 0) model_graph_weigh(m, seq);
  if (m->timing != NULL) model_time_issued(m, batch, row, extents, count);
  if (seq > m->totals.observed_seq) m->totals.observed_seq = seq;
}

/* ---- input of the learners --------------------------------------------------------- */

static void params_row(struct pump_model *m, const struct pump_batch *batch, uint32_t row) {
  struct pump_params head;
  uint32_t bytes = batch->payload_bytes[row];
  if (bytes < sizeof head) return;
  const uint8_t *payload = &batch->payload[batch->payload_begin[row]];
  memcpy(&head, payload, sizeof head);
  uint32_t there = bytes - (uint32_t)sizeof head;
  if (head.parameter_bytes < there) there = head.parameter_bytes;
  model_learn_shape(m, batch->signature[row], &head);
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
    case PUMP_EVENT_SYNC:
      model_time_row(m, batch, row);
      break;
    case PUMP_EVENT_GRAPH:
      model_time_row(m, batch, row);
      model_graph_add(
          m, &(struct graph_launch){.first = batch->seq[row],
                                    .last = batch->seq[row] + batch->signature[row] - 1,
                                    .executable = batch->function[row],
                                    .stream = batch->stream[row]});
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
