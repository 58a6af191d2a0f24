/* glibc.h - functions of glibc that other C libraries lack. A program of another C
 * library, such as musl, also loads this library if started under pump. Weak references
 * let it load. Pump then does nothing, because CUDA drivers exist only for glibc.
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

/* The base of pthread_atfork (Linux Standard Base, Core). Declared weak here, because the
 * part of glibc that is linked into each library refers to it strongly. */
extern int __register_atfork(void (*prepare)(void), void (*parent)(void),
                             void (*child)(void), void *library);
#pragma weak __register_atfork
extern void *__dso_handle __attribute__((visibility("hidden")));

/* Returns whether the process has all of these functions. */
static inline bool pump_has_glibc(void) {
  return dlvsym != NULL;
}

#endif
