/* pump_abi.h - the contract between the shim (in the job) and its worker (in pumpd).
 *
 * One memfd per client holds one `struct pump_shm`. This file is the only
 * definition of it: C includes it, Python reads the part between the "cffi"
 * marks through pump/wire/abi.py. No enum, bool, size_t or pthread type; every
 * offset is asserted in pump_abi_layout.h; what is reserved is written as zero.
 *
 * Glossary
 *   client     one process that loaded the shim and passed cuInit
 *   converted  made managed memory, where the program requested device memory
 *   range      one live converted or managed allocation
 *   block      a 2 MiB aligned slice of the address space
 *   extent     the part of a range that an operation's argument is believed to reach
 *   operation  kernel launch, copy or memset, also as a node of a graph; numbered by
 *              `seq`, from 1, in issue order
 *   window     operations issued but not yet executed
 *   duplicated of a block: the host's copy stays valid while the GPU has one (READ_MOSTLY)
 *   predicted  of an operation: the worker expects it, the program has not issued it
 *   marker     an event of the shim's behind an operation, that shows when it has executed
 *   budget     bytes of a device's memory that a client may keep resident there
 *   active     of a device: its live memory has outgrown the budget; before that, dormant
 *   slice      consecutive blocks of a range that one call of the driver moves
 *   command    a slice that an executor, a thread of the shim, moves at once
 *   schedule   the slices of a device that move next, in order, and what each waits for;
 *              each is an entry
 *   signature  hash of a launch: the function's identity, grid, block and parameter bytes,
 *              with every word that points into a live range masked out
 *
 * Which side writes what
 *   shim     identity, devices, progress, shim_counters, ranges, events, command state
 *            READY -> TAKEN -> DONE and the result, left_bytes and ended_bytes of each
 *            schedule, entry_ends
 *   worker   worker_pid, heartbeat, resend, worker_counters, event_head,
 *            asked_budget_bytes of each device, command contents and state
 *            EMPTY -> READY, DONE -> EMPTY, contents of schedules, predicted
 *   both     turn of each schedule: the worker puts a schedule in force or withdraws it,
 *            executors count what they take; valid_seq: all by the worker, less by the shim
 * Neither trusts the other: each index read from here is masked or checked
 * against its bound before use. Memory ordering lives in pump_ring.h alone.
 *
 * An operation in the event ring (records of 128 bytes, 3 extents in each):
 *
 *   position p     kind=KERNEL seq=7 stream=2 extent_count=5 extents[0..2]
 *   position p+1   kind=MORE   seq=7 stream=2 extent_count=5 extents[3..4]
 *
 * The records of one operation are consecutive and published last to first, so
 * a consumer that sees the first record ready sees all of them.
 *
 * A launch does not say how many bytes behind a pointer its kernel reaches. Such an extent
 * has access ARGUMENT and holds, in place of a length, where the pointer stands: the
 * byte offset in the kernel's parameter buffer; and, where the allocator's blocks are
 * known, the bytes to the end of the block. The shim sends the other parameters once per
 * signature, and a function's name once per function, before the first operation that has
 * them:
 *
 *   position p     kind=NAME   function=f payload_bytes=80  its first 72 bytes
 *   position p+1   kind=MORE   function=f payload_bytes=80  the other 8
 *   position p+2   kind=PARAMS function=f signature=s payload_bytes=..., and so on
 *   position p+n   kind=KERNEL function=f signature=s seq=7
 *
 * The launch of a graph is as many operations as its nodes that touch memory, in an order
 * that respects its edges. They share time and stream and have consecutive numbers; a
 * GRAPH record in front of them has their number. Progress inside a launch of a graph is
 * not visible: all its operations execute at once, as far as the worker knows.
 *
 * A worker that has lost some of these records sets `resend`: the shim sends all of them
 * again.
 *
 * A command is carried out as soon as an executor takes it; an entry of a schedule, which
 * is a device's schedule, when its conditions hold. A device's schedule is two lists, one
 * for each direction, taken from the front:
 *
 *   TO_HOST  block 7..10   once operation 1,204 of stream 2 has executed, and
 *                          16 MiB of what comes have ended
 *   TO_GPU   block 90..93  once 8 MiB have left, for operation 1,250
 *
 * A schedule may serve operations that the worker predicted. While `armed` is 1,
 * `predicted` has these by their number, and the shim compares each operation that the
 * program issues: at the first that differs it lowers `valid_seq` to the one before. What
 * comes for operations behind that stays where it is. What leaves goes on, if no operation
 * behind it uses it.
 *
 * A worker that asks for another budget writes asked_budget_bytes and sends any datagram
 * over the client's socket. The shim adopts the budget, brought within bounds, into
 * budget_bytes and `emulated`, and then copies the request to adopted_budget_bytes.
 */
