/* glibc.h - functions of glibc that other C libraries lack. A program of another C library,
 * like musl, that is started under pump loads this library too. References to them are
 * weak, so that it loads; pump does nothing there, for no CUDA driver exists for another C
 * library.
 */
#ifndef PUMP_GLIBC_H
#define PUMP_GLIBC_H

#include <dlfcn.h>
#include <execinfo.h>
#include <stdbool.h>
#include <stdlib.h>

#pragma weak backtrace
#pragma weak dlvsym
#pragma weak on_exit

/* What pthread_atfork is made of (Linux Standard Base, Core): the part of glibc that is
 * linked into each library refers to it, and not weakly. */
extern int __register_atfork(void (*prepare)(void), void (*parent)(void),
                             void (*child)(void), void *library);
#pragma weak __register_atfork
extern void *__dso_handle __attribute__((visibility("hidden")));

/* Whether the process has all of them. */
static inline bool pump_has_glibc(void) {
  return dlvsym != NULL;
}

#endif
