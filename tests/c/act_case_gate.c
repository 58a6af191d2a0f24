/* act_case_gate.c - scenarios of gates: when one is set, and who opens it.
 *
 * Run with PUMP_GATE=1. The fake driver's GPU never comes to a wait by itself: the tests
 * look at the word that it would look at.
 */
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "act_harness.h"

#define FUNCTION 0x5000u

static struct {
  CUcontext context;
  CUstream stream;
  uint32_t index, slot;
} job;

static void begin_in(CUcontext context) {
  job.context = context;
  pump_act_start();
  pump_act_context_seen(0, job.context);
  pump_set_need(0, true);
  job.stream = fake_stream_create(job.context);
  job.index = pump_stream_index(job.stream, false);
  CHECK(job.index != 0);
  job.slot = harness_allocate(0, 40);
  EVENTUALLY(PUMP_LOAD(&fake.registered) != 0);
}

static void begin(void) {
  begin_in(fake_context_create(0));
}

/* What was sent for operation `seq`: the last that it lacks, where `function` is not 0. */
static void send_for(uint64_t seq, uint64_t function, uint64_t block) {
  CHECK(worker_submit(0, PUMP_TO_GPU,
                      (struct pump_command){.slot = job.slot,
                                            .generation = harness_generation(job.slot),
                                            .offset_bytes = block * PUMP_BLOCK_BYTES,
                                            .length_bytes = PUMP_BLOCK_BYTES,
                                            .function = function,
                                            .needed_by_seq = seq,
                                            .stream = job.index}));
}

static struct pump_gate_wish wish_for(uint64_t seq) {
  return (struct pump_gate_wish){.stream = job.stream,
                                 .stream_index = job.index,
                                 .device = 0,
                                 .seq = seq,
                                 .function = FUNCTION};
}

static bool wanted(struct pump_gate_wish wish) {
  return pump_gate_wanted(&wish);
}

static void set(struct pump_gate_wish wish) {
  pump_gate_set(&wish);
}

static uint64_t gates(void) {
  return PUMP_LOAD(&pump_shm->shim_counters.gates);
}
static uint64_t late(void) {
  return PUMP_LOAD(&pump_shm->shim_counters.gates_late);
}

SCENARIO(a_gate_opens_when_all_slices_of_its_launch_have_come) {
  begin();
  PUMP_STORE(&fake.frozen_watchdog, 1);
  PUMP_STORE(&fake.late, 1);
  send_for(7, 0, 0);
  send_for(7, FUNCTION, 1);
  EVENTUALLY(wanted(wish_for(7)));
  set(wish_for(7));
  CHECK(gates() == 1 && PUMP_LOAD(&fake.waits) == 1 && fake_closed() == 1);
  CHECK(PUMP_LOAD(&fake.wait_stream) == job.stream);
  PUMP_STORE(&fake.late, 0);
  EVENTUALLY(fake_closed() == 0);
  CHECK(worker_reap(0, PUMP_TO_GPU) == PUMP_RESULT_MOVED);
  CHECK(worker_reap(0, PUMP_TO_GPU) == PUMP_RESULT_MOVED);
  CHECK(late() == 0);
  EVENTUALLY(PUMP_LOAD(&pump_gates_hoped) == 0);
  CHECK(!wanted(wish_for(7)));
}

SCENARIO(a_gate_waits_for_the_last_of_its_slices) {
  begin();
  PUMP_STORE(&fake.frozen_watchdog, 1);
  PUMP_STORE(&fake.late, 1);
  send_for(7, FUNCTION, 0);
  EVENTUALLY(wanted(wish_for(7)));
  set(wish_for(7));
  PUMP_STORE(&fake.prefetch_error, 999);
  send_for(7, 0, 1); /* ends at once */
  send_for(9, 0, 2); /* another's */
  EVENTUALLY(PUMP_LOAD(&pump_shm->shim_counters.commands_failed) == 2);
  CHECK(fake_closed() == 1);
  PUMP_STORE(&fake.late, 0);
  for (int i = 0; i < 3; i++) worker_reap(0, PUMP_TO_GPU);
  EVENTUALLY(fake_closed() == 0);
  CHECK(late() == 0);
}

SCENARIO(the_watchdog_opens_what_does_not_come) {
  begin();
  PUMP_STORE(&fake.frozen_watchdog, 1);
  PUMP_STORE(&fake.late, 1);
  send_for(7, FUNCTION, 0);
  EVENTUALLY(wanted(wish_for(7)));
  for (int i = 0; i < 3; i++) set(wish_for(7));
  CHECK(gates() == 3 && fake_closed() == 3);
  PUMP_STORE(&fake.frozen_watchdog, 0);
  set(wish_for(7)); /* wakes it, and may be open before the driver is asked to wait */
  EVENTUALLY(fake_closed() == 0);
  EVENTUALLY(late() == 4);
  PUMP_STORE(&fake.late, 0);
}

