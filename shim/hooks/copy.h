/* copy.h - how a copy is reported, whatever its shape: shared by the files that
 * hook copies. An operation that touches no live range is not reported at all.
 */
#ifndef PUMP_COPY_H
#define PUMP_COPY_H

#include "shim/record/copy_extents.h"

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
