/* pool_serve.c - allocates and frees in stream order, and ends streams and contexts.
 *
 * A request tries a piece that its stream may use at once; then one that has become free
 * to all since; then a new segment. When memory is out, it takes a piece that another
 * stream has freed but not yet reached. Its stream is then made to wait for that (as the
 * driver's own pools do). Only after that the request is refused.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "mapped.h"
#include "pool_state.h"
#include "shim/memory/rules.h"

/* Other threads may take what a thread has got from the driver, so it tries again. */
#define GROW_ATTEMPTS 16

/* If dead memory is kept apart: the most address space of the arena, as a multiple of the
 * peak of live bytes. */
#define SPREAD 4

/* Freed memory is kept for the stream that freed it until the arena has handed out this
 * part of the budget (one divided by HOT_SHARE). */
#define HOT_SHARE 4
#define SCARCE_HALVES 3

pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t none_busy = PTHREAD_COND_INITIALIZER;
static uint32_t busy; /* threads between pool_suspend_lock and pool_resume_lock */
static struct pool_arena *arenas[POOL_ARENAS]; /* under pool_lock; reused */

void pool_suspend_lock(void) {
  busy++;
  pthread_mutex_unlock(&pool_lock);
}

void pool_resume_lock(void) {
  pthread_mutex_lock(&pool_lock);
  PUMP_ASSERT(busy != 0, "each pool_resume_lock follows a pool_suspend_lock");
  if (--busy == 0) pthread_cond_broadcast(&none_busy);
}

struct pool_arena *pool_arena_of(CUmemoryPool pool, CUcontext context, uint32_t device,
                                 bool make) {
  struct pool_arena *unused = NULL, *orphan = NULL;
  for (uint32_t i = 0; i < POOL_ARENAS; i++) {
    if (arenas[i] == NULL) {
      if (unused != NULL || !make) break;
      unused = arenas[i] = calloc(1, sizeof **arenas);
      break;
    }
    if (arenas[i]->context == NULL) unused = arenas[i];
    if (arenas[i]->context != context) continue;
    if (arenas[i]->pool == pool) return arenas[i];
    /* An arena of a destroyed pool without memory. Its streams and events serve the next
     * pool. */
    if (arenas[i]->pool == NULL && arenas[i]->segments == NULL) orphan = arenas[i];
  }
  if (orphan != NULL) unused = orphan;
  if (!make || unused == NULL) return NULL;
  unused->pool = pool;
  unused->context = context;
  unused->device = device;
  pool_usage_begin(unused);
  return unused;
}

struct pool_arena *pool_arena_at(uint32_t i) {
  return arenas[i];
}

void pool_trim_device(uint32_t device, bool all) {
  for (uint32_t i = 0; i < POOL_ARENAS && arenas[i] != NULL; i++) {
    struct pool_arena *arena = arenas[i];
    if (arena->context == NULL || arena->device != device) continue;
    if (!all && arena->pool != NULL) continue;
    pool_catch_up(arena);
    if (all) pool_dead_finish(&arena->dead);
    pool_trim(arena, 0);
  }
}

/* Judges how scarce memory is. Requires the lock. Discarding every dead block has a
 * price: each is populated again for its next owner. That pays if the peak of live bytes
 * exceeds SCARCE_HALVES halves of the budget. Places by lifetimes leave fewer blocks dead
 * for long, which pays if the peak fits. */
static void judge_scarcity(struct pool_arena *arena) {
  PUMP_ASSERT(pump_is_locked(&pool_lock), "pool_lock guards the arenas");
  const struct pump_device *device = &pump_shm->devices[arena->device];
  uint64_t budget_bytes = PUMP_LOAD(&device->budget_bytes);
  uint64_t taken_bytes =
      PUMP_LOAD(&device->allocated_bytes) + PUMP_LOAD(&device->plain_bytes);
  uint64_t most_bytes = taken_bytes + arena->peak_bytes; /* includes reserved_bytes */
  bool apart = pool_discards_dead(arena) &&
               most_bytes > arena->reserved_bytes + budget_bytes / 2 * SCARCE_HALVES;
  if (arena->apart && !apart) pool_join_all(arena);
  arena->apart = apart;
  arena->places = most_bytes <= arena->reserved_bytes + budget_bytes;
  if (!arena->places) pool_cycle_pause(arena);
  arena->hot_bytes = budget_bytes / HOT_SHARE;
}

