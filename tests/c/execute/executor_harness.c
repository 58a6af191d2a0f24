/* executor_harness.c - see executor_harness.h. */
#include "executor_harness.h"
#include "hooks_absent.h"
#include "noise.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#define ARENA_BYTES ((uint64_t)1 << 40)

struct pump_real pump_real;
struct pump_present pump_present;
bool pump_off;
uint32_t pump_reporting;
__thread uint32_t pump_reentry_depth __attribute__((tls_model("initial-exec")));
uint64_t pump_calls_seen;
uint32_t pump_captures;
bool pump_recording;
struct pump_shm *pump_shm;
pthread_mutex_t pump_range_lock = PTHREAD_MUTEX_INITIALIZER;
struct fake fake;

uint32_t pump_device_adopt_budgets(void) {
  struct pump_device *device = &pump_shm->devices[0];
  uint64_t asked = PUMP_LOAD(&device->asked_budget_bytes);
  if (asked != 0) PUMP_STORE(&device->budget_bytes, asked);
  PUMP_STORE(&device->adopted_budget_bytes, asked);
  return asked != 0;
}

uint64_t harness_least, harness_most; /* budgets that device 0 has adopted */

void pump_device_adopted_budgets(uint32_t device, uint64_t *least, uint64_t *most) {
  *least = device == 0 ? harness_least : 0;
  *most = device == 0 ? harness_most : 0;
}

uint64_t harness_need, harness_others; /* needs on device 0: ours, others' */
uint8_t harness_card;

bool pump_device_read_use(uint32_t device, struct pump_gpu_use *gpu) {
  if (device != 0 || PUMP_LOAD(&harness_need) == 0) return false;
  *gpu = (struct pump_gpu_use){.uuid = "gpu", .found_bytes = 1ull << 40};
  gpu->uuid[15] = harness_card;
  gpu->need_bytes = PUMP_LOAD(&harness_need);
  return true;
}

uint32_t pump_device_share(const struct pump_neighbours *neighbours) {
  uint64_t found, sum = 0;
  uint32_t same = pump_neighbours_count(
      neighbours, (const uint8_t *)"gpu\0\0\0\0\0\0\0\0\0\0\0\0", &found);
  for (uint32_t i = 0; i < neighbours->count; i++) {
    sum += neighbours->gpus[i].need_bytes;
    same += neighbours->gpus[i].uuid[15] != 0; /* a script has named another GPU */
  }
  CHECK(same == neighbours->count);
  PUMP_STORE(&harness_others, sum);
  return 0;
}

static bool thread_is(const char *begin) {
  char name[16] = "";
  pthread_getname_np(pthread_self(), name, sizeof name);
  return strncmp(name, begin, strlen(begin)) == 0;
}

