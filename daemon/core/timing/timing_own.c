/* timing_own.c - the own time of each kind of operation, from samples. See timing.h. */
#include <string.h>

#include "timing.h"

#define PROBES 16u

static struct timing_own *place_of(struct pump_timing *timing, uint64_t key, bool make) {
  for (uint32_t i = 0; i < PROBES; i++) {
    struct timing_own *own = &timing->own[(key + i) & (TIMING_KEYS - 1)];
    if (own->key == key) return own;
    if (own->key != 0) continue;
    if (make) own->key = key;
    return make ? own : NULL;
  }
  return NULL; /* too many kinds: this one stays unknown */
}

void timing_sample(struct pump_timing *timing, uint64_t key, uint64_t elapsed_ns,
                   bool clean) {
  struct timing_own *own = place_of(timing, key, true);
  if (own == NULL || elapsed_ns == 0) return;
  if (own->shortest_ns == 0 || elapsed_ns < own->shortest_ns) own->shortest_ns = elapsed_ns;
  if (clean) own->clean_ns[own->count++ % TIMING_SAMPLES] = elapsed_ns;
}

static uint32_t sorted(const struct timing_own *own, uint64_t *values) {
  uint32_t count = own->count < TIMING_SAMPLES ? own->count : TIMING_SAMPLES;
  for (uint32_t i = 0; i < count; i++) {
    uint32_t at = i;
    for (; at > 0 && values[at - 1] > own->clean_ns[i]; at--) values[at] = values[at - 1];
    values[at] = own->clean_ns[i];
  }
  return count;
}

/* The lower end of the clean samples; they scatter, or are few, so it may be less. Any
 * sample bounds it from above. */
static bool known(const struct timing_own *own, int64_t *own_ns) {
  uint64_t values[TIMING_SAMPLES] = {0};
  if (own == NULL || own->count == 0) return false;
  uint32_t count = sorted(own, values);
  int64_t likely = (int64_t)values[count / 8], middle = (int64_t)values[count / 2];
  int64_t shortest = (int64_t)own->shortest_ns;
  if (shortest < likely) likely = shortest;
  int64_t spread = middle > likely ? middle - likely : 0;
  if (count == 1) spread = likely / 2;
  own_ns[TIMING_LIKELY] = likely;
  own_ns[TIMING_LEAST] = spread < likely ? likely - spread : 0;
  own_ns[TIMING_MOST] = middle < likely ? likely : middle;
  return true;
}

void timing_own_times(const struct pump_timing *timing, const struct timing_op *op,
                      int64_t *own_ns) {
  struct pump_timing *all = (struct pump_timing *)timing; /* nothing is made */
  const struct timing_own *own = place_of(all, op->key, false);
  memset(own_ns, 0, TIMING_WAYS * sizeof *own_ns);
  if (op->inside || known(own, own_ns)) return;
  if (own != NULL && own->shortest_ns != 0) {
    /* Each one that was timed waited for memory, or may have. */
    own_ns[TIMING_MOST] = (int64_t)own->shortest_ns;
    own_ns[TIMING_LIKELY] = own_ns[TIMING_MOST] / 2;
    return;
  }
  const struct timing_own *alike = place_of(all, op->shape, false);
  if (known(alike, own_ns)) {
    own_ns[TIMING_LEAST] = 0;
  } else if (alike != NULL) {
    own_ns[TIMING_MOST] = (int64_t)alike->shortest_ns;
    own_ns[TIMING_LIKELY] = own_ns[TIMING_MOST] / 2;
  }
}
