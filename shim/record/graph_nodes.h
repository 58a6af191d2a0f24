/* graph_nodes.h - what the two files about graphs share: a graph's nodes as they were
 * read from the driver (graph_read.c), kept for each executable graph and
 * reported when it is launched (hooks/graph.c).
 */
#ifndef PUMP_GRAPH_NODES_H
#define PUMP_GRAPH_NODES_H

#include "record.h"

/* A node that touches memory. */
struct pump_graph_node {
  CUgraphNode handle; /* of the graph that was instantiated, or in a child of it */
  uint32_t kind;      /* PUMP_EVENT_KERNEL, COPY or MEMSET */
  bool disabled;
  union {
    struct pump_launch kernel; /* its `saved` is owned, params and extra are NULL */
    CUDA_MEMCPY3D copy;
    CUDA_MEMSET_NODE_PARAMS_v1 set;
  };
};

/* The nodes of a child stand one behind the other. */
struct pump_graph_child {
  CUgraphNode handle;
  uint32_t first, count;
};

/* In an order that respects every edge, children in place of their nodes. */
struct pump_graph_list {
  struct pump_graph_node *nodes;
  uint32_t count, room;
  struct pump_graph_child *children;
  uint32_t child_count, child_room;
  bool memory;      /* it allocates or frees */
  uint32_t unknown; /* nodes that may touch memory of which the driver reports nothing */
  uint64_t bytes;   /* of all that */
};

/* Reads all of a graph from the driver. false: the driver refused, there is no memory, or
 * the bound on it is reached; then the list is empty. Inside a driver scope. */
bool pump_graph_read(CUgraph graph, struct pump_graph_list *list);
void pump_graph_list_free(struct pump_graph_list *list);

/* Other parameters of one node; false: no memory, and the node keeps what it has. */
bool pump_graph_node_kernel(struct pump_graph_list *list, struct pump_graph_node *node,
                            const CUDA_KERNEL_NODE_PARAMS_v1 *params, CUkernel kernel);

/* ---- executable graphs (graph_execs.c) -------------------------------------------- */

/* How many executable graphs allocate; read relaxed. */
extern uint32_t pump_graphs_allocating;

void pump_graph_instantiated(CUgraphExec handle, CUgraph graph);
void pump_graph_launched(CUgraphExec handle, struct pump_at at);
/* To be called after each launch, dormant or not: counts the memory that a first launch may
 * have taken. */
void pump_graph_count_memory(CUgraphExec handle);

/* Around the real call that destroys one; NULL: not known. It is taken out before, for
 * afterwards another thread may be given the handle. */
struct pump_graph_exec *pump_graph_exec_out(CUgraphExec handle);
void pump_graph_exec_destroyed(struct pump_graph_exec *exec, bool over);

/* A graph takes the place of the child `node`, or of all where that is NULL; else one node
 * has other parameters; else it is switched on or off. */
struct pump_graph_change {
  CUgraphNode node;
  CUgraph graph;
  const CUgraphNodeParams *params;
  bool enabled;
};
void pump_graph_changed(CUgraphExec handle, const struct pump_graph_change *change);

void pump_graph_execs_reset(void); /* no other thread runs (start of a process) */

#endif
