/* latency.h - what the latency benchmark's program and driver share: the calls of
 * cuMemPrefetchAsync towards the GPU, in order. */
#ifndef LATENCY_H
#define LATENCY_H

#include <stdint.h>

#define LATENCY_CALLS 65536

struct latency_call {
  uint64_t turn; /* number of the call, from 1, once it may be read */
  uint64_t time_ns;
  uint64_t address, bytes;
};

struct latency_log {
  uint64_t reserved; /* calls so far */
  uint32_t closed;   /* program: 1 while no event is complete */
  struct latency_call calls[LATENCY_CALLS];
};

extern struct latency_log latency_log;

#endif
