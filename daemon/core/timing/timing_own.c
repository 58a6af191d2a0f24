/* timing_own.c - estimates the own time of each kind of operation. See timing.h. */
#include <string.h>

#include "timing.h"

/* Entries of a table that a look-up examines, because other keys have its place
 * [guessed]. */
#define PROBES 16u
/* Samples that conclusions from one kind to others need, and that must share a shortest
 * time to confirm it [guessed]. */
#define SAMPLES_LEAST 4u
#define NEAR_LEAST 3u
/* Samples share a time up to NEAR; scattered stalls end up to BEYOND, too. In ns
 * [guessed]. */
#define NEAR(ns) ((ns) + (ns) / 64)
#define BEYOND(ns) ((ns) + (ns) / 16)
/* Faults of samples that share a time must differ by 1 / FAULTS_DIFFER. If that changed
 * the time by less than NEAR, all stalls together are at most an eighth of it [derived]. */
#define FAULTS_DIFFER 8u

/* Finds an entry of a table with TIMING_KEYS entries, which begin with their keys; 0 marks
 * an unused one. Returns NULL if it is missing, or if too many keys collide. */
static void *entry_of(void *table, size_t entry_bytes, uint64_t key, bool make) {
  for (uint32_t i = 0; i < PROBES; i++) {
    uint64_t *entry =
        (void *)((char *)table + ((key + i) & (TIMING_KEYS - 1)) * entry_bytes);
    if (*entry == key) return entry;
    if (*entry != 0) continue;
    if (make) *entry = key;
    return make ? entry : NULL;
  }
  return NULL;
}

static struct timing_own *place_of(struct pump_timing *timing, uint64_t key, bool make) {
  return entry_of(timing->own, sizeof *timing->own, key, make);
}

static struct timing_pair *pair_of(struct pump_timing *timing, uint64_t key, bool make) {
  return entry_of(timing->pairs, sizeof *timing->pairs, key, make);
}

void timing_pair_gap(struct pump_timing *timing, uint64_t key, uint64_t gap_ns) {
  struct timing_pair *pair = pair_of(timing, key, true);
  if (pair == NULL) return;
  pair->gap_ns[pair->count++ % TIMING_SAMPLES] =
      (uint32_t)timing_at_most(gap_ns, UINT32_MAX);
}

