/* gpu_engine.h - one modelled GPU: streams, events, engines and unified memory.
 *
 * The only interface of the model: the virtual driver calls it with a real
 * clock, the simulator with a virtual one. Deterministic discrete events. No
 * I/O, no threads, no locks, no clock, no allocation in here: the caller brings
 * the memory, the time and a lock of its own around every call.
 *
 * Rules
 *   - Every call that takes `now_ns` first carries out all that happens up to
 *     then, in the order of virtual time. A time before the engine's own counts
 *     as the engine's own. How often it is called has no effect on any
 *     completion time; only submissions and their times have.
 *   - A block is 2 MiB; its number is (address - arena base) >> 21 in the
 *     caller's arena. A managed range owns consecutive blocks.
 *   - `hooks` may be NULL, and so may each of its members. A hook must not call
 *     the engine.
 *   - The state holds no pointer; it may be copied or mapped elsewhere.
 *   - Stream 0 is the legacy default stream and always exists.
 *
 * What is modelled and how: see the DESIGN block of gpu_engine.c and uvm_model.c.
 */
#ifndef PUMP_GPU_ENGINE_H
#define PUMP_GPU_ENGINE_H

#include "uvm_profile.h"

#ifdef PUMP_LAB_EXPORT
#pragma GCC visibility push(default)
#endif
/* cffi: begin */
#define GPU_BLOCK_BYTES 2097152
#define GPU_PAGES_PER_BLOCK 32 /* of 64 KiB */
#define GPU_KERNEL_STEPS 16
#define GPU_STREAM_QUEUE 1024
#define GPU_MAX_STREAMS 1024
#define GPU_PREFETCH_SLICE_BLOCKS 16
#define GPU_NEVER 0xffffffffffffffff /* no time, no end in sight */
#define GPU_MAX_OWNERS 16
/* Priorities of streams: 0, the default, is the lowest. Each has work queues of its own. */
#define GPU_PRIORITIES 6
#define GPU_CONNECTIONS 8 /* work queues of a priority; gpu_connections() changes it */
#define GPU_CONNECTIONS_MOST 32

/* Locks of the driver, and calls that wait for them. Contexts are numbered by the caller */
#define GPU_LOCK_CONTEXT 1
#define GPU_LOCK_SPACE 2
#define GPU_LOCK_CONTEXTS 64
#define GPU_CALL_LAUNCH 1 /* and whatever else gives the GPU work */
#define GPU_CALL_PREFETCH 2

/* Results */
#define GPU_OK 0
#define GPU_WAIT 1       /* launch queue full: try again at retry_ns */
#define GPU_MORE 2       /* prefetch call has more slices */
#define GPU_INVALID -1   /* an argument makes no sense */
#define GPU_NO_MEMORY -2 /* the device's memory does not suffice */
#define GPU_FULL -3      /* a capacity of the state is used up */

#define GPU_NO_EVENT 0xffffffff /* a record that marks its place only */

/* Kinds of operation */
#define GPU_KERNEL 1
#define GPU_COPY_H2D 2
#define GPU_COPY_D2H 3
#define GPU_COPY_LOCAL 4 /* inside the device: takes duration_ns */
#define GPU_MEMSET 5     /* takes duration_ns */
#define GPU_PREFETCH_IN 6
#define GPU_PREFETCH_OUT 7
#define GPU_EVENT_RECORD 8
#define GPU_EVENT_WAIT 9
#define GPU_HOST 10    /* starts in stream order, ends by gpu_complete() */
#define GPU_DISCARD 11 /* of the uses' blocks */

/* Access, as in PUMP_ACCESS_*: 0 counts as both */
#define GPU_READ 1
#define GPU_WRITE 2
/* A kernel reaches many blocks of the use at once, in any order: a gather, strides, the
 * second operand of a GEMM. Else it sweeps over the use. */
#define GPU_WIDE 4

/* Kinds of discard (uvm.h, UvmDiscard). UNMAP is what the public calls make: nothing is
 * resident then, the next access faults, and a write or a prefetch ends it. KEEP
 * leaves the mapping: writes do not clear the state and are lost at eviction. */
#define GPU_DISCARD_KEEP 1
#define GPU_DISCARD_UNMAP 2

