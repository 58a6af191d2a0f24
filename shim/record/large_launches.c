/* large_launches.c - functions whose launches touch much of the budget and wait for their
 * memory in their stream (progress/gates.c).
 *
 * The operands of a launch are known after it was issued, and a gate stands before it. So
 * a function's newest launch decides about its next one. A reused handle, or two functions
 * with one bucket, cost or save a gate.
 */
#include "record.h"

#define BUCKETS 64

static uint64_t functions[BUCKETS]; /* by hash of the handle; 0: none */

static uint64_t *bucket_of(uint64_t function) {
  return &functions[pump_mix(function) % BUCKETS];
}

bool pump_launches_are_large(CUfunction function) {
  uint64_t handle = (uint64_t)(uintptr_t)function;
  return PUMP_LOAD(bucket_of(handle)) == handle;
}

void pump_launch_note_size(uint64_t function, bool large) {
  uint64_t *bucket = bucket_of(function);
  if (large) {
    PUMP_STORE(bucket, function);
    PUMP_STORE(&pump_gates_large, 1);
  } else if (PUMP_LOAD(bucket) == function) {
    PUMP_STORE(bucket, 0);
  }
}
