/* list_graph.h - exported functions: graphs, and captures into them. Part of
 * driver_list.h; no include guard. */

/* ---- graphs and their nodes ---------------------------------------------- */
X(INIT, NONE, cuGraphCreate, cuGraphCreate, 10000, (CUgraph * phGraph, unsigned int flags),
  (phGraph, flags))
X(INIT, NONE, cuGraphDestroy, cuGraphDestroy, 10000, (CUgraph hGraph), (hGraph))
X(INIT, NONE, cuGraphClone, cuGraphClone, 10000,
  (CUgraph * phGraphClone, CUgraph originalGraph), (phGraphClone, originalGraph))
X(INIT, NONE, cuGraphNodeFindInClone, cuGraphNodeFindInClone, 10000,
  (CUgraphNode * phNode, CUgraphNode hOriginalNode, CUgraph hClonedGraph),
  (phNode, hOriginalNode, hClonedGraph))
X(INIT, NONE, cuGraphNodeGetType, cuGraphNodeGetType, 10000, (CUgraphNode hNode, int *type),
  (hNode, type))
X(INIT, NONE, cuGraphDestroyNode, cuGraphDestroyNode, 10000, (CUgraphNode hNode), (hNode))
X(INIT, NONE, cuGraphGetNodes, cuGraphGetNodes, 10000,
  (CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes), (hGraph, nodes, numNodes))
X(INIT, NONE, cuGraphGetRootNodes, cuGraphGetRootNodes, 10000,
  (CUgraph hGraph, CUgraphNode *rootNodes, size_t *numRootNodes),
  (hGraph, rootNodes, numRootNodes))
X(INIT, NONE, cuGraphGetEdges, cuGraphGetEdges, 10000,
  (CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, size_t *numEdges),
  (hGraph, from, to, numEdges))
X(INIT, NONE, cuGraphGetEdges_v2, cuGraphGetEdges, 12030,
  (CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edgeData,
   size_t *numEdges),
  (hGraph, from, to, edgeData, numEdges))
X(INIT, NONE, cuGraphNodeGetDependencies, cuGraphNodeGetDependencies, 10000,
  (CUgraphNode hNode, CUgraphNode *dependencies, size_t *count),
  (hNode, dependencies, count))
X(INIT, NONE, cuGraphNodeGetDependencies_v2, cuGraphNodeGetDependencies, 12030,
  (CUgraphNode hNode, CUgraphNode *dependencies, CUgraphEdgeData *edgeData, size_t *count),
  (hNode, dependencies, edgeData, count))
X(INIT, NONE, cuGraphNodeGetDependentNodes, cuGraphNodeGetDependentNodes, 10000,
  (CUgraphNode hNode, CUgraphNode *dependentNodes, size_t *count),
  (hNode, dependentNodes, count))
X(INIT, NONE, cuGraphNodeGetDependentNodes_v2, cuGraphNodeGetDependentNodes, 12030,
  (CUgraphNode hNode, CUgraphNode *dependentNodes, CUgraphEdgeData *edgeData,
   size_t *count),
  (hNode, dependentNodes, edgeData, count))
X(INIT, NONE, cuGraphAddDependencies, cuGraphAddDependencies, 10000,
  (CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to, size_t numDependencies),
  (hGraph, from, to, numDependencies))
X(INIT, NONE, cuGraphAddDependencies_v2, cuGraphAddDependencies, 12030,
  (CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
   const CUgraphEdgeData *edgeData, size_t numDependencies),
  (hGraph, from, to, edgeData, numDependencies))
X(INIT, NONE, cuGraphRemoveDependencies, cuGraphRemoveDependencies, 10000,
  (CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to, size_t numDependencies),
  (hGraph, from, to, numDependencies))
X(INIT, NONE, cuGraphRemoveDependencies_v2, cuGraphRemoveDependencies, 12030,
  (CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
   const CUgraphEdgeData *edgeData, size_t numDependencies),
  (hGraph, from, to, edgeData, numDependencies))
X(CTX, NONE, cuGraphAddKernelNode, cuGraphAddKernelNode, 10000,
  (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
   size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams),
  (phGraphNode, hGraph, dependencies, numDependencies, nodeParams))
X(CTX, NONE, cuGraphAddKernelNode_v2, cuGraphAddKernelNode, 12000,
  (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
   size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS_v2 *nodeParams),
  (phGraphNode, hGraph, dependencies, numDependencies, nodeParams))
