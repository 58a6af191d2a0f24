/* case_progress.c - scenarios of streams, markers and synchronisations. */
#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "executor_harness.h"
#include "shim/progress/marker_rule.h"

static CUcontext begin(void) {
  CUcontext context = fake_context_create(0);
  pump_threads_start();
  pump_context_note(0, context);
  pump_executors_start(0, true);
  /* With few free markers, streams get theirs less often. */
  EVENTUALLY(PUMP_LOAD(&fake.events_alive) >= PUMP_MARKERS_FIRST);
  return context;
}

static uint64_t executed(uint32_t index) {
  return PUMP_LOAD(&pump_shm->progress[index].executed_seq);
}

/* Issues one operation like a launch hook. */
static uint64_t issue(CUstream stream, uint64_t now_ns) {
  uint32_t index = pump_stream_index(stream, false);
  uint64_t seq = PUMP_ADD(&pump_shm->header.next_seq, 1);
  if ((uintptr_t)stream > 2) PUMP_ADD(&((struct fake_stream *)(void *)stream)->issued, 1);
  pump_progress_issued(index, stream, seq, now_ns, 0);
  return seq;
}

SCENARIO(an_operation_that_touches_many_bytes_gets_a_marker_of_its_own) {
  CUstream stream = fake_stream_create(begin());
  uint32_t index = pump_stream_index(stream, false);
  issue(stream, 1000000000); /* the first one */
  for (uint64_t i = 0; i < 3; i++) {
    uint64_t seq = PUMP_ADD(&pump_shm->header.next_seq, 1);
    pump_progress_issued(index, stream, seq, 1000000000, 16u * PUMP_BLOCK_BYTES);
    CHECK(PUMP_LOAD(&fake.records) == 2 + i);
  }
  uint64_t seq = PUMP_ADD(&pump_shm->header.next_seq, 1);
  pump_progress_issued(index, stream, seq, 1000000000, 15u * PUMP_BLOCK_BYTES);
  CHECK(PUMP_LOAD(&fake.records) == 4); /* not yet */
}

SCENARIO(a_marker_goes_every_sixteen_operations_or_two_hundred_microseconds) {
  CUstream stream = fake_stream_create(begin());
  uint64_t now_ns = 1000000000;
  issue(stream, now_ns); /* the first one */
  CHECK(PUMP_LOAD(&fake.records) == 1);
  for (int i = 0; i < 15; i++) issue(stream, now_ns += 1000);
  CHECK(PUMP_LOAD(&fake.records) == 1);
  issue(stream, now_ns += 1000);
  CHECK(PUMP_LOAD(&fake.records) == 2);
  issue(stream, now_ns += 150000);
  CHECK(PUMP_LOAD(&fake.records) == 2);
  issue(stream, now_ns += 50000);
  CHECK(PUMP_LOAD(&fake.records) == 3);
  issue(stream, now_ns += 1000000); /* after a pause */
  CHECK(PUMP_LOAD(&fake.records) == 4);
  EVENTUALLY(PUMP_LOAD(&pump_shm->shim_counters.markers) == 4);
  CHECK(PUMP_LOAD(&fake.not_relaxed) == 0);
}

SCENARIO(executed_follows_the_stream_and_never_runs_ahead_or_back) {
  CUstream stream = fake_stream_create(begin());
  uint32_t index = pump_stream_index(stream, false);
  uint64_t now_ns = 1000000000, first = issue(stream, now_ns);
  for (int i = 0; i < 160; i++) issue(stream, now_ns += 1000);
  CHECK(PUMP_LOAD(&pump_shm->progress[index].issued_seq) == first + 160);
  uint64_t before = 0;
  for (uint64_t done = 1; done <= 161; done++) {
    fake_execute(stream, 1);
    /* Markers come after operations 1, 17, 33, ... of the stream. */
    uint64_t expected = first + (done - 1) / 16 * 16;
    EVENTUALLY(executed(index) == expected);
    CHECK(executed(index) >= before);
    before = executed(index);
  }
  CHECK(PUMP_LOAD(&pump_shm->header.activity) >= 11);
}

