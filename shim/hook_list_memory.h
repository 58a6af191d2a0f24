/* hook_list_memory.h - hooks of what touches or makes memory beside plain allocations and
 * plain copies. Part of hook_list.h, whose macros and rules it uses; no include guard.
 */

/* clang-format off */

/* ---- copies of rows, boxes, batches and arrays ---------------------------- */
PUMP_TWINS(cuMemcpy2D_v2, _ptds, cuMemcpy2D_v3020, cuMemcpy2D_v7000_ptds,
           (const CUDA_MEMCPY2D *copy), (copy))
PUMP_TWINS(cuMemcpy2DUnaligned_v2, _ptds, cuMemcpy2DUnaligned_v3020,
           cuMemcpy2DUnaligned_v7000_ptds, (const CUDA_MEMCPY2D *copy), (copy))
PUMP_TWINS(cuMemcpy2DAsync_v2, _ptsz, cuMemcpy2DAsync_v3020, cuMemcpy2DAsync_v7000_ptsz,
           (const CUDA_MEMCPY2D *copy, CUstream stream), (copy, stream))
PUMP_TWINS(cuMemcpy3D_v2, _ptds, cuMemcpy3D_v3020, cuMemcpy3D_v7000_ptds,
           (const CUDA_MEMCPY3D *copy), (copy))
PUMP_TWINS(cuMemcpy3DAsync_v2, _ptsz, cuMemcpy3DAsync_v3020, cuMemcpy3DAsync_v7000_ptsz,
           (const CUDA_MEMCPY3D *copy, CUstream stream), (copy, stream))
PUMP_TWINS(cuMemcpy3DPeer, _ptds, cuMemcpy3DPeer_v4000, cuMemcpy3DPeer_v7000_ptds,
           (const CUDA_MEMCPY3D_PEER *copy), (copy))
PUMP_TWINS(cuMemcpy3DPeerAsync, _ptsz, cuMemcpy3DPeerAsync_v4000,
           cuMemcpy3DPeerAsync_v7000_ptsz,
           (const CUDA_MEMCPY3D_PEER *copy, CUstream stream), (copy, stream))
PUMP_TWINS(cuMemcpyBatchAsync, _ptsz, cuMemcpyBatchAsync_v12080,
           cuMemcpyBatchAsync_v12080_ptsz,
           (CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count,
            CUmemcpyAttributes *attributes, size_t *indices, size_t attribute_count,
            size_t *failed, CUstream stream),
           (to, from, bytes, count, attributes, indices, attribute_count, failed, stream))
PUMP_TWINS(cuMemcpyBatchAsync_v2, _ptsz, cuMemcpyBatchAsync_v13000,
           cuMemcpyBatchAsync_v13000_ptsz,
           (CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count,
            CUmemcpyAttributes *attributes, size_t *indices, size_t attribute_count,
            CUstream stream),
           (to, from, bytes, count, attributes, indices, attribute_count, stream))
PUMP_TWINS(cuMemcpy3DBatchAsync, _ptsz, cuMemcpy3DBatchAsync_v12080,
           cuMemcpy3DBatchAsync_v12080_ptsz,
           (size_t count, CUDA_MEMCPY3D_BATCH_OP *copies, size_t *failed,
            unsigned long long flags, CUstream stream),
           (count, copies, failed, flags, stream))
PUMP_TWINS(cuMemcpy3DBatchAsync_v2, _ptsz, cuMemcpy3DBatchAsync_v13000,
           cuMemcpy3DBatchAsync_v13000_ptsz,
           (size_t count, CUDA_MEMCPY3D_BATCH_OP *copies, unsigned long long flags,
            CUstream stream),
           (count, copies, flags, stream))
PUMP_TWINS(cuMemcpyWithAttributesAsync, _ptsz, cuMemcpyWithAttributesAsync_v13020,
           cuMemcpyWithAttributesAsync_v13020_ptsz,
           (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUmemcpyAttributes *attributes,
            CUstream stream),
           (to, from, bytes, attributes, stream))
