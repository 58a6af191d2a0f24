/* graph_driver.h - a fake driver that describes graphs, and graphs for it. Only graphs.c
 * uses it.
 */
#ifndef GRAPH_DRIVER_H
#define GRAPH_DRIVER_H

#include <string.h>

#include "record_harness.h"

#define A 0x7f0010000000
#define B 0x7f0020000000
#define STREAM ((CUstream)0x7)
#define EXEC ((CUgraphExec)0x2000)

/* ---- graphs of the driver ---------------------------------------------------- */

struct node {
  CUgraphNodeType type;
  uint64_t words[3]; /* of a kernel's parameters */
  void *params[3];
  CUDA_MEMCPY3D copy;
  CUDA_MEMSET_NODE_PARAMS_v1 set;
  struct graph *child;
};

struct graph {
  struct node *nodes[8];
  size_t count, edges;
  struct node *from[8], *to[8];
};

static uint64_t reserved_bytes; /* memory of graphs */
static int asked;
static bool silent; /* the driver does not describe kernels */
static struct node nodes_made[16384];
static struct graph graphs_made[16384];
static size_t nodes_used, graphs_used;

static CUgraphNode handle(const struct node *node) {
  return (CUgraphNode)(uintptr_t)node;
}
static const struct node *node_of(CUgraphNode node) {
  return (const struct node *)(const void *)node;
}

static CUresult get_nodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
  const struct graph *g = (const struct graph *)(const void *)graph;
  CHECK(pump_reentry_depth != 0);
  for (size_t i = 0; nodes != NULL && i < *count; i++) nodes[i] = handle(g->nodes[i]);
  *count = g->count;
  return CUDA_SUCCESS;
}
static CUresult get_edges(CUgraph graph, CUgraphNode *from, CUgraphNode *to,
                          CUgraphEdgeData *data, size_t *count) {
  const struct graph *g = (const struct graph *)(const void *)graph;
  for (size_t i = 0; from != NULL && i < *count; i++) {
    from[i] = handle(g->from[i]);
    to[i] = handle(g->to[i]);
    data[i] = (CUgraphEdgeData){0};
  }
  *count = g->edges;
  return CUDA_SUCCESS;
}
static CUresult get_type(CUgraphNode node, CUgraphNodeType *type) {
  *type = node_of(node)->type;
  return CUDA_SUCCESS;
}
static CUresult get_kernel(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v2 *params) {
  if (silent) return CUDA_ERROR_NOT_SUPPORTED;
  *params = (CUDA_KERNEL_NODE_PARAMS_v2){.func = KERNEL,
                                         .gridDimX = 1,
                                         .gridDimY = 1,
                                         .gridDimZ = 1,
                                         .blockDimX = 1,
                                         .blockDimY = 1,
                                         .blockDimZ = 1};
  params->kernelParams = (void **)(uintptr_t)node_of(node)->params;
  return CUDA_SUCCESS;
}
static CUresult get_copy(CUgraphNode node, CUDA_MEMCPY3D *copy) {
  *copy = node_of(node)->copy;
  return CUDA_SUCCESS;
}
static CUresult get_set(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS_v1 *set) {
  *set = node_of(node)->set;
  return CUDA_SUCCESS;
}
static CUresult get_child(CUgraphNode node, CUgraph *graph) {
  *graph = (CUgraph)(void *)node_of(node)->child;
  return CUDA_SUCCESS;
}