#ifndef PUMP_ABI_H
#define PUMP_ABI_H

#include <stddef.h>
#include <stdint.h>

/* cffi: begin */
#define PUMP_ABI_MAGIC 0x314d4853504d5550
#define PUMP_HELLO_MAGIC 0x4f4c4c45484d5550
#define PUMP_ABI_VERSION 11

/* Bounds. All powers of two where a position is masked. */
#define PUMP_BLOCK_BYTES 2097152
#define PUMP_UNIT_BYTES 512 /* in which the lengths of an allocator's blocks count */
#define PUMP_MAX_DEVICES 16
#define PUMP_BUDGET_BLOCKS_LEAST 4 /* of a budget that the worker asks for */
/* Of a GPU's free memory, left to what pump does not see: code that is loaded late, stacks,
 * page tables, other programs. docs/decisions/0023-reserve.md. */
#define PUMP_RESERVE_PERCENT 3
#define PUMP_MAX_STREAMS 1024
#define PUMP_MAX_RANGES 131072
#define PUMP_USE_SLICES 8
#define PUMP_ISSUERS 4
#define PUMP_EVENT_SLOTS 16384
#define PUMP_EVENT_EXTENTS 3
#define PUMP_MAX_EXTENTS 192
#define PUMP_EVENT_PAYLOAD_BYTES 72 /* in one record, in place of the extents */
#define PUMP_MAX_PAYLOAD_BYTES 8192
#define PUMP_COMMAND_SLOTS 256
#define PUMP_DIRECTIONS 2
#define PUMP_ALL_VALID 0xffffffffffffffff /* pump_header.valid_seq */
#define PUMP_SCHEDULE_ENTRIES 256         /* of a direction */
#define PUMP_UNPACED_BYTES 0x100000000    /* more than a list holds */
#define PUMP_SCHEDULE_TICKETS 1024
#define PUMP_MASK_BLOCKS 32   /* of a slice, that `duplicates` and `kept` have a bit for */
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
#define PUMP_EVENT_FREED 14     /* blocks to be discarded behind what was issued on them */
#define PUMP_EVENT_DEAD 15      /* blocks whose tensors the program has freed */
#define PUMP_EVENT_POPULATED 16 /* blocks brought to the GPU ahead of their first use */
#define PUMP_EVENT_TIMED 17     /* how long one operation, or one graph, took */

/* extent access; ARGUMENT: a kernel's pointer, see above */
#define PUMP_ACCESS_ARGUMENT 0
#define PUMP_ARGUMENT_BITS 16 /* of the place; units of the block stand above them */
#define PUMP_ACCESS_READ 1
#define PUMP_ACCESS_WRITE 2
#define PUMP_ACCESS_OVERWRITE 3

/* command direction, also the index of its ring */
#define PUMP_TO_GPU 0
#define PUMP_TO_HOST 1

/* command state */
#define PUMP_COMMAND_EMPTY 0
#define PUMP_COMMAND_READY 1
#define PUMP_COMMAND_TAKEN 2
#define PUMP_COMMAND_DONE 3

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

/* Shim -> pumpd, one datagram, the first on the socket. */
struct pump_hello {
  uint64_t magic;       /* PUMP_HELLO_MAGIC */
  uint32_t abi_version; /* PUMP_ABI_VERSION of the shim */
  uint32_t client_pid;  /* as the client sees it; peer credentials decide */
  uint64_t shm_bytes;   /* sizeof(struct pump_shm) of the shim */
  uint64_t reserved[5];
};

