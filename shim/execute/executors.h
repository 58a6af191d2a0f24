/* executors.h - what the files of executors share among themselves.
 *
 * Threads of the shim, all started with every signal blocked and the
 * recursion guard raised for life, all detached and counted:
 *
 *   pump-link      link/connect.c      one a process: connection, attach, heartbeat
 *   pump-in-D      executor.c  one or two a device: prefetch to the GPU, populate
 *   pump-out-D     executor.c  two to four a device: prefetch to the host
 *   pump-mark-D    poll.c          one a device: marker pools, polling, progress
 *
 * pump-link has a table of descriptors to itself (link/connect.c): it calls no driver,
 * starts no thread and does not write to stderr, but requests that of pump-in-D
 * (pump_executors_ask).
 *
 * A device whose program fits has the first in-thread only. The others start with its
 * first operation that is reported, those beyond a usual number when measured latencies
 * ask for them (adapt.h).
 */
#ifndef PUMP_EXECUTORS_H
#define PUMP_EXECUTORS_H

#include "adapt.h"
#include "execute.h"
#include "own_context.h"

/* ---- executors of a device (executor.c, device_executors.c) ---------------- */

enum { PUMP_EXECUTORS_OFF, PUMP_EXECUTORS_RUNNING, PUMP_EXECUTORS_BROKEN };

/* One direction of a device. Written by its threads; `started` under the lock of
 * device_executors.c. */
struct pump_direction {
  uint32_t started;        /* threads of this life */
  uint32_t wanted;         /* threads that shall work; futex of those beyond */
  uint32_t asleep;         /* threads that sleep on the ring's `wakes` */
  uint32_t flight_bytes;   /* in the driver; futex of threads that wait for less */
  uint32_t flight_waiters; /* how many do */
  uint32_t flight_slices;
  uint32_t adapting; /* 1: a thread is inside of `adapt` */
  struct pump_adapt adapt;
  /* Where the job is recorded: when an entry that could go found no room here, 0 once one
   * has been taken; and when bytes were last given back. */
  uint64_t lacked_ns, released_ns;
};

/* One per device, static. `state`, `full`, `life` and `context` change under the lock
 * of device_executors.c; the threads only read them. A thread belongs to the life it was
 * started in and ends when `life` moves on. */
struct pump_device_executors {
  uint32_t device;
  uint32_t state;      /* PUMP_SET_* */
  uint32_t full;       /* 1: more than the first in-thread was started */
  uint32_t asked;      /* 1: the link thread wants executors */
  uint32_t life;       /* bumped to end all threads */
  uint32_t alive;      /* threads that may still be in the driver; futex */
  uint32_t failures;   /* consecutive driver errors */
  uint32_t give_up;    /* 1 after too many: commands end as FAILED without a driver call */
  uint64_t gave_up_ns; /* when; after a pause executors try the driver again */
  CUcontext context;   /* of the program; where the executors live */
  /* Contexts of out-threads, by their number, once one was needed; kept for the next
   * life's. */
  CUcontext own[PUMP_OUT_THREADS_MOST];
  struct pump_own_context own_context; /* the first in-thread's */
  uint32_t own_contexts_now;           /* 1: out-threads work in contexts of their own */
  struct pump_direction directions[PUMP_DIRECTIONS];
};
struct pump_device_executors *pump_executors_of(uint32_t device);
const struct pump_adapt_bounds *pump_direction_bounds(uint32_t direction);

/* What a thread of a set is started with. */
struct pump_thread_role {
  struct pump_device_executors *set;
  uint32_t life;
  uint32_t direction; /* PUMP_TO_GPU, PUMP_TO_HOST */
  uint32_t number;    /* within its direction, from 0 */
  CUcontext context;
};

static inline bool pump_executors_lives(const struct pump_thread_role *role) {
  return PUMP_LOAD_ACQUIRE(&role->set->life) == role->life;
}

/* Starts what the link thread has requested; first in-threads call it often. */
void pump_executors_start_requested(struct pump_device_executors *set);
/* Starts threads of a direction up to the number that is wanted; by its threads. */
void pump_executors_grow(const struct pump_thread_role *role);
/* Common first and last steps of a thread of a set. `begin` is false where the thread may
 * not enter the driver; the role has no context where `end` may not either. */
bool pump_executors_thread_begin(struct pump_thread_role *role);
void pump_executors_thread_end(const struct pump_thread_role *role);
/* The calling out-thread leaves its context for one of its own, or that for the set's.
 * False when it can work in neither. */
bool pump_executors_change_context(const struct pump_thread_role *role, bool own);
/* Wakes every thread of the set. */
void pump_executors_wake(struct pump_device_executors *set);

/* True while the device's driver calls failed too often to be worth another one. */
bool pump_executors_gave_up(struct pump_device_executors *set);

/* Notes the outcome of a driver call; false when the thread must end. */
bool pump_executors_note(struct pump_device_executors *set, CUresult result,
                         const char *call);

void *pump_mover_thread(void *role);
void *pump_poll_thread(void *role);

/* ---- streams of our own (own_streams.c), in the current context -------------- */

