/* cudart_graph.c - graphs: their nodes, edges and executable forms, and the objects of a
 * program that they keep.
 */
#include "cudart.h"

RT_FORWARD(cudaGraphCreate, (cudaGraph_t * out, unsigned int flags), cuGraphCreate,
           (out, flags))
RT_FORWARD(cudaGraphDestroy, (cudaGraph_t graph), cuGraphDestroy, (graph))
RT_FORWARD(cudaGraphExecDestroy, (cudaGraphExec_t exec), cuGraphExecDestroy, (exec))
RT_FORWARD(cudaGraphGetNodes, (cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count),
           cuGraphGetNodes, (graph, nodes, count))
RT_FORWARD(cudaGraphNodeGetType, (cudaGraphNode_t node, RT_ENUM(cudaGraphNodeType) * type),
           cuGraphNodeGetType, (node, type))
RT_FORWARD(cudaGraphInstantiate,
           (cudaGraphExec_t * out, cudaGraph_t graph, unsigned long long flags),
           cuGraphInstantiateWithFlags, (out, graph, flags))
RT_FORWARD(cudaGraphInstantiateWithFlags,
           (cudaGraphExec_t * out, cudaGraph_t graph, unsigned long long flags),
           cuGraphInstantiateWithFlags, (out, graph, flags))
RT_FORWARD_TWINS(_ptsz, cudaGraphLaunch, (cudaGraphExec_t exec, cudaStream_t stream),
                 cuGraphLaunch, (exec, stream))
RT_FORWARD_TWINS(_ptsz, cudaGraphUpload, (cudaGraphExec_t exec, cudaStream_t stream),
                 cuGraphUpload, (exec, stream))
RT_FORWARD(cudaGraphClone, (cudaGraph_t * out, cudaGraph_t graph), cuGraphClone,
           (out, graph))
RT_FORWARD(cudaGraphNodeGetDependencies,
           (cudaGraphNode_t node, cudaGraphNode_t *dependencies, cudaGraphEdgeData *edges,
            size_t *count),
           cuGraphNodeGetDependencies_v2, (node, dependencies, edges, count))
RT_FORWARD(cudaGraphExecUpdate,
           (cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo *result),
           cuGraphExecUpdate_v2, (exec, graph, result))
RT_FORWARD_TWINS(_ptsz, cudaGraphInstantiateWithParams,
                 (cudaGraphExec_t * out, cudaGraph_t graph,
                  cudaGraphInstantiateParams *parameters),
                 cuGraphInstantiateWithParams, (out, graph, parameters))
RT_FORWARD(cudaGraphExecGetFlags, (cudaGraphExec_t exec, unsigned long long *flags),
           cuGraphExecGetFlags, (exec, (uint64_t *)flags))

/* -- shape -- */

RT_FORWARD(cudaGraphGetRootNodes,
           (cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count), cuGraphGetRootNodes,
           (graph, nodes, count))
RT_FORWARD(cudaGraphGetEdges,
           (cudaGraph_t graph, cudaGraphNode_t *from, cudaGraphNode_t *to,
            cudaGraphEdgeData *edges, size_t *count),
           cuGraphGetEdges_v2, (graph, from, to, edges, count))
RT_FORWARD(cudaGraphNodeGetDependentNodes,
           (cudaGraphNode_t node, cudaGraphNode_t *dependents, cudaGraphEdgeData *edges,
            size_t *count),
           cuGraphNodeGetDependentNodes_v2, (node, dependents, edges, count))
RT_FORWARD(cudaGraphAddDependencies,
           (cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to,
            const cudaGraphEdgeData *edges, size_t count),
           cuGraphAddDependencies_v2, (graph, from, to, edges, count))
RT_FORWARD(cudaGraphRemoveDependencies,
           (cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to,
            const cudaGraphEdgeData *edges, size_t count),
           cuGraphRemoveDependencies_v2, (graph, from, to, edges, count))
