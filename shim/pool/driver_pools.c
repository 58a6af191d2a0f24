/* driver_pools.c - which of the driver's pools ours replaces, and the answers about them.
 *
 * Ours replaces the default pool of each device, and pools that the program makes.
 * Exceptions are properties that managed memory cannot have: shared with other processes,
 * bounded, on the host, for other uses. Those pools, and with the rule "stream-ordered"
 * all, stay the driver's.
 *
 * The numbers of a replaced pool are sums of the driver's and ours. Ours keeps freed
 * memory until it is trimmed or memory runs short, but the program sees what the driver's
 * would keep. Until the program waits for a stream, an event or a context, that is
 * everything. Afterwards it is the release threshold (CUDA driver API,
 * CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), or, if larger, the memory in use or still pending
 * on the GPU. The rest counts as free memory, and serves the next allocation of any kind.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pool_state.h"
#include "shim/memory/rules.h"

/* Pools of the program that ours replaces; under pool_lock. Full: the driver serves. */
static struct {
  CUmemoryPool pool;
  uint32_t device;
} made[POOL_ARENAS];

uint32_t pump_pool_keeps;

static void grow_to(uint64_t *most, uint64_t bytes) {
  if (bytes > *most) *most = bytes;
}

static uint64_t threshold_of(CUmemoryPool pool) {
  cuuint64_t bytes = 0;
  if (pool != NULL && PUMP_HAS(cuMemPoolGetAttribute))
    pump_real.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes);
  return bytes;
}

/* Requires pool_lock. */
static void enter(CUmemoryPool pool, uint32_t device) {
  uint32_t i = 0;
  while (i < POOL_ARENAS && made[i].pool != NULL) i++;
  if (i == POOL_ARENAS) return;
  made[i].pool = pool;
  made[i].device = device;
}

static bool is_made(CUmemoryPool pool, uint32_t device) {
  bool found = false;
  pthread_mutex_lock(&pool_lock);
  for (uint32_t i = 0; i < POOL_ARENAS && !found; i++)
    found = made[i].pool == pool && made[i].device == device;
  pthread_mutex_unlock(&pool_lock);
  return found;
}

bool pump_pool_serves(CUmemoryPool *pool, uint32_t device) {
  CUmemoryPool usual = NULL;
  if (pump_rule_stream_ordered() || !PUMP_HAS(cuDeviceGetDefaultMemPool) ||
      !PUMP_HAS(cuDeviceGetMemPool))
    return false;
  if (*pool == NULL &&
      (pump_real.cuDeviceGetMemPool(pool, (CUdevice)device) != CUDA_SUCCESS ||
       *pool == NULL))
    return false;
  if (pump_real.cuDeviceGetDefaultMemPool(&usual, (CUdevice)device) == CUDA_SUCCESS &&
      usual == *pool)
    return true;
  return is_made(*pool, device);
}

/* ---- pools of the program ----------------------------------------------------------- */

static bool is_simple(const CUmemPoolProps *properties) {
  return properties->allocType == CU_MEM_ALLOCATION_TYPE_PINNED &&
         properties->handleTypes == CU_MEM_HANDLE_TYPE_NONE &&
         properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
         properties->location.id >= 0 && properties->maxSize == 0 && properties->usage == 0;
}

void pump_pool_note_created(CUmemoryPool pool, const CUmemPoolProps *properties) {
  if (!is_simple(properties)) return;
  pthread_mutex_lock(&pool_lock);
  enter(pool, (uint32_t)properties->location.id);
  pthread_mutex_unlock(&pool_lock);
}

void driver_pools_reset(void) {
  memset(made, 0, sizeof made);
}

/* Calls `visit` for every arena of the pool, under the lock. Since `visit` may release
 * the lock, arenas are found by index. */
static void each_arena(CUmemoryPool pool, void (*visit)(struct pool_arena *, void *),
                       void *argument) {
  pthread_mutex_lock(&pool_lock);
  for (uint32_t i = 0; i < POOL_ARENAS; i++) {
    struct pool_arena *arena = pool_arena_at(i);
    if (arena != NULL && arena->context != NULL && arena->pool == pool)
      visit(arena, argument);
  }
  pthread_mutex_unlock(&pool_lock);
}

