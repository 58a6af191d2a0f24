/* threads.c - start and end of pump's threads in a process, and fork.
 *
 * At exit our threads must be out of the driver before the driver's own tear-down runs.
 * Exit handlers run in the reverse order of registration, and ours is registered after
 * the real cuInit, so it runs first. It takes no lock: a signal handler may call exit()
 * on top of any of our functions.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "life.h"
#include "shim/base/glibc.h"
#include "shim/execute/execute.h"
#include "shim/link/link.h"
#include "shim/memory/host.h"

/* The process that started the threads; 0: none. A forked child has another pid, so it is
 * inert until its own start. */
static pid_t owner;
static bool registered; /* exit handlers are inherited by fork */

/* Waits until the worker's figures are final: it has seen that this process exits, has
 * read all events, and knows whether the disk has taken all of a recording. Does not wait
 * if no operation was reported, as in a job that fits, nor for a worker that is gone. */
static void wait_until_figures_are_final(void) {
  const struct timespec pause = {.tv_nsec = 200000};
  const struct pump_worker_counters *worker = &pump_shm->worker_counters;
  bool recorded =
      PUMP_LOAD(&worker->recorded_file) != 0 && PUMP_LOAD(&worker->recording_error) == 0;
  if (!recorded && PUMP_LOAD(&pump_shm->shim_counters.operations) == 0) return;
  uint64_t until_ns = pump_now_ns() + (recorded ? PUMP_RECORDED_NS : PUMP_FINAL_NS);
  while (PUMP_LOAD_ACQUIRE(&worker->figures_final) == 0 &&
         PUMP_LOAD(&pump_shm->shim_counters.attaches) > pump_link_losses() &&
         pump_now_ns() < until_ns)
    nanosleep(&pause, NULL);
}

static void threads_end(int status, void *nothing) {
  (void)nothing;
  if (owner != getpid() || pump_shm == NULL) return;
  int saved = errno;
  pump_enter();
  PUMP_STORE_RELEASE(&pump_shm->header.client_state, PUMP_CLIENT_EXITING);
  pump_worker_notify();
  pump_gates_stop();
  pump_executors_stop(pump_now_ns() + PUMP_EXIT_NS);
  wait_until_figures_are_final();
  pump_link_stop();
  pump_claims_leave();
  pump_log_write_deferred();
  pump_job_flush();
  pump_summary_print(status);
  pump_leave();
  errno = saved;
}

/* Waits in the first cuInit of a recorded job, so that even the first operation and short
 * programs are recorded. Waits for pumpd's answer, at most PUMP_RECORDER_NS and not if
 * nothing listens. Then waits until the worker records, at most PUMP_RECORDER_MOST_NS in
 * all. Except here and in its exit, no thread of the job ever waits for pumpd. */
static void wait_until_worker_records(void) {
  const struct timespec pause = {.tv_nsec = 200000};
  uint64_t begin_ns = pump_now_ns();
  const struct pump_worker_counters *worker = &pump_shm->worker_counters;
  while (PUMP_LOAD(&worker->recorded_file) == 0) {
    bool answered = PUMP_LOAD(&pump_shm->shim_counters.attaches) != 0;
    uint64_t longest_ns = answered ? PUMP_RECORDER_MOST_NS : PUMP_RECORDER_NS;
    if (pump_now_ns() - begin_ns >= longest_ns || (!answered && pump_link_unheard()))
      return;
    pump_log_write_deferred();
    nanosleep(&pause, NULL);
  }
}

void pump_threads_start(void) {
  if (owner == getpid()) return;
  int saved = errno;
  owner = getpid();
  if (!registered) registered = on_exit(threads_end, NULL) == 0;
  pump_link_start();
  if (PUMP_LOAD(&pump_shm->header.recording) != 0) wait_until_worker_records();
  errno = saved;
}

void pump_threads_fork_child(void) {
  int saved = errno;
  pump_link_fork_child();
  pump_mapping_fork_child();
  pump_contexts_fork_child();
  pump_executors_fork_child();
  pump_slot_fork_child();
  pump_populate_fork_child();
  pump_drain_fork_child();
  pump_gates_fork_child();
  pump_progress_fork_child();
  pump_marker_fork_child();
  pump_limit_fork_child();
  pump_log_fork_child(); /* last: the others call pump_log_is_deferring() */
  errno = saved;
}
