/* case_limit.c - scenarios of limit, log and summary. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "executor_harness.h"

static void use_up_descriptors(bool all) {
  static int first = -1, last = -1;
  const struct rlimit few = {.rlim_cur = 64, .rlim_max = 64};
  if (all) {
    CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    for (int number; (number = open("/dev/null", O_RDONLY)) >= 0; last = number)
      if (first < 0) first = number;
  } else {
    for (int number = first; number <= last; number++) close(number);
  }
}

static void sleep_in_child(void) {
  pid_t child = fork();
  CHECK(child >= 0);
  if (child != 0) {
    printf("%d\n", (int)child);
    return;
  }
  pump_threads_fork_child();
  for (int number = 0; number < 3; number++) close(number); /* the test's pipes */
  for (;;) pause();
}

/* Follows a script on stdin and prints one answer per line. Commands:
 * - `admit BYTES`, `return BYTES`, `active 0/1`, `sleep MS`, `write PATH TEXT`.
 * - `room BYTES`: sets the device's free memory for plain allocations, initially 0.
 * - `device BYTES`: sets its memory; `card NUMBER`: selects one of several GPUs.
 * - `exhaust 0/1`: opens all descriptors that the program may have, or closes them again.
 * - `user NUMBER`: becomes that user's process.
 * - `closefrom`, `fork`, `exec`: as a program does; a child or new program only sleeps.
 * - `need BYTES`: sets its need on the device; `others`: prints others' last seen need.
 * - `report`: prints what may still be converted, and the limit. */
static void follow_script(void) {
  char line[2048], path[1024], text[1024];
  unsigned long long value;
  pump_shm->devices[0].budget_bytes = 0;
  pump_link_start();                /* uses PUMP_LEDGER, without pumpd */
  setvbuf(stdout, NULL, _IOLBF, 0); /* the test waits for each answer */
  while (fgets(line, sizeof line, stdin) != NULL) {
    if (sscanf(line, "admit %llu", &value) == 1) {
      printf("%d\n", pump_limit_admit(0, value));
    } else if (sscanf(line, "return %llu", &value) == 1) {
      pump_limit_return(0, value);
    } else if (sscanf(line, "active %llu", &value) == 1) {
      pump_shm->devices[0].device_state = value ? PUMP_DEVICE_ACTIVE : PUMP_DEVICE_DORMANT;
    } else if (sscanf(line, "room %llu", &value) == 1) {
      pump_shm->devices[0].budget_bytes = value;
    } else if (sscanf(line, "device %llu", &value) == 1) {
      pump_shm->devices[0].total_bytes = value;
    } else if (sscanf(line, "card %llu", &value) == 1) {
      harness_card = (uint8_t)value;
    } else if (sscanf(line, "need %llu", &value) == 1) {
      PUMP_STORE(&harness_need, value);
    } else if (strcmp(line, "others\n") == 0) {
      printf("%llu\n", (unsigned long long)PUMP_LOAD(&harness_others));
    } else if (sscanf(line, "exhaust %llu", &value) == 1) {
      use_up_descriptors(value != 0);
      puts("done");
    } else if (strcmp(line, "closefrom\n") == 0) {
      for (int number = 3; number < 1024; number++) close(number);
      puts("done");
    } else if (sscanf(line, "user %llu", &value) == 1) {
      printf("%d\n", setuid((uid_t)value));
    } else if (strcmp(line, "fork\n") == 0) {
      sleep_in_child();
    } else if (strcmp(line, "exec\n") == 0) {
      puts("done");
      execlp("sleep", "sleep", "60", (char *)NULL);
    } else if (strncmp(line, "report", 6) == 0) {
      uint64_t left, whole;
      pump_limit_read(&left, &whole);
      printf("%llu of %llu\n", (unsigned long long)left, (unsigned long long)whole);
    } else if (sscanf(line, "sleep %llu", &value) == 1) {
      harness_sleep_us(value * 1000);
    } else if (sscanf(line, "write %1023s %1023[^\n]", path, text) == 2) {
      FILE *file = fopen(path, "w");
      CHECK(file != NULL && fprintf(file, "%s\n", text) > 0 && fclose(file) == 0);
    } else {
      CHECK(!"a line of the script that makes sense");
    }
  }
  printf("peak %llu\n",
         (unsigned long long)PUMP_LOAD(&pump_shm->shim_counters.converted_bytes_peak));
}

SCENARIO(limit_script) {
  follow_script();
}

SCENARIO(limit_script_without_close_range) {
  harness_refuse(SYS_close_range, EPERM);
  follow_script();
}

static void *admit_and_return(void *admitted) {
  for (int i = 0; i < 2000; i++) {
    if (pump_limit_admit(0, PUMP_BLOCK_BYTES) != 0) continue;
    uint64_t now = PUMP_ADD((uint64_t *)admitted, PUMP_BLOCK_BYTES) + PUMP_BLOCK_BYTES;
    CHECK(now <= 8 * PUMP_BLOCK_BYTES);
    PUMP_ADD((uint64_t *)admitted, 0ull - PUMP_BLOCK_BYTES);
    pump_limit_return(0, PUMP_BLOCK_BYTES);
  }
  return NULL;
}

SCENARIO(threads_never_exceed_the_limit_together) {
  setenv("PUMP_LIMIT", "16777216", 1);
  pthread_t threads[12];
  uint64_t admitted = 0;
  for (int i = 0; i < 12; i++)
    CHECK(pthread_create(&threads[i], NULL, admit_and_return, &admitted) == 0);
  for (int i = 0; i < 12; i++) pthread_join(threads[i], NULL);
  CHECK(pump_limit_admit(0, 8 * PUMP_BLOCK_BYTES) == 0); /* all of it was returned */
}

