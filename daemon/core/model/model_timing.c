/* model_timing.c - passes the model's events to the time tracking (timing/timing.h) and
 * computes the lost time. */
#include <errno.h>
#include <stdlib.h>

#include "model_state.h"

EXPORT int pump_model_time(struct pump_model *m) {
  if (m->timing == NULL) m->timing = calloc(1, sizeof *m->timing);
  if (m->arrived_ns == NULL)
    m->arrived_ns = calloc(m->bounds.capacity, sizeof *m->arrived_ns);
  return m->timing == NULL || m->arrived_ns == NULL ? -ENOMEM : 0;
}

EXPORT void pump_model_now(struct pump_model *m, uint64_t now_ns) {
  if (m->timing != NULL) m->timing->now_ns = now_ns;
}

EXPORT void pump_model_stopped(struct pump_model *m, uint64_t began_ns, uint64_t ended_ns) {
  if (m->timing != NULL) timing_stopped(m->timing, began_ns, ended_ns);
}

EXPORT void pump_model_delayed(struct pump_model *m, uint64_t at_ns, uint64_t sum_ns,
                               double share) {
  if (m->timing == NULL) return;
  timing_delayed(m->timing, at_ns, sum_ns);
  m->timing->delayed_share = share;
}

static uint64_t not_negative(int64_t ns) {
  return ns > 0 ? (uint64_t)ns : 0;
}

EXPORT void pump_model_lost(struct pump_model *m, uint32_t neighbours,
                            struct pump_lost *lost) {
  *lost = (struct pump_lost){0};
  struct pump_timing *timing = m->timing;
  if (timing == NULL) return;
  timing->neighbours = neighbours < TIMING_NEIGHBOURS ? neighbours : TIMING_NEIGHBOURS;
  if (timing->first_seq == 0) return;
  struct timing_replay *again = &timing->again;
  *again = timing->replay;
  timing_advance(timing, again, timing->next_seq);
  lost->of_ns = again->at_ns - again->begun_ns;
  if (!timing->left) return;
  if (2 * timing->unknown > (uint64_t)m->window.op_issued) {
    lost->of_ns = 0; /* no estimate: what most operations wait for is not known */
    return;
  }
  uint64_t likely_ns = not_negative(again->lost_ns[TIMING_LIKELY]);
  uint64_t least_ns = not_negative(again->lost_ns[TIMING_MOST]);
  uint64_t most_ns = not_negative(again->lost_ns[TIMING_LEAST]);
  uint64_t error_ns = likely_ns / 100 * PUMP_LOST_PERCENT;
  if (least_ns > likely_ns - error_ns) least_ns = likely_ns - error_ns;
  if (most_ns < likely_ns + error_ns) most_ns = likely_ns + error_ns;
  lost->likely_ns = timing_at_most(likely_ns, lost->of_ns);
  uint64_t stalls_ns = not_negative(again->lost_ns[TIMING_STALLS]);
  lost->delayed_ns = lost->likely_ns - timing_at_most(stalls_ns, lost->likely_ns);
  lost->least_ns = timing_at_most(least_ns, lost->of_ns);
  lost->most_ns = timing_at_most(most_ns, lost->of_ns);
}
