/* memory.h - ranges, devices, contexts, the limit, and memory that is not converted. */
#ifndef PUMP_MEMORY_H
#define PUMP_MEMORY_H

#include "shim/driver/driver.h"

/* ---- ranges (range_table.c) --------------------------------------------- */

/* Guards the range table, the device figures and the private mirrors of both.
 * The link thread holds it while it copies the region into another mapping. Never
 * held across a driver call. Replaced by a fresh one in a forked child. */
extern pthread_mutex_t pump_range_lock;

struct pump_pool_map;
struct pump_range_info {
  uint64_t base;
  uint64_t length_bytes;    /* as the driver gave it: whole blocks when converted */
  uint64_t requested_bytes; /* what the program requested */
  uint32_t kind;            /* PUMP_RANGE_* */
  uint32_t device;
  uint32_t slot;
  uint32_t generation;
  const struct pump_pool_map *pool; /* of a segment of our pool; NULL: no such one */
  CUcontext context;                /* the range ends with it; not in the shared table */
  bool by_handle; /* its handles count in the limit and on the device (pool/mapped.h) */
  uint64_t displaced_bytes; /* out, pump_range_add: bytes in the limit that it removed */
};

/* The live range that an address lies in. */
struct pump_hit {
  uint32_t slot;
  uint32_t generation;
  uint32_t device;
  uint32_t kind;
  uint64_t base;
  uint64_t length_bytes;
  uint64_t requested_bytes;
  const struct pump_pool_map *pool; /* see pump_range_info */
  bool by_handle;                   /* the same */
};

/* Adds a live range of `info` (base, lengths, kind, device, context); fills slot
 * and generation. A range that held its blocks is removed (displaced_bytes): the
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
/* Whether it lies in such a range of memory that pump made managed. */
static inline bool pump_converted(uint64_t address) {
  struct pump_hit hit;
  return pump_range_lookup(address, &hit) && hit.kind == PUMP_RANGE_CONVERTED;
}

/* How often a range has come or gone: what was looked up before holds as long as this
 * stays the same. */
uint64_t pump_range_changes(void);

/* What lies outside [low, end) is in no live range; read relaxed, both. */
extern struct pump_range_bounds {
  uint64_t low, end;
} pump_range_bounds;

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
 * was carried over from an earlier mapping may have been overwritten. Under
 * pump_range_lock. */
void pump_range_republish(void);

/* Empties table, index and mirrors; no other thread runs (start of a process). */
void pump_range_reset(void);

/* Whether pump has put the block of `address` under READ_MOSTLY. */
bool pump_hinted(uint64_t address);
/* These blocks, by number, are now, or not any more; a range that comes or goes ends it. */
void pump_hints_note(uint64_t first_block, uint64_t end_block, bool hinted);

/* ---- devices and their figures (devices.c) ------------------------ */

/* Once per process and device, with a context of it current: fills
 * pump_shm->devices[device] and decides whether memory can be converted there.
 * Later calls cost one load. false: pump leaves this device alone. */
bool pump_device_prepare(CUdevice device);

/* Live bytes changed. The caller holds pump_range_lock. */
void pump_device_account(uint32_t device, int64_t range_bytes, int64_t plain_bytes);

/* So much more managed memory of the device, or less, that may have pages there but belongs
 * to no allocation: it makes way for others. */
void pump_device_left(uint32_t device, int64_t bytes);

/* Turns cuMemGetInfo's answer into what the program sees (PUMP_REPORT): what the budget
 * leaves, or what the limit leaves, then of a total that holds it. idle_bytes: of ranges
 * that the program takes for given back. total_bytes: or NULL. */
void pump_device_report(uint32_t device, uint64_t idle_bytes, size_t *free_bytes,
                        size_t *total_bytes);

void pump_device_reset(void);

/* Takes over the budgets that the worker asks for. Returns a bit for each device that is
 * active and has such a budget: it needs its executors. By the link thread. */
uint32_t pump_device_adopt_budgets(void);

/* The smallest and the largest budget in bytes that the device adopted from workers, that
 * is, under leases or because a user set one for the running job; 0, 0: none. */
