/* case_flight.c - scenarios of slices in flight: lanes, bytes, threads, wake-ups. */
#include <pthread.h>

#include "executor_harness.h"

#define MIB ((uint64_t)1 << 20)

static struct pump_direction *direction_of(uint32_t direction) {
  return &pump_executors_of(0)->directions[direction];
}

static uint32_t begin_with_range(uint64_t blocks) {
  CUcontext context = fake_context_create(0);
  pump_threads_start();
  pump_context_note(0, context);
  pump_executors_start(0, true);
  return harness_allocate(0, blocks);
}

/* From this call on no thread adapts the direction. */
static void stop_adapting(struct pump_direction *direction) {
  while (__atomic_exchange_n(&direction->adapting, 1, __ATOMIC_ACQUIRE) != 0) {
  }
}

/* Acts as if slices had requested all threads that a direction may have. */
static void want_all_threads(uint32_t direction) {
  struct pump_direction *way = direction_of(direction);
  uint32_t most = pump_direction_bounds(direction)->threads_max;
  stop_adapting(way);
  PUMP_STORE(&way->wanted, most);
  struct pump_thread_role role = {.set = pump_executors_of(0),
                                  .epoch = pump_executors_of(0)->epoch,
                                  .direction = direction};
  pump_executors_grow(&role);
  CHECK(way->started == most);
}

#define MOST PUMP_IN_LANES

SCENARIO(an_in_thread_keeps_so_many_slices_in_flight_each_on_an_idle_stream) {
  uint32_t slot = begin_with_range(2 * MOST);
  for (int round = 0; round < 3; round++) { /* long slices of others change nothing */
    uint32_t before = PUMP_LOAD(&fake.prefetches);
    PUMP_STORE(&fake.late, 1);
    for (uint64_t i = 0; i <= MOST; i++)
      CHECK(worker_submit(0, PUMP_TO_GPU, harness_slice(slot, i, 1)));
    EVENTUALLY(PUMP_LOAD(&fake.prefetches) == before + MOST);
    harness_sleep_us(30000);
    CHECK(PUMP_LOAD(&fake.prefetches) == before + MOST);
    PUMP_STORE(&fake.late, 0);
    for (int i = 0; i <= MOST; i++) CHECK(worker_reap(0, PUMP_TO_GPU) == PUMP_RESULT_MOVED);
  }
  CHECK(PUMP_LOAD(&fake.busy_stream) == 0 && PUMP_LOAD(&fake.streams_alive) <= MOST + 2);
}

SCENARIO(lanes_have_a_priority_that_the_program_does_not_use) {
  pump_priority_note(-4);
  uint32_t slot = begin_with_range(2);
  CHECK(worker_submit(0, PUMP_TO_GPU, harness_slice(slot, 0, 1)));
  CHECK(worker_reap(0, PUMP_TO_GPU) == PUMP_RESULT_MOVED);
  CHECK(PUMP_LOAD(&fake.last_priority) == -3);
}

static void expect_lanes(uint32_t most) {
  uint32_t slot = begin_with_range(2 * MOST);
  stop_adapting(direction_of(PUMP_TO_GPU));
  PUMP_STORE(&fake.late, 1);
  for (uint64_t i = 0; i < MOST; i++)
    CHECK(worker_submit(0, PUMP_TO_GPU, harness_slice(slot, i, 1)));
  EVENTUALLY(PUMP_LOAD(&fake.prefetches) == most);
  harness_sleep_us(20000);
  CHECK(PUMP_LOAD(&fake.prefetches) == most && PUMP_LOAD(&fake.last_priority) == 0);
  PUMP_STORE(&fake.late, 0);
  for (int i = 0; i < MOST; i++) CHECK(worker_reap(0, PUMP_TO_GPU) == PUMP_RESULT_MOVED);
  CHECK(PUMP_LOAD(&fake.busy_stream) == 0 && PUMP_LOAD(&fake.streams_alive) <= most + 2);
}

SCENARIO(fewer_lanes_share_the_only_priority_with_the_program) {
  fake.greatest_priority = 0;
  expect_lanes(PUMP_IN_LANES_SHARED);
}

SCENARIO(fewer_lanes_share_a_priority_where_the_program_uses_all) {
  for (int priority = 0; priority >= -5; priority--) pump_priority_note(priority);
  expect_lanes(PUMP_IN_LANES_SHARED);
}

/* Moves a slice for about 15 ms and submits the next command at once. Returns whether the
 * driver got that command before the first slice arrived. */
