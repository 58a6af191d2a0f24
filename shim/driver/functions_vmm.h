/* functions_vmm.h - part of functions.h: virtual memory, memory of other processes. */

/* clang-format off */
PUMP_DRIVER(HOOK, INIT, NONE, cuMemAddressReserve, cuMemAddressReserve, 10020, 0,
            (CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr, unsigned long long
             flags),
            (ptr, size, alignment, addr, flags))
PUMP_DRIVER(HOOK, INIT, NONE, cuMemAddressFree, cuMemAddressFree, 10020, 0,
            (CUdeviceptr ptr, size_t size), (ptr, size))
PUMP_DRIVER(HOOK, INIT, NONE, cuMemCreate, cuMemCreate, 10020, 0,
            (CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp
             *properties, unsigned long long flags),
            (handle, bytes, properties, flags))
PUMP_DRIVER(HOOK, INIT, NONE, cuMemRelease, cuMemRelease, 10020, 0,
            (CUmemGenericAllocationHandle handle), (handle))
PUMP_DRIVER(HOOK, INIT, NONE, cuMemMap, cuMemMap, 10020, 0,
            (CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
             unsigned long long flags),
            (address, bytes, offset, handle, flags))
PUMP_DRIVER(HOOK, INIT, NONE, cuMemUnmap, cuMemUnmap, 10020, 0,
            (CUdeviceptr address, size_t bytes), (address, bytes))
PUMP_DRIVER(HOOK, INIT, NONE, cuMemSetAccess, cuMemSetAccess, 10020, 0,
            (CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count),
            (ptr, size, desc, count))
PUMP_DRIVER(HOOK, INIT, NONE, cuMemGetAccess, cuMemGetAccess, 10020, 0,
            (unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr),
            (flags, location, ptr))
PUMP_DRIVER(NO, INIT, NONE, cuMemGetAllocationGranularity, cuMemGetAllocationGranularity, 10020, 0,
            (size_t *granularity, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags
             option),
            (granularity, prop, option))
PUMP_DRIVER(HOOK, INIT, NONE, cuMemGetAllocationPropertiesFromHandle, cuMemGetAllocationPropertiesFromHandle, 10020, 0,
            (CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle), (prop, handle))
PUMP_DRIVER(HOOK, INIT, NONE, cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, 11000, 0,
            (CUmemGenericAllocationHandle *handle, void *address), (handle, address))
PUMP_DRIVER(HOOK, INIT, NONE, cuMemExportToShareableHandle, cuMemExportToShareableHandle, 10020, 0,
            (void *shareableHandle, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType
             handleType, unsigned long long flags),
            (shareableHandle, handle, handleType, flags))
PUMP_DRIVER(HOOK, INIT, NONE, cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, 10020, 0,
            (CUmemGenericAllocationHandle *handle, void *osHandle, CUmemAllocationHandleType
             shHandleType),
            (handle, osHandle, shHandleType))
PUMP_DRIVER(HOOK, NO, NONE, cuMulticastBindMem, cuMulticastBindMem, 12010, 0,
            (CUmemGenericAllocationHandle mcHandle, size_t mcOffset, CUmemGenericAllocationHandle
             memHandle, size_t memOffset, size_t size, unsigned long long flags),
            (mcHandle, mcOffset, memHandle, memOffset, size, flags))
PUMP_DRIVER(HOOK, NO, NONE, cuMulticastBindMem_v2, cuMulticastBindMem, 13010, 0,
            (CUmemGenericAllocationHandle mcHandle, CUdevice dev, size_t mcOffset,
             CUmemGenericAllocationHandle memHandle, size_t memOffset, size_t size, unsigned long
             long flags),
            (mcHandle, dev, mcOffset, memHandle, memOffset, size, flags))
PUMP_DRIVER(HOOK, NO, SZ, cuMemMapArrayAsync, cuMemMapArrayAsync, 11010, 11010,
            (CUarrayMapInfo *list, unsigned int count, CUstream stream), (list, count, stream))
PUMP_DRIVER(HOOK, CTX, NONE, cuMemGetHandleForAddressRange, cuMemGetHandleForAddressRange, 11070, 0,
            (void *handle, CUdeviceptr address, size_t bytes, CUmemRangeHandleType type, unsigned
             long long flags),
            (handle, address, bytes, type, flags))
PUMP_DRIVER(HOOK, CTX, NONE, cuIpcGetMemHandle, cuIpcGetMemHandle, 4010, 0,
            (CUipcMemHandle *handle, CUdeviceptr address), (handle, address))
PUMP_DRIVER(NO, CTX, NONE, cuIpcOpenMemHandle, cuIpcOpenMemHandle, 4010, 0,
            (CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags), (pdptr, handle, Flags))
PUMP_DRIVER(NO, CTX, NONE, cuIpcOpenMemHandle_v2, cuIpcOpenMemHandle, 11000, 0,
            (CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags), (pdptr, handle, Flags))
PUMP_DRIVER(NO, CTX, NONE, cuIpcCloseMemHandle, cuIpcCloseMemHandle, 4010, 0,
            (CUdeviceptr dptr), (dptr))
/* clang-format on */
