/* list_module.h - exported functions: modules, libraries, functions, occupancy. Part of
 * driver_list.h; no include guard. */

X(CTX, NONE, cuModuleLoad, cuModuleLoad, 2000, (CUmodule * module, const char *fname),
  (module, fname))
X(CTX, NONE, cuModuleLoadData, cuModuleLoadData, 2000,
  (CUmodule * module, const void *image), (module, image))
X(CTX, NONE, cuModuleLoadDataEx, cuModuleLoadDataEx, 2010,
  (CUmodule * module, const void *image, unsigned int numOptions, int *options,
   void **optionValues),
  (module, image, numOptions, options, optionValues))
X(CTX, NONE, cuModuleLoadFatBinary, cuModuleLoadFatBinary, 2000,
  (CUmodule * module, const void *fatCubin), (module, fatCubin))
X(INIT, NONE, cuModuleUnload, cuModuleUnload, 2000, (CUmodule hmod), (hmod))
X(INIT, NONE, cuModuleGetLoadingMode, cuModuleGetLoadingMode, 11070, (int *mode), (mode))
X(INIT, NONE, cuModuleGetFunction, cuModuleGetFunction, 2000,
  (CUfunction * hfunc, CUmodule hmod, const char *name), (hfunc, hmod, name))
X(INIT, NONE, cuModuleGetFunctionCount, cuModuleGetFunctionCount, 12040,
  (unsigned int *count, CUmodule hmod), (count, hmod))
X(INIT, NONE, cuModuleEnumerateFunctions, cuModuleEnumerateFunctions, 12040,
  (CUfunction * functions, unsigned int numFunctions, CUmodule mod),
  (functions, numFunctions, mod))
X(INIT, NONE, cuModuleGetGlobal_v2, cuModuleGetGlobal, 3020,
  (CUdeviceptr * dptr, size_t *bytes, CUmodule hmod, const char *name),
  (dptr, bytes, hmod, name))
X(INIT, NONE, cuLibraryLoadData, cuLibraryLoadData, 12000,
  (CUlibrary * library, const void *code, int *jitOptions, void **jitOptionsValues,
   unsigned int numJitOptions, int *libraryOptions, void **libraryOptionValues,
   unsigned int numLibraryOptions),
  (library, code, jitOptions, jitOptionsValues, numJitOptions, libraryOptions,
   libraryOptionValues, numLibraryOptions))
X(INIT, NONE, cuLibraryLoadFromFile, cuLibraryLoadFromFile, 12000,
  (CUlibrary * library, const char *fileName, int *jitOptions, void **jitOptionsValues,
   unsigned int numJitOptions, int *libraryOptions, void **libraryOptionValues,
   unsigned int numLibraryOptions),
  (library, fileName, jitOptions, jitOptionsValues, numJitOptions, libraryOptions,
   libraryOptionValues, numLibraryOptions))
X(INIT, NONE, cuLibraryUnload, cuLibraryUnload, 12000, (CUlibrary library), (library))
X(INIT, NONE, cuLibraryGetKernel, cuLibraryGetKernel, 12000,
  (CUkernel * pKernel, CUlibrary library, const char *name), (pKernel, library, name))
X(INIT, NONE, cuLibraryGetKernelCount, cuLibraryGetKernelCount, 12040,
  (unsigned int *count, CUlibrary lib), (count, lib))
X(INIT, NONE, cuLibraryEnumerateKernels, cuLibraryEnumerateKernels, 12040,
  (CUkernel * kernels, unsigned int numKernels, CUlibrary lib), (kernels, numKernels, lib))
X(CTX, NONE, cuLibraryGetModule, cuLibraryGetModule, 12000,
  (CUmodule * pMod, CUlibrary library), (pMod, library))
X(CTX, NONE, cuLibraryGetGlobal, cuLibraryGetGlobal, 12000,
  (CUdeviceptr * dptr, size_t *bytes, CUlibrary library, const char *name),
  (dptr, bytes, library, name))
X(CTX, NONE, cuLibraryGetManaged, cuLibraryGetManaged, 12000,
  (CUdeviceptr * dptr, size_t *bytes, CUlibrary library, const char *name),
  (dptr, bytes, library, name))
X(INIT, NONE, cuKernelGetFunction, cuKernelGetFunction, 12000,
  (CUfunction * pFunc, CUkernel kernel), (pFunc, kernel))
X(INIT, NONE, cuKernelGetLibrary, cuKernelGetLibrary, 12050,
  (CUlibrary * pLib, CUkernel kernel), (pLib, kernel))