/* ---- allocate ------------------------------------------------------------------- */

struct request {
  struct pool_arena *arena;
  uint32_t stream, kind;
  uint64_t length_bytes, requested_bytes;
};

static struct pool_piece_node *take_free(const struct request *request, bool hot) {
  struct pool_piece_node *piece = NULL;
  if (request->kind == POOL_LARGE)
    piece = pool_find_free(request->arena, POOL_SPARE, request->length_bytes,
                           request->stream, hot);
  if (piece == NULL)
    piece = pool_find_free(request->arena, request->kind, request->length_bytes,
                           request->stream, hot);
  return piece == NULL
             ? NULL
             : pool_hand_out(piece, request->length_bytes, request->requested_bytes);
}

/* Takes a piece that another stream has freed, and makes `handle` wait until that stream
 * gets there. An event must have been recorded after the free. */
static struct pool_piece_node *borrow(const struct request *request, CUstream handle) {
  struct pool_arena *arena = request->arena;
  if (!PUMP_HAS(cuStreamWaitEvent)) return NULL;
  for (uint32_t i = 0; i < arena->streams_used; i++) {
    struct pool_stream *other = &arena->streams[i];
    if (!other->used) continue;
    struct pool_piece_node *piece =
        pool_find_free(arena, request->kind, request->length_bytes, i + 1, false);
    if (piece == NULL || piece->stream != i + 1 || piece->order > other->covered) continue;
    for (uint32_t e = 0; e < other->events_count; e++) {
      const struct pool_event *event =
          &other->events[(other->events_first + e) & (POOL_EVENTS - 1)];
      if (event->order < piece->order) continue;
      if (pump_real.cuStreamWaitEvent(handle, event->event, 0) != CUDA_SUCCESS) return NULL;
      return pool_hand_out(piece, request->length_bytes, request->requested_bytes);
    }
  }
  return NULL;
}

/* Returns whether the arena may take more address space instead of reusing memory before
 * its discard. At most SPREAD times the peak of live bytes; half of the job's limit must
 * stay for others. */
static bool may_spread(const struct request *request) {
  const struct pool_arena *arena = request->arena;
  uint64_t left, whole, bytes = request->length_bytes;
  if (bytes < POOL_SEGMENT_LARGE_BYTES) bytes = POOL_SEGMENT_LARGE_BYTES;
  if (arena->reserved_bytes + bytes > SPREAD * arena->peak_bytes) return false;
  pump_limit_read(&left, &whole);
  return left > bytes && left - bytes >= whole / 2;
}

/* Obtains memory whose last use the GPU has executed, or that was just freed, or NULL.
 * Memory that was freed earlier, with a pending last use, could not be discarded if it
 * were handed out. Requires the lock, and releases it in between. */
static struct pool_piece_node *obtain_clean(struct request *request, struct pump_at at) {
  struct pool_piece_node *piece = take_free(request, true);
  if (piece != NULL) return piece;
  pool_poll(request->arena);
  piece = take_free(request, true);
  if (piece != NULL) return piece;
  if (!may_spread(request)) return NULL;
  pool_grow(request->arena, request->kind, request->length_bytes);
  request->stream = pool_stream_number(request->arena, at);
  return request->stream == 0 ? NULL : take_free(request, true);
}

/* Returns whether the arena has taken more address space than if everything fitted. */
static bool is_spread(const struct pool_arena *arena) {
  return arena->reserved_bytes > 2 * arena->peak_bytes;
}

static bool is_pending(const struct pool_arena *arena) {
  bool pending = false;
  for (uint32_t i = 0; i < arena->streams_used; i++)
    pending |= arena->streams[i].used && arena->streams[i].events_count != 0;
  return pending;
}

/* Waits for the GPU to execute frees, so that whole segments can go back. Called before a
 * request is refused because the arena has too much address space. The wait is bounded,
 * because the GPU may wait for this thread. Requires the lock, and releases it during the
 * wait. */
