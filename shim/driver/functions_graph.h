/* functions_graph.h - part of functions.h: graphs. */

/* clang-format off */
PUMP_DRIVER(NO, INIT, NONE, cuGraphCreate, cuGraphCreate, 10000, 0,
            (CUgraph *phGraph, unsigned int flags), (phGraph, flags))
PUMP_DRIVER(NO, INIT, NONE, cuGraphDestroy, cuGraphDestroy, 10000, 0, (CUgraph hGraph), (hGraph))
PUMP_DRIVER(NO, INIT, NONE, cuGraphClone, cuGraphClone, 10000, 0,
            (CUgraph *phGraphClone, CUgraph originalGraph), (phGraphClone, originalGraph))
PUMP_DRIVER(NO, INIT, NONE, cuGraphNodeFindInClone, cuGraphNodeFindInClone, 10000, 0,
            (CUgraphNode *phNode, CUgraphNode hOriginalNode, CUgraph hClonedGraph),
            (phNode, hOriginalNode, hClonedGraph))
PUMP_DRIVER(CALL, INIT, NONE, cuGraphNodeGetType, cuGraphNodeGetType, 10000, 0,
            (CUgraphNode node, CUgraphNodeType *type), (node, type))
PUMP_DRIVER(NO, INIT, NONE, cuGraphDestroyNode, cuGraphDestroyNode, 10000, 0,
            (CUgraphNode hNode), (hNode))
PUMP_DRIVER(CALL, INIT, NONE, cuGraphGetNodes, cuGraphGetNodes, 10000, 0,
            (CUgraph graph, CUgraphNode *nodes, size_t *count), (graph, nodes, count))
PUMP_DRIVER(NO, INIT, NONE, cuGraphGetRootNodes, cuGraphGetRootNodes, 10000, 0,
            (CUgraph hGraph, CUgraphNode *rootNodes, size_t *numRootNodes),
            (hGraph, rootNodes, numRootNodes))
PUMP_DRIVER(CALL, INIT, NONE, cuGraphGetEdges, cuGraphGetEdges, 10000, 0,
            (CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count),
            (graph, from, to, count))
PUMP_DRIVER(CALL, INIT, NONE, cuGraphGetEdges_v2, cuGraphGetEdges, 12030, 0,
            (CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data, size_t
             *count),
            (graph, from, to, data, count))
PUMP_DRIVER(NO, INIT, NONE, cuGraphNodeGetDependencies, cuGraphNodeGetDependencies, 10000, 0,
            (CUgraphNode hNode, CUgraphNode *dependencies, size_t *count),
            (hNode, dependencies, count))
PUMP_DRIVER(NO, INIT, NONE, cuGraphNodeGetDependencies_v2, cuGraphNodeGetDependencies, 12030, 0,
            (CUgraphNode hNode, CUgraphNode *dependencies, CUgraphEdgeData *edgeData, size_t
             *count),
            (hNode, dependencies, edgeData, count))
PUMP_DRIVER(NO, INIT, NONE, cuGraphNodeGetDependentNodes, cuGraphNodeGetDependentNodes, 10000, 0,
            (CUgraphNode hNode, CUgraphNode *dependentNodes, size_t *count),
            (hNode, dependentNodes, count))
PUMP_DRIVER(NO, INIT, NONE, cuGraphNodeGetDependentNodes_v2, cuGraphNodeGetDependentNodes, 12030, 0,
            (CUgraphNode hNode, CUgraphNode *dependentNodes, CUgraphEdgeData *edgeData, size_t
             *count),
            (hNode, dependentNodes, edgeData, count))
PUMP_DRIVER(NO, INIT, NONE, cuGraphAddDependencies, cuGraphAddDependencies, 10000, 0,
            (CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to, size_t
             numDependencies),
            (hGraph, from, to, numDependencies))
PUMP_DRIVER(NO, INIT, NONE, cuGraphAddDependencies_v2, cuGraphAddDependencies, 12030, 0,
            (CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData
             *edgeData, size_t numDependencies),
            (hGraph, from, to, edgeData, numDependencies))
PUMP_DRIVER(NO, INIT, NONE, cuGraphRemoveDependencies, cuGraphRemoveDependencies, 10000, 0,
            (CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to, size_t
             numDependencies),
            (hGraph, from, to, numDependencies))
PUMP_DRIVER(NO, INIT, NONE, cuGraphRemoveDependencies_v2, cuGraphRemoveDependencies, 12030, 0,
            (CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData
             *edgeData, size_t numDependencies),
            (hGraph, from, to, edgeData, numDependencies))