int64_t timing_own_gap(const struct pump_timing *timing, uint64_t key) {
  struct timing_pair *pair = pair_of((struct pump_timing *)timing, key, false);
  uint32_t least_ns = UINT32_MAX, second_ns = UINT32_MAX; /* an eighth of 16 */
  if (pair == NULL || pair->count < SAMPLES_LEAST) return -1;
  for (uint32_t i = 0; i < pair->count && i < TIMING_SAMPLES; i++) {
    uint32_t gap_ns = pair->gap_ns[i];
    if (gap_ns < least_ns) {
      second_ns = least_ns;
      least_ns = gap_ns;
    } else if (gap_ns < second_ns) {
      second_ns = gap_ns;
    }
  }
  return second_ns <= TIMING_GAP_MOST_NS ? (int64_t)second_ns : -1;
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

/* Returns whether the shortest time is an own time. Stalls scatter, own times do not. If
 * several samples took the shortest time and few took slightly longer, they did not wait.
 * Samples with nearly equal numbers of faults have equal stalls and prove nothing. */
static bool alike(const struct timing_own *own) {
  return own->near >= NEAR_LEAST && own->beyond <= own->near / NEAR_LEAST &&
         (own->near_least == 0 ||
          own->near_most - own->near_least > own->near_most / FAULTS_DIFFER);
}

/* Estimates the own time from the lower end of the clean samples. It may be less if they
 * scatter or are few. Each sample is an upper bound. Returns false without clean samples,
 * or if all took longer than a faulting sample, because then they had unseen waits. */
static bool known(const struct pump_timing *timing, const struct timing_own *own,
                  int64_t *own_ns) {
  uint64_t values[TIMING_SAMPLES] = {0};
  if (own == NULL || own->count == 0) return false;
  uint32_t count = sorted(own, values);
  if (timing->neighbours == 0 && own->faulting_blocks != 0 &&
      values[0] > BEYOND(own->faulting_ns))
    return false;
  int64_t likely = (int64_t)values[count / 8], middle = (int64_t)values[count / 2];
  int64_t shortest = (int64_t)own->shortest_ns;
  if (shortest < likely) likely = shortest;
  if (timing->neighbours != 0) {
    timing_shared(timing, likely, own_ns);
    return true;
  }
  int64_t spread = middle > likely ? middle - likely : 0;
  if (count == 1) spread = likely / 2;
  if (alike(own)) { /* the other samples had unseen waits */
    spread = 0;
    middle = likely;
  }
  own_ns[TIMING_LIKELY] = likely;
  own_ns[TIMING_LEAST] = spread < likely ? likely - spread : 0;
  own_ns[TIMING_MOST] = middle < likely ? likely : middle;
  return true;
}

/* Computes the cost of a block that a fault fetches: the lower quartile, the median and
 * the upper quartile of the samples. Returns false if they are few or differ too much.
 * Then something else delayed operations, or resident blocks were believed absent. */
static bool fault_costs(const struct pump_timing *timing, int64_t *cost_ns) {
  uint32_t values[TIMING_FAULTS];
  uint32_t count =
      timing->fault_count < TIMING_FAULTS ? timing->fault_count : TIMING_FAULTS;
  if (count < SAMPLES_LEAST) return false;
  for (uint32_t i = 0; i < count; i++) {
    uint32_t at = i;
    for (; at > 0 && values[at - 1] > timing->fault_ns[i]; at--)
      values[at] = values[at - 1];
    values[at] = timing->fault_ns[i];
  }
  cost_ns[TIMING_MOST] = values[count / 4];
  cost_ns[TIMING_LIKELY] = values[count / 2];
  cost_ns[TIMING_LEAST] = values[count - 1 - count / 4];
  return values[count * 3 / 4] <= 3 * (uint64_t)values[count / 2] / 2;
}

/* Returns the time of the kind that is fastest per byte for `bytes`; 0: unknown. */
static int64_t paced_ns(const struct pump_timing *timing, uint64_t bytes) {
  if (timing->pace_bytes == 0) return 0;
  return (int64_t)((unsigned __int128)bytes * timing->pace_ns / timing->pace_bytes);
}

static void note_pace(struct pump_timing *timing, uint64_t own_ns, uint64_t bytes) {
  if (bytes == 0) return;
  if (timing->pace_bytes != 0 && (unsigned __int128)own_ns * timing->pace_bytes >=
                                     (unsigned __int128)timing->pace_ns * bytes)
    return;
  timing->pace_ns = own_ns;
  timing->pace_bytes = bytes;
}

/* Estimates the own time of a kind whose samples all waited for memory, or may have
 * waited. Subtracts the cost of faults from the sample with the fewest. If that is
 * unknown, uses the shortest time if several samples share it. Otherwise the operation is
 * likely to be fast. A slow one gives the link time to bring its bytes, and would not
 * wait each time. */
static void bounded(const struct pump_timing *timing, const struct timing_own *own,
                    uint64_t bytes, int64_t *own_ns) {
  int64_t cost_ns[TIMING_WAYS], shortest_ns = (int64_t)own->shortest_ns;
  int64_t likely_ns = paced_ns(timing, bytes);
  if (likely_ns == 0) likely_ns = shortest_ns / 2;
  own_ns[TIMING_LEAST] = 0;
  own_ns[TIMING_LIKELY] = alike(own) || likely_ns > shortest_ns ? shortest_ns : likely_ns;
  own_ns[TIMING_MOST] = shortest_ns;
  if (own->faulting_blocks == 0 || !fault_costs(timing, cost_ns)) return;
  for (int bound = 0; bound < TIMING_WAYS; bound++) {
    own_ns[bound] = (int64_t)own->faulting_ns - own->faulting_blocks * cost_ns[bound];
    if (own_ns[bound] < 0) own_ns[bound] = 0;
    if (own_ns[bound] > shortest_ns) own_ns[bound] = shortest_ns;
  }
}

void timing_own_times(const struct pump_timing *timing, const struct timing_op *op,
                      int64_t *own_ns) {
  struct pump_timing *all = (struct pump_timing *)timing; /* not modified */
  const struct timing_own *own = place_of(all, op->key, false);
  memset(own_ns, 0, TIMING_WAYS * sizeof *own_ns);
  if (op->inside || known(timing, own, own_ns)) return;
  if (own != NULL && own->shortest_ns != 0) {
    bounded(timing, own, op->bytes, own_ns);
    return;
  }
  const struct timing_own *alike = place_of(all, op->shape, false);
  if (known(timing, alike, own_ns))
    own_ns[TIMING_LEAST] = 0;
  else if (alike != NULL)
    bounded(timing, alike, op->bytes, own_ns);
}

static void note_clean(struct pump_timing *timing, struct timing_own *own,
                       const struct timing_op *op, bool counts) {
  uint64_t values[TIMING_SAMPLES] = {0};
  own->clean_ns[own->count++ % TIMING_SAMPLES] = op->elapsed_ns;
  if (!counts || own->count < SAMPLES_LEAST) return;
  uint64_t own_ns = values[sorted(own, values) / 8];
  if (own->shortest_ns < own_ns) own_ns = own->shortest_ns;
  note_pace(timing, own_ns, op->bytes);
  if (timing->neighbours != 0) timing_share_sample(timing, own_ns, op->elapsed_ns);
}

static void note_faulting(struct pump_timing *timing, struct timing_own *own,
                          const struct timing_op *op, bool counts) {
  int64_t own_ns[TIMING_WAYS];
  if (own->faulting_blocks == 0 || op->faulted < own->faulting_blocks ||
      (op->faulted == own->faulting_blocks && op->elapsed_ns < own->faulting_ns)) {
    own->faulting_blocks = op->faulted;
    own->faulting_ns = op->elapsed_ns;
  }
  if (!counts || !known(timing, own, own_ns)) return;
  int64_t cost_ns = ((int64_t)op->elapsed_ns - own_ns[TIMING_LIKELY]) / op->faulted;
  if (cost_ns >= 0 && cost_ns <= UINT32_MAX)
    timing->fault_ns[timing->fault_count++ % TIMING_FAULTS] = (uint32_t)cost_ns;
}

/* Counts the samples that share the shortest time, and slightly longer ones. */
static void note_shortest(struct timing_own *own, const struct timing_op *op) {
  if (own->shortest_ns == 0 || NEAR(op->elapsed_ns) < own->shortest_ns) {
    own->beyond = own->shortest_ns <= BEYOND(op->elapsed_ns) ? own->near : 0;
    own->near = own->near_most = 0;
    own->near_least = UINT32_MAX;
  }
  if (own->shortest_ns == 0 || op->elapsed_ns < own->shortest_ns)
    own->shortest_ns = op->elapsed_ns;
  if (op->elapsed_ns > NEAR(own->shortest_ns)) {
    own->beyond += op->elapsed_ns <= BEYOND(own->shortest_ns);
    return;
  }
  own->near++;
  if (op->faulted < own->near_least) own->near_least = op->faulted;
  if (op->faulted > own->near_most) own->near_most = op->faulted;
}

void timing_sample(struct pump_timing *timing, uint64_t key, const struct timing_op *op) {
  struct timing_own *own = place_of(timing, key, true);
  if (own == NULL) return;
  note_shortest(own, op);
  if (op->clean) note_clean(timing, own, op, key == op->key);
  if (op->faulting) note_faulting(timing, own, op, key == op->key);
}
