/* list_memory.h - exported functions: memory, copies, pools. Part of driver_list.h; no
 * include guard. */

X(CTX, NONE, cuMemGetInfo_v2, cuMemGetInfo, 3020, (size_t *free, size_t *total),
  (free, total))
X(CTX, NONE, cuMemAlloc_v2, cuMemAlloc, 3020, (CUdeviceptr * dptr, size_t bytesize),
  (dptr, bytesize))
X(CTX, NONE, cuMemAllocPitch_v2, cuMemAllocPitch, 3020,
  (CUdeviceptr * dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
   unsigned int ElementSizeBytes),
  (dptr, pPitch, WidthInBytes, Height, ElementSizeBytes))
X(CTX, NONE, cuMemAllocManaged, cuMemAllocManaged, 6000,
  (CUdeviceptr * dptr, size_t bytesize, unsigned int flags), (dptr, bytesize, flags))
X(CTX, NONE, cuMemFree_v2, cuMemFree, 3020, (CUdeviceptr dptr), (dptr))
X(CTX, NONE, cuMemGetAddressRange_v2, cuMemGetAddressRange, 3020,
  (CUdeviceptr * pbase, size_t *psize, CUdeviceptr dptr), (pbase, psize, dptr))
X(CTX, NONE, cuArrayCreate_v2, cuArrayCreate, 3020,
  (CUarray * pHandle, const CUDA_ARRAY_DESCRIPTOR *pAllocateArray),
  (pHandle, pAllocateArray))
X(CTX, NONE, cuArray3DCreate_v2, cuArray3DCreate, 3020,
  (CUarray * pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray),
  (pHandle, pAllocateArray))
X(CTX, NONE, cuArrayDestroy, cuArrayDestroy, 2000, (CUarray hArray), (hArray))
X(CTX, NONE, cuMipmappedArrayCreate, cuMipmappedArrayCreate, 5000,
  (CUmipmappedArray * pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pMipmappedArrayDesc,
   unsigned int numMipmapLevels),
  (pHandle, pMipmappedArrayDesc, numMipmapLevels))
X(CTX, NONE, cuMipmappedArrayDestroy, cuMipmappedArrayDestroy, 5000,
  (CUmipmappedArray hMipmappedArray), (hMipmappedArray))
X(CTX, NONE, cuMemAllocHost_v2, cuMemAllocHost, 3020, (void **pp, size_t bytesize),
  (pp, bytesize))
X(CTX, NONE, cuMemHostAlloc, cuMemHostAlloc, 2020,
  (void **pp, size_t bytesize, unsigned int Flags), (pp, bytesize, Flags))
X(CTX, NONE, cuMemFreeHost, cuMemFreeHost, 2000, (void *p), (p))
X(CTX, NONE, cuMemHostRegister_v2, cuMemHostRegister, 6050,
  (void *p, size_t bytesize, unsigned int Flags), (p, bytesize, Flags))
X(CTX, NONE, cuMemHostUnregister, cuMemHostUnregister, 4000, (void *p), (p))
X(CTX, NONE, cuMemHostGetDevicePointer_v2, cuMemHostGetDevicePointer, 3020,
  (CUdeviceptr * pdptr, void *p, unsigned int Flags), (pdptr, p, Flags))
X(CTX, NONE, cuMemHostGetFlags, cuMemHostGetFlags, 2030, (unsigned int *pFlags, void *p),
  (pFlags, p))
X(INIT, NONE, cuPointerGetAttribute, cuPointerGetAttribute, 4000,
  (void *data, int attribute, CUdeviceptr ptr), (data, attribute, ptr))
X(INIT, NONE, cuPointerGetAttributes, cuPointerGetAttributes, 7000,
  (unsigned int numAttributes, int *attributes, void **data, CUdeviceptr ptr),
  (numAttributes, attributes, data, ptr))
