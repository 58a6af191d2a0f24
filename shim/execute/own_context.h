/* own_context.h - decides whether evictions use contexts of their own.
 *
 * A driver may hold a context's lock during a prefetch to the host. Then launches and
 * prefetches to the GPU wait for the lock, and evictions run one at a time. Managed
 * memory belongs to the process, so another context, with another lock, can evict it too.
 * An additional context costs some hundred MiB of GPU memory, so it is created only if
 * calls wait for the lock.
 *
 * DESIGN. A controller without clock, thread or lock: measurements in, an answer out. It
 * measures a call that has no work of its own (the event record after a slice to the GPU)
 * while a slice to the host is in the driver. Machine load delays few of these calls; a
 * lock delays most. If the calls are also slow with contexts of their own, no context
 * lock is the cause, and evictions return permanently to the program's context.
 */
#ifndef PUMP_OWN_CONTEXT_H
#define PUMP_OWN_CONTEXT_H

#include <stdbool.h>
#include <stdint.h>

#define PUMP_SLOW_CALL_NS 50000u  /* such a call normally takes a few us [guessed] */
#define PUMP_OWN_CONTEXT_CALLS 32 /* calls that decide [guessed] */

enum { PUMP_OWN_CONTEXT_NO, PUMP_OWN_CONTEXT_YES, PUMP_OWN_CONTEXT_IN_VAIN };

struct pump_own_context {
  uint32_t state;
  uint32_t settle; /* calls to skip after a change of state */
  uint32_t calls, slow;
};

/* Adds one such call, which took `call_ns`. */
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
