/* gpu_engine.h - one modelled GPU: streams, events, engines and unified memory.
 *
 * The only interface of the model: the virtual driver calls it with a real clock, the
 * simulator with a virtual one. The model is a deterministic discrete-event simulation. It
 * does no I/O, starts no threads, takes no locks, reads no clock and allocates no memory.
 * The caller supplies the memory and the time, and holds its own lock around each call.
 *
 * Rules
 *   1. A call that takes `now_ns` first processes all events up to that time, in order
 *      of virtual time. A time before the engine's own counts as the engine's own. Only
 *      submissions and their times affect completion times; the number of calls does
 *      not.
 *   2. A block is 2 MiB; its number is (address - arena base) >> 21 in the caller's
 *      arena. A managed range owns consecutive blocks.
 *   3. `hooks` may be NULL, and so may each of its members. A hook must not call the
 *      engine.
 *   4. The state holds no pointer; it may be copied or mapped elsewhere.
 *   5. Stream 0 is the legacy default stream and always exists.
 *
 * The DESIGN blocks of gpu_engine.c and uvm_model.h describe the model. */
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
#define GPU_NEVER 0xffffffffffffffff /* no such time, or no end known */
#define GPU_MAX_OWNERS 16
/* Priorities of streams: 0, the default, is the lowest. Each has its own work queues. */
#define GPU_PRIORITIES 6
#define GPU_CONNECTIONS 8 /* work queues of a priority; see gpu_connections() */
#define GPU_CONNECTIONS_MOST 32

/* Locks of the driver, and calls that wait for them. The caller numbers the contexts. */
#define GPU_LOCK_CONTEXT 1
#define GPU_LOCK_SPACE 2
#define GPU_LOCK_CONTEXTS 64
#define GPU_CALL_LAUNCH 1 /* launches, and all other calls that give the GPU work */
#define GPU_CALL_PREFETCH 2

/* Results */
#define GPU_OK 0
#define GPU_WAIT 1       /* launch queue full: try again at retry_ns */
#define GPU_MORE 2       /* the prefetch call has more slices */
#define GPU_INVALID -1   /* an invalid argument */
#define GPU_NO_MEMORY -2 /* not enough device memory */
#define GPU_FULL -3      /* a capacity of the state is exhausted */

#define GPU_NO_EVENT 0xffffffff /* a record of no event: marks a point in the stream */

/* Kinds of operations */
#define GPU_KERNEL 1
#define GPU_COPY_H2D 2
#define GPU_COPY_D2H 3
#define GPU_COPY_LOCAL 4 /* inside the device: takes duration_ns */
#define GPU_MEMSET 5     /* takes duration_ns */
#define GPU_PREFETCH_IN 6
#define GPU_PREFETCH_OUT 7
#define GPU_EVENT_RECORD 8
#define GPU_EVENT_WAIT 9
#define GPU_HOST 10    /* starts in stream order, ended by gpu_complete() */
#define GPU_DISCARD 11 /* discards the blocks of its uses */

/* Access, as in PUMP_ACCESS_*; 0 means read and write */
#define GPU_READ 1
#define GPU_WRITE 2
/* The kernel reaches many blocks of the use at once, in any order: a gather, strides, the
 * second operand of a GEMM. Without this flag it sweeps over the use. */
#define GPU_WIDE 4
/* The kernel reaches the use's rows in the order of their addresses, not in random order.
 */
#define GPU_SORTED 8

/* Kinds of discard (uvm.h, UvmDiscard). UNMAP is the kind of the public calls: no page
 * stays resident, the next access faults, and a write or a prefetch ends the state. KEEP
 * leaves the mapping: writes do not clear the state and are lost at eviction. */
#define GPU_DISCARD_KEEP 1
#define GPU_DISCARD_UNMAP 2

/* Advice (gpu_advise). A preferred GPU matters when READ_MOSTLY ends, and suspends
 * ACCESSED_BY: the GPU then reads in place what is on the host (uvm_remote.c). */
#define GPU_ADVICE_READ_MOSTLY 1
#define GPU_ADVICE_READ_MOSTLY_ENDS 2
#define GPU_ADVICE_PREFER_GPU 3
#define GPU_ADVICE_PREFER_NONE 4
#define GPU_ADVICE_ACCESSED_BY 5
#define GPU_ADVICE_ACCESSED_BY_ENDS 6

