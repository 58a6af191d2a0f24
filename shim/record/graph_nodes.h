/* graph_nodes.h - the nodes of a graph: read from the driver (graph_read.c), stored for
 * each executable graph (graph_execs.c) and reported when it is launched (hooks/graph.c).
 */
#ifndef PUMP_GRAPH_NODES_H
#define PUMP_GRAPH_NODES_H

#include "record.h"

/* A node that touches memory. */
struct pump_graph_node {
  CUgraphNode handle; /* node of the instantiated graph or of a child */
  uint32_t kind;      /* PUMP_EVENT_KERNEL, COPY or MEMSET */
  bool disabled;
  union {
    struct pump_launch kernel; /* `saved` is owned; params and extra are NULL */
    CUDA_MEMCPY3D copy;
    CUDA_MEMSET_NODE_PARAMS_v1 set;
  };
};

/* A child graph, whose nodes are contiguous. */
struct pump_graph_child {
  CUgraphNode handle;
  uint32_t first, count;
};

/* Nodes in an order that respects every edge. A child's nodes replace its node. */
struct pump_graph_list {
  struct pump_graph_node *nodes;
  uint32_t count, capacity;
  struct pump_graph_child *children;
  uint32_t child_count, child_capacity;
  bool memory;      /* the graph allocates or frees memory */
  uint32_t unknown; /* unreported nodes that may use memory */
  uint64_t bytes;   /* host memory used by the list */
};

/* Reads a whole graph from the driver. Returns false and an empty list if the driver
 * refuses, memory is short, or the bound is reached. Call it inside a driver scope. */
bool pump_graph_read(CUgraph graph, struct pump_graph_list *list);
void pump_graph_list_free(struct pump_graph_list *list);

/* Sets one node's parameters. If memory is short, returns false and changes nothing. */
bool pump_graph_node_kernel(struct pump_graph_list *list, struct pump_graph_node *node,
                            const CUDA_KERNEL_NODE_PARAMS_v1 *params, CUkernel kernel);

/* ---- executable graphs (graph_execs.c) -------------------------------------------- */

/* Number of executable graphs that allocate memory; read relaxed. */
extern uint32_t pump_graphs_allocating;

void pump_graph_instantiated(CUgraphExec handle, CUgraph graph);
void pump_graph_launched(CUgraphExec handle, struct pump_at at);
/* Counts the memory that a first launch may have allocated. Call it after each launch,
 * also while dormant. */
void pump_graph_count_memory(CUgraphExec handle);

/* Surrounds the real call that destroys a graph. The table drops the graph before the
 * call: after it, another thread may get the handle. NULL: unknown graph. */
struct pump_graph_exec *pump_graph_exec_out(CUgraphExec handle);
void pump_graph_exec_destroyed(struct pump_graph_exec *exec, bool over);

/* One of three changes: `graph` replaces the child `node`, or all nodes if `node` is
 * NULL; `params` replaces one node's parameters; or `enabled` switches one node. */
struct pump_graph_change {
  CUgraphNode node;
  CUgraph graph;
  const CUgraphNodeParams *params;
  bool enabled;
};
void pump_graph_changed(CUgraphExec handle, const struct pump_graph_change *change);

void pump_graph_execs_reset(void); /* only at process start, in a single thread */

#endif
