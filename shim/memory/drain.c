/* drain.c - launch queues run dry before a smaller budget holds, and before another job's
 * turn.
 *
 * Operations of a dormant device are not reported. Were it to become active by a smaller
 * budget at once, what the program has in the driver's launch queue, 1,024 launches at
 * most, would come by fault, block after block. So the device becomes active
 * first, and while a *drain* lasts its budget stays as it is: each thread that issues an
 * operation waits until it has executed, and with it all that was in front of it on its
 * stream (progress.c). Nothing waits inside a capture.
 *
 * It ends with the first operation that has executed DRAIN_LEAST_NS after its begin or
 * later while no other thread waits, for the streams that are used first, or by another
 * thread, may be empty while one is full; if no operation comes for DRAIN_IDLE_NS; and
 * after PUMP_DRAIN_MOST_NS, for a kernel may wait for what a thread does next. A thread
 * that waits looks at the clock itself, so no other thread and no daemon has to end it.
 *
 * While a *hold* of a device lasts, because it is the turn of other jobs, a thread waits on
 * behind its operation. A hold begins with a drain, so that what was launched before
 * executes with its memory there. It lasts PUMP_HOLD_MOST_NS unless the worker renews it;
 * should worker, pumpd or service end, the job goes on by itself.
 */
#include <string.h>

#include "memory.h"

#define DRAIN_LEAST_NS 50000000u
#define DRAIN_IDLE_NS 250000000u

/* Of the process; written by the link thread and by those that wait, relaxed. */
static struct {
  uint64_t began_ns, waited_ns; /* waited: since then no thread does, if none does now */
  uint32_t waiting;             /* threads */
} drain;
uint64_t pump_drain_until_ns, pump_hold_until_ns;
static struct {
  uint64_t asked_ns, until_ns; /* by the link thread, relaxed */
  uint32_t waiting;            /* threads */
} holds[PUMP_MAX_DEVICES];

void pump_drain_begin(void) {
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

void pump_drain_waits(void) {
  PUMP_ADD(&drain.waiting, 1);
}

void pump_drain_waited(bool executed) {
  uint64_t now_ns = pump_now_ns();
  PUMP_STORE(&drain.waited_ns, now_ns);
  bool last = PUMP_ADD(&drain.waiting, UINT32_MAX) == 1;
  if (executed && last && now_ns >= PUMP_LOAD(&drain.began_ns) + DRAIN_LEAST_NS)
    PUMP_STORE(&pump_drain_until_ns, 0);
}

/* The count is kept here: an attach changes the mapping while threads wait. Two that tell
 * at once may leave an old one, until the link thread looks again. */
static void tell(uint32_t device) {
  PUMP_STORE(&pump_shm->devices[device].held_threads, PUMP_LOAD(&holds[device].waiting));
}

void pump_hold(uint32_t device, uint64_t until_ns) {
  uint64_t now_ns = pump_now_ns(), latest_ns = 0;
  bool held = PUMP_LOAD(&holds[device].until_ns) > now_ns;
  if (until_ns != holds[device].asked_ns) { /* the same again renews nothing */
    holds[device].asked_ns = until_ns;
    if (until_ns > now_ns + PUMP_HOLD_MOST_NS) until_ns = now_ns + PUMP_HOLD_MOST_NS;
    PUMP_STORE(&holds[device].until_ns, until_ns);
  }
  for (uint32_t i = 0; i < PUMP_MAX_DEVICES; i++)
    if (PUMP_LOAD(&holds[i].until_ns) > latest_ns)
      latest_ns = PUMP_LOAD(&holds[i].until_ns);
  PUMP_STORE_RELEASE(&pump_hold_until_ns, latest_ns > now_ns ? latest_ns : 0);
  if (!held && PUMP_LOAD(&holds[device].until_ns) > now_ns) pump_drain_begin();
  tell(device);
}

void pump_hold_waits(uint32_t device) {
  PUMP_ADD(&holds[device].waiting, 1);
  tell(device);
}

void pump_hold_waited(uint32_t device, uint64_t waited_ns) {
  PUMP_ADD(&pump_shm->shim_counters.held_ns, waited_ns);
  PUMP_ADD(&holds[device].waiting, UINT32_MAX);
  tell(device);
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
