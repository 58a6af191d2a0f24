/* adapt.h - controls how many threads move blocks.
 *
 * A controller without clock, thread or lock: measurements in, numbers out.
 * device_executors.c starts threads, and executor.c puts surplus threads to sleep.
 *
 * DESIGN. Two resources limit a direction: the link, and CPU time in the driver. One
 * thread is enough while all threads wait for the link. A second thread helps only while
 * threads spend their time inside the driver's call, and it takes a CPU core from the
 * program. Only a trial shows which resource is the bottleneck.
 *
 * The controller measures the rate, by Little's law: slices in flight x bytes per slice /
 * time per slice. A slice counts only if others were queued when it was taken: without a
 * queue the worker sets the rate. A spell (a fixed number of slices) counts only if the
 * threads were busy in the driver.
 *
 * The load (traffic in the other direction, and whether blocks have data) affects the
 * rate more than one thread does. So the controller alternates spells with both numbers
 * of threads. It stops when the mean of the pairs is clearly on one side of a threshold,
 * or after enough pairs. Hysteresis between the thresholds for adding and removing a
 * thread prevents oscillation. After each trial the controller pauses, with exponential
 * backoff while trials change nothing. A trial with one thread less slows the direction
 * down, so it follows longer pauses and ends once the thread proves useful.
 */
#ifndef PUMP_ADAPT_H
#define PUMP_ADAPT_H

#include <stdint.h>

struct pump_adapt_bounds {
  uint32_t threads_min, threads_max;
  uint32_t threads_first; /* number of threads before any measurement */
  uint64_t flight_bytes;  /* bound on bytes in the driver, of all threads together */
};

/* Measurements of one slice that has arrived. */
struct pump_adapt_sample {
  uint64_t call_ns;   /* time inside the driver's call */
  uint64_t done_ns;   /* time from the call's return to completion */
  uint64_t bytes;     /* length of the slice */
  uint32_t waiting;   /* commands still queued when this slice was taken */
  uint32_t in_flight; /* slices in the driver, of all threads, including this one */
};

struct pump_adapt {
  uint32_t threads; /* output: how many threads should work */
  /* the current spell */
  uint32_t settle; /* slices to skip because they ran under a mix of both numbers */
  uint32_t count;
  uint64_t call_ns, done_ns, bytes, in_flight; /* sums over the spell */
  /* the search */
  int32_t trial;       /* +1 or -1: change of threads on trial; 0: no trial */
  uint32_t base;       /* number of threads that the trial is compared with */
  uint32_t pairs;      /* pairs of spells measured, one with each of two thread counts */
  double sum, squares; /* sum and sum of squares of the pairs' gains */
  double before;       /* bytes per nanosecond in a pair's first spell; 0: none */
  int32_t failed;      /* direction (+1, -1) that the last trial rejected; 0: none yet */
  uint32_t rest;       /* spells until a downward trial; an upward trial is sooner */
  uint32_t backoff;    /* length of the next pause, in spells */
};

struct pump_adapt pump_adapt_begin(const struct pump_adapt_bounds *bounds);
struct pump_adapt pump_adapt_next(struct pump_adapt state,
                                  const struct pump_adapt_bounds *bounds,
                                  const struct pump_adapt_sample *sample);

#endif