RT_FORWARD(cudaGraphDestroyNode, (cudaGraphNode_t node), cuGraphDestroyNode, (node))
RT_FORWARD(cudaGraphNodeFindInClone,
           (cudaGraphNode_t * out, cudaGraphNode_t original, cudaGraph_t clone),
           cuGraphNodeFindInClone, (out, original, clone))
RT_FORWARD(cudaGraphNodeSetEnabled,
           (cudaGraphExec_t exec, cudaGraphNode_t node, unsigned int enabled),
           cuGraphNodeSetEnabled, (exec, node, enabled))
RT_FORWARD(cudaGraphNodeGetEnabled,
           (cudaGraphExec_t exec, cudaGraphNode_t node, unsigned int *enabled),
           cuGraphNodeGetEnabled, (exec, node, enabled))

/* -- kernels: the driver knows them by handle, programs by their host functions -- */

static cudaError_t call_of(const struct cudaKernelNodeParams *given,
                           CUDA_KERNEL_NODE_PARAMS_v2 *out) {
  cudaError_t error = given == NULL ? cudaErrorInvalidValue : rt_enter();
  if (error != cudaSuccess) return error;
  *out = (CUDA_KERNEL_NODE_PARAMS_v2){.gridDimX = given->gridDim.x,
                                      .gridDimY = given->gridDim.y,
                                      .gridDimZ = given->gridDim.z,
                                      .blockDimX = given->blockDim.x,
                                      .blockDimY = given->blockDim.y,
                                      .blockDimZ = given->blockDim.z,
                                      .sharedMemBytes = given->sharedMemBytes,
                                      .kernelParams = given->kernelParams,
                                      .extra = given->extra};
  return rt_kernel_of(given->func, &out->kern);
}

RT_API(cudaGraphAddKernelNode,
       (cudaGraphNode_t * out, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
        size_t count, const struct cudaKernelNodeParams *given)) {
  CUDA_KERNEL_NODE_PARAMS_v2 call;
  return rt_keep(
      call_of(given, &call)
          ?: rt_driver.cuGraphAddKernelNode_v2(out, graph, dependencies, count, &call));
}

RT_API(cudaGraphKernelNodeSetParams,
       (cudaGraphNode_t node, const struct cudaKernelNodeParams *given)) {
  CUDA_KERNEL_NODE_PARAMS_v2 call;
  return rt_keep(call_of(given, &call)
                     ?: rt_driver.cuGraphKernelNodeSetParams_v2(node, &call));
}

RT_API(cudaGraphExecKernelNodeSetParams, (cudaGraphExec_t exec, cudaGraphNode_t node,
                                          const struct cudaKernelNodeParams *given)) {
  CUDA_KERNEL_NODE_PARAMS_v2 call;
  return rt_keep(call_of(given, &call)
                     ?: rt_driver.cuGraphExecKernelNodeSetParams_v2(exec, node, &call));
}

RT_API(cudaGraphKernelNodeGetParams,
       (cudaGraphNode_t node, struct cudaKernelNodeParams *out)) {
  CUDA_KERNEL_NODE_PARAMS_v2 call;
  cudaError_t error = out == NULL ? cudaErrorInvalidValue : rt_enter();
  if (error == cudaSuccess) error = rt_driver.cuGraphKernelNodeGetParams_v2(node, &call);
  if (error != cudaSuccess) return rt_keep(error);
  CUkernel kernel = call.kern != NULL ? call.kern : (CUkernel)(void *)call.func;
  *out = (struct cudaKernelNodeParams){
      .func = rt_function_of(kernel),
      .gridDim = {call.gridDimX, call.gridDimY, call.gridDimZ},
      .blockDim = {call.blockDimX, call.blockDimY, call.blockDimZ},
      .sharedMemBytes = call.sharedMemBytes,
      .kernelParams = call.kernelParams,
      .extra = call.extra};
  return cudaSuccess;
}

/* -- copies -- */

static CUcontext current(void) {
  CUcontext context = NULL;
  rt_driver.cuCtxGetCurrent(&context);
  return context;
}

