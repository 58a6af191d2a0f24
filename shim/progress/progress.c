/* progress.c - tracks which streams exist, and how far each has executed.
 *
 * It knows streams by their handle, and turns markers, synchronizations and events of the
 * program (program_events.c) into `executed_seq`. It never queries the driver about a
 * stream: execute/poll.c polls our own events, and the rest comes from calls that the
 * program makes itself.
 *
 * DESIGN. The index of a stream in `keys` is its slot in pump_shm->progress. A key
 * identifies the stream. A look-up takes no lock (open addressing, no deletion: a
 * destroyed stream leaves GONE, which a later stream takes over):
 *
 *   `handle`                        An ordinary stream (a pointer, at least 8-aligned).
 *   `context index << 3 | 1`        The legacy stream of a context.
 *   `thread << 16 | index << 3 | 2` A thread's own default stream in a context.
 *
 * Keys are inserted under a lock, so no stream ever gets two slots. Slot 0 is for all
 * streams beyond the table: only context synchronizations show their progress.
 *
 * `executed` only grows. It is a hint that steers transfers and proves nothing about
 * data. So three inaccuracies are accepted. Another thread may have numbered an operation,
 * but not yet issued it, when we record the marker. A handle may be reused while work of
 * its previous stream is in flight. And a stream's newest operations may have no marker.
 * Their blocks could never be evicted if the program never used the stream again. So they
 * are presumed to have executed some time after the last sign of the stream
 * (pump_progress_presume).
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "marker_rule.h"
#include "progress.h"
#include "shim/base/moments.h"
#include "shim/base/upcalls.h"

#define KEY_FREE 0
#define KEY_GONE 4 /* no stream has it: handles are aligned, special keys end in 1 or 2 */
#define NO_CONTEXT PUMP_MAX_CONTEXTS

/* An event between two launches would prevent the second from beginning before the first
 * has ended. Whether the next launch may do so is unknown. So after such a launch,
 * markers are CHAINED_FACTOR times rarer for CHAINED_OPERATIONS operations. */
#define CHAINED_OPERATIONS 64
#define CHAINED_FACTOR 4

#define DRAIN_SLEEP_NS 100000u
#define HOLD_SLEEP_NS 5000000

/* Written by application threads and the marker threads; a forked child starts from zero.
 * `issued` and `executed` here are authoritative; the mapping has a copy. */
static uint64_t keys[PUMP_MAX_STREAMS];
static struct stream {
  CUcontext context;
  uint64_t issued, executed;
  uint64_t marked;   /* newest operation with a marker */
  uint64_t recorded; /* newest executed operation in the recording; never a presumed one */
  /* Hints, written by the issuing thread; two threads on one stream may lose some. */
  uint64_t marked_ns;     /* issue time of the last operation with a marker (event) */
  uint64_t touched_bytes; /* bytes touched since the last marker */
  uint32_t since_marker;  /* operations since the last marker */
  uint32_t chained;       /* operations until the stream no longer counts as chained */
  uint32_t device;
  uint32_t context_index; /* small number of `context` */
} streams[PUMP_MAX_STREAMS];
static struct pump_moments moments[PUMP_MAX_STREAMS]; /* of `executed`; for recordings */
static pthread_mutex_t insert_lock = PTHREAD_MUTEX_INITIALIZER;
static bool table_full;

static bool names_stream(uint64_t key) {
  return key != KEY_FREE && key != KEY_GONE;
}

/* ---- threads' own default streams ------------------------------------------ */

static uint32_t threads_numbered;
static __thread uint32_t thread_number __attribute__((tls_model("initial-exec")));
static pthread_once_t thread_end_once = PTHREAD_ONCE_INIT;
static pthread_key_t thread_end_key;

static void set_gone(uint32_t index) {
  PUMP_STORE(&pump_shm->progress[index].live, 0);
  PUMP_STORE_RELEASE(&keys[index], KEY_GONE);
  __atomic_store_n(&table_full, false, __ATOMIC_RELEASE);
}

static void thread_ended(void *number) {
  uint64_t mine = (uint64_t)(uintptr_t)number;
  for (uint32_t i = 1; i < PUMP_MAX_STREAMS; i++) {
    uint64_t key = PUMP_LOAD(&keys[i]);
    if ((key & 7) == 2 && key >> 16 == mine) set_gone(i);
  }
}

static void make_thread_end_key(void) {
  pthread_key_create(&thread_end_key, thread_ended);
}

