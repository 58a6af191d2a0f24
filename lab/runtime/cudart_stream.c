/* cudart_stream.c - streams and their attributes, events, capture. */
#include "cudart.h"

RT_FORWARD(cudaStreamCreate, (cudaStream_t * out), cuStreamCreate, (out, CU_STREAM_DEFAULT))
RT_FORWARD(cudaStreamCreateWithFlags, (cudaStream_t * out, unsigned int flags),
           cuStreamCreate, (out, flags))
RT_FORWARD(cudaStreamCreateWithPriority,
           (cudaStream_t * out, unsigned int flags, int priority),
           cuStreamCreateWithPriority, (out, flags, priority))
RT_FORWARD(cudaStreamDestroy, (cudaStream_t stream), cuStreamDestroy_v2, (stream))
RT_FORWARD_TWINS(_ptsz, cudaStreamGetPriority, (cudaStream_t stream, int *priority),
                 cuStreamGetPriority, (stream, priority))
RT_FORWARD_TWINS(_ptsz, cudaStreamGetFlags, (cudaStream_t stream, unsigned int *flags),
                 cuStreamGetFlags, (stream, flags))
RT_FORWARD_TWINS(_ptsz, cudaStreamGetId, (cudaStream_t stream, unsigned long long *id),
                 cuStreamGetId, (stream, id))
RT_FORWARD_TWINS(_ptsz, cudaStreamQuery, (cudaStream_t stream), cuStreamQuery, (stream))
RT_FORWARD_TWINS(_ptsz, cudaStreamSynchronize, (cudaStream_t stream), cuStreamSynchronize,
                 (stream))
RT_FORWARD_TWINS(_ptsz, cudaStreamWaitEvent,
                 (cudaStream_t stream, cudaEvent_t event, unsigned int flags),
                 cuStreamWaitEvent, (stream, event, flags))
RT_FORWARD_TWINS(_ptsz, cudaStreamAddCallback,
                 (cudaStream_t stream, cudaStreamCallback_t callback, void *data,
                  unsigned int flags),
                 cuStreamAddCallback, (stream, callback, data, flags))
RT_FORWARD_TWINS(_ptsz, cudaStreamAttachMemAsync,
                 (cudaStream_t stream, void *pointer, size_t length_bytes,
                  unsigned int flags),
                 cuStreamAttachMemAsync, (stream, rt_address(pointer), length_bytes, flags))

RT_FORWARD(cudaEventCreate, (cudaEvent_t * out), cuEventCreate, (out, CU_EVENT_DEFAULT))
RT_FORWARD(cudaEventCreateWithFlags, (cudaEvent_t * out, unsigned int flags), cuEventCreate,
           (out, flags))
RT_FORWARD(cudaEventDestroy, (cudaEvent_t event), cuEventDestroy_v2, (event))
RT_FORWARD(cudaEventQuery, (cudaEvent_t event), cuEventQuery, (event))
RT_FORWARD(cudaEventSynchronize, (cudaEvent_t event), cuEventSynchronize, (event))
RT_FORWARD_TWINS(_ptsz, cudaEventRecord, (cudaEvent_t event, cudaStream_t stream),
                 cuEventRecord, (event, stream))
RT_FORWARD_TWINS(_ptsz, cudaEventRecordWithFlags,
                 (cudaEvent_t event, cudaStream_t stream, unsigned int flags),
                 cuEventRecordWithFlags, (event, stream, flags))
RT_FORWARD(cudaIpcGetEventHandle, (cudaIpcEventHandle_t * out, cudaEvent_t event),
           cuIpcGetEventHandle, (out, event))
RT_FORWARD(cudaIpcOpenEventHandle, (cudaEvent_t * out, cudaIpcEventHandle_t handle),
           cuIpcOpenEventHandle, (out, handle))
RT_FORWARD(cudaEventElapsedTime, (float *milliseconds, cudaEvent_t start, cudaEvent_t end),
           cuEventElapsedTime_v2, (milliseconds, start, end))

RT_FORWARD_TWINS(_ptsz, cudaStreamBeginCapture,
                 (cudaStream_t stream, RT_ENUM(cudaStreamCaptureMode) mode),
                 cuStreamBeginCapture_v2, (stream, mode))
RT_FORWARD_TWINS(_ptsz, cudaStreamEndCapture, (cudaStream_t stream, cudaGraph_t *out),
                 cuStreamEndCapture, (stream, out))
RT_FORWARD_TWINS(_ptsz, cudaStreamIsCapturing,
                 (cudaStream_t stream, RT_ENUM(cudaStreamCaptureStatus) * status),
                 cuStreamIsCapturing, (stream, status))
RT_FORWARD_TWINS(_ptsz, cudaStreamGetCaptureInfo,
                 (cudaStream_t stream, RT_ENUM(cudaStreamCaptureStatus) * status,
                  unsigned long long *id, cudaGraph_t *graph,
                  const cudaGraphNode_t **dependencies, const cudaGraphEdgeData **edges,
                  size_t *dependency_count),
                 cuStreamGetCaptureInfo_v3,
                 (stream, status, (uint64_t *)id, graph, dependencies, edges,
                  dependency_count))
RT_FORWARD(cudaThreadExchangeStreamCaptureMode, (RT_ENUM(cudaStreamCaptureMode) * mode),
           cuThreadExchangeStreamCaptureMode, (mode))

RT_FORWARD_TWINS(_ptsz, cudaStreamUpdateCaptureDependencies,
                 (cudaStream_t stream, cudaGraphNode_t *dependencies,
                  const cudaGraphEdgeData *edges, size_t count, unsigned int flags),
                 cuStreamUpdateCaptureDependencies_v2,
                 (stream, dependencies, edges, count, flags))
RT_FORWARD_TWINS(_ptsz, cudaStreamBeginCaptureToGraph,
                 (cudaStream_t stream, cudaGraph_t graph,
                  const cudaGraphNode_t *dependencies, const cudaGraphEdgeData *edges,
                  size_t count, RT_ENUM(cudaStreamCaptureMode) mode),
                 cuStreamBeginCaptureToGraph,
                 (stream, graph, dependencies, edges, count, mode))

RT_FORWARD_TWINS(_ptsz, cudaStreamGetAttribute,
                 (cudaStream_t stream, cudaLaunchAttributeID attribute,
                  cudaLaunchAttributeValue *value),
                 cuStreamGetAttribute, (stream, attribute, value))
RT_FORWARD_TWINS(_ptsz, cudaStreamSetAttribute,
                 (cudaStream_t stream, cudaLaunchAttributeID attribute,
                  const cudaLaunchAttributeValue *value),
                 cuStreamSetAttribute, (stream, attribute, value))
RT_FORWARD_TWINS(_ptsz, cudaStreamCopyAttributes, (cudaStream_t to, cudaStream_t from),
                 cuStreamCopyAttributes, (to, from))
