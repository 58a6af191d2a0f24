/* pool_sizes.h - size classes of the pool.
 *
 * A block's length is the requested one, rounded up to
 *
 *   below 16 KiB   a multiple of 512 bytes, the alignment that CUDA promises
 *   from 16 KiB    a multiple of 1/32 of the power of two below it: 32 classes between
 *                  two powers of two, so at most 1/32 (3.1 %) of a block is rounding
 *
 * the same below and from 2 MiB. On recorded PyTorch training rounding takes about 1 %
 * (tests/c/pool/test_pool.py measures it).
 *
 * Blocks below 1 MiB and blocks from there on never share a segment: small ones live
 * long beside each other, large ones come and go, and each would cut up the other's
 * room. Free pieces are kept in bins, one per class, of which the first that is large
 * enough serves a request; what is left over of it becomes a piece of its own.
 */
#ifndef PUMP_POOL_SIZES_H
#define PUMP_POOL_SIZES_H

#include <stdint.h>

#include "pump_abi.h"

#define POOL_UNIT_BYTES 512u
#define POOL_BINS 1152u /* for lengths below 2^47 bytes */
#define POOL_STEPS_SHIFT 5u
#define POOL_LARGE_BYTES (1u << 20)

/* What the pool requests of the driver at once, at least: as much as one range's use slices
 * can separate block by block, or half of it. */
#define POOL_SEGMENT_SMALL_BYTES PUMP_BLOCK_BYTES
#define POOL_SEGMENT_LARGE_BYTES (16u * PUMP_BLOCK_BYTES)

/* Requests beyond are the driver's to refuse. */
#define POOL_MOST_BYTES (1ull << 46)

static inline uint32_t pool_log2(uint64_t value) {
  return 63u - (uint32_t)__builtin_clzll(value);
}

/* `bytes` from 1 to POOL_MOST_BYTES. */
static inline uint64_t pool_round(uint64_t bytes) {
  uint64_t grain = (1ull << pool_log2(bytes)) >> POOL_STEPS_SHIFT;
  if (grain < POOL_UNIT_BYTES) grain = POOL_UNIT_BYTES;
  return (bytes + grain - 1) / grain * grain;
}

/* The bin of a piece: all in it are as long as the class of that bin, or longer. A
 * rounded length is the shortest of its bin. */
static inline uint32_t pool_bin(uint64_t length_bytes) {
  uint64_t units = length_bytes / POOL_UNIT_BYTES;
  if (units < 1u << POOL_STEPS_SHIFT) return (uint32_t)units;
  uint32_t power = pool_log2(units), step = power - POOL_STEPS_SHIFT;
  return ((step + 1) << POOL_STEPS_SHIFT) |
         ((uint32_t)(units >> step) & ((1u << POOL_STEPS_SHIFT) - 1));
}

#endif