SCENARIO(a_stream_that_is_stuck_does_not_hold_up_another_one) {
  CUcontext context = begin();
  CUstream stuck = fake_stream_create(context), running = fake_stream_create(context);
  uint64_t now_ns = 1000000000;
  for (int i = 0; i < 100; i++) issue(stuck, now_ns += 1000);
  uint64_t last = 0; /* each issue needs a marker and does not wait for the thread */
  EVENTUALLY((last = issue(running, now_ns += 200000)) && (fake_execute(running, 1), 1) &&
             executed(pump_stream_index(running, false)) + 4 > last);
  CHECK(executed(pump_stream_index(stuck, false)) == 0);
}

SCENARIO(operations_without_a_marker_are_presumed_executed_after_the_last_sign) {
  CUcontext context = begin();
  CUstream unused = fake_stream_create(context), gone = fake_stream_create(context);
  uint32_t index = pump_stream_index(unused, false), other = pump_stream_index(gone, false);
  uint64_t now_ns = 1000000000, first = issue(unused, now_ns), last = 0;
  for (int i = 0; i < 3; i++) last = issue(unused, now_ns += 1000);
  for (int i = 0; i < 3; i++) issue(gone, now_ns += 1000);
  pump_stream_gone(gone);
  struct timespec pause = {.tv_nsec = 3 * PUMP_PRESUME_NS};
  nanosleep(&pause, NULL); /* the first one has a marker and still runs */
  CHECK(executed(index) == 0);
  fake_execute(unused, 1);
  EVENTUALLY(executed(index) == first);
  EVENTUALLY(executed(index) == last);
  CHECK(executed(other) == 0);
  fake_execute(gone, 1);
  EVENTUALLY(executed(other) == last + 3);
  last = issue(unused, now_ns + 1000); /* used again */
  EVENTUALLY(executed(index) == last);
}

SCENARIO(operations_are_pending_until_they_have_executed) {
  CUcontext context = begin(), other = fake_context_create(0);
  CUstream stream = fake_stream_create(context);
  issue(stream, 1000000000);
  issue(stream, 1000001000); /* without a marker */
  pump_progress_mark(pump_stream_index(stream, false), stream);
  fake_execute(stream, 1);
  EVENTUALLY(pump_progress_pending(context) == 1);
  CHECK(pump_progress_pending(other) == 0);
  fake_execute(stream, 1);
  EVENTUALLY(pump_progress_pending(context) == 0);
}

SCENARIO(an_empty_pool_costs_a_marker_and_nothing_else) {
  CUcontext context = begin();
  CUstream stream = fake_stream_create(context);
  uint64_t now_ns = 1000000000, last = 0;
  uint64_t begin_ns = pump_now_ns();
  for (int i = 0; i < 9000; i++) last = issue(stream, now_ns += 300000); /* all marked */
  CHECK(pump_now_ns() - begin_ns < 5000000000u);
  /* Nothing has executed, so each marker (an event after an operation) was recorded at most
   * once. The number of markers depends on how fast the marker thread makes them. */
  CHECK(PUMP_LOAD(&fake.records) <= 4096);
  CHECK(PUMP_LOAD(&fake.events_alive) <= 4096 + 5);
  fake_execute(stream, 9000);
  EVENTUALLY(executed(pump_stream_index(stream, false)) > 0);
  EVENTUALLY((last = issue(stream, now_ns += 300000)) && (fake_execute(stream, 1), 1) &&
             executed(pump_stream_index(stream, false)) + 50 > last);
}

SCENARIO(a_burst_that_meets_a_small_pool_is_marked_thinly_to_its_end) {
  CUcontext context = begin();
  EVENTUALLY(PUMP_LOAD(&fake.events_alive) >= 128);
  CUstream stream = fake_stream_create(context);
  uint32_t index = pump_stream_index(stream, false);
  uint64_t seq = 0;
  for (int i = 0; i < 1024; i++) { /* dormant: the pool does not grow now */
    seq = PUMP_ADD(&pump_shm->header.next_seq, 1);
    PUMP_ADD(&((struct fake_stream *)(void *)stream)->issued, 1);
    pump_progress_issued(index, stream, seq, 1000000000, 16u * PUMP_BLOCK_BYTES);
  }
  CHECK(pump_markers_skipped() == 0);
  fake_execute(stream, 1024);
  EVENTUALLY(executed(index) + 16 > seq);
}

