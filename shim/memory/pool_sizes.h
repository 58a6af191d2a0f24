/* pool_sizes.h - size classes of the pool.
 *
 * A block's length is the requested length, rounded up:
 *
 *   Below 16 KiB   to a multiple of 512 bytes, the alignment that CUDA guarantees.
 *   From 16 KiB    to a multiple of 1/32 of the power of two below it. With 32 classes
 *                  from one power to the next, at most 1/32 (3.1 %) is rounding.
 *
 * The classes are the same below and from 2 MiB. On recorded PyTorch training, rounding
 * takes about 1 % (tests/c/pool/test_pool.py measures it).
 *
 * Blocks below 1 MiB and larger blocks never share a segment. Small blocks live long next
 * to each other, large ones come and go, and each kind would fragment the other. Free
 * pieces are kept in bins, one per class. The first bin with a piece that is large enough
 * serves a request, and the rest becomes a new piece.
 */
#ifndef PUMP_POOL_SIZES_H
#define PUMP_POOL_SIZES_H

#include <stdint.h>

#include "pump_abi.h"

#define POOL_UNIT_BYTES 512u
#define POOL_BINS 1152u /* enough for lengths below 2^47 bytes */
#define POOL_STEPS_SHIFT 5u
#define POOL_LARGE_BYTES (1u << 20)

/* The least that the pool allocates from the driver at once. A large segment has two
 * blocks for each eighth of its range (last_use_seq). */
#define POOL_SEGMENT_SMALL_BYTES PUMP_BLOCK_BYTES
#define POOL_SEGMENT_LARGE_BYTES (16u * PUMP_BLOCK_BYTES)

/* Larger requests go to the driver, which refuses them. */
#define POOL_MOST_BYTES (1ull << 46)

static inline uint32_t pool_log2(uint64_t value) {
  return 63u - (uint32_t)__builtin_clzll(value);
}

/* Rounds a request up to its class; `bytes` is from 1 to POOL_MOST_BYTES. */
static inline uint64_t pool_round(uint64_t bytes) {
  uint64_t grain = (1ull << pool_log2(bytes)) >> POOL_STEPS_SHIFT;
  if (grain < POOL_UNIT_BYTES) grain = POOL_UNIT_BYTES;
  return (bytes + grain - 1) / grain * grain;
}

/* Returns the bin of a piece: all its pieces are as long as its class, or longer. A
 * rounded length is the shortest of its bin. */
static inline uint32_t pool_bin(uint64_t length_bytes) {
  uint64_t units = length_bytes / POOL_UNIT_BYTES;
  if (units < 1u << POOL_STEPS_SHIFT) return (uint32_t)units;
  uint32_t power = pool_log2(units), step = power - POOL_STEPS_SHIFT;
  return ((step + 1) << POOL_STEPS_SHIFT) |
         ((uint32_t)(units >> step) & ((1u << POOL_STEPS_SHIFT) - 1));
}

#endif