/* Streams */
#define GPU_STREAM_BLOCKING 0
#define GPU_STREAM_NONBLOCKING 1

/* Eviction lists */
#define GPU_LIST_NONE 0
#define GPU_LIST_UNUSED 1
#define GPU_LIST_DISCARDED 2
#define GPU_LIST_USED 3

/* Last error: how the caller misused the model */
#define GPU_ERROR_NONE 0
#define GPU_ERROR_USE_OF_FREED 1     /* an operation touched a freed block */
#define GPU_ERROR_COMMAND_ON_FREED 2 /* prefetch or discard of a freed block */
#define GPU_ERROR_OUT_OF_BOUNDS 3    /* blocks beyond the arena */
#define GPU_ERROR_DOUBLE_CREATE 4    /* a range that overlaps live blocks */
#define GPU_ERROR_DOUBLE_FREE 5

struct gpu_engine;

struct gpu_capacity {
  uint32_t blocks;  /* blocks of the arena */
  uint32_t streams; /* including the legacy stream; at most GPU_MAX_STREAMS */
  uint32_t events;
  uint32_t operations; /* pending at once, in all streams */
  uint32_t uses;       /* total of all pending operations */
  uint32_t owners;     /* shared GPU: 2 to GPU_MAX_OWNERS; else 0 */
  uint32_t notes;      /* shared GPU: waiting for one owner; a power of two */
};

/* How pages move */
enum gpu_moves {
  GPU_MOVE_FAULT,    /* to the GPU, because an operation touched them */
  GPU_MOVE_FIRST,    /* to the GPU by a touch, without contents to copy */
  GPU_MOVE_PREFETCH, /* to the GPU by a prefetch */
  GPU_MOVE_NONE,     /* a prefetch found all pages on the GPU */
  GPU_MOVE_OUT,      /* to the host by a prefetch */
  GPU_MOVE_AHEAD,    /* copied to the host, and kept on the GPU (READ_MOSTLY) */
  GPU_MOVE_EVICT,    /* to the host, because the driver took the block's memory */
  GPU_MOVE_PULL,     /* to the host, with neighbours that are read in place there */
};

struct gpu_move {
  uint32_t how, block;
  uint32_t pages; /* one bit each; to the host: only copied pages */
  uint64_t now_ns;
  uint64_t ready_ns; /* expected end of the copy; now_ns for EVICT */
};

/* Called in model order as time advances. `start`: the operation begins to execute; apply
 * effects on data here. `finish`: the operation has ended (also prefetches made through
 * gpu_prefetch_step). `drop`: the block's contents are lost without a copy (the block was
 * discarded, and with KEEP then evicted or moved). `move`: pages of a block move. `stall`:
 * the operation waits for faults (`fault`) or for pages in flight. */
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

/* Consecutive blocks that an operation touches. `pages_per_block` is the number of 64 KiB
 * pages touched in each block, or 0 for all: a sweep touches all, an irregular gather
 * few. If `pages` is not 0, it names the pages instead, one bit each. If `rows` is not 0,
 * a kernel touches that many rows of `row_bytes` each, spread evenly at random over these
 * pages or, without `pages`, over the blocks. A row that is touched twice counts twice. */
struct gpu_use {
  uint32_t first_block;
  uint32_t block_count;
  uint16_t pages_per_block;
  uint16_t access;
  uint32_t pages;
  uint64_t rows;
  uint32_t row_bytes;
  uint32_t reserved;
};

struct gpu_operation {
  uint32_t kind;
  uint32_t use_count;
  const struct gpu_use *uses; /* only managed memory on the device side */
  uint64_t duration_ns;       /* computing time of a kernel, local copy or memset */
  uint64_t length_bytes;      /* copies over the link */
  uint64_t cookie;            /* the caller's; passed to the hooks */
  uint32_t event;             /* record and wait */
  uint32_t discard_kind;      /* discard */
};

struct gpu_submitted {
  uint64_t ticket;   /* for gpu_ticket_query() and gpu_complete() */
  uint64_t retry_ns; /* GPU_WAIT: when to try again; GPU_NEVER: after a gpu_complete() */
};

