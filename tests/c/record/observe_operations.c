/* observe_operations.c - from hooks to events: extents, uses, synchronisation, silence.
 *
 * Links the files of the observe side that test_observe_operations.py names, and
 * observe_harness.c. What launches tell beside their pointers is in
 * observe_signatures.c. Usage: observe_operations SCENARIO
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "observe_harness.h"
#include "shim/memory/pool_map.h"

static bool extent_is(uint32_t i, const struct pump_range_info *r, uint64_t offset,
                      uint64_t bytes, uint64_t access) {
  return extents[i].slot == r->slot && extents[i].generation == r->generation &&
         extents[i].offset_bytes == offset &&
         extents[i].length_access == (bytes << 2 | access);
}

/* ---- scenarios ------------------------------------------------------------ */

static void a_launch_reports_the_ranges_that_its_pointers_reach(void) {
  struct pump_range_info a = range(0x7f0010000000, 4), b = range(0x7f0020000000, 2);
  uint64_t first = a.base + 4096, second = b.base;
  uint32_t number = 5;
  void *params[] = {&first, &number, &second};
  driver.sizes[0] = 8, driver.sizes[1] = 4, driver.sizes[2] = 8, driver.parameters = 3;
  CHECK(launch(params, NULL) == CUDA_SUCCESS);
  CHECK(next_event());
  CHECK(head.kind == PUMP_EVENT_KERNEL && head.seq == 1 && head.extent_count == 2);
  CHECK(head.function == (uint64_t)(uintptr_t)KERNEL && head.stream == 0x42);
  CHECK(head.device == 3 && head.time_ns == NOW_NS && head.extents_dropped == 0);
  /* In place of a length: where the pointer stands among the parameters. */
  CHECK(extent_is(0, &a, 4096, 0, PUMP_ACCESS_ARGUMENT));
  CHECK(extent_is(1, &b, 0, 16, PUMP_ACCESS_ARGUMENT));
  CHECK(told.issued_seq == 1 && told.issued_stream == (CUstream)0x42);
  CHECK(told.touched_bytes == a.length_bytes / 8 + b.length_bytes);
  CHECK(pump_shm->shim_counters.operations == 1 && pump_inside == 0);
}

static void an_operation_is_compared_with_what_was_foreseen_where_plans_are_armed(void) {
  struct pump_range_info a = range(0x7f0010000000, 4);
  uint64_t pointer = a.base;
  void *params[] = {&pointer};
  driver.sizes[0] = 8, driver.parameters = 1;
  CHECK(launch(params, NULL) == CUDA_SUCCESS && told.compared == 0);
  pump_shm->header.armed = 1;
  CHECK(launch(params, NULL) == CUDA_SUCCESS && told.compared == 1);
  CHECK(told.issued.seq == 2 && told.issued.stream == 0x42);
  CHECK(told.issued.kind == PUMP_EVENT_KERNEL && told.issued.grid != NULL);
  CHECK(told.issued.function == (uint64_t)(uintptr_t)KERNEL);
  CHECK(next_event() && next_event() && told.issued.signature == head.signature);
}

/* Three pieces, the middle one free. */
static void a_pointer_into_the_pool_reaches_to_the_end_of_its_block(void) {
  static uint64_t begins[64], live[64], any[1];
  struct pump_pool_map map = {
      .words = 64, .room = 64, .begins = begins, .live = live, .any = any};
  struct pump_range_info a = {.base = 0x7f0010000000,
                              .length_bytes = BLOCK,
                              .requested_bytes = BLOCK,
                              .kind = PUMP_RANGE_CONVERTED,
                              .pool = &map};
  CHECK(pump_range_add(&a) >= 0);
  pool_map_begin(&map, 0, true);
  pool_map_begin(&map, 0x18000, true);
  pool_map_begin(&map, 0x30000, true);
  pool_map_live(&map, 0, true);
  pool_map_live(&map, 0x30000, true);
  uint64_t inside = a.base + 0x10008, dead = a.base + 0x20000, last = a.base + 0x30000;
  void *params[] = {&inside, &dead, &last};
  driver.sizes[0] = driver.sizes[1] = driver.sizes[2] = 8, driver.parameters = 3;
  CHECK(launch(params, NULL) == CUDA_SUCCESS);
  CHECK(next_event() && head.extent_count == 2); /* the dead one is a stale pointer */
  /* In units, the one that the pointer stands in included; and where it stands. */
  CHECK(extent_is(0, &a, 0x10008, 0x40 << PUMP_ARGUMENT_BITS, PUMP_ACCESS_ARGUMENT));
  uint64_t rest = (BLOCK - 0x30000) / PUMP_UNIT_BYTES;
  CHECK(extent_is(1, &a, 0x30000, rest << PUMP_ARGUMENT_BITS | 16, PUMP_ACCESS_ARGUMENT));
  CHECK(told.touched_bytes == 0x18000 - 0x10008 + BLOCK - 0x30000);
}

