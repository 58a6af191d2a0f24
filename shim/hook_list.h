/* hook_list.h - every driver function that the shim hooks or calls, once.
 *
 * The single source for wrappers' prototypes, exported symbols, the table of
 * real pointers, name look-up and the signature test. Include it with
 *
 *   PUMP_HOOK(name, pfn, parameters, arguments)   hooked: we export `name`
 *   PUMP_CALL(name, pfn, parameters)              only called; may be missing
 *
 * defined; a missing one expands to nothing, both are undefined at the end (no
 * include guard). `name` is the exact ELF name, `pfn` the typedef PFN_<pfn> of
 * cudaTypedefs.h that has the same signature: it names what programs ask
 * cuGetProcAddress for and since which version. PUMP_TWINS lists a function and
 * its per-thread-default-stream twin, which is a function of its own.
 */
#ifndef PUMP_HOOK
#define PUMP_HOOK(name, pfn, parameters, arguments)
#endif
#ifndef PUMP_CALL
#define PUMP_CALL(name, pfn, parameters)
#endif
#define PUMP_TWINS(name, suffix, pfn, pfn_twin, parameters, arguments)                     \
  PUMP_HOOK(name, pfn, parameters, arguments)                                              \
  PUMP_HOOK(name##suffix, pfn_twin, parameters, arguments)

/* clang-format off */

/* ---- look-up and life ---------------------------------------------------- */
PUMP_HOOK(cuInit, cuInit_v2000, (unsigned int flags), (flags))
PUMP_HOOK(cuGetProcAddress, cuGetProcAddress_v11030,
          (const char *symbol, void **pfn, int version, cuuint64_t flags),
          (symbol, pfn, version, flags))
PUMP_HOOK(cuGetProcAddress_v2, cuGetProcAddress_v12000,
          (const char *symbol, void **pfn, int version, cuuint64_t flags,
           CUdriverProcAddressQueryResult *status),
          (symbol, pfn, version, flags, status))

/* ---- contexts ------------------------------------------------------------ */
PUMP_HOOK(cuCtxCreate_v2, cuCtxCreate_v3020,
          (CUcontext *context, unsigned int flags, CUdevice device), (context, flags, device))
PUMP_HOOK(cuCtxCreate_v3, cuCtxCreate_v11040,
          (CUcontext *context, CUexecAffinityParam *params, int count, unsigned int flags,
           CUdevice device),
          (context, params, count, flags, device))
PUMP_HOOK(cuCtxCreate_v4, cuCtxCreate_v12050,
          (CUcontext *context, CUctxCreateParams *params, unsigned int flags, CUdevice device),
          (context, params, flags, device))
PUMP_HOOK(cuCtxDestroy, cuCtxDestroy_v2000, (CUcontext context), (context))
PUMP_HOOK(cuCtxDestroy_v2, cuCtxDestroy_v4000, (CUcontext context), (context))
PUMP_HOOK(cuCtxDetach, cuCtxDetach_v2000, (CUcontext context), (context))
PUMP_HOOK(cuGreenCtxDestroy, cuGreenCtxDestroy_v12040, (CUgreenCtx context), (context))
PUMP_HOOK(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain_v7000,
          (CUcontext *context, CUdevice device), (context, device))
PUMP_HOOK(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v7000, (CUdevice device), (device))
PUMP_HOOK(cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease_v11000, (CUdevice device),
          (device))
PUMP_HOOK(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v7000, (CUdevice device), (device))
PUMP_HOOK(cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset_v11000, (CUdevice device), (device))
PUMP_HOOK(cuCtxEnablePeerAccess, cuCtxEnablePeerAccess_v4000,
          (CUcontext peer, unsigned int flags), (peer, flags))
PUMP_HOOK(cuCtxSynchronize, cuCtxSynchronize_v2000, (void), ())
PUMP_HOOK(cuCtxSynchronize_v2, cuCtxSynchronize_v13000, (CUcontext context), (context))

/* ---- launches ------------------------------------------------------------ */
PUMP_TWINS(cuLaunchKernel, _ptsz, cuLaunchKernel_v4000, cuLaunchKernel_v7000_ptsz,
           (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
            unsigned int block_x, unsigned int block_y, unsigned int block_z,
            unsigned int shared_bytes, CUstream stream, void **params, void **extra),
           (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream,
            params, extra))
PUMP_TWINS(cuLaunchKernelEx, _ptsz, cuLaunchKernelEx_v11060, cuLaunchKernelEx_v11060_ptsz,
           (const CUlaunchConfig *config, CUfunction function, void **params, void **extra),
           (config, function, params, extra))
PUMP_TWINS(cuLaunchCooperativeKernel, _ptsz, cuLaunchCooperativeKernel_v9000,
           cuLaunchCooperativeKernel_v9000_ptsz,
           (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
            unsigned int block_x, unsigned int block_y, unsigned int block_z,
            unsigned int shared_bytes, CUstream stream, void **params),
           (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream,
            params))

/* ---- memory -------------------------------------------------------------- */
PUMP_HOOK(cuMemAlloc_v2, cuMemAlloc_v3020, (CUdeviceptr *address, size_t bytes),
          (address, bytes))
PUMP_HOOK(cuMemAllocPitch_v2, cuMemAllocPitch_v3020,
          (CUdeviceptr *address, size_t *pitch, size_t width_bytes, size_t height,
           unsigned int element_bytes),
          (address, pitch, width_bytes, height, element_bytes))
PUMP_HOOK(cuMemAllocManaged, cuMemAllocManaged_v6000,
          (CUdeviceptr *address, size_t bytes, unsigned int flags), (address, bytes, flags))
PUMP_HOOK(cuMemFree_v2, cuMemFree_v3020, (CUdeviceptr address), (address))
PUMP_HOOK(cuMemGetInfo_v2, cuMemGetInfo_v3020, (size_t *free_bytes, size_t *total_bytes),
          (free_bytes, total_bytes))
PUMP_HOOK(cuMemGetAddressRange_v2, cuMemGetAddressRange_v3020,
          (CUdeviceptr *base, size_t *bytes, CUdeviceptr address), (base, bytes, address))
PUMP_HOOK(cuPointerGetAttribute, cuPointerGetAttribute_v4000,
          (void *data, CUpointer_attribute attribute, CUdeviceptr address),
          (data, attribute, address))
PUMP_HOOK(cuPointerGetAttributes, cuPointerGetAttributes_v7000,
          (unsigned int count, CUpointer_attribute *attributes, void **data,
           CUdeviceptr address),
          (count, attributes, data, address))
PUMP_TWINS(cuMemPrefetchAsync, _ptsz, cuMemPrefetchAsync_v8000, cuMemPrefetchAsync_v8000_ptsz,
           (CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream),
           (address, bytes, device, stream))
PUMP_TWINS(cuMemPrefetchAsync_v2, _ptsz, cuMemPrefetchAsync_v12020,
           cuMemPrefetchAsync_v12020_ptsz,
           (CUdeviceptr address, size_t bytes, CUmemLocation location, unsigned int flags,
            CUstream stream),
           (address, bytes, location, flags, stream))
PUMP_TWINS(cuMemPrefetchBatchAsync, _ptsz, cuMemPrefetchBatchAsync_v13000,
           cuMemPrefetchBatchAsync_v13000_ptsz,
           (CUdeviceptr *addresses, size_t *lengths, size_t count, CUmemLocation *locations,
            size_t *indices, size_t location_count, unsigned long long flags, CUstream stream),
           (addresses, lengths, count, locations, indices, location_count, flags, stream))
PUMP_TWINS(cuMemDiscardBatchAsync, _ptsz, cuMemDiscardBatchAsync_v13000,
           cuMemDiscardBatchAsync_v13000_ptsz,
           (CUdeviceptr *addresses, size_t *lengths, size_t count, unsigned long long flags,
            CUstream stream),
           (addresses, lengths, count, flags, stream))
PUMP_TWINS(cuMemDiscardAndPrefetchBatchAsync, _ptsz, cuMemDiscardAndPrefetchBatchAsync_v13000,
           cuMemDiscardAndPrefetchBatchAsync_v13000_ptsz,
           (CUdeviceptr *addresses, size_t *lengths, size_t count, CUmemLocation *locations,
            size_t *indices, size_t location_count, unsigned long long flags, CUstream stream),
           (addresses, lengths, count, locations, indices, location_count, flags, stream))
PUMP_HOOK(cuMemAdvise, cuMemAdvise_v8000,
          (CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice device),
          (address, bytes, advice, device))
PUMP_HOOK(cuMemAdvise_v2, cuMemAdvise_v12020,
          (CUdeviceptr address, size_t bytes, CUmem_advise advice, CUmemLocation location),
          (address, bytes, advice, location))

/* ---- stream-ordered memory ------------------------------------------------ */
PUMP_TWINS(cuMemAllocAsync, _ptsz, cuMemAllocAsync_v11020, cuMemAllocAsync_v11020_ptsz,
           (CUdeviceptr *address, size_t bytes, CUstream stream), (address, bytes, stream))
PUMP_TWINS(cuMemAllocFromPoolAsync, _ptsz, cuMemAllocFromPoolAsync_v11020,
           cuMemAllocFromPoolAsync_v11020_ptsz,
           (CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream),
           (address, bytes, pool, stream))
PUMP_TWINS(cuMemFreeAsync, _ptsz, cuMemFreeAsync_v11020, cuMemFreeAsync_v11020_ptsz,
           (CUdeviceptr address, CUstream stream), (address, stream))
PUMP_HOOK(cuMemPoolCreate, cuMemPoolCreate_v11020,
          (CUmemoryPool *pool, const CUmemPoolProps *properties), (pool, properties))
PUMP_HOOK(cuMemPoolDestroy, cuMemPoolDestroy_v11020, (CUmemoryPool pool), (pool))
PUMP_HOOK(cuMemPoolTrimTo, cuMemPoolTrimTo_v11020, (CUmemoryPool pool, size_t keep_bytes),
          (pool, keep_bytes))
PUMP_HOOK(cuMemPoolGetAttribute, cuMemPoolGetAttribute_v11020,
          (CUmemoryPool pool, CUmemPool_attribute attribute, void *value),
          (pool, attribute, value))
PUMP_HOOK(cuMemPoolSetAttribute, cuMemPoolSetAttribute_v11020,
          (CUmemoryPool pool, CUmemPool_attribute attribute, void *value),
          (pool, attribute, value))
PUMP_HOOK(cuMemPoolExportToShareableHandle, cuMemPoolExportToShareableHandle_v11020,
          (void *handle, CUmemoryPool pool, CUmemAllocationHandleType type,
           unsigned long long flags),
          (handle, pool, type, flags))
PUMP_HOOK(cuMemPoolImportFromShareableHandle, cuMemPoolImportFromShareableHandle_v11020,
          (CUmemoryPool *pool, void *handle, CUmemAllocationHandleType type,
           unsigned long long flags),
          (pool, handle, type, flags))

/* ---- copies -------------------------------------------------------------- */
PUMP_TWINS(cuMemcpy, _ptds, cuMemcpy_v4000, cuMemcpy_v7000_ptds,
           (CUdeviceptr to, CUdeviceptr from, size_t bytes), (to, from, bytes))
PUMP_TWINS(cuMemcpyHtoD_v2, _ptds, cuMemcpyHtoD_v3020, cuMemcpyHtoD_v7000_ptds,
           (CUdeviceptr to, const void *from, size_t bytes), (to, from, bytes))
PUMP_TWINS(cuMemcpyDtoH_v2, _ptds, cuMemcpyDtoH_v3020, cuMemcpyDtoH_v7000_ptds,
           (void *to, CUdeviceptr from, size_t bytes), (to, from, bytes))
PUMP_TWINS(cuMemcpyDtoD_v2, _ptds, cuMemcpyDtoD_v3020, cuMemcpyDtoD_v7000_ptds,
           (CUdeviceptr to, CUdeviceptr from, size_t bytes), (to, from, bytes))
PUMP_TWINS(cuMemcpyPeer, _ptds, cuMemcpyPeer_v4000, cuMemcpyPeer_v7000_ptds,
           (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
            size_t bytes),
           (to, to_context, from, from_context, bytes))
PUMP_TWINS(cuMemcpyAsync, _ptsz, cuMemcpyAsync_v4000, cuMemcpyAsync_v7000_ptsz,
           (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
           (to, from, bytes, stream))
PUMP_TWINS(cuMemcpyHtoDAsync_v2, _ptsz, cuMemcpyHtoDAsync_v3020, cuMemcpyHtoDAsync_v7000_ptsz,
           (CUdeviceptr to, const void *from, size_t bytes, CUstream stream),
           (to, from, bytes, stream))
PUMP_TWINS(cuMemcpyDtoHAsync_v2, _ptsz, cuMemcpyDtoHAsync_v3020, cuMemcpyDtoHAsync_v7000_ptsz,
           (void *to, CUdeviceptr from, size_t bytes, CUstream stream),
           (to, from, bytes, stream))
PUMP_TWINS(cuMemcpyDtoDAsync_v2, _ptsz, cuMemcpyDtoDAsync_v3020, cuMemcpyDtoDAsync_v7000_ptsz,
           (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
           (to, from, bytes, stream))
PUMP_TWINS(cuMemcpyPeerAsync, _ptsz, cuMemcpyPeerAsync_v4000, cuMemcpyPeerAsync_v7000_ptsz,
           (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
            size_t bytes, CUstream stream),
           (to, to_context, from, from_context, bytes, stream))

/* ---- memsets ------------------------------------------------------------- */
PUMP_TWINS(cuMemsetD8_v2, _ptds, cuMemsetD8_v3020, cuMemsetD8_v7000_ptds,
           (CUdeviceptr to, unsigned char value, size_t count), (to, value, count))
PUMP_TWINS(cuMemsetD16_v2, _ptds, cuMemsetD16_v3020, cuMemsetD16_v7000_ptds,
           (CUdeviceptr to, unsigned short value, size_t count), (to, value, count))
PUMP_TWINS(cuMemsetD32_v2, _ptds, cuMemsetD32_v3020, cuMemsetD32_v7000_ptds,
           (CUdeviceptr to, unsigned int value, size_t count), (to, value, count))
PUMP_TWINS(cuMemsetD2D8_v2, _ptds, cuMemsetD2D8_v3020, cuMemsetD2D8_v7000_ptds,
           (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height),
           (to, pitch, value, width, height))
PUMP_TWINS(cuMemsetD2D16_v2, _ptds, cuMemsetD2D16_v3020, cuMemsetD2D16_v7000_ptds,
           (CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height),
           (to, pitch, value, width, height))
PUMP_TWINS(cuMemsetD2D32_v2, _ptds, cuMemsetD2D32_v3020, cuMemsetD2D32_v7000_ptds,
           (CUdeviceptr to, size_t pitch, unsigned int value, size_t width, size_t height),
           (to, pitch, value, width, height))
PUMP_TWINS(cuMemsetD8Async, _ptsz, cuMemsetD8Async_v3020, cuMemsetD8Async_v7000_ptsz,
           (CUdeviceptr to, unsigned char value, size_t count, CUstream stream),
           (to, value, count, stream))
PUMP_TWINS(cuMemsetD16Async, _ptsz, cuMemsetD16Async_v3020, cuMemsetD16Async_v7000_ptsz,
           (CUdeviceptr to, unsigned short value, size_t count, CUstream stream),
           (to, value, count, stream))
PUMP_TWINS(cuMemsetD32Async, _ptsz, cuMemsetD32Async_v3020, cuMemsetD32Async_v7000_ptsz,
           (CUdeviceptr to, unsigned int value, size_t count, CUstream stream),
           (to, value, count, stream))
PUMP_TWINS(cuMemsetD2D8Async, _ptsz, cuMemsetD2D8Async_v3020, cuMemsetD2D8Async_v7000_ptsz,
           (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height,
            CUstream stream),
           (to, pitch, value, width, height, stream))
PUMP_TWINS(cuMemsetD2D16Async, _ptsz, cuMemsetD2D16Async_v3020, cuMemsetD2D16Async_v7000_ptsz,
           (CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height,
            CUstream stream),
           (to, pitch, value, width, height, stream))
PUMP_TWINS(cuMemsetD2D32Async, _ptsz, cuMemsetD2D32Async_v3020, cuMemsetD2D32Async_v7000_ptsz,
           (CUdeviceptr to, size_t pitch, unsigned int value, size_t width, size_t height,
            CUstream stream),
           (to, pitch, value, width, height, stream))

/* ---- streams, events, capture -------------------------------------------- */
PUMP_HOOK(cuStreamCreateWithPriority, cuStreamCreateWithPriority_v5050,
          (CUstream *stream, unsigned int flags, int priority), (stream, flags, priority))
PUMP_HOOK(cuStreamDestroy, cuStreamDestroy_v2000, (CUstream stream), (stream))
PUMP_HOOK(cuStreamDestroy_v2, cuStreamDestroy_v4000, (CUstream stream), (stream))
PUMP_TWINS(cuStreamSynchronize, _ptsz, cuStreamSynchronize_v2000,
           cuStreamSynchronize_v7000_ptsz, (CUstream stream), (stream))
PUMP_TWINS(cuStreamQuery, _ptsz, cuStreamQuery_v2000, cuStreamQuery_v7000_ptsz,
           (CUstream stream), (stream))
PUMP_TWINS(cuEventRecord, _ptsz, cuEventRecord_v2000, cuEventRecord_v7000_ptsz,
           (CUevent event, CUstream stream), (event, stream))
PUMP_TWINS(cuEventRecordWithFlags, _ptsz, cuEventRecordWithFlags_v11010,
           cuEventRecordWithFlags_v11010_ptsz,
           (CUevent event, CUstream stream, unsigned int flags), (event, stream, flags))
PUMP_HOOK(cuEventDestroy, cuEventDestroy_v2000, (CUevent event), (event))
PUMP_HOOK(cuEventDestroy_v2, cuEventDestroy_v4000, (CUevent event), (event))
PUMP_HOOK(cuEventSynchronize, cuEventSynchronize_v2000, (CUevent event), (event))
PUMP_HOOK(cuEventQuery, cuEventQuery_v2000, (CUevent event), (event))
PUMP_HOOK(cuCtxRecordEvent, cuCtxRecordEvent_v12050, (CUcontext context, CUevent event),
          (context, event))
PUMP_HOOK(cuGreenCtxRecordEvent, cuGreenCtxRecordEvent_v12040,
          (CUgreenCtx context, CUevent event), (context, event))
PUMP_HOOK(cuIpcGetEventHandle, cuIpcGetEventHandle_v4010,
          (CUipcEventHandle *handle, CUevent event), (handle, event))
PUMP_HOOK(cuIpcOpenEventHandle, cuIpcOpenEventHandle_v4010,
          (CUevent *event, CUipcEventHandle handle), (event, handle))
PUMP_TWINS(cuStreamBeginCapture, _ptsz, cuStreamBeginCapture_v10000,
           cuStreamBeginCapture_v10000_ptsz, (CUstream stream), (stream))
PUMP_TWINS(cuStreamBeginCapture_v2, _ptsz, cuStreamBeginCapture_v10010,
           cuStreamBeginCapture_v10010_ptsz, (CUstream stream, CUstreamCaptureMode mode),
           (stream, mode))
PUMP_TWINS(cuStreamBeginCaptureToGraph, _ptsz, cuStreamBeginCaptureToGraph_v12030,
           cuStreamBeginCaptureToGraph_v12030_ptsz,
           (CUstream stream, CUgraph graph, const CUgraphNode *dependencies,
            const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode),
           (stream, graph, dependencies, edges, count, mode))
PUMP_TWINS(cuStreamBeginRecaptureToGraph, _ptsz, cuStreamBeginRecaptureToGraph_v13030,
           cuStreamBeginRecaptureToGraph_v13030_ptsz,
           (CUstream stream, CUstreamCaptureMode mode, CUgraph graph,
            CUgraphRecaptureCallback callback, void *data),
           (stream, mode, graph, callback, data))
PUMP_TWINS(cuStreamBeginCaptureToCig, _ptsz, cuStreamBeginCaptureToCig_v13010,
           cuStreamBeginCaptureToCig_v13010_ptsz,
           (CUstream stream, CUstreamCigCaptureParams *params), (stream, params))
PUMP_TWINS(cuStreamEndCaptureToCig, _ptsz, cuStreamEndCaptureToCig_v13010,
           cuStreamEndCaptureToCig_v13010_ptsz, (CUstream stream), (stream))
PUMP_TWINS(cuStreamEndCapture, _ptsz, cuStreamEndCapture_v10000,
           cuStreamEndCapture_v10000_ptsz, (CUstream stream, CUgraph *graph), (stream, graph))

/* ---- modules ------------------------------------------------------------- */
PUMP_HOOK(cuModuleUnload, cuModuleUnload_v2000, (CUmodule module), (module))
PUMP_HOOK(cuLibraryUnload, cuLibraryUnload_v12000, (CUlibrary library), (library))

#include "hook_list_memory.h"
#include "hook_list_graph.h"

/* ---- called, not hooked -------------------------------------------------- */
PUMP_CALL(cuDriverGetVersion, cuDriverGetVersion_v2020, (int *version))
PUMP_CALL(cuDeviceGetCount, cuDeviceGetCount_v2000, (int *count))
PUMP_CALL(cuDeviceGetAttribute, cuDeviceGetAttribute_v2000,
          (int *value, CUdevice_attribute attribute, CUdevice device))
PUMP_CALL(cuDeviceGetUuid, cuDeviceGetUuid_v9020, (CUuuid *uuid, CUdevice device))
PUMP_CALL(cuDeviceGetUuid_v2, cuDeviceGetUuid_v11040, (CUuuid *uuid, CUdevice device))
PUMP_CALL(cuDeviceTotalMem_v2, cuDeviceTotalMem_v3020, (size_t *bytes, CUdevice device))
PUMP_CALL(cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState_v7000,
          (CUdevice device, unsigned int *flags, int *active))
PUMP_CALL(cuCtxGetCurrent, cuCtxGetCurrent_v4000, (CUcontext *context))
PUMP_CALL(cuCtxSetCurrent, cuCtxSetCurrent_v4000, (CUcontext context))
PUMP_CALL(cuCtxGetDevice, cuCtxGetDevice_v2000, (CUdevice *device))
PUMP_CALL(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode_v10010,
          (CUstreamCaptureMode *mode))
PUMP_CALL(cuStreamIsCapturing, cuStreamIsCapturing_v10000,
          (CUstream stream, CUstreamCaptureStatus *status))
PUMP_CALL(cuCtxGetStreamPriorityRange, cuCtxGetStreamPriorityRange_v5050,
          (int *least, int *greatest))
PUMP_CALL(cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool_v11020,
          (CUmemoryPool *pool, CUdevice device))
PUMP_CALL(cuDeviceGetMemPool, cuDeviceGetMemPool_v11020, (CUmemoryPool *pool, CUdevice device))
PUMP_CALL(cuMemHostRegister_v2, cuMemHostRegister_v6050,
          (void *start, size_t bytes, unsigned int flags))
PUMP_CALL(cuMemHostGetDevicePointer_v2, cuMemHostGetDevicePointer_v3020,
          (CUdeviceptr *address, void *start, unsigned int flags))
PUMP_CALL(cuStreamGetCtx, cuStreamGetCtx_v9020, (CUstream stream, CUcontext *context))
PUMP_CALL(cuStreamWaitEvent, cuStreamWaitEvent_v3020,
          (CUstream stream, CUevent event, unsigned int flags))
PUMP_CALL(cuEventCreate, cuEventCreate_v2000, (CUevent *event, unsigned int flags))
PUMP_CALL(cuFuncGetParamInfo, cuFuncGetParamInfo_v12040,
          (CUfunction function, size_t index, size_t *offset, size_t *bytes))
PUMP_CALL(cuKernelGetParamInfo, cuKernelGetParamInfo_v12040,
          (CUkernel kernel, size_t index, size_t *offset, size_t *bytes))
PUMP_CALL(cuFuncGetName, cuFuncGetName_v12030, (const char **name, CUfunction function))
PUMP_CALL(cuKernelGetName, cuKernelGetName_v12030, (const char **name, CUkernel kernel))

/* clang-format on */

#undef PUMP_TWINS
#undef PUMP_HOOK
#undef PUMP_CALL
