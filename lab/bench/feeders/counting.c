/* counting.c - tells valgrind's callgrind which stretch of a program to count.
 *
 * Loaded by the program that is measured (transformer_train.py); without valgrind around
 * it nothing happens. Built only where valgrind's header is installed.
 */
#include <valgrind/callgrind.h>

void begin_counting(void);
void end_counting(void);

__attribute__((visibility("default"))) void begin_counting(void) {
  CALLGRIND_START_INSTRUMENTATION;
  CALLGRIND_ZERO_STATS;
}

/* Writes what was counted since, to a file with the next number. */
__attribute__((visibility("default"))) void end_counting(void) {
  CALLGRIND_DUMP_STATS;
  CALLGRIND_STOP_INSTRUMENTATION;
}
