/* observe_operations.c - from hooks to events: parameter scan, extents, silence.
 *
 * Links observe_event.c, observe_params.c, observe_range.c, observe_launch.c,
 * observe_copy.c and observe_stream.c; the driver and the act side are the few
 * functions below. Usage: observe_operations SCENARIO
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "act.h"
#include "observe.h"
#include "pump_ring.h"

#define CHECK(condition)                                                                   \
  do {                                                                                     \
    if (!(condition)) {                                                                    \
      fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                              \
      abort();                                                                             \
    }                                                                                      \
  } while (0)

#define BLOCK ((uint64_t)PUMP_BLOCK_BYTES)
#define KERNEL ((CUfunction)0x77770000)

/* ---- the rest of the shim, as far as it is needed ------------------------- */

struct pump_real pump_real;
struct pump_present pump_present;
struct pump_shm *pump_shm;
bool pump_off;
uint32_t pump_active = 1, pump_captures;
uint64_t pump_calls_seen;
__thread uint32_t pump_inside __attribute__((tls_model("initial-exec")));

static uint64_t issued_seq, touched_bytes, synced_seq, context_seq, event_seq;
static CUstream issued_stream;
static int gone, issues;

void pump_device_account(uint32_t device, int64_t range_bytes, int64_t plain_bytes) {
  (void)device, (void)range_bytes, (void)plain_bytes;
}
int pump_current_device(CUcontext *context) {
  if (context != NULL) *context = (CUcontext)1;
  return 3;
}
struct pump_bracket pump_bracket_open(void) {
  pump_enter();
  return (struct pump_bracket){false, 0};
}
void pump_bracket_close(struct pump_bracket bracket) {
  (void)bracket;
  pump_leave();
}
uint64_t pump_now_ns(void) {
  return 4711;
}
uint64_t pump_newest_seq(void) {
  return PUMP_LOAD(&pump_shm->header.next_seq) - 1;
}
uint32_t pump_stream_index(CUstream stream, bool per_thread_default) {
  CHECK(pump_inside != 0);
  return stream == NULL ? 1u + per_thread_default : (uint32_t)(uintptr_t)stream & 1023;
}
void pump_stream_gone(CUstream stream) {
  (void)stream;
  gone++;
}
void pump_progress_issued(uint32_t index, CUstream stream, uint64_t seq, uint64_t now_ns,
                          uint64_t touched) {
  (void)index;
  CHECK(now_ns == 4711);
  touched_bytes = touched;
  issued_seq = seq;
  issued_stream = stream;
  issues++;
}
void pump_progress_stream_synced(uint32_t index, uint64_t seq) {
  (void)index;
  synced_seq = seq;
}
void pump_progress_context_synced(uint64_t seq) {
  context_seq = seq;
}
void pump_progress_event_recorded(CUevent event, uint32_t index, uint64_t seq) {
  (void)event, (void)index;
  event_seq = seq;
}
void pump_progress_event_synced(CUevent event) {
  (void)event;
}
bool pump_log_once(uint32_t *said, int level, const char *format, ...) {
  (void)level, (void)format;
  return __atomic_exchange_n(said, 1, __ATOMIC_RELAXED) == 0;
}

/* ---- the driver ----------------------------------------------------------- */

static CUresult answer = CUDA_SUCCESS;
static size_t sizes[256];
static size_t parameters, questions;
static bool only_kernel_handles, capturing;

static CUresult param_info(size_t index, size_t *offset, size_t *bytes) {
  questions++;
  if (index >= parameters) return CUDA_ERROR_INVALID_VALUE;
  *offset = 0;
  *bytes = sizes[index];
  return CUDA_SUCCESS;
}
static CUresult func_param_info(CUfunction f, size_t index, size_t *offset, size_t *bytes) {
  (void)f;
  return only_kernel_handles ? CUDA_ERROR_INVALID_HANDLE : param_info(index, offset, bytes);
}
static CUresult kernel_param_info(CUkernel k, size_t index, size_t *offset, size_t *bytes) {
  (void)k;
  return param_info(index, offset, bytes);
}
static CUresult is_capturing(CUstream stream, CUstreamCaptureStatus *status) {
  *status = capturing && stream == (CUstream)0x42 ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                                  : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}
static uint64_t newest_at_call; /* operations reported before the real call */
static CUresult any(void) {
  if (pump_shm != NULL) newest_at_call = PUMP_LOAD(&pump_shm->header.next_seq) - 1;
  return answer;
}