void pump_device_budgets(uint32_t device, uint64_t *least, uint64_t *most);

struct pump_card; /* host.h */
struct pump_neighbours;

/* What this process has on the device; false: it has not used it. */
bool pump_device_card(uint32_t device, struct pump_card *card);

/* Takes over this process's share of each card, among those. Answers like
 * pump_device_adopt_budgets. By the link thread. */
uint32_t pump_device_share(const struct pump_neighbours *neighbours);

/* ---- a smaller budget waits for launch queues (drain.c) -------------------------- */

/* When the drain and the hold of any device end at the latest, CLOCK_MONOTONIC; 0: there is
 * none. */
extern uint64_t pump_drain_until_ns, pump_hold_until_ns;
/* Threads that issue operations have to wait. */
static inline bool pump_draining(void) {
  return PUMP_UNLIKELY((PUMP_LOAD(&pump_drain_until_ns) | PUMP_LOAD(&pump_hold_until_ns)) !=
                       0);
}
/* By the link thread; nothing while one lasts. */
void pump_drain_begin(void);
/* Looks at the clock, and ends it in time. */
bool pump_drain_lasts(void);
/* A thread waits for an operation, and no longer; whether that has executed. */
void pump_drain_waits(void);
void pump_drain_waited(bool executed);
void pump_drain_fork_child(void);

/* The job waits for its turn on the device until then, PUMP_HOLD_MOST_NS from now at most;
 * a time that has passed: it waits no longer. By the link thread. */
void pump_hold(uint32_t device, uint64_t until_ns);
/* Looks at the clock. */
bool pump_hold_lasts(uint32_t device);
/* Around a thread's wait for the turn. */
void pump_hold_waits(uint32_t device);
void pump_hold_waited(uint32_t device, uint64_t waited_ns);

/* ---- devices and memory that cannot be paged ------------------------------- */

/* true when allocations on this device are to be converted. */
bool pump_device_converts(uint32_t device);
/* true when that will be so once it has its first context. In the guard. */
bool pump_device_will_convert(uint32_t device);

/* The most device memory that was not converted, on all devices at once. */
uint64_t pump_plain_peak_bytes(void); /* devices.c */

/* ---- contexts (contexts.c) ------------------------------------------------ */

/* The device of the calling thread's context, prepared; -1 when there is no context or the
 * device is left alone. Costs one driver look-up once this thread knows its context. */
int pump_current_device(CUcontext *context);

/* `context` exists on `device`. Cheap when known already. */
void pump_context_seen(CUdevice device, CUcontext context);
/* Device of a context seen before, or -1; `*index` (may be NULL) its small number. */
int pump_context_device(CUcontext context, uint32_t *index);
/* The context of that number if it lives on `device`, else NULL. */
CUcontext pump_context_at(uint32_t index, uint32_t device);
/* Any context of the program's on that device, or NULL. */
CUcontext pump_context_on(uint32_t device);
/* Takes `context`, or where it is NULL all contexts of `*device`, out of the table and into
 * `ended`; returns how many. `*device` becomes theirs. */
uint32_t pump_contexts_end(CUcontext context, CUdevice *device,
                           CUcontext ended[PUMP_MAX_CONTEXTS]);
/* A context goes away, and its handle may come back as another's: what threads remember of
 * contexts is void. */
void pump_contexts_forget(void);
void pump_contexts_fork_child(void);

/* The program has retained the primary context of the device. */
void pump_primary_retained(CUdevice device, CUcontext context);
/* The primary context if a release or a reset of it may end it, else NULL. `unknown`: there
 * is an active one that the program did not get by cuDevicePrimaryCtxRetain. */
CUcontext pump_primary_last(CUdevice device, bool reset, bool *unknown);
/* After that call has succeeded: whether the context is over. A reset keeps the
 * references that were retained, a release gives one back. What was in the context is
 * gone after a reset, active again or not, and after a release when the driver says
 * that it is not active. */
bool pump_primary_over(CUdevice device, bool reset);
/* Makes a context of the program's current in a thread that has none, for calls that the
 * driver itself serves without one; false: it has one, or pump knows none. Under the
 * guard. */
bool pump_context_borrow(void);
void pump_context_return(bool borrowed);
void pump_primaries_reset(void);

