/* extents_cache.c - caches of fixed size, which bound the learner's memory.
 *
 * A set has four lines and evicts the least recently used one. A line belongs only to its
 * key, so losing it only loses knowledge.
 */
#include <stdlib.h>
#include <string.h>

#include "extents_state.h"

/* Lines of a set: their heads fill a cache line of 64 bytes [derived]. */
#define WAYS 4u

bool extents_cache_init(struct extents_cache *cache, uint32_t lines, uint32_t line_bytes) {
  cache->sets = lines / WAYS;
  cache->line_bytes = line_bytes;
  cache->heads = calloc(lines, sizeof(*cache->heads));
  cache->lines = calloc(lines, line_bytes);
  return cache->heads != NULL && cache->lines != NULL;
}

void extents_cache_free(struct extents_cache *cache) {
  free(cache->heads);
  free(cache->lines);
}

uint64_t extents_mix(uint64_t a, uint64_t b) {
  uint64_t x = (a ^ (b + 0x9e3779b97f4a7c15u + (a << 6) + (a >> 2))) * 0xff51afd7ed558ccdu;
  x = (x ^ (x >> 32)) * 0xc4ceb9fe1a85ec53u;
  x ^= x >> 29;
  return x == 0 ? 1 : x;
}

static uint32_t set_of(const struct extents_cache *cache, uint64_t key) {
  return ((uint32_t)(key >> 20) & (cache->sets - 1)) * WAYS;
}

static void *line_of(const struct extents_cache *cache, uint32_t line) {
  return cache->lines + (size_t)line * cache->line_bytes;
}

void *extents_cache_find(struct extents_cache *cache, uint64_t key, uint32_t now) {
  uint32_t first = set_of(cache, key);
  for (uint32_t line = first; line < first + WAYS; line++) {
    if (cache->heads[line].key != key) continue;
    cache->heads[line].used = now;
    return line_of(cache, line);
  }
  return NULL;
}

void *extents_cache_take(struct extents_cache *cache, uint64_t key, uint32_t now) {
  void *found = extents_cache_find(cache, key, now);
  if (found != NULL) return found;
  uint32_t first = set_of(cache, key);
  uint32_t oldest = first;
  for (uint32_t line = first; line < first + WAYS; line++) {
    const struct extents_head *head = &cache->heads[line];
    if (head->key == 0) {
      oldest = line;
      break;
    }
    if (now - head->used > now - cache->heads[oldest].used) oldest = line;
  }
  cache->heads[oldest] = (struct extents_head){.key = key, .used = now};
  return memset(line_of(cache, oldest), 0, cache->line_bytes);
}
