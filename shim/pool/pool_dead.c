/* pool_dead.c - discards pool memory without an owner, so that the driver does not copy
 * it.
 *
 * DESIGN. The driver does not know that a freed block's contents are worthless. It would
 * write them back to the host to free GPU memory, and fetch them again. A discard changes
 * data, so it happens only in quarantine.
 *
 * Quarantine takes whole blocks of 2 MiB in clean pieces: every operation of the last
 * owners has executed, as events show. The blocks were freed POOL_LONG_NS ago; or, if
 * memory is scarce, hot_bytes were handed out since, so that their owner will not get
 * them back soon. While places are used (pool_cycle.c), their memory is not taken,
 * because the owners come back for it. A piece is set aside under the pool's lock, so
 * that it cannot be handed out. Its range is closed to executors, and none works on it,
 * until the event after the discard has completed.
 *
 * This runs in the device's marker thread, only while the device is oversubscribed. If
 * memory is very scarce (judge in pool_serve.c), each free records a CUDA event, and a
 * FREED event goes to the worker, so that it does not choose that memory. A stream then
 * gets back only memory that it has just freed. The reason: a program runs ahead of the
 * GPU. Memory that it got back before the GPU was done with it could not be discarded
 * between its two owners (pool_serve.c).
 *
 * Before discarded memory is used again, it is explicitly migrated to the GPU. Only that
 * ends both kinds of discard of the driver: after one of them a write would not, and an
 * eviction would drop the data. A stream of ours does this, the populator. It starts when
 * the GPU has reached the last repopulation for the program's stream: in time, and not a
 * launch queue too early. If memory is less scarce, it is repopulated at once, and a
 * POPULATED event goes to the worker, so that no kernel waits for it. The program's
 * stream waits for the populator. Neither waits for anything that the program's stream
 * does not wait for itself, so there is no deadlock. At any time the populator works for
 * only one of the program's streams. While it works for another one, memory is
 * repopulated in the program's stream itself. A block may be shared with memory that
 * another stream has repopulated. Its new owner then repopulates it again, unless that is
 * known to have executed; this changes nothing there.
 *
 * If the driver cannot discard, dead memory is copied like any other, and one line
 * reports it.
 */
#include "pool_state.h"

/* Warns, without the lock, because logging may be slow. */
static void say_copied(void) {
  static uint32_t said;
  pump_log_once(&said, PUMP_LOG_WARNING,
                "this driver cannot discard memory, so evictions also copy freed memory; "
                "drivers since 580 can");
}

/* ---- quarantine: only for the marker thread ----------------------------------- */

