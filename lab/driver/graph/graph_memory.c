/* graph_memory.c - memory that belongs to a graph: its allocation and free nodes.
 *
 * An allocation node gets its address when it is created. It keeps the address until the
 * graph, its executable copy and the allocation itself have ended. The GPU provides
 * memory at the first launch and keeps it until then, or until cuDeviceGraphMemTrim. Real
 * drivers share memory among allocations of a graph that are never live together. Here
 * each has its own, so a graph needs more.
 *
 * An allocation is live from the launch of its node to the launch of a free node, or to
 * the program's own free. The order of calls decides that, not the progress of the GPU.
 *
 * As with a real driver, such a graph cannot be cloned, used as a child or updated, and
 * keeps its nodes and edges. It has one executable copy at a time.
 */
#include "graph.h"

#define AUTO_FREE_ON_LAUNCH 1u

static struct vd_memory *at(uint64_t address, uint64_t id) {
  struct vd_memory *memory = vd_range_find(&vd.plain, address);
  bool same = memory != NULL && memory->base == address && memory->of_graph;
  return same && (id == 0 || memory->id == id) ? memory : NULL;
}

static void bytes_locked(uint64_t *used, uint64_t *reserved) {
  *used = *reserved = 0;
  for (size_t i = 0; i < vd.plain.count; i++) {
    const struct vd_memory *memory = vd.plain.entries[i].memory;
    if (!memory->of_graph) continue;
    if (memory->live) *used += memory->reserved_bytes;
    if (memory->backed) *reserved += memory->reserved_bytes;
  }
}

static void note_peaks(void) {
  uint64_t used = 0, reserved = 0;
  bytes_locked(&used, &reserved);
  if (used > vd_graphs.used_high) vd_graphs.used_high = used;
  if (reserved > vd_graphs.reserved_high) vd_graphs.reserved_high = reserved;
}

/* -- contents of nodes -- */

static CUresult work_of_alloc(size_t length_bytes, struct vd_work *out) {
  struct vd_memory *memory;
  CUresult result = vd_graph_memory_new(length_bytes, &memory);
  if (result != CUDA_SUCCESS) return result;
  memory->holders = 1;
  out->type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  out->memory.address = memory->base;
  out->memory.length_bytes = length_bytes;
  out->memory.id = memory->id;
  return CUDA_SUCCESS;
}

/* Makes the work that frees an allocation of any graph's node. */
static CUresult work_of_any_free(CUdeviceptr address, struct vd_work *out) {
  const struct vd_memory *memory = at(address, 0);
  if (memory == NULL) return CUDA_ERROR_INVALID_VALUE;
  out->type = CU_GRAPH_NODE_TYPE_MEM_FREE;
  out->memory.address = address;
  out->memory.id = memory->id;
  return CUDA_SUCCESS;
}

static CUresult work_of_free(const struct vd_graph *graph, CUdeviceptr address,
                             struct vd_work *out) {
  CUresult result = work_of_any_free(address, out);
  for (size_t i = 0; result == CUDA_SUCCESS && graph != NULL && i < graph->count; i++) {
    const struct vd_work *other = &graph->nodes[i]->work;
    if (other->type == CU_GRAPH_NODE_TYPE_MEM_FREE && other->memory.id == out->memory.id)
      result = CUDA_ERROR_INVALID_VALUE; /* a graph frees it only once */
  }
  return result;
}

void vd_graph_memory_hold_locked(const struct vd_work *work) {
  struct vd_memory *memory = at(work->memory.address, work->memory.id);
  if (memory != NULL) memory->holders++;
}

void vd_graph_memory_let_go_locked(const struct vd_work *work) {
  struct vd_memory *memory = at(work->memory.address, work->memory.id);
  if (memory != NULL && --memory->holders == 0 && !memory->live) vd_memory_release(memory);
}

