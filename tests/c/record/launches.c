/* launches.c - from launches to events: parameters, the extents that they reach, layouts.
 *
 * Built like operations.c. Other information of launches is in signatures.c.
 * Usage: launches SCENARIO
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "record_harness.h"
#include "shim/memory/pool_map.h"

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
  /* Instead of a length: the position of the pointer among the parameters. */
  CHECK(extent_is(0, &a, 4096, 0, PUMP_ACCESS_ARGUMENT));
  CHECK(extent_is(1, &b, 0, 16, PUMP_ACCESS_ARGUMENT));
  CHECK(told.issued_seq == 1 && told.issued_stream == (CUstream)0x42);
  CHECK(told.touched_bytes == a.length_bytes / 8 + b.length_bytes);
  CHECK(pump_shm->shim_counters.operations == 1 && pump_reentry_depth == 0);
}

static void an_operation_is_compared_with_the_prediction_while_a_schedule_is_armed(void) {
  struct pump_range_info a = range(0x7f0010000000, 4);
  uint64_t pointer = a.base;
  void *params[] = {&pointer};
  driver.sizes[0] = 8, driver.parameters = 1;
  CHECK(launch(params, NULL) == CUDA_SUCCESS && told.compared == 0);
  pump_shm->header.armed = 1;
  CHECK(launch(params, NULL) == CUDA_SUCCESS && told.compared == 1);
  CHECK(told.issued.seq == 2 && told.issued.stream == 0x42);
  CHECK(told.issued.kind == PUMP_EVENT_KERNEL && told.issued.grid != NULL);
  CHECK(next_of_any_kind() && head.kind == PUMP_EVENT_PARAMS);
  CHECK(told.issued.identity ==
        ((const struct pump_params *)(const void *)payload)->identity);
  CHECK(next_event() && next_event() && told.issued.signature == head.signature);
}

