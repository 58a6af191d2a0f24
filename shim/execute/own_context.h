/* own_context.h - whether evictions go through contexts of their own.
 *
 * A driver may hold a context's lock while a prefetch to the host is in its call. Then
 * launches and prefetches to the GPU wait for it, and evictions go one at a time. Managed
 * memory is the process's: another context can send it to the host as well, under another
 * lock. It costs some hundred MiB of the GPU, so it is made only where calls wait for the
 * lock.
 *
 * DESIGN. A controller without clock, thread or lock: measurements in, an answer out.
 * Measured is a call that has no work of its own (the event record behind a slice to the
 * GPU) while a slice to the host is in the driver. The machine's load delays few of
 * these calls, a lock most of them. If they are slow with contexts of their own too, they
 * do not wait for a context's lock, and evictions leave those contexts for good.
 */
#ifndef PUMP_OWN_CONTEXT_H
#define PUMP_OWN_CONTEXT_H

#include <stdbool.h>
#include <stdint.h>

#define PUMP_SLOW_CALL_NS 50000u /* such a call takes a few us */
#define PUMP_OWN_CONTEXT_CALLS 32

enum { PUMP_OWN_CONTEXT_NO, PUMP_OWN_CONTEXT_YES, PUMP_OWN_CONTEXT_IN_VAIN };

struct pump_own_context {
  uint32_t state;
  uint32_t settle; /* calls that still belong to the state before */
  uint32_t calls, slow;
};

/* One such call took `call_ns`. */
static inline struct pump_own_context pump_own_context_next(struct pump_own_context now,
                                                            uint64_t call_ns) {
  if (now.state == PUMP_OWN_CONTEXT_IN_VAIN) return now;
  if (now.settle > 0) {
    now.settle--;
    return now;
  }
  now.slow += call_ns > PUMP_SLOW_CALL_NS;
  if (++now.calls < PUMP_OWN_CONTEXT_CALLS) return now;
  bool most = 2 * now.slow > now.calls;
  return (struct pump_own_context){.state = now.state + most,
                                   .settle = most ? PUMP_OWN_CONTEXT_CALLS : 0};
}

#endif
