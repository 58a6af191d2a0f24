/* allocator_blocks.h - look-up of allocators' blocks during launches. */
#ifndef PUMP_ALLOCATOR_BLOCKS_H
#define PUMP_ALLOCATOR_BLOCKS_H

#include "block_map.h"
#include "record.h"

/* Written only by allocator_blocks.c. */
extern bool pump_blocks_reported; /* the maps below are valid */
extern struct pump_block_map *pump_block_maps[PUMP_MAX_RANGES]; /* by slot; NULL: no map */

/* Returns the pieces of the range, which is a segment of the shim's pool or of an
 * allocator that reports its blocks. Returns NULL if the pieces are unknown. */
static inline const struct pump_pool_map *pump_blocks_of(const struct pump_hit *hit) {
  if (hit->pool != NULL) return hit->pool;
  if (PUMP_LIKELY(!PUMP_LOAD(&pump_blocks_reported))) return NULL;
  const struct pump_block_map *map = PUMP_LOAD_ACQUIRE(&pump_block_maps[hit->slot]);
  if (map == NULL || PUMP_LOAD_ACQUIRE(&map->generation) != hit->generation) return NULL;
  return map->pieces;
}

/* Returns whether the first block of the range began in the range before it. */
static inline bool pump_block_continues(const struct pump_hit *hit) {
  const struct pump_block_map *map = PUMP_LOAD_ACQUIRE(&pump_block_maps[hit->slot]);
  return map != NULL && PUMP_LOAD_ACQUIRE(&map->generation) == hit->generation &&
         PUMP_LOAD(&map->continues);
}

/* Notes a block that the program's allocator has handed out (`size_bytes` > 0) or taken
 * back (< 0). Call it in the guard. */
void pump_blocks_event(uint64_t address, int64_t size_bytes);

void pump_blocks_reset(void);

/* Builds the maps when the program becomes active, because launches then begin to look
 * blocks up. Works with or without pump_range_lock. */
void pump_blocks_settle(void);

#endif
