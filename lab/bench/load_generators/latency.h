/* latency.h - data that the latency benchmark's program and driver share: the calls of
 * cuMemPrefetchAsync to the GPU, in order, and the newest destination of each block. */
#ifndef LATENCY_H
#define LATENCY_H

#include <stdint.h>

#define LATENCY_CALLS 65536
#define LATENCY_BLOCKS 4096 /* indexed by address; more than the program has */
#define LATENCY_BLOCK_BYTES ((uint64_t)2 << 20)

struct latency_call {
  uint64_t sequence; /* number of the call, counted from 1; set when the call may be read */
  uint64_t time_ns;
  uint64_t address, bytes;
};

struct latency_log {
  uint64_t reserved; /* number of calls */
  uint32_t closed;   /* written by the program; 1: no event is complete */
  struct latency_call calls[LATENCY_CALLS];
  uint8_t there[LATENCY_BLOCKS]; /* 1: the last prefetch of the block was to the GPU */
};

static inline uint8_t *latency_there(struct latency_log *log, uint64_t address) {
  return &log->there[address / LATENCY_BLOCK_BYTES % LATENCY_BLOCKS];
}

extern struct latency_log latency_log;

#endif