/* The pool has three pieces; the middle one is free. */
static void a_pointer_into_the_pool_reaches_to_the_end_of_its_block(void) {
  static uint64_t begins[64], live[64], any[1];
  struct pump_pool_map map = {
      .words = 64, .capacity = 64, .begins = begins, .live = live, .any = any};
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
  /* The length in units, including the pointer's own unit, and the pointer's position. */
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
  uint64_t single = b.base + 0x40001;      /* a single parameter is always a real pointer */
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
  structure[130] -= 2; /* garbage in a by-value table */
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

/* A pointer's length is unknown: see argument_bytes in memory/range_table.c. */
static void a_pointer_to_the_beginning_uses_all_one_inside_its_slice_and_the_next(void) {
  struct pump_range_info a = range(0x7f0010000000, 64); /* slices of 8 blocks */
  uint64_t pointer = a.base;
  void *params[] = {&pointer};
  driver.sizes[0] = 8, driver.parameters = 1;
  launch(params, NULL);
  for (int i = 0; i < PUMP_RANGE_EIGHTHS; i++) CHECK(uses(&a)[i] == 1);
  CHECK(told.touched_bytes == 64 * BLOCK);
  pointer = a.base + 17 * BLOCK;
  launch(params, NULL);
  for (int i = 0; i < PUMP_RANGE_EIGHTHS; i++)
    CHECK(uses(&a)[i] == (i == 2 || i == 3 ? 2u : 1u));
  CHECK(told.touched_bytes == 4 * BLOCK); /* at most a tensor's size, for the markers */
  pointer = a.base + 63 * BLOCK;
  launch(params, NULL);
  CHECK(uses(&a)[6] == 1 && uses(&a)[7] == 3 && told.touched_bytes == BLOCK);
}

/* The parameters end where the mapping ends: reading one more byte would crash. */
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
  /* ... unless they are exactly the beginning of a range. */
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
  pump_function_note(KERNEL, false); /* the handle was reused */
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

/* A marker before such a launch would keep it from starting early. */
static void launches_that_may_overlap_are_made_known_to_the_markers(void) {
  CUlaunchAttribute attributes[2] = {{.id = 1}, {.id = 2}};
  CUlaunchConfig config = {
      .gridDimX = 1, .hStream = (CUstream)0x42, .attrs = attributes, .numAttrs = 2};
  cuLaunchKernelEx(&config, KERNEL, NULL, NULL);
  CHECK(next_event() && told.issues == 1 && told.chained == 0);
  attributes[1].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  cuLaunchKernelEx(&config, KERNEL, NULL, NULL);
  CHECK(next_event() && told.issues == 2 && told.chained == 0); /* the attribute is off */
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

/* The gate comes before the real call. A launch that may start early gets none, and neither
 * does a memset. */
static void a_launch_has_a_gate_where_the_job_yields_and_one_may_stand(void) {
  CUlaunchAttribute attribute = {.id =
                                     CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
  CUlaunchConfig config = {
      .gridDimX = 1, .hStream = (CUstream)0x42, .attrs = &attribute, .numAttrs = 1};
  cuLaunchKernel(KERNEL, 1, 1, 1, 1, 1, 1, 0, (CUstream)0x42, NULL, NULL);
  CHECK(next_event() && told.gates == 0);
  pump_gates_devices = 1;
  cuLaunchKernel(KERNEL, 1, 1, 1, 1, 1, 1, 0, (CUstream)0x42, NULL, NULL);
  CHECK(next_event() && told.gates == 1 && told.gate_stream == (CUstream)0x42);
  CHECK(told.gated_after == 1); /* before its own report */
  cuLaunchKernelEx(&config, KERNEL, NULL, NULL);
  CHECK(next_event() && told.gates == 2);
  attribute.value.programmaticStreamSerializationAllowed = 1;
  cuLaunchKernelEx(&config, KERNEL, NULL, NULL);
  CHECK(next_event() && told.gates == 2);
  struct pump_range_info a = range(0x7f0010000000, 1);
  cuMemsetD8Async(a.base, 0, 1, (CUstream)0x42);
  CHECK(next_event() && told.gates == 2); /* it uses no engine */
}

/* A function is gated from its second launch on, as long as the newest one with as wide a
 * grid touched more than a tenth of the budget. */
static void a_function_that_touches_much_of_the_budget_has_a_gate(void) {
  uint64_t pointer = range(0x7f0010000000, 32).base;
  uint64_t *budget_bytes = &pump_shm->devices[3].budget_bytes;
  void *params[] = {&pointer};
  driver.sizes[0] = 8, driver.parameters = 1;
  *budget_bytes = 10 * 32 * PUMP_BLOCK_BYTES; /* a tenth, not more */
  for (int i = 0; i < 3; i++) CHECK(launch(params, NULL) == CUDA_SUCCESS && next_event());
  CHECK(told.gates == 0);
  *budget_bytes -= PUMP_BLOCK_BYTES;
  CHECK(launch(params, NULL) == CUDA_SUCCESS && next_event() && told.gates == 0);
  CHECK(launch(params, NULL) == CUDA_SUCCESS && next_event() && told.gates == 1);
  CHECK(told.gate_large);
  cuLaunchKernel((CUfunction)0x77780000, 1, 1, 1, 1, 1, 1, 0, (CUstream)0x42, NULL, NULL);
  CHECK(next_event() && told.gates == 1); /* another function */
  cuLaunchKernel(KERNEL, 7, 1, 1, 1, 1, 1, 0, (CUstream)0x42, NULL, NULL);
  CHECK(next_event() && told.gates == 1); /* another grid, and little memory */
  *budget_bytes += PUMP_BLOCK_BYTES;
  for (int i = 0; i < 2; i++) CHECK(launch(params, NULL) == CUDA_SUCCESS && next_event());
  CHECK(told.gates == 2); /* before the first of the two */
}

static void a_launch_is_timed_when_it_is_due_and_may_be(void) {
  CUlaunchAttribute attribute = {.id =
                                     CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
  CUlaunchConfig config = {
      .gridDimX = 1, .hStream = (CUstream)0x42, .attrs = &attribute, .numAttrs = 1};
  pump_timed_countdown = 1;
  cuLaunchKernel(KERNEL, 1, 1, 1, 1, 1, 1, 0, (CUstream)0x42, NULL, NULL);
  CHECK(next_event() && told.timed == 0 && pump_timed_countdown == 0);
  cuLaunchKernel(KERNEL, 1, 1, 1, 1, 1, 1, 0, (CUstream)0x42, NULL, NULL);
  CHECK(next_event() && told.timed == 1 && told.timed_stream == (CUstream)0x42);
  CHECK(told.timed_after == 1); /* before its own report */
  pump_timed_begun = false;
  pump_timed_countdown = 0;
  cuLaunchKernelEx(&config, KERNEL, NULL, NULL);
  CHECK(next_event() && told.timed == 2);
  pump_timed_begun = false;
  pump_timed_countdown = 0;
  attribute.value.programmaticStreamSerializationAllowed = 1;
  cuLaunchKernelEx(&config, KERNEL, NULL, NULL);
  CHECK(next_event() && told.timed == 2 && pump_timed_countdown == UINT32_MAX);
  int back = told.timed_back;
  pump_timed_countdown = 0;
  driver.answer = CUDA_ERROR_LAUNCH_FAILED;
  cuLaunchKernel(KERNEL, 1, 1, 1, 1, 1, 1, 0, (CUstream)0x42, NULL, NULL);
  CHECK(!next_event() && told.timed == 3 && told.timed_back == back + 1);
  driver.answer = CUDA_SUCCESS;
  pump_reporting = 0;
  pump_timed_countdown = 0;
  cuLaunchKernel(KERNEL, 1, 1, 1, 1, 1, 1, 0, (CUstream)0x42, NULL, NULL);
  CHECK(told.timed == 3 && pump_timed_countdown == 0); /* dormant: not even counted */
  pump_reporting = 1;
}

/* Each launch is reported on its own stream, and the thread's context stays current. */
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
  CHECK(driver.current == (CUcontext)7 && pump_reentry_depth == 0);
  driver.answer = CUDA_ERROR_LAUNCH_FAILED;
  CHECK(cuLaunchCooperativeKernelMultiDevice(launches, 2, 0) == driver.answer);
  CHECK(!next_event());
}

static void a_dormant_or_guarded_thread_reports_nothing(void) {
  pump_reporting = 0;
  launch(NULL, NULL);
  cuStreamSynchronize(NULL);
  pump_reporting = 1;
  pump_enter();
  launch(NULL, NULL);
  cuMemcpyDtoH_v2(NULL, 0, 0);
  pump_leave();
  CHECK(!next_event() && pump_shm->header.next_seq == 1);
}

int main(int argc, char **argv) {
  static const struct scenario scenarios[] = {
      SCENARIO(a_launch_reports_the_ranges_that_its_pointers_reach),
      SCENARIO(an_operation_is_compared_with_the_prediction_while_a_schedule_is_armed),
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
      SCENARIO(launches_that_may_overlap_are_made_known_to_the_markers),
      SCENARIO(a_launch_has_a_gate_where_the_job_yields_and_one_may_stand),
      SCENARIO(a_function_that_touches_much_of_the_budget_has_a_gate),
      SCENARIO(a_launch_is_timed_when_it_is_due_and_may_be),
      SCENARIO(a_launch_on_several_devices_is_reported_once_for_each_in_its_context),
      SCENARIO(a_dormant_or_guarded_thread_reports_nothing),
  };
  return run_scenario(scenarios, sizeof scenarios / sizeof *scenarios, argc, argv);
}