static struct pool_piece_node *obtain_late(struct request *request, struct pump_at at) {
  struct pool_arena *arena = request->arena;
  struct pool_piece_node *piece = NULL;
  pool_catch_up(arena);
  for (uint32_t wait = 0; wait < POOL_WAITS && piece == NULL && is_pending(arena); wait++) {
    pthread_mutex_unlock(&pool_lock);
    nanosleep(&(struct timespec){.tv_nsec = POOL_WAIT_NS}, NULL);
    pthread_mutex_lock(&pool_lock);
    pool_poll(arena);
    pool_join_all(arena);
    int why = pool_grow(arena, request->kind, request->length_bytes);
    request->stream = pool_stream_number(arena, at);
    if (request->stream == 0 || (why != 0 && why != -ENOMEM)) break;
    piece = take_free(request, false);
  }
  return piece;
}

/* Obtains memory. Requires the lock, and releases it during driver calls for more. */
static struct pool_piece_node *obtain(struct request *request, struct pump_at at,
                                      int *why) {
  struct pool_arena *arena = request->arena;
  struct pool_piece_node *piece = arena->apart ? obtain_clean(request, at) : NULL;
  *why = 0;
  if (piece == NULL && request->stream == 0) *why = -EAGAIN;
  if (piece == NULL && *why == 0) piece = take_free(request, false);
  if (piece != NULL || *why != 0) return piece;
  pool_poll(arena);
  pool_dead_poll(&arena->dead);
  if (arena->apart) pool_join_all(arena);
  piece = take_free(request, false);
  if (piece != NULL) return piece;
  for (int attempt = 0; piece == NULL && *why == 0 && attempt < GROW_ATTEMPTS; attempt++) {
    *why = pool_grow(request->arena, request->kind, request->length_bytes);
    /* Other threads may have taken the stream's entry since, or freed or taken memory. */
    request->stream = pool_stream_number(request->arena, at);
    if (request->stream == 0) *why = -EAGAIN;
    if (request->stream != 0) piece = take_free(request, false);
  }
  if (piece == NULL && *why == 0) *why = -EAGAIN;
  if (piece == NULL && *why == -ENOMEM) {
    pool_cycle_drop(arena); /* all segments may serve */
    piece = borrow(request, at.stream);
  }
  if (piece == NULL && *why == -ENOMEM && is_spread(arena))
    piece = obtain_late(request, at);
  return piece;
}

/* Obtains memory like obtain; a large request first tries the place of its cycle. */
static struct pool_piece_node *serve(struct request *request, struct pump_at at, int *why) {
  if (request->kind == POOL_SMALL || !request->arena->places)
    return obtain(request, at, why);
  uint64_t number;
  struct pool_piece_node *piece =
      pool_cycle_take(request->arena, request->stream, request->requested_bytes, &number);
  if (piece == NULL) piece = obtain(request, at, why);
  if (piece != NULL) pool_cycle_note_piece(piece, number);
  return piece;
}

/* Requires a driver scope. */
static bool allocate(CUdeviceptr *address, uint64_t bytes, CUmemoryPool pool,
                     struct pump_at at, CUcontext context, uint32_t device,
                     CUresult *result) {
  int why = -EAGAIN;
  struct pool_piece_node *piece = NULL;
  struct request request = {.length_bytes = pool_round(bytes), .requested_bytes = bytes};
  request.kind = request.length_bytes < POOL_LARGE_BYTES ? POOL_SMALL : POOL_LARGE;
  pthread_mutex_lock(&pool_lock);
  request.arena = pool_arena_of(pool, context, device, true);
  if (request.arena != NULL) {
    request.stream = pool_stream_number(request.arena, at);
    judge_scarcity(request.arena);
  }
  if (request.stream != 0) piece = serve(&request, at, &why);
  struct pool_span span = {0, 0};
  if (piece != NULL) {
    *address = piece->base;
    if (request.arena->dead.stream != NULL)
      span = pool_discarded_span(piece, request.stream);
  }
  pthread_mutex_unlock(&pool_lock);
  /* Memory that cannot be repopulated is never handed out again: the driver serves. */
  if (span.length_bytes != 0 &&
      !pool_repopulate(request.arena, request.stream, *address, &span, at))
    return false;
  if (piece == NULL && why == -ENOMEM) pump_limit_explain(device, request.length_bytes);
  *result = piece == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
  return piece != NULL || why == -ENOMEM;
}

