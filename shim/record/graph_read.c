/* graph_read.c - reads the memory that a graph's nodes use from the driver.
 *
 * DESIGN. A graph is read at its instantiation: its nodes, their parameters and its
 * children. So the origin of the graph does not matter (captured by a library, built from
 * nodes, cloned, or changed later), and no hook tracks it. The price is a few driver
 * calls per node, once, which cost less than the instantiation. Parameters are copied,
 * and a launch interprets them.
 *
 * The driver does not report the bodies of conditional nodes. Host functions, events,
 * semaphores and memory that belongs to the graph are not stored.
 *
 * BOUND. All lists of a process together hold at most MOST_BYTES. Lists beyond the bound
 * are not stored.
 */
#include <stdlib.h>
#include <string.h>

#include "graph_nodes.h"
#include "record.h"

#define MOST_BYTES (256ull << 20)
#define MOST_NODES (1u << 20) /* of one graph, without children */
#define MOST_DEPTH 32u

static uint64_t kept_bytes;

/* ---- memory ---------------------------------------------------------------- */

static bool admit(struct pump_graph_list *list, uint64_t bytes) {
  static uint32_t said;
  if (PUMP_ADD(&kept_bytes, bytes) + bytes > MOST_BYTES) {
    PUMP_ADD(&kept_bytes, -bytes);
    pump_log_once(&said, PUMP_LOG_WARNING,
                  "the CUDA graphs of this program need more than %llu MiB of metadata: "
                  "later graphs run on demand paging. Destroy graphs that are not "
                  "launched again",
                  (unsigned long long)(MOST_BYTES >> 20));
    return false;
  }
  list->bytes += bytes;
  return true;
}

static void give_back(struct pump_graph_list *list, uint64_t bytes) {
  list->bytes -= bytes;
  PUMP_ADD(&kept_bytes, -bytes);
}

/* Makes space for one more element. Admitted bytes stay counted until the list is freed. */
static bool make_capacity(struct pump_graph_list *list, void **elements, uint32_t count,
                          uint32_t *capacity, size_t bytes) {
  if (count < *capacity) return true;
  uint32_t more = *capacity == 0 ? 16 : *capacity;
  if (!admit(list, more * bytes)) return false;
  void *grown = realloc(*elements, (*capacity + more) * bytes);
  if (grown == NULL) {
    give_back(list, more * bytes);
    return false;
  }
  *elements = grown;
  *capacity += more;
  return true;
}

static void forget_params(struct pump_graph_list *list, struct pump_graph_node *node) {
  if (node->kind != PUMP_EVENT_KERNEL || node->kernel.saved == NULL) return;
  give_back(list, pump_params_saved_bytes(node->kernel.saved));
  free(node->kernel.saved);
  node->kernel.saved = NULL;
}

void pump_graph_list_free(struct pump_graph_list *list) {
  for (uint32_t i = 0; i < list->count; i++) forget_params(list, &list->nodes[i]);
  free(list->nodes);
  free(list->children);
  PUMP_ADD(&kept_bytes, -list->bytes);
  *list = (struct pump_graph_list){0};
}

/* ---- single nodes ----------------------------------------------------------- */

bool pump_graph_node_kernel(struct pump_graph_list *list, struct pump_graph_node *node,
                            const CUDA_KERNEL_NODE_PARAMS_v1 *params, CUkernel kernel) {
  struct pump_launch launch = {
      .function = params->func != NULL ? params->func : (CUfunction)kernel,
      .grid = {params->gridDimX, params->gridDimY, params->gridDimZ},
      .block = {params->blockDimX, params->blockDimY, params->blockDimZ},
      .params = params->kernelParams,
      .extra = params->extra};
  struct pump_saved *saved = pump_params_save(&launch);
  if (saved == NULL) return false;
  if (!admit(list, pump_params_saved_bytes(saved))) {
    free(saved);
    return false;
  }
  forget_params(list, node);
  launch.params = launch.extra = NULL;
  launch.saved = saved;
  node->kernel = launch;
  return true;
}

static bool read_kernel(struct pump_graph_list *list, struct pump_graph_node *node) {
  CUDA_KERNEL_NODE_PARAMS_v2 params = {0};
  CUDA_KERNEL_NODE_PARAMS_v1 older;
  CUresult result = CUDA_ERROR_NOT_FOUND;
  if (PUMP_HAS(cuGraphKernelNodeGetParams_v2)) {
    result = pump_real.cuGraphKernelNodeGetParams_v2(node->handle, &params);
    memcpy(&older, &params, sizeof older);
  } else if (PUMP_HAS(cuGraphKernelNodeGetParams)) {
    result = pump_real.cuGraphKernelNodeGetParams(node->handle, &older);
  }
  return result == CUDA_SUCCESS && pump_graph_node_kernel(list, node, &older, params.kern);
}

static bool read_copy(struct pump_graph_node *node) {
  return PUMP_HAS(cuGraphMemcpyNodeGetParams) &&
         pump_real.cuGraphMemcpyNodeGetParams(node->handle, &node->copy) == CUDA_SUCCESS;
}

