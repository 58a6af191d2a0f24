/* functions_module.h - part of functions.h: modules, kernels, launches. */

/* clang-format off */
PUMP_DRIVER(HOOK, CTX, NONE, cuModuleLoad, cuModuleLoad, 2000, 0,
            (CUmodule *module, const char *path), (module, path))
PUMP_DRIVER(HOOK, CTX, NONE, cuModuleLoadData, cuModuleLoadData, 2000, 0,
            (CUmodule *module, const void *image), (module, image))
PUMP_DRIVER(HOOK, CTX, NONE, cuModuleLoadDataEx, cuModuleLoadDataEx, 2010, 0,
            (CUmodule *module, const void *image, unsigned int count, CUjit_option *options, void
             **values),
            (module, image, count, options, values))
PUMP_DRIVER(HOOK, CTX, NONE, cuModuleLoadFatBinary, cuModuleLoadFatBinary, 2000, 0,
            (CUmodule *module, const void *image), (module, image))
PUMP_DRIVER(HOOK, INIT, NONE, cuModuleUnload, cuModuleUnload, 2000, 0, (CUmodule module), (module))
PUMP_DRIVER(CALL, INIT, NONE, cuModuleGetLoadingMode, cuModuleGetLoadingMode, 11070, 0,
            (CUmoduleLoadingMode *mode), (mode))
PUMP_DRIVER(HOOK, INIT, NONE, cuModuleGetFunction, cuModuleGetFunction, 2000, 0,
            (CUfunction *function, CUmodule module, const char *name), (function, module, name))
PUMP_DRIVER(NO, INIT, NONE, cuModuleGetFunctionCount, cuModuleGetFunctionCount, 12040, 0,
            (unsigned int *count, CUmodule hmod), (count, hmod))
PUMP_DRIVER(NO, INIT, NONE, cuModuleEnumerateFunctions, cuModuleEnumerateFunctions, 12040, 0,
            (CUfunction *functions, unsigned int numFunctions, CUmodule mod),
            (functions, numFunctions, mod))
PUMP_DRIVER(HOOK, INIT, NONE, cuModuleGetGlobal_v2, cuModuleGetGlobal, 3020, 0,
            (CUdeviceptr *address, size_t *bytes, CUmodule module, const char *name),
            (address, bytes, module, name))
PUMP_DRIVER(HOOK, INIT, NONE, cuLibraryLoadData, cuLibraryLoadData, 12000, 0,
            (CUlibrary *library, const void *image, CUjit_option *options, void **values, unsigned
             int count, CUlibraryOption *library_options, void **library_values, unsigned int
             library_count),
            (library, image, options, values, count, library_options, library_values,
             library_count))
PUMP_DRIVER(HOOK, INIT, NONE, cuLibraryLoadFromFile, cuLibraryLoadFromFile, 12000, 0,
            (CUlibrary *library, const char *path, CUjit_option *options, void **values, unsigned
             int count, CUlibraryOption *library_options, void **library_values, unsigned int
             library_count),
            (library, path, options, values, count, library_options, library_values,
             library_count))
PUMP_DRIVER(HOOK, INIT, NONE, cuLibraryUnload, cuLibraryUnload, 12000, 0,
            (CUlibrary library), (library))
PUMP_DRIVER(HOOK, INIT, NONE, cuLibraryGetKernel, cuLibraryGetKernel, 12000, 0,
            (CUkernel *kernel, CUlibrary library, const char *name), (kernel, library, name))
PUMP_DRIVER(NO, INIT, NONE, cuLibraryGetKernelCount, cuLibraryGetKernelCount, 12040, 0,
            (unsigned int *count, CUlibrary lib), (count, lib))
PUMP_DRIVER(NO, INIT, NONE, cuLibraryEnumerateKernels, cuLibraryEnumerateKernels, 12040, 0,
            (CUkernel *kernels, unsigned int numKernels, CUlibrary lib), (kernels, numKernels, lib))
PUMP_DRIVER(HOOK, CTX, NONE, cuLibraryGetModule, cuLibraryGetModule, 12000, 0,
            (CUmodule *module, CUlibrary library), (module, library))
PUMP_DRIVER(HOOK, CTX, NONE, cuLibraryGetGlobal, cuLibraryGetGlobal, 12000, 0,
            (CUdeviceptr *address, size_t *bytes, CUlibrary library, const char *name),
            (address, bytes, library, name))
