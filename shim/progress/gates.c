/* gates.c - makes launches wait in their stream for their memory.
 *
 * A *gate* before a launch: the stream waits until a word in host memory has reached the
 * launch's number. The worker reports the newest operation with all memory resident for
 * it and its predecessors (pump_device.ready_seq). The thread of this file copies this
 * number into the words. Gates are made before
 *   - all launches of a job that yields to others (docs/decisions/0073-gates.md), because a
 *     kernel that waits for its memory occupies the GPU;
 *   - launches that touch much of the budget (docs/decisions/0088-large-launches.md): their
 *     faults evict blocks that the schedule needs.
 *
 * DESIGN. No stream may wait forever, whatever ends. The thread makes no driver call and
 * takes no lock. So a launch that waits for space in a full launch queue, with the
 * driver's lock held, cannot block it.
 *
 * The thread opens all gates when the job stops yielding: the worker's request is for a
 * bounded time and is renewed each second. It does so as well when the worker is silent.
 * The thread also forces all gates open if nothing has moved for PUMP_GATE_STILL_NS, or a
 * gate has been shut for PUMP_GATE_MOST_NS. Then no gate is made for PUMP_GATE_PAUSE_NS,
 * which doubles each time for large launches.
 *
 * Before a stream is made to wait, the newest number is raised, and the thread knows the
 * context's word. The thread sets `asleep` before its last check of both, and is woken
 * after the wait was issued.
 *
 * A gate has the number that the next operation of any thread gets. If another thread
 * comes first, the gate opens one operation early. Only the lower 32 bits of a number are
 * used: the driver compares them modulo 2^32.
 *
 * Words are in shared memory, so that a fork does not copy pages that the driver has
 * pinned. Each context has its own page, which stays registered until the context ends.
 */
#include <string.h>
#include <sys/mman.h>

#include "markers.h"

#define PAGE_BYTES 4096u
/* cuda.h: CU_STREAM_WAIT_VALUE_GEQ, CU_MEMHOSTREGISTER_DEVICEMAP, and
 * CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED. */
#define WAIT_GEQ 0u
#define REGISTER_DEVICEMAP 2u
#define ALREADY_REGISTERED 712

struct gates {
  uint64_t asked_ns, until_ns; /* written by the link thread, as in memory/drain.c */
  uint64_t made;               /* number of the newest gate */
  uint64_t paused_ns;          /* no gate is made until then */
  /* The thread's own: opened (gates up to this number), seen (last moved(), which changed
   * at changed_ns), shut_ns (since when any gate is shut; 0: all are open). */
  uint64_t opened, seen, changed_ns, shut_ns;
  uint32_t forced; /* how often gates of large launches were forced open */
};
static struct gates all[PUMP_MAX_DEVICES];
static unsigned char *pages; /* one page for each small number of a context */
static struct {
  uint32_t epoch; /* epoch of the marker pool when the page was registered; 0: never */
  uint32_t device;
} words[PUMP_MAX_CONTEXTS];
static bool refused; /* this driver does not support such waits */
static bool stopped; /* the process is ending */
static uint32_t asleep, wakes;
uint32_t pump_gates_devices, pump_gates_large;

static uint32_t *word_of(uint32_t context_index) {
  return (uint32_t *)(void *)(pages + (size_t)context_index * PAGE_BYTES);
}

/* ---- the thread that opens gates --------------------------------------------------- */

static void publish_opened_gates(uint32_t device) {
  for (uint32_t i = 0; i < PUMP_MAX_CONTEXTS; i++)
    if (PUMP_LOAD_ACQUIRE(&words[i].epoch) != 0 && PUMP_LOAD(&words[i].device) == device)
      __atomic_store_n(word_of(i), (uint32_t)all[device].opened, __ATOMIC_RELEASE);
}

/* Returns a number that changes while anything moves or executes. */
static uint64_t moved(uint32_t device) {
  const struct pump_schedule *schedule = &pump_shm->schedules[device];
  return PUMP_LOAD(&schedule->left_bytes) + PUMP_LOAD(&schedule->ended_bytes) +
         PUMP_LOAD(&pump_shm->header.activity);
}

