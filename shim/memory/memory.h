/* memory.h - ranges, devices, contexts, the limit, and memory that is not converted. */
#ifndef PUMP_MEMORY_H
#define PUMP_MEMORY_H

#include "shim/driver/driver.h"

/* ---- ranges (range_table.c) --------------------------------------------- */

/* Guards the range table, the device numbers and the private mirrors of both. The link
 * thread holds it while it copies the region into another mapping. Never held across a
 * driver call. A forked child gets a new lock. */
extern pthread_mutex_t pump_range_lock;

struct pump_pool_map;
struct pump_range_info {
  uint64_t base;
  uint64_t length_bytes;    /* as the driver gave it: whole blocks if converted */
  uint64_t requested_bytes; /* what the program requested */
  uint32_t kind;            /* PUMP_RANGE_* */
  uint32_t device;
  uint32_t slot;
  uint32_t generation;
  const struct pump_pool_map *pool; /* map of a segment of our pool; NULL: other memory */
  CUcontext context;                /* the range ends with it; not in the shared table */
  bool by_handle; /* its handles count in the limit and on the device (pool/mapped.h) */
  uint64_t displaced_bytes; /* set by pump_range_add, see there */
};

/* A live range, as a look-up returns it. */
struct pump_hit {
  uint32_t slot;
  uint32_t generation;
  uint32_t device;
  uint32_t kind;
  uint64_t base;
  uint64_t length_bytes;
  uint64_t requested_bytes;
  const struct pump_pool_map *pool; /* see pump_range_info */
  bool by_handle;                   /* see pump_range_info */
};

/* Adds a live range from `info` (base, lengths, kind, device, context); fills in slot and
 * generation. Removes ranges that held its blocks, because the driver has handed these
 * out again; `displaced_bytes`: their bytes in the limit. Returns the slot, or -ENOSPC
 * (table full), -ERANGE (owns no whole block of the 47-bit user address space), -ENOMEM
 * (no leaf of the index). */
int pump_range_add(struct pump_range_info *info);

/* Removes the range that begins exactly at `base` from table and index, and changes its
 * generation. Returns 0 or -ENOENT. The slot is not reused before pump_range_release, so
 * that pump_range_restore can undo a failed free. */
int pump_range_remove(uint64_t base, struct pump_range_info *info);
void pump_range_release(uint32_t slot);
void pump_range_restore(struct pump_range_info *info);

/* Removes one range of `context`, as pump_range_remove does, from slot `*cursor` on (0 at
 * first). Returns false after the last one. */
bool pump_range_remove_next(CUcontext context, uint32_t *cursor,
                            struct pump_range_info *info);

/* Finds a live converted range of the device (base, length and device), from slot
 * `*cursor` on (0 at first). Returns false after the last one. */
bool pump_range_next_converted(uint32_t device, uint32_t *cursor,
                               struct pump_range_info *info);

/* Finds the live range of `address`, without a lock. Returns false if there is none, or
 * if it is just being removed. Finds only ranges that own whole blocks. */
bool pump_range_lookup(uint64_t address, struct pump_hit *hit);
/* Returns whether `address` is in converted memory: pump made it managed. */
static inline bool pump_converted(uint64_t address) {
  struct pump_hit hit;
  return pump_range_lookup(address, &hit) && hit.kind == PUMP_RANGE_CONVERTED;
}

/* Counts added and removed ranges. While the count is unchanged, earlier look-ups remain
 * valid. */
uint64_t pump_range_changes(void);

/* No live range is outside [low, end). Both are read relaxed. */
extern struct pump_range_bounds {
  uint64_t low, end;
} pump_range_bounds;

/* Returns the bytes from an offset in a range to the end of its allocator's block, which
 * is `units` away in PUMP_UNIT_BYTES (0: unknown). */
static inline uint64_t pump_units_bytes(uint64_t units, uint64_t offset_bytes) {
  return units == 0 ? 0 : units * PUMP_UNIT_BYTES - offset_bytes % PUMP_UNIT_BYTES;
}

/* Records that operation `seq` uses the bytes of `extent`, if its range is alive. Returns
 * how many bytes that may be. If a pointer's reach is unknown, that is an estimate. */
uint64_t pump_range_touch(const struct pump_extent *extent, uint64_t seq);

/* Rewrites the whole shared table from private memory, except last uses: data from an
 * earlier mapping may have been overwritten. Requires pump_range_lock. */
void pump_range_republish(void);

/* Empties table, index and mirrors, at the start of a process with a single thread. */
void pump_range_reset(void);

/* Returns whether pump has set READ_MOSTLY on the block of `address`. */
bool pump_read_mostly_is_set(uint64_t address);
/* Records whether READ_MOSTLY is set on these blocks. New and ended ranges clear it. */
void pump_read_mostly_note(uint64_t first_block, uint64_t end_block, bool hinted);

/* ---- devices and their numbers (devices.c) ------------------------ */