PUMP_DRIVER(HOOK, CTX, NONE, cuLibraryGetManaged, cuLibraryGetManaged, 12000, 0,
            (CUdeviceptr *address, size_t *bytes, CUlibrary library, const char *name),
            (address, bytes, library, name))
PUMP_DRIVER(HOOK, INIT, NONE, cuKernelGetFunction, cuKernelGetFunction, 12000, 0,
            (CUfunction *function, CUkernel kernel), (function, kernel))
PUMP_DRIVER(HOOK, NO, NONE, cuTensorMapEncodeTiled, cuTensorMapEncodeTiled, 12000, 0,
            (CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address, const
             cuuint64_t *sizes, const cuuint64_t *strides, const cuuint32_t *box, const cuuint32_t
             *steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
             CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill),
            (map, type, rank, address, sizes, strides, box, steps, interleave, swizzle, promotion,
             fill))
PUMP_DRIVER(HOOK, NO, NONE, cuTensorMapEncodeIm2col, cuTensorMapEncodeIm2col, 12000, 0,
            (CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address, const
             cuuint64_t *sizes, const cuuint64_t *strides, const int *lower, const int *upper,
             cuuint32_t channels, cuuint32_t pixels, const cuuint32_t *steps, CUtensorMapInterleave
             interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
             CUtensorMapFloatOOBfill fill),
            (map, type, rank, address, sizes, strides, lower, upper, channels, pixels, steps,
             interleave, swizzle, promotion, fill))
PUMP_DRIVER(HOOK, NO, NONE, cuTensorMapEncodeIm2colWide, cuTensorMapEncodeIm2colWide, 12080, 0,
            (CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address, const
             cuuint64_t *sizes, const cuuint64_t *strides, int lower, int upper, cuuint32_t
             channels, cuuint32_t pixels, const cuuint32_t *steps, CUtensorMapInterleave interleave,
             CUtensorMapIm2ColWideMode mode, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion
             promotion, CUtensorMapFloatOOBfill fill),
            (map, type, rank, address, sizes, strides, lower, upper, channels, pixels, steps,
             interleave, mode, swizzle, promotion, fill))
PUMP_DRIVER(HOOK, NO, NONE, cuTensorMapReplaceAddress, cuTensorMapReplaceAddress, 12000, 0,
            (CUtensorMap *map, void *address), (map, address))
PUMP_DRIVER(NO, INIT, NONE, cuKernelGetLibrary, cuKernelGetLibrary, 12050, 0,
            (CUlibrary *pLib, CUkernel kernel), (pLib, kernel))
PUMP_DRIVER(CALL, INIT, NONE, cuKernelGetName, cuKernelGetName, 12030, 0,
            (const char **name, CUkernel kernel), (name, kernel))
PUMP_DRIVER(CALL, INIT, NONE, cuKernelGetParamInfo, cuKernelGetParamInfo, 12040, 0,
            (CUkernel kernel, size_t index, size_t *offset, size_t *bytes),
            (kernel, index, offset, bytes))
PUMP_DRIVER(NO, INIT, NONE, cuKernelGetParamCount, cuKernelGetParamCount, 13020, 0,
            (CUkernel kernel, size_t *count), (kernel, count))
PUMP_DRIVER(NO, INIT, NONE, cuKernelGetAttribute, cuKernelGetAttribute, 12000, 0,
            (int *pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice dev),
            (pi, attrib, kernel, dev))
PUMP_DRIVER(NO, INIT, NONE, cuKernelSetAttribute, cuKernelSetAttribute, 12000, 0,
            (CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev),
            (attrib, val, kernel, dev))
PUMP_DRIVER(NO, INIT, NONE, cuKernelSetCacheConfig, cuKernelSetCacheConfig, 12000, 0,
            (CUkernel kernel, CUfunc_cache config, CUdevice dev), (kernel, config, dev))
PUMP_DRIVER(NO, INIT, NONE, cuFuncGetAttribute, cuFuncGetAttribute, 2020, 0,
            (int *pi, CUfunction_attribute attrib, CUfunction hfunc), (pi, attrib, hfunc))
