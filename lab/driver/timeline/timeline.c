/* timeline.c - the model of the GPU under the driver's lock and the real clock.
 *
 * DESIGN
 * The model advances only when it is called; its answers do not depend on how often. So
 * kernels need no thread of their own. A waiting thread asks the model for the earliest
 * time of the next event, sleeps until then, and asks again. Completion times are
 * computed deadlines; a late wake-up never moves them.
 *
 * Effects on data must happen without a call (a pinned word, a host function, a host
 * kernel). One thread runs them, created with the first effect. It checks every STEP_NS
 * while such work is pending. That bounds its cost, and the delay of an effect that no
 * thread waits for. Waiting threads are exact, since they run effects themselves.
 *
 * A thread in a synchronising call blocks, whatever the flags of its context
 * (CU_CTX_SCHED_*). A real one spins or yields by default. Here that would cost twice,
 * because the virtual GPU's threads need CPU cores too. clock.c describes how waits end
 * on time.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include "timeline.h"

#define STEP_NS 200000
#define POLL_NS 50000
#define DOZE_NS 100000
#define CHECK_NS 1000000 /* between checks when no time is known */
#define MANAGED_ARENA_BYTES (256ull << 30)
#define SHARED_ARENA_BYTES                                                                 \
  (32ull << 30)           /* per process; its part of the state uses real memory */
#define MOST_ACTIONS 4096 /* started but not executed: submitters wait */

static const struct gpu_capacity capacity_limits = {
    .streams = GPU_MAX_STREAMS, .events = 65536, .operations = 65536, .uses = 262144};
/* Limits for all processes of a shared GPU together. */
static const struct gpu_capacity shared_limits = {.streams = GPU_MAX_STREAMS,
                                                  .events = 32768,
                                                  .operations = 32768,
                                                  .uses = 131072,
                                                  .notes = 4096};

static pthread_cond_t worker_condition;
static bool worker_started, worker_idle;
static uint64_t worker_until_ns; /* wake-up time of the worker, if it is not idle */
static uint64_t peak_resident_bytes;

void vd_wait_until_locked(uint64_t end_ns) {
  if (end_ns <= vd_now_ns()) return;
  vd_unlock();
  vd_wait_until(end_ns);
  vd_lock();
}

void vd_pay_locked(struct vd_begun begun, const struct gpu_cost *cost) {
  if (cost->caller_free_ns <= begun.now_ns) return;
  vd_unlock();
  vd_pay(begun, cost);
  vd_lock();
}

static void sample_locked(void) {
  struct gpu_memory memory;
  struct gpu_owner_info share;
  gpu_memory_get(vd.engine, &memory);
  uint64_t bytes = memory.plain_bytes + memory.resident_bytes;
  if (vd.shared) {
    vd_card_own_locked(&share);
    bytes = share.plain_bytes + share.resident_bytes;
  }
  if (bytes > peak_resident_bytes) peak_resident_bytes = bytes;
}

uint64_t vd_peak_resident_bytes(void) {
  sample_locked();
  return peak_resident_bytes;
}

/* -- a hook of the model. The cookie is an action, or an event with bit 0 set. -- */

void vd_on_start(void *context, uint64_t cookie, uint64_t ticket, uint64_t time_ns) {
  (void)context;
  vd_log_start(ticket, time_ns);
  if (cookie == 0) return;
  if (cookie & 1) {
    struct vd_event *event = (struct vd_event *)(cookie & ~1ull);
    if (vd_is(event, VD_EVENT)) event->actions = vd_actions_emitted();
    return;
  }
  struct vd_action *action = (struct vd_action *)cookie;
  action->ticket = ticket;
  vd_action_pending(-1);
  vd_action_emit(action);
}

/* -- the driver's own thread -- */

static void signal_worker_locked(void) {
  pthread_cond_signal(&worker_condition);
}

/* Wakes the worker if an event that it waits for may come before its wake-up time. */
static void wake_worker_earlier_locked(void) {
  if (!worker_started || (!vd_actions_wanted() && !vd_actions_polling())) return;
  if (worker_idle || worker_until_ns > gpu_now_ns(vd.engine) + STEP_NS)
    signal_worker_locked();
}

void vd_changed_locked(void) {
  pthread_cond_broadcast(&vd.changed);
  wake_worker_earlier_locked();
}

static void *work(void *unused) {
  (void)unused;
  pthread_setname_np(pthread_self(), "virtual-gpu");
  vd_lock();
  for (;;) {
    while (!vd_actions_wanted() && !vd_actions_polling()) {
      worker_idle = true;
      vd_wait_locked(&worker_condition, NULL);
      worker_idle = false;
    }
    uint64_t now_ns = vd_now_ns();
    gpu_advance(vd.engine, now_ns, &vd_hooks);
    vd_actions_run_locked(false);
    /* Later operations in the hardware queue may start at once. */
    if (vd_actions_poll_locked(vd_now_ns())) continue;
    now_ns = vd_now_ns();
    uint64_t next_ns = gpu_next_event_ns(vd.engine);
    uint64_t until_ns = now_ns + (vd_actions_polling() ? POLL_NS : STEP_NS);
    if (!vd_actions_polling() && next_ns > until_ns) until_ns = next_ns;
    if (until_ns > now_ns + 1000 * CHECK_NS) until_ns = now_ns + 1000 * CHECK_NS;
    struct timespec time = vd_timespec(until_ns);
    worker_until_ns = until_ns;
    vd_wait_locked(&worker_condition, &time);
    worker_until_ns = 0;
  }
  return NULL;
}