/* Advice (gpu_advise). A preferred GPU matters to the end of READ_MOSTLY alone. */
#define GPU_ADVICE_READ_MOSTLY 1
#define GPU_ADVICE_READ_MOSTLY_ENDS 2
#define GPU_ADVICE_PREFER_GPU 3
#define GPU_ADVICE_PREFER_NONE 4

/* Streams */
#define GPU_STREAM_BLOCKING 0
#define GPU_STREAM_NONBLOCKING 1

/* Eviction lists */
#define GPU_LIST_NONE 0
#define GPU_LIST_UNUSED 1
#define GPU_LIST_DISCARDED 2
#define GPU_LIST_USED 3

/* Last error: what went wrong in the caller's use of the model */
#define GPU_ERROR_NONE 0
#define GPU_ERROR_USE_OF_FREED 1     /* an operation touched a freed block */
#define GPU_ERROR_COMMAND_ON_FREED 2 /* prefetch or discard of a freed block */
#define GPU_ERROR_OUT_OF_BOUNDS 3    /* blocks beyond the arena */
#define GPU_ERROR_DOUBLE_CREATE 4    /* a range over live blocks */
#define GPU_ERROR_DOUBLE_FREE 5

struct gpu_engine;

struct gpu_capacity {
  uint32_t blocks;  /* of the arena */
  uint32_t streams; /* the legacy stream included, at most GPU_MAX_STREAMS */
  uint32_t events;
  uint32_t operations; /* pending at once, all streams together */
  uint32_t uses;       /* of all pending operations together */
  uint32_t owners;     /* of a shared GPU, 2 to GPU_MAX_OWNERS; else 0 */
  uint32_t notes;      /* of a shared GPU: waiting for one owner, a power of two */
};

/* How pages move. */
enum gpu_moves {
  GPU_MOVE_FAULT,    /* to the GPU, because an operation touched them */
  GPU_MOVE_FIRST,    /* the same, but they had no contents to be copied */
  GPU_MOVE_PREFETCH, /* to the GPU by a prefetch */
  GPU_MOVE_NONE,     /* a prefetch found all pages on the GPU */
  GPU_MOVE_OUT,      /* to the host by a prefetch */
  GPU_MOVE_AHEAD,    /* copied to the host, and kept on the GPU (READ_MOSTLY) */
  GPU_MOVE_EVICT,    /* to the host, because the driver took the block's memory */
};

struct gpu_move {
  uint32_t how, block;
  uint32_t pages; /* a bit each, without those that need no copy to the host */
  uint64_t now_ns;
  uint64_t ready_ns; /* when the copy is expected to end; of EVICT: now_ns */
};

/* Called in model order as time advances. `start`: the operation begins to
 * execute; effects on data belong here. `finish`: it has ended (also for
 * prefetches made through gpu_prefetch_step). `drop`: the block's contents are
 * gone without a copy (it was discarded, and with KEEP then evicted or moved). `move`:
 * pages of a block move. `stall`: the operation waits for faults (`fault`) or for pages
 * that are on their way. */
struct gpu_hooks {
  void *context;
  void (*start)(void *context, uint64_t cookie, uint64_t ticket, uint64_t time_ns);
  void (*finish)(void *context, uint64_t cookie, uint64_t ticket, uint64_t start_ns,
                 uint64_t end_ns);
  void (*drop)(void *context, uint32_t block);
  void (*move)(void *context, const struct gpu_move *move);
  void (*stall)(void *context, uint64_t ticket, bool fault, uint64_t from_ns,
                uint64_t until_ns);
};

/* Consecutive blocks that an operation touches. `pages_per_block` is the number
 * of 64 KiB pages touched in each block, 0 for all: a sweep has all, an
 * irregular gather few. `pages` names them instead where it is not 0: a bit each. */
struct gpu_use {
  uint32_t first_block;
  uint32_t block_count;
  uint16_t pages_per_block;
  uint16_t access;
  uint32_t pages;
};

struct gpu_operation {
  uint32_t kind;
  uint32_t use_count;
  const struct gpu_use *uses; /* device-side managed memory only */
  uint64_t duration_ns;       /* kernel, local copy, memset: time of computing */
  uint64_t length_bytes;      /* copies over the link */
  uint64_t cookie;            /* the caller's; given back to the hooks */
  uint32_t event;             /* record and wait */
  uint32_t discard_kind;      /* discard */
};

