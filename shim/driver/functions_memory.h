/* functions_memory.h - part of functions.h: memory, copies, memsets, pools. */

/* clang-format off */
PUMP_DRIVER(HOOK, CTX, NONE, cuMemGetInfo_v2, cuMemGetInfo, 3020, 0,
            (size_t *free_bytes, size_t *total_bytes), (free_bytes, total_bytes))
PUMP_DRIVER(HOOK, CTX, NONE, cuMemAlloc_v2, cuMemAlloc, 3020, 0,
            (CUdeviceptr *address, size_t bytes), (address, bytes))
PUMP_DRIVER(HOOK, CTX, NONE, cuMemAllocPitch_v2, cuMemAllocPitch, 3020, 0,
            (CUdeviceptr *address, size_t *pitch, size_t width_bytes, size_t height, unsigned int
             element_bytes),
            (address, pitch, width_bytes, height, element_bytes))
PUMP_DRIVER(HOOK, CTX, NONE, cuMemAllocManaged, cuMemAllocManaged, 6000, 0,
            (CUdeviceptr *address, size_t bytes, unsigned int flags), (address, bytes, flags))
PUMP_DRIVER(HOOK, CTX, NONE, cuMemFree_v2, cuMemFree, 3020, 0, (CUdeviceptr address), (address))
PUMP_DRIVER(HOOK, CTX, NONE, cuMemGetAddressRange_v2, cuMemGetAddressRange, 3020, 0,
            (CUdeviceptr *base, size_t *bytes, CUdeviceptr address), (base, bytes, address))
PUMP_DRIVER(HOOK, CTX, NONE, cuArrayCreate_v2, cuArrayCreate, 3020, 0,
            (CUarray *array, const CUDA_ARRAY_DESCRIPTOR *shape), (array, shape))
PUMP_DRIVER(HOOK, CTX, NONE, cuArray3DCreate_v2, cuArray3DCreate, 3020, 0,
            (CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *shape), (array, shape))
PUMP_DRIVER(HOOK, CTX, NONE, cuArrayDestroy, cuArrayDestroy, 2000, 0, (CUarray array), (array))
PUMP_DRIVER(NO, INIT, NONE, cuArrayGetDescriptor_v2, cuArrayGetDescriptor, 3020, 0,
            (CUDA_ARRAY_DESCRIPTOR *shape, CUarray array), (shape, array))
PUMP_DRIVER(NO, INIT, NONE, cuArray3DGetDescriptor_v2, cuArray3DGetDescriptor, 3020, 0,
            (CUDA_ARRAY3D_DESCRIPTOR *shape, CUarray array), (shape, array))
PUMP_DRIVER(NO, CTX, NONE, cuMipmappedArrayGetLevel, cuMipmappedArrayGetLevel, 5000, 0,
            (CUarray *level, CUmipmappedArray array, unsigned int number), (level, array, number))
PUMP_DRIVER(NO, CTX, NONE, cuTexObjectCreate, cuTexObjectCreate, 5000, 0,
            (CUtexObject *object, const CUDA_RESOURCE_DESC *resource,
             const CUDA_TEXTURE_DESC *texture, const CUDA_RESOURCE_VIEW_DESC *view),
            (object, resource, texture, view))
PUMP_DRIVER(NO, CTX, NONE, cuTexObjectDestroy, cuTexObjectDestroy, 5000, 0,
            (CUtexObject object), (object))
PUMP_DRIVER(NO, INIT, NONE, cuTexObjectGetResourceDesc, cuTexObjectGetResourceDesc, 5000, 0,
            (CUDA_RESOURCE_DESC *resource, CUtexObject object), (resource, object))
PUMP_DRIVER(NO, INIT, NONE, cuTexObjectGetTextureDesc, cuTexObjectGetTextureDesc, 5000, 0,
            (CUDA_TEXTURE_DESC *texture, CUtexObject object), (texture, object))
PUMP_DRIVER(NO, INIT, NONE, cuTexObjectGetResourceViewDesc, cuTexObjectGetResourceViewDesc, 5000, 0,
            (CUDA_RESOURCE_VIEW_DESC *view, CUtexObject object), (view, object))
PUMP_DRIVER(NO, CTX, NONE, cuSurfObjectCreate, cuSurfObjectCreate, 5000, 0,
            (CUsurfObject *object, const CUDA_RESOURCE_DESC *resource), (object, resource))
