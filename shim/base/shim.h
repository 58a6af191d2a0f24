/* shim.h - inside of the shim: what the observe side offers to its own files and
 * to the act side (whose offers are in act.h).
 *
 * Rules for every global below: written by the observe side only, unless said
 * otherwise; a forked child starts from the initial values (observe_start.c).
 */
#ifndef PUMP_SHIM_H
#define PUMP_SHIM_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pump_abi.h"
#include "pump_cuda.h"
#include "pump_cuda_graph.h"

#define PUMP_LIKELY(x) __builtin_expect(!!(x), 1)
#define PUMP_UNLIKELY(x) __builtin_expect(!!(x), 0)

/* ---- resolution (resolve.c) ---------------------------------------------- */

/* The driver's own functions. A hooked one is never NULL: before resolution it
 * points to a stub that resolves, and where this driver lacks the function, to
 * one that answers CUDA_ERROR_NOT_FOUND. One that is only called may be NULL.
 * Filled once, never changed again, kept over fork. */
struct pump_real {
#define PUMP_HOOK(name, pfn, parameters, arguments) CUresult(*name) parameters;
#define PUMP_CALL(name, pfn, parameters) CUresult(*name) parameters;
#include "shim/driver/hooks.h"
};
extern struct pump_real pump_real;

/* Which of them this driver really has: PUMP_HAS(cuMemPrefetchAsync_v2). */
struct pump_present {
#define PUMP_HOOK(name, pfn, parameters, arguments) bool name;
#define PUMP_CALL(name, pfn, parameters) bool name;
#include "shim/driver/hooks.h"
};
extern struct pump_present pump_present;
#define PUMP_HAS(name) (pump_present.name)

/* The wrappers, exported under the driver's names. */
#define PUMP_HOOK(name, pfn, parameters, arguments)                                        \
  __attribute__((visibility("default"))) CUresult name parameters;
#include "shim/driver/hooks.h"

/* Fills pump_real from the loaded driver; false while none is loaded. Takes no
 * lock of ours (a thread may hold the loader's lock and wait for ours). */
bool pump_resolve(void);

/* ---- guard ---------------------------------------------------------------- */

/* true: every hook passes straight through. Initially true; false from the
 * success of the real cuInit on; true again for good after an internal error. */
extern bool pump_off;

/* Number of devices that are ACTIVE; 0 while inert. What operation hooks test. */
extern uint32_t pump_active;

/* Recursion guard of this thread: while > 0 every hook passes straight through.
 * Threads of the act side raise it once, for life. */
extern __thread uint32_t pump_inside __attribute__((tls_model("initial-exec")));

static inline bool pump_inert(void) {
  return __atomic_load_n(&pump_off, __ATOMIC_ACQUIRE) || pump_inside != 0;
}

/* While everything fits into the budgets, and while inert, operations are not
 * reported: one predictable branch. */
static inline bool pump_dormant(void) {
  return __atomic_load_n(&pump_active, __ATOMIC_ACQUIRE) == 0;
}
static inline bool pump_quiet(void) {
  return PUMP_LIKELY(pump_dormant()) || pump_inside != 0;
}

static inline void pump_enter(void) {
  pump_inside++;
}
static inline void pump_leave(void) {
  pump_inside--;
}

/* An internal error: one line, then pass-through for the rest of the process.
 * `reason` is a sentence without full stop. */
void pump_give_up(const char *reason);

/* Calls that came through our context and memory hooks since cuInit. A context
 * that exists while this stays 0 means that the program found the driver behind
 * our back. Written by all threads, relaxed. */
extern uint64_t pump_calls_seen;

/* Streams of the program that are being captured now, never too few. */
extern uint32_t pump_captures;

/* The stream, as the driver's plain functions know it, is being captured, or cannot be
 * asked because something else is: nothing of ours may touch it. Under the guard. */
bool pump_capturing(CUstream stream);

/* Brackets our own driver calls on an application thread: raises the guard and sets
 * RELAXED capture mode. Always, since another thread may begin a GLOBAL capture between
 * any test for one and our call, which would then invalidate that capture. Paths that only
 * ask for the current context, or whether a stream captures, need no more than
 * pump_enter(): the driver answers those in every mode. */
struct pump_bracket {
  bool exchanged;
  CUstreamCaptureMode mode;
};
struct pump_bracket pump_bracket_open(void);
void pump_bracket_close(struct pump_bracket bracket);

uint64_t pump_now_ns(void); /* CLOCK_MONOTONIC */

/* The job records a trace (PUMP_RECORD): everything is reported, whether it fits or
 * not. Set before pump_off falls, never changed afterwards. */
extern bool pump_recording;

/* Tells a recorder that everything on the stream up to `seq` has executed by `time_ns`;
 * nothing at all unless a trace is recorded. Under the guard. */
void pump_event_progress(uint32_t stream_index, uint64_t seq, uint64_t time_ns);

/* Another mapping has taken the region's place: names and parameters have to be told
 * again. After the change. */
void pump_tell_again(void);

/* ---- the region (observe_start.c) ----------------------------------------- */

/* One fixed address per process: anonymous at first, later the act side maps the
 * memfd over it (and repeats MADV_DONTFORK). NULL before cuInit has succeeded. */
extern struct pump_shm *pump_shm;

/* ---- devices (observe_device.c) ------------------------------------------- */

/* Takes over the budgets that the worker asks for. Returns a bit for each device that is
 * active and has a budget so asked for: it needs its executors. By the link thread. */
uint32_t pump_device_adopt_budgets(void);

