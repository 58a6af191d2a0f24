/* case_executor.c - scenarios of executors, populate and quiesce. */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "executor_harness.h"

static CUcontext begin(void) {
  CUcontext context = fake_context_create(0);
  pump_threads_start();
  pump_context_note(0, context);
  pump_executors_start(0, true); /* an operation was reported */
  return context;
}

/* Starts the executors with the first range to be populated. */
static uint32_t begin_with_range(uint64_t blocks) {
  begin();
  uint32_t slot = harness_allocate(0, blocks);
  pump_populate_add(slot, 1);
  uint64_t bytes = blocks * PUMP_BLOCK_BYTES;
  EVENTUALLY(PUMP_LOAD(&pump_shm->shim_counters.populate_bytes) == bytes);
  return slot;
}

static uint32_t ask(uint32_t direction, struct pump_command command) {
  CHECK(worker_submit(0, direction, command));
  return worker_reap(0, direction);
}

SCENARIO(commands_move_bytes_both_ways_and_are_counted) {
  uint32_t slot = begin_with_range(40);
  CHECK(PUMP_LOAD(&fake.to_gpu_bytes) ==
        40 * PUMP_BLOCK_BYTES); /* populate, in three slices */
  CHECK(PUMP_LOAD(&fake.prefetches) == 3);
  CHECK(ask(PUMP_TO_HOST, harness_slice(slot, 3, 4)) == PUMP_RESULT_MOVED);
  CHECK(PUMP_LOAD(&fake.to_host_bytes) == 4 * PUMP_BLOCK_BYTES);
  CHECK(ask(PUMP_TO_GPU, harness_slice(slot, 3, 2)) == PUMP_RESULT_MOVED);
  CHECK(PUMP_LOAD(&fake.to_gpu_bytes) == 42 * PUMP_BLOCK_BYTES);
  CHECK(PUMP_LOAD(&pump_shm->shim_counters.moved_to_host_bytes) == 4 * PUMP_BLOCK_BYTES);
  CHECK(PUMP_LOAD(&pump_shm->shim_counters.moved_to_gpu_bytes) == 2 * PUMP_BLOCK_BYTES);
  CHECK(PUMP_LOAD(&fake.not_relaxed) == 0);
  CHECK(PUMP_LOAD(&pump_shm->header.activity) >= 2);
}

static CUresult advice_answer;
static CUmem_advise advised;

static CUresult advise(CUdeviceptr address, size_t bytes, CUmem_advise advice,
                       CUmemLocation location) {
  CHECK(address % PUMP_BLOCK_BYTES == 0 && bytes == 16 * PUMP_BLOCK_BYTES);
  CHECK(location.type == CU_MEM_LOCATION_TYPE_DEVICE);
  advised = advice;
  return advice_answer;
}

SCENARIO(a_command_with_advice_moves_nothing_and_reports_the_drivers_answer) {
  uint32_t slot = begin_with_range(40), before = PUMP_LOAD(&fake.prefetches);
  struct pump_command command = harness_slice(slot, 16, 16);
  uint64_t ended_bytes = PUMP_LOAD(&pump_shm->schedules[0].ended_bytes);
  pump_real.cuMemAdvise_v2 = advise;
  pump_present.cuMemAdvise_v2 = true;
  command.advice = PUMP_ADVICE_IN_PLACE;
  CHECK(ask(PUMP_TO_GPU, command) == PUMP_RESULT_MOVED && advised == 5);
  command.advice = PUMP_ADVICE_MIGRATE;
  CHECK(ask(PUMP_TO_GPU, command) == PUMP_RESULT_MOVED && advised == 6);
  advice_answer = CUDA_ERROR_NOT_SUPPORTED;
  CHECK(ask(PUMP_TO_GPU, command) == PUMP_RESULT_FAILED);
  CHECK(PUMP_LOAD(&fake.prefetches) == before);
  CHECK(PUMP_LOAD(&pump_shm->schedules[0].ended_bytes) == ended_bytes);
  CHECK(PUMP_LOAD(&pump_shm->shim_counters.moved_to_gpu_bytes) == 0);
  CHECK(PUMP_LOAD(&pump_shm->shim_counters.scheduled_bytes) == 0);
}

