/* user_object.c - objects of the program that graphs keep alive: references, and the
 * destructor that the driver's thread calls after the last one is released.
 *
 * A copy of a graph, including an executable one, has as many references as the graph. */
#include <limits.h>
#include <stdlib.h>

#include "graph.h"

struct vd_user_object {
  uint32_t magic;
  uint32_t references; /* at most INT_MAX */
  CUhostFn destroy;
  void *data;
};

struct vd_user_reference {
  struct vd_user_object *object;
  uint32_t count;
  struct vd_user_reference *next;
};

static struct vd_user_object *object_of(CUuserObject handle) {
  return vd_is((void *)handle, VD_USER_OBJECT) ? (void *)handle : NULL;
}

static CUresult retain(struct vd_user_object *object, uint32_t count) {
  if (object == NULL || count == 0 || count > INT_MAX - object->references)
    return CUDA_ERROR_INVALID_VALUE;
  object->references += count;
  return CUDA_SUCCESS;
}

/* Releases references; keeps the last ones if there is no memory for the destructor. */
static CUresult release(struct vd_user_object *object, uint32_t count) {
  if (object == NULL || count == 0 || count > object->references)
    return CUDA_ERROR_INVALID_VALUE;
  if (count == object->references) {
    const CUDA_HOST_NODE_PARAMS_v1 destructor = {object->destroy, object->data};
    struct vd_action *action = vd_action_of_host(&destructor);
    if (action == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    vd_action_emit(action);
    vd_changed_locked();
    vd_object_free(object);
    return CUDA_SUCCESS;
  }
  object->references -= count;
  return CUDA_SUCCESS;
}

/* -- references of graphs -- */

static struct vd_user_reference **find(struct vd_graph *graph,
                                       const struct vd_user_object *object) {
  struct vd_user_reference **link = &graph->references;
  while (*link != NULL && (*link)->object != object) link = &(*link)->next;
  return link;
}

/* Gives the graph `count` references that are already counted. */
static CUresult take(struct vd_graph *graph, struct vd_user_object *object,
                     uint32_t count) {
  struct vd_user_reference **link = find(graph, object);
  if (*link == NULL) *link = calloc(1, sizeof **link);
  if (*link == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  (*link)->object = object;
  (*link)->count += count;
  return CUDA_SUCCESS;
}

CUresult vd_user_objects_copy_locked(const struct vd_graph *graph, struct vd_graph *copy) {
  CUresult result = CUDA_SUCCESS;
  for (const struct vd_user_reference *r = graph->references;
       r != NULL && result == CUDA_SUCCESS; r = r->next) {
    result = retain(r->object, r->count);
    if (result != CUDA_SUCCESS) break;
    result = take(copy, r->object, r->count);
    if (result != CUDA_SUCCESS) release(r->object, r->count);
  }
  return result;
}

void vd_user_objects_let_go_locked(struct vd_graph *graph) {
  while (graph->references != NULL) {
    struct vd_user_reference *first = graph->references;
    graph->references = first->next;
    release(first->object, first->count);
    free(first);
  }
}

/* -- the calls -- */

CUresult vd_cuUserObjectCreate(CUuserObject *out, void *data, CUhostFn destroy,
                               unsigned int references, unsigned int flags) {
  if (out == NULL || destroy == NULL || references == 0 || references > INT_MAX ||
      flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
    return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  if (vd_worker_start_locked() != 0) { /* a program may never launch anything */
    vd_unlock();
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  struct vd_user_object *object = vd_object_new(VD_USER_OBJECT);
  if (object != NULL) {
    object->references = references;
    object->destroy = destroy;
    object->data = data;
    *out = (CUuserObject)(void *)object;
  }
  vd_unlock();
  return object != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult vd_cuUserObjectRetain(CUuserObject handle, unsigned int count) {
  vd_lock();
  CUresult result = retain(object_of(handle), count);
  vd_unlock();
  return result;
}

CUresult vd_cuUserObjectRelease(CUuserObject handle, unsigned int count) {
  vd_lock();
  CUresult result = release(object_of(handle), count);
  vd_unlock();
  return result;
}

CUresult vd_cuGraphRetainUserObject(CUgraph graph_handle, CUuserObject handle,
                                    unsigned int count, unsigned int flags) {
  if (flags > CU_GRAPH_USER_OBJECT_MOVE) return CUDA_ERROR_INVALID_VALUE;
  bool moves = flags == CU_GRAPH_USER_OBJECT_MOVE;
  vd_lock();
  struct vd_graph *graph = vd_graph_of(graph_handle, VD_GRAPH);
  struct vd_user_object *object = object_of(handle);
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  if (graph != NULL && object != NULL && count != 0 &&
      (!moves || count <= object->references))
    result = moves ? CUDA_SUCCESS : retain(object, count);
  if (result == CUDA_SUCCESS) {
    result = take(graph, object, count);
    if (result != CUDA_SUCCESS && !moves) object->references -= count;
  }
  vd_unlock();
  return result;
}

CUresult vd_cuGraphReleaseUserObject(CUgraph graph_handle, CUuserObject handle,
                                     unsigned int count) {
  vd_lock();
  struct vd_graph *graph = vd_graph_of(graph_handle, VD_GRAPH);
  struct vd_user_object *object = object_of(handle);
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  if (graph != NULL && object != NULL) {
    struct vd_user_reference **link = find(graph, object);
    struct vd_user_reference *found = *link;
    if (found != NULL && count <= found->count) result = release(object, count);
    if (result == CUDA_SUCCESS && (found->count -= count) == 0) {
      *link = found->next;
      free(found);
    }
  }
  vd_unlock();
  return result;
}

_Static_assert(sizeof(struct vd_user_object) <= VD_OBJECT_BYTES, "user object");