static bool next_goes_meanwhile(uint32_t slot) {
  uint32_t before = PUMP_LOAD(&fake.prefetches);
  PUMP_STORE(&fake.late, 1);
  CHECK(worker_submit(0, PUMP_TO_GPU, harness_slice(slot, 0, 1)));
  EVENTUALLY(PUMP_LOAD(&fake.prefetches) == before + 1);
  CHECK(worker_submit(0, PUMP_TO_GPU, harness_slice(slot, 1, 1)));
  harness_sleep_us(15000);
  bool meanwhile = PUMP_LOAD(&fake.prefetches) == before + 2;
  PUMP_STORE(&fake.late, 0);
  CHECK(worker_reap(0, PUMP_TO_GPU) == PUMP_RESULT_MOVED);
  CHECK(worker_reap(0, PUMP_TO_GPU) == PUMP_RESULT_MOVED);
  return meanwhile;
}

SCENARIO(a_slice_in_flight_does_not_keep_the_next_command_waiting) {
  uint32_t slot = begin_with_range(8), count = 0;
  stop_adapting(direction_of(PUMP_TO_GPU)); /* another thread would hide the effect */
  for (int i = 0; i < 20; i++) count += next_goes_meanwhile(slot);
  CHECK(count >= 5); /* the others met a busy machine */
}

SCENARIO(a_free_waits_for_all_slices_in_flight_and_cancels_what_is_queued) {
  uint32_t slot = begin_with_range(2 * MOST);
  stop_adapting(direction_of(PUMP_TO_GPU));
  PUMP_STORE(&fake.late, 1);
  for (uint64_t i = 0; i < MOST + 4; i++)
    CHECK(worker_submit(0, PUMP_TO_GPU, harness_slice(slot, i, 1)));
  EVENTUALLY(PUMP_LOAD(&fake.prefetches) == MOST);
  pthread_t thread; /* the fake driver checks that nothing arrives in freed memory */
  CHECK(pthread_create(&thread, NULL, (void *(*)(void *))(void *)harness_free,
                       (void *)(uintptr_t)slot) == 0);
  harness_sleep_us(20000);
  uint64_t begin_ns = pump_now_ns();
  PUMP_STORE(&fake.late, 0);
  pthread_join(thread, NULL);
  CHECK(pump_now_ns() - begin_ns < 3000000000); /* it did not time out */
  int moved = 0, dead = 0;
  for (int i = 0; i < MOST + 4; i++) {
    uint32_t result = worker_reap(0, PUMP_TO_GPU);
    moved += result == PUMP_RESULT_MOVED;
    dead += result == PUMP_RESULT_DEAD;
  }
  CHECK(moved == MOST && dead == 4);
  CHECK(PUMP_LOAD(&pump_shm->shim_counters.commands_dead) == 4);
}

/* Uses all threads of both directions, and as many commands as the rings hold. */
static void move_much(uint32_t slot, uint64_t blocks, uint64_t per_slice) {
  for (uint32_t d = 0; d < PUMP_DIRECTIONS; d++)
    for (uint64_t i = 0; i < 60; i++)
      CHECK(worker_submit(0, d, harness_slice(slot, i * per_slice % blocks, per_slice)));
  for (uint32_t d = 0; d < PUMP_DIRECTIONS; d++)
    for (int i = 0; i < 60; i++) CHECK(worker_reap(0, d) == PUMP_RESULT_MOVED);
}

SCENARIO(no_more_than_the_bound_is_in_flight_whatever_the_worker_asks) {
  uint32_t slot = begin_with_range(64);
  want_all_threads(PUMP_TO_GPU);
  want_all_threads(PUMP_TO_HOST);
  PUMP_STORE(&fake.prefetch_us, 1000);
  move_much(slot, 64, 16);
  for (uint32_t d = 0; d < PUMP_DIRECTIONS; d++) {
    CHECK(PUMP_LOAD(&fake.flight_bytes_peak[d]) == pump_direction_bounds(d)->flight_bytes);
    CHECK(PUMP_LOAD(&fake.flight_bytes[d]) == 0);
    CHECK(PUMP_LOAD(&direction_of(d)->flight_bytes) == 0);
    CHECK(PUMP_LOAD(&direction_of(d)->flight_slices) == 0);
    CHECK(PUMP_LOAD(&direction_of(d)->flight_waiters) == 0);
  }
}

