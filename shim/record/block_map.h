/* block_map.h - the blocks that a program's own allocator has handed out in one of its
 * segments, as it reports them itself. Plain data; the caller holds a lock.
 *
 * Launches read `pieces` without one, as of the pool's own segments (pool_map.h).
 */
#ifndef PUMP_BLOCK_MAP_H
#define PUMP_BLOCK_MAP_H

#include "shim/memory/pool_map.h"

struct pump_block_map {
  uint32_t generation; /* of the range that it describes; 0: of none */
  uint32_t pages_room;
  uint64_t length_bytes;
  bool continues; /* its first block began in the range before it */
  struct pump_pool_map *pieces;
  uint16_t *live; /* live blocks that reach into each 2 MiB */
  struct pump_block_map *next;
};

/* Whole 2 MiB, in bytes from the segment's beginning. */
struct pump_block_span {
  uint64_t offset_bytes, length_bytes;
};

/* For a segment of that many bytes, a multiple of 2 MiB; NULL: memory is short. Nothing is
 * ever given back, so that a reader can hold on to it. */
struct pump_block_map *pump_block_map_new(uint64_t length_bytes);

/* The same for another segment; false: it is too small for that one, or far too large. */
bool pump_block_map_renew(struct pump_block_map *map, uint64_t length_bytes);

/* A block was handed out; taken back. NULL, or why that cannot be (a sentence without full
 * stop): then nothing has changed. `dead`: the 2 MiB blocks that no live one reaches into
 * since.
 */
const char *pump_block_map_take(struct pump_block_map *map, uint64_t offset_bytes,
                                uint64_t length_bytes);
const char *pump_block_map_give(struct pump_block_map *map, uint64_t offset_bytes,
                                uint64_t length_bytes, struct pump_block_span *dead);

#endif
