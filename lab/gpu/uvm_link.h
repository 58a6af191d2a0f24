/* uvm_link.h - one direction of the link between host and GPU. Internal to the model.
 *
 * A server that carries one transfer at a time. A transfer is booked once, for
 * the first free span that holds it at or after the time it is ready, so links
 * serve in the order of readiness; what is booked never moves. While the other
 * direction is busy a transfer runs at duplex_factor of its speed. Approximation:
 * a booking is slowed by what the other direction has booked before it, never by
 * what comes later; in a steady exchange one direction of each pair pays.
 */
#ifndef PUMP_UVM_LINK_H
#define PUMP_UVM_LINK_H

#include <stdint.h>

#define UVM_LINK_SPANS 32

struct uvm_link {
  uint32_t count;
  uint32_t reserved;
  uint64_t busy_ns;
  uint64_t begin_ns[UVM_LINK_SPANS]; /* busy spans, ascending, disjoint */
  uint64_t end_ns[UVM_LINK_SPANS];
};

/* Books `length_bytes` not before `earliest_ns` (>= now_ns); returns the end. */
uint64_t uvm_link_book(struct uvm_link *link, struct uvm_link *other, uint64_t now_ns,
                       uint64_t earliest_ns, uint64_t length_bytes, double gbps,
                       double duplex_factor);

#endif