int vd_worker_start_locked(void) {
  if (worker_started) return 0;
  pthread_attr_t attributes;
  pthread_t thread;
  sigset_t all, old;
  sigfillset(&all);
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  int error = pthread_create(&thread, &attributes, work, NULL);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  pthread_attr_destroy(&attributes);
  if (error != 0) {
    vd_error("cannot start the device's thread (error %d)", error);
    return -1;
  }
  worker_started = true;
  return 0;
}

/* -- waiting -- */

/* Sleeps without the lock until `earliest_ns`, or until the model may have news. */
static void pause_locked(uint64_t earliest_ns) {
  uint64_t now_ns = vd_now_ns(), wake_ns;
  if (vd_actions_wanted()) signal_worker_locked();
  /* An operation that waits for other streams cannot end before the next event. */
  if (earliest_ns <= now_ns) earliest_ns = gpu_next_event_ns(vd.engine);
  if (earliest_ns == GPU_NEVER || earliest_ns <= now_ns) {
    struct timespec time = vd_timespec(now_ns + CHECK_NS);
    vd_wait_locked(&vd.changed, &time);
  } else if ((wake_ns = vd_wake_ns(earliest_ns)) != 0) {
    struct timespec time = vd_timespec(wake_ns);
    unsigned long slack_ns = vd_slack_change(1);
    vd_wait_locked(&vd.changed, &time);
    (void)vd_slack_change(slack_ns);
  } else {
    vd_wait_until_locked(earliest_ns);
  }
}

/* Blocks while the launch queue is full, which takes long: no precision is needed. */
static void sleep_locked(uint64_t until_ns) {
  uint64_t now_ns = vd_now_ns();
  if (vd_actions_wanted()) signal_worker_locked();
  if (until_ns < now_ns + DOZE_NS) until_ns = now_ns + DOZE_NS;
  if (until_ns > now_ns + CHECK_NS) until_ns = now_ns + CHECK_NS;
  struct timespec time = vd_timespec(until_ns);
  vd_wait_locked(&vd.changed, &time);
}

/* Waits for the effects started until the model reported the end. */
static void wait_actions_locked(void) {
  uint64_t until = vd_actions_emitted();
  vd_actions_run_locked(true);
  while (!vd_actions_done(until)) {
    pause_locked(GPU_NEVER);
    vd_actions_run_locked(true);
  }
}

static void wait_ticket_locked(uint64_t ticket) {
  uint64_t earliest_ns;
  while (gpu_ticket_query(vd.engine, vd_now_ns(), &vd_hooks, ticket, &earliest_ns) == 0)
    if (!vd_actions_run_locked(true)) pause_locked(earliest_ns);
}

CUresult vd_wait_stream_locked(struct vd_stream *stream) {
  if (stream->last_ticket != 0) wait_ticket_locked(stream->last_ticket);
  wait_actions_locked();
  sample_locked();
  return CUDA_SUCCESS;
}

CUresult vd_wait_context_locked(const struct vd_context *context) {
  uint64_t tickets[GPU_MAX_STREAMS];
  uint32_t count = 0;
  tickets[count++] = vd_streams.legacy.last_ticket;
  for (struct vd_stream *s = vd_streams.first; s != NULL && count < GPU_MAX_STREAMS;
       s = s->next)
    if (context == NULL || s->context == context) tickets[count++] = s->last_ticket;
  for (uint32_t i = 0; i < count; i++)
    if (tickets[i] != 0) wait_ticket_locked(tickets[i]);
  wait_actions_locked();
  sample_locked();
  return CUDA_SUCCESS;
}

CUresult vd_wait_device_locked(void) {
  return vd_wait_context_locked(NULL);
}

bool vd_stream_idle_locked(struct vd_stream *stream) {
  uint64_t earliest_ns;
  int idle =
      gpu_stream_query(vd.engine, vd_now_ns(), &vd_hooks, stream->number, &earliest_ns);
  if (idle != 1) return false;
  if (vd_actions_done(vd_actions_emitted())) return true;
  signal_worker_locked();
  return false;
}

bool vd_event_done_locked(struct vd_event *event, uint64_t *time_ns) {
  int done = gpu_event_query(vd.engine, vd_now_ns(), &vd_hooks, event->number, time_ns);
  if (done == 0) return false; /* an event that ended with its process ends every wait */
  if (vd_actions_done(event->actions)) return true;
  signal_worker_locked();
  *time_ns = GPU_NEVER;
  return false;
}

