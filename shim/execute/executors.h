/* executors.h - declarations shared by the executors' files.
 *
 * Threads of the shim (D: device). All block every signal, keep the recursion guard
 * raised, and are detached and counted:
 *
 *   `pump-link`     link/connect.c   One per process: connection, attach, heartbeat.
 *   `pump-in-D`     executor.c       One or two per device: prefetch to the GPU, populate.
 *   `pump-out-D`    executor.c       Two to four per device: prefetch to the host.
 *   `pump-mark-D`   poll.c           One per device: marker pools, polling, progress.
 *
 * The link thread has its own descriptor table (link/connect.c). It calls no driver
 * function, starts no thread and does not write to stderr. It requests these from the
 * in-thread (pump_executors_request).
 *
 * While the program fits, a device has only its first in-thread. The usual number of
 * threads starts with the device's first reported operation, and more threads if measured
 * latencies require them (adapt.h).
 */
#ifndef PUMP_EXECUTORS_H
#define PUMP_EXECUTORS_H

#include "adapt.h"
#include "execute.h"
#include "own_context.h"

/* ---- executors of a device (executor.c, device_executors.c) ---------------- */

enum { PUMP_EXECUTORS_OFF, PUMP_EXECUTORS_RUNNING, PUMP_EXECUTORS_BROKEN };

/* One direction of a device. Its threads write the fields, except `started`, which
 * changes under the lock of device_executors.c. */
struct pump_direction {
  uint32_t started;        /* threads started in the current epoch */
  uint32_t wanted;         /* threads that should work; futex of surplus threads */
  uint32_t asleep;         /* threads that sleep on the ring's `wakes` */
  uint32_t flight_bytes;   /* bytes in the driver; futex of threads that wait for space */
  uint32_t flight_waiters; /* threads that wait on flight_bytes */
  uint32_t flight_slices;
  uint32_t adapting; /* 1: a thread is running the controller */
  struct pump_adapt adapt;
  /* Set only if the job is recorded. lacked_ns: when a ready entry found no space here; 0
   * after an entry is taken. released_ns: when bytes were last released. */
  uint64_t lacked_ns, released_ns;
};

/* Executors of one device. `state`, `full`, `epoch` and `context` change only under the
 * lock of device_executors.c; the threads read them. A thread ends when `epoch` differs
 * from the value at the thread's start. */
struct pump_device_executors {
  uint32_t device;
  uint32_t state;      /* PUMP_EXECUTORS_* */
  uint32_t full;       /* 1: more than the first in-thread was started */
  uint32_t asked;      /* 1: the link thread requests executors */
  uint32_t epoch;      /* incremented to end all threads */
  uint32_t alive;      /* threads that may still be in the driver; futex */
  uint32_t failures;   /* consecutive driver errors */
  uint32_t give_up;    /* 1 after too many errors: commands fail without a driver call */
  uint64_t gave_up_ns; /* when give_up was set; after a pause the driver is tried again */
  CUcontext context;   /* context of the program in which the executors work */
  /* Contexts created for out-threads, by thread number. They are reused after a restart. */
  CUcontext own[PUMP_OUT_THREADS_MOST];
  struct pump_own_context own_context; /* when out-threads get contexts of their own; used
                                          only by the first in-thread */
  uint32_t own_contexts_now;           /* 1: out-threads work in contexts of their own */
  struct pump_direction directions[PUMP_DIRECTIONS];
};
struct pump_device_executors *pump_executors_of(uint32_t device);
const struct pump_adapt_bounds *pump_direction_bounds(uint32_t direction);

/* Arguments of a thread of a set. */
struct pump_thread_role {
  struct pump_device_executors *set;
  uint32_t epoch;
  uint32_t direction; /* PUMP_TO_GPU or PUMP_TO_HOST */
  uint32_t number;    /* thread number within its direction, from 0 */
  CUcontext context;
};