/* Detaches the pool from its arenas. Memory that is in use or pending is given back when
 * the next pool is destroyed, or when memory is needed. */
void pump_pool_detach(CUmemoryPool pool, struct pump_pool_detached *closed) {
  pthread_mutex_lock(&pool_lock);
  for (uint32_t i = 0; i < POOL_ARENAS; i++) {
    if (made[i].pool != pool) continue;
    made[i].pool = NULL;
    closed->was_made = true;
    closed->device = made[i].device;
  }
  for (uint32_t i = 0; closed->was_made && i < POOL_ARENAS; i++) {
    struct pool_arena *arena = pool_arena_at(i);
    if (arena == NULL || arena->context == NULL || arena->pool != pool) continue;
    arena->pool = NULL;
    arena->threshold_bytes = 0;
    PUMP_STORE(&pump_pool_keeps, 1);
    closed->arenas[i] = true;
  }
  pthread_mutex_unlock(&pool_lock);
}

/* Gives a pool its arenas back, because destroying it failed. Arenas that another pool
 * has taken since then were empty, and stay with that pool. */
static void give_arenas_back(CUmemoryPool pool, const struct pump_pool_detached *closed) {
  pthread_mutex_lock(&pool_lock);
  enter(pool, closed->device);
  for (uint32_t i = 0; i < POOL_ARENAS; i++) {
    struct pool_arena *arena = pool_arena_at(i);
    if (!closed->arenas[i] || arena->context == NULL || arena->pool != NULL) continue;
    arena->pool = pool;
    arena->threshold_bytes = threshold_of(pool);
  }
  pthread_mutex_unlock(&pool_lock);
}

void pump_pool_finish_destroy(CUmemoryPool pool, const struct pump_pool_detached *closed,
                              bool destroyed) {
  if (!closed->was_made) return;
  struct pump_driver_scope scope = pump_driver_scope_open();
  if (!destroyed) {
    give_arenas_back(pool, closed);
  } else {
    pthread_mutex_lock(&pool_lock);
    pool_trim_device(closed->device, false);
    pthread_mutex_unlock(&pool_lock);
  }
  pump_driver_scope_close(scope);
}

/* ---- memory that the driver's pool would keep ---------------------------------------- */

void pool_usage_begin(struct pool_arena *arena) {
  arena->kept_bytes = arena->kept_high_bytes = arena->used_high_bytes = arena->used_bytes;
  arena->threshold_bytes = threshold_of(arena->pool);
}

void pool_usage_add(struct pool_arena *arena, uint64_t bytes) {
  arena->used_bytes += bytes;
  grow_to(&arena->peak_bytes, arena->used_bytes);
  grow_to(&arena->used_high_bytes, arena->used_bytes);
  grow_to(&arena->kept_bytes, arena->used_bytes);
  grow_to(&arena->kept_high_bytes, arena->kept_bytes);
}

void pool_usage_subtract(struct pool_arena *arena, uint64_t bytes) {
  PUMP_ASSERT(bytes <= arena->used_bytes, "the pool's usage never falls below zero");
  arena->used_bytes -= bytes;
  if (arena->kept_bytes > arena->threshold_bytes) PUMP_STORE(&pump_pool_keeps, 1);
}

void pool_usage_bound(struct pool_arena *arena) {
  if (arena->kept_bytes > arena->reserved_bytes) arena->kept_bytes = arena->reserved_bytes;
  PUMP_ASSERT(arena->used_bytes <= arena->kept_bytes, "memory in use is kept");
}

/* Lets the driver's pool give back idle memory beyond `keep_bytes`. Returns whether there
 * is more that the GPU has not reached yet. */
