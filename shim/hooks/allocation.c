/* allocation.c - hooks of allocation and free. The file pool/convert.c decides which
 * allocations are converted.
 */
#include <errno.h>

#include "shim/pool/convert.h"
#include "shim/pool/pool.h"

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
  if (pump_inert()) return pump_real.cuMemAlloc_v2(address, bytes);
  int saved = errno;
  pump_enter();
  PUMP_ADD(&pump_calls_seen, 1);
  CUresult result = pump_allocate(address, bytes);
  pump_leave();
  errno = saved;
  return result;
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width_bytes,
                            size_t height, unsigned int element_bytes) {
  size_t least;
  if (pump_inert() || address == NULL || pitch == NULL ||
      __builtin_mul_overflow(width_bytes, height, &least) || least < PUMP_BLOCK_BYTES)
    return pump_real.cuMemAllocPitch_v2(address, pitch, width_bytes, height, element_bytes);
  int saved = errno;
  pump_enter();
  PUMP_ADD(&pump_calls_seen, 1);
  CUresult result = pump_allocate_pitch(address, pitch, width_bytes, height, element_bytes);
  pump_leave();
  errno = saved;
  return result;
}

CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned int flags) {
  if (pump_inert()) return pump_real.cuMemAllocManaged(address, bytes, flags);
  int saved = errno;
  pump_enter();
  CUresult result = pump_real.cuMemAllocManaged(address, bytes, flags);
  if (result == CUDA_SUCCESS && address != NULL) {
    PUMP_ADD(&pump_calls_seen, 1);
    pump_managed_track(*address, bytes);
  }
  pump_leave();
  errno = saved;
  return result;
}

CUresult cuMemFree_v2(CUdeviceptr address) {
  if (pump_inert()) return pump_real.cuMemFree_v2(address);
  int saved = errno;
  pump_enter();
  PUMP_ADD(&pump_calls_seen, 1);
  CUresult result = pump_free(address);
  pump_leave();
  errno = saved;
  return pump_pool_waited(result);
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
  CUresult result = pump_real.cuMemGetInfo_v2(free_bytes, total_bytes);
  if (result != CUDA_SUCCESS || free_bytes == NULL || pump_inert()) return result;
  int saved = errno;
  PUMP_ADD(&pump_calls_seen, 1);
  int device = pump_current_device(NULL);
  if (device >= 0)
    pump_device_answer_memory_info((uint32_t)device, pump_pool_idle_bytes((uint32_t)device),
                                   free_bytes, total_bytes);
  errno = saved;
  return result;
}
