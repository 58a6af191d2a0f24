/* functions_stream.h - part of functions.h: streams, events, captures. */

/* clang-format off */
PUMP_DRIVER(NO, CTX, NONE, cuStreamCreate, cuStreamCreate, 2000, 0,
            (CUstream *phStream, unsigned int Flags), (phStream, Flags))
PUMP_DRIVER(HOOK, CTX, NONE, cuStreamCreateWithPriority, cuStreamCreateWithPriority, 5050, 0,
            (CUstream *stream, unsigned int flags, int priority), (stream, flags, priority))
PUMP_DRIVER(HOOK, NO, NONE, cuStreamDestroy, cuStreamDestroy, 2000, 0, (CUstream stream), (stream))
PUMP_DRIVER(HOOK, INIT, NONE, cuStreamDestroy_v2, cuStreamDestroy, 4000, 0,
            (CUstream stream), (stream))
PUMP_DRIVER(NO, CTX, SZ, cuStreamGetPriority, cuStreamGetPriority, 5050, 7000,
            (CUstream stream, int *priority), (stream, priority))
PUMP_DRIVER(NO, CTX, SZ, cuStreamGetFlags, cuStreamGetFlags, 5050, 7000,
            (CUstream stream, unsigned int *flags), (stream, flags))
PUMP_DRIVER(NO, CTX, SZ, cuStreamGetId, cuStreamGetId, 12000, 12000,
            (CUstream stream, unsigned long long *streamId), (stream, streamId))
PUMP_DRIVER(CALL, CTX, SZ, cuStreamGetCtx, cuStreamGetCtx, 9020, 9020,
            (CUstream stream, CUcontext *context), (stream, context))
PUMP_DRIVER(NO, CTX, SZ, cuStreamGetCtx_v2, cuStreamGetCtx, 12050, 12050,
            (CUstream stream, CUcontext *context, CUgreenCtx *green), (stream, context, green))
PUMP_DRIVER(NO, CTX, SZ, cuStreamGetAttribute, cuStreamGetAttribute, 11000, 11000,
            (CUstream stream, CUstreamAttrID attribute, CUstreamAttrValue *value),
            (stream, attribute, value))
PUMP_DRIVER(NO, CTX, SZ, cuStreamSetAttribute, cuStreamSetAttribute, 11000, 11000,
            (CUstream stream, CUstreamAttrID attribute, const CUstreamAttrValue *value),
            (stream, attribute, value))
PUMP_DRIVER(NO, CTX, SZ, cuStreamCopyAttributes, cuStreamCopyAttributes, 11000, 11000,
            (CUstream to, CUstream stream), (to, stream))
PUMP_DRIVER(NO, CTX, SZ, cuStreamGetDevice, cuStreamGetDevice, 12080, 12080,
            (CUstream stream, CUdevice *device), (stream, device))
PUMP_DRIVER(HOOK, CTX, SZ, cuStreamQuery, cuStreamQuery, 2000, 7000, (CUstream stream), (stream))
PUMP_DRIVER(HOOK, CTX, SZ, cuStreamSynchronize, cuStreamSynchronize, 2000, 7000,
            (CUstream stream), (stream))
PUMP_DRIVER(CALL, CTX, SZ, cuStreamWaitEvent, cuStreamWaitEvent, 3020, 7000,
            (CUstream stream, CUevent event, unsigned int flags), (stream, event, flags))
PUMP_DRIVER(HOOK, CTX, NONE, cuIpcGetEventHandle, cuIpcGetEventHandle, 4010, 0,
            (CUipcEventHandle *handle, CUevent event), (handle, event))
PUMP_DRIVER(HOOK, CTX, NONE, cuIpcOpenEventHandle, cuIpcOpenEventHandle, 4010, 0,
            (CUevent *event, CUipcEventHandle handle), (event, handle))
PUMP_DRIVER(NO, CTX, SZ, cuStreamAddCallback, cuStreamAddCallback, 5000, 7000,
            (CUstream stream, CUstreamCallback callback, void *userData, unsigned int flags),
            (stream, callback, userData, flags))
PUMP_DRIVER(NO, CTX, SZ, cuLaunchHostFunc, cuLaunchHostFunc, 10000, 10000,
            (CUstream stream, CUhostFn fn, void *userData), (stream, fn, userData))
