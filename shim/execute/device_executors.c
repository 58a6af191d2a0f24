/* device_executors.c - starts and ends the threads of each device.
 *
 * executor.c and poll.c define what the threads do. Threads run in the program's own
 * contexts, because an additional context costs some hundred MiB of GPU memory.
 * Out-threads (prefetch to the host) get contexts of their own if calls wait for the
 * driver's lock (own_context.h). Managed memory belongs to the process, so any context
 * can migrate it. The program never sees such a context. It is kept until the process
 * ends, because destroying it may stall other driver calls.
 *
 * DESIGN. Before the program destroys a context, pump's threads must have left the driver
 * and destroyed their streams and events: cuCtxDestroy during a prefetch is undefined. So
 * each set of threads has an epoch. Incrementing it makes every thread finish its
 * slice, clean up and decrement `alive`. Threads are never cancelled. If they do not
 * return within PUMP_QUIESCE_NS, the driver is stuck: the set stays broken until the
 * process ends, and the program continues.
 *
 * The marker thread works in every context of the device, so the end of any context ends
 * the whole set. If another context remains, a new set starts there immediately.
 *
 * The lock is held while waiting for threads to end. Application threads that only want
 * executors use trylock and retry later. The exit path takes no lock, because exit() may
 * be called while we hold one.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "executors.h"

#define MARKER_ROLE (PUMP_IN_THREADS_MOST + PUMP_OUT_THREADS_MOST)
#define SET_THREADS (MARKER_ROLE + 1)
#define FAILURES_MAX 16
#define GIVE_UP_NS 2000000000u      /* by then a host short of memory may have recovered */
#define OWN_BYTES_MOST (512u << 20) /* upper bound per context */
#define THREAD_DATA_BYTES 4096

/* Process-wide. Contexts and sets change under `lock`; readers take no lock. A forked
 * child starts with empty sets. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Taken only by out-threads, to create contexts. Its holder waits for no out-thread. */
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
static struct pump_device_executors sets[PUMP_MAX_DEVICES];
static struct pump_thread_role roles[PUMP_MAX_DEVICES][SET_THREADS];
static bool stopping; /* the process exits: start no more threads */

struct pump_device_executors *pump_executors_of(uint32_t device) {
  return &sets[device];
}

/* Returns the set of the device. The caller holds the lock. */
static struct pump_device_executors *set_on(uint32_t device) {
  if (sets[device].device != device) sets[device].device = device; /* first use */
  return &sets[device];
}

/* ---- threads -------------------------------------------------------------- */

static void say_no_thread(const char *name, int error) {
  static uint32_t said;
  pump_log_once(&said, PUMP_LOG_WARNING,
                "cannot start thread %s: %s; prefetching is slower or off. Raise ulimit -u "
                "or the cgroup's pids.max",
                name, strerror(error));
}

/* Returns whether the thread's heap has memory for the driver's thread-local data. The C
 * library aborts the process if it cannot allocate that data at the thread's first driver
 * call. The memory tested here is freed but stays in the thread's heap. */
static bool has_thread_memory(void) {
  void *volatile some = malloc(THREAD_DATA_BYTES);
  free(some);
  return some != NULL;
}

bool pump_executors_thread_begin(struct pump_thread_role *role) {
  pump_thread_begin();
  pump_thread_raise_priority();
  if (!has_thread_memory()) {
    char name[16] = "";
    prctl(PR_GET_NAME, name);
    say_no_thread(name, ENOMEM);
    role->context = NULL;
    return false;
  }
  if (pump_real.cuThreadExchangeStreamCaptureMode != NULL) {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    pump_real.cuThreadExchangeStreamCaptureMode(&mode);
  }
  if (pump_real.cuCtxSetCurrent == NULL) return false;
  CUresult result = pump_real.cuCtxSetCurrent(role->context);
  pump_executors_note_result(role->set, result, "cuCtxSetCurrent");
  return result == CUDA_SUCCESS;
}

static size_t free_bytes(void) {
  size_t bytes = 0, total_bytes = 0;
  return pump_real.cuMemGetInfo_v2(&bytes, &total_bytes) == CUDA_SUCCESS ? bytes : 0;
}

/* Creates a context, which becomes current. Contexts are created one at a time, so that
 * the device memory of each can be measured. Concurrent changes of free memory count as
 * the context's, up to OWN_BYTES_MOST. */