bool pump_pool_allocate(CUdeviceptr *address, size_t bytes, CUmemoryPool pool,
                        struct pump_at at, CUresult *result) {
  CUcontext context = NULL;
  /* Only the rule for sizes counts here, because a library that needs device memory for
   * sharing does not allocate from a plain pool. */
  if (address == NULL || bytes == 0 || bytes > POOL_MOST_BYTES || pump_rule_by_size(bytes))
    return false;
  int device = pump_current_device(&context);
  if (device < 0 || context == NULL || !pump_device_converts((uint32_t)device))
    return false;
  struct pump_driver_scope scope = pump_driver_scope_open();
  bool served = !pump_capturing(at.stream) && pump_pool_serves(&pool, (uint32_t)device) &&
                allocate(address, bytes, pool, at, context, (uint32_t)device, result);
  pump_driver_scope_close(scope);
  return served;
}

/* ---- free ---------------------------------------------------------------------------- */

static bool in_pool(uint64_t address) {
  struct pump_hit hit;
  return pump_range_lookup(address, &hit) && hit.pool != NULL;
}

/* Returns the stream that has not executed the previous free, or 0. The last owner may
 * not have used the block, so its end does not show the end of the owner before it.
 * Requires the lock. */
static uint32_t earlier_owner(const struct pool_piece_node *piece) {
  if (piece->stream == 0) return 0;
  const struct pool_stream *by = &piece->segment->arena->streams[piece->stream - 1];
  return by->used && piece->order > by->completed ? piece->stream : 0;
}

/* Returns the number of a new free; of an ended stream its last, as no event follows. */
static uint64_t next_order(struct pool_stream *stream) {
  return stream->gone ? stream->frees : ++stream->frees;
}

/* Takes the block back, or returns an error if there is none. Requires the lock. */
static CUresult take_back(uint64_t address, struct pump_at *at, struct pool_arena **arena,
                          uint32_t *stream, uint32_t *slot, struct pool_span *died) {
  struct pool_piece_node *piece = pool_live_at(address);
  if (piece == NULL) return CUDA_ERROR_INVALID_VALUE;
  *arena = piece->segment->arena;
  *slot = piece->segment->slot;
  judge_scarcity(*arena);
  *stream = at == NULL ? earlier_owner(piece) : pool_stream_number(*arena, *at);
  if (at != NULL && *stream == 0) return CUDA_ERROR_NOT_READY;
  uint64_t order = *stream == 0 ? 0 : next_order(&(*arena)->streams[*stream - 1]);
  pool_cycle_note_free(piece);
  pool_take_back(piece, *stream, order, pump_now_ns(), died);
  return CUDA_SUCCESS;
}

static CUresult take_back_locked(uint64_t address, struct pump_at *at,
                                 struct pool_arena **arena, uint32_t *stream, bool *died) {
  struct pool_span span = {0, 0};
  uint32_t slot = 0;
  pthread_mutex_lock(&pool_lock);
  CUresult result = take_back(address, at, arena, stream, &slot, &span);
  *died = result == CUDA_SUCCESS && span.length_bytes != 0 && (*arena)->apart;
  if (*died) pump_event_block(PUMP_EVENT_FREED, slot, span.offset_bytes, span.length_bytes);
  pthread_mutex_unlock(&pool_lock);
  return result;
}

/* Waits for a stream that has no entry (of another context, or beyond the table) and so
 * gets no events, and frees then. */
static CUresult take_back_waiting(uint64_t address, struct pump_at at) {
  struct pool_arena *arena;
  uint32_t stream;
  bool died;
  CUresult result = pump_real.cuStreamSynchronize(at.stream);
  return result == CUDA_SUCCESS ? take_back_locked(address, NULL, &arena, &stream, &died)
                                : result;
}

bool pump_pool_free_ordered(CUdeviceptr address, struct pump_at at, CUresult *result) {
  struct pool_arena *arena;
  uint32_t stream;
  bool died;
  if (!in_pool(address)) return false;
  struct pump_driver_scope scope = pump_driver_scope_open();
  if (pump_capturing(at.stream)) { /* only memory of the graph can be freed there */
    *result = CUDA_ERROR_INVALID_VALUE;
  } else {
    *result = take_back_locked(address, &at, &arena, &stream, &died);
    if (*result == CUDA_SUCCESS) pool_record_event(arena, stream, at.stream, died);
    if (*result == CUDA_ERROR_NOT_READY) *result = take_back_waiting(address, at);
  }
  pump_driver_scope_close(scope);
  return true;
}

bool pump_pool_free_now(CUdeviceptr address, CUresult *result) {
  struct pool_arena *arena;
  uint32_t stream;
  bool died;
  if (!in_pool(address)) return false;
  *result = take_back_locked(address, NULL, &arena, &stream, &died);
  return true;
}

