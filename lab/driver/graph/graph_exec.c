/* graph_exec.c - executable graphs: instantiated, updated, launched.
 *
 * A launch submits the nodes to its stream one after the other, in an order that respects
 * every edge. So branches do not overlap, and a node costs its caller as much as a stream
 * operation. The memory that a kernel touches follows from its parameters and the live
 * allocations at its launch.
 */
#include <stdlib.h>

#include "graph.h"

struct vd_graph_counts vd_graphs;

static CUresult run(struct vd_graph *graph, struct vd_stream *stream);

static CUresult counted(CUresult result, uint64_t *count) {
  if (result == CUDA_SUCCESS) ++*count;
  return result;
}

static CUresult run_node(const struct vd_node *node, struct vd_stream *stream) {
  const struct vd_work *work = &node->work;
  switch (work->type) {
  case CU_GRAPH_NODE_TYPE_KERNEL:
    return counted(vd_kernel_submit_locked(stream, &work->kernel), &vd_graphs.kernels);
  case CU_GRAPH_NODE_TYPE_MEMCPY:
    return counted(vd_copy_submit_locked(stream, &work->copy), &vd_graphs.copies);
  case CU_GRAPH_NODE_TYPE_MEMSET:
    return counted(vd_set_submit_locked(stream, &work->set), &vd_graphs.memsets);
  case CU_GRAPH_NODE_TYPE_HOST:
    return vd_host_submit_locked(stream, &work->host);
  case CU_GRAPH_NODE_TYPE_GRAPH:
    return run(work->child, stream);
  case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
    return vd_event_record_locked(stream, work->event);
  case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    return vd_event_wait_locked(stream, work->event);
  case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
  case CU_GRAPH_NODE_TYPE_MEM_FREE:
    return vd_graph_memory_run_locked(work);
  default:
    return CUDA_SUCCESS;
  }
}

static CUresult run(struct vd_graph *graph, struct vd_stream *stream) {
  CUresult result = CUDA_SUCCESS;
  for (size_t i = 0; result == CUDA_SUCCESS && i < graph->count; i++)
    if (graph->order[i]->enabled) result = run_node(graph->order[i], stream);
  return result;
}

/* Launches a graph. In a capturing stream it becomes a child of the captured graph. */
static CUresult launch_locked(struct vd_graph *exec, struct vd_stream *stream) {
  struct vd_work child = {.type = CU_GRAPH_NODE_TYPE_GRAPH, .child = exec};
  bool captured = false;
  if (stream->capture != NULL && exec->memory)
    return vd_capture_refuse_locked(stream, "a graph that allocates memory");
  CUresult result = vd_capture_take_locked(stream, &child, &captured);
  if (captured || result != CUDA_SUCCESS) return result;
  vd_graphs.launches++;
  exec->users++; /* the lock is released while the launch queue is full */
  result = vd_graph_memory_ready_locked(exec);
  if (result == CUDA_SUCCESS) result = run(exec, stream);
  if (--exec->users == 0 && exec->dead) vd_graph_free_locked(exec);
  return result;
}

CUresult vd_cuGraphLaunch(CUgraphExec handle, CUstream stream_handle) {
  vd_lock();
  struct vd_graph *exec = vd_graph_of(handle, VD_GRAPH_EXEC);
  struct vd_stream *stream = vd_stream_of_locked(stream_handle);
  CUresult result = CUDA_SUCCESS;
  if (exec == NULL || exec->dead) result = CUDA_ERROR_INVALID_VALUE;
  if (stream == NULL) result = CUDA_ERROR_INVALID_HANDLE;
  if (result == CUDA_SUCCESS) result = launch_locked(exec, stream);
  vd_unlock();
  return result;
}

CUresult vd_cuGraphUpload(CUgraphExec handle, CUstream stream_handle) {
  vd_lock();
  bool known = vd_graph_of(handle, VD_GRAPH_EXEC) != NULL;
  bool stream = vd_stream_of_locked(stream_handle) != NULL;
  vd_unlock();
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* -- creation and destruction -- */

CUresult vd_cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph handle,
                                        unsigned long long flags) {
  if (out == NULL || flags > 15) return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  const struct vd_graph *graph = vd_graph_of(handle, VD_GRAPH);
  bool right = graph != NULL && !vd_graph_memory_instantiated_locked(graph);
  struct vd_graph *exec = right ? vd_graph_copy_locked(graph, VD_GRAPH_EXEC) : NULL;
  CUresult result = right ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  if (right && exec == NULL) result = CUDA_ERROR_OUT_OF_MEMORY;
  if (result == CUDA_SUCCESS) result = vd_graph_order_locked(exec);
  if (result == CUDA_SUCCESS) {
    exec->flags = flags;
    *out = (CUgraphExec)(void *)exec;
  } else if (exec != NULL) {
    vd_graph_free_locked(exec);
  }
  vd_unlock();
  return result;
}

