/* pump_clock.h - the kernel's CLOCK_MONOTONIC, for shim and worker alike.
 *
 * Shim and worker compare their times, of events and of heartbeats. A preloaded library
 * that fakes the clock (libfaketime) fakes clock_gettime in the program but not in the
 * worker. So the function is looked up in the C library itself, where other libraries
 * cannot hide it.
 */
#ifndef PUMP_CLOCK_H
#define PUMP_CLOCK_H

#include <dlfcn.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

typedef int (*pump_clock_function)(clockid_t clock, struct timespec *time);

/* Returns the C library's clock_gettime. For a process with glibc. */
static inline pump_clock_function pump_clock_find(void) {
  void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
  void *found = libc == NULL ? NULL : dlvsym(libc, "clock_gettime", "GLIBC_2.17");
  pump_clock_function clock = clock_gettime;
  if (found != NULL) memcpy(&clock, &found, sizeof clock);
  return clock;
}

static inline uint64_t pump_clock_ns(pump_clock_function clock) {
  struct timespec now;
  clock(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#endif