/* Every real function answers `answer`, whatever its arguments. */
static void set_up(void) {
  void *function = (void *)any;
  for (size_t i = 0; i < sizeof pump_real / sizeof function; i++)
    memcpy((char *)&pump_real + i * sizeof function, &function, sizeof function);
  memset(&pump_present, 1, sizeof pump_present);
  pump_real.cuFuncGetParamInfo = func_param_info;
  pump_real.cuKernelGetParamInfo = kernel_param_info;
  pump_real.cuStreamIsCapturing = is_capturing;
  pump_shm = calloc(1, sizeof *pump_shm);
  CHECK(pump_shm != NULL);
  pump_shm->header.next_seq = 1;
}

static struct pump_range_info range(uint64_t base, uint64_t blocks) {
  struct pump_range_info info = {.base = base,
                                 .length_bytes = blocks * BLOCK,
                                 .requested_bytes = blocks * BLOCK,
                                 .kind = PUMP_RANGE_CONVERTED};
  CHECK(pump_range_add(&info) >= 0);
  return info;
}

static uint64_t taken;

/* The next event, gathered from its records; false when there is none. */
static bool next_event(struct pump_event *head, struct pump_extent *extents) {
  const struct pump_event *record = pump_event_peek(pump_shm, taken);
  if (record == NULL) return false;
  *head = *record;
  for (uint32_t i = 0; i < head->extent_count; i++) {
    uint64_t position = taken + i / PUMP_EVENT_EXTENTS;
    record = pump_event_peek(pump_shm, position);
    CHECK(record != NULL && record->seq == head->seq);
    CHECK(record->kind == (position == taken ? head->kind : PUMP_EVENT_MORE));
    extents[i] = record->extents[i % PUMP_EVENT_EXTENTS];
  }
  uint32_t records = (head->extent_count + PUMP_EVENT_EXTENTS - 1u) / PUMP_EVENT_EXTENTS;
  taken += records == 0 ? 1 : records;
  pump_event_release(pump_shm, taken);
  return true;
}

static struct pump_event head;
static struct pump_extent extents[PUMP_MAX_EXTENTS];

static bool extent_is(uint32_t i, const struct pump_range_info *r, uint64_t offset,
                      uint64_t bytes, uint64_t access) {
  return extents[i].slot == r->slot && extents[i].generation == r->generation &&
         extents[i].offset_bytes == offset &&
         extents[i].length_access == (bytes << 2 | access);
}

static CUresult launch(void **params, void **extra) {
  return cuLaunchKernel(KERNEL, 1, 1, 1, 1, 1, 1, 0, (CUstream)0x42, params, extra);
}

/* ---- scenarios ------------------------------------------------------------ */

static void a_launch_reports_the_ranges_that_its_pointers_reach(void) {
  struct pump_range_info a = range(0x7f0010000000, 4), b = range(0x7f0020000000, 2);
  uint64_t first = a.base + 4096, second = b.base;
  uint32_t number = 5;
  void *params[] = {&first, &number, &second};
  sizes[0] = 8, sizes[1] = 4, sizes[2] = 8, parameters = 3;
  CHECK(launch(params, NULL) == CUDA_SUCCESS);
  CHECK(next_event(&head, extents));
  CHECK(head.kind == PUMP_EVENT_KERNEL && head.seq == 1 && head.extent_count == 2);
  CHECK(head.function == (uint64_t)(uintptr_t)KERNEL && head.stream == 0x42);
  CHECK(head.device == 3 && head.time_ns == 4711 && head.extents_dropped == 0);
  CHECK(extent_is(0, &a, 4096, 0, PUMP_ACCESS_ARGUMENT));
  CHECK(extent_is(1, &b, 0, 0, PUMP_ACCESS_ARGUMENT));
  CHECK(issued_seq == 1 && issued_stream == (CUstream)0x42);
  CHECK(touched_bytes == a.length_bytes - 4096 + b.length_bytes);
  CHECK(pump_shm->ranges[a.slot].last_use_seq[0] == 1);
  CHECK(pump_shm->ranges[a.slot].last_use_seq[7] == 1);
  CHECK(pump_shm->shim_counters.operations == 1 && pump_inside == 0);
}

