/* graph.h - graphs, their nodes, and the captures that fill them. Shared by capture.c and
 * graph*.c.
 *
 * A graph keeps its nodes in order of creation. An executable graph is a deep copy; each
 * of its nodes stores the id of the original node.
 */
#ifndef PUMP_VIRTUAL_GRAPH_H
#define PUMP_VIRTUAL_GRAPH_H

#include "lab/driver/code/code.h"

/* Work as requested by a program: the contents of a graph node. */
struct vd_work {
  int type; /* CU_GRAPH_NODE_TYPE_* */
  union {
    struct vd_kernel_call kernel;
    struct vd_copy copy;
    struct vd_set set;
    CUDA_HOST_NODE_PARAMS_v1 host;
    struct vd_graph *child;
    CUevent event;
    struct {
      uint64_t address, length_bytes, id;
    } memory; /* an allocation or a free */
  };
};

struct vd_node {
  uint32_t magic;
  bool enabled;
  uint8_t colour; /* scratch space of traversals */
  uint32_t index; /* scratch space: index in graph->nodes */
  uint64_t id, origin_id;
  struct vd_graph *graph;
  struct vd_work work;
  struct vd_settings settings; /* for a kernel */
  struct vd_node **dependencies;
  CUgraphEdgeData *edges; /* one for each dependency */
  uint32_t count, room;   /* sizes of both arrays */
  void **pointers;        /* kernel parameters returned by GetParams */
};

struct vd_graph {
  uint32_t magic;
  bool owned;     /* owned by a child node: the program must not destroy it */
  bool dead;      /* destroyed while a thread launches it */
  bool memory;    /* has allocation or free nodes (graph_memory.c) */
  uint32_t users; /* launches in progress */
  uint64_t flags; /* flags of its instantiation */
  struct vd_node **nodes;
  struct vd_node **order; /* executable graph: nodes in order of execution */
  size_t count, room;
  struct vd_user_reference *references; /* user_object.c */
};

/* Work submitted by launches of graphs. */
extern struct vd_graph_counts {
  uint64_t launches, kernels, copies, memsets;
  uint64_t used_high, reserved_high; /* peak bytes of the graphs' own memory */
} vd_graphs;

/* Callers hold the driver's lock. Returns NULL if the handle is of another kind. */
static inline struct vd_graph *vd_graph_of(const void *handle, enum vd_magic magic) {
  return vd_is(handle, magic) ? (struct vd_graph *)(uintptr_t)handle : NULL;
}
static inline struct vd_node *vd_node_of(const void *handle) {
  return vd_is(handle, VD_NODE) ? (struct vd_node *)(uintptr_t)handle : NULL;
}

struct vd_graph *vd_graph_new(enum vd_magic magic);
void vd_graph_free_locked(struct vd_graph *graph);
/* Returns a deep copy; NULL: out of memory. */
struct vd_graph *vd_graph_copy_locked(const struct vd_graph *graph, enum vd_magic magic);
/* Fills graph->order, also of children; returns an error if there is a cycle. */
CUresult vd_graph_order_locked(struct vd_graph *graph);

/* Appends a node, which then owns the contents of `work`. `edges` may be NULL. */
CUresult vd_node_new_locked(struct vd_graph *graph, const struct vd_work *work,
                            struct vd_node *const *dependencies,
                            const CUgraphEdgeData *edges, size_t count,
                            struct vd_node **out);

/* user_object.c: references of a copied graph, and of a freed one */
CUresult vd_user_objects_copy_locked(const struct vd_graph *graph, struct vd_graph *copy);
void vd_user_objects_let_go_locked(struct vd_graph *graph);

/* graph_params.c */
CUresult vd_work_copy_locked(const struct vd_work *work, struct vd_work *out);
void vd_work_free_locked(struct vd_work *work);
CUresult vd_work_of_kernel(const CUDA_KERNEL_NODE_PARAMS_v1 *params, CUkernel kernel,
                           struct vd_work *out);
CUresult vd_work_of_copy(const CUDA_MEMCPY3D *params, struct vd_work *out);
CUresult vd_work_of_set(const CUDA_MEMSET_NODE_PARAMS_v1 *params, struct vd_work *out);
CUresult vd_work_of_host(const CUDA_HOST_NODE_PARAMS_v1 *params, struct vd_work *out);
CUresult vd_work_of_event_locked(CUevent event, int type, struct vd_work *out);
CUresult vd_work_of_any_locked(const CUgraphNodeParams *params, struct vd_work *out);

/* Adds a node with `work`; frees `work` on failure. */
CUresult vd_node_add_locked(CUgraphNode *out, CUgraph graph, const CUgraphNode *on,
                            const CUgraphEdgeData *edges, size_t count,
                            struct vd_work *work);

/* graph_attributes.c */
void vd_node_attributes_locked(struct vd_node *node, const CUlaunchConfig *config);

/* capture.c. If `stream` captures, copies `work` into a node and sets *captured. */
CUresult vd_capture_take_locked(struct vd_stream *stream, const struct vd_work *work,
                                bool *captured);
void vd_capture_forget_stream_locked(struct vd_stream *stream);
CUresult vd_capture_kernel_locked(struct vd_stream *stream,
                                  const struct vd_kernel_call *call,
                                  const CUlaunchConfig *config, bool *captured);
CUresult vd_capture_copy_locked(struct vd_stream *stream, const struct vd_copy *copy,
                                bool *captured);
CUresult vd_capture_set_locked(struct vd_stream *stream, const struct vd_set *set,
                               bool *captured);

/* graph_memory.c */
CUresult vd_capture_allocation_locked(struct vd_stream *stream, size_t length_bytes,
                                      CUdeviceptr *out);
CUresult vd_capture_free_locked(struct vd_stream *stream, CUdeviceptr address);
void vd_graph_memory_let_go_locked(const struct vd_work *work);
CUresult vd_graph_memory_free_locked(struct vd_memory *memory);
void vd_graph_memory_hold_locked(const struct vd_work *work);
bool vd_graph_memory_instantiated_locked(const struct vd_graph *graph);
/* Provides the memory of all allocations before a launch. */
CUresult vd_graph_memory_ready_locked(const struct vd_graph *exec);
CUresult vd_graph_memory_run_locked(const struct vd_work *work);

/* Replaces the work of an existing node by `work`, which must have the same type. */
CUresult vd_node_set_locked(struct vd_node *node, struct vd_work *work);

/* Nodes and graphs are objects (base/object.c). */
_Static_assert(sizeof(struct vd_node) <= VD_OBJECT_BYTES, "node");
_Static_assert(sizeof(struct vd_graph) <= VD_OBJECT_BYTES, "graph");

#endif
