/* uvm_link.h - the link between host and GPU, both directions. Internal to the model.
 *
 * Each direction carries one transfer at a time. A transfer is booked once, into the
 * first free span that is long enough, at or after the time when it is ready. So links
 * serve transfers in the order of readiness.
 *
 * Each direction has its own clock, and spans are booked on that clock. The clock runs with
 * time, but at `duplex` of its speed while both directions are busy. So a span never moves
 * on its clock, but its real time moves later if the other direction is booked next to it.
 * A waiter keeps the clock reading at the end of its transfer (uvm_link_at). It wakes at
 * the time of that reading (uvm_link_time) and asks again. These times only move later.
 *
 * Approximation: a transfer that begins after one of the other direction (a new block
 * after its victim) keeps its span when the end of that one moves. */
#ifndef PUMP_UVM_LINK_H
#define PUMP_UVM_LINK_H

#include <stdint.h>

#define UVM_LINK_SPANS 32
#define UVM_LINK_IN 0 /* to the GPU */
#define UVM_LINK_OUT 1

struct uvm_link {
  uint32_t count;
  uint32_t reserved;
  uint64_t busy_ns;                  /* total time of all bookings */
  double duplex;                     /* share of its speed while both directions are busy */
  uint64_t clock_at;                 /* clock reading in ns, at `now_ns` of the links */
  double clock_rest;                 /* fraction of a nanosecond of `clock_at` */
  uint64_t begin_at[UVM_LINK_SPANS]; /* busy spans on the clock, ascending, disjoint */
  uint64_t end_at[UVM_LINK_SPANS];
};

struct uvm_links {
  uint64_t now_ns; /* time of the last booking */
  struct uvm_link ways[2];
};

/* Books `length_bytes` at or after `earliest_ns` (>= now_ns, which never decreases);
 * returns the end as known now. */
uint64_t uvm_link_book(struct uvm_links *links, uint32_t way, uint64_t now_ns,
                       uint64_t earliest_ns, uint64_t length_bytes, double gbps);
/* Returns the direction's clock reading at a time, or at the last booking if later. */
uint64_t uvm_link_at(const struct uvm_links *links, uint32_t way, uint64_t time_ns);
/* Returns the time of a clock reading, as known now, or of the last booking if later. */
uint64_t uvm_link_time(const struct uvm_links *links, uint32_t way, uint64_t at);

#endif
