/* model_transfers.c - transfers in flight: from chosen blocks to commands, and from the
 * ends of commands to block states. */
#include <stdlib.h>

#include "model_state.h"
#include "pump_ring.h"

/* A ticket is (count << 10 | index), so that a late answer matches no later transfer. */
#define INDEX_BITS 10
_Static_assert(PUMP_MAX_IN_FLIGHT == 1 << INDEX_BITS, "the index is part of the ticket");

uint64_t model_ticket(struct pump_model *m, uint32_t index) {
  return ++m->transfers.tickets << INDEX_BITS | index;
}

static struct transfer *by_ticket(struct pump_model *m, uint64_t ticket) {
  struct transfer *transfer = &m->transfers.all[ticket & (PUMP_MAX_IN_FLIGHT - 1)];
  return ticket != 0 && transfer->ticket == ticket ? transfer : NULL;
}

/* ---- length of a slice ------------------------------------------------------------- */

/* Returns a slice's maximum number of blocks. A long slice delays frees and all waiters
 * of mmap_lock; a short one pays a call and a wake-up for little. The time per block
 * comes from finished commands and not from the link's rate, because executors share the
 * link. */
uint32_t model_slice(const struct pump_model *m, const struct device *device,
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

/* ---- starting ------------------------------------------------------------------------ */

static bool may_start(const struct pump_model *m, uint32_t device, uint32_t direction,
                      int64_t block) {
  if (block < 0 || block >= m->ranges.block_end) return false;
  const struct block *b = &m->blocks.all[block];
  if (b->device != device) return false;
  bool there = b->state == PUMP_BLOCK_RESIDENT || b->state == PUMP_BLOCK_MAYBE_EVICTED;
  /* Prefetching a resident block again refreshes its age. */
  return there || (direction == PUMP_TO_GPU &&
                   (b->state == PUMP_BLOCK_HOST || b->state == PUMP_BLOCK_ABSENT));
}

/* Returns how many of the chosen blocks, starting at `i`, make one command. */
static uint32_t run_length(const struct pump_model *m, uint32_t device, uint32_t direction,
                           const int64_t *blocks, uint32_t count, uint32_t i) {
  const struct block *first = &m->blocks.all[blocks[i]];
  uint32_t most = model_slice(m, &m->devices[device], (int)direction), length = 1;
  while (length < most && i + length < count && blocks[i + length] == blocks[i] + length) {
    const struct block *b = &m->blocks.all[blocks[i + length]];
    if (!may_start(m, device, direction, blocks[i + length]) || b->slot != first->slot)
      break;
    /* All blocks must serve the same operation, because an arrival is dropped when its
     * operation has executed. */
    if (direction == PUMP_TO_GPU && b->next_use != first->next_use) break;
    length++;
  }
  return length;
}

static void fill_command(const struct pump_model *m, struct transfer *transfer,
                         struct pump_command *command) {
  const struct block *first = &m->blocks.all[transfer->first_block];
  struct model_span span =
      model_span(&m->ranges.all[transfer->slot], transfer->first_block, transfer->blocks);
  transfer->bytes = span.length_bytes;
  *command = (struct pump_command){.ticket = transfer->ticket,
                                   .slot = transfer->slot,
                                   .generation = transfer->generation,
                                   .offset_bytes = span.offset_bytes,
                                   .length_bytes = span.length_bytes};
  if (transfer->direction == PUMP_TO_HOST) {
    command->observed_seq = (uint64_t)transfer->observed_seq;
  } else if (first->first != NONE) {
    const struct op *op = &m->window.ops[m->window.uses[first->first].op];
    command->needed_by_seq = op->seq;
    command->stream = op->stream;
  }
}

/* Returns whether the block's next use is of an expected, unissued operation. */
static bool next_use_is_unissued(const struct pump_model *m, int64_t block) {
  int32_t use = m->blocks.all[block].first;
  return use != NONE && model_is_expected(m, use);
}

static int by_number(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

#define CHOSEN_MAX 256

EXPORT uint32_t pump_model_start(struct pump_model *m, uint32_t device, uint32_t direction,
                                 const int64_t *chosen, uint32_t count,
                                 struct pump_command *commands, uint32_t max) {
  int64_t blocks[CHOSEN_MAX];
  uint32_t made = 0;
  if (direction >= PUMP_DIRECTIONS || device >= PUMP_MAX_DEVICES) return 0;
  if (count > CHOSEN_MAX) count = CHOSEN_MAX;
  for (uint32_t i = 0; i < count; i++) blocks[i] = chosen[i];
  /* No operation waits for evictions, so neighbours can leave together. */
  if (direction == PUMP_TO_HOST) qsort(blocks, count, sizeof blocks[0], by_number);
  for (uint32_t i = 0; i < count && made < max && m->transfers.unused_count > 0;) {
    if (!may_start(m, device, direction, blocks[i])) {
      i++;
      continue;
    }
    uint32_t length = run_length(m, device, direction, blocks, count, i);
    uint32_t index = m->transfers.unused[--m->transfers.unused_count];
    struct transfer *transfer = &m->transfers.all[index];
    uint32_t slot = m->blocks.all[blocks[i]].slot;
    *transfer = (struct transfer){.ticket = model_ticket(m, index),
                                  .observed_seq = (int64_t)m->totals.observed_seq,
                                  .first_block = (int32_t)blocks[i],
                                  .blocks = (int32_t)length,
                                  .slot = slot,
                                  .generation = m->ranges.all[slot].generation,
                                  .device = (uint8_t)device,
                                  .direction = (uint8_t)direction,
                                  .expected = next_use_is_unissued(m, blocks[i])};
    fill_command(m, transfer, &commands[made++]);
    if (direction == PUMP_TO_HOST) m->devices[device].leaving_bytes += transfer->bytes;
    for (int32_t b = transfer->first_block; b < transfer->first_block + transfer->blocks;
         b++)
      model_set_state(m, b,
                      direction == PUMP_TO_GPU ? PUMP_BLOCK_ARRIVING : PUMP_BLOCK_LEAVING);
    m->devices[device].in_flight[direction] += length;
    i += length;
  }
  m->schedules.changes += made;
  return made;
}

/* ---- ending ---------------------------------------------------------------------- */

static bool was_refused(uint32_t result) {
  return result == PUMP_RESULT_STALE || result == PUMP_RESULT_INVALID ||
         result == PUMP_RESULT_FAILED;
}

static void finish(struct pump_model *m, struct transfer *transfer, uint32_t result,
                   uint32_t duration_us, uint32_t kept) {
  struct device *device = &m->devices[transfer->device];
  const struct range *range = &m->ranges.all[transfer->slot];
  bool to_gpu = transfer->direction == PUMP_TO_GPU;
  if (!transfer->scheduled) device->in_flight[transfer->direction] -= transfer->blocks;
  m->schedules.changes++;
  if (!to_gpu) device->leaving_bytes -= transfer->bytes;
  if (!to_gpu && result == PUMP_RESULT_MOVED) device->left_bytes += transfer->bytes;
  if (transfer->scheduled)
    device->ended_bytes += pump_ended_bytes(transfer->direction, result, transfer->bytes);
  if (transfer->scheduled && to_gpu) device->arriving_bytes -= transfer->bytes;
  if (was_refused(result)) {
    /* Before more operations are read, a new decision would only repeat this one. */
    int64_t *held = &device->held_at[transfer->direction];
    if (transfer->observed_seq > *held) *held = transfer->observed_seq;
    device->tally.refused++;
  }
  if (result == PUMP_RESULT_MOVED && (to_gpu || kept == 0))
    learn_duration(device, transfer->direction, transfer->blocks, duration_us);
  transfer->ticket = 0;
  m->transfers.unused[m->transfers.unused_count++] =
      (uint32_t)(transfer - m->transfers.all);
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

/* Ignores the tickets of schedule entries, which an untrusted client may report here: only
 * the end of an entry releases its transfer (worker_schedule.c). */
EXPORT void pump_model_finish(struct pump_model *m, const struct pump_outcome *outcomes,
                              uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    struct transfer *transfer = by_ticket(m, outcomes[i].ticket);
    if (transfer != NULL && !transfer->scheduled)
      finish(m, transfer, outcomes[i].result, outcomes[i].duration_us, 0);
  }
}

void model_transfer_ended(struct pump_model *m, uint32_t index, uint32_t result,
                          uint32_t duration_us, uint32_t kept) {
  finish(m, &m->transfers.all[index], result, duration_us, kept);
}

EXPORT void pump_model_take_back(struct pump_model *m, const struct pump_command *commands,
                                 uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    struct transfer *transfer = by_ticket(m, commands[i].ticket);
    if (transfer != NULL) finish(m, transfer, PUMP_RESULT_DEAD, 0, 0);
  }
}
