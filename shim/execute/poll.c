/* poll.c - the marker thread of a device. It creates markers before they are needed,
 * polls recorded ones, oldest first per stream, and destroys them before a context ends.
 *
 * It serves all contexts of its device (progress/markers.h). In each context it also runs
 * the pool's discards of dead memory.
 */
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "executors.h"
#include "shim/base/upcalls.h"
#include "shim/progress/markers.h"

struct poller {
  struct pump_thread_role role;
  uint64_t served;                    /* bit i: this thread serves the pool of context i */
  CUcontext current;                  /* the driver's current context on this thread */
  uint32_t round;                     /* number of the current pass */
  uint32_t blocked[PUMP_MAX_STREAMS]; /* pass in which a stream's oldest was not ready */
  struct pump_presumed presumed;
  bool over;
};
static struct poller pollers[PUMP_MAX_DEVICES]; /* 12 KiB each: too large for a stack */
static uint32_t epochs;                         /* newest epoch of any pool */
_Static_assert(PUMP_MAX_CONTEXTS == 64, "a bit each in poller.served");

#define FOR_SERVED(poller, i)                                                              \
  for (uint32_t i = 0; i < PUMP_MAX_CONTEXTS; i++)                                         \
    if (((poller)->served >> i & 1) != 0)

/* Logs a failed driver call, and sets `over` if the thread must end. Returns whether the
 * call has succeeded. */
static bool check_call(struct poller *poller, CUresult result, const char *call) {
  if (!pump_executors_note_result(poller->role.set, result, call)) poller->over = true;
  return result == CUDA_SUCCESS;
}

static bool enter_context(struct poller *poller, struct pump_marker_pool *pool) {
  if (poller->current == pool->context) return true;
  if (pool->broken) return false;
  if (pump_real.cuCtxSetCurrent(pool->context) != CUDA_SUCCESS) {
    pool->broken = true; /* the context ended without a hook */
    return false;
  }
  poller->current = pool->context;
  return true;
}

/* Initializes the pools of contexts that are new since the last pass. */
static void adopt_contexts(struct poller *poller) {
  for (uint32_t i = 0; i < PUMP_MAX_CONTEXTS; i++) {
    CUcontext context = pump_context_by_index(i, poller->role.set->device);
    if (context == NULL || (poller->served >> i & 1) != 0) continue;
    struct pump_marker_pool *pool = &pump_marker_pools[i];
    if (!pool->ready) {
      pump_marker_queue_init(&pool->free);
      pump_marker_queue_init(&pool->timed);
      pump_marker_queue_init(&pool->fresh);
      pool->ready = true;
    }
    pool->broken = false;
    pool->next = pool->made = pool->made_timed = pool->waiting_count = 0;
    pool->looked_ns = 0;
    __atomic_store_n(&pool->context, context, __ATOMIC_RELAXED);
    uint32_t epoch = 0;
    while (epoch == 0) epoch = (PUMP_ADD(&epochs, 1) + 1) & PUMP_MARKER_EPOCH_MASK;
    PUMP_STORE_RELEASE(&pool->epoch, epoch);
    poller->served |= (uint64_t)1 << i;
  }
}

static void make_markers(struct poller *poller, struct pump_marker_pool *pool) {
  for (uint32_t i = 0; i < PUMP_MARKERS_GROWTH && pool->next < PUMP_MARKERS;
       i++, pool->next++) {
    struct pump_marker *marker = &pool->markers[pool->next];
    if (PUMP_LOAD_ACQUIRE(&marker->in_use) != 0) continue;
    if (!check_call(poller,
                    pump_real.cuEventCreate(&marker->event, CU_EVENT_DISABLE_TIMING),
                    "cuEventCreate"))
      return;
    marker->begin = NULL;
    pool->made++;
    pump_marker_queue_push(&pool->free, pump_marker_ticket_of(pool->next, pool->epoch));
  }
}

/* Returns whether the pool needs more markers. A program may issue a thousand operations
 * within milliseconds and then wait for them. Without markers after the last operations,
 * their progress is unknown until that wait ends, so markers must exist before the burst.
 * An unused context gets enough for one in sixteen operations of a full launch queue. */
static bool short_of_markers(const struct pump_marker_pool *pool) {
  uint64_t head = PUMP_LOAD(&pool->free.head);
  bool busy = !pump_reports_nothing() && pool->made != PUMP_LOAD(&pool->free.tail) - head;
  uint64_t wanted =
      busy || pool->made > PUMP_MARKERS_FIRST ? PUMP_MARKERS_AHEAD : PUMP_MARKERS_FIRST;
  return pool->next < PUMP_MARKERS && PUMP_LOAD(&pool->free.tail) - head < wanted;
}