/* A run of bytes is a box of one row. */
static struct cudaMemcpy3DParms run_of(void *to, const void *from, size_t length_bytes,
                                       int kind) {
  struct cudaMemcpy3DParms box = {.extent = {length_bytes, 1, 1}, .kind = kind};
  box.srcPtr =
      (struct cudaPitchedPtr){rt_pointer(rt_address(from)), length_bytes, length_bytes, 1};
  box.dstPtr = (struct cudaPitchedPtr){to, length_bytes, length_bytes, 1};
  return box;
}

static cudaError_t add_copy(cudaGraphNode_t *out, cudaGraph_t graph,
                            const cudaGraphNode_t *dependencies, size_t count,
                            const struct cudaMemcpy3DParms *given) {
  CUDA_MEMCPY3D box;
  return rt_keep(rt_box_of(given, &box)
                     ?: rt_driver.cuGraphAddMemcpyNode(out, graph, dependencies, count,
                                                       &box, current()));
}

RT_API(cudaGraphAddMemcpyNode,
       (cudaGraphNode_t * out, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
        size_t count, const struct cudaMemcpy3DParms *given)) {
  return add_copy(out, graph, dependencies, count, given);
}

RT_API(cudaGraphAddMemcpyNode1D,
       (cudaGraphNode_t * out, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
        size_t count, void *to, const void *from, size_t length_bytes,
        RT_ENUM(cudaMemcpyKind) kind)) {
  const struct cudaMemcpy3DParms run = run_of(to, from, length_bytes, kind);
  return add_copy(out, graph, dependencies, count, &run);
}

static cudaError_t set_copy(cudaGraphNode_t node, const struct cudaMemcpy3DParms *given) {
  CUDA_MEMCPY3D box;
  return rt_keep(rt_box_of(given, &box)
                     ?: rt_driver.cuGraphMemcpyNodeSetParams(node, &box));
}

RT_API(cudaGraphMemcpyNodeSetParams,
       (cudaGraphNode_t node, const struct cudaMemcpy3DParms *given)) {
  return set_copy(node, given);
}

RT_API(cudaGraphMemcpyNodeSetParams1D,
       (cudaGraphNode_t node, void *to, const void *from, size_t length_bytes,
        RT_ENUM(cudaMemcpyKind) kind)) {
  const struct cudaMemcpy3DParms run = run_of(to, from, length_bytes, kind);
  return set_copy(node, &run);
}

static cudaError_t set_copy_in(cudaGraphExec_t exec, cudaGraphNode_t node,
                               const struct cudaMemcpy3DParms *given) {
  CUDA_MEMCPY3D box;
  return rt_keep(
      rt_box_of(given, &box)
          ?: rt_driver.cuGraphExecMemcpyNodeSetParams(exec, node, &box, current()));
}

RT_API(cudaGraphExecMemcpyNodeSetParams, (cudaGraphExec_t exec, cudaGraphNode_t node,
                                          const struct cudaMemcpy3DParms *given)) {
  return set_copy_in(exec, node, given);
}

RT_API(cudaGraphExecMemcpyNodeSetParams1D,
       (cudaGraphExec_t exec, cudaGraphNode_t node, void *to, const void *from,
        size_t length_bytes, RT_ENUM(cudaMemcpyKind) kind)) {
  const struct cudaMemcpy3DParms run = run_of(to, from, length_bytes, kind);
  return set_copy_in(exec, node, &run);
}

RT_API(cudaGraphMemcpyNodeGetParams,
       (cudaGraphNode_t node, struct cudaMemcpy3DParms *out)) {
  CUDA_MEMCPY3D box;
  cudaError_t error = out == NULL ? cudaErrorInvalidValue : rt_enter();
  if (error == cudaSuccess) error = rt_driver.cuGraphMemcpyNodeGetParams(node, &box);
  return rt_keep(error ?: rt_box_told(&box, out));
}

/* -- sets, host functions -- */

