/* model_transfers.c - transfers in flight, and what their ends mean for the blocks. */
#include "model_state.h"
#include "pump_ring.h"

/* A ticket is (count << 10 | index), so that a late answer matches no later transfer
 * [derived]. */
#define INDEX_BITS 10
_Static_assert(PUMP_MAX_IN_FLIGHT == 1 << INDEX_BITS, "the index is part of the ticket");

uint64_t model_ticket(struct pump_model *m, uint32_t index) {
  return ++m->transfers.tickets << INDEX_BITS | index;
}

/* ---- limits ------------------------------------------------------------------------ */

EXPORT int64_t model_flight_most(const struct pump_model *m, const struct device *device) {
  int64_t most = device->facts.budget / m->bounds.in_flight_share;
  if (most < m->bounds.slice_least) return m->bounds.slice_least;
  return most < m->bounds.in_flight ? most : m->bounds.in_flight;
}

/* Returns a slice's maximum number of blocks. A long slice delays frees and all waiters
 * of mmap_lock; a short one pays a call and a wake-up for little. The time per block
 * comes from ended transfers and not from the link's rate, because executors share the
 * link. */
EXPORT uint32_t model_slice(const struct pump_model *m, const struct device *device,
                            int direction) {
  const struct pump_model_bounds *bounds = &m->bounds;
  if (device->block_us[direction] == 0) return bounds->slice_least;
  int64_t blocks = ((int64_t)bounds->slice_us << 8) / device->block_us[direction];
  if (blocks < bounds->slice_least) return bounds->slice_least;
  return blocks < bounds->slice_most ? (uint32_t)blocks : bounds->slice_most;
}

static void learn_duration(struct device *device, int direction, int64_t blocks,
                           uint32_t duration_us) {
  int64_t sample = ((int64_t)duration_us << 8) / blocks,
          *known = &device->block_us[direction];
  *known += *known == 0 ? sample : (sample - *known) / 8;
  if (*known < 1) *known = 1;
}

/* ---- ending ---------------------------------------------------------------------- */

static bool was_refused(uint32_t result) {
  return result == PUMP_RESULT_STALE || result == PUMP_RESULT_INVALID ||
         result == PUMP_RESULT_FAILED;
}

EXPORT void model_transfer_ended(struct pump_model *m, uint32_t index, uint32_t result,
                                 uint32_t duration_us, uint32_t kept) {
  struct transfer *transfer = &m->transfers.all[index];
  struct device *device = &m->devices[transfer->device];
  const struct range *range = &m->ranges.all[transfer->slot];
  bool to_gpu = transfer->direction == PUMP_TO_GPU;
  m->schedules.changes++;
  if (transfer->advice != PUMP_ADVICE_NONE) {
    transfer->ticket = 0;
    m->transfers.unused[m->transfers.unused_count++] = index;
    if (range->first_block != NONE && range->generation == transfer->generation)
      model_in_place_answered(m, transfer->slot, transfer->blocks,
                              result == PUMP_RESULT_MOVED);
    return;
  }
  if (!to_gpu) device->leaving_bytes -= transfer->bytes;
  if (!to_gpu && result == PUMP_RESULT_MOVED) device->left_bytes += transfer->bytes;
  device->ended_bytes += pump_ended_bytes(transfer->direction, result, transfer->bytes);
  if (to_gpu) device->arriving_bytes -= transfer->bytes;
  if (was_refused(result)) {
    /* Before more operations are read, a new decision would only repeat this one. */
    int64_t *held = &device->held_at[transfer->direction];
    if (transfer->observed_seq > *held) *held = transfer->observed_seq;
    device->tally.refused++;
  }
  if (result == PUMP_RESULT_MOVED && (to_gpu || kept == 0))
    learn_duration(device, transfer->direction, transfer->blocks, duration_us);
  transfer->ticket = 0;
  m->transfers.unused[m->transfers.unused_count++] = index;
  if (range->first_block == NONE || range->generation != transfer->generation)
    return; /* the range was freed; others may own its blocks now */
  /* LATE: the operation has executed, so faults brought the blocks. */
  bool done = result == PUMP_RESULT_MOVED || (to_gpu && result == PUMP_RESULT_LATE);
  uint32_t before = to_gpu ? PUMP_BLOCK_ARRIVING : PUMP_BLOCK_LEAVING;
  uint32_t after = to_gpu == done ? PUMP_BLOCK_RESIDENT : PUMP_BLOCK_HOST;
  /* If another operation ran instead of the expected one, no fault brought the blocks. */
  if (result == PUMP_RESULT_LATE && to_gpu && transfer->expected)
    after = PUMP_BLOCK_MAYBE_EVICTED;
  for (int32_t i = 0; i < transfer->blocks; i++) {
    int32_t b = transfer->first_block + i;
    uint32_t bit = i < PUMP_MASK_BLOCKS ? 1u << i : 0;
    if (result == PUMP_RESULT_MOVED && !to_gpu)
      model_duplicate_left(m, b, (kept & bit) != 0);
    if (result == PUMP_RESULT_MOVED && (transfer->duplicates & bit))
      model_duplicate_came(m, b, (kept & bit) != 0);
    if (m->blocks.all[b].state != before) continue;
    model_set_state(m, b, after);
    if (m->arrived_ns != NULL && to_gpu) m->arrived_ns[b] = m->timing->now_ns;
  }
}
