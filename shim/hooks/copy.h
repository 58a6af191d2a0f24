/* copy.h - how a copy is refused and reported, whatever its shape: shared by the files that
 * hook copies. An operation that touches no live range is not reported at all.
 */
#ifndef PUMP_COPY_H
#define PUMP_COPY_H

#include "shim/pool/pool.h"
#include "shim/record/copy_extents.h"

/* Before the real call, with CUDA_ERROR_INVALID_VALUE: the driver would refuse it if the
 * memory were as long as the program requested. */
static inline bool pump_copy_refused(uint64_t to, uint64_t from, uint64_t bytes) {
  return !pump_inert() &&
         (pump_pointer_beyond(to, bytes) || pump_pointer_beyond(from, bytes));
}

/* Whether there can be a list of so many: else it is the driver's to refuse, unread. */
static inline bool pump_list_given(const void *list, size_t count, size_t element_bytes) {
  return list != NULL && count <= (1ull << 47) / element_bytes;
}

static inline bool pump_box_refused(const struct pump_box *box) {
  return !pump_inert() && !box->at_most &&
         (pump_pointer_beyond(box->to.address, pump_side_bytes(&box->to, box)) ||
          pump_pointer_beyond(box->from.address, pump_side_bytes(&box->from, box)));
}

static inline void pump_copy_report(struct pump_op *op, struct pump_at at) {
  if (op->count != 0) pump_op_report(op, PUMP_EVENT_COPY, 0, at);
}

static inline struct pump_token pump_copy_announce(struct pump_op *op, struct pump_at at) {
  struct pump_token none = {0, 0, 0, 0};
  return op->count == 0 ? none : pump_op_announce(op, PUMP_EVENT_COPY, 0, at);
}

/* In place of pump_op_issued where the destination of a blocking copy is host memory:
 * it has executed, and with it everything before it on its stream. */
void pump_copy_arrived(struct pump_token token, struct pump_at at);

#endif
