/* pump_abi.h - the contract between the shim (in the job) and its worker (in pumpd).
 *
 * One memfd per client holds one `struct pump_shm`. Only this file defines the struct: C
 * includes it, and Python reads the part between the "cffi" marks through
 * pump/wire/abi.py. The file contains no enum, bool, size_t or pthread type.
 * pump_abi_layout.h asserts every offset. Reserved fields are zero.
 *
 * Glossary
 *   `client`     One process that loaded the shim and passed cuInit.
 *   `converted`  Managed memory that the program requested as device memory.
 *   `range`      One live converted or managed allocation.
 *   `block`      A 2 MiB aligned piece of the address space.
 *   `extent`     The part of a range that an operation's argument is believed to reach.
 *   `operation`  A kernel launch, copy or memset, also as a graph node. Numbered by
 *                `seq`, from 1, in issue order.
 *   `window`     Operations that are issued but not yet executed.
 *   `duplicated` A block whose copy on the host stays valid while the GPU has one
 *                (READ_MOSTLY).
 *   `predicted`  An operation that the worker expects and the program has not issued.
 *   `marker`     An event of the shim after an operation; shows when that has executed.
 *   `budget`     Bytes of a device's memory that a client may keep resident there.
 *   `active`     A device whose live memory has outgrown the budget; dormant until then.
 *   `slice`      Consecutive blocks of a range that one driver call moves.
 *   `command`    Tells an executor (a thread of the shim) to move a slice.
 *   `schedule`   The slices of a device that move next, in order. Each is an entry: a
 *                command with the conditions that it waits for.
 *   `signature`  Hash of a launch: the function's identity, grid, block and parameter
 *                bytes, with every word masked out that points into a live range.
 *
 * Which side writes which fields
 *   `shim`    Identity, devices, progress, shim_counters, ranges, events. left_bytes and
 *             ended_bytes of each schedule, entry_ends.
 *   `worker`  worker_pid, heartbeat, resend, worker_counters, event_head. The fields of
 *             devices marked "worker". Contents of schedules, predicted.
 *   `both`    cursor of each schedule: the worker puts the schedule in force or withdraws
 *             it. Executors count the entries they take. valid_seq: the worker sets it to
 *             PUMP_ALL_VALID, the shim lowers it.
 * Neither side trusts the other: each index read from here is masked or checked against
 * its bound before use. Only pump_ring.h orders memory accesses.
 *
 * An operation in the event ring. Records have 128 bytes and at most 3 extents:
 *
 *   `p`      kind=KERNEL seq=7 stream=2 extent_count=5 extents[0..2]
 *   `p+1`    kind=MORE   seq=7 stream=2 extent_count=5 extents[3..4]
 *
 * The records of an operation are consecutive. They are published last to first, so a
 * consumer that sees the first record ready sees all of them.
 *
 * A launch does not state how many bytes its kernel reaches from a pointer. Such an
 * extent has access ARGUMENT. Instead of a length it holds the pointer's byte offset in
 * the kernel's parameter buffer and, if the allocator's blocks are known, the bytes to
 * the end of the block. The shim sends the other parameters once per signature, and names
 * once per function. Both precede the first operation that has them:
 *
 *   `p`      kind=NAME   function=f payload_bytes=80  (bytes 1 to 72 of the name).
 *   `p+1`    kind=MORE   function=f payload_bytes=80  (bytes 73 to 80 of the name).
 *   `p+2`    kind=PARAMS function=f signature=s payload_bytes=n  (the rest in MORE).
 *   `p+n`    kind=KERNEL function=f signature=s seq=7.
 *
 * A graph launch becomes one operation per node that touches memory, in an order that
 * respects the graph's edges. They share time and stream, have consecutive numbers and
 * follow a GRAPH record with their count. Progress inside a graph launch is not visible:
 * for the worker, all its operations execute at once.
 *
 * A worker that has lost NAME or PARAMS records sets `resend`; the shim sends all again.
 *
 * An executor carries out a command as soon as it takes it, and an entry of a schedule
 * when the entry's conditions hold. A device's schedule is two lists, one for each
 * direction, taken from the front:
 *
 *   TO_HOST  Block 7..10.   After operation 1,204 of stream 2 has executed, and
 *                           16 MiB of arrivals have ended.
 *   TO_GPU   Block 90..93.  For operation 1,250, after 8 MiB have left.
 *
 * A schedule may serve predicted operations. While `armed` is 1, `predicted` holds them
 * by number, and the shim compares each operation that the program issues. At the first
 * difference it lowers `valid_seq` to the operation before. Arrivals for later operations
 * then stay on the host. Evictions continue, unless an operation issued after `valid_seq`
 * uses the memory.
 *
 * A worker that wants another budget writes asked_budget_bytes and sends any datagram
 * over the client's socket. The shim brings the budget within bounds, adopts it into
 * budget_bytes and `emulated`, and then copies the request to adopted_budget_bytes.
 */
