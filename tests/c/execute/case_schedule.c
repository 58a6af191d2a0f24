/* case_schedule.c - scenarios of schedules: which entries executors take and refuse. */
#include <pthread.h>
#include <string.h>

#include "executor_harness.h"

#define BLOCKS_EACH 4 /* 8 MiB */

static void begin(void) {
  CUcontext context = fake_context_create(0);
  pump_threads_start();
  pump_context_note(0, context);
  pump_executors_start(0, true);
}

/* ---- the worker's side ------------------------------------------------------------- */

static struct pump_schedule *schedule(void) {
  return &worker_shm->schedules[0];
}

static void add(uint32_t direction, uint64_t ticket, struct pump_entry entry) {
  entry.command.ticket = ticket;
  uint64_t *to = (uint64_t *)&schedule()->entries[direction][schedule()->count[direction]];
  uint64_t from[sizeof entry / 8];
  memcpy(from, &entry, sizeof entry);
  for (size_t i = 0; i < sizeof entry / 8; i++) PUMP_STORE(&to[i], from[i]);
  PUMP_STORE(&schedule()->count[direction], schedule()->count[direction] + 1);
}

static void clear(void) {
  PUMP_STORE(&schedule()->count[PUMP_TO_GPU], 0);
  PUMP_STORE(&schedule()->count[PUMP_TO_HOST], 0);
}

static void put_in_force(uint64_t version) {
  PUMP_STORE_RELEASE(&worker_shm->header.valid_seq, PUMP_ALL_VALID);
  PUMP_STORE_RELEASE(&schedule()->cursor, version << 32);
  for (int way = 0; way < PUMP_DIRECTIONS; way++)
    pump_wake(&worker_shm->executors[0][way].asleep, &worker_shm->executors[0][way].wakes);
}

static bool ended(uint64_t ticket) {
  return PUMP_LOAD_ACQUIRE(
             &worker_shm->entry_ends[ticket % PUMP_SCHEDULE_TICKETS].ticket) == ticket;
}

static uint32_t end_of(uint64_t ticket) {
  EVENTUALLY(ended(ticket));
  return PUMP_LOAD(&worker_shm->entry_ends[ticket % PUMP_SCHEDULE_TICKETS].result);
}

static uint32_t taken(uint32_t direction) {
  return pump_schedule_taken_count(PUMP_LOAD_ACQUIRE(&schedule()->cursor), direction);
}

static struct pump_entry slice(uint32_t slot, uint64_t block, uint64_t blocks) {
  return (struct pump_entry){.command = harness_slice(slot, block, blocks)};
}

static struct pump_entry arrival(uint32_t slot, uint64_t block, uint64_t blocks) {
  struct pump_entry entry = slice(slot, block, blocks);
  entry.command.observed_seq = 0;
  return entry;
}

/* ---- scenarios ---------------------------------------------------------------------- */

SCENARIO(entries_of_a_schedule_go_in_order_and_are_reported) {
  begin();
  uint32_t slot = harness_allocate(0, 16);
  for (uint64_t i = 0; i < 4; i++) {
    add(PUMP_TO_HOST, 1 + i, slice(slot, i, 1));
    add(PUMP_TO_GPU, 11 + i, arrival(slot, 8 + i, 1));
  }
  put_in_force(1);
  for (uint64_t i = 0; i < 4; i++) {
    CHECK(end_of(1 + i) == PUMP_RESULT_MOVED);
    CHECK(end_of(11 + i) == PUMP_RESULT_MOVED);
  }
  CHECK(taken(PUMP_TO_HOST) == 4 && taken(PUMP_TO_GPU) == 4);
  CHECK(PUMP_LOAD(&schedule()->left_bytes) == 4 * PUMP_BLOCK_BYTES);
  CHECK(PUMP_LOAD(&pump_shm->shim_counters.scheduled_bytes) == 8 * PUMP_BLOCK_BYTES);
  CHECK(PUMP_LOAD(&pump_shm->shim_counters.moved_to_gpu_bytes) == 4 * PUMP_BLOCK_BYTES);
  CHECK(PUMP_LOAD(&fake.not_relaxed) == 0);
}

