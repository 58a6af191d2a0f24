/* hard_end.c - programs that fork, exec and end in every way except the polite one.
 *
 * Usage: hard_end CASE. Each case describes its output and its end.
 */
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

#include "hard.h"

static CUcontext context;
static CUfunction mix;

static int status_of(pid_t child) {
  int status;
  pid_t waited;
  while ((waited = waitpid(child, &status, 0)) < 0 && errno == EINTR) continue;
  CHECK(waited == child);
  return status;
}

static void work(uint32_t seed) {
  context = start();
  mix = load_mix(NULL);
  struct set *set = set_make(24, seed);
  for (int i = 0; i < 120; i++) set_step(set, &cu, mix, NULL);
  MUST(cu.CtxSynchronize());
  set_check(set);
}

/* Forks before cuInit, then works in both processes. Prints "right". */
static void fork_before(void) {
  pid_t child = fork();
  CHECK(child >= 0);
  work(child == 0 ? 2 : 3);
  if (child == 0) exit(5);
  int status = status_of(child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 5);
  puts("right");
}

/* Forks a running program; the last child runs another one. Prints "right" twice. */
static void fork_after(char *self) {
  context = start();
  mix = load_mix(NULL);
  struct set *set = set_make(24, 4);
  for (int i = 0; i < 60; i++) set_step(set, &cu, mix, NULL);
  for (int round = 0; round < 3; round++) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0 && round == 0) exit(6); /* runs the parent's exit handlers */
    if (child == 0 && round == 1) _exit(6);
    if (child == 0) {
      setenv("PUMP_VIRTUAL_REPORT", "", 1); /* the variable is for the parent */
      execl(self, self, "plain", NULL);
      _exit(127);
    }
    for (int i = 0; i < 20; i++) set_step(set, &cu, mix, NULL);
    int status = status_of(child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == (round < 2 ? 6 : 0));
  }
  MUST(cu.CtxSynchronize());
  set_check(set);
  puts("right");
}

/* ---- sudden ends ------------------------------------------------------------------- */

static struct set *running;

/* Until the driver shuts down, because another thread ends the program. */
static void *launch_for_ever(void *unused) {
  (void)unused;
  MUST(cu.CtxSetCurrent(context));
  CUresult result;
  do {
    unsigned target = set_random(running, 24), source = set_random(running, 24);
    result = try_launch_mix(&cu, mix, NULL, running->buffers[target],
                            running->buffers[source], 1);
  } while (result == CUDA_SUCCESS);
  CHECK(result == CUDA_ERROR_DEINITIALIZED);
  return NULL;
}

static void *allocate_for_ever(void *unused) {
  (void)unused;
  MUST(cu.CtxSetCurrent(context));
  for (;;) {
    CUdeviceptr address;
    if (cu.MemAlloc(&address, 2 * MIB) == CUDA_SUCCESS) cu.MemFree(address);
  }
}

static void busy(void) {
  pthread_t threads[3];
  context = start();
  mix = load_mix(NULL);
  running = set_make(24, 5);
  pthread_create(&threads[0], NULL, launch_for_ever, NULL);
  pthread_create(&threads[1], NULL, launch_for_ever, NULL);
  pthread_create(&threads[2], NULL, allocate_for_ever, NULL);
  usleep(300000);
  puts("busy");
  fflush(stdout);
}

static void *end_by_exit(void *unused) {
  (void)unused;
  exit(21);
}

static void on_term(int signal) {
  (void)signal;
  exit(22); /* not allowed, but common in programs */
}

int main(int count, char **words) {
  CHECK(count == 2);
  const char *name = words[1];
  load_driver();
  if (strcmp(name, "fork_before") == 0) {
    fork_before();
  } else if (strcmp(name, "fork_after") == 0) {
    fork_after(words[0]);
  } else if (strcmp(name, "plain") == 0) {
    work(7);
    puts("right");
  } else {
    busy();
    if (strcmp(name, "exit") == 0) exit(20);
    if (strcmp(name, "return") == 0) return 19;
    if (strcmp(name, "_exit") == 0) _exit(23);
    if (strcmp(name, "abort") == 0) abort();
    if (strcmp(name, "term") == 0) kill(getpid(), SIGTERM);
    if (strcmp(name, "kill") == 0) kill(getpid(), SIGKILL);
    if (strcmp(name, "segv") == 0) raise(SIGSEGV);
    if (strcmp(name, "handler") == 0) signal(SIGTERM, on_term);
    if (strcmp(name, "handler") == 0) kill(getpid(), SIGTERM);
    pthread_t thread;
    if (strcmp(name, "thread") == 0) pthread_create(&thread, NULL, end_by_exit, NULL);
    for (;;) pause();
  }
  return 0;
}
