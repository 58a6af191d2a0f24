/* extents_cache.c - caches of fixed size: what makes the learner's memory bounded.
 *
 * Four lines share a set; the one unused for longest gives way. A line belongs to
 * its key alone, so a lost line costs knowledge and nothing else.
 */
#include <stdlib.h>
#include <string.h>

#include "extents_state.h"

#define WAYS 4u

bool extents_cache_init(struct extents_cache *cache, uint32_t lines, uint32_t line_bytes) {
  cache->sets = lines / WAYS;
  cache->line_bytes = line_bytes;
  cache->lines = calloc(lines, line_bytes);
  return cache->lines != NULL;
}

uint64_t extents_mix(uint64_t a, uint64_t b) {
  uint64_t x = (a ^ (b + 0x9e3779b97f4a7c15u + (a << 6) + (a >> 2))) * 0xff51afd7ed558ccdu;
  x = (x ^ (x >> 32)) * 0xc4ceb9fe1a85ec53u;
  x ^= x >> 29;
  return x == 0 ? 1 : x;
}

static struct extents_head *line(struct extents_cache *cache, uint64_t key, uint32_t way) {
  uint32_t set = (uint32_t)(key >> 20) & (cache->sets - 1);
  return (struct extents_head *)(void *)(cache->lines +
                                         (size_t)(set * WAYS + way) * cache->line_bytes);
}

void *extents_cache_find(struct extents_cache *cache, uint64_t key, uint32_t now) {
  for (uint32_t way = 0; way < WAYS; way++) {
    struct extents_head *head = line(cache, key, way);
    if (head->key == key) {
      head->used = now;
      return head;
    }
  }
  return NULL;
}

void *extents_cache_take(struct extents_cache *cache, uint64_t key, uint32_t now) {
  struct extents_head *found = extents_cache_find(cache, key, now);
  if (found != NULL) return found;
  struct extents_head *oldest = line(cache, key, 0);
  for (uint32_t way = 0; way < WAYS; way++) {
    struct extents_head *head = line(cache, key, way);
    if (head->key == 0) {
      oldest = head;
      break;
    }
    if (now - head->used > now - oldest->used) oldest = head;
  }
  memset(oldest, 0, cache->line_bytes);
  oldest->key = key;
  oldest->used = now;
  return oldest;
}
