/* model_graph.h - launches of graphs, whose inner progress is not visible to markers. */
#ifndef PUMP_MODEL_GRAPH_H
#define PUMP_MODEL_GRAPH_H

#include <stdint.h>

struct pump_model;

/* Launches whose progress is guessed at once (others end as a whole), and executable
 * graphs whose duration is kept; a power of two [guessed]. */
#define GRAPH_LAUNCHES 64
#define GRAPHS_KNOWN 256

/* A launch of a graph whose end has not been seen. */
struct graph_launch {
  uint64_t first, last; /* numbers of its first and last operation */
  uint64_t executable;
  uint64_t began_ns;        /* when it began; 0: not yet */
  uint64_t weight, retired; /* all and retired work: blocks, plus one per operation */
  uint32_t stream;
};

struct graph_time {
  uint64_t executable, duration_ns; /* `duration_ns`: of its last run */
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