/* Returns whether timed markers are missing. A dormant program needs none. */
static bool short_of_timed(const struct pump_marker_pool *pool) {
  return pool->made_timed < PUMP_MARKERS_TIMED && pool->next < PUMP_MARKERS &&
         !pump_reports_nothing() && PUMP_HAS(cuEventElapsedTime);
}

static void make_timed(struct poller *poller, struct pump_marker_pool *pool) {
  struct pump_marker *marker = &pool->markers[pool->next];
  if (PUMP_LOAD_ACQUIRE(&marker->in_use) != 0) {
    pool->next++;
    return;
  }
  if (!check_call(poller, pump_real.cuEventCreate(&marker->event, CU_EVENT_DEFAULT),
                  "cuEventCreate"))
    return;
  if (!check_call(poller, pump_real.cuEventCreate(&marker->begin, CU_EVENT_DEFAULT),
                  "cuEventCreate")) {
    pump_real.cuEventDestroy_v2(marker->event);
    return;
  }
  pool->made++;
  pool->made_timed++;
  pump_marker_queue_push(&pool->timed, pump_marker_ticket_of(pool->next++, pool->epoch));
}

static void fill_pool(struct poller *poller, struct pump_marker_pool *pool) {
  while (short_of_markers(pool) && !poller->over &&
         !pump_executors_gave_up(poller->role.set) &&
         pump_executors_are_current(&poller->role) && enter_context(poller, pool))
    make_markers(poller, pool);
  while (short_of_timed(pool) && !poller->over &&
         !pump_executors_gave_up(poller->role.set) &&
         pump_executors_are_current(&poller->role) && enter_context(poller, pool))
    make_timed(poller, pool);
}

/* Moves fresh markers to the end of the waiting list. */
static void collect_fresh(struct pump_marker_pool *pool) {
  uint32_t ticket, before = pool->waiting_count;
  while (pool->waiting_count < PUMP_MARKERS && pump_marker_queue_pop(&pool->fresh, &ticket))
    if (pump_marker_of_epoch(ticket, pool->epoch))
      pool->waiting[pool->waiting_count++] = ticket;
  if (pool->waiting_count != before)
    PUMP_ADD(&pump_shm->shim_counters.markers, pool->waiting_count - before);
}

#define ELAPSED_MOST_MS 1e9f

static void report_time(const struct pump_marker *marker) {
  float elapsed_ms = -1; /* in case the driver does not set it */
  if (pump_real.cuEventElapsedTime(&elapsed_ms, marker->begin, marker->event) ==
          CUDA_SUCCESS &&
      elapsed_ms >= 0 && elapsed_ms < ELAPSED_MOST_MS)
    pump_event_timed(marker->stream_index, marker->seq,
                     (uint64_t)((double)elapsed_ms * 1e6));
}

/* Polls the waiting list once. `before_ns`: time of the previous pass. Returns true if
 * any stream has advanced. */
static bool poll_waiting(struct poller *poller, struct pump_marker_pool *pool,
                         uint64_t before_ns) {
  uint32_t kept = 0, done = 0;
  bool asked = enter_context(poller, pool);
  for (uint32_t i = 0; i < pool->waiting_count; i++) {
    uint32_t ticket = pool->waiting[i];
    const struct pump_marker *marker = &pool->markers[pump_marker_number_of(ticket)];
    CUresult result = CUDA_ERROR_NOT_READY;
    if (asked && !poller->over && poller->blocked[marker->stream_index] != poller->round)
      result = pump_real.cuEventQuery(marker->event);
    if (result == CUDA_ERROR_NOT_READY) {
      poller->blocked[marker->stream_index] = poller->round;
      pool->waiting[kept++] = ticket;
      continue;
    }
    if (check_call(poller, result, "cuEventQuery")) {
      pump_progress_polled(marker->stream_index, marker->seq, before_ns);
      if (marker->begin != NULL) report_time(marker);
      done++;
    } /* on failure the marker is lost, and the next one covers it */
    pump_marker_queue_push(marker->begin != NULL ? &pool->timed : &pool->free, ticket);
  }
  pool->waiting_count = kept;
  return done != 0;
}

static bool pop_any(struct pump_marker_pool *pool, uint32_t *ticket) {
  if (pool->waiting_count > 0) {
    *ticket = pool->waiting[--pool->waiting_count];
    return true;
  }
  return pump_marker_queue_pop(&pool->fresh, ticket) ||
         pump_marker_queue_pop(&pool->free, ticket) ||
         pump_marker_queue_pop(&pool->timed, ticket);
}