PUMP_DRIVER(NO, CTX, SZ, cuLaunchHostFunc_v2, cuLaunchHostFunc, 13010, 13010,
            (CUstream stream, CUhostFn fn, void *userData, unsigned int syncMode),
            (stream, fn, userData, syncMode))
PUMP_DRIVER(HOOK, CTX, SZ, cuStreamWaitValue32, cuStreamWaitValue32, 8000, 8000,
            (CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags),
            (stream, address, value, flags))
PUMP_DRIVER(HOOK, CTX, SZ, cuStreamWaitValue64, cuStreamWaitValue64, 9000, 9000,
            (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags),
            (stream, address, value, flags))
PUMP_DRIVER(HOOK, CTX, SZ, cuStreamWriteValue32, cuStreamWriteValue32, 8000, 8000,
            (CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags),
            (stream, address, value, flags))
PUMP_DRIVER(HOOK, CTX, SZ, cuStreamWriteValue64, cuStreamWriteValue64, 9000, 9000,
            (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags),
            (stream, address, value, flags))
PUMP_DRIVER(HOOK, CTX, SZ, cuStreamWaitValue32_v2, cuStreamWaitValue32, 11070, 11070,
            (CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags),
            (stream, address, value, flags))
PUMP_DRIVER(HOOK, CTX, SZ, cuStreamWaitValue64_v2, cuStreamWaitValue64, 11070, 11070,
            (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags),
            (stream, address, value, flags))
PUMP_DRIVER(HOOK, CTX, SZ, cuStreamWriteValue32_v2, cuStreamWriteValue32, 11070, 11070,
            (CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags),
            (stream, address, value, flags))
PUMP_DRIVER(HOOK, CTX, SZ, cuStreamWriteValue64_v2, cuStreamWriteValue64, 11070, 11070,
            (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags),
            (stream, address, value, flags))
PUMP_DRIVER(HOOK, CTX, SZ, cuStreamBatchMemOp, cuStreamBatchMemOp, 8000, 8000,
            (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *operations, unsigned
             int flags),
            (stream, count, operations, flags))
PUMP_DRIVER(HOOK, CTX, SZ, cuStreamBatchMemOp_v2, cuStreamBatchMemOp, 11070, 11070,
            (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *operations, unsigned
             int flags),
            (stream, count, operations, flags))
PUMP_DRIVER(HOOK, CTX, SZ, cuStreamBeginCapture, cuStreamBeginCapture, 10000, 10000,
            (CUstream stream), (stream))
PUMP_DRIVER(HOOK, CTX, SZ, cuStreamBeginCapture_v2, cuStreamBeginCapture, 10010, 10010,
            (CUstream stream, CUstreamCaptureMode mode), (stream, mode))
PUMP_DRIVER(HOOK, CTX, SZ, cuStreamEndCapture, cuStreamEndCapture, 10000, 10000,
            (CUstream stream, CUgraph *graph), (stream, graph))
PUMP_DRIVER(CALL, CTX, SZ, cuStreamIsCapturing, cuStreamIsCapturing, 10000, 10000,
            (CUstream stream, CUstreamCaptureStatus *status), (stream, status))
PUMP_DRIVER(NO, CTX, SZ, cuStreamGetCaptureInfo, cuStreamGetCaptureInfo, 10010, 10010,
            (CUstream stream, CUstreamCaptureStatus *captureStatus_out, uint64_t *id_out),
            (stream, captureStatus_out, id_out))
PUMP_DRIVER(NO, CTX, SZ, cuStreamGetCaptureInfo_v2, cuStreamGetCaptureInfo, 11030, 11030,
            (CUstream stream, CUstreamCaptureStatus *captureStatus_out, uint64_t *id_out, CUgraph
             *graph_out, const CUgraphNode **dependencies_out, size_t *numDependencies_out),
            (stream, captureStatus_out, id_out, graph_out, dependencies_out, numDependencies_out))
PUMP_DRIVER(NO, CTX, SZ, cuStreamGetCaptureInfo_v3, cuStreamGetCaptureInfo, 12030, 12030,
            (CUstream stream, CUstreamCaptureStatus *captureStatus_out, uint64_t *id_out, CUgraph
             *graph_out, const CUgraphNode **dependencies_out, const CUgraphEdgeData **edgeData_out,
             size_t *numDependencies_out),
            (stream, captureStatus_out, id_out, graph_out, dependencies_out, edgeData_out,
             numDependencies_out))
