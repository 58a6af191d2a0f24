/* pool_map.h - where the pieces of one segment begin, and which are live, as launches
 * read it: without a lock.
 *
 * DESIGN. One bit per 512 bytes says that a piece (live or free) begins there, a second
 * one that it is live, and one bit per word of the first says that the word is not 0.
 * They change under the pool's lock, while launches read them. A thread that looks up a
 * live block gets the truth: its own bits, and the bit where it ends, are set before it is
 * handed out and stay as long as it lives, whatever its neighbours become. About
 * anything else the answer may be out of date; it is a hint and no more. The memory of a
 * map is never given back, so a reader can hold on to one.
 */
#ifndef PUMP_POOL_MAP_H
#define PUMP_POOL_MAP_H

#include <stdbool.h>
#include <stdlib.h>

#include "pool_sizes.h"
#include "pump_ring.h"

struct pump_pool_map {
  uint32_t words; /* of `begins` and `live` in use */
  uint32_t room;  /* that there are */
  uint64_t *begins, *live;
  uint64_t *any; /* a bit per word of `begins` */
  struct pump_pool_map *next;
};

/* An empty map for `words` words of begins; NULL: memory is short. */
static inline struct pump_pool_map *pool_map_new(uint32_t words) {
  struct pump_pool_map *map =
      calloc(1, sizeof *map + (2 * (size_t)words + words / 64 + 1) * sizeof(uint64_t));
  if (map == NULL) return NULL;
  map->words = map->room = words;
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

/* The last word up to `word` that is not 0; 0 when there is none. */
static inline uint32_t pool_map_word_before(const struct pump_pool_map *map,
                                            uint32_t word) {
  for (uint32_t at = word >> 6;; at--) {
    uint64_t bits = PUMP_LOAD_ACQUIRE(&map->any[at]);
    if (at == word >> 6) bits &= ~0ull >> (63 - (word & 63));
    if (bits != 0) return at << 6 | pool_log2(bits);
    if (at == 0) return 0;
  }
}

/* The first word from `word` on that is not 0; `words` of the map when there is none. */
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

/* The piece that `offset_bytes`, inside the segment, lies in. */
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
