/* graph_params.c - the work of nodes: parameters set, read and changed.
 *
 * A copy is returned with the linear addresses that it was resolved to, not with the
 * given offsets, unless an end is in an array. A memset or copy is checked when it runs.
 */
#include <stdlib.h>
#include <string.h>

#include "graph.h"

/* -- work owns its contents -- */

void vd_work_free_locked(struct vd_work *work) {
  if (work->type == CU_GRAPH_NODE_TYPE_KERNEL) free(work->kernel.parameters);
  if (work->type == CU_GRAPH_NODE_TYPE_GRAPH) vd_graph_free_locked(work->child);
  if (work->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) vd_graph_memory_let_go_locked(work);
  *work = (struct vd_work){.type = CU_GRAPH_NODE_TYPE_EMPTY};
}

CUresult vd_work_copy_locked(const struct vd_work *work, struct vd_work *out) {
  *out = *work;
  if (work->type == CU_GRAPH_NODE_TYPE_KERNEL) {
    size_t bytes = work->kernel.parameter_bytes;
    out->kernel.parameters = malloc(bytes ? bytes : 1);
    if (out->kernel.parameters == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(out->kernel.parameters, work->kernel.parameters, bytes);
  } else if (work->type == CU_GRAPH_NODE_TYPE_GRAPH) {
    out->child = vd_graph_copy_locked(work->child, VD_GRAPH);
    if (out->child == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    out->child->owned = true;
  } else if (work->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
    vd_graph_memory_hold_locked(work);
  }
  return CUDA_SUCCESS;
}

CUresult vd_work_of_kernel(const CUDA_KERNEL_NODE_PARAMS_v1 *p, CUkernel kernel,
                           struct vd_work *out) {
  if (p == NULL) return CUDA_ERROR_INVALID_VALUE;
  unsigned grid[3] = {p->gridDimX, p->gridDimY, p->gridDimZ};
  unsigned block[3] = {p->blockDimX, p->blockDimY, p->blockDimZ};
  CUfunction function = p->func != NULL ? p->func : (CUfunction)(void *)kernel;
  out->type = CU_GRAPH_NODE_TYPE_KERNEL;
  return vd_kernel_call_new(function, grid, block, p->sharedMemBytes, p->kernelParams,
                            p->extra, &out->kernel);
}

CUresult vd_work_of_copy(const CUDA_MEMCPY3D *params, struct vd_work *out) {
  out->type = CU_GRAPH_NODE_TYPE_MEMCPY;
  return vd_copy_of_3d_locked(params, &out->copy);
}

CUresult vd_work_of_set(const CUDA_MEMSET_NODE_PARAMS_v1 *p, struct vd_work *out) {
  if (p == NULL || (p->elementSize != 1 && p->elementSize != 2 && p->elementSize != 4))
    return CUDA_ERROR_INVALID_VALUE;
  out->type = CU_GRAPH_NODE_TYPE_MEMSET;
  out->set =
      (struct vd_set){p->dst, p->width, p->height, p->pitch, p->value, p->elementSize};
  return CUDA_SUCCESS;
}

CUresult vd_work_of_host(const CUDA_HOST_NODE_PARAMS_v1 *params, struct vd_work *out) {
  if (params == NULL || params->fn == NULL) return CUDA_ERROR_INVALID_VALUE;
  out->type = CU_GRAPH_NODE_TYPE_HOST;
  out->host = *params;
  return CUDA_SUCCESS;
}

static CUresult work_of_child_locked(CUgraph handle, struct vd_work *out) {
  const struct vd_graph *graph = vd_graph_of(handle, VD_GRAPH);
  if (graph == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (graph->memory) return CUDA_ERROR_NOT_SUPPORTED;
  struct vd_work given = {.type = CU_GRAPH_NODE_TYPE_GRAPH,
                          .child = (struct vd_graph *)(uintptr_t)graph};
  return vd_work_copy_locked(&given, out);
}

CUresult vd_work_of_event_locked(CUevent event, int type, struct vd_work *out) {
  if (!vd_is((void *)event, VD_EVENT)) return CUDA_ERROR_INVALID_HANDLE;
  out->type = type;
  out->event = event;
  return CUDA_SUCCESS;
}

CUresult vd_work_of_any_locked(const CUgraphNodeParams *p, struct vd_work *out) {
  CUDA_KERNEL_NODE_PARAMS_v1 kernel;
  switch (p->type) {
  case CU_GRAPH_NODE_TYPE_KERNEL:
    memcpy(&kernel, &p->kernel, sizeof kernel);
    return vd_work_of_kernel(&kernel, p->kernel.kern, out);
  case CU_GRAPH_NODE_TYPE_MEMCPY:
    return vd_work_of_copy(&p->memcpy.copyParams, out);
  case CU_GRAPH_NODE_TYPE_MEMSET:
    return vd_work_of_set(&p->memset, out);
  case CU_GRAPH_NODE_TYPE_HOST:
    return vd_work_of_host(&p->host, out);
  case CU_GRAPH_NODE_TYPE_GRAPH:
    return work_of_child_locked(p->graph, out);
  case CU_GRAPH_NODE_TYPE_EMPTY:
    out->type = CU_GRAPH_NODE_TYPE_EMPTY;
    return CUDA_SUCCESS;
  case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
  case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    return vd_work_of_event_locked(p->event, p->type, out);
  default:
    return CUDA_ERROR_NOT_SUPPORTED;
  }
}

CUresult vd_node_set_locked(struct vd_node *node, struct vd_work *work) {
  if (node == NULL || node->work.type != work->type) {
    vd_work_free_locked(work);
    return CUDA_ERROR_INVALID_VALUE;
  }
  vd_work_free_locked(&node->work);
  node->work = *work;
  return CUDA_SUCCESS;
}

/* -- adding: first the work, then the node that takes it -- */

CUresult vd_node_add_locked(CUgraphNode *out, CUgraph handle,
                            const CUgraphNode *dependencies, const CUgraphEdgeData *edges,
                            size_t count, struct vd_work *work) {
  struct vd_graph *graph = vd_graph_of(handle, VD_GRAPH);
  struct vd_node *node;
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  if (out != NULL && graph != NULL && (count == 0 || dependencies != NULL))
    result = vd_node_new_locked(graph, work, (struct vd_node *const *)dependencies, edges,
                                count, &node);
  if (result == CUDA_SUCCESS)
    *out = (CUgraphNode)(void *)node;
  else
    vd_work_free_locked(work);
  return result;
}

#define EMPTY_WORK {.type = CU_GRAPH_NODE_TYPE_EMPTY}

/* `make` fills `work`, under the lock. */
#define ADD_NODE(edges, make)                                                              \
  struct vd_work work = EMPTY_WORK;                                                        \
  vd_lock();                                                                               \
  CUresult result = make;                                                                  \
  if (result == CUDA_SUCCESS)                                                              \
    result = vd_node_add_locked(out, graph, on, edges, count, &work);                      \
  vd_unlock();                                                                             \
  return result

CUresult vd_cuGraphAddKernelNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *on,
                                 size_t count, const CUDA_KERNEL_NODE_PARAMS_v1 *params) {
  ADD_NODE(NULL, vd_work_of_kernel(params, NULL, &work));
}

/* Converts: the newer structure begins with the older one. */
static const CUDA_KERNEL_NODE_PARAMS_v1 *older(const CUDA_KERNEL_NODE_PARAMS_v2 *params) {
  return (const CUDA_KERNEL_NODE_PARAMS_v1 *)(const void *)params;
}

CUresult vd_cuGraphAddKernelNode_v2(CUgraphNode *out, CUgraph graph, const CUgraphNode *on,
                                    size_t count,
                                    const CUDA_KERNEL_NODE_PARAMS_v2 *params) {
  if (params == NULL) return CUDA_ERROR_INVALID_VALUE;
  ADD_NODE(NULL, vd_work_of_kernel(older(params), params->kern, &work));
}

CUresult vd_cuGraphAddMemcpyNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *on,
                                 size_t count, const CUDA_MEMCPY3D *params,
                                 CUcontext context) {
  (void)context; /* one device */
  ADD_NODE(NULL, vd_work_of_copy(params, &work));
}

CUresult vd_cuGraphAddMemsetNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *on,
                                 size_t count, const CUDA_MEMSET_NODE_PARAMS_v1 *params,
                                 CUcontext context) {
  (void)context;
  ADD_NODE(NULL, vd_work_of_set(params, &work));
}