struct gpu_submitted {
  uint64_t ticket;   /* of the operation: gpu_ticket_query(), gpu_complete() */
  uint64_t retry_ns; /* GPU_WAIT: not before then; GPU_NEVER when that depends on a
                        gpu_complete() */
};

/* What a call of the host costs: its caller is busy until caller_free_ns, the
 * effect is complete at complete_ns. Between waits_from_ns and waits_until_ns, times that
 * may have passed, the caller waits for copies (all its waits of a call put together); the
 * rest of its time is the processor's work, the share that call_work_share of the profile
 * gives.
 */
struct gpu_cost {
  uint64_t caller_free_ns;
  uint64_t complete_ns;
  uint64_t waits_from_ns;
  uint64_t waits_until_ns;
};

/* One call of cuMemPrefetchAsync, or one range of cuMemDiscardBatchAsync, carried out by
 * gpu_prefetch_step(). The caller fills the first part, zeroes the rest, and does not read
 * at the last. */
struct gpu_prefetch_call {
  uint32_t stream;
  uint32_t first_block;
  uint32_t block_count;
  uint32_t to_host;      /* 1: to the CPU */
  uint32_t discard_kind; /* GPU_DISCARD_*: no prefetch but a discard */
  uint32_t context;      /* whose lock it takes, below GPU_LOCK_CONTEXTS */
  uint64_t cookie;
  /* results */
  struct gpu_cost cost; /* complete_ns only of the slices done so far */
  uint64_t ticket;
  uint64_t retry_ns;
  /* the engine's */
  uint32_t begun;
  uint32_t blocks_done;
};

struct gpu_counters {
  /* unified memory */
  uint64_t fault_blocks; /* blocks whose first pages came by faults */
  uint64_t fault_pages;  /* faults: 64 KiB pages */
  uint64_t fault_batches;
  uint64_t fault_groups; /* blocks that batches served, one in several batches often */
  uint64_t nonreplayable_blocks; /* faults of copy engines */
  uint64_t remote_blocks;        /* touched in host memory: no memory left to migrate to */
  uint64_t h2d_demand_bytes;
  uint64_t h2d_prefetch_bytes;
  uint64_t h2d_copy_bytes;
  uint64_t h2d_remote_bytes;
  uint64_t d2h_evict_bytes;    /* the driver's own evictions */
  uint64_t d2h_prefetch_bytes; /* prefetch to the CPU */
  uint64_t d2h_ahead_bytes;    /* the same under READ_MOSTLY: the GPU keeps its copy */
  uint64_t d2h_copy_bytes;
  uint64_t populated_bytes; /* zeroed in place, no link */
  uint64_t dropped_bytes;   /* were resident, and were discarded: gone without a copy */
  uint64_t freed_bytes;     /* resident when their range was freed */
  uint64_t clean_bytes;     /* left without a copy: the host's was valid */
  uint64_t collapsed_pages; /* of 4 KiB, of duplicates: a fault each, written by the GPU */
  uint64_t evictions_used;
  uint64_t evictions_unused;
  uint64_t evictions_discarded;
  uint64_t prefetch_in_blocks;
  uint64_t prefetch_out_blocks;
  uint64_t prefetch_resident_blocks; /* had nothing to move: refreshed only */
  uint64_t discarded_blocks;
  uint64_t host_alloc_blocks;
  /* engines; a compute stall is time a running kernel waited */
  uint64_t kernels;
  uint64_t copies;
  uint64_t compute_busy_ns; /* computing, without stalls */
  uint64_t stall_fault_ns;
  uint64_t stall_arrival_ns; /* waiting for a prefetch that came late */
  uint64_t copy_stall_ns;    /* copies and memsets waiting for memory */
  uint64_t h2d_busy_ns;
  uint64_t d2h_busy_ns;
  uint64_t caller_ns; /* of prefetch, discard and advice calls */
  /* misuse */
  uint64_t errors;
  uint32_t last_error; /* GPU_ERROR_* */
  uint32_t last_error_block;
  /* of a limited host */
  uint64_t flash_read_bytes;
  uint64_t flash_write_bytes;
};

