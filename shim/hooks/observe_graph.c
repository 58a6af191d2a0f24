/* observe_graph.c - hooks of executable graphs: what their nodes touch is kept from their
 * instantiation on and reported, node by node, when they are launched.
 *
 * DESIGN. An executable graph lives long and is launched often, so a launch copies
 * records that stand ready (struct pump_ready). They are made by the first launch that
 * needs them, from the parameters that were kept, by the very functions that read an
 * ordinary launch; and made again where a pointer may mean something else, which is when
 * any range has come or gone since (pump_range_changes), or a node has changed. So a
 * pointer means what lives at its address at the launch: memory that was freed and given
 * out again at the same address counts as what it is now.
 *
 * Lists are kept by dormant programs too: a graph may be instantiated long before its
 * program stops fitting. They hold parameters and nothing that has to be kept up.
 *
 * LOCKS. `table_lock` guards the table and the counts of references, an executable
 * graph's own lock what is known of it; neither is held across a call of the program's.
 * A program that destroys one that another thread launches breaks the rules of CUDA.
 *
 * A launch into a capturing stream is no operation: it becomes a child of the graph
 * captured there.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "families.h"
#include "observe_copy.h"
#include "shim/record/observe_graph.h"

#define BUCKETS 1024u

struct exec {
  CUgraphExec handle;
  struct exec *next;
  uint32_t references; /* the table's included */
  bool allocates;
  uint32_t counted_in; /* era of memory in which it was launched last; 0: never was */
  pthread_mutex_t lock;
  struct pump_graph_list list;
  /* Ready for a launch, as of that many changes of the ranges; 0: not at all. */
  uint64_t made_at;
  struct pump_ready *ready;
  struct pump_extent *extents;
  uint32_t ready_count;
  uint64_t sent;
};

static struct exec *buckets[BUCKETS];
static uint32_t allocating; /* of those in the table: so many; read without the lock */
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- the table --------------------------------------------------------------- */

static struct exec **bucket_of(CUgraphExec handle) {
  return &buckets[(uint64_t)(uintptr_t)handle * 0x9e3779b97f4a7c15u >> 54];
}
_Static_assert(BUCKETS == 1u << (64 - 54), "bucket_of() yields an index");

/* Under the lock: the link to it, or to NULL. */
static struct exec **find(CUgraphExec handle) {
  struct exec **link = bucket_of(handle);
  while (*link != NULL && (*link)->handle != handle) link = &(*link)->next;
  return link;
}

static void free_exec(struct exec *exec) {
  pump_graph_list_free(&exec->list);
  free(exec->ready);
  free(exec->extents);
  pthread_mutex_destroy(&exec->lock);
  free(exec);
}

static void release(struct exec *exec) {
  if (exec == NULL) return;
  pthread_mutex_lock(&table_lock);
  bool last = --exec->references == 0;
  pthread_mutex_unlock(&table_lock);
  if (last) free_exec(exec);
}

/* NULL: not known. The caller releases it. */
static struct exec *hold(CUgraphExec handle) {
  pthread_mutex_lock(&table_lock);
  struct exec *exec = *find(handle);
  if (exec != NULL) exec->references++;
  pthread_mutex_unlock(&table_lock);
  return exec;
}

/* Takes it out; the table's reference becomes the caller's. */
static struct exec *take_out(CUgraphExec handle) {
  pthread_mutex_lock(&table_lock);
  struct exec **link = find(handle), *exec = *link;
  if (exec != NULL) {
    *link = exec->next;
    PUMP_STORE(&allocating, allocating - exec->allocates);
  }
  pthread_mutex_unlock(&table_lock);
  return exec;
}

/* An earlier one of that handle went with its context. */
static void put_in(struct exec *exec) {
  release(take_out(exec->handle));
  pthread_mutex_lock(&table_lock);
  struct exec **bucket = bucket_of(exec->handle);
  exec->next = *bucket;
  *bucket = exec;
  PUMP_STORE(&allocating, allocating + exec->allocates);
  pthread_mutex_unlock(&table_lock);
}