static CUresult make_context(struct pump_device_executors *set, CUcontext *made) {
  if (!PUMP_HAS(cuCtxCreate_v2) || !PUMP_HAS(cuMemGetInfo_v2) ||
      pump_real.cuStreamSynchronize == NULL)
    return CUDA_ERROR_NOT_SUPPORTED;
  pthread_mutex_lock(&making);
  size_t before = free_bytes();
  pump_real.cuCtxSetCurrent(NULL); /* or the new context would be stacked on it */
  CUresult result =
      pump_real.cuCtxCreate_v2(made, CU_CTX_SCHED_BLOCKING_SYNC, (CUdevice)set->device);
  size_t after = result == CUDA_SUCCESS ? free_bytes() : before;
  pthread_mutex_unlock(&making);
  if (result != CUDA_SUCCESS) return result;
  size_t taken = before > after ? before - after : 0;
  pump_plain_add_own(set->device, *made, taken < OWN_BYTES_MOST ? taken : OWN_BYTES_MOST);
  PUMP_ADD(&pump_shm->shim_counters.own_contexts, 1);
  return result;
}

bool pump_executors_change_context(const struct pump_thread_role *role, bool own) {
  struct pump_device_executors *set = role->set;
  CUcontext *own_one = &set->own[role->number];
  CUresult result;
  if (own && *own_one == NULL) {
    result = make_context(set, own_one);
    if (result == CUDA_SUCCESS) return true;
    *own_one = NULL;
    pump_executors_note_result(set, result,
                               "cuCtxCreate"); /* context stays the program's */
  }
  CUcontext context = own && *own_one != NULL ? *own_one : role->context;
  result = pump_real.cuCtxSetCurrent(context);
  pump_executors_note_result(set, result, "cuCtxSetCurrent");
  return result == CUDA_SUCCESS;
}

void pump_executors_thread_end(const struct pump_thread_role *role) {
  struct pump_device_executors *set =
      role->set; /* `role` may be reused after `alive` is decremented */
  if (role->context != NULL && pump_real.cuCtxSetCurrent != NULL)
    pump_real.cuCtxSetCurrent(NULL);
  __atomic_fetch_sub(&set->alive, 1, __ATOMIC_RELEASE);
  pump_futex_wake(&set->alive);
}

bool pump_executors_note_result(struct pump_device_executors *set, CUresult result,
                                const char *call) {
  static uint8_t said[1024]; /* by error code: 1 once logged */
  if (result == CUDA_SUCCESS) {
    PUMP_STORE(&set->failures, 0);
    return true;
  }
  /* The program destroys its context or shuts the driver down: no message. */
  if (result == CUDA_ERROR_DEINITIALIZED || result == CUDA_ERROR_CONTEXT_IS_DESTROYED ||
      result == CUDA_ERROR_INVALID_CONTEXT)
    return false;
  if (__atomic_exchange_n(&said[(unsigned)result & 1023], 1, __ATOMIC_RELAXED) == 0)
    pump_log(PUMP_LOG_WARNING,
             "%s on device %u failed with CUDA error %d; the job keeps running. If this "
             "repeats, check dmesg and nvidia-smi",
             call, set->device, result);
  if (PUMP_ADD(&set->failures, 1) + 1 >= FAILURES_MAX && PUMP_LOAD(&set->give_up) == 0) {
    static uint32_t said_once;
    PUMP_STORE(&set->gave_up_ns, pump_now_ns());
    PUMP_STORE_RELEASE(&set->give_up, 1); /* publishes gave_up_ns as well */
    pump_log_once(&said_once, PUMP_LOG_WARNING,
                  "%d driver errors in a row on device %u (the last: %d): prefetching "
                  "pauses there, demand paging continues. Check dmesg and nvidia-smi",
                  FAILURES_MAX, set->device, result);
  }
  return true;
}

bool pump_executors_gave_up(struct pump_device_executors *set) {
  if (PUMP_LOAD_ACQUIRE(&set->give_up) == 0) return false;
  if (pump_now_ns() - PUMP_LOAD(&set->gave_up_ns) < GIVE_UP_NS) return true;
  PUMP_STORE(&set->failures, 0);
  PUMP_STORE(&set->give_up, 0);
  return false;
}

void pump_executors_wake(struct pump_device_executors *set) {
  for (int direction = 0; direction < PUMP_DIRECTIONS; direction++) {
    uint32_t *wakes = &pump_shm->executors[set->device][direction].wakes;
    __atomic_fetch_add(wakes, 1, __ATOMIC_RELEASE);
    pump_futex_wake(wakes);
  }
  for (int direction = 0; direction < PUMP_DIRECTIONS; direction++)
    pump_futex_wake(&set->directions[direction].wanted);
  pump_markers_wake(set->device);
}

void pump_executors_wake_all(void) {
  for (uint32_t d = 0; d < PUMP_MAX_DEVICES; d++)
    if (PUMP_LOAD(&sets[d].alive) != 0) pump_executors_wake(&sets[d]);
}