X(INIT, NONE, cuPointerSetAttribute, cuPointerSetAttribute, 6000,
  (const void *value, int attribute, CUdeviceptr ptr), (value, attribute, ptr))
X(CTX, DS, cuMemcpy, cuMemcpy, 4000, (CUdeviceptr dst, CUdeviceptr src, size_t ByteCount),
  (stream, dst, src, ByteCount))
X(CTX, SZ, cuMemcpyAsync, cuMemcpyAsync, 4000,
  (CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream stream),
  (dst, src, ByteCount, stream))
X(CTX, DS, cuMemcpyPeer, cuMemcpyPeer, 4000,
  (CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext,
   size_t ByteCount),
  (stream, dstDevice, dstContext, srcDevice, srcContext, ByteCount))
X(CTX, SZ, cuMemcpyPeerAsync, cuMemcpyPeerAsync, 4000,
  (CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext,
   size_t ByteCount, CUstream stream),
  (dstDevice, dstContext, srcDevice, srcContext, ByteCount, stream))
X(CTX, DS, cuMemcpyHtoD_v2, cuMemcpyHtoD, 3020,
  (CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount),
  (stream, dstDevice, srcHost, ByteCount))
X(CTX, DS, cuMemcpyDtoH_v2, cuMemcpyDtoH, 3020,
  (void *dstHost, CUdeviceptr srcDevice, size_t ByteCount),
  (stream, dstHost, srcDevice, ByteCount))
X(CTX, DS, cuMemcpyDtoD_v2, cuMemcpyDtoD, 3020,
  (CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount),
  (stream, dstDevice, srcDevice, ByteCount))
X(CTX, SZ, cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync, 3020,
  (CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount, CUstream stream),
  (dstDevice, srcHost, ByteCount, stream))
X(CTX, SZ, cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync, 3020,
  (void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream stream),
  (dstHost, srcDevice, ByteCount, stream))
X(CTX, SZ, cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync, 3020,
  (CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount, CUstream stream),
  (dstDevice, srcDevice, ByteCount, stream))
X(CTX, DS, cuMemcpy2D_v2, cuMemcpy2D, 3020, (const CUDA_MEMCPY2D *pCopy), (stream, pCopy))
X(CTX, DS, cuMemcpy2DUnaligned_v2, cuMemcpy2DUnaligned, 3020, (const CUDA_MEMCPY2D *pCopy),
  (stream, pCopy))
X(CTX, SZ, cuMemcpy2DAsync_v2, cuMemcpy2DAsync, 3020,
  (const CUDA_MEMCPY2D *pCopy, CUstream stream), (pCopy, stream))
X(CTX, DS, cuMemcpy3D_v2, cuMemcpy3D, 3020, (const CUDA_MEMCPY3D *pCopy), (stream, pCopy))
X(CTX, SZ, cuMemcpy3DAsync_v2, cuMemcpy3DAsync, 3020,
  (const CUDA_MEMCPY3D *pCopy, CUstream stream), (pCopy, stream))
X(CTX, DS, cuMemcpy3DPeer, cuMemcpy3DPeer, 4000, (const CUDA_MEMCPY3D_PEER *pCopy),
  (stream, pCopy))
X(CTX, SZ, cuMemcpy3DPeerAsync, cuMemcpy3DPeerAsync, 4000,
  (const CUDA_MEMCPY3D_PEER *pCopy, CUstream stream), (pCopy, stream))
X(CTX, SZ, cuMemcpy3DBatchAsync, cuMemcpy3DBatchAsync, 12080,
  (size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, size_t *failIdx, unsigned long long flags,
   CUstream stream),
  (numOps, opList, failIdx, flags, stream))
X(CTX, SZ, cuMemcpy3DBatchAsync_v2, cuMemcpy3DBatchAsync, 13000,
  (size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, unsigned long long flags,
   CUstream stream),
  (numOps, opList, flags, stream))