#ifndef PUMP_ABI_H
#define PUMP_ABI_H

#include <stddef.h>
#include <stdint.h>

/* cffi: begin */
#define PUMP_ABI_MAGIC 0x314d4853504d5550
#define PUMP_HELLO_MAGIC 0x4f4c4c45484d5550
#define PUMP_ABI_VERSION 14

/* Bounds; powers of two if positions are masked by them. */
#define PUMP_BLOCK_BYTES 2097152
#define PUMP_UNIT_BYTES 512 /* unit of the lengths of an allocator's blocks */
#define PUMP_MAX_DEVICES 16
#define PUMP_BUDGET_BLOCKS_LEAST 4 /* of the smallest budget that a worker may ask for */
/* Share of a GPU's free memory left for memory that pump does not see: code loaded late,
 * stacks, page tables, other programs. docs/decisions/0023-reserve.md. */
#define PUMP_RESERVE_PERCENT 3
#define PUMP_MAX_STREAMS 1024
#define PUMP_MAX_RANGES 131072
#define PUMP_RANGE_EIGHTHS 8
#define PUMP_ISSUERS 4
#define PUMP_EVENT_SLOTS 16384
#define PUMP_EVENT_EXTENTS 3
#define PUMP_MAX_EXTENTS 256
#define PUMP_EVENT_PAYLOAD_BYTES 72 /* in one record, instead of the extents */
#define PUMP_MAX_PAYLOAD_BYTES 8192
#define PUMP_DIRECTIONS 2
#define PUMP_ALL_VALID 0xffffffffffffffff /* pump_header.valid_seq */
#define PUMP_SCHEDULE_ENTRIES 256         /* per direction */
#define PUMP_UNPACED_BYTES 0x100000000    /* more bytes than a list holds */
#define PUMP_SCHEDULE_TICKETS 1024
/* Advice of an entry, by which kernels read its blocks in place on the host, or migrate
 * them again. */
#define PUMP_ADVICE_NONE 0
#define PUMP_ADVICE_IN_PLACE 1
#define PUMP_ADVICE_MIGRATE 2
#define PUMP_MASK_BLOCKS 32   /* per slice: bits of `duplicates` and `kept` */
#define PUMP_PREDICTIONS 4096 /* operations */

/* client_state */
#define PUMP_CLIENT_STARTING 0
#define PUMP_CLIENT_RUNNING 1
#define PUMP_CLIENT_EXITING 2

/* device_state: dormant while everything fits into the budget */
#define PUMP_DEVICE_ABSENT 0
#define PUMP_DEVICE_DORMANT 1
#define PUMP_DEVICE_ACTIVE 2

/* range_kind; FREE marks an unused slot */
#define PUMP_RANGE_FREE 0
#define PUMP_RANGE_CONVERTED 1
#define PUMP_RANGE_MANAGED 2

