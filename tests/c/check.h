/* check.h - the check that every C test uses; a failed one prints its place and exits. */
#ifndef PUMP_TESTS_CHECK_H
#define PUMP_TESTS_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                                   \
  do {                                                                                     \
    if (!(condition)) {                                                                    \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);              \
      abort();                                                                             \
    }                                                                                      \
  } while (0)

#endif
