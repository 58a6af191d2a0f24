/* driver.h - the driver's own functions, and how the shim calls them. */
#ifndef PUMP_DRIVER_H
#define PUMP_DRIVER_H

#include "shim/base/base.h"

/* ---- resolution (resolve.c) ----------------------------------------------- */

/* The driver's own functions. A hooked one is never NULL: before resolution it
 * points to a stub that resolves, and where this driver lacks the function, to
 * one that answers CUDA_ERROR_NOT_FOUND. One that is only called may be NULL.
 * Filled once, never changed again, kept over fork. */
struct pump_real {
#define PUMP_HOOK(name, pfn, parameters, arguments) CUresult(*name) parameters;
#define PUMP_CALL(name, pfn, parameters) CUresult(*name) parameters;
#include "hooks.h"
};
extern struct pump_real pump_real;

/* Which of them this driver really has: PUMP_HAS(cuMemPrefetchAsync_v2). */
struct pump_present {
#define PUMP_HOOK(name, pfn, parameters, arguments) bool name;
#define PUMP_CALL(name, pfn, parameters) bool name;
#include "hooks.h"
};
extern struct pump_present pump_present;
#define PUMP_HAS(name) (pump_present.name)

/* What the process's page map would show of managed memory, an entry for each page of 4
 * KiB, by the virtual driver, whose memory has no page tables of its own. NULL: by the
 * kernel. */
extern void (*pump_driver_page_map)(uint64_t address, uint64_t *entries, uint32_t count);

/* The wrappers, exported under the driver's names. */
#define PUMP_HOOK(name, pfn, parameters, arguments)                                        \
  __attribute__((visibility("default"))) CUresult name parameters;
#include "hooks.h"

/* Fills pump_real from the loaded driver; false while none is loaded. Takes no
 * lock of ours (a thread may hold the loader's lock and wait for ours). */
bool pump_resolve(void);

/* ---- our own calls (driver_scope.c) and captures (capture.c) ---------------------- */

/* Around our own driver calls on an application thread: raises the guard and sets
 * RELAXED capture mode. Always, since another thread may begin a GLOBAL capture between
 * any test for one and our call, which would then invalidate that capture. Paths that only
 * ask for the current context, or whether a stream captures, need no more than
 * pump_enter(): the driver answers those in every mode. */
struct pump_driver_scope {
  bool exchanged;
  CUstreamCaptureMode mode;
};
struct pump_driver_scope pump_driver_scope_open(void);
void pump_driver_scope_close(struct pump_driver_scope scope);

/* How many streams of the program are being captured: possibly too many, never too few. */
extern uint32_t pump_captures;

/* The stream, as the driver's plain functions know it, is being captured, or cannot be
 * queried because something else is: nothing of ours may touch it. Under the guard. */
bool pump_capturing(CUstream stream);

/* From before a capture may begin until it has ended. */
void pump_capture_entered(void);
void pump_capture_left(void);
/* The driver's answer to the end of a capture; some errors end it as well. */
void pump_capture_ended(CUresult answer);
/* The same of one into a list of graphics commands. */
void pump_capture_entered_cig(void);
void pump_capture_left_cig(void);
void pump_captures_fork_child(void);

#endif