bool vd_graph_memory_instantiated_locked(const struct vd_graph *graph) {
  for (size_t i = 0; i < graph->count; i++) {
    const struct vd_work *work = &graph->nodes[i]->work;
    if (work->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC) continue;
    const struct vd_memory *memory = at(work->memory.address, work->memory.id);
    if (memory != NULL && memory->holders > 1) return true;
  }
  return false;
}

/* -- captures -- */

/* Makes `work` the stream's next node. */
static CUresult capture(struct vd_stream *stream, struct vd_work *work) {
  bool captured = false;
  CUresult result = vd_capture_take_locked(stream, work, &captured);
  if (work->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) vd_graph_memory_let_go_locked(work);
  return result;
}

CUresult vd_capture_allocation_locked(struct vd_stream *stream, size_t length_bytes,
                                      CUdeviceptr *out) {
  struct vd_work work;
  CUresult result = work_of_alloc(length_bytes, &work);
  if (result != CUDA_SUCCESS) return result;
  result = capture(stream, &work);
  if (result == CUDA_SUCCESS) *out = work.memory.address;
  return result;
}

CUresult vd_capture_free_locked(struct vd_stream *stream, CUdeviceptr address) {
  struct vd_work work;
  CUresult result = work_of_free(stream->capture->graph, address, &work);
  return result == CUDA_SUCCESS ? capture(stream, &work) : result;
}

/* -- launches -- */

static CUresult back(struct vd_memory *memory) {
  struct gpu_cost cost = {0};
  struct vd_begun begun = vd_begin();
  int result = GPU_OK;
  if (!memory->backed) result = vd_plain_reserve_locked(memory->reserved_bytes, &cost);
  if (result != GPU_OK) return CUDA_ERROR_OUT_OF_MEMORY;
  memory->backed = true;
  vd_pay_locked(begun, &cost);
  return CUDA_SUCCESS;
}

