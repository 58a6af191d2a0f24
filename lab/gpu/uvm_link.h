/* uvm_link.h - the link between host and GPU, both directions. Internal to the model.
 *
 * Each direction carries one transfer at a time. A transfer is booked once, for the first
 * free span that holds it at or after the time it is ready, so links serve in the order of
 * readiness.
 *
 * Each direction has a clock of its own, and spans are booked on it. The clock runs with
 * time, but at `duplex` of its speed while both directions are busy. So a span never moves
 * on its clock, and moves to a later time when the other direction is booked next to it.
 * A waiter keeps the clock's reading at the end of its transfer (uvm_link_at), and asks
 * again at the time it was given (uvm_link_time). Such times only move later.
 *
 * Approximation: what begins after a transfer of the other direction has ended (a newcomer
 * after its victim) keeps its own place when that end moves.
 */
#ifndef PUMP_UVM_LINK_H
#define PUMP_UVM_LINK_H

#include <stdint.h>

#define UVM_LINK_SPANS 32
#define UVM_LINK_IN 0 /* to the GPU */
#define UVM_LINK_OUT 1

struct uvm_link {
  uint32_t count;
  uint32_t reserved;
  uint64_t busy_ns;  /* time of all that was booked */
  double duplex;     /* speed while both directions are busy, as a share */
  uint64_t clock_at; /* reading of the clock, in nanoseconds, at `now_ns` of the links */
  double clock_rest; /* and the fraction of a nanosecond */
  uint64_t begin_at[UVM_LINK_SPANS]; /* busy spans on the clock, ascending, disjoint */
  uint64_t end_at[UVM_LINK_SPANS];
};

struct uvm_links {
  uint64_t now_ns; /* of the last booking */
  struct uvm_link ways[2];
};

/* Books `length_bytes` not before `earliest_ns` (>= now_ns, which never goes back); returns
 * the end as far as it is known. */
uint64_t uvm_link_book(struct uvm_links *links, uint32_t way, uint64_t now_ns,
                       uint64_t earliest_ns, uint64_t length_bytes, double gbps);
/* Reading of the direction's clock at a time; of the last booking, if that was later. */
uint64_t uvm_link_at(const struct uvm_links *links, uint32_t way, uint64_t time_ns);
/* Time of a reading, as far as it is known; of the last booking, if that was later. */
uint64_t uvm_link_time(const struct uvm_links *links, uint32_t way, uint64_t at);

#endif
