/* base.h - what every room of the shim builds on: the state of this process, the guard, the
 * clock, threads, the mapping and the log.
 *
 * Rules for the globals: each has one file that owns it; a forked child starts from the
 * initial values (life/start.c).
 */
#ifndef PUMP_BASE_H
#define PUMP_BASE_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "limits.h"
#include "pump_abi.h"
#include "pump_cuda.h"
#include "pump_cuda_graph.h"
#include "pump_ring.h"

#define PUMP_LIKELY(x) __builtin_expect(!!(x), 1)
#define PUMP_UNLIKELY(x) __builtin_expect(!!(x), 0)

/* ---- state (state.c) ------------------------------------------------------ */

/* true: every hook passes straight through. Initially true; false from the
 * success of the real cuInit on; true again for good after an internal error. */
extern bool pump_off;

/* Number of devices that are ACTIVE; 0 while inert. What operation hooks test. */
extern uint32_t pump_active;

/* Recursion guard of this thread: while > 0 every hook passes straight through.
 * Pump's own threads raise it once, for life. */
extern __thread uint32_t pump_reentry_depth __attribute__((tls_model("initial-exec")));

static inline bool pump_inert(void) {
  return __atomic_load_n(&pump_off, __ATOMIC_ACQUIRE) || pump_reentry_depth != 0;
}

/* While everything fits into the budgets, and while inert, operations are not
 * reported: one predictable branch. */
static inline bool pump_dormant(void) {
  return __atomic_load_n(&pump_active, __ATOMIC_ACQUIRE) == 0;
}
static inline bool pump_quiet(void) {
  return PUMP_LIKELY(pump_dormant()) || pump_reentry_depth != 0;
}

static inline void pump_enter(void) {
  pump_reentry_depth++;
}
static inline void pump_leave(void) {
  pump_reentry_depth--;
}

/* An internal error: one line, then pass-through for the rest of the process.
 * `reason` is a sentence without full stop. */
void pump_give_up(const char *reason);

/* Calls that came through our context and memory hooks since cuInit. A context
 * that exists while this stays 0 means that the program has reached the driver
 * without passing pump. Written by all threads, relaxed. */
extern uint64_t pump_calls_seen;

uint64_t pump_now_ns(void); /* CLOCK_MONOTONIC */

/* The job records a trace (PUMP_RECORD): everything is reported, whether it fits or
 * not. Set before pump_off falls, never changed afterwards. */
extern bool pump_recording;

/* One fixed address per process: anonymous at first, later the link thread maps the
 * memfd over it (and repeats MADV_DONTFORK). NULL before cuInit has succeeded. */
extern struct pump_shm *pump_shm;

/* The number of the newest operation. */
static inline uint64_t pump_newest_seq(void) {
  return PUMP_LOAD(&pump_shm->header.next_seq) - 1;
}

void pump_state_fork_child(void);

/* ---- threads (thread.c) and waiting -------------------------------------- */

/* Starts a detached thread named `name` (at most 15 characters); 0 or -errno. `body` calls
 * pump_thread_begin() first. */
int pump_thread_start(const char *name, void *(*body)(void *), void *argument);
/* Has the driver answer the calling thread directly, and lets the thread run on all
 * processors of the process. */
void pump_thread_begin(void);

/* Asks that the calling thread be scheduled before the program's own: a niceness that is
 * smaller by 10. Where RLIMIT_NICE does not allow it, nothing changes. */
void pump_thread_hurry(void);

static inline void pump_futex_sleep(uint32_t *word, uint32_t value, uint64_t timeout_ns) {
  pump_sleep_wait(word, value, timeout_ns);
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

/* Wakes the worker: something has completed. */
static inline void pump_worker_notify(void) {
  PUMP_ADD(&pump_shm->header.activity, 1);
  pump_wake(&pump_shm->header.worker_asleep, &pump_shm->header.worker_wakes);
}

/* ---- the mapping (mapping.c) ---------------------------------------------- */

/* Around every access to a command ring. False while the link thread puts another mapping
 * under the region: the caller must not touch the ring, and tries again later. Never held
 * across a driver call or a sleep. `*epoch` is the number of the mapping: equal numbers are
 * the same mapping. */
bool pump_mapping_enter(uint64_t *epoch);
void pump_mapping_leave(void);

/* Around the change of the mapping, by the link thread alone: waits until no thread is
 * inside an access, and lets them in again. */
void pump_mapping_close(void);
void pump_mapping_open(void);
void pump_mapping_fork_child(void);

/* ---- log ----------------------------------------------------------------- */

#define PUMP_LOG_ERROR 0
#define PUMP_LOG_WARNING 1
#define PUMP_LOG_INFO 2
#define PUMP_LOG_DEBUG 3

/* One line "pump: ..." to PUMP_LOG_FILE, else to stderr. No newline in `format`.
 * Allocates nothing and keeps errno. */
void pump_log(int level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same, but only the first time for `*said` (a static word, initially 0);
 * true when this call was the first. */
bool pump_log_once(uint32_t *said, int level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Bytes of a name in a message; the rest of it is cut off. */
#define PUMP_QUOTED_BYTES 640

/* A name of others' making (a path, a symbol, a variable's text) for a message, in `text`:
 * as it is where a shell would read it as one plain word, else in single quotes, with \xNN
 * for what ends lines, quotes or steers terminals (pump/names.py does the same). */
const char *pump_quoted(char text[PUMP_QUOTED_BYTES], const char *name);
#define PUMP_QUOTED(name) pump_quoted((char[PUMP_QUOTED_BYTES]){0}, name)

/* Keeps the signals that writing can raise from the program: they are blocked between the
 * two calls, and what has come meanwhile is forgotten. False: nothing is blocked, so do not
 * write (log.c). */
struct pump_write_signals {
  sigset_t before, pending;
};
bool pump_block_write_signals(struct pump_write_signals *signals);
void pump_restore_write_signals(const struct pump_write_signals *signals);

/* The calling thread gets a table of descriptors of its own: from this call on its lines
 * for stderr are kept until another thread writes them. For one thread of the process
 * (log.c). */
void pump_log_keep(void);
/* Writes the lines that were kept. For any other thread; costs two loads where there are
 * none. */
void pump_log_release(void);

/* Whether a thread keeps descriptors apart from the process's. */
bool pump_log_is_apart(void);
/* Takes level and file from the settings: at load, and once a rule has given its own. */
void pump_log_configure(void);
void pump_log_fork_child(void);

/* An error line on stderr and in the log, whatever the level (log.c). */
void pump_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The last line of a job: on stderr, the job's name in brackets before the text, and in the
 * log, whatever the level. With PUMP_QUIET in the log alone (log.c). */
void pump_say_result(const char *text);

/* "512 bytes", "512 KiB", "512 MiB", "23.4 GiB"; returns the length. */
size_t pump_bytes_text(char *text, size_t room, uint64_t bytes);

#endif
