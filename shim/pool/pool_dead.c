/* pool_dead.c - memory of the pool without an owner: discards it, so that the driver does
 * not copy it.
 *
 * DESIGN. The driver does not know that a freed block's contents are worthless; it would
 * write them back to the host to make room, and fetch them again. A discard changes data,
 * so it happens only in quarantine:
 *
 * - in whole blocks of 2 MiB, in a piece that is clean: every operation of its last owners
 *   has executed, by events;
 * - freed POOL_LONG_NS ago, or, where memory is scarce, so many handed-out bytes ago that
 *   its owner will not soon get it back (hot_bytes);
 * - not where places are used (pool_period.c): its next owner comes for just that;
 * - set aside under the pool's lock, so that it cannot be handed out;
 * - with its range closed to executors, and none at work on it, until the event behind the
 *   discard has completed.
 *
 * It runs in the device's marker thread, and only while the device is oversubscribed.
 * Where that is by much (judge in pool_serve.c) memory is freed with an event behind
 * it, an event (FREED) goes to the worker, so that it does not choose it meanwhile, and a
 * stream is given back only what it has just freed: a program runs ahead of the GPU, and
 * memory that it got back before the GPU is done with it could not be discarded between
 * the two owners (pool_serve.c).
 *
 * Memory that was discarded is migrated to the GPU, explicitly, before it is used again:
 * that alone ends the discard for both kinds of discard that the driver has (after one of
 * them a mere write would not, and an eviction would drop it). A stream of ours does it,
 * the populator, in the order of the GPU: behind the place where memory was repopulated for
 * the program's stream the last time, so in time and not a queue too early. Where memory is
 * not that scarce it is repopulated at once, and an event (POPULATED) goes to the worker:
 * no kernel waits for it then. The program's stream is made to wait for it. Neither waits
 * for anything that the program's stream does not wait for itself, so there is no deadlock:
 * at any time the populator works for one of the program's streams only. While it is for
 * another one, memory is repopulated in the program's stream itself. An owner that shares a
 * block with memory that another stream had repopulated repopulates it once more, until
 * that is known to have executed, which changes nothing there.
 *
 * Where the driver cannot discard, dead memory is copied as any other, and one line says
 * so.
 */
#include "pool_state.h"

/* Without the lock: a log may be slow. */
static void say_copied(void) {
  static uint32_t said;
  pump_log_once(&said, PUMP_LOG_WARNING,
                "this driver cannot discard memory, so evictions also copy freed memory; "
                "drivers since 580 can");
}

/* ---- quarantine: the marker thread alone -------------------------------------- */

