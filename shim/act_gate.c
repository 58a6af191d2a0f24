/* act_gate.c - gates: a launch waits on the GPU for blocks that are in flight for it.
 *
 * A word of host memory that the GPU can read, and a wait for it in front of the launch.
 * An executor stores the word once the slices that were sent for that launch have arrived.
 * Whether there is anything to gain by it: docs/decisions/0022-gate.md.
 *
 * DESIGN. A gate is set only where it will open by itself: all slices that were taken for
 * the launch are in the driver, and the newest of them says that nothing else is missing
 * (`function` of the command), so neither pumpd nor a kernel has anything left to do for
 * it. And it opens in any case: the watchdog opens each gate GATE_NS after it was set. It
 * calls no driver and takes no lock, so nothing that waits for the GPU can hold it up. The
 * store comes from the host and not from the transfer's stream (cuStreamWriteValue): a
 * write that the watchdog has overtaken would set the word back and close later gates.
 *
 * Nobody takes a lock here. A gate's state is a turn and a phase in one word; who moves it
 * from CLOSED to OPENING stores the GPU's word. A slice ends, then its executor looks for
 * gates; a gate closes, then whoever set it looks for slices. Both stores are sequentially
 * consistent, so one of the two sees the other's, and no gate waits for what has come.
 *
 * The words only count up, so a wait that the GPU reaches after its gate has opened, or
 * after the word was used again, passes. Their pages are our own, registered with the
 * context and never unmapped: the end of a context behind our back leaves nobody storing
 * into nothing. A forked child does not get them.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "act.h"
#include "act_private.h"

#define GATES 64 /* closed at once in a process */
#define GATE_NS 5000000u
#define IDLE_NS 1000000000u
#define PAGES_MOST 64u /* contexts that ever had gates */
#define PAGE_BYTES 4096u
#define CAN_WAIT_VALUE ((CUdevice_attribute)122) /* CAN_USE_64_BIT_STREAM_MEM_OPS */
#define WAIT_VALUE_GEQ 0u
#define REGISTER_DEVICEMAP 2u

enum { SLICE_NONE, SLICE_TAKEN, SLICE_SENT };

/* One of each lane of the in-threads; written by its thread. */
static struct slice {
  uint32_t state;
  uint32_t stream;
  uint64_t seq; /* the launch that it was sent for */
  uint64_t function;
} slices[PUMP_MAX_DEVICES][PUMP_IN_THREADS_MOST * PUMP_IN_LANES];
#define SLICES (sizeof slices[0] / sizeof slices[0][0])

/* `state`: turn << 2 | phase. */
enum { FREE, SETTING, CLOSED, OPENING, PHASES };
static struct gate {
  uint32_t state;
  uint32_t value; /* that opens it */
  uint32_t *word;
  uint32_t device, stream;
  uint64_t seq, until_ns;
} gates[GATES];

/* By the small number of a context; written by an in-thread that lives there. */
static struct page {
  CUcontext context; /* NULL: none; stored last */
  uint32_t *words;
  CUdeviceptr address; /* of the words, for the GPU */
} pages[PUMP_MAX_CONTEXTS];

static bool on;
static uint32_t pages_made, watched, watch_asleep, watch_bell;
uint32_t pump_gates_hoped;

/* ---- opening ------------------------------------------------------------------- */

