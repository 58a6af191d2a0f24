/* act_adapt.c - see act_adapt.h. */
#include "act_adapt.h"

#include <stdbool.h>

#define WINDOW 32               /* slices between two looks */
#define LONG_SLICE_NS 20000000u /* beside others: a free would wait too long */
#define SHORT_SLICE_NS 5000000u /* others are welcome again */
#define GAIN 0.25               /* of what one perfect thread more would bring */
#define LOSS 0.97               /* of the rate may be left after a thread less */
#define OTHER_BYTES 1.25        /* slices that differ by more cannot be compared */
#define PATIENCE_FIRST 4        /* windows */
#define PATIENCE_MOST 256

struct pump_adapt pump_adapt_begin(const struct pump_adapt_bounds *bounds) {
  return (struct pump_adapt){.threads = bounds->threads_first,
                             .slices = bounds->slices_max,
                             .patience = PATIENCE_FIRST};
}

static void forget_window(struct pump_adapt *state) {
  state->count = 0;
  state->call_ns = state->done_ns = state->bytes = state->in_flight = 0;
}

/* Another thread can only help where threads are busy in the driver, not where they
 * wait for the link, and only if the bound leaves it something to do. */
static bool may_grow(const struct pump_adapt *state,
                     const struct pump_adapt_bounds *bounds) {
  if (state->threads >= bounds->threads_max) return false;
  if (state->bytes / WINDOW * (state->threads + 1) > bounds->flight_bytes) return false;
  return 2 * state->call_ns * state->slices >= state->call_ns + state->done_ns;
}

static void begin_trial(struct pump_adapt *state, int32_t trial, double rate,
                        double mean_bytes) {
  state->trial = trial;
  state->threads += (uint32_t)trial;
  state->before = rate;
  state->before_bytes = mean_bytes;
}

static void end_trial(struct pump_adapt *state, bool keep) {
  int32_t trial = state->trial;
  state->trial = 0;
  state->failed = keep ? 0 : trial;
  if (keep) {
    state->patience = PATIENCE_FIRST;
    return;
  }
  state->threads -= (uint32_t)trial;
  state->rest = state->patience;
  if (state->patience < PATIENCE_MOST) state->patience *= 2;
}

static void judge_trial(struct pump_adapt *state, double rate, double mean_bytes) {
  double ratio = mean_bytes / state->before_bytes;
  if (ratio > OTHER_BYTES || ratio * OTHER_BYTES < 1) { /* the work has changed */
    state->threads -= (uint32_t)state->trial;
    state->trial = 0;
    return;
  }
  if (state->trial > 0) /* n threads became n + 1; the best that can bring is 1 / n */
    end_trial(state, rate >= state->before * (1 + GAIN / (state->threads - 1)));
  else
    end_trial(state, rate >= state->before * LOSS);
}

static void look(struct pump_adapt *state, const struct pump_adapt_bounds *bounds) {
  double time_ns = (double)(state->call_ns + state->done_ns);
  double mean_bytes = (double)state->bytes / WINDOW;
  double rate = (double)state->in_flight / WINDOW * (double)state->bytes / time_ns;
  if (state->trial != 0) {
    judge_trial(state, rate, mean_bytes);
  } else if (state->rest > 0) {
    state->rest--;
  } else {
    bool grow = may_grow(state, bounds);
    bool shrink = state->threads > bounds->threads_min;
    if (grow && (state->failed <= 0 || !shrink))
      begin_trial(state, 1, rate, mean_bytes);
    else if (shrink)
      begin_trial(state, -1, rate, mean_bytes);
  }
}

static uint32_t slices_for(const struct pump_adapt *state,
                           const struct pump_adapt_bounds *bounds) {
  if (state->slice_ns > LONG_SLICE_NS) return 1;
  if (state->slice_ns < SHORT_SLICE_NS) return bounds->slices_max;
  return state->slices;
}

struct pump_adapt pump_adapt_next(struct pump_adapt state,
                                  const struct pump_adapt_bounds *bounds,
                                  const struct pump_adapt_sample *sample) {
  uint64_t slice_ns = sample->call_ns + sample->done_ns;
  if (sample->bytes == 0 || slice_ns == 0) return state;
  state.slice_ns =
      state.slice_ns == 0 ? slice_ns : state.slice_ns - state.slice_ns / 8 + slice_ns / 8;
  uint32_t slices = slices_for(&state, bounds);
  if (slices != state.slices) forget_window(&state); /* measured otherwise */
  state.slices = slices;
  if (sample->waiting == 0) return state;
  state.count++;
  state.call_ns += sample->call_ns;
  state.done_ns += sample->done_ns;
  state.bytes += sample->bytes;
  state.in_flight += sample->in_flight;
  if (state.count < WINDOW) return state;
  look(&state, bounds);
  forget_window(&state);
  return state;
}
