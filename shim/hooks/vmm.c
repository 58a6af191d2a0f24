/* vmm.c - hooks of virtual memory management, for the figures only (memory/physical.c).
 *
 * Memory of cuMemCreate passes through as it is: it has no managed counterpart.
 */
#include <errno.h>

#include "shim/memory/memory.h"

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                     const CUmemAllocationProp *properties, unsigned long long flags) {
  if (pump_inert()) return pump_real.cuMemCreate(handle, bytes, properties, flags);
  int saved = errno;
  PUMP_ADD(&pump_calls_seen, 1);
  pump_current_device(NULL); /* its budget is chosen before memory is taken */
  CUresult result = pump_real.cuMemCreate(handle, bytes, properties, flags);
  if (result == CUDA_SUCCESS && properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
      properties->location.id >= 0 && properties->location.id < PUMP_MAX_DEVICES)
    pump_physical_created(*handle, bytes, (uint32_t)properties->location.id);
  errno = saved;
  return result;
}

/* Counted before the real call: afterwards another thread may be given the handle. */
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  if (!pump_inert()) pump_physical_count(handle, -1);
  return pump_real.cuMemRelease(handle);
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address) {
  CUresult result = pump_real.cuMemRetainAllocationHandle(handle, address);
  if (result == CUDA_SUCCESS && !pump_inert()) pump_physical_count(*handle, 1);
  return result;
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags) {
  CUresult result = pump_real.cuMemMap(address, bytes, offset, handle, flags);
  if (result == CUDA_SUCCESS && !pump_inert()) pump_physical_mapped(address, bytes, handle);
  return result;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  CUresult result = pump_real.cuMemUnmap(address, bytes);
  if (result == CUDA_SUCCESS && !pump_inert()) pump_physical_unmapped(address, bytes);
  return result;
}