static inline bool pump_executors_are_current(const struct pump_thread_role *role) {
  return PUMP_LOAD_ACQUIRE(&role->set->epoch) == role->epoch;
}

/* Starts the executors that the link thread requested. First in-threads poll it. */
void pump_executors_start_requested(struct pump_device_executors *set);
/* Starts more threads of the calling thread's direction, up to the wanted number. */
void pump_executors_grow(const struct pump_thread_role *role);
/* Common first and last steps of a set's thread. `begin` returns false if the thread must
 * not enter the driver. `end` makes no driver call if the role has no context. */
bool pump_executors_thread_begin(struct pump_thread_role *role);
void pump_executors_thread_end(const struct pump_thread_role *role);
/* Moves the calling out-thread to a context of its own, or back to the set's context.
 * Returns false if it can work in neither. */
bool pump_executors_change_context(const struct pump_thread_role *role, bool own);
/* Wakes every thread of the set. */
void pump_executors_wake(struct pump_device_executors *set);

/* Returns true during the pause that follows too many driver errors in a row: the thread
 * must then make no driver call. */
bool pump_executors_gave_up(struct pump_device_executors *set);

/* Notes the result of a driver call. Returns false if the thread must end. */
bool pump_executors_note_result(struct pump_device_executors *set, CUresult result,
                                const char *call);

void *pump_mover_thread(void *role);
void *pump_marker_thread(void *role);

/* ---- the shim's own streams (own_streams.c), in the current context ---------- */

/* Returns how many streams an in-thread may use. */
uint32_t pump_stream_lanes(void);

/* ---- NUMA nodes (numa.c) -------------------------------------------------- */

/* Binds the calling thread to the CPU cores of the GPU's NUMA node, as far as it may use
 * them. */
void pump_thread_bind_to_gpu(uint32_t device);

/* ---- validation (validate.c) ------------------------------------------- */

/* Marks the beginning and the end of work on a slot, which pump_slot_wait waits for. */
void pump_slot_begin(uint32_t slot);
void pump_slot_end(uint32_t slot);

/* Returns whether the fields of `command` are in bounds, so that its slot can be read. */
bool pump_command_validate_fields(const struct pump_command *command);
/* Returns PUMP_RESULT_MOVED and the address to move, or the reason to refuse the command.
 * Requires valid fields and a call between begin and end of the slot. */
uint32_t pump_command_validate_state(const struct pump_command *command, uint32_t device,
                                     uint32_t direction, uint64_t *address);

/* ---- advice (duplicates.c, in_place.c) -------------------------------------- */

/* Returns whether only pump advises the memory: its owner changes only with the
 * allocation, and no peer maps it. */
bool pump_takes_advice(uint32_t device, uint64_t address);
CUresult pump_advise(uint32_t device, uint64_t address, uint64_t length_bytes,
                     CUmem_advise advice);
/* Lets kernels read the memory in place, or migrates it again; `advice`: PUMP_ADVICE_*.
 * Returns whether the driver accepted it for all of the memory. */
bool pump_in_place_advise(uint32_t device, uint64_t address, uint64_t length_bytes,
                          uint32_t advice);

/* ---- duplicates (duplicates.c) -------------------------------------------- */

/* Sets READ_MOSTLY on those blocks of `wanted` (one bit each) for which driver and range
 * allow it, before they arrive. Returns the blocks whose copy on the host stays valid. */
uint32_t pump_duplicates_prepare_arrival(uint32_t device, uint64_t address,
                                         uint64_t length_bytes, uint32_t wanted);
/* Ends READ_MOSTLY before blocks are evicted, which drops duplicates from the GPU. Sets a
 * bit in `clean` for each block that is already valid on the host. Returns the driver's
 * result. */
CUresult pump_duplicates_prepare_eviction(uint32_t device, uint64_t address,
                                          uint64_t length_bytes, uint32_t *clean);
/* Finds the next blocks of a slice that are not clean, after `*offset_bytes` + `*bytes`
 * (both 0 at first). Returns false if there are none. */
