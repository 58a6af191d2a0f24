/* range_table.c - the table of live ranges and the index from address to range.
 *
 * The table is not an allocator, and this file calls no driver function.
 *
 * DESIGN. The table in the shared region is for the worker. The shim itself uses
 * `pump_mirrors`, private memory with the same slots, because the other side can write to
 * the region. Both change only under pump_range_lock.
 *
 * The index maps a block number (address / 2 MiB) to slot + 1. Converted ranges are
 * whole, aligned blocks, so one block belongs to at most one range. A managed range is
 * entered with the blocks that it owns as a whole. The user address space of 47 bits has
 * 2^26 blocks: a top table of 2^13 pointers to leaves of 2^13 words. Leaves are never
 * freed, so a reader can keep using one without a lock.
 *
 * A bitmap has a bit for each block on which pump has set READ_MOSTLY
 * (execute/duplicates.c). The driver forgets that with its allocation, so a range that
 * begins or ends clears the bits of its blocks.
 *
 * Readers (every hook) take no lock. They read a mirror between two loads of its `state`,
 * which changes at every add and remove. The generation in it makes a slot that was freed
 * and reused look different. So a look-up that races with a free finds either the old
 * range or nothing.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "memory.h"
#include "range_index.h"

#define NO_SLOT UINT32_MAX
/* A pointer into a range adds at most this many bytes to the count that makes a marker
 * due: about the size of a tensor. */
#define INSIDE_BYTES (4u * PUMP_BLOCK_BYTES)

pthread_mutex_t pump_range_lock = PTHREAD_MUTEX_INITIALIZER;

/* Both, and slots_used, change under pump_range_lock; see range_index.h. */
uint32_t *pump_index_top[TOP_WORDS];
struct pump_mirror pump_mirrors[PUMP_MAX_RANGES];
static uint32_t slots_used, first_free = NO_SLOT;
static uint64_t changes;

/* No live range reaches beyond these; `low` only falls, `end` only rises. */
struct pump_range_bounds pump_range_bounds = {.low = UINT64_MAX};

/* Computes the blocks that the bytes own as a whole: [*first, *end). */
static void owned_blocks(uint64_t base, uint64_t length, uint64_t *first, uint64_t *end) {
  *first = (base + PUMP_BLOCK_BYTES - 1) >> BLOCK_SHIFT;
  *end = (base + length) >> BLOCK_SHIFT;
}