SCENARIO(an_entry_waits_until_its_readers_have_executed) {
  begin();
  uint32_t slot = harness_allocate(0, 16);
  struct pump_entry first = slice(slot, 0, 1), second = slice(slot, 1, 1);
  first.after_stream = second.after_stream = 5;
  first.after_seq = 7;
  second.after_seq = 9;
  add(PUMP_TO_HOST, 1, first);
  add(PUMP_TO_HOST, 2, second);
  put_in_force(1);
  pump_progress_advance(5, 6);
  pump_progress_advance(4, 100); /* another stream */
  harness_sleep_us(20000);
  CHECK(taken(PUMP_TO_HOST) == 0);
  pump_progress_advance(5, 8);
  CHECK(end_of(1) == PUMP_RESULT_MOVED);
  harness_sleep_us(20000);
  CHECK(taken(PUMP_TO_HOST) == 1);
  pump_progress_advance(5, 9);
  CHECK(end_of(2) == PUMP_RESULT_MOVED);
}

SCENARIO(an_arrival_waits_for_the_room_that_departures_make) {
  begin();
  uint32_t slot = harness_allocate(0, 16);
  struct pump_entry entry = arrival(slot, 8, 2);
  entry.left_bytes = 3 * PUMP_BLOCK_BYTES;
  struct pump_entry stale = slice(slot, 4, 2), last = slice(slot, 2, 1);
  PUMP_STORE(&pump_shm->ranges[slot].last_use_seq[2], 100);
  stale.command.observed_seq = 99;
  last.after_stream = 5;
  last.after_seq = 7;
  add(PUMP_TO_GPU, 1, entry);
  add(PUMP_TO_HOST, 11, slice(slot, 0, 2));
  add(PUMP_TO_HOST, 12, stale); /* does not leave */
  add(PUMP_TO_HOST, 13, last);
  put_in_force(1);
  CHECK(end_of(11) == PUMP_RESULT_MOVED);
  CHECK(end_of(12) == PUMP_RESULT_STALE);
  harness_sleep_us(20000);
  CHECK(taken(PUMP_TO_GPU) == 0);
  pump_progress_advance(5, 7);
  CHECK(end_of(13) == PUMP_RESULT_MOVED);
  CHECK(end_of(1) == PUMP_RESULT_MOVED);
}

SCENARIO(a_departure_waits_until_enough_of_what_comes_has_ended) {
  begin();
  uint32_t slot = harness_allocate(0, 16);
  struct pump_entry entry = slice(slot, 0, 1), late = arrival(slot, 10, 1);
  entry.ended_bytes = 3 * PUMP_BLOCK_BYTES;
  late.after_stream = late.command.stream = 5;
  late.after_seq = late.command.needed_by_seq = 7;
  add(PUMP_TO_HOST, 1, entry);
  add(PUMP_TO_GPU, 11, arrival(slot, 8, 2));
  add(PUMP_TO_GPU, 12, late);
  put_in_force(1);
  CHECK(end_of(11) == PUMP_RESULT_MOVED);
  harness_sleep_us(20000);
  CHECK(taken(PUMP_TO_HOST) == 0);
  pump_progress_advance(5, 7);
  CHECK(end_of(12) == PUMP_RESULT_LATE); /* a late arrival counts as well */
  CHECK(end_of(1) == PUMP_RESULT_MOVED);
  CHECK(PUMP_LOAD(&schedule()->ended_bytes) == 3 * PUMP_BLOCK_BYTES);
}

SCENARIO(behind_a_departure_that_is_refused_none_waits_for_what_comes) {
  begin();
  uint32_t slot = harness_allocate(0, 16);
  struct pump_entry stale = slice(slot, 4, 2), entry = slice(slot, 0, 1);
  PUMP_STORE(&pump_shm->ranges[slot].last_use_seq[2], 100);
  stale.command.observed_seq = 99;
  entry.ended_bytes = 8 * PUMP_BLOCK_BYTES;
  struct pump_entry last = arrival(slot, 8, 8); /* waits for the bytes that did not leave */
  last.left_bytes = PUMP_BLOCK_BYTES;
  add(PUMP_TO_HOST, 1, stale);
  add(PUMP_TO_HOST, 2, entry);
  add(PUMP_TO_GPU, 11, last);
  put_in_force(1);
  CHECK(end_of(1) == PUMP_RESULT_STALE);
  CHECK(end_of(2) == PUMP_RESULT_MOVED);
  CHECK(end_of(11) == PUMP_RESULT_MOVED);
}

static struct pump_issued launch(uint64_t seq, uint64_t signature) {
  static const uint32_t grid[3] = {1, 2, 3}, block[3] = {4, 5, 6};
  return (struct pump_issued){.seq = seq,
                              .signature = signature,
                              .identity = 77,
                              .stream = 5,
                              .kind = PUMP_EVENT_KERNEL,
                              .grid = grid,
                              .block = block};
}

