/* capture.h - graphs, and the captures that fill them. Shared by capture.c and graph.c.
 *
 * A graph is the list of its nodes in the order of capture, which respects every
 * dependency; a launch replays them one after the other in one stream.
 */
#ifndef PUMP_VIRTUAL_CAPTURE_H
#define PUMP_VIRTUAL_CAPTURE_H

#include "driver.h"

struct vd_node {
  int type; /* CU_GRAPH_NODE_TYPE_* */
  struct gpu_operation operation;
  struct gpu_use *uses;     /* owned */
  struct vd_action *action; /* owned, may be NULL */
};

struct vd_graph {
  uint32_t magic;
  struct vd_node **nodes;
  size_t count, room;
};

struct vd_capture {
  struct vd_stream *origin;
  struct vd_graph *graph;
  pthread_t thread;
  uint64_t id;
  int mode;
  bool invalid;
  struct vd_capture *next;
};

struct vd_graph *vd_graph_new(enum vd_magic magic);
void vd_graph_free_locked(struct vd_graph *graph);
CUresult vd_graph_add(struct vd_graph *graph, const struct gpu_operation *operation,
                      struct vd_action *action, int type);

#endif