static uint32_t number_thread(void) {
  if (thread_number == 0) {
    thread_number = PUMP_ADD(&threads_numbered, 1) + 1;
    pthread_once(&thread_end_once, make_thread_end_key);
    pthread_setspecific(thread_end_key, (void *)(uintptr_t)thread_number);
  }
  return thread_number;
}

/* ---- handle -> slot --------------------------------------------------------- */

static CUcontext current_context(void) {
  CUcontext context = NULL;
  if (pump_real.cuCtxGetCurrent == NULL ||
      pump_real.cuCtxGetCurrent(&context) != CUDA_SUCCESS)
    return NULL;
  return context;
}

static uint64_t key_of(CUstream stream, bool per_thread_default, CUcontext *context) {
  if ((uintptr_t)stream > 2) return (uint64_t)(uintptr_t)stream;
  *context = current_context();
  uint32_t index = NO_CONTEXT;
  pump_context_device(*context, &index);
  if (stream == CU_STREAM_PER_THREAD || (stream == NULL && per_thread_default))
    return (uint64_t)number_thread() << 16 | index << 3 | 2;
  return (uint64_t)index << 3 | 1;
}

static uint32_t first_index(uint64_t key) {
  return (uint32_t)((key * 0x9e3779b97f4a7c15u) >> 54);
}

/* Returns the slot of `key`, or 0. `*reuse`: where it may be inserted. */
static uint32_t find(uint64_t key, uint32_t *reuse) {
  uint32_t index = first_index(key), gone_busy = 0;
  *reuse = 0;
  for (uint32_t i = 0; i < PUMP_MAX_STREAMS; i++, index = (index + 1) % PUMP_MAX_STREAMS) {
    if (index == 0) continue;
    uint64_t seen = PUMP_LOAD_ACQUIRE(&keys[index]);
    if (seen == key) return index;
    if (seen == KEY_GONE && *reuse == 0) {
      /* Prefer a stream without work in flight: see the second inaccuracy above. */
      if (PUMP_LOAD(&streams[index].executed) >= PUMP_LOAD(&streams[index].issued))
        *reuse = index;
      else if (gone_busy == 0)
        gone_busy = index;
    }
    if (seen == KEY_FREE) {
      if (*reuse == 0) *reuse = index;
      return 0;
    }
  }
  if (*reuse == 0) *reuse = gone_busy;
  return 0;
}

/* Under the insertion lock. */
static void occupy(uint32_t index, uint64_t key, CUcontext context) {
  struct stream *stream = &streams[index];
  uint32_t context_index = PUMP_MAX_CONTEXTS;
  int device = pump_context_device(context, &context_index);
  CUdevice current = 0;
  if (device < 0 && pump_real.cuCtxGetDevice != NULL &&
      pump_real.cuCtxGetDevice(&current) == CUDA_SUCCESS)
    device = current;
  if (device < 0 || device >= PUMP_MAX_DEVICES) device = 0;
  PUMP_STORE(&stream->device, (uint32_t)device);
  PUMP_STORE(&stream->context_index, context_index);
  PUMP_STORE(&stream->chained, 0);
  __atomic_store_n(&stream->context, context, __ATOMIC_RELAXED);
  PUMP_STORE(&stream->marked_ns, 0);
  PUMP_STORE(&stream->since_marker, 0);
  struct pump_progress *progress = &pump_shm->progress[index];
  PUMP_STORE(&progress->device, (uint32_t)device);
  PUMP_STORE(&progress->live, 1);
  PUMP_STORE_RELEASE(&keys[index], key);
}

uint32_t pump_stream_index(CUstream stream, bool per_thread_default) {
  CUcontext context = NULL; /* until it is needed */
  uint32_t reuse;
  uint64_t key = key_of(stream, per_thread_default, &context);
  if ((key & 7) == KEY_GONE) return 0; /* no driver makes such a handle */
  uint32_t index = find(key, &reuse);
  if (PUMP_LIKELY(index != 0)) return index;
  if (__atomic_load_n(&table_full, __ATOMIC_ACQUIRE)) return 0;
  if (context == NULL) context = current_context();
  pthread_mutex_lock(&insert_lock);
  index = find(key, &reuse);
  if (index == 0 && reuse != 0) {
    occupy(reuse, key, context);
    index = reuse;
  } else if (index == 0) {
    __atomic_store_n(&table_full, true, __ATOMIC_RELEASE);
    pump_log(PUMP_LOG_INFO, "more than %d streams: the others share one progress slot",
             PUMP_MAX_STREAMS - 1);
  }
  pthread_mutex_unlock(&insert_lock);
  return index;
}