X(CTX, NONE, cuGraphAddMemcpyNode, cuGraphAddMemcpyNode, 10000,
  (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
   size_t numDependencies, const CUDA_MEMCPY3D *copyParams, CUcontext ctx),
  (phGraphNode, hGraph, dependencies, numDependencies, copyParams, ctx))
X(CTX, NONE, cuGraphAddMemsetNode, cuGraphAddMemsetNode, 10000,
  (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
   size_t numDependencies, const CUDA_MEMSET_NODE_PARAMS_v1 *memsetParams, CUcontext ctx),
  (phGraphNode, hGraph, dependencies, numDependencies, memsetParams, ctx))
X(CTX, NONE, cuGraphAddHostNode, cuGraphAddHostNode, 10000,
  (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
   size_t numDependencies, const CUDA_HOST_NODE_PARAMS_v1 *nodeParams),
  (phGraphNode, hGraph, dependencies, numDependencies, nodeParams))
X(CTX, NONE, cuGraphAddChildGraphNode, cuGraphAddChildGraphNode, 10000,
  (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
   size_t numDependencies, CUgraph childGraph),
  (phGraphNode, hGraph, dependencies, numDependencies, childGraph))
X(CTX, NONE, cuGraphAddEmptyNode, cuGraphAddEmptyNode, 10000,
  (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
   size_t numDependencies),
  (phGraphNode, hGraph, dependencies, numDependencies))
X(CTX, NONE, cuGraphAddEventRecordNode, cuGraphAddEventRecordNode, 11010,
  (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
   size_t numDependencies, CUevent event),
  (phGraphNode, hGraph, dependencies, numDependencies, event))
X(CTX, NONE, cuGraphAddEventWaitNode, cuGraphAddEventWaitNode, 11010,
  (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
   size_t numDependencies, CUevent event),
  (phGraphNode, hGraph, dependencies, numDependencies, event))
X(CTX, NONE, cuGraphAddMemAllocNode, cuGraphAddMemAllocNode, 11040,
  (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
   size_t numDependencies, CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams),
  (phGraphNode, hGraph, dependencies, numDependencies, nodeParams))
X(CTX, NONE, cuGraphAddMemFreeNode, cuGraphAddMemFreeNode, 11040,
  (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
   size_t numDependencies, CUdeviceptr dptr),
  (phGraphNode, hGraph, dependencies, numDependencies, dptr))
X(INIT, NONE, cuGraphMemAllocNodeGetParams, cuGraphMemAllocNodeGetParams, 11040,
  (CUgraphNode hNode, CUDA_MEM_ALLOC_NODE_PARAMS *params_out), (hNode, params_out))
X(INIT, NONE, cuGraphMemFreeNodeGetParams, cuGraphMemFreeNodeGetParams, 11040,
  (CUgraphNode hNode, CUdeviceptr *dptr_out), (hNode, dptr_out))
X(INIT, NONE, cuDeviceGraphMemTrim, cuDeviceGraphMemTrim, 11040, (CUdevice device),
  (device))
X(INIT, NONE, cuDeviceGetGraphMemAttribute, cuDeviceGetGraphMemAttribute, 11040,
  (CUdevice device, int attr, void *value), (device, attr, value))
X(INIT, NONE, cuDeviceSetGraphMemAttribute, cuDeviceSetGraphMemAttribute, 11040,
  (CUdevice device, int attr, void *value), (device, attr, value))
X(CTX, NONE, cuGraphAddNode, cuGraphAddNode, 12020,
  (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
   size_t numDependencies, CUgraphNodeParams *nodeParams),
  (phGraphNode, hGraph, dependencies, numDependencies, nodeParams))
X(CTX, NONE, cuGraphAddNode_v2, cuGraphAddNode, 12030,
  (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
   const CUgraphEdgeData *dependencyData, size_t numDependencies,
   CUgraphNodeParams *nodeParams),
  (phGraphNode, hGraph, dependencies, dependencyData, numDependencies, nodeParams))
X(INIT, NONE, cuGraphKernelNodeGetParams, cuGraphKernelNodeGetParams, 10000,
  (CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams), (hNode, nodeParams))
X(INIT, NONE, cuGraphKernelNodeSetParams, cuGraphKernelNodeSetParams, 10000,
  (CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams), (hNode, nodeParams))
X(INIT, NONE, cuGraphKernelNodeGetParams_v2, cuGraphKernelNodeGetParams, 12000,
  (CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS_v2 *nodeParams), (hNode, nodeParams))
