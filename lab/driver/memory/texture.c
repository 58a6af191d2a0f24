/* texture.c - texture and surface objects: only their descriptions.
 *
 * Nothing here samples. A kernel that is given an object touches the object's memory, and
 * its C function reads that memory itself. It gets the resource's description by the same
 * calls as a program (cuTexObjectGetResourceDesc, cuArray3DGetDescriptor), which need no
 * context. An array's handle is the address of its first texel (array.c).
 */
#include <stdlib.h>

#include "memory.h"

enum { ARRAY, MIPMAPPED_ARRAY, LINEAR, PITCH_2D }; /* CU_RESOURCE_TYPE_* */

struct object {
  struct object *next;
  enum vd_magic kind;
  CUDA_RESOURCE_DESC resource;
  CUDA_TEXTURE_DESC texture;
  CUDA_RESOURCE_VIEW_DESC view;
  bool viewed;
};
static struct object *objects; /* under the lock */

static struct object *find_locked(uint64_t handle, enum vd_magic kind) {
  struct object *object = objects;
  while (object != NULL && (uint64_t)object != handle) object = object->next;
  return object != NULL && object->kind == kind ? object : NULL;
}

/* Finds the memory of a resource; false: it was freed, or the description is invalid. */
static bool memory_of(const CUDA_RESOURCE_DESC *resource, uint64_t *address,
                      uint64_t *bytes) {
  const struct vd_memory *memory;
  switch (resource->resType) {
  case ARRAY:
  case MIPMAPPED_ARRAY: /* the handle is at the same offset in the union */
    *address = (uint64_t)resource->res.array.hArray;
    memory = vd_memory_at(*address);
    if (memory == NULL || memory->array == NULL) return false;
    *bytes = memory->base + memory->length_bytes - *address;
    return true;
  case LINEAR:
    *address = resource->res.linear.devPtr;
    *bytes = resource->res.linear.sizeInBytes;
    break;
  case PITCH_2D:
    *address = resource->res.pitch2D.devPtr;
    *bytes = resource->res.pitch2D.pitchInBytes * resource->res.pitch2D.height;
    break;
  default:
    return false;
  }
  memory = vd_memory_at(*address);
  return memory != NULL && memory->array == NULL && *bytes != 0 &&
         *bytes <= memory->base + memory->length_bytes - *address;
}

bool vd_texture_memory_locked(uint64_t word, uint64_t *address, uint64_t *bytes) {
  const struct object *object = objects;
  while (object != NULL && (uint64_t)object != word) object = object->next;
  return object != NULL && memory_of(&object->resource, address, bytes);
}

static CUresult create(enum vd_magic kind, unsigned long long *out,
                       const CUDA_RESOURCE_DESC *resource, const CUDA_TEXTURE_DESC *texture,
                       const CUDA_RESOURCE_VIEW_DESC *view) {
  uint64_t address, bytes;
  if (out == NULL || resource == NULL || resource->flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  struct object *object = calloc(1, sizeof *object);
  if (object == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  object->kind = kind;
  object->resource = *resource;
  if (texture != NULL) object->texture = *texture;
  if (view != NULL) object->view = *view;
  object->viewed = view != NULL;
  vd_lock();
  bool known = memory_of(resource, &address, &bytes);
  if (known) {
    object->next = objects;
    objects = object;
    *out = (unsigned long long)object;
  }
  vd_unlock();
  if (!known) free(object);
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult destroy(enum vd_magic kind, unsigned long long handle) {
  vd_lock();
  struct object *object = find_locked(handle, kind), **link = &objects;
  while (object != NULL && *link != object) link = &(*link)->next;
  if (object != NULL) *link = object->next;
  vd_unlock();
  free(object);
  return object != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult resource_of(enum vd_magic kind, CUDA_RESOURCE_DESC *out,
                            unsigned long long handle) {
  vd_lock();
  const struct object *object = find_locked(handle, kind);
  if (object != NULL && out != NULL) *out = object->resource;
  vd_unlock();
  return object != NULL && out != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult vd_cuTexObjectCreate(CUtexObject *out, const CUDA_RESOURCE_DESC *resource,
                              const CUDA_TEXTURE_DESC *texture,
                              const CUDA_RESOURCE_VIEW_DESC *view) {
  if (texture == NULL) return CUDA_ERROR_INVALID_VALUE;
  return create(VD_TEXTURE, out, resource, texture, view);
}

CUresult vd_cuTexObjectDestroy(CUtexObject object) {
  return destroy(VD_TEXTURE, object);
}

CUresult vd_cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC *out, CUtexObject object) {
  return resource_of(VD_TEXTURE, out, object);
}

CUresult vd_cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC *out, CUtexObject handle) {
  vd_lock();
  const struct object *object = find_locked(handle, VD_TEXTURE);
  if (object != NULL && out != NULL) *out = object->texture;
  vd_unlock();
  return object != NULL && out != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult vd_cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC *out,
                                           CUtexObject handle) {
  vd_lock();
  const struct object *object = find_locked(handle, VD_TEXTURE);
  bool viewed = object != NULL && out != NULL && object->viewed;
  if (viewed) *out = object->view;
  vd_unlock();
  return viewed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Surfaces exist only for arrays. */
CUresult vd_cuSurfObjectCreate(CUsurfObject *out, const CUDA_RESOURCE_DESC *resource) {
  if (resource != NULL && resource->resType != ARRAY) return CUDA_ERROR_INVALID_VALUE;
  return create(VD_SURFACE, out, resource, NULL, NULL);
}

CUresult vd_cuSurfObjectDestroy(CUsurfObject object) {
  return destroy(VD_SURFACE, object);
}

CUresult vd_cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC *out, CUsurfObject object) {
  return resource_of(VD_SURFACE, out, object);
}