SCENARIO(a_small_budget_bounds_what_is_in_flight_and_a_large_slice_goes_alone) {
  uint32_t slot = begin_with_range(64);
  PUMP_STORE(&pump_shm->devices[0].budget_bytes, 24 * MIB);
  want_all_threads(PUMP_TO_GPU);
  want_all_threads(PUMP_TO_HOST);
  PUMP_STORE(&fake.prefetch_us, 500);
  move_much(slot, 64, 2); /* 4 MiB each: three fit */
  for (uint32_t d = 0; d < PUMP_DIRECTIONS; d++)
    CHECK(PUMP_LOAD(&fake.flight_bytes_peak[d]) == 12 * MIB);
  move_much(slot, 64, 16); /* 32 MiB each */
  for (uint32_t d = 0; d < PUMP_DIRECTIONS; d++)
    CHECK(PUMP_LOAD(&fake.flight_bytes_peak[d]) == 32 * MIB);
}

SCENARIO(a_command_that_waited_for_room_is_judged_when_it_goes) {
  uint32_t slot = begin_with_range(16);
  PUMP_STORE(&pump_shm->devices[0].budget_bytes, 4 * MIB);
  PUMP_STORE(&fake.hold, 1);
  struct pump_command command = harness_slice(slot, 0, 1);
  command.observed_seq = 10;
  CHECK(worker_submit(0, PUMP_TO_HOST, command));
  EVENTUALLY(PUMP_LOAD(&fake.running) == 1);
  command.offset_bytes = 8 * PUMP_BLOCK_BYTES;
  CHECK(worker_submit(0, PUMP_TO_HOST, command));
  harness_sleep_us(20000);
  CHECK(PUMP_LOAD(&fake.running) == 1);
  PUMP_STORE(&pump_shm->ranges[slot].last_use_seq[4],
             11); /* an operation has used it since */
  PUMP_STORE(&fake.hold, 0);
  CHECK(worker_reap(0, PUMP_TO_HOST) == PUMP_RESULT_MOVED);
  CHECK(worker_reap(0, PUMP_TO_HOST) == PUMP_RESULT_STALE);
  CHECK(PUMP_LOAD(&fake.prefetches) == 1);
}

SCENARIO(a_prefetch_of_blocks_that_are_there_is_carried_out_again) {
  uint32_t slot = begin_with_range(8);
  struct pump_command command = harness_slice(slot, 0, 4);
  command.needed_by_seq = 9;
  command.stream = 3;
  for (int i = 0; i < 3; i++) {
    CHECK(worker_submit(0, PUMP_TO_GPU, command));
    CHECK(worker_reap(0, PUMP_TO_GPU) == PUMP_RESULT_MOVED);
  }
  CHECK(PUMP_LOAD(&fake.to_gpu_bytes) == 12 * PUMP_BLOCK_BYTES);
}

SCENARIO(what_is_dropped_is_counted_once_for_each_command) {
  uint32_t slot = begin_with_range(16), gone = harness_allocate(0, 1);
  struct pump_command dead = harness_slice(gone, 0, 1);
  harness_free(gone);
  pump_progress_advance(2, 50);
  PUMP_STORE(&pump_shm->ranges[slot].last_use_seq[0], 50);
  struct pump_command late = harness_slice(slot, 0, 1), stale = harness_slice(slot, 0, 1);
  late.needed_by_seq = 50;
  late.stream = 2;
  stale.observed_seq = 49;
  for (int i = 0; i < 5; i++) CHECK(worker_submit(0, PUMP_TO_GPU, late));
  for (int i = 0; i < 7; i++) CHECK(worker_submit(0, PUMP_TO_HOST, stale));
  for (int i = 0; i < 9; i++) CHECK(worker_submit(0, i & 1, dead));
  for (int i = 0; i < 5; i++) CHECK(worker_reap(0, PUMP_TO_GPU) == PUMP_RESULT_LATE);
  for (int i = 0; i < 7; i++) CHECK(worker_reap(0, PUMP_TO_HOST) == PUMP_RESULT_STALE);
  for (int i = 0; i < 9; i++) CHECK(worker_reap(0, i & 1) == PUMP_RESULT_DEAD);
  const struct pump_shim_counters *counters = &pump_shm->shim_counters;
  CHECK(PUMP_LOAD(&counters->commands_late) == 5);
  CHECK(PUMP_LOAD(&counters->commands_stale) == 7);
  CHECK(PUMP_LOAD(&counters->commands_dead) == 9);
  CHECK(PUMP_LOAD(&counters->moved_to_gpu_bytes) == 0);
  CHECK(PUMP_LOAD(&fake.prefetches) == 0);
}

