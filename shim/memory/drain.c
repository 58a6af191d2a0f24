/* drain.c - lets launch queues run empty before a smaller budget applies, and before
 * another job's turn.
 *
 * Operations of a dormant device are not reported. If a smaller budget made the device
 * active at once, the driver's launch queue (at most 1,024 launches) would fault block by
 * block. So the device becomes active first, and its budget does not change while a
 * *drain* lasts. Each thread that issues an operation then waits until it, and everything
 * before it on its stream, has executed (progress.c). No thread waits inside a capture.
 *
 * A drain ends when an operation has executed at least DRAIN_LEAST_NS after the drain
 * began, and only its thread was waiting. The minimum is needed because streams that are
 * used first, or by another thread, may be empty while one is full. A drain also ends if
 * no operation is issued for DRAIN_IDLE_NS. It always ends after PUMP_DRAIN_MOST_NS,
 * because a kernel may wait for a thread's next action. A waiting thread checks the clock
 * itself, so no daemon is needed.
 *
 * While other jobs have their turn, the device is on *hold*: a thread keeps waiting after
 * its operation has executed. A hold begins with a drain, so that earlier launches
 * execute with their memory resident. A hold lasts PUMP_HOLD_MOST_NS unless the worker
 * renews it. So the job continues by itself if worker, pumpd or service ends.
 */
#include <string.h>

#include "memory.h"

#define DRAIN_LEAST_NS 50000000u
#define DRAIN_IDLE_NS 250000000u

/* Process-wide; written relaxed by the link thread and by threads that wait. */
static struct {
  uint64_t began_ns, waited_ns; /* waited_ns: when a thread last stopped waiting */
  uint32_t waiting;             /* threads that wait now */
} drain;
uint64_t pump_drain_until_ns, pump_hold_until_ns;
static struct {
  uint64_t asked_ns, until_ns; /* written relaxed by the link thread */
  uint32_t waiting;            /* threads that wait now */
} holds[PUMP_MAX_DEVICES];

void pump_drain_launch_queues(void) {
  if (PUMP_LOAD(&pump_drain_until_ns) != 0) return;
  uint64_t now_ns = pump_now_ns();
  PUMP_STORE(&drain.began_ns, now_ns);
  PUMP_STORE(&drain.waited_ns, now_ns);
  PUMP_STORE_RELEASE(&pump_drain_until_ns, now_ns + PUMP_DRAIN_MOST_NS);
}

bool pump_drain_lasts(void) {
  uint64_t until_ns = PUMP_LOAD_ACQUIRE(&pump_drain_until_ns), now_ns = pump_now_ns();
  if (until_ns == 0) return false;
  bool idle = PUMP_LOAD(&drain.waiting) == 0 &&
              now_ns >= PUMP_LOAD(&drain.waited_ns) + DRAIN_IDLE_NS;
  if (now_ns < until_ns && !idle) return true;
  PUMP_STORE(&pump_drain_until_ns, 0);
  return false;
}

void pump_drain_enter(void) {
  PUMP_ADD(&drain.waiting, 1);
}

void pump_drain_leave(bool executed) {
  uint64_t now_ns = pump_now_ns();
  PUMP_STORE(&drain.waited_ns, now_ns);
  PUMP_ASSERT(PUMP_LOAD(&drain.waiting) != 0, "waiting threads are counted");
  bool last = PUMP_ADD(&drain.waiting, UINT32_MAX) == 1;
  if (executed && last && now_ns >= PUMP_LOAD(&drain.began_ns) + DRAIN_LEAST_NS)
    PUMP_STORE(&pump_drain_until_ns, 0);
}

/* Publishes the number of waiting threads. The count is private: an attach changes the
 * mapping while threads wait. Concurrent calls may publish an old count, until the link
 * thread polls. */
static void publish(uint32_t device) {
  PUMP_STORE(&pump_shm->devices[device].held_threads, PUMP_LOAD(&holds[device].waiting));
}

void pump_hold_set(uint32_t device, uint64_t until_ns) {
  uint64_t now_ns = pump_now_ns(), latest_ns = 0;
  bool held = PUMP_LOAD(&holds[device].until_ns) > now_ns;
  if (until_ns != holds[device].asked_ns) { /* repeating a value renews nothing */
    holds[device].asked_ns = until_ns;
    if (until_ns > now_ns + PUMP_HOLD_MOST_NS) until_ns = now_ns + PUMP_HOLD_MOST_NS;
    PUMP_STORE(&holds[device].until_ns, until_ns);
  }
  for (uint32_t i = 0; i < PUMP_MAX_DEVICES; i++)
    if (PUMP_LOAD(&holds[i].until_ns) > latest_ns)
      latest_ns = PUMP_LOAD(&holds[i].until_ns);
  PUMP_STORE_RELEASE(&pump_hold_until_ns, latest_ns > now_ns ? latest_ns : 0);
  if (!held && PUMP_LOAD(&holds[device].until_ns) > now_ns) pump_drain_launch_queues();
  publish(device);
}

void pump_hold_enter(uint32_t device) {
  PUMP_ADD(&holds[device].waiting, 1);
  publish(device);
}

void pump_hold_leave(uint32_t device, uint64_t waited_ns) {
  PUMP_ADD(&pump_shm->shim_counters.held_ns, waited_ns);
  PUMP_ASSERT(PUMP_LOAD(&holds[device].waiting) != 0, "waiting threads are counted");
  PUMP_ADD(&holds[device].waiting, UINT32_MAX);
  publish(device);
}

bool pump_hold_lasts(uint32_t device) {
  uint64_t latest_ns = PUMP_LOAD_ACQUIRE(&pump_hold_until_ns), now_ns = pump_now_ns();
  if (latest_ns == 0) return false;
  if (now_ns < PUMP_LOAD(&holds[device].until_ns)) return true;
  if (now_ns >= latest_ns)
    __atomic_compare_exchange_n(&pump_hold_until_ns, &latest_ns, 0, false, __ATOMIC_RELAXED,
                                __ATOMIC_RELAXED);
  return false;
}

void pump_drain_fork_child(void) {
  memset(holds, 0, sizeof holds);
  PUMP_STORE(&pump_hold_until_ns, 0);
  PUMP_STORE(&drain.waiting, 0);
  PUMP_STORE(&pump_drain_until_ns, 0);
}