/* Prepares a device, with one of its contexts current: fills in pump_shm->devices[device]
 * and decides whether memory can be converted there. Returns false if pump does not
 * manage the device. Later calls cost one load. */
bool pump_device_prepare(CUdevice device);

/* Records a change of live bytes. Requires pump_range_lock. */
void pump_device_add_bytes(uint32_t device, int64_t range_bytes, int64_t plain_bytes);

/* Adds `bytes` to (negative: subtracts them from) the device's managed memory that may
 * have pages but belongs to no allocation. This memory can be evicted. */
void pump_device_add_left_bytes(uint32_t device, int64_t bytes);

/* Changes cuMemGetInfo's answer for the program (PUMP_REPORT): free memory is the rest of
 * the budget or the limit, and the total includes it. `idle_bytes`: memory in ranges that
 * the program considers released. `total_bytes`: may be NULL. */
void pump_device_answer_memory_info(uint32_t device, uint64_t idle_bytes,
                                    size_t *free_bytes, size_t *total_bytes);

void pump_device_reset(void);

/* Adopts the budgets that the worker requests. Returns a bit for each device that is
 * active and has such a budget: it needs its executors. Called by the link thread. */
uint32_t pump_device_adopt_budgets(void);

/* Reports the smallest and largest budget in bytes that the device adopted from workers:
 * under leases, or because a user set one for the running job. 0, 0: none. */
void pump_device_adopted_budgets(uint32_t device, uint64_t *least, uint64_t *most);

struct pump_gpu_use; /* host.h */
struct pump_neighbours;

/* Reports what this process has on the device; false if it has not used the device. */
bool pump_device_read_use(uint32_t device, struct pump_gpu_use *gpu);

/* Adopts this process's share of each GPU, given these neighbours. Returns the same bits
 * as pump_device_adopt_budgets. Called by the link thread. */
uint32_t pump_device_share(const struct pump_neighbours *neighbours);

/* ---- a smaller budget waits for launch queues (drain.c) -------------------------- */

/* Latest end of the drain, and of the holds of all devices (CLOCK_MONOTONIC); 0: none. */
extern uint64_t pump_drain_until_ns, pump_hold_until_ns;
/* Returns whether threads that issue operations have to wait. */
static inline bool pump_draining(void) {
  return PUMP_UNLIKELY((PUMP_LOAD(&pump_drain_until_ns) | PUMP_LOAD(&pump_hold_until_ns)) !=
                       0);
}
/* Begins a drain unless one lasts: threads wait for their launches. By the link thread. */
void pump_drain_launch_queues(void);
/* Returns whether the drain lasts; ends it if its time is up. */
bool pump_drain_lasts(void);
/* Called before and after a thread waits for an operation; `executed`: whether it has. */
void pump_drain_enter(void);
void pump_drain_leave(bool executed);
void pump_drain_fork_child(void);

/* Holds the job on the device until that time, at most for PUMP_HOLD_MOST_NS, because
 * other jobs have their turn. A time in the past ends the hold. Called by the link
 * thread. */
void pump_hold_set(uint32_t device, uint64_t until_ns);
/* Returns whether the hold lasts. */
bool pump_hold_lasts(uint32_t device);
/* Called before and after a thread waits for the end of the hold. */
void pump_hold_enter(uint32_t device);
void pump_hold_leave(uint32_t device, uint64_t waited_ns);

/* ---- devices and memory that cannot be paged ------------------------------- */

/* Returns whether allocations on this device are to be converted. */
bool pump_device_converts(uint32_t device);
/* Returns whether that will be so after its first context. Requires the guard. */
bool pump_device_will_convert(uint32_t device);

/* Returns the peak of device memory that was not converted, over all devices together. */
uint64_t pump_plain_peak_bytes(void); /* devices.c */

/* ---- contexts (contexts.c) ------------------------------------------------ */

/* Returns the device of the thread's context, prepared; -1 without a context, or if pump
 * does not manage the device. Costs one driver look-up once the context is known. */
int pump_current_device(CUcontext *context);

/* Records that `context` exists on `device`. Cheap if it is known already. */
void pump_context_note(CUdevice device, CUcontext context);
/* Returns the device of a known context, or -1, and its small number in `*index`. */
int pump_context_device(CUcontext context, uint32_t *index);
/* Returns the context of that number if it is on `device`, else NULL. */
CUcontext pump_context_by_index(uint32_t index, uint32_t device);
/* Returns any context of the program on that device, or NULL. */
CUcontext pump_context_of_device(uint32_t device);
/* Moves `context`, or if it is NULL all contexts of `*device`, from the table to `ended`.
 * Returns how many. Sets `*device` to their device. */
uint32_t pump_contexts_remove(CUcontext context, CUdevice *device,
                              CUcontext ended[PUMP_MAX_CONTEXTS]);
/* Voids what threads remember of contexts: one ends, and its handle may be reused. */
void pump_contexts_forget(void);
void pump_contexts_fork_child(void);

