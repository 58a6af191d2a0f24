/* driver.h - the driver's own functions, and how the shim calls them. */
#ifndef PUMP_DRIVER_H
#define PUMP_DRIVER_H

#include "shim/base/base.h"

/* ---- resolution (resolve.c) ----------------------------------------------- */

/* The driver's own functions. A hooked function is never NULL: before resolution it
 * points to a stub that resolves. If this driver lacks it, it points to a stub that
 * returns CUDA_ERROR_NOT_FOUND. A function that pump only calls may be NULL. Filled once,
 * constant afterwards, kept over fork. */
struct pump_real {
#define PUMP_HOOK(name, pfn, parameters, arguments) CUresult(*name) parameters;
#define PUMP_CALL(name, pfn, parameters) CUresult(*name) parameters;
#include "hooks.h"
};
extern struct pump_real pump_real;

/* Whether this driver has each function: PUMP_HAS(cuMemPrefetchAsync_v2). */
struct pump_present {
#define PUMP_HOOK(name, pfn, parameters, arguments) bool name;
#define PUMP_CALL(name, pfn, parameters) bool name;
#include "hooks.h"
};
extern struct pump_present pump_present;
#define PUMP_HAS(name) (pump_present.name)

/* Fills page map entries of managed memory, one per 4 KiB page. Only the virtual driver
 * has this function, because its memory has no page tables. NULL: ask the kernel. */
extern void (*pump_driver_page_map)(uint64_t address, uint64_t *entries, uint32_t count);

/* The wrappers, exported under the driver's names. */
#define PUMP_HOOK(name, pfn, parameters, arguments)                                        \
  __attribute__((visibility("default"))) CUresult name parameters;
#include "hooks.h"

/* Fills pump_real from the loaded driver; returns false without one. Takes no lock of
 * ours, because a thread may hold the loader's lock and wait for ours. */
bool pump_resolve(void);

/* ---- our own calls (driver_scope.c) and captures (capture.c) ---------------------- */

/* Opens and closes a scope for our own driver calls on an application thread: raises the
 * guard and sets RELAXED capture mode. This is always necessary. Another thread may begin
 * a GLOBAL capture after any test for one, and our call would then invalidate the
 * capture. Code that only asks for the current context, or whether a stream captures,
 * needs just pump_enter(): the driver answers these calls in every mode. */
struct pump_driver_scope {
  bool exchanged;
  CUstreamCaptureMode mode;
};
struct pump_driver_scope pump_driver_scope_open(void);
void pump_driver_scope_close(struct pump_driver_scope scope);

/* Number of the program's streams in a capture: possibly too high, never too low. */
extern uint32_t pump_captures;

/* Returns whether our code must not touch the stream (a plain handle, no _ptsz): it is in
 * a capture, or another capture prevents the query. Call under the guard. */
bool pump_capturing(CUstream stream);

/* Counts captures in progress: up before a capture may begin, down after its end. */
void pump_capture_entered(void);
void pump_capture_left(void);
/* Handles the driver's answer to the end of a capture; some errors end it as well. */
void pump_capture_ended(CUresult answer);
/* Counts a capture into a list of graphics commands (CIG) in the same way. */
void pump_capture_entered_cig(void);
void pump_capture_left_cig(void);
void pump_captures_fork_child(void);

#endif
