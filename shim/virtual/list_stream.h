/* list_stream.h - exported functions: streams, events, launches. Part of
 * driver_list.h; no include guard. */

X(CTX, NONE, cuStreamCreate, cuStreamCreate, 2000,
  (CUstream * phStream, unsigned int Flags), (phStream, Flags))
X(CTX, NONE, cuStreamCreateWithPriority, cuStreamCreateWithPriority, 5050,
  (CUstream * phStream, unsigned int flags, int priority), (phStream, flags, priority))
X(INIT, NONE, cuStreamDestroy_v2, cuStreamDestroy, 4000, (CUstream hStream), (hStream))
X(CTX, SZ, cuStreamGetPriority, cuStreamGetPriority, 5050, (CUstream stream, int *priority),
  (stream, priority))
X(CTX, SZ, cuStreamGetFlags, cuStreamGetFlags, 5050, (CUstream stream, unsigned int *flags),
  (stream, flags))
X(CTX, SZ, cuStreamGetId, cuStreamGetId, 12000,
  (CUstream stream, unsigned long long *streamId), (stream, streamId))
X(CTX, SZ, cuStreamGetCtx, cuStreamGetCtx, 9020, (CUstream stream, CUcontext *pctx),
  (stream, pctx))
X(CTX, SZ, cuStreamGetDevice, cuStreamGetDevice, 12080, (CUstream stream, CUdevice *device),
  (stream, device))
X(CTX, SZ, cuStreamQuery, cuStreamQuery, 2000, (CUstream stream), (stream))
X(CTX, SZ, cuStreamSynchronize, cuStreamSynchronize, 2000, (CUstream stream), (stream))
X(CTX, SZ, cuStreamWaitEvent, cuStreamWaitEvent, 3020,
  (CUstream stream, CUevent hEvent, unsigned int Flags), (stream, hEvent, Flags))
X(CTX, NONE, cuIpcGetEventHandle, cuIpcGetEventHandle, 4010,
  (CUipcEventHandle * pHandle, CUevent event), (pHandle, event))
X(CTX, NONE, cuIpcOpenEventHandle, cuIpcOpenEventHandle, 4010,
  (CUevent * phEvent, CUipcEventHandle handle), (phEvent, handle))
X(CTX, SZ, cuStreamAddCallback, cuStreamAddCallback, 5000,
  (CUstream stream, CUstreamCallback callback, void *userData, unsigned int flags),
  (stream, callback, userData, flags))
X(CTX, SZ, cuLaunchHostFunc, cuLaunchHostFunc, 10000,
  (CUstream stream, CUhostFn fn, void *userData), (stream, fn, userData))
X(CTX, SZ, cuStreamWaitValue32, cuStreamWaitValue32, 8000,
  (CUstream stream, CUdeviceptr addr, uint32_t value, unsigned int flags),
  (stream, addr, value, flags))
X(CTX, SZ, cuStreamWaitValue64, cuStreamWaitValue64, 9000,
  (CUstream stream, CUdeviceptr addr, uint64_t value, unsigned int flags),
  (stream, addr, value, flags))
X(CTX, SZ, cuStreamWriteValue32, cuStreamWriteValue32, 8000,
  (CUstream stream, CUdeviceptr addr, uint32_t value, unsigned int flags),
  (stream, addr, value, flags))
X(CTX, SZ, cuStreamWriteValue64, cuStreamWriteValue64, 9000,
  (CUstream stream, CUdeviceptr addr, uint64_t value, unsigned int flags),
  (stream, addr, value, flags))
X(CTX, SZ, cuStreamWaitValue32_v2, cuStreamWaitValue32, 11070,
  (CUstream stream, CUdeviceptr addr, uint32_t value, unsigned int flags),
  (stream, addr, value, flags))
X(CTX, SZ, cuStreamWaitValue64_v2, cuStreamWaitValue64, 11070,
  (CUstream stream, CUdeviceptr addr, uint64_t value, unsigned int flags),
  (stream, addr, value, flags))
X(CTX, SZ, cuStreamWriteValue32_v2, cuStreamWriteValue32, 11070,
  (CUstream stream, CUdeviceptr addr, uint32_t value, unsigned int flags),
  (stream, addr, value, flags))
X(CTX, SZ, cuStreamWriteValue64_v2, cuStreamWriteValue64, 11070,
  (CUstream stream, CUdeviceptr addr, uint64_t value, unsigned int flags),
  (stream, addr, value, flags))