PUMP_TWINS(cuMemcpy3DWithAttributesAsync, _ptsz, cuMemcpy3DWithAttributesAsync_v13020,
           cuMemcpy3DWithAttributesAsync_v13020_ptsz,
           (CUDA_MEMCPY3D_BATCH_OP *copy, unsigned long long flags, CUstream stream),
           (copy, flags, stream))
PUMP_TWINS(cuMemcpyDtoA_v2, _ptds, cuMemcpyDtoA_v3020, cuMemcpyDtoA_v7000_ptds,
           (CUarray to, size_t offset, CUdeviceptr from, size_t bytes),
           (to, offset, from, bytes))
PUMP_TWINS(cuMemcpyAtoD_v2, _ptds, cuMemcpyAtoD_v3020, cuMemcpyAtoD_v7000_ptds,
           (CUdeviceptr to, CUarray from, size_t offset, size_t bytes),
           (to, from, offset, bytes))

PUMP_TWINS(cuMemBatchDecompressAsync, _ptsz, cuMemBatchDecompressAsync_v12060,
           cuMemBatchDecompressAsync_v12060_ptsz,
           (CUmemDecompressParams *parts, size_t count, unsigned int flags, size_t *failed,
            CUstream stream),
           (parts, count, flags, failed, stream))

/* ---- device memory without addresses -------------------------------------- */
PUMP_HOOK(cuArrayCreate_v2, cuArrayCreate_v3020,
          (CUarray *array, const CUDA_ARRAY_DESCRIPTOR *shape), (array, shape))
PUMP_HOOK(cuArray3DCreate_v2, cuArray3DCreate_v3020,
          (CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *shape), (array, shape))
PUMP_HOOK(cuArrayDestroy, cuArrayDestroy_v2000, (CUarray array), (array))
PUMP_HOOK(cuMipmappedArrayCreate, cuMipmappedArrayCreate_v5000,
          (CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned int levels),
          (array, shape, levels))
PUMP_HOOK(cuMipmappedArrayDestroy, cuMipmappedArrayDestroy_v5000, (CUmipmappedArray array),
          (array))
PUMP_HOOK(cuImportExternalMemory, cuImportExternalMemory_v10000,
          (CUexternalMemory *memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *description),
          (memory, description))
PUMP_HOOK(cuDestroyExternalMemory, cuDestroyExternalMemory_v10000, (CUexternalMemory memory),
          (memory))

/* ---- obsolete launches ----------------------------------------------------- */
PUMP_HOOK(cuLaunch, cuLaunch_v2000, (CUfunction function), (function))
PUMP_HOOK(cuLaunchGrid, cuLaunchGrid_v2000, (CUfunction function, int width, int height),
          (function, width, height))
PUMP_HOOK(cuLaunchGridAsync, cuLaunchGridAsync_v2000,
          (CUfunction function, int width, int height, CUstream stream),
          (function, width, height, stream))

/* ---- a kernel on several devices ------------------------------------------- */
PUMP_HOOK(cuLaunchCooperativeKernelMultiDevice, cuLaunchCooperativeKernelMultiDevice_v9000,
          (CUDA_LAUNCH_PARAMS *launches, unsigned int count, unsigned int flags),
          (launches, count, flags))

/* ---- variables of the code ------------------------------------------------- */
PUMP_HOOK(cuModuleGetGlobal_v2, cuModuleGetGlobal_v3020,
          (CUdeviceptr *address, size_t *bytes, CUmodule module, const char *name),
          (address, bytes, module, name))
PUMP_HOOK(cuLibraryGetGlobal, cuLibraryGetGlobal_v12000,
          (CUdeviceptr *address, size_t *bytes, CUlibrary library, const char *name),
          (address, bytes, library, name))