/* Those of an earlier life (before a fork) stay allocated. */
void pump_graph_reset(void) {
  pthread_mutex_init(&table_lock, NULL);
  pump_graph_memory_reset();
  memset(buckets, 0, sizeof buckets);
  allocating = 0;
}

/* ---- making ready -------------------------------------------------------------- */

static void describe(const struct pump_graph_node *node, struct pump_op *op) {
  const CUDA_MEMSET_NODE_PARAMS_v1 *set = &node->set;
  if (node->kind == PUMP_EVENT_KERNEL)
    pump_launch_describe(&node->kernel, op);
  else if (node->kind == PUMP_EVENT_COPY)
    pump_copy_extents_3d(op, &node->copy);
  else
    pump_set_extents(op, set->dst, set->pitch, (uint64_t)set->width * set->elementSize,
                     set->height);
}

/* What touches no range is no operation, unless it is a kernel: as with streams. */
static bool counts(const struct pump_graph_node *node, const struct pump_op *op) {
  return !node->disabled && (node->kind == PUMP_EVENT_KERNEL || op->count != 0);
}

/* Extents of all operations, one behind the other; pointers into them come last, for
 * the array moves while it grows. */
static bool make(struct exec *exec) {
  struct pump_op op;
  size_t used = 0, room = 0;
  free(exec->ready);
  free(exec->extents);
  exec->extents = NULL;
  exec->ready_count = 0;
  exec->sent = 0;
  exec->ready = calloc(exec->list.count + 1u, sizeof *exec->ready);
  if (exec->ready == NULL) return false;
  for (uint32_t i = 0; i < exec->list.count; i++) {
    const struct pump_graph_node *node = &exec->list.nodes[i];
    describe(node, &op);
    if (!counts(node, &op)) continue;
    if (used + op.count > room) {
      room = 2 * room + PUMP_MAX_EXTENTS;
      void *grown = realloc(exec->extents, room * sizeof op.extents[0]);
      if (grown == NULL) return false;
      exec->extents = grown;
    }
    memcpy(&exec->extents[used], op.extents, op.count * sizeof op.extents[0]);
    used += op.count;
    exec->ready[exec->ready_count++] = (struct pump_ready){
        .kind = node->kind,
        .count = (uint16_t)op.count,
        .dropped = op.dropped < UINT16_MAX ? (uint16_t)op.dropped : UINT16_MAX,
        .signature = op.signature,
        .launch = node->kind == PUMP_EVENT_KERNEL ? &node->kernel : NULL};
  }
  used = 0;
  for (uint32_t i = 0; i < exec->ready_count; i++) {
    exec->ready[i].extents = &exec->extents[used];
    used += exec->ready[i].count;
  }
  return true;
}

/* Under its lock. */
static bool is_ready(struct exec *exec) {
  uint64_t changes = pump_range_changes() + 1; /* never 0 */
  if (PUMP_LIKELY(exec->made_at == changes)) return true;
  exec->made_at = make(exec) ? changes : 0;
  return exec->made_at != 0;
}

/* ---- launches ------------------------------------------------------------------ */

static void say_unknown(void) {
  static uint32_t said;
  PUMP_ADD(&pump_shm->shim_counters.graphs_unknown, 1);
  pump_log_once(&said, PUMP_LOG_INFO,
                "a CUDA graph was launched of which not every node is known: what those "
                "touch is left to demand paging");
}

static void launched(CUgraphExec handle, struct pump_at at) {
  int saved = errno;
  struct pump_driver_scope scope = pump_driver_scope_open();
  struct exec *exec = hold(handle);
  bool known = exec != NULL;
  if (known) {
    pthread_mutex_lock(&exec->lock);
    known = is_ready(exec) && exec->list.unknown == 0;
    if (exec->made_at != 0)
      pump_series_report(&(struct pump_series){.operations = exec->ready,
                                               .count = exec->ready_count,
                                               .graph = (uint64_t)(uintptr_t)handle,
                                               .sent = &exec->sent},
                         at);
    pthread_mutex_unlock(&exec->lock);
    release(exec);
  }
  if (!known) say_unknown();
  pump_driver_scope_close(scope);
  errno = saved;
}