X(CTX, SZ, cuMemcpyBatchAsync, cuMemcpyBatchAsync, 12080,
  (CUdeviceptr * dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
   CUmemcpyAttributes *attrs, size_t *attrIdxs, size_t numAttrs, size_t *failIdx,
   CUstream stream),
  (dsts, srcs, sizes, count, attrs, attrIdxs, numAttrs, failIdx, stream))
X(CTX, SZ, cuMemcpyBatchAsync_v2, cuMemcpyBatchAsync, 13000,
  (CUdeviceptr * dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
   CUmemcpyAttributes *attrs, size_t *attrIdxs, size_t numAttrs, CUstream stream),
  (dsts, srcs, sizes, count, attrs, attrIdxs, numAttrs, stream))
X(CTX, DS, cuMemsetD8_v2, cuMemsetD8, 3020,
  (CUdeviceptr dstDevice, unsigned char uc, size_t N), (stream, dstDevice, uc, N))
X(CTX, DS, cuMemsetD16_v2, cuMemsetD16, 3020,
  (CUdeviceptr dstDevice, unsigned short us, size_t N), (stream, dstDevice, us, N))
X(CTX, DS, cuMemsetD32_v2, cuMemsetD32, 3020,
  (CUdeviceptr dstDevice, unsigned int ui, size_t N), (stream, dstDevice, ui, N))
X(CTX, SZ, cuMemsetD8Async, cuMemsetD8Async, 3020,
  (CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream stream),
  (dstDevice, uc, N, stream))
X(CTX, SZ, cuMemsetD16Async, cuMemsetD16Async, 3020,
  (CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream stream),
  (dstDevice, us, N, stream))
X(CTX, SZ, cuMemsetD32Async, cuMemsetD32Async, 3020,
  (CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream stream),
  (dstDevice, ui, N, stream))
X(CTX, DS, cuMemsetD2D8_v2, cuMemsetD2D8, 3020,
  (CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height),
  (stream, dstDevice, dstPitch, uc, Width, Height))
X(CTX, DS, cuMemsetD2D16_v2, cuMemsetD2D16, 3020,
  (CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height),
  (stream, dstDevice, dstPitch, us, Width, Height))
X(CTX, DS, cuMemsetD2D32_v2, cuMemsetD2D32, 3020,
  (CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height),
  (stream, dstDevice, dstPitch, ui, Width, Height))
X(CTX, SZ, cuMemsetD2D8Async, cuMemsetD2D8Async, 3020,
  (CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height,
   CUstream stream),
  (dstDevice, dstPitch, uc, Width, Height, stream))
X(CTX, SZ, cuMemsetD2D16Async, cuMemsetD2D16Async, 3020,
  (CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height,
   CUstream stream),
  (dstDevice, dstPitch, us, Width, Height, stream))
X(CTX, SZ, cuMemsetD2D32Async, cuMemsetD2D32Async, 3020,
  (CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height,
   CUstream stream),
  (dstDevice, dstPitch, ui, Width, Height, stream))
X(CTX, SZ, cuMemPrefetchAsync, cuMemPrefetchAsync, 8000,
  (CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream stream),
  (devPtr, count, dstDevice, stream))
X(CTX, SZ, cuMemPrefetchAsync_v2, cuMemPrefetchAsync, 12020,
  (CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags,
   CUstream stream),
  (devPtr, count, location, flags, stream))
X(CTX, SZ, cuMemPrefetchBatchAsync, cuMemPrefetchBatchAsync, 13000,
  (CUdeviceptr * dptrs, size_t *sizes, size_t count, CUmemLocation *prefetchLocs,
   size_t *prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags,
   CUstream stream),
  (dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags, stream))
X(CTX, SZ, cuMemDiscardBatchAsync, cuMemDiscardBatchAsync, 13000,
  (CUdeviceptr * dptrs, size_t *sizes, size_t count, unsigned long long flags,
   CUstream stream),
  (dptrs, sizes, count, flags, stream))