void pump_stream_gone(CUstream stream) {
  if ((uintptr_t)stream <= 2 || ((uintptr_t)stream & 7) == KEY_GONE) return;
  uint32_t reuse, index = find((uint64_t)(uintptr_t)stream, &reuse);
  if (index != 0) set_gone(index);
}

/* ---- advancing ---------------------------------------------------------------- */

static void raise_executed(uint32_t index, uint64_t seq) {
  pump_atomic_max(&streams[index].executed, seq);
  pump_atomic_max(&pump_shm->progress[index].executed_seq, seq);
}

static bool is_news(const struct stream *stream, uint64_t seq) {
  return PUMP_LOAD(&stream->executed) < seq ||
         (PUMP_UNLIKELY(pump_recording) && PUMP_LOAD(&stream->recorded) < seq);
}

/* Advances without waking anyone. before_ns: a poll had not seen it then; 0: no poll. */
static bool advance_quietly(uint32_t index, uint64_t seq, uint64_t before_ns) {
  if (!is_news(&streams[index], seq)) return false;
  raise_executed(index, seq);
  if (PUMP_UNLIKELY(pump_recording)) {
    uint64_t now_ns = pump_now_ns();
    pump_atomic_max(&streams[index].recorded, seq);
    pump_moments_add(&moments[index], seq, now_ns);
    pump_upcalls.executed(index, seq, now_ns, before_ns);
  }
  return true;
}

void pump_progress_polled(uint32_t stream_index, uint64_t seq, uint64_t before_ns) {
  if (stream_index >= PUMP_MAX_STREAMS || !advance_quietly(stream_index, seq, before_ns))
    return;
  pump_worker_notify();
  pump_upcalls.schedule_wake();
}

void pump_progress_advance(uint32_t stream_index, uint64_t seq) {
  pump_progress_polled(stream_index, seq, 0);
}

void pump_progress_presume(uint32_t device, struct pump_presumed *presumed,
                           uint64_t now_ns) {
  bool any = false;
  if (now_ns - presumed->checked_ns < PUMP_PRESUME_NS) return;
  presumed->checked_ns = now_ns;
  for (uint32_t i = 1; i < PUMP_MAX_STREAMS; i++) {
    const struct stream *stream = &streams[i];
    if (PUMP_LOAD(&stream->device) != device) continue;
    uint64_t issued = PUMP_LOAD(&stream->issued);
    if (!pump_marker_presumes(&presumed->signs[i], issued, PUMP_LOAD(&stream->executed),
                              PUMP_LOAD(&stream->marked)))
      continue;
    raise_executed(i, issued);
    any = true;
  }
  if (!any) return;
  pump_worker_notify();
  pump_upcalls.schedule_wake();
}

uint64_t pump_progress_moment(uint32_t stream_index, uint64_t seq) {
  return stream_index < PUMP_MAX_STREAMS ? pump_moments_find(&moments[stream_index], seq)
                                         : 0;
}

uint64_t pump_progress_executed(uint32_t stream_index) {
  return stream_index < PUMP_MAX_STREAMS ? PUMP_LOAD(&streams[stream_index].executed) : 0;
}

/* Counts the operation just issued. Returns whether it needs a marker. */
static bool marker_is_due(struct stream *mine, uint64_t now_ns, uint64_t touched_bytes) {
  uint32_t chained = PUMP_LOAD(&mine->chained);
  uint32_t factor = 1;
  if (PUMP_UNLIKELY(chained != 0)) {
    PUMP_STORE(&mine->chained, chained - 1);
    factor = CHAINED_FACTOR;
  }
  uint32_t since = PUMP_LOAD(&mine->since_marker) + 1;
  uint64_t touched = PUMP_LOAD(&mine->touched_bytes) + touched_bytes;
  PUMP_STORE(&mine->since_marker, since);
  PUMP_STORE(&mine->touched_bytes, touched);
  if (!pump_marker_is_due(since, now_ns - PUMP_LOAD(&mine->marked_ns), touched, factor))
    return false;
  /* A burst that used the last markers at its beginning would have none at its end. */
  return since >= factor * PUMP_MARKER_OPERATIONS ||
         !pump_markers_are_few(PUMP_LOAD(&mine->context_index));
}

