/* case_context.c - scenarios of several contexts on one device, and of streams, events
 * and launches that need special markers. */
#include <pthread.h>

#include "executor_harness.h"

static uint64_t executed(uint32_t index) {
  return PUMP_LOAD(&pump_shm->progress[index].executed_seq);
}

static CUcontext begin(void) {
  CUcontext context = fake_context_create(0);
  pump_threads_start();
  pump_context_note(0, context);
  pump_executors_start(0, true);
  return context;
}

/* Issues one operation like a launch hook; the stream's context must be current. */
static uint64_t issue(CUstream stream, uint64_t now_ns) {
  uint32_t index = pump_stream_index(stream, false);
  uint64_t seq = PUMP_ADD(&pump_shm->header.next_seq, 1);
  PUMP_ADD(&((struct fake_stream *)(void *)stream)->issued, 1);
  pump_progress_issued(index, stream, seq, now_ns, 0);
  return seq;
}

/* Issues and executes until progress follows, which shows that the context has markers. */
static void warm(CUcontext context, CUstream stream) {
  pump_real.cuCtxSetCurrent(context);
  uint64_t now_ns = pump_now_ns(), seq;
  EVENTUALLY((seq = issue(stream, now_ns += 1000000)) != 0 &&
             (fake_execute(stream, 1), harness_sleep_us(2000), 1) &&
             executed(pump_stream_index(stream, false)) == seq);
}

static void end(CUcontext context) {
  pump_executors_context_gone(context);
  fake_context_destroy(context); /* nothing of ours may be left in it */
}

SCENARIO(another_context_of_the_device_takes_over_at_once) {
  CUcontext first = begin(), second = fake_context_create(0);
  pump_context_note(0, second);
  uint32_t slot = harness_allocate(0, 4);
  for (uint32_t d = 0; d < PUMP_DIRECTIONS; d++) {
    CHECK(worker_submit(0, d, harness_slice(slot, 0, 1)));
    CHECK(worker_reap(0, d) == PUMP_RESULT_MOVED);
  }
  end(first);
  for (uint32_t d = 0; d < PUMP_DIRECTIONS; d++) {
    CHECK(worker_submit(0, d, harness_slice(slot, 0, 1))); /* no new call of the program */
    CHECK(worker_reap(0, d) == PUMP_RESULT_MOVED);
  }
  end(second);
}

SCENARIO(threads_leave_every_context_of_a_device_and_come_back_to_one_that_is_left) {
  CUcontext first = begin(), second = fake_context_create(0), other;
  pump_context_note(0, second);
  other = fake_context_create(1);
  pump_context_note(1, other);
  uint32_t slot = harness_allocate(0, 4);
  CHECK(worker_submit(0, PUMP_TO_GPU, harness_slice(slot, 0, 1)));
  CHECK(worker_reap(0, PUMP_TO_GPU) == PUMP_RESULT_MOVED);
  pump_executors_device_gone(0);
  fake_context_destroy(first); /* nothing of ours may be left in it */
  CHECK(pump_context_device(second, NULL) == -1 && pump_context_device(other, NULL) == 1);
  pump_context_note(0, second);
  pump_executors_start(0, true);
  CHECK(worker_submit(0, PUMP_TO_GPU, harness_slice(slot, 1, 1)));
  CHECK(worker_reap(0, PUMP_TO_GPU) == PUMP_RESULT_MOVED);
  end(second);
  end(other);
}

SCENARIO(markers_of_every_context_of_a_device_tell_its_progress) {
  CUcontext contexts[3] = {begin(), fake_context_create(0), fake_context_create(0)};
  CUstream streams[3];
  for (int i = 0; i < 3; i++) {
    pump_context_note(0, contexts[i]);
    streams[i] = fake_stream_create(contexts[i]);
    warm(contexts[i], streams[i]);
  }
  uint64_t last[3], now_ns = pump_now_ns();
  for (int round = 0; round < 12; round++)
    for (int i = 0; i < 3; i++) {
      pump_real.cuCtxSetCurrent(contexts[i]);
      last[i] = issue(streams[i], now_ns += 1000000);
    }
  for (int i = 2; i >= 0; i--) {
    uint32_t index = pump_stream_index(streams[i], false);
    CHECK(executed(index) < last[i]);
    fake_execute(streams[i], 12);
    EVENTUALLY(executed(index) == last[i]);
  }
}

SCENARIO(a_context_that_ends_leaves_the_markers_of_the_others_alone) {
  CUcontext first = begin(), second = fake_context_create(0);
  pump_context_note(0, second);
  CUstream of_first = fake_stream_create(first), of_second = fake_stream_create(second);
  warm(first, of_first);
  warm(second, of_second);
  for (int life = 0; life < 3; life++) {
    for (int i = 0; i < 50; i++) issue(of_second, pump_now_ns()); /* none executes */
    end(second);
    CHECK(executed(pump_stream_index(of_first, false)) != 0);
    warm(first, of_first);
    second = fake_context_create(0);
    pump_context_note(0, second);
    of_second = fake_stream_create(second);
    warm(second, of_second);
  }
  end(first);
  warm(second, of_second);
  end(second);
  CHECK(PUMP_LOAD(&fake.events_alive) == 0 && PUMP_LOAD(&fake.streams_alive) == 0);
}

