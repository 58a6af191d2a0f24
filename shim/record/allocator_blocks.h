/* allocator_blocks.h - where the allocators' blocks are known, as launches look them up. */
#ifndef PUMP_ALLOCATOR_BLOCKS_H
#define PUMP_ALLOCATOR_BLOCKS_H

#include "block_map.h"
#include "record.h"

/* Written by allocator_blocks.c alone. */
extern bool pump_blocks_reported; /* maps below are to be believed */
extern struct pump_block_map *pump_block_maps[PUMP_MAX_RANGES]; /* by slot; or NULL */

/* The pieces of the range that was hit: a segment of our pool, or one of which the
 * program's allocator reports its blocks. NULL: they are not known. */
static inline const struct pump_pool_map *pump_blocks_of(const struct pump_hit *hit) {
  if (hit->pool != NULL) return hit->pool;
  if (PUMP_LIKELY(!PUMP_LOAD(&pump_blocks_reported))) return NULL;
  const struct pump_block_map *map = PUMP_LOAD_ACQUIRE(&pump_block_maps[hit->slot]);
  if (map == NULL || PUMP_LOAD_ACQUIRE(&map->generation) != hit->generation) return NULL;
  return map->pieces;
}

/* Whether the first block there began in the range before it. */
static inline bool pump_block_continues(const struct pump_hit *hit) {
  const struct pump_block_map *map = PUMP_LOAD_ACQUIRE(&pump_block_maps[hit->slot]);
  return map != NULL && PUMP_LOAD_ACQUIRE(&map->generation) == hit->generation &&
         PUMP_LOAD(&map->continues);
}

/* The program's allocator says that it has handed out (`size_bytes` > 0) or taken back (<
 * 0) a block. In the guard. */
void pump_blocks_event(uint64_t address, int64_t size_bytes);

void pump_blocks_reset(void);

/* The program has become active: launches look blocks up from here on. Under
 * pump_range_lock or not. */
void pump_blocks_settle(void);

#endif
