/* model_graph.c - guesses how far the GPU has executed a graph.
 *
 * DESIGN. Progress shows a graph as executed only at its end. Until then, each block of
 * the graph would count as needed next, and none could leave. But programs replay their
 * graphs, and a run takes about as long as the previous one. So operations count as
 * executed in proportion to the elapsed part of that time, weighted by the blocks that
 * they use. The last operation is never guessed, and the first run is not guessed at all.
 *
 * A wrong guess only costs transfers: a fault brings back a block that left too early.
 * Guesses correct themselves, because faults make a run, and so the next guess, longer.
 */
#include "model_state.h"
#include "pump_ring.h"

/* Guesses run ahead, because both ends of a run are seen late and arrivals take time.
 * Percentage of the last run's pace [measured: 0010]. */
#define AHEAD_PERCENT 110

static uint64_t *duration_of(struct pump_model *m, uint64_t executable) {
  struct graph_time *known =
      &m->graphs.known[executable * 0x9e3779b97f4a7c15u >> 56 & (GRAPHS_KNOWN - 1)];
  if (known->executable != executable)
    *known = (struct graph_time){.executable = executable};
  return &known->duration_ns;
}

void model_graph_add(struct pump_model *m, const struct graph_launch *launch) {
  struct graphs *graphs = &m->graphs;
  if (graphs->count == GRAPH_LAUNCHES || launch->last < launch->first) return;
  graphs->launches[graphs->count++] = *launch;
}

void model_graph_weigh(struct pump_model *m, uint64_t seq) {
  for (uint32_t i = m->graphs.count; i-- > 0;) {
    struct graph_launch *launch = &m->graphs.launches[i];
    if (seq < launch->first || seq > launch->last) continue;
    launch->weight += m->window.ops[op_index(m->window.op_issued - 1)].uses + 1u;
    return;
  }
}

/* Retires the operations that should have executed by that time. */
static bool guess(struct pump_model *m, struct graph_launch *launch, uint64_t now_ns) {
  uint64_t duration_ns = *duration_of(m, launch->executable);
  struct stream *stream = &m->streams.all[launch->stream];
  if (duration_ns == 0) return false;
  double part = (double)(now_ns - launch->began_ns) / (double)duration_ns;
  double due = part * (double)launch->weight * AHEAD_PERCENT / 100;
  bool any = false;
  while (stream->head != NONE) {
    const struct op *op = &m->window.ops[stream->head];
    if (op->seq < launch->first || op->seq >= launch->last) break;
    if ((double)(launch->retired + op->uses + 1) > due) break;
    launch->retired += op->uses + 1u;
    model_retire_head(m, launch->stream);
    any = true;
  }
  return any;
}

/* Returns whether all earlier operations of its stream have executed. */
static bool has_begun(const struct pump_model *m, const struct graph_launch *launch,
                      uint64_t executed_seq) {
  int32_t head = m->streams.all[launch->stream].head;
  return executed_seq + 1 >= launch->first ||
         (head != NONE && m->window.ops[head].seq >= launch->first);
}

EXPORT void pump_model_graphs(struct pump_model *m, const uint64_t *executed_seq,
                              uint32_t stride, uint64_t now_ns) {
  struct graphs *graphs = &m->graphs;
  uint32_t kept = 0;
  bool any = false;
  for (uint32_t i = 0; i < graphs->count; i++) {
    struct graph_launch launch = graphs->launches[i];
    uint64_t executed = PUMP_LOAD(&executed_seq[(size_t)launch.stream * stride]);
    if (executed >= launch.last) {
      if (launch.began_ns != 0)
        *duration_of(m, launch.executable) = now_ns - launch.began_ns;
      continue;
    }
    if (launch.began_ns == 0 && has_begun(m, &launch, executed)) launch.began_ns = now_ns;
    if (launch.began_ns != 0) any |= guess(m, &launch, now_ns);
    graphs->launches[kept++] = launch;
  }
  graphs->count = kept;
  if (any) model_retired(m);
}
