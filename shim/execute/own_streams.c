/* own_streams.c - streams of our own, kept apart from the program's work.
 *
 * DESIGN. A GPU takes work from a few hardware queues, which streams of one priority share
 * (docs/uvm.md); what waits in a stream of ours could keep a kernel of the program behind
 * it. So ours have a priority that the program does not use, where the driver has one: the
 * greatest but one if that is free (NCCL takes the greatest, PyTorch the least four). What
 * runs in them is migrations and events, which no priority makes faster or slower.
 *
 * Without such a priority they share the program's queues, and the fewer the better:
 * pump_stream_lanes() says how many slices an in-thread may have in the driver, for each
 * is a stream (docs/decisions/0038-lanes.md).
 */
#include "executors.h"

/* Bit n: the program has made a stream of priority -n. Of the process, any thread adds to
 * it, a forked child goes on with it. Streams are made without a priority too: bit 0. */
static uint32_t used = 1;

void pump_priority_used(int priority) {
  if (priority <= 0 && priority > -32)
    __atomic_fetch_or(&used, 1u << -priority, __ATOMIC_RELAXED);
}

static bool is_free(int priority) {
  return priority > -32 && (PUMP_LOAD(&used) >> -priority & 1) == 0;
}

/* 0, the default, where the driver has no other that is free. With a context current. */
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
