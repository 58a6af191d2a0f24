/* pool.h - the shim's own stream-ordered pool: the interface for the hooks.
 *
 * It serves cuMemAllocAsync and cuMemAllocFromPoolAsync from managed memory, so that
 * stream-ordered memory can exceed the GPU too, and it knows every live block exactly.
 * Data: pool_sizes.h (size classes), pool_map.h (blocks as launches see them),
 * pool_bins.c (free pieces by size), pool_blocks.c (pieces of segments). Reuse:
 * pool_streams.c (which stream may reuse what, and when), pool_cycle.c and pool_places.c
 * (addresses for repeating requests). Calls: pool_segments.c (managed memory),
 * pool_serve.c (allocate and free), driver_pools.c (which of the driver's pools it
 * replaces, and the answers about them).
 *
 * The functions require the guard (pump_reentry_depth raised). Only a free on a stream
 * without an entry waits for that stream. "Not ours": the driver has to serve the call.
 */
#ifndef PUMP_POOL_H
#define PUMP_POOL_H

#include "shim/execute/execute.h"

/* ---- allocate and free (pool_serve.c) ------------------------------------- */

/* Allocates in stream order. `pool` NULL: the device's current pool. Returns true if the
 * call was served, or refused with `*result`; false: not ours. */
bool pump_pool_allocate(CUdeviceptr *address, size_t bytes, CUmemoryPool pool,
                        struct pump_at at, CUresult *result);

/* Frees in stream order; false: not ours. */
bool pump_pool_free_ordered(CUdeviceptr address, struct pump_at at, CUresult *result);

/* Makes converted memory a live block of the pool, so that it can be freed in stream
 * order. Requires a driver scope. `range` was removed from the range table, and its free
 * recorded; it is put back there. Returns false if nothing was changed. */
bool pump_pool_adopt(struct pump_range_info *range);

/* Frees pool memory for cuMemFree. CUDA considers all uses of the memory complete and
 * does not wait for them. Returns false: not ours. */
bool pump_pool_free_now(CUdeviceptr address, CUresult *result);

/* Gives idle memory of the device back to the driver, before memory is refused. Waits for
 * the device if there is any, as every cuMemFree does. */
void pump_pool_free_idle(uint32_t device);

/* ---- look-ups by address --------------------------------------------------- */

struct pump_pool_block {
  uint64_t base, requested_bytes;
  CUmemoryPool pool; /* NULL: a pool that was destroyed */
};
/* Finds the live block of `address`; false if there is none. Takes the pool's lock. */
bool pump_pool_find(uint64_t address, struct pump_pool_block *block);

/* Finds the piece of `address`, and whether it is live. Reserved addresses (mapped.h)
 * have pieces too; accessible pieces are live. Returns 0 for other addresses. Exported
 * for checks of the pool, by the virtual GPU and tests. */
#define PUMP_POOL_PIECE_FREE 1
#define PUMP_POOL_PIECE_LIVE 2
__attribute__((visibility("default"))) int pump_pool_piece(uint64_t address, uint64_t *base,
                                                           uint64_t *length_bytes);

/* ---- questions about pointers (pointer_answers.c) -------------------------------- */

/* Converted memory at an address, as the program knows it: a block of our pool, or a
 * mapping, but not the range around it. The address may be outside the requested
 * bytes. */
struct pump_pointer {
  uint64_t base, requested_bytes;
  CUmemoryPool pool; /* pool of the memory; NULL: none */
  int handle_types;  /* requested at its creation, as a bit mask */
};
bool pump_pointer_see(CUdeviceptr address, struct pump_pointer *seen);
/* Returns whether a copy or memset of `bytes` at `address` must be refused, although the
 * driver would not refuse it. Such a call ends in the rounding after the memory that the
 * program requested, or touches addresses that are only reserved. */
bool pump_pointer_beyond(CUdeviceptr address, uint64_t bytes);
/* Does the work of pump_pointer_see, if the driver's answer is to be corrected. */
bool pump_pointer_corrected(CUdeviceptr address, struct pump_pointer *seen);
/* Corrects one answer of the driver. */
void pump_pointer_correct(CUpointer_attribute attribute, void *data,
                          const struct pump_pointer *seen);

/* ---- the driver's pools (driver_pools.c) -------------------------------------- */

/* Returns whether our pool serves the memory of `*pool` (NULL: becomes the device's
 * current pool), and not the driver. */
bool pump_pool_serves(CUmemoryPool *pool, uint32_t device);

/* Records a pool that the program has made with those properties. */
void pump_pool_note_created(CUmemoryPool pool, const CUmemPoolProps *properties);

/* Warns once that a pool that processes share stays the driver's. */
void pump_pool_warn_of_sharing(void);

/* State kept during the real call that destroys a pool. */
struct pump_pool_detached {
  bool was_made, arenas[POOL_ARENAS];
  uint32_t device;
};
void pump_pool_detach(CUmemoryPool pool, struct pump_pool_detached *closed);
void pump_pool_finish_destroy(CUmemoryPool pool, const struct pump_pool_detached *closed,
                              bool destroyed);

/* Gives back idle memory that exceeds `keep_bytes`. */
void pump_pool_trim_to(CUmemoryPool pool, size_t keep_bytes);

/* Reports our part of a number of the pool; false if the attribute is not a number. */
bool pump_pool_usage(CUmemoryPool pool, CUmemPool_attribute attribute, uint64_t *bytes);
/* Applies an attribute that the program has set: resets a high-water mark or reads the
 * release threshold. */
void pump_pool_apply_attribute(CUmemoryPool pool, CUmemPool_attribute attribute);

/* Not 0: the driver's pools would give memory back once the program waits. */
extern uint32_t pump_pool_keeps;
/* Counts that memory as given back. */
void pump_pool_release_kept(void);
/* Passes on the answer of a call with which the program has waited for the GPU. */
static inline CUresult pump_pool_waited(CUresult result) {
  if (PUMP_UNLIKELY(PUMP_LOAD(&pump_pool_keeps) != 0) && result == CUDA_SUCCESS &&
      !pump_inert())
    pump_pool_release_kept();
  return result;
}
/* Returns the bytes in the device's ranges that the driver's pools would return. */
uint64_t pump_pool_idle_bytes(uint32_t device);
/* Waits for our stream queries, which would end a capture. Call it after a capture is
 * counted and before it begins. */
void pump_pool_capture_begins(void);

/* ---- dead memory (pool_dead.c): only for the marker thread ------------------- */

/* Returns whether it is time for pump_pool_discard_dead, with `context` current. */
bool pump_pool_discard_is_due(CUcontext context, uint64_t now_ns);
void pump_pool_discard_dead(CUcontext context, uint64_t now_ns);
/* Ends quarantines before the marker thread leaves the context. */
void pump_pool_finish_discards(CUcontext context);

/* ---- ends ------------------------------------------------------------------- */

/* Records a last event for the frees of a stream that the program is about to destroy. */
void pump_pool_stream_ends(CUstream stream);
/* Called after a context has ended, with the memory that was allocated in it. */
void pump_pool_context_gone(CUcontext context);
/* Empties all tables, at the start of a process with a single thread. */
void pump_pool_reset(void);
/* Resets the locks in a forked child. */
void pump_pool_fork_child(void);

#endif