/* pumpd -> shim, one datagram; with PUMP_WELCOME_OK the sealed memfd rides along. */
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
  uint64_t range_version;       /* bumped after every change of the range table */
  uint64_t range_high;          /* slots at and above this one were never used */
  uint64_t worker_heartbeat_ns; /* CLOCK_MONOTONIC of the worker's last tick; 0: none yet */
  uint64_t activity;            /* bumped at each completion, advance of progress, adoption
                                   of a budget, and by pump_core_knock */
  uint32_t recording;           /* shim: 1 while the job records a trace */
  uint32_t stops;               /* shim: how often the process was stopped */
  uint64_t stop_began_ns[2];    /* CLOCK_MONOTONIC of stop n, from 1, in n % 2 */
  uint64_t stop_ended_ns[2];
  uint32_t issuers[4]; /* shim: the first threads that issued operations; 0: none yet */
  /* one cache line for each word that a thread spins or sleeps on */
  uint64_t next_seq; /* next operation number */
  uint64_t pad0[7];
  uint64_t event_tail; /* next position producers reserve */
  uint64_t event_room; /* producers: position up to which they have found room */
  uint64_t pad1[6];
  uint64_t event_head; /* next position the worker reads */
  uint64_t pad2[7];
  uint32_t worker_asleep; /* 1 while the worker sleeps on worker_wakes */
  uint32_t worker_wakes;  /* futex: wake-ups of the worker, counted */
  uint32_t resend;        /* worker: raised to have names and PARAMS sent again */
  uint32_t reserved1;
  uint64_t pad3[6];
  uint32_t armed; /* 1 while the shim compares what is issued with what was predicted */
  uint32_t reserved2;
  uint64_t valid_seq; /* what is scheduled for operations up to this one may go;
                         PUMP_ALL_VALID: for all */
  uint64_t pad4[6];
};

struct pump_device {
  uint8_t uuid[16];
  uint64_t total_bytes;         /* the card's */
  uint64_t free_at_start_bytes; /* what the first context found free */
  uint64_t budget_bytes;        /* may stay resident */
  uint64_t allocated_bytes;     /* live ranges, rounded up to blocks */
  uint64_t plain_bytes;         /* live device memory that was not converted */
  uint32_t device_state;        /* PUMP_DEVICE_* */
  uint32_t emulated;            /* 1: budget lies below the card's memory by choice */
  /* The second cache line. An attach leaves it as the new worker has it. */
  uint64_t asked_budget_bytes;   /* worker: budget to apply; 0: keep the present one */
  uint64_t adopted_budget_bytes; /* the last asked_budget_bytes that the shim has applied */
  uint32_t neighbours;   /* processes of other jobs under pump, the most seen on the card */
  uint32_t held_threads; /* shim: wait for the job's turn, behind what they have issued */
  uint64_t held_until_ns;  /* worker: the job waits for its turn, CLOCK_MONOTONIC */
  uint64_t yield_until_ns; /* worker: launches wait in their streams for their memory */
  uint64_t ready_seq; /* worker: meanwhile, all operations up to this one have theirs */
  uint64_t reserved[2];
};

/* Progress of one stream. Slot 0 collects streams beyond the table. */
struct pump_progress {
  uint64_t issued_seq;   /* newest operation issued on it */
  uint64_t executed_seq; /* every operation on it up to this one has executed */
  uint32_t device;
  uint32_t live; /* 1 while the program may still use the stream */
  uint64_t reserved[5];
};

struct pump_range {
  uint64_t version;    /* odd while the shim writes the record */
  uint32_t generation; /* of this slot; never 0 for a live range */
  uint32_t range_kind; /* PUMP_RANGE_* */
  uint64_t base;
  uint64_t length_bytes; /* as allocated: whole blocks for converted ranges */
  uint32_t device;
  uint32_t reserved0;
  uint64_t alloc_seq; /* value of next_seq when it was allocated */
  uint64_t reserved[2];
  uint64_t last_use_seq[8]; /* per eighth of the range, newest operation that uses it */
};

struct pump_extent {
  uint32_t slot;
  uint32_t generation;
  uint64_t offset_bytes;  /* from the range's base */
  uint64_t length_access; /* length_bytes << 2 | PUMP_ACCESS_*; ARGUMENT: in place of a
                             length `units << PUMP_ARGUMENT_BITS | place`. place: the byte
                             offset of the pointer in the parameter buffer; units: from the
                             one of PUMP_UNIT_BYTES that it points into to the end of the
                             allocator's block, 0 where that is not known */
};

/* First bytes of a PARAMS payload; `parameter_bytes` of the kernel's parameter buffer
 * follow, cut at the end of the payload. */
struct pump_params {
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t parameter_bytes;
  uint32_t identity; /* of the function: as in an earlier run of the program, as far as
                        names and the order of first launches tell; a handle never is */
};

