/* case_timed.c - scenarios of operations that are timed. */
#include "progress_cases.h"

/* Timed markers are created once the client is active. */
static CUcontext begin_timed(void) {
  pump_real.cuEventElapsedTime = fake_event_elapsed;
  pump_present.cuEventElapsedTime = true;
  __atomic_store_n(&pump_reporting, 1, __ATOMIC_RELEASE);
  CUcontext context = begin();
  EVENTUALLY(PUMP_LOAD(&pump_marker_pools[0].timed.tail) == PUMP_MARKERS_TIMED);
  return context;
}

SCENARIO(the_time_of_an_operation_lies_between_two_events_around_it) {
  CUstream stream = fake_stream_create(begin_timed());
  uint32_t index = pump_stream_index(stream, false);
  issue(stream, 1000000000); /* the first operation has a marker */
  uint64_t records = PUMP_LOAD(&fake.records);
  pump_progress_time(index, stream);
  CHECK(pump_timed_begun && PUMP_LOAD(&fake.records) == records + 1);
  uint64_t seq = issue(stream, 1000001000);
  CHECK(!pump_timed_begun && PUMP_LOAD(&fake.records) == records + 2);
  issue(stream, 1000002000);
  fake_execute(stream, 3);
  EVENTUALLY(PUMP_LOAD_ACQUIRE(&harness_timed.count) == 1);
  CHECK(PUMP_LOAD(&harness_timed.seq) == seq);
  CHECK(PUMP_LOAD(&harness_timed.stream_index) == index);
  CHECK(PUMP_LOAD(&harness_timed.elapsed_ns) == 2500000);
  EVENTUALLY(executed(index) == seq); /* it is also a marker */
}

SCENARIO(the_wait_of_an_idle_gpu_for_the_launch_is_not_the_launchs_time) {
  CUstream stream = fake_stream_create(begin_timed());
  uint32_t index = pump_stream_index(stream, false);
  issue(stream, 1000000000); /* the first operation has a marker */
  pump_progress_time(index, stream);
  uint64_t begun_ns = pump_now_ns();
  fake_execute(stream, 2); /* the marker and the event before the launch */
  issue(stream, begun_ns + 1000000);
  fake_execute(stream, 1);
  EVENTUALLY(PUMP_LOAD_ACQUIRE(&harness_timed.count) == 1);
  uint64_t own_ns = PUMP_LOAD(&harness_timed.elapsed_ns);
  CHECK(own_ns <= 1500000 && own_ns > 500000); /* of 2.5 ms between the events */
}

SCENARIO(a_time_that_cannot_be_taken_costs_nothing) {
  CUcontext context = begin_timed();
  CUstream stream = fake_stream_create(context), other = fake_stream_create(context);
  uint32_t index = pump_stream_index(stream, false);
  issue(stream, 1000000000);
  issue(other, 1000000000);
  uint64_t records = PUMP_LOAD(&fake.records);
  pump_progress_time(index, stream); /* its launch fails */
  CHECK(pump_timed_begun);
  pump_timed_give_back();
  issue(stream, 1000001000);
  CHECK(PUMP_LOAD(&fake.records) == records + 1);
  pump_progress_time(index, stream); /* another stream's operation is reported */
  issue(other, 1000001000);
  CHECK(!pump_timed_begun && PUMP_LOAD(&fake.records) == records + 2);
  pump_progress_chained(index); /* the next launch may begin before this one ends */
  pump_progress_time(index, stream);
  CHECK(!pump_timed_begun);
  CUstream captured = fake_stream_create(context);
  uint32_t third = pump_stream_index(captured, false);
  PUMP_STORE(&fake.capturing, 1); /* the fake driver fails the test at a record */
  pump_progress_time(third, captured);
  CHECK(!pump_timed_begun);
  PUMP_STORE(&fake.capturing, 0);
  for (uint32_t i = 0; i < 3 * PUMP_MARKERS_TIMED; i++) { /* more than there are pairs */
    pump_progress_time(third, captured);
    issue(captured, 1000002000);
  }
  fake_execute(captured, 3 * PUMP_MARKERS_TIMED);
  EVENTUALLY(PUMP_LOAD(&harness_timed.count) >= PUMP_MARKERS_TIMED);
  CHECK(!pump_timed_begun);
}

SCENARIO(strides_between_times_vary_and_follow_the_pace) {
  uint32_t longest = 0, different = 0, before = 0;
  CHECK(pump_timed_countdown == 0); /* the first operation */
  for (int i = 0; i < 400; i++) {
    pump_timed_count(); /* one directly after the other */
    different += pump_timed_countdown != before;
    before = pump_timed_countdown;
    if (before > longest) longest = before;
    CHECK(before < 128);
  }
  CHECK(different > 300 && longest > 64);
  harness_sleep_us(5000);
  for (int i = 0; i < 6; i++) {
    harness_sleep_us(5000);
    pump_timed_count();
  }
  CHECK(pump_timed_countdown < 4);
}

SCENARIO(markers_with_timing_end_with_their_context) {
  CUcontext context = begin_timed();
  CUstream stream = fake_stream_create(context);
  uint32_t index = pump_stream_index(stream, false);
  for (int i = 0; i < 20; i++) {
    pump_progress_time(index, stream);
    issue(stream, 1000000000);
  }
  pump_executors_context_gone(context); /* none has executed */
  CHECK(PUMP_LOAD(&fake.events_alive) == 0);
  fake_context_destroy(context);
}