CUresult vd_cuGraphInstantiateWithParams(CUstream stream, CUgraphExec *out, CUgraph graph,
                                         CUDA_GRAPH_INSTANTIATE_PARAMS *parameters) {
  (void)stream;
  if (parameters == NULL) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = vd_cuGraphInstantiateWithFlags(out, graph, parameters->flags);
  parameters->hErrNode_out = NULL;
  parameters->result_out = result == CUDA_SUCCESS ? 0 : 1;
  return result;
}

CUresult vd_cuGraphInstantiate_v2(CUgraphExec *out, CUgraph graph, CUgraphNode *error_node,
                                  char *log, size_t log_bytes) {
  if (error_node != NULL) *error_node = NULL;
  if (log != NULL && log_bytes > 0) *log = 0;
  return vd_cuGraphInstantiateWithFlags(out, graph, 0);
}

CUresult vd_cuGraphInstantiate(CUgraphExec *out, CUgraph graph, CUgraphNode *error_node,
                               char *log, size_t log_bytes) {
  return vd_cuGraphInstantiate_v2(out, graph, error_node, log, log_bytes);
}

CUresult vd_cuGraphExecGetFlags(CUgraphExec handle, uint64_t *flags) {
  if (flags == NULL) return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  const struct vd_graph *exec = vd_graph_of(handle, VD_GRAPH_EXEC);
  if (exec != NULL) *flags = exec->flags;
  vd_unlock();
  return exec != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult vd_cuGraphExecDestroy(CUgraphExec handle) {
  vd_lock();
  struct vd_graph *exec = vd_graph_of(handle, VD_GRAPH_EXEC);
  /* A launch may still use its memory and the program's objects. */
  if (exec != NULL && (exec->memory || exec->references != NULL)) {
    vd_wait_device_locked();
    exec = vd_graph_of(handle, VD_GRAPH_EXEC);
  }
  bool live = exec != NULL && !exec->dead;
  if (live && exec->users != 0)
    exec->dead = true;
  else if (live)
    vd_graph_free_locked(exec);
  vd_unlock();
  return live ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* -- one node of an executable graph: named by its original node -- */

static struct vd_node *find(const struct vd_graph *graph, uint64_t origin_id) {
  struct vd_node *found = NULL;
  for (size_t i = 0; found == NULL && i < graph->count; i++) {
    struct vd_node *node = graph->nodes[i];
    if (node->origin_id == origin_id)
      found = node;
    else if (node->work.type == CU_GRAPH_NODE_TYPE_GRAPH)
      found = find(node->work.child, origin_id);
  }
  return found;
}

static struct vd_node *node_in(CUgraphExec handle, CUgraphNode node_handle) {
  const struct vd_graph *exec = vd_graph_of(handle, VD_GRAPH_EXEC);
  const struct vd_node *node = vd_node_of(node_handle);
  return exec == NULL || node == NULL ? NULL : find(exec, node->id);
}

#define SET(make)                                                                          \
  struct vd_work work = {.type = CU_GRAPH_NODE_TYPE_EMPTY};                                \
  vd_lock();                                                                               \
  CUresult result = make;                                                                  \
  if (result == CUDA_SUCCESS) result = vd_node_set_locked(node_in(exec, node), &work);     \
  vd_unlock();                                                                             \
  return result

CUresult vd_cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                           const CUDA_KERNEL_NODE_PARAMS_v1 *params) {
  SET(vd_work_of_kernel(params, NULL, &work));
}
CUresult vd_cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                              const CUDA_KERNEL_NODE_PARAMS_v2 *params) {
  if (params == NULL) return CUDA_ERROR_INVALID_VALUE;
  SET(vd_work_of_kernel((const CUDA_KERNEL_NODE_PARAMS_v1 *)(const void *)params,
                        params->kern, &work));
}
CUresult vd_cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                           const CUDA_MEMCPY3D *params, CUcontext context) {
  (void)context;
  SET(vd_work_of_copy(params, &work));
}
CUresult vd_cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                           const CUDA_MEMSET_NODE_PARAMS_v1 *params,
                                           CUcontext context) {
  (void)context;
  SET(vd_work_of_set(params, &work));
}
CUresult vd_cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                         const CUDA_HOST_NODE_PARAMS_v1 *params) {
  SET(vd_work_of_host(params, &work));
}
CUresult vd_cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node,
                                               CUevent event) {
  SET(vd_work_of_event_locked(event, CU_GRAPH_NODE_TYPE_EVENT_RECORD, &work));
}
CUresult vd_cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node,
                                             CUevent event) {
  SET(vd_work_of_event_locked(event, CU_GRAPH_NODE_TYPE_WAIT_EVENT, &work));
}

