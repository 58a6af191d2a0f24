/* start_program.c - tells how long a process took to get to main(), and its cuInit.
 *
 *   start_program       one line, then the same of a second process that it starts
 *   start_program last  one line
 *
 * A line: CLOCK_MONOTONIC at main(), processor time of the process until there (which
 * exec keeps: that of pump-run too), then time and processor time of cuInit; all in ns.
 * Between the two processes lies half a second: the second one finds its pumpd started.
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