SCENARIO(a_command_that_makes_no_sense_is_invalid) {
  uint32_t slot = begin_with_range(40), before = PUMP_LOAD(&fake.prefetches);
  struct pump_command bad[] = {
      harness_slice(slot, 0, 0),  harness_slice(slot, 0, 17), harness_slice(slot, 39, 2),
      harness_slice(slot, 41, 1), harness_slice(slot, 40, 1), harness_slice(slot, 0, 1),
      harness_slice(slot, 0, 1),  harness_slice(slot, 0, 1),  harness_slice(slot, 0, 1),
  };
  bad[5].slot = PUMP_MAX_RANGES;
  bad[6].offset_bytes = 4096;
  bad[7].length_bytes = 4096;
  bad[8].offset_bytes = UINT64_MAX - PUMP_BLOCK_BYTES + 1;
  uint64_t count = sizeof bad / sizeof bad[0];
  for (uint64_t i = 0; i < count; i++)
    CHECK(ask((uint32_t)(i & 1), bad[i]) == PUMP_RESULT_INVALID);
  struct pump_command stream = harness_slice(slot, 0, 1);
  stream.needed_by_seq = 1;
  stream.stream = PUMP_MAX_STREAMS;
  CHECK(ask(PUMP_TO_GPU, stream) == PUMP_RESULT_INVALID);
  uint32_t elsewhere = harness_allocate(1, 4);
  CHECK(ask(PUMP_TO_GPU, harness_slice(elsewhere, 0, 1)) == PUMP_RESULT_INVALID);
  CHECK(PUMP_LOAD(&fake.prefetches) == before);
  CHECK(PUMP_LOAD(&pump_shm->shim_counters.commands_invalid) == count + 2);
}

SCENARIO(a_managed_range_may_begin_and_end_inside_a_block) {
  uint32_t slot = begin_with_range(4);
  struct pump_range *range = &pump_shm->ranges[slot];
  pump_range_write_begin(range);
  PUMP_STORE(&range->base, PUMP_LOAD(&range->base) + 65536);
  PUMP_STORE(&range->length_bytes, 2 * PUMP_BLOCK_BYTES + 4096);
  pump_range_write_end(range);
  struct pump_command whole = harness_slice(slot, 0, 1);
  whole.length_bytes = 2 * PUMP_BLOCK_BYTES + 4096;
  CHECK(ask(PUMP_TO_GPU, whole) == PUMP_RESULT_MOVED);
  struct pump_command first = whole; /* up to the first block boundary */
  first.length_bytes = PUMP_BLOCK_BYTES - 65536;
  CHECK(ask(PUMP_TO_GPU, first) == PUMP_RESULT_MOVED);
  first.length_bytes = PUMP_BLOCK_BYTES;
  CHECK(ask(PUMP_TO_GPU, first) == PUMP_RESULT_INVALID);
}

SCENARIO(an_eviction_of_bytes_used_since_the_decision_is_stale) {
  uint32_t slot = begin_with_range(16); /* an eighth is two blocks */
  PUMP_STORE(&pump_shm->ranges[slot].last_use_seq[2], 100);
  struct pump_command command = harness_slice(slot, 4, 2);
  command.observed_seq = 99;
  CHECK(ask(PUMP_TO_HOST, command) == PUMP_RESULT_STALE);
  command.observed_seq = 100;
  CHECK(ask(PUMP_TO_HOST, command) == PUMP_RESULT_MOVED);
  command = harness_slice(slot, 0, 4); /* ends where the used eighth begins */
  command.observed_seq = 99;
  CHECK(ask(PUMP_TO_HOST, command) == PUMP_RESULT_MOVED);
  command = harness_slice(slot, 3, 2); /* includes one used block */
  command.observed_seq = 99;
  CHECK(ask(PUMP_TO_HOST, command) == PUMP_RESULT_STALE);
  CHECK(ask(PUMP_TO_GPU, command) == PUMP_RESULT_MOVED); /* does not apply to prefetches */
  CHECK(PUMP_LOAD(&pump_shm->shim_counters.commands_stale) == 2);
}