PUMP_DRIVER(NO, CTX, NONE, cuSurfObjectDestroy, cuSurfObjectDestroy, 5000, 0,
            (CUsurfObject object), (object))
PUMP_DRIVER(NO, INIT, NONE, cuSurfObjectGetResourceDesc, cuSurfObjectGetResourceDesc, 5000, 0,
            (CUDA_RESOURCE_DESC *resource, CUsurfObject object), (resource, object))
PUMP_DRIVER(HOOK, CTX, NONE, cuMipmappedArrayCreate, cuMipmappedArrayCreate, 5000, 0,
            (CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned int levels),
            (array, shape, levels))
PUMP_DRIVER(HOOK, CTX, NONE, cuMipmappedArrayDestroy, cuMipmappedArrayDestroy, 5000, 0,
            (CUmipmappedArray array), (array))
PUMP_DRIVER(HOOK, NO, NONE, cuImportExternalMemory, cuImportExternalMemory, 10000, 0,
            (CUexternalMemory *memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *description),
            (memory, description))
PUMP_DRIVER(HOOK, NO, NONE, cuDestroyExternalMemory, cuDestroyExternalMemory, 10000, 0,
            (CUexternalMemory memory), (memory))
PUMP_DRIVER(HOOK, NO, NONE, cuLaunch, cuLaunch, 2000, 0, (CUfunction function), (function))
PUMP_DRIVER(HOOK, NO, NONE, cuLaunchGrid, cuLaunchGrid, 2000, 0,
            (CUfunction function, int width, int height), (function, width, height))
PUMP_DRIVER(HOOK, NO, NONE, cuLaunchGridAsync, cuLaunchGridAsync, 2000, 0,
            (CUfunction function, int width, int height, CUstream stream),
            (function, width, height, stream))
PUMP_DRIVER(NO, CTX, NONE, cuMemAllocHost_v2, cuMemAllocHost, 3020, 0,
            (void **pp, size_t bytesize), (pp, bytesize))
PUMP_DRIVER(NO, CTX, NONE, cuMemHostAlloc, cuMemHostAlloc, 2020, 0,
            (void **pp, size_t bytesize, unsigned int Flags), (pp, bytesize, Flags))
PUMP_DRIVER(NO, CTX, NONE, cuMemFreeHost, cuMemFreeHost, 2000, 0, (void *p), (p))
PUMP_DRIVER(CALL, CTX, NONE, cuMemHostRegister_v2, cuMemHostRegister, 6050, 0,
            (void *start, size_t bytes, unsigned int flags), (start, bytes, flags))
PUMP_DRIVER(NO, CTX, NONE, cuMemHostUnregister, cuMemHostUnregister, 4000, 0, (void *p), (p))
PUMP_DRIVER(CALL, CTX, NONE, cuMemHostGetDevicePointer_v2, cuMemHostGetDevicePointer, 3020, 0,
            (CUdeviceptr *address, void *start, unsigned int flags), (address, start, flags))
PUMP_DRIVER(NO, CTX, NONE, cuMemHostGetFlags, cuMemHostGetFlags, 2030, 0,
            (unsigned int *pFlags, void *p), (pFlags, p))
PUMP_DRIVER(HOOK, INIT, NONE, cuPointerGetAttribute, cuPointerGetAttribute, 4000, 0,
            (void *data, CUpointer_attribute attribute, CUdeviceptr address),
            (data, attribute, address))
PUMP_DRIVER(HOOK, INIT, NONE, cuPointerGetAttributes, cuPointerGetAttributes, 7000, 0,
            (unsigned int count, CUpointer_attribute *attributes, void **data, CUdeviceptr
             address),
            (count, attributes, data, address))
PUMP_DRIVER(HOOK, INIT, NONE, cuPointerSetAttribute, cuPointerSetAttribute, 6000, 0,
            (const void *value, CUpointer_attribute attribute, CUdeviceptr ptr),
            (value, attribute, ptr))
PUMP_DRIVER(HOOK, CTX, DS, cuMemcpy, cuMemcpy, 4000, 7000,
            (CUdeviceptr to, CUdeviceptr from, size_t bytes), (to, from, bytes))
