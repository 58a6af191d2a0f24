/* own_streams.c - keeps the shim's streams apart from the program's work.
 *
 * DESIGN. A GPU has a few hardware queues, shared by streams of equal priority
 * (docs/uvm.md). So work that waits in one of the shim's streams could delay a kernel of
 * the program. The shim's streams therefore get a priority that the program does not use,
 * if possible. The second highest is preferred: NCCL uses the highest, PyTorch the lowest
 * four. Priority does not affect migrations and events, the only work in these streams.
 *
 * Without an unused priority the streams share the program's queues, so pump should
 * create few. The function pump_stream_lanes() returns how many slices an in-thread may
 * have in the driver, one per stream (docs/decisions/0038-lanes.md).
 */
#include "executors.h"

/* Bit n: the program created a stream of priority -n; bit 0 is always set. Process-wide,
 * written by any thread, inherited by a forked child. */
static uint32_t used = 1;

void pump_priority_note(int priority) {
  if (priority <= 0 && priority > -32)
    __atomic_fetch_or(&used, 1u << -priority, __ATOMIC_RELAXED);
}

static bool is_free(int priority) {
  return priority > -32 && (PUMP_LOAD(&used) >> -priority & 1) == 0;
}

/* Returns an unused priority, or 0, the default. Requires a current context. */
static int own_priority(void) {
  int least = 0, greatest = 0;
  if (!PUMP_HAS(cuCtxGetStreamPriorityRange) ||
      pump_real.cuCtxGetStreamPriorityRange(&least, &greatest) != CUDA_SUCCESS)
    return 0;
  for (int priority = greatest + 1; priority < 0; priority++)
    if (is_free(priority)) return priority;
  return greatest < 0 && is_free(greatest) ? greatest : 0;
}

CUresult pump_stream_make(CUstream *stream) {
  return pump_real.cuStreamCreateWithPriority(stream, CU_STREAM_NON_BLOCKING,
                                              own_priority());
}

uint32_t pump_stream_lanes(void) {
  return own_priority() != 0 ? PUMP_IN_LANES : PUMP_IN_LANES_SHARED;
}