static bool let_go(struct pool_arena *arena, uint64_t keep_bytes) {
  if (arena->kept_bytes <= keep_bytes || arena->kept_bytes == arena->used_bytes)
    return false;
  pool_catch_up(arena);
  uint64_t pending_bytes = pool_pending_bytes(arena), least_bytes = keep_bytes;
  grow_to(&least_bytes, arena->used_bytes + pending_bytes);
  if (arena->kept_bytes > least_bytes) arena->kept_bytes = least_bytes;
  return pending_bytes != 0;
}

void pump_pool_release_kept(void) {
  int saved = errno;
  uint32_t more = 0;
  pump_enter();
  struct pump_driver_scope scope = pump_driver_scope_open();
  pthread_mutex_lock(&pool_lock);
  for (uint32_t i = 0; i < POOL_ARENAS; i++) {
    struct pool_arena *arena = pool_arena_at(i);
    if (arena != NULL && arena->context != NULL)
      more |= let_go(arena, arena->threshold_bytes);
  }
  PUMP_STORE(&pump_pool_keeps, more);
  pthread_mutex_unlock(&pool_lock);
  pump_driver_scope_close(scope);
  pump_leave();
  errno = saved;
}

uint64_t pump_pool_idle_bytes(uint32_t device) {
  uint64_t bytes = 0;
  pthread_mutex_lock(&pool_lock);
  for (uint32_t i = 0; i < POOL_ARENAS; i++) {
    const struct pool_arena *arena = pool_arena_at(i);
    if (arena == NULL || arena->context == NULL || arena->device != device) continue;
    PUMP_ASSERT(arena->kept_bytes <= arena->reserved_bytes, "kept memory is in segments");
    bytes += arena->reserved_bytes - arena->kept_bytes;
  }
  pthread_mutex_unlock(&pool_lock);
  return bytes;
}

static void trim(struct pool_arena *arena, void *keep_bytes) {
  let_go(arena, *(size_t *)keep_bytes);
  pool_trim(arena, *(size_t *)keep_bytes);
}

void pump_pool_trim_to(CUmemoryPool pool, size_t keep_bytes) {
  struct pump_driver_scope scope = pump_driver_scope_open();
  each_arena(pool, trim, &keep_bytes);
  pump_driver_scope_close(scope);
}

/* ---- attributes ------------------------------------------------------------------ */

struct usage {
  uint64_t kept, kept_high, used, used_high;
};

static void add_usage(struct pool_arena *arena, void *argument) {
  struct usage *sum = argument;
  sum->kept += arena->kept_bytes;
  sum->kept_high += arena->kept_high_bytes;
  sum->used += arena->used_bytes;
  sum->used_high += arena->used_high_bytes;
}

bool pump_pool_usage(CUmemoryPool pool, CUmemPool_attribute attribute, uint64_t *bytes) {
  if (attribute < CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT ||
      attribute > CU_MEMPOOL_ATTR_USED_MEM_HIGH)
    return false;
  struct usage sum = {0};
  each_arena(pool, add_usage, &sum);
  const uint64_t ours[] = {sum.kept, sum.kept_high, sum.used, sum.used_high};
  *bytes = ours[attribute - CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT];
  return true;
}

/* Applies an attribute that the program has set: resets a high-water mark, or reads the
 * release threshold again. */
static void apply_attribute(struct pool_arena *arena, void *argument) {
  CUmemPool_attribute attribute = *(CUmemPool_attribute *)argument;
  if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)
    arena->kept_high_bytes = arena->kept_bytes;
  if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
    arena->used_high_bytes = arena->used_bytes;
  if (attribute != CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) return;
  arena->threshold_bytes = threshold_of(arena->pool);
  PUMP_STORE(&pump_pool_keeps, 1);
}

void pump_pool_apply_attribute(CUmemoryPool pool, CUmemPool_attribute attribute) {
  each_arena(pool, apply_attribute, &attribute);
}

void pump_pool_warn_of_sharing(void) {
  static uint32_t said;
  pump_log_once(&said, PUMP_LOG_WARNING,
                "memory of a pool that processes share stays device memory and cannot "
                "exceed the GPU, because CUDA cannot share managed memory");
}
