/* stream_ordered.c - frees in the order of a stream, and what the driver's own pools have
 * handed out: device memory like any other that is not converted. It counts against the
 * budget from the call that allocates it to the call that frees it. Only what is used
 * counts; what a pool keeps beside that is the driver's to give back when memory runs
 * short.
 *
 * Inside a capture an allocation makes a node of the graph and no memory: it is not
 * counted. What is freed in stream order may be memory that a plain call has allocated, and
 * the other way round (convert.c).
 */
#include "convert.h"
#include "pool.h"

void pump_plain_track(CUdeviceptr address, size_t bytes, CUstream stream) {
  CUcontext context = NULL;
  int device = pump_current_device(&context);
  struct pump_driver_scope scope = pump_driver_scope_open();
  bool captured = pump_capturing(stream);
  pump_driver_scope_close(scope);
  if (device < 0 || captured) return;
  pump_plain_add(&(struct pump_plain_info){
      .base = address, .bytes = bytes, .context = context, .device = (uint32_t)device});
}

/* A range of ours that the program frees in stream order. What the driver answers for
 * managed memory is the program's answer. */
static CUresult free_range_async(CUdeviceptr address, struct pump_range_info *info,
                                 CUresult (*real)(CUdeviceptr, CUstream), CUstream stream) {
  pump_event_range(PUMP_EVENT_FREE, info);
  pump_slot_wait(info->slot);
  CUresult result = real(address, stream);
  pump_range_free_ended(info, result);
  return result;
}

CUresult pump_free_ordered(CUdeviceptr address, CUresult (*real)(CUdeviceptr, CUstream),
                           CUstream stream, bool per_thread) {
  CUresult answer;
  if (pump_pool_free_ordered(address, pump_at(stream, per_thread), &answer)) return answer;
  struct pump_range_info range;
  if (pump_range_remove(address, &range) == 0)
    return free_range_async(address, &range, real, stream);
  struct pump_plain_info plain;
  bool counted = pump_plain_remove(address, &plain);
  CUresult result = real(address, stream);
  if (counted && result != CUDA_SUCCESS) pump_plain_add(&plain);
  return result;
}
