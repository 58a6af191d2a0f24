/* tensor_map.c - finds the memory that a tensor map descriptor (TMA) in a launch's
 * parameters refers to. The descriptor's 128 bytes are opaque (CUtensorMap of cuda.h) and
 * are not parsed.
 *
 * DESIGN. The driver makes a descriptor only from the arguments of its encoding, so the
 * same 128 bytes always refer to the same memory. They are the key of a set-associative
 * table of the newest descriptors. Entries never become stale. If a descriptor is evicted
 * from its set, the pointer scan reads its words like all others, and faults serve the
 * rest.
 */
#include <errno.h>
#include <string.h>

#include "record.h"

#define SETS 1024u /* a power of two */
#define WAYS 4u

/* Process-wide; a forked child keeps the table. `key` 0: empty, or being written. Written
 * under `lock`, read without it: a reader accepts its data if `key` did not change. */
static struct {
  uint64_t key, address, shape;
} maps[SETS][WAYS];
static uint32_t next_way[SETS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

uint32_t pump_tensor_maps_seen;

static uint64_t hash_of(const void *memory, size_t bytes) {
  const char *at = memory;
  uint64_t hash = 0xd6e8feb86659fd93u, word;
  for (size_t i = 0; i + sizeof word <= bytes; i += sizeof word) {
    memcpy(&word, at + i, sizeof word);
    hash = pump_tensor_mix(hash, word + i);
  }
  return hash == 0 ? 1 : hash;
}

bool pump_tensor_find(const void *memory, struct pump_tensor *tensor) {
  uint64_t key = hash_of(memory, PUMP_TENSOR_MAP_BYTES);
  for (uint32_t way = 0; way < WAYS; way++) {
    if (PUMP_LOAD_ACQUIRE(&maps[key % SETS][way].key) != key) continue;
    tensor->address = PUMP_LOAD_ACQUIRE(&maps[key % SETS][way].address);
    tensor->shape = PUMP_LOAD_ACQUIRE(&maps[key % SETS][way].shape);
    if (PUMP_LOAD(&maps[key % SETS][way].key) == key) return true;
  }
  return false;
}

void pump_tensor_note(const CUtensorMap *map, const void *address, uint64_t shape) {
  struct pump_tensor known;
  if (pump_tensor_find(map, &known)) return;
  uint64_t key = hash_of(map, PUMP_TENSOR_MAP_BYTES);
  int saved = errno;
  pthread_mutex_lock(&lock);
  uint32_t way = next_way[key % SETS]++ % WAYS;
  __atomic_store_n(&maps[key % SETS][way].key, 0, __ATOMIC_SEQ_CST);
  PUMP_STORE_RELEASE(&maps[key % SETS][way].address, (uint64_t)(uintptr_t)address);
  PUMP_STORE_RELEASE(&maps[key % SETS][way].shape, shape);
  PUMP_STORE_RELEASE(&maps[key % SETS][way].key, key);
  pthread_mutex_unlock(&lock);
  PUMP_STORE(&pump_tensor_maps_seen, 1);
  errno = saved;
}

void pump_tensor_reset(void) {
  pthread_mutex_init(&lock, NULL);
}
