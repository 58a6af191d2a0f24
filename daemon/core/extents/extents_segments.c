/* extents_segments.c - live ranges and the starts of tensors in them.
 *
 * Each pointer that a launch or copy uses adds a start. A start is forgotten when a
 * longer tensor covers it, but never by age. A start that is unused for an iteration is
 * still valid (expiry by time was measured and is clearly worse).
 */
#include <stdlib.h>
#include <string.h>

#include "extents_state.h"

struct extents_segment *extents_segment_at(struct pump_extents *learner, uint32_t slot,
                                           uint32_t generation) {
  if (slot >= PUMP_MAX_RANGES) return NULL;
  struct extents_segment *segment = learner->segments[slot];
  return segment != NULL && segment->generation == generation ? segment : NULL;
}

EXPORT void pump_extents_segment_gone(struct pump_extents *learner, uint32_t slot) {
  if (slot >= PUMP_MAX_RANGES || learner->segments[slot] == NULL) return;
  struct extents_segment *segment = learner->segments[slot];
  learner->starts -= segment->count;
  free(segment->starts);
  free(segment);
  learner->segments[slot] = NULL;
}

EXPORT void pump_extents_segment(struct pump_extents *learner, uint32_t slot,
                                 uint32_t generation, uint64_t base,
                                 uint64_t length_bytes) {
  pump_extents_segment_gone(learner, slot);
  if (slot >= PUMP_MAX_RANGES || length_bytes == 0) return;
  struct extents_segment *segment = calloc(1, sizeof(*segment));
  if (segment == NULL) return;
  segment->starts = calloc(1, sizeof(*segment->starts));
  if (segment->starts == NULL) {
    free(segment);
    return;
  }
  segment->generation = generation;
  segment->count = 1;
  segment->capacity = 1;
  segment->base = base;
  segment->length_bytes = length_bytes;
  learner->starts++;
  learner->segments[slot] = segment;
}

uint32_t extents_start_before(const struct extents_segment *segment, uint64_t offset) {
  uint32_t low = 0;
  uint32_t high = segment->count;
  while (high - low > 1) {
    uint32_t middle = low + (high - low) / 2;
    if (segment->starts[middle].offset <= offset)
      low = middle;
    else
      high = middle;
  }
  return low;
}

static bool room(struct pump_extents *learner, struct extents_segment *segment) {
  if (segment->count < segment->capacity) return learner->starts < EXTENTS_STARTS;
  if (segment->count >= EXTENTS_STARTS_SEGMENT || learner->starts >= EXTENTS_STARTS)
    return false;
  uint32_t capacity = segment->capacity < 8 ? 8 : segment->capacity * 2;
  void *larger = realloc(segment->starts, capacity * sizeof(*segment->starts));
  if (larger == NULL) return false;
  segment->starts = larger;
  segment->capacity = capacity;
  return true;
}

uint32_t extents_start_use(struct pump_extents *learner, struct extents_segment *segment,
                           uint64_t offset) {
  uint32_t before = extents_start_before(segment, offset);
  if (segment->starts[before].offset != offset) {
    if (!room(learner, segment)) return before;
    before++;
    memmove(&segment->starts[before + 1], &segment->starts[before],
            (segment->count - before) * sizeof(*segment->starts));
    segment->starts[before] = (struct extents_start){.offset = offset};
    segment->count++;
    learner->starts++;
  }
  segment->starts[before].stamp = learner->now;
  return before;
}

void extents_start_length(struct pump_extents *learner, struct extents_segment *segment,
                          uint32_t at, uint64_t offset, uint64_t length_bytes) {
  if (at >= segment->count || segment->starts[at].offset != offset)
    at = extents_start_before(segment, offset);
  if (segment->starts[at].offset != offset) return; /* it did not fit */
  segment->starts[at].length_bytes = length_bytes;
  uint64_t end = offset + length_bytes;
  uint32_t keep = at + 1;
  uint32_t from = keep;
  for (; from < segment->count && segment->starts[from].offset < end; from++)
    if (segment->starts[from].stamp == learner->now)
      segment->starts[keep++] = segment->starts[from];
  if (from == keep) return;
  memmove(&segment->starts[keep], &segment->starts[from],
          (segment->count - from) * sizeof(*segment->starts));
  segment->count -= from - keep;
  learner->starts -= from - keep;
}

/* Returns the minimum distance from a start to a possible end. Only the smallest segments
 * contain both large and small tensors. */
static uint64_t least_of(const struct extents_segment *segment) {
  return segment->length_bytes <= PUMP_BLOCK_BYTES ? EXTENTS_UNIT_BYTES
                                                   : EXTENTS_LARGE_BYTES;
}

uint64_t extents_nearest(const struct extents_segment *segment, uint64_t offset) {
  uint64_t least = least_of(segment);
  uint32_t start = extents_start_before(segment, offset) + 1;
  for (; start < segment->count; start++)
    if (segment->starts[start].offset - offset >= least)
      return segment->starts[start].offset - offset;
  return segment->length_bytes - offset;
}

uint32_t extents_ends(const struct extents_segment *segment, uint64_t offset,
                      uint64_t distances[EXTENTS_CANDIDATES + 1]) {
  uint64_t least = least_of(segment);
  uint32_t count = 0;
  uint32_t start = extents_start_before(segment, offset) + 1;
  for (; start < segment->count && count < EXTENTS_CANDIDATES; start++) {
    uint64_t distance = segment->starts[start].offset - offset;
    if (distance >= least) distances[count++] = distance;
  }
  distances[count++] = segment->length_bytes - offset;
  return count;
}

EXPORT void pump_extents_bytes(struct pump_extents *learner, uint32_t slot,
                               uint32_t generation, uint64_t offset_bytes,
                               uint64_t length_bytes) {
  struct extents_segment *segment = extents_segment_at(learner, slot, generation);
  if (segment == NULL || offset_bytes >= segment->length_bytes || length_bytes == 0) return;
  learner->now++;
  uint64_t room_bytes = segment->length_bytes - offset_bytes;
  uint64_t rounded = length_bytes > room_bytes
                         ? room_bytes
                         : (length_bytes + EXTENTS_UNIT_BYTES - 1) / EXTENTS_UNIT_BYTES *
                               EXTENTS_UNIT_BYTES;
  extents_start_length(learner, segment, extents_start_use(learner, segment, offset_bytes),
                       offset_bytes, rounded > room_bytes ? room_bytes : rounded);
}
