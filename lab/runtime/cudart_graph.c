/* cudart_graph.c - graphs: structure and executable forms, and objects of a program that
 * graphs keep alive. Also the nodes whose parameters the driver takes unchanged (events,
 * child graphs, memory); cudart_node.c has the others.
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

/* -- structure -- */

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
