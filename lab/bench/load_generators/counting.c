/* counting.c - marks the stretch of a program that valgrind's callgrind counts.
 *
 * The measured program (transformer_train.py) loads this library. Without valgrind, the
 * functions do nothing. It is built only if valgrind's header is installed.
 */
#include <valgrind/callgrind.h>

void begin_counting(void);
void end_counting(void);

__attribute__((visibility("default"))) void begin_counting(void) {
  CALLGRIND_START_INSTRUMENTATION;
  CALLGRIND_ZERO_STATS;
}

/* Writes the counts since begin_counting() to a file with the next number. */
__attribute__((visibility("default"))) void end_counting(void) {
  CALLGRIND_DUMP_STATS;
  CALLGRIND_STOP_INSTRUMENTATION;
}
