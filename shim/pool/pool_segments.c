/* pool_segments.c - takes managed memory for the pool from the driver, and gives it back.
 *
 * A segment is a converted range like any other: limited, counted, populated, evicted and
 * prefetched. It is allocated in RELAXED capture mode, because stream-ordered allocation,
 * which it serves, is allowed during other threads' captures. An idle segment goes back
 * to the driver when the program trims its pool, before memory runs short, or when a
 * cycle does not need it (pool_cycle.c). That waits for the device, as every cuMemFree
 * does.
 */
#include <errno.h>
#include <stdlib.h>

#include "convert.h"
#include "pool_state.h"

#define TRIM_AT_ONCE 256u

static uint64_t whole_blocks(uint64_t bytes) {
  return (bytes + PUMP_BLOCK_BYTES - 1) / PUMP_BLOCK_BYTES * PUMP_BLOCK_BYTES;
}

/* Puts the segment into its arena and into the range table. Requires the lock. */
static int adopt(struct pool_segment *segment, struct pump_range_info *info) {
  int result = pool_segment_open(segment);
  if (result != 0) {
    free(segment);
    return result;
  }
  for (uint64_t i = 0; i < segment->length_bytes / PUMP_BLOCK_BYTES; i++)
    segment->pages[i].freed_ns = pump_now_ns();
  info->pool = segment->map;
  int slot = pump_range_add(info);
  if (slot < 0) {
    pool_segment_close(segment);
    return slot;
  }
  segment->slot = info->slot;
  return 0;
}

/* Allocates `bytes` of managed memory that the limit has admitted. Without the lock. */
static int allocate(struct pool_arena *arena, uint64_t bytes, CUdeviceptr *base) {
  struct pump_driver_scope scope = pump_driver_scope_open();
  CUresult result = pump_real.cuMemAllocManaged(base, bytes, CU_MEM_ATTACH_GLOBAL);
  pump_driver_scope_close(scope);
  if (result == CUDA_SUCCESS) return 0;
  pump_limit_return(arena->device, bytes);
  return -EAGAIN; /* the driver's own pool will report the error */
}

static void give_back(struct pool_arena *arena, CUdeviceptr base, uint64_t bytes) {
  struct pump_driver_scope scope = pump_driver_scope_open();
  pump_real.cuMemFree_v2(base);
  pump_driver_scope_close(scope);
  pump_limit_return(arena->device, bytes);
}

/* Admits `bytes`; gives idle memory back before it refuses them. Without the lock. */
static int admit(struct pool_arena *arena, uint64_t bytes) {
  int admitted = pump_limit_try(arena->device, bytes);
  if (admitted != -ENOMEM) return admitted;
  pump_pool_free_idle(arena->device);
  return pump_limit_try(arena->device, bytes);
}

static int grow_by(struct pool_arena *arena, uint32_t kind, uint64_t bytes) {
  CUdeviceptr base = 0;
  int result = admit(arena, bytes);
  if (result == -ENOSPC) return -EAGAIN; /* it fits as plain memory */
  if (result == 0) result = allocate(arena, bytes, &base);
  if (result != 0) return result;
  struct pump_range_info info = {.base = base,
                                 .length_bytes = bytes,
                                 .requested_bytes = bytes,
                                 .kind = PUMP_RANGE_CONVERTED,
                                 .device = arena->device,
                                 .context = arena->context};
  struct pool_segment *segment = calloc(1, sizeof *segment);
  if (segment != NULL) {
    *segment = (struct pool_segment){
        .base = base, .length_bytes = bytes, .arena = arena, .kind = kind};
    pthread_mutex_lock(&pool_lock);
    if (kind == POOL_LARGE && pool_cycle_is_known(arena)) segment->kind = POOL_SPARE;
    result = adopt(segment, &info);
    pthread_mutex_unlock(&pool_lock);
  }
  if (info.displaced_bytes != 0) pump_limit_return(info.device, info.displaced_bytes);
  if (segment == NULL || result != 0) {
    give_back(arena, base, bytes);
    return -EAGAIN;
  }
  pump_peer_keep_on_device(&info);
  pump_populate_add(info.slot, info.generation);
  pump_event_range(PUMP_EVENT_ALLOC, &info);
  return 0;
}