bool pump_duplicates_next_dirty(uint32_t clean, uint64_t length_bytes,
                                uint64_t *offset_bytes, uint64_t *bytes);

/* ---- the process's page map (page_map.c) ---------------------------------- */

#define PUMP_BLOCK_PAGES (PUMP_BLOCK_BYTES / 4096)
/* The process's page map, opened for one eviction. */
struct pump_page_map {
  int file; /* descriptor; -1: not available */
};
struct pump_page_map pump_page_map_open(void);
void pump_page_map_close(struct pump_page_map map);
/* Returns how many pages of the block are mapped for the CPU; -1: unknown. */
int pump_page_map_count_mapped(struct pump_page_map map, uint64_t address);

/* ---- bytes in flight (flight.c) ------------------------------------------ */

uint32_t pump_flight_bound(uint32_t device, uint32_t direction);
/* Returns whether the driver may get `bytes` more. Neither `most_bytes` nor the
 * direction's bound may be exceeded, except by a single slice. */
bool pump_flight_fits(uint32_t device, uint32_t direction, uint64_t bytes,
                      uint32_t most_bytes);
/* Reserves bytes in the driver, unless they would exceed `bound`. Releases them again. */
bool pump_flight_reserve(struct pump_direction *direction, uint32_t bytes, uint32_t bound);
void pump_flight_release(struct pump_direction *direction, uint32_t bytes);

/* ---- schedules (schedule.c) ------------------------------------------------------ */

/* `ready`: returns whether the conditions of the next entry hold. `can_start`: also
 * requires space in flight, so that the entry waits only for a thread. `take`: takes the
 * entry if it may start. */
bool pump_schedule_ready(uint32_t device, uint32_t direction);
bool pump_schedule_can_start(uint32_t device, uint32_t direction);
bool pump_schedule_take(uint32_t device, uint32_t direction, struct pump_entry *entry,
                        uint64_t *made_ns);
/* Counts bytes that were evicted from the device. Requires an entered mapping. */
void pump_schedule_add_left_bytes(uint32_t device, uint64_t bytes);
/* Adds a schedule entry that ended to the schedule's ended_bytes, for which evictions may
 * wait (pump_ended_bytes). Call it before the entry's end is reported, and between
 * pump_mapping_enter and pump_mapping_leave. */
void pump_schedule_add_ended_bytes(uint32_t device, uint32_t direction, uint32_t result,
                                   uint64_t bytes);

/* ---- latency breakdown of slices (hops.c); only if the job is recorded -------- */

/* Times of a slice's steps, CLOCK_MONOTONIC; 0: step not reached. */
struct pump_slice_times {
  uint64_t free_ns; /* when the entry was ready and its thread idle */
  uint64_t taken_ns, called_ns, returned_ns, done_ns;
};
/* Notes the time of an eviction. Requires an entered mapping. */
void pump_hops_note_eviction(uint32_t device);
/* Notes when an entry ended. Requires an entered mapping. */
void pump_hops_note_end(uint32_t device);
/* Returns the time at which the last condition of a just taken entry became true. */
uint64_t pump_hops_find_ready(struct pump_device_executors *set, uint32_t direction,
                              const struct pump_entry *entry, uint64_t made_ns);
/* Writes the latencies of a slice next to its result, which is written afterwards. */
void pump_hops_write(uint64_t ticket, const struct pump_slice_times *times);

/* ---- populate (populate.c) -------------------------------------------- */

struct pump_populate_slice {
  uint32_t slot, generation;
  uint64_t offset_bytes, length_bytes;
};
/* Returns whether ranges are queued (`waits`). Takes the next slice (`next`), or returns
 * false if the queue is empty or not everything fits into the budget. */
bool pump_populate_is_queued(uint32_t device);
bool pump_populate_take_slice(uint32_t device, struct pump_populate_slice *slice);

#endif