X(INIT, NONE, cuKernelGetName, cuKernelGetName, 12030, (const char **name, CUkernel hfunc),
  (name, hfunc))
X(INIT, NONE, cuKernelGetParamInfo, cuKernelGetParamInfo, 12040,
  (CUkernel kernel, size_t paramIndex, size_t *paramOffset, size_t *paramSize),
  (kernel, paramIndex, paramOffset, paramSize))
X(INIT, NONE, cuKernelGetAttribute, cuKernelGetAttribute, 12000,
  (int *pi, int attrib, CUkernel kernel, CUdevice dev), (pi, attrib, kernel, dev))
X(INIT, NONE, cuKernelSetAttribute, cuKernelSetAttribute, 12000,
  (int attrib, int val, CUkernel kernel, CUdevice dev), (attrib, val, kernel, dev))
X(INIT, NONE, cuKernelSetCacheConfig, cuKernelSetCacheConfig, 12000,
  (CUkernel kernel, int config, CUdevice dev), (kernel, config, dev))
X(INIT, NONE, cuFuncGetAttribute, cuFuncGetAttribute, 2020,
  (int *pi, int attrib, CUfunction hfunc), (pi, attrib, hfunc))
X(INIT, NONE, cuFuncSetAttribute, cuFuncSetAttribute, 9000,
  (CUfunction hfunc, int attrib, int value), (hfunc, attrib, value))
X(INIT, NONE, cuFuncSetCacheConfig, cuFuncSetCacheConfig, 3000,
  (CUfunction hfunc, int config), (hfunc, config))
X(INIT, NONE, cuFuncSetSharedMemConfig, cuFuncSetSharedMemConfig, 4020,
  (CUfunction hfunc, int config), (hfunc, config))
X(INIT, NONE, cuFuncGetModule, cuFuncGetModule, 11000, (CUmodule * hmod, CUfunction hfunc),
  (hmod, hfunc))
X(INIT, NONE, cuFuncGetName, cuFuncGetName, 12030, (const char **name, CUfunction hfunc),
  (name, hfunc))
X(INIT, NONE, cuFuncGetParamInfo, cuFuncGetParamInfo, 12040,
  (CUfunction func, size_t paramIndex, size_t *paramOffset, size_t *paramSize),
  (func, paramIndex, paramOffset, paramSize))
X(INIT, NONE, cuFuncIsLoaded, cuFuncIsLoaded, 12040, (int *state, CUfunction hfunc),
  (state, hfunc))
X(INIT, NONE, cuFuncLoad, cuFuncLoad, 12040, (CUfunction hfunc), (hfunc))
X(INIT, NONE, cuOccupancyMaxActiveBlocksPerMultiprocessor,
  cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050,
  (int *numBlocks, CUfunction func, int blockSize, size_t dynamicSMemSize),
  (numBlocks, func, blockSize, dynamicSMemSize))
X(INIT, NONE, cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
  cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, 7000,
  (int *numBlocks, CUfunction func, int blockSize, size_t dynamicSMemSize,
   unsigned int flags),
  (numBlocks, func, blockSize, dynamicSMemSize, flags))
X(INIT, NONE, cuOccupancyMaxPotentialBlockSize, cuOccupancyMaxPotentialBlockSize, 6050,
  (int *minGridSize, int *blockSize, CUfunction func,
   CUoccupancyB2DSize blockSizeToDynamicSMemSize, size_t dynamicSMemSize,
   int blockSizeLimit),
  (minGridSize, blockSize, func, blockSizeToDynamicSMemSize, dynamicSMemSize,
   blockSizeLimit))
X(INIT, NONE, cuOccupancyMaxPotentialBlockSizeWithFlags,
  cuOccupancyMaxPotentialBlockSizeWithFlags, 7000,
  (int *minGridSize, int *blockSize, CUfunction func,
   CUoccupancyB2DSize blockSizeToDynamicSMemSize, size_t dynamicSMemSize,
   int blockSizeLimit, unsigned int flags),
  (minGridSize, blockSize, func, blockSizeToDynamicSMemSize, dynamicSMemSize,
   blockSizeLimit, flags))
X(INIT, NONE, cuOccupancyAvailableDynamicSMemPerBlock,
  cuOccupancyAvailableDynamicSMemPerBlock, 10020,
  (size_t *dynamicSmemSize, CUfunction func, int numBlocks, int blockSize),
  (dynamicSmemSize, func, numBlocks, blockSize))