static bool read_set(struct pump_graph_node *node) {
  return PUMP_HAS(cuGraphMemsetNodeGetParams) &&
         pump_real.cuGraphMemsetNodeGetParams(node->handle, &node->set) == CUDA_SUCCESS;
}

/* Adds a node, or counts it if the driver does not report it. false: memory is short. */
static bool add_node(struct pump_graph_list *list, CUgraphNode handle, uint32_t kind) {
  if (!make_capacity(list, (void **)&list->nodes, list->count, &list->capacity,
                     sizeof list->nodes[0]))
    return false;
  struct pump_graph_node *node = &list->nodes[list->count];
  *node = (struct pump_graph_node){.handle = handle, .kind = kind};
  bool known = kind == PUMP_EVENT_KERNEL ? read_kernel(list, node)
               : kind == PUMP_EVENT_COPY ? read_copy(node)
                                         : read_set(node);
  if (known)
    list->count++;
  else
    list->unknown++;
  return true;
}

/* ---- order ------------------------------------------------------------------- */

struct node_number {
  CUgraphNode handle;
  uint32_t index;
};

/* A graph's nodes in creation order, and its edges as indices. */
struct shape {
  CUgraphNode *nodes;
  struct node_number *numbers; /* sorted by handle */
  CUgraphNode *from, *to;
  CUgraphEdgeData *data;
  uint32_t *first, *before; /* node i's predecessors: before[first[i]..first[i + 1]) */
  uint32_t *order, *stack;
  size_t count, edges;
};

static int by_handle(const void *a, const void *b) {
  uintptr_t x = (uintptr_t)((const struct node_number *)a)->handle;
  uintptr_t y = (uintptr_t)((const struct node_number *)b)->handle;
  return (x > y) - (x < y);
}

static uint32_t index_of(const struct shape *shape, CUgraphNode handle) {
  struct node_number key = {.handle = handle};
  const struct node_number *found =
      bsearch(&key, shape->numbers, shape->count, sizeof key, by_handle);
  return found == NULL ? UINT32_MAX : found->index;
}

static CUresult ask_edges(CUgraph graph, struct shape *shape, bool count_only) {
  CUgraphNode *from = count_only ? NULL : shape->from, *to = count_only ? NULL : shape->to;
  CUgraphEdgeData *data = count_only ? NULL : shape->data;
  if (PUMP_HAS(cuGraphGetEdges_v2))
    return pump_real.cuGraphGetEdges_v2(graph, from, to, data, &shape->edges);
  if (PUMP_HAS(cuGraphGetEdges))
    return pump_real.cuGraphGetEdges(graph, from, to, &shape->edges);
  return CUDA_ERROR_NOT_FOUND;
}

/* Reads the edges. If the driver does not report any, creation order applies. The newer
 * call may refuse to count some edges unless there is space for their data. */
static bool read_edges(CUgraph graph, struct shape *shape) {
  ask_edges(graph, shape, true);
  if (shape->edges == 0) return true;
  if (shape->edges > MOST_NODES) return false;
  shape->from = calloc(shape->edges, sizeof *shape->from);
  shape->to = calloc(shape->edges, sizeof *shape->to);
  shape->data = calloc(shape->edges, sizeof *shape->data);
  if (shape->from == NULL || shape->to == NULL || shape->data == NULL) return false;
  if (ask_edges(graph, shape, false) != CUDA_SUCCESS) shape->edges = 0;
  return true;
}

static bool read_shape(CUgraph graph, struct shape *shape) {
  if (!PUMP_HAS(cuGraphGetNodes) || !PUMP_HAS(cuGraphNodeGetType)) return false;
  if (pump_real.cuGraphGetNodes(graph, NULL, &shape->count) != CUDA_SUCCESS ||
      shape->count > MOST_NODES)
    return false;
  size_t capacity = shape->count + 1;
  shape->nodes = calloc(capacity, sizeof *shape->nodes);
  shape->numbers = calloc(capacity, sizeof *shape->numbers);
  shape->first = calloc(capacity + 1, sizeof *shape->first);
  shape->order = calloc(capacity, sizeof *shape->order);
  shape->stack = calloc(capacity, sizeof *shape->stack);
  if (shape->nodes == NULL || shape->numbers == NULL || shape->first == NULL ||
      shape->order == NULL || shape->stack == NULL)
    return false;
  if (shape->count != 0 &&
      pump_real.cuGraphGetNodes(graph, shape->nodes, &shape->count) != CUDA_SUCCESS)
    return false;
  for (uint32_t i = 0; i < shape->count; i++)
    shape->numbers[i] = (struct node_number){shape->nodes[i], i};
  qsort(shape->numbers, shape->count, sizeof *shape->numbers, by_handle);
  return read_edges(graph, shape);
}

