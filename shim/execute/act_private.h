/* act_private.h - what the files of the act side share among themselves.
 *
 * Threads of the act side, all started with every signal blocked and the
 * recursion guard raised for life, all detached and counted:
 *
 *   pump-link      act_link.c      one a process: connection, attach, heartbeat
 *   pump-in-D      act_executor.c  one or two a device: prefetch to the GPU, populate
 *   pump-out-D     act_executor.c  two to four a device: prefetch to the host
 *   pump-mark-D    act_marker.c    one a device: marker pools, polling, progress
 *
 * pump-link has a table of descriptors to itself (act_link.c): it calls no driver, starts
 * no thread and does not write to stderr, but asks pump-in-D for that (pump_set_ask).
 *
 * A device whose program fits has the first in-thread only. The others start with its
 * first operation that is reported, those beyond a usual number when measured latencies
 * ask for them (act_adapt.h).
 */
#ifndef PUMP_ACT_PRIVATE_H
#define PUMP_ACT_PRIVATE_H

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "act_adapt.h"
#include "act_apart.h"
#include "pump_abi.h"
#include "pump_cuda.h"
#include "pump_ring.h"
#include "shim/base/shim.h"

/* One command or populate slice moves at most this much: a migration holds the
 * process's mmap lock, and a free waits for the slice that runs. */
#define PUMP_SLICE_BYTES (32u << 20)

/* What a device's executors have in the driver at most, in each direction, whatever the
 * worker asks for: on its way a block serves nobody. Half of the budget where that is
 * less; a single slice may always go. */
#define PUMP_IN_FLIGHT_BYTES (128u << 20)
#define PUMP_OUT_FLIGHT_BYTES (64u << 20)
/* What is planned comes only while less is in the driver: commands, which may be more
 * urgent, do not wait for it. Enough to fill a link: the next goes as soon as one ends. */
#define PUMP_PLANNED_BYTES (16u << 20)

#define PUMP_IN_THREADS_MOST 2
/* Slices that one in-thread keeps in the driver: a block that the driver knows to be on
 * its way is waited for by a kernel, one that still waits in our ring is faulted. Each
 * needs a stream; the second number holds where these share the program's priority. */
#define PUMP_IN_LANES 8
#define PUMP_IN_LANES_SHARED 4
#define PUMP_OUT_THREADS_MOST 4

/* ---- small tools --------------------------------------------------------- */

/* Starts a detached thread named `name` (at most 15 characters); 0 or -errno. */
int pump_thread_start(const char *name, void *(*body)(void *), void *argument);

static inline void pump_futex_sleep(uint32_t *word, uint32_t value, uint64_t timeout_ns) {
  pump_bell_wait(word, value, timeout_ns);
}
static inline void pump_futex_wake(uint32_t *word) {
  pump_futex(word, FUTEX_WAKE, INT32_MAX, NULL);
}