CUresult vd_wait_event_locked(struct vd_event *event) {
  uint64_t time_ns;
  while (vd_is(event, VD_EVENT) && !vd_event_done_locked(event, &time_ns))
    if (!vd_actions_run_locked(true)) pause_locked(time_ns);
  return CUDA_SUCCESS;
}

/* -- submitting -- */

CUresult vd_submit_locked(struct vd_stream *stream, struct gpu_operation *operation,
                          struct vd_action *action) {
  struct gpu_submitted submitted;
  vd_pass_locked(GPU_CALL_LAUNCH, stream);
  if (action != NULL) {
    if (vd_worker_start_locked() != 0) {
      vd_action_free(action);
      return CUDA_ERROR_OPERATING_SYSTEM;
    }
    while (vd_actions_emitted() > MOST_ACTIONS &&
           !vd_actions_done(vd_actions_emitted() - MOST_ACTIONS))
      if (!vd_actions_run_locked(true)) sleep_locked(GPU_NEVER);
    operation->cookie = (uint64_t)action;
    vd_action_pending(1);
  }
  int result;
  for (;;) {
    submitted.retry_ns = GPU_NEVER;
    result = gpu_submit(vd.engine, vd_now_ns(), &vd_hooks, stream->number, operation,
                        &submitted);
    if (result != GPU_WAIT && result != GPU_FULL) break;
    if (result == GPU_FULL) submitted.retry_ns = gpu_next_event_ns(vd.engine);
    if (!vd_actions_run_locked(true)) sleep_locked(submitted.retry_ns);
  }
  if (result != GPU_OK) {
    if (action != NULL) {
      vd_action_pending(-1);
      vd_action_free(action);
    }
    return CUDA_ERROR_INVALID_VALUE;
  }
  stream->last_ticket = submitted.ticket;
  sample_locked();
  wake_worker_earlier_locked();
  return CUDA_SUCCESS;
}

/* -- start -- */

static void *arena(uint64_t length_bytes) {
  uint8_t *start = mmap(NULL, length_bytes + GPU_BLOCK_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) return NULL;
  madvise(start, length_bytes + GPU_BLOCK_BYTES, MADV_DONTFORK);
  uint64_t aligned = ((uint64_t)start + GPU_BLOCK_BYTES - 1) & ~(GPU_BLOCK_BYTES - 1ull);
  return (void *)aligned;
}

/* Returns the arena's size: halved while addresses are scarce (valgrind, RLIMIT_AS). */
static uint64_t most_addresses(uint64_t least_bytes) {
  uint64_t bytes = MANAGED_ARENA_BYTES;
  for (; bytes / 2 >= least_bytes; bytes /= 2) {
    void *start = mmap(NULL, 2 * bytes, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) continue;
    munmap(start, 2 * bytes);
    break;
  }
  return bytes;
}

CUresult vd_timeline_start(void) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&vd.changed, &attributes);
  pthread_cond_init(&worker_condition, &attributes);
  pthread_condattr_destroy(&attributes);

  bool shared = vd_card_wanted(); /* if so, all owners need the same sizes */
  uint64_t memory_bytes = vd.profile.memory_bytes;
  uint64_t managed_bytes = shared ? SHARED_ARENA_BYTES : most_addresses(4 * memory_bytes);
  if (managed_bytes < 4 * memory_bytes) managed_bytes = 4 * memory_bytes;
  managed_bytes = (managed_bytes + GPU_BLOCK_BYTES - 1) & ~(GPU_BLOCK_BYTES - 1ull);
  uint64_t plain_bytes = 2 * memory_bytes + GPU_BLOCK_BYTES; /* twice: it fragments */
  struct gpu_capacity capacity = shared ? shared_limits : capacity_limits;
  capacity.blocks = (uint32_t)(managed_bytes / GPU_BLOCK_BYTES);
  size_t state_bytes = shared ? 0 : gpu_engine_bytes(&capacity);
  vd.managed.base = (uint64_t)arena(managed_bytes);
  vd.plain.base = (uint64_t)arena(plain_bytes);
  void *state = state_bytes ? arena(state_bytes) : NULL;
  if (vd.managed.base == 0 || vd.plain.base == 0 || (state == NULL && !shared)) {
    vd_error("cannot reserve %.0f MiB of address space (check overcommit and ulimit -v)",
             (double)(managed_bytes + plain_bytes) / (1 << 20));
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  vd.managed.end = vd.managed.base + managed_bytes;
  vd.plain.end = vd.plain.base + plain_bytes;
  if (shared) {
    CUresult result = vd_card_join(&capacity);
    vd_streams.legacy.number = vd.owner;
    return result;
  }
  vd.engine = gpu_engine_create(state, state_bytes, &capacity, &vd.profile, 0, vd_now_ns());
  if (vd.engine == NULL) {
    vd_error("profile \"%s\": cannot build the model of the GPU", vd.profile.name);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  return CUDA_SUCCESS;
}
