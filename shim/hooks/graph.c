/* graph.c - hooks of executable graphs (record/graph_execs.c).
 *
 * A launch into a capturing stream is not an operation: it becomes a child of the
 * captured graph.
 */
#include <string.h>

#include "shim/record/graph_nodes.h"

/* ---- launches ------------------------------------------------------------------ */

#define HOOK_LAUNCH(name, per_thread)                                                      \
  CUresult name(CUgraphExec exec, CUstream stream) {                                       \
    bool quiet = pump_quiet();                                                             \
    if (!quiet) pump_op_begin_timing(pump_at(stream, per_thread), true);                   \
    CUresult result = pump_real.name(exec, stream);                                        \
    if (PUMP_UNLIKELY(PUMP_LOAD(&pump_graphs_allocating) != 0) && !pump_inert())           \
      pump_graph_count_memory(exec);                                                       \
    if (!quiet && result == CUDA_SUCCESS)                                                  \
      pump_graph_launched(exec, pump_at(stream, per_thread));                              \
    pump_op_end_timing();                                                                  \
    return result;                                                                         \
  }

HOOK_LAUNCH(cuGraphLaunch, false)
HOOK_LAUNCH(cuGraphLaunch_ptsz, true)

/* An upload may allocate the graph's memory before its first launch. */
#define HOOK_UPLOAD(name)                                                                  \
  CUresult name(CUgraphExec exec, CUstream stream) {                                       \
    CUresult result = pump_real.name(exec, stream);                                        \
    if (PUMP_UNLIKELY(PUMP_LOAD(&pump_graphs_allocating) != 0) && !pump_inert())           \
      pump_graph_memory_refresh();                                                         \
    return result;                                                                         \
  }

HOOK_UPLOAD(cuGraphUpload)
HOOK_UPLOAD(cuGraphUpload_ptsz)

/* Releases the graphs' idle memory. Afterwards each graph allocates its memory again. */
CUresult cuDeviceGraphMemTrim(CUdevice device) {
  CUresult result = pump_real.cuDeviceGraphMemTrim(device);
  if (result != CUDA_SUCCESS || pump_inert()) return result;
  PUMP_ADD(&pump_graph_memory_era, 1);
  pump_graph_memory_count(device);
  return result;
}

/* ---- creation and destruction ---------------------------------------------------- */

#define HOOK_INSTANTIATE(name, parameters, arguments)                                      \
  CUresult name parameters {                                                               \
    CUresult result = pump_real.name arguments;                                            \
    if (result == CUDA_SUCCESS && !pump_inert()) pump_graph_instantiated(*exec, graph);    \
    return result;                                                                         \
  }

#define INSTANTIATE                                                                        \
  (CUgraphExec * exec, CUgraph graph, CUgraphNode * error_node, char *log, size_t log_bytes)
#define INSTANTIATE_PARAMS                                                                 \
  (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS * params)
HOOK_INSTANTIATE(cuGraphInstantiate, INSTANTIATE, (exec, graph, error_node, log, log_bytes))
HOOK_INSTANTIATE(cuGraphInstantiate_v2, INSTANTIATE,
                 (exec, graph, error_node, log, log_bytes))
HOOK_INSTANTIATE(cuGraphInstantiateWithFlags,
                 (CUgraphExec * exec, CUgraph graph, unsigned long long flags),
                 (exec, graph, flags))
HOOK_INSTANTIATE(cuGraphInstantiateWithParams, INSTANTIATE_PARAMS, (exec, graph, params))
HOOK_INSTANTIATE(cuGraphInstantiateWithParams_ptsz, INSTANTIATE_PARAMS,
                 (exec, graph, params))

/* Drops the graph before the real call: after it, another thread may get the handle. */
CUresult cuGraphExecDestroy(CUgraphExec handle) {
  if (pump_inert()) return pump_real.cuGraphExecDestroy(handle);
  struct pump_graph_exec *exec = pump_graph_exec_out(handle);
  CUresult result = pump_real.cuGraphExecDestroy(handle);
  pump_graph_exec_destroyed(exec, result == CUDA_SUCCESS);
  return result;
}