uint64_t pump_now_ns(void) {
  uint32_t slow_us = PUMP_LOAD(&fake.slow_clock_us);
  if (slow_us != 0 && thread_is("pump-mark")) harness_sleep_us(slow_us);
  uint64_t stopped_ns = PUMP_LOAD(&fake.stopped_clock_ns);
  if (stopped_ns != 0) return stopped_ns;
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void harness_sleep_us(uint64_t us) {
  struct timespec t = {.tv_sec = (time_t)(us / 1000000),
                       .tv_nsec = (long)(us % 1000000) * 1000};
  nanosleep(&t, NULL);
}

void harness_refuse(long call, uint32_t error) {
  struct sock_filter steps[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)call, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const struct sock_fprog filter = {.len = 4, .filter = steps};
  CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
}

void harness_wait_until_idle(void) {
  struct pump_device_executors *set = pump_executors_of(0);
  EVENTUALLY(PUMP_LOAD(&pump_marker_sleepers[0].asleep) != 0);
  for (uint32_t way = 0; way < PUMP_DIRECTIONS; way++) {
    struct pump_direction *direction = &set->directions[way];
    EVENTUALLY(PUMP_LOAD(&direction->asleep) == PUMP_LOAD(&direction->wanted));
  }
}

uint32_t harness_random(void) {
  static __thread uint64_t state;
  static uint64_t seeds = 1;
  if (state == 0) state = noise_begin(PUMP_ADD(&seeds, 1));
  return (uint32_t)(noise_next(&state) >> 33);
}

/* ---- the fake driver ------------------------------------------------------------ */

struct fake_context {
  CUdevice device;
  uint32_t destroyed;
  uint32_t inside;  /* calls and objects that need it */
  uint32_t leaving; /* prefetches to the host */
  uint32_t padding[11];
};
struct fake_event {
  CUcontext context;
  struct fake_stream *stream;
  uint64_t position;
  bool timing;
};

static __thread CUcontext current;
static __thread CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

/* Freed bytes of the arena, one mark per block of the first 1 TiB. */
static uint8_t freed[ARENA_BYTES / PUMP_BLOCK_BYTES];
static uint64_t arena_next = PUMP_BLOCK_BYTES;

static struct fake_context *context_of(CUcontext context) {
  return (struct fake_context *)(void *)context;
}

static CUresult fake_ctx_set_current(CUcontext context) {
  CHECK(context == NULL || !PUMP_LOAD(&context_of(context)->destroyed));
  current = context;
  return CUDA_SUCCESS;
}
static CUresult fake_ctx_get_current(CUcontext *context) {
  *context = current;
  return CUDA_SUCCESS;
}
static CUresult fake_ctx_get_device(CUdevice *device) {
  if (current == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  *device = context_of(current)->device;
  return CUDA_SUCCESS;
}
/* Contexts that the shim made; each takes some of the device's memory. */
static uint32_t contexts_made;
static CUresult fake_ctx_create(CUcontext *context, unsigned int flags, CUdevice device) {
  CHECK(flags == CU_CTX_SCHED_BLOCKING_SYNC && current == NULL);
  if (PUMP_LOAD(&fake.contexts_refused) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *context = fake_context_create(device);
  PUMP_ADD(&contexts_made, 1);
  return CUDA_SUCCESS;
}
static CUresult fake_memory(size_t *free_bytes, size_t *total_bytes) {
  *total_bytes = (size_t)1 << 40;
  *free_bytes = *total_bytes - PUMP_LOAD(&contexts_made) * (size_t)FAKE_CONTEXT_BYTES;
  return CUDA_SUCCESS;
}
void pump_plain_add_own(uint32_t device, CUcontext context, uint64_t bytes) {
  CHECK(device == 0 && context == current);
  PUMP_ADD(&fake.own_bytes, bytes);
}

static CUresult fake_exchange(CUstreamCaptureMode *exchanged) {
  CUstreamCaptureMode before = mode;
  mode = *exchanged;
  *exchanged = before;
  return CUDA_SUCCESS;
}

static CUresult fake_priority_range(int *least, int *greatest) {
  *least = 0;
  *greatest = PUMP_LOAD(&fake.greatest_priority);
  return CUDA_SUCCESS;
}
static CUresult fake_stream_make(CUstream *stream, unsigned int flags, int priority) {
  PUMP_STORE(&fake.last_priority, priority);
  CHECK(flags == CU_STREAM_NON_BLOCKING && current != NULL);
  uint32_t error = PUMP_LOAD(&fake.create_error);
  if (error != 0) return (CUresult)error;
  struct fake_stream *made = calloc(1, sizeof *made);
  made->context = current;
  made->executor = true;
  PUMP_ADD(&context_of(current)->inside, 1);
  PUMP_ADD(&fake.streams_alive, 1);
  *stream = (CUstream)(void *)made;
  return CUDA_SUCCESS;
}
static CUresult fake_stream_destroy(CUstream stream) {
  struct fake_stream *gone = (struct fake_stream *)(void *)stream;
  CHECK(!PUMP_LOAD(&context_of(gone->context)->destroyed));
  __atomic_fetch_sub(&context_of(gone->context)->inside, 1, __ATOMIC_RELEASE);
  __atomic_fetch_sub(&fake.streams_alive, 1, __ATOMIC_RELAXED);
  free(gone);
  return CUDA_SUCCESS;
}
bool pump_capturing(CUstream stream) {
  (void)stream;
  return PUMP_LOAD(&fake.capturing) != 0;
}

static CUresult fake_event_create(CUevent *event, unsigned int flags) {
  CHECK((flags & CU_EVENT_DISABLE_TIMING) != 0 || PUMP_HAS(cuEventElapsedTime));
  CHECK(current != NULL);
  uint32_t error = PUMP_LOAD(&fake.create_error);
  if (error != 0) return (CUresult)error;
  struct fake_event *made = calloc(1, sizeof *made);
  made->context = current;
  made->timing = (flags & CU_EVENT_DISABLE_TIMING) == 0;
  PUMP_ADD(&context_of(current)->inside, 1);
  PUMP_ADD(&fake.events_alive, 1);
  *event = (CUevent)(void *)made;
  return CUDA_SUCCESS;
}
static CUresult fake_event_destroy(CUevent event) {
  struct fake_event *gone = (struct fake_event *)(void *)event;
  CHECK(!PUMP_LOAD(&context_of(gone->context)->destroyed));
  __atomic_fetch_sub(&context_of(gone->context)->inside, 1, __ATOMIC_RELEASE);
  __atomic_fetch_sub(&fake.events_alive, 1, __ATOMIC_RELAXED);
  free(gone);
  return CUDA_SUCCESS;
}
static uint32_t leaving; /* prefetches to the host, in all contexts */

static CUresult fake_event_record(CUevent event, CUstream stream) {
  struct fake_event *recorded = (struct fake_event *)(void *)event;
  static struct fake_stream special; /* legacy and per-thread streams: always done */
  bool is_special = (uintptr_t)stream <= 2;
  struct fake_stream *on = is_special ? &special : (struct fake_stream *)(void *)stream;
  CHECK(is_special || on->context == recorded->context);
  CHECK(on->executor || !PUMP_LOAD(&fake.capturing));
  uint32_t lock = PUMP_LOAD(&fake.lock);
  const uint32_t *held = lock == FAKE_LOCK_CONTEXT ? &context_of(on->context)->leaving
                         : lock == FAKE_LOCK_ALL   ? &leaving
                                                   : NULL;
  while (held != NULL && on->executor && PUMP_LOAD(held) != 0) harness_sleep_us(20);
  if (!on->executor) PUMP_ADD(&fake.records, 1);
  if (mode != CU_STREAM_CAPTURE_MODE_RELAXED) PUMP_ADD(&fake.not_relaxed, 1);
  recorded->stream = on;
  recorded->position = PUMP_LOAD(&on->issued);
  return CUDA_SUCCESS;
}
static void check_alive(uint64_t address, uint64_t bytes) {
  for (uint64_t at = address; at < address + bytes; at += PUMP_BLOCK_BYTES)
    CHECK(!PUMP_LOAD(&freed[at / PUMP_BLOCK_BYTES]));
}

/* Notes that the slice on an executor's stream is known to have arrived. */
static void arrive(struct fake_stream *stream) {
  check_alive(stream->flight_address, stream->flight_bytes);
  __atomic_fetch_sub(&fake.flight_bytes[stream->flight_direction], stream->flight_bytes,
                     __ATOMIC_RELAXED);
  stream->flight_bytes = 0;
}

static CUresult fake_event_query(CUevent event) {
  const struct fake_event *asked = (struct fake_event *)(void *)event;
  CHECK(!PUMP_LOAD(&context_of(asked->context)->destroyed));
  CHECK(current == asked->context);
  if (asked->stream->executor) {
    if (PUMP_LOAD(&fake.late) != 0) return CUDA_ERROR_NOT_READY;
    arrive(asked->stream);
    return CUDA_SUCCESS;
  }
  uint32_t error = PUMP_LOAD(&fake.query_error);
  if (error != 0) return (CUresult)error;
  return PUMP_LOAD(&asked->stream->executed) >= asked->position ? CUDA_SUCCESS
                                                                : CUDA_ERROR_NOT_READY;
}
/* Each operation takes 2.5 ms. */
CUresult fake_event_elapsed(float *elapsed_ms, CUevent begin, CUevent end) {
  const struct fake_event *first = (struct fake_event *)(void *)begin,
                          *last = (struct fake_event *)(void *)end;
  CHECK(first->timing && last->timing && first->stream == last->stream);
  if (PUMP_LOAD(&last->stream->executed) < last->position) return CUDA_ERROR_NOT_READY;
  *elapsed_ms = 2.5f * (float)(last->position - first->position);
  return CUDA_SUCCESS;
}
static CUresult fake_event_synchronize(CUevent event) {
  struct fake_stream *on = ((struct fake_event *)(void *)event)->stream;
  CHECK(on->executor);
  while (PUMP_LOAD(&fake.late) != 0) harness_sleep_us(100);
  arrive(on);
  return CUDA_SUCCESS;
}

static CUresult fake_stream_synchronize(CUstream stream) {
  while (PUMP_LOAD(&fake.late) != 0) harness_sleep_us(100);
  arrive((struct fake_stream *)(void *)stream);
  return CUDA_SUCCESS;
}

static CUresult fake_prefetch(CUdeviceptr address, size_t bytes, CUmemLocation location,
                              unsigned int flags, CUstream stream) {
  struct fake_stream *on = (struct fake_stream *)(void *)stream;
  struct fake_context *context = context_of(on->context);
  uint32_t direction =
      location.type == CU_MEM_LOCATION_TYPE_DEVICE ? PUMP_TO_GPU : PUMP_TO_HOST;
  if (on->flight_bytes != 0) PUMP_ADD(&fake.busy_stream, 1);
  on->flight_address = address;
  on->flight_bytes = bytes;
  on->flight_direction = direction;
  uint64_t flight = PUMP_ADD(&fake.flight_bytes[direction], bytes) + bytes;
  pump_atomic_max(&fake.flight_bytes_peak[direction], flight);
  CHECK(flags == 0 && bytes <= PUMP_SLICE_BYTES && current == on->context);
  if (mode != CU_STREAM_CAPTURE_MODE_RELAXED) PUMP_ADD(&fake.not_relaxed, 1);
  uint32_t running = PUMP_ADD(&fake.running, 1) + 1;
  PUMP_ADD(&fake.prefetches, 1);
  if (running > PUMP_LOAD(&fake.running_peak)) PUMP_STORE(&fake.running_peak, running);
  PUMP_ADD(&context->inside, 1);
  uint32_t leaves = direction == PUMP_TO_HOST;
  PUMP_ADD(&context->leaving, leaves);
  PUMP_ADD(&leaving, leaves);
  if (leaves) __atomic_store_n(&fake.host_context, on->context, __ATOMIC_RELAXED);
  uint64_t slow = PUMP_LOAD(&fake.prefetch_us);
  if (slow != 0) harness_sleep_us(harness_random() % (2 * slow));
  while (PUMP_LOAD(&fake.hold) != 0) harness_sleep_us(100);
  /* The memory must have been the program's from beginning to end. */
  check_alive(address, bytes);
  CHECK(!PUMP_LOAD(&context->destroyed));
  uint32_t error = PUMP_LOAD(&fake.prefetch_error);
  if (error != 0) arrive(on);
  if (error == 0)
    PUMP_ADD(location.type == CU_MEM_LOCATION_TYPE_DEVICE ? &fake.to_gpu_bytes
                                                          : &fake.to_host_bytes,
             bytes);
  __atomic_fetch_sub(&context->leaving, leaves, __ATOMIC_RELAXED);
  __atomic_fetch_sub(&leaving, leaves, __ATOMIC_RELAXED);
  __atomic_fetch_sub(&context->inside, 1, __ATOMIC_RELEASE);
  __atomic_fetch_sub(&fake.running, 1, __ATOMIC_RELAXED);
  return (CUresult)error;
}

static CUresult fake_attribute(int *value, CUdevice_attribute attribute, CUdevice device) {
  CHECK(device == 0);
  switch (attribute) {
  case 33: /* PCI bus; device and domain are 0 */
    *value = 0x41;
    break;
  case 134:
    *value = fake.node - 1;
    break;
  default:
    *value = 0;
  }
  return CUDA_SUCCESS;
}

CUcontext fake_context_create(CUdevice device) {
  struct fake_context *made = calloc(1, sizeof *made);
  made->device = device;
  current = (CUcontext)(void *)made;
  return current;
}
void fake_context_destroy(CUcontext context) {
  CHECK(__atomic_load_n(&context_of(context)->inside, __ATOMIC_ACQUIRE) == 0);
  PUMP_STORE(&context_of(context)->destroyed, 1); /* kept, so that late uses are detected */
}
CUstream fake_stream_create(CUcontext context) {
  struct fake_stream *made = calloc(1, sizeof *made);
  made->context = context;
  return (CUstream)(void *)made;
}
void fake_execute(CUstream stream, uint64_t operations) {
  PUMP_ADD(&((struct fake_stream *)(void *)stream)->executed, operations);
}

struct pump_driver_scope pump_driver_scope_open(void) {
  struct pump_driver_scope scope = {.exchanged = true,
                                    .mode = CU_STREAM_CAPTURE_MODE_RELAXED};
  pump_enter();
  fake_exchange(&scope.mode);
  return scope;
}
void pump_driver_scope_close(struct pump_driver_scope scope) {
  fake_exchange(&scope.mode);
  pump_leave();
}

/* ---- ranges --------------------------------------------------------------------- */

static uint32_t slots_used;

uint32_t harness_allocate(uint32_t device, uint64_t blocks) {
  pthread_mutex_lock(&pump_range_lock);
  uint32_t slot = slots_used++;
  CHECK(slot < PUMP_MAX_RANGES);
  struct pump_range *range = &pump_shm->ranges[slot];
  uint64_t base = PUMP_ADD(&arena_next, blocks * PUMP_BLOCK_BYTES);
  CHECK(base + blocks * PUMP_BLOCK_BYTES < ARENA_BYTES);
  pump_range_write_begin(range);
  PUMP_STORE(&range->generation, 1);
  PUMP_STORE(&range->range_kind, PUMP_RANGE_CONVERTED);
  PUMP_STORE(&range->base, base);
  PUMP_STORE(&range->length_bytes, blocks * PUMP_BLOCK_BYTES);
  PUMP_STORE(&range->device, device);
  pump_range_write_end(range);
  PUMP_ADD(&pump_shm->devices[device].allocated_bytes, blocks * PUMP_BLOCK_BYTES);
  PUMP_STORE(&pump_shm->header.range_high, slots_used);
  pthread_mutex_unlock(&pump_range_lock);
  return slot;
}

uint32_t harness_generation(uint32_t slot) {
  return PUMP_LOAD(&pump_shm->ranges[slot].generation);
}

struct pump_command harness_slice(uint32_t slot, uint64_t block, uint64_t blocks) {
  return (struct pump_command){.slot = slot,
                               .generation = harness_generation(slot),
                               .offset_bytes = block * PUMP_BLOCK_BYTES,
                               .length_bytes = blocks * PUMP_BLOCK_BYTES,
                               .observed_seq = UINT64_MAX};
}

void harness_free(uint32_t slot) {
  struct pump_range *range = &pump_shm->ranges[slot];
  pthread_mutex_lock(&pump_range_lock);
  uint64_t base = PUMP_LOAD(&range->base), length = PUMP_LOAD(&range->length_bytes);
  pump_range_write_begin(range);
  PUMP_STORE(&range->generation, PUMP_LOAD(&range->generation) + 1);
  PUMP_STORE(&range->range_kind, PUMP_RANGE_FREE);
  pump_range_write_end(range);
  pthread_mutex_unlock(&pump_range_lock);
  pump_slot_wait(slot);
  for (uint64_t at = base; at < base + length; at += PUMP_BLOCK_BYTES)
    PUMP_STORE(&freed[at / PUMP_BLOCK_BYTES], 1);
}

/* ---- main ---------------------------------------------------------------------------- */

static struct {
  const char *name;
  void (*run)(void);
} scenarios[256];
static int scenario_count;

void harness_register(const char *name, void (*run)(void)) {
  CHECK(scenario_count < (int)(sizeof scenarios / sizeof *scenarios));
  scenarios[scenario_count].name = name;
  scenarios[scenario_count++].run = run;
}

static void fill_driver(void) {
  pump_real.cuCtxSetCurrent = fake_ctx_set_current;
  pump_real.cuCtxGetCurrent = fake_ctx_get_current;
  pump_real.cuCtxGetDevice = fake_ctx_get_device;
  pump_real.cuCtxCreate_v2 = fake_ctx_create;
  pump_real.cuMemGetInfo_v2 = fake_memory;
  pump_present.cuCtxCreate_v2 = pump_present.cuMemGetInfo_v2 = true;
  pump_real.cuThreadExchangeStreamCaptureMode = fake_exchange;
  pump_real.cuStreamCreateWithPriority = fake_stream_make;
  pump_real.cuCtxGetStreamPriorityRange = fake_priority_range;
  pump_real.cuDeviceGetAttribute = fake_attribute;
  pump_present.cuCtxGetStreamPriorityRange = true;
  fake.greatest_priority = -5;
  pump_real.cuStreamDestroy_v2 = fake_stream_destroy;
  pump_real.cuEventCreate = fake_event_create;
  pump_real.cuEventDestroy_v2 = fake_event_destroy;
  pump_real.cuEventRecord = fake_event_record;
  pump_real.cuEventQuery = fake_event_query;
  pump_real.cuEventSynchronize = fake_event_synchronize;
  pump_real.cuStreamSynchronize = fake_stream_synchronize;
  pump_real.cuMemPrefetchAsync_v2 = fake_prefetch;
  pump_present.cuMemPrefetchAsync_v2 = true;
  pump_present.cuDeviceGetAttribute = pump_present.cuMemHostRegister_v2 = true;
  pump_present.cuMemHostGetDevicePointer_v2 = pump_present.cuStreamWaitValue32_v2 = true;
}

int main(int argc, char **argv) {
  pump_shm = mmap(NULL, sizeof *pump_shm, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(pump_shm != MAP_FAILED);
  pump_shm->header.next_seq = 1;
  pump_shm->devices[0].budget_bytes = (uint64_t)1 << 40;
  pump_shm->devices[0].device_state = PUMP_DEVICE_DORMANT;
  worker_shm = pump_shm;
  fill_driver();
  for (int i = 0; i < scenario_count; i++)
    if (argc > 1 && strcmp(argv[1], scenarios[i].name) == 0) {
      scenarios[i].run();
      return 0;
    }
  for (int i = 0; i < scenario_count; i++) puts(scenarios[i].name);
  return argc > 1 ? 2 : 0;
}
