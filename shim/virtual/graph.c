/* graph.c - graphs made by capture: instantiate, launch, destroy.
 *
 * An executable graph is a copy of the graph. Which blocks its nodes touch is fixed
 * when they are captured, as their arguments are.
 */
#include <stdlib.h>
#include <string.h>

#include "capture.h"

struct vd_graph *vd_graph_new(enum vd_magic magic) {
  return vd_object_new(magic);
}

static void free_node(struct vd_node *node) {
  if (node == NULL) return;
  free(node->uses);
  vd_action_free(node->action);
  free(node);
}

void vd_graph_free_locked(struct vd_graph *graph) {
  for (size_t i = 0; i < graph->count; i++) free_node(graph->nodes[i]);
  free(graph->nodes);
  vd_object_free(graph);
}

/* Consumes `action` when it succeeds. */
CUresult vd_graph_add(struct vd_graph *graph, const struct gpu_operation *operation,
                      struct vd_action *action, int type) {
  if (graph->count == graph->room) {
    size_t room = graph->room ? 2 * graph->room : 64;
    struct vd_node **nodes = realloc(graph->nodes, room * sizeof *nodes);
    if (nodes == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    graph->nodes = nodes;
    graph->room = room;
  }
  struct vd_node *node = calloc(1, sizeof *node);
  if (node == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  node->type = type;
  node->operation = *operation;
  if (operation->use_count > 0) {
    node->uses = malloc(operation->use_count * sizeof *node->uses);
    if (node->uses == NULL) {
      free(node);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memcpy(node->uses, operation->uses, operation->use_count * sizeof *node->uses);
  }
  node->operation.uses = node->uses;
  node->action = action;
  graph->nodes[graph->count++] = node;
  return CUDA_SUCCESS;
}

static struct vd_graph *graph_of(const void *handle, enum vd_magic magic) {
  return vd_is(handle, magic) ? (struct vd_graph *)(uintptr_t)handle : NULL;
}

CUresult vd_cuGraphCreate(CUgraph *out, unsigned int flags) {
  if (out == NULL || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  *out = (CUgraph)(void *)vd_graph_new(VD_GRAPH);
  vd_unlock();
  return *out != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult destroy(void *handle, enum vd_magic magic) {
  vd_lock();
  struct vd_graph *graph = graph_of(handle, magic);
  if (graph != NULL) vd_graph_free_locked(graph);
  vd_unlock();
  return graph != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult vd_cuGraphDestroy(CUgraph graph) {
  return destroy(graph, VD_GRAPH);
}
CUresult vd_cuGraphExecDestroy(CUgraphExec exec) {
  return destroy(exec, VD_GRAPH_EXEC);
}

CUresult vd_cuGraphGetNodes(CUgraph handle, CUgraphNode *nodes, size_t *count) {
  if (count == NULL) return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  const struct vd_graph *graph = graph_of(handle, VD_GRAPH);
  if (graph != NULL && nodes == NULL) *count = graph->count;
  if (graph != NULL && nodes != NULL) {
    for (size_t i = 0; i < *count; i++)
      nodes[i] = i < graph->count ? (CUgraphNode)(void *)graph->nodes[i] : NULL;
    if (*count > graph->count) *count = graph->count;
  }
  vd_unlock();
  return graph != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult vd_cuGraphNodeGetType(CUgraphNode node, int *type) {
  if (node == NULL || type == NULL) return CUDA_ERROR_INVALID_VALUE;
  *type = ((const struct vd_node *)(void *)node)->type;
  return CUDA_SUCCESS;
}

CUresult vd_cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph handle,
                                        unsigned long long flags) {
  if (out == NULL || flags > 15) return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  const struct vd_graph *graph = graph_of(handle, VD_GRAPH);
  struct vd_graph *exec = graph ? vd_graph_new(VD_GRAPH_EXEC) : NULL;
  CUresult result = graph == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  if (graph != NULL && exec == NULL) result = CUDA_ERROR_OUT_OF_MEMORY;
  for (size_t i = 0; result == CUDA_SUCCESS && i < graph->count; i++) {
    const struct vd_node *node = graph->nodes[i];
    struct vd_action *action = node->action ? vd_action_copy(node->action) : NULL;
    if (node->action != NULL && action == NULL)
      result = CUDA_ERROR_OUT_OF_MEMORY;
    else
      result = vd_graph_add(exec, &node->operation, action, node->type);
  }
  if (result != CUDA_SUCCESS && exec != NULL) vd_graph_free_locked(exec);
  if (result == CUDA_SUCCESS) *out = (CUgraphExec)(void *)exec;
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

static CUresult launch_locked(const struct vd_graph *exec, struct vd_stream *stream) {
  for (size_t i = 0; i < exec->count; i++) {
    const struct vd_node *node = exec->nodes[i];
    struct gpu_operation operation = node->operation;
    struct vd_action *action = node->action ? vd_action_copy(node->action) : NULL;
    if (node->action != NULL && action == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = vd_work_locked(stream, &operation, action, node->type);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult vd_cuGraphLaunch(CUgraphExec handle, CUstream stream_handle) {
  vd_lock();
  const struct vd_graph *exec = graph_of(handle, VD_GRAPH_EXEC);
  struct vd_stream *stream = vd_stream_of_locked(stream_handle);
  CUresult result = CUDA_SUCCESS;
  if (exec == NULL) result = CUDA_ERROR_INVALID_VALUE;
  if (stream == NULL) result = CUDA_ERROR_INVALID_HANDLE;
  if (result == CUDA_SUCCESS) result = launch_locked(exec, stream);
  vd_unlock();
  return result;
}

CUresult vd_cuGraphUpload(CUgraphExec handle, CUstream stream_handle) {
  vd_lock();
  bool known = graph_of(handle, VD_GRAPH_EXEC) != NULL;
  bool stream = vd_stream_of_locked(stream_handle) != NULL;
  vd_unlock();
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
