/* graph.c - graphs as sets of nodes with edges: created, copied, traversed, destroyed.
 *
 * graph_params.c has the work of nodes, graph_exec.c executable graphs.
 */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

struct vd_graph *vd_graph_new(enum vd_magic magic) {
  return vd_object_new(magic);
}

static void free_node(struct vd_node *node) {
  vd_work_free_locked(&node->work);
  free(node->dependencies);
  free(node->edges);
  free(node->pointers);
  vd_object_free(node);
}

void vd_graph_free_locked(struct vd_graph *graph) {
  for (size_t i = 0; i < graph->count; i++) free_node(graph->nodes[i]);
  free(graph->nodes);
  free(graph->order);
  vd_user_objects_let_go_locked(graph);
  vd_object_free(graph);
}

static CUresult depend_locked(struct vd_node *node, struct vd_node *on,
                              const CUgraphEdgeData *edge) {
  if (!vd_is(on, VD_NODE) || on->graph != node->graph || on == node)
    return CUDA_ERROR_INVALID_VALUE;
  for (uint32_t i = 0; i < node->count; i++)
    if (node->dependencies[i] == on) return CUDA_ERROR_INVALID_VALUE;
  if (node->count == node->room) {
    uint32_t room = node->room ? 2 * node->room : 4;
    void *grown = realloc(node->dependencies, room * sizeof *node->dependencies);
    if (grown == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    node->dependencies = grown;
    grown = realloc(node->edges, room * sizeof *node->edges);
    if (grown == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    node->edges = grown;
    node->room = room;
  }
  node->edges[node->count] = edge != NULL ? *edge : (CUgraphEdgeData){0};
  node->dependencies[node->count++] = on;
  return CUDA_SUCCESS;
}

static CUresult make_room(struct vd_graph *graph) {
  if (graph->count < graph->room) return CUDA_SUCCESS;
  size_t room = graph->room ? 2 * graph->room : 64;
  void *grown = realloc(graph->nodes, room * sizeof *graph->nodes);
  if (grown == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  graph->nodes = grown;
  graph->room = room;
  return CUDA_SUCCESS;
}

CUresult vd_node_new_locked(struct vd_graph *graph, const struct vd_work *work,
                            struct vd_node *const *dependencies,
                            const CUgraphEdgeData *edges, size_t count,
                            struct vd_node **out) {
  struct vd_node *node = vd_object_new(VD_NODE);
  CUresult result = node == NULL ? CUDA_ERROR_OUT_OF_MEMORY : make_room(graph);
  if (node != NULL) node->graph = graph;
  for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++)
    result = depend_locked(node, dependencies[i], edges != NULL ? &edges[i] : NULL);
  if (result != CUDA_SUCCESS) {
    if (node != NULL) free_node(node); /* the node has no work yet */
    return result;
  }
  node->work = *work;
  node->enabled = true;
  graph->memory |= work->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
                   work->type == CU_GRAPH_NODE_TYPE_MEM_FREE;
  node->id = vd.next_id++;
  node->index = (uint32_t)graph->count;
  graph->nodes[graph->count++] = node;
  *out = node;
  return CUDA_SUCCESS;
}

static void number(const struct vd_graph *graph) {
  for (size_t i = 0; i < graph->count; i++) graph->nodes[i]->index = (uint32_t)i;
}

static CUresult copy_into(const struct vd_graph *graph, struct vd_graph *copy) {
  CUresult result = CUDA_SUCCESS;
  for (size_t i = 0; result == CUDA_SUCCESS && i < graph->count; i++) {
    struct vd_work work;
    struct vd_node *node;
    result = vd_work_copy_locked(&graph->nodes[i]->work, &work);
    if (result != CUDA_SUCCESS) break;
    result = vd_node_new_locked(copy, &work, NULL, NULL, 0, &node);
    if (result == CUDA_SUCCESS) {
      node->origin_id = graph->nodes[i]->id;
      node->enabled = graph->nodes[i]->enabled;
      node->settings = graph->nodes[i]->settings;
    } else {
      vd_work_free_locked(&work);
    }
  }
  number(graph);
  for (size_t i = 0; result == CUDA_SUCCESS && i < graph->count; i++) {
    const struct vd_node *node = graph->nodes[i];
    for (uint32_t k = 0; result == CUDA_SUCCESS && k < node->count; k++)
      result = depend_locked(copy->nodes[i], copy->nodes[node->dependencies[k]->index],
                             &node->edges[k]);
  }
  return result;
}

struct vd_graph *vd_graph_copy_locked(const struct vd_graph *graph, enum vd_magic magic) {
  struct vd_graph *copy = vd_graph_new(magic);
  if (copy == NULL) return NULL;
  if (copy_into(graph, copy) == CUDA_SUCCESS &&
      vd_user_objects_copy_locked(graph, copy) == CUDA_SUCCESS)
    return copy;
  vd_graph_free_locked(copy);
  return NULL;
}

/* -- order -- */

enum { WHITE, GREY, BLACK };

/* Sorts depth first without recursion: a node follows all its dependencies, otherwise in
 * order of creation. `index` counts the visited dependencies. */
static bool put_in_order(struct vd_graph *graph, struct vd_node **stack) {
  size_t done = 0;
  for (size_t i = 0; i < graph->count; i++) {
    graph->nodes[i]->colour = WHITE;
    graph->nodes[i]->index = 0;
  }
  for (size_t i = 0; i < graph->count; i++) {
    size_t depth = 0;
    if (graph->nodes[i]->colour != WHITE) continue;
    stack[depth++] = graph->nodes[i];
    graph->nodes[i]->colour = GREY;
    while (depth > 0) {
      struct vd_node *node = stack[depth - 1];
      if (node->index == node->count) {
        node->colour = BLACK;
        graph->order[done++] = node;
        depth--;
        continue;
      }
      struct vd_node *next = node->dependencies[node->index++];
      if (next->colour == GREY) return false;
      if (next->colour == BLACK) continue;
      next->colour = GREY;
      stack[depth++] = next;
    }
  }
  return true;
}

CUresult vd_graph_order_locked(struct vd_graph *graph) {
  size_t count = graph->count ? graph->count : 1;
  struct vd_node **stack = calloc(count, sizeof *stack);
  free(graph->order);
  graph->order = calloc(count, sizeof *graph->order);
  CUresult result = CUDA_SUCCESS;
  if (stack == NULL || graph->order == NULL)
    result = CUDA_ERROR_OUT_OF_MEMORY;
  else if (!put_in_order(graph, stack))
    result = CUDA_ERROR_INVALID_VALUE;
  free(stack);
  for (size_t i = 0; result == CUDA_SUCCESS && i < graph->count; i++)
    if (graph->nodes[i]->work.type == CU_GRAPH_NODE_TYPE_GRAPH)
      result = vd_graph_order_locked(graph->nodes[i]->work.child);
  return result;
}

/* -- the calls -- */

CUresult vd_cuGraphCreate(CUgraph *out, unsigned int flags) {
  if (out == NULL || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  *out = (CUgraph)(void *)vd_graph_new(VD_GRAPH);
  vd_unlock();
  return *out != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult vd_cuGraphDestroy(CUgraph handle) {
  vd_lock();
  struct vd_graph *graph = vd_graph_of(handle, VD_GRAPH);
  if (graph != NULL && graph->memory) { /* pending work may use that memory */
    vd_wait_device_locked();
    graph = vd_graph_of(handle, VD_GRAPH);
  }
  bool own = graph != NULL && !graph->owned;
  if (own) vd_graph_free_locked(graph);
  vd_unlock();
  return own ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult vd_cuGraphClone(CUgraph *out, CUgraph handle) {
  if (out == NULL) return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  const struct vd_graph *graph = vd_graph_of(handle, VD_GRAPH);
  bool memory = graph != NULL && graph->memory;
  struct vd_graph *copy = graph && !memory ? vd_graph_copy_locked(graph, VD_GRAPH) : NULL;
  vd_unlock();
  if (graph == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (memory) return CUDA_ERROR_NOT_SUPPORTED;
  if (copy == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = (CUgraph)(void *)copy;
  return CUDA_SUCCESS;
}

CUresult vd_cuGraphNodeFindInClone(CUgraphNode *out, CUgraphNode handle, CUgraph clone) {
  if (out == NULL) return CUDA_ERROR_INVALID_VALUE;
  *out = NULL;
  vd_lock();
  const struct vd_node *node = vd_node_of(handle);
  const struct vd_graph *graph = vd_graph_of(clone, VD_GRAPH);
  for (size_t i = 0; node != NULL && graph != NULL && i < graph->count; i++)
    if (graph->nodes[i]->origin_id == node->id) *out = (CUgraphNode)(void *)graph->nodes[i];
  vd_unlock();
  return *out != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult vd_cuGraphNodeGetType(CUgraphNode handle, int *type) {
  if (type == NULL) return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  const struct vd_node *node = vd_node_of(handle);
  if (node != NULL) *type = node->work.type;
  vd_unlock();
  return node != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult vd_cuGraphDestroyNode(CUgraphNode handle) {
  vd_lock();
  struct vd_node *node = vd_node_of(handle);
  struct vd_graph *graph = node != NULL ? node->graph : NULL;
  if (graph != NULL && graph->memory) node = NULL, graph = NULL;
  size_t kept = 0;
  for (size_t i = 0; graph != NULL && i < graph->count; i++) {
    struct vd_node *other = graph->nodes[i];
    uint32_t edges = 0;
    for (uint32_t k = 0; k < other->count; k++) {
      if (other->dependencies[k] == node) continue;
      other->dependencies[edges] = other->dependencies[k];
      other->edges[edges++] = other->edges[k];
    }
    other->count = edges;
    if (other != node) graph->nodes[kept++] = other;
  }
  if (graph != NULL) graph->count = kept;
  if (node != NULL) free_node(node);
  vd_unlock();
  return node != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* -- lists: the number of entries, or the entries that fit, padded with NULL -- */

struct list {
  CUgraphNode *nodes, *others; /* NULL: not requested */
  CUgraphEdgeData *edges;
  size_t room, count;
  bool lossy; /* an edge has data, but the caller did not request edge data */
};

static void put(struct list *list, struct vd_node *node, struct vd_node *other,
                const CUgraphEdgeData *edge) {
  static const CUgraphEdgeData plain;
  if (list->count < list->room) {
    if (list->nodes != NULL) list->nodes[list->count] = (CUgraphNode)(void *)node;
    if (list->others != NULL) list->others[list->count] = (CUgraphNode)(void *)other;
    if (list->edges != NULL) list->edges[list->count] = edge ? *edge : plain;
  }
  list->count++;
  if (edge != NULL && list->edges == NULL && memcmp(edge, &plain, sizeof plain) != 0)
    list->lossy = true;
}

static CUresult give(struct list *list, size_t *count) {
  bool asked = list->nodes != NULL;
  for (size_t i = list->count; asked && i < list->room; i++) {
    list->nodes[i] = NULL;
    if (list->others != NULL) list->others[i] = NULL;
  }
  *count = asked && list->count > list->room ? list->room : list->count;
  return list->lossy ? CUDA_ERROR_LOSSY_QUERY : CUDA_SUCCESS;
}

static CUresult nodes_of(CUgraph handle, CUgraphNode *nodes, size_t *count,
                         bool roots_only) {
  if (count == NULL) return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  const struct vd_graph *graph = vd_graph_of(handle, VD_GRAPH);
  struct list list = {.nodes = nodes, .room = nodes != NULL ? *count : 0};
  for (size_t i = 0; graph != NULL && i < graph->count; i++)
    if (!roots_only || graph->nodes[i]->count == 0) put(&list, graph->nodes[i], NULL, NULL);
  CUresult result = graph == NULL ? CUDA_ERROR_INVALID_VALUE : give(&list, count);
  vd_unlock();
  return result;
}

CUresult vd_cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
  return nodes_of(graph, nodes, count, false);
}
CUresult vd_cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
  return nodes_of(graph, nodes, count, true);
}

/* Lists all edges, or only the edges from or to one node. */
static CUresult edges_of(const struct vd_graph *graph, const struct vd_node *from,
                         const struct vd_node *to, struct list *list, size_t *count) {
  for (size_t i = 0; graph != NULL && i < graph->count; i++) {
    struct vd_node *node = graph->nodes[i];
    if (to != NULL && node != to) continue;
    for (uint32_t k = 0; k < node->count; k++)
      if (from == NULL || node->dependencies[k] == from)
        put(list, from != NULL ? node : node->dependencies[k], node, &node->edges[k]);
  }
  return graph == NULL ? CUDA_ERROR_INVALID_VALUE : give(list, count);
}

CUresult vd_cuGraphGetEdges_v2(CUgraph handle, CUgraphNode *from, CUgraphNode *to,
                               CUgraphEdgeData *edges, size_t *count) {
  if (count == NULL || (from == NULL) != (to == NULL)) return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  struct list list = {from, to, edges, from != NULL ? *count : 0, 0, false};
  CUresult result = edges_of(vd_graph_of(handle, VD_GRAPH), NULL, NULL, &list, count);
  vd_unlock();
  return result;
}
CUresult vd_cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to,
                            size_t *count) {
  return vd_cuGraphGetEdges_v2(graph, from, to, NULL, count);
}

static CUresult neighbours(CUgraphNode handle, bool dependents, CUgraphNode *nodes,
                           CUgraphEdgeData *edges, size_t *count) {
  if (count == NULL) return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  const struct vd_node *node = vd_node_of(handle);
  struct list list = {nodes, NULL, edges, nodes != NULL ? *count : 0, 0, false};
  CUresult result = edges_of(node != NULL ? node->graph : NULL, dependents ? node : NULL,
                             dependents ? NULL : node, &list, count);
  vd_unlock();
  return result;
}

CUresult vd_cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *nodes,
                                          CUgraphEdgeData *edges, size_t *count) {
  return neighbours(node, false, nodes, edges, count);
}
CUresult vd_cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *nodes,
                                       size_t *count) {
  return neighbours(node, false, nodes, NULL, count);
}
CUresult vd_cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode *nodes,
                                            CUgraphEdgeData *edges, size_t *count) {
  return neighbours(node, true, nodes, edges, count);
}
CUresult vd_cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *nodes,
                                         size_t *count) {
  return neighbours(node, true, nodes, NULL, count);
}

CUresult vd_cuGraphAddDependencies_v2(CUgraph handle, const CUgraphNode *from,
                                      const CUgraphNode *to, const CUgraphEdgeData *edges,
                                      size_t count) {
  if (count > 0 && (from == NULL || to == NULL)) return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  const struct vd_graph *graph = vd_graph_of(handle, VD_GRAPH);
  CUresult result = graph == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++) {
    struct vd_node *node = vd_node_of(to[i]), *on = vd_node_of(from[i]);
    if (node == NULL || on == NULL || node->graph != graph)
      result = CUDA_ERROR_INVALID_VALUE;
    else
      result = depend_locked(node, on, edges != NULL ? &edges[i] : NULL);
  }
  vd_unlock();
  return result;
}
CUresult vd_cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from,
                                   const CUgraphNode *to, size_t count) {
  return vd_cuGraphAddDependencies_v2(graph, from, to, NULL, count);
}

static bool remove_edge(struct vd_node *node, const struct vd_node *on) {
  for (uint32_t i = 0; i < node->count; i++) {
    if (node->dependencies[i] != on) continue;
    uint32_t following = --node->count - i;
    memmove(&node->dependencies[i], &node->dependencies[i + 1],
            following * sizeof *node->dependencies);
    memmove(&node->edges[i], &node->edges[i + 1], following * sizeof *node->edges);
    return true;
  }
  return false;
}

CUresult vd_cuGraphRemoveDependencies_v2(CUgraph handle, const CUgraphNode *from,
                                         const CUgraphNode *to,
                                         const CUgraphEdgeData *edges, size_t count) {
  (void)edges; /* two nodes have at most one edge */
  if (count > 0 && (from == NULL || to == NULL)) return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  const struct vd_graph *graph = vd_graph_of(handle, VD_GRAPH);
  bool fixed = graph == NULL || graph->memory;
  CUresult result = fixed ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++) {
    struct vd_node *node = vd_node_of(to[i]);
    if (node == NULL || node->graph != graph ||
        !remove_edge(node, (const struct vd_node *)(const void *)from[i]))
      result = CUDA_ERROR_INVALID_VALUE;
  }
  vd_unlock();
  return result;
}
CUresult vd_cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from,
                                      const CUgraphNode *to, size_t count) {
  return vd_cuGraphRemoveDependencies_v2(graph, from, to, NULL, count);
}
