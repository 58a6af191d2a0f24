/* pump_clock.h - CLOCK_MONOTONIC as the kernel has it, for shim and worker alike.
 *
 * Both compare their times: of events, and of the worker's last beat. A library that is
 * preloaded to fake the clock (libfaketime) fakes clock_gettime in the program and not in
 * the worker. So the C library's own function is looked up by its name there, where no
 * other library can stand before it.
 */
#ifndef PUMP_CLOCK_H
#define PUMP_CLOCK_H

#include <dlfcn.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

typedef int (*pump_clock_function)(clockid_t clock, struct timespec *time);

/* For a process of glibc. */
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