static void predict(struct pump_issued is, bool by_shape) {
  struct pump_prediction *word = pump_prediction_at(worker_shm, is.seq);
  uint64_t shape = by_shape ? pump_shape(is.identity, is.grid, is.block) : 0;
  PUMP_STORE(&word->signature,
             pump_prediction_word(is.seq, is.stream, is.kind, is.signature));
  PUMP_STORE(&word->shape, pump_prediction_word(is.seq, is.stream, is.kind, shape));
}

static bool holds_after(struct pump_issued is) {
  PUMP_STORE(&worker_shm->header.valid_seq, PUMP_ALL_VALID);
  pump_schedule_compare(&is);
  uint64_t valid_seq = PUMP_LOAD(&pump_shm->header.valid_seq);
  CHECK(valid_seq == PUMP_ALL_VALID || valid_seq == is.seq - 1);
  return valid_seq == PUMP_ALL_VALID;
}

SCENARIO(what_is_issued_is_compared_with_what_was_predicted) {
  begin();
  predict(launch(40, 123), true);
  predict(launch(41, 124), false);
  CHECK(holds_after(launch(40, 123)));
  CHECK(holds_after(launch(40, 999))); /* a step count among its parameters */
  CHECK(holds_after(launch(41, 124)));
  CHECK(!holds_after(launch(41, 999)));
  CHECK(!holds_after(launch(42, 123))); /* it was not expected */
  CHECK(!holds_after(launch(40 + PUMP_PREDICTIONS, 123)));
  struct pump_issued other = launch(40, 123);
  other.stream = 6;
  CHECK(!holds_after(other));
  other = launch(40, 0);
  other.kind = PUMP_EVENT_COPY;
  other.grid = other.block = NULL;
  CHECK(!holds_after(other));
  other = launch(40, 999);
  other.identity = 78;
  CHECK(!holds_after(other));
  CHECK(PUMP_LOAD(&pump_shm->shim_counters.schedules_dropped) == 0); /* none in force */
}

static void wake(void) {
  pump_executors_wake(pump_executors_of(0));
}

SCENARIO(behind_a_deviation_nothing_arrives_and_up_to_it_all_does) {
  begin();
  uint32_t slot = harness_allocate(0, 16);
  predict(launch(40, 123), true);
  for (uint64_t i = 0; i < 3; i++) {
    struct pump_entry entry = arrival(slot, i, 1);
    entry.command.needed_by_seq = 40 + i;
    entry.command.stream = 5;
    entry.after_stream = 6; /* waits until all operations are compared */
    entry.after_seq = 1;
    add(PUMP_TO_GPU, 1 + i, entry);
  }
  put_in_force(1);
  struct pump_issued right = launch(40, 123), wrong = launch(41, 123);
  struct pump_issued behind = launch(42, 123);
  pump_schedule_compare(&right);
  CHECK(PUMP_LOAD(&pump_shm->header.valid_seq) == PUMP_ALL_VALID);
  pump_schedule_compare(&wrong);
  pump_schedule_compare(&behind);
  CHECK(PUMP_LOAD(&pump_shm->header.valid_seq) == 40);
  CHECK(PUMP_LOAD(&pump_shm->shim_counters.schedules_dropped) == 1);
  pump_progress_advance(6, 1);
  CHECK(end_of(1) == PUMP_RESULT_MOVED);
  wake();
  harness_sleep_us(20000);
  CHECK(taken(PUMP_TO_GPU) == 1);
  PUMP_STORE_RELEASE(&worker_shm->header.valid_seq, PUMP_ALL_VALID);
  wake();
  CHECK(end_of(2) == PUMP_RESULT_MOVED && end_of(3) == PUMP_RESULT_MOVED);
}

SCENARIO(behind_a_deviation_departs_what_no_operation_behind_it_uses) {
  begin();
  uint32_t slot = harness_allocate(0, 16);
  for (uint64_t i = 0; i < 2; i++) {
    struct pump_entry entry = slice(slot, 8 * i, 2);
    entry.command.observed_seq = 100; /* predicted up to operation 100 */
    entry.after_stream = 6;
    entry.after_seq = 1;
    add(PUMP_TO_HOST, 1 + i, entry);
  }
  put_in_force(1);
  struct pump_issued wrong = launch(50, 123);
  PUMP_STORE(&pump_shm->ranges[slot].last_use_seq[0], 50);
  PUMP_STORE(&pump_shm->ranges[slot].last_use_seq[4], 49);
  pump_schedule_compare(&wrong);
  pump_progress_advance(6, 1);
  CHECK(end_of(1) == PUMP_RESULT_STALE);
  CHECK(end_of(2) == PUMP_RESULT_MOVED);
}

