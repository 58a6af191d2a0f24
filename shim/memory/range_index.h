/* range_index.h - the reading side of range_table.c, in a header because a launch looks
 * up dozens of addresses. See the DESIGN there for index and mirrors.
 */
#ifndef PUMP_RANGE_INDEX_H
#define PUMP_RANGE_INDEX_H

#include "memory.h"

#define BLOCK_SHIFT 21
#define LEAF_BITS 13
#define LEAF_WORDS (1u << LEAF_BITS)
#define TOP_WORDS (1u << 13)
#define ADDRESS_END (1ull << 47)

_Static_assert(PUMP_BLOCK_BYTES == 1 << BLOCK_SHIFT, "the index counts blocks");

/* One cache line: a look-up reads one mirror and one word of the index. */
struct pump_mirror {
  uint64_t state; /* generation << 32 | kind; kind 0: no live range */
  uint64_t base;
  uint64_t length_bytes;
  uint64_t requested_bytes;
  uint32_t device;
  union {
    uint32_t next_free; /* of a free slot; read only under the lock */
    uint32_t by_handle; /* of a live range: see pump_range_info */
  };
  /* `context` and `alloc_seq`: only under the lock */
  CUcontext context;
  uint64_t alloc_seq;
  const struct pump_pool_map *pool;
} __attribute__((aligned(64)));
_Static_assert(sizeof(struct pump_mirror) == 64, "one cache line");

/* Only range_table.c writes these. */
extern uint32_t *pump_index_top[TOP_WORDS];
extern struct pump_mirror pump_mirrors[PUMP_MAX_RANGES];

static inline uint32_t *index_word(uint64_t block) {
  uint32_t *leaf = PUMP_LOAD_ACQUIRE(&pump_index_top[block >> LEAF_BITS]);
  return leaf == NULL ? NULL : &leaf[block & (LEAF_WORDS - 1)];
}

/* Returns slot + 1 of the range that owns the block of `address`; 0 if there is none. */
static inline uint32_t index_value(uint64_t address) {
  if (address >= ADDRESS_END) return 0;
  const uint32_t *word = index_word(address >> BLOCK_SHIFT);
  return word == NULL ? 0 : PUMP_LOAD_ACQUIRE(word);
}

/* Reads the mirror that the index has named for `address`; see DESIGN. */
static inline bool read_mirror(uint32_t slot, uint64_t address, struct pump_hit *hit) {
  const struct pump_mirror *mirror = &pump_mirrors[slot];
  uint64_t state = PUMP_LOAD_ACQUIRE(&mirror->state);
  /* Acquire: these loads come before the second load of the state. */
  uint64_t base = PUMP_LOAD_ACQUIRE(&mirror->base);
  uint64_t length = PUMP_LOAD_ACQUIRE(&mirror->length_bytes);
  uint64_t requested = PUMP_LOAD_ACQUIRE(&mirror->requested_bytes);
  uint32_t device = PUMP_LOAD_ACQUIRE(&mirror->device);
  const struct pump_pool_map *pool = PUMP_LOAD_ACQUIRE(&mirror->pool);
  bool by_handle = PUMP_LOAD_ACQUIRE(&mirror->by_handle) != 0;
  if (PUMP_LOAD(&mirror->state) != state || (uint32_t)state == PUMP_RANGE_FREE)
    return false;
  if (address < base || address - base >= length) return false;
  hit->slot = slot;
  hit->generation = (uint32_t)(state >> 32);
  hit->device = device;
  hit->kind = (uint32_t)state;
  hit->base = base;
  hit->length_bytes = length;
  hit->requested_bytes = requested;
  hit->pool = pool;
  hit->by_handle = by_handle;
  return true;
}

/* Looks up an address in two steps, with other work in between. The first finds the slot
 * and prefetches its cache lines, also the ones that pump_range_touch needs. */
static inline void look_ahead(uint64_t address, uint32_t *hint) {
  *hint = index_value(address);
  if (*hint == 0) return;
  __builtin_prefetch(&pump_mirrors[*hint - 1], 0);
  __builtin_prefetch(pump_shm->ranges[*hint - 1].last_use_seq, 1);
}

static inline bool look_up_ahead(uint64_t address, uint32_t hint, struct pump_hit *hit) {
  return hint != 0 && read_mirror(hint - 1, address, hit);
}

#endif