/* Returns an explicit handle for the stream of the key. */
static CUstream stream_of(uint32_t stream_index, CUstream stream) {
  if ((uintptr_t)stream > 2) return stream;
  return (PUMP_LOAD(&keys[stream_index]) & 7) == 2 ? CU_STREAM_PER_THREAD
                                                   : CU_STREAM_LEGACY;
}

void pump_progress_time(uint32_t stream_index, CUstream stream) {
  if (stream_index == 0 || stream_index >= PUMP_MAX_STREAMS) return;
  const struct stream *mine = &streams[stream_index];
  CUcontext context = __atomic_load_n(&mine->context, __ATOMIC_RELAXED);
  if (context == NULL || PUMP_LOAD(&mine->chained) != 0) return;
  pump_timed_begin(context, PUMP_LOAD(&mine->context_index), stream_index,
                   stream_of(stream_index, stream));
}

void pump_progress_gate(uint32_t stream_index, CUstream stream, bool large) {
  if (stream_index == 0 || stream_index >= PUMP_MAX_STREAMS) return;
  const struct stream *mine = &streams[stream_index];
  CUcontext context = __atomic_load_n(&mine->context, __ATOMIC_RELAXED);
  if (context == NULL || PUMP_LOAD(&mine->chained) != 0) return;
  uint32_t device = PUMP_LOAD(&mine->device);
  if (!pump_gates_may(device, large)) return;
  /* The launch's memory may come only once the predecessors are known to have executed. */
  if (!pump_job_yields(device)) pump_progress_mark(stream_index, stream);
  pump_gate(device, context, PUMP_LOAD(&mine->context_index),
            stream_of(stream_index, stream));
}

/* Waits for the job's turn after an operation has executed. A signal ends the wait,
 * because the program may want to end. */
static void wait_for_turn(uint32_t device) {
  const struct timespec pause = {.tv_nsec = HOLD_SLEEP_NS};
  uint32_t word = 0;
  uint64_t begin_ns = pump_now_ns();
  int saved = errno;
  pump_hold_enter(device);
  while (pump_hold_lasts(device) && !pump_reports_nothing())
    if (pump_futex(&word, FUTEX_WAIT, 0, &pause) != 0 && errno == EINTR) break;
  pump_hold_leave(device, pump_now_ns() - begin_ns);
  errno = saved;
}

/* Waits in a drain, after an operation that has a marker. */
static void wait_until_executed(const struct stream *stream, uint64_t seq) {
  uint32_t word = 0; /* never changes: a sleep that is not a cancellation point */
  bool executed;
  pump_drain_enter();
  while (!(executed = PUMP_LOAD(&stream->executed) >= seq) && pump_drain_lasts() &&
         !pump_reports_nothing())
    pump_futex_sleep(&word, 0, DRAIN_SLEEP_NS);
  pump_drain_leave(executed);
  uint32_t device = PUMP_LOAD(&stream->device);
  if (pump_hold_lasts(device)) wait_for_turn(device);
}

static void note_marker(struct stream *mine, uint64_t seq) {
  PUMP_STORE(&mine->marked, seq);
  PUMP_STORE(&mine->since_marker, 0);
  PUMP_STORE(&mine->touched_bytes, 0);
}

void pump_progress_issued(uint32_t stream_index, CUstream stream, uint64_t seq,
                          uint64_t now_ns, uint64_t touched_bytes) {
  if (stream_index >= PUMP_MAX_STREAMS) return;
  struct stream *mine = &streams[stream_index];
  pump_atomic_max(&mine->issued, seq);
  PUMP_STORE(&pump_shm->progress[stream_index].issued_seq, seq); /* for reports */
  bool draining = pump_draining();
  /* After a gate, a marker may be the only sign that the next launch's memory fits. */
  bool gated =
      PUMP_UNLIKELY(PUMP_LOAD(&pump_gates_devices) != 0) && PUMP_LOAD(&mine->chained) == 0;
  bool due = marker_is_due(mine, now_ns, touched_bytes) || draining || gated;
  if (PUMP_LIKELY(!pump_timed_begun) && (!due || stream_index == 0)) return;
  uint32_t device = PUMP_LOAD(&mine->device);
  pump_upcalls.operations_seen(device, true);
  CUcontext context = __atomic_load_n(&mine->context, __ATOMIC_RELAXED);
  bool marked =
      PUMP_UNLIKELY(pump_timed_begun) && pump_timed_end(device, stream_index, seq);
  if (!marked && (!due || stream_index == 0 || context == NULL ||
                  !pump_marker_record(device, context, PUMP_LOAD(&mine->context_index),
                                      stream_index, stream_of(stream_index, stream), seq)))
    return;
  note_marker(mine, seq);
  PUMP_STORE(&mine->marked_ns, now_ns);
  if (draining) wait_until_executed(mine, seq);
}