/* Sorts the edges by their target node. */
static bool index_edges(struct shape *shape) {
  shape->before = calloc(shape->edges + 1, sizeof *shape->before);
  if (shape->before == NULL) return false;
  for (size_t i = 0; i < shape->edges; i++) {
    uint32_t to = index_of(shape, shape->to[i]);
    if (to != UINT32_MAX) shape->first[to + 1]++;
  }
  for (size_t i = 0; i < shape->count; i++) shape->first[i + 1] += shape->first[i];
  /* Fills each node's part; `order` counts the entries. */
  for (size_t i = 0; i < shape->edges; i++) {
    uint32_t to = index_of(shape, shape->to[i]), from = index_of(shape, shape->from[i]);
    if (to == UINT32_MAX) continue;
    shape->before[shape->first[to] + shape->order[to]++] = from;
  }
  return true;
}

/* Sorts the nodes topologically, otherwise in creation order. Iterative depth-first
 * search. An instantiated graph has no cycle. */
static bool put_in_order(struct shape *shape) {
  enum { NEW = 0, DONE = UINT32_MAX };
  uint32_t *seen = shape->order, done = 0; /* visited edges + 1; reuses `order` */
  uint32_t *sorted = calloc(shape->count + 1, sizeof *sorted);
  if (sorted == NULL) return false;
  memset(seen, 0, shape->count * sizeof *seen);
  for (uint32_t i = 0; i < shape->count; i++) {
    uint32_t depth = 0;
    if (seen[i] != NEW) continue;
    shape->stack[depth++] = i;
    seen[i] = 1;
    while (depth > 0) {
      uint32_t node = shape->stack[depth - 1], edge = shape->first[node] + seen[node] - 1;
      if (edge == shape->first[node + 1]) {
        seen[node] = DONE;
        sorted[done++] = node;
        depth--;
        continue;
      }
      seen[node]++;
      uint32_t next = shape->before[edge];
      if (next == UINT32_MAX || seen[next] != NEW) continue;
      seen[next] = 1;
      shape->stack[depth++] = next;
    }
  }
  memcpy(shape->order, sorted, done * sizeof *sorted);
  free(sorted);
  return true;
}

static void free_shape(struct shape *shape) {
  free(shape->nodes);
  free(shape->numbers);
  free(shape->from);
  free(shape->to);
  free(shape->data);
  free(shape->first);
  free(shape->before);
  free(shape->order);
  free(shape->stack);
}

/* ---- graphs ------------------------------------------------------------------ */

static bool read_graph(CUgraph graph, struct pump_graph_list *list, uint32_t depth);

static bool read_child(CUgraphNode handle, struct pump_graph_list *list, uint32_t depth) {
  CUgraph graph = NULL;
  if (!PUMP_HAS(cuGraphChildGraphNodeGetGraph) || depth == MOST_DEPTH ||
      pump_real.cuGraphChildGraphNodeGetGraph(handle, &graph) != CUDA_SUCCESS) {
    list->unknown++;
    return true;
  }
  uint32_t number = list->child_count, first = list->count;
  if (!make_capacity(list, (void **)&list->children, number, &list->child_capacity,
                     sizeof list->children[0]))
    return false;
  list->child_count++;
  if (!read_graph(graph, list, depth + 1)) return false;
  list->children[number] = (struct pump_graph_child){handle, first, list->count - first};
  return true;
}

/* Marks the event as untrusted: each graph launch records it without a hook. */
static void distrust_event(CUgraphNode handle) {
  CUevent event = NULL;
  if (PUMP_HAS(cuGraphEventRecordNodeGetEvent) &&
      pump_real.cuGraphEventRecordNodeGetEvent(handle, &event) == CUDA_SUCCESS)
    pump_progress_event_distrust(event);
}

static bool read_node(CUgraphNode handle, struct pump_graph_list *list, uint32_t depth) {
  CUgraphNodeType type;
  if (pump_real.cuGraphNodeGetType(handle, &type) != CUDA_SUCCESS) return false;
  switch (type) {
  case CU_GRAPH_NODE_TYPE_KERNEL:
    return add_node(list, handle, PUMP_EVENT_KERNEL);
  case CU_GRAPH_NODE_TYPE_MEMCPY:
    return add_node(list, handle, PUMP_EVENT_COPY);
  case CU_GRAPH_NODE_TYPE_MEMSET:
    return add_node(list, handle, PUMP_EVENT_MEMSET);
  case CU_GRAPH_NODE_TYPE_GRAPH:
    return read_child(handle, list, depth);
  case CU_GRAPH_NODE_TYPE_CONDITIONAL:
    list->unknown++;
    return true;
  case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
    distrust_event(handle);
    return true;
  case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
  case CU_GRAPH_NODE_TYPE_MEM_FREE:
    list->memory = true;
    return true;
  default:
    return true;
  }
}

static bool read_graph(CUgraph graph, struct pump_graph_list *list, uint32_t depth) {
  struct shape shape = {0};
  bool right = read_shape(graph, &shape) && index_edges(&shape) && put_in_order(&shape);
  for (size_t i = 0; right && i < shape.count; i++)
    right = read_node(shape.nodes[shape.order[i]], list, depth);
  free_shape(&shape);
  return right;
}

bool pump_graph_read(CUgraph graph, struct pump_graph_list *list) {
  *list = (struct pump_graph_list){0};
  if (read_graph(graph, list, 0)) return true;
  pump_graph_list_free(list);
  return false;
}