/* Destroys every event of this epoch that can be found (progress/markers.h). */
static void close_pool(struct poller *poller, struct pump_marker_pool *pool) {
  uint32_t epoch = pool->epoch, ticket;
  PUMP_STORE_RELEASE(&pool->epoch, 0);
  bool inside = enter_context(poller, pool);
  if (inside) pump_upcalls.finish_discards(pool->context);
  uint64_t deadline_ns = pump_now_ns() + PUMP_COLLECT_NS;
  while (pool->made > 0) {
    if (pop_any(pool, &ticket)) {
      if (!pump_marker_of_epoch(ticket, epoch)) continue;
      const struct pump_marker *marker = &pool->markers[pump_marker_number_of(ticket)];
      if (inside) pump_real.cuEventDestroy_v2(marker->event);
      if (inside && marker->begin != NULL) pump_real.cuEventDestroy_v2(marker->begin);
      pool->made--;
      continue;
    }
    if (pump_now_ns() >= deadline_ns) return;
    struct timespec pause = {.tv_nsec = 100000};
    nanosleep(&pause, NULL);
  }
}

struct poll_result {
  bool advanced; /* a stream has advanced */
  bool waiting;  /* some recorded markers are not complete */
};

static struct poll_result poll_markers(struct poller *poller) {
  struct poll_result seen = {false, false};
  adopt_contexts(poller);
  poller->round++;
  FOR_SERVED(poller, i) {
    struct pump_marker_pool *pool = &pump_marker_pools[i];
    fill_pool(poller, pool);
    if (PUMP_UNLIKELY(pump_gates_lack(i, pool->epoch)) && enter_context(poller, pool))
      pump_gates_register(poller->role.set->device, i, pool->epoch);
    uint64_t now_ns = pump_now_ns(), before_ns = pool->looked_ns;
    pool->looked_ns = now_ns;
    if (pump_upcalls.discard_is_due(pool->context, now_ns) && enter_context(poller, pool))
      pump_upcalls.discard_dead(pool->context, now_ns);
    collect_fresh(pool);
    if (pool->waiting_count == 0) continue;
    seen.advanced |= poll_waiting(poller, pool, before_ns);
    seen.waiting |= pool->waiting_count > 0 && !pool->broken;
  }
  return seen;
}

static bool anything_fresh(const struct poller *poller) {
  FOR_SERVED(poller, i) {
    const struct pump_marker_queue *fresh = &pump_marker_pools[i].fresh;
    if (PUMP_LOAD(&fresh->head) != PUMP_LOAD(&fresh->tail)) return true;
  }
  return false;
}

/* Returns the shortest pause between two passes. */
static uint64_t least_pause_ns(const struct poller *poller) {
  const struct pump_device *shared = &pump_shm->devices[poller->role.set->device];
  return PUMP_LOAD(&shared->device_state) == PUMP_DEVICE_ACTIVE ? PUMP_POLL_MIN_NS
                                                                : PUMP_POLL_DORMANT_NS;
}

static void work(struct poller *poller) {
  struct pump_marker_sleeper *mark = &pump_marker_sleepers[poller->role.set->device];
  uint64_t pause_ns = least_pause_ns(poller);
  uint64_t busy_ns = 0; /* when a pass last found a recorded marker, complete or not */
  while (!poller->over && pump_executors_are_current(&poller->role)) {
    uint32_t wakes = PUMP_LOAD_ACQUIRE(&mark->wakes);
    struct poll_result seen = poll_markers(poller);
    uint64_t now_ns = pump_now_ns();
    pump_progress_presume(poller->role.set->device, &poller->presumed, now_ns);
    if (seen.waiting || seen.advanced) busy_ns = now_ns;
    if (now_ns - busy_ns < PUMP_LINGER_NS) {
      uint64_t least_ns = least_pause_ns(poller);
      pause_ns = seen.advanced ? least_ns : pause_ns * 5 / 4;
      if (pause_ns > 2 * least_ns) pause_ns = 2 * least_ns;
      if (pump_executors_are_current(&poller->role))
        pump_sleep_wait(&mark->wakes, wakes, pause_ns);
      continue;
    }
    wakes = pump_sleep_prepare(&mark->asleep, &mark->wakes);
    if (!anything_fresh(poller) && pump_executors_are_current(&poller->role))
      pump_sleep_wait(&mark->wakes, wakes, PUMP_IDLE_NS);
    __atomic_store_n(&mark->asleep, 0, __ATOMIC_SEQ_CST);
    FOR_SERVED(poller, i)
    pump_marker_pools[i].looked_ns = 0; /* the last pass was long ago */
  }
}

void *pump_marker_thread(void *argument) {
  const struct pump_thread_role *role = argument;
  struct poller *poller = &pollers[role->set->device];
  memset(poller, 0, sizeof *poller);
  poller->role = *role;
  prctl(PR_SET_TIMERSLACK, (unsigned long)PUMP_POLL_SLACK_NS); /* only for this thread */
  poller->over = !pump_executors_thread_begin(&poller->role);
  poller->current = poller->role.context;
  work(poller);
  FOR_SERVED(poller, i) close_pool(poller, &pump_marker_pools[i]);
  pump_executors_thread_end(&poller->role);
  return NULL;
}
