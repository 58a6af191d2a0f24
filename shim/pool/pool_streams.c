/* pool_streams.c - streams of an arena, and how far the GPU has executed them.
 *
 * An event after a free shows when every stream may have the freed memory. The thread
 * that frees records it. If it left one out, another thread that needs it records it.
 */
#include <stdlib.h>
#include <string.h>

#include "pool_state.h"

/* Returns the calling thread's number among those with their own default streams. */
static uint64_t this_thread(void) {
  static uint64_t threads;
  static __thread uint64_t number __attribute__((tls_model("initial-exec")));
  if (number == 0) number = __atomic_add_fetch(&threads, 1, __ATOMIC_RELAXED);
  return number;
}

static bool current_is(CUcontext context) {
  CUcontext current = NULL;
  return PUMP_HAS(cuCtxGetCurrent) && pump_real.cuCtxGetCurrent(&current) == CUDA_SUCCESS &&
         current == context;
}

/* Returns whether a stream is in the context; a default stream is in the current one. */
static bool is_in(CUstream handle, CUcontext context) {
  CUcontext of = NULL;
  if ((uintptr_t)handle <= (uintptr_t)CU_STREAM_PER_THREAD) return current_is(context);
  return PUMP_HAS(cuStreamGetCtx) &&
         pump_real.cuStreamGetCtx(handle, &of) == CUDA_SUCCESS && of == context;
}

static bool is_of(const struct pool_stream *stream, CUstream handle) {
  if (handle == NULL) handle = CU_STREAM_LEGACY;
  uint64_t thread = handle == CU_STREAM_PER_THREAD ? this_thread() : 0;
  return stream->used && !stream->gone && stream->handle == handle &&
         stream->thread == thread;
}

/* Returns whether all its frees are complete and taken: its entry is not needed then. */
static bool is_through(const struct pool_stream *stream) {
  return stream->oldest == NULL && stream->events_count == 0 &&
         stream->covered == stream->frees;
}

/* Returns an unused entry, else one that is not needed, else POOL_STREAMS. Programs may
 * make streams without end, and the end of a thread's default stream is not reported. */
static uint32_t free_entry(struct pool_arena *arena) {
  uint32_t i = 0;
  while (i < arena->streams_used && arena->streams[i].used) i++;
  if (i < POOL_STREAMS) return i;
  pool_poll(arena);
  for (i = 0; i < POOL_STREAMS && arena->streams[i].used; i++)
    if (!arena->streams[i].gone && is_through(&arena->streams[i])) {
      arena->streams_live--;
      break;
    }
  return i;
}

static uint32_t new_stream(struct pool_arena *arena, CUstream handle) {
  if (!is_in(handle, arena->context)) return 0;
  uint32_t i = free_entry(arena);
  if (i == POOL_STREAMS) return 0;
  struct pool_stream *stream = &arena->streams[i];
  struct pool_bins *bins = stream->bins; /* of an earlier stream: empty */
  if (bins == NULL) bins = calloc(1, sizeof *bins);
  if (bins == NULL) return 0;
  uint64_t frees = stream->frees; /* blocks still name the earlier stream's frees */
  *stream = (struct pool_stream){
      .used = true,
      .handle = handle,
      .thread = handle == CU_STREAM_PER_THREAD ? this_thread() : 0,
      .frees = frees,
      .covered = frees,
      .completed = frees,
      .bins = bins,
      .populated = stream->populated, /* its repopulations count among the frees */
      .asked = stream->asked,
  };
  if (i == arena->streams_used) arena->streams_used++;
  arena->streams_live++;
  return i + 1;
}

uint32_t pool_stream_number(struct pool_arena *arena, struct pump_at at) {
  CUstream handle = at.stream == NULL ? CU_STREAM_LEGACY : at.stream;
  bool by_default = (uintptr_t)handle <= (uintptr_t)CU_STREAM_PER_THREAD;
  for (uint32_t i = 0; i < arena->streams_used; i++)
    if (is_of(&arena->streams[i], handle))
      return by_default && !current_is(arena->context) ? 0 : i + 1;
  return new_stream(arena, handle);
}