SCENARIO(there_is_no_gate_for_what_is_not_wholly_in_flight_for_that_launch) {
  begin();
  CHECK(!wanted(wish_for(7)));
  PUMP_STORE(&fake.late, 1);
  send_for(7, 0, 0); /* something else is missing */
  send_for(8, FUNCTION, 1);
  EVENTUALLY(wanted(wish_for(8)));
  EVENTUALLY(PUMP_LOAD(&fake.prefetches) == 2);
  CHECK(!wanted(wish_for(7)) && !wanted(wish_for(9)));
  struct pump_gate_wish other = wish_for(8);
  other.function++;
  CHECK(!wanted(other));
  other = wish_for(8);
  other.stream_index++;
  CHECK(!wanted(other));
  other = wish_for(8);
  other.device = 1;
  CHECK(!wanted(other));
  other.device = PUMP_MAX_DEVICES;
  CHECK(!wanted(other));
  PUMP_STORE(&fake.late, 0);
}

SCENARIO(there_is_no_gate_before_the_driver_has_every_slice) {
  begin();
  PUMP_STORE(&fake.hold, 1); /* a prefetch does not return */
  send_for(7, FUNCTION, 0);
  EVENTUALLY(PUMP_LOAD(&fake.running) == 1);
  CHECK(PUMP_LOAD(&pump_gates_hoped) == 1 && !wanted(wish_for(7)));
  PUMP_STORE(&fake.late, 1);
  PUMP_STORE(&fake.hold, 0);
  EVENTUALLY(wanted(wish_for(7)));
  PUMP_STORE(&fake.late, 0);
}

SCENARIO(a_refused_command_leaves_no_hope) {
  begin();
  PUMP_STORE(&fake.prefetch_error, 999);
  send_for(7, FUNCTION, 0);
  CHECK(worker_reap(0, PUMP_TO_GPU) == PUMP_RESULT_FAILED);
  EVENTUALLY(PUMP_LOAD(&pump_gates_hoped) == 0);
  CHECK(!wanted(wish_for(7)));
  PUMP_STORE(&fake.prefetch_error, 0);
  pump_progress_stream_synced(job.index, 8);
  send_for(7, FUNCTION, 0);
  CHECK(worker_reap(0, PUMP_TO_GPU) == PUMP_RESULT_LATE);
  EVENTUALLY(PUMP_LOAD(&pump_gates_hoped) == 0);
}

SCENARIO(nothing_stands_between_chained_launches) {
  begin();
  PUMP_STORE(&fake.late, 1);
  send_for(7, FUNCTION, 0);
  EVENTUALLY(wanted(wish_for(7)));
  pump_progress_chained(job.index);
  set(wish_for(7));
  CHECK(gates() == 0 && PUMP_LOAD(&fake.waits) == 0);
  PUMP_STORE(&fake.late, 0);
}

SCENARIO(a_full_table_sets_no_more_and_is_used_again) {
  begin();
  PUMP_STORE(&fake.frozen_watchdog, 1);
  for (uint32_t round = 1; round <= 3; round++) {
    PUMP_STORE(&fake.late, 1);
    send_for(7, FUNCTION, 0);
    EVENTUALLY(wanted(wish_for(7)));
    for (int i = 0; i < 100; i++) set(wish_for(7));
    CHECK(gates() == 64 * round && fake_closed() == 64);
    PUMP_STORE(&fake.late, 0);
    CHECK(worker_reap(0, PUMP_TO_GPU) == PUMP_RESULT_MOVED);
    EVENTUALLY(fake_closed() == 0);
  }
}

SCENARIO(a_driver_that_refuses_a_wait_is_not_asked_again) {
  begin();
  PUMP_STORE(&fake.frozen_watchdog, 1);
  PUMP_STORE(&fake.late, 1);
  PUMP_STORE(&fake.wait_error, 801);
  send_for(7, FUNCTION, 0);
  EVENTUALLY(wanted(wish_for(7)));
  set(wish_for(7));
  CHECK(gates() == 0 && !wanted(wish_for(7)));
  PUMP_STORE(&fake.late, 0);
  CHECK(worker_reap(0, PUMP_TO_GPU) == PUMP_RESULT_MOVED);
  EVENTUALLY(PUMP_LOAD(&pump_gates_hoped) == 0);
}

SCENARIO(without_stream_memory_operations_there_are_no_gates) {
  PUMP_STORE(&fake.no_memory_operations, 1);
  job.context = fake_context_create(0);
  pump_act_start();
  pump_act_context_seen(0, job.context);
  pump_set_need(0, true);
  job.slot = harness_allocate(0, 4);
  job.stream = fake_stream_create(job.context);
  job.index = pump_stream_index(job.stream, false);
  PUMP_STORE(&fake.late, 1);
  send_for(7, FUNCTION, 0);
  EVENTUALLY(PUMP_LOAD(&fake.prefetches) == 1);
  CHECK(!wanted(wish_for(7)) && PUMP_LOAD(&fake.registered) == 0);
  PUMP_STORE(&fake.late, 0);
}

