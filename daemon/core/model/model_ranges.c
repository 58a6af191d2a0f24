/* model_ranges.c - live ranges and the block numbers that they own.
 *
 * A range owns consecutive numbers while it lives. Freed numbers become gaps in free
 * lists by size, because training allocates the same sizes again and again. Adjacent gaps
 * are joined only when new numbers run out. A gap is linked through its first block and
 * stores its size in the block's second link.
 */
#include <errno.h>

#include "model_state.h"
#include "pump_ring.h"

/* ---- numbers --------------------------------------------------------------------- */

static int32_t *gap_link(struct pump_model *m, int32_t gap) {
  return &m->blocks.all[gap].idle_next;
}

static int32_t *gap_size(struct pump_model *m, int32_t gap) {
  return &m->blocks.all[gap].idle_prev;
}

static void keep_gap(struct pump_model *m, int32_t first, int32_t count) {
  int32_t *head = &m->ranges.gaps[count <= GAP_SIZES ? count : 0];
  *gap_size(m, first) = count;
  *gap_link(m, first) = *head;
  *head = first;
}

/* Takes `count` numbers from the first gap in the list that is large enough. */
static int32_t take_from(struct pump_model *m, int32_t *link, int32_t count) {
  for (; *link != NONE; link = gap_link(m, *link)) {
    int32_t gap = *link, size = *gap_size(m, gap);
    if (size < count) continue;
    *link = *gap_link(m, gap);
    if (size > count) keep_gap(m, gap + count, size - count);
    return gap;
  }
  return NONE;
}

/* Joins all adjacent gaps and takes the first that is large enough. */
static int32_t take_joined(struct pump_model *m, int32_t count) {
  int32_t taken = NONE;
  for (uint32_t i = 0; i <= GAP_SIZES; i++) m->ranges.gaps[i] = NONE;
  for (int32_t first = 0; first < m->ranges.block_end;) {
    int32_t end = first;
    while (end < m->ranges.block_end && m->blocks.all[end].state == PUMP_BLOCK_FREE) end++;
    if (end == first) {
      first++;
      continue;
    }
    if (taken == NONE && end - first >= count) {
      taken = first;
      first += count;
    }
    if (end > first) keep_gap(m, first, end - first);
    first = end;
  }
  return taken;
}

static int32_t take_numbers(struct pump_model *m, int32_t count) {
  int32_t first = take_from(m, &m->ranges.gaps[count <= GAP_SIZES ? count : 0], count);
  if (first != NONE) return first;
  if (count > (int32_t)m->bounds.capacity - m->ranges.block_end)
    return take_joined(m, count);
  first = m->ranges.block_end;
  m->ranges.block_end += count;
  return first;
}

/* ---- ranges ----------------------------------------------------------------------- */

void model_range_remove(struct pump_model *m, uint32_t slot) {
  struct range *range = &m->ranges.all[slot];
  if (range->first_block == NONE) return;
  pump_extents_segment_gone(m->extents, slot);
  model_learn_range(m, slot, true);
  model_in_place_gone(m, slot);
  for (int32_t block = range->first_block; block < range->first_block + range->blocks;
       block++) {
    model_drop_chain(m, block);
    model_duplicate_ended(m, block);
    model_set_state(m, block, PUMP_BLOCK_FREE);
  }
  keep_gap(m, range->first_block, range->blocks);
  range->first_block = NONE;
  m->totals.ranges--;
}

static bool plausible(const struct pump_range *range) {
  bool kind =
      range->range_kind == PUMP_RANGE_CONVERTED || range->range_kind == PUMP_RANGE_MANAGED;
  return kind && range->device < PUMP_MAX_DEVICES && range->length_bytes > 0 &&
         range->length_bytes < PUMP_ADDRESS_END && range->base < PUMP_ADDRESS_END;
}

void model_range_add(struct pump_model *m, uint32_t slot, const struct pump_range *found,
                     uint32_t state) {
  struct range *range = &m->ranges.all[slot];
  if (!plausible(found)) return;
  model_range_remove(m, slot);
  uint64_t lead_bytes = found->base % PUMP_BLOCK_BYTES;
  uint64_t blocks =
      (lead_bytes + found->length_bytes + PUMP_BLOCK_BYTES - 1) / PUMP_BLOCK_BYTES;
  int32_t first = NONE;
  if (blocks <= m->bounds.capacity) first = take_numbers(m, (int32_t)blocks);
  range->generation = found->generation; /* also of untracked ranges */
  if (first == NONE) {
    m->totals.ranges_untracked++;
    return;
  }
  *range = (struct range){.base = found->base,
                          .length_bytes = found->length_bytes,
                          .first_block = first,
                          .blocks = (int32_t)blocks,
                          .generation = found->generation,
                          .device = found->device,
                          .lead_bytes = lead_bytes};
  for (int32_t block = first; block < first + range->blocks; block++) {
    m->blocks.all[block] = (struct block){.next_use = PUMP_NOT_NEEDED,
                                          .first = NONE,
                                          .last = NONE,
                                          .issued = NONE,
                                          .slot = slot,
                                          .device = (uint8_t)found->device,
                                          .state = PUMP_BLOCK_FREE};
    model_set_state(m, block, state);
  }
  m->totals.ranges++;
  pump_extents_segment(m->extents, slot, found->generation, found->base,
                       found->length_bytes);
  model_learn_range(m, slot, false);
}

/* ---- resynchronisation --------------------------------------------------------------- */

static bool known(const struct pump_model *m, uint32_t slot, uint32_t generation) {
  const struct range *range = &m->ranges.all[slot];
  return range->first_block != NONE && range->generation == generation;
}

EXPORT void pump_model_resync(struct pump_model *m, uint32_t count, const uint32_t *slots,
                              const struct pump_range *ranges, uint64_t newest_seq) {
  if (newest_seq > m->totals.observed_seq) m->totals.observed_seq = newest_seq;
  model_learn_loss(m);
  uint32_t next = 0; /* `slots` is ascending */
  for (uint32_t slot = 0; slot < PUMP_MAX_RANGES; slot++) {
    while (next < count && slots[next] < slot) next++;
    bool listed = next < count && slots[next] == slot && ranges[next].generation != 0 &&
                  plausible(&ranges[next]);
    if (m->ranges.all[slot].first_block != NONE &&
        !(listed && known(m, slot, ranges[next].generation)))
      model_range_remove(m, slot);
    if (!listed || m->ranges.all[slot].first_block != NONE) continue;
    const struct pump_range *range = &ranges[next];
    /* Ranges older than this worker may be resident, as far as the budget allows. */
    const struct device *device = &m->devices[range->device];
    int64_t blocks = (int64_t)((range->length_bytes + PUMP_BLOCK_BYTES - 1) >> 21);
    bool room = device->facts.budget - model_occupied(device) >= blocks;
    model_range_add(m, slot, range, room ? PUMP_BLOCK_MAYBE_EVICTED : PUMP_BLOCK_HOST);
  }
}

EXPORT int pump_model_range(const struct pump_model *m, uint32_t slot,
                            struct pump_range_blocks *out) {
  if (slot >= PUMP_MAX_RANGES || m->ranges.all[slot].first_block == NONE) return -ENOENT;
  const struct range *range = &m->ranges.all[slot];
  *out = (struct pump_range_blocks){.first_block = range->first_block,
                                    .blocks = range->blocks,
                                    .generation = range->generation,
                                    .device = range->device};
  return 0;
}