static void pointers_inside_structures_are_found_and_lead_to_one_extent_a_range(void) {
  struct pump_range_info a = range(0x7f0010000000, 8);
  uint64_t structure[131] = {0};
  structure[7] = a.base + 3 * BLOCK;
  structure[90] = a.base + BLOCK;
  structure[130] = a.base + 5 * BLOCK;
  void *params[] = {structure};
  sizes[0] = sizeof structure, parameters = 1;
  launch(params, NULL);
  CHECK(next_event(&head, extents) && head.extent_count == 1);
  CHECK(extent_is(0, &a, BLOCK, 0, PUMP_ACCESS_ARGUMENT));
  CHECK(pump_shm->ranges[a.slot].last_use_seq[0] == 0);
  CHECK(pump_shm->ranges[a.slot].last_use_seq[1] == 1);
}

/* Parameters end where the mapping ends: a byte more would be a crash. */
static void not_a_byte_is_read_beyond_a_parameter(void) {
  struct pump_range_info a = range(0x7f0010000000, 1);
  char *pages =
      mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(pages != MAP_FAILED && mprotect(pages + 4096, 4096, PROT_NONE) == 0);
  for (size_t bytes = 1; bytes <= 40; bytes++) {
    void *params[] = {pages + 4096 - bytes};
    memset(pages, 0, 4096);
    if (bytes >= 8) memcpy(pages + 4096 - bytes, &a.base, 8);
    pump_params_forget();
    sizes[0] = bytes, parameters = 1;
    launch(params, NULL);
    CHECK(next_event(&head, extents) && head.extent_count == (bytes >= 8));
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, pages + 4096 - bytes,
                     CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
    launch(NULL, extra);
    CHECK(next_event(&head, extents) && head.extent_count == (bytes >= 8));
  }
}

static void packed_small_numbers_are_not_taken_for_pointers(void) {
  struct pump_range_info a = range(0x7f0000000000 - BLOCK, 4);
  uint64_t words[] = {0x7f0000000005, 0x7efffffffff0, 0x7f0000010000, a.base};
  size_t expected[] = {0, 0, 1, 1};
  sizes[0] = 8, parameters = 1;
  for (int i = 0; i < 4; i++) {
    void *params[] = {&words[i]};
    launch(params, NULL);
    CHECK(next_event(&head, extents) && head.extent_count == expected[i]);
  }
  /* ... unless they are exactly where a range begins. */
  struct pump_range_info b = range(0x7e0000000000, 1);
  void *params[] = {&b.base};
  launch(params, NULL);
  CHECK(next_event(&head, extents) && head.extent_count == 1);
}

static void extents_beyond_the_bound_are_counted(void) {
  static uint64_t table[PUMP_MAX_EXTENTS + 8];
  for (uint64_t i = 0; i < PUMP_MAX_EXTENTS + 8; i++)
    table[i] = range(0x7f0010000000 + i * 2 * BLOCK, 1).base + 65536;
  void *params[] = {table};
  sizes[0] = sizeof table, parameters = 1;
  launch(params, NULL);
  CHECK(next_event(&head, extents));
  CHECK(head.extent_count == PUMP_MAX_EXTENTS && head.extents_dropped == 8);
  CHECK(pump_shm->shim_counters.extents_dropped == 8);
  CHECK(!next_event(&head, extents));
}

static void a_layout_is_asked_for_once_and_again_after_an_unload(void) {
  struct pump_range_info a = range(0x7f0010000000, 1);
  uint64_t words[4] = {a.base, a.base, a.base, a.base};
  void *params[] = {words, words};
  sizes[0] = 8, parameters = 1;
  launch(params, NULL);
  CHECK(questions == 2);
  launch(params, NULL);
  CHECK(questions == 2);
  sizes[0] = 4, sizes[1] = 16, parameters = 2;
  CHECK(cuModuleUnload(NULL) == CUDA_SUCCESS);
  launch(params, NULL);
  CHECK(questions == 5);
  CHECK(cuLibraryUnload(NULL) == CUDA_SUCCESS);
  launch(params, NULL);
  CHECK(questions == 8);
  launch(params, NULL);
  CHECK(questions == 8);
}