X(CTX, SZ, cuMemDiscardAndPrefetchBatchAsync, cuMemDiscardAndPrefetchBatchAsync, 13000,
  (CUdeviceptr * dptrs, size_t *sizes, size_t count, CUmemLocation *prefetchLocs,
   size_t *prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags,
   CUstream stream),
  (dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags, stream))
X(CTX, NONE, cuMemAdvise, cuMemAdvise, 8000,
  (CUdeviceptr devPtr, size_t count, int advice, CUdevice device),
  (devPtr, count, advice, device))
X(CTX, NONE, cuMemAdvise_v2, cuMemAdvise, 12020,
  (CUdeviceptr devPtr, size_t count, int advice, CUmemLocation location),
  (devPtr, count, advice, location))
X(INIT, NONE, cuMemRangeGetAttribute, cuMemRangeGetAttribute, 8000,
  (void *data, size_t dataSize, int attribute, CUdeviceptr devPtr, size_t count),
  (data, dataSize, attribute, devPtr, count))
X(INIT, NONE, cuMemRangeGetAttributes, cuMemRangeGetAttributes, 8000,
  (void **data, size_t *dataSizes, int *attributes, size_t numAttributes,
   CUdeviceptr devPtr, size_t count),
  (data, dataSizes, attributes, numAttributes, devPtr, count))
X(CTX, SZ, cuStreamAttachMemAsync, cuStreamAttachMemAsync, 6000,
  (CUstream stream, CUdeviceptr dptr, size_t length, unsigned int flags),
  (stream, dptr, length, flags))
X(CTX, SZ, cuMemAllocAsync, cuMemAllocAsync, 11020,
  (CUdeviceptr * dptr, size_t bytesize, CUstream stream), (dptr, bytesize, stream))
X(CTX, SZ, cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, 11020,
  (CUdeviceptr * dptr, size_t bytesize, CUmemoryPool pool, CUstream stream),
  (dptr, bytesize, pool, stream))
X(CTX, SZ, cuMemFreeAsync, cuMemFreeAsync, 11020, (CUdeviceptr dptr, CUstream stream),
  (dptr, stream))
X(INIT, NONE, cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool, 11020,
  (CUmemoryPool * pool_out, CUdevice dev), (pool_out, dev))
X(INIT, NONE, cuDeviceGetMemPool, cuDeviceGetMemPool, 11020,
  (CUmemoryPool * pool, CUdevice dev), (pool, dev))
X(INIT, NONE, cuDeviceSetMemPool, cuDeviceSetMemPool, 11020,
  (CUdevice dev, CUmemoryPool pool), (dev, pool))
X(INIT, NONE, cuMemPoolCreate, cuMemPoolCreate, 11020,
  (CUmemoryPool * pool, const CUmemPoolProps *poolProps), (pool, poolProps))
X(INIT, NONE, cuMemPoolDestroy, cuMemPoolDestroy, 11020, (CUmemoryPool pool), (pool))
X(INIT, NONE, cuMemPoolTrimTo, cuMemPoolTrimTo, 11020,
  (CUmemoryPool pool, size_t minBytesToKeep), (pool, minBytesToKeep))
X(INIT, NONE, cuMemPoolSetAttribute, cuMemPoolSetAttribute, 11020,
  (CUmemoryPool pool, int attr, void *value), (pool, attr, value))
X(INIT, NONE, cuMemPoolGetAttribute, cuMemPoolGetAttribute, 11020,
  (CUmemoryPool pool, int attr, void *value), (pool, attr, value))
X(INIT, NONE, cuMemPoolSetAccess, cuMemPoolSetAccess, 11020,
  (CUmemoryPool pool, const CUmemAccessDesc *map, size_t count), (pool, map, count))
X(INIT, NONE, cuMemPoolGetAccess, cuMemPoolGetAccess, 11020,
  (int *flags, CUmemoryPool memPool, CUmemLocation *location), (flags, memPool, location))
