/* copy.h - refusal and reporting of copies of every shape, for the files that hook
 * copies. An operation that touches no live range is not reported.
 */
#ifndef PUMP_COPY_H
#define PUMP_COPY_H

#include "shim/pool/pool.h"
#include "shim/record/copy_extents.h"

/* Returns whether to refuse a copy with CUDA_ERROR_INVALID_VALUE before the real call: on
 * memory of exactly the requested length, the driver would refuse it. */
static inline bool pump_copy_refused(uint64_t to, uint64_t from, uint64_t bytes) {
  return !pump_inert() &&
         (pump_pointer_beyond(to, bytes) || pump_pointer_beyond(from, bytes));
}

/* Returns whether a list of this length can exist. If not, the driver refuses the call. */
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

static inline struct pump_token pump_copy_begin(struct pump_op *op, struct pump_at at) {
  struct pump_token none = {0, 0, 0, 0};
  return op->count == 0 ? none : pump_op_announce(op, PUMP_EVENT_COPY, 0, at);
}

/* Replaces pump_op_issued if a blocking copy writes to host memory: the copy and all
 * earlier work on its stream have executed. */
void pump_copy_arrived(struct pump_token token, struct pump_at at);

/* Announces a copy whose asynchronous call waits for it: its destination is host memory
 * that the driver does not know, so it is pageable. Returns seq 0 if the call will not
 * wait. */
struct pump_token pump_copy_announce_wait(struct pump_op *op, uint64_t to,
                                          struct pump_at at);
/* Follows the real call of an asynchronous copy: reports the wait or, after seq 0, the
 * copy. The wait proves no progress: a GPU that can access pageable memory may not wait. */
void pump_copy_follow(struct pump_op *op, struct pump_token token, struct pump_at at);

#endif