/* Dormant or not. */
static void count_memory(CUgraphExec handle) {
  uint32_t era = PUMP_LOAD(&pump_graph_memory_era);
  struct exec *exec = hold(handle);
  if (exec != NULL && exec->allocates &&
      __atomic_exchange_n(&exec->counted_in, era, __ATOMIC_RELAXED) != era)
    pump_graph_memory_look();
  release(exec);
}

#define HOOK_LAUNCH(name, per_thread)                                                      \
  CUresult name(CUgraphExec exec, CUstream stream) {                                       \
    bool quiet = pump_quiet();                                                             \
    CUresult result = pump_real.name(exec, stream);                                        \
    if (PUMP_UNLIKELY(PUMP_LOAD(&allocating) != 0) && !pump_inert()) count_memory(exec);   \
    if (!quiet && result == CUDA_SUCCESS) launched(exec, pump_at(stream, per_thread));     \
    return result;                                                                         \
  }

HOOK_LAUNCH(cuGraphLaunch, false)
HOOK_LAUNCH(cuGraphLaunch_ptsz, true)

/* May take the graph's memory ahead of its first launch. */
#define HOOK_UPLOAD(name)                                                                  \
  CUresult name(CUgraphExec exec, CUstream stream) {                                       \
    CUresult result = pump_real.name(exec, stream);                                        \
    if (PUMP_UNLIKELY(PUMP_LOAD(&allocating) != 0) && !pump_inert())                       \
      pump_graph_memory_look();                                                            \
    return result;                                                                         \
  }

HOOK_UPLOAD(cuGraphUpload)
HOOK_UPLOAD(cuGraphUpload_ptsz)

/* ---- making and ending ----------------------------------------------------------- */

/* A graph that cannot be read, or kept, is not in the table. */
static void instantiated(CUgraphExec handle, CUgraph graph) {
  int saved = errno;
  struct pump_driver_scope scope = pump_driver_scope_open();
  struct exec *exec = calloc(1, sizeof *exec);
  if (exec != NULL && pump_graph_read(graph, &exec->list)) {
    exec->handle = handle;
    exec->references = 1;
    pthread_mutex_init(&exec->lock, NULL);
    exec->allocates = exec->list.memory;
    put_in(exec);
  } else {
    free(exec);
    release(take_out(handle));
  }
  pump_driver_scope_close(scope);
  errno = saved;
}

#define HOOK_INSTANTIATE(name, parameters, arguments)                                      \
  CUresult name parameters {                                                               \
    CUresult result = pump_real.name arguments;                                            \
    if (result == CUDA_SUCCESS && !pump_inert()) instantiated(*exec, graph);               \
    return result;                                                                         \
  }

#define INSTANTIATE                                                                        \
  (CUgraphExec * exec, CUgraph graph, CUgraphNode * error_node, char *log, size_t log_bytes)
#define INSTANTIATE_PARAMS                                                                 \
  (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS * params)
HOOK_INSTANTIATE(cuGraphInstantiate, INSTANTIATE, (exec, graph, error_node, log, log_bytes))
HOOK_INSTANTIATE(cuGraphInstantiate_v2, INSTANTIATE,
                 (exec, graph, error_node, log, log_bytes))
HOOK_INSTANTIATE(cuGraphInstantiateWithFlags,
                 (CUgraphExec * exec, CUgraph graph, unsigned long long flags),
                 (exec, graph, flags))