/* Issues in one context while another one is created and destroyed. */
static uint32_t issuing;
static void *issue_on(void *argument) {
  CUcontext context = argument;
  pump_real.cuCtxSetCurrent(context);
  CUstream stream = fake_stream_create(context);
  while (__atomic_load_n(&issuing, __ATOMIC_ACQUIRE) != 0) {
    issue(stream, pump_now_ns());
    fake_execute(stream, 1);
  }
  return NULL;
}

SCENARIO(contexts_come_and_go_while_another_one_works) {
  CUcontext working = begin();
  issuing = 1;
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, issue_on, working) == 0);
  for (int life = 0; life < 30; life++) {
    CUcontext other = fake_context_create(0);
    pump_context_note(0, other);
    CUstream stream = fake_stream_create(other);
    for (int i = 0; i < 20; i++) {
      issue(stream, pump_now_ns());
      harness_sleep_us(harness_random() % 200);
    }
    end(other);
  }
  __atomic_store_n(&issuing, 0, __ATOMIC_RELEASE);
  pthread_join(thread, NULL);
  end(working);
}

SCENARIO(a_marker_after_a_long_pause_is_seen_at_once) {
  CUcontext context = begin();
  CUstream stream = fake_stream_create(context);
  warm(context, stream);
  for (int i = 0; i < 40; i++) {
    EVENTUALLY(PUMP_LOAD(&pump_marker_sleepers[0].asleep) == 1);
    harness_sleep_us(harness_random() % 1000);
    uint64_t begin_ns = pump_now_ns(), seq = issue(stream, begin_ns);
    fake_execute(stream, 1);
    EVENTUALLY(executed(pump_stream_index(stream, false)) == seq);
    CHECK(pump_now_ns() - begin_ns < 500000000); /* not at the end of an idle sleep */
  }
}

/* The marker thread reads the clock between its last poll and falling asleep. */
SCENARIO(a_marker_that_meets_the_thread_falling_asleep_is_seen_at_once) {
  CUcontext context = begin();
  CUstream stream = fake_stream_create(context);
  warm(context, stream);
  PUMP_STORE(&fake.slow_clock_us, 2000);
  for (int i = 0; i < 100; i++) {
    harness_sleep_us(3000 + harness_random() % 8000); /* it polls for another 5 ms */
    uint64_t begin_ns = pump_now_ns(), seq = issue(stream, begin_ns);
    fake_execute(stream, 1);
    EVENTUALLY(executed(pump_stream_index(stream, false)) == seq);
    CHECK(pump_now_ns() - begin_ns < 500000000);
  }
}

SCENARIO(a_program_that_goes_on_wakes_no_thread) {
  CUcontext context = begin();
  CUstream stream = fake_stream_create(context);
  warm(context, stream);
  issue(stream, pump_now_ns()); /* not executed: the thread begins to poll */
  harness_sleep_us(5000);
  uint32_t wakes = PUMP_LOAD(&pump_marker_sleepers[0].wakes);
  for (int i = 0; i < 50; i++) {
    issue(stream, pump_now_ns());
    harness_sleep_us(1000);
  }
  CHECK(PUMP_LOAD(&pump_marker_sleepers[0].wakes) == wakes);
  CHECK(PUMP_LOAD(&fake.records) >= 50);
}

SCENARIO(chained_launches_get_few_markers_and_not_none) {
  CUcontext context = begin();
  CUstream stream = fake_stream_create(context), plain = fake_stream_create(context);
  warm(context, stream);
  warm(context, plain);
  uint32_t index = pump_stream_index(stream, false);
  uint64_t now_ns = pump_now_ns() + 1000000000;
  issue(stream, now_ns);
  uint32_t before = PUMP_LOAD(&fake.records);
  for (int i = 0; i < 256; i++) {
    pump_progress_chained(index);
    issue(stream, now_ns);
  }
  CHECK(PUMP_LOAD(&fake.records) - before == 4); /* plain ones would get 16 */
  issue(plain, now_ns);
  before = PUMP_LOAD(&fake.records);
  for (int i = 0; i < 32; i++) issue(plain, now_ns);
  CHECK(PUMP_LOAD(&fake.records) - before == 2); /* other streams are not affected */
  for (int i = 0; i < 64; i++) issue(stream, now_ns);
  before = PUMP_LOAD(&fake.records);
  for (int i = 0; i < 64; i++) issue(stream, now_ns);
  CHECK(PUMP_LOAD(&fake.records) - before == 4); /* and this one is normal again */
}