PUMP_DRIVER(NO, CTX, NONE, cuGraphAddKernelNode, cuGraphAddKernelNode, 10000, 0,
            (CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t
             numDependencies, const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams),
            (phGraphNode, hGraph, dependencies, numDependencies, nodeParams))
PUMP_DRIVER(NO, CTX, NONE, cuGraphAddKernelNode_v2, cuGraphAddKernelNode, 12000, 0,
            (CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t
             numDependencies, const CUDA_KERNEL_NODE_PARAMS_v2 *nodeParams),
            (phGraphNode, hGraph, dependencies, numDependencies, nodeParams))
PUMP_DRIVER(NO, CTX, NONE, cuGraphAddMemcpyNode, cuGraphAddMemcpyNode, 10000, 0,
            (CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t
             numDependencies, const CUDA_MEMCPY3D *copyParams, CUcontext ctx),
            (phGraphNode, hGraph, dependencies, numDependencies, copyParams, ctx))
PUMP_DRIVER(NO, CTX, NONE, cuGraphAddMemsetNode, cuGraphAddMemsetNode, 10000, 0,
            (CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t
             numDependencies, const CUDA_MEMSET_NODE_PARAMS_v1 *memsetParams, CUcontext ctx),
            (phGraphNode, hGraph, dependencies, numDependencies, memsetParams, ctx))
PUMP_DRIVER(NO, CTX, NONE, cuGraphAddHostNode, cuGraphAddHostNode, 10000, 0,
            (CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t
             numDependencies, const CUDA_HOST_NODE_PARAMS_v1 *nodeParams),
            (phGraphNode, hGraph, dependencies, numDependencies, nodeParams))
PUMP_DRIVER(NO, CTX, NONE, cuGraphAddChildGraphNode, cuGraphAddChildGraphNode, 10000, 0,
            (CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t
             numDependencies, CUgraph childGraph),
            (phGraphNode, hGraph, dependencies, numDependencies, childGraph))
PUMP_DRIVER(NO, CTX, NONE, cuGraphAddEmptyNode, cuGraphAddEmptyNode, 10000, 0,
            (CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t
             numDependencies),
            (phGraphNode, hGraph, dependencies, numDependencies))
PUMP_DRIVER(NO, CTX, NONE, cuGraphAddEventRecordNode, cuGraphAddEventRecordNode, 11010, 0,
            (CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t
             numDependencies, CUevent event),
            (phGraphNode, hGraph, dependencies, numDependencies, event))
PUMP_DRIVER(NO, CTX, NONE, cuGraphAddEventWaitNode, cuGraphAddEventWaitNode, 11010, 0,
            (CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t
             numDependencies, CUevent event),
            (phGraphNode, hGraph, dependencies, numDependencies, event))
PUMP_DRIVER(NO, CTX, NONE, cuGraphAddMemAllocNode, cuGraphAddMemAllocNode, 11040, 0,
            (CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t
             numDependencies, CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams),
            (phGraphNode, hGraph, dependencies, numDependencies, nodeParams))
PUMP_DRIVER(NO, CTX, NONE, cuGraphAddMemFreeNode, cuGraphAddMemFreeNode, 11040, 0,
            (CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t
             numDependencies, CUdeviceptr dptr),
            (phGraphNode, hGraph, dependencies, numDependencies, dptr))
PUMP_DRIVER(NO, INIT, NONE, cuGraphMemAllocNodeGetParams, cuGraphMemAllocNodeGetParams, 11040, 0,
            (CUgraphNode hNode, CUDA_MEM_ALLOC_NODE_PARAMS *params_out), (hNode, params_out))
PUMP_DRIVER(NO, INIT, NONE, cuGraphMemFreeNodeGetParams, cuGraphMemFreeNodeGetParams, 11040, 0,
            (CUgraphNode hNode, CUdeviceptr *dptr_out), (hNode, dptr_out))
PUMP_DRIVER(HOOK, INIT, NONE, cuDeviceGraphMemTrim, cuDeviceGraphMemTrim, 11040, 0,
            (CUdevice device), (device))
PUMP_DRIVER(CALL, INIT, NONE, cuDeviceGetGraphMemAttribute, cuDeviceGetGraphMemAttribute, 11040, 0,
            (CUdevice device, CUgraphMem_attribute attribute, void *value),
            (device, attribute, value))
