/* ranges.c - live allocations by address, and room for new ones.
 *
 * One sorted array per address range; what lies between two entries is free, so
 * there is no second structure to keep in step. Inserting moves the tail: a few
 * microseconds for ten thousand allocations. Under the driver's lock.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"

/* Index of the first entry that ends above `address`. */
static size_t position(const struct vd_range_set *set, uint64_t address) {
  size_t low = 0, high = set->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (set->entries[middle].end > address)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

struct vd_memory *vd_range_find(const struct vd_range_set *set, uint64_t address) {
  if (set->base != 0 && (address < set->base || address >= set->end)) return NULL;
  size_t i = position(set, address);
  if (i == set->count || set->entries[i].base > address) return NULL;
  return set->entries[i].memory;
}

static uint64_t align_up(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

/* Address of the smallest gap that fits; 0 when there is none. */
uint64_t vd_range_gap(const struct vd_range_set *set, uint64_t length_bytes,
                      uint64_t alignment) {
  uint64_t best = 0, best_bytes = UINT64_MAX, gap = set->base;
  for (size_t i = 0; i <= set->count; i++) {
    uint64_t end = i < set->count ? set->entries[i].base : set->end;
    uint64_t begin = align_up(gap, alignment);
    if (begin < end && end - begin >= length_bytes && end - begin < best_bytes) {
      best = begin;
      best_bytes = end - begin;
    }
    if (i < set->count) gap = set->entries[i].end;
  }
  return best;
}

int vd_range_add(struct vd_range_set *set, struct vd_memory *memory) {
  uint64_t end = memory->base + memory->reserved_bytes;
  size_t i = position(set, memory->base);
  if (i < set->count && set->entries[i].base < end) return -1; /* overlaps */
  if (set->count == set->room) {
    size_t room = set->room ? 2 * set->room : 256;
    struct vd_range_entry *entries = realloc(set->entries, room * sizeof *entries);
    if (entries == NULL) return -1;
    set->entries = entries;
    set->room = room;
  }
  memmove(&set->entries[i + 1], &set->entries[i], (set->count - i) * sizeof *set->entries);
  set->entries[i] = (struct vd_range_entry){memory->base, end, memory};
  set->count++;
  return 0;
}

bool vd_range_remove(struct vd_range_set *set, struct vd_memory *memory) {
  size_t i = position(set, memory->base);
  if (i == set->count || set->entries[i].memory != memory) return false;
  set->count--;
  memmove(&set->entries[i], &set->entries[i + 1], (set->count - i) * sizeof *set->entries);
  return true;
}

struct vd_memory *vd_memory_at(uint64_t address) {
  struct vd_memory *memory = vd_range_find(&vd.managed, address);
  if (memory == NULL) memory = vd_range_find(&vd.plain, address);
  if (memory == NULL) memory = vd_range_find(&vd.host, address);
  if (memory == NULL) memory = vd_range_find(&vd.mapped, address);
  return memory;
}

/* A library that tells of pieces is loaded before this driver or not at all: one look-up is
 * enough. It is made at the first launch, long after a stand-in for dlsym has found
 * us. */
struct piece_source {
  int (*piece)(uint64_t, uint64_t *, uint64_t *);
  bool looked;
};

static int ask(struct piece_source *source, const char *name, uint64_t address,
               uint64_t *base, uint64_t *length_bytes) {
  if (!source->looked) {
    void *found = dlsym(RTLD_DEFAULT, name);
    memcpy(&source->piece, &found, sizeof found);
    source->looked = true;
  }
  return source->piece == NULL ? VD_PIECE_NONE : source->piece(address, base, length_bytes);
}

int vd_pool_piece(uint64_t address, uint64_t *base, uint64_t *length_bytes) {
  static struct piece_source pool; /* under the driver's lock */
  return ask(&pool, "pump_pool_piece", address, base, length_bytes);
}

static int witness_piece(uint64_t address, uint64_t *base, uint64_t *length_bytes) {
  static struct piece_source witness; /* under the driver's lock */
  return ask(&witness, "pump_witness_piece", address, base, length_bytes);
}

/* Memory that pump's pool has cut out of an allocation is an allocation to the program,
 * and only pump knows where it ends. The pool answers through pump_pool_piece (pool.h),
 * where it is loaded. The same holds for an allocator of the program's own, where a
 * preloaded library watches it (pump_witness_piece, the same interface). */
bool vd_memory_piece(const struct vd_memory *memory, uint64_t address, uint64_t *base,
                     uint64_t *end) {
  uint64_t length_bytes;
  *base = memory->base;
  *end = memory->base + memory->length_bytes;
  if (memory->kind == VD_MAPPED) { /* mappings side by side are one allocation */
    *base = vd_mapped_base(address);
    *end = address + vd_mapped_bytes(address);
  }
  int piece = witness_piece(address, base, &length_bytes);
  if (piece == VD_PIECE_NONE && memory->kind == VD_MANAGED)
    piece = vd_pool_piece(address, base, &length_bytes);
  if (piece != VD_PIECE_NONE) *end = *base + length_bytes;
  return piece != VD_PIECE_FREE && address < *end;
}