SCENARIO(a_burst_of_a_full_launch_queue_is_marked_to_its_last_operation) {
  CUcontext context = begin();
  __atomic_store_n(&pump_reporting, 1, __ATOMIC_RELEASE);
  CUstream stream = fake_stream_create(context);
  uint32_t index = pump_stream_index(stream, false);
  issue(stream, 1000000000); /* wakes the marker thread */
  EVENTUALLY(PUMP_LOAD(&fake.events_alive) >= 1024);
  uint64_t seq = 0;
  for (int i = 0; i < 1000; i++) {
    seq = PUMP_ADD(&pump_shm->header.next_seq, 1);
    PUMP_ADD(&((struct fake_stream *)(void *)stream)->issued, 1);
    pump_progress_issued(index, stream, seq, 1000000000, 16u * PUMP_BLOCK_BYTES);
  }
  CHECK(pump_markers_skipped() == 0);
  fake_execute(stream, 1001);
  EVENTUALLY(executed(index) == seq);
}

SCENARIO(nothing_is_recorded_on_a_capturing_stream) {
  CUstream stream = fake_stream_create(begin());
  PUMP_STORE(&fake.capturing, 1); /* the fake driver fails the test at a record */
  PUMP_STORE(&pump_captures, 1);
  uint64_t now_ns = 1000000000;
  for (int i = 0; i < 100; i++) issue(stream, now_ns += 300000);
  CHECK(PUMP_LOAD(&fake.records) == 0);
  PUMP_STORE(&fake.capturing, 0);
  PUMP_STORE(&pump_captures, 0);
  issue(stream, now_ns += 300000);
  CHECK(PUMP_LOAD(&fake.records) == 1);
}

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

SCENARIO(a_failing_query_advances_nothing) {
  CUstream stream = fake_stream_create(begin());
  PUMP_STORE(&fake.query_error, CUDA_ERROR_LAUNCH_FAILED);
  issue(stream, 1000000000);
  harness_sleep_us(20000);
  CHECK(executed(pump_stream_index(stream, false)) == 0);
  PUMP_STORE(&fake.query_error, CUDA_SUCCESS);
  uint64_t last = issue(stream, 1001000000);
  fake_execute(stream, 2);
  EVENTUALLY(executed(pump_stream_index(stream, false)) == last);
}

SCENARIO(the_programs_own_synchronisations_advance_progress) {
  CUcontext context = begin();
  CUstream one = fake_stream_create(context), two = fake_stream_create(context);
  uint64_t now_ns = 1000000000;
  issue(one, now_ns);
  issue(two, now_ns);
  uint64_t on_one = issue(one, now_ns), on_two = issue(two, now_ns);
  uint32_t index_one = pump_stream_index(one, false),
           index_two = pump_stream_index(two, false);
  pump_progress_stream_synced(index_one, on_two);
  CHECK(executed(index_one) >= on_one && executed(index_two) == 0);
  CUevent event = (CUevent)(void *)&now_ns;
  pump_progress_event_recorded(event, index_two, on_two);
  uint64_t later = issue(two, now_ns);
  pump_progress_event_synced(event, pump_progress_event_asked(event));
  CHECK(executed(index_two) == on_two);
  event = (CUevent)(void *)&later; /* never recorded */
  CHECK(pump_progress_event_asked(event) == 0);
  pump_progress_event_synced(event, 0);
  CHECK(executed(index_two) == on_two);
  pump_progress_context_synced(later);
  CHECK(executed(index_two) == later);
  pump_progress_stream_synced(0, 1000); /* the shared slot has no progress */
  CHECK(executed(0) == 0);
}

