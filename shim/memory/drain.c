/* drain.c - launch queues run dry before a smaller budget holds.
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
 */
#include "memory.h"

#define DRAIN_LEAST_NS 50000000u
#define DRAIN_IDLE_NS 250000000u

/* Of the process; written by the link thread and by those that wait, relaxed. */
static struct {
  uint64_t began_ns, waited_ns; /* waited: since then no thread does, if none does now */
  uint32_t waiting;             /* threads */
} drain;
uint64_t pump_drain_until_ns;

void pump_drain_begin(void) {
  if (pump_draining()) return;
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

void pump_drain_fork_child(void) {
  PUMP_STORE(&drain.waiting, 0);
  PUMP_STORE(&pump_drain_until_ns, 0);
}
