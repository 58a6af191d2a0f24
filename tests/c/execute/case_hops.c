/* case_hops.c - scenarios of times that a recording gets about slices. The clock stops
 * until a scenario moves it. */
#include <string.h>

#include "executor_harness.h"

#define MS 1000000u
#define START_NS 10000000000u

static struct pump_schedule *schedule(void) {
  return &worker_shm->schedules[0];
}

static void at_ms(uint64_t ms) {
  PUMP_STORE(&fake.stopped_clock_ns, START_NS + ms * MS);
}

static void begin(void) {
  pump_recording = true;
  at_ms(0);
  CUcontext context = fake_context_create(0);
  pump_threads_start();
  pump_context_note(0, context);
  pump_executors_start(0, true);
  harness_wait_until_idle();
}

/* Puts one entry in force that the worker made at `made_ms`. */
static void put_in_force(uint32_t direction, uint64_t ticket, struct pump_entry entry,
                         uint64_t made_ms) {
  static uint64_t version;
  PUMP_STORE(&schedule()->cursor, 0);
  entry.command.ticket = ticket;
  uint64_t *to = (uint64_t *)&schedule()->entries[direction][0], from[sizeof entry / 8];
  memcpy(from, &entry, sizeof entry);
  for (size_t i = 0; i < sizeof entry / 8; i++) PUMP_STORE(&to[i], from[i]);
  PUMP_STORE(&schedule()->count[direction], 1);
  PUMP_STORE(&schedule()->count[!direction], 0);
  PUMP_STORE(&schedule()->made_ns, START_NS + made_ms * MS);
  PUMP_STORE(&worker_shm->header.valid_seq, PUMP_ALL_VALID);
  PUMP_STORE_RELEASE(&schedule()->cursor, ++version << 32);
  struct pump_executors_sleep *sleep = &worker_shm->executors[0][direction];
  pump_wake(&sleep->asleep, &sleep->wakes);
}

static struct pump_entry slice(uint32_t slot, uint64_t block) {
  struct pump_entry entry = {.command = harness_slice(slot, block, 1)};
  return entry;
}

static const struct pump_entry_end *end_of(uint64_t ticket) {
  const struct pump_entry_end *end =
      &worker_shm->entry_ends[ticket % PUMP_SCHEDULE_TICKETS];
  EVENTUALLY(PUMP_LOAD_ACQUIRE(&end->ticket) == ticket);
  return end;
}

static uint32_t waited_ms(uint64_t ticket) {
  return PUMP_LOAD(&end_of(ticket)->waited_us) / 1000;
}

SCENARIO(an_executor_that_sleeps_on_is_seen_in_what_its_slice_waited) {
  begin();
  uint32_t slot = harness_allocate(0, 16);
  at_ms(5);
  put_in_force(PUMP_TO_HOST, 1, slice(slot, 0), 2);
  CHECK(waited_ms(1) == 3);
  CHECK(PUMP_LOAD(&end_of(1)->result) == PUMP_RESULT_MOVED);
  CHECK(PUMP_LOAD(&end_of(1)->ended_ns) == START_NS + 5 * MS);
}

SCENARIO(a_slice_waits_from_when_its_readers_had_executed) {
  begin();
  uint32_t slot = harness_allocate(0, 16);
  struct pump_entry entry = slice(slot, 0);
  entry.after_stream = 5;
  entry.after_seq = 7;
  pump_progress_advance(5, 6);
  at_ms(2);
  pump_progress_advance(5, 8); /* this advance counts, later ones do not */
  at_ms(4);
  pump_progress_advance(5, 9);
  at_ms(9);
  put_in_force(PUMP_TO_GPU, 1, entry, 1);
  CHECK(waited_ms(1) == 7);
}

SCENARIO(an_arrival_waits_from_when_enough_had_left) {
  begin();
  uint32_t slot = harness_allocate(0, 16);
  at_ms(3);
  put_in_force(PUMP_TO_HOST, 1, slice(slot, 0), 3);
  end_of(1);
  EVENTUALLY(PUMP_LOAD(&schedule()->left_bytes) == PUMP_BLOCK_BYTES);
  harness_wait_until_idle();
  at_ms(8);
  struct pump_entry entry = slice(slot, 8);
  entry.left_bytes = PUMP_BLOCK_BYTES;
  put_in_force(PUMP_TO_GPU, 2, entry, 1);
  CHECK(waited_ms(2) == 5);
}

SCENARIO(a_departure_waits_from_when_enough_of_what_comes_had_ended) {
  begin();
  uint32_t slot = harness_allocate(0, 16);
  at_ms(3);
  put_in_force(PUMP_TO_GPU, 1, slice(slot, 8), 3);
  end_of(1);
  EVENTUALLY(PUMP_LOAD(&schedule()->ended_bytes) == PUMP_BLOCK_BYTES);
  harness_wait_until_idle();
  at_ms(8);
  struct pump_entry entry = slice(slot, 0);
  entry.ended_bytes = PUMP_BLOCK_BYTES;
  put_in_force(PUMP_TO_HOST, 2, entry, 1);
  CHECK(waited_ms(2) == 5);
}

SCENARIO(a_slice_behind_another_is_charged_with_nothing) {
  begin();
  uint32_t slot = harness_allocate(0, 16);
  PUMP_STORE(&fake.hold, 1);
  put_in_force(PUMP_TO_GPU, 1, slice(slot, 0), 0);
  EVENTUALLY(PUMP_LOAD(&fake.running) == 1); /* the only executor is in the driver */
  put_in_force(PUMP_TO_GPU, 2, slice(slot, 1), 0);
  at_ms(6);
  PUMP_STORE(&fake.hold, 0);
  CHECK(waited_ms(2) == 0);
  CHECK(waited_ms(1) == 0);
  CHECK(PUMP_LOAD(&end_of(1)->driver_us) == 6000);
  CHECK(PUMP_LOAD(&end_of(2)->driver_us) == 0);
}

SCENARIO(time_on_the_link_is_not_the_drivers) {
  begin();
  uint32_t slot = harness_allocate(0, 16);
  PUMP_STORE(&fake.late, 1);
  put_in_force(PUMP_TO_GPU, 1, slice(slot, 0), 0);
  EVENTUALLY(PUMP_LOAD(&pump_executors_of(0)->directions[PUMP_TO_GPU].flight_slices) == 1);
  harness_sleep_us(20000);
  at_ms(4);
  PUMP_STORE(&fake.late, 0);
  CHECK(waited_ms(1) == 0);
  CHECK(PUMP_LOAD(&end_of(1)->driver_us) == 0);
  CHECK(PUMP_LOAD(&end_of(1)->link_us) == 4000);
}

SCENARIO(a_refused_slice_was_never_in_the_driver) {
  begin();
  uint32_t slot = harness_allocate(0, 16);
  struct pump_entry entry = slice(slot, 4);
  PUMP_STORE(&pump_shm->ranges[slot].last_use_seq[2], 100);
  entry.command.observed_seq = 99;
  at_ms(2);
  put_in_force(PUMP_TO_HOST, 1, entry, 1);
  CHECK(waited_ms(1) == 1);
  CHECK(PUMP_LOAD(&end_of(1)->result) == PUMP_RESULT_STALE);
  CHECK(PUMP_LOAD(&end_of(1)->driver_us) == 0 && PUMP_LOAD(&end_of(1)->link_us) == 0);
}