static inline void pump_raise(uint64_t *word, uint64_t value) {
  uint64_t seen = PUMP_LOAD(word);
  while (seen < value && !__atomic_compare_exchange_n(word, &seen, value, true,
                                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
}

/* Something has completed: the worker shall look. */
static inline void pump_tell_worker(void) {
  PUMP_ADD(&pump_shm->header.activity, 1);
  pump_bell_ring(&pump_shm->header.worker_asleep, &pump_shm->header.worker_bell);
}

/* Keeps the signals that writing can raise from the program: they are blocked between the
 * two calls, and what has come meanwhile is forgotten. False: nothing is blocked, so do not
 * write (act_log.c). */
struct pump_hush {
  sigset_t before, pending;
};
bool pump_hush_begin(struct pump_hush *hush);
void pump_hush_end(const struct pump_hush *hush);

/* From now on the calling thread has descriptors of its own: it keeps what it has to say on
 * stderr for the others. One thread alone may do so (act_log.c). */
void pump_log_keep(void);
/* Says what was kept. By any other thread; costs two loads where nothing was. */
void pump_log_release(void);
void pump_log_fork_child(void);

/* An error line on stderr and in the log, whatever the level (act_log.c). */
void pump_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* "512 MiB", "23.4 GiB"; returns the length. */
size_t pump_bytes_text(char *text, size_t room, uint64_t bytes);

/* ---- host memory (act_host_memory.c) -------------------------------------- */

/* A whole small file as text; -errno where it cannot be read or is empty. */
int pump_text_read(const char *path, char *text, size_t room);

/* One thing that host memory comes out of: the machine, or a cgroup with a limit. */
struct pump_host_level {
  uint64_t id;             /* the same for all processes on this machine */
  uint64_t headroom_bytes; /* may still be taken, reserve deducted */
  uint64_t total_bytes;
  uint64_t reserve_bytes; /* what was deducted */
  char cgroup[1024];      /* its directory; "" for the machine */
};

#define PUMP_HOST_LEVELS 8

struct pump_host_memory {
  uint64_t headroom_bytes; /* of the tightest level; UINT64_MAX: unknown, without levels */
  uint32_t level_count;
  struct pump_host_level levels[PUMP_HOST_LEVELS];
};
/* -errno: the process may open no more files, so figures are missing. */
int pump_host_memory_read(struct pump_host_memory *memory);

/* Of the process, not of what it looked at. */
static inline bool pump_is_shortage(int error) {
  return error == EMFILE || error == ENFILE || error == ENOMEM;
}

/* ---- what other processes have claimed of it (act_ledger.c) ------------------ */

/* What a process may convert beyond its claims of old while others cannot see a larger one,
 * or it cannot see theirs: one part in so many of what the host leaves. */
#define PUMP_UNSEEN_SHARE 8
#define PUMP_UNSEEN_SHARE_TEXT "an eighth"

/* Of one level, by all others. active_bytes: of those whose devices do not hold all that
 * they converted, so that part of it may be on the host already. first_bytes: the largest
 * headroom that any of them began with. */
struct pump_claims {
  uint64_t bytes, pending_bytes, active_bytes, first_bytes, largest_bytes;
  int64_t largest_pid;
  uint32_t largest_user;
  bool largest_is_near; /* the number is of our namespace of process numbers */
  uint32_t processes;
};

/* Before the link thread starts: whether there is a ledger. */
bool pump_ledger_start(void);
/* Makes sure, by the link thread and often, that this process has an entry that the others
 * see. True: it is a new one, which says nothing yet. */
bool pump_ledger_keep(void);
/* Tells the others what this process claims, `pending_bytes` of it not for sure yet.
 * first: as it was when nothing was converted. -errno: they do not see it. Callers hold the
 * lock of act_limit.c. */
int pump_ledger_write(uint64_t claimed_bytes, uint64_t pending_bytes, bool active,
                      const struct pump_host_memory *first);
/* For each level of `host`. -errno: not all of them could be read. */
int pump_ledger_read(const struct pump_host_memory *host,
                     struct pump_claims claims[PUMP_HOST_LEVELS]);
/* At the end of the process. */
void pump_ledger_leave(void);
void pump_ledger_fork_child(void);

/* What this process has on its cards, for the others; -errno. By the link thread. */
int pump_ledger_tell(const struct pump_card *cards, uint32_t count);
/* Adds what the others say. -errno: not all of them could be read. */
int pump_ledger_cards(struct pump_neighbours *neighbours);

/* By the link thread, often: tells the others whether this process is active, where that
 * has changed. fresh: the entry is a new one. */
void pump_limit_refresh(bool fresh);

/* By the link thread, often: tells the others what this process has on its cards, and takes
 * what they leave. Answers like pump_device_adopt_budgets. */
uint32_t pump_share_refresh(bool fresh);
void pump_share_start(void);
void pump_share_fork_child(void);

/* ---- the mapping (act_attach.c) ---------------------------------------------------- */

/* Brackets every access to a command ring. False while another mapping is being
 * put under the region: stay away and come again. Never held across a driver call
 * or a sleep. `*epoch` tells whether it is still the mapping of an earlier visit. */
bool pump_mapping_enter(uint64_t *epoch);
void pump_mapping_leave(void);

/* Replaces the region's memory by `memory`, a memfd of pumpd's, and carries its
 * state over. False when it is not what was agreed on; the caller closes it. */
bool pump_attach(int memory);
void pump_attach_fork_child(void);

/* ---- link (act_link.c) ---------------------------------------------------- */

/* Starts the thread where PUMP_SOCKET names a socket or PUMP_LEDGER a folder; once. */
void pump_link_start(void);
/* Whether the thread has a table of descriptors to itself. */
bool pump_link_has_table(void);
/* How often the worker was lost, for the summary. */
uint32_t pump_link_losses(void);
/* The thread shall do nothing more; does not wait for it. The connection ends with
 * the process: only the link thread touches the descriptor, so nobody can be
 * between checking and using it when it is closed. */
void pump_link_stop(void);
void pump_link_fork_child(void);

/* ---- executors of a device (act_executor.c, act_context.c) ---------------- */

enum { PUMP_SET_OFF, PUMP_SET_RUNNING, PUMP_SET_BROKEN };

/* One direction of a device. Written by its threads; `started` under the lock of
 * act_context.c. */
struct pump_direction {
  uint32_t started;        /* threads of this life */
  uint32_t wanted;         /* threads that shall work; futex of those beyond */
  uint32_t slices;         /* that each may have in flight */
  uint32_t asleep;         /* threads that sleep on the ring's bell */
  uint32_t flight_bytes;   /* in the driver; futex of who waits for less */
  uint32_t flight_waiters; /* how many do */
  uint32_t flight_slices;
  uint32_t adapting; /* 1: a thread is inside of `adapt` */
  struct pump_adapt adapt;
};

/* One per device, static. `state`, `full`, `life` and `context` change under the lock
 * of act_context.c; the threads only read them. A thread belongs to the life it was
 * started in and ends when `life` moves on. */
struct pump_set {
  uint32_t device;
  uint32_t state;      /* PUMP_SET_* */
  uint32_t full;       /* 1: more than the first in-thread was started */
  uint32_t asked;      /* 1: the link thread would have it so */
  uint32_t life;       /* bumped to end all threads */
  uint32_t alive;      /* threads that may still be in the driver; futex */
  uint32_t failures;   /* consecutive driver errors */
  uint32_t give_up;    /* 1 after too many: commands are answered FAILED unasked */
  uint64_t gave_up_ns; /* when; after a pause the driver is asked again */
  uint32_t mark_bell;  /* futex of the marker thread, process-private */
  uint32_t mark_asleep;
  CUcontext context; /* of the program; where the executors live */
  /* Of out-threads, by number, once they needed them; kept for those of the next life. */
  CUcontext own[PUMP_OUT_THREADS_MOST];
  struct pump_apart apart; /* the first in-thread's */
  uint32_t apart_now;      /* 1: out-threads work in contexts of their own */
  struct pump_direction directions[PUMP_DIRECTIONS];
};
struct pump_set *pump_set_of(uint32_t device);
const struct pump_adapt_bounds *pump_direction_bounds(uint32_t direction);

/* What a thread of a set is started with. */
struct pump_thread_role {
  struct pump_set *set;
  uint32_t life;
  uint32_t direction; /* PUMP_TO_GPU, PUMP_TO_HOST */
  uint32_t number;    /* within its direction, from 0 */
  CUcontext context;
};

static inline bool pump_set_lives(const struct pump_thread_role *role) {
  return PUMP_LOAD_ACQUIRE(&role->set->life) == role->life;
}

/* Starts executors of `device` unless they run: the first in-thread, or with `full`
 * the usual number and the marker thread. Cheap when they do. */
void pump_set_need(uint32_t device, bool full);
/* The same with `full` for the link thread: the first in-thread, if there is one, does it.
 * To be asked again until it is done. */
void pump_set_ask(uint32_t device);
/* What the link thread has asked for: by first in-threads, often. */
void pump_set_errands(struct pump_set *set);
/* Starts threads of a direction up to the number that is wanted; by its threads. */
void pump_set_grow(const struct pump_thread_role *role);
/* Common first and last steps of a thread of a set. Where it may not enter the driver
 * `begin` is false, and the role without a context if `end` may not either. */
bool pump_set_thread_begin(struct pump_thread_role *role);
void pump_set_thread_end(const struct pump_thread_role *role);
/* The calling out-thread leaves its context for one of its own, or that for the set's.
 * False when it can work in neither. */
bool pump_set_change_context(const struct pump_thread_role *role, bool own);
/* Wakes every thread of the set; of all sets that have any. */
void pump_set_wake(struct pump_set *set);
void pump_sets_wake(void);
/* True while the device's driver calls failed too often to be worth another one. */
bool pump_set_gave_up(struct pump_set *set);

/* Notes the outcome of a driver call; false when the thread must end now. */
bool pump_set_note(struct pump_set *set, CUresult result, const char *call);

/* Contexts of the program by small numbers; they are used again after an end. */
#define PUMP_MAX_CONTEXTS 64
/* The context of that number if it lives on `device`, else NULL. */
CUcontext pump_context_at(uint32_t index, uint32_t device);

void *pump_mover_thread(void *role);
void *pump_marker_thread(void *role);

void pump_context_fork_child(void);
/* Ends all threads of all sets; waits until `deadline_ns`. Takes no lock. */
void pump_sets_stop(uint64_t deadline_ns);

/* ---- streams of our own (act_stream.c), in the current context -------------- */

/* How many an in-thread may have. */
uint32_t pump_stream_lanes(void);

/* ---- NUMA nodes (act_node.c) -------------------------------------------------- */

/* The calling thread stays on the processors of the node that the card is at, as far as
 * it has any of them. */
void pump_node_bind(uint32_t device);

/* ---- validation (act_validate.c) ------------------------------------------- */

/* Brackets all work on a slot; what pump_act_wait_slot waits for. */
void pump_slot_begin(uint32_t slot);
void pump_slot_end(uint32_t slot);
void pump_slot_fork_child(void);

/* Whether `command` makes any sense, whatever it is about: its slot can be looked at. */
bool pump_command_sane(const struct pump_command *command);
/* PUMP_RESULT_MOVED and the address to move, or the reason why it may not be moved.
 * The command is sane, its slot bracketed. */
uint32_t pump_command_judge(const struct pump_command *command, uint32_t device,
                            uint32_t direction, uint64_t *address);

/* ---- plans (act_plan.c) ------------------------------------------------------ */

/* Whether so many bytes of what is planned may be handed to the driver now
 * (act_executor.c). */
bool pump_flight_has_room(uint32_t device, uint32_t direction, uint64_t bytes);

void pump_plan_start(void);
/* Something of the plan may go now; and takes it. */
bool pump_plan_waits(uint32_t device, uint32_t direction);
bool pump_plan_take(uint32_t device, uint32_t direction, struct pump_command *command);
/* So much has left the device. With the mapping entered, like pump_plan_take. */
void pump_plan_left(uint32_t device, uint64_t bytes);

/* Operations have executed or bytes have left: who may go on now is woken. */
void pump_plan_wake(void);
static inline void pump_plan_look(void) {
  if (PUMP_LOAD(&pump_shm->header.armed) != 0) pump_plan_wake();
}

/* ---- populate (act_populate.c) -------------------------------------------- */

struct pump_populate_slice {
  uint32_t slot, generation;
  uint64_t offset_bytes, length_bytes;
};
/* Next slice for `device`; false when there is none or all must fit no more. */
bool pump_populate_waits(uint32_t device);
bool pump_populate_next(uint32_t device, struct pump_populate_slice *slice);
void pump_populate_fork_child(void);

/* ---- progress (act_progress.c) and markers (act_marker.c) ------------------ */

/* Everything issued on the stream up to `seq` has executed. */
void pump_progress_advance(uint32_t stream_index, uint64_t seq);
/* Everything up to this one has; our own knowledge, not the mapping's copy. */
uint64_t pump_progress_executed(uint32_t stream_index);
/* After an attach: writes our own knowledge into the new mapping. */
void pump_progress_republish(void);
/* The context of a stream and its small number. NULL where nobody knows it, and while
 * nothing may be put between the launches of the stream (pump_progress_chained). */
CUcontext pump_progress_context(uint32_t stream_index, uint32_t *context_index);
/* The context is gone: nothing of its streams will be heard of again. */
void pump_progress_context_gone(CUcontext context);
void pump_progress_fork_child(void);
void pump_event_fork_child(void); /* act_event.c */

/* Records a marker for `seq` on a stream of `context`, whose small number is
 * `context_index`; false when it was skipped. */
bool pump_marker_record(uint32_t device, CUcontext context, uint32_t context_index,
                        uint32_t stream_index, CUstream stream, uint64_t seq);
/* Few are left: the rest is for operations that wait for none of their own. */
bool pump_markers_are_few(uint32_t context_index);
uint64_t pump_markers_skipped(void);
void pump_marker_fork_child(void);

/* ---- the rest ---------------------------------------------------------------- */

void pump_limit_fork_child(void);

#endif