/* The cost of a host call: the caller is busy until caller_free_ns, and the effect is
 * complete at complete_ns. The caller waits for copies between waits_from_ns and
 * waits_until_ns, which may be in the past; all waits of a call are merged. The rest of
 * its time includes CPU work: the share that call_work_share of the profile gives. */
struct gpu_cost {
  uint64_t caller_free_ns;
  uint64_t complete_ns;
  uint64_t waits_from_ns;
  uint64_t waits_until_ns;
};

/* One call of cuMemPrefetchAsync, or one range of cuMemDiscardBatchAsync, for
 * gpu_prefetch_step(). The caller fills the first part, zeroes the rest, and ignores the
 * last. */
struct gpu_prefetch_call {
  uint32_t stream;
  uint32_t first_block;
  uint32_t block_count;
  uint32_t to_host;      /* 1: to the CPU */
  uint32_t discard_kind; /* GPU_DISCARD_*: a discard instead of a prefetch */
  uint32_t context;      /* context whose lock the call takes, below GPU_LOCK_CONTEXTS */
  uint64_t cookie;
  /* results */
  struct gpu_cost cost; /* complete_ns covers only the finished slices */
  uint64_t ticket;
  uint64_t retry_ns;
  /* used by the engine */
  uint32_t begun;
  uint32_t blocks_done;
};

struct gpu_counters {
  /* unified memory */
  uint64_t fault_blocks; /* blocks whose first pages were faulted in */
  uint64_t fault_pages;  /* faults, in 64 KiB pages */
  uint64_t fault_batches;
  uint64_t fault_groups;         /* blocks served, counted once per batch */
  uint64_t nonreplayable_blocks; /* faults of copy engines */
  uint64_t remote_blocks; /* faults that left the block on the host, to be read there */
  uint64_t h2d_demand_bytes;
  uint64_t h2d_prefetch_bytes;
  uint64_t h2d_copy_bytes;
  uint64_t h2d_remote_bytes;
  uint64_t d2h_evict_bytes;    /* the driver's own evictions */
  uint64_t d2h_prefetch_bytes; /* prefetch to the CPU */
  uint64_t d2h_ahead_bytes;    /* under READ_MOSTLY, to the CPU; the GPU keeps its copy */
  uint64_t d2h_copy_bytes;
  uint64_t populated_bytes; /* zeroed in place, no link */
  uint64_t dropped_bytes;   /* resident and discarded: lost without a copy */
  uint64_t freed_bytes;     /* resident when their range was freed */
  uint64_t clean_bytes;     /* left the GPU without a copy: the host's was valid */
  uint64_t collapsed_pages; /* duplicates written by the GPU: one fault per 4 KiB page */
  uint64_t evictions_used;
  uint64_t evictions_unused;
  uint64_t evictions_discarded;
  uint64_t prefetch_in_blocks;
  uint64_t prefetch_out_blocks;
  uint64_t prefetch_resident_blocks; /* resident already: refreshed */
  uint64_t discarded_blocks;
  uint64_t host_alloc_blocks;
  /* engines; a compute stall is the time that a running kernel waited */
  uint64_t kernels;
  uint64_t copies;
  uint64_t compute_busy_ns; /* computing, without stalls */
  uint64_t stall_fault_ns;
  uint64_t stall_arrival_ns; /* waiting for a prefetch that was late */
  uint64_t copy_stall_ns;    /* copies and memsets that waited for memory */
  uint64_t h2d_busy_ns;
  uint64_t d2h_busy_ns;
  uint64_t caller_ns; /* time in prefetch, discard and advice calls */
  /* misuse */
  uint64_t errors;
  uint32_t last_error; /* GPU_ERROR_* */
  uint32_t last_error_block;
  /* a host with limited memory */
  uint64_t flash_read_bytes;
  uint64_t flash_write_bytes;
  /* accesses in place; h2d_remote_bytes has the reads */
  uint64_t d2h_remote_bytes;
  uint64_t d2h_pull_bytes; /* moved to the host, with neighbours that are read there */
};

/* Where the contents of a block are that is not on the GPU */
#define GPU_IN_HOST 1
#define GPU_ON_FLASH 2
#define GPU_TO_FLASH 4 /* on the GPU; its eviction will write it to flash */

#define GPU_HOST_VICTIMS 64

