/* graph_execs.c - executable graphs. The memory that their nodes use is stored at
 * instantiation and reported, node by node, at each launch.
 *
 * DESIGN. An executable graph lives long and is launched often, so a launch only copies
 * prepared records (struct pump_ready). The first launch prepares them from the stored
 * parameters, with the functions that also read an ordinary launch. They are prepared
 * again when a pointer may have another meaning: after any range was added or removed
 * (pump_range_changes), or after a node was changed. So a pointer refers to the range at
 * its address at launch time, even if the address was reallocated in between.
 *
 * Dormant programs store lists too, because a program may instantiate a graph long before
 * it stops fitting. The lists hold only parameters and need no updates.
 *
 * LOCKS. `table_lock` guards the table and the reference counts. Each executable graph's
 * own lock guards its other data. Neither is held during a driver call of the program. A
 * program that destroys a graph while another thread launches it violates CUDA's rules.
 *
 * A launch into a capturing stream is not an operation: it becomes a child of the
 * captured graph.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "copy_extents.h"
#include "graph_nodes.h"

#define BUCKETS 1024u

struct pump_graph_exec {
  CUgraphExec handle;
  struct pump_graph_exec *next;
  uint32_t references; /* includes the table's reference */
  bool allocates;
  uint32_t counted_in; /* memory era of the last launch; 0: never launched */
  pthread_mutex_t lock;
  struct pump_graph_list list;
  /* Prepared records. made_at: the count of range changes that they match; 0: none. */
  uint64_t made_at;
  struct pump_ready *ready;
  struct pump_extent *extents;
  uint32_t ready_count;
  uint64_t sent;
};

static struct pump_graph_exec *buckets[BUCKETS];
uint32_t pump_graphs_allocating; /* changes under the lock */
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- the table --------------------------------------------------------------- */

static struct pump_graph_exec **bucket_of(CUgraphExec handle) {
  return &buckets[(uint64_t)(uintptr_t)handle * 0x9e3779b97f4a7c15u >> 54];
}
_Static_assert(BUCKETS == 1u << (64 - 54), "bucket_of() yields an index");

/* Returns the link to the graph, or to NULL. The caller holds the lock. */
static struct pump_graph_exec **find(CUgraphExec handle) {
  struct pump_graph_exec **link = bucket_of(handle);
  while (*link != NULL && (*link)->handle != handle) link = &(*link)->next;
  return link;
}

static void free_exec(struct pump_graph_exec *exec) {
  pump_graph_list_free(&exec->list);
  free(exec->ready);
  free(exec->extents);
  pthread_mutex_destroy(&exec->lock);
  free(exec);
}

static void release(struct pump_graph_exec *exec) {
  if (exec == NULL) return;
  pthread_mutex_lock(&table_lock);
  bool last = --exec->references == 0;
  pthread_mutex_unlock(&table_lock);
  if (last) free_exec(exec);
}

/* Returns the graph, which the caller must release, or NULL if it is unknown. */
static struct pump_graph_exec *acquire_exec(CUgraphExec handle) {
  pthread_mutex_lock(&table_lock);
  struct pump_graph_exec *exec = *find(handle);
  if (exec != NULL) exec->references++;
  pthread_mutex_unlock(&table_lock);
  return exec;
}

/* Removes the graph from the table. The table's reference passes to the caller. */
static struct pump_graph_exec *take_out(CUgraphExec handle) {
  pthread_mutex_lock(&table_lock);
  struct pump_graph_exec **link = find(handle), *exec = *link;
  if (exec != NULL) {
    *link = exec->next;
    PUMP_STORE(&pump_graphs_allocating, pump_graphs_allocating - exec->allocates);
  }
  pthread_mutex_unlock(&table_lock);
  return exec;
}

/* Adds the graph to the table. Replaces an earlier graph of that handle, which ended with
 * its context. */
static void put_in(struct pump_graph_exec *exec) {
  release(take_out(exec->handle));
  pthread_mutex_lock(&table_lock);
  struct pump_graph_exec **bucket = bucket_of(exec->handle);
  exec->next = *bucket;
  *bucket = exec;
  PUMP_STORE(&pump_graphs_allocating, pump_graphs_allocating + exec->allocates);
  pthread_mutex_unlock(&table_lock);
}

/* Empties the table after a fork. The parent's executable graphs stay allocated. */
void pump_graph_execs_reset(void) {
  pthread_mutex_init(&table_lock, NULL);
  pump_graph_memory_reset();
  memset(buckets, 0, sizeof buckets);
  pump_graphs_allocating = 0;
}

/* ---- preparing records ----------------------------------------------------------- */

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

/* Returns whether a node is an operation: any kernel, or a node that touches a range. */
static bool counts(const struct pump_graph_node *node, const struct pump_op *op) {
  return !node->disabled && (node->kind == PUMP_EVENT_KERNEL || op->count != 0);
}

/* Prepares the records. All extents are in one array, which moves while it grows, so
 * pointers into it are set last. */