void pump_pool_free_idle(uint32_t device) {
  struct pump_driver_scope scope = pump_driver_scope_open();
  pthread_mutex_lock(&pool_lock);
  do {
    while (busy != 0) pthread_cond_wait(&none_busy, &pool_lock);
    pool_trim_device(device, true);
  } while (busy != 0);
  pthread_mutex_unlock(&pool_lock);
  pump_driver_scope_close(scope);
}

/* ---- look-ups by address ------------------------------------------------------------- */

int pump_pool_piece(uint64_t address, uint64_t *base, uint64_t *length_bytes) {
  struct pump_hit hit;
  bool live;
  if (pump_mapped_piece(address, base, length_bytes, &live))
    return live ? PUMP_POOL_PIECE_LIVE : PUMP_POOL_PIECE_FREE;
  if (!pump_range_lookup(address, &hit) || hit.pool == NULL) return 0;
  struct pool_piece piece = pool_map_piece(hit.pool, address - hit.base);
  *base = hit.base + piece.offset_bytes;
  *length_bytes = piece.length_bytes;
  return piece.live ? PUMP_POOL_PIECE_LIVE : PUMP_POOL_PIECE_FREE;
}

bool pump_pool_find(uint64_t address, struct pump_pool_block *block) {
  uint64_t base, length_bytes;
  if (pump_pool_piece(address, &base, &length_bytes) != PUMP_POOL_PIECE_LIVE) return false;
  pthread_mutex_lock(&pool_lock);
  const struct pool_piece_node *piece = pool_live_at(base);
  if (piece != NULL)
    *block = (struct pump_pool_block){.base = piece->base,
                                      .requested_bytes = piece->requested_bytes,
                                      .pool = piece->segment->arena->pool};
  pthread_mutex_unlock(&pool_lock);
  return piece != NULL;
}

/* ---- ends ---------------------------------------------------------------------------- */

/* Ends a stream in one arena, after a last event for its frees. */
static void end_stream(struct pool_arena *arena, struct pump_at at) {
  for (uint32_t i = 0; i < arena->streams_used; i++) {
    struct pool_stream *stream = &arena->streams[i];
    if (!stream->used || stream->gone || stream->handle != at.stream) continue;
    pthread_mutex_unlock(&pool_lock);
    if (!pump_capturing(at.stream)) pool_record_last_event(arena, i + 1, at.stream);
    pthread_mutex_lock(&pool_lock);
    stream->gone = true;
    arena->streams_live--;
    return;
  }
}

void pump_pool_stream_ends(CUstream handle) {
  if ((uintptr_t)handle <= (uintptr_t)CU_STREAM_PER_THREAD) return;
  struct pump_driver_scope scope = pump_driver_scope_open();
  pthread_mutex_lock(&pool_lock);
  for (uint32_t i = 0; i < POOL_ARENAS && arenas[i] != NULL; i++)
    if (arenas[i]->context != NULL) end_stream(arenas[i], pump_at(handle, false));
  pthread_mutex_unlock(&pool_lock);
  pump_driver_scope_close(scope);
}

static void drop_arena(struct pool_arena *arena) {
  pool_dead_forget(&arena->dead);
  pool_cycle_end(arena);
  while (arena->segments != NULL) pool_segment_close(arena->segments);
  for (uint32_t i = 0; i < arena->streams_used; i++) free(arena->streams[i].bins);
  free(arena->spare); /* the events have ended with the context */
  memset(arena, 0, sizeof *arena);
}

void pump_pool_context_gone(CUcontext context) {
  pthread_mutex_lock(&pool_lock);
  for (uint32_t i = 0; i < POOL_ARENAS && arenas[i] != NULL; i++)
    if (arenas[i]->context == context) drop_arena(arenas[i]);
  pthread_mutex_unlock(&pool_lock);
}

void pump_pool_reset(void) {
  memset(arenas, 0, sizeof arenas);
  pool_blocks_reset();
  driver_pools_reset();
}

void pump_pool_capture_begins(void) {
  pthread_mutex_lock(&pool_lock);
  pthread_mutex_unlock(&pool_lock);
}

void pump_pool_fork_child(void) {
  pthread_mutex_init(&pool_lock, NULL);
  pthread_cond_init(&none_busy, NULL);
  busy = 0;
}