/* Returns whether the node can be disabled: only kernels, copies and memsets can. */
static bool can_be_disabled(const struct vd_node *node) {
  return node != NULL && node->work.type <= CU_GRAPH_NODE_TYPE_MEMSET;
}

CUresult vd_cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode handle,
                                  unsigned int enabled) {
  vd_lock();
  struct vd_node *node = node_in(exec, handle);
  bool can = can_be_disabled(node);
  if (can) node->enabled = enabled != 0;
  vd_unlock();
  return can ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult vd_cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode handle,
                                  unsigned int *enabled) {
  if (enabled == NULL) return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  const struct vd_node *node = node_in(exec, handle);
  bool can = can_be_disabled(node);
  if (can) *enabled = node->enabled;
  vd_unlock();
  return can ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* -- updates: same structure, new parameters -- */

static bool same_edges(const struct vd_node *a, const struct vd_node *b) {
  if (a->count != b->count) return false;
  for (uint32_t i = 0; i < a->count; i++)
    if (a->dependencies[i]->index != b->dependencies[i]->index) return false;
  return true;
}

/* Returns CU_GRAPH_EXEC_UPDATE_*, and the first node of `graph` that does not fit. */
static int compare(const struct vd_graph *exec, const struct vd_graph *graph,
                   const struct vd_node **misfit) {
  if (exec->memory || graph->memory) return CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
  if (exec->count != graph->count) return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
  for (size_t i = 0; i < exec->count; i++)
    exec->nodes[i]->index = graph->nodes[i]->index = (uint32_t)i;
  int result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
  for (size_t i = 0; result == CU_GRAPH_EXEC_UPDATE_SUCCESS && i < exec->count; i++) {
    const struct vd_node *old = exec->nodes[i], *new = graph->nodes[i];
    *misfit = new;
    if (!same_edges(old, new))
      result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    else if (old->work.type != new->work.type)
      result = CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
    else if (old->work.type == CU_GRAPH_NODE_TYPE_GRAPH)
      result = compare(old->work.child, new->work.child, misfit);
  }
  return result;
}

static CUresult take_over(struct vd_graph *exec, const struct vd_graph *graph) {
  CUresult result = CUDA_SUCCESS;
  for (size_t i = 0; result == CUDA_SUCCESS && i < exec->count; i++) {
    struct vd_node *node = exec->nodes[i];
    const struct vd_work *given = &graph->nodes[i]->work;
    struct vd_work work;
    if (given->type == CU_GRAPH_NODE_TYPE_GRAPH) {
      result = take_over(node->work.child, given->child);
      continue;
    }
    result = vd_work_copy_locked(given, &work);
    if (result == CUDA_SUCCESS) result = vd_node_set_locked(node, &work);
  }
  return result;
}

static CUresult update_locked(struct vd_graph *exec, const struct vd_graph *graph,
                              CUgraphExecUpdateResultInfo *info) {
  const struct vd_node *misfit = NULL;
  *info = (CUgraphExecUpdateResultInfo){.result = CU_GRAPH_EXEC_UPDATE_ERROR};
  if (exec == NULL || graph == NULL) return CUDA_ERROR_INVALID_VALUE;
  info->result = compare(exec, graph, &misfit);
  if (info->result == CU_GRAPH_EXEC_UPDATE_SUCCESS) return take_over(exec, graph);
  info->errorNode = (CUgraphNode)(uintptr_t)misfit;
  return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

CUresult vd_cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph,
                                 CUgraphExecUpdateResultInfo *info) {
  if (info == NULL) return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  CUresult result =
      update_locked(vd_graph_of(exec, VD_GRAPH_EXEC), vd_graph_of(graph, VD_GRAPH), info);
  vd_unlock();
  return result;
}

CUresult vd_cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *error_node,
                              int *update_result) {
  CUgraphExecUpdateResultInfo info;
  if (error_node == NULL || update_result == NULL) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = vd_cuGraphExecUpdate_v2(exec, graph, &info);
  *error_node = info.errorNode;
  *update_result = info.result;
  return result;
}

CUresult vd_cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode handle,
                                               CUgraph child_handle) {
  CUgraphExecUpdateResultInfo info;
  vd_lock();
  const struct vd_node *node = node_in(exec, handle);
  const struct vd_graph *child = vd_graph_of(child_handle, VD_GRAPH);
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  if (node != NULL && node->work.type == CU_GRAPH_NODE_TYPE_GRAPH)
    result = update_locked(node->work.child, child, &info);
  vd_unlock();
  return result;
}

CUresult vd_cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                     CUgraphNodeParams *params) {
  if (params == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (params->type == CU_GRAPH_NODE_TYPE_GRAPH)
    return vd_cuGraphExecChildGraphNodeSetParams(exec, node, params->graph);
  SET(vd_work_of_any_locked(params, &work));
}
