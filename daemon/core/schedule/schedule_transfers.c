/* schedule_transfers.c - transfers of a schedule in force: made, released, taken; and
 * whether the schedule is still valid. */
#include <string.h>

#include "schedule.h"

#define LEAST_BLOCKS 64   /* a shorter rest of a list is not enough: 128 MiB [guessed] */
#define ADVICE_ENTRIES 32 /* most changes of advice in a schedule [guessed] */

static void mark(struct pump_model *m, const struct transfer *transfer, bool scheduled) {
  if (transfer->advice != PUMP_ADVICE_NONE) return;
  for (int32_t i = 0; i < transfer->blocks; i++) {
    struct block *b = &m->blocks.all[transfer->first_block + i];
    bool to_gpu = transfer->direction == PUMP_TO_GPU;
    PUMP_ASSERT(!scheduled || !(to_gpu ? b->comes : b->goes),
                "a block is in one scheduled transfer of a direction");
    if (to_gpu)
      b->comes = scheduled;
    else
      b->goes = scheduled;
  }
}

void schedule_add_advice(struct pump_model *m, uint32_t device,
                         struct schedule_lists *out) {
  struct schedule_entry *entries = out->entries[PUMP_TO_GPU];
  struct schedule_entry advice[ADVICE_ENTRIES];
  uint32_t count = 0, slot;
  int32_t first, blocks;
  while (count < ADVICE_ENTRIES &&
         (blocks = model_in_place_take(m, device, (int32_t)m->bounds.slice_most, &slot,
                                       &first)) != 0)
    advice[count++] = (struct schedule_entry){.first_block = first,
                                              .blocks = blocks,
                                              .slot = slot,
                                              .advice = model_in_place_advice(m, slot)};
  if (count == 0) return;
  uint32_t kept = out->count[PUMP_TO_GPU];
  if (kept > PUMP_SCHEDULE_ENTRIES - count) kept = PUMP_SCHEDULE_ENTRIES - count;
  memmove(entries + count, entries, kept * sizeof *entries);
  memcpy(entries, advice, count * sizeof *entries);
  out->count[PUMP_TO_GPU] = count + kept;
}

EXPORT uint32_t schedule_make_transfers(struct pump_model *m, uint32_t device,
                                        uint32_t direction,
                                        const struct schedule_entry *scheduled,
                                        uint32_t count, uint16_t *indices) {
  uint32_t made = 0;
  for (; made < count && m->transfers.unused_count > 0; made++, scheduled++) {
    const struct range *range = &m->ranges.all[scheduled->slot];
    uint32_t index = m->transfers.unused[--m->transfers.unused_count];
    struct model_span span = model_span(range, scheduled->first_block, scheduled->blocks);
    m->transfers.all[index] =
        (struct transfer){.ticket = model_ticket(m, index),
                          .first_block = scheduled->first_block,
                          .blocks = scheduled->blocks,
                          .slot = scheduled->slot,
                          .generation = range->generation,
                          .offset_bytes = span.offset_bytes,
                          .bytes = span.length_bytes,
                          .device = (uint8_t)device,
                          .direction = (uint8_t)direction,
                          .expected = scheduled->need > (int64_t)m->window.added_seq,
                          .advice = (uint8_t)scheduled->advice};
    mark(m, &m->transfers.all[index], true);
    indices[made] = (uint16_t)index;
  }
  for (uint32_t i = made; i < count; i++, scheduled++)
    if (scheduled->advice != PUMP_ADVICE_NONE)
      model_in_place_put_back(m, scheduled->slot, scheduled->blocks);
  m->schedules.untaken += made;
  return made;
}

void schedule_release_transfer(struct pump_model *m, uint32_t index) {
  PUMP_ASSERT(m->transfers.all[index].ticket != 0 && m->schedules.untaken != 0,
              "only scheduled transfers are given back");
  const struct transfer *transfer = &m->transfers.all[index];
  const struct range *range = &m->ranges.all[transfer->slot];
  mark(m, transfer, false);
  if (transfer->advice != PUMP_ADVICE_NONE && range->first_block != NONE &&
      range->generation == transfer->generation)
    model_in_place_put_back(m, transfer->slot, transfer->blocks);
  m->transfers.all[index].ticket = 0;
  m->transfers.unused[m->transfers.unused_count++] = index;
  m->schedules.untaken--;
}

EXPORT void schedule_note_taken(struct pump_model *m, uint32_t index, uint64_t valid_seq) {
  struct transfer *transfer = &m->transfers.all[index];
  const struct range *range = &m->ranges.all[transfer->slot];
  struct device *device = &m->devices[transfer->device];
  bool to_gpu = transfer->direction == PUMP_TO_GPU;
  PUMP_ASSERT(transfer->ticket != 0 && m->schedules.untaken != 0,
              "an entry is taken at most once");
  m->schedules.untaken--;
  if (transfer->advice != PUMP_ADVICE_NONE) return;
  mark(m, transfer, false);
  /* A refusal can only be due to a use after the operations that were read, or after a
   * deviation. */
  uint64_t most = m->totals.observed_seq < valid_seq ? m->totals.observed_seq : valid_seq;
  if (transfer->observed_seq > (int64_t)most) transfer->observed_seq = (int64_t)most;
  if (to_gpu)
    device->arriving_bytes += transfer->bytes;
  else
    device->leaving_bytes += transfer->bytes;
  if (range->first_block == NONE || range->generation != transfer->generation) return;
  for (int32_t b = transfer->first_block; b < transfer->first_block + transfer->blocks;
       b++) {
    uint8_t state = m->blocks.all[b].state;
    bool there = state == PUMP_BLOCK_RESIDENT || state == PUMP_BLOCK_MAYBE_EVICTED;
    bool away = state == PUMP_BLOCK_HOST || state == PUMP_BLOCK_ABSENT;
    if (there || (to_gpu && away))
      model_set_state(m, b, to_gpu ? PUMP_BLOCK_ARRIVING : PUMP_BLOCK_LEAVING);
  }
}

/* Returns whether enough of the list is left: all of it, or nine tenths and at least
 * LEAST_BLOCKS. */
static bool is_enough(const struct schedule *schedule, uint32_t direction) {
  int64_t enough = schedule->blocks[direction] * 9 / 10;
  if (enough < LEAST_BLOCKS) enough = LEAST_BLOCKS;
  return schedule->left[direction] == schedule->blocks[direction] ||
         schedule->left[direction] >= enough;
}

bool schedule_has_grown(const struct pump_model *m, uint32_t index) {
  const struct schedule *schedule = &m->schedules.all[index];
  int64_t grown = m->window.op_head - schedule->op_head;
  return grown >= HEAD_AGAIN || (grown > 0 && grown * HEAD_AGAIN >= schedule->known);
}

bool schedule_is_valid(const struct pump_model *m, uint32_t index) {
  const struct schedule *schedule = &m->schedules.all[index];
  if (!schedule->in_force || schedule->deviations != m->schedules.deviations ||
      m->devices[index].faults != 0)
    return false;
  int64_t grown = m->window.op_head - schedule->op_head;
  if (schedule_has_grown(m, index) &&
      (schedule->short_of_ops || 2 * grown >= schedule->known))
    return false;
  return is_enough(schedule, PUMP_TO_HOST) && is_enough(schedule, PUMP_TO_GPU);
}