/* Waits until no thread of the set is alive, or until `deadline_ns`. */
static bool wait_for_threads(struct pump_device_executors *set, uint64_t deadline_ns) {
  for (;;) {
    uint32_t alive = PUMP_LOAD_ACQUIRE(&set->alive);
    if (alive == 0) return true;
    uint64_t now_ns = pump_now_ns();
    if (now_ns >= deadline_ns) return false;
    uint64_t left_ns = deadline_ns - now_ns;
    pump_executors_wake(set);
    pump_futex_sleep(&set->alive, alive, left_ns < 20000000 ? left_ns : 20000000);
  }
}

/* ---- starting threads ---------------------------------------------------------- */

/* Returns a direction's bounds. A prefetch to the host blocks its thread until done. */
const struct pump_adapt_bounds *pump_direction_bounds(uint32_t direction) {
  static const struct pump_adapt_bounds bounds[PUMP_DIRECTIONS] = {
      [PUMP_TO_GPU] = {.threads_min = 1,
                       .threads_max = PUMP_IN_THREADS_MOST,
                       .threads_first = 1,
                       .flight_bytes = PUMP_IN_FLIGHT_BYTES},
      [PUMP_TO_HOST] = {.threads_min = 2,
                        .threads_max = PUMP_OUT_THREADS_MOST,
                        .threads_first = 3, /* enough for a PCIe 4 link */
                        .flight_bytes = PUMP_OUT_FLIGHT_BYTES},
  };
  return &bounds[direction];
}

/* Starts one thread of the set. The caller holds the lock. */
static bool start_thread(struct pump_device_executors *set, uint32_t role_index,
                         const char *kind, void *(*body)(void *), uint32_t direction,
                         uint32_t number) {
  struct pump_thread_role *role = &roles[set->device][role_index];
  *role = (struct pump_thread_role){.set = set,
                                    .epoch = set->epoch,
                                    .direction = direction,
                                    .number = number,
                                    .context = set->context};
  char name[16];
  snprintf(name, sizeof name, "pump-%s-%u", kind, set->device & 15);
  __atomic_fetch_add(&set->alive, 1, __ATOMIC_ACQ_REL);
  int error = pump_thread_start(name, body, role);
  if (error == 0) return true;
  say_no_thread(name, -error);
  __atomic_fetch_sub(&set->alive, 1, __ATOMIC_ACQ_REL);
  return false;
}

/* Starts movers of a direction until `count` are running. The caller holds the lock. */
static void start_movers(struct pump_device_executors *set, uint32_t direction,
                         uint32_t count) {
  struct pump_direction *state = &set->directions[direction];
  bool in = direction == PUMP_TO_GPU;
  for (; state->started < count; state->started++)
    if (!start_thread(set, (in ? 0 : PUMP_IN_THREADS_MOST) + state->started,
                      in ? "in" : "out", pump_mover_thread, direction, state->started))
      return;
}

/* Starts a new set with the first in-thread. The caller holds the lock. */
static void start_set(struct pump_device_executors *set) {
  __atomic_add_fetch(&set->epoch, 1, __ATOMIC_ACQ_REL);
  PUMP_STORE(&set->failures, 0);
  PUMP_STORE(&set->give_up, 0);
  for (uint32_t d = 0; d < PUMP_DIRECTIONS; d++) {
    struct pump_direction *state = &set->directions[d];
    *state = (struct pump_direction){.adapt = pump_adapt_begin(pump_direction_bounds(d))};
    state->wanted = state->adapt.threads;
  }
  PUMP_STORE(&set->full, 0);
  PUMP_STORE_RELEASE(&set->state, PUMP_EXECUTORS_RUNNING);
  start_movers(set, PUMP_TO_GPU, 1);
  pump_log(PUMP_LOG_DEBUG, "executors of device %u started", set->device);
}

/* Starts the threads that only a program needs whose memory exceeds the budget. The
 * caller holds the lock. */
static void fill_set(struct pump_device_executors *set) {
  for (uint32_t d = 0; d < PUMP_DIRECTIONS; d++)
    start_movers(set, d, pump_direction_bounds(d)->threads_first);
  start_thread(set, MARKER_ROLE, "mark", pump_marker_thread, PUMP_TO_GPU, 0);
  PUMP_STORE_RELEASE(&set->full, 1);
}

void pump_executors_start(uint32_t device, bool full) {
  if (device >= PUMP_MAX_DEVICES) return;
  struct pump_device_executors *set = &sets[device];
  uint32_t state = PUMP_LOAD_ACQUIRE(&set->state);
  if (PUMP_LIKELY(state == PUMP_EXECUTORS_RUNNING &&
                  (!full || PUMP_LOAD_ACQUIRE(&set->full) != 0)))
    return;
  if (state == PUMP_EXECUTORS_BROKEN) return;
  if (pthread_mutex_trylock(&lock) != 0) return; /* a later call retries */
  if (set_on(device)->context == NULL)
    __atomic_store_n(&set->context, pump_context_of_device(device), __ATOMIC_RELEASE);
  if (!__atomic_load_n(&stopping, __ATOMIC_ACQUIRE) && set->context != NULL) {
    if (set->state == PUMP_EXECUTORS_OFF) start_set(set);
    if (set->state == PUMP_EXECUTORS_RUNNING && full && set->full == 0) fill_set(set);
  }
  pthread_mutex_unlock(&lock);
}

