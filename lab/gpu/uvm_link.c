/* uvm_link.c - booking of transfers on one direction of the link. */
#include "uvm_link.h"

#include <string.h>

static void forget_before(struct uvm_link *link, uint64_t now_ns) {
  uint32_t past = 0;
  while (past < link->count && link->end_ns[past] <= now_ns) past++;
  if (past == 0) return;
  link->count -= past;
  memmove(link->begin_ns, link->begin_ns + past, link->count * sizeof link->begin_ns[0]);
  memmove(link->end_ns, link->end_ns + past, link->count * sizeof link->end_ns[0]);
}

/* End of a transfer that starts at `start_ns` and takes `work_ns` when alone. Counted
 * from the start: a double would lose nanoseconds of a clock that has run for long. */
static uint64_t end_of(const struct uvm_link *other, uint64_t start_ns, double work_ns,
                       double duplex_factor) {
  double passed_ns = 0;
  for (uint32_t i = 0; i < other->count; i++) {
    double begin_ns = (double)(int64_t)(other->begin_ns[i] - start_ns);
    double end_ns = (double)(int64_t)(other->end_ns[i] - start_ns);
    if (end_ns <= passed_ns) continue;
    if (begin_ns > passed_ns) {
      if (work_ns <= begin_ns - passed_ns) break;
      work_ns -= begin_ns - passed_ns;
      passed_ns = begin_ns;
    }
    if (work_ns <= (end_ns - passed_ns) * duplex_factor) {
      work_ns /= duplex_factor;
      break;
    }
    work_ns -= (end_ns - passed_ns) * duplex_factor;
    passed_ns = end_ns;
  }
  return start_ns + (uint64_t)(passed_ns + work_ns + 0.5);
}

static void merge_with_next(struct uvm_link *link, uint32_t at) {
  link->end_ns[at] = link->end_ns[at + 1];
  uint32_t rest = link->count - at - 2;
  memmove(link->begin_ns + at + 1, link->begin_ns + at + 2, rest * sizeof(uint64_t));
  memmove(link->end_ns + at + 1, link->end_ns + at + 2, rest * sizeof(uint64_t));
  link->count--;
}

/* Puts a busy span before position `at`. */
static void insert(struct uvm_link *link, uint32_t at, uint64_t begin_ns, uint64_t end_ns) {
  if (at > 0 && link->end_ns[at - 1] == begin_ns) {
    link->end_ns[at - 1] = end_ns;
    if (at < link->count && link->begin_ns[at] == end_ns) merge_with_next(link, at - 1);
    return;
  }
  if (at < link->count && link->begin_ns[at] == end_ns) {
    link->begin_ns[at] = begin_ns;
    return;
  }
  if (link->count == UVM_LINK_SPANS) {
    /* Full: give up the earliest gap; nothing can be booked into it after that. */
    if (at == 0) {
      link->begin_ns[0] = begin_ns;
      return;
    }
    merge_with_next(link, 0);
    if (at == 1) return; /* it lies in the gap that was given up */
    at--;
  }
  uint32_t rest = link->count - at;
  memmove(link->begin_ns + at + 1, link->begin_ns + at, rest * sizeof(uint64_t));
  memmove(link->end_ns + at + 1, link->end_ns + at, rest * sizeof(uint64_t));
  link->begin_ns[at] = begin_ns;
  link->end_ns[at] = end_ns;
  link->count++;
}

uint64_t uvm_link_book(struct uvm_link *link, struct uvm_link *other, uint64_t now_ns,
                       uint64_t earliest_ns, uint64_t length_bytes, double gbps,
                       double duplex_factor) {
  if (length_bytes == 0) return earliest_ns;
  forget_before(link, now_ns);
  forget_before(other, now_ns);
  double work_ns = (double)length_bytes / gbps;
  uint64_t start_ns = earliest_ns;
  uint64_t end_ns = end_of(other, start_ns, work_ns, duplex_factor);
  uint32_t at = 0;
  for (; at < link->count; at++) {
    if (end_ns <= link->begin_ns[at]) break;
    if (link->end_ns[at] <= start_ns) continue;
    start_ns = link->end_ns[at];
    end_ns = end_of(other, start_ns, work_ns, duplex_factor);
  }
  insert(link, at, start_ns, end_ns);
  link->busy_ns += end_ns - start_ns;
  return end_ns;
}