PUMP_DRIVER(NO, INIT, NONE, cuDeviceSetGraphMemAttribute, cuDeviceSetGraphMemAttribute, 11040, 0,
            (CUdevice device, CUgraphMem_attribute attr, void *value), (device, attr, value))
PUMP_DRIVER(NO, CTX, NONE, cuGraphAddNode, cuGraphAddNode, 12020, 0,
            (CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t
             numDependencies, CUgraphNodeParams *nodeParams),
            (phGraphNode, hGraph, dependencies, numDependencies, nodeParams))
PUMP_DRIVER(NO, CTX, NONE, cuGraphAddNode_v2, cuGraphAddNode, 12030, 0,
            (CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, const
             CUgraphEdgeData *dependencyData, size_t numDependencies, CUgraphNodeParams
             *nodeParams),
            (phGraphNode, hGraph, dependencies, dependencyData, numDependencies, nodeParams))
PUMP_DRIVER(NO, CTX, NONE, cuGraphAddNode_v3, cuGraphAddNode, 13040, 0,
            (CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, const
             CUgraphEdgeData *dependencyData, size_t numDependencies, CUgraphNodeParams
             *nodeParams),
            (phGraphNode, hGraph, dependencies, dependencyData, numDependencies, nodeParams))
PUMP_DRIVER(CALL, INIT, NONE, cuGraphKernelNodeGetParams, cuGraphKernelNodeGetParams, 10000, 0,
            (CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *params), (node, params))
PUMP_DRIVER(NO, INIT, NONE, cuGraphKernelNodeSetParams, cuGraphKernelNodeSetParams, 10000, 0,
            (CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams), (hNode, nodeParams))
PUMP_DRIVER(CALL, INIT, NONE, cuGraphKernelNodeGetParams_v2, cuGraphKernelNodeGetParams, 12000, 0,
            (CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v2 *params), (node, params))
PUMP_DRIVER(NO, INIT, NONE, cuGraphKernelNodeSetParams_v2, cuGraphKernelNodeSetParams, 12000, 0,
            (CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS_v2 *nodeParams), (hNode, nodeParams))
PUMP_DRIVER(NO, INIT, NONE, cuGraphKernelNodeGetAttribute, cuGraphKernelNodeGetAttribute, 11000, 0,
            (CUgraphNode hNode, CUkernelNodeAttrID attr, CUkernelNodeAttrValue *value_out),
            (hNode, attr, value_out))
PUMP_DRIVER(NO, INIT, NONE, cuGraphKernelNodeSetAttribute, cuGraphKernelNodeSetAttribute, 11000, 0,
            (CUgraphNode hNode, CUkernelNodeAttrID attr, const CUkernelNodeAttrValue *value),
            (hNode, attr, value))
PUMP_DRIVER(NO, INIT, NONE, cuGraphKernelNodeCopyAttributes, cuGraphKernelNodeCopyAttributes, 11000, 0,
            (CUgraphNode dst, CUgraphNode src), (dst, src))
PUMP_DRIVER(CALL, INIT, NONE, cuGraphMemcpyNodeGetParams, cuGraphMemcpyNodeGetParams, 10000, 0,
            (CUgraphNode node, CUDA_MEMCPY3D *copy), (node, copy))
PUMP_DRIVER(NO, INIT, NONE, cuGraphMemcpyNodeSetParams, cuGraphMemcpyNodeSetParams, 10000, 0,
            (CUgraphNode hNode, const CUDA_MEMCPY3D *nodeParams), (hNode, nodeParams))
PUMP_DRIVER(CALL, INIT, NONE, cuGraphMemsetNodeGetParams, cuGraphMemsetNodeGetParams, 10000, 0,
            (CUgraphNode node, CUDA_MEMSET_NODE_PARAMS_v1 *set), (node, set))
PUMP_DRIVER(NO, INIT, NONE, cuGraphMemsetNodeSetParams, cuGraphMemsetNodeSetParams, 10000, 0,
            (CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS_v1 *nodeParams), (hNode, nodeParams))
PUMP_DRIVER(NO, INIT, NONE, cuGraphHostNodeGetParams, cuGraphHostNodeGetParams, 10000, 0,
            (CUgraphNode hNode, CUDA_HOST_NODE_PARAMS_v1 *nodeParams), (hNode, nodeParams))
PUMP_DRIVER(NO, INIT, NONE, cuGraphHostNodeSetParams, cuGraphHostNodeSetParams, 10000, 0,
            (CUgraphNode hNode, const CUDA_HOST_NODE_PARAMS_v1 *nodeParams), (hNode, nodeParams))
