/* stream_ordered.c - frees in stream order, and memory of the driver's own pools.
 *
 * That memory is device memory like any other that is not converted. It counts against
 * the budget from the call that allocates it to the call that frees it. Only memory in
 * use counts: the driver gives back the rest of a pool when memory runs short.
 *
 * Inside a capture an allocation makes a node of the graph and no memory, so it is not
 * counted. Memory that is freed in stream order may have been allocated by a plain call,
 * and the other way round (convert.c).
 */
#include "convert.h"
#include "mapped.h"
#include "pool.h"

static bool captured(CUstream stream) {
  struct pump_driver_scope scope = pump_driver_scope_open();
  bool capturing = pump_capturing(stream);
  pump_driver_scope_close(scope);
  return capturing;
}

void pump_plain_track(CUdeviceptr address, size_t bytes, CUstream stream) {
  CUcontext context = NULL;
  int device = pump_current_device(&context);
  if (device < 0 || captured(stream)) return;
  pump_plain_add(&(struct pump_plain_info){
      .base = address, .bytes = bytes, .context = context, .device = (uint32_t)device});
}

/* Frees managed memory of the program, which gets the driver's own answer. */
static CUresult free_managed(CUdeviceptr address, struct pump_range_info *info,
                             CUresult (*real)(CUdeviceptr, CUstream), CUstream stream) {
  pump_event_range(PUMP_EVENT_FREE, info);
  pump_slot_wait(info->slot);
  CUresult result = real(address, stream);
  pump_range_free_ended(info, result);
  return result;
}

/* Frees converted memory of cuMemAlloc, which the driver's cuMemFreeAsync would refuse. The
 * pool frees it in stream order; without a pool, the thread waits for the stream. */
static CUresult free_converted(CUdeviceptr address, struct pump_range_info *info,
                               struct pump_at at) {
  CUresult result = CUDA_SUCCESS;
  pump_event_range(PUMP_EVENT_FREE, info);
  pump_slot_wait(info->slot);
  struct pump_driver_scope scope = pump_driver_scope_open();
  bool adopted = pump_pool_adopt(info);
  if (!adopted) result = pump_real.cuStreamSynchronize(at.stream);
  pump_driver_scope_close(scope);
  if (adopted && pump_pool_free_ordered(address, at, &result)) return result;
  if (result == CUDA_SUCCESS) result = pump_real.cuMemFree_v2(address);
  pump_range_free_ended(info, result);
  return result;
}

CUresult pump_free_ordered(CUdeviceptr address, CUresult (*real)(CUdeviceptr, CUstream),
                           CUstream stream, bool per_thread) {
  CUresult answer;
  struct pump_at at = pump_at(stream, per_thread);
  if (pump_mapped_contains(address)) return CUDA_ERROR_INVALID_VALUE; /* reserved address */
  if (pump_pool_free_ordered(address, at, &answer)) return answer;
  if (pump_converted(address) && captured(at.stream)) return real(address, stream);
  struct pump_range_info range;
  if (pump_range_remove(address, &range) == 0)
    return range.kind == PUMP_RANGE_CONVERTED ? free_converted(address, &range, at)
                                              : free_managed(address, &range, real, stream);
  struct pump_plain_info plain;
  bool counted = pump_plain_remove(address, &plain);
  CUresult result = real(address, stream);
  if (counted && result != CUDA_SUCCESS) pump_plain_add(&plain);
  return result;
}
