/* vmm.c - hooks of virtual memory management. Calls are served from managed memory
 * (pool/mapped.h), or passed to the driver and counted (memory/physical.c).
 */
#include <errno.h>

#include "shim/pool/mapped.h"

/* Returns whether pump itself makes the call. All other calls are looked up, even after
 * pump has given up: memory that pump serves remains served until it is freed. */
static bool own_call(void) {
  return pump_reentry_depth != 0;
}

/* Runs `call` in the guard and preserves errno. True: `result` is the answer. Borrows a
 * context: the hooked calls need no current one, but managed memory does. */
#define SERVED(call)                                                                       \
  ({                                                                                       \
    int errno_before = errno;                                                              \
    pump_enter();                                                                          \
    bool borrowed = pump_context_borrow(), served = call;                                  \
    pump_context_return(borrowed);                                                         \
    pump_leave();                                                                          \
    errno = errno_before;                                                                  \
    served;                                                                                \
  })

/* Runs a call without an answer in the same way. */
#define GUARDED(call) ((void)SERVED((call, true)))

/* ---- addresses ------------------------------------------------------------------ */

CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment,
                             CUdeviceptr addr, unsigned long long flags) {
  CUresult result;
  if (pump_inert()) return pump_real.cuMemAddressReserve(ptr, size, alignment, addr, flags);
  PUMP_ADD(&pump_calls_seen, 1);
  if (SERVED(pump_mapped_reserve(ptr, size, alignment, flags, &result))) return result;
  return pump_real.cuMemAddressReserve(ptr, size, alignment, addr, flags);
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size) {
  CUresult result;
  if (!own_call() && SERVED(pump_mapped_unreserve(ptr, size, &result))) return result;
  return pump_real.cuMemAddressFree(ptr, size);
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc,
                        size_t count) {
  CUresult result;
  if (!own_call() && SERVED(pump_mapped_set_access(ptr, size, desc, count, &result)))
    return result;
  return pump_real.cuMemSetAccess(ptr, size, desc, count);
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
                        CUdeviceptr ptr) {
  CUresult result;
  if (!own_call() && SERVED(pump_mapped_get_access(flags, location, ptr, &result)))
    return result;
  return pump_real.cuMemGetAccess(flags, location, ptr);
}

/* ---- handles ---------------------------------------------------------------------- */

/* Counts memory that the driver has created. */
static void count(CUmemGenericAllocationHandle handle, size_t bytes,
                  const CUmemAllocationProp *properties) {
  GUARDED(pump_mapped_note_real(handle));
  if (properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
      properties->location.id >= 0 && properties->location.id < PUMP_MAX_DEVICES)
    pump_physical_created(handle, bytes, (uint32_t)properties->location.id);
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                     const CUmemAllocationProp *properties, unsigned long long flags) {
  CUresult result;
  if (pump_inert()) return pump_real.cuMemCreate(handle, bytes, properties, flags);
  int saved = errno;
  PUMP_ADD(&pump_calls_seen, 1);
  /* The device's budget is chosen before memory is allocated. */
  if (SERVED((pump_current_device(NULL),
              pump_mapped_create(handle, bytes, properties, flags, &result))))
    return result;
  result = pump_real.cuMemCreate(handle, bytes, properties, flags);
  if (result == CUDA_SUCCESS) count(*handle, bytes, properties);
  errno = saved;
  return result;
}

/* Uncounts memory before the real call: after it, another thread may get the handle. */
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  CUresult result;
  if (own_call()) return pump_real.cuMemRelease(handle);
  if (SERVED(pump_mapped_release(&handle, &result))) return result;
  if (!pump_inert()) pump_physical_add_references(handle, -1);
  return pump_real.cuMemRelease(handle);
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address) {
  CUresult result;
  CUdeviceptr at = (CUdeviceptr)(uintptr_t)address;
  if (!own_call() && SERVED(pump_mapped_retain(handle, at, &result))) return result;
  result = pump_real.cuMemRetainAllocationHandle(handle, address);
  if (result == CUDA_SUCCESS && !pump_inert()) pump_physical_add_references(*handle, 1);
  return result;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                CUmemGenericAllocationHandle handle) {
  CUresult result;
  if (!own_call() && SERVED(pump_mapped_properties(prop, &handle, &result))) return result;
  return pump_real.cuMemGetAllocationPropertiesFromHandle(prop, handle);
}