PUMP_DRIVER(CALL, INIT, NONE, cuGraphChildGraphNodeGetGraph, cuGraphChildGraphNodeGetGraph, 10000, 0,
            (CUgraphNode node, CUgraph *graph), (node, graph))
PUMP_DRIVER(CALL, INIT, NONE, cuGraphEventRecordNodeGetEvent, cuGraphEventRecordNodeGetEvent, 11010, 0,
            (CUgraphNode node, CUevent *event), (node, event))
PUMP_DRIVER(NO, INIT, NONE, cuGraphEventRecordNodeSetEvent, cuGraphEventRecordNodeSetEvent, 11010, 0,
            (CUgraphNode hNode, CUevent event), (hNode, event))
PUMP_DRIVER(NO, INIT, NONE, cuGraphEventWaitNodeGetEvent, cuGraphEventWaitNodeGetEvent, 11010, 0,
            (CUgraphNode hNode, CUevent *event_out), (hNode, event_out))
PUMP_DRIVER(NO, INIT, NONE, cuGraphEventWaitNodeSetEvent, cuGraphEventWaitNodeSetEvent, 11010, 0,
            (CUgraphNode hNode, CUevent event), (hNode, event))
PUMP_DRIVER(NO, INIT, NONE, cuGraphNodeSetParams, cuGraphNodeSetParams, 12020, 0,
            (CUgraphNode hNode, CUgraphNodeParams *nodeParams), (hNode, nodeParams))
PUMP_DRIVER(NO, INIT, NONE, cuGraphNodeSetParams_v2, cuGraphNodeSetParams, 13040, 0,
            (CUgraphNode hNode, CUgraphNodeParams *nodeParams), (hNode, nodeParams))
PUMP_DRIVER(HOOK, CTX, NONE, cuGraphInstantiate, cuGraphInstantiate, 10000, 0,
            (CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log, size_t
             log_bytes),
            (exec, graph, error_node, log, log_bytes))
PUMP_DRIVER(HOOK, CTX, NONE, cuGraphInstantiate_v2, cuGraphInstantiate, 11000, 0,
            (CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log, size_t
             log_bytes),
            (exec, graph, error_node, log, log_bytes))
PUMP_DRIVER(HOOK, CTX, NONE, cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, 11040, 0,
            (CUgraphExec *exec, CUgraph graph, unsigned long long flags), (exec, graph, flags))
PUMP_DRIVER(HOOK, CTX, EZ, cuGraphInstantiateWithParams, cuGraphInstantiateWithParams, 12000, 12000,
            (CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params),
            (exec, graph, params))
PUMP_DRIVER(NO, INIT, NONE, cuGraphExecGetFlags, cuGraphExecGetFlags, 12000, 0,
            (CUgraphExec hGraphExec, uint64_t *flags), (hGraphExec, flags))
PUMP_DRIVER(HOOK, CTX, NONE, cuGraphExecKernelNodeSetParams, cuGraphExecKernelNodeSetParams, 10010, 0,
            (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *params),
            (exec, node, params))
PUMP_DRIVER(HOOK, CTX, NONE, cuGraphExecKernelNodeSetParams_v2, cuGraphExecKernelNodeSetParams, 12000, 0,
            (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v2 *params),
            (exec, node, params))
PUMP_DRIVER(HOOK, CTX, NONE, cuGraphExecMemcpyNodeSetParams, cuGraphExecMemcpyNodeSetParams, 10020, 0,
            (CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *copy, CUcontext context),
            (exec, node, copy, context))
PUMP_DRIVER(HOOK, CTX, NONE, cuGraphExecMemsetNodeSetParams, cuGraphExecMemsetNodeSetParams, 10020, 0,
            (CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS_v1 *set, CUcontext
             context),
            (exec, node, set, context))
PUMP_DRIVER(NO, CTX, NONE, cuGraphExecHostNodeSetParams, cuGraphExecHostNodeSetParams, 10020, 0,
            (CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_HOST_NODE_PARAMS_v1
             *nodeParams),
            (hGraphExec, hNode, nodeParams))
PUMP_DRIVER(HOOK, CTX, NONE, cuGraphExecChildGraphNodeSetParams, cuGraphExecChildGraphNodeSetParams, 11010, 0,
            (CUgraphExec exec, CUgraphNode node, CUgraph child), (exec, node, child))