void pump_progress_mark(uint32_t stream_index, CUstream stream) {
  if (stream_index == 0 || stream_index >= PUMP_MAX_STREAMS) return;
  struct stream *mine = &streams[stream_index];
  uint64_t issued = PUMP_LOAD(&mine->issued);
  CUcontext context = __atomic_load_n(&mine->context, __ATOMIC_RELAXED);
  if (context != NULL && issued > PUMP_LOAD(&mine->marked) &&
      pump_marker_record(PUMP_LOAD(&mine->device), context, PUMP_LOAD(&mine->context_index),
                         stream_index, stream_of(stream_index, stream), issued))
    note_marker(mine, issued);
}

uint64_t pump_progress_pending(CUcontext context) {
  uint64_t pending = 0;
  for (uint32_t i = 1; i < PUMP_MAX_STREAMS; i++) {
    const struct stream *stream = &streams[i];
    uint64_t executed = PUMP_LOAD(&stream->executed), marked = PUMP_LOAD(&stream->marked);
    if (marked > executed && __atomic_load_n(&stream->context, __ATOMIC_RELAXED) == context)
      pending += marked - executed;
  }
  return pending;
}

void pump_progress_issued_many(uint32_t stream_index, uint32_t operations) {
  if (stream_index >= PUMP_MAX_STREAMS) return;
  uint32_t *since = &streams[stream_index].since_marker;
  PUMP_STORE(since, PUMP_LOAD(since) + operations);
}

void pump_progress_chained(uint32_t stream_index) {
  if (stream_index < PUMP_MAX_STREAMS)
    PUMP_STORE(&streams[stream_index].chained, CHAINED_OPERATIONS);
}

void pump_progress_stream_synced(uint32_t stream_index, uint64_t seq_before) {
  if (stream_index != 0) pump_progress_advance(stream_index, seq_before);
}

/* Advances all streams of `context`, even destroyed ones; NULL: of no known context. */
static void advance_context(CUcontext context, uint64_t seq) {
  bool any = false;
  for (uint32_t i = 0; i < PUMP_MAX_STREAMS; i++) {
    struct stream *stream = &streams[i];
    if (i != 0 && __atomic_load_n(&stream->context, __ATOMIC_RELAXED) != context) continue;
    uint64_t issued = PUMP_LOAD(&stream->issued);
    if (!is_news(stream, issued)) continue;
    any |= advance_quietly(i, seq < issued ? seq : issued, 0);
  }
  if (!any) return;
  pump_worker_notify();
  pump_upcalls.schedule_wake();
}

void pump_progress_context_synced(uint64_t seq_before) {
  advance_context(current_context(), seq_before);
}

void pump_progress_context_gone(CUcontext context) {
  if (pump_shm == NULL) return;
  advance_context(context, UINT64_MAX);
  for (uint32_t i = 1; i < PUMP_MAX_STREAMS; i++) {
    if (__atomic_load_n(&streams[i].context, __ATOMIC_RELAXED) != context) continue;
    __atomic_store_n(&streams[i].context, NULL, __ATOMIC_RELAXED);
    if (names_stream(PUMP_LOAD(&keys[i]))) set_gone(i);
  }
}

/* ---- life ------------------------------------------------------------------------- */

void pump_progress_republish(void) {
  for (uint32_t i = 0; i < PUMP_MAX_STREAMS; i++) {
    struct pump_progress *progress = &pump_shm->progress[i];
    pump_atomic_max(&progress->issued_seq, PUMP_LOAD(&streams[i].issued));
    pump_atomic_max(&progress->executed_seq, PUMP_LOAD(&streams[i].executed));
    PUMP_STORE(&progress->device, PUMP_LOAD(&streams[i].device));
    PUMP_STORE(&progress->live, names_stream(PUMP_LOAD(&keys[i])));
  }
}

void pump_progress_fork_child(void) {
  pthread_mutex_init(&insert_lock, NULL);
  memset(keys, 0, sizeof keys);
  memset(streams, 0, sizeof streams);
  if (pump_recording) memset(moments, 0, sizeof moments);
  table_full = false;
  pump_event_fork_child();
}
