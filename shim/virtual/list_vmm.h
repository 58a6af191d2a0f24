/* list_vmm.h - exported functions: virtual memory management, memory shared between
 * processes. Part of driver_list.h; no include guard. */

X(CTX, NONE, cuMemAddressReserve, cuMemAddressReserve, 10020,
  (CUdeviceptr * ptr, size_t size, size_t alignment, CUdeviceptr addr,
   unsigned long long flags),
  (ptr, size, alignment, addr, flags))
X(CTX, NONE, cuMemAddressFree, cuMemAddressFree, 10020, (CUdeviceptr ptr, size_t size),
  (ptr, size))
X(INIT, NONE, cuMemCreate, cuMemCreate, 10020,
  (CUmemGenericAllocationHandle * handle, size_t size, const CUmemAllocationProp *prop,
   unsigned long long flags),
  (handle, size, prop, flags))
X(INIT, NONE, cuMemRelease, cuMemRelease, 10020, (CUmemGenericAllocationHandle handle),
  (handle))
X(CTX, NONE, cuMemMap, cuMemMap, 10020,
  (CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
   unsigned long long flags),
  (ptr, size, offset, handle, flags))
X(CTX, NONE, cuMemUnmap, cuMemUnmap, 10020, (CUdeviceptr ptr, size_t size), (ptr, size))
X(CTX, NONE, cuMemSetAccess, cuMemSetAccess, 10020,
  (CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count),
  (ptr, size, desc, count))
X(CTX, NONE, cuMemGetAccess, cuMemGetAccess, 10020,
  (unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr),
  (flags, location, ptr))
X(INIT, NONE, cuMemGetAllocationGranularity, cuMemGetAllocationGranularity, 10020,
  (size_t *granularity, const CUmemAllocationProp *prop, int option),
  (granularity, prop, option))
X(INIT, NONE, cuMemGetAllocationPropertiesFromHandle,
  cuMemGetAllocationPropertiesFromHandle, 10020,
  (CUmemAllocationProp * prop, CUmemGenericAllocationHandle handle), (prop, handle))
X(CTX, NONE, cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, 11000,
  (CUmemGenericAllocationHandle * handle, void *addr), (handle, addr))
X(INIT, NONE, cuMemExportToShareableHandle, cuMemExportToShareableHandle, 10020,
  (void *shareableHandle, CUmemGenericAllocationHandle handle, int handleType,
   unsigned long long flags),
  (shareableHandle, handle, handleType, flags))
X(INIT, NONE, cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, 10020,
  (CUmemGenericAllocationHandle * handle, void *osHandle, int shHandleType),
  (handle, osHandle, shHandleType))
X(CTX, NONE, cuMemGetHandleForAddressRange, cuMemGetHandleForAddressRange, 11070,
  (void *handle, CUdeviceptr dptr, size_t size, int handleType, unsigned long long flags),
  (handle, dptr, size, handleType, flags))
X(CTX, NONE, cuIpcGetMemHandle, cuIpcGetMemHandle, 4010,
  (CUipcMemHandle * pHandle, CUdeviceptr dptr), (pHandle, dptr))
X(CTX, NONE, cuIpcOpenMemHandle, cuIpcOpenMemHandle, 4010,
  (CUdeviceptr * pdptr, CUipcMemHandle handle, unsigned int Flags), (pdptr, handle, Flags))
X(CTX, NONE, cuIpcOpenMemHandle_v2, cuIpcOpenMemHandle, 11000,
  (CUdeviceptr * pdptr, CUipcMemHandle handle, unsigned int Flags), (pdptr, handle, Flags))
X(CTX, NONE, cuIpcCloseMemHandle, cuIpcCloseMemHandle, 4010, (CUdeviceptr dptr), (dptr))
