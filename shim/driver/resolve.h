/* resolve.h - between the files of look-ups, and for files that look a function up. */
#ifndef PUMP_RESOLVE_H
#define PUMP_RESOLVE_H

#include <stdbool.h>

/* libc's, or those of the next interposer. Set by pump_dlsym_ready, which every look-up
 * calls first; never change afterwards. */
extern void *(*pump_real_dlsym)(void *handle, const char *name);
extern char *(*pump_real_dlerror)(void);
void pump_dlsym_ready(void);

/* Around dl functions that we call while the program calls something else: what its
 * dlerror() has to report stays (resolve_error.c). The end gets what the begin returned. */
char *pump_dl_begin(void);
void pump_dl_end(char *pending);

/* A function of the C library where that is not glibc, or NULL (other_libc.c). */
void *pump_other_libc_symbol(const char *name);

/* PUMP_DISABLE=1, as the environment said at the first look-up; or not glibc. */
bool pump_disabled(void);

/* The wrapper of the driver function `name`, or NULL when it is not hooked. */
void *pump_wrapper_named(const char *name);

/* Whether the driver has the function of that wrapper, once pump_resolve was true. */
bool pump_driver_has(const void *wrapper);

/* Names a library whose hooks of the driver's functions nothing calls, because it lies
 * after pump in the loader's order. Once the driver is resolved, with no lock held. */
void pump_say_hooks_after_us(void);

/* true when `address` is a function of the driver that pump_real was filled from;
 * a driver seen for the first time is taken for that purpose. */
bool pump_is_driver(const void *address);

#endif