/* Returns whether a worker plans arrivals on the device, so that a large launch may wait
 * for them. */
static bool serves_large(uint32_t device, uint64_t now_ns) {
  uint64_t heard_ns = PUMP_LOAD(&pump_shm->header.worker_heartbeat_ns);
  uint64_t ready = PUMP_LOAD(&pump_shm->devices[device].ready_seq);
  return !PUMP_LOAD(&stopped) && !pump_reports_nothing() && ready != 0 &&
         ready != UINT64_MAX && now_ns < heard_ns + PUMP_GATE_SILENT_NS;
}

/* Returns the highest number that may have an open gate. */
static uint64_t may_open(uint32_t device, uint64_t made, uint64_t now_ns) {
  struct gates *gates = &all[device];
  bool yields = pump_job_yields(device);
  if (!yields && !serves_large(device, now_ns)) return made;
  uint64_t ready = PUMP_LOAD(&pump_shm->devices[device].ready_seq), seen = moved(device);
  if (gates->shut_ns == 0 || ready > gates->opened) gates->shut_ns = now_ns;
  if (gates->seen != seen || ready > gates->opened) gates->changed_ns = now_ns;
  gates->seen = seen;
  if (now_ns - gates->changed_ns <= PUMP_GATE_STILL_NS &&
      now_ns - gates->shut_ns <= PUMP_GATE_MOST_NS)
    return ready < made ? ready : made;
  uint32_t doubled = yields ? 0 : gates->forced;
  if (!yields && gates->forced < PUMP_GATE_DOUBLED_MOST) gates->forced++;
  PUMP_STORE(&gates->paused_ns, now_ns + ((uint64_t)PUMP_GATE_PAUSE_NS << doubled));
  PUMP_ADD(&pump_shm->shim_counters.gates_forced, 1);
  return made;
}

/* Updates the words of a device. Returns whether any of its gates is still shut. */
static bool poll_gates(uint32_t device, uint64_t now_ns) {
  struct gates *gates = &all[device];
  uint64_t made = __atomic_load_n(&gates->made, __ATOMIC_SEQ_CST);
  if (made == 0) return false;
  if (made > gates->opened) {
    uint64_t open = may_open(device, made, now_ns);
    if (open > gates->opened) gates->opened = open;
  }
  publish_opened_gates(device);
  if (gates->opened < made) return true;
  gates->shut_ns = 0;
  return false;
}

static void *open_gates(void *unused) {
  (void)unused;
  pump_thread_begin();
  for (;;) {
    uint32_t ticket = pump_sleep_prepare(&asleep, &wakes);
    uint64_t now_ns = pump_now_ns();
    bool shut = false;
    for (uint32_t i = 0; i < PUMP_MAX_DEVICES; i++) shut |= poll_gates(i, now_ns);
    if (shut) __atomic_store_n(&asleep, 0, __ATOMIC_SEQ_CST);
    pump_sleep_wait(&wakes, ticket, shut ? PUMP_POLL_MIN_NS : PUMP_IDLE_NS);
    __atomic_store_n(&asleep, 0, __ATOMIC_SEQ_CST);
  }
  return NULL;
}

/* ---- yielding, by the link thread -------------------------------------------------- */