/* How many an in-thread may have. */
uint32_t pump_stream_lanes(void);

/* ---- NUMA nodes (numa.c) -------------------------------------------------- */

/* The calling thread stays on the processors of the node that the card is at, as far as
 * it has any of them. */
void pump_node_bind(uint32_t device);

/* ---- validation (validate.c) ------------------------------------------- */

/* Around all work on a slot; what pump_slot_wait waits for. */
void pump_slot_begin(uint32_t slot);
void pump_slot_end(uint32_t slot);

/* Whether the fields of `command` are within bounds, so that its slot can be read. */
bool pump_command_validate_fields(const struct pump_command *command);
/* PUMP_RESULT_MOVED and the address to move, or the reason why it may not be moved.
 * Its fields are valid, called between begin and end of its slot. */
uint32_t pump_command_validate_state(const struct pump_command *command, uint32_t device,
                                     uint32_t direction, uint64_t *address);

/* ---- duplicates (duplicates.c) -------------------------------------------- */

/* Before blocks of one range arrive: those of `wanted`, a bit each, get READ_MOSTLY, if the
 * driver and the range allow it. Returns those that the host keeps a valid copy of. */
uint32_t pump_duplicates_arrive(uint32_t device, uint64_t address, uint64_t length_bytes,
                                uint32_t wanted);
/* Before blocks leave: ends READ_MOSTLY, at which duplicates are gone from the GPU.
 * `clean`: a bit for each block that is valid on the host already. Returns the driver's
 * answer. */
CUresult pump_duplicates_depart(uint32_t device, uint64_t address, uint64_t length_bytes,
                                uint32_t *clean);
/* The next blocks of a slice that are not clean: from `*offset_bytes` + `*bytes` on, both 0
 * at first. False: there are none. */
bool pump_duplicates_rest(uint32_t clean, uint64_t length_bytes, uint64_t *offset_bytes,
                          uint64_t *bytes);

/* ---- the process's page map (page_map.c) ---------------------------------- */

#define PUMP_BLOCK_PAGES (PUMP_BLOCK_BYTES / 4096)
/* Open for one departure. */
struct pump_page_map {
  int file; /* -1: none */
};
struct pump_page_map pump_page_map_open(void);
void pump_page_map_close(struct pump_page_map map);
/* How many pages of the block are mapped for the CPU; -1: unknown. */
int pump_page_map_mapped(struct pump_page_map map, uint64_t address);

/* ---- bytes in flight (flight.c) ------------------------------------------ */

uint32_t pump_flight_bound(uint32_t device, uint32_t direction);
/* Whether so many bytes may be handed to the driver, so that it has at most `most_bytes`,
 * and no more than it may have in any case. */
bool pump_flight_has_room(uint32_t device, uint32_t direction, uint64_t bytes,
                          uint32_t most_bytes);
/* Counts them as in the driver, if it has no more than `bound` then; and gives them back.
 */
bool pump_flight_reserve(struct pump_direction *direction, uint32_t bytes, uint32_t bound);
void pump_flight_release(struct pump_direction *direction, uint32_t bytes);

/* ---- schedules (schedule.c) ------------------------------------------------------ */

/* Whether the conditions of the next entry hold; whether it may go, because there is room
 * in the driver as well; takes it, if it may go. */
bool pump_schedule_ready(uint32_t device, uint32_t direction);
bool pump_schedule_waits(uint32_t device, uint32_t direction);
bool pump_schedule_take(uint32_t device, uint32_t direction, struct pump_entry *entry,
                        uint64_t *made_ns);
/* So much has left the device. With the mapping entered, like pump_schedule_take. */
void pump_schedule_left(uint32_t device, uint64_t bytes);
/* An entry has ended with that result, before its end is reported; under the same rule. */
void pump_schedule_ended(uint32_t device, uint32_t direction, uint32_t result,
                         uint64_t bytes);

/* ---- where slices lose time (hops.c); only where the job is recorded ---------- */

/* Steps of a slice; 0: it did not get that far. CLOCK_MONOTONIC. */
struct pump_slice_times {
  uint64_t free_ns; /* since when its thread could have taken it */
  uint64_t taken_ns, called_ns, returned_ns, done_ns;
};
/* Notes that bytes have left; with the mapping entered. */
void pump_hops_left(uint32_t device);
/* Notes that an entry has ended; with the mapping entered. */
void pump_hops_ended(uint32_t device);
/* When an entry that was just taken could go: the last thing that it waited for. */
uint64_t pump_hops_ready(struct pump_device_executors *set, uint32_t direction,
                         const struct pump_entry *entry, uint64_t made_ns);
/* Writes the hops of a slice beside its end, which follows. */
void pump_hops_write(uint64_t ticket, const struct pump_slice_times *times);

/* ---- populate (populate.c) -------------------------------------------- */

struct pump_populate_slice {
  uint32_t slot, generation;
  uint64_t offset_bytes, length_bytes;
};
/* Next slice for `device`; false when there is none, or not everything fits into the
 * budget. */
bool pump_populate_waits(uint32_t device);
bool pump_populate_next(uint32_t device, struct pump_populate_slice *slice);

#endif