static bool open_stream(struct pool_dead *dead) {
  if (dead->stream != NULL) return true;
  if (pump_stream_make(&dead->stream) == CUDA_SUCCESS &&
      pump_real.cuEventCreate(&dead->done, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS)
    return true;
  PUMP_STORE(&dead->broken, true); /* what was made stays with the context */
  return false;
}

/* Ends the quarantine of a piece, which may be handed out again. */
static void end_quarantine_of(struct pool_dead *dead, uint32_t i, bool discarded) {
  struct pool_piece_node *piece = dead->pieces[i];
  pump_slot_open(piece->segment->slot);
  if (discarded)
    pump_event_block(PUMP_EVENT_DISCARDED, piece->segment->slot,
                     piece->base - piece->segment->base, piece->length_bytes);
  pool_end_quarantine(piece, discarded);
}

/* Sets aside pieces to discard, and closes them to executors. Requires the lock. */
static void gather_pieces(struct pool_arena *arena, uint64_t now_ns) {
  struct pool_dead *dead = &arena->dead;
  PUMP_ASSERT(dead->count == 0, "an arena has one quarantine at a time");
  pool_poll(arena);
  uint32_t count =
      pool_quarantine(arena, now_ns - POOL_LONG_NS, dead->pieces, POOL_DEAD_MOST);
  dead->count = 0;
  for (uint32_t i = 0; i < count; i++) {
    struct pool_piece_node *piece = dead->pieces[i];
    if (pump_slot_close(piece->segment->slot)) {
      dead->pieces[dead->count++] = piece;
    } else { /* an executor is working there: later */
      pump_slot_open(piece->segment->slot);
      pool_end_quarantine(piece, false);
    }
  }
}

static bool submit_discard(struct pool_dead *dead) {
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

/* Returns whether memory exceeds the budget; a recorded trace makes a device active too. */
static bool oversubscribed(uint32_t device) {
  const struct pump_device *d = &pump_shm->devices[device];
  return PUMP_LOAD(&d->allocated_bytes) + PUMP_LOAD(&d->plain_bytes) >
         PUMP_LOAD(&d->budget_bytes);
}

bool pool_discards_dead(const struct pool_arena *arena) {
  return !PUMP_LOAD(&arena->dead.broken) && PUMP_HAS(cuMemDiscardBatchAsync) &&
         oversubscribed(arena->device);
}

/* Begins a quarantine. Requires the lock, and releases it in between. */
static void begin_quarantine(struct pool_arena *arena, uint64_t now_ns) {
  struct pool_dead *dead = &arena->dead;
  if (!pool_discards_dead(arena) || !open_stream(dead)) return;
  gather_pieces(arena, now_ns);
  if (dead->count == 0) return;
  dead->submitted = false;
  pool_suspend_lock();
  bool submitted = submit_discard(dead);
  if (!submitted) say_copied();
  pool_resume_lock();
  dead->submitted = submitted;
  if (submitted) return;
  PUMP_STORE(&dead->broken, true);
  /* The driver may have discarded a part before it failed, so all of it needs to be
   * repopulated. */
  for (uint32_t i = 0; i < dead->count; i++) end_quarantine_of(dead, i, true);
  dead->count = 0;
}

static void end_quarantine_if_done(struct pool_dead *dead) {
  PUMP_ASSERT(dead->submitted, "a quarantine ends after its discard was submitted");
  if (pump_real.cuEventQuery(dead->done) == CUDA_ERROR_NOT_READY) return;
  for (uint32_t i = 0; i < dead->count; i++) {
    PUMP_ADD(&pump_shm->shim_counters.discarded_bytes, dead->pieces[i]->length_bytes);
    end_quarantine_of(dead, i, true);
  }
  dead->count = 0;
}

static uint64_t tick_ns(const struct pool_arena *arena) {
  return arena->apart ? POOL_TICK_SOON_NS : POOL_TICK_NS;
}

bool pump_pool_discard_is_due(CUcontext context, uint64_t now_ns) {
  bool due = false;
  pthread_mutex_lock(&pool_lock);
  for (uint32_t i = 0; i < POOL_ARENAS && pool_arena_at(i) != NULL; i++) {
    const struct pool_arena *arena = pool_arena_at(i);
    due |= arena->context == context && now_ns - arena->dead.tick_ns >= tick_ns(arena);
  }
  pthread_mutex_unlock(&pool_lock);
  return due;
}

void pump_pool_discard_dead(CUcontext context, uint64_t now_ns) {
  bool lacks = false;
  pthread_mutex_lock(&pool_lock);
  for (uint32_t i = 0; i < POOL_ARENAS && pool_arena_at(i) != NULL; i++) {
    struct pool_arena *arena = pool_arena_at(i);
    if (arena->context != context) continue;
    arena->dead.tick_ns = now_ns;
    lacks |= !PUMP_HAS(cuMemDiscardBatchAsync) && oversubscribed(arena->device);
    if (arena->dead.count == 0) begin_quarantine(arena, now_ns);
    if (arena->dead.count != 0) end_quarantine_if_done(&arena->dead);
    if (oversubscribed(arena->device) && pool_cycle_is_confirmed(arena))
      pool_trim_spare(arena);
  }
  pthread_mutex_unlock(&pool_lock);
  if (lacks) say_copied();
}

void pump_pool_finish_discards(CUcontext context) {
  pthread_mutex_lock(&pool_lock);
  for (uint32_t i = 0; i < POOL_ARENAS && pool_arena_at(i) != NULL; i++) {
    struct pool_arena *arena = pool_arena_at(i);
    if (arena->context == context) pool_dead_finish(&arena->dead);
  }
  pthread_mutex_unlock(&pool_lock);
}

/* ---- repopulation, by the thread that allocates ------------------------------------ */

/* Makes the stream and the events for repopulation. Objects made before a failure stay
 * with the context. Requires the lock. */
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

/* Reserves the populator for a repopulation in the order of `stream`; NULL while it works
 * for another stream. The caller decrements populator_calls after it. Requires the lock. */
static CUstream reserve_populator(struct pool_dead *dead, uint32_t stream) {
  if (dead->populator_stream != stream &&
      (dead->populator_calls != 0 ||
       pump_real.cuStreamQuery(dead->populator) != CUDA_SUCCESS))
    return NULL;
  PUMP_ASSERT(dead->populator_calls == 0 || dead->populator_stream == stream,
              "the populator works for one stream at a time");
  dead->populator_stream = stream;
  dead->populator_calls++;
  return dead->populator;
}

/* Repopulates memory, without the lock. If two threads share the stream, each may take
 * the other's event: a later one of the same two streams, so no wait becomes circular. */
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

/* If this fails, the blocks stay marked as discarded for their next owner. */
bool pool_repopulate(struct pool_arena *arena, uint32_t stream, uint64_t base,
                     const struct pool_span *span, struct pump_at at) {
  struct pool_dead *dead = &arena->dead;
  struct pool_stream *by = &arena->streams[stream - 1];
  struct pump_hit hit;
  CUstream populator = NULL;
  pthread_mutex_lock(&pool_lock);
  bool done = pump_range_lookup(base, &hit) && open_populator(dead, by);
  bool at_once = !arena->apart;
  if (done) populator = reserve_populator(dead, stream);
  pthread_mutex_unlock(&pool_lock);
  done = done && repopulate(arena, by, populator, hit.base + span->offset_bytes,
                            span->length_bytes, at.stream, at_once);
  if (!done) PUMP_STORE(&dead->broken, true);
  if (done && at_once)
    pump_event_block(PUMP_EVENT_POPULATED, hit.slot, span->offset_bytes,
                     span->length_bytes);
  pthread_mutex_lock(&pool_lock);
  PUMP_ASSERT(populator == NULL || dead->populator_calls != 0, "its calls are counted");
  if (populator != NULL) dead->populator_calls--;
  struct pool_piece_node *piece = pool_live_at(base);
  uint32_t same = pool_stream_number(arena, at);
  /* It counts as a free of the stream: an event will show that it has executed. */
  if (done && piece != NULL && same == stream)
    pool_note_repopulated(piece, span, stream, ++by->frees);
  pthread_mutex_unlock(&pool_lock);
  return done && piece != NULL && same == stream;
}

void pool_dead_poll(struct pool_dead *dead) {
  if (dead->count != 0 && dead->submitted) end_quarantine_if_done(dead);
}

void pool_dead_finish(struct pool_dead *dead) {
  PUMP_ASSERT(pump_is_locked(&pool_lock), "pool_lock guards the quarantine");
  if (dead->count == 0 || !dead->submitted) return;
  pump_real.cuEventSynchronize(dead->done);
  end_quarantine_if_done(dead);
}

void pool_dead_forget(struct pool_dead *dead) {
  for (uint32_t i = 0; i < dead->count; i++) pump_slot_open(dead->pieces[i]->segment->slot);
  dead->count = 0;
}
