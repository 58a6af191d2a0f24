/* act_apart.h - whether evictions go through contexts of their own.
 *
 * A driver may hold a context's lock while a prefetch to the host is in its call. Then
 * launches and prefetches to the GPU wait for it, and evictions go one at a time. Managed
 * memory is the process's: another context can send it to the host as well, under another
 * lock. It costs some hundred MiB of the GPU, so it is made only where the lock is felt.
 *
 * DESIGN. A controller without clock, thread or lock: measurements in, an answer out.
 * Measured is a call that has no work of its own (the event record behind a slice to the
 * GPU) while a slice to the host is in the driver. What the machine's load does to such
 * calls it does to few of them; a lock does it to most. Should they be slow with contexts
 * of their own too, it is not a context's lock, and the contexts are given up for good.
 */
#ifndef PUMP_ACT_APART_H
#define PUMP_ACT_APART_H

#include <stdbool.h>
#include <stdint.h>

#define PUMP_APART_FELT_NS 50000u /* such a call takes a few us */
#define PUMP_APART_LOOKS 32

enum { PUMP_APART_NOT_YET, PUMP_APART, PUMP_APART_IN_VAIN };

struct pump_apart {
  uint32_t state;
  uint32_t settle; /* calls that still belong to the state before */
  uint32_t looks, felt;
};

/* One such call took `call_ns`. */
static inline struct pump_apart pump_apart_next(struct pump_apart apart, uint64_t call_ns) {
  if (apart.state == PUMP_APART_IN_VAIN) return apart;
  if (apart.settle > 0) {
    apart.settle--;
    return apart;
  }
  apart.felt += call_ns > PUMP_APART_FELT_NS;
  if (++apart.looks < PUMP_APART_LOOKS) return apart;
  bool most = 2 * apart.felt > apart.looks;
  return (struct pump_apart){.state = apart.state + most,
                             .settle = most ? PUMP_APART_LOOKS : 0};
}

#endif