struct pump_event {
  uint64_t turn;     /* position + 1 once the record may be read */
  uint64_t seq;      /* operation number; 0 for ALLOC, FREE, PARAMS, NAME; SYNC, HINT: the
                        newest operation; PROGRESS: executed up to this one; GRAPH: the first
                        of its operations; FREED, DISCARDED: 0, or the operation behind which
                        a discard is sure to come, or has ended; TIMED: the operation, of a
                        graph the last */
  uint64_t time_ns;  /* CLOCK_MONOTONIC at issue; SYNC: when the call returned */
  uint64_t function; /* KERNEL, PARAMS, NAME: handle; ALLOC, FREE: base; GRAPH: handle of
                        the executable graph; else 0 */
  uint16_t kind;     /* PUMP_EVENT_* */
  uint16_t extent_count; /* of the whole operation; 0 for PARAMS, NAME */
  uint32_t stream;       /* index into progress */
  uint16_t device;
  uint16_t extents_dropped; /* beyond PUMP_MAX_EXTENTS */
  uint32_t payload_bytes;   /* PARAMS, NAME: of the whole payload */
  uint64_t signature;       /* KERNEL, PARAMS; SYNC: time_ns when the call began; GRAPH:
                               how many operations it has; PROGRESS: time_ns of the poll
                               before, which had not seen it; 0: no poll saw it; TIMED: ns
                               from the event in front of it to the one behind it */
  struct pump_extent extents[3];
};

struct pump_command {
  uint64_t ticket;
  uint32_t slot;
  uint32_t generation;
  uint64_t offset_bytes;
  uint64_t length_bytes;
  uint64_t observed_seq;  /* TO_HOST: newest operation that the worker had seen */
  uint64_t needed_by_seq; /* TO_GPU: drop once this operation has executed; 0: never */
  uint32_t stream;        /* TO_GPU: stream of that operation */
  uint32_t state;         /* PUMP_COMMAND_* */
  uint32_t result;        /* PUMP_RESULT_* */
  uint32_t duration_us;   /* from taking it to its completion */
};

struct pump_command_ring {
  uint64_t tail; /* worker: commands ever submitted */
  uint64_t pad0[7];
  uint64_t head; /* executors: commands ever taken */
  uint64_t pad1[7];
  uint32_t executors_asleep;
  uint32_t wakes; /* futex: wake-ups of executors, counted */
  uint64_t pad2[7];
  struct pump_command commands[256];
};

/* A command that an executor carries out once both conditions hold. */
struct pump_entry {
  struct pump_command command; /* state, result and duration_us are not used */
  uint64_t after_seq;    /* this operation has executed, the last that reads; 0: none */
  uint64_t left_bytes;   /* pump_schedule.left_bytes has come so far; 0: no condition */
  uint64_t ended_bytes;  /* and pump_schedule.ended_bytes so far; 0: no condition */
  uint32_t after_stream; /* of that operation */
  uint32_t duplicates;   /* TO_GPU: bit i: the host keeps its copy of the slice's block i */
};

struct pump_schedule {
  uint64_t turn; /* version << 32 | taken TO_HOST << 16 | taken TO_GPU; version 0: none is
                    in force, and nothing else of the schedule means anything */
  uint32_t count[2]; /* of each direction */
  uint64_t
      made_ns; /* CLOCK_MONOTONIC when it was put in force; while a trace is recorded */
  uint64_t pad0[5];
  uint64_t left_bytes; /* that commands, scheduled or not, have moved to the host since this
                          mapping is in use */
  uint64_t pad1[7];
  uint64_t ended_bytes; /* of entries to the GPU that have ended, moved or refused, since
                           then; and PUMP_UNPACED_BYTES for each to the host that was
                           refused */
  uint64_t pad2[7];
  struct pump_entry entries[2][256];
};

/* How a scheduled command ended; at the place `ticket` modulo PUMP_SCHEDULE_TICKETS. */
struct pump_entry_end {
  uint64_t ticket; /* written last */
  uint32_t result;
  uint32_t duration_us; /* from taking it to its completion */
  /* What follows only while a trace is recorded. */
  uint64_t ended_ns;  /* CLOCK_MONOTONIC when this was written */
  uint32_t waited_us; /* from when it could go, and an executor was free, to taking it */
  uint32_t called_us; /* from then to the driver's call, or to its refusal */
  uint32_t driver_us; /* in the call */
  uint32_t link_us;   /* from its return to when its completion was seen */
  uint32_t kept; /* also without a trace. TO_GPU: bit i: block i has come as a duplicate;
                    TO_HOST: it has left without a copy */
  uint32_t reserved;
};

