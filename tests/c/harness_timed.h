/* harness_timed.h - the newest reported time of an operation, for tests to read. */
#ifndef PUMP_TESTS_HARNESS_TIMED_H
#define PUMP_TESTS_HARNESS_TIMED_H

#include <stdint.h>

extern struct harness_timed {
  uint64_t seq, elapsed_ns;
  uint32_t stream_index, count;
} harness_timed;

#endif
