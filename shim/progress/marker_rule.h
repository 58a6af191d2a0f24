/* marker_rule.h - decides when an operation gets a marker, for progress.c and for the
 * simulator.
 */
#ifndef PUMP_MARKER_RULE_H
#define PUMP_MARKER_RULE_H

#include <stdbool.h>
#include <stdint.h>

#include "pump_abi.h"

/* A stream needs a marker after this many operations, this much time of issue, or this
 * many bytes touched. Until operations are known to have executed, their blocks cannot be
 * evicted. So the bytes since the last marker must be few compared to a budget. */
#define PUMP_MARKER_OPERATIONS 16u
#define PUMP_MARKER_NS 200000u
#define PUMP_MARKER_BYTES (16u * PUMP_BLOCK_BYTES)

/* Returns whether a stream needs a marker, given its operations since the last marker,
 * the newest included. `factor`: how many times rarer than usual markers are. */
static inline bool pump_marker_is_due(uint32_t operations, uint64_t issue_ns,
                                      uint64_t touched_bytes, uint32_t factor) {
  return operations >= factor * PUMP_MARKER_OPERATIONS ||
         touched_bytes >= factor * PUMP_MARKER_BYTES || issue_ns >= factor * PUMP_MARKER_NS;
}

#endif