/* A host with limited memory, and a flash tier. */
struct gpu_host {
  uint64_t memory_bytes;
  double read_gbps, write_gbps; /* of flash, in 10^9 bytes per second */
  double read_us, write_us;     /* latency after the last byte */
  double write_budget_gbps;     /* mean since the beginning; 0: no limit */
};

/* The memory and counters of one owner of a shared GPU. */
struct gpu_owner_info {
  uint64_t plain_bytes;
  uint64_t resident_bytes;      /* managed memory */
  uint64_t lost_notes;          /* drop notes lost because too many were waiting */
  struct gpu_counters counters; /* its actions, including its evictions of others' blocks */
};

struct gpu_memory {
  uint64_t total_bytes;
  uint64_t plain_bytes;    /* cuMemAlloc */
  uint64_t resident_bytes; /* blocks with GPU memory that are not UNUSED */
  uint64_t unused_bytes;   /* held without resident pages: evicted first */
  uint64_t free_bytes;
};

/* Returns the size of the state in bytes, or 0 if a capacity is out of bounds. */
size_t gpu_engine_bytes(const struct gpu_capacity *capacity);

/* Returns where the blocks of an owner are in the state of a shared GPU. For `owner` =
 * owners, returns the part before all blocks. */
void gpu_engine_part(const struct gpu_capacity *capacity, uint32_t owner,
                     uint64_t *offset_bytes, uint64_t *length_bytes);

/* Builds the state in `memory` (8-byte aligned) and copies the profile. Returns NULL if
 * `bytes` is too small. `memory_bytes` 0 means the profile's. The memory of a shared GPU
 * must be zeroed: its table of blocks is large and mostly unused. */
struct gpu_engine *gpu_engine_create(void *memory, size_t bytes,
                                     const struct gpu_capacity *capacity,
                                     const struct uvm_profile *profile,
                                     uint64_t memory_bytes, uint64_t now_ns);

/* Processes all events up to `now_ns`. */
void gpu_advance(struct gpu_engine *engine, uint64_t now_ns, const struct gpu_hooks *hooks);

/* Returns the time of the next event; GPU_NEVER if none follows without a call. */
uint64_t gpu_next_event_ns(const struct gpu_engine *engine);

/* Returns the time that the engine has reached. */
uint64_t gpu_now_ns(const struct gpu_engine *engine);

/* Sets how many work queues the streams of a priority share, 1 to GPU_CONNECTIONS_MOST.
 * On a shared GPU the number applies to the actor. Existing streams keep their queues. */
int gpu_connections(struct gpu_engine *engine, uint32_t connections);

/* Sets which locks the driver holds (GPU_LOCK_*); a new GPU has none. Returns GPU_INVALID
 * for a shared GPU, where each process has its own locks. */
int gpu_locks(struct gpu_engine *engine, uint32_t locks);
/* Returns when a call (GPU_CALL_*) in a context may begin, as known now. The caller waits
 * until then and asks again. */
uint64_t gpu_call_ns(const struct gpu_engine *engine, uint32_t call, uint32_t context);
/* Maps or unmaps memory, which takes `taken_ns` once its locks are free; returns the
 * end. */
uint64_t gpu_map_memory(struct gpu_engine *engine, uint64_t now_ns,
                        const struct gpu_hooks *hooks, uint64_t taken_ns);

/* Creates a stream: returns a number from 1, or GPU_FULL. Destroying a busy stream lets
 * its operations finish first. */
int gpu_stream_create(struct gpu_engine *engine, uint32_t flags, uint32_t priority);
int gpu_stream_destroy(struct gpu_engine *engine, uint32_t stream);

/* Returns 1 if the stream is idle. Returns 0 if it is busy, and not idle before
 * *earliest_ns (a sound lower bound to sleep until; GPU_NEVER if only gpu_complete() can
 * end it). Else returns GPU_INVALID. */
int gpu_stream_query(struct gpu_engine *engine, uint64_t now_ns,
                     const struct gpu_hooks *hooks, uint32_t stream, uint64_t *earliest_ns);

/* Creates an event: returns a number from 0, or GPU_FULL. Records and waits are operations.
 * The number of a destroyed event is reused after its pending operations have ended. */