SCENARIO(a_prefetch_whose_operation_has_executed_is_late) {
  uint32_t slot = begin_with_range(4);
  struct pump_command command = harness_slice(slot, 0, 1);
  command.stream = 5;
  command.needed_by_seq = 7;
  pump_progress_advance(5, 6);
  CHECK(ask(PUMP_TO_GPU, command) == PUMP_RESULT_MOVED);
  pump_progress_advance(5, 7);
  CHECK(ask(PUMP_TO_GPU, command) == PUMP_RESULT_LATE);
  command.needed_by_seq = 0;
  CHECK(ask(PUMP_TO_GPU, command) == PUMP_RESULT_MOVED);
  CHECK(PUMP_LOAD(&pump_shm->shim_counters.commands_late) == 1);
}

SCENARIO(a_command_for_a_freed_range_is_dead) {
  uint32_t slot = begin_with_range(4);
  struct pump_command command = harness_slice(slot, 0, 1);
  harness_free(slot);
  CHECK(ask(PUMP_TO_GPU, command) == PUMP_RESULT_DEAD);
  command.generation = harness_generation(slot); /* a free slot has no live generation */
  CHECK(ask(PUMP_TO_HOST, command) == PUMP_RESULT_DEAD);
  CHECK(PUMP_LOAD(&pump_shm->shim_counters.commands_dead) == 2);
}

SCENARIO(a_command_for_an_earlier_range_of_the_slot_is_dead) {
  uint32_t slot = begin_with_range(4);
  struct pump_command command = harness_slice(slot, 0, 1);
  struct pump_range *range = &pump_shm->ranges[slot];
  pump_range_write_begin(range);
  PUMP_STORE(&range->generation, command.generation + 1); /* the same slot, another owner */
  pump_range_write_end(range);
  CHECK(ask(PUMP_TO_GPU, command) == PUMP_RESULT_DEAD);
  command.generation++;
  CHECK(ask(PUMP_TO_GPU, command) == PUMP_RESULT_MOVED);
}

SCENARIO(a_free_waits_for_the_running_slice_and_for_nothing_else) {
  uint32_t slot = begin_with_range(16), other = harness_allocate(0, 16);
  PUMP_STORE(&fake.hold, 1);
  for (uint64_t i = 0; i < 6; i++)
    CHECK(worker_submit(0, PUMP_TO_HOST, harness_slice(slot, i, 1)));
  EVENTUALLY(PUMP_LOAD(&fake.running) == 3);
  uint64_t begin_ns = pump_now_ns();
  harness_free(other); /* nothing runs on it */
  CHECK(pump_now_ns() - begin_ns < 1000000000);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, (void *(*)(void *))(void *)harness_free,
                       (void *)(uintptr_t)slot) == 0);
  harness_sleep_us(20000);
  PUMP_STORE(&fake.hold, 0);
  pthread_join(thread, NULL);
  int moved = 0, dead = 0;
  for (int i = 0; i < 6; i++) {
    uint32_t result = worker_reap(0, PUMP_TO_HOST);
    moved += result == PUMP_RESULT_MOVED;
    dead += result == PUMP_RESULT_DEAD;
  }
  CHECK(moved == 3 && dead == 3);
}

/* Two threads allocate, request transfers and free, while the driver is slow. The fake
 * driver checks that no slice ever runs on freed memory. */
