/* timing_share.c - times of operations next to other processes. See timing.h.
 *
 * A GPU gives each of the processes that use it the same share of its time. So if all
 * have enough memory, an operation takes longer by at most a factor of their number. A
 * clean sample can take longer for another reason: a neighbour's operation keeps the GPU
 * while it waits for memory. With enough memory it would not. To separate both, samples
 * are compared with own times in stretches of a few samples, because neighbours come and
 * go. Each stretch counts at most as if the neighbours used their full share.
 *
 * For the minimum, each single sample is bounded in the same way.
 */
#include "timing.h"

/* Samples of a stretch, and stretches after which the sums are halved [guessed]. */
#define STRETCH 32u
#define STRETCHES 64u

void timing_share_sample(struct pump_timing *timing, uint64_t own_ns, uint64_t taken_ns) {
  struct timing_share *share = &timing->share;
  uint64_t turns = timing->neighbours + 1;
  share->own_ns += own_ns;
  share->taken_ns += taken_ns;
  share->least_ns += timing_at_most(taken_ns, turns * own_ns);
  if (++share->count < STRETCH) return;
  share->sum_own_ns += share->own_ns;
  share->sum_least_ns += share->least_ns;
  share->sum_taken_ns += timing_at_most(share->taken_ns, turns * share->own_ns);
  share->count = 0;
  share->own_ns = share->taken_ns = share->least_ns = 0;
  if (++share->stretches < STRETCHES) return;
  share->stretches /= 2;
  share->sum_own_ns /= 2;
  share->sum_least_ns /= 2;
  share->sum_taken_ns /= 2;
}

static int64_t scaled(int64_t own_ns, uint64_t taken_ns, uint64_t sum_own_ns) {
  __int128_t product = (__int128_t)own_ns * taken_ns;
  return (int64_t)(product / sum_own_ns);
}

void timing_shared(const struct pump_timing *timing, int64_t alone_ns, int64_t *own_ns) {
  const struct timing_share *share = &timing->share;
  own_ns[TIMING_LEAST] = own_ns[TIMING_LIKELY] = own_ns[TIMING_MOST] = alone_ns;
  if (share->sum_own_ns == 0) {
    own_ns[TIMING_MOST] = alone_ns * (timing->neighbours + 1);
    return;
  }
  own_ns[TIMING_LEAST] = scaled(alone_ns, share->sum_least_ns, share->sum_own_ns);
  own_ns[TIMING_LIKELY] = scaled(alone_ns, share->sum_taken_ns, share->sum_own_ns);
  own_ns[TIMING_MOST] = own_ns[TIMING_LIKELY];
}
