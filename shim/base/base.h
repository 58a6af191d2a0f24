/* base.h - the foundation of every room of the shim: process state, the recursion guard,
 * the clock, threads, the mapping and the log.
 *
 * Each global belongs to one file. A forked child resets them to their initial values
 * (life/start.c).
 */
#ifndef PUMP_BASE_H
#define PUMP_BASE_H

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "limits.h"
#include "pump_abi.h"
#include "pump_assert.h"
#include "pump_cuda.h"
#include "pump_cuda_graph.h"
#include "pump_ring.h"

#define PUMP_LIKELY(x) __builtin_expect(!!(x), 1)
#define PUMP_UNLIKELY(x) __builtin_expect(!!(x), 0)

/* ---- state (state.c) ------------------------------------------------------ */

/* True: every hook only calls the real function. Initially true; false once the real
 * cuInit has succeeded; permanently true after an internal error. */
extern bool pump_off;

/* Number of devices whose operations are reported: ACTIVE or recorded ones; 0 while inert.
 * Operation hooks test it. */
extern uint32_t pump_reporting;

/* Recursion guard of this thread: while it is above 0, every hook only calls the real
 * function. Pump's own threads raise it once and never lower it. */
extern __thread uint32_t pump_reentry_depth __attribute__((tls_model("initial-exec")));

static inline bool pump_inert(void) {
  return __atomic_load_n(&pump_off, __ATOMIC_ACQUIRE) || pump_reentry_depth != 0;
}

/* Returns true while operations are not reported: pump is inert, or everything fits into
 * the budgets of a job that is not recorded. Costs one predictable branch. */
static inline bool pump_reports_nothing(void) {
  return __atomic_load_n(&pump_reporting, __ATOMIC_ACQUIRE) == 0;
}
static inline bool pump_quiet(void) {
  return PUMP_LIKELY(pump_reports_nothing()) || pump_reentry_depth != 0;
}

static inline void pump_enter(void) {
  pump_reentry_depth++;
}
static inline void pump_leave(void) {
  PUMP_ASSERT(pump_reentry_depth != 0, "each pump_leave follows a pump_enter");
  pump_reentry_depth--;
}

/* Handles an internal error: logs one line, then passes every call through for the rest
 * of the process. `reason` is a sentence without a full stop. */
void pump_give_up(const char *reason);

/* Counts calls of our context and memory hooks since cuInit. If a context exists while
 * this is 0, the program has reached the driver without passing pump. Written by all
 * threads, relaxed. */
extern uint64_t pump_calls_seen;

uint64_t pump_now_ns(void); /* CLOCK_MONOTONIC */

/* Whether the job records a trace (PUMP_RECORD): then everything is reported, even if it
 * fits. Set before pump_off becomes false, and constant afterwards. */
extern bool pump_recording;

/* The shared region, at one fixed address per process. First anonymous; later the link
 * thread maps the memfd over it (and repeats MADV_DONTFORK). NULL until cuInit
 * succeeds. */
extern struct pump_shm *pump_shm;

/* Returns the number of the newest operation. */
static inline uint64_t pump_newest_seq(void) {
  return PUMP_LOAD(&pump_shm->header.next_seq) - 1;
}

void pump_state_fork_child(void);

/* ---- threads (thread.c) and waiting -------------------------------------- */

/* Starts a detached thread named `name` (at most 15 characters). Returns 0 or -errno.
 * `body` must call pump_thread_begin() first. */
int pump_thread_start(const char *name, void *(*body)(void *), void *argument);
/* Raises the calling thread's guard, so that its driver calls pass straight through, and
 * lets it run on all CPU cores of the process. */
void pump_thread_begin(void);

/* Asks the kernel to prefer the calling thread to the program's own: lowers its niceness
 * by 10. Changes nothing if RLIMIT_NICE forbids it. */
void pump_thread_raise_priority(void);

static inline void pump_futex_sleep(uint32_t *word, uint32_t value, uint64_t timeout_ns) {
  pump_sleep_wait(word, value, timeout_ns);
}
static inline void pump_futex_wake(uint32_t *word) {
  pump_futex(word, FUTEX_WAKE, INT32_MAX, NULL);
}