SCENARIO(streams_keep_their_slots_and_gone_ones_are_reused) {
  CUcontext context = begin();
  enum { MANY = PUMP_MAX_STREAMS - 1 };
  static CUstream streams[MANY];
  static uint8_t taken[PUMP_MAX_STREAMS];
  for (int i = 0; i < MANY; i++) {
    streams[i] = fake_stream_create(context);
    uint32_t index = pump_stream_index(streams[i], false);
    CHECK(index != 0 && !taken[index]);
    taken[index] = 1;
    CHECK(PUMP_LOAD(&pump_shm->progress[index].live) == 1);
  }
  CUstream extra = fake_stream_create(context);
  CHECK(pump_stream_index(extra, false) == 0); /* full: the shared slot */
  issue(extra, 1000000000);
  uint32_t index = pump_stream_index(streams[500], false);
  pump_stream_gone(streams[500]);
  CHECK(PUMP_LOAD(&pump_shm->progress[index].live) == 0);
  CHECK(pump_stream_index(extra, false) == index);
  for (int i = 0; i < MANY; i++)
    if (i != 500) CHECK(taken[pump_stream_index(streams[i], false)]);
}

static void *own_default_stream(void *context) {
  pump_real.cuCtxSetCurrent(context);
  uint32_t mine = pump_stream_index(NULL, true);
  CHECK(mine != 0 && mine == pump_stream_index(CU_STREAM_PER_THREAD, false));
  return (void *)(uintptr_t)mine;
}

SCENARIO(default_streams_are_told_apart_by_context_and_thread) {
  CUcontext first = begin();
  uint32_t legacy = pump_stream_index(NULL, false), mine = pump_stream_index(NULL, true);
  CHECK(legacy != 0 && mine != 0 && legacy != mine);
  CHECK(legacy == pump_stream_index(CU_STREAM_LEGACY, true));
  void *other;
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, own_default_stream, first) == 0);
  pthread_join(thread, &other);
  CHECK((uintptr_t)other != mine && (uintptr_t)other != legacy);
  CHECK(PUMP_LOAD(&pump_shm->progress[(uintptr_t)other].live) ==
        0); /* its thread has ended */
  CUcontext second = fake_context_create(1);
  pump_context_note(1, second);
  CHECK(pump_stream_index(NULL, false) != legacy);
  CHECK(PUMP_LOAD(&pump_shm->progress[pump_stream_index(NULL, false)].device) == 1);
  pump_real.cuCtxSetCurrent(first);
  CHECK(pump_stream_index(NULL, false) == legacy);
}

/* Threads issue on shared and own streams while a device thread executes. */
static CUstream shared_stream;
static uint32_t issuers;
static CUcontext issuing_context;

static void *issue_much(void *unused) {
  (void)unused;
  pump_real.cuCtxSetCurrent(issuing_context);
  CUstream own = fake_stream_create(issuing_context);
  for (int i = 0; i < 3000; i++) {
    issue(i % 3 == 0 ? shared_stream : own, pump_now_ns());
    if (i % 3 != 0) fake_execute(own, 1);
    if (i % 500 == 499) {
      pump_stream_gone(own);
      own = fake_stream_create(issuing_context);
    }
  }
  __atomic_fetch_sub(&issuers, 1, __ATOMIC_RELEASE);
  return NULL;
}

SCENARIO(many_threads_issue_on_shared_and_own_streams) {
  issuing_context = begin();
  shared_stream = fake_stream_create(issuing_context);
  uint32_t index = pump_stream_index(shared_stream, false);
  pthread_t threads[4];
  issuers = 4;
  for (int i = 0; i < 4; i++)
    CHECK(pthread_create(&threads[i], NULL, issue_much, NULL) == 0);
  uint64_t before = 0;
  while (__atomic_load_n(&issuers, __ATOMIC_ACQUIRE) != 0) {
    CHECK(executed(index) >= before);
    CHECK(executed(index) <= PUMP_LOAD(&pump_shm->progress[index].issued_seq));
    before = executed(index);
    fake_execute(shared_stream, 5);
    harness_sleep_us(50);
  }
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  pump_progress_context_synced(PUMP_LOAD(&pump_shm->header.next_seq) - 1);
  CHECK(executed(index) == PUMP_LOAD(&pump_shm->progress[index].issued_seq));
}

