/* block_map.h - the blocks that a program's own allocator has handed out in one of its
 * segments, from its reports. Plain data; the caller holds a lock.
 *
 * Launches read `pieces` without a lock, as in the pool's own segments (pool_map.h).
 */
#ifndef PUMP_BLOCK_MAP_H
#define PUMP_BLOCK_MAP_H

#include "shim/memory/pool_map.h"

struct pump_block_map {
  uint32_t generation; /* generation of the described range; 0: none */
  uint32_t pages_capacity;
  uint64_t length_bytes;
  bool continues; /* the first block began in the range before it */
  struct pump_pool_map *pieces;
  uint16_t *live; /* for each 2 MiB, the number of live blocks in it */
  struct pump_block_map *next;
};

/* Whole 2 MiB blocks, in bytes from the segment's beginning. */
struct pump_block_span {
  uint64_t offset_bytes, length_bytes;
};

/* Creates a map for a segment of that length, a multiple of 2 MiB. Returns NULL if memory
 * is short. Maps are never freed, so that a reader may still use an old one. */
struct pump_block_map *pump_block_map_new(uint64_t length_bytes);

/* Reuses a map for another segment. Returns false if it is too small or far too large. */
bool pump_block_map_renew(struct pump_block_map *map, uint64_t length_bytes);

/* Notes that a block was handed out (`take`) or taken back (`give`). Returns NULL, or the
 * reason why that is impossible (a sentence without a full stop); then nothing has
 * changed. `dead`: the 2 MiB blocks that have just lost their last live block. */
const char *pump_block_map_take(struct pump_block_map *map, uint64_t offset_bytes,
                                uint64_t length_bytes);
const char *pump_block_map_give(struct pump_block_map *map, uint64_t offset_bytes,
                                uint64_t length_bytes, struct pump_block_span *dead);

#endif