CUresult vd_cuGraphAddHostNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *on,
                               size_t count, const CUDA_HOST_NODE_PARAMS_v1 *params) {
  ADD_NODE(NULL, vd_work_of_host(params, &work));
}

CUresult vd_cuGraphAddChildGraphNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *on,
                                     size_t count, CUgraph child) {
  ADD_NODE(NULL, work_of_child_locked(child, &work));
}

CUresult vd_cuGraphAddEmptyNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *on,
                                size_t count) {
  ADD_NODE(NULL, CUDA_SUCCESS);
}

CUresult vd_cuGraphAddEventRecordNode(CUgraphNode *out, CUgraph graph,
                                      const CUgraphNode *on, size_t count, CUevent event) {
  ADD_NODE(NULL, vd_work_of_event_locked(event, CU_GRAPH_NODE_TYPE_EVENT_RECORD, &work));
}

CUresult vd_cuGraphAddEventWaitNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *on,
                                    size_t count, CUevent event) {
  ADD_NODE(NULL, vd_work_of_event_locked(event, CU_GRAPH_NODE_TYPE_WAIT_EVENT, &work));
}

/* Reports a child as the node's own graph. */
static void report_child(const CUgraphNode *node, CUgraphNodeParams *params) {
  if (params->type == CU_GRAPH_NODE_TYPE_GRAPH)
    params->graph =
        (CUgraph)(void *)((const struct vd_node *)(const void *)*node)->work.child;
}