/* ---- events ------------------------------------------------------------------- */

static void keep_event(struct pool_arena *arena, CUevent event) {
  if (arena->spare_count == arena->spare_capacity) {
    uint32_t capacity = arena->spare_capacity == 0 ? 64 : arena->spare_capacity * 2;
    CUevent *larger = realloc(arena->spare, capacity * sizeof *larger);
    if (larger == NULL) { /* it is not recorded: nothing waits for it */
      pump_real.cuEventDestroy_v2(event);
      return;
    }
    arena->spare = larger;
    arena->spare_capacity = capacity;
  }
  arena->spare[arena->spare_count++] = event;
}

static struct pool_event *event_at(struct pool_stream *stream, uint32_t i) {
  return &stream->events[(stream->events_first + i) & (POOL_EVENTS - 1)];
}

static void poll_stream(struct pool_arena *arena, uint32_t number) {
  struct pool_stream *stream = &arena->streams[number - 1];
  uint64_t before = stream->completed;
  while (stream->events_count > 0) {
    struct pool_event *oldest = event_at(stream, 0);
    CUresult answer = pump_real.cuEventQuery(oldest->event);
    if (answer == CUDA_ERROR_NOT_READY) break;
    bool complete = answer == CUDA_SUCCESS; /* else never: a capture has it */
    if (complete && oldest->order > stream->completed) stream->completed = oldest->order;
    keep_event(arena, oldest->event);
    stream->events_first = (stream->events_first + 1) & (POOL_EVENTS - 1);
    if (--stream->events_count == 0 && !complete) stream->covered = stream->completed;
  }
  PUMP_ASSERT(stream->completed <= stream->covered && stream->covered <= stream->frees,
              "frees are first covered by an event, then completed");
  if (stream->completed != before) pool_mark_clean(arena, number, stream->completed);
  if (stream->gone && stream->oldest == NULL && stream->events_count == 0)
    stream->used = false;
}

void pool_poll(struct pool_arena *arena) {
  PUMP_ASSERT(pump_is_locked(&pool_lock), "pool_lock guards the streams");
  for (uint32_t i = 0; i < arena->streams_used; i++)
    if (arena->streams[i].used) poll_stream(arena, i + 1);
}

static bool is_due(const struct pool_arena *arena, const struct pool_stream *stream,
                   uint64_t now_ns) {
  if (stream->covered == stream->frees) return false;
  return arena->streams_live > 1 || stream->thread != 0 ||
         stream->frees - stream->covered >= POOL_EVENT_FREES ||
         now_ns - stream->covered_ns >= POOL_EVENT_NS;
}