static CUresult get_event(CUgraphNode node, CUevent *event) {
  *event = (CUevent)(uintptr_t)node_of(node)->words[0];
  return CUDA_SUCCESS;
}
static CUresult get_memory(CUdevice device, CUgraphMem_attribute attribute, void *value) {
  CHECK(device == 3 && attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
  CHECK(pump_reentry_depth != 0);
  asked++;
  memcpy(value, &reserved_bytes, sizeof reserved_bytes);
  return CUDA_SUCCESS;
}
static CUresult trim(CUdevice device) {
  CHECK(device == 3);
  reserved_bytes = 0;
  return CUDA_SUCCESS;
}

/* Installs the functions once; always returns true. */
static bool tell_graphs(void) {
  static bool told_already;
  if (told_already) return true;
  told_already = true;
  pump_real.cuGraphGetNodes = get_nodes;
  pump_real.cuGraphGetEdges_v2 = get_edges;
  pump_real.cuGraphNodeGetType = get_type;
  pump_real.cuGraphKernelNodeGetParams_v2 = get_kernel;
  pump_real.cuGraphMemcpyNodeGetParams = get_copy;
  pump_real.cuGraphMemsetNodeGetParams = get_set;
  pump_real.cuGraphChildGraphNodeGetGraph = get_child;
  pump_real.cuGraphEventRecordNodeGetEvent = get_event;
  pump_real.cuDeviceGetGraphMemAttribute = get_memory;
  pump_real.cuDeviceGraphMemTrim = trim;
  driver.sizes[0] = driver.sizes[1] = 8, driver.sizes[2] = 4, driver.parameters = 3;
  return true;
}

/* ---- building graphs -------------------------------------------------------- */

static struct node *kernel_params(struct node *node, uint64_t a, uint64_t b) {
  *node = (struct node){.type = CU_GRAPH_NODE_TYPE_KERNEL, .words = {a, b, 5}};
  for (int i = 0; i < 3; i++) node->params[i] = &node->words[i];
  return node;
}
static struct node *kernel(uint64_t a, uint64_t b) {
  return kernel_params(&nodes_made[nodes_used++], a, b);
}
static struct node *copy(uint64_t to, uint64_t from, size_t bytes) {
  struct node *node = &nodes_made[nodes_used++];
  node->type = CU_GRAPH_NODE_TYPE_MEMCPY;
  node->copy = (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                               .srcDevice = from,
                               .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                               .dstDevice = to,
                               .WidthInBytes = bytes,
                               .Height = 1,
                               .Depth = 1};
  return node;
}
static struct node *set(uint64_t to, size_t count) {
  struct node *node = &nodes_made[nodes_used++];
  node->type = CU_GRAPH_NODE_TYPE_MEMSET;
  node->set = (CUDA_MEMSET_NODE_PARAMS_v1){
      .dst = to, .elementSize = 4, .width = count, .height = 1};
  return node;
}
static struct node *other(CUgraphNodeType type) {
  struct node *node = &nodes_made[nodes_used++];
  node->type = type;
  return node;
}
static struct graph *graph_of(size_t count, struct node **nodes) {
  struct graph *graph = &graphs_made[graphs_used++];
  for (size_t i = 0; i < count; i++) graph->nodes[graph->count++] = nodes[i];
  return graph;
}
#define GRAPH(...)                                                                         \
  graph_of(sizeof((struct node *[]){__VA_ARGS__}) / sizeof(struct node *),                 \
           (struct node *[]){__VA_ARGS__})
static struct node *child(struct graph *graph) {
  struct node *node = other(CU_GRAPH_NODE_TYPE_GRAPH);
  node->child = graph;
  return node;
}
static void edge(struct graph *graph, struct node *from, struct node *to) {
  graph->from[graph->edges] = from;
  graph->to[graph->edges++] = to;
}

static void instantiate(CUgraphExec exec, struct graph *graph) {
  tell_graphs();
  CHECK(cuGraphInstantiateWithFlags(&exec, (CUgraph)(void *)graph, 0) == CUDA_SUCCESS);
}

/* ---- reported events ------------------------------------------------------------ */

static bool uses_at(uint32_t i, const struct pump_range_info *r, uint64_t argument) {
  return extent_is(i, r, 0, argument, PUMP_ACCESS_ARGUMENT);
}

/* Launches and reads the leading row, which announces `operations` operations. Returns the
 * number of the first one. */
static uint64_t launch_graph(uint32_t operations) {
  CHECK(cuGraphLaunch(EXEC, STREAM) == CUDA_SUCCESS && pump_reentry_depth == 0);
  if (operations == 0) {
    CHECK(!next_event());
    return 0;
  }
  CHECK(next_event() && head.kind == PUMP_EVENT_GRAPH && head.extent_count == 0);
  CHECK(head.function == (uint64_t)(uintptr_t)EXEC && head.signature == operations);
  CHECK(head.stream == 7 && head.device == 3);
  return head.seq;
}
static void next_is(uint16_t kind, uint64_t seq, uint16_t count) {
  CHECK(next_event() && head.kind == kind && head.seq == seq);
  CHECK(head.extent_count == count && head.stream == 7 && head.time_ns == NOW_NS);
}

#endif
