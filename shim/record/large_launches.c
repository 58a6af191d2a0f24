/* large_launches.c - launches that touch much of the budget and wait for their memory in
 * their stream (progress/gates.c).
 *
 * The operands of a launch are known after it was issued, and a gate stands before it. So
 * the newest launch of the function with as wide a grid decides: an optimizer's launch for
 * a few small tensors says nothing about the one for all others. A reused handle, or two
 * kinds with one bucket, cost or save a gate.
 */
#include "record.h"

#define BUCKETS 256

static uint64_t kinds[BUCKETS]; /* by hash; 0: none */

static uint64_t kind_of(CUfunction function, uint32_t grid_x) {
  return pump_mix((uint64_t)(uintptr_t)function ^ (uint64_t)grid_x << 32);
}

bool pump_launches_are_large(CUfunction function, uint32_t grid_x) {
  uint64_t kind = kind_of(function, grid_x);
  return PUMP_LOAD(&kinds[kind % BUCKETS]) == kind;
}

void pump_launch_note_size(const struct pump_launch *launch, bool large) {
  uint64_t kind = kind_of(launch->function, launch->grid[0]);
  uint64_t *bucket = &kinds[kind % BUCKETS];
  if (large) {
    PUMP_STORE(bucket, kind);
    PUMP_STORE(&pump_gates_large, 1);
  } else if (PUMP_LOAD(bucket) == kind) {
    PUMP_STORE(bucket, 0);
  }
}