/* Where the contents of a block are that is not on the GPU. */
#define GPU_IN_HOST 1
#define GPU_ON_FLASH 2
#define GPU_TO_FLASH 4 /* on the GPU, and it goes there when it leaves */

#define GPU_HOST_VICTIMS 64

/* A host that does not hold everything, and flash behind it. */
struct gpu_host {
  uint64_t memory_bytes;
  double read_gbps, write_gbps; /* of flash, 10^9 bytes a second */
  double read_us, write_us;     /* from the last byte until it is there */
  double write_budget_gbps;     /* in the mean since the beginning; 0: none */
};

/* What one owner of a shared GPU has. */
struct gpu_owner_info {
  uint64_t plain_bytes;
  uint64_t resident_bytes;      /* managed */
  uint64_t lost_notes;          /* of blocks dropped, when too many waited */
  struct gpu_counters counters; /* of what it did, evictions of others' blocks included */
};

struct gpu_memory {
  uint64_t total_bytes;
  uint64_t plain_bytes;    /* cuMemAlloc */
  uint64_t resident_bytes; /* blocks that hold memory of the GPU, and are not UNUSED */
  uint64_t unused_bytes;   /* held, nothing resident: first victims */
  uint64_t free_bytes;
};

/* Bytes that the state needs; 0 when a capacity is out of bounds. */
size_t gpu_engine_bytes(const struct gpu_capacity *capacity);

/* Where in a shared GPU's memory the blocks of an owner lie; for `owner` = owners, what
 * comes before all of them. */
void gpu_engine_part(const struct gpu_capacity *capacity, uint32_t owner,
                     uint64_t *offset_bytes, uint64_t *length_bytes);

/* Builds the state in `memory` (8-byte aligned). NULL when it is too small.
 * `memory_bytes` 0 means the profile's. The profile is copied. The memory of a shared GPU
 * has to be zeroed: its table of blocks is large and mostly unused. */
struct gpu_engine *gpu_engine_create(void *memory, size_t bytes,
                                     const struct gpu_capacity *capacity,
                                     const struct uvm_profile *profile,
                                     uint64_t memory_bytes, uint64_t now_ns);

/* Carries out all that happens up to `now_ns`. */
void gpu_advance(struct gpu_engine *engine, uint64_t now_ns, const struct gpu_hooks *hooks);

/* When something happens next; GPU_NEVER when nothing will without a call. */
uint64_t gpu_next_event_ns(const struct gpu_engine *engine);

/* Time up to which the engine has advanced. */
uint64_t gpu_now_ns(const struct gpu_engine *engine);

/* Sets how many work queues streams of a priority share, 1 to GPU_CONNECTIONS_MOST; of a
 * shared GPU, the actor's. Streams that exist keep theirs. */
int gpu_connections(struct gpu_engine *engine, uint32_t connections);

/* Sets which locks the driver holds (GPU_LOCK_*); none of a new GPU. Not of a shared GPU,
 * where each process has its own. */
int gpu_locks(struct gpu_engine *engine, uint32_t locks);
/* When a call (GPU_CALL_*) in a context may begin, as far as it is known. The caller waits
 * until then and calls again. */
uint64_t gpu_call_ns(const struct gpu_engine *engine, uint32_t call, uint32_t context);
/* The process maps or unmaps memory, which takes so long once it may; returns the end. */
uint64_t gpu_map_memory(struct gpu_engine *engine, uint64_t now_ns,
                        const struct gpu_hooks *hooks, uint64_t taken_ns);

/* Streams: returns a number from 1, or GPU_FULL. Destroying a busy stream lets
 * its operations finish first. */
int gpu_stream_create(struct gpu_engine *engine, uint32_t flags, uint32_t priority);
int gpu_stream_destroy(struct gpu_engine *engine, uint32_t stream);

/* 1: idle. 0: busy, and not idle before *earliest_ns (a sound lower bound, made
 * for sleeping; GPU_NEVER when only gpu_complete() can end it). GPU_INVALID. */
int gpu_stream_query(struct gpu_engine *engine, uint64_t now_ns,
                     const struct gpu_hooks *hooks, uint32_t stream, uint64_t *earliest_ns);

