/* resolve.h - shared by the files that look functions up. */
#ifndef PUMP_RESOLVE_H
#define PUMP_RESOLVE_H

#include <stdbool.h>

/* The functions of libc, or of the next interposer. Set by pump_dlsym_ready, which every
 * look-up calls first; constant afterwards. */
extern void *(*pump_real_dlsym)(void *handle, const char *name);
extern char *(*pump_real_dlerror)(void);
void pump_dlsym_ready(void);

/* Preserves the pending dlerror() text around dl functions that we use inside another
 * call of the program (resolve_error.c). Pass begin's result to end. */
char *pump_dl_begin(void);
void pump_dl_end(char *pending);

/* Returns a function of a C library other than glibc, or NULL (other_libc.c). */
void *pump_other_libc_symbol(const char *name);

/* Returns whether PUMP_DISABLE was 1 at the first look-up, or libc is not glibc. */
bool pump_disabled(void);

/* Returns the wrapper of the driver function `name`, or NULL if it is not hooked. */
void *pump_wrapper_named(const char *name);

/* Returns whether the driver has the wrapper's function. Call after pump_resolve. */
bool pump_driver_has(const void *wrapper);

/* Warns about a library whose driver hooks are never called, because it comes after pump
 * in the loader's order. Call once the driver is resolved, with no lock held. */
void pump_warn_of_uncalled_hooks(void);

/* Returns whether `address` is a function of the driver that filled pump_real. Fills
 * pump_real if no driver has yet. */
bool pump_is_driver(const void *address);

#endif
