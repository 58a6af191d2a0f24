/* functions_context.h - part of functions.h: life, devices, contexts. */

/* clang-format off */
PUMP_DRIVER(HOOK, ANY, NONE, cuInit, cuInit, 2000, 0, (unsigned int flags), (flags))
PUMP_DRIVER(CALL, ANY, NONE, cuDriverGetVersion, cuDriverGetVersion, 2020, 0,
            (int *version), (version))
PUMP_DRIVER(NO, ANY, NONE, cuGetErrorName, cuGetErrorName, 6000, 0,
            (CUresult error, const char **pStr), (error, pStr))
PUMP_DRIVER(NO, ANY, NONE, cuGetErrorString, cuGetErrorString, 6000, 0,
            (CUresult error, const char **pStr), (error, pStr))
PUMP_DRIVER(HOOK, ANY, NONE, cuGetProcAddress, cuGetProcAddress, 11030, 0,
            (const char *symbol, void **pfn, int version, cuuint64_t flags),
            (symbol, pfn, version, flags))
PUMP_DRIVER(HOOK, ANY, NONE, cuGetProcAddress_v2, cuGetProcAddress, 12000, 0,
            (const char *symbol, void **pfn, int version, cuuint64_t flags,
             CUdriverProcAddressQueryResult *status),
            (symbol, pfn, version, flags, status))
PUMP_DRIVER(NO, ANY, NONE, cuGetExportTable, cuGetExportTable, 3000, 0,
            (const void **ppExportTable, const CUuuid *pExportTableId),
            (ppExportTable, pExportTableId))
PUMP_DRIVER(NO, INIT, NONE, cuDeviceGet, cuDeviceGet, 2000, 0,
            (CUdevice *device, int ordinal), (device, ordinal))
PUMP_DRIVER(CALL, INIT, NONE, cuDeviceGetCount, cuDeviceGetCount, 2000, 0, (int *count), (count))
PUMP_DRIVER(NO, INIT, NONE, cuDeviceGetName, cuDeviceGetName, 2000, 0,
            (char *name, int len, CUdevice dev), (name, len, dev))
PUMP_DRIVER(CALL, INIT, NONE, cuDeviceGetUuid, cuDeviceGetUuid, 9020, 0,
            (CUuuid *uuid, CUdevice device), (uuid, device))
PUMP_DRIVER(CALL, INIT, NONE, cuDeviceGetUuid_v2, cuDeviceGetUuid, 11040, 0,
            (CUuuid *uuid, CUdevice device), (uuid, device))
PUMP_DRIVER(CALL, INIT, NONE, cuDeviceTotalMem_v2, cuDeviceTotalMem, 3020, 0,
            (size_t *bytes, CUdevice device), (bytes, device))
PUMP_DRIVER(CALL, INIT, NONE, cuDeviceGetAttribute, cuDeviceGetAttribute, 2000, 0,
            (int *value, CUdevice_attribute attribute, CUdevice device), (value, attribute, device))
PUMP_DRIVER(NO, INIT, NONE, cuDeviceComputeCapability, cuDeviceComputeCapability, 2000, 0,
            (int *major, int *minor, CUdevice dev), (major, minor, dev))
PUMP_DRIVER(NO, INIT, NONE, cuDeviceGetPCIBusId, cuDeviceGetPCIBusId, 4010, 0,
            (char *pciBusId, int len, CUdevice dev), (pciBusId, len, dev))
PUMP_DRIVER(NO, INIT, NONE, cuDeviceGetByPCIBusId, cuDeviceGetByPCIBusId, 4010, 0,
            (CUdevice *dev, const char *pciBusId), (dev, pciBusId))
PUMP_DRIVER(NO, INIT, NONE, cuDeviceCanAccessPeer, cuDeviceCanAccessPeer, 4000, 0,
            (int *canAccessPeer, CUdevice dev, CUdevice peerDev), (canAccessPeer, dev, peerDev))
PUMP_DRIVER(NO, INIT, NONE, cuDeviceGetP2PAttribute, cuDeviceGetP2PAttribute, 8000, 0,
            (int *value, CUdevice_P2PAttribute attrib, CUdevice srcDevice, CUdevice dstDevice),
            (value, attrib, srcDevice, dstDevice))
PUMP_DRIVER(HOOK, INIT, NONE, cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000, 0,
            (CUcontext *context, CUdevice device), (context, device))
PUMP_DRIVER(HOOK, INIT, NONE, cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease, 11000, 0,
            (CUdevice device), (device))
PUMP_DRIVER(HOOK, INIT, NONE, cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease, 7000, 0,
            (CUdevice device), (device))
PUMP_DRIVER(HOOK, INIT, NONE, cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset, 11000, 0,
            (CUdevice device), (device))
PUMP_DRIVER(HOOK, NO, NONE, cuCtxEnablePeerAccess, cuCtxEnablePeerAccess, 4000, 0,
            (CUcontext peer, unsigned int flags), (peer, flags))
PUMP_DRIVER(HOOK, INIT, NONE, cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset, 7000, 0,
            (CUdevice device), (device))
PUMP_DRIVER(NO, INIT, NONE, cuDevicePrimaryCtxSetFlags_v2, cuDevicePrimaryCtxSetFlags, 11000, 0,
            (CUdevice dev, unsigned int flags), (dev, flags))
PUMP_DRIVER(NO, INIT, NONE, cuDevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags, 7000, 0,
            (CUdevice dev, unsigned int flags), (dev, flags))
PUMP_DRIVER(CALL, INIT, NONE, cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState, 7000, 0,
            (CUdevice device, unsigned int *flags, int *active), (device, flags, active))