/* event kind */
#define PUMP_EVENT_KERNEL 1
#define PUMP_EVENT_COPY 2
#define PUMP_EVENT_MEMSET 3
#define PUMP_EVENT_MORE 4
#define PUMP_EVENT_SYNC 5
#define PUMP_EVENT_ALLOC 6
#define PUMP_EVENT_FREE 7
#define PUMP_EVENT_HINT 8
#define PUMP_EVENT_PARAMS 9
#define PUMP_EVENT_NAME 10
#define PUMP_EVENT_PROGRESS 11 /* only while a trace is recorded */
#define PUMP_EVENT_GRAPH 12
#define PUMP_EVENT_DISCARDED 13 /* blocks without an owner: their contents need no copy */
#define PUMP_EVENT_FREED 14     /* blocks to discard after operations issued on them */
#define PUMP_EVENT_DEAD 15      /* blocks whose tensors the program has freed */
#define PUMP_EVENT_POPULATED 16 /* discarded blocks brought back for their next owner */
#define PUMP_EVENT_TIMED 17     /* execution time of one operation, or one graph launch */

/* extent access; ARGUMENT: a kernel's pointer, see above */
#define PUMP_ACCESS_ARGUMENT 0
#define PUMP_ARGUMENT_BITS 16 /* bits of the place; the block's units are above them */
#define PUMP_ACCESS_READ 1
#define PUMP_ACCESS_WRITE 2
#define PUMP_ACCESS_OVERWRITE 3

/* direction of a command, also an index */
#define PUMP_TO_GPU 0
#define PUMP_TO_HOST 1

/* command result */
#define PUMP_RESULT_MOVED 0
#define PUMP_RESULT_STALE 1
#define PUMP_RESULT_LATE 2
#define PUMP_RESULT_DEAD 3
#define PUMP_RESULT_INVALID 4
#define PUMP_RESULT_FAILED 5

/* welcome status */
#define PUMP_WELCOME_OK 0
#define PUMP_WELCOME_VERSION 1
#define PUMP_WELCOME_REFUSED 2
#define PUMP_WELCOME_BUSY 3

/* Shim -> pumpd: one datagram, the first on the socket. */
struct pump_hello {
  uint64_t magic;       /* PUMP_HELLO_MAGIC */
  uint32_t abi_version; /* PUMP_ABI_VERSION of the shim */
  uint32_t client_pid;  /* as the client sees it; peer credentials take precedence */
  uint64_t shm_bytes;   /* sizeof(struct pump_shm) of the shim */
  uint64_t reserved[5];
};

/* pumpd -> shim: one datagram; PUMP_WELCOME_OK carries the sealed memfd. */
struct pump_welcome {
  uint64_t magic;       /* PUMP_HELLO_MAGIC */
  uint32_t abi_version; /* PUMP_ABI_VERSION of pumpd */
  uint32_t status;      /* PUMP_WELCOME_* */
  uint64_t shm_bytes;   /* size of the memfd */
  uint64_t reserved[5];
};

struct pump_header {
  uint64_t magic; /* PUMP_ABI_MAGIC, written last by pumpd */
  uint32_t abi_version;
  uint32_t header_bytes; /* sizeof(struct pump_header) */
  uint64_t shm_bytes;    /* sizeof(struct pump_shm) */
  uint32_t client_pid;
  uint32_t worker_pid;
  uint32_t client_state; /* PUMP_CLIENT_* */
  uint32_t device_count;
  uint64_t range_version;       /* incremented after every change of the range table */
  uint64_t range_high;          /* no slot from here on was ever used */
  uint64_t worker_heartbeat_ns; /* CLOCK_MONOTONIC of the worker's last tick; 0: none yet */
  uint64_t activity;  /* incremented when the worker may have work: at each completion,
                         progress, adoption of a budget, and by pump_core_knock */
  uint32_t recording; /* shim: 1 while the job records a trace */
  uint32_t stops;     /* shim: how often the process was stopped */
  uint64_t stop_began_ns[2]; /* CLOCK_MONOTONIC of stop n (from 1), at index n % 2 */
  uint64_t stop_ended_ns[2];
  uint32_t issuers[4]; /* shim: first threads that issued operations; 0: none yet */
  /* one cache line for each word that a thread spins or sleeps on */
  uint64_t next_seq; /* next operation number */
  uint64_t pad0[7];
  uint64_t event_tail;     /* next position that producers reserve */
  uint64_t event_free_end; /* producers: positions below it are known to be free */
  uint64_t pad1[6];
  uint64_t event_head; /* next position the worker reads */
  uint64_t pad2[7];
  uint32_t worker_asleep; /* 1 while the worker sleeps on worker_wakes */
  uint32_t worker_wakes;  /* futex: counts wake-ups of the worker */
  uint32_t resend;        /* worker: set to have NAME and PARAMS sent again */
  uint32_t reserved1;
  uint64_t pad3[6];
  uint32_t armed; /* 1 while the shim compares issued operations with predictions */
  uint32_t reserved2;
  uint64_t valid_seq; /* entries for operations up to this one are valid; PUMP_ALL_VALID:
                         all are valid */
  uint64_t pad4[6];
};