/* False when somebody else does, or when it is another gate by now. */
static bool open_gate(struct gate *gate, uint32_t state) {
  if (!__atomic_compare_exchange_n(&gate->state, &state, state - CLOSED + OPENING, false,
                                   __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
    return false;
  PUMP_STORE_RELEASE(PUMP_LOAD(&gate->word), PUMP_LOAD(&gate->value));
  PUMP_STORE_RELEASE(&gate->state, state - CLOSED + PHASES);
  return true;
}

static bool is_closed(const struct gate *gate, uint32_t *state) {
  *state = __atomic_load_n(&gate->state, __ATOMIC_SEQ_CST);
  return *state % PHASES == CLOSED;
}

/* What is on its way for a launch. */
struct sent {
  uint32_t taken, sent;
  bool complete; /* one of them was the last that it lacked */
};

static struct sent look(uint32_t device, uint32_t stream, uint64_t seq, uint64_t function) {
  struct sent found = {0, 0, false};
  for (size_t i = 0; i < SLICES; i++) {
    const struct slice *slice = &slices[device][i];
    uint32_t state = __atomic_load_n(&slice->state, __ATOMIC_SEQ_CST);
    if (state == SLICE_NONE || PUMP_LOAD(&slice->seq) != seq ||
        PUMP_LOAD(&slice->stream) != stream)
      continue;
    found.taken += state == SLICE_TAKEN;
    found.sent += state == SLICE_SENT;
    found.complete |= PUMP_LOAD(&slice->function) == function;
  }
  return found;
}

static void open_if_arrived(struct gate *gate, uint32_t state) {
  struct sent left =
      look(PUMP_LOAD(&gate->device), PUMP_LOAD(&gate->stream), PUMP_LOAD(&gate->seq), 0);
  if (left.taken + left.sent == 0) open_gate(gate, state);
}

/* Those that are due; returns when the next one is. */
static uint64_t open_due(uint64_t now_ns) {
  uint64_t next_ns = UINT64_MAX;
  for (size_t i = 0; i < GATES; i++) {
    uint32_t state;
    if (!is_closed(&gates[i], &state)) continue;
    uint64_t until_ns = PUMP_LOAD(&gates[i].until_ns);
    if (until_ns > now_ns) {
      if (until_ns < next_ns) next_ns = until_ns;
    } else if (open_gate(&gates[i], state)) {
      PUMP_ADD(&pump_shm->shim_counters.gates_late, 1);
    }
  }
  return next_ns;
}

static void *watch(void *unused) {
  (void)unused;
  pump_enter();
  for (;;) {
    uint32_t bell = pump_bell_prepare(&watch_asleep, &watch_bell);
    uint64_t now_ns = pump_now_ns(), next_ns = open_due(now_ns);
    uint64_t sleep_ns = next_ns == UINT64_MAX ? IDLE_NS : next_ns - now_ns;
    pump_bell_wait(&watch_bell, bell, sleep_ns);
  }
  return NULL;
}

/* ---- executors ----------------------------------------------------------------- */

void pump_gate_taken(uint32_t device, uint32_t lane, const struct pump_command *command) {
  if (!PUMP_LOAD(&on) || command->needed_by_seq == 0) return; /* or to populate */
  struct slice *slice = &slices[device][lane];
  PUMP_STORE(&slice->stream, command->stream);
  PUMP_STORE(&slice->seq, command->needed_by_seq);
  PUMP_STORE(&slice->function, command->function);
  __atomic_store_n(&slice->state, SLICE_TAKEN, __ATOMIC_SEQ_CST);
  if (command->function != 0) PUMP_ADD(&pump_gates_hoped, 1);
}

void pump_gate_sent(uint32_t device, uint32_t lane) {
  struct slice *slice = &slices[device][lane];
  if (PUMP_LOAD(&slice->state) == SLICE_TAKEN)
    PUMP_STORE_RELEASE(&slice->state, SLICE_SENT);
}

void pump_gate_ended(uint32_t device, uint32_t lane) {
  struct slice *slice = &slices[device][lane];
  if (PUMP_LOAD(&slice->state) == SLICE_NONE) return;
  if (PUMP_LOAD(&slice->function) != 0)
    __atomic_fetch_sub(&pump_gates_hoped, 1, __ATOMIC_RELAXED);
  __atomic_store_n(&slice->state, SLICE_NONE, __ATOMIC_SEQ_CST);
  for (size_t i = 0; i < GATES; i++) {
    uint32_t state;
    if (is_closed(&gates[i], &state) && PUMP_LOAD(&gates[i].device) == device)
      open_if_arrived(&gates[i], state);
  }
}

/* ---- words --------------------------------------------------------------------- */

static bool can_wait(CUdevice device) {
  int can = 0;
  return PUMP_HAS(cuStreamWaitValue32_v2) && PUMP_HAS(cuMemHostRegister_v2) &&
         PUMP_HAS(cuMemHostGetDevicePointer_v2) && PUMP_HAS(cuDeviceGetAttribute) &&
         pump_real.cuDeviceGetAttribute(&can, CAN_WAIT_VALUE, device) == CUDA_SUCCESS &&
         can != 0;
}

static void give_up(const char *why) {
  static uint32_t said;
  PUMP_STORE(&on, false);
  pump_log_once(&said, PUMP_LOG_WARNING, "gate: %s; the job goes on without gates", why);
}

/* A page that the GPU reads; NULL: there is none to be had. */
static uint32_t *make_page(CUdeviceptr *address) {
  if (PUMP_ADD(&pages_made, 1) >= PAGES_MOST) return NULL;
  void *words =
      mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (words == MAP_FAILED) return NULL;
  madvise(words, PAGE_BYTES, MADV_DONTFORK);
  if (pump_real.cuMemHostRegister_v2(words, PAGE_BYTES, REGISTER_DEVICEMAP) ==
          CUDA_SUCCESS &&
      pump_real.cuMemHostGetDevicePointer_v2(address, words, 0) == CUDA_SUCCESS)
    return words;
  munmap(words, PAGE_BYTES);
  return NULL;
}

void pump_gate_ready(const struct pump_thread_role *role) {
  uint32_t index;
  if (!PUMP_LOAD(&on) || pump_context_device(role->context, &index) < 0) return;
  struct page *page = &pages[index];
  if (__atomic_load_n(&page->context, __ATOMIC_RELAXED) == role->context) return;
  if (!can_wait((CUdevice)role->set->device)) {
    give_up("the device or its driver has no stream memory operations");
    return;
  }
  __atomic_store_n(&page->context, NULL, __ATOMIC_RELEASE);
  page->words = make_page(&page->address);
  if (page->words == NULL) {
    give_up("the driver gave no memory for its words");
    return;
  }
  if (__atomic_exchange_n(&watched, 1, __ATOMIC_RELAXED) == 0 &&
      pump_thread_start("pump-gate", watch, NULL) != 0) {
    give_up("its watchdog could not be started");
    return;
  }
  __atomic_store_n(&page->context, role->context, __ATOMIC_RELEASE);
}

void pump_gate_context_gone(uint32_t index) {
  __atomic_store_n(&pages[index].context, NULL, __ATOMIC_RELEASE);
}

/* ---- setting ------------------------------------------------------------------- */

/* A gate that is free becomes ours: SETTING. */
static struct gate *claim(uint32_t *state) {
  for (size_t i = 0; i < GATES; i++) {
    *state = PUMP_LOAD(&gates[i].state);
    if (*state % PHASES == FREE &&
        __atomic_compare_exchange_n(&gates[i].state, state, *state + SETTING, false,
                                    __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
      return &gates[i];
  }
  return NULL;
}

bool pump_gate_wanted(const struct pump_gate_wish *wish) {
  if (!PUMP_LOAD(&on) || wish->device >= PUMP_MAX_DEVICES) return false;
  struct sent found = look(wish->device, wish->stream_index, wish->seq, wish->function);
  return found.complete && found.taken == 0;
}

void pump_gate_set(const struct pump_gate_wish *wish) {
  uint32_t index, state;
  CUcontext context = pump_progress_context(wish->stream_index, &index);
  const struct page *page = &pages[index];
  if (context == NULL || __atomic_load_n(&page->context, __ATOMIC_ACQUIRE) != context)
    return;
  struct gate *gate = claim(&state);
  if (gate == NULL) return;
  uint32_t *word = &page->words[gate - gates], value = PUMP_LOAD(word) + 1;
  CUdeviceptr address = page->address + (uint64_t)(gate - gates) * sizeof *word;
  PUMP_STORE(&gate->device, wish->device);
  PUMP_STORE(&gate->stream, wish->stream_index);
  PUMP_STORE(&gate->seq, wish->seq);
  PUMP_STORE(&gate->word, word);
  PUMP_STORE(&gate->value, value);
  PUMP_STORE(&gate->until_ns, pump_now_ns() + GATE_NS);
  state += CLOSED;
  __atomic_store_n(&gate->state, state, __ATOMIC_SEQ_CST);
  pump_bell_ring(&watch_asleep, &watch_bell);
  open_if_arrived(gate, state);
  if (PUMP_LOAD(&gate->state) != state) return; /* nothing to wait for any more */
  if (pump_real.cuStreamWaitValue32_v2(wish->stream, address, value, WAIT_VALUE_GEQ) !=
      CUDA_SUCCESS) {
    open_gate(gate, state);
    give_up("the driver refused a wait");
    return;
  }
  PUMP_ADD(&pump_shm->shim_counters.gates, 1);
}

/* ---- life ---------------------------------------------------------------------- */

void pump_gate_start(void) {
  const char *text = getenv("PUMP_GATE");
  PUMP_STORE(&on, text != NULL && strcmp(text, "1") == 0);
}

void pump_gate_stop(void) {
  PUMP_STORE(&on, false);
  for (size_t i = 0; i < GATES; i++) {
    uint32_t state;
    if (is_closed(&gates[i], &state)) open_gate(&gates[i], state);
  }
}

void pump_gate_fork_child(void) {
  on = false;
  pump_gates_hoped = pages_made = watched = watch_asleep = 0;
  memset(slices, 0, sizeof slices);
  memset(gates, 0, sizeof gates);
  memset(pages, 0, sizeof pages);
}