PUMP_DRIVER(NO, INIT, NONE, cuFuncSetAttribute, cuFuncSetAttribute, 9000, 0,
            (CUfunction hfunc, CUfunction_attribute attrib, int value), (hfunc, attrib, value))
PUMP_DRIVER(NO, INIT, NONE, cuFuncSetCacheConfig, cuFuncSetCacheConfig, 3000, 0,
            (CUfunction hfunc, CUfunc_cache config), (hfunc, config))
PUMP_DRIVER(NO, INIT, NONE, cuFuncSetBlockShape, cuFuncSetBlockShape, 2000, 0,
            (CUfunction hfunc, int x, int y, int z), (hfunc, x, y, z))
PUMP_DRIVER(NO, INIT, NONE, cuFuncSetSharedSize, cuFuncSetSharedSize, 2000, 0,
            (CUfunction hfunc, unsigned int bytes), (hfunc, bytes))
PUMP_DRIVER(NO, INIT, NONE, cuFuncSetSharedMemConfig, cuFuncSetSharedMemConfig, 4020, 0,
            (CUfunction hfunc, CUsharedconfig config), (hfunc, config))
PUMP_DRIVER(NO, INIT, NONE, cuFuncGetModule, cuFuncGetModule, 11000, 0,
            (CUmodule *hmod, CUfunction hfunc), (hmod, hfunc))
PUMP_DRIVER(CALL, INIT, NONE, cuFuncGetName, cuFuncGetName, 12030, 0,
            (const char **name, CUfunction function), (name, function))
PUMP_DRIVER(CALL, INIT, NONE, cuFuncGetParamInfo, cuFuncGetParamInfo, 12040, 0,
            (CUfunction function, size_t index, size_t *offset, size_t *bytes),
            (function, index, offset, bytes))
PUMP_DRIVER(NO, INIT, NONE, cuFuncGetParamCount, cuFuncGetParamCount, 13020, 0,
            (CUfunction function, size_t *count), (function, count))
PUMP_DRIVER(CALL, INIT, NONE, cuFuncIsLoaded, cuFuncIsLoaded, 12040, 0,
            (CUfunctionLoadingState *state, CUfunction hfunc), (state, hfunc))
PUMP_DRIVER(NO, INIT, NONE, cuFuncLoad, cuFuncLoad, 12040, 0, (CUfunction hfunc), (hfunc))
PUMP_DRIVER(NO, INIT, NONE, cuOccupancyMaxActiveBlocksPerMultiprocessor, cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050, 0,
            (int *numBlocks, CUfunction func, int blockSize, size_t dynamicSMemSize),
            (numBlocks, func, blockSize, dynamicSMemSize))
PUMP_DRIVER(NO, INIT, NONE, cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, 7000, 0,
            (int *numBlocks, CUfunction func, int blockSize, size_t dynamicSMemSize, unsigned int
             flags),
            (numBlocks, func, blockSize, dynamicSMemSize, flags))
PUMP_DRIVER(NO, INIT, NONE, cuOccupancyMaxPotentialBlockSize, cuOccupancyMaxPotentialBlockSize, 6050, 0,
            (int *minGridSize, int *blockSize, CUfunction func, CUoccupancyB2DSize
             blockSizeToDynamicSMemSize, size_t dynamicSMemSize, int blockSizeLimit),
            (minGridSize, blockSize, func, blockSizeToDynamicSMemSize, dynamicSMemSize,
             blockSizeLimit))
PUMP_DRIVER(NO, INIT, NONE, cuOccupancyMaxPotentialBlockSizeWithFlags, cuOccupancyMaxPotentialBlockSizeWithFlags, 7000, 0,
            (int *minGridSize, int *blockSize, CUfunction func, CUoccupancyB2DSize
             blockSizeToDynamicSMemSize, size_t dynamicSMemSize, int blockSizeLimit, unsigned int
             flags),
            (minGridSize, blockSize, func, blockSizeToDynamicSMemSize, dynamicSMemSize,
             blockSizeLimit, flags))
PUMP_DRIVER(NO, INIT, NONE, cuOccupancyAvailableDynamicSMemPerBlock, cuOccupancyAvailableDynamicSMemPerBlock, 10020, 0,
            (size_t *dynamicSmemSize, CUfunction func, int numBlocks, int blockSize),
            (dynamicSmemSize, func, numBlocks, blockSize))
/* clang-format on */