static void kernel_handles_of_libraries_are_understood(void) {
  struct pump_range_info a = range(0x7f0010000000, 1);
  void *params[] = {&a.base};
  only_kernel_handles = true;
  sizes[0] = 8, parameters = 1;
  CUlaunchConfig config = {.hStream = (CUstream)0x42};
  CHECK(cuLaunchKernelEx(&config, KERNEL, params, NULL) == CUDA_SUCCESS);
  CHECK(next_event(&head, extents) && head.extent_count == 1 && head.stream == 0x42);
}

static void a_driver_that_knows_no_parameters_still_gets_its_launches_reported(void) {
  pump_present.cuFuncGetParamInfo = pump_present.cuKernelGetParamInfo = false;
  void *params[] = {NULL};
  launch(params, NULL);
  CHECK(next_event(&head, extents) && head.extent_count == 0);
  CHECK(head.kind == PUMP_EVENT_KERNEL && head.seq == 1);
}

static void a_failed_call_is_no_operation_and_its_error_is_passed_on(void) {
  struct pump_range_info a = range(0x7f0010000000, 1);
  answer = CUDA_ERROR_LAUNCH_FAILED;
  CHECK(launch(NULL, NULL) == CUDA_ERROR_LAUNCH_FAILED);
  CHECK(cuMemsetD8Async(a.base, 0, 64, NULL) == CUDA_ERROR_LAUNCH_FAILED);
  CHECK(cuMemcpyDtoDAsync_v2(a.base, a.base, 64, NULL) == CUDA_ERROR_LAUNCH_FAILED);
  CHECK(cuStreamSynchronize(NULL) == CUDA_ERROR_LAUNCH_FAILED);
  CHECK(!next_event(&head, extents) && pump_shm->header.next_seq == 1 && issues == 0);
}