/* Requires the lock. */
static bool take_event(struct pool_arena *arena, CUevent *event) {
  if (arena->spare_count > 0) {
    *event = arena->spare[--arena->spare_count];
    return true;
  }
  return current_is(arena->context) &&
         pump_real.cuEventCreate(event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS;
}

static void add_event(struct pool_arena *arena, struct pool_stream *stream, CUevent event,
                      uint64_t order, bool recorded, uint64_t now_ns) {
  if (!recorded || stream->events_count == POOL_EVENTS) {
    keep_event(arena, event);
    return;
  }
  *event_at(stream, stream->events_count++) =
      (struct pool_event){.event = event, .order = order};
  PUMP_ASSERT(order <= stream->frees, "an event covers only frees before it");
  if (order > stream->covered) stream->covered = order;
  stream->covered_ns = now_ns;
}

static void cover(struct pool_arena *arena, uint32_t number, CUstream handle, bool last) {
  struct pool_stream *stream = &arena->streams[number - 1];
  uint64_t now_ns = pump_now_ns();
  CUevent event = NULL;
  pthread_mutex_lock(&pool_lock);
  bool wanted = is_of(stream, handle) &&
                (last ? stream->covered != stream->frees : is_due(arena, stream, now_ns));
  if (wanted && stream->events_count == POOL_EVENTS) poll_stream(arena, number);
  if (wanted && last && stream->events_count == POOL_EVENTS)
    event = event_at(stream, --stream->events_count)->event; /* covers its frees, too */
  else
    wanted = wanted && stream->events_count < POOL_EVENTS && take_event(arena, &event);
  uint64_t order = stream->frees;
  pthread_mutex_unlock(&pool_lock);
  if (!wanted) return;
  bool recorded = pump_real.cuEventRecord(event, handle) == CUDA_SUCCESS;
  pthread_mutex_lock(&pool_lock);
  add_event(arena, stream, event, order, recorded, now_ns);
  pthread_mutex_unlock(&pool_lock);
}

void pool_record_event(struct pool_arena *arena, uint32_t number, CUstream handle,
                       bool soon) {
  cover(arena, number, handle, soon);
}

/* Switches to the arena's context: events can be made only there, and the thread that
 * destroys a stream need not be in it. */
void pool_record_last_event(struct pool_arena *arena, uint32_t number, CUstream handle) {
  CUcontext current = NULL;
  bool moved = PUMP_HAS(cuCtxSetCurrent) && !current_is(arena->context) &&
               pump_real.cuCtxGetCurrent(&current) == CUDA_SUCCESS &&
               pump_real.cuCtxSetCurrent(arena->context) == CUDA_SUCCESS;
  cover(arena, number, handle, true);
  if (moved) pump_real.cuCtxSetCurrent(current);
}

/* Returns whether the GPU has executed everything in the stream. The query would end a
 * capture, but none can begin during it (pump_pool_capture_begins). */
static bool is_idle(const struct pool_stream *stream) {
  return PUMP_HAS(cuStreamQuery) && PUMP_LOAD(&pump_captures) == 0 &&
         (stream->thread == 0 || stream->thread == this_thread()) &&
         pump_real.cuStreamQuery(stream->handle) == CUDA_SUCCESS;
}

/* All have executed, because they are numbered under the lock, before the query. */
static void mark_frees_executed(struct pool_arena *arena, uint32_t stream_number) {
  struct pool_stream *stream = &arena->streams[stream_number - 1];
  while (stream->events_count > 0)
    keep_event(arena, event_at(stream, --stream->events_count)->event);
  stream->covered = stream->completed = stream->frees;
  pool_mark_clean(arena, stream_number, stream->completed);
}

static void record_missing_event(struct pool_arena *arena, struct pool_stream *stream) {
  CUevent event;
  if (stream->thread != 0 || stream->covered == stream->frees ||
      stream->events_count == POOL_EVENTS || pump_capturing(stream->handle) ||
      !take_event(arena, &event))
    return;
  bool recorded = pump_real.cuEventRecord(event, stream->handle) == CUDA_SUCCESS;
  add_event(arena, stream, event, stream->frees, recorded, pump_now_ns());
}

/* Queries and records on other threads' streams. These cannot end during that, because
 * their end would first need the lock. */
void pool_catch_up(struct pool_arena *arena) {
  bool current = current_is(arena->context);
  for (uint32_t i = 0; current && i < arena->streams_used; i++) {
    struct pool_stream *stream = &arena->streams[i];
    if (!stream->used || stream->gone || stream->completed == stream->frees) continue;
    if (is_idle(stream))
      mark_frees_executed(arena, i + 1);
    else
      record_missing_event(arena, stream);
  }
  pool_poll(arena);
}

uint64_t pool_pending_bytes(const struct pool_arena *arena) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < arena->streams_used; i++)
    for (const struct pool_piece_node *piece = arena->streams[i].oldest;
         arena->streams[i].used && piece != NULL; piece = piece->newer)
      bytes += piece->length_bytes;
  return bytes;
}
