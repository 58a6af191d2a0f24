/* block_map.c - see block_map.h. It calls no driver function and reads no clock. */
#include "block_map.h"

#include <string.h>

#include "pump_abi.h"

#define UNITS_OF_PAGE (PUMP_BLOCK_BYTES / POOL_UNIT_BYTES)
_Static_assert(UNITS_OF_PAGE <= UINT16_MAX, "counters of live blocks");
_Static_assert(POOL_UNIT_BYTES == PUMP_UNIT_BYTES, "blocks are counted in the map's units");

struct pump_block_map *pump_block_map_new(uint64_t length_bytes) {
  struct pump_block_map *map = calloc(1, sizeof *map);
  if (map == NULL) return NULL;
  map->pages_capacity = (uint32_t)(length_bytes / PUMP_BLOCK_BYTES);
  map->length_bytes = length_bytes;
  map->pieces = pool_map_new((uint32_t)(length_bytes / POOL_UNIT_BYTES / 64));
  map->live = calloc(map->pages_capacity, sizeof *map->live);
  if (map->pieces != NULL && map->live != NULL) return map;
  free(map->pieces);
  free(map->live);
  free(map);
  return NULL;
}

bool pump_block_map_renew(struct pump_block_map *map, uint64_t length_bytes) {
  uint64_t pages = length_bytes / PUMP_BLOCK_BYTES;
  struct pump_pool_map *pieces = map->pieces;
  if (pages > map->pages_capacity || pages < map->pages_capacity / 2) return false;
  memset(map->live, 0, map->pages_capacity * sizeof *map->live);
  for (uint32_t i = 0; i < pieces->capacity; i++) {
    PUMP_STORE(&pieces->live[i], 0);
    PUMP_STORE(&pieces->begins[i], 0);
  }
  for (uint32_t i = 0; i < pieces->capacity / 64 + 1; i++) PUMP_STORE(&pieces->any[i], 0);
  PUMP_STORE(&pieces->words, (uint32_t)(length_bytes / POOL_UNIT_BYTES / 64));
  map->length_bytes = length_bytes;
  PUMP_STORE(&map->continues, false);
  return true;
}

/* Returns the first unit in [unit, end) that begins a piece, or `end`. */
static uint64_t next_begin(const struct pump_pool_map *pieces, uint64_t unit,
                           uint64_t end) {
  if (unit >= end) return end;
  uint32_t word = (uint32_t)(unit >> 6);
  uint64_t bits = pieces->begins[word] & (~0ull << (unit & 63));
  if (bits == 0) {
    if (word + 1 >= pieces->words) return end;
    word = pool_map_word_after(pieces, word + 1);
    if (word >= pieces->words) return end;
    bits = pieces->begins[word];
  }
  uint64_t found = (uint64_t)word << 6 | (uint32_t)__builtin_ctzll(bits);
  return found < end ? found : end;
}

static const char *misplaced(const struct pump_block_map *map, uint64_t offset_bytes,
                             uint64_t length_bytes) {
  if (offset_bytes % POOL_UNIT_BYTES != 0 || length_bytes % POOL_UNIT_BYTES != 0 ||
      length_bytes == 0)
    return "a block's size is not a multiple of 512 bytes";
  if (offset_bytes >= map->length_bytes || length_bytes > map->length_bytes - offset_bytes)
    return "a block ends after its segment";
  return NULL;
}

const char *pump_block_map_take(struct pump_block_map *map, uint64_t offset_bytes,
                                uint64_t length_bytes) {
  struct pump_pool_map *pieces = map->pieces;
  const char *why = misplaced(map, offset_bytes, length_bytes);
  if (why != NULL) return why;
  uint64_t first = offset_bytes / POOL_UNIT_BYTES;
  uint64_t end = first + length_bytes / POOL_UNIT_BYTES, unit;
  if (pool_map_piece(pieces, offset_bytes).live) return "a new block overlaps a live one";
  for (unit = next_begin(pieces, first, end); unit < end;
       unit = next_begin(pieces, unit + 1, end))
    if (pool_map_test(pieces->live, unit)) return "a new block covers a live one";
  /* Sets the block's end, then its beginning, then its live bit, in the order that
   * pool_map.h requires. */
  if (end * POOL_UNIT_BYTES < map->length_bytes)
    pool_map_begin(pieces, end * POOL_UNIT_BYTES, true);
  for (unit = next_begin(pieces, first + 1, end); unit < end;
       unit = next_begin(pieces, unit + 1, end))
    pool_map_begin(pieces, unit * POOL_UNIT_BYTES, false);
  pool_map_begin(pieces, offset_bytes, true);
  pool_map_live(pieces, offset_bytes, true);
  for (uint64_t page = first / UNITS_OF_PAGE; page <= (end - 1) / UNITS_OF_PAGE; page++)
    map->live[page]++;
  return NULL;
}

const char *pump_block_map_give(struct pump_block_map *map, uint64_t offset_bytes,
                                uint64_t length_bytes, struct pump_block_span *dead) {
  const char *why = misplaced(map, offset_bytes, length_bytes);
  if (why != NULL) return why;
  struct pool_piece piece = pool_map_piece(map->pieces, offset_bytes);
  if (!piece.live || piece.offset_bytes != offset_bytes) return "an unknown block is freed";
  if (piece.length_bytes != length_bytes) return "a block is freed with a different length";
  pool_map_live(map->pieces, offset_bytes, false);
  uint64_t first = offset_bytes / PUMP_BLOCK_BYTES;
  uint64_t end = (offset_bytes + length_bytes - 1) / PUMP_BLOCK_BYTES + 1;
  for (uint64_t page = first; page < end; page++) map->live[page]--;
  /* Pages between the first and the last contained only this block. */
  if (map->live[first] != 0) first++;
  if (first < end && map->live[end - 1] != 0) end--;
  *dead = (struct pump_block_span){.offset_bytes = first * PUMP_BLOCK_BYTES,
                                   .length_bytes = (end - first) * PUMP_BLOCK_BYTES};
  return NULL;
}
