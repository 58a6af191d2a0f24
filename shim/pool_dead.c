/* pool_dead.c - memory of the pool that nobody owns: kept from being copied about.
 *
 * DESIGN. The driver does not know that a freed block's contents are worthless; it would
 * write them back to the host to make room, and fetch them again. Telling it (discard)
 * changes data, so it happens only in quarantine:
 *
 *   freed for QUARANTINE_NS, in whole blocks of 2 MiB, in a piece that is clean: every
 *     operation of its last owners has executed, by events
 *   set aside under the pool's lock: nobody can be given it
 *   its range closed to executors, and none at work on it
 *   until the event behind the discard has completed
 *
 * It runs in the device's marker thread, and only while the device is oversubscribed.
 *
 * Before such memory is handed out again it is migrated to the GPU, explicitly: that
 * alone ends the discard for both kinds of discard that the driver has (after one of them
 * a mere write would not, and an eviction would drop it). The prefetch runs on a stream of
 * our own, and the stream that gets the memory is made to wait for it. It waits for
 * nothing but what we have submitted, so it cannot hold a program up for good.
 *
 * Where the driver cannot discard, dead memory is copied as any other.
 */
#include "act.h"
#include "pool_state.h"

#define QUARANTINE_NS 30000000u
#define TICK_NS 3000000u

/* Taken under pool_lock by who wakes memory, held until it is submitted: so whoever sees
 * memory marked as awake, and comes here after, finds the event behind it. */
static pthread_mutex_t wake_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- quarantine: the marker thread alone -------------------------------------- */