int gpu_event_create(struct gpu_engine *engine);
int gpu_event_destroy(struct gpu_engine *engine, uint32_t event);
/* Returns 1 if the last record has completed, with its time in *time_ns (0 without a
 * record). Returns 0 if it has not, and will not before *time_ns. Else returns
 * GPU_INVALID. */
int gpu_event_query(struct gpu_engine *engine, uint64_t now_ns,
                    const struct gpu_hooks *hooks, uint32_t event, uint64_t *time_ns);

/* Appends an operation to a stream: GPU_OK, GPU_WAIT, GPU_INVALID, GPU_FULL. The driver's
 * deferred worker executes GPU_PREFETCH_* and GPU_DISCARD. */
int gpu_submit(struct gpu_engine *engine, uint64_t now_ns, const struct gpu_hooks *hooks,
               uint32_t stream, const struct gpu_operation *operation,
               struct gpu_submitted *out);
/* Returns 1 if the operation of this ticket has ended. Returns 0 if it has not, and will
 * not before *earliest_ns (a sound lower bound; GPU_NEVER if only gpu_complete() can end
 * it). To wait for a whole stream, submit a GPU_EVENT_RECORD with event GPU_NO_EVENT and
 * wait for its ticket. */
int gpu_ticket_query(struct gpu_engine *engine, uint64_t now_ns,
                     const struct gpu_hooks *hooks, uint64_t ticket, uint64_t *earliest_ns);
/* Ends a GPU_HOST operation that has started. */
int gpu_complete(struct gpu_engine *engine, uint64_t now_ns, const struct gpu_hooks *hooks,
                 uint64_t ticket);

/* Executes one slice of a prefetch or discard call. On an idle stream the calling thread
 * does the work: after GPU_MORE it is busy until call->cost.caller_free_ns and calls again.
 * On a busy stream the call is deferred and returns GPU_OK at once. After GPU_OK the caller
 * is busy until caller_free_ns too. Other results: GPU_WAIT, GPU_INVALID, GPU_FULL. */
int gpu_prefetch_step(struct gpu_engine *engine, uint64_t now_ns,
                      const struct gpu_hooks *hooks, struct gpu_prefetch_call *call);

/* Creates and destroys managed ranges. Destruction ends at cost->complete_ns, after the
 * transfers of its blocks that are in flight. */
int gpu_range_create(struct gpu_engine *engine, uint64_t now_ns,
                     const struct gpu_hooks *hooks, uint32_t first_block,
                     uint32_t block_count);
int gpu_range_destroy(struct gpu_engine *engine, uint64_t now_ns,
                      const struct gpu_hooks *hooks, uint32_t first_block,
                      uint32_t block_count, struct gpu_cost *cost);

/* Applies advice (GPU_ADVICE_*) to blocks of any range, in the calling thread. The advice
 * counts at once, but the call lasts until caller_free_ns. It waits for prefetch calls,
 * fault batches and transfers of these blocks that are in flight, and later ones wait for
 * it. May return GPU_INVALID. */
int gpu_advise(struct gpu_engine *engine, uint64_t now_ns, const struct gpu_hooks *hooks,
               uint32_t first_block, uint32_t block_count, uint32_t advice,
               struct gpu_cost *cost);
/* Returns how many of these blocks are under READ_MOSTLY. `kept_blocks`: how many hold
 * pages that only the GPU has. */
uint32_t gpu_read_mostly(const struct gpu_engine *engine, uint32_t first_block,
                         uint32_t block_count, uint32_t *kept_blocks);
/* Returns the block's pages that are mapped for the CPU, one bit each. */
uint32_t gpu_cpu_mapped(const struct gpu_engine *engine, uint32_t block);
/* Reserves plain device memory, and evicts managed blocks if necessary. Returns
 * GPU_NO_MEMORY, without any change, if that does not free enough. */
int gpu_plain_reserve(struct gpu_engine *engine, uint64_t now_ns,
                      const struct gpu_hooks *hooks, uint64_t length_bytes,
                      struct gpu_cost *cost);
int gpu_plain_release(struct gpu_engine *engine, uint64_t now_ns,
                      const struct gpu_hooks *hooks, uint64_t length_bytes);

/* Limits the host memory for evicted blocks, and adds a flash tier. Call it before the
 * first eviction. Returns GPU_INVALID for less than a block, a rate that is not positive,
 * or a negative time. */