PUMP_DRIVER(HOOK, INIT, NONE, cuCtxCreate_v2, cuCtxCreate, 3020, 0,
            (CUcontext *context, unsigned int flags, CUdevice device), (context, flags, device))
PUMP_DRIVER(HOOK, INIT, NONE, cuCtxCreate_v3, cuCtxCreate, 11040, 0,
            (CUcontext *context, CUexecAffinityParam *params, int count, unsigned int flags,
             CUdevice device),
            (context, params, count, flags, device))
PUMP_DRIVER(HOOK, INIT, NONE, cuCtxCreate_v4, cuCtxCreate, 12050, 0,
            (CUcontext *context, CUctxCreateParams *params, unsigned int flags, CUdevice device),
            (context, params, flags, device))
PUMP_DRIVER(HOOK, NO, NONE, cuCtxDestroy, cuCtxDestroy, 2000, 0, (CUcontext context), (context))
PUMP_DRIVER(HOOK, INIT, NONE, cuCtxDestroy_v2, cuCtxDestroy, 4000, 0,
            (CUcontext context), (context))
PUMP_DRIVER(NO, CTX, NONE, cuCtxAttach, cuCtxAttach, 2000, 0,
            (CUcontext *context, unsigned int flags), (context, flags))
PUMP_DRIVER(HOOK, CTX, NONE, cuCtxDetach, cuCtxDetach, 2000, 0, (CUcontext context), (context))
PUMP_DRIVER(HOOK, NO, NONE, cuGreenCtxDestroy, cuGreenCtxDestroy, 12040, 0,
            (CUgreenCtx context), (context))
PUMP_DRIVER(NO, INIT, NONE, cuCtxPushCurrent_v2, cuCtxPushCurrent, 4000, 0, (CUcontext ctx), (ctx))
PUMP_DRIVER(NO, INIT, NONE, cuCtxPopCurrent_v2, cuCtxPopCurrent, 4000, 0, (CUcontext *pctx), (pctx))
PUMP_DRIVER(CALL, INIT, NONE, cuCtxSetCurrent, cuCtxSetCurrent, 4000, 0,
            (CUcontext context), (context))
PUMP_DRIVER(CALL, INIT, NONE, cuCtxGetCurrent, cuCtxGetCurrent, 4000, 0,
            (CUcontext *context), (context))
PUMP_DRIVER(CALL, CTX, NONE, cuCtxGetDevice, cuCtxGetDevice, 2000, 0, (CUdevice *device), (device))
PUMP_DRIVER(NO, INIT, NONE, cuCtxGetDevice_v2, cuCtxGetDevice, 13000, 0,
            (CUdevice *device, CUcontext ctx), (device, ctx))
PUMP_DRIVER(NO, CTX, NONE, cuCtxGetFlags, cuCtxGetFlags, 7000, 0, (unsigned int *flags), (flags))
PUMP_DRIVER(NO, CTX, NONE, cuCtxSetFlags, cuCtxSetFlags, 12010, 0, (unsigned int flags), (flags))
PUMP_DRIVER(NO, INIT, NONE, cuCtxGetId, cuCtxGetId, 12000, 0,
            (CUcontext ctx, unsigned long long *ctxId), (ctx, ctxId))
PUMP_DRIVER(HOOK, CTX, NONE, cuCtxSynchronize, cuCtxSynchronize, 2000, 0, (void), ())
PUMP_DRIVER(HOOK, INIT, NONE, cuCtxSynchronize_v2, cuCtxSynchronize, 13000, 0,
            (CUcontext context), (context))
PUMP_DRIVER(NO, CTX, NONE, cuCtxSetLimit, cuCtxSetLimit, 3010, 0,
            (CUlimit limit, size_t value), (limit, value))
PUMP_DRIVER(NO, CTX, NONE, cuCtxGetLimit, cuCtxGetLimit, 3010, 0,
            (size_t *pvalue, CUlimit limit), (pvalue, limit))
PUMP_DRIVER(NO, CTX, NONE, cuCtxGetCacheConfig, cuCtxGetCacheConfig, 3020, 0,
            (CUfunc_cache *pconfig), (pconfig))
PUMP_DRIVER(NO, CTX, NONE, cuCtxSetCacheConfig, cuCtxSetCacheConfig, 3020, 0,
            (CUfunc_cache config), (config))
PUMP_DRIVER(NO, CTX, NONE, cuCtxGetSharedMemConfig, cuCtxGetSharedMemConfig, 4020, 0,
            (CUsharedconfig *pConfig), (pConfig))
PUMP_DRIVER(NO, CTX, NONE, cuCtxSetSharedMemConfig, cuCtxSetSharedMemConfig, 4020, 0,
            (CUsharedconfig config), (config))
PUMP_DRIVER(NO, INIT, NONE, cuCtxGetApiVersion, cuCtxGetApiVersion, 3020, 0,
            (CUcontext ctx, unsigned int *version), (ctx, version))
PUMP_DRIVER(CALL, CTX, NONE, cuCtxGetStreamPriorityRange, cuCtxGetStreamPriorityRange, 5050, 0,
            (int *least, int *greatest), (least, greatest))
PUMP_DRIVER(NO, CTX, NONE, cuCtxResetPersistingL2Cache, cuCtxResetPersistingL2Cache, 11000, 0,
            (void), ())
PUMP_DRIVER(CALL, INIT, NONE, cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, 10010, 0,
            (CUstreamCaptureMode *mode), (mode))
PUMP_DRIVER(NO, ANY, NONE, cuProfilerStart, cuProfilerStart, 4000, 0, (void), ())
PUMP_DRIVER(NO, ANY, NONE, cuProfilerStop, cuProfilerStop, 4000, 0, (void), ())
/* clang-format on */