X(INIT, NONE, cuGraphKernelNodeSetParams_v2, cuGraphKernelNodeSetParams, 12000,
  (CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS_v2 *nodeParams), (hNode, nodeParams))
X(INIT, NONE, cuGraphMemcpyNodeGetParams, cuGraphMemcpyNodeGetParams, 10000,
  (CUgraphNode hNode, CUDA_MEMCPY3D *nodeParams), (hNode, nodeParams))
X(INIT, NONE, cuGraphMemcpyNodeSetParams, cuGraphMemcpyNodeSetParams, 10000,
  (CUgraphNode hNode, const CUDA_MEMCPY3D *nodeParams), (hNode, nodeParams))
X(INIT, NONE, cuGraphMemsetNodeGetParams, cuGraphMemsetNodeGetParams, 10000,
  (CUgraphNode hNode, CUDA_MEMSET_NODE_PARAMS_v1 *nodeParams), (hNode, nodeParams))
X(INIT, NONE, cuGraphMemsetNodeSetParams, cuGraphMemsetNodeSetParams, 10000,
  (CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS_v1 *nodeParams), (hNode, nodeParams))
X(INIT, NONE, cuGraphHostNodeGetParams, cuGraphHostNodeGetParams, 10000,
  (CUgraphNode hNode, CUDA_HOST_NODE_PARAMS_v1 *nodeParams), (hNode, nodeParams))
X(INIT, NONE, cuGraphHostNodeSetParams, cuGraphHostNodeSetParams, 10000,
  (CUgraphNode hNode, const CUDA_HOST_NODE_PARAMS_v1 *nodeParams), (hNode, nodeParams))
X(INIT, NONE, cuGraphChildGraphNodeGetGraph, cuGraphChildGraphNodeGetGraph, 10000,
  (CUgraphNode hNode, CUgraph *phGraph), (hNode, phGraph))
X(INIT, NONE, cuGraphEventRecordNodeGetEvent, cuGraphEventRecordNodeGetEvent, 11010,
  (CUgraphNode hNode, CUevent *event_out), (hNode, event_out))
X(INIT, NONE, cuGraphEventRecordNodeSetEvent, cuGraphEventRecordNodeSetEvent, 11010,
  (CUgraphNode hNode, CUevent event), (hNode, event))
X(INIT, NONE, cuGraphEventWaitNodeGetEvent, cuGraphEventWaitNodeGetEvent, 11010,
  (CUgraphNode hNode, CUevent *event_out), (hNode, event_out))
X(INIT, NONE, cuGraphEventWaitNodeSetEvent, cuGraphEventWaitNodeSetEvent, 11010,
  (CUgraphNode hNode, CUevent event), (hNode, event))
X(INIT, NONE, cuGraphNodeSetParams, cuGraphNodeSetParams, 12020,
  (CUgraphNode hNode, CUgraphNodeParams *nodeParams), (hNode, nodeParams))

/* ---- executable graphs --------------------------------------------------- */
X(CTX, NONE, cuGraphInstantiate, cuGraphInstantiate, 10000,
  (CUgraphExec * phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode, char *logBuffer,
   size_t bufferSize),
  (phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize))
X(CTX, NONE, cuGraphInstantiate_v2, cuGraphInstantiate, 11000,
  (CUgraphExec * phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode, char *logBuffer,
   size_t bufferSize),
  (phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize))
X(CTX, NONE, cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, 11040,
  (CUgraphExec * phGraphExec, CUgraph hGraph, unsigned long long flags),
  (phGraphExec, hGraph, flags))
X(CTX, EZ, cuGraphInstantiateWithParams, cuGraphInstantiateWithParams, 12000,
  (CUgraphExec * phGraphExec, CUgraph hGraph,
   CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams),
  (stream, phGraphExec, hGraph, instantiateParams))
X(INIT, NONE, cuGraphExecGetFlags, cuGraphExecGetFlags, 12000,
  (CUgraphExec hGraphExec, uint64_t *flags), (hGraphExec, flags))
X(CTX, NONE, cuGraphExecKernelNodeSetParams, cuGraphExecKernelNodeSetParams, 10010,
  (CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams),
  (hGraphExec, hNode, nodeParams))
X(CTX, NONE, cuGraphExecKernelNodeSetParams_v2, cuGraphExecKernelNodeSetParams, 12000,
  (CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS_v2 *nodeParams),
  (hGraphExec, hNode, nodeParams))