static uint32_t churning;
static void *churn(void *direction_as_pointer) {
  uint32_t direction = (uint32_t)(uintptr_t)direction_as_pointer;
  for (int round = 0; round < 150; round++) {
    uint32_t slot = harness_allocate(0, 8);
    if (direction == PUMP_TO_GPU) pump_populate_add(slot, 1);
    for (uint32_t i = 0; i < 8; i++) worker_submit(0, direction, harness_slice(slot, i, 1));
    harness_sleep_us(harness_random() % 400);
    harness_free(slot);
    for (;;) /* each thread is the worker of its own direction */
      if (worker_try_reap(0, direction, NULL) < 0) break;
  }
  __atomic_fetch_sub(&churning, 1, __ATOMIC_RELEASE);
  return NULL;
}

SCENARIO(frees_against_commands_in_flight_never_meet_a_running_slice) {
  begin_with_range(1);
  PUMP_STORE(&fake.prefetch_us, 150);
  pthread_t threads[2];
  churning = 2;
  for (uintptr_t i = 0; i < 2; i++)
    CHECK(pthread_create(&threads[i], NULL, churn, (void *)i) == 0);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  const struct pump_shim_counters *counters = &pump_shm->shim_counters;
  CHECK(PUMP_LOAD(&counters->commands_dead) > 0);
  CHECK(PUMP_LOAD(&counters->moved_to_host_bytes) > 0);
  CHECK(PUMP_LOAD(&counters->commands_invalid) == 0);
}

SCENARIO(a_full_schedule_is_worked_off_in_parallel_and_in_bounds) {
  uint32_t slot = begin_with_range(256);
  PUMP_STORE(&fake.hold, 1);
  uint32_t submitted = 0;
  while (worker_submit(0, PUMP_TO_HOST, harness_slice(slot, submitted % 256, 1)))
    submitted++;
  CHECK(submitted == PUMP_SCHEDULE_ENTRIES);
  EVENTUALLY(PUMP_LOAD(&fake.running) == 3);
  PUMP_STORE(&fake.hold, 0);
  for (uint32_t i = 0; i < submitted; i++)
    CHECK(worker_reap(0, PUMP_TO_HOST) == PUMP_RESULT_MOVED);
  CHECK(PUMP_LOAD(&fake.running_peak) <= PUMP_OUT_THREADS_MOST);
  CHECK(worker_submit(0, PUMP_TO_HOST, harness_slice(slot, 0, 1)));
  CHECK(worker_reap(0, PUMP_TO_HOST) == PUMP_RESULT_MOVED);
}

SCENARIO(a_driver_error_is_reported_and_sixteen_in_a_row_end_the_prefetching) {
  uint32_t slot = begin_with_range(16), before = PUMP_LOAD(&fake.prefetches);
  harness_wait_until_idle(); /* a thread's calls at its start would interrupt the series */
  PUMP_STORE(&fake.prefetch_error, CUDA_ERROR_UNKNOWN);
  for (int i = 0; i < 15; i++)
    CHECK(ask(PUMP_TO_GPU, harness_slice(slot, 0, 1)) == PUMP_RESULT_FAILED);
  PUMP_STORE(&fake.prefetch_error, CUDA_SUCCESS);
  CHECK(ask(PUMP_TO_GPU, harness_slice(slot, 0, 1)) ==
        PUMP_RESULT_MOVED); /* interrupts the series */
  uint64_t now_ns = pump_now_ns();
  PUMP_STORE(&fake.stopped_clock_ns, now_ns); /* an executor gives up for two seconds */
  PUMP_STORE(&fake.prefetch_error, CUDA_ERROR_OUT_OF_MEMORY);
  for (int i = 0; i < 20; i++)
    CHECK(ask(PUMP_TO_GPU, harness_slice(slot, 0, 1)) == PUMP_RESULT_FAILED);
  CHECK(PUMP_LOAD(&fake.prefetches) - before == 15 + 1 + 16);
  PUMP_STORE(&fake.prefetch_error, CUDA_SUCCESS);
  CHECK(ask(PUMP_TO_HOST, harness_slice(slot, 0, 1)) == PUMP_RESULT_FAILED); /* still off */
  CHECK(PUMP_LOAD(&pump_shm->shim_counters.commands_failed) == 36);
  PUMP_STORE(&fake.stopped_clock_ns, now_ns + 2000000000u);
  CHECK(ask(PUMP_TO_GPU, harness_slice(slot, 0, 1)) == PUMP_RESULT_MOVED);
  PUMP_STORE(&fake.stopped_clock_ns, 0);
}