PUMP_DRIVER(HOOK, CTX, NONE, cuGraphExecEventRecordNodeSetEvent, cuGraphExecEventRecordNodeSetEvent, 11010, 0,
            (CUgraphExec exec, CUgraphNode node, CUevent event), (exec, node, event))
PUMP_DRIVER(NO, CTX, NONE, cuGraphExecEventWaitNodeSetEvent, cuGraphExecEventWaitNodeSetEvent, 11010, 0,
            (CUgraphExec hGraphExec, CUgraphNode hNode, CUevent event), (hGraphExec, hNode, event))
PUMP_DRIVER(HOOK, CTX, NONE, cuGraphExecNodeSetParams, cuGraphExecNodeSetParams, 12020, 0,
            (CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params), (exec, node, params))
PUMP_DRIVER(HOOK, CTX, NONE, cuGraphNodeSetEnabled, cuGraphNodeSetEnabled, 11060, 0,
            (CUgraphExec exec, CUgraphNode node, unsigned int enabled), (exec, node, enabled))
PUMP_DRIVER(NO, CTX, NONE, cuGraphNodeGetEnabled, cuGraphNodeGetEnabled, 11060, 0,
            (CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int *isEnabled),
            (hGraphExec, hNode, isEnabled))
PUMP_DRIVER(HOOK, CTX, NONE, cuGraphExecUpdate, cuGraphExecUpdate, 10020, 0,
            (CUgraphExec exec, CUgraph graph, CUgraphNode *error_node, CUgraphExecUpdateResult
             *update_result),
            (exec, graph, error_node, update_result))
PUMP_DRIVER(HOOK, CTX, NONE, cuGraphExecUpdate_v2, cuGraphExecUpdate, 12000, 0,
            (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info),
            (exec, graph, info))
PUMP_DRIVER(HOOK, CTX, SZ, cuGraphUpload, cuGraphUpload, 11010, 11010,
            (CUgraphExec exec, CUstream stream), (exec, stream))
PUMP_DRIVER(HOOK, CTX, SZ, cuGraphLaunch, cuGraphLaunch, 10000, 10000,
            (CUgraphExec exec, CUstream stream), (exec, stream))
PUMP_DRIVER(HOOK, INIT, NONE, cuGraphExecDestroy, cuGraphExecDestroy, 10000, 0,
            (CUgraphExec exec), (exec))
PUMP_DRIVER(HOOK, CTX, SZ, cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph, 12030, 12030,
            (CUstream stream, CUgraph graph, const CUgraphNode *dependencies, const CUgraphEdgeData
             *edges, size_t count, CUstreamCaptureMode mode),
            (stream, graph, dependencies, edges, count, mode))
PUMP_DRIVER(NO, CTX, SZ, cuStreamUpdateCaptureDependencies, cuStreamUpdateCaptureDependencies, 11030, 11030,
            (CUstream stream, CUgraphNode *dependencies, size_t numDependencies, unsigned int
             flags),
            (stream, dependencies, numDependencies, flags))
PUMP_DRIVER(NO, CTX, SZ, cuStreamUpdateCaptureDependencies_v2, cuStreamUpdateCaptureDependencies, 12030, 12030,
            (CUstream stream, CUgraphNode *dependencies, const CUgraphEdgeData *dependencyData,
             size_t numDependencies, unsigned int flags),
            (stream, dependencies, dependencyData, numDependencies, flags))
PUMP_DRIVER(NO, INIT, NONE, cuUserObjectCreate, cuUserObjectCreate, 11030, 0,
            (CUuserObject *object, void *data, CUhostFn destroy, unsigned int references, unsigned
             int flags),
            (object, data, destroy, references, flags))
PUMP_DRIVER(NO, INIT, NONE, cuUserObjectRetain, cuUserObjectRetain, 11030, 0,
            (CUuserObject object, unsigned int count), (object, count))
PUMP_DRIVER(NO, INIT, NONE, cuUserObjectRelease, cuUserObjectRelease, 11030, 0,
            (CUuserObject object, unsigned int count), (object, count))
PUMP_DRIVER(NO, INIT, NONE, cuGraphRetainUserObject, cuGraphRetainUserObject, 11030, 0,
            (CUgraph graph, CUuserObject object, unsigned int count, unsigned int flags),
            (graph, object, count, flags))
PUMP_DRIVER(NO, INIT, NONE, cuGraphReleaseUserObject, cuGraphReleaseUserObject, 11030, 0,
            (CUgraph graph, CUuserObject object, unsigned int count), (graph, object, count))
/* clang-format on */