static void every_distinct_pointer_arrives_once_and_tells_where_it_stands(void) {
  struct pump_range_info a = range(0x7f0010000000, 8), b = range(0x7f0020000000, 1);
  uint64_t structure[131] = {0};
  structure[7] = a.base + 3 * BLOCK;
  structure[64] = a.base + BLOCK; /* the second chunk begins here */
  structure[65] = a.base + 3 * BLOCK;
  structure[90] = a.base + BLOCK;
  structure[130] = a.base + 5 * BLOCK + 4; /* a row of odd length in fp32 */
  uint64_t single = b.base + 0x40001;      /* programs pass no rubbish as a parameter */
  uint32_t number = 1;
  void *params[] = {&number, structure, &single};
  driver.sizes[0] = 4, driver.sizes[1] = sizeof structure, driver.sizes[2] = 8;
  driver.parameters = 3;
  launch(params, NULL);
  CHECK(next_event() && head.extent_count == 4);
  CHECK(extent_is(0, &a, 3 * BLOCK, 8 + 7 * 8, PUMP_ACCESS_ARGUMENT));
  CHECK(extent_is(1, &a, BLOCK, 8 + 64 * 8, PUMP_ACCESS_ARGUMENT));
  CHECK(extent_is(2, &a, 5 * BLOCK + 4, 8 + 130 * 8, PUMP_ACCESS_ARGUMENT));
  CHECK(extent_is(3, &b, 0x40001, 8 + sizeof structure, PUMP_ACCESS_ARGUMENT));
  structure[130] -= 2; /* rubbish of a by-value table */
  launch(params, NULL);
  CHECK(next_event() && head.extent_count == 3);
}

static void a_buffer_of_parameters_is_read_like_any_other(void) {
  struct pump_range_info a = range(0x7f0010000000, 2);
  uint64_t buffer[6] = {1, a.base, 2, a.base + 65536, a.base, 3};
  size_t bytes = sizeof buffer;
  void *extra[] = {CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_BUFFER_POINTER,
                   buffer, CU_LAUNCH_PARAM_END};
  launch(NULL, extra);
  CHECK(next_event() && head.extent_count == 2 && driver.questions == 0);
  CHECK(extent_is(0, &a, 0, 8, PUMP_ACCESS_ARGUMENT));
  CHECK(extent_is(1, &a, 65536, 24, PUMP_ACCESS_ARGUMENT));
}

static const uint64_t *uses(const struct pump_range_info *r) {
  return pump_shm->ranges[r->slot].last_use_seq;
}

/* What a pointer reaches is not known: see argument_bytes in observe_range.c. */
static void a_pointer_to_the_beginning_uses_all_one_inside_its_slice_and_the_next(void) {
  struct pump_range_info a = range(0x7f0010000000, 64); /* slices of 8 blocks */
  uint64_t pointer = a.base;
  void *params[] = {&pointer};
  driver.sizes[0] = 8, driver.parameters = 1;
  launch(params, NULL);
  for (int i = 0; i < PUMP_USE_SLICES; i++) CHECK(uses(&a)[i] == 1);
  CHECK(told.touched_bytes == 64 * BLOCK);
  pointer = a.base + 17 * BLOCK;
  launch(params, NULL);
  for (int i = 0; i < PUMP_USE_SLICES; i++)
    CHECK(uses(&a)[i] == (i == 2 || i == 3 ? 2u : 1u));
  CHECK(told.touched_bytes == 4 * BLOCK); /* no more than a tensor has, for the markers */
  pointer = a.base + 63 * BLOCK;
  launch(params, NULL);
  CHECK(uses(&a)[6] == 1 && uses(&a)[7] == 3 && told.touched_bytes == BLOCK);
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
    driver.sizes[0] = bytes, driver.parameters = 1;
    launch(params, NULL);
    CHECK(next_event() && head.extent_count == (bytes >= 8));
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, pages + 4096 - bytes,
                     CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
    launch(NULL, extra);
    CHECK(next_event() && head.extent_count == (bytes >= 8));
  }
}

static void packed_small_numbers_are_not_taken_for_pointers(void) {
  struct pump_range_info a = range(0x7f0000000000 - BLOCK, 4);
  uint64_t words[] = {0x7f0000000005, 0x7efffffffff0, 0x7f0000010000, a.base};
  size_t expected[] = {0, 0, 1, 1};
  driver.sizes[0] = 8, driver.parameters = 1;
  for (int i = 0; i < 4; i++) {
    void *params[] = {&words[i]};
    launch(params, NULL);
    CHECK(next_event() && head.extent_count == expected[i]);
  }
  /* ... unless they are exactly where a range begins. */
  struct pump_range_info b = range(0x7e0000000000, 1);
  void *params[] = {&b.base};
  launch(params, NULL);
  CHECK(next_event() && head.extent_count == 1);
}