static const CUDA_MEMSET_NODE_PARAMS_v1 *set_of(const struct cudaMemsetParams *given) {
  return (const CUDA_MEMSET_NODE_PARAMS_v1 *)(const void *)given;
}
static const CUDA_HOST_NODE_PARAMS_v1 *host_of(const struct cudaHostNodeParams *given) {
  return (const CUDA_HOST_NODE_PARAMS_v1 *)(const void *)given;
}

RT_FORWARD(cudaGraphAddMemsetNode,
           (cudaGraphNode_t * out, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
            size_t count, const struct cudaMemsetParams *given),
           cuGraphAddMemsetNode,
           (out, graph, dependencies, count, set_of(given), current()))
RT_FORWARD(cudaGraphMemsetNodeGetParams,
           (cudaGraphNode_t node, struct cudaMemsetParams *out), cuGraphMemsetNodeGetParams,
           (node, (CUDA_MEMSET_NODE_PARAMS_v1 *)(void *)out))
RT_FORWARD(cudaGraphMemsetNodeSetParams,
           (cudaGraphNode_t node, const struct cudaMemsetParams *given),
           cuGraphMemsetNodeSetParams, (node, set_of(given)))
RT_FORWARD(cudaGraphExecMemsetNodeSetParams,
           (cudaGraphExec_t exec, cudaGraphNode_t node,
            const struct cudaMemsetParams *given),
           cuGraphExecMemsetNodeSetParams, (exec, node, set_of(given), current()))
RT_FORWARD(cudaGraphAddHostNode,
           (cudaGraphNode_t * out, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
            size_t count, const struct cudaHostNodeParams *given),
           cuGraphAddHostNode, (out, graph, dependencies, count, host_of(given)))
RT_FORWARD(cudaGraphHostNodeGetParams,
           (cudaGraphNode_t node, struct cudaHostNodeParams *out), cuGraphHostNodeGetParams,
           (node, (CUDA_HOST_NODE_PARAMS_v1 *)(void *)out))
RT_FORWARD(cudaGraphHostNodeSetParams,
           (cudaGraphNode_t node, const struct cudaHostNodeParams *given),
           cuGraphHostNodeSetParams, (node, host_of(given)))
RT_FORWARD(cudaGraphExecHostNodeSetParams,
           (cudaGraphExec_t exec, cudaGraphNode_t node,
            const struct cudaHostNodeParams *given),
           cuGraphExecHostNodeSetParams, (exec, node, host_of(given)))

/* -- empty nodes, graphs in graphs, events -- */

RT_FORWARD(cudaGraphAddEmptyNode,
           (cudaGraphNode_t * out, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
            size_t count),
           cuGraphAddEmptyNode, (out, graph, dependencies, count))
RT_FORWARD(cudaGraphAddChildGraphNode,
           (cudaGraphNode_t * out, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
            size_t count, cudaGraph_t child),
           cuGraphAddChildGraphNode, (out, graph, dependencies, count, child))
RT_FORWARD(cudaGraphChildGraphNodeGetGraph, (cudaGraphNode_t node, cudaGraph_t *out),
           cuGraphChildGraphNodeGetGraph, (node, out))
RT_FORWARD(cudaGraphExecChildGraphNodeSetParams,
           (cudaGraphExec_t exec, cudaGraphNode_t node, cudaGraph_t child),
           cuGraphExecChildGraphNodeSetParams, (exec, node, child))
RT_FORWARD(cudaGraphAddEventRecordNode,
           (cudaGraphNode_t * out, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
            size_t count, cudaEvent_t event),
           cuGraphAddEventRecordNode, (out, graph, dependencies, count, event))
RT_FORWARD(cudaGraphEventRecordNodeGetEvent, (cudaGraphNode_t node, cudaEvent_t *out),
           cuGraphEventRecordNodeGetEvent, (node, out))
RT_FORWARD(cudaGraphEventRecordNodeSetEvent, (cudaGraphNode_t node, cudaEvent_t event),
           cuGraphEventRecordNodeSetEvent, (node, event))
