/* hook_list_graph.h - hooks of executable graphs, and what is asked of graphs. Part of
 * hook_list.h, whose macros and rules it uses; no include guard.
 *
 * Graphs themselves are not followed: they are read where they are instantiated
 * (observe_graph_read.c).
 */

/* clang-format off */

/* ---- executable graphs ---------------------------------------------------- */
PUMP_HOOK(cuGraphInstantiate, cuGraphInstantiate_v10000,
          (CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log,
           size_t log_bytes),
          (exec, graph, error_node, log, log_bytes))
PUMP_HOOK(cuGraphInstantiate_v2, cuGraphInstantiate_v11000,
          (CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log,
           size_t log_bytes),
          (exec, graph, error_node, log, log_bytes))
PUMP_HOOK(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags_v11040,
          (CUgraphExec *exec, CUgraph graph, unsigned long long flags), (exec, graph, flags))
PUMP_TWINS(cuGraphInstantiateWithParams, _ptsz, cuGraphInstantiateWithParams_v12000,
           cuGraphInstantiateWithParams_v12000_ptsz,
           (CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params),
           (exec, graph, params))
PUMP_HOOK(cuGraphExecUpdate, cuGraphExecUpdate_v10020,
          (CUgraphExec exec, CUgraph graph, CUgraphNode *error_node,
           CUgraphExecUpdateResult *update_result),
          (exec, graph, error_node, update_result))
PUMP_HOOK(cuGraphExecUpdate_v2, cuGraphExecUpdate_v12000,
          (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info),
          (exec, graph, info))
PUMP_HOOK(cuGraphExecKernelNodeSetParams, cuGraphExecKernelNodeSetParams_v10010,
          (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *params),
          (exec, node, params))
PUMP_HOOK(cuGraphExecKernelNodeSetParams_v2, cuGraphExecKernelNodeSetParams_v12000,
          (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v2 *params),
          (exec, node, params))
PUMP_HOOK(cuGraphExecMemcpyNodeSetParams, cuGraphExecMemcpyNodeSetParams_v10020,
          (CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *copy, CUcontext context),
          (exec, node, copy, context))
PUMP_HOOK(cuGraphExecMemsetNodeSetParams, cuGraphExecMemsetNodeSetParams_v10020,
          (CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS_v1 *set,
           CUcontext context),
          (exec, node, set, context))
PUMP_HOOK(cuGraphExecChildGraphNodeSetParams, cuGraphExecChildGraphNodeSetParams_v11010,
          (CUgraphExec exec, CUgraphNode node, CUgraph child), (exec, node, child))
PUMP_HOOK(cuGraphExecNodeSetParams, cuGraphExecNodeSetParams_v12020,
          (CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params),
          (exec, node, params))
PUMP_HOOK(cuGraphExecEventRecordNodeSetEvent, cuGraphExecEventRecordNodeSetEvent_v11010,
          (CUgraphExec exec, CUgraphNode node, CUevent event), (exec, node, event))
PUMP_HOOK(cuGraphNodeSetEnabled, cuGraphNodeSetEnabled_v11060,
          (CUgraphExec exec, CUgraphNode node, unsigned int enabled), (exec, node, enabled))
PUMP_TWINS(cuGraphLaunch, _ptsz, cuGraphLaunch_v10000, cuGraphLaunch_v10000_ptsz,
           (CUgraphExec exec, CUstream stream), (exec, stream))
PUMP_TWINS(cuGraphUpload, _ptsz, cuGraphUpload_v11010, cuGraphUpload_v11010_ptsz,
           (CUgraphExec exec, CUstream stream), (exec, stream))
PUMP_HOOK(cuDeviceGraphMemTrim, cuDeviceGraphMemTrim_v11040, (CUdevice device), (device))
PUMP_HOOK(cuGraphExecDestroy, cuGraphExecDestroy_v10000, (CUgraphExec exec), (exec))

/* ---- called, not hooked --------------------------------------------------- */
PUMP_CALL(cuGraphGetNodes, cuGraphGetNodes_v10000,
          (CUgraph graph, CUgraphNode *nodes, size_t *count))
PUMP_CALL(cuGraphEventRecordNodeGetEvent, cuGraphEventRecordNodeGetEvent_v11010,
          (CUgraphNode node, CUevent *event))
PUMP_CALL(cuGraphGetEdges, cuGraphGetEdges_v10000,
          (CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count))
PUMP_CALL(cuGraphGetEdges_v2, cuGraphGetEdges_v12030,
          (CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data,
           size_t *count))
PUMP_CALL(cuGraphNodeGetType, cuGraphNodeGetType_v10000,
          (CUgraphNode node, CUgraphNodeType *type))
PUMP_CALL(cuGraphKernelNodeGetParams, cuGraphKernelNodeGetParams_v10000,
          (CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *params))
PUMP_CALL(cuGraphKernelNodeGetParams_v2, cuGraphKernelNodeGetParams_v12000,
          (CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v2 *params))
PUMP_CALL(cuGraphMemcpyNodeGetParams, cuGraphMemcpyNodeGetParams_v10000,
          (CUgraphNode node, CUDA_MEMCPY3D *copy))
PUMP_CALL(cuGraphMemsetNodeGetParams, cuGraphMemsetNodeGetParams_v10000,
          (CUgraphNode node, CUDA_MEMSET_NODE_PARAMS_v1 *set))
PUMP_CALL(cuGraphChildGraphNodeGetGraph, cuGraphChildGraphNodeGetGraph_v10000,
          (CUgraphNode node, CUgraph *graph))
PUMP_CALL(cuDeviceGetGraphMemAttribute, cuDeviceGetGraphMemAttribute_v11040,
          (CUdevice device, CUgraphMem_attribute attribute, void *value))

/* clang-format on */
