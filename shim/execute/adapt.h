/* adapt.h - how many threads move blocks.
 *
 * A controller without clock, thread or lock: measurements in, numbers out.
 * device_executors.c starts threads, executor.c lets them sleep.
 *
 * DESIGN. Two resources limit a direction: the link, and CPU time in the driver. One
 * thread is enough while the link is what all wait for; another one helps only
 * while threads spend their time inside the driver's call, and costs the program a
 * processor. Only a measurement shows which of the two it is, so the controller tries.
 *
 * Measured is the rate, by Little's law: slices in flight x bytes of a slice / time of a
 * slice. Only slices that were taken while others waited count, for without a queue
 * the rate is that of the worker; and only spells of them in which threads were busy in
 * the driver.
 *
 * The rate depends more on the load than on one thread more or less: on what the
 * other direction does, and on whether blocks have data. So two numbers are compared
 * in turn, spell by spell, until the mean of these pairs is clear of a border by its own
 * scatter, or there are enough of them. The border for taking a thread lies above that for
 * giving it back, so that the number does not oscillate. After a trial comes a rest, ever
 * longer while trials change nothing. A trial of one thread less slows the direction down
 * meanwhile: it comes after longer rests, and ends as soon as the thread proves useful.
 */
#ifndef PUMP_ADAPT_H
#define PUMP_ADAPT_H

#include <stdint.h>

struct pump_adapt_bounds {
  uint32_t threads_min, threads_max;
  uint32_t threads_first; /* before anything was measured */
  uint64_t flight_bytes;  /* all threads together may have in the driver */
};

/* One slice that has arrived. */
struct pump_adapt_sample {
  uint64_t call_ns;   /* inside the driver's call */
  uint64_t done_ns;   /* from its return to the completion */
  uint64_t bytes;     /* of the slice */
  uint32_t waiting;   /* commands that waited when this one was taken */
  uint32_t in_flight; /* slices of the direction in the driver, this one included */
};

struct pump_adapt {
  uint32_t threads; /* the answer: that shall work */
  /* the present spell */
  uint32_t settle; /* slices that still belong to the number of threads before */
  uint32_t count;
  uint64_t call_ns, done_ns, bytes, in_flight; /* sums */
  /* the search */
  int32_t trial;       /* +1, -1: that many threads are on trial; 0: none are */
  uint32_t base;       /* threads that the trial is compared with */
  uint32_t pairs;      /* of spells, one of each number, so far */
  double sum, squares; /* of what the greater number brought in each pair */
  double before;       /* bytes a nanosecond in the first spell of a pair; 0: none yet */
  int32_t failed;    /* the direction that the last trial found to be wrong; 0: none yet */
  uint32_t rest;     /* spells until one thread less is tried; one more comes sooner */
  uint32_t patience; /* length of the next rest */
};

struct pump_adapt pump_adapt_begin(const struct pump_adapt_bounds *bounds);
struct pump_adapt pump_adapt_next(struct pump_adapt state,
                                  const struct pump_adapt_bounds *bounds,
                                  const struct pump_adapt_sample *sample);

#endif