static void *issue_one(void *unused) {
  (void)unused;
  pump_real.cuCtxSetCurrent(issuing_context);
  issue(shared_stream, pump_now_ns());
  __atomic_fetch_sub(&issuers, 1, __ATOMIC_RELEASE);
  return NULL;
}

/* Starts a thread that has issued during other jobs' turn, and now waits. */
static pthread_t issue_in_a_hold(void) {
  issuing_context = begin();
  __atomic_store_n(&pump_reporting, 1, __ATOMIC_RELEASE);
  shared_stream = fake_stream_create(issuing_context);
  uint32_t index = pump_stream_index(shared_stream, false);
  const uint32_t *held = &pump_shm->devices[0].held_threads;
  pump_hold_set(1, UINT64_MAX);
  issue(shared_stream, pump_now_ns());
  fake_execute(shared_stream, 1);
  EVENTUALLY(executed(index) == PUMP_LOAD(&pump_shm->progress[index].issued_seq));
  issuers = 1;
  pump_hold_set(0, UINT64_MAX);
  uint64_t before = executed(index);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, issue_one, NULL) == 0);
  EVENTUALLY(PUMP_LOAD(&pump_shm->progress[index].issued_seq) > before);
  harness_sleep_us(20000);
  CHECK(PUMP_LOAD(held) == 0); /* not yet: it drains */
  fake_execute(shared_stream, 1);
  EVENTUALLY(PUMP_LOAD(held) == 1);
  CHECK(executed(index) > before);
  harness_sleep_us(20000);
  CHECK(PUMP_LOAD(held) == 1 && __atomic_load_n(&issuers, __ATOMIC_ACQUIRE) == 1);
  return thread;
}

static void no_thread_waits(void) {
  CHECK(PUMP_LOAD(&pump_shm->devices[0].held_threads) == 0);
}

SCENARIO(a_thread_that_issues_waits_behind_it_for_the_jobs_turn) {
  pthread_t thread = issue_in_a_hold();
  pump_hold_set(0, 0);
  pthread_join(thread, NULL);
  no_thread_waits();
  pump_hold_set(1, 0);
}

static void nothing(int number) {
  (void)number;
}

SCENARIO(a_signal_ends_the_wait_for_the_jobs_turn) {
  const struct sigaction action = {.sa_handler = nothing, .sa_flags = SA_RESTART};
  CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
  pthread_t thread = issue_in_a_hold();
  EVENTUALLY(pthread_kill(thread, SIGUSR1) == 0 &&
             __atomic_load_n(&issuers, __ATOMIC_ACQUIRE) == 0);
  CHECK(pump_hold_lasts(0));
  pthread_join(thread, NULL);
  no_thread_waits();
}

SCENARIO(nothing_waits_for_a_turn_where_nothing_is_reported_any_more) {
  pthread_t thread = issue_in_a_hold();
  __atomic_store_n(&pump_reporting, 0, __ATOMIC_RELEASE);
  pthread_join(thread, NULL);
  CHECK(pump_hold_lasts(0));
  no_thread_waits();
}

SCENARIO(markers_survive_the_end_of_their_context) {
  CUcontext context = begin();
  for (int life = 0; life < 5; life++) {
    CUstream stream = fake_stream_create(context);
    uint32_t index = pump_stream_index(stream, false);
    uint64_t now_ns = pump_now_ns(), last = 0;
    for (int i = 0; i < 200; i++) last = issue(stream, now_ns += 100000);
    pump_executors_context_gone(context); /* none has executed */
    CHECK(PUMP_LOAD(&fake.events_alive) == 0);
    CHECK(executed(index) == last); /* no thread will ever wait for them */
    CHECK(PUMP_LOAD(&pump_shm->progress[index].live) == 0);
    fake_context_destroy(context);
    context = begin();
  }
}
