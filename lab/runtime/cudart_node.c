/* cudart_node.c - graph nodes. Parameters of kernels and copies are converted for the
 * driver; memsets and host functions share its layout. Also attributes of kernel nodes,
 * and functions that accept any kind of node. */
#include "cudart.h"

/* -- kernels: the driver uses handles, programs use host functions -- */

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

/* -- attributes of kernels -- */

RT_FORWARD(cudaGraphKernelNodeGetAttribute,
           (cudaGraphNode_t node, cudaLaunchAttributeID attribute,
            cudaLaunchAttributeValue *out),
           cuGraphKernelNodeGetAttribute, (node, attribute, out))
RT_FORWARD(cudaGraphKernelNodeSetAttribute,
           (cudaGraphNode_t node, cudaLaunchAttributeID attribute,
            const cudaLaunchAttributeValue *value),
           cuGraphKernelNodeSetAttribute, (node, attribute, value))
RT_FORWARD(cudaGraphKernelNodeCopyAttributes, (cudaGraphNode_t to, cudaGraphNode_t from),
           cuGraphKernelNodeCopyAttributes, (to, from))

/* -- copies -- */

static CUcontext current(void) {
  CUcontext context = NULL;
  rt_driver.cuCtxGetCurrent(&context);
  return context;
}

/* Describes a run of bytes as a box of one row. */
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
  return rt_keep(error ?: rt_box_as_parms(&box, out));
}

/* -- copies to and from variables -- */

static cudaError_t run_to_symbol(const void *symbol, const void *from, size_t length_bytes,
                                 size_t offset, int kind, struct cudaMemcpy3DParms *out) {
  void *address;
  if (kind == cudaMemcpyHostToHost || kind == cudaMemcpyDeviceToHost)
    return cudaErrorInvalidMemcpyDirection;
  cudaError_t error = rt_symbol_address(symbol, offset, length_bytes, &address);
  if (error == cudaSuccess) *out = run_of(address, from, length_bytes, kind);
  return error;
}

static cudaError_t run_from_symbol(void *to, const void *symbol, size_t length_bytes,
                                   size_t offset, int kind, struct cudaMemcpy3DParms *out) {
  void *address;
  if (kind == cudaMemcpyHostToHost || kind == cudaMemcpyHostToDevice)
    return cudaErrorInvalidMemcpyDirection;
  cudaError_t error = rt_symbol_address(symbol, offset, length_bytes, &address);
  if (error == cudaSuccess) *out = run_of(to, address, length_bytes, kind);
  return error;
}

RT_API(cudaGraphAddMemcpyNodeToSymbol,
       (cudaGraphNode_t * out, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
        size_t count, const void *symbol, const void *from, size_t length_bytes,
        size_t offset, RT_ENUM(cudaMemcpyKind) kind)) {
  struct cudaMemcpy3DParms run;
  return rt_keep(run_to_symbol(symbol, from, length_bytes, offset, kind, &run)
                     ?: add_copy(out, graph, dependencies, count, &run));
}

RT_API(cudaGraphAddMemcpyNodeFromSymbol,
       (cudaGraphNode_t * out, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
        size_t count, void *to, const void *symbol, size_t length_bytes, size_t offset,
        RT_ENUM(cudaMemcpyKind) kind)) {
  struct cudaMemcpy3DParms run;
  return rt_keep(run_from_symbol(to, symbol, length_bytes, offset, kind, &run)
                     ?: add_copy(out, graph, dependencies, count, &run));
}

RT_API(cudaGraphMemcpyNodeSetParamsToSymbol,
       (cudaGraphNode_t node, const void *symbol, const void *from, size_t length_bytes,
        size_t offset, RT_ENUM(cudaMemcpyKind) kind)) {
  struct cudaMemcpy3DParms run;
  return rt_keep(run_to_symbol(symbol, from, length_bytes, offset, kind, &run)
                     ?: set_copy(node, &run));
}

RT_API(cudaGraphMemcpyNodeSetParamsFromSymbol,
       (cudaGraphNode_t node, void *to, const void *symbol, size_t length_bytes,
        size_t offset, RT_ENUM(cudaMemcpyKind) kind)) {
  struct cudaMemcpy3DParms run;
  return rt_keep(run_from_symbol(to, symbol, length_bytes, offset, kind, &run)
                     ?: set_copy(node, &run));
}