SCENARIO(a_driver_that_cannot_create_streams_or_events_fails_commands_until_it_can) {
  CUcontext context = begin();
  PUMP_STORE(&fake.create_error, CUDA_ERROR_OUT_OF_MEMORY);
  uint32_t slot = harness_allocate(0, 4);
  PUMP_STORE(&pump_shm->devices[0].budget_bytes, 0); /* no populate in the series */
  pump_populate_add(slot, 1);
  CHECK(ask(PUMP_TO_GPU, harness_slice(slot, 0, 1)) == PUMP_RESULT_FAILED);
  PUMP_STORE(&fake.create_error, CUDA_SUCCESS);
  EVENTUALLY(ask(PUMP_TO_GPU, harness_slice(slot, 0, 1)) == PUMP_RESULT_MOVED ||
             PUMP_LOAD(&pump_executors_of(0)->give_up));
  pump_executors_context_gone(context);
  CHECK(PUMP_LOAD(&fake.events_alive) == 0 && PUMP_LOAD(&fake.streams_alive) == 0);
}

SCENARIO(a_driver_that_is_torn_down_ends_the_threads_quietly) {
  uint32_t slot = begin_with_range(4);
  PUMP_STORE(&fake.prefetch_error, CUDA_ERROR_DEINITIALIZED);
  CHECK(ask(PUMP_TO_GPU, harness_slice(slot, 0, 1)) == PUMP_RESULT_FAILED);
  EVENTUALLY(PUMP_LOAD(&pump_executors_of(0)->alive) == 4);
  harness_free(slot);
}

SCENARIO(quiesce_leaves_nothing_in_a_context_and_the_next_one_works) {
  CUcontext context = begin();
  PUMP_STORE(&fake.prefetch_us, 300);
  for (int life = 0; life < 8; life++) {
    uint32_t slot = harness_allocate(0, 64);
    pump_populate_add(slot, 1);
    for (uint32_t i = 0; i < 32; i++) worker_submit(0, i & 1, harness_slice(slot, i, 1));
    EVENTUALLY(PUMP_LOAD(&fake.events_alive) > 0);
    harness_sleep_us(harness_random() % 2000);
    pump_executors_context_gone(context);
    CHECK(PUMP_LOAD(&fake.running) == 0 && PUMP_LOAD(&fake.events_alive) == 0 &&
          PUMP_LOAD(&fake.streams_alive) == 0);
    fake_context_destroy(context);
    context = fake_context_create(0);
    pump_context_note(0, context);
    uint32_t next = harness_allocate(0, 1);
    uint64_t before = PUMP_LOAD(&pump_shm->shim_counters.populate_bytes);
    pump_populate_add(next, 1);
    EVENTUALLY(PUMP_LOAD(&pump_shm->shim_counters.populate_bytes) > before);
    for (uint32_t d = 0; d < PUMP_DIRECTIONS; d++)
      while (worker_try_reap(0, d, NULL) >= 0) {
      }
    harness_free(slot);
    harness_free(next);
  }
}

