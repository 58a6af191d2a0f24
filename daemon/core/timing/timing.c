/* timing.c - input: operations, waits and samples. See timing.h. */
#include "timing.h"

/* A sample is clean only if its blocks arrived this long before it began, as far as
 * known, because a poll sees its end late [guessed]. */
#define SEEN_LATE_NS 200000u
/* Operations in flight that may fill the driver's queue, so that a launch waits for space
 * [guessed]. */
#define DEEP_OPERATIONS 256u
/* Keys distinguish bytes reached in units of 1 << REACH_SHIFT bytes [guessed]. */
#define REACH_SHIFT 16

struct timing_op *timing_find(struct pump_timing *timing, uint64_t seq) {
  struct timing_op *op = &timing->ops[seq & (TIMING_OPS - 1)];
  return seq != 0 && op->seq == seq ? op : NULL;
}

void timing_params(struct pump_timing *timing, uint64_t signature,
                   const struct pump_params *head) {
  uint64_t shape = head->identity;
  for (int i = 0; i < 3; i++) {
    shape = timing_mix(shape, head->grid[i]);
    shape = timing_mix(shape, head->block[i]);
  }
  struct timing_shape *entry = &timing->shapes[signature & (TIMING_SHAPES - 1)];
  *entry = (struct timing_shape){signature, shape};
}

/* Returns the stream's number; 0 when there are too many streams. */
static uint32_t number_of(struct pump_timing *timing, uint32_t stream) {
  uint8_t *number = &timing->number[stream & (PUMP_MAX_STREAMS - 1)];
  if (*number == 0 && timing->streams + 1 < TIMING_STREAMS)
    *number = (uint8_t)++timing->streams;
  return *number;
}

void timing_issued(struct pump_timing *timing, const struct pump_operation *issued,
                   uint32_t depth) {
  struct timing_op op = {.seq = issued->seq, .issued_ns = issued->issued_ns};
  uint64_t bytes = 0, signature = issued->signature;
  if (issued->count == 0 && issued->dropped != 0) timing->unknown++;
  if (op.seq == 0 || op.issued_ns >= TIMING_END_NS ||
      (timing->next_seq != 0 && op.seq + TIMING_OPS / 2 < timing->next_seq))
    return;
  for (uint32_t i = 0; i < issued->count; i++) bytes += issued->accesses[i].length_bytes;
  const struct timing_shape *known = &timing->shapes[signature & (TIMING_SHAPES - 1)];
  bool shaped = issued->kind == PUMP_EVENT_KERNEL && known->signature == signature;
  op.stream = number_of(timing, issued->stream);
  op.shape = timing_mix(shaped ? known->shape : signature, issued->kind) | 1;
  op.bytes = timing_at_most(bytes, UINT64_C(1) << 48);
  op.key = timing_mix(op.shape, bytes >> REACH_SHIFT) | 1;
  op.deep = depth >= DEEP_OPERATIONS;
  if (op.seq <= timing->graph_last) {
    op.inside = op.seq != timing->graph_last;
    op.key = op.shape = timing->graph_key;
    op.bytes = 0;
  }
  op.pair = timing_mix(timing->issued_key, op.key) | 1;
  if (timing->issued_ns != 0 && op.issued_ns >= timing->issued_ns)
    timing_pair_gap(timing, op.pair, op.issued_ns - timing->issued_ns);
  timing->issued_key = op.key;
  timing->issued_ns = op.issued_ns;
  timing->ops[op.seq & (TIMING_OPS - 1)] = op;
  if (timing->first_seq == 0) timing->first_seq = timing->replay.seq = op.seq;
  if (op.seq >= timing->next_seq) timing->next_seq = op.seq + 1;
  if (timing->next_seq - timing->replay.seq > TIMING_OPS - TIMING_OPS / 8)
    timing_advance(timing, &timing->replay, timing->next_seq - TIMING_OPS / 2);
}

void timing_graph(struct pump_timing *timing, uint64_t first, uint64_t count,
                  uint64_t executable) {
  if (count == 0) return;
  timing->graph_last = first + count - 1;
  timing->graph_key = timing_mix(executable, count) | 1;
}

static void take(struct pump_timing *timing, const struct timing_op *reported) {
  struct timing_op op = *reported;
  if (op.seen_ns == 0 || !op.retired || op.elapsed_ns == 0) return;
  bool before =
      op.arrived_ns == 0 || op.arrived_ns + op.elapsed_ns + SEEN_LATE_NS <= op.seen_ns;
  op.clean &= before;
  op.faulting &= before;
  timing_sample(timing, op.key, &op);
  if (op.shape != op.key) timing_sample(timing, op.shape, &op);
}

void timing_retired(struct pump_timing *timing, uint64_t seq,
                    const struct timing_met *met) {
  struct timing_op *op = timing_find(timing, seq);
  if (op == NULL) return;
  op->retired = true;
  op->clean = met->known && met->missed == 0;
  op->faulted = met->faulted;
  op->faulting = met->known && met->missed != 0 && met->missed == met->faulted;
  op->ready = op->clean && met->doubted == 0 && met->arrived_ns <= op->issued_ns;
  if (met->arrived_ns > op->arrived_ns) op->arrived_ns = met->arrived_ns;
  if (op->inside && !op->clean) op->arrived_ns = UINT64_MAX / 2;
  if (op->inside && timing->graph_last >= seq) {
    struct timing_op *last = timing_find(timing, timing->graph_last);
    if (last != NULL && op->arrived_ns > last->arrived_ns)
      last->arrived_ns = op->arrived_ns;
  }
  take(timing, op);
}

void timing_timed(struct pump_timing *timing, uint64_t seq, uint64_t elapsed_ns,
                  uint64_t seen_ns) {
  struct timing_op *op = timing_find(timing, seq);
  if (op == NULL || seen_ns == 0 || seen_ns >= TIMING_END_NS || elapsed_ns >> 40 != 0)
    return;
  op->elapsed_ns = elapsed_ns;
  op->seen_ns = seen_ns;
  take(timing, op);
}

void timing_waited(struct pump_timing *timing, const struct timing_wait *reported) {
  struct timing_wait wait = *reported;
  if (timing->first_seq == 0 || wait.ended_ns < wait.began_ns ||
      wait.ended_ns >= TIMING_END_NS)
    return;
  if (wait.stream != 0) wait.stream = number_of(timing, wait.stream);
  if (timing->wait_count - timing->replay.wait >= TIMING_WAITS)
    timing_advance(timing, &timing->replay, timing->next_seq);
  timing->waits[timing->wait_count++ & (TIMING_WAITS - 1)] = wait;
  timing->waited_ns += wait.ended_ns - wait.began_ns;
  if (wait.ended_ns > timing->issued_ns) timing->issued_ns = wait.ended_ns;
}