/* Returns the bytes of a segment for a request. They exceed the request only within half
 * of the memory that the limit leaves, so that plain allocations still find memory. */
static uint64_t segment_bytes(uint32_t kind, uint64_t requested_bytes) {
  uint64_t least = kind == POOL_SMALL ? POOL_SEGMENT_SMALL_BYTES : POOL_SEGMENT_LARGE_BYTES;
  uint64_t left, whole;
  if (requested_bytes >= least) return requested_bytes;
  pump_limit_read(&left, &whole);
  return least <= left / 2 ? least : requested_bytes;
}

int pool_grow(struct pool_arena *arena, uint32_t kind, uint64_t length_bytes) {
  uint64_t bytes = whole_blocks(length_bytes);
  PUMP_ASSERT(pump_is_locked(&pool_lock), "the caller holds pool_lock");
  pthread_mutex_unlock(&pool_lock);
  uint64_t wanted = segment_bytes(kind, bytes);
  int result = grow_by(arena, kind, wanted);
  if (result == -ENOMEM && bytes < wanted) result = grow_by(arena, kind, bytes);
  pthread_mutex_lock(&pool_lock);
  return result;
}

bool pump_pool_adopt(struct pump_range_info *range) {
  CUmemoryPool pool = NULL;
  if (range->length_bytes > POOL_MOST_BYTES || !pump_pool_serves(&pool, range->device))
    return false;
  struct pool_segment *segment = calloc(1, sizeof *segment);
  if (segment == NULL) return false;
  pthread_mutex_lock(&pool_lock);
  *segment = (struct pool_segment){
      .base = range->base,
      .length_bytes = range->length_bytes,
      .arena = pool_arena_of(pool, range->context, range->device, true),
      .kind = POOL_LARGE};
  bool adopted = segment->arena != NULL && pool_segment_open(segment) == 0;
  if (adopted) {
    pool_hand_out(segment->first, range->length_bytes, range->requested_bytes);
    range->pool = segment->map;
    pump_range_restore(range);
    segment->slot = range->slot;
  }
  pthread_mutex_unlock(&pool_lock);
  if (adopted)
    pump_event_range(PUMP_EVENT_ALLOC, range);
  else
    free(segment);
  return adopted;
}

/* Takes an idle segment (`spare`: of kind POOL_SPARE) out of the arena, if `keep_bytes`
 * remain without it; false if there is none. Requires the lock. */
static bool take_idle(struct pool_arena *arena, bool spare, uint64_t keep_bytes,
                      uint64_t *base) {
  struct pool_segment *segment = arena->segments;
  while (segment != NULL &&
         !(pool_segment_idle(segment) && (!spare || segment->kind == POOL_SPARE) &&
           arena->reserved_bytes - segment->length_bytes >= keep_bytes))
    segment = segment->next;
  if (segment == NULL) return false;
  *base = segment->base;
  pool_segment_close(segment);
  return true;
}

/* Frees a segment that was taken out of its arena. Without the lock. */
static void free_segment(CUdeviceptr base) {
  struct pump_range_info info;
  if (pump_range_remove(base, &info) != 0) return;
  pump_event_range(PUMP_EVENT_FREE, &info);
  pump_slot_wait(info.slot);
  struct pump_driver_scope scope = pump_driver_scope_open();
  CUresult result = pump_real.cuMemFree_v2(base);
  pump_driver_scope_close(scope);
  info.pool = NULL; /* if the driver refuses: memory without an owner */
  pump_range_free_ended(&info, result);
}

void pool_trim(struct pool_arena *arena, uint64_t keep_bytes) {
  uint64_t bases[TRIM_AT_ONCE];
  uint32_t count;
  do {
    /* Many under one lock: segments left idle in between would go into quarantine. */
    for (count = 0; count < TRIM_AT_ONCE; count++)
      if (!take_idle(arena, false, keep_bytes, &bases[count])) break;
    pool_suspend_lock();
    for (uint32_t i = 0; i < count; i++) free_segment(bases[i]);
    pool_resume_lock();
  } while (count == TRIM_AT_ONCE);
}

void pool_trim_spare(struct pool_arena *arena) {
  uint64_t base;
  if (!take_idle(arena, true, 0, &base)) return;
  pool_suspend_lock();
  free_segment(base);
  pool_resume_lock();
}