static bool open_stream(struct pool_dead *dead) {
  if (dead->stream != NULL) return true;
  if (pump_real.cuStreamCreate(&dead->stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS &&
      pump_real.cuEventCreate(&dead->done, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS &&
      pump_real.cuEventCreate(&dead->awake, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS)
    return true;
  PUMP_STORE(&dead->broken, true); /* what was made stays with the context */
  return false;
}

/* Puts back what nobody may stay away from any longer. */
static void release(struct pool_dead *dead, uint32_t i, bool discarded) {
  struct pool_piece_node *piece = dead->pieces[i];
  pump_slot_open(piece->segment->slot);
  if (discarded)
    pump_event_block(PUMP_EVENT_DISCARDED, piece->segment->slot,
                     piece->base - piece->segment->base, piece->length_bytes);
  pool_unset_aside(piece, discarded);
}

/* Under the lock: what is to be discarded, closed to executors. */
static void gather(struct pool_arena *arena, uint64_t now_ns) {
  struct pool_dead *dead = &arena->dead;
  pool_poll(arena);
  uint32_t count =
      pool_set_aside(arena, now_ns - QUARANTINE_NS, dead->pieces, POOL_DEAD_MOST);
  dead->count = 0;
  for (uint32_t i = 0; i < count; i++) {
    struct pool_piece_node *piece = dead->pieces[i];
    if (pump_slot_close(piece->segment->slot)) {
      dead->pieces[dead->count++] = piece;
    } else { /* an executor is at work there: another time */
      pump_slot_open(piece->segment->slot);
      pool_unset_aside(piece, false);
    }
  }
}

static bool submit(struct pool_dead *dead) {
  CUdeviceptr addresses[POOL_DEAD_MOST];
  size_t lengths[POOL_DEAD_MOST];
  for (uint32_t i = 0; i < dead->count; i++) {
    addresses[i] = dead->pieces[i]->base;
    lengths[i] = dead->pieces[i]->length_bytes;
  }
  if (pump_real.cuMemDiscardBatchAsync(addresses, lengths, dead->count, 0, dead->stream) !=
      CUDA_SUCCESS)
    return false;
  return pump_real.cuEventRecord(dead->done, dead->stream) == CUDA_SUCCESS ||
         pump_real.cuStreamSynchronize(dead->stream) == CUDA_SUCCESS;
}

/* A device may be active for another reason: because a trace is recorded. */
static bool oversubscribed(uint32_t device) {
  const struct pump_device *d = &pump_shm->devices[device];
  return PUMP_LOAD(&d->allocated_bytes) + PUMP_LOAD(&d->plain_bytes) >
         PUMP_LOAD(&d->budget_bytes);
}

/* Under the lock, which is released meanwhile. */
static void begin(struct pool_arena *arena, uint64_t now_ns) {
  struct pool_dead *dead = &arena->dead;
  if (PUMP_LOAD(&dead->broken) || !PUMP_HAS(cuMemDiscardBatchAsync) ||
      !oversubscribed(arena->device) || !open_stream(dead))
    return;
  gather(arena, now_ns);
  if (dead->count == 0) return;
  dead->submitted = false;
  pthread_mutex_unlock(&pool_lock);
  bool submitted = submit(dead);
  pthread_mutex_lock(&pool_lock);
  dead->submitted = submitted;
  if (submitted) return;
  PUMP_STORE(&dead->broken, true);
  /* The driver may have discarded some of it before it failed: to be woken in any case. */
  for (uint32_t i = 0; i < dead->count; i++) release(dead, i, true);
  dead->count = 0;
}

static void end(struct pool_dead *dead) {
  if (pump_real.cuEventQuery(dead->done) == CUDA_ERROR_NOT_READY) return;
  for (uint32_t i = 0; i < dead->count; i++) {
    PUMP_ADD(&pump_shm->shim_counters.discarded_bytes, dead->pieces[i]->length_bytes);
    release(dead, i, true);
  }
  dead->count = 0;
}

static void see_awake(struct pool_dead *dead) {
  if (pthread_mutex_trylock(&wake_lock) != 0) return; /* another time */
  if (dead->awake_recorded != dead->awake_complete &&
      pump_real.cuEventQuery(dead->awake) == CUDA_SUCCESS)
    dead->awake_complete = dead->awake_recorded;
  pthread_mutex_unlock(&wake_lock);
}

bool pump_pool_dead_due(CUcontext context, uint64_t now_ns) {
  bool due = false;
  pthread_mutex_lock(&pool_lock);
  for (uint32_t i = 0; i < POOL_ARENAS && pool_arena_at(i) != NULL; i++) {
    const struct pool_arena *arena = pool_arena_at(i);
    due |= arena->context == context && now_ns - arena->dead.tick_ns >= TICK_NS;
  }
  pthread_mutex_unlock(&pool_lock);
  return due;
}

void pump_pool_dead_tick(CUcontext context, uint64_t now_ns) {
  pthread_mutex_lock(&pool_lock);
  for (uint32_t i = 0; i < POOL_ARENAS && pool_arena_at(i) != NULL; i++) {
    struct pool_arena *arena = pool_arena_at(i);
    if (arena->context != context) continue;
    arena->dead.tick_ns = now_ns;
    if (arena->dead.count != 0)
      end(&arena->dead);
    else
      begin(arena, now_ns);
    see_awake(&arena->dead);
  }
  pthread_mutex_unlock(&pool_lock);
}

void pump_pool_dead_leave(CUcontext context) {
  pthread_mutex_lock(&pool_lock);
  for (uint32_t i = 0; i < POOL_ARENAS && pool_arena_at(i) != NULL; i++) {
    struct pool_arena *arena = pool_arena_at(i);
    if (arena->context == context) pool_dead_finish(&arena->dead);
  }
  pthread_mutex_unlock(&pool_lock);
}

/* ---- awakening: the thread that allocates --------------------------------------- */

static CUresult prefetch(struct pool_arena *arena, uint64_t address, uint64_t bytes) {
  CUdevice device = (CUdevice)arena->device;
  CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
  if (PUMP_HAS(cuMemPrefetchAsync_v2))
    return pump_real.cuMemPrefetchAsync_v2(address, bytes, location, 0, arena->dead.stream);
  return pump_real.cuMemPrefetchAsync(address, bytes, device, arena->dead.stream);
}

enum pool_wake pool_wake_begin(struct pool_arena *arena,
                               const struct pool_piece_node *piece,
                               struct pool_span *span) {
  struct pool_dead *dead = &arena->dead;
  if (dead->stream == NULL) return POOL_AWAKE;
  enum pool_wake wake =
      pool_wake_pages(piece, dead->awake_complete, dead->awake_marked + 1, span);
  if (wake == POOL_ASLEEP) dead->awake_marked++;
  if (wake != POOL_AWAKE) pthread_mutex_lock(&wake_lock);
  return wake;
}

/* Numbers come here in order. One that has failed is followed by failures alone: a later
 * event would pass for its own. */
bool pool_wake_end(struct pool_arena *arena, enum pool_wake wake, uint32_t slot,
                   const struct pool_span *span, CUstream handle) {
  struct pool_dead *dead = &arena->dead;
  if (wake == POOL_ASLEEP && span->number == dead->awake_recorded + 1 &&
      prefetch(arena, span->begin, span->length_bytes) == CUDA_SUCCESS &&
      pump_real.cuEventRecord(dead->awake, dead->stream) == CUDA_SUCCESS) {
    dead->awake_recorded = span->number;
    pump_event_block(PUMP_EVENT_POPULATED, slot, span->offset_bytes, span->length_bytes);
  } else if (wake == POOL_ASLEEP) {
    PUMP_STORE(&dead->broken, true);
  }
  bool done = dead->awake_recorded >= span->number &&
              pump_real.cuStreamWaitEvent(handle, dead->awake, 0) == CUDA_SUCCESS;
  pthread_mutex_unlock(&wake_lock);
  return done;
}

void pool_dead_finish(struct pool_dead *dead) {
  if (dead->count == 0 || !dead->submitted) return;
  pump_real.cuEventSynchronize(dead->done);
  end(dead);
}

void pool_dead_forget(struct pool_dead *dead) {
  for (uint32_t i = 0; i < dead->count; i++) pump_slot_open(dead->pieces[i]->segment->slot);
  dead->count = 0;
}

void pool_dead_fork_child(void) {
  pthread_mutex_init(&wake_lock, NULL);
}
