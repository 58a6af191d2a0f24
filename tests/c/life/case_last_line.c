/* case_last_line.c - prints the last line for every combination of its parts, with the
 * smallest and the largest possible numbers.
 */
#include <string.h>

#include "executor_harness.h"
#include "shim/life/verdict.h"

static const uint64_t extremes[] = {0,
                                    1,
                                    1023,
                                    999499999,
                                    1000000000,
                                    59999999999,
                                    3599999999999,
                                    172799999999999,
                                    86399999999999999,
                                    (10ull << 50) - 1,
                                    UINT64_MAX / 2,
                                    UINT64_MAX};
#define EXTREMES (sizeof extremes / sizeof *extremes)

static void print(struct pump_line *line) {
  const int statuses[] = {0, 1, 255};
  for (size_t i = 0; i < 3; i++) pump_line_print(line, statuses[i]);
}

/* Sets the counters for each possible reason; the last value of `which` means none. */
static bool set_reason(int which) {
  struct pump_shim_counters *shim = &pump_shm->shim_counters;
  struct pump_worker_counters *worker = &pump_shm->worker_counters;
  memset(worker, 0, sizeof *worker);
  memset(shim, 0, sizeof *shim);
  shim->attaches = which != 0;
  worker->blocks_used = which == 1 ? 0 : 1000;
  worker->miss_late = which == 2 ? 500 : 0;
  worker->miss_unseen = which == 3 ? 500 : 0;
  worker->miss_no_room = which == 4 ? 500 : 0;
  worker->blocks_hit = which == 9 ? 500 : 0;
  worker->miss_policy = which == 5 ? 500 : 0;
  shim->moved_to_gpu_bytes = which == 9 ? 0 : 1000ull << 21;
  if (which == 6) {
    worker->blocks_used = 10000;
    worker->miss_late = 9000;
    shim->moved_to_gpu_bytes = UINT64_MAX;
  }
  if (which == 9) worker->miss_unseen = 500;
  if (which == 7) pump_hold_enter(0);
  if (which == 7) pump_hold_leave(0, UINT64_MAX);
  if (which == 10) setenv("PUMP_VIRTUAL_PROFILE", "x", 1);
  return which <= 10;
}

static void print_moved(const struct pump_moved *moved) {
  struct pump_line line = {0};
  pump_line_of_moved(&line, moved);
  pump_verdict(&line, moved);
  print(&line);
}

SCENARIO(the_last_lines_of_moved_memory) {
  pump_threads_start();
  for (int reason = 0; set_reason(reason); reason++)
    for (size_t i = 0; i < EXTREMES; i++)
      for (size_t k = 0; k < EXTREMES; k++) {
        struct pump_moved moved = {.of_ns = extremes[i],
                                   .least_ns = extremes[i] / 10 * 8 - 1,
                                   .most_ns = extremes[i],
                                   .delayed_ns = reason == 8 ? extremes[i] : 0,
                                   .peak_bytes = extremes[k],
                                   .budget_bytes = extremes[(k + 7) % EXTREMES] / 64};
        print_moved(&moved);
        moved.least_ns = moved.lost_ns = moved.most_ns;
        print_moved(&moved);
        moved.most_ns = 0;
        print_moved(&moved);
      }
}

SCENARIO(a_gain_is_little_up_to_a_tenth_of_what_was_missed) {
  struct pump_worker_counters *worker = &pump_shm->worker_counters;
  struct pump_moved moved = {.of_ns = 100, .lost_ns = 50, .least_ns = 50, .most_ns = 50};
  pump_threads_start();
  set_reason(9);
  for (uint64_t blocks = 49; blocks <= 51; blocks++) {
    pump_shm->shim_counters.moved_to_gpu_bytes = blocks * PUMP_BLOCK_BYTES;
    print_moved(&moved);
  }
  pump_shm->shim_counters.moved_to_gpu_bytes = 0;
  worker->blocks_hit = worker->blocks_used - 500;
  worker->miss_policy = 251; /* most misses are of a policy that does not try */
  print_moved(&moved);
  worker->miss_policy = 250;
  print_moved(&moved);
}

/* Values that only a broken worker writes. */
SCENARIO(the_last_lines_of_a_broken_worker) {
  pump_threads_start();
  for (size_t i = 0; i < EXTREMES * EXTREMES * EXTREMES; i++) {
    struct pump_moved moved = {.of_ns = extremes[i % EXTREMES],
                               .least_ns = extremes[i / EXTREMES % EXTREMES],
                               .most_ns = extremes[i / EXTREMES / EXTREMES],
                               .lost_ns = extremes[(i + 5) % EXTREMES],
                               .delayed_ns = extremes[(i + 3) % EXTREMES],
                               .peak_bytes = UINT64_MAX,
                               .budget_bytes = extremes[(i + 2) % EXTREMES]};
    set_reason((int)i % 10);
    print_moved(&moved);
  }
}

SCENARIO(the_other_last_lines) {
  struct pump_line line = {0};
  for (size_t i = 0; i < EXTREMES; i++) {
    for (size_t k = 0; k < EXTREMES; k++) {
      pump_line_of_fitted(&line, extremes[i], extremes[k], NULL);
      print(&line);
    }
    pump_line_of_fitted(&line, extremes[i], 1, PUMP_NOTHING_COMPUTED);
    print(&line);
    pump_line_of_refused(&line, extremes[i]);
    print(&line);
    pump_line_of_ended(&line, extremes[i]);
    print(&line);
  }
  for (int error = 0; error < 1000; error++) {
    pump_line_of_refused_init(&line, error);
    print(&line);
  }
  unsetenv("CUDA_VISIBLE_DEVICES");
  pump_line_of_refused_init(&line, 100);
  print(&line);
  setenv("CUDA_VISIBLE_DEVICES", "3", 1);
  pump_line_of_refused_init(&line, 100);
  print(&line);
  pump_line_of_refused_init(&line, -2147483647);
  print(&line);
  pump_line_of_bypassed(&line);
  print(&line);
  pump_line_of_lost_notes(&line);
  print(&line);
  pump_line_of_no_cuda(&line);
  print(&line);
}