SCENARIO(quiesce_under_a_stream_of_commands_and_frees_is_safe) {
  CUcontext context = begin();
  PUMP_STORE(&fake.prefetch_us, 100);
  pthread_t thread;
  churning = 1;
  CHECK(pthread_create(&thread, NULL, churn, (void *)(uintptr_t)PUMP_TO_HOST) == 0);
  while (__atomic_load_n(&churning, __ATOMIC_ACQUIRE) != 0) {
    uint32_t slot = harness_allocate(0, 2);
    pump_populate_add(slot, 1);
    harness_sleep_us(harness_random() % 3000);
    pump_executors_context_gone(context);
    fake_context_destroy(context);
    context = fake_context_create(0);
    pump_context_note(0, context);
    harness_free(slot);
  }
  pthread_join(thread, NULL);
}

SCENARIO(nothing_is_populated_beyond_the_budget) {
  begin();
  PUMP_STORE(&pump_shm->devices[0].budget_bytes, 8 * PUMP_BLOCK_BYTES);
  uint32_t small = harness_allocate(0, 8);
  pump_populate_add(small, 1);
  EVENTUALLY(PUMP_LOAD(&pump_shm->shim_counters.populate_bytes) == 8 * PUMP_BLOCK_BYTES);
  uint32_t large = harness_allocate(0, 1);
  pump_populate_add(large, 1);
  EVENTUALLY(!pump_populate_is_queued(0));
  CHECK(ask(PUMP_TO_GPU, harness_slice(large, 0, 1)) ==
        PUMP_RESULT_MOVED); /* threads are idle */
  CHECK(PUMP_LOAD(&pump_shm->shim_counters.populate_bytes) == 8 * PUMP_BLOCK_BYTES);
}

SCENARIO(a_range_freed_while_it_waits_is_not_populated) {
  begin_with_range(1);
  PUMP_STORE(&fake.hold, 1);
  uint32_t slots[8];
  for (int i = 0; i < 8; i++) {
    slots[i] = harness_allocate(0, 1);
    pump_populate_add(slots[i], 1);
  }
  EVENTUALLY(PUMP_LOAD(&fake.running) == 1); /* the in-thread holds the first */
  for (int i = 1; i < 8; i++) harness_free(slots[i]);
  PUMP_STORE(&fake.hold, 0);
  EVENTUALLY(!pump_populate_is_queued(0) && PUMP_LOAD(&fake.running) == 0);
  CHECK(PUMP_LOAD(&fake.prefetches) == 2);
}

SCENARIO(executors_block_every_signal_and_carry_names) {
  begin_with_range(1);
  char path[64], text[4096];
  int found = 0;
  for (int tid = getpid(); tid < getpid() + 200; tid++) {
    snprintf(path, sizeof path, "/proc/self/task/%d/status", tid);
    FILE *file = fopen(path, "r");
    if (file == NULL) continue;
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = '\0';
    if (strncmp(text, "Name:\tpump-", 11) != 0) continue;
    found++;
    unsigned long long blocked = strtoull(strstr(text, "SigBlk:") + 7, NULL, 16);
    CHECK((blocked & (1ull << (SIGTERM - 1))) && (blocked & (1ull << (SIGINT - 1))) &&
          (blocked & (1ull << (SIGUSR1 - 1))) && (blocked & (1ull << (SIGCHLD - 1))));
  }
  CHECK(found == 5);
}

SCENARIO(exit_with_work_in_flight_ends_within_a_second_or_so) {
  uint32_t slot = begin_with_range(64);
  PUMP_STORE(&fake.prefetch_us, 2000);
  for (uint32_t i = 0; i < 64; i++) worker_submit(0, i & 1, harness_slice(slot, i, 1));
}

SCENARIO(exit_with_a_stuck_driver_does_not_hang) {
  uint32_t slot = begin_with_range(64);
  PUMP_STORE(&fake.hold, 1);
  CHECK(worker_submit(0, PUMP_TO_HOST, harness_slice(slot, 0, 1)));
  EVENTUALLY(PUMP_LOAD(&fake.running) == 1);
}

static void exit_in_handler(int signal_number) {
  (void)signal_number;
  exit(0);
}