HOOK_INSTANTIATE(cuGraphInstantiateWithParams, INSTANTIATE_PARAMS, (exec, graph, params))
HOOK_INSTANTIATE(cuGraphInstantiateWithParams_ptsz, INSTANTIATE_PARAMS,
                 (exec, graph, params))

/* Before the real call: afterwards another thread may be given the handle. */
CUresult cuGraphExecDestroy(CUgraphExec handle) {
  if (pump_inert()) return pump_real.cuGraphExecDestroy(handle);
  int saved = errno;
  struct exec *exec = take_out(handle);
  errno = saved;
  CUresult result = pump_real.cuGraphExecDestroy(handle);
  saved = errno;
  if (exec != NULL && exec->allocates) pump_graph_memory_look();
  if (exec != NULL && result != CUDA_SUCCESS)
    put_in(exec);
  else
    release(exec);
  errno = saved;
  return result;
}

/* ---- changes ---------------------------------------------------------------------- */

/* Takes the place of the nodes from `first` on, whose handles and switches stay. false:
 * it has another shape. */
static bool replace(struct pump_graph_list *list, uint32_t first, uint32_t count,
                    struct pump_graph_list *fresh) {
  if (fresh->count != count) return false;
  for (uint32_t i = 0; i < count; i++)
    if (list->nodes[first + i].kind != fresh->nodes[i].kind) return false;
  for (uint32_t i = 0; i < count; i++) {
    struct pump_graph_node *node = &list->nodes[first + i], gone = *node;
    *node = fresh->nodes[i];
    node->handle = gone.handle;
    node->disabled = gone.disabled;
    fresh->nodes[i] = gone; /* freed with the list; the bytes of both are near enough */
  }
  return true;
}

/* Nothing is known of it any more. */
static void lose(struct exec *exec) {
  pump_graph_list_free(&exec->list);
  exec->list.unknown = 1;
}

/* A graph took the place of a child of it, or of all (`child` NULL). */
static void updated(struct exec *exec, CUgraphNode child, CUgraph graph) {
  struct pump_graph_list fresh, *list = &exec->list;
  bool right = pump_graph_read(graph, &fresh);
  uint32_t first = 0, count = list->count;
  for (uint32_t i = 0; child != NULL && i < list->child_count; i++) {
    if (list->children[i].handle != child) continue;
    first = list->children[i].first;
    count = list->children[i].count;
    child = NULL;
  }
  right = right && child == NULL && replace(list, first, count, &fresh);
  pump_graph_list_free(&fresh);
  if (!right) lose(exec);
}

/* Parameters of one node, as the call has them. */
static void set(struct exec *exec, CUgraphNode handle, const CUgraphNodeParams *params) {
  struct pump_graph_list *list = &exec->list;
  CUDA_KERNEL_NODE_PARAMS_v1 kernel;
  for (uint32_t i = 0; i < list->count; i++) {
    struct pump_graph_node *node = &list->nodes[i];
    if (node->handle != handle) continue;
    if (params->type == CU_GRAPH_NODE_TYPE_KERNEL && node->kind == PUMP_EVENT_KERNEL) {
      memcpy(&kernel, &params->kernel, sizeof kernel);
      if (!pump_graph_node_kernel(list, node, &kernel, params->kernel.kern)) lose(exec);
    }
    if (params->type == CU_GRAPH_NODE_TYPE_MEMCPY && node->kind == PUMP_EVENT_COPY)
      node->copy = params->memcpy.copyParams;
    if (params->type == CU_GRAPH_NODE_TYPE_MEMSET && node->kind == PUMP_EVENT_MEMSET)
      node->set = params->memset;
    return;
  }
}

static void switched(struct exec *exec, CUgraphNode handle, bool enabled) {
  for (uint32_t i = 0; i < exec->list.count; i++)
    if (exec->list.nodes[i].handle == handle) exec->list.nodes[i].disabled = !enabled;
}