static void *deviate(void *first) {
  for (uint64_t i = 0; i < 50; i++) {
    struct pump_issued wrong = launch(1000 + *(uint64_t *)first + 4 * (49 - i), 123);
    pump_schedule_compare(&wrong);
  }
  return NULL;
}

SCENARIO(of_the_deviations_of_several_threads_the_first_operation_counts) {
  begin();
  for (uint64_t version = 1; version <= 20; version++) {
    pthread_t threads[4];
    uint64_t first[4];
    put_in_force(version);
    for (uint64_t i = 0; i < 4; i++) {
      first[i] = i;
      CHECK(pthread_create(&threads[i], NULL, deviate, &first[i]) == 0);
    }
    for (int i = 0; i < 4; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(PUMP_LOAD(&pump_shm->header.valid_seq) == 999);
    CHECK(PUMP_LOAD(&pump_shm->shim_counters.schedules_dropped) == version);
  }
}

SCENARIO(entries_of_a_schedule_are_validated_as_commands_are) {
  begin();
  uint32_t slot = harness_allocate(0, 16), gone = harness_allocate(0, 4);
  struct pump_entry bad[6];
  for (int i = 0; i < 6; i++) bad[i] = arrival(slot, 0, 1);
  bad[0].command.slot = PUMP_MAX_RANGES;
  bad[1].command.length_bytes = 0;
  bad[2].command.offset_bytes = 4096;
  bad[3].command.length_bytes = UINT64_MAX;
  bad[4].command = harness_slice(gone, 0, 1);
  bad[4].command.observed_seq = 0;
  bad[5].command.needed_by_seq = 7;
  bad[5].command.stream = 5;
  pump_progress_advance(5, 7);
  harness_free(gone);
  for (uint64_t i = 0; i < 6; i++) add(PUMP_TO_GPU, 1 + i, bad[i]);
  struct pump_entry stale = slice(slot, 4, 2);
  PUMP_STORE(&pump_shm->ranges[slot].last_use_seq[2], 100);
  stale.command.observed_seq = 99;
  add(PUMP_TO_HOST, 21, stale);
  put_in_force(1);
  for (uint64_t i = 0; i < 4; i++) CHECK(end_of(1 + i) == PUMP_RESULT_INVALID);
  CHECK(end_of(5) == PUMP_RESULT_DEAD);
  CHECK(end_of(6) == PUMP_RESULT_LATE);
  CHECK(end_of(21) == PUMP_RESULT_STALE);
  CHECK(PUMP_LOAD(&fake.prefetches) == 0);
  CHECK(PUMP_LOAD(&pump_shm->shim_counters.scheduled_bytes) == 0);
  CHECK(PUMP_LOAD(&schedule()->left_bytes) == 0);
}

/* Returns the bytes of 8 MiB arrivals for that operation that are taken while none ends. */
static uint64_t taken_at_once(uint64_t needed_by_seq) {
  begin();
  uint32_t slot = harness_allocate(0, 160);
  PUMP_STORE(&pump_shm->devices[0].budget_bytes, 1ull << 40);
  PUMP_STORE(&pump_executors_of(0)->directions[PUMP_TO_GPU].adapting, 1);
  PUMP_STORE(&fake.late, 1);
  for (uint64_t i = 0; i < 10; i++) {
    struct pump_entry entry = arrival(slot, 16 * i, BLOCKS_EACH);
    entry.command.needed_by_seq = needed_by_seq;
    entry.command.stream = 5;
    add(PUMP_TO_GPU, 1 + i, entry);
  }
  PUMP_STORE(&pump_shm->header.next_seq, 50);
  put_in_force(1);
  EVENTUALLY(taken(PUMP_TO_GPU) >= 1);
  harness_sleep_us(50000);
  uint64_t bytes = taken(PUMP_TO_GPU) * BLOCKS_EACH * PUMP_BLOCK_BYTES;
  PUMP_STORE(&fake.late, 0);
  for (uint64_t i = 0; i < 10; i++) CHECK(end_of(1 + i) == PUMP_RESULT_MOVED);
  return bytes;
}

SCENARIO(entries_for_predicted_operations_keep_to_a_small_part_of_the_bytes_in_flight) {
  CHECK(taken_at_once(50) == PUMP_PREDICTED_BYTES);
  CHECK(PUMP_LOAD(&fake.flight_bytes_peak[PUMP_TO_GPU]) <= PUMP_PREDICTED_BYTES);
}

SCENARIO(entries_for_issued_operations_may_be_all_the_bytes_in_flight) {
  CHECK(taken_at_once(49) > PUMP_PREDICTED_BYTES);
  CHECK(PUMP_LOAD(&fake.flight_bytes_peak[PUMP_TO_GPU]) <= PUMP_IN_FLIGHT_BYTES);
}

SCENARIO(departures_for_predicted_operations_may_be_all_the_bytes_in_flight) {
  begin();
  uint32_t slot = harness_allocate(0, 160);
  PUMP_STORE(&pump_shm->devices[0].budget_bytes, 1ull << 40);
  PUMP_STORE(&fake.hold, 1);
  for (uint64_t i = 0; i < 3; i++) {
    struct pump_entry entry = slice(slot, 16 * i, BLOCKS_EACH);
    entry.command.observed_seq = 100;
    add(PUMP_TO_HOST, 1 + i, entry);
  }
  put_in_force(1);
  EVENTUALLY(taken(PUMP_TO_HOST) == 3); /* by three threads */
  PUMP_STORE(&fake.hold, 0);
  for (uint64_t i = 0; i < 3; i++) CHECK(end_of(1 + i) == PUMP_RESULT_MOVED);
}

SCENARIO(threads_are_added_for_a_schedule_as_for_commands) {
  begin();
  uint32_t slot = harness_allocate(0, 64);
  struct pump_direction *out = &pump_executors_of(0)->directions[PUMP_TO_HOST];
  EVENTUALLY(PUMP_LOAD(&out->wanted) == 3);
  PUMP_STORE(&fake.prefetch_us, 200); /* no link: each thread brings its share */
  uint64_t until_ns = pump_now_ns() + 20000000000u;
  for (uint64_t version = 1; PUMP_LOAD(&out->wanted) < 4; version++) {
    CHECK(pump_now_ns() < until_ns);
    clear();
    for (uint64_t i = 0; i < 64; i++)
      add(PUMP_TO_HOST, 64 * version + i, slice(slot, i, 1));
    put_in_force(version);
    for (uint64_t i = 0; i < 64; i++) CHECK(end_of(64 * version + i) == PUMP_RESULT_MOVED);
    pump_schedule_withdraw(schedule());
  }
}

/* Puts schedules in force and withdraws them while executors take entries. Each entry
 * that counts as taken ends exactly once, with the ticket of its own schedule. All others
 * never end. */
SCENARIO(a_schedule_that_is_replaced_is_taken_up_to_one_point) {
  begin();
  uint32_t slot = harness_allocate(0, 16);
  uint64_t next = 0, all = 0;
  for (uint64_t version = 1; version <= 400; version++) {
    clear();
    uint64_t first = next;
    for (uint32_t i = 0; i < 6; i++)
      for (uint32_t way = 0; way < PUMP_DIRECTIONS; way++)
        add(way, 1 + first + 2 * i + way, slice(slot, i, 1));
    next += 12;
    put_in_force(version);
    harness_sleep_us(harness_random() % 300);
    uint64_t cursor = pump_schedule_withdraw(schedule());
    CHECK(cursor >> 32 == version);
    for (uint32_t way = 0; way < PUMP_DIRECTIONS; way++) {
      uint32_t count = pump_schedule_taken_count(cursor, way);
      CHECK(count <= 6);
      all += count;
      for (uint32_t i = 0; i < 6; i++) {
        uint64_t ticket = 1 + first + 2 * i + way;
        if (i < count)
          CHECK(end_of(ticket) == PUMP_RESULT_MOVED);
        else
          CHECK(!ended(ticket));
      }
    }
  }
  CHECK(all > 0);
  CHECK(PUMP_LOAD(&pump_shm->shim_counters.scheduled_bytes) == all * PUMP_BLOCK_BYTES);
}

SCENARIO(a_worker_that_scribbles_over_a_schedule_does_no_harm) {
  begin();
  uint32_t slot = harness_allocate(0, 16);
  for (int round = 0; round < 300; round++) {
    uint32_t *words = (uint32_t *)(void *)schedule();
    for (size_t i = 0; i < sizeof *schedule() / 4; i += 1 + harness_random() % 9)
      PUMP_STORE(&words[i],
                 harness_random() % 3 == 0 ? harness_random() : harness_random() % 4);
    PUMP_STORE(&worker_shm->header.armed, harness_random());
    PUMP_STORE(&worker_shm->header.valid_seq, harness_random());
    struct pump_issued is = launch(harness_random(), 1);
    pump_schedule_compare(&is);
    pump_executors_wake(pump_executors_of(0));
    pump_progress_advance(harness_random() % PUMP_MAX_STREAMS, harness_random());
    harness_sleep_us(100);
  }
  harness_free(slot); /* must return */
}
