/* list_context.h - exported functions: initialisation, devices, contexts. Part of
 * driver_list.h; no include guard. */

X(ANY, NONE, cuInit, cuInit, 2000, (unsigned int Flags), (Flags))
X(ANY, NONE, cuDriverGetVersion, cuDriverGetVersion, 2020, (int *driverVersion),
  (driverVersion))
X(ANY, NONE, cuGetErrorName, cuGetErrorName, 6000, (CUresult error, const char **pStr),
  (error, pStr))
X(ANY, NONE, cuGetErrorString, cuGetErrorString, 6000, (CUresult error, const char **pStr),
  (error, pStr))
X(ANY, NONE, cuGetProcAddress, cuGetProcAddress, 11030,
  (const char *symbol, void **pfn, int driverVersion, uint64_t flags),
  (symbol, pfn, driverVersion, flags))
X(ANY, NONE, cuGetProcAddress_v2, cuGetProcAddress, 12000,
  (const char *symbol, void **pfn, int driverVersion, uint64_t flags, int *symbolFound),
  (symbol, pfn, driverVersion, flags, symbolFound))
X(ANY, NONE, cuGetExportTable, cuGetExportTable, 3000,
  (const void **ppExportTable, const CUuuid *pExportTableId),
  (ppExportTable, pExportTableId))
X(INIT, NONE, cuDeviceGet, cuDeviceGet, 2000, (CUdevice * device, int ordinal),
  (device, ordinal))
X(INIT, NONE, cuDeviceGetCount, cuDeviceGetCount, 2000, (int *count), (count))
X(INIT, NONE, cuDeviceGetName, cuDeviceGetName, 2000, (char *name, int len, CUdevice dev),
  (name, len, dev))
X(INIT, NONE, cuDeviceGetUuid, cuDeviceGetUuid, 9020, (CUuuid * uuid, CUdevice dev),
  (uuid, dev))
X(INIT, NONE, cuDeviceGetUuid_v2, cuDeviceGetUuid, 11040, (CUuuid * uuid, CUdevice dev),
  (uuid, dev))
X(INIT, NONE, cuDeviceTotalMem_v2, cuDeviceTotalMem, 3020, (size_t *bytes, CUdevice dev),
  (bytes, dev))
X(INIT, NONE, cuDeviceGetAttribute, cuDeviceGetAttribute, 2000,
  (int *pi, int attrib, CUdevice dev), (pi, attrib, dev))
X(INIT, NONE, cuDeviceComputeCapability, cuDeviceComputeCapability, 2000,
  (int *major, int *minor, CUdevice dev), (major, minor, dev))
X(INIT, NONE, cuDeviceGetPCIBusId, cuDeviceGetPCIBusId, 4010,
  (char *pciBusId, int len, CUdevice dev), (pciBusId, len, dev))
X(INIT, NONE, cuDeviceGetByPCIBusId, cuDeviceGetByPCIBusId, 4010,
  (CUdevice * dev, const char *pciBusId), (dev, pciBusId))
X(INIT, NONE, cuDeviceCanAccessPeer, cuDeviceCanAccessPeer, 4000,
  (int *canAccessPeer, CUdevice dev, CUdevice peerDev), (canAccessPeer, dev, peerDev))
X(INIT, NONE, cuDeviceGetP2PAttribute, cuDeviceGetP2PAttribute, 8000,
  (int *value, int attrib, CUdevice srcDevice, CUdevice dstDevice),
  (value, attrib, srcDevice, dstDevice))
X(INIT, NONE, cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000,
  (CUcontext * pctx, CUdevice dev), (pctx, dev))
X(INIT, NONE, cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease, 11000,
  (CUdevice dev), (dev))
X(INIT, NONE, cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease, 7000, (CUdevice dev),
  (dev))
X(INIT, NONE, cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset, 11000, (CUdevice dev),
  (dev))
X(INIT, NONE, cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset, 7000, (CUdevice dev), (dev))
X(INIT, NONE, cuDevicePrimaryCtxSetFlags_v2, cuDevicePrimaryCtxSetFlags, 11000,
  (CUdevice dev, unsigned int flags), (dev, flags))