/* Waiting and paying release the lock, so each node's memory is looked up again. */
static CUresult make_ready(const struct vd_graph *exec, size_t i) {
  const struct vd_work *work = &exec->nodes[i]->work;
  struct vd_memory *memory = at(work->memory.address, work->memory.id);
  if (memory == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (memory->live && !(exec->flags & AUTO_FREE_ON_LAUNCH)) return CUDA_ERROR_INVALID_VALUE;
  memory->live = false;
  CUresult result = back(memory);
  if (result == CUDA_SUCCESS) return result;
  vd_wait_device_locked(); /* memory freed in stream order may be released soon */
  memory = at(work->memory.address, work->memory.id);
  return memory != NULL ? back(memory) : CUDA_ERROR_INVALID_VALUE;
}

CUresult vd_graph_memory_ready_locked(const struct vd_graph *exec) {
  CUresult result = CUDA_SUCCESS;
  for (size_t i = 0; exec->memory && result == CUDA_SUCCESS && i < exec->count; i++)
    if (exec->nodes[i]->work.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
      result = make_ready(exec, i);
  return result;
}

CUresult vd_graph_memory_run_locked(const struct vd_work *work) {
  struct vd_memory *memory = at(work->memory.address, work->memory.id);
  bool allocates = work->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  if (memory == NULL || memory->live == allocates) {
    vd.checks.free_unknown += !allocates;
    return CUDA_ERROR_INVALID_VALUE;
  }
  memory->live = allocates;
  note_peaks();
  return CUDA_SUCCESS;
}

/* Frees by a call of the program, in stream order or not. The last holder releases the
 * addresses. If no holder is left, waits for all work and releases them. */
CUresult vd_graph_memory_free_locked(struct vd_memory *memory) {
  if (!memory->live) {
    vd.checks.free_unknown++;
    return CUDA_ERROR_INVALID_VALUE;
  }
  memory->live = false;
  if (memory->holders > 0) return CUDA_SUCCESS;
  uint64_t address = memory->base, id = memory->id;
  memory->holders = 1; /* keeps other threads from releasing it */
  vd_wait_device_locked();
  memory = at(address, id);
  if (memory != NULL) vd_memory_release(memory);
  return CUDA_SUCCESS;
}

/* -- the calls -- */

CUresult vd_cuGraphAddMemAllocNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *on,
                                   size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *params) {
  struct vd_work work = {.type = CU_GRAPH_NODE_TYPE_EMPTY};
  if (params == NULL || params->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
      params->poolProps.location.id != 0 || params->poolProps.handleTypes != 0)
    return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  CUresult result = work_of_alloc(params->bytesize, &work);
  uint64_t address = work.memory.address;
  if (result == CUDA_SUCCESS)
    result = vd_node_add_locked(out, graph, on, NULL, count, &work);
  if (result == CUDA_SUCCESS) params->dptr = address;
  vd_unlock();
  return result;
}

CUresult vd_cuGraphAddMemFreeNode(CUgraphNode *out, CUgraph handle, const CUgraphNode *on,
                                  size_t count, CUdeviceptr address) {
  struct vd_work work = {.type = CU_GRAPH_NODE_TYPE_EMPTY};
  vd_lock();
  CUresult result = work_of_free(vd_graph_of(handle, VD_GRAPH), address, &work);
  if (result == CUDA_SUCCESS)
    result = vd_node_add_locked(out, handle, on, NULL, count, &work);
  vd_unlock();
  return result;
}

CUresult vd_cuGraphMemAllocNodeGetParams(CUgraphNode handle,
                                         CUDA_MEM_ALLOC_NODE_PARAMS *out) {
  if (out == NULL) return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  const struct vd_node *node = vd_node_of(handle);
  bool right = node != NULL && node->work.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  if (right)
    *out = (CUDA_MEM_ALLOC_NODE_PARAMS){
        .poolProps = {.allocType = 1 /* pinned */,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}},
        .bytesize = node->work.memory.length_bytes,
        .dptr = node->work.memory.address};
  vd_unlock();
  return right ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult vd_cuGraphMemFreeNodeGetParams(CUgraphNode handle, CUdeviceptr *out) {
  if (out == NULL) return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  const struct vd_node *node = vd_node_of(handle);
  bool right = node != NULL && node->work.type == CU_GRAPH_NODE_TYPE_MEM_FREE;
  if (right) *out = node->work.memory.address;
  vd_unlock();
  return right ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult vd_cuDeviceGraphMemTrim(CUdevice device) {
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  vd_lock();
  vd_wait_device_locked();
  for (size_t i = 0; i < vd.plain.count; i++) {
    struct vd_memory *memory = vd.plain.entries[i].memory;
    if (!memory->of_graph || !memory->backed || memory->live) continue;
    gpu_plain_release(vd.engine, vd_now_ns(), &vd_hooks, memory->reserved_bytes);
    memory->backed = false;
  }
  vd_unlock();
  return CUDA_SUCCESS;
}

CUresult vd_cuDeviceGetGraphMemAttribute(CUdevice device, int attribute, void *value) {
  uint64_t found[4];
  if (value == NULL || attribute < 0 || attribute > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
    return CUDA_ERROR_INVALID_VALUE;
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  vd_lock();
  bytes_locked(&found[CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT],
               &found[CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT]);
  found[CU_GRAPH_MEM_ATTR_USED_MEM_HIGH] = vd_graphs.used_high;
  found[CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH] = vd_graphs.reserved_high;
  vd_unlock();
  *(uint64_t *)value = found[attribute];
  return CUDA_SUCCESS;
}

/* Resets one of the two high-water marks to the current value. */
CUresult vd_cuDeviceSetGraphMemAttribute(CUdevice device, int attribute, void *value) {
  if (value == NULL || (attribute != CU_GRAPH_MEM_ATTR_USED_MEM_HIGH &&
                        attribute != CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH))
    return CUDA_ERROR_INVALID_VALUE;
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  vd_lock();
  if (attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH) vd_graphs.used_high = 0;
  if (attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) vd_graphs.reserved_high = 0;
  note_peaks();
  vd_unlock();
  return CUDA_SUCCESS;
}