/* Events: returns a number from 0, or GPU_FULL. Recording and waiting are
 * operations. A destroyed event keeps its place until pending ones are through. */
int gpu_event_create(struct gpu_engine *engine);
int gpu_event_destroy(struct gpu_engine *engine, uint32_t event);
/* 1: the last record has completed (or there was none), at *time_ns (0 when there
 * was none). 0: not yet, and not before *time_ns. GPU_INVALID. */
int gpu_event_query(struct gpu_engine *engine, uint64_t now_ns,
                    const struct gpu_hooks *hooks, uint32_t event, uint64_t *time_ns);

/* Puts an operation into a stream: GPU_OK, GPU_WAIT, GPU_INVALID, GPU_FULL. A
 * GPU_PREFETCH_* or GPU_DISCARD is carried out by the driver's deferred worker. */
int gpu_submit(struct gpu_engine *engine, uint64_t now_ns, const struct gpu_hooks *hooks,
               uint32_t stream, const struct gpu_operation *operation,
               struct gpu_submitted *out);
/* 1: the operation of this ticket has ended. 0: not yet, and not before
 * *earliest_ns (a sound lower bound; GPU_NEVER when only gpu_complete() can end it).
 * To wait for all that a stream holds, submit a GPU_EVENT_RECORD with event GPU_NO_EVENT
 * and wait for its ticket. */
int gpu_ticket_query(struct gpu_engine *engine, uint64_t now_ns,
                     const struct gpu_hooks *hooks, uint64_t ticket, uint64_t *earliest_ns);
/* Ends a GPU_HOST operation that has started. */
int gpu_complete(struct gpu_engine *engine, uint64_t now_ns, const struct gpu_hooks *hooks,
                 uint64_t ticket);

/* One slice of a prefetch or discard call. On an idle stream the calling thread does the
 * work: after GPU_MORE it is busy until call->cost.caller_free_ns and calls again.
 * On a busy stream the call is deferred and returns GPU_OK at once. After GPU_OK
 * the caller is busy until caller_free_ns too. Also GPU_WAIT, GPU_INVALID, GPU_FULL. */
int gpu_prefetch_step(struct gpu_engine *engine, uint64_t now_ns,
                      const struct gpu_hooks *hooks, struct gpu_prefetch_call *call);

/* Managed ranges. Destroying one ends at cost->complete_ns, when transfers of its
 * blocks that are under way have ended. */
int gpu_range_create(struct gpu_engine *engine, uint64_t now_ns,
                     const struct gpu_hooks *hooks, uint32_t first_block,
                     uint32_t block_count);
int gpu_range_destroy(struct gpu_engine *engine, uint64_t now_ns,
                      const struct gpu_hooks *hooks, uint32_t first_block,
                      uint32_t block_count, struct gpu_cost *cost);

/* Advice on blocks (GPU_ADVICE_*), of any range, by the calling thread. What it does counts
 * at once, but it takes until caller_free_ns: it waits for prefetch calls, fault batches
 * and transfers of these blocks that are under way, and later ones wait for it.
 * GPU_INVALID. */
int gpu_advise(struct gpu_engine *engine, uint64_t now_ns, const struct gpu_hooks *hooks,
               uint32_t first_block, uint32_t block_count, uint32_t advice,
               struct gpu_cost *cost);
/* How many of these blocks are under READ_MOSTLY; `kept_blocks`: how many hold pages that
 * only the GPU has. */
uint32_t gpu_read_mostly(const struct gpu_engine *engine, uint32_t first_block,
                         uint32_t block_count, uint32_t *kept_blocks);
/* The block's pages that are mapped for the CPU, a bit for each. */
uint32_t gpu_cpu_mapped(const struct gpu_engine *engine, uint32_t block);
/* Plain device memory: evicts managed blocks if it has to. GPU_NO_MEMORY when
 * even that does not suffice; then nothing has changed. */
int gpu_plain_reserve(struct gpu_engine *engine, uint64_t now_ns,
                      const struct gpu_hooks *hooks, uint64_t length_bytes,
                      struct gpu_cost *cost);
int gpu_plain_release(struct gpu_engine *engine, uint64_t now_ns,
                      const struct gpu_hooks *hooks, uint64_t length_bytes);

