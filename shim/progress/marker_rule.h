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
 * evicted. So the bytes since the last marker must be few compared to a budget [measured:
 * 0004]. */
#define PUMP_MARKER_OPERATIONS 16u
#define PUMP_MARKER_NS 200000u
#define PUMP_MARKER_BYTES (16u * PUMP_BLOCK_BYTES)

/* Time between two checks for operations without a marker. They touch little memory
 * (PUMP_MARKER_BYTES), so it costs little if they run for longer than this [guessed]. */
#define PUMP_PRESUME_NS 100000000u

/* Returns whether a stream needs a marker, given its operations since the last marker,
 * the newest included. `factor`: how many times rarer than usual markers are. */
static inline bool pump_marker_is_due(uint32_t operations, uint64_t issue_ns,
                                      uint64_t touched_bytes, uint32_t factor) {
  return operations >= factor * PUMP_MARKER_OPERATIONS ||
         touched_bytes >= factor * PUMP_MARKER_BYTES || issue_ns >= factor * PUMP_MARKER_NS;
}

/* Returns whether to presume that a stream's operations without a marker have executed.
 * That is so if all its markers have, and nothing was issued or executed since the last
 * check. `issued`, `executed`, `marked` are the newest such operations. `*sign` is kept
 * between checks. */
static inline bool pump_marker_presumes(uint64_t *sign, uint64_t issued, uint64_t executed,
                                        uint64_t marked) {
  bool still = *sign == issued + executed;
  *sign = issued + executed;
  return still && executed < issued && executed >= marked;
}

#endif
