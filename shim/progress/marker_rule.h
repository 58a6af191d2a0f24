/* marker_rule.h - when an operation deserves a marker behind it; for progress.c and the
 * simulator, which follow the same rule.
 */
#ifndef PUMP_MARKER_RULE_H
#define PUMP_MARKER_RULE_H

#include <stdbool.h>
#include <stdint.h>

#include "pump_abi.h"

/* A marker is due after that many operations, that much time of issue, or that
 * many bytes touched on a stream: until it is known that operations have executed,
 * their blocks cannot make way for others, so the bytes behind a stale head have to
 * stay few beside a budget. */
#define PUMP_MARKER_OPERATIONS 16u
#define PUMP_MARKER_NS 200000u
#define PUMP_MARKER_BYTES (16u * PUMP_BLOCK_BYTES)

/* Whether a marker is due on a stream, by what it has issued since its last marker, the
 * newest operation included. `factor`: how much rarer than usual markers are. */
static inline bool pump_marker_is_due(uint32_t operations, uint64_t issue_ns,
                                      uint64_t touched_bytes, uint32_t factor) {
  return operations >= factor * PUMP_MARKER_OPERATIONS ||
         touched_bytes >= factor * PUMP_MARKER_BYTES || issue_ns >= factor * PUMP_MARKER_NS;
}

#endif