PUMP_HOOK(cuLibraryGetManaged, cuLibraryGetManaged_v12000,
          (CUdeviceptr *address, size_t *bytes, CUlibrary library, const char *name),
          (address, bytes, library, name))

/* ---- code ------------------------------------------------------------------ */
PUMP_HOOK(cuModuleLoad, cuModuleLoad_v2000, (CUmodule *module, const char *path),
          (module, path))
PUMP_HOOK(cuModuleLoadData, cuModuleLoadData_v2000, (CUmodule *module, const void *image),
          (module, image))
PUMP_HOOK(cuModuleLoadDataEx, cuModuleLoadDataEx_v2010,
          (CUmodule *module, const void *image, unsigned int count, CUjit_option *options,
           void **values),
          (module, image, count, options, values))
PUMP_HOOK(cuModuleLoadFatBinary, cuModuleLoadFatBinary_v2000,
          (CUmodule *module, const void *image), (module, image))
PUMP_HOOK(cuLibraryLoadData, cuLibraryLoadData_v12000,
          (CUlibrary *library, const void *image, CUjit_option *options, void **values,
           unsigned int count, CUlibraryOption *library_options, void **library_values,
           unsigned int library_count),
          (library, image, options, values, count, library_options, library_values,
           library_count))
PUMP_HOOK(cuLibraryLoadFromFile, cuLibraryLoadFromFile_v12000,
          (CUlibrary *library, const char *path, CUjit_option *options, void **values,
           unsigned int count, CUlibraryOption *library_options, void **library_values,
           unsigned int library_count),
          (library, path, options, values, count, library_options, library_values,
           library_count))
PUMP_HOOK(cuLibraryGetModule, cuLibraryGetModule_v12000,
          (CUmodule *module, CUlibrary library), (module, library))
PUMP_HOOK(cuModuleGetFunction, cuModuleGetFunction_v2000,
          (CUfunction *function, CUmodule module, const char *name),
          (function, module, name))
PUMP_HOOK(cuLibraryGetKernel, cuLibraryGetKernel_v12000,
          (CUkernel *kernel, CUlibrary library, const char *name), (kernel, library, name))
PUMP_HOOK(cuKernelGetFunction, cuKernelGetFunction_v12000,
          (CUfunction *function, CUkernel kernel), (function, kernel))

/* ---- tensor map descriptors ------------------------------------------------ */
PUMP_HOOK(cuTensorMapEncodeTiled, cuTensorMapEncodeTiled_v12000,
          (CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
           const cuuint64_t *sizes, const cuuint64_t *strides, const cuuint32_t *box,
           const cuuint32_t *steps, CUtensorMapInterleave interleave,
           CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
           CUtensorMapFloatOOBfill fill),
          (map, type, rank, address, sizes, strides, box, steps, interleave, swizzle,
           promotion, fill))
PUMP_HOOK(cuTensorMapEncodeIm2col, cuTensorMapEncodeIm2col_v12000,
          (CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
           const cuuint64_t *sizes, const cuuint64_t *strides, const int *lower,
           const int *upper, cuuint32_t channels, cuuint32_t pixels, const cuuint32_t *steps,
           CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
           CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill),
          (map, type, rank, address, sizes, strides, lower, upper, channels, pixels, steps,
           interleave, swizzle, promotion, fill))
PUMP_HOOK(cuTensorMapEncodeIm2colWide, cuTensorMapEncodeIm2colWide_v12080,
          (CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
           const cuuint64_t *sizes, const cuuint64_t *strides, int lower, int upper,
           cuuint32_t channels, cuuint32_t pixels, const cuuint32_t *steps,
           CUtensorMapInterleave interleave, CUtensorMapIm2ColWideMode mode,
           CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
           CUtensorMapFloatOOBfill fill),
          (map, type, rank, address, sizes, strides, lower, upper, channels, pixels, steps,
           interleave, mode, swizzle, promotion, fill))
PUMP_HOOK(cuTensorMapReplaceAddress, cuTensorMapReplaceAddress_v12000,
          (CUtensorMap *map, void *address), (map, address))

