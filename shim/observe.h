/* observe.h - what the files of the observe side offer to each other; the act
 * side needs none of it. See shim.h for the rules of globals.
 */
#ifndef PUMP_OBSERVE_H
#define PUMP_OBSERVE_H

#include "shim.h"

/* ---- devices and their figures (observe_device.c) ------------------------ */

/* Once per process and device, with a context of it current: fills
 * pump_shm->devices[device] and decides whether memory can be converted there.
 * Later calls cost one load. false: hands off this device. */
bool pump_device_prepare(CUdevice device);

/* Live bytes changed. The caller holds pump_range_lock. */
void pump_device_account(uint32_t device, int64_t range_bytes, int64_t plain_bytes);

/* What cuMemGetInfo may call free, given the driver's own figure. */
uint64_t pump_device_free_bytes(uint32_t device, uint64_t real_free_bytes);

/* true when allocations on this device are to be converted. */
bool pump_device_converts(uint32_t device);

void pump_device_reset(void);

/* ---- contexts (observe_context.c) ---------------------------------------- */

/* The device of the calling thread's context, prepared, its context made known to
 * the act side; -1 when there is no context or the device is left alone. Costs one
 * driver look-up once this thread knows its context. */
int pump_current_device(CUcontext *context);

void pump_context_reset(void);

/* ---- device memory that is not converted (observe_plain.c) --------------- */

struct pump_plain_info {
  uint64_t base, bytes;
  CUcontext context; /* whose end is its end */
  uint32_t device;
};

/* Remember and forget one allocation, for the figures only; a full table means
 * that further ones are not counted. */
void pump_plain_add(const struct pump_plain_info *info);
bool pump_plain_remove(uint64_t base, struct pump_plain_info *info);
void pump_plain_context_gone(CUcontext context);
void pump_plain_reset(void);

/* ---- operations and events (observe_event.c) ----------------------------- */

/* The extents of one operation while they are collected: at most one UNKNOWN
 * extent per range (the lowest offset wins), others as they come. */
struct pump_op {
  uint32_t count;
  uint32_t dropped; /* beyond PUMP_MAX_EXTENTS */
  struct pump_extent extents[PUMP_MAX_EXTENTS];
};

/* A stream as a hook sees it. */
struct pump_at {
  CUstream given;  /* as the program passed it */
  CUstream stream; /* the same for the driver's plain functions */
  bool per_thread; /* called through a _ptsz/_ptds twin */
};

static inline struct pump_at pump_at(CUstream stream, bool per_thread) {
  return (struct pump_at){.given = stream,
                          .stream =
                              stream == NULL && per_thread ? CU_STREAM_PER_THREAD : stream,
                          .per_thread = per_thread};
}

static inline void pump_op_begin(struct pump_op *op) {
  op->count = op->dropped = 0;
}

/* A word of a launch's parameters: when it points into a live range, the rest of
 * that range is believed to be reached. */
void pump_op_word(struct pump_op *op, uint64_t word);

/* Bytes that a copy or memset reaches, cut at the end of the range they begin in.
 * OVERWRITE is kept for the blocks that lie wholly inside and becomes WRITE for
 * what is left at both ends: at most three extents. */
void pump_op_bytes(struct pump_op *op, uint64_t address, uint64_t bytes, uint32_t access);

/* A reported operation; seq 0: nothing was reported. */
struct pump_token {
  uint64_t seq, time_ns, touched_bytes;
  uint32_t stream_index;
};

/* Gives the operation its number and tells the worker, then records a marker when
 * one is due; nothing at all on a capturing stream. After the real call: whoever
 * then records a marker behind number n knows that all up to n were issued. */
void pump_op_report(struct pump_op *op, uint32_t kind, uint64_t function,
                    struct pump_at at);

/* The two halves of it, around a real call that blocks and whose blocks the worker
 * should bring in meanwhile. Should that call fail, a use was reported that never
 * happens: at worst a needless transfer. */
struct pump_token pump_op_announce(struct pump_op *op, uint32_t kind, uint64_t function,
                                   struct pump_at at);
void pump_op_issued(struct pump_token token, struct pump_at at);

/* ALLOC, FREE, SYNC and HINT: no operations, no number of their own; SYNC and HINT
 * carry that of the newest operation. Only on an active client. */
void pump_event_range(uint32_t kind, const struct pump_range_info *info);
void pump_event_sync(uint32_t stream_index, uint64_t seq);
void pump_event_hint(uint64_t address, uint64_t bytes, struct pump_at at);

/* The number of the newest operation. */
uint64_t pump_newest_seq(void);

/* ---- parameters (observe_params.c) --------------------------------------- */

/* Tests every aligned 8-byte word of a launch's arguments. */
void pump_params_scan(struct pump_op *op, CUfunction function, void **params, void **extra);

/* A module or library went away: handles may be used again with other layouts. */
void pump_params_forget(void);
void pump_params_reset(void);

#endif