X(CTX, NONE, cuGraphExecMemcpyNodeSetParams, cuGraphExecMemcpyNodeSetParams, 10020,
  (CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_MEMCPY3D *copyParams,
   CUcontext ctx),
  (hGraphExec, hNode, copyParams, ctx))
X(CTX, NONE, cuGraphExecMemsetNodeSetParams, cuGraphExecMemsetNodeSetParams, 10020,
  (CUgraphExec hGraphExec, CUgraphNode hNode,
   const CUDA_MEMSET_NODE_PARAMS_v1 *memsetParams, CUcontext ctx),
  (hGraphExec, hNode, memsetParams, ctx))
X(CTX, NONE, cuGraphExecHostNodeSetParams, cuGraphExecHostNodeSetParams, 10020,
  (CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_HOST_NODE_PARAMS_v1 *nodeParams),
  (hGraphExec, hNode, nodeParams))
X(CTX, NONE, cuGraphExecChildGraphNodeSetParams, cuGraphExecChildGraphNodeSetParams, 11010,
  (CUgraphExec hGraphExec, CUgraphNode hNode, CUgraph childGraph),
  (hGraphExec, hNode, childGraph))
X(CTX, NONE, cuGraphExecEventRecordNodeSetEvent, cuGraphExecEventRecordNodeSetEvent, 11010,
  (CUgraphExec hGraphExec, CUgraphNode hNode, CUevent event), (hGraphExec, hNode, event))
X(CTX, NONE, cuGraphExecEventWaitNodeSetEvent, cuGraphExecEventWaitNodeSetEvent, 11010,
  (CUgraphExec hGraphExec, CUgraphNode hNode, CUevent event), (hGraphExec, hNode, event))
X(CTX, NONE, cuGraphExecNodeSetParams, cuGraphExecNodeSetParams, 12020,
  (CUgraphExec hGraphExec, CUgraphNode hNode, CUgraphNodeParams *nodeParams),
  (hGraphExec, hNode, nodeParams))
X(CTX, NONE, cuGraphNodeSetEnabled, cuGraphNodeSetEnabled, 11060,
  (CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int isEnabled),
  (hGraphExec, hNode, isEnabled))
X(CTX, NONE, cuGraphNodeGetEnabled, cuGraphNodeGetEnabled, 11060,
  (CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int *isEnabled),
  (hGraphExec, hNode, isEnabled))
X(CTX, NONE, cuGraphExecUpdate, cuGraphExecUpdate, 10020,
  (CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode *hErrorNode_out,
   int *updateResult_out),
  (hGraphExec, hGraph, hErrorNode_out, updateResult_out))
X(CTX, NONE, cuGraphExecUpdate_v2, cuGraphExecUpdate, 12000,
  (CUgraphExec hGraphExec, CUgraph hGraph, CUgraphExecUpdateResultInfo *resultInfo),
  (hGraphExec, hGraph, resultInfo))
X(CTX, SZ, cuGraphUpload, cuGraphUpload, 11010, (CUgraphExec hGraphExec, CUstream stream),
  (hGraphExec, stream))
X(CTX, SZ, cuGraphLaunch, cuGraphLaunch, 10000, (CUgraphExec hGraphExec, CUstream stream),
  (hGraphExec, stream))
X(INIT, NONE, cuGraphExecDestroy, cuGraphExecDestroy, 10000, (CUgraphExec hGraphExec),
  (hGraphExec))

/* ---- capture ------------------------------------------------------------- */
X(CTX, SZ, cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph, 12030,
  (CUstream stream, CUgraph hGraph, const CUgraphNode *dependencies,
   const CUgraphEdgeData *dependencyData, size_t numDependencies, int mode),
  (stream, hGraph, dependencies, dependencyData, numDependencies, mode))
X(CTX, SZ, cuStreamUpdateCaptureDependencies, cuStreamUpdateCaptureDependencies, 11030,
  (CUstream stream, CUgraphNode *dependencies, size_t numDependencies, unsigned int flags),
  (stream, dependencies, numDependencies, flags))
X(CTX, SZ, cuStreamUpdateCaptureDependencies_v2, cuStreamUpdateCaptureDependencies, 12030,
  (CUstream stream, CUgraphNode *dependencies, const CUgraphEdgeData *dependencyData,
   size_t numDependencies, unsigned int flags),
  (stream, dependencies, dependencyData, numDependencies, flags))
