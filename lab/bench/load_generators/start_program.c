/* start_program.c - times the start of a process and its cuInit.
 *
 *   start_program       prints a line, then starts a second process, which also prints
 *                       one.
 *   start_program last  prints one line.
 *
 * A line has four numbers in ns: CLOCK_MONOTONIC at main(), the CPU time of the process
 * until then, the elapsed time of cuInit, and its CPU time. The second number includes
 * pump-run, because exec keeps it. The second process starts after half a second, when
 * its pumpd is running.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "pump_cuda.h"

CUresult cuInit(unsigned int flags);

static long long clock_ns(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (long long)now.tv_sec * 1000000000 + now.tv_nsec;
}

int main(int count, char **words) {
  long long main_ns = clock_ns(CLOCK_MONOTONIC);
  long long main_cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
  if (cuInit(0) != CUDA_SUCCESS) return 1;
  printf("%lld %lld %lld %lld\n", main_ns, main_cpu_ns, clock_ns(CLOCK_MONOTONIC) - main_ns,
         clock_ns(CLOCK_PROCESS_CPUTIME_ID) - main_cpu_ns);
  fflush(stdout);
  if (count > 1) return 0;
  nanosleep(&(struct timespec){.tv_nsec = 500000000}, NULL);
  pid_t second = fork();
  if (second == 0) {
    execl("/proc/self/exe", words[0], "last", (char *)NULL);
    _exit(1);
  }
  int status;
  return waitpid(second, &status, 0) == second && status == 0 ? 0 : 1;
}