/* ---- device memory that is not converted (plain.c) --------------- */

struct pump_plain_info {
  uint64_t base, bytes;
  CUcontext context; /* the allocation ends with it */
  uint32_t device;
};

/* Remember and forget one allocation, for the figures only; a full table means
 * that further ones are not counted. */
void pump_plain_add(const struct pump_plain_info *info);
bool pump_plain_remove(uint64_t base, struct pump_plain_info *info);
bool pump_plain_known(uint64_t base);
void pump_plain_context_gone(CUcontext context);
void pump_plain_reset(void);

/* Counts what a context of our own takes of the device (plain.c). */
void pump_plain_own(uint32_t device, CUcontext context, uint64_t bytes);

/* Bytes of an array of that shape and so many levels: 0 where it has no memory of its own,
 * UINT64_MAX where no card could hold them (array_bytes.c). */
uint64_t pump_array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned int levels);
/* Counts memory by its handle, in whole pages; `info` has its device and context. */
void pump_array_count(struct pump_plain_info info, const void *handle, uint64_t bytes);

/* ---- memory of cuMemCreate (physical.c) ----------------------------------------- */

void pump_physical_created(uint64_t handle, uint64_t bytes, uint32_t device);
/* Counts a reference more or less (1, -1) to the memory of that handle. */
void pump_physical_count(uint64_t handle, int change);
void pump_physical_mapped(uint64_t address, uint64_t bytes, uint64_t handle);
void pump_physical_unmapped(uint64_t address, uint64_t bytes);
/* The most that there was, on all devices at once. */
uint64_t pump_physical_peak_bytes(void);
void pump_physical_reset(void);

/* ---- memory of graphs that allocate (graph_memory.c) ----------------------------- */

/* Counts what graphs that allocate hold; with a context current, and no lock held. Due
 * where such a graph is uploaded or destroyed, and after its first launch in each era. An
 * era ends when the program has idle memory given back: then all graphs take theirs anew.
 */
extern uint32_t pump_graph_memory_era;
void pump_graph_memory_look(void);
/* The same of that device, whichever context is current. */
void pump_graph_memory_count(CUdevice device);
void pump_graph_memory_reset(void);

/* ---- calls that the driver refuses for converted memory (refusal.c) --------------- */

/* One line for each `said`, if `address` is converted. `rule_ipc`: the rule "ipc" applies,
 * so later allocations of the calling library stay device memory. */
void pump_refusal_explain(const char *call, uint64_t address, bool rule_ipc,
                          uint32_t *said);

/* The program has looked that kernel up (NULL: a kernel without a name). Warns once where
 * it is NCCL's and no rule names the library that has called us. */
void pump_kernel_note(const char *kernel);

/* ---- other GPUs of the process (peer_access.c) ------------------------------ */

/* A converted range has been added: where a peer may reach it, it is to stay on its device.
 * Under the guard. */
void pump_peer_settle(const struct pump_range_info *info);
/* Whether a peer may reach memory of the device: converted ranges prefer it then. */
bool pump_peer_reached(uint32_t device);
/* From this call on that context's device lets the current one reach its memory. */
void pump_peer_reach(CUcontext peer);
/* Other devices reach memory of that one from this call on. */
void pump_peer_reaches(uint32_t device);
void pump_peer_reset(void);

/* ---- limit --------------------------------------------------------------- */

/* May `bytes` (whole blocks) more be converted? 0, and they count until returned.
 * -ENOSPC: the host could not take them, but the device still has room for them as
 * plain memory. -ENOMEM: no, after one line on stderr that names the limit and the
 * remedy. */
int pump_limit_admit(uint32_t device, uint64_t bytes);
/* The same without the line, for a caller that can still free memory and ask again. */
int pump_limit_try(uint32_t device, uint64_t bytes);
void pump_limit_explain(uint32_t device, uint64_t bytes);
void pump_limit_return(uint32_t device, uint64_t bytes);
/* left: bytes that may still be converted; whole: all that may, UINT64_MAX where nothing
 * bounds it. */
void pump_limit_room(uint64_t *left, uint64_t *whole);

#endif