struct pump_device {
  uint8_t uuid[16];
  uint64_t total_bytes;         /* of the GPU */
  uint64_t free_at_start_bytes; /* free memory at the first context */
  uint64_t budget_bytes;        /* bytes that may stay resident */
  uint64_t allocated_bytes;     /* live ranges, rounded up to blocks */
  uint64_t plain_bytes;         /* live device memory that was not converted */
  uint32_t device_state;        /* PUMP_DEVICE_* */
  uint32_t emulated;            /* 1: the budget is below the GPU's memory by choice */
  /* Second cache line; an attach keeps the new worker's values. Times: CLOCK_MONOTONIC. */
  uint64_t asked_budget_bytes;   /* worker: budget to apply; 0: keep the current one */
  uint64_t adopted_budget_bytes; /* the last asked_budget_bytes that the shim has applied */
  uint32_t neighbours;           /* most other processes under pump seen on the GPU */
  uint32_t held_threads;         /* shim: threads that wait for the job's turn */
  uint64_t held_until_ns;        /* worker: until then the job waits for its turn */
  uint64_t yield_until_ns;       /* worker: until then launches wait for their memory */
  uint64_t ready_seq;            /* worker: operations up to this one have their memory */
  uint64_t reserved[2];
};

/* Progress of one stream. Slot 0 is for all streams beyond the table. */
struct pump_progress {
  uint64_t issued_seq;   /* newest operation issued on the stream */
  uint64_t executed_seq; /* all operations on the stream up to this one have executed */
  uint32_t device;
  uint32_t live; /* 1 while the program may still use the stream */
  uint64_t reserved[5];
};

struct pump_range {
  uint64_t version;    /* odd while the shim writes the record */
  uint32_t generation; /* of the slot; never 0 for a live range */
  uint32_t range_kind; /* PUMP_RANGE_* */
  uint64_t base;
  uint64_t length_bytes; /* as allocated: whole blocks for converted ranges */
  uint32_t device;
  uint32_t reserved0;
  uint64_t alloc_seq; /* value of next_seq at allocation */
  uint64_t reserved[2];
  uint64_t last_use_seq[8]; /* per eighth of the range: newest operation that uses it */
};

struct pump_extent {
  uint32_t slot;
  uint32_t generation;
  uint64_t offset_bytes;  /* from the range's base */
  uint64_t length_access; /* length_bytes << 2 | PUMP_ACCESS_*. For ARGUMENT the length is
                             `units << PUMP_ARGUMENT_BITS | place`. `place` is the
                             pointer's byte offset in the parameter buffer. `units` counts
                             PUMP_UNIT_BYTES from the pointer's unit to the end of the
                             allocator's block; 0: unknown */
};

/* Start of a PARAMS payload. `parameter_bytes` of the kernel's parameter buffer follow,
 * cut off at the end of the payload. */
struct pump_params {
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t parameter_bytes;
  uint32_t identity; /* of the function, never a handle. Stable between runs, as far as
                        names and the order of first launches allow */
};

