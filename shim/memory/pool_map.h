/* pool_map.h - where the pieces of one segment begin, and which are live, as launches
 * read it: without a lock.
 *
 * DESIGN. One bit per 512 bytes marks the beginning of a piece (live or free), and a
 * second bit marks it as live. One bit per word of the first bitmap marks that word as
 * not 0. The bits change under the pool's lock, while launches read them. A look-up of a
 * live block is exact: its own bits, and the bit at its end, are set before the block is
 * handed out. They stay set while the block lives, whatever happens to its neighbours.
 * For any other address the answer may be out of date, and is only a hint. The memory of
 * a map is never freed, so readers can keep using it.
 */
#ifndef PUMP_POOL_MAP_H
#define PUMP_POOL_MAP_H

#include <stdbool.h>
#include <stdlib.h>

#include "pool_sizes.h"
#include "pump_ring.h"

struct pump_pool_map {
  uint32_t words;    /* words of `begins` and `live` in use */
  uint32_t capacity; /* words of `begins` and `live` allocated */
  uint64_t *begins, *live;
  uint64_t *any; /* one bit per word of `begins` */
  struct pump_pool_map *next;
};

/* Returns an empty map for `words` words of begins; NULL if memory is short. */
static inline struct pump_pool_map *pool_map_new(uint32_t words) {
  struct pump_pool_map *map =
      calloc(1, sizeof *map + (2 * (size_t)words + words / 64 + 1) * sizeof(uint64_t));
  if (map == NULL) return NULL;
  map->words = map->capacity = words;
  map->begins = (uint64_t *)(map + 1);
  map->live = map->begins + words;
  map->any = map->live + words;
  return map;
}

static inline void pool_map_set(uint64_t *words, uint64_t bit, bool value) {
  uint64_t mask = 1ull << (bit & 63), *word = &words[bit >> 6];
  PUMP_STORE_RELEASE(word, value ? PUMP_LOAD(word) | mask : PUMP_LOAD(word) & ~mask);
}

static inline bool pool_map_test(const uint64_t *words, uint64_t bit) {
  return PUMP_LOAD_ACQUIRE(&words[bit >> 6]) >> (bit & 63) & 1;
}

/* Sets whether a piece begins at `offset_bytes`. */
static inline void pool_map_begin(struct pump_pool_map *map, uint64_t offset_bytes,
                                  bool value) {
  uint64_t unit = offset_bytes / POOL_UNIT_BYTES;
  pool_map_set(map->begins, unit, value);
  if (value || map->begins[unit >> 6] == 0) pool_map_set(map->any, unit >> 6, value);
}

static inline void pool_map_live(struct pump_pool_map *map, uint64_t offset_bytes,
                                 bool value) {
  pool_map_set(map->live, offset_bytes / POOL_UNIT_BYTES, value);
}

/* Returns the last word up to `word` that is not 0; 0 if there is none. */
static inline uint32_t pool_map_word_before(const struct pump_pool_map *map,
                                            uint32_t word) {
  for (uint32_t at = word >> 6;; at--) {
    uint64_t bits = PUMP_LOAD_ACQUIRE(&map->any[at]);
    if (at == word >> 6) bits &= ~0ull >> (63 - (word & 63));
    if (bits != 0) return at << 6 | pool_log2(bits);
    if (at == 0) return 0;
  }
}

/* Returns the first word from `word` on that is not 0, or the map's `words`. */
static inline uint32_t pool_map_word_after(const struct pump_pool_map *map, uint32_t word) {
  uint32_t words = PUMP_LOAD(&map->words);
  for (uint32_t at = word >> 6; at <= (words - 1) >> 6; at++) {
    uint64_t bits = PUMP_LOAD_ACQUIRE(&map->any[at]);
    if (at == word >> 6) bits &= ~0ull << (word & 63);
    if (bits != 0) return at << 6 | (uint32_t)__builtin_ctzll(bits);
  }
  return words;
}

struct pool_piece {
  uint64_t offset_bytes, length_bytes;
  bool live;
};

/* Returns the piece that contains `offset_bytes`, an offset inside the segment. */
static inline struct pool_piece pool_map_piece(const struct pump_pool_map *map,
                                               uint64_t offset_bytes) {
  uint32_t words = PUMP_LOAD(&map->words);
  uint64_t unit = offset_bytes / POOL_UNIT_BYTES, end = (uint64_t)words << 6;
  uint32_t word = (uint32_t)(unit >> 6);
  uint64_t here = PUMP_LOAD_ACQUIRE(&map->begins[word]);
  uint64_t low = here & (~0ull >> (63 - (unit & 63)));
  uint64_t high = (unit & 63) == 63 ? 0 : here & (~0ull << ((unit & 63) + 1));
  uint64_t first = 0;
  if (low != 0) {
    first = (uint64_t)word << 6 | pool_log2(low);
  } else if (word > 0) {
    uint32_t before = pool_map_word_before(map, word - 1);
    uint64_t bits = PUMP_LOAD_ACQUIRE(&map->begins[before]);
    if (bits != 0) first = (uint64_t)before << 6 | pool_log2(bits);
  }
  if (high != 0) {
    end = (uint64_t)word << 6 | (uint32_t)__builtin_ctzll(high);
  } else if (word + 1 < words) {
    uint32_t after = pool_map_word_after(map, word + 1);
    uint64_t bits = after < words ? PUMP_LOAD_ACQUIRE(&map->begins[after]) : 0;
    if (bits != 0) end = (uint64_t)after << 6 | (uint32_t)__builtin_ctzll(bits);
  }
  return (struct pool_piece){.offset_bytes = first * POOL_UNIT_BYTES,
                             .length_bytes = (end - first) * POOL_UNIT_BYTES,
                             .live = pool_map_test(map->live, first)};
}

#endif