/* Wakes one thread, as a worker with one command may do. */
static void wake_one(struct pump_executors_sleep *sleep) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  if (PUMP_LOAD(&sleep->asleep) == 0) return;
  PUMP_STORE(&sleep->asleep, 0);
  __atomic_fetch_add(&sleep->wakes, 1, __ATOMIC_RELEASE);
  pump_futex(&sleep->wakes, FUTEX_WAKE, 1, NULL);
}

static void expect_running(uint32_t count) {
  uint64_t begin_ns = pump_now_ns();
  EVENTUALLY(PUMP_LOAD(&fake.running) == count);
  CHECK(pump_now_ns() - begin_ns < 700000000); /* not at the end of an idle sleep */
}

SCENARIO(a_thread_that_is_woken_alone_wakes_the_next_one_for_what_is_left) {
  uint32_t slot = begin_with_range(16);
  struct pump_executors_sleep *sleep = &pump_shm->executors[0][PUMP_TO_HOST];
  EVENTUALLY(PUMP_LOAD(&direction_of(PUMP_TO_HOST)->asleep) == 3);
  harness_sleep_us(5000); /* until they sleep in the kernel */
  PUMP_STORE(&fake.hold, 1);
  for (uint64_t i = 0; i < 2; i++) {
    CHECK(worker_put(0, PUMP_TO_HOST, harness_slice(slot, i, 1)));
  }
  wake_one(sleep);
  expect_running(2);
  PUMP_STORE(&fake.hold, 0);
  for (int i = 0; i < 2; i++) CHECK(worker_reap(0, PUMP_TO_HOST) == PUMP_RESULT_MOVED);
}

SCENARIO(a_thread_that_is_woken_alone_leaves_the_wake_up_to_those_that_sleep_on) {
  uint32_t slot = begin_with_range(16);
  struct pump_executors_sleep *sleep = &pump_shm->executors[0][PUMP_TO_HOST];
  EVENTUALLY(PUMP_LOAD(&direction_of(PUMP_TO_HOST)->asleep) == 3);
  harness_sleep_us(5000);
  PUMP_STORE(&fake.hold, 1);
  for (uint32_t i = 0; i < 2; i++) {
    CHECK(worker_put(0, PUMP_TO_HOST, harness_slice(slot, i, 1)));
    wake_one(sleep);
    expect_running(i + 1);
  }
  PUMP_STORE(&fake.hold, 0);
  for (int i = 0; i < 2; i++) CHECK(worker_reap(0, PUMP_TO_HOST) == PUMP_RESULT_MOVED);
}

SCENARIO(threads_come_when_measured_latencies_ask_for_them_and_rest_afterwards) {
  uint32_t slot = begin_with_range(64);
  struct pump_direction *out = direction_of(PUMP_TO_HOST);
  CHECK(out->started == 3);
  PUMP_STORE(&fake.prefetch_us, 500); /* no link: each thread brings its share */
  uint64_t until_ns = pump_now_ns() + 45000000000u;
  for (uint64_t i = 0; PUMP_LOAD(&out->wanted) < 4; i++) {
    CHECK(pump_now_ns() < until_ns);
    while (worker_submit(0, PUMP_TO_HOST, harness_slice(slot, i++ % 64, 1))) {
    }
    for (int n = 0; n < 16; n++) CHECK(worker_reap(0, PUMP_TO_HOST) == PUMP_RESULT_MOVED);
  }
  EVENTUALLY(PUMP_LOAD(&fake.running_peak) == 4);
  stop_adapting(out);
  PUMP_STORE(&out->wanted, 2); /* as if the others did not pay off */
  while (PUMP_LOAD(&fake.running) != 0)
    if (worker_try_reap(0, PUMP_TO_HOST, NULL) < 0) harness_sleep_us(100);
  PUMP_STORE(&fake.hold, 1);
  while (worker_try_reap(0, PUMP_TO_HOST, NULL) >= 0) {
  }
  for (uint64_t i = 0; i < 4; i++)
    CHECK(worker_submit(0, PUMP_TO_HOST, harness_slice(slot, i, 1)));
  EVENTUALLY(PUMP_LOAD(&fake.running) == 2);
  harness_sleep_us(20000);
  CHECK(PUMP_LOAD(&fake.running) == 2);
  PUMP_STORE(&fake.hold, 0);
}
