/* observe_graph.h - what the two files about graphs share: a graph's nodes as they were
 * read from the driver (observe_graph_read.c), kept for each executable graph and
 * reported when it is launched (observe_graph.c).
 */
#ifndef PUMP_OBSERVE_GRAPH_H
#define PUMP_OBSERVE_GRAPH_H

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
  uint32_t unknown; /* nodes that may touch memory of which the driver tells nothing */
  uint64_t bytes;   /* of all that */
};

/* Asks the driver for all of a graph. false: it did not tell, there is no memory, or the
 * bound on it is reached; then the list is empty. Inside a driver scope. */
bool pump_graph_read(CUgraph graph, struct pump_graph_list *list);
void pump_graph_list_free(struct pump_graph_list *list);

/* Other parameters of one node; false: no memory, and the node keeps what it has. */
bool pump_graph_node_kernel(struct pump_graph_list *list, struct pump_graph_node *node,
                            const CUDA_KERNEL_NODE_PARAMS_v1 *params, CUkernel kernel);

#endif