/* Limits the host's memory for what leaves the GPU, with flash behind it. Before anything
 * has left. GPU_INVALID for less than a block, a rate that is not positive, or a negative
 * time. */
int gpu_host_limit(struct gpu_engine *engine, const struct gpu_host *host);
/* Where the contents of a block are that is not on the GPU: GPU_IN_HOST, GPU_ON_FLASH, both
 * or neither. */
uint32_t gpu_host_place(const struct gpu_engine *engine, uint32_t block);
/* Blocks that the host can still take. */
uint32_t gpu_host_room(const struct gpu_engine *engine);
/* Begins to copy a block that is in the host alone to flash, or one that is on flash alone
 * to the host; `*free_ns`: when the next one can begin. GPU_INVALID where it is elsewhere,
 * or the host is full. */
int gpu_flash_write(struct gpu_engine *engine, uint64_t now_ns,
                    const struct gpu_hooks *hooks, uint32_t block, uint64_t *free_ns);
int gpu_flash_read(struct gpu_engine *engine, uint64_t now_ns,
                   const struct gpu_hooks *hooks, uint32_t block, uint64_t *free_ns);
/* Gives the host's memory of a block back that is on flash as well. GPU_INVALID where it
 * is not, or not yet. */
int gpu_host_drop(struct gpu_engine *engine, uint64_t now_ns, const struct gpu_hooks *hooks,
                  uint32_t block);
/* Blocks of the host that go to flash where it is full, in this order, instead of what
 * comes; until the next call. */
void gpu_host_victims(struct gpu_engine *engine, const uint32_t *blocks, uint32_t count);
/* Such a block of the GPU goes to flash when it leaves, past the host. */
void gpu_leaves_for_flash(struct gpu_engine *engine, uint32_t block);
/* From this call on each fault batch and each slice of a prefetch takes between 1 - share
 * and 1 + share of its time on the link, in a sequence that `seed` determines. GPU_INVALID
 * for a share outside [0, 1). */
int gpu_jitter(struct gpu_engine *engine, double share, uint64_t seed);
void gpu_memory_get(const struct gpu_engine *engine, struct gpu_memory *out);

void gpu_counters_get(const struct gpu_engine *engine, struct gpu_counters *out);
/* How many operations that have not ended use any of these blocks. */
uint32_t gpu_uses_pending(const struct gpu_engine *engine, uint32_t first_block,
                          uint32_t block_count);

/* A shared GPU (capacity.owners): several processes use one state, each as an owner of
 * streams, events, blocks and plain memory, and every call is the actor's. Owner n has the
 * blocks from n * blocks / owners on and the legacy stream n; its work waits for no
 * other's by stream order. An engine with work of several owners waiting takes turns: whose
 * work it did for the shortest time is next. Memory, eviction lists, link and the serial
 * fault handler are common to all. `start` and `drop` of others' work, which the actor's
 * time sets off, are kept for them as notes; others' `finish` is not reported.
 *
 * Callers hold a lock, and between gpu_lock_taken() and gpu_lock_given() a journal keeps
 * the state whole (uvm_journal.h): it is as after the last completed step, even if the
 * caller is killed in the middle of one. */

/* Returns 1 when the last holder of the lock was killed within a step, which is undone. */
int gpu_lock_taken(struct gpu_engine *engine, uint32_t actor);
void gpu_lock_given(struct gpu_engine *engine);
/* Number of a new owner, or GPU_FULL. With the lock, and any actor. */
int gpu_owner_join(struct gpu_engine *engine);
/* All that it had is gone at once: work, transfers not yet booked, memory. */
void gpu_owner_leave(struct gpu_engine *engine, uint64_t now_ns,
                     const struct gpu_hooks *hooks, uint32_t owner);
/* Calls the hooks for what others' time has set off of the actor's work, in order. */
void gpu_notes_deliver(struct gpu_engine *engine, const struct gpu_hooks *hooks);
int gpu_owner_get(const struct gpu_engine *engine, uint32_t owner,
                  struct gpu_owner_info *out);

/* Checks the whole state: 0, or the number of the first invariant that is
 * broken. */
int gpu_check(const struct gpu_engine *engine);
/* cffi: end */
#ifdef PUMP_LAB_EXPORT
#pragma GCC visibility pop
#endif

#endif