/* ---- changes ---------------------------------------------------------------------- */

#define CHANGE(...) (&(struct pump_graph_change){__VA_ARGS__})

#define HOOK_CHANGE(name, change, parameters, arguments)                                   \
  CUresult name parameters {                                                               \
    CUresult result = pump_real.name arguments;                                            \
    if (result == CUDA_SUCCESS && !pump_inert()) pump_graph_changed(exec, change);         \
    return result;                                                                         \
  }

HOOK_CHANGE(cuGraphExecUpdate, CHANGE(.graph = graph),
            (CUgraphExec exec, CUgraph graph, CUgraphNode *error_node,
             CUgraphExecUpdateResult *update_result),
            (exec, graph, error_node, update_result))
HOOK_CHANGE(cuGraphExecUpdate_v2, CHANGE(.graph = graph),
            (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info),
            (exec, graph, info))
HOOK_CHANGE(cuGraphExecChildGraphNodeSetParams, CHANGE(.node = node, .graph = child),
            (CUgraphExec exec, CUgraphNode node, CUgraph child), (exec, node, child))
HOOK_CHANGE(cuGraphNodeSetEnabled, CHANGE(.node = node, .enabled = enabled != 0),
            (CUgraphExec exec, CUgraphNode node, unsigned int enabled),
            (exec, node, enabled))

/* Converts one node type's parameters to the form that cuGraphExecNodeSetParams takes. */
static CUgraphNodeParams of_older_kernel(const CUDA_KERNEL_NODE_PARAMS_v1 *params) {
  CUgraphNodeParams any = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
  memcpy(&any.kernel, params, sizeof *params);
  return any;
}
static CUgraphNodeParams of_kernel(const CUDA_KERNEL_NODE_PARAMS_v2 *params) {
  return (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_KERNEL, .kernel = *params};
}
static CUgraphNodeParams of_copy(const CUDA_MEMCPY3D *copy) {
  return (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_MEMCPY,
                             .memcpy = {.copyParams = *copy}};
}
static CUgraphNodeParams of_set(const CUDA_MEMSET_NODE_PARAMS_v1 *params) {
  return (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_MEMSET, .memset = *params};
}

#define HOOK_SET(name, any, parameters, arguments)                                         \
  CUresult name parameters {                                                               \
    CUresult result = pump_real.name arguments;                                            \
    if (result != CUDA_SUCCESS || pump_inert()) return result;                             \
    CUgraphNodeParams all = any;                                                           \
    pump_graph_changed(exec, CHANGE(.node = node, .params = &all));                        \
    return result;                                                                         \
  }

HOOK_SET(cuGraphExecKernelNodeSetParams, of_older_kernel(params),
         (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *params),
         (exec, node, params))
HOOK_SET(cuGraphExecKernelNodeSetParams_v2, of_kernel(params),
         (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v2 *params),
         (exec, node, params))
HOOK_SET(cuGraphExecMemcpyNodeSetParams, of_copy(copy),
         (CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *copy, CUcontext context),
         (exec, node, copy, context))
HOOK_SET(cuGraphExecMemsetNodeSetParams, of_set(params),
         (CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS_v1 *params,
          CUcontext context),
         (exec, node, params, context))

CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node,
                                            CUevent event) {
  if (!pump_inert()) pump_progress_event_distrust(event);
  return pump_real.cuGraphExecEventRecordNodeSetEvent(exec, node, event);
}

CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                  CUgraphNodeParams *params) {
  if (params != NULL && params->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD && !pump_inert())
    pump_progress_event_distrust(params->event);
  CUresult result = pump_real.cuGraphExecNodeSetParams(exec, node, params);
  if (result != CUDA_SUCCESS || pump_inert()) return result;
  if (params->type == CU_GRAPH_NODE_TYPE_GRAPH)
    pump_graph_changed(exec, CHANGE(.node = node, .graph = params->graph));
  else
    pump_graph_changed(exec, CHANGE(.node = node, .params = params));
  return result;
}
