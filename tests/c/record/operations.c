/* operations.c - from hooks to events: copies, captures, streams, hints, silence.
 *
 * Links the shim's files listed in test_record_operations.py, and record_harness.c.
 * Launches are in launches.c.
 * Usage: operations SCENARIO
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "record_harness.h"
#include "shim/memory/pool_map.h"

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
  CHECK(next_event() && head.kind == PUMP_EVENT_SYNC && head.seq == told.synced_seq);
  CHECK(cuMemcpyHtoDAsync_v2(0x5000, host, 64, NULL) == CUDA_SUCCESS);
  CHECK(!next_event()); /* touches no range of ours */
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
  CHECK(told.event_gone == (CUevent)5);              /* and its earlier record is void */
  cuMemsetD8Async(a.base, 0, BLOCK, (CUstream)0x43); /* another stream continues */
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

/* It is unknown what joined a CIG capture, so no stream is touched during one. */
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

static void a_full_ring_loses_events_but_not_uses_and_no_thread_waits(void) {
  struct pump_range_info a = range(0x7f0010000000, 1);
  void *params[] = {&a.base};
  driver.sizes[0] = 8, driver.parameters = 1;
  CHECK(launch(params, NULL) == 0);
  while (next_event()) CHECK(head.seq == 1); /* skips records that are sent only once */
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
  for (pump_reporting = 0; pump_reporting < 2;
       pump_reporting++) { /* dormant, then active */
    CHECK(cuIpcGetEventHandle(&handle, (CUevent)5) == CUDA_SUCCESS);
    CHECK(told.event_distrusted == (CUevent)5);
    driver.answer = CUDA_ERROR_INVALID_HANDLE;
    CHECK(cuEventDestroy_v2((CUevent)5) == driver.answer);
    CHECK(told.event_distrusted == (CUevent)5); /* it still exists */
    CHECK(cuIpcGetEventHandle(&handle, (CUevent)5) == driver.answer);
    CHECK(told.event_distrusted == (CUevent)5); /* from the earlier call */
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
  struct pump_range_info a = managed_range(0x7f0010000000, 4);
  CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CHECK(cuMemPrefetchAsync_v2(a.base, BLOCK, location, 0, (CUstream)7) == CUDA_SUCCESS);
  CHECK(next_event() && head.kind == PUMP_EVENT_HINT && head.seq == 0);
  CHECK(head.extent_count == 1 && extent_is(0, &a, 0, BLOCK, PUMP_ACCESS_READ));
  CHECK(pump_shm->header.next_seq == 1 && head.stream == 7);
}

static void each_part_of_a_batch_is_a_hint(void) {
  struct pump_range_info a = managed_range(0x7f0010000000, 4);
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

/* Also while everything fits, and at any position in a batch. */
static void converted_memory_takes_no_hints_as_device_memory_takes_none(void) {
  struct pump_range_info own = managed_range(0x7f0010000000, 4);
  struct pump_range_info a = range(0x7f0020000000, 4);
  CUdeviceptr addresses[] = {own.base, a.base + BLOCK};
  size_t lengths[] = {BLOCK, BLOCK}, index = 0;
  CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUstream stream = (CUstream)7;
  for (int active = 1; active >= 0; active--) {
    PUMP_STORE(&pump_reporting, (uint32_t)active);
    CHECK(cuMemPrefetchAsync_v2(a.base, BLOCK, location, 0, stream) ==
          CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemDiscardBatchAsync(addresses, lengths, 2, 0, stream) ==
          CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemPrefetchBatchAsync(addresses, lengths, 2, &location, &index, 1, 0, stream) ==
          CUDA_ERROR_INVALID_VALUE);
    CHECK(!next_event());
  }
}

static void progress_is_reported_to_a_recorder_alone(void) {
  pump_shm->progress[7].device = 2;
  pump_event_progress(7, 33, 99, 98);
  CHECK(!next_event());
  pump_recording = true;
  pump_event_progress(7, 33, 99, 98);
  CHECK(next_event() && head.kind == PUMP_EVENT_PROGRESS && head.stream == 7);
  CHECK(head.seq == 33 && head.time_ns == 99 && head.device == 2);
  CHECK(head.signature == 98); /* time of the last poll that found it incomplete */
  CHECK(pump_shm->header.next_seq == 1);
  pump_reporting = 0;
  pump_event_progress(7, 34, 99, 0);
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

/* A handle names a different stream in each context, and another for per-thread calls. */
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

static void *launches_once(void *address) {
  CHECK(cuMemsetD32Async((CUdeviceptr)address, 0, 16, NULL) == CUDA_SUCCESS);
  return NULL;
}

/* The worker asks the kernel how long these threads waited for a CPU core. */
static void the_first_threads_that_issue_are_named(void) {
  struct pump_range_info a = range(0x7f0010000000, 1);
  const uint32_t *issuers = pump_shm->header.issuers;
  CHECK(issuers[0] == 0);
  launches_once((void *)a.base);
  launches_once((void *)a.base);
  CHECK(issuers[0] == (uint32_t)syscall(SYS_gettid) && issuers[1] == 0);
  for (int i = 0; i < PUMP_ISSUERS; i++) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, launches_once, (void *)a.base) == 0);
    pthread_join(thread, NULL);
  }
  for (int i = 1; i < PUMP_ISSUERS; i++) CHECK(issuers[i] != 0 && issuers[i] != issuers[0]);
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
      SCENARIO(copies_read_one_side_and_overwrite_whole_blocks_of_the_other),
      SCENARIO(what_lies_behind_the_requested_bytes_is_overwritten_with_them),
      SCENARIO(what_waits_for_its_end_is_announced_before_and_the_rest_after),
      SCENARIO(memsets_of_rows_overwrite_only_where_there_are_no_gaps),
      SCENARIO(a_capturing_stream_is_left_alone),
      SCENARIO(a_recaptured_stream_is_left_alone),
      SCENARIO(beside_a_capture_for_graphics_no_stream_is_touched),
      SCENARIO(a_full_ring_loses_events_but_not_uses_and_no_thread_waits),
      SCENARIO(synchronisation_is_progress_up_to_what_was_issued_before),
      SCENARIO(what_records_an_event_in_other_ways_makes_it_tell_nothing),
      SCENARIO(what_was_asked_about_an_event_is_what_was_known_before),
      SCENARIO(an_event_of_two_processes_is_known_as_such_until_it_is_destroyed),
      SCENARIO(the_programs_own_prefetch_is_a_hint_and_no_operation),
      SCENARIO(each_part_of_a_batch_is_a_hint),
      SCENARIO(converted_memory_takes_no_hints_as_device_memory_takes_none),
      SCENARIO(progress_is_reported_to_a_recorder_alone),
      SCENARIO(a_stream_is_looked_up_again_after_one_has_gone),
      SCENARIO(default_streams_are_told_apart_by_context),
      SCENARIO(the_first_threads_that_issue_are_named),
      SCENARIO(errno_is_left_alone),
  };
  return run_scenario(scenarios, sizeof scenarios / sizeof *scenarios, argc, argv);
}
