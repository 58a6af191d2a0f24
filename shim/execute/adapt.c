/* adapt.c - see adapt.h. */
#include "adapt.h"

#include <stdbool.h>

#include "pump_assert.h"

#define SPELL 16 /* slices per spell, the measurement interval [guessed] */
/* Threads are busy if on average this share is in the driver's call [guessed]. */
#define BUSY 0.9
/* Thresholds, as shares of the largest possible gain from one more thread. A thread is
 * added if it gains at least GAIN and kept if it gains at least KEEP [guessed]. */
#define GAIN 0.12
#define KEEP 0.06
/* Pairs of spells in a trial, at least and at most [guessed]. */
#define PAIRS_LEAST 6
#define PAIRS_MOST 32
/* Required distance of the mean gain from a threshold, in standard errors. CLEAR_KEEP is
 * lower because half of a downward trial runs with one thread too few [guessed]. */
#define CLEAR 3.0
#define CLEAR_KEEP 1.5
/* Backoff between trials, in spells [guessed]. */
#define BACKOFF_FIRST 128
#define BACKOFF_MOST 1024
/* Upward trials come this many times sooner, because they delay no call [guessed]. */
#define SOONER 4

struct pump_adapt pump_adapt_begin(const struct pump_adapt_bounds *bounds) {
  return (struct pump_adapt){.threads = bounds->threads_first, .backoff = BACKOFF_FIRST};
}

static void forget_spell(struct pump_adapt *state) {
  state->count = 0;
  state->call_ns = state->done_ns = state->bytes = state->in_flight = 0;
}

/* Sets the number of threads. The slices in flight, and as many new ones alongside them,
 * run under a mix of both numbers and are not measured. */
static void change_threads(struct pump_adapt *state, uint32_t threads, uint32_t in_flight) {
  if (threads != state->threads) state->settle = 2 * in_flight;
  state->threads = threads;
}

/* Returns whether `threads` threads were busy inside the driver, by Little's law. If not,
 * they waited for the link, and another thread cannot help. */
static bool were_busy(const struct pump_adapt *state, uint32_t threads) {
  double in_call = (double)state->in_flight / SPELL * (double)state->call_ns;
  return in_call >= BUSY * threads * (double)(state->call_ns + state->done_ns);
}

/* Returns the transfer rate in bytes per nanosecond. */
static double rate_of(const struct pump_adapt *state) {
  return (double)state->in_flight / SPELL * (double)state->bytes /
         (double)(state->call_ns + state->done_ns);
}

/* Returns whether one more thread may start and would find work: its slice must fit into
 * the bound on bytes in flight. */
static bool may_grow(const struct pump_adapt *state,
                     const struct pump_adapt_bounds *bounds) {
  return state->threads < bounds->threads_max &&
         state->bytes / SPELL * (state->threads + 1) <= bounds->flight_bytes;
}

static void begin_trial(struct pump_adapt *state, int32_t trial) {
  state->trial = trial;
  state->base = state->threads;
  state->pairs = 0;
  state->before = state->sum = state->squares = 0;
}

/* Ends a trial. Continues upward while that helps, but does not reverse it immediately. */
static void end_trial(struct pump_adapt *state, const struct pump_adapt_bounds *bounds,
                      bool keep, uint32_t in_flight) {
  uint32_t rival = state->base + (uint32_t)state->trial;
  change_threads(state, keep ? rival : state->base, in_flight);
  if (keep) state->backoff = BACKOFF_FIRST;
  bool further = keep && state->trial > 0 && rival < bounds->threads_max;
  state->rest = further ? 0 : state->backoff;
  if (!keep && state->backoff < BACKOFF_MOST) state->backoff *= 2;
  state->failed = keep ? -state->trial : state->trial;
  state->trial = 0;
}

/* Adds a pair of spells. Expresses the gain of the larger number of threads as a share of
 * 1 / n, the most that n threads can gain by becoming n + 1. Returns true if the mean
 * gain is clear of the threshold, or if PAIRS_MOST pairs did not decide. `*better`:
 * whether the rival is better. */
static bool is_decided(struct pump_adapt *state, double rate, bool *better) {
  bool up = state->trial > 0;
  double more = up ? rate : state->before, less = up ? state->before : rate;
  uint32_t fewer = up ? state->base : state->base - 1;
  double share = 2 * (more - less) / (more + less) * fewer;
  state->pairs++;
  state->sum += share;
  state->squares += share * share;
  if (state->pairs < PAIRS_LEAST) return false;
  double pairs = state->pairs, mean = state->sum / pairs;
  double beyond = mean - (up ? GAIN : KEEP);
  double variance = (state->squares - pairs * mean * mean) / (pairs - 1);
  *better = up == (beyond > 0);
  double clear = !up && beyond > 0 ? CLEAR_KEEP : CLEAR;
  return beyond * beyond * pairs > clear * clear * variance || state->pairs == PAIRS_MOST;
}

/* Processes one spell of a trial. Base and rival alternate under the same load. */
static void continue_trial(struct pump_adapt *state, const struct pump_adapt_bounds *bounds,
                           uint32_t in_flight) {
  uint32_t rival = state->base + (uint32_t)state->trial;
  bool of_rival = state->threads == rival, better = false;
  if (!were_busy(state, rival < state->base ? rival : state->base)) {
    state->before = 0; /* discard this spell and the other half of its pair */
    change_threads(state, state->base, in_flight);
  } else if (!of_rival) {
    state->before = rate_of(state);
    change_threads(state, rival, in_flight);
  } else if (is_decided(state, rate_of(state), &better)) {
    end_trial(state, bounds, better, in_flight);
  } else {
    change_threads(state, state->base, in_flight);
  }
}

static void examine_spell(struct pump_adapt *state, const struct pump_adapt_bounds *bounds,
                          uint32_t in_flight) {
  bool grow = may_grow(state, bounds);
  bool shrink = state->threads > bounds->threads_min;
  if (shrink && state->failed > 0) grow = false; /* try the other direction first */
  if (state->trial != 0) {
    continue_trial(state, bounds, in_flight);
  } else if (!were_busy(state, shrink ? state->threads - 1 : state->threads)) {
    /* the spell is not conclusive */
  } else if (state->rest > 0) {
    uint32_t spells = grow ? SOONER : 1;
    state->rest -= spells < state->rest ? spells : state->rest;
  } else if (grow) {
    begin_trial(state, 1);
  } else if (shrink) {
    begin_trial(state, -1);
  }
}

struct pump_adapt pump_adapt_next(struct pump_adapt state,
                                  const struct pump_adapt_bounds *bounds,
                                  const struct pump_adapt_sample *sample) {
  if (sample->bytes == 0 || sample->call_ns + sample->done_ns == 0) return state;
  if (sample->waiting == 0) return state;
  if (state.settle > 0) {
    state.settle--;
    return state;
  }
  state.count++;
  state.call_ns += sample->call_ns;
  state.done_ns += sample->done_ns;
  state.bytes += sample->bytes;
  state.in_flight += sample->in_flight;
  if (state.count < SPELL) return state;
  examine_spell(&state, bounds, sample->in_flight);
  PUMP_ASSERT(state.threads >= bounds->threads_min && state.threads <= bounds->threads_max,
              "the number of threads stays within its bounds");
  forget_spell(&state);
  return state;
}