/* The operation that is expected under a number; at the place `seq` modulo
 * PUMP_PREDICTIONS. Both words have number, stream and kind mixed in
 * (pump_prediction_word). */
struct pump_prediction {
  uint64_t signature;
  uint64_t shape; /* of a launch: identity, grid, block; 0: no other signature will do */
};

struct pump_shim_counters {
  uint64_t events_dropped; /* ring full */
  uint64_t extents_dropped;
  uint64_t ranges_untracked; /* table full */
  uint64_t converted_bytes_peak;
  uint64_t moved_to_gpu_bytes; /* that executors have requested of the driver */
  uint64_t moved_to_host_bytes;
  uint64_t commands_stale;
  uint64_t commands_late;
  uint64_t commands_dead;
  uint64_t commands_invalid;
  uint64_t commands_failed;
  uint64_t markers;
  uint64_t populate_bytes;
  uint64_t attaches;
  uint64_t signatures; /* PARAMS sent */
  uint64_t graph_launches;
  uint64_t graph_operations; /* of them */
  uint64_t graphs_unknown;  /* launches of which the operations are not known, or not all */
  uint64_t discarded_bytes; /* of the pool's dead memory */
  uint64_t block_events;    /* of the program's allocator */
  uint64_t block_dead_bytes;  /* of DEAD events: whole blocks, each time they are freed */
  uint64_t scheduled_bytes;   /* of those moved: by entries of schedules */
  uint64_t schedules_dropped; /* in force when an operation differed */
  uint64_t own_contexts;      /* that out-threads made for themselves */
  uint64_t gates;             /* launches whose stream waited for their memory */
  uint64_t gates_forced;      /* times that these were opened by the clock */
  uint64_t held_ns;           /* waited for turns, all threads together */
  uint64_t reserved[5];
  uint64_t operations; /* recorded while active; a cache line of its own: hooks write it */
  uint64_t reserved1[7];
};

struct pump_worker_counters {
  uint64_t operations;     /* seen */
  uint64_t operations_hit; /* every block was resident before it ran */
  uint64_t blocks_used;    /* block uses of executed operations, but for a block's first */
  uint64_t blocks_hit;
  uint64_t miss_late;    /* block on its way when the operation ran */
  uint64_t miss_unseen;  /* operation ran before the worker decided on it */
  uint64_t miss_no_room; /* no eviction candidate was left */
  uint64_t miss_policy;  /* the policy does not prefetch */
  uint64_t resyncs;
  uint64_t overshoot_bytes_peak; /* demand: residency above the budget */
  uint64_t ticks;
  uint64_t schedules;        /* put in force */
  uint64_t catch_ups;        /* times it skipped to the newest */
  uint64_t ops_larger;       /* operations too large for the budget */
  uint64_t recorded_file;    /* 0: no recording; 1: into FILE itself, n: into FILE.n */
  uint64_t recording_error;  /* errno that ended the recording; 0 while there is none */
  uint64_t predicted;        /* operations that were expected, with the blocks they used */
  uint64_t predictions_lost; /* times that what was expected was dropped */
  uint64_t recording_ended;  /* 1: the file is whole, or recording_error says why not */
  /* Time that the GPU waited for memory and the program lost by it (docs/guides/why.md) */
  uint64_t lost_ns;
  uint64_t lost_least_ns;
  uint64_t lost_most_ns;
  uint64_t lost_of_ns;      /* since the first operation; 0: nothing is known */
  uint64_t lost_delayed_ns; /* that the program waited for a processor, in lost_ns */
  uint64_t reserved[8];
};

struct pump_shm {
  struct pump_header header;
  struct pump_shim_counters shim_counters;
  struct pump_worker_counters worker_counters;
  struct pump_device devices[16];
  struct pump_progress progress[1024];
  struct pump_command_ring commands[16][2]; /* [device][direction] */
  struct pump_schedule schedules[16];       /* by device */
  struct pump_entry_end entry_ends[1024];
  struct pump_prediction predicted[4096];
  struct pump_event events[16384];
  struct pump_range ranges[131072];
};
/* cffi: end */

#include "pump_abi_layout.h"

#endif