SCENARIO(the_log_levels_are_respected) {
  pump_log(PUMP_LOG_ERROR, "this is %s", "an error");
  pump_log(PUMP_LOG_WARNING, "this is a warning");
  pump_log(PUMP_LOG_INFO, "this is information\nof two lines");
  pump_log(PUMP_LOG_DEBUG, "this is detail");
  uint32_t said = 0;
  CHECK(pump_log_once(&said, PUMP_LOG_ERROR, "once"));
  CHECK(!pump_log_once(&said, PUMP_LOG_ERROR, "once"));
  static char text[5000];
  memset(text, 'x', sizeof text - 1);
  pump_log(PUMP_LOG_ERROR, "%s", text); /* is truncated, not overrun */
}

/* The program uses descriptor 2 for a file of its own: pump must not write to it. */
SCENARIO(a_descriptor_two_that_is_no_longer_stderr_is_not_written) {
  char path[] = "/tmp/pump-act-data-XXXXXX";
  int data = mkstemp(path), before = dup(2);
  CHECK(data >= 0 && before >= 0 && dup2(data, 2) == 2);
  pump_log(PUMP_LOG_ERROR, "must not be seen");
  CHECK(lseek(data, 0, SEEK_END) == 0);
  close(2);
  pump_log(PUMP_LOG_ERROR, "must not be seen");
  CHECK(dup2(before, 2) == 2);
  pump_log(PUMP_LOG_ERROR, "stderr is back");
  unlink(path);
}

SCENARIO(a_reader_that_left_raises_no_signal) {
  harness_sleep_us(300000); /* the test closes the pipe now */
  for (int i = 0; i < 1000; i++) pump_log(PUMP_LOG_ERROR, "this is not read");
  puts("alive");
}

/* The log file, or the file that is stderr, may not grow. */
SCENARIO(a_file_that_may_not_grow_raises_no_signal) {
  const struct rlimit none = {.rlim_cur = 0, .rlim_max = RLIM_INFINITY};
  CHECK(setrlimit(RLIMIT_FSIZE, &none) == 0);
  pump_log(PUMP_LOG_ERROR, "is not written");
  sigset_t pending;
  CHECK(sigpending(&pending) == 0 && !sigismember(&pending, SIGXFSZ));
  sigset_t mask;
  CHECK(pthread_sigmask(SIG_BLOCK, NULL, &mask) == 0 && !sigismember(&mask, SIGXFSZ));
  puts("alive");
}

SCENARIO(a_reader_that_does_not_read_blocks_no_thread) {
  for (int i = 0; i < 5000; i++)
    pump_log(PUMP_LOG_ERROR, "a line that fills the pipe %d", i);
  puts("alive");
}

static void active_job(void) {
  CUcontext context = fake_context_create(0);
  pump_threads_start();
  pump_context_note(0, context);
  pump_executors_start(0, true);
  pump_shm->devices[0].budget_bytes = 1024ull << 20;
  pump_shm->devices[0].device_state = PUMP_DEVICE_ACTIVE;
  pump_shm->shim_counters.converted_bytes_peak = 1536ull << 20;
  pump_shm->shim_counters.moved_to_gpu_bytes = 30ull << 30;
  pump_shm->shim_counters.moved_to_host_bytes = 20ull << 30;
  pump_shm->shim_counters.attaches = 1;
  pump_shm->shim_counters.operations = 500;
  pump_shm->worker_counters.blocks_used = 1000;
  pump_shm->worker_counters.blocks_hit = 934;
  pump_shm->worker_counters.miss_late = 10;
  pump_shm->worker_counters.miss_no_room = 56;
  pump_shm->worker_counters.lost_ns = 1150000000;
  pump_shm->worker_counters.lost_least_ns = 1060000000;
  pump_shm->worker_counters.lost_most_ns = 1240000000;
  pump_shm->worker_counters.lost_of_ns = 2200000000;
}

SCENARIO(the_summary_of_an_active_job) {
  active_job();
}

SCENARIO(the_summary_of_a_job_whose_lease_changed) {
  active_job();
  harness_least = 512ull << 20;
  harness_most = 3ull << 30;
}

/* Nothing known, nothing lost, and a vague result, each by one process. */
SCENARIO(the_summaries_of_times_lost) {
  active_job();
  struct pump_worker_counters *counters = &pump_shm->worker_counters;
  for (int i = 0; i < 2; i++) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      counters->lost_ns = counters->lost_least_ns = counters->lost_most_ns = 0;
      if (i == 0) counters->lost_of_ns = 0;
      pump_summary_print(0);
      _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) &&
          WEXITSTATUS(status) == 0);
    counters->lost_of_ns = 2200000000; /* the memory is shared */
  }
  counters->lost_least_ns = 300000000;
  counters->lost_most_ns = 1600000000;
}

/* One use in 100,000 missed; the policy never tried. */
SCENARIO(the_summary_of_a_job_that_nothing_held_up) {
  active_job();
  pump_shm->worker_counters.blocks_used = 100000;
  pump_shm->worker_counters.blocks_hit = 99999;
}

SCENARIO(the_summary_of_a_job_that_lacked_processors) {
  active_job();
  pump_shm->worker_counters.lost_delayed_ns = 600000000;
}

SCENARIO(the_summary_of_an_active_job_that_forks) {
  active_job();
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    pump_threads_fork_child();
    exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) &&
        WEXITSTATUS(status) == 0);
}

SCENARIO(the_summary_of_a_dormant_job) {
  active_job();
  pump_shm->devices[0].device_state = PUMP_DEVICE_DORMANT;
  pump_shm->shim_counters.operations = 0;
  pump_shm->shim_counters.converted_bytes_peak = 512ull << 20;
}
