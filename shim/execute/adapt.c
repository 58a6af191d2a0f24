/* adapt.c - see adapt.h. */
#include "adapt.h"

#include <stdbool.h>

#define SPELL 16 /* slices between two looks */
#define BUSY 0.9 /* of threads: inside the driver's call, in the mean */
/* Parts of what one thread more could bring at best: from GAIN on it is taken, from KEEP on
 * it is kept. */
#define GAIN 0.12
#define KEEP 0.06
#define PAIRS_LEAST 6
#define PAIRS_MOST 32
/* Standard errors between what was found and the border. That a thread is worth keeping
 * need not be as clear: half of a trial goes by with one too few. */
#define CLEAR 3.0
#define CLEAR_KEEP 1.5
#define PATIENCE_FIRST 128 /* spells */
#define PATIENCE_MOST 1024
#define SOONER 4 /* times sooner one thread more is tried: that trial delays no call */

struct pump_adapt pump_adapt_begin(const struct pump_adapt_bounds *bounds) {
  return (struct pump_adapt){.threads = bounds->threads_first, .patience = PATIENCE_FIRST};
}

static void forget_spell(struct pump_adapt *state) {
  state->count = 0;
  state->call_ns = state->done_ns = state->bytes = state->in_flight = 0;
}

/* Slices in flight began under the former number of threads, and as many begin beside them:
 * neither are measured. */
static void change_threads(struct pump_adapt *state, uint32_t threads, uint32_t in_flight) {
  if (threads != state->threads) state->settle = 2 * in_flight;
  state->threads = threads;
}

/* Were so many threads busy in the driver? Else they waited for the link, and whether
 * there is one more cannot matter. By Little's law, as the rate. */
static bool were_busy(const struct pump_adapt *state, uint32_t threads) {
  double in_call = (double)state->in_flight / SPELL * (double)state->call_ns;
  return in_call >= BUSY * threads * (double)(state->call_ns + state->done_ns);
}

/* The rate, in bytes a nanosecond. */
static double rate_of(const struct pump_adapt *state) {
  return (double)state->in_flight / SPELL * (double)state->bytes /
         (double)(state->call_ns + state->done_ns);
}

/* Whether there may be one thread more: the bound of bytes in flight must leave it
 * something to do. */
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

/* Goes on up while that helps. The way back is not tried at once: it was just compared. */
static void end_trial(struct pump_adapt *state, const struct pump_adapt_bounds *bounds,
                      bool keep, uint32_t in_flight) {
  uint32_t rival = state->base + (uint32_t)state->trial;
  change_threads(state, keep ? rival : state->base, in_flight);
  if (keep) state->patience = PATIENCE_FIRST;
  bool further = keep && state->trial > 0 && rival < bounds->threads_max;
  state->rest = further ? 0 : state->patience;
  if (!keep && state->patience < PATIENCE_MOST) state->patience *= 2;
  state->failed = keep ? -state->trial : state->trial;
  state->trial = 0;
}

/* Adds a pair: what one thread more brought, as a share of the best that n threads becoming
 * n + 1 can, 1 / n. True if it is clear on which side of the border that lies, or there are
 * so many pairs that it will not become clear; `*better`: whether the rival is the better
 * one. */
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

/* One spell of a trial is over: base and rival take turns, under the same load. */
static void continue_trial(struct pump_adapt *state, const struct pump_adapt_bounds *bounds,
                           uint32_t in_flight) {
  uint32_t rival = state->base + (uint32_t)state->trial;
  bool of_rival = state->threads == rival, better = false;
  if (!were_busy(state, rival < state->base ? rival : state->base)) {
    state->before = 0; /* neither this spell nor its other half counts */
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
  if (shrink && state->failed > 0) grow = false; /* the other way first */
  if (state->trial != 0) {
    continue_trial(state, bounds, in_flight);
  } else if (!were_busy(state, shrink ? state->threads - 1 : state->threads)) {
    /* the spell shows nothing */
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
  forget_spell(&state);
  return state;
}
