/* pump_assert.h - checks of invariants, only in builds with PUMP_ASSERTIONS.
 *
 * CMake's option PUMP_ASSERTIONS turns the checks on, and the builds of tests/c have them
 * on. Without it an assertion is compiled, but never evaluated, and costs nothing.
 */
#ifndef PUMP_ASSERT_H
#define PUMP_ASSERT_H

#include <stdio.h>
#include <stdlib.h>

#ifdef PUMP_ASSERTIONS
#define PUMP_ASSERTS 1
#else
#define PUMP_ASSERTS 0
#endif

/* Ends the process with one line on stderr unless `condition` is true. `invariant` says
 * what must be true, as a sentence without a full stop. */
#define PUMP_ASSERT(condition, invariant)                                                  \
  ((void)(!PUMP_ASSERTS || (condition) ||                                                  \
          (pump_assert_failed(__FILE__, __LINE__, #condition, invariant), 0)))

static inline _Noreturn void pump_assert_failed(const char *file, int line,
                                                const char *condition,
                                                const char *invariant) {
  fprintf(stderr, "%s:%d: broken invariant: %s (not so: %s)\n", file, line, invariant,
          condition);
  abort();
}

#endif
