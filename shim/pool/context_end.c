/* context_end.c - ends memory and executors' work together with a context of the program.
 *
 * Executors work inside the program's contexts, so they leave one before it is destroyed.
 * Memory that was allocated in a context ends with it.
 */
#include <stdlib.h>

#include "convert.h"
#include "mapped.h"
#include "pool.h"

void pump_contexts_unlearn(void) {
  pump_contexts_forget();
  pump_stream_refs_forget();
}

/* Keeps a removed range, to put it back if the context survives; false: out of memory. */
static bool remember(struct pump_context_end *end, const struct pump_range_info *info) {
  if (end->count == end->capacity) {
    size_t capacity = end->capacity == 0 ? 64 : 2 * end->capacity;
    void *grown = realloc(end->ranges, capacity * sizeof *end->ranges);
    if (grown == NULL) return false;
    end->ranges = grown;
    end->capacity = capacity;
  }
  end->ranges[end->count++] = *info;
  return true;
}

struct pump_context_end pump_context_ending(CUcontext context) {
  struct pump_context_end end = {.context = context};
  struct pump_range_info info;
  uint32_t cursor = 0;
  PUMP_ADD(&pump_calls_seen, 1);
  pump_contexts_unlearn();
  if (context == NULL) return end;
  pump_params_forget(); /* its modules end with it, and their handles are reused */
  pump_enter();
  pump_executors_context_gone(context);
  while (pump_range_remove_next(context, &cursor, &info)) {
    pump_event_range(PUMP_EVENT_FREE, &info);
    pump_slot_wait(info.slot);
    if (!remember(&end, &info)) pump_range_free_ended(&info, CUDA_SUCCESS);
  }
  pump_leave();
  return end;
}

void pump_context_ended(struct pump_context_end *end, bool over) {
  pump_contexts_unlearn();
  for (size_t i = 0; i < end->count; i++)
    pump_range_free_ended(&end->ranges[i], over ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN);
  if (over && end->context != NULL) {
    pump_plain_context_gone(end->context);
    pump_pool_context_gone(end->context);
    pump_mapped_context_gone(end->context);
  }
  free(end->ranges);
}

void pump_contexts_leave(CUdevice device) {
  pump_enter();
  pump_contexts_unlearn();
  pump_executors_device_gone(device);
  pump_leave();
}

/* Leaves the device's contexts if the runtime got the primary one by the driver's private
 * tables, without cuDevicePrimaryCtxRetain. */
CUcontext pump_primary_ending(CUdevice device, bool reset) {
  bool unknown;
  CUcontext context = pump_primary_that_may_end(device, reset, &unknown);
  if (unknown) pump_contexts_leave(device);
  return context;
}