/* After the real call has succeeded; `change` has `known` and its lock. */
#define CHANGED(handle, change)                                                            \
  if (result == CUDA_SUCCESS && !pump_inert()) {                                           \
    int saved = errno;                                                                     \
    struct pump_driver_scope scope = pump_driver_scope_open();                             \
    struct exec *known = hold(handle);                                                     \
    if (known != NULL) {                                                                   \
      pthread_mutex_lock(&known->lock);                                                    \
      change;                                                                              \
      known->made_at = 0;                                                                  \
      pthread_mutex_unlock(&known->lock);                                                  \
      release(known);                                                                      \
    }                                                                                      \
    pump_driver_scope_close(scope);                                                        \
    errno = saved;                                                                         \
  }                                                                                        \
  return result

#define HOOK_CHANGE(name, change, parameters, arguments)                                   \
  CUresult name parameters {                                                               \
    CUresult result = pump_real.name arguments;                                            \
    CHANGED(exec, change);                                                                 \
  }

HOOK_CHANGE(cuGraphExecUpdate, updated(known, NULL, graph),
            (CUgraphExec exec, CUgraph graph, CUgraphNode *error_node,
             CUgraphExecUpdateResult *update_result),
            (exec, graph, error_node, update_result))
HOOK_CHANGE(cuGraphExecUpdate_v2, updated(known, NULL, graph),
            (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info),
            (exec, graph, info))
HOOK_CHANGE(cuGraphExecChildGraphNodeSetParams, updated(known, node, child),
            (CUgraphExec exec, CUgraphNode node, CUgraph child), (exec, node, child))
HOOK_CHANGE(cuGraphNodeSetEnabled, switched(known, node, enabled != 0),
            (CUgraphExec exec, CUgraphNode node, unsigned int enabled),
            (exec, node, enabled))

/* The calls for one kind of node, as the one for all kinds would be made. */
static CUgraphNodeParams of_older_kernel(const CUDA_KERNEL_NODE_PARAMS_v1 *params) {
  CUgraphNodeParams any = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
  memcpy(&any.kernel, params, sizeof *params);
  return any;
}
static CUgraphNodeParams of_kernel(const CUDA_KERNEL_NODE_PARAMS_v2 *params) {
  return (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_KERNEL, .kernel = *params};
}
static CUgraphNodeParams of_copy(const CUDA_MEMCPY3D *copy) {
  return (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_MEMCPY,
                             .memcpy = {.copyParams = *copy}};
}
static CUgraphNodeParams of_set(const CUDA_MEMSET_NODE_PARAMS_v1 *params) {
  return (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_MEMSET, .memset = *params};
}

#define HOOK_SET(name, any, parameters, arguments)                                         \
  HOOK_CHANGE(name, CUgraphNodeParams all = any;                                           \
              set(known, node, &all), parameters, arguments)

HOOK_SET(cuGraphExecKernelNodeSetParams, of_older_kernel(params),
         (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *params),
         (exec, node, params))
HOOK_SET(cuGraphExecKernelNodeSetParams_v2, of_kernel(params),
         (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v2 *params),
         (exec, node, params))
HOOK_SET(cuGraphExecMemcpyNodeSetParams, of_copy(copy),
         (CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *copy, CUcontext context),
         (exec, node, copy, context))
HOOK_SET(cuGraphExecMemsetNodeSetParams, of_set(params),
         (CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS_v1 *params,
          CUcontext context),
         (exec, node, params, context))

CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node,
                                            CUevent event) {
  if (!pump_inert()) pump_progress_event_distrust(event);
  return pump_real.cuGraphExecEventRecordNodeSetEvent(exec, node, event);
}

CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                  CUgraphNodeParams *params) {
  if (params != NULL && params->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD && !pump_inert())
    pump_progress_event_distrust(params->event);
  CUresult result = pump_real.cuGraphExecNodeSetParams(exec, node, params);
  CHANGED(exec,
          if (params->type == CU_GRAPH_NODE_TYPE_GRAPH) updated(known, node, params->graph);
          else set(known, node, params));
}