static bool make(struct pump_graph_exec *exec) {
  struct pump_op op;
  size_t used = 0, capacity = 0;
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
    if (used + op.count > capacity) {
      capacity = 2 * capacity + PUMP_MAX_EXTENTS;
      void *grown = realloc(exec->extents, capacity * sizeof op.extents[0]);
      if (grown == NULL) return false;
      exec->extents = grown;
    }
    memcpy(&exec->extents[used], op.extents, op.count * sizeof op.extents[0]);
    used += op.count;
    exec->ready[exec->ready_count++] = (struct pump_ready){
        .kind = node->kind,
        .count = (uint16_t)op.count,
        .dropped = op.dropped < UINT16_MAX ? (uint16_t)op.dropped : UINT16_MAX,
        .identity = op.identity,
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

/* Prepares the records if necessary. The caller holds the graph's lock. */
static bool is_ready(struct pump_graph_exec *exec) {
  uint64_t changes = pump_range_changes() + 1; /* never 0 */
  if (PUMP_LIKELY(exec->made_at == changes)) return true;
  exec->made_at = make(exec) ? changes : 0;
  return exec->made_at != 0;
}

static void say_unknown(void) {
  static uint32_t said;
  PUMP_ADD(&pump_shm->shim_counters.graphs_unknown, 1);
  pump_log_once(
      &said, PUMP_LOG_INFO,
      "a CUDA graph has nodes that pump cannot read: their memory is paged on demand");
}

void pump_graph_launched(CUgraphExec handle, struct pump_at at) {
  int saved = errno;
  struct pump_driver_scope scope = pump_driver_scope_open();
  struct pump_graph_exec *exec = acquire_exec(handle);
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

void pump_graph_count_memory(CUgraphExec handle) {
  uint32_t era = PUMP_LOAD(&pump_graph_memory_era);
  struct pump_graph_exec *exec = acquire_exec(handle);
  if (exec != NULL && exec->allocates &&
      __atomic_exchange_n(&exec->counted_in, era, __ATOMIC_RELAXED) != era)
    pump_graph_memory_refresh();
  release(exec);
}

/* Adds the graph to the table, unless it cannot be read or stored. */
void pump_graph_instantiated(CUgraphExec handle, CUgraph graph) {
  int saved = errno;
  struct pump_driver_scope scope = pump_driver_scope_open();
  struct pump_graph_exec *exec = calloc(1, sizeof *exec);
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

struct pump_graph_exec *pump_graph_exec_out(CUgraphExec handle) {
  int saved = errno;
  struct pump_graph_exec *exec = take_out(handle);
  errno = saved;
  return exec;
}

void pump_graph_exec_destroyed(struct pump_graph_exec *exec, bool over) {
  if (exec == NULL) return;
  int saved = errno;
  if (exec->allocates) pump_graph_memory_refresh();
  if (over)
    release(exec);
  else
    put_in(exec);
  errno = saved;
}

/* ---- changes ---------------------------------------------------------------------- */

/* Replaces the nodes from `first` on, but keeps their handles and switches. Returns false
 * if the new nodes have another shape. */
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
    fresh->nodes[i] = gone; /* freed with the list; byte counts are approximate */
  }
  return true;
}

/* Drops all nodes, and marks the graph as having unknown nodes. */
static void drop_nodes(struct pump_graph_exec *exec) {
  pump_graph_list_free(&exec->list);
  exec->list.unknown = 1;
}

/* Replaces the nodes of a child, or all nodes if `child` is NULL. */
static void update(struct pump_graph_exec *exec, CUgraphNode child, CUgraph graph) {
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
  if (!right) drop_nodes(exec);
}

/* Gives one node the new parameters. */
static void set(struct pump_graph_exec *exec, CUgraphNode handle,
                const CUgraphNodeParams *params) {
  struct pump_graph_list *list = &exec->list;
  CUDA_KERNEL_NODE_PARAMS_v1 kernel;
  for (uint32_t i = 0; i < list->count; i++) {
    struct pump_graph_node *node = &list->nodes[i];
    if (node->handle != handle) continue;
    if (params->type == CU_GRAPH_NODE_TYPE_KERNEL && node->kind == PUMP_EVENT_KERNEL) {
      memcpy(&kernel, &params->kernel, sizeof kernel);
      if (!pump_graph_node_kernel(list, node, &kernel, params->kernel.kern))
        drop_nodes(exec);
    }
    if (params->type == CU_GRAPH_NODE_TYPE_MEMCPY && node->kind == PUMP_EVENT_COPY)
      node->copy = params->memcpy.copyParams;
    if (params->type == CU_GRAPH_NODE_TYPE_MEMSET && node->kind == PUMP_EVENT_MEMSET)
      node->set = params->memset;
    return;
  }
}

static void enable(struct pump_graph_exec *exec, CUgraphNode handle, bool enabled) {
  for (uint32_t i = 0; i < exec->list.count; i++)
    if (exec->list.nodes[i].handle == handle) exec->list.nodes[i].disabled = !enabled;
}

void pump_graph_changed(CUgraphExec handle, const struct pump_graph_change *change) {
  int saved = errno;
  struct pump_driver_scope scope = pump_driver_scope_open();
  struct pump_graph_exec *exec = acquire_exec(handle);
  if (exec != NULL) {
    pthread_mutex_lock(&exec->lock);
    if (change->graph != NULL)
      update(exec, change->node, change->graph);
    else if (change->params != NULL)
      set(exec, change->node, change->params);
    else
      enable(exec, change->node, change->enabled);
    exec->made_at = 0;
    pthread_mutex_unlock(&exec->lock);
    release(exec);
  }
  pump_driver_scope_close(scope);
  errno = saved;
}