static void twins_speak_of_the_per_thread_stream(void) {
  cuLaunchKernel_ptsz(KERNEL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
  CHECK(next_event(&head, extents) && head.stream == 2 &&
        issued_stream == CU_STREAM_PER_THREAD);
  cuLaunchKernel(KERNEL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
  CHECK(next_event(&head, extents) && head.stream == 1 && issued_stream == NULL);
}

static void copies_read_one_side_and_overwrite_whole_blocks_of_the_other(void) {
  struct pump_range_info a = range(0x7f0010000000, 8), b = range(0x7f0020000000, 8);
  static char host[64];
  CHECK(cuMemcpyDtoDAsync_v2(a.base + 512, b.base + 64, 4 * BLOCK, (CUstream)9) ==
        CUDA_SUCCESS);
  CHECK(next_event(&head, extents) && head.kind == PUMP_EVENT_COPY && head.stream == 9);
  CHECK(head.extent_count == 4);
  CHECK(extent_is(0, &b, 64, 4 * BLOCK, PUMP_ACCESS_READ));
  CHECK(extent_is(1, &a, 512, BLOCK - 512, PUMP_ACCESS_WRITE));
  CHECK(extent_is(2, &a, BLOCK, 3 * BLOCK, PUMP_ACCESS_OVERWRITE));
  CHECK(extent_is(3, &a, 4 * BLOCK, 512, PUMP_ACCESS_WRITE));
  CHECK(cuMemcpyHtoD_v2(a.base, host, 64) == CUDA_SUCCESS);
  CHECK(next_event(&head, extents) && head.extent_count == 1);
  CHECK(extent_is(0, &a, 0, 64, PUMP_ACCESS_WRITE) && synced_seq == 0);
  CHECK(cuMemcpyDtoH_v2(host, b.base, 64) == CUDA_SUCCESS);
  CHECK(next_event(&head, extents) && head.extent_count == 1);
  CHECK(extent_is(0, &b, 0, 64, PUMP_ACCESS_READ) && synced_seq == head.seq);
  CHECK(cuMemcpyHtoDAsync_v2(0x5000, host, 64, NULL) == CUDA_SUCCESS);
  CHECK(!next_event(&head, extents)); /* nothing of ours is touched */
}

static void what_lies_behind_the_requested_bytes_is_overwritten_with_them(void) {
  struct pump_range_info info = {.base = 0x7f0010000000,
                                 .length_bytes = 2 * BLOCK,
                                 .requested_bytes = BLOCK + 4096,
                                 .kind = PUMP_RANGE_CONVERTED};
  CHECK(pump_range_add(&info) >= 0);
  CHECK(cuMemsetD32Async(info.base, 0, (BLOCK + 4096) / 4, NULL) == CUDA_SUCCESS);
  CHECK(next_event(&head, extents) && head.kind == PUMP_EVENT_MEMSET);
  CHECK(head.extent_count == 1 && extent_is(0, &info, 0, 2 * BLOCK, PUMP_ACCESS_OVERWRITE));
}

static void what_waits_for_its_end_is_announced_before_and_the_rest_after(void) {
  struct pump_range_info a = range(0x7f0010000000, 4);
  static char host[64];
  cuMemsetD32_v2(a.base, 0, 1024);
  CHECK(next_event(&head, extents) && newest_at_call == head.seq);
  cuMemsetD2D8_v2(a.base, 4096, 0, 64, 512);
  CHECK(next_event(&head, extents) && newest_at_call == head.seq);
  cuMemcpyHtoD_v2(a.base, host, 64);
  CHECK(next_event(&head, extents) && newest_at_call == head.seq);
  cuMemsetD32Async(a.base, 0, 1024, (CUstream)9);
  CHECK(next_event(&head, extents) && newest_at_call == head.seq - 1);
  cuMemcpyHtoDAsync_v2(a.base, host, 64, (CUstream)9);
  CHECK(next_event(&head, extents) && newest_at_call == head.seq - 1);
}

static void memsets_of_rows_overwrite_only_where_there_are_no_gaps(void) {
  struct pump_range_info a = range(0x7f0010000000, 4);
  CHECK(cuMemsetD2D8_v2(a.base, 4096, 0, 4096, 512) == CUDA_SUCCESS);
  CHECK(next_event(&head, extents) && head.extent_count == 1);
  CHECK(extent_is(0, &a, 0, BLOCK, PUMP_ACCESS_OVERWRITE));
  CHECK(cuMemsetD2D16_v2(a.base, 8192, 0, 1024, 512) == CUDA_SUCCESS);
  CHECK(next_event(&head, extents) && head.extent_count == 1);
  CHECK(extent_is(0, &a, 0, 8192 * 511 + 2048, PUMP_ACCESS_WRITE));
  CHECK(cuMemsetD2D32_v2(a.base, 8192, 0, 0, 0) == CUDA_SUCCESS);
  CHECK(!next_event(&head, extents));
}

static void a_capturing_stream_is_left_alone(void) {
  struct pump_range_info a = range(0x7f0010000000, 1);
  void *params[] = {&a.base};
  sizes[0] = 8, parameters = 1;
  CHECK(cuStreamBeginCapture_v2((CUstream)0x42, 0) == CUDA_SUCCESS && pump_captures == 1);
  capturing = true;
  launch(params, NULL);
  cuMemsetD8Async(a.base, 0, BLOCK, (CUstream)0x42);
  CHECK(!next_event(&head, extents) && issues == 0);
  cuMemsetD8Async(a.base, 0, BLOCK, (CUstream)0x43); /* another stream goes on */
  CHECK(next_event(&head, extents) && issues == 1);
  capturing = false;
  answer = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  CUgraph graph;
  CHECK(cuStreamEndCapture((CUstream)0x42, &graph) == answer && pump_captures == 0);
  CHECK(cuStreamEndCapture((CUstream)0x42, &graph) == answer && pump_captures == 0);
  CHECK(cuStreamBeginCapture((CUstream)0x42) == answer && pump_captures == 0);
}

static void a_full_ring_loses_events_but_not_uses_and_nobody_waits(void) {
  struct pump_range_info a = range(0x7f0010000000, 1);
  void *params[] = {&a.base};
  sizes[0] = 8, parameters = 1;
  for (int i = 0; i < PUMP_EVENT_SLOTS + 100; i++) CHECK(launch(params, NULL) == 0);
  CHECK(pump_shm->shim_counters.events_dropped == 100);
  CHECK(pump_shm->ranges[a.slot].last_use_seq[0] == PUMP_EVENT_SLOTS + 100);
  uint64_t seen = 0;
  while (next_event(&head, extents)) CHECK(head.seq == ++seen);
  CHECK(seen == PUMP_EVENT_SLOTS);
  CHECK(launch(params, NULL) == 0 && next_event(&head, extents));
  CHECK(head.seq == PUMP_EVENT_SLOTS + 101);
}

static void synchronisation_is_progress_up_to_what_was_issued_before(void) {
  launch(NULL, NULL);
  launch(NULL, NULL);
  CHECK(next_event(&head, extents) && next_event(&head, extents));
  CHECK(cuStreamQuery((CUstream)7) == CUDA_SUCCESS && synced_seq == 2);
  CHECK(!next_event(&head, extents));
  CHECK(cuStreamSynchronize((CUstream)7) == CUDA_SUCCESS);
  CHECK(next_event(&head, extents) && head.kind == PUMP_EVENT_SYNC);
  CHECK(head.stream == 7 && head.seq == 2);
  CHECK(cuCtxSynchronize() == CUDA_SUCCESS && context_seq == 2);
  CHECK(next_event(&head, extents) && head.kind == PUMP_EVENT_SYNC);
  CHECK(cuEventRecord((CUevent)5, NULL) == CUDA_SUCCESS && event_seq == 2);
  CHECK(cuStreamDestroy_v2((CUstream)7) == CUDA_SUCCESS && gone == 1);
}

static void the_programs_own_prefetch_is_a_hint_and_no_operation(void) {
  struct pump_range_info a = range(0x7f0010000000, 4);
  CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CHECK(cuMemPrefetchAsync_v2(a.base, BLOCK, location, 0, (CUstream)7) == CUDA_SUCCESS);
  CHECK(next_event(&head, extents) && head.kind == PUMP_EVENT_HINT && head.seq == 0);
  CHECK(head.extent_count == 1 && extent_is(0, &a, 0, BLOCK, PUMP_ACCESS_READ));
  CHECK(pump_shm->header.next_seq == 1 && head.stream == 7);
}

static void a_dormant_or_guarded_thread_reports_nothing(void) {
  pump_active = 0;
  launch(NULL, NULL);
  cuStreamSynchronize(NULL);
  pump_active = 1;
  pump_enter();
  launch(NULL, NULL);
  cuMemcpyDtoH_v2(NULL, 0, 0);
  pump_leave();
  CHECK(!next_event(&head, extents) && pump_shm->header.next_seq == 1);
}

static void errno_is_left_alone(void) {
  errno = 77;
  launch(NULL, NULL);
  cuStreamSynchronize(NULL);
  cuMemsetD8Async(range(0x7f0010000000, 1).base, 0, BLOCK, NULL);
  CHECK(errno == 77);
}

int main(int argc, char **argv) {
#define SCENARIO(name)                                                                     \
  {                                                                                        \
    #name, name                                                                            \
  }
  static const struct {
    const char *name;
    void (*run)(void);
  } scenarios[] = {
      SCENARIO(a_launch_reports_the_ranges_that_its_pointers_reach),
      SCENARIO(pointers_inside_structures_are_found_and_lead_to_one_extent_a_range),
      SCENARIO(not_a_byte_is_read_beyond_a_parameter),
      SCENARIO(packed_small_numbers_are_not_taken_for_pointers),
      SCENARIO(extents_beyond_the_bound_are_counted),
      SCENARIO(a_layout_is_asked_for_once_and_again_after_an_unload),
      SCENARIO(kernel_handles_of_libraries_are_understood),
      SCENARIO(a_driver_that_knows_no_parameters_still_gets_its_launches_reported),
      SCENARIO(a_failed_call_is_no_operation_and_its_error_is_passed_on),
      SCENARIO(twins_speak_of_the_per_thread_stream),
      SCENARIO(copies_read_one_side_and_overwrite_whole_blocks_of_the_other),
      SCENARIO(what_lies_behind_the_requested_bytes_is_overwritten_with_them),
      SCENARIO(what_waits_for_its_end_is_announced_before_and_the_rest_after),
      SCENARIO(memsets_of_rows_overwrite_only_where_there_are_no_gaps),
      SCENARIO(a_capturing_stream_is_left_alone),
      SCENARIO(a_full_ring_loses_events_but_not_uses_and_nobody_waits),
      SCENARIO(synchronisation_is_progress_up_to_what_was_issued_before),
      SCENARIO(the_programs_own_prefetch_is_a_hint_and_no_operation),
      SCENARIO(a_dormant_or_guarded_thread_reports_nothing),
      SCENARIO(errno_is_left_alone),
  };
  set_up();
  for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
    if (argc == 1) printf("%s\n", scenarios[i].name);
    if (argc != 2 || strcmp(argv[1], scenarios[i].name) != 0) continue;
    scenarios[i].run();
    return 0;
  }
  return argc == 1 ? 0 : 2;
}
