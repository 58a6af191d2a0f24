/* hard_graph.c - graphs made and changed in every possible way, oversubscribed.
 *
 * Usage: hard_graph CASE. Prints "right" (exit status 0) or an error (exit status 9).
 */
#include "hard.h"

static CUcontext context;
static CUfunction mix;

/* ---- nodes, and their effect on the model ------------------------------------ */

#define NODES 24

struct plan {
  struct set *set;
  CUgraph graph;
  CUgraphNode nodes[NODES];
  struct step {
    enum { MIX, COPY, FILL } kind;
    unsigned target, source;
    uint64_t number; /* seed of a mix or value of a fill */
    bool off;
  } steps[NODES];
  unsigned count;
};

static uint64_t sample(unsigned word_bits) {
  return (uint64_t)word_bits << 32 | word_bits;
}

static void apply(struct plan *plan) {
  for (unsigned n = 0; n < plan->count; n++) {
    const struct step *step = &plan->steps[n];
    uint64_t *target = plan->set->model[step->target];
    const uint64_t *source = plan->set->model[step->source];
    if (step->off) continue;
    for (size_t i = 0; i < SAMPLES; i++) {
      if (step->kind == MIX)
        target[i] = target[i] * 6364136223846793005u + source[i] + step->number;
      else
        target[i] = step->kind == COPY ? source[i] : sample((unsigned)step->number);
    }
  }
}

/* The parameters must outlive the call that takes them. */
struct mix_params {
  uint64_t target, source, words, seed;
  void *pointers[4];
  CUDA_KERNEL_NODE_PARAMS_v2 params;
};

static const CUDA_KERNEL_NODE_PARAMS_v2 *
mix_params(struct mix_params *out, const struct plan *plan, const struct step *step) {
  *out = (struct mix_params){.target = plan->set->buffers[step->target],
                             .source = plan->set->buffers[step->source],
                             .words = WORDS,
                             .seed = step->number};
  void *pointers[] = {&out->target, &out->source, &out->words, &out->seed};
  memcpy(out->pointers, pointers, sizeof pointers);
  out->params = (CUDA_KERNEL_NODE_PARAMS_v2){.func = mix,
                                             .gridDimX = 64,
                                             .gridDimY = 1,
                                             .gridDimZ = 1,
                                             .blockDimX = 256,
                                             .blockDimY = 1,
                                             .blockDimZ = 1,
                                             .kernelParams = out->pointers};
  return &out->params;
}

static CUDA_MEMCPY3D copy_params(const struct plan *plan, const struct step *step) {
  return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                         .srcDevice = plan->set->buffers[step->source],
                         .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                         .dstDevice = plan->set->buffers[step->target],
                         .WidthInBytes = BUFFER_BYTES,
                         .Height = 1,
                         .Depth = 1};
}

/* Adds a random step after the previous one, as its own node. */
static void add(struct plan *plan, int kind) {
  struct set *set = plan->set;
  unsigned n = plan->count++;
  struct step *step = &plan->steps[n];
  *step = (struct step){.kind = kind,
                        .target = set_random(set, set->count),
                        .source = set_random(set, set->count),
                        .number = set_random(set, 1u << 20)};
  const CUgraphNode *on = n == 0 ? NULL : &plan->nodes[n - 1];
  CUgraphNode *out = &plan->nodes[n];
  struct mix_params params;
  CUDA_MEMCPY3D copy = copy_params(plan, step);
  CUDA_MEMSET_NODE_PARAMS_v1 fill = {.dst = set->buffers[step->target],
                                     .value = (unsigned)step->number,
                                     .elementSize = 4,
                                     .width = BUFFER_BYTES / 4,
                                     .height = 1};
  if (kind == MIX)
    MUST(cu.GraphAddKernelNode(out, plan->graph, on, n != 0,
                               mix_params(&params, plan, step)));
  else if (kind == COPY)
    MUST(cu.GraphAddMemcpyNode(out, plan->graph, on, n != 0, &copy, context));
  else
    MUST(cu.GraphAddMemsetNode(out, plan->graph, on, n != 0, &fill, context));
}

static struct plan begin(struct set *set) {
  struct plan plan = {.set = set};
  MUST(cu.GraphCreate(&plan.graph, 0));
  return plan;
}

static CUgraphExec instance(CUgraph graph) {
  CUgraphExec exec;
  MUST(cu.GraphInstantiateWithFlags(&exec, graph, 0));
  return exec;
}

static void replay(CUgraphExec exec, struct plan *plan, CUstream stream, int times) {
  for (int i = 0; i < times; i++) {
    MUST(cu.GraphLaunch(exec, stream));
    apply(plan);
  }
}