static void extents_beyond_the_bound_are_counted(void) {
  static uint64_t table[PUMP_MAX_EXTENTS + 8];
  for (uint64_t i = 0; i < PUMP_MAX_EXTENTS + 8; i++)
    table[i] = range(0x7f0010000000 + i * 2 * BLOCK, 1).base + 65536;
  void *params[] = {table};
  driver.sizes[0] = sizeof table, driver.parameters = 1;
  launch(params, NULL);
  CHECK(next_event());
  CHECK(head.extent_count == PUMP_MAX_EXTENTS && head.extents_dropped == 8);
  CHECK(pump_shm->shim_counters.extents_dropped == 8);
  CHECK(!next_event());
}

static void an_obsolete_launch_is_one_that_does_not_tell_what_it_uses(void) {
  range(0x7f0010000000, 1);
  CHECK(cuLaunch(KERNEL) == CUDA_SUCCESS);
  CHECK(next_event() && head.kind == PUMP_EVENT_KERNEL && head.stream == 1);
  CHECK(head.extent_count == 0 && head.extents_dropped == 1);
  CHECK(cuLaunchGrid(KERNEL, 7, 3) == CUDA_SUCCESS && next_event());
  CHECK(head.extents_dropped == 1);
  CHECK(cuLaunchGridAsync(KERNEL, 7, 3, (CUstream)9) == CUDA_SUCCESS && next_event());
  CHECK(head.stream == 9 && head.extents_dropped == 1 && !next_event());
  driver.answer = CUDA_ERROR_LAUNCH_FAILED;
  CHECK(cuLaunch(KERNEL) == CUDA_ERROR_LAUNCH_FAILED && !next_event());
}

static void a_layout_is_asked_for_once_and_again_after_an_unload(void) {
  struct pump_range_info a = range(0x7f0010000000, 1);
  uint64_t words[4] = {a.base, a.base, a.base, a.base};
  void *params[] = {words, words};
  driver.sizes[0] = 8, driver.parameters = 1;
  launch(params, NULL);
  CHECK(driver.questions == 2);
  launch(params, NULL);
  CHECK(driver.questions == 2);
  driver.sizes[0] = 4, driver.sizes[1] = 16, driver.parameters = 2;
  CHECK(cuModuleUnload(NULL) == CUDA_SUCCESS);
  launch(params, NULL);
  CHECK(driver.questions == 5);
  CHECK(cuLibraryUnload(NULL) == CUDA_SUCCESS);
  launch(params, NULL);
  CHECK(driver.questions == 8);
  launch(params, NULL);
  CHECK(driver.questions == 8);
}

static void kernel_handles_of_libraries_are_understood(void) {
  struct pump_range_info a = range(0x7f0010000000, 1);
  void *params[] = {&a.base};
  driver.only_kernel_handles = true;
  driver.sizes[0] = 8, driver.parameters = 1;
  CUlaunchConfig config = {.hStream = (CUstream)0x42};
  CHECK(cuLaunchKernelEx(&config, KERNEL, params, NULL) == CUDA_SUCCESS);
  CHECK(next_event() && head.extent_count == 1 && head.stream == 0x42);
}

static void a_handle_of_known_kind_is_never_asked_as_one_of_the_other(void) {
  struct pump_range_info a = range(0x7f0010000000, 1);
  void *params[] = {&a.base};
  driver.sizes[0] = 8, driver.parameters = 1;
  driver.only_kernel_handles = driver.kind_known = true;
  pump_function_note(KERNEL, true);
  launch(params, NULL);
  CHECK(next_event() && head.extent_count == 1);
  driver.only_kernel_handles = driver.kind_known = false;
  CHECK(cuLibraryUnload(NULL) == CUDA_SUCCESS);
  pump_function_note(KERNEL, false); /* the handle has come back */
  size_t asked = driver.questions;
  launch(params, NULL);
  CHECK(next_event() && head.extent_count == 1 && driver.questions > asked);
}

static void a_driver_that_knows_no_parameters_still_gets_its_launches_reported(void) {
  pump_present.cuFuncGetParamInfo = pump_present.cuKernelGetParamInfo = false;
  void *params[] = {NULL};
  launch(params, NULL);
  CHECK(next_event() && head.extent_count == 0);
  CHECK(head.kind == PUMP_EVENT_KERNEL && head.seq == 1);
}

static void a_failed_call_is_no_operation_and_its_error_is_passed_on(void) {
  struct pump_range_info a = range(0x7f0010000000, 1);
  driver.answer = CUDA_ERROR_LAUNCH_FAILED;
  CHECK(launch(NULL, NULL) == CUDA_ERROR_LAUNCH_FAILED);
  CHECK(cuMemsetD8Async(a.base, 0, 64, NULL) == CUDA_ERROR_LAUNCH_FAILED);
  CHECK(cuMemcpyDtoDAsync_v2(a.base, a.base, 64, NULL) == CUDA_ERROR_LAUNCH_FAILED);
  CHECK(cuStreamSynchronize(NULL) == CUDA_ERROR_LAUNCH_FAILED);
  CHECK(!next_event() && pump_shm->header.next_seq == 1 && told.issues == 0);
}