int gpu_host_limit(struct gpu_engine *engine, const struct gpu_host *host);
/* Returns where the contents of a block are that is not on the GPU: GPU_IN_HOST,
 * GPU_ON_FLASH, both, or neither. */
uint32_t gpu_host_place(const struct gpu_engine *engine, uint32_t block);
/* Returns how many more blocks the host can hold. */
uint32_t gpu_host_room(const struct gpu_engine *engine);
/* Begins to copy a block from the host to flash, or from flash to the host; the target
 * must not hold it yet. `*free_ns`: when the next copy can begin. Returns GPU_INVALID if
 * the block is elsewhere or the host is full. */
int gpu_flash_write(struct gpu_engine *engine, uint64_t now_ns,
                    const struct gpu_hooks *hooks, uint32_t block, uint64_t *free_ns);
int gpu_flash_read(struct gpu_engine *engine, uint64_t now_ns,
                   const struct gpu_hooks *hooks, uint32_t block, uint64_t *free_ns);
/* Frees the host memory of a block that flash holds as well. Returns GPU_INVALID if flash
 * does not hold it, or not yet. */
int gpu_host_drop(struct gpu_engine *engine, uint64_t now_ns, const struct gpu_hooks *hooks,
                  uint32_t block);
/* Sets the blocks that move to flash, in this order, instead of a block that arrives at a
 * full host. The list holds until the next call. */
void gpu_host_victims(struct gpu_engine *engine, const uint32_t *blocks, uint32_t count);
/* Marks a block of the GPU: its eviction writes it directly to flash. */
void gpu_leaves_for_flash(struct gpu_engine *engine, uint32_t block);
/* Varies the link time of each later fault batch and prefetch slice by a factor from 1 -
 * share to 1 + share, in a sequence given by `seed`. GPU_INVALID for a share outside [0,
 * 1). */
int gpu_jitter(struct gpu_engine *engine, double share, uint64_t seed);
void gpu_memory_get(const struct gpu_engine *engine, struct gpu_memory *out);

void gpu_counters_get(const struct gpu_engine *engine, struct gpu_counters *out);
/* Returns how many unfinished operations use any of these blocks. */
uint32_t gpu_uses_pending(const struct gpu_engine *engine, uint32_t first_block,
                          uint32_t block_count);

/* A shared GPU (capacity.owners): several processes use one state. Each is an owner of
 * streams, events, blocks and plain memory. The process that makes a call is the actor.
 * Owner n has the n-th of `owners` equal parts of the blocks, and legacy stream n. Stream
 * order holds only within an owner. If operations of several owners wait for an engine,
 * the owner served for the shortest time is next. Owners share memory, eviction lists,
 * the link and the serial fault handler. One owner's call may start or drop work of
 * another: notes keep these `start` and `drop` events for that owner. Its `finish` events
 * are not reported.
 *
 * Callers hold a lock. Between gpu_lock_taken() and gpu_lock_given() a journal keeps the
 * state consistent (uvm_journal.h). If the caller is killed within a step, the state
 * returns to the end of the last completed step. */

/* Returns 1 if the last holder of the lock was killed in a step, which is then undone. */
int gpu_lock_taken(struct gpu_engine *engine, uint32_t actor);
void gpu_lock_given(struct gpu_engine *engine);
/* Returns the number of a new owner, or GPU_FULL. Needs the lock; any actor will do. */
int gpu_owner_join(struct gpu_engine *engine);
/* Removes everything that an owner has, at once: work, transfers not yet booked, memory. */
void gpu_owner_leave(struct gpu_engine *engine, uint64_t now_ns,
                     const struct gpu_hooks *hooks, uint32_t owner);
/* Calls the hooks, in order, for the actor's events that others' calls caused. */
void gpu_notes_deliver(struct gpu_engine *engine, const struct gpu_hooks *hooks);
int gpu_owner_get(const struct gpu_engine *engine, uint32_t owner,
                  struct gpu_owner_info *out);

/* Checks the whole state: returns 0, or the number of the first broken invariant. */
int gpu_check(const struct gpu_engine *engine);
/* cffi: end */
#ifdef PUMP_LAB_EXPORT
#pragma GCC visibility pop
#endif

#endif