RT_API(cudaGraphExecMemcpyNodeSetParamsToSymbol,
       (cudaGraphExec_t exec, cudaGraphNode_t node, const void *symbol, const void *from,
        size_t length_bytes, size_t offset, RT_ENUM(cudaMemcpyKind) kind)) {
  struct cudaMemcpy3DParms run;
  return rt_keep(run_to_symbol(symbol, from, length_bytes, offset, kind, &run)
                     ?: set_copy_in(exec, node, &run));
}

RT_API(cudaGraphExecMemcpyNodeSetParamsFromSymbol,
       (cudaGraphExec_t exec, cudaGraphNode_t node, void *to, const void *symbol,
        size_t length_bytes, size_t offset, RT_ENUM(cudaMemcpyKind) kind)) {
  struct cudaMemcpy3DParms run;
  return rt_keep(run_from_symbol(to, symbol, length_bytes, offset, kind, &run)
                     ?: set_copy_in(exec, node, &run));
}

/* -- memsets, host functions -- */

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

/* -- nodes of any kind -- */

/* Fills in the kernel's handle from the program's kind of function. */
static cudaError_t handle_of(const struct cudaKernelNodeParamsV2 *given,
                             CUDA_KERNEL_NODE_PARAMS_v2 *out) {
  if (given->functionType == cudaKernelFunctionTypeKernel)
    out->kern = given->func;
  else if (given->functionType == cudaKernelFunctionTypeFunction)
    out->func = given->func;
  else
    return rt_kernel_of(given->func, &out->kern);
  return given->func != NULL ? cudaSuccess : cudaErrorInvalidDeviceFunction;
}

/* Prepares the driver's parameters: converted ones in `own`, or the program's, which the
 * driver then fills in. */
static cudaError_t params_of(struct cudaGraphNodeParams *given, CUgraphNodeParams *own,
                             CUgraphNodeParams **out) {
  cudaError_t error = given == NULL ? cudaErrorInvalidValue : rt_enter();
  if (error != cudaSuccess) return error;
  *out = own;
  *own = (CUgraphNodeParams){.type = given->type};
  if (given->type == CU_GRAPH_NODE_TYPE_KERNEL) {
    const struct cudaKernelNodeParamsV2 *kernel = &given->kernel;
    own->kernel = (CUDA_KERNEL_NODE_PARAMS_v2){.gridDimX = kernel->gridDim.x,
                                               .gridDimY = kernel->gridDim.y,
                                               .gridDimZ = kernel->gridDim.z,
                                               .blockDimX = kernel->blockDim.x,
                                               .blockDimY = kernel->blockDim.y,
                                               .blockDimZ = kernel->blockDim.z,
                                               .sharedMemBytes = kernel->sharedMemBytes,
                                               .kernelParams = kernel->kernelParams,
                                               .extra = kernel->extra};
    return handle_of(kernel, &own->kernel);
  }
  if (given->type == CU_GRAPH_NODE_TYPE_MEMCPY)
    return rt_box_of(&given->memcpy.copyParams, &own->memcpy.copyParams);
  *out = (CUgraphNodeParams *)(void *)given;
  return cudaSuccess;
}

RT_API(cudaGraphAddNode,
       (cudaGraphNode_t * out, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
        const cudaGraphEdgeData *edges, size_t count, struct cudaGraphNodeParams *given)) {
  CUgraphNodeParams own, *params;
  return rt_keep(
      params_of(given, &own, &params)
          ?: rt_driver.cuGraphAddNode_v2(out, graph, dependencies, edges, count, params));
}

RT_API(cudaGraphNodeSetParams, (cudaGraphNode_t node, struct cudaGraphNodeParams *given)) {
  CUgraphNodeParams own, *params;
  return rt_keep(params_of(given, &own, &params)
                     ?: rt_driver.cuGraphNodeSetParams(node, params));
}

RT_API(cudaGraphExecNodeSetParams,
       (cudaGraphExec_t exec, cudaGraphNode_t node, struct cudaGraphNodeParams *given)) {
  CUgraphNodeParams own, *params;
  return rt_keep(params_of(given, &own, &params)
                     ?: rt_driver.cuGraphExecNodeSetParams(exec, node, params));
}