/* ---- cases ----------------------------------------------------------------------- */

/* Nodes of every kind, a clone, a child; the graphs are destroyed before the launch. */
static void nodes(void) {
  struct set *set = set_make(24, 3);
  struct plan plan = begin(set), inner = begin(set);
  for (int i = 0; i < NODES; i++) add(&plan, i % 8 == 3 ? COPY : i % 8 == 7 ? FILL : MIX);
  for (int i = 0; i < 6; i++) add(&inner, i == 4 ? COPY : MIX);
  CUgraph clone, outer;
  CUgraphNode child, last;
  MUST(cu.GraphClone(&clone, plan.graph));
  MUST(cu.GraphDestroy(plan.graph));
  MUST(cu.GraphCreate(&outer, 0));
  MUST(cu.GraphAddChildGraphNode(&child, outer, NULL, 0, clone));
  MUST(cu.GraphAddChildGraphNode(&last, outer, &child, 1, inner.graph));
  MUST(cu.GraphDestroy(clone));
  MUST(cu.GraphDestroy(inner.graph));
  CUgraphExec exec = instance(outer);
  MUST(cu.GraphDestroy(outer));
  for (int round = 0; round < 6; round++) {
    MUST(cu.GraphLaunch(exec, NULL));
    apply(&plan);
    apply(&inner);
    set_step(set, &cu, mix, NULL);
  }
  MUST(cu.CtxSynchronize());
  MUST(cu.GraphExecDestroy(exec));
  set_check(set);
}

/* Replaces a step of an instantiated graph by another step of the same kind. */
static void change(struct plan *plan, CUgraphExec exec, unsigned n) {
  struct step *step = &plan->steps[n];
  step->target = set_random(plan->set, plan->set->count);
  step->source = set_random(plan->set, plan->set->count);
  struct mix_params params;
  CUDA_MEMCPY3D copy = copy_params(plan, step);
  if (step->kind == MIX)
    MUST(cu.GraphExecKernelNodeSetParams(exec, plan->nodes[n],
                                         mix_params(&params, plan, step)));
  else
    MUST(cu.GraphExecMemcpyNodeSetParams(exec, plan->nodes[n], &copy, context));
}

static void changes(void) {
  struct set *set = set_make(24, 4);
  struct plan plan = begin(set);
  for (int i = 0; i < NODES; i++) add(&plan, i % 5 == 1 ? COPY : MIX);
  CUgraphExec exec = instance(plan.graph);
  for (int round = 0; round < 8; round++) {
    replay(exec, &plan, NULL, 2);
    for (unsigned n = (unsigned)round; n < NODES; n += 5) change(&plan, exec, n);
    unsigned off = set_random(set, NODES);
    plan.steps[off].off = !plan.steps[off].off;
    MUST(cu.GraphNodeSetEnabled(exec, plan.nodes[off], !plan.steps[off].off));
  }
  MUST(cu.CtxSynchronize());
  MUST(cu.GraphExecDestroy(exec));
  MUST(cu.GraphDestroy(plan.graph));
  set_check(set);
}

static void updates(void) {
  struct set *set = set_make(24, 5);
  CUgraphExec exec = NULL;
  for (int round = 0; round < 8; round++) {
    struct plan plan = begin(set);
    CUgraphExecUpdateResultInfo info;
    for (int i = 0; i < NODES; i++) add(&plan, i % 7 == 1 ? COPY : i % 7 == 2 ? FILL : MIX);
    if (exec == NULL)
      exec = instance(plan.graph);
    else
      MUST(cu.GraphExecUpdate(exec, plan.graph, &info));
    MUST(cu.GraphDestroy(plan.graph));
    replay(exec, &plan, NULL, 2);
  }
  MUST(cu.CtxSynchronize());
  MUST(cu.GraphExecDestroy(exec));
  set_check(set);
}

/* Works like frameworks: warms up, captures an iteration that forks to a side stream, and
 * replays it several times. */
