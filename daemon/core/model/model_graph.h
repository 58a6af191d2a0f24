/* model_graph.h - launches of graphs; no marker shows how far the GPU is within one. */
#ifndef PUMP_MODEL_GRAPH_H
#define PUMP_MODEL_GRAPH_H

#include <stdint.h>

struct pump_model;

#define GRAPH_LAUNCHES 64 /* followed at once; others are seen to end all at once */
#define GRAPHS_KNOWN 256

/* A launch of a graph that has not been seen to execute. */
struct graph_launch {
  uint64_t first, last; /* numbers of its operations */
  uint64_t executable;
  uint64_t began_ns;        /* 0: not yet */
  uint64_t weight, retired; /* blocks that its operations use, plus one an operation */
  uint32_t stream;
};

struct graph_time {
  uint64_t executable, duration_ns; /* of its last run */
};

struct graphs {
  struct graph_launch launches[GRAPH_LAUNCHES];
  struct graph_time known[GRAPHS_KNOWN];
  uint32_t count;
};

void model_graph_add(struct pump_model *m, const struct graph_launch *launch);
/* Adds the weight of the newest operation, `seq`, to its launch. */
void model_graph_weigh(struct pump_model *m, uint64_t seq);

#endif