/* ---- virtual memory management --------------------------------------------- */
PUMP_HOOK(cuMemCreate, cuMemCreate_v10020,
          (CUmemGenericAllocationHandle *handle, size_t bytes,
           const CUmemAllocationProp *properties, unsigned long long flags),
          (handle, bytes, properties, flags))
PUMP_HOOK(cuMemRelease, cuMemRelease_v10020, (CUmemGenericAllocationHandle handle), (handle))
PUMP_HOOK(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle_v11000,
          (CUmemGenericAllocationHandle *handle, void *address), (handle, address))
PUMP_HOOK(cuMemMap, cuMemMap_v10020,
          (CUdeviceptr address, size_t bytes, size_t offset,
           CUmemGenericAllocationHandle handle, unsigned long long flags),
          (address, bytes, offset, handle, flags))
PUMP_HOOK(cuMemUnmap, cuMemUnmap_v10020, (CUdeviceptr address, size_t bytes),
          (address, bytes))

/* ---- what CUDA refuses for managed memory --------------------------------- */
PUMP_HOOK(cuIpcGetMemHandle, cuIpcGetMemHandle_v4010,
          (CUipcMemHandle *handle, CUdeviceptr address), (handle, address))
PUMP_HOOK(cuMemGetHandleForAddressRange, cuMemGetHandleForAddressRange_v11070,
          (void *handle, CUdeviceptr address, size_t bytes, CUmemRangeHandleType type,
           unsigned long long flags),
          (handle, address, bytes, type, flags))
PUMP_TWINS(cuStreamWaitValue32, _ptsz, cuStreamWaitValue32_v8000,
           cuStreamWaitValue32_v8000_ptsz,
           (CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags),
           (stream, address, value, flags))
PUMP_TWINS(cuStreamWaitValue32_v2, _ptsz, cuStreamWaitValue32_v11070,
           cuStreamWaitValue32_v11070_ptsz,
           (CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags),
           (stream, address, value, flags))
PUMP_TWINS(cuStreamWaitValue64, _ptsz, cuStreamWaitValue64_v9000,
           cuStreamWaitValue64_v9000_ptsz,
           (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags),
           (stream, address, value, flags))
PUMP_TWINS(cuStreamWaitValue64_v2, _ptsz, cuStreamWaitValue64_v11070,
           cuStreamWaitValue64_v11070_ptsz,
           (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags),
           (stream, address, value, flags))
PUMP_TWINS(cuStreamWriteValue32, _ptsz, cuStreamWriteValue32_v8000,
           cuStreamWriteValue32_v8000_ptsz,
           (CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags),
           (stream, address, value, flags))
PUMP_TWINS(cuStreamWriteValue32_v2, _ptsz, cuStreamWriteValue32_v11070,
           cuStreamWriteValue32_v11070_ptsz,
           (CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags),
           (stream, address, value, flags))
PUMP_TWINS(cuStreamWriteValue64, _ptsz, cuStreamWriteValue64_v9000,
           cuStreamWriteValue64_v9000_ptsz,
           (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags),
           (stream, address, value, flags))
PUMP_TWINS(cuStreamWriteValue64_v2, _ptsz, cuStreamWriteValue64_v11070,
           cuStreamWriteValue64_v11070_ptsz,
           (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags),
           (stream, address, value, flags))
PUMP_TWINS(cuStreamBatchMemOp, _ptsz, cuStreamBatchMemOp_v8000,
           cuStreamBatchMemOp_v8000_ptsz,
           (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *operations,
            unsigned int flags),
           (stream, count, operations, flags))
PUMP_TWINS(cuStreamBatchMemOp_v2, _ptsz, cuStreamBatchMemOp_v11070,
           cuStreamBatchMemOp_v11070_ptsz,
           (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *operations,
            unsigned int flags),
           (stream, count, operations, flags))

/* clang-format on */