static void iteration(void) {
  struct set *set = set_make(24, 6);
  CUstream stream, side;
  CUevent fork, join;
  CUgraph graph;
  unsigned pairs[60][2];
  MUST(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  MUST(cu.StreamCreate(&side, CU_STREAM_NON_BLOCKING));
  MUST(cu.EventCreate(&fork, CU_EVENT_DISABLE_TIMING));
  MUST(cu.EventCreate(&join, CU_EVENT_DISABLE_TIMING));
  for (int i = 0; i < 60; i++) set_step(set, &cu, mix, stream);
  MUST(cu.StreamSynchronize(stream));
  MUST(cu.StreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  for (unsigned i = 0; i < 60; i++) {
    unsigned half = i % 2 * 12; /* the upper half is only for the side stream */
    pairs[i][0] = half + set_random(set, 12), pairs[i][1] = half + set_random(set, 12);
    if (i % 20 == 0) {
      MUST(cu.EventRecord(fork, stream));
      MUST(cu.StreamWaitEvent(side, fork, 0));
    }
    launch_mix(&cu, mix, half ? side : stream, set->buffers[pairs[i][0]],
               set->buffers[pairs[i][1]], i);
    if (i % 20 != 19) continue;
    MUST(cu.EventRecord(join, side));
    MUST(cu.StreamWaitEvent(stream, join, 0));
  }
  MUST(cu.StreamEndCapture(stream, &graph));
  CUgraphExec exec = instance(graph);
  MUST(cu.GraphDestroy(graph));
  for (int round = 0; round < 8; round++) {
    MUST(cu.GraphLaunch(exec, stream));
    for (unsigned n = 0; n < 60; n++)
      for (size_t i = 0; i < SAMPLES; i++)
        set->model[pairs[n][0]][i] = set->model[pairs[n][0]][i] * 6364136223846793005u +
                                     set->model[pairs[n][1]][i] + n;
  }
  MUST(cu.StreamSynchronize(stream));
  MUST(cu.GraphExecDestroy(exec));
  MUST(cu.StreamDestroy(side));
  MUST(cu.StreamDestroy(stream));
  set_check(set);
}

/* Frees and allocates memory, at any address, under an instantiated graph. */
static void reused(void) {
  struct set *set = set_make(24, 7);
  for (int round = 0; round < 6; round++) {
    struct plan plan = begin(set);
    for (int i = 0; i < NODES; i++) add(&plan, i % 6 == 5 ? COPY : MIX);
    CUgraphExec exec = instance(plan.graph);
    MUST(cu.GraphDestroy(plan.graph));
    replay(exec, &plan, NULL, 1);
    MUST(cu.CtxSynchronize());
    unsigned b = set_random(set, 24);
    uint64_t *words = malloc(BUFFER_BYTES);
    CHECK(words != NULL);
    MUST(cu.MemcpyDtoH(words, set->buffers[b], BUFFER_BYTES));
    CUdeviceptr before = set->buffers[b];
    MUST(cu.MemFree(before));
    MUST(cu.MemAlloc(&set->buffers[b], BUFFER_BYTES));
    MUST(cu.MemcpyHtoD(set->buffers[b], words, BUFFER_BYTES));
    free(words);
    if (set->buffers[b] == before) replay(exec, &plan, NULL, 2);
    MUST(cu.CtxSynchronize());
    MUST(cu.GraphExecDestroy(exec));
  }
  set_check(set);
}

/* Threads make, change, launch and destroy graphs at the same time. They start when all
 * have allocated: pump counts no operations while everything fits. */
#define THREADS 4
static pthread_barrier_t all_have_allocated;

static void *one_of_many(void *number) {
  CUstream stream;
  MUST(cu.CtxSetCurrent(context));
  MUST(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  struct set *set = set_make(6, (uint32_t)(uintptr_t)number + 1);
  pthread_barrier_wait(&all_have_allocated);
  for (int round = 0; round < 12; round++) {
    struct plan plan = begin(set);
    for (int i = 0; i < NODES; i++) add(&plan, i % 6 == 5 ? COPY : MIX);
    CUgraphExec exec = instance(plan.graph);
    replay(exec, &plan, stream, 1);
    change(&plan, exec, set_random(set, NODES));
    replay(exec, &plan, stream, 1);
    MUST(cu.GraphExecDestroy(exec)); /* during its execution */
    MUST(cu.GraphDestroy(plan.graph));
    MUST(cu.StreamSynchronize(stream));
  }
  set_check(set);
  MUST(cu.StreamDestroy(stream));
  return NULL;
}

static void threads(void) {
  pthread_barrier_init(&all_have_allocated, NULL, THREADS);
  in_threads(THREADS, one_of_many);
}

int main(int count, char **words) {
  static const struct hard_case cases[] = {{"nodes", nodes},     {"changes", changes},
                                           {"updates", updates}, {"iteration", iteration},
                                           {"reused", reused},   {"threads", threads}};
  load_driver();
  context = start();
  mix = load_mix(NULL);
  return run_case(count, words, cases, sizeof cases / sizeof *cases);
}
