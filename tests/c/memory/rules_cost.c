/* rules_cost.c - measures the cost of a stack check for an allocation, in thread CPU
 * time.
 *
 * Links only memory/rules.c. Prints the nanoseconds of one check without any library of
 * the rules loaded, and with a loaded one that is not on the stack of 30 calls.
 */
#include <execinfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "shim/base/base.h"
#include "shim/memory/rules.h"

#define LOOKS 2000

void pump_log(int level, const char *format, ...) {
  (void)level;
  puts(format);
  abort();
}
const char *pump_quoted(char text[PUMP_QUOTED_BYTES], const char *name) {
  (void)text;
  return name;
}

static double now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static double look(void) {
  double begin = now_ns();
  for (int i = 0; i < LOOKS; i++)
    if (pump_rule_for(4 << 20) != PUMP_RULE_NONE) abort();
  return (now_ns() - begin) / LOOKS;
}

static double down(int calls) {
  volatile double result = calls == 0 ? look() : 0;
  if (calls != 0) result = down(calls - 1);
  return result;
}

static double cost_with(const char *rules) {
  setenv("PUMP_KEEP_DEVICE", rules, 1);
  pump_rules_reset();
  double least = down(30);
  for (int i = 0; i < 4; i++) {
    double again = down(30);
    if (again < least) least = again;
  }
  return least;
}

int main(void) {
  void *frames[4];
  backtrace(frames, 4); /* loads libgcc_s, which is then loaded but not on the stack */
  double none = cost_with("library=libnccl");
  printf("%.0f %.0f\n", none, cost_with("library=libgcc_s"));
  return 0;
}