SCENARIO(a_context_that_ends_behind_closed_gates_takes_none_of_them_along) {
  begin();
  PUMP_STORE(&fake.frozen_watchdog, 1);
  PUMP_STORE(&fake.late, 1);
  send_for(7, FUNCTION, 0);
  EVENTUALLY(wanted(wish_for(7)));
  set(wish_for(7));
  CHECK(gates() == 1);
  PUMP_STORE(&fake.late, 0);
  pump_act_context_gone(job.context);
  fake_context_destroy(job.context);
  EVENTUALLY(fake_closed() == 0);
  set(wish_for(7));
  CHECK(gates() == 1); /* its page is the ended context's */
  PUMP_STORE(&fake.registered, 0);
  worker_reap(0, PUMP_TO_GPU);
  begin_in(fake_context_create(0));
  PUMP_STORE(&fake.late, 1);
  send_for(9, FUNCTION, 1);
  EVENTUALLY(wanted(wish_for(9)));
  set(wish_for(9));
  CHECK(gates() == 2);
  PUMP_STORE(&fake.late, 0);
  EVENTUALLY(fake_closed() == 0);
}

SCENARIO(an_exit_opens_every_gate_and_sets_none) {
  begin();
  PUMP_STORE(&fake.frozen_watchdog, 1);
  PUMP_STORE(&fake.late, 1);
  send_for(7, FUNCTION, 0);
  EVENTUALLY(wanted(wish_for(7)));
  for (int i = 0; i < 5; i++) set(wish_for(7));
  CHECK(fake_closed() == 5);
  pump_gate_stop();
  CHECK(fake_closed() == 0 && !wanted(wish_for(7)));
  PUMP_STORE(&fake.late, 0);
}

SCENARIO(a_forked_child_has_no_gates_and_the_parent_keeps_its_own) {
  begin();
  PUMP_STORE(&fake.frozen_watchdog, 1);
  PUMP_STORE(&fake.late, 1);
  send_for(7, FUNCTION, 0);
  EVENTUALLY(wanted(wish_for(7)));
  set(wish_for(7));
  EVENTUALLY(PUMP_LOAD(&pump_set_of(0)->mark_asleep) != 0); /* it makes no events now */
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    pump_act_fork_child();
    bool none = !wanted(wish_for(7)) && PUMP_LOAD(&pump_gates_hoped) == 0;
    pump_gate_stop(); /* touches no word of the parent's */
    _exit(none ? 7 : 1);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
  CHECK(fake_closed() == 1);
  PUMP_STORE(&fake.late, 0);
  EVENTUALLY(fake_closed() == 0);
}

/* Run without PUMP_GATE. */
static void without_setting(void) {
  job.context = fake_context_create(0);
  pump_act_start();
  pump_act_context_seen(0, job.context);
  pump_set_need(0, true);
  job.slot = harness_allocate(0, 4);
  job.stream = fake_stream_create(job.context);
  job.index = pump_stream_index(job.stream, false);
  PUMP_STORE(&fake.late, 1);
  send_for(7, FUNCTION, 0);
  EVENTUALLY(PUMP_LOAD(&fake.prefetches) == 1);
  CHECK(PUMP_LOAD(&pump_gates_hoped) == 0 && !wanted(wish_for(7)));
  CHECK(PUMP_LOAD(&fake.registered) == 0);
  PUMP_STORE(&fake.late, 0);
  CHECK(worker_reap(0, PUMP_TO_GPU) == PUMP_RESULT_MOVED);
}
__attribute__((constructor)) static void register_without(void) {
  harness_register("without_the_setting_nothing_is_registered", without_setting);
}

/* ---- many threads ----------------------------------------------------------------- */

static uint32_t stop;

static void *set_many(void *unused) {
  (void)unused;
  while (PUMP_LOAD(&stop) == 0) {
    struct pump_gate_wish wish = wish_for(PUMP_LOAD(&pump_shm->header.next_seq));
    if (pump_gate_wanted(&wish)) pump_gate_set(&wish);
  }
  return NULL;
}

SCENARIO(many_threads_set_gates_while_slices_come_and_none_stays_closed) {
  begin();
  PUMP_STORE(&fake.frozen_watchdog, 1);
  PUMP_STORE(&fake.prefetch_us, 50);
  pthread_t threads[3];
  for (int i = 0; i < 3; i++) CHECK(pthread_create(&threads[i], NULL, set_many, NULL) == 0);
  for (uint64_t round = 0; round < 150; round++) {
    uint64_t seq = PUMP_ADD(&pump_shm->header.next_seq, 1) + 1;
    PUMP_STORE(&fake.late, 1);
    send_for(seq, 0, 2 * (round % 16));
    send_for(seq, FUNCTION, 2 * (round % 16) + 1);
    harness_sleep_us(300);
    PUMP_STORE(&fake.late, 0);
    for (int i = 0; i < 2; i++) CHECK(worker_reap(0, PUMP_TO_GPU) == PUMP_RESULT_MOVED);
  }
  PUMP_STORE(&stop, 1);
  for (int i = 0; i < 3; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  EVENTUALLY(fake_closed() == 0);
  CHECK(gates() > 0 && late() == 0);
  EVENTUALLY(PUMP_LOAD(&pump_gates_hoped) == 0);
}