struct pump_card; /* act.h */
struct pump_neighbours;

/* What this process has on the device; false: it has not used it. */
bool pump_device_card(uint32_t device, struct pump_card *card);

/* Takes over this process's share of each card, among those. Answers like
 * pump_device_adopt_budgets. By the link thread. */
uint32_t pump_device_share(const struct pump_neighbours *neighbours);

/* ---- devices and memory that cannot be paged ------------------------------- */

/* true when allocations on this device are to be converted. */
bool pump_device_converts(uint32_t device);

/* The most device memory that was not converted, on all devices at once; and what of it
 * virtual memory management had at its own peak. */
uint64_t pump_plain_peak_bytes(void); /* observe_device.c */
/* A context of our own takes so much of the device (observe_plain.c). */
void pump_plain_own(uint32_t device, CUcontext context, uint64_t bytes);
uint64_t pump_vmm_peak_bytes(void); /* observe_vmm.c */

/* The card had no room for such memory. */
bool pump_plain_refused(void); /* observe_memory.c */
/* Whether the program waited for the GPU while a device was active. */
bool pump_event_waited(void); /* observe_event.c */

/* ---- ranges (observe_range.c) --------------------------------------------- */

/* Guards the range table, the device figures and the private mirrors of both.
 * The act side holds it while it copies the region into another mapping. Never
 * held across a driver call. Replaced by a fresh one in a forked child. */
extern pthread_mutex_t pump_range_lock;

struct pump_pool_map;
struct pump_range_info {
  uint64_t base;
  uint64_t length_bytes;    /* as the driver gave it: whole blocks when converted */
  uint64_t requested_bytes; /* what the program asked for */
  uint32_t kind;            /* PUMP_RANGE_* */
  uint32_t device;
  uint32_t slot;
  uint32_t generation;
  const struct pump_pool_map *pool; /* of a segment of our pool; NULL: no such one */
  CUcontext context;        /* whose end is the range's end; not in the shared table */
  uint64_t displaced_bytes; /* out, pump_range_add: converted bytes it forgot */
};

/* What one address hits. */
struct pump_hit {
  uint32_t slot;
  uint32_t generation;
  uint32_t device;
  uint32_t kind;
  uint64_t base;
  uint64_t length_bytes;
  uint64_t requested_bytes;
  const struct pump_pool_map *pool; /* see pump_range_info */
};

/* Adds a live range of `info` (base, lengths, kind, device, context); fills slot
 * and generation. Whatever else held its blocks is forgotten (displaced_bytes): the
 * driver has given them out again. Returns the slot, or -ENOSPC (table full), -ERANGE (owns
 * no whole block of the 47-bit user address space), -ENOMEM (no leaf of the index). */
int pump_range_add(struct pump_range_info *info);

/* Takes the range that begins exactly at `base` out of table and index: its
 * generation changes. The slot is not used again before pump_range_release, so
 * that a failed free can be undone by pump_range_restore. 0 or -ENOENT. */
int pump_range_remove(uint64_t base, struct pump_range_info *info);
void pump_range_release(uint32_t slot);
void pump_range_restore(struct pump_range_info *info);

/* Takes one range of `context` out, as pump_range_remove does, slots from `*cursor`
 * on (0 at first); false when there is none left. */
bool pump_range_remove_next(CUcontext context, uint32_t *cursor,
                            struct pump_range_info *info);

/* Base, length and device of one live converted range of the device, slots from `*cursor`
 * on (0 at first); false when there is none left. */
bool pump_range_next_converted(uint32_t device, uint32_t *cursor,
                               struct pump_range_info *info);

/* The live range that `address` lies in. Lock-free; false when there is none, or
 * when it goes away meanwhile. Only ranges that own whole blocks are found. */
bool pump_range_lookup(uint64_t address, struct pump_hit *hit);

/* How often a range has come or gone: what was looked up before holds as long as this
 * stays the same. */
uint64_t pump_range_changes(void);

/* What lies outside [low, end) is in no live range; read relaxed, both. */
extern struct pump_range_bounds {
  uint64_t low, end;
} pump_range_bounds;

/* Which of the PUMP_USE_SLICES words of last_use_seq an offset belongs to. */
static inline uint32_t pump_use_slice(uint64_t range_bytes, uint64_t offset_bytes) {
  uint64_t slice_bytes = (range_bytes + PUMP_USE_SLICES - 1) / PUMP_USE_SLICES;
  uint64_t slice = slice_bytes == 0 ? 0 : offset_bytes / slice_bytes;
  return slice < PUMP_USE_SLICES ? (uint32_t)slice : PUMP_USE_SLICES - 1;
}

/* Bytes from an offset in a range to the end of its allocator's block, which is so many
 * PUMP_UNIT_BYTES away; 0 for none. */
static inline uint64_t pump_units_bytes(uint64_t units, uint64_t offset_bytes) {
  return units == 0 ? 0 : units * PUMP_UNIT_BYTES - offset_bytes % PUMP_UNIT_BYTES;
}

/* Notes that operation `seq` uses the bytes of `extent`, if its range still lives;
 * returns how many bytes that may be: an estimate for a pointer whose reach is not
 * known, see there. */
uint64_t pump_range_touch(const struct pump_extent *extent, uint64_t seq);

/* Writes the whole shared table again from private memory, last uses excepted: what
 * was carried over from an earlier mapping may have been scribbled upon. Under
 * pump_range_lock. */
void pump_range_republish(void);

/* Empties table, index and mirrors; nobody else may run (start of a process). */
void pump_range_reset(void);

#endif