static bool begin(void) {
  if (pages != NULL) return true;
  void *got = mmap(NULL, (size_t)PUMP_MAX_CONTEXTS * PAGE_BYTES, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (got == MAP_FAILED) return false;
  if (pump_thread_start("pump-gates", open_gates, NULL) != 0) {
    munmap(got, (size_t)PUMP_MAX_CONTEXTS * PAGE_BYTES);
    return false;
  }
  __atomic_store_n(&pages, got, __ATOMIC_RELEASE);
  return true;
}

void pump_yield_set(uint32_t device, uint64_t until_ns) {
  struct gates *gates = &all[device];
  uint64_t now_ns = pump_now_ns();
  if (until_ns != gates->asked_ns) { /* the same request again renews nothing */
    gates->asked_ns = until_ns;
    if (until_ns > now_ns + PUMP_HOLD_MOST_NS) until_ns = now_ns + PUMP_HOLD_MOST_NS;
    PUMP_STORE(&gates->until_ns, until_ns);
  }
  bool yields = PUMP_LOAD(&gates->until_ns) > now_ns && begin();
  uint32_t bit = 1u << device;
  if (yields) /* a thread that sees the bit also sees `pages` */
    __atomic_fetch_or(&pump_gates_devices, bit, __ATOMIC_RELEASE);
  else
    __atomic_fetch_and(&pump_gates_devices, ~bit, __ATOMIC_RELAXED);
}

void pump_gates_adopt(void) {
  if (PUMP_LOAD(&pump_gates_large) != 0) begin();
  for (uint32_t i = 0; i < PUMP_MAX_DEVICES; i++)
    pump_yield_set(i, PUMP_LOAD(&pump_shm->devices[i].yield_until_ns));
}

bool pump_job_yields(uint32_t device) {
  return (PUMP_LOAD(&pump_gates_devices) >> device & 1) != 0 && !PUMP_LOAD(&stopped) &&
         !pump_reports_nothing() && pump_now_ns() < PUMP_LOAD(&all[device].until_ns);
}

void pump_gates_stop(void) {
  PUMP_STORE(&stopped, true);
}

/* ---- making gates ------------------------------------------------------------------ */

bool pump_gates_lack(uint32_t context_index, uint32_t epoch) {
  return __atomic_load_n(&pages, __ATOMIC_ACQUIRE) != NULL && !PUMP_LOAD(&refused) &&
         words[context_index].epoch != epoch;
}

void pump_gates_register(uint32_t device, uint32_t context_index, uint32_t epoch) {
  /* A page that was registered in an earlier epoch of this pool still is. */
  CUresult result = pump_real.cuMemHostRegister_v2(word_of(context_index), PAGE_BYTES,
                                                   REGISTER_DEVICEMAP);
  if (result != CUDA_SUCCESS && result != ALREADY_REGISTERED) {
    PUMP_STORE(&refused, true);
    return;
  }
  PUMP_STORE(&words[context_index].device, device);
  PUMP_STORE_RELEASE(&words[context_index].epoch, epoch);
}

bool pump_gates_may(uint32_t device, bool large) {
  uint64_t now_ns = pump_now_ns();
  return now_ns >= PUMP_LOAD(&all[device].paused_ns) && !PUMP_LOAD(&refused) &&
         (pump_job_yields(device) || (large && serves_large(device, now_ns)));
}

void pump_gate(uint32_t device, CUcontext context, uint32_t context_index,
               CUstream stream) {
  if (context_index >= PUMP_MAX_CONTEXTS) return;
  const struct pump_marker_pool *pool = &pump_marker_pools[context_index];
  uint32_t epoch = PUMP_LOAD_ACQUIRE(&pool->epoch);
  if (epoch == 0 || __atomic_load_n(&pool->context, __ATOMIC_RELAXED) != context ||
      PUMP_LOAD_ACQUIRE(&words[context_index].epoch) != epoch)
    return;
  uint64_t seq = PUMP_LOAD(&pump_shm->header.next_seq);
  struct pump_driver_scope scope = pump_driver_scope_open();
  CUdeviceptr word = 0;
  if (!pump_capturing(stream) && pump_real.cuMemHostGetDevicePointer_v2(
                                     &word, word_of(context_index), 0) == CUDA_SUCCESS) {
    pump_atomic_max(&all[device].made, seq);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (pump_real.cuStreamWaitValue32_v2(stream, word, (uint32_t)seq, WAIT_GEQ) ==
        CUDA_SUCCESS)
      PUMP_ADD(pump_job_yields(device) ? &pump_shm->shim_counters.gates
                                       : &pump_shm->shim_counters.gates_large,
               1);
    else
      PUMP_STORE(&refused, true);
    if (__atomic_load_n(&asleep, __ATOMIC_SEQ_CST) != 0) pump_wake(&asleep, &wakes);
  }
  pump_driver_scope_close(scope);
}

void pump_gates_fork_child(void) {
  memset(all, 0, sizeof all);
  memset(words, 0, sizeof words);
  pages = NULL; /* shared with the parent, which owns the words */
  pump_gates_devices = pump_gates_large = asleep = 0;
  stopped = false;
}