SCENARIO(exit_from_a_signal_handler_on_top_of_our_code_does_not_hang) {
  begin_with_range(4);
  signal(SIGALRM, exit_in_handler);
  struct sigaction action;
  CHECK(sigaction(SIGALRM, NULL, &action) == 0);
  ualarm(30000, 0);
  for (;;) { /* most likely inside populate's lock */
    uint32_t slot = harness_allocate(0, 1);
    for (int i = 0; i < 100; i++) pump_populate_add(slot, 1);
  }
}

SCENARIO(a_forked_child_is_inert_until_its_own_start) {
  begin_with_range(4);
  harness_wait_until_idle(); /* a fork inside AddressSanitizer's allocator would deadlock */
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    pump_threads_fork_child();
    CHECK(PUMP_LOAD(&pump_executors_of(0)->alive) == 0 &&
          pump_executors_of(0)->context == NULL);
    CUcontext context = fake_context_create(0);
    pump_threads_start();
    pump_context_note(0, context);
    uint64_t before = PUMP_LOAD(&pump_shm->shim_counters.populate_bytes);
    uint32_t slot = harness_allocate(0, 1);
    pump_populate_add(slot, 1);
    EVENTUALLY(PUMP_LOAD(&pump_shm->shim_counters.populate_bytes) > before);
    exit(7);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

/* Returns the number of our threads whose names begin with this prefix and that may run
 * on exactly the CPU cores in `expected`. */
static unsigned own_threads(const char *begin_of_name, const cpu_set_t *expected) {
  unsigned count = 0;
  DIR *tasks = opendir("/proc/self/task");
  CHECK(tasks != NULL);
  for (const struct dirent *task; (task = readdir(tasks)) != NULL;) {
    char path[300], name[32] = "";
    snprintf(path, sizeof path, "/proc/self/task/%s/comm", task->d_name);
    FILE *file = fopen(path, "re");
    if (file == NULL) continue; /* "." and ".." */
    CHECK(fgets(name, sizeof name, file) != NULL);
    fclose(file);
    if (strncmp(name, begin_of_name, strlen(begin_of_name)) != 0) continue;
    cpu_set_t seen;
    CHECK(sched_getaffinity(atoi(task->d_name), sizeof seen, &seen) == 0);
    count += CPU_EQUAL(&seen, expected) != 0;
  }
  closedir(tasks);
  return count;
}

SCENARIO(threads_have_the_processors_of_the_process_not_of_their_parent) {
  cpu_set_t before, one;
  CHECK(sched_getaffinity(0, sizeof before, &before) == 0);
  size_t first = 0;
  while (!CPU_ISSET(first, &before)) first++;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  CHECK(sched_setaffinity(0, sizeof one, &one) == 0); /* as OpenMP pins its first thread */
  CUcontext context = fake_context_create(0);
  pump_context_note(0, context);
  pump_executors_start(0, true);
  EVENTUALLY(own_threads("pump-", &before) == 5);
  pump_executors_context_gone(context);
  fake_context_destroy(context);
}

/* The test sets PUMP_SYS_ROOT, and in EXPECTED the CPU cores of the executors. */
SCENARIO(movers_have_the_processors_of_the_cards_node) {
  cpu_set_t all, expected;
  CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
  CPU_ZERO(&expected);
  char *list = strdup(getenv("EXPECTED")), *rest = list;
  for (const char *each; (each = strsep(&rest, ",")) != NULL;)
    CPU_SET((size_t)atoi(each), &expected);
  free(list);
  fake.node = atoi(getenv("NODE")) + 1;
  uint32_t slot = begin_with_range(4);
  harness_wait_until_idle();
  CHECK(ask(PUMP_TO_HOST, harness_slice(slot, 0, 4)) == PUMP_RESULT_MOVED);
  CHECK(own_threads("pump-in-", &expected) == 1);
  CHECK(own_threads("pump-out-", &expected) == 3);
  CHECK(own_threads("pump-mark-", &all) == 1);
}