X(CTX, SZ, cuStreamBatchMemOp, cuStreamBatchMemOp, 8000,
  (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *paramArray,
   unsigned int flags),
  (stream, count, paramArray, flags))
X(CTX, SZ, cuStreamBatchMemOp_v2, cuStreamBatchMemOp, 11070,
  (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *paramArray,
   unsigned int flags),
  (stream, count, paramArray, flags))
X(CTX, SZ, cuStreamBeginCapture, cuStreamBeginCapture, 10000, (CUstream stream), (stream))
X(CTX, SZ, cuStreamBeginCapture_v2, cuStreamBeginCapture, 10010,
  (CUstream stream, int mode), (stream, mode))
X(CTX, SZ, cuStreamEndCapture, cuStreamEndCapture, 10000,
  (CUstream stream, CUgraph *phGraph), (stream, phGraph))
X(CTX, SZ, cuStreamIsCapturing, cuStreamIsCapturing, 10000,
  (CUstream stream, int *captureStatus), (stream, captureStatus))
X(CTX, SZ, cuStreamGetCaptureInfo, cuStreamGetCaptureInfo, 10010,
  (CUstream stream, int *captureStatus_out, uint64_t *id_out),
  (stream, captureStatus_out, id_out))
X(CTX, SZ, cuStreamGetCaptureInfo_v2, cuStreamGetCaptureInfo, 11030,
  (CUstream stream, int *captureStatus_out, uint64_t *id_out, CUgraph *graph_out,
   const CUgraphNode **dependencies_out, size_t *numDependencies_out),
  (stream, captureStatus_out, id_out, graph_out, dependencies_out, numDependencies_out))
X(CTX, SZ, cuStreamGetCaptureInfo_v3, cuStreamGetCaptureInfo, 12030,
  (CUstream stream, int *captureStatus_out, uint64_t *id_out, CUgraph *graph_out,
   const CUgraphNode **dependencies_out, const CUgraphEdgeData **edgeData_out,
   size_t *numDependencies_out),
  (stream, captureStatus_out, id_out, graph_out, dependencies_out, edgeData_out,
   numDependencies_out))
X(CTX, NONE, cuEventCreate, cuEventCreate, 2000, (CUevent * phEvent, unsigned int Flags),
  (phEvent, Flags))
X(INIT, NONE, cuEventDestroy_v2, cuEventDestroy, 4000, (CUevent hEvent), (hEvent))
X(CTX, SZ, cuEventRecord, cuEventRecord, 2000, (CUevent hEvent, CUstream stream),
  (hEvent, stream))
X(CTX, SZ, cuEventRecordWithFlags, cuEventRecordWithFlags, 11010,
  (CUevent hEvent, CUstream stream, unsigned int flags), (hEvent, stream, flags))
X(INIT, NONE, cuEventQuery, cuEventQuery, 2000, (CUevent hEvent), (hEvent))
X(INIT, NONE, cuEventSynchronize, cuEventSynchronize, 2000, (CUevent hEvent), (hEvent))
X(INIT, NONE, cuEventElapsedTime, cuEventElapsedTime, 2000,
  (float *pMilliseconds, CUevent hStart, CUevent hEnd), (pMilliseconds, hStart, hEnd))
X(INIT, NONE, cuEventElapsedTime_v2, cuEventElapsedTime, 12080,
  (float *pMilliseconds, CUevent hStart, CUevent hEnd), (pMilliseconds, hStart, hEnd))
X(CTX, SZ, cuLaunchKernel, cuLaunchKernel, 4000,
  (CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
   unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
   unsigned int sharedMemBytes, CUstream stream, void **kernelParams, void **extra),
  (f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, stream,
   kernelParams, extra))
X(CTX, EZ, cuLaunchKernelEx, cuLaunchKernelEx, 11060,
  (const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra),
  (stream, config, f, kernelParams, extra))
X(CTX, NONE, cuLaunchCooperativeKernelMultiDevice, cuLaunchCooperativeKernelMultiDevice,
  9000,
  (CUDA_LAUNCH_PARAMS * launchParamsList, unsigned int numDevices, unsigned int flags),
  (launchParamsList, numDevices, flags))
X(CTX, SZ, cuLaunchCooperativeKernel, cuLaunchCooperativeKernel, 9000,
  (CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
   unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
   unsigned int sharedMemBytes, CUstream stream, void **kernelParams),
  (f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, stream,
   kernelParams))