void pump_executors_request(uint32_t device) {
  struct pump_device_executors *set = &sets[device];
  if (PUMP_LOAD_ACQUIRE(&set->full) != 0 || PUMP_LOAD(&set->alive) == 0) return;
  PUMP_STORE(&set->asked, 1);
  pump_executors_wake(set);
}

void pump_executors_start_requested(struct pump_device_executors *set) {
  pump_log_write_deferred();
  if (PUMP_LOAD(&set->asked) == 0) return;
  PUMP_STORE(&set->asked, 0);
  pump_executors_start(set->device, true);
}

void pump_executors_grow(const struct pump_thread_role *role) {
  struct pump_device_executors *set = role->set;
  if (pthread_mutex_trylock(&lock) != 0) return; /* the set may be ending */
  if (!__atomic_load_n(&stopping, __ATOMIC_ACQUIRE) && pump_executors_are_current(role) &&
      set->state == PUMP_EXECUTORS_RUNNING)
    start_movers(set, role->direction, PUMP_LOAD(&set->directions[role->direction].wanted));
  pthread_mutex_unlock(&lock);
}

/* ---- contexts ------------------------------------------------------------- */

/* Ends all threads of a set, which may be in any context of its device, and restarts them
 * if another context remains. The caller holds the lock. */
static void quiesce(struct pump_device_executors *set) {
  uint32_t full = set->full;
  bool ran = set->state == PUMP_EXECUTORS_RUNNING;
  if (ran) {
    __atomic_store_n(&set->state, PUMP_EXECUTORS_OFF, __ATOMIC_RELEASE);
    __atomic_fetch_add(&set->epoch, 1, __ATOMIC_ACQ_REL);
    if (!wait_for_threads(set, pump_now_ns() + PUMP_QUIESCE_NS)) {
      __atomic_store_n(&set->state, PUMP_EXECUTORS_BROKEN, __ATOMIC_RELEASE);
      pump_log(PUMP_LOG_WARNING,
               "executors of device %u are stuck in the driver: no more prefetches there, "
               "demand paging continues. Check dmesg and nvidia-smi",
               set->device);
    }
  }
  CUcontext other = pump_context_of_device(set->device); /* executors can move there */
  __atomic_store_n(&set->context, other, __ATOMIC_RELEASE);
  if (!ran || other == NULL || set->state != PUMP_EXECUTORS_OFF ||
      __atomic_load_n(&stopping, __ATOMIC_ACQUIRE))
    return;
  start_set(set);
  if (full != 0) fill_set(set);
}

/* Ends the threads in `context`, or in all contexts of the device if it is NULL. */
static void contexts_gone(CUcontext context, CUdevice device) {
  CUcontext ended[PUMP_MAX_CONTEXTS];
  int saved = errno;
  /* Removed from the table first, so that new threads start in another context. */
  uint32_t count = pump_contexts_remove(context, &device, ended);
  pthread_mutex_lock(&lock);
  if (count != 0) quiesce(set_on((uint32_t)device));
  pthread_mutex_unlock(&lock);
  for (uint32_t i = 0; i < count; i++) pump_progress_context_gone(ended[i]);
  errno = saved;
}

void pump_executors_context_gone(CUcontext context) {
  if (context != NULL) contexts_gone(context, 0);
}

void pump_executors_device_gone(CUdevice device) {
  contexts_gone(NULL, device);
}

void pump_executors_stop(uint64_t deadline_ns) {
  __atomic_store_n(&stopping, true, __ATOMIC_SEQ_CST);
  for (int d = 0; d < PUMP_MAX_DEVICES; d++)
    if (PUMP_LOAD(&sets[d].alive) != 0)
      __atomic_fetch_add(&sets[d].epoch, 1, __ATOMIC_ACQ_REL);
  for (int d = 0; d < PUMP_MAX_DEVICES; d++)
    if (!wait_for_threads(&sets[d], deadline_ns))
      pump_log(PUMP_LOG_DEBUG, "at exit, threads of device %d are still in the driver", d);
}

void pump_executors_fork_child(void) {
  pthread_mutex_init(&lock, NULL);
  pthread_mutex_init(&making, NULL);
  memset(sets, 0, sizeof sets);
  stopping = false;
}