/* Adds a node that allocates or frees memory, by its own call and with plain edges. */
static CUresult add_memory(CUgraphNode *out, CUgraph graph, const CUgraphNode *on,
                           size_t count, CUgraphNodeParams *params) {
  if (params->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
    return vd_cuGraphAddMemFreeNode(out, graph, on, count, params->free);
  return vd_cuGraphAddMemAllocNode(out, graph, on, count, &params->alloc);
}

CUresult vd_cuGraphAddNode_v2(CUgraphNode *out, CUgraph graph, const CUgraphNode *on,
                              const CUgraphEdgeData *edges, size_t count,
                              CUgraphNodeParams *params) {
  struct vd_work work = EMPTY_WORK;
  if (params == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
      params->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
    return add_memory(out, graph, on, count, params);
  vd_lock();
  CUresult result = vd_work_of_any_locked(params, &work);
  if (result == CUDA_SUCCESS)
    result = vd_node_add_locked(out, graph, on, edges, count, &work);
  if (result == CUDA_SUCCESS) report_child(out, params);
  vd_unlock();
  return result;
}

/* The newest node parameters begin like the older ones, and add nodes of new kinds. */
CUresult vd_cuGraphAddNode_v3(CUgraphNode *out, CUgraph graph, const CUgraphNode *on,
                              const CUgraphEdgeData *edges, size_t count,
                              CUgraphNodeParams *params) {
  return vd_cuGraphAddNode_v2(out, graph, on, edges, count, params);
}

CUresult vd_cuGraphAddNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *on,
                           size_t count, CUgraphNodeParams *params) {
  return vd_cuGraphAddNode_v2(out, graph, on, NULL, count, params);
}

/* -- reading -- */

static const struct vd_node *node_of(CUgraphNode handle, int type) {
  const struct vd_node *node = vd_node_of(handle);
  return node != NULL && node->work.type == type ? node : NULL;
}

static CUresult report_kernel(struct vd_node *node, CUDA_KERNEL_NODE_PARAMS_v1 *out) {
  const struct vd_kernel_call *call = &node->work.kernel;
  if (!vd_is(call->function, VD_FUNCTION)) return CUDA_ERROR_INVALID_HANDLE;
  const struct image_kernel *kernel = call->function->kernel;
  void **pointers = calloc(kernel->parameter_count + 1, sizeof *pointers);
  if (pointers == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  for (uint32_t i = 0; i < kernel->parameter_count; i++)
    pointers[i] = call->parameters + kernel->parameters[i].offset_bytes;
  free(node->pointers);
  node->pointers = pointers;
  *out = (CUDA_KERNEL_NODE_PARAMS_v1){
      .func = (CUfunction)(void *)call->function,
      .gridDimX = call->grid[0],
      .gridDimY = call->grid[1],
      .gridDimZ = call->grid[2],
      .blockDimX = call->block[0],
      .blockDimY = call->block[1],
      .blockDimZ = call->block[2],
      .sharedMemBytes = call->shared_bytes,
      .kernelParams = pointers,
  };
  return CUDA_SUCCESS;
}

CUresult vd_cuGraphKernelNodeGetParams(CUgraphNode handle,
                                       CUDA_KERNEL_NODE_PARAMS_v1 *out) {
  if (out == NULL) return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  const struct vd_node *node = node_of(handle, CU_GRAPH_NODE_TYPE_KERNEL);
  CUresult result = node == NULL ? CUDA_ERROR_INVALID_VALUE
                                 : report_kernel((struct vd_node *)(uintptr_t)node, out);
  vd_unlock();
  return result;
}

CUresult vd_cuGraphKernelNodeGetParams_v2(CUgraphNode node,
                                          CUDA_KERNEL_NODE_PARAMS_v2 *out) {
  CUDA_KERNEL_NODE_PARAMS_v1 params;
  if (out == NULL) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = vd_cuGraphKernelNodeGetParams(node, &params);
  if (result != CUDA_SUCCESS) return result;
  *out = (CUDA_KERNEL_NODE_PARAMS_v2){0};
  memcpy(out, &params, sizeof params);
  /* A library's kernel is returned as the handle type that the program used. */
  const struct vd_function *function = (const void *)params.func;
  if (function->is_kernel) {
    out->kern = (CUkernel)(void *)out->func;
    out->func = NULL;
  }
  return CUDA_SUCCESS;
}

static bool on_device(uint64_t address) {
  const struct vd_memory *memory = vd_memory_at(address);
  return memory != NULL && memory->kind >= VD_PLAIN;
}

static size_t rows_of(size_t slice, size_t pitch, size_t height) {
  return pitch != 0 && slice != 0 ? slice / pitch : height;
}

/* Computes the offsets of a copy's end in its array. */
static void report_position(CUarray array, uint64_t address, size_t *x_bytes, size_t *y,
                            size_t *z) {
  struct vd_texels texels;
  if (!vd_array_texels_locked(array, &texels)) return; /* the array was destroyed since */
  uint64_t offset = address - texels.address, slice = texels.pitch * texels.rows;
  *z = offset / slice;
  *y = offset % slice / texels.pitch;
  *x_bytes = offset % texels.pitch;
}

static void report_copy(const struct vd_copy *copy, CUDA_MEMCPY3D *out) {
  *out = (CUDA_MEMCPY3D){
      .WidthInBytes = copy->width_bytes, .Height = copy->height, .Depth = copy->depth};
  out->srcMemoryType = on_device(copy->source) ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
  out->dstMemoryType =
      on_device(copy->destination) ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
  out->srcDevice = copy->source;
  out->srcHost = (const void *)copy->source;
  out->dstDevice = copy->destination;
  out->dstHost = (void *)copy->destination;
  out->srcPitch = copy->source_pitch ? copy->source_pitch : copy->width_bytes;
  out->dstPitch = copy->destination_pitch ? copy->destination_pitch : copy->width_bytes;
  out->srcHeight = rows_of(copy->source_slice, copy->source_pitch, copy->height);
  out->dstHeight = rows_of(copy->destination_slice, copy->destination_pitch, copy->height);
  if (copy->source_array != NULL) {
    out->srcMemoryType = CU_MEMORYTYPE_ARRAY;
    out->srcArray = copy->source_array;
    report_position(out->srcArray, copy->source, &out->srcXInBytes, &out->srcY, &out->srcZ);
  }
  if (copy->destination_array != NULL) {
    out->dstMemoryType = CU_MEMORYTYPE_ARRAY;
    out->dstArray = copy->destination_array;
    report_position(out->dstArray, copy->destination, &out->dstXInBytes, &out->dstY,
                    &out->dstZ);
  }
}

#define GET(symbol, type, node_type, fill)                                                 \
  CUresult vd_##symbol(CUgraphNode handle, type *out) {                                    \
    if (out == NULL) return CUDA_ERROR_INVALID_VALUE;                                      \
    vd_lock();                                                                             \
    const struct vd_node *node = node_of(handle, node_type);                               \
    if (node != NULL) fill;                                                                \
    vd_unlock();                                                                           \
    return node != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;                         \
  }

#define TELL_SET                                                                           \
  *out = (CUDA_MEMSET_NODE_PARAMS_v1) {                                                    \
    node->work.set.destination, node->work.set.pitch, node->work.set.value,                \
        node->work.set.element_bytes, node->work.set.width, node->work.set.height          \
  }

GET(cuGraphMemcpyNodeGetParams, CUDA_MEMCPY3D, CU_GRAPH_NODE_TYPE_MEMCPY,
    report_copy(&node->work.copy, out))
GET(cuGraphMemsetNodeGetParams, CUDA_MEMSET_NODE_PARAMS_v1, CU_GRAPH_NODE_TYPE_MEMSET,
    TELL_SET)
GET(cuGraphHostNodeGetParams, CUDA_HOST_NODE_PARAMS_v1, CU_GRAPH_NODE_TYPE_HOST,
    *out = node->work.host)
GET(cuGraphChildGraphNodeGetGraph, CUgraph, CU_GRAPH_NODE_TYPE_GRAPH,
    *out = (CUgraph)(void *)node->work.child)
GET(cuGraphEventRecordNodeGetEvent, CUevent, CU_GRAPH_NODE_TYPE_EVENT_RECORD,
    *out = node->work.event)
GET(cuGraphEventWaitNodeGetEvent, CUevent, CU_GRAPH_NODE_TYPE_WAIT_EVENT,
    *out = node->work.event)

/* -- changing -- */

#define SET(make)                                                                          \
  struct vd_work work = EMPTY_WORK;                                                        \
  vd_lock();                                                                               \
  CUresult result = make;                                                                  \
  if (result == CUDA_SUCCESS) result = vd_node_set_locked(vd_node_of(node), &work);        \
  vd_unlock();                                                                             \
  return result

CUresult vd_cuGraphKernelNodeSetParams(CUgraphNode node,
                                       const CUDA_KERNEL_NODE_PARAMS_v1 *params) {
  SET(vd_work_of_kernel(params, NULL, &work));
}
CUresult vd_cuGraphKernelNodeSetParams_v2(CUgraphNode node,
                                          const CUDA_KERNEL_NODE_PARAMS_v2 *params) {
  if (params == NULL) return CUDA_ERROR_INVALID_VALUE;
  SET(vd_work_of_kernel(older(params), params->kern, &work));
}
CUresult vd_cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D *params) {
  SET(vd_work_of_copy(params, &work));
}
CUresult vd_cuGraphMemsetNodeSetParams(CUgraphNode node,
                                       const CUDA_MEMSET_NODE_PARAMS_v1 *params) {
  SET(vd_work_of_set(params, &work));
}
CUresult vd_cuGraphHostNodeSetParams(CUgraphNode node,
                                     const CUDA_HOST_NODE_PARAMS_v1 *params) {
  SET(vd_work_of_host(params, &work));
}
CUresult vd_cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event) {
  SET(vd_work_of_event_locked(event, CU_GRAPH_NODE_TYPE_EVENT_RECORD, &work));
}
CUresult vd_cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event) {
  SET(vd_work_of_event_locked(event, CU_GRAPH_NODE_TYPE_WAIT_EVENT, &work));
}
CUresult vd_cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *params) {
  if (params == NULL) return CUDA_ERROR_INVALID_VALUE;
  SET(vd_work_of_any_locked(params, &work));
}
CUresult vd_cuGraphNodeSetParams_v2(CUgraphNode node, CUgraphNodeParams *params) {
  return vd_cuGraphNodeSetParams(node, params);
}