struct pump_event {
  uint64_t sequence; /* position + 1 once the record may be read */
  uint64_t seq;      /* operation number. ALLOC, FREE, PARAMS, NAME: 0. SYNC, HINT: newest
                        operation. PROGRESS: executed up to this one. GRAPH: its first
                        operation. FREED, DISCARDED: 0, or the operation after which a
                        discard will run, or has ended. TIMED: the operation, the last one
                        for a graph */
  uint64_t time_ns;  /* CLOCK_MONOTONIC at issue; SYNC: when the call returned */
  uint64_t function; /* KERNEL, PARAMS, NAME: handle. ALLOC, FREE: base. GRAPH: handle of
                        the executable graph. Else 0 */
  uint16_t kind;     /* PUMP_EVENT_* */
  uint16_t extent_count; /* extents of the whole operation; 0 for PARAMS, NAME */
  uint32_t stream;       /* index into progress */
  uint16_t device;
  uint16_t extents_dropped; /* extents beyond PUMP_MAX_EXTENTS */
  uint32_t payload_bytes;   /* PARAMS, NAME: bytes of the whole payload */
  uint64_t signature;       /* KERNEL, PARAMS: signature. SYNC: time_ns when the call
                               began. GRAPH: number of operations. PROGRESS: time_ns of
                               the previous poll, which had not seen it; 0: no poll.
                               TIMED: ns between the events around it */
  struct pump_extent extents[3];
};

struct pump_command {
  uint64_t ticket;
  uint32_t slot;
  uint32_t generation;
  uint64_t offset_bytes;
  uint64_t length_bytes;
  uint64_t observed_seq;  /* TO_HOST: newest operation that the worker has considered */
  uint64_t needed_by_seq; /* TO_GPU: drop once this operation has executed; 0: never */
  uint32_t stream;        /* TO_GPU: stream of needed_by_seq */
  uint32_t advice;        /* TO_GPU: PUMP_ADVICE_*: set the advice instead of moving */
};

/* The executors of a device and direction, asleep or not. */
struct pump_executors_sleep {
  uint32_t asleep;
  uint32_t wakes; /* futex: counts wake-ups */
  uint64_t pad[7];
};

/* A command that an executor carries out once all three conditions hold. */
struct pump_entry {
  struct pump_command command;
  uint64_t after_seq;    /* operation that must have executed; 0: none */
  uint64_t left_bytes;   /* least pump_schedule.left_bytes; 0: no condition */
  uint64_t ended_bytes;  /* least pump_schedule.ended_bytes; 0: no condition */
  uint32_t after_stream; /* stream of after_seq */
  uint32_t duplicates;   /* TO_GPU: bit i: the host keeps its copy of the slice's block i */
};

struct pump_schedule {
  uint64_t cursor;   /* version << 32 | taken TO_HOST << 16 | taken TO_GPU. Version 0: no
                        schedule is in force, and the other fields are meaningless */
  uint32_t count[2]; /* entries of each direction */
  uint64_t made_ns;  /* CLOCK_MONOTONIC when put in force; only in recorded jobs */
  uint64_t pad0[5];
  uint64_t left_bytes; /* bytes that entries have moved to the host since the attach */
  uint64_t pad1[7];
  uint64_t ended_bytes; /* bytes of entries to the GPU that ended (moved or refused) since
                           the attach, plus PUMP_UNPACED_BYTES per refused entry to the
                           host */
  uint64_t pad2[7];
  struct pump_entry entries[2][256];
};

/* How an entry's command ended; at index `ticket` modulo PUMP_SCHEDULE_TICKETS. */
struct pump_entry_end {
  uint64_t ticket; /* written last */
  uint32_t result;
  uint32_t duration_us; /* from taking it to its completion */
  /* Only while a trace is recorded, except `kept`: */
  uint64_t ended_ns;  /* CLOCK_MONOTONIC when this was written */
  uint32_t waited_us; /* from when it could start, with a free executor, to taking it */
  uint32_t called_us; /* from taking it to the driver's call, or to its refusal */
  uint32_t driver_us; /* in the driver's call */
  uint32_t link_us;   /* from the call's return to seeing its completion */
  uint32_t kept;      /* always set. TO_GPU: bit i: block i arrived as a duplicate.
                         TO_HOST: bit i: block i left without a copy */
  uint32_t reserved;
};

/* The operation that is expected under a number, at index `seq` modulo PUMP_PREDICTIONS.
 * Number, stream and kind are mixed into both words (pump_prediction_word). */
struct pump_prediction {
  uint64_t signature;
  uint64_t shape; /* of a launch: identity, grid, block; 0: only the signature counts */
};

