/* moments.h - records when a growing count reached its values, for recordings.
 *
 * The times are hints: two threads that note at once may swap their times. Only the
 * newest moments are kept; an older value gets the oldest time that is kept.
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
  uint64_t i = PUMP_ADD(&moments->noted, 1) % PUMP_MOMENTS;
  PUMP_STORE(&moments->newest[i].time_ns, now_ns);
  PUMP_STORE_RELEASE(&moments->newest[i].value, value);
}

/* Returns when the count reached `value`. 0: nothing was ever noted. UINT64_MAX: the
 * count has not reached it, or its moment is being written. */
static inline uint64_t pump_moments_find(const struct pump_moments *moments,
                                         uint64_t value) {
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