static void twins_speak_of_the_per_thread_stream(void) {
  cuLaunchKernel_ptsz(KERNEL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
  CHECK(next_event() && head.stream == 2 && told.issued_stream == CU_STREAM_PER_THREAD);
  cuLaunchKernel(KERNEL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
  CHECK(next_event() && head.stream == 1 && told.issued_stream == NULL);
}

static void copies_read_one_side_and_overwrite_whole_blocks_of_the_other(void) {
  struct pump_range_info a = range(0x7f0010000000, 8), b = range(0x7f0020000000, 8);
  static char host[64];
  CHECK(cuMemcpyDtoDAsync_v2(a.base + 512, b.base + 64, 4 * BLOCK, (CUstream)9) ==
        CUDA_SUCCESS);
  CHECK(next_event() && head.kind == PUMP_EVENT_COPY && head.stream == 9);
  CHECK(head.extent_count == 4);
  CHECK(extent_is(0, &b, 64, 4 * BLOCK, PUMP_ACCESS_READ));
  CHECK(extent_is(1, &a, 512, BLOCK - 512, PUMP_ACCESS_WRITE));
  CHECK(extent_is(2, &a, BLOCK, 3 * BLOCK, PUMP_ACCESS_OVERWRITE));
  CHECK(extent_is(3, &a, 4 * BLOCK, 512, PUMP_ACCESS_WRITE));
  CHECK(cuMemcpyHtoD_v2(a.base, host, 64) == CUDA_SUCCESS);
  CHECK(next_event() && head.extent_count == 1);
  CHECK(extent_is(0, &a, 0, 64, PUMP_ACCESS_WRITE) && told.synced_seq == 0);
  CHECK(cuMemcpyDtoH_v2(host, b.base, 64) == CUDA_SUCCESS);
  CHECK(next_event() && head.extent_count == 1);
  CHECK(extent_is(0, &b, 0, 64, PUMP_ACCESS_READ) && told.synced_seq == head.seq);
  CHECK(cuMemcpyHtoDAsync_v2(0x5000, host, 64, NULL) == CUDA_SUCCESS);
  CHECK(!next_event()); /* nothing of ours is touched */
}

static void what_lies_behind_the_requested_bytes_is_overwritten_with_them(void) {
  struct pump_range_info info = {.base = 0x7f0010000000,
                                 .length_bytes = 2 * BLOCK,
                                 .requested_bytes = BLOCK + 4096,
                                 .kind = PUMP_RANGE_CONVERTED};
  CHECK(pump_range_add(&info) >= 0);
  CHECK(cuMemsetD32Async(info.base, 0, (BLOCK + 4096) / 4, NULL) == CUDA_SUCCESS);
  CHECK(next_event() && head.kind == PUMP_EVENT_MEMSET);
  CHECK(head.extent_count == 1 && extent_is(0, &info, 0, 2 * BLOCK, PUMP_ACCESS_OVERWRITE));
}

static void what_waits_for_its_end_is_announced_before_and_the_rest_after(void) {
  struct pump_range_info a = range(0x7f0010000000, 4);
  static char host[64];
  cuMemsetD32_v2(a.base, 0, 1024);
  CHECK(next_event() && driver.newest_at_call == head.seq);
  cuMemsetD2D8_v2(a.base, 4096, 0, 64, 512);
  CHECK(next_event() && driver.newest_at_call == head.seq);
  cuMemcpyHtoD_v2(a.base, host, 64);
  CHECK(next_event() && driver.newest_at_call == head.seq);
  cuMemsetD32Async(a.base, 0, 1024, (CUstream)9);
  CHECK(next_event() && driver.newest_at_call == head.seq - 1);
  cuMemcpyHtoDAsync_v2(a.base, host, 64, (CUstream)9);
  CHECK(next_event() && driver.newest_at_call == head.seq - 1);
}

static void memsets_of_rows_overwrite_only_where_there_are_no_gaps(void) {
  struct pump_range_info a = range(0x7f0010000000, 4);
  CHECK(cuMemsetD2D8_v2(a.base, 4096, 0, 4096, 512) == CUDA_SUCCESS);
  CHECK(next_event() && head.extent_count == 1);
  CHECK(extent_is(0, &a, 0, BLOCK, PUMP_ACCESS_OVERWRITE));
  CHECK(cuMemsetD2D16_v2(a.base, 8192, 0, 1024, 512) == CUDA_SUCCESS);
  CHECK(next_event() && head.extent_count == 1);
  CHECK(extent_is(0, &a, 0, 8192 * 511 + 2048, PUMP_ACCESS_WRITE));
  CHECK(cuMemsetD2D32_v2(a.base, 8192, 0, 0, 0) == CUDA_SUCCESS);
  CHECK(!next_event());
}

static void a_capturing_stream_is_left_alone(void) {
  struct pump_range_info a = range(0x7f0010000000, 1);
  void *params[] = {&a.base};
  driver.sizes[0] = 8, driver.parameters = 1;
  CHECK(cuStreamBeginCapture_v2((CUstream)0x42, 0) == CUDA_SUCCESS && pump_captures == 1);
  driver.capturing = true;
  launch(params, NULL);
  cuMemsetD8Async(a.base, 0, BLOCK, (CUstream)0x42);
  CHECK(!next_event() && told.issues == 0);
  told.event_seq = 77;
  CHECK(cuEventRecord((CUevent)5, (CUstream)0x42) == CUDA_SUCCESS && told.event_seq == 77);
  CHECK(told.event_gone == (CUevent)5); /* nor does it tell what it told before */
  cuMemsetD8Async(a.base, 0, BLOCK, (CUstream)0x43); /* another stream goes on */
  CHECK(next_event() && told.issues == 1);
  CHECK(cuEventRecord((CUevent)5, (CUstream)0x43) == CUDA_SUCCESS && told.event_seq != 77);
  driver.capturing = false;
  driver.answer = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  CUgraph graph;
  CHECK(cuStreamEndCapture((CUstream)0x42, &graph) == driver.answer && pump_captures == 0);
  CHECK(cuStreamEndCapture((CUstream)0x42, &graph) == driver.answer && pump_captures == 0);
  CHECK(cuStreamBeginCapture((CUstream)0x42) == driver.answer && pump_captures == 0);
}

static void a_recaptured_stream_is_left_alone(void) {
  CHECK(cuStreamBeginRecaptureToGraph((CUstream)0x42, 0, NULL, NULL, NULL) == CUDA_SUCCESS);
  CHECK(cuStreamBeginRecaptureToGraph_ptsz((CUstream)0x43, 0, NULL, NULL, NULL) ==
        CUDA_SUCCESS);
  driver.capturing = true;
  launch(NULL, NULL);
  CHECK(pump_captures == 2 && !next_event() && told.issues == 0);
}

/* Nothing is known of what joined a CIG capture: no stream is touched beside one. */
static void beside_a_capture_for_graphics_no_stream_is_touched(void) {
  CHECK(cuStreamBeginCaptureToCig((CUstream)0x43, NULL) == CUDA_SUCCESS);
  launch(NULL, NULL);
  CHECK(!next_event() && told.issues == 0);
  driver.answer = CUDA_ERROR_INVALID_VALUE;
  CHECK(cuStreamBeginCaptureToCig_ptsz((CUstream)0x44, NULL) == driver.answer);
  CHECK(cuStreamEndCaptureToCig((CUstream)0x44) == driver.answer);
  CHECK(pump_captures == 1);
  driver.answer = CUDA_SUCCESS;
  CHECK(cuStreamEndCaptureToCig_ptsz((CUstream)0x43) == CUDA_SUCCESS && pump_captures == 0);
  launch(NULL, NULL);
  CHECK(next_event() && told.issues == 1);
}

static void a_full_ring_loses_events_but_not_uses_and_nobody_waits(void) {
  struct pump_range_info a = range(0x7f0010000000, 1);
  void *params[] = {&a.base};
  driver.sizes[0] = 8, driver.parameters = 1;
  CHECK(launch(params, NULL) == 0);
  while (next_event()) CHECK(head.seq == 1); /* and what is told once */
  for (int i = 0; i < PUMP_EVENT_SLOTS + 100; i++) CHECK(launch(params, NULL) == 0);
  CHECK(pump_shm->shim_counters.events_dropped == 100);
  CHECK(uses(&a)[0] == PUMP_EVENT_SLOTS + 101);
  uint64_t seen = 1;
  while (next_event()) CHECK(head.seq == ++seen);
  CHECK(seen == PUMP_EVENT_SLOTS + 1);
  CHECK(launch(params, NULL) == 0 && next_event());
  CHECK(head.seq == PUMP_EVENT_SLOTS + 102);
}

static void synchronisation_is_progress_up_to_what_was_issued_before(void) {
  launch(NULL, NULL);
  launch(NULL, NULL);
  CHECK(next_event() && next_event());
  CHECK(cuStreamQuery((CUstream)7) == CUDA_SUCCESS && told.synced_seq == 2);
  CHECK(!next_event());
  CHECK(cuStreamSynchronize((CUstream)7) == CUDA_SUCCESS);
  CHECK(next_event() && head.kind == PUMP_EVENT_SYNC);
  CHECK(head.stream == 7 && head.seq == 2 && head.signature == NOW_NS);
  CHECK(cuCtxSynchronize() == CUDA_SUCCESS && told.context_seq == 2);
  CHECK(next_event() && head.kind == PUMP_EVENT_SYNC);
  CHECK(cuEventRecord((CUevent)5, NULL) == CUDA_SUCCESS && told.event_seq == 2);
  CHECK(cuEventDestroy_v2((CUevent)5) == CUDA_SUCCESS && told.event_gone == (CUevent)5);
  CHECK(cuEventDestroy((CUevent)6) == CUDA_SUCCESS && told.event_gone == (CUevent)6);
  CHECK(cuStreamDestroy_v2((CUstream)7) == CUDA_SUCCESS && told.streams_gone == 1);
}

static void what_records_an_event_in_other_ways_makes_it_tell_nothing(void) {
  CUlaunchAttribute attributes[2] = {{.id = 1},
                                     {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT}};
  CUlaunchConfig config = {
      .gridDimX = 1, .hStream = (CUstream)0x42, .attrs = attributes, .numAttrs = 2};
  attributes[1].value.bytes[0] = 5 * 64;
  cuLaunchKernelEx(&config, KERNEL, NULL, NULL);
  CHECK(told.event_gone == (CUevent)(5 * 64));
  attributes[1].id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
  attributes[1].value.bytes[0] = 6 * 64;
  cuLaunchKernelEx_ptsz(&config, KERNEL, NULL, NULL);
  CHECK(told.event_gone == (CUevent)(6 * 64));
  CHECK(cuCtxRecordEvent(NULL, (CUevent)(7 * 64)) == CUDA_SUCCESS);
  CHECK(told.event_gone == (CUevent)(7 * 64));
  CHECK(cuGreenCtxRecordEvent(NULL, (CUevent)(8 * 64)) == CUDA_SUCCESS);
  CHECK(told.event_gone == (CUevent)(8 * 64));
  driver.answer = CUDA_ERROR_INVALID_VALUE;
  CHECK(cuLaunchKernelEx(NULL, KERNEL, NULL, NULL) == driver.answer);
}

static CUresult record_meanwhile(CUevent event) {
  (void)event;
  told.event_seq = 99; /* by another thread */
  return driver.answer;
}

static void what_was_asked_about_an_event_is_what_was_known_before(void) {
  launch(NULL, NULL);
  CHECK(cuEventRecord((CUevent)5, NULL) == CUDA_SUCCESS && told.event_seq == 1);
  pump_real.cuEventQuery = pump_real.cuEventSynchronize = record_meanwhile;
  CHECK(cuEventQuery((CUevent)5) == CUDA_SUCCESS && told.event_asked == 1);
  told.event_seq = 2;
  CHECK(cuEventSynchronize((CUevent)5) == CUDA_SUCCESS && told.event_asked == 2);
  told.event_seq = 3;
  driver.answer = CUDA_ERROR_NOT_READY;
  CHECK(cuEventQuery((CUevent)5) == driver.answer && told.event_asked == 2);
}

static CUresult open_event(CUevent *event, CUipcEventHandle handle) {
  *event = (CUevent)(uintptr_t)handle.reserved[0];
  return driver.answer;
}

static void an_event_of_two_processes_is_known_as_such_until_it_is_destroyed(void) {
  CUipcEventHandle handle = {"\x09"};
  CUevent opened;
  pump_real.cuIpcOpenEventHandle = open_event;
  for (pump_active = 0; pump_active < 2; pump_active++) { /* dormant, then active */
    CHECK(cuIpcGetEventHandle(&handle, (CUevent)5) == CUDA_SUCCESS);
    CHECK(told.event_distrusted == (CUevent)5);
    driver.answer = CUDA_ERROR_INVALID_HANDLE;
    CHECK(cuEventDestroy_v2((CUevent)5) == driver.answer);
    CHECK(told.event_distrusted == (CUevent)5); /* it is still there */
    CHECK(cuIpcGetEventHandle(&handle, (CUevent)5) == driver.answer);
    CHECK(told.event_distrusted == (CUevent)5); /* from before */
    driver.answer = CUDA_SUCCESS;
    CHECK(cuEventDestroy((CUevent)5) == CUDA_SUCCESS && told.event_distrusted == NULL);
    driver.answer = CUDA_ERROR_INVALID_HANDLE;
    CHECK(cuIpcGetEventHandle(&handle, (CUevent)5) == driver.answer);
    CHECK(told.event_distrusted == NULL);
    CHECK(cuIpcOpenEventHandle(&opened, handle) == driver.answer);
    CHECK(told.event_distrusted == NULL);
    driver.answer = CUDA_SUCCESS;
    CHECK(cuIpcOpenEventHandle(&opened, handle) == CUDA_SUCCESS);
    CHECK(told.event_distrusted == (CUevent)9);
    CHECK(cuEventDestroy_v2(opened) == CUDA_SUCCESS && told.event_distrusted == NULL);
  }
}

static void the_programs_own_prefetch_is_a_hint_and_no_operation(void) {
  struct pump_range_info a = range(0x7f0010000000, 4);
  CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CHECK(cuMemPrefetchAsync_v2(a.base, BLOCK, location, 0, (CUstream)7) == CUDA_SUCCESS);
  CHECK(next_event() && head.kind == PUMP_EVENT_HINT && head.seq == 0);
  CHECK(head.extent_count == 1 && extent_is(0, &a, 0, BLOCK, PUMP_ACCESS_READ));
  CHECK(pump_shm->header.next_seq == 1 && head.stream == 7);
}

static void each_part_of_a_batch_is_a_hint(void) {
  struct pump_range_info a = range(0x7f0010000000, 4);
  CUdeviceptr addresses[] = {a.base, 4096,
                             a.base + 2 * BLOCK}; /* the second is in no range */
  size_t lengths[] = {BLOCK, 4096, 2 * BLOCK}, index = 0;
  CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUstream stream = (CUstream)7;
  for (int way = 0; way < 3; way++) {
    CUresult result = way == 0 ? cuMemDiscardBatchAsync(addresses, lengths, 3, 0, stream)
                      : way == 1
                          ? cuMemPrefetchBatchAsync(addresses, lengths, 3, &location,
                                                    &index, 1, 0, stream)
                          : cuMemDiscardAndPrefetchBatchAsync_ptsz(
                                addresses, lengths, 3, &location, &index, 1, 0, stream);
    CHECK(result == CUDA_SUCCESS);
    CHECK(next_event() && head.kind == PUMP_EVENT_HINT && head.stream == 7);
    CHECK(extent_is(0, &a, 0, BLOCK, PUMP_ACCESS_READ));
    CHECK(next_event() && extent_is(0, &a, 2 * BLOCK, 2 * BLOCK, PUMP_ACCESS_READ));
    CHECK(!next_event());
  }
  driver.answer = CUDA_ERROR_INVALID_VALUE;
  CHECK(cuMemDiscardBatchAsync(NULL, NULL, 3, 0, stream) == driver.answer);
}

static void progress_is_told_to_a_recorder_and_to_nobody_else(void) {
  pump_shm->progress[7].device = 2;
  pump_event_progress(7, 33, 99);
  CHECK(!next_event());
  pump_recording = true;
  pump_event_progress(7, 33, 99);
  CHECK(next_event() && head.kind == PUMP_EVENT_PROGRESS && head.stream == 7);
  CHECK(head.seq == 33 && head.time_ns == 99 && head.device == 2);
  CHECK(pump_shm->header.next_seq == 1);
  pump_active = 0;
  pump_event_progress(7, 34, 99);
  CHECK(!next_event());
}

/* A marker in front of such a launch would keep it from beginning early. */
static void launches_that_may_overlap_are_made_known_to_the_markers(void) {
  CUlaunchAttribute attributes[2] = {{.id = 1}, {.id = 2}};
  CUlaunchConfig config = {
      .gridDimX = 1, .hStream = (CUstream)0x42, .attrs = attributes, .numAttrs = 2};
  cuLaunchKernelEx(&config, KERNEL, NULL, NULL);
  CHECK(next_event() && told.issues == 1 && told.chained == 0);
  attributes[1].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  cuLaunchKernelEx(&config, KERNEL, NULL, NULL);
  CHECK(next_event() && told.issues == 2 && told.chained == 0); /* says: no */
  attributes[1].value.programmaticStreamSerializationAllowed = 1;
  cuLaunchKernelEx(&config, KERNEL, NULL, NULL);
  CHECK(next_event() && told.issues == 3 && told.chained == 1);
  attributes[1].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT;
  cuLaunchKernelEx_ptsz(&config, KERNEL, NULL, NULL);
  CHECK(next_event() && told.issues == 4 && told.chained == 2);
  config.numAttrs = 1;
  cuLaunchKernelEx(&config, KERNEL, NULL, NULL);
  CHECK(next_event() && told.issues == 5 && told.chained == 2);
}

/* A stream's handle comes back as another's, in another place of the table. */
static void a_launch_on_several_devices_is_reported_once_for_each_in_its_context(void) {
  struct pump_range_info a = range(0x7f0010000000, 1);
  void *params[] = {&a.base};
  driver.sizes[0] = 8, driver.parameters = 1;
  driver.current = (CUcontext)7;
  CUDA_LAUNCH_PARAMS launches[2] = {
      {.function = KERNEL, .hStream = (CUstream)0x142, .kernelParams = params},
      {.function = KERNEL, .hStream = (CUstream)0x743, .kernelParams = params}};
  CHECK(cuLaunchCooperativeKernelMultiDevice(launches, 2, 0) == CUDA_SUCCESS);
  CHECK(next_event() && head.kind == PUMP_EVENT_KERNEL && head.extent_count == 1);
  CHECK(head.stream == 0x142);
  CHECK(next_event() && head.stream == 0x343 && head.extent_count == 1 && !next_event());
  CHECK(driver.current == (CUcontext)7 && pump_inside == 0);
  driver.answer = CUDA_ERROR_LAUNCH_FAILED;
  CHECK(cuLaunchCooperativeKernelMultiDevice(launches, 2, 0) == driver.answer);
  CHECK(!next_event());
}

static void a_stream_is_looked_up_again_after_one_has_gone(void) {
  launch(NULL, NULL);
  CHECK(next_event() && head.stream == 0x42 && told.looked_up == 1);
  launch(NULL, NULL);
  CHECK(next_event() && head.stream == 0x42 && told.looked_up == 1);
  CHECK(cuStreamDestroy_v2((CUstream)0x43) == CUDA_SUCCESS);
  told.moved_by = 7;
  launch(NULL, NULL);
  CHECK(next_event() && head.stream == 0x49 && told.looked_up == 2);
}

/* The same handle names another stream in each context, and one more for the twins. */
static void default_streams_are_told_apart_by_context(void) {
  cuLaunchKernel(KERNEL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
  cuLaunchKernel_ptsz(KERNEL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
  cuLaunchKernel(KERNEL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
  CHECK(next_event() && head.stream == 1 && next_event() && head.stream == 2);
  CHECK(next_event() && head.stream == 1);
  driver.current = (CUcontext)2;
  told.moved_by = 10;
  cuLaunchKernel(KERNEL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
  CHECK(next_event() && head.stream == 11);
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
  CHECK(!next_event() && pump_shm->header.next_seq == 1);
}

static void errno_is_left_alone(void) {
  errno = 77;
  launch(NULL, NULL);
  cuStreamSynchronize(NULL);
  cuMemsetD8Async(range(0x7f0010000000, 1).base, 0, BLOCK, NULL);
  CHECK(errno == 77);
}

int main(int argc, char **argv) {
  static const struct scenario scenarios[] = {
      SCENARIO(a_launch_reports_the_ranges_that_its_pointers_reach),
      SCENARIO(an_operation_is_compared_with_what_was_foreseen_where_plans_are_armed),
      SCENARIO(a_pointer_into_the_pool_reaches_to_the_end_of_its_block),
      SCENARIO(every_distinct_pointer_arrives_once_and_tells_where_it_stands),
      SCENARIO(a_buffer_of_parameters_is_read_like_any_other),
      SCENARIO(a_pointer_to_the_beginning_uses_all_one_inside_its_slice_and_the_next),
      SCENARIO(not_a_byte_is_read_beyond_a_parameter),
      SCENARIO(packed_small_numbers_are_not_taken_for_pointers),
      SCENARIO(extents_beyond_the_bound_are_counted),
      SCENARIO(an_obsolete_launch_is_one_that_does_not_tell_what_it_uses),
      SCENARIO(a_layout_is_asked_for_once_and_again_after_an_unload),
      SCENARIO(kernel_handles_of_libraries_are_understood),
      SCENARIO(a_handle_of_known_kind_is_never_asked_as_one_of_the_other),
      SCENARIO(a_driver_that_knows_no_parameters_still_gets_its_launches_reported),
      SCENARIO(a_failed_call_is_no_operation_and_its_error_is_passed_on),
      SCENARIO(twins_speak_of_the_per_thread_stream),
      SCENARIO(copies_read_one_side_and_overwrite_whole_blocks_of_the_other),
      SCENARIO(what_lies_behind_the_requested_bytes_is_overwritten_with_them),
      SCENARIO(what_waits_for_its_end_is_announced_before_and_the_rest_after),
      SCENARIO(memsets_of_rows_overwrite_only_where_there_are_no_gaps),
      SCENARIO(a_capturing_stream_is_left_alone),
      SCENARIO(a_recaptured_stream_is_left_alone),
      SCENARIO(beside_a_capture_for_graphics_no_stream_is_touched),
      SCENARIO(a_full_ring_loses_events_but_not_uses_and_nobody_waits),
      SCENARIO(synchronisation_is_progress_up_to_what_was_issued_before),
      SCENARIO(what_records_an_event_in_other_ways_makes_it_tell_nothing),
      SCENARIO(what_was_asked_about_an_event_is_what_was_known_before),
      SCENARIO(an_event_of_two_processes_is_known_as_such_until_it_is_destroyed),
      SCENARIO(the_programs_own_prefetch_is_a_hint_and_no_operation),
      SCENARIO(each_part_of_a_batch_is_a_hint),
      SCENARIO(progress_is_told_to_a_recorder_and_to_nobody_else),
      SCENARIO(launches_that_may_overlap_are_made_known_to_the_markers),
      SCENARIO(a_launch_on_several_devices_is_reported_once_for_each_in_its_context),
      SCENARIO(a_stream_is_looked_up_again_after_one_has_gone),
      SCENARIO(default_streams_are_told_apart_by_context),
      SCENARIO(a_dormant_or_guarded_thread_reports_nothing),
      SCENARIO(errno_is_left_alone),
  };
  return run_scenario(scenarios, sizeof scenarios / sizeof *scenarios, argc, argv);
}