static bool open_stream(struct pool_dead *dead) {
  if (dead->stream != NULL) return true;
  if (pump_stream_make(&dead->stream) == CUDA_SUCCESS &&
      pump_real.cuEventCreate(&dead->done, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS)
    return true;
  PUMP_STORE(&dead->broken, true); /* what was made stays with the context */
  return false;
}

/* Puts back what may be handed out again. */
static void release(struct pool_dead *dead, uint32_t i, bool discarded) {
  struct pool_piece_node *piece = dead->pieces[i];
  pump_slot_open(piece->segment->slot);
  if (discarded)
    pump_event_block(PUMP_EVENT_DISCARDED, piece->segment->slot,
                     piece->base - piece->segment->base, piece->length_bytes);
  pool_unset_aside(piece, discarded);
}

/* Under the lock: sets aside what is to be discarded, and closes it to executors. */
static void gather(struct pool_arena *arena, uint64_t now_ns) {
  struct pool_dead *dead = &arena->dead;
  pool_poll(arena);
  uint32_t count =
      pool_set_aside(arena, now_ns - POOL_LONG_NS, dead->pieces, POOL_DEAD_MOST);
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

bool pool_saves(const struct pool_arena *arena) {
  return !PUMP_LOAD(&arena->dead.broken) && PUMP_HAS(cuMemDiscardBatchAsync) &&
         oversubscribed(arena->device);
}

/* Under the lock, which is released meanwhile. */
static void begin(struct pool_arena *arena, uint64_t now_ns) {
  struct pool_dead *dead = &arena->dead;
  if (!pool_saves(arena) || !open_stream(dead)) return;
  gather(arena, now_ns);
  if (dead->count == 0) return;
  dead->submitted = false;
  pool_unlock_busy();
  bool submitted = submit(dead);
  if (!submitted) say_copied();
  pool_lock_busy();
  dead->submitted = submitted;
  if (submitted) return;
  PUMP_STORE(&dead->broken, true);
  /* The driver may have discarded some of it before it failed: to be repopulated in any
   * case. */
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

static uint64_t tick_ns(const struct pool_arena *arena) {
  return arena->apart ? POOL_TICK_SOON_NS : POOL_TICK_NS;
}

bool pump_pool_dead_due(CUcontext context, uint64_t now_ns) {
  bool due = false;
  pthread_mutex_lock(&pool_lock);
  for (uint32_t i = 0; i < POOL_ARENAS && pool_arena_at(i) != NULL; i++) {
    const struct pool_arena *arena = pool_arena_at(i);
    due |= arena->context == context && now_ns - arena->dead.tick_ns >= tick_ns(arena);
  }
  pthread_mutex_unlock(&pool_lock);
  return due;
}

void pump_pool_dead_tick(CUcontext context, uint64_t now_ns) {
  bool lacks = false;
  pthread_mutex_lock(&pool_lock);
  for (uint32_t i = 0; i < POOL_ARENAS && pool_arena_at(i) != NULL; i++) {
    struct pool_arena *arena = pool_arena_at(i);
    if (arena->context != context) continue;
    arena->dead.tick_ns = now_ns;
    lacks |= !PUMP_HAS(cuMemDiscardBatchAsync) && oversubscribed(arena->device);
    if (arena->dead.count == 0) begin(arena, now_ns);
    if (arena->dead.count != 0) end(&arena->dead);
    if (oversubscribed(arena->device) && pool_period_came(arena)) pool_trim_spare(arena);
  }
  pthread_mutex_unlock(&pool_lock);
  if (lacks) say_copied();
}

void pump_pool_dead_leave(CUcontext context) {
  pthread_mutex_lock(&pool_lock);
  for (uint32_t i = 0; i < POOL_ARENAS && pool_arena_at(i) != NULL; i++) {
    struct pool_arena *arena = pool_arena_at(i);
    if (arena->context == context) pool_dead_finish(&arena->dead);
  }
  pthread_mutex_unlock(&pool_lock);
}

/* ---- repopulation: the thread that allocates --------------------------------------- */

/* Under the lock: makes the stream and the events for repopulation. What was made before a
 * failure stays with the context. */
static bool open_populator(struct pool_dead *dead, struct pool_stream *stream) {
  if (dead->populator == NULL && pump_stream_make(&dead->populator) != CUDA_SUCCESS) {
    dead->populator = NULL;
    return false;
  }
  if (stream->populated != NULL) return true;
  CUevent populated;
  if (pump_real.cuEventCreate(&stream->asked, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS ||
      pump_real.cuEventCreate(&populated, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
    return false;
  stream->populated = populated;
  return true;
}

/* Under the lock: the populator, to be given back, or NULL while it works for another
 * stream.
 */
static CUstream take_populator(struct pool_dead *dead, uint32_t stream) {
  if (dead->populator_stream != stream &&
      (dead->populator_calls != 0 ||
       pump_real.cuStreamQuery(dead->populator) != CUDA_SUCCESS))
    return NULL;
  dead->populator_stream = stream;
  dead->populator_calls++;
  return dead->populator;
}

/* Without the lock. Should two threads share the stream, one may take the other's event:
 * that is a later one of the same two streams, so no wait becomes circular. */
static bool repopulate(const struct pool_arena *arena, const struct pool_stream *by,
                       CUstream populator, uint64_t address, uint64_t bytes,
                       CUstream handle, bool at_once) {
  if (populator == NULL)
    return pump_real.cuEventRecord(by->asked, handle) == CUDA_SUCCESS &&
           pump_prefetch(arena->device, true, address, bytes, handle) == CUDA_SUCCESS;
  return (at_once ||
          pump_real.cuStreamWaitEvent(populator, by->asked, 0) == CUDA_SUCCESS) &&
         pump_real.cuEventRecord(by->asked, handle) == CUDA_SUCCESS &&
         pump_prefetch(arena->device, true, address, bytes, populator) == CUDA_SUCCESS &&
         pump_real.cuEventRecord(by->populated, populator) == CUDA_SUCCESS &&
         pump_real.cuStreamWaitEvent(handle, by->populated, 0) == CUDA_SUCCESS;
}

/* Where it fails, the blocks stay marked as discarded for their next owner. */
bool pool_repopulate(struct pool_arena *arena, uint32_t stream, uint64_t base,
                     const struct pool_span *span, struct pump_at at) {
  struct pool_dead *dead = &arena->dead;
  struct pool_stream *by = &arena->streams[stream - 1];
  struct pump_hit hit;
  CUstream populator = NULL;
  pthread_mutex_lock(&pool_lock);
  bool done = pump_range_lookup(base, &hit) && open_populator(dead, by);
  bool at_once = !arena->apart;
  if (done) populator = take_populator(dead, stream);
  pthread_mutex_unlock(&pool_lock);
  done = done && repopulate(arena, by, populator, hit.base + span->offset_bytes,
                            span->length_bytes, at.stream, at_once);
  if (!done) PUMP_STORE(&dead->broken, true);
  if (done && at_once)
    pump_event_block(PUMP_EVENT_POPULATED, hit.slot, span->offset_bytes,
                     span->length_bytes);
  pthread_mutex_lock(&pool_lock);
  if (populator != NULL) dead->populator_calls--;
  struct pool_piece_node *piece = pool_live_at(base);
  uint32_t same = pool_stream_number(arena, at);
  /* It counts as one of the stream's frees: an event will show when it has executed. */
  if (done && piece != NULL && same == stream)
    pool_repopulated(piece, span, stream, ++by->frees);
  pthread_mutex_unlock(&pool_lock);
  return done && piece != NULL && same == stream;
}

void pool_dead_poll(struct pool_dead *dead) {
  if (dead->count != 0 && dead->submitted) end(dead);
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