X(INIT, NONE, cuDevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags, 7000,
  (CUdevice dev, unsigned int flags), (dev, flags))
X(INIT, NONE, cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState, 7000,
  (CUdevice dev, unsigned int *flags, int *active), (dev, flags, active))
X(INIT, NONE, cuCtxCreate_v2, cuCtxCreate, 3020,
  (CUcontext * pctx, unsigned int flags, CUdevice dev), (pctx, flags, dev))
X(INIT, NONE, cuCtxCreate_v3, cuCtxCreate, 11040,
  (CUcontext * pctx, CUexecAffinityParam *paramsArray, int numParams, unsigned int flags,
   CUdevice dev),
  (pctx, paramsArray, numParams, flags, dev))
X(INIT, NONE, cuCtxCreate_v4, cuCtxCreate, 12050,
  (CUcontext * pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags, CUdevice dev),
  (pctx, ctxCreateParams, flags, dev))
X(INIT, NONE, cuCtxDestroy_v2, cuCtxDestroy, 4000, (CUcontext ctx), (ctx))
X(INIT, NONE, cuCtxPushCurrent_v2, cuCtxPushCurrent, 4000, (CUcontext ctx), (ctx))
X(INIT, NONE, cuCtxPopCurrent_v2, cuCtxPopCurrent, 4000, (CUcontext * pctx), (pctx))
X(INIT, NONE, cuCtxSetCurrent, cuCtxSetCurrent, 4000, (CUcontext ctx), (ctx))
X(INIT, NONE, cuCtxGetCurrent, cuCtxGetCurrent, 4000, (CUcontext * pctx), (pctx))
X(CTX, NONE, cuCtxGetDevice, cuCtxGetDevice, 2000, (CUdevice * device), (device))
X(INIT, NONE, cuCtxGetDevice_v2, cuCtxGetDevice, 13000, (CUdevice * device, CUcontext ctx),
  (device, ctx))
X(CTX, NONE, cuCtxGetFlags, cuCtxGetFlags, 7000, (unsigned int *flags), (flags))
X(CTX, NONE, cuCtxSetFlags, cuCtxSetFlags, 12010, (unsigned int flags), (flags))
X(INIT, NONE, cuCtxGetId, cuCtxGetId, 12000, (CUcontext ctx, unsigned long long *ctxId),
  (ctx, ctxId))
X(CTX, NONE, cuCtxSynchronize, cuCtxSynchronize, 2000, (void), ())
X(INIT, NONE, cuCtxSynchronize_v2, cuCtxSynchronize, 13000, (CUcontext ctx), (ctx))
X(CTX, NONE, cuCtxSetLimit, cuCtxSetLimit, 3010, (int limit, size_t value), (limit, value))
X(CTX, NONE, cuCtxGetLimit, cuCtxGetLimit, 3010, (size_t *pvalue, int limit),
  (pvalue, limit))
X(CTX, NONE, cuCtxGetCacheConfig, cuCtxGetCacheConfig, 3020, (int *pconfig), (pconfig))
X(CTX, NONE, cuCtxSetCacheConfig, cuCtxSetCacheConfig, 3020, (int config), (config))
X(CTX, NONE, cuCtxGetSharedMemConfig, cuCtxGetSharedMemConfig, 4020, (int *pConfig),
  (pConfig))
X(CTX, NONE, cuCtxSetSharedMemConfig, cuCtxSetSharedMemConfig, 4020, (int config), (config))
X(INIT, NONE, cuCtxGetApiVersion, cuCtxGetApiVersion, 3020,
  (CUcontext ctx, unsigned int *version), (ctx, version))
X(CTX, NONE, cuCtxGetStreamPriorityRange, cuCtxGetStreamPriorityRange, 5050,
  (int *leastPriority, int *greatestPriority), (leastPriority, greatestPriority))
X(CTX, NONE, cuCtxResetPersistingL2Cache, cuCtxResetPersistingL2Cache, 11000, (void), ())
X(INIT, NONE, cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, 10010,
  (int *mode), (mode))
X(ANY, NONE, cuProfilerStart, cuProfilerStart, 4000, (void), ())
X(ANY, NONE, cuProfilerStop, cuProfilerStop, 4000, (void), ())