RT_FORWARD(cudaGraphExecEventRecordNodeSetEvent,
           (cudaGraphExec_t exec, cudaGraphNode_t node, cudaEvent_t event),
           cuGraphExecEventRecordNodeSetEvent, (exec, node, event))
RT_FORWARD(cudaGraphAddEventWaitNode,
           (cudaGraphNode_t * out, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
            size_t count, cudaEvent_t event),
           cuGraphAddEventWaitNode, (out, graph, dependencies, count, event))
RT_FORWARD(cudaGraphEventWaitNodeGetEvent, (cudaGraphNode_t node, cudaEvent_t *out),
           cuGraphEventWaitNodeGetEvent, (node, out))
RT_FORWARD(cudaGraphEventWaitNodeSetEvent, (cudaGraphNode_t node, cudaEvent_t event),
           cuGraphEventWaitNodeSetEvent, (node, event))
RT_FORWARD(cudaGraphExecEventWaitNodeSetEvent,
           (cudaGraphExec_t exec, cudaGraphNode_t node, cudaEvent_t event),
           cuGraphExecEventWaitNodeSetEvent, (exec, node, event))

/* -- memory of graphs -- */

RT_FORWARD(cudaGraphAddMemAllocNode,
           (cudaGraphNode_t * out, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
            size_t count, struct cudaMemAllocNodeParams *given),
           cuGraphAddMemAllocNode,
           (out, graph, dependencies, count, (CUDA_MEM_ALLOC_NODE_PARAMS *)(void *)given))
RT_FORWARD(cudaGraphMemAllocNodeGetParams,
           (cudaGraphNode_t node, struct cudaMemAllocNodeParams *out),
           cuGraphMemAllocNodeGetParams, (node, (CUDA_MEM_ALLOC_NODE_PARAMS *)(void *)out))
RT_FORWARD(cudaGraphAddMemFreeNode,
           (cudaGraphNode_t * out, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
            size_t count, void *pointer),
           cuGraphAddMemFreeNode, (out, graph, dependencies, count, rt_address(pointer)))
RT_FORWARD(cudaGraphMemFreeNodeGetParams, (cudaGraphNode_t node, void *out),
           cuGraphMemFreeNodeGetParams, (node, (CUdeviceptr *)out))
RT_FORWARD(cudaDeviceGraphMemTrim, (int device), cuDeviceGraphMemTrim, (device))
RT_FORWARD(cudaDeviceGetGraphMemAttribute,
           (int device, RT_ENUM(cudaGraphMemAttributeType) attribute, void *value),
           cuDeviceGetGraphMemAttribute, (device, attribute, value))
RT_FORWARD(cudaDeviceSetGraphMemAttribute,
           (int device, RT_ENUM(cudaGraphMemAttributeType) attribute, void *value),
           cuDeviceSetGraphMemAttribute, (device, attribute, value))

/* -- objects of the program -- */

RT_FORWARD(cudaUserObjectCreate,
           (cudaUserObject_t * out, void *data, cudaHostFn_t destroy,
            unsigned int references, unsigned int flags),
           cuUserObjectCreate, (out, data, destroy, references, flags))
RT_FORWARD(cudaUserObjectRetain, (cudaUserObject_t object, unsigned int count),
           cuUserObjectRetain, (object, count))
RT_FORWARD(cudaUserObjectRelease, (cudaUserObject_t object, unsigned int count),
           cuUserObjectRelease, (object, count))
RT_FORWARD(cudaGraphRetainUserObject,
           (cudaGraph_t graph, cudaUserObject_t object, unsigned int count,
            unsigned int flags),
           cuGraphRetainUserObject, (graph, object, count, flags))
RT_FORWARD(cudaGraphReleaseUserObject,
           (cudaGraph_t graph, cudaUserObject_t object, unsigned int count),
           cuGraphReleaseUserObject, (graph, object, count))