PUMP_DRIVER(CALL, CTX, NONE, cuEventCreate, cuEventCreate, 2000, 0,
            (CUevent *event, unsigned int flags), (event, flags))
PUMP_DRIVER(HOOK, INIT, NONE, cuEventDestroy_v2, cuEventDestroy, 4000, 0, (CUevent event), (event))
PUMP_DRIVER(HOOK, CTX, SZ, cuEventRecord, cuEventRecord, 2000, 7000,
            (CUevent event, CUstream stream), (event, stream))
PUMP_DRIVER(HOOK, CTX, SZ, cuEventRecordWithFlags, cuEventRecordWithFlags, 11010, 11010,
            (CUevent event, CUstream stream, unsigned int flags), (event, stream, flags))
PUMP_DRIVER(HOOK, NO, NONE, cuEventDestroy, cuEventDestroy, 2000, 0, (CUevent event), (event))
PUMP_DRIVER(HOOK, INIT, NONE, cuEventQuery, cuEventQuery, 2000, 0, (CUevent event), (event))
PUMP_DRIVER(HOOK, NO, NONE, cuCtxRecordEvent, cuCtxRecordEvent, 12050, 0,
            (CUcontext context, CUevent event), (context, event))
PUMP_DRIVER(HOOK, NO, NONE, cuGreenCtxRecordEvent, cuGreenCtxRecordEvent, 12040, 0,
            (CUgreenCtx context, CUevent event), (context, event))
PUMP_DRIVER(HOOK, INIT, NONE, cuEventSynchronize, cuEventSynchronize, 2000, 0,
            (CUevent event), (event))
PUMP_DRIVER(CALL, INIT, NONE, cuEventElapsedTime, cuEventElapsedTime, 2000, 0,
            (float *pMilliseconds, CUevent hStart, CUevent hEnd), (pMilliseconds, hStart, hEnd))
PUMP_DRIVER(NO, INIT, NONE, cuEventElapsedTime_v2, cuEventElapsedTime, 12080, 0,
            (float *pMilliseconds, CUevent hStart, CUevent hEnd), (pMilliseconds, hStart, hEnd))
PUMP_DRIVER(HOOK, CTX, SZ, cuLaunchKernel, cuLaunchKernel, 4000, 7000,
            (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
             unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int
             shared_bytes, CUstream stream, void **params, void **extra),
            (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream,
             params, extra))
PUMP_DRIVER(HOOK, CTX, EZ, cuLaunchKernelEx, cuLaunchKernelEx, 11060, 11060,
            (const CUlaunchConfig *config, CUfunction function, void **params, void **extra),
            (config, function, params, extra))
PUMP_DRIVER(HOOK, CTX, NONE, cuLaunchCooperativeKernelMultiDevice, cuLaunchCooperativeKernelMultiDevice, 9000, 0,
            (CUDA_LAUNCH_PARAMS *launches, unsigned int count, unsigned int flags),
            (launches, count, flags))
PUMP_DRIVER(HOOK, CTX, SZ, cuLaunchCooperativeKernel, cuLaunchCooperativeKernel, 9000, 9000,
            (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
             unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int
             shared_bytes, CUstream stream, void **params),
            (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream,
             params))
PUMP_DRIVER(HOOK, NO, SZ, cuStreamBeginRecaptureToGraph, cuStreamBeginRecaptureToGraph, 13030, 13030,
            (CUstream stream, CUstreamCaptureMode mode, CUgraph graph, CUgraphRecaptureCallback
             callback, void *data),
            (stream, mode, graph, callback, data))
PUMP_DRIVER(HOOK, NO, SZ, cuStreamBeginCaptureToCig, cuStreamBeginCaptureToCig, 13010, 13010,
            (CUstream stream, CUstreamCigCaptureParams *params), (stream, params))
PUMP_DRIVER(HOOK, NO, SZ, cuStreamEndCaptureToCig, cuStreamEndCaptureToCig, 13010, 13010,
            (CUstream stream), (stream))
/* clang-format on */