static inline void pump_atomic_max(uint64_t *word, uint64_t value) {
  uint64_t seen = PUMP_LOAD(word);
  while (seen < value && !__atomic_compare_exchange_n(word, &seen, value, true,
                                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
}

/* Returns whether a thread holds the lock. Only for PUMP_ASSERT: takes it if not. */
static inline bool pump_is_locked(pthread_mutex_t *lock) {
  return pthread_mutex_trylock(lock) == EBUSY;
}

/* Wakes the worker because something has completed. */
static inline void pump_worker_notify(void) {
  PUMP_ADD(&pump_shm->header.activity, 1);
  pump_wake(&pump_shm->header.worker_asleep, &pump_shm->header.worker_wakes);
}

/* ---- the mapping (mapping.c) ---------------------------------------------- */

/* Begins an access to a command ring; pump_mapping_leave ends it. Returns false while the
 * link thread replaces the mapping: then the caller must not touch the ring, and tries
 * again later. Never held across a driver call or a sleep. `*epoch` identifies the
 * mapping. */
bool pump_mapping_enter(uint64_t *epoch);
void pump_mapping_leave(void);
/* Returns whether a thread is inside an access. Only for PUMP_ASSERT. */
bool pump_mapping_entered(void);

/* Closes and opens the mapping around a change: waits until no thread is inside an
 * access, then admits threads again. Only for the link thread. */
void pump_mapping_close(void);
void pump_mapping_open(void);
void pump_mapping_fork_child(void);

/* ---- log ----------------------------------------------------------------- */

#define PUMP_LOG_ERROR 0
#define PUMP_LOG_WARNING 1
#define PUMP_LOG_INFO 2
#define PUMP_LOG_DEBUG 3

/* Writes one line "pump: ..." to PUMP_LOG_FILE, or else to stderr. `format` has no
 * newline. Allocates nothing and keeps errno. */
void pump_log(int level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Logs only once for each flag (a static word, initially 0). Returns true on the first
 * call. */
bool pump_log_once(uint32_t *said, int level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Size of a quoted name in a message; the rest of the name is cut off. */
#define PUMP_QUOTED_BYTES 640

/* Quotes a name that others chose (a path, a symbol, a variable) for a message; returns
 * `text`. A plain shell word stays unchanged. Any other name gets single quotes, with
 * \xNN for quotes, line ends and terminal control characters (as in pump/base/names.py). */
const char *pump_quoted(char text[PUMP_QUOTED_BYTES], const char *name);
#define PUMP_QUOTED(name) pump_quoted((char[PUMP_QUOTED_BYTES]){0}, name)

/* Hides from the program the signals that a write can raise: blocks them between the two
 * calls and discards new ones. Returns false if nothing is blocked: then do not write
 * (log.c). */
struct pump_write_signals {
  sigset_t before, pending;
};
bool pump_block_write_signals(struct pump_write_signals *signals);
void pump_restore_write_signals(const struct pump_write_signals *signals);

/* Declares that the calling thread has its own descriptor table; another thread then
 * writes its lines for stderr. For one thread of the process (log.c). */
void pump_log_defer(void);
/* Writes the kept lines. For any other thread; costs two loads if there are none. */
void pump_log_write_deferred(void);

/* Returns whether a thread has a descriptor table apart from the process's. */
bool pump_log_is_deferring(void);
/* Reads level and file from the settings: at load, and again if a rule applies. */
void pump_log_configure(void);
void pump_log_fork_child(void);

/* Prints an error line on stderr and in the log, whatever the level (log.c). */
void pump_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Prints a job's last line on stderr and in the log, whatever the level. The job's name
 * precedes it in brackets. With PUMP_QUIET the line goes only to the log (log.c). */
void pump_say_result(const char *text);

/* Writes "512 bytes", "512 KiB", "512 MiB" or "23.4 GiB"; returns the length. */
size_t pump_bytes_text(char *text, size_t capacity, uint64_t bytes);

#endif