PUMP_DRIVER(HOOK, CTX, SZ, cuMemcpyAsync, cuMemcpyAsync, 4000, 7000,
            (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
            (to, from, bytes, stream))
PUMP_DRIVER(HOOK, CTX, DS, cuMemcpyPeer, cuMemcpyPeer, 4000, 7000,
            (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t
             bytes),
            (to, to_context, from, from_context, bytes))
PUMP_DRIVER(HOOK, CTX, SZ, cuMemcpyPeerAsync, cuMemcpyPeerAsync, 4000, 7000,
            (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t
             bytes, CUstream stream),
            (to, to_context, from, from_context, bytes, stream))
PUMP_DRIVER(HOOK, CTX, DS, cuMemcpyHtoD_v2, cuMemcpyHtoD, 3020, 7000,
            (CUdeviceptr to, const void *from, size_t bytes), (to, from, bytes))
PUMP_DRIVER(HOOK, CTX, DS, cuMemcpyDtoH_v2, cuMemcpyDtoH, 3020, 7000,
            (void *to, CUdeviceptr from, size_t bytes), (to, from, bytes))
PUMP_DRIVER(HOOK, CTX, DS, cuMemcpyDtoD_v2, cuMemcpyDtoD, 3020, 7000,
            (CUdeviceptr to, CUdeviceptr from, size_t bytes), (to, from, bytes))
PUMP_DRIVER(HOOK, CTX, SZ, cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync, 3020, 7000,
            (CUdeviceptr to, const void *from, size_t bytes, CUstream stream),
            (to, from, bytes, stream))
PUMP_DRIVER(HOOK, CTX, SZ, cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync, 3020, 7000,
            (void *to, CUdeviceptr from, size_t bytes, CUstream stream), (to, from, bytes, stream))
PUMP_DRIVER(HOOK, CTX, SZ, cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync, 3020, 7000,
            (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
            (to, from, bytes, stream))
PUMP_DRIVER(HOOK, CTX, DS, cuMemcpy2D_v2, cuMemcpy2D, 3020, 7000,
            (const CUDA_MEMCPY2D *copy), (copy))
PUMP_DRIVER(HOOK, CTX, DS, cuMemcpy2DUnaligned_v2, cuMemcpy2DUnaligned, 3020, 7000,
            (const CUDA_MEMCPY2D *copy), (copy))
PUMP_DRIVER(HOOK, CTX, SZ, cuMemcpy2DAsync_v2, cuMemcpy2DAsync, 3020, 7000,
            (const CUDA_MEMCPY2D *copy, CUstream stream), (copy, stream))
PUMP_DRIVER(HOOK, CTX, DS, cuMemcpy3D_v2, cuMemcpy3D, 3020, 7000,
            (const CUDA_MEMCPY3D *copy), (copy))
PUMP_DRIVER(HOOK, CTX, SZ, cuMemcpy3DAsync_v2, cuMemcpy3DAsync, 3020, 7000,
            (const CUDA_MEMCPY3D *copy, CUstream stream), (copy, stream))
PUMP_DRIVER(HOOK, CTX, DS, cuMemcpy3DPeer, cuMemcpy3DPeer, 4000, 7000,
            (const CUDA_MEMCPY3D_PEER *copy), (copy))
PUMP_DRIVER(HOOK, CTX, SZ, cuMemcpy3DPeerAsync, cuMemcpy3DPeerAsync, 4000, 7000,
            (const CUDA_MEMCPY3D_PEER *copy, CUstream stream), (copy, stream))
PUMP_DRIVER(HOOK, CTX, SZ, cuMemcpy3DBatchAsync, cuMemcpy3DBatchAsync, 12080, 12080,
            (size_t count, CUDA_MEMCPY3D_BATCH_OP *copies, size_t *failed, unsigned long long
             flags, CUstream stream),
            (count, copies, failed, flags, stream))
PUMP_DRIVER(HOOK, CTX, SZ, cuMemcpy3DBatchAsync_v2, cuMemcpy3DBatchAsync, 13000, 13000,
            (size_t count, CUDA_MEMCPY3D_BATCH_OP *copies, unsigned long long flags, CUstream
             stream),
            (count, copies, flags, stream))
PUMP_DRIVER(HOOK, CTX, SZ, cuMemcpyWithAttributesAsync, cuMemcpyWithAttributesAsync, 13020, 13020,
            (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUmemcpyAttributes *attributes,
             CUstream stream),
            (to, from, bytes, attributes, stream))
PUMP_DRIVER(HOOK, CTX, SZ, cuMemcpy3DWithAttributesAsync, cuMemcpy3DWithAttributesAsync, 13020, 13020,
            (CUDA_MEMCPY3D_BATCH_OP *copy, unsigned long long flags, CUstream stream),
            (copy, flags, stream))
PUMP_DRIVER(HOOK, CTX, DS, cuMemcpyDtoA_v2, cuMemcpyDtoA, 3020, 7000,
            (CUarray to, size_t offset, CUdeviceptr from, size_t bytes), (to, offset, from, bytes))
PUMP_DRIVER(HOOK, CTX, DS, cuMemcpyAtoD_v2, cuMemcpyAtoD, 3020, 7000,
            (CUdeviceptr to, CUarray from, size_t offset, size_t bytes), (to, from, offset, bytes))
PUMP_DRIVER(NO, CTX, DS, cuMemcpyHtoA_v2, cuMemcpyHtoA, 3020, 7000,
            (CUarray to, size_t offset, const void *from, size_t bytes), (to, offset, from, bytes))
PUMP_DRIVER(NO, CTX, DS, cuMemcpyAtoH_v2, cuMemcpyAtoH, 3020, 7000,
            (void *to, CUarray from, size_t offset, size_t bytes), (to, from, offset, bytes))
PUMP_DRIVER(NO, CTX, DS, cuMemcpyAtoA_v2, cuMemcpyAtoA, 3020, 7000,
            (CUarray to, size_t to_offset, CUarray from, size_t from_offset, size_t bytes),
            (to, to_offset, from, from_offset, bytes))
PUMP_DRIVER(NO, CTX, SZ, cuMemcpyHtoAAsync_v2, cuMemcpyHtoAAsync, 3020, 7000,
            (CUarray to, size_t offset, const void *from, size_t bytes, CUstream stream),
            (to, offset, from, bytes, stream))
PUMP_DRIVER(NO, CTX, SZ, cuMemcpyAtoHAsync_v2, cuMemcpyAtoHAsync, 3020, 7000,
            (void *to, CUarray from, size_t offset, size_t bytes, CUstream stream),
            (to, from, offset, bytes, stream))
PUMP_DRIVER(HOOK, NO, SZ, cuMemBatchDecompressAsync, cuMemBatchDecompressAsync, 12060, 12060,
            (CUmemDecompressParams *parts, size_t count, unsigned int flags, size_t *failed,
             CUstream stream),
            (parts, count, flags, failed, stream))
PUMP_DRIVER(HOOK, CTX, SZ, cuMemcpyBatchAsync, cuMemcpyBatchAsync, 12080, 12080,
            (CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count, CUmemcpyAttributes
             *attributes, size_t *indices, size_t attribute_count, size_t *failed, CUstream stream),
            (to, from, bytes, count, attributes, indices, attribute_count, failed, stream))
PUMP_DRIVER(HOOK, CTX, SZ, cuMemcpyBatchAsync_v2, cuMemcpyBatchAsync, 13000, 13000,
            (CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count, CUmemcpyAttributes
             *attributes, size_t *indices, size_t attribute_count, CUstream stream),
            (to, from, bytes, count, attributes, indices, attribute_count, stream))
PUMP_DRIVER(HOOK, CTX, DS, cuMemsetD8_v2, cuMemsetD8, 3020, 7000,
            (CUdeviceptr to, unsigned char value, size_t count), (to, value, count))
PUMP_DRIVER(HOOK, CTX, DS, cuMemsetD16_v2, cuMemsetD16, 3020, 7000,
            (CUdeviceptr to, unsigned short value, size_t count), (to, value, count))
PUMP_DRIVER(HOOK, CTX, DS, cuMemsetD32_v2, cuMemsetD32, 3020, 7000,
            (CUdeviceptr to, unsigned int value, size_t count), (to, value, count))
PUMP_DRIVER(HOOK, CTX, SZ, cuMemsetD8Async, cuMemsetD8Async, 3020, 7000,
            (CUdeviceptr to, unsigned char value, size_t count, CUstream stream),
            (to, value, count, stream))
PUMP_DRIVER(HOOK, CTX, SZ, cuMemsetD16Async, cuMemsetD16Async, 3020, 7000,
            (CUdeviceptr to, unsigned short value, size_t count, CUstream stream),
            (to, value, count, stream))
PUMP_DRIVER(HOOK, CTX, SZ, cuMemsetD32Async, cuMemsetD32Async, 3020, 7000,
            (CUdeviceptr to, unsigned int value, size_t count, CUstream stream),
            (to, value, count, stream))
PUMP_DRIVER(HOOK, CTX, DS, cuMemsetD2D8_v2, cuMemsetD2D8, 3020, 7000,
            (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height),
            (to, pitch, value, width, height))
PUMP_DRIVER(HOOK, CTX, DS, cuMemsetD2D16_v2, cuMemsetD2D16, 3020, 7000,
            (CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height),
            (to, pitch, value, width, height))
PUMP_DRIVER(HOOK, CTX, DS, cuMemsetD2D32_v2, cuMemsetD2D32, 3020, 7000,
            (CUdeviceptr to, size_t pitch, unsigned int value, size_t width, size_t height),
            (to, pitch, value, width, height))
PUMP_DRIVER(HOOK, CTX, SZ, cuMemsetD2D8Async, cuMemsetD2D8Async, 3020, 7000,
            (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height,
             CUstream stream),
            (to, pitch, value, width, height, stream))
PUMP_DRIVER(HOOK, CTX, SZ, cuMemsetD2D16Async, cuMemsetD2D16Async, 3020, 7000,
            (CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height,
             CUstream stream),
            (to, pitch, value, width, height, stream))
PUMP_DRIVER(HOOK, CTX, SZ, cuMemsetD2D32Async, cuMemsetD2D32Async, 3020, 7000,
            (CUdeviceptr to, size_t pitch, unsigned int value, size_t width, size_t height,
             CUstream stream),
            (to, pitch, value, width, height, stream))
PUMP_DRIVER(HOOK, CTX, SZ, cuMemPrefetchAsync, cuMemPrefetchAsync, 8000, 8000,
            (CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream),
            (address, bytes, device, stream))
PUMP_DRIVER(HOOK, CTX, SZ, cuMemPrefetchAsync_v2, cuMemPrefetchAsync, 12020, 12020,
            (CUdeviceptr address, size_t bytes, CUmemLocation location, unsigned int flags,
             CUstream stream),
            (address, bytes, location, flags, stream))
PUMP_DRIVER(HOOK, CTX, SZ, cuMemPrefetchBatchAsync, cuMemPrefetchBatchAsync, 13000, 13000,
            (CUdeviceptr *addresses, size_t *lengths, size_t count, CUmemLocation *locations,
             size_t *indices, size_t location_count, unsigned long long flags, CUstream stream),
            (addresses, lengths, count, locations, indices, location_count, flags, stream))
PUMP_DRIVER(HOOK, CTX, SZ, cuMemDiscardBatchAsync, cuMemDiscardBatchAsync, 13000, 13000,
            (CUdeviceptr *addresses, size_t *lengths, size_t count, unsigned long long flags,
             CUstream stream),
            (addresses, lengths, count, flags, stream))
PUMP_DRIVER(HOOK, CTX, SZ, cuMemDiscardAndPrefetchBatchAsync, cuMemDiscardAndPrefetchBatchAsync, 13000, 13000,
            (CUdeviceptr *addresses, size_t *lengths, size_t count, CUmemLocation *locations,
             size_t *indices, size_t location_count, unsigned long long flags, CUstream stream),
            (addresses, lengths, count, locations, indices, location_count, flags, stream))
PUMP_DRIVER(HOOK, CTX, NONE, cuMemAdvise, cuMemAdvise, 8000, 0,
            (CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice device),
            (address, bytes, advice, device))
PUMP_DRIVER(HOOK, CTX, NONE, cuMemAdvise_v2, cuMemAdvise, 12020, 0,
            (CUdeviceptr address, size_t bytes, CUmem_advise advice, CUmemLocation location),
            (address, bytes, advice, location))
PUMP_DRIVER(HOOK, INIT, NONE, cuMemRangeGetAttribute, cuMemRangeGetAttribute, 8000, 0,
            (void *data, size_t dataSize, CUmem_range_attribute attribute, CUdeviceptr address,
             size_t count),
            (data, dataSize, attribute, address, count))
PUMP_DRIVER(HOOK, INIT, NONE, cuMemRangeGetAttributes, cuMemRangeGetAttributes, 8000, 0,
            (void **data, size_t *dataSizes, CUmem_range_attribute *attributes, size_t
             numAttributes, CUdeviceptr address, size_t count),
            (data, dataSizes, attributes, numAttributes, address, count))
PUMP_DRIVER(NO, CTX, SZ, cuStreamAttachMemAsync, cuStreamAttachMemAsync, 6000, 7000,
            (CUstream stream, CUdeviceptr dptr, size_t length, unsigned int flags),
            (stream, dptr, length, flags))
PUMP_DRIVER(HOOK, CTX, SZ, cuMemAllocAsync, cuMemAllocAsync, 11020, 11020,
            (CUdeviceptr *address, size_t bytes, CUstream stream), (address, bytes, stream))
PUMP_DRIVER(HOOK, CTX, SZ, cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, 11020, 11020,
            (CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream),
            (address, bytes, pool, stream))
PUMP_DRIVER(HOOK, CTX, SZ, cuMemFreeAsync, cuMemFreeAsync, 11020, 11020,
            (CUdeviceptr address, CUstream stream), (address, stream))
PUMP_DRIVER(CALL, INIT, NONE, cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool, 11020, 0,
            (CUmemoryPool *pool, CUdevice device), (pool, device))
PUMP_DRIVER(CALL, INIT, NONE, cuDeviceGetMemPool, cuDeviceGetMemPool, 11020, 0,
            (CUmemoryPool *pool, CUdevice device), (pool, device))
PUMP_DRIVER(NO, INIT, NONE, cuMemGetDefaultMemPool, cuMemGetDefaultMemPool, 13000, 0,
            (CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type),
            (pool, location, type))
PUMP_DRIVER(NO, INIT, NONE, cuMemGetMemPool, cuMemGetMemPool, 13000, 0,
            (CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type),
            (pool, location, type))
PUMP_DRIVER(NO, INIT, NONE, cuMemSetMemPool, cuMemSetMemPool, 13000, 0,
            (CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool),
            (location, type, pool))
PUMP_DRIVER(NO, INIT, NONE, cuDeviceSetMemPool, cuDeviceSetMemPool, 11020, 0,
            (CUdevice dev, CUmemoryPool pool), (dev, pool))
PUMP_DRIVER(HOOK, INIT, NONE, cuMemPoolCreate, cuMemPoolCreate, 11020, 0,
            (CUmemoryPool *pool, const CUmemPoolProps *properties), (pool, properties))
PUMP_DRIVER(HOOK, INIT, NONE, cuMemPoolDestroy, cuMemPoolDestroy, 11020, 0,
            (CUmemoryPool pool), (pool))
PUMP_DRIVER(HOOK, INIT, NONE, cuMemPoolTrimTo, cuMemPoolTrimTo, 11020, 0,
            (CUmemoryPool pool, size_t keep_bytes), (pool, keep_bytes))
PUMP_DRIVER(HOOK, INIT, NONE, cuMemPoolSetAttribute, cuMemPoolSetAttribute, 11020, 0,
            (CUmemoryPool pool, CUmemPool_attribute attribute, void *value),
            (pool, attribute, value))
PUMP_DRIVER(HOOK, NO, NONE, cuMemPoolExportToShareableHandle, cuMemPoolExportToShareableHandle, 11020, 0,
            (void *handle, CUmemoryPool pool, CUmemAllocationHandleType type, unsigned long long
             flags),
            (handle, pool, type, flags))
PUMP_DRIVER(HOOK, NO, NONE, cuMemPoolImportFromShareableHandle, cuMemPoolImportFromShareableHandle, 11020, 0,
            (CUmemoryPool *pool, void *handle, CUmemAllocationHandleType type, unsigned long long
             flags),
            (pool, handle, type, flags))
PUMP_DRIVER(HOOK, INIT, NONE, cuMemPoolGetAttribute, cuMemPoolGetAttribute, 11020, 0,
            (CUmemoryPool pool, CUmemPool_attribute attribute, void *value),
            (pool, attribute, value))
PUMP_DRIVER(NO, INIT, NONE, cuMemPoolSetAccess, cuMemPoolSetAccess, 11020, 0,
            (CUmemoryPool pool, const CUmemAccessDesc *map, size_t count), (pool, map, count))
PUMP_DRIVER(NO, INIT, NONE, cuMemPoolGetAccess, cuMemPoolGetAccess, 11020, 0,
            (CUmemAccess_flags *flags, CUmemoryPool memPool, CUmemLocation *location),
            (flags, memPool, location))
/* clang-format on */