/* Records that the program has retained the primary context of the device. */
void pump_primary_retained(CUdevice device, CUcontext context);
/* Returns the primary context if a release or reset may end it, else NULL. `unknown`:
 * there is an active one that the program did not get by cuDevicePrimaryCtxRetain. */
CUcontext pump_primary_that_may_end(CUdevice device, bool reset, bool *unknown);
/* Returns, after that call has succeeded, whether the context is over. A reset keeps the
 * retained references, a release drops one. The contents are gone after any reset, even
 * if the context is active again, and after a release if the driver reports it as
 * inactive. */
bool pump_primary_has_ended(CUdevice device, bool reset);
/* Makes a context of the program current in a thread without one, for calls that the
 * driver itself serves without a context. Returns false if the thread has one, or pump
 * knows none. Requires the guard. */
bool pump_context_borrow(void);
void pump_context_return(bool borrowed);
void pump_primaries_reset(void);

/* ---- device memory that is not converted (plain.c) --------------- */

struct pump_plain_info {
  uint64_t base, bytes;
  CUcontext context; /* the allocation ends with it */
  uint32_t device;
};

/* Record and remove one allocation, for accounting only. If the table is full, further
 * ones are not counted. */
void pump_plain_add(const struct pump_plain_info *info);
bool pump_plain_remove(uint64_t base, struct pump_plain_info *info);
bool pump_plain_known(uint64_t base);
void pump_plain_context_gone(CUcontext context);
void pump_plain_reset(void);

/* Counts what a context of pump itself takes of the device (plain.c). */
void pump_plain_add_own(uint32_t device, CUcontext context, uint64_t bytes);

/* Returns the bytes of an array of that shape with `levels` levels: 0 if it has no memory
 * of its own, UINT64_MAX if no GPU could hold it (array_bytes.c). */
uint64_t pump_array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned int levels);
/* Counts an array by its handle, in whole pages; `info` has its device and context. */
void pump_array_count(struct pump_plain_info info, const void *handle, uint64_t bytes);

/* ---- memory of cuMemCreate (physical.c) ----------------------------------------- */

void pump_physical_created(uint64_t handle, uint64_t bytes, uint32_t device);
/* Adds `change` (1 or -1) to the references to the memory of that handle. */
void pump_physical_add_references(uint64_t handle, int change);
void pump_physical_mapped(uint64_t address, uint64_t bytes, uint64_t handle);
void pump_physical_unmapped(uint64_t address, uint64_t bytes);
/* Returns the peak of that memory, over all devices together. */
uint64_t pump_physical_peak_bytes(void);
void pump_physical_reset(void);

/* ---- memory of graphs that allocate (graph_memory.c) ----------------------------- */

/* Counts the memory of graphs that allocate, with a context current and no lock held.
 * Called when such a graph is uploaded or destroyed, and after its first launch in each
 * era. An era ends when the program trims idle graph memory: then every graph takes
 * memory again. */
extern uint32_t pump_graph_memory_era;
void pump_graph_memory_refresh(void);
/* Counts the graph memory of that device, whichever context is current. */
void pump_graph_memory_count(CUdevice device);
void pump_graph_memory_reset(void);

/* ---- calls that the driver refuses for converted memory (refusal.c) --------------- */

/* Logs one line for each caller's flag, if `address` is converted. `rule_ipc`: the rule
 * "ipc" applies, so later allocations of the calling library stay device memory. */
void pump_refusal_explain(const char *call, uint64_t address, bool rule_ipc,
                          uint32_t *said);

/* Warns once if the kernel that the program has looked up (NULL: one without a name) is
 * NCCL's, and no rule names the calling library. */
void pump_refusal_warn_of_nccl(const char *kernel);

/* ---- other GPUs of the process (peer_access.c) ------------------------------ */

/* Keeps a new converted range on its device if peers may reach it. Requires the guard. */
void pump_peer_keep_on_device(const struct pump_range_info *info);
/* Returns whether peers may reach its memory: converted ranges then prefer the device. */
bool pump_peer_may_reach(uint32_t device);
/* Records that the device of `peer` lets the current device reach its memory. */
void pump_peer_note_context(CUcontext peer);
/* Records that other devices may reach memory of this device. */
void pump_peer_note_device(uint32_t device);
void pump_peer_reset(void);

/* ---- limit --------------------------------------------------------------- */

/* Returns 0 if `bytes` (whole blocks) more may be converted; they then count until
 * returned. Returns -ENOSPC if the host could not take them, but they fit on the
 * device as plain memory. Else returns -ENOMEM, after one line on stderr with the limit and
 * the remedy. */
int pump_limit_admit(uint32_t device, uint64_t bytes);
/* Does the same without the line, for a caller that can still free memory and retry. */
int pump_limit_try(uint32_t device, uint64_t bytes);
void pump_limit_explain(uint32_t device, uint64_t bytes);
void pump_limit_return(uint32_t device, uint64_t bytes);
/* Reports the bytes that may still be converted (`left`), and in total (`whole`;
 * UINT64_MAX if nothing bounds them). */
void pump_limit_read(uint64_t *left, uint64_t *whole);

#endif
