/* ranges.c - adds and removes ranges: in the table, in the limit, and for the worker. */
#include "record.h"

bool pump_managed_add(uint64_t base, uint64_t bytes, uint32_t device, CUcontext context) {
  struct pump_range_info info = {.base = base,
                                 .length_bytes = bytes,
                                 .requested_bytes = bytes,
                                 .kind = PUMP_RANGE_MANAGED,
                                 .device = device,
                                 .context = context};
  int slot = pump_range_add(&info);
  if (info.displaced_bytes != 0) pump_limit_return(info.device, info.displaced_bytes);
  if (slot >= 0) pump_event_range(PUMP_EVENT_ALLOC, &info);
  return slot >= 0;
}

void pump_range_free_ended(struct pump_range_info *info, CUresult result) {
  if (result != CUDA_SUCCESS) {
    pump_range_restore(info);
    pump_event_range(PUMP_EVENT_ALLOC, info);
    return;
  }
  if (info->kind == PUMP_RANGE_CONVERTED && !info->by_handle)
    pump_limit_return(info->device, info->length_bytes);
  pump_range_release(info->slot);
}
