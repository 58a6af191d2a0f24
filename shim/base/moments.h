/* moments.h - when a count that only grows reached which value, for recordings.
 *
 * A hint: two threads that note at once may leave a value with the other's time. Only the
 * newest moments are kept; what was reached before them counts as reached with the oldest.
 */
#ifndef PUMP_MOMENTS_H
#define PUMP_MOMENTS_H

#include "pump_ring.h"

#define PUMP_MOMENTS 16

struct pump_moments {
  uint64_t noted;
  struct {
    uint64_t value, time_ns;
  } newest[PUMP_MOMENTS];
};

static inline void pump_moments_add(struct pump_moments *moments, uint64_t value,
                                    uint64_t now_ns) {
  uint64_t place = PUMP_ADD(&moments->noted, 1) % PUMP_MOMENTS;
  PUMP_STORE(&moments->newest[place].time_ns, now_ns);
  PUMP_STORE_RELEASE(&moments->newest[place].value, value);
}

/* When the count reached `value`; 0 where nothing was ever noted, UINT64_MAX where the
 * count has not reached it, or its moment is being written. */
static inline uint64_t pump_moments_of(const struct pump_moments *moments, uint64_t value) {
  uint64_t earliest_ns = UINT64_MAX;
  if (PUMP_LOAD(&moments->noted) == 0) return 0;
  for (uint32_t i = 0; i < PUMP_MOMENTS; i++) {
    if (PUMP_LOAD_ACQUIRE(&moments->newest[i].value) < value) continue;
    uint64_t time_ns = PUMP_LOAD(&moments->newest[i].time_ns);
    if (time_ns < earliest_ns) earliest_ns = time_ns;
  }
  return earliest_ns;
}

#endif
