/* pool.h - the shim's own stream-ordered pool: what it offers to the hooks.
 *
 * It serves cuMemAllocAsync and cuMemAllocFromPoolAsync from managed memory, so that
 * stream-ordered memory can exceed the card too, and it knows every live block exactly.
 * Its files: pool_sizes.h (size classes), pool_map.h (blocks as launches see them),
 * pool_bins.c (free pieces by size), pool_blocks.c (pieces of segments), pool_streams.c
 * (which stream may reuse what, and when), pool_segments.c (managed memory), pool_period.c
 * and pool_places.c (places for what a program repeats), pool_serve.c (allocate and free),
 * driver_pools.c (which of the driver's pools it stands in for, and what they answer).
 *
 * The functions are called in the guard (pump_reentry_depth raised); none waits for a
 * stream. "Not ours": the driver has to serve the call.
 */
#ifndef PUMP_POOL_H
#define PUMP_POOL_H

#include "shim/execute/execute.h"

/* ---- allocate and free (pool_serve.c) ------------------------------------- */

/* Memory in the order of a stream. `pool` NULL: the device's current one. true: served,
 * or refused with `*result`; false: not ours. */
bool pump_pool_allocate(CUdeviceptr *address, size_t bytes, CUmemoryPool pool,
                        struct pump_at at, CUresult *result);

/* Frees in the order of a stream; false: not ours. */
bool pump_pool_free_ordered(CUdeviceptr address, struct pump_at at, CUresult *result);

/* Makes converted memory that is to be freed in the order of a stream a live block of the
 * pool, in a driver scope. `range` has been taken out of the range table, and its free was
 * recorded; it is back there afterwards. false: nothing was changed. */
bool pump_pool_adopt(struct pump_range_info *range);

/* cuMemFree of pool memory. CUDA takes all uses of it for complete and does not wait
 * for them. false: not ours. */
bool pump_pool_free_now(CUdeviceptr address, CUresult *result);

/* Gives what lies idle on the device back to the driver, before memory is refused. Waits
 * for the device if there is anything, as every cuMemFree does. */
void pump_pool_relieve(uint32_t device);

/* ---- what is known of an address ------------------------------------------- */

struct pump_pool_block {
  uint64_t base, requested_bytes;
  CUmemoryPool pool; /* NULL: of a pool that was destroyed */
};
/* The live block that `address` lies in; false: none. Takes the pool's lock. */
bool pump_pool_find(uint64_t address, struct pump_pool_block *block);

/* For checks of the pool (by the virtual GPU and tests), exported: where the piece
 * that `address` lies in begins and ends, and whether it is live; the same
 * of reserved addresses (mapped.h), of which mapped ones are live. 0: neither. */
#define PUMP_POOL_PIECE_FREE 1
#define PUMP_POOL_PIECE_LIVE 2
__attribute__((visibility("default"))) int pump_pool_piece(uint64_t address, uint64_t *base,
                                                           uint64_t *length_bytes);

/* ---- questions about pointers (pointer_answers.c) -------------------------------- */

/* Converted memory that `address` lies in, as the program knows it: a block of our pool and
 * a mapping stand for themselves, not for the range that they lie in. `address` may lie
 * outside of what was requested. */
struct pump_pointer {
  uint64_t base, requested_bytes;
  CUmemoryPool pool; /* whose memory it is; NULL: of none */
  int handle_types;  /* that its creation asked for, as a bit mask */
};
bool pump_pointer_see(CUdeviceptr address, struct pump_pointer *seen);
/* Whether a copy or memset of `bytes` at `address` leaves the memory that the program
 * requested and stays in what was rounded up behind it, or touches addresses that it has
 * only reserved: there the driver does not refuse it. */
bool pump_pointer_beyond(CUdeviceptr address, uint64_t bytes);
/* The same, where an answer of the driver about `address` is to be corrected. */
bool pump_pointer_corrected(CUdeviceptr address, struct pump_pointer *seen);
/* Corrects one answer of the driver. */
void pump_pointer_correct(CUpointer_attribute attribute, void *data,
                          const struct pump_pointer *seen);

/* ---- the driver's pools (driver_pools.c) -------------------------------------- */

/* The pool whose memory `pool` (NULL: the device's current one) shall be served from
 * ours; false when the driver's own has to serve it. */
bool pump_pool_serves(CUmemoryPool *pool, uint32_t device);

/* Notes a pool that the program has made with those properties. */
void pump_pool_made(CUmemoryPool pool, const CUmemPoolProps *properties);

/* A pool is shared with other processes: says once that it stays the driver's. */
void pump_pool_shared(void);

/* Around the real call that destroys a pool. */
struct pump_pool_closed {
  bool was_made, arenas[POOL_ARENAS];
  uint32_t device;
};
void pump_pool_close(CUmemoryPool pool, struct pump_pool_closed *closed);
void pump_pool_closed(CUmemoryPool pool, const struct pump_pool_closed *closed,
                      bool destroyed);

/* Gives back what lies idle beyond so many bytes. */
void pump_pool_trim_to(CUmemoryPool pool, size_t keep_bytes);

/* What we hold in place of the pool; false: the attribute is no such figure. */
bool pump_pool_figure(CUmemoryPool pool, CUmemPool_attribute attribute, uint64_t *bytes);
/* The program has set the attribute: a high-water mark begins anew, or a threshold counts.
 */
void pump_pool_set(CUmemoryPool pool, CUmemPool_attribute attribute);

/* Not 0: there is memory that the driver's pools would give back once the program waits. */
extern uint32_t pump_pool_keeps;
/* That is given back. */
void pump_pool_let_go(void);
/* Passes on the answer of a call by which the program has waited for the GPU. */
static inline CUresult pump_pool_waited(CUresult result) {
  if (PUMP_UNLIKELY(PUMP_LOAD(&pump_pool_keeps) != 0) && result == CUDA_SUCCESS &&
      !pump_inert())
    pump_pool_let_go();
  return result;
}
/* Bytes of the device's ranges that the driver's pools would have given back. */
uint64_t pump_pool_idle_bytes(uint32_t device);
/* Before a capture begins, which has been counted: no query of ours meets it. */
void pump_pool_capture_begins(void);

/* ---- dead memory (pool_dead.c): the marker thread alone ---------------------- */

/* Whether pump_pool_dead_tick shall be called, with `context` current. */
bool pump_pool_dead_due(CUcontext context, uint64_t now_ns);
void pump_pool_dead_tick(CUcontext context, uint64_t now_ns);
/* Before the marker thread leaves the context. */
void pump_pool_dead_leave(CUcontext context);

/* ---- ends ------------------------------------------------------------------- */

/* Before the program destroys a stream: what was freed on it. */
void pump_pool_stream_ends(CUstream stream);
/* After a context has gone, with the memory that was allocated in it. */
void pump_pool_context_gone(CUcontext context);
/* Empties everything; no other thread runs (start of a process). */
void pump_pool_reset(void);
/* In the child of a fork: nothing here is the child's. */
void pump_pool_fork_child(void);

#endif