/* Makes sure that every block has a leaf; 0 or -ENOMEM. */
static int index_prepare(uint64_t first, uint64_t end) {
  for (uint64_t i = first >> LEAF_BITS; i <= (end - 1) >> LEAF_BITS; i++) {
    if (pump_index_top[i] != NULL) continue;
    void *leaf = mmap(NULL, LEAF_WORDS * sizeof(uint32_t), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (leaf == MAP_FAILED) return -ENOMEM;
    PUMP_STORE_RELEASE(&pump_index_top[i], leaf);
  }
  return 0;
}

/* ---- READ_MOSTLY hints ------------------------------------------------------------ */

#define HINT_BITS 64
static uint64_t hints[(ADDRESS_END >> BLOCK_SHIFT) / HINT_BITS]; /* paged in on use */
static uint32_t hinted_ever;

bool pump_read_mostly_is_set(uint64_t address) {
  uint64_t block = address >> BLOCK_SHIFT;
  if (PUMP_LOAD(&hinted_ever) == 0 || address >= ADDRESS_END) return false;
  return PUMP_LOAD(&hints[block / HINT_BITS]) >> block % HINT_BITS & 1;
}

void pump_read_mostly_note(uint64_t first_block, uint64_t end_block, bool hinted) {
  if (hinted) PUMP_STORE(&hinted_ever, 1);
  if (PUMP_LOAD(&hinted_ever) == 0) return;
  for (uint64_t block = first_block; block < end_block; block++) {
    uint64_t bit = 1ull << block % HINT_BITS, *word = &hints[block / HINT_BITS];
    if (hinted)
      __atomic_fetch_or(word, bit, __ATOMIC_RELAXED);
    else if (PUMP_LOAD(word) & bit)
      __atomic_fetch_and(word, ~bit, __ATOMIC_RELAXED);
  }
}

/* ---- the table -------------------------------------------------------------------- */

static void index_fill(uint64_t first, uint64_t end, uint32_t value) {
  pump_read_mostly_note(first, end, false);
  for (uint64_t block = first; block < end; block++)
    PUMP_STORE_RELEASE(index_word(block), value);
}

/* Returns whether all these blocks have that value in the index. */
static bool index_is(uint64_t first, uint64_t end, uint32_t value) {
  while (first < end && PUMP_LOAD(index_word(first)) == value) first++;
  return first == end;
}

/* Writes the worker's copy of a slot from its mirror. Leaves `version` even, whatever
 * another mapping has put there. */
static void write_record(uint32_t slot) {
  PUMP_ASSERT(pump_is_locked(&pump_range_lock), "pump_range_lock guards the table");
  const struct pump_mirror *mirror = &pump_mirrors[slot];
  struct pump_range *range = &pump_shm->ranges[slot];
  uint64_t state = PUMP_LOAD(&mirror->state);
  PUMP_STORE(&range->version, PUMP_LOAD(&range->version) & ~(uint64_t)1);
  pump_range_write_begin(range);
  PUMP_STORE(&range->generation, (uint32_t)(state >> 32));
  PUMP_STORE(&range->range_kind, (uint32_t)state);
  PUMP_STORE(&range->base, PUMP_LOAD(&mirror->base));
  PUMP_STORE(&range->length_bytes, PUMP_LOAD(&mirror->length_bytes));
  PUMP_STORE(&range->device, PUMP_LOAD(&mirror->device));
  PUMP_STORE(&range->alloc_seq, mirror->alloc_seq);
  pump_range_write_end(range);
}

/* Writes a slot's copy after its mirror has changed, and raises the table's version. */
static void publish(uint32_t slot) {
  struct pump_header *header = &pump_shm->header;
  write_record(slot);
  if (PUMP_LOAD(&header->range_high) < slots_used)
    PUMP_STORE_RELEASE(&header->range_high, slots_used);
  PUMP_STORE_RELEASE(&header->range_version, PUMP_LOAD(&header->range_version) + 1);
}

void pump_range_republish(void) {
  for (uint32_t slot = 0; slot < slots_used; slot++) write_record(slot);
  PUMP_STORE_RELEASE(&pump_shm->header.range_high, slots_used);
}

/* Makes the range live in info->slot, which already has a new generation. */
static void make_live(struct pump_range_info *info, uint64_t first, uint64_t end) {
  struct pump_mirror *mirror = &pump_mirrors[info->slot];
  uint64_t generation = PUMP_LOAD(&mirror->state) >> 32;
  PUMP_ASSERT(index_is(first, end, 0), "a block belongs to at most one range");
  PUMP_ASSERT((uint32_t)mirror->state == PUMP_RANGE_FREE, "a slot holds one range");
  if (generation == 0) generation = 1;
  info->generation = (uint32_t)generation;
  /* Release: a reader that sees one of these also sees at least the dead state. */
  PUMP_STORE_RELEASE(&mirror->base, info->base);
  PUMP_STORE_RELEASE(&mirror->length_bytes, info->length_bytes);
  PUMP_STORE_RELEASE(&mirror->requested_bytes, info->requested_bytes);
  PUMP_STORE_RELEASE(&mirror->device, info->device);
  PUMP_STORE_RELEASE(&mirror->pool, info->pool);
  mirror->context = info->context;
  PUMP_STORE_RELEASE(&mirror->by_handle, info->by_handle);
  mirror->alloc_seq = PUMP_LOAD(&pump_shm->header.next_seq);
  PUMP_STORE_RELEASE(&mirror->state, generation << 32 | info->kind);
  if (info->base < pump_range_bounds.low) PUMP_STORE(&pump_range_bounds.low, info->base);
  if (info->base + info->length_bytes > pump_range_bounds.end)
    PUMP_STORE(&pump_range_bounds.end, info->base + info->length_bytes);
  index_fill(first, end, info->slot + 1);
  PUMP_STORE_RELEASE(&changes, changes + 1);
  uint64_t *use = pump_shm->ranges[info->slot].last_use_seq;
  for (int i = 0; i < PUMP_RANGE_EIGHTHS; i++) PUMP_STORE(&use[i], 0);
  publish(info->slot);
  if (!info->by_handle)
    pump_device_add_bytes(info->device, (int64_t)((end - first) << BLOCK_SHIFT), 0);
}

/* Removes the range in `slot` from index and table; the slot stays taken. */
static void retire(uint32_t slot, struct pump_range_info *info) {
  struct pump_mirror *mirror = &pump_mirrors[slot];
  *info = (struct pump_range_info){.base = mirror->base,
                                   .length_bytes = mirror->length_bytes,
                                   .requested_bytes = mirror->requested_bytes,
                                   .kind = (uint32_t)mirror->state,
                                   .device = mirror->device,
                                   .slot = slot,
                                   .generation = (uint32_t)(mirror->state >> 32),
                                   .pool = mirror->pool,
                                   .context = mirror->context,
                                   .by_handle = mirror->by_handle != 0};
  uint64_t first, end;
  owned_blocks(info->base, info->length_bytes, &first, &end);
  PUMP_ASSERT(info->kind != PUMP_RANGE_FREE && index_is(first, end, slot + 1),
              "the index names the range of each of its blocks");
  uint32_t next = info->generation + 1 == 0 ? 1 : info->generation + 1;
  index_fill(first, end, 0);
  PUMP_STORE_RELEASE(&mirror->state, (uint64_t)next << 32);
  PUMP_STORE_RELEASE(&changes, changes + 1);
  publish(slot);
  if (!info->by_handle)
    pump_device_add_bytes(info->device, -(int64_t)((end - first) << BLOCK_SHIFT), 0);
}

static void give_back(uint32_t slot) {
  PUMP_ASSERT((uint32_t)pump_mirrors[slot].state == PUMP_RANGE_FREE,
              "the slot of a live range stays taken");
  PUMP_STORE_RELEASE(&pump_mirrors[slot].next_free, first_free);
  first_free = slot;
}

/* Removes the ranges that own any of these blocks. Returns their converted bytes, except
 * for ranges that count by a handle. */
static uint64_t displace(uint64_t first, uint64_t end) {
  struct pump_range_info gone;
  uint64_t converted_bytes = 0;
  for (uint64_t block = first; block < end; block++) {
    uint32_t value = PUMP_LOAD(index_word(block));
    if (value == 0) continue;
    retire(value - 1, &gone);
    give_back(value - 1);
    if (gone.kind == PUMP_RANGE_CONVERTED && !gone.by_handle)
      converted_bytes += gone.length_bytes;
  }
  return converted_bytes;
}

int pump_range_add(struct pump_range_info *info) {
  uint64_t first, end;
  if (info->base >= ADDRESS_END || info->length_bytes > ADDRESS_END - info->base)
    return -ERANGE;
  owned_blocks(info->base, info->length_bytes, &first, &end);
  if (first >= end) return -ERANGE;
  info->displaced_bytes = 0;
  pthread_mutex_lock(&pump_range_lock);
  int result = index_prepare(first, end);
  if (result == 0) {
    info->displaced_bytes = displace(first, end);
    if (first_free != NO_SLOT) {
      info->slot = first_free;
      first_free = pump_mirrors[info->slot].next_free;
    } else if (slots_used < PUMP_MAX_RANGES) {
      info->slot = slots_used++;
    } else {
      result = -ENOSPC;
      PUMP_ADD(&pump_shm->shim_counters.ranges_untracked, 1);
    }
  }
  if (result == 0) {
    make_live(info, first, end);
    result = (int)info->slot;
  }
  pthread_mutex_unlock(&pump_range_lock);
  return result;
}

int pump_range_remove(uint64_t base, struct pump_range_info *info) {
  if (base > ADDRESS_END - PUMP_BLOCK_BYTES) return -ENOENT;
  const uint32_t *word = index_word((base + PUMP_BLOCK_BYTES - 1) >> BLOCK_SHIFT);
  if (word == NULL || PUMP_LOAD(word) == 0) return -ENOENT; /* not ours; no lock needed */
  pthread_mutex_lock(&pump_range_lock);
  uint32_t value = PUMP_LOAD(word);
  bool found = value != 0 && pump_mirrors[value - 1].base == base;
  if (found) retire(value - 1, info);
  pthread_mutex_unlock(&pump_range_lock);
  return found ? 0 : -ENOENT;
}

bool pump_range_remove_next(CUcontext context, uint32_t *cursor,
                            struct pump_range_info *info) {
  bool found = false;
  pthread_mutex_lock(&pump_range_lock);
  for (; !found && *cursor < slots_used; ++*cursor) {
    const struct pump_mirror *mirror = &pump_mirrors[*cursor];
    found = (uint32_t)mirror->state != PUMP_RANGE_FREE && mirror->context == context;
    if (found) retire(*cursor, info);
  }
  pthread_mutex_unlock(&pump_range_lock);
  return found;
}

bool pump_range_next_converted(uint32_t device, uint32_t *cursor,
                               struct pump_range_info *info) {
  bool found = false;
  pthread_mutex_lock(&pump_range_lock);
  for (; !found && *cursor < slots_used; ++*cursor) {
    const struct pump_mirror *mirror = &pump_mirrors[*cursor];
    found = (uint32_t)mirror->state == PUMP_RANGE_CONVERTED && mirror->device == device;
    if (found)
      *info = (struct pump_range_info){
          .base = mirror->base, .length_bytes = mirror->length_bytes, .device = device};
  }
  pthread_mutex_unlock(&pump_range_lock);
  return found;
}

void pump_range_release(uint32_t slot) {
  pthread_mutex_lock(&pump_range_lock);
  give_back(slot);
  pthread_mutex_unlock(&pump_range_lock);
}

/* The driver refused the free, so these blocks still belong to the range. */
void pump_range_restore(struct pump_range_info *info) {
  uint64_t first, end;
  owned_blocks(info->base, info->length_bytes, &first, &end);
  pthread_mutex_lock(&pump_range_lock);
  make_live(info, first, end);
  pthread_mutex_unlock(&pump_range_lock);
}

uint64_t pump_range_changes(void) {
  return PUMP_LOAD_ACQUIRE(&changes);
}

bool pump_range_lookup(uint64_t address, struct pump_hit *hit) {
  uint32_t value = index_value(address);
  return value != 0 && read_mirror(value - 1, address, hit);
}

/* Estimates what a kernel reaches from a pointer. A pointer to the beginning of a range
 * may mean all of it. A pointer inside is most often a tensor in a caching allocator's
 * segment: it counts as its eighth of the range and the next one. If it counted up to the
 * range's end, every launch would seem to use everything after it, and barely anything
 * could be evicted. An estimate that is too small only costs time: a block may move while
 * it is used. */
static uint64_t argument_bytes(uint64_t range_bytes, uint64_t offset_bytes,
                               uint32_t *eighths) {
  *eighths = offset_bytes == 0 ? PUMP_RANGE_EIGHTHS : 2;
  if (offset_bytes == 0) return range_bytes;
  uint64_t most = range_bytes / PUMP_RANGE_EIGHTHS, left = range_bytes - offset_bytes;
  if (most > INSIDE_BYTES) most = INSIDE_BYTES;
  return left < most ? left : most;
}

uint64_t pump_range_touch(const struct pump_extent *extent, uint64_t seq) {
  const struct pump_mirror *mirror = &pump_mirrors[extent->slot];
  if (PUMP_LOAD_ACQUIRE(&mirror->state) >> 32 != extent->generation) return 0;
  uint64_t range_bytes = PUMP_LOAD(&mirror->length_bytes);
  uint64_t bytes = extent->length_access >> 2;
  uint32_t first = pump_range_eighth(range_bytes, extent->offset_bytes), last;
  bool argument = (extent->length_access & 3) == PUMP_ACCESS_ARGUMENT;
  if (argument) /* up to the end of the allocator's block, if known */
    bytes = pump_units_bytes(bytes >> PUMP_ARGUMENT_BITS, extent->offset_bytes);
  if (argument && bytes == 0) {
    uint32_t eighths;
    bytes = argument_bytes(range_bytes, extent->offset_bytes, &eighths);
    last = first + eighths - 1;
    if (last >= PUMP_RANGE_EIGHTHS) last = PUMP_RANGE_EIGHTHS - 1;
  } else {
    if (bytes == 0) return 0;
    last = pump_range_eighth(range_bytes, extent->offset_bytes + bytes - 1);
  }
  uint64_t *use = pump_shm->ranges[extent->slot].last_use_seq;
  for (uint32_t i = first; i <= last; i++) PUMP_STORE(&use[i], seq);
  return bytes;
}

void pump_range_reset(void) {
  for (uint32_t i = 0; i < TOP_WORDS; i++)
    if (pump_index_top[i] != NULL)
      memset(pump_index_top[i], 0, LEAF_WORDS * sizeof(uint32_t));
  memset(pump_mirrors, 0, slots_used * sizeof pump_mirrors[0]);
  slots_used = 0;
  first_free = NO_SLOT;
  pump_range_bounds.low = UINT64_MAX;
  pump_range_bounds.end = 0;
}