/* Evaluates `call` with `loan.real`, the driver's handle for the program's `handle`. Only
 * the driver's own memory can be shared and bound. */
#define LENT(handle, name, call)                                                           \
  ({                                                                                       \
    static uint32_t said;                                                                  \
    CUresult result;                                                                       \
    struct pump_mapped_loan loan = {handle, handle, false};                                \
    if (own_call() || SERVED(pump_mapped_lend(&loan, name, &said, &result)))               \
      result = call;                                                                       \
    if (loan.lent) GUARDED(pump_mapped_lent(&loan, result == CUDA_SUCCESS));               \
    result;                                                                                \
  })

CUresult cuMemExportToShareableHandle(void *shareableHandle,
                                      CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType handleType,
                                      unsigned long long flags) {
  return LENT(handle, "cuMemExportToShareableHandle",
              pump_real.cuMemExportToShareableHandle(shareableHandle, loan.real, handleType,
                                                     flags));
}

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
                            CUmemGenericAllocationHandle memHandle, size_t memOffset,
                            size_t size, unsigned long long flags) {
  return LENT(
      memHandle, "cuMulticastBindMem",
      pump_real.cuMulticastBindMem(mcHandle, mcOffset, loan.real, memOffset, size, flags));
}

CUresult cuMulticastBindMem_v2(CUmemGenericAllocationHandle mcHandle, CUdevice dev,
                               size_t mcOffset, CUmemGenericAllocationHandle memHandle,
                               size_t memOffset, size_t size, unsigned long long flags) {
  return LENT(memHandle, "cuMulticastBindMem",
              pump_real.cuMulticastBindMem_v2(mcHandle, dev, mcOffset, loan.real, memOffset,
                                              size, flags));
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle,
                                        void *osHandle,
                                        CUmemAllocationHandleType shHandleType) {
  CUresult result =
      pump_real.cuMemImportFromShareableHandle(handle, osHandle, shHandleType);
  if (result == CUDA_SUCCESS && !pump_inert()) GUARDED(pump_mapped_note_real(*handle));
  return result;
}

/* ---- mappings ------------------------------------------------------------------------ */

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags) {
  CUresult result;
  if (!own_call() &&
      SERVED(pump_mapped_map(address, bytes, offset, &handle, flags, &result)))
    return result;
  result = pump_real.cuMemMap(address, bytes, offset, handle, flags);
  if (result == CUDA_SUCCESS && !pump_inert()) pump_physical_mapped(address, bytes, handle);
  return result;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  CUresult result;
  if (!own_call() && SERVED(pump_mapped_unmap(address, bytes, &result))) return result;
  result = pump_real.cuMemUnmap(address, bytes);
  if (result == CUDA_SUCCESS && !pump_inert()) pump_physical_unmapped(address, bytes);
  return result;
}

/* Refuses pump's handles: the driver does not know them and would dereference them. */
#define HOOK_ARRAY(name)                                                                   \
  CUresult name(CUarrayMapInfo *list, unsigned int count, CUstream stream) {               \
    if (!own_call() && !SERVED(pump_mapped_no_tiles(list, count)))                         \
      return CUDA_ERROR_INVALID_VALUE;                                                     \
    return pump_real.name(list, count, stream);                                            \
  }

HOOK_ARRAY(cuMemMapArrayAsync)
HOOK_ARRAY(cuMemMapArrayAsync_ptsz)