struct pump_shim_counters {
  uint64_t events_dropped; /* ring full */
  uint64_t extents_dropped;
  uint64_t ranges_untracked; /* table full */
  uint64_t converted_bytes_peak;
  uint64_t moved_to_gpu_bytes; /* requested of the driver by executors */
  uint64_t moved_to_host_bytes;
  uint64_t commands_stale;
  uint64_t commands_late;
  uint64_t commands_dead;
  uint64_t commands_invalid;
  uint64_t commands_failed;
  uint64_t markers;
  uint64_t populate_bytes;
  uint64_t attaches;
  uint64_t signatures; /* PARAMS records sent */
  uint64_t graph_launches;
  uint64_t graph_operations;  /* operations of graph launches */
  uint64_t graphs_unknown;    /* graph launches with operations that are not known */
  uint64_t discarded_bytes;   /* dead memory of the pool that was discarded */
  uint64_t block_events;      /* reports of the program's allocator */
  uint64_t block_dead_bytes;  /* whole blocks in DEAD events, counted at each free */
  uint64_t scheduled_bytes;   /* part of the moved bytes: by entries of schedules */
  uint64_t schedules_dropped; /* mispredictions while a schedule was in force */
  uint64_t own_contexts;      /* contexts that outbound threads made for themselves */
  uint64_t gates;             /* launches that waited in their stream: the job yields */
  uint64_t gates_forced;      /* how often a time limit released waiting launches */
  uint64_t held_ns;           /* waits for turns, sum of all threads */
  uint64_t gates_large;       /* launches that waited because they touch much memory */
  uint64_t reserved[4];
  uint64_t operations; /* recorded while active; own cache line, because hooks write it */
  uint64_t reserved1[7];
};

struct pump_worker_counters {
  uint64_t operations;     /* operations that the worker has read */
  uint64_t operations_hit; /* operations with every block resident before they ran */
  uint64_t blocks_used; /* block uses of executed operations, except each block's first */
  uint64_t blocks_hit;
  uint64_t miss_late;    /* block was in flight when the operation ran */
  uint64_t miss_unseen;  /* operation ran before the worker decided on it */
  uint64_t miss_no_room; /* no eviction candidate was left */
  uint64_t miss_policy;  /* the policy does not prefetch */
  uint64_t resyncs;
  uint64_t overshoot_bytes_peak; /* demand: residency above the budget */
  uint64_t ticks;
  uint64_t schedules;        /* schedules that the daemon's worker has put in force */
  uint64_t catch_ups;        /* times that the worker skipped to the newest operation */
  uint64_t ops_larger;       /* operations too large for the budget */
  uint64_t recorded_file;    /* 0: no recording; 1: to FILE itself; n: to FILE.n */
  uint64_t recording_error;  /* errno that ended the recording early; 0: none */
  uint64_t predicted;        /* operations that were predicted, with their blocks */
  uint64_t predictions_lost; /* times that predictions were dropped */
  uint64_t figures_final;    /* 1: so are these counters, and the recording has ended */
  /* Time that the GPU waited for memory and the program lost (docs/guides/why.md) */
  uint64_t lost_ns;
  uint64_t lost_least_ns;
  uint64_t lost_most_ns;
  uint64_t lost_of_ns;          /* time since the first operation; 0: nothing is known */
  uint64_t lost_delayed_ns;     /* part of lost_ns: the program waited for a CPU core */
  uint64_t in_place_bytes_peak; /* of the allocations that kernels read on the host */
  uint64_t reserved[7];
};

struct pump_shm {
  struct pump_header header;
  struct pump_shim_counters shim_counters;
  struct pump_worker_counters worker_counters;
  struct pump_device devices[16];
  struct pump_progress progress[1024];
  struct pump_executors_sleep executors[16][2]; /* [device][direction] */
  struct pump_schedule schedules[16];           /* by device */
  struct pump_entry_end entry_ends[1024];
  struct pump_prediction predicted[4096];
  struct pump_event events[16384];
  struct pump_range ranges[131072];
};
/* cffi: end */

#include "pump_abi_layout.h"

#endif
