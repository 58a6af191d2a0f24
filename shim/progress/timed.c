/* timed.c - measures how long some operations take: chooses them, and records events
 * around them.
 *
 * The issuing thread records an event directly before the operation, and a marker
 * directly after it, both with timing (markers.h). Only that operation is between them,
 * its faults included. The marker thread reads the time and reports it.
 *
 * Each thread counts operations down to its next one to time. The stride is random, so
 * that it does not follow a period of the program. It is about 64 for fast operations:
 * two events per 64 launches cost at most one percent. For slow operations it is shorter.
 */
#include "markers.h"

#define STRIDE_FIRST 4u
#define FIRST_SAMPLES 256u /* per thread, with that stride */
#define STRIDE_LEAST 2u
#define STRIDE_MOST 64u
#define FAST_NS 1000000u /* strides grow if samples are closer than this */
#define SLOW_NS 4000000u /* strides shrink if samples are farther apart */

__thread bool pump_timed_begun __attribute__((tls_model("initial-exec")));
__thread uint32_t pump_timed_countdown __attribute__((tls_model("initial-exec")));

static __thread struct {
  struct pump_marker_pool *pool;
  struct pump_marker *marker;
  CUstream stream;
  uint64_t before_ns; /* when the previous operation was chosen */
  uint32_t ticket, count, stride, random;
} timed __attribute__((tls_model("initial-exec")));

static uint32_t next_random(void) {
  uint32_t x = timed.random != 0 ? timed.random : 0x9e3779b9u;
  x ^= x << 13;
  x ^= x >> 17;
  x ^= x << 5;
  return timed.random = x;
}

void pump_timed_count(void) {
  uint64_t now_ns = pump_now_ns(), since_ns = now_ns - timed.before_ns;
  if (timed.count < FIRST_SAMPLES) {
    timed.count++;
    timed.stride = STRIDE_FIRST;
  } else if (since_ns < FAST_NS && timed.stride < STRIDE_MOST)
    timed.stride *= 2;
  else if (since_ns > SLOW_NS && timed.stride > STRIDE_LEAST)
    timed.stride /= 2;
  timed.before_ns = now_ns;
  pump_timed_countdown = next_random() % (2 * timed.stride - 1);
}

void pump_timed_begin(CUcontext context, uint32_t context_index, uint32_t stream_index,
                      CUstream stream) {
  if (pump_timed_begun) pump_timed_give_back();
  if (context_index >= PUMP_MAX_CONTEXTS) return;
  struct pump_marker_pool *pool = &pump_marker_pools[context_index];
  struct pump_marker *marker = pump_marker_take(pool, &pool->timed, context, &timed.ticket);
  if (marker == NULL) return;
  if (!pump_marker_event(marker->begin, stream)) {
    pump_marker_give(&pool->timed, marker, timed.ticket);
    return;
  }
  marker->stream_index = stream_index;
  timed.pool = pool;
  timed.marker = marker;
  timed.stream = stream;
  pump_timed_begun = true;
}

void pump_timed_give_back(void) {
  pump_timed_begun = false;
  pump_marker_give(&timed.pool->timed, timed.marker, timed.ticket);
}

bool pump_timed_end(uint32_t device, uint32_t stream_index, uint64_t seq) {
  struct pump_marker *marker = timed.marker;
  bool recorded = marker->stream_index == stream_index &&
                  pump_marker_event(marker->event, timed.stream);
  if (!recorded) {
    pump_timed_give_back();
    return false;
  }
  pump_timed_begun = false;
  marker->seq = seq;
  pump_marker_give(&timed.pool->fresh, marker, timed.ticket);
  pump_marker_wake(device);
  return true;
}
