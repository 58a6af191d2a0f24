/* wake_ups.c - measures how late a woken thread runs: the worker's, in its own process,
 * and an executor's. Both wait like pump's threads (pump_ring.h).
 *
 *   wake_ups SAMPLES OTHERS SECONDS PAUSE_US WORK_US
 *
 * There is one line a sample. Its first number counts the polls of the machine since the
 * last sample. The others are the nanoseconds from just before the wake-up to the woken
 * thread's first instruction, for the worker and for the executor. The program wakes the
 * worker, which computes for WORK_US and wakes the executor, which computes as long.
 *
 * Before a sample, the program sleeps for 0.5 to 1.5 times PAUSE_US and polls, again and
 * again until exactly OTHERS other threads are runnable on the machine. SECONDS after the
 * start, the next failed poll ends the program. If SECONDS is 0, one poll is enough.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "pump_ring.h"

#define LOOK_US 50

struct sleeper {
  uint32_t asleep, wakes; /* words of pump_wake() */
  uint64_t sent, done;    /* numbers of work items */
  uint64_t sent_ns, delay_ns;
};

static struct shared {
  struct sleeper worker, executor;
} *shared;

static uint64_t work_ns;

static void must(bool done, const char *call) {
  if (done) return;
  perror(call);
  exit(1);
}

static uint64_t now_ns(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void sleep_us(uint64_t us) {
  struct timespec pause = {.tv_sec = (time_t)(us / 1000000),
                           .tv_nsec = (long)(us % 1000000) * 1000};
  nanosleep(&pause, NULL);
}

static void compute(void) {
  uint64_t begin_ns = now_ns(CLOCK_THREAD_CPUTIME_ID);
  while (now_ns(CLOCK_THREAD_CPUTIME_ID) - begin_ns < work_ns) {
  }
}

static void send(struct sleeper *sleeper) {
  PUMP_STORE(&sleeper->sent_ns, now_ns(CLOCK_MONOTONIC));
  __atomic_fetch_add(&sleeper->sent, 1, __ATOMIC_RELEASE);
  pump_wake(&sleeper->asleep, &sleeper->wakes);
}

static bool has_work(const struct sleeper *sleeper) {
  return PUMP_LOAD_ACQUIRE(&sleeper->sent) != PUMP_LOAD(&sleeper->done);
}

/* Sleeps until there is work, records the wake-up delay, and computes. */
static void serve(struct sleeper *sleeper) {
  while (!has_work(sleeper)) {
    uint32_t ticket = pump_sleep_prepare(&sleeper->asleep, &sleeper->wakes);
    if (!has_work(sleeper)) pump_sleep_wait(&sleeper->wakes, ticket, 250000000);
  }
  PUMP_STORE(&sleeper->delay_ns, now_ns(CLOCK_MONOTONIC) - PUMP_LOAD(&sleeper->sent_ns));
  compute();
}

static void end(struct sleeper *sleeper) {
  __atomic_fetch_add(&sleeper->done, 1, __ATOMIC_RELEASE);
}

static void worker(void) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (;;) {
    serve(&shared->worker);
    end(&shared->worker);
    send(&shared->executor);
  }
}

static void *executor(void *argument) {
  (void)argument;
  for (;;) {
    serve(&shared->executor);
    end(&shared->executor);
  }
  return NULL;
}

/* Returns the number of runnable threads, which is in the fourth field of
 * /proc/loadavg. */
static long runnable(int loadavg) {
  char text[128] = "";
  must(pread(loadavg, text, sizeof text - 1, 0) > 0, "/proc/loadavg");
  const char *slash = strchr(text, '/');
  must(slash != NULL, "/proc/loadavg");
  while (slash > text && slash[-1] != ' ') slash--;
  return atol(slash);
}

/* Sleeps until exactly `others` other threads are runnable. Returns the number of polls,
 * or 0 if `until_ns` passed first. If `until_ns` is 0, one poll is enough. */
static uint64_t wait_for_quiet(int loadavg, long others, uint64_t pause_us,
                               uint64_t until_ns) {
  for (uint64_t looks = 1;; looks++) {
    sleep_us(pause_us / 2 + (uint64_t)rand() % (pause_us + 1));
    if (runnable(loadavg) == others + 1 || until_ns == 0) return looks;
    if (now_ns(CLOCK_MONOTONIC) > until_ns) return 0;
  }
}

int main(int argc, char **argv) {
  if (argc != 6) {
    fprintf(stderr, "usage: %s SAMPLES OTHERS SECONDS PAUSE_US WORK_US\n", argv[0]);
    return 2;
  }
  uint64_t samples = strtoull(argv[1], NULL, 10), pause_us = strtoull(argv[4], NULL, 10);
  uint64_t timeout_ns = strtoull(argv[3], NULL, 10) * 1000000000u;
  long others = atol(argv[2]);
  work_ns = strtoull(argv[5], NULL, 10) * 1000;
  shared =
      mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  must(shared != MAP_FAILED, "mmap");
  int loadavg = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
  must(loadavg >= 0, "/proc/loadavg");
  pid_t child = fork();
  must(child >= 0, "fork");
  if (child == 0) worker();
  pthread_t thread;
  must(pthread_create(&thread, NULL, executor, NULL) == 0, "pthread_create");
  uint64_t until_ns = timeout_ns == 0 ? 0 : now_ns(CLOCK_MONOTONIC) + timeout_ns;
  for (uint64_t i = 1; i <= samples; i++) {
    uint64_t looks = wait_for_quiet(loadavg, others, pause_us, until_ns);
    if (looks == 0) break;
    send(&shared->worker);
    while (PUMP_LOAD_ACQUIRE(&shared->executor.done) != i) sleep_us(LOOK_US);
    printf("%llu %llu %llu\n", (unsigned long long)looks,
           (unsigned long long)shared->worker.delay_ns,
           (unsigned long long)shared->executor.delay_ns);
  }
  kill(child, SIGKILL);
  return 0;
}
