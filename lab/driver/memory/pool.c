/* pool.c - stream-ordered allocation: plain device memory, freed in stream order.
 *
 * Nothing is cached: memory returns to the GPU when the stream reaches the free. Pools
 * only keep settings and statistics. In a capture, allocations and frees become nodes of
 * the graph (graph_memory.c).
 */
#include <string.h>

#include "memory.h"

static struct vd_pool standard = {.magic = VD_POOL, .is_default = true};
static struct vd_pool *current = &standard; /* used by cuMemAllocAsync */

static struct vd_pool *pool_of(CUmemoryPool handle) {
  struct vd_pool *pool = (void *)handle;
  return vd_is(pool, VD_POOL) ? pool : NULL;
}

static CUresult from_pool(const struct vd_pool *pool, size_t length_bytes,
                          struct vd_memory **out) {
  if (pool->most_bytes != 0 && (length_bytes > pool->most_bytes ||
                                pool->used_bytes > pool->most_bytes - length_bytes))
    return CUDA_ERROR_OUT_OF_MEMORY;
  return vd_memory_new(VD_PLAIN, length_bytes, out);
}

static CUresult allocate(CUdeviceptr *out, size_t length_bytes, struct vd_pool *pool,
                         CUstream handle) {
  if (out == NULL || pool == NULL) return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  struct vd_stream *stream = vd_stream_of_locked(handle);
  CUresult result = stream == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
  if (result == CUDA_SUCCESS && length_bytes == 0) {
    *out = 0;
    vd_unlock();
    return result;
  }
  if (result == CUDA_SUCCESS && stream->capture != NULL) {
    result = vd_upcalls.capture_allocation(stream, length_bytes, out);
    vd_unlock();
    return result;
  }
  struct vd_memory *memory = NULL;
  if (result == CUDA_SUCCESS) {
    result = from_pool(pool, length_bytes, &memory);
    /* memory freed in stream order may be released soon: wait once */
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
      vd_wait_device_locked();
      result = from_pool(pool, length_bytes, &memory);
    }
  }
  if (result == CUDA_SUCCESS) {
    memory->pool = pool;
    pool->used_bytes += memory->reserved_bytes;
    if (pool->used_bytes > pool->used_high_bytes) pool->used_high_bytes = pool->used_bytes;
    *out = memory->base;
  }
  vd_unlock();
  return result;
}

CUresult vd_cuMemAllocAsync(CUdeviceptr *out, size_t length_bytes, CUstream stream) {
  return allocate(out, length_bytes, current, stream);
}

CUresult vd_cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t length_bytes,
                                    CUmemoryPool pool, CUstream stream) {
  return allocate(out, length_bytes, pool_of(pool), stream);
}

static bool release(const void *address) {
  struct vd_memory *memory = vd_memory_at(*(const uint64_t *)address);
  if (memory != NULL) vd_memory_release(memory);
  return true;
}

CUresult vd_cuMemFreeAsync(CUdeviceptr address, CUstream handle) {
  if (address == 0) return CUDA_SUCCESS;
  vd_lock();
  struct vd_stream *stream = vd_stream_of_locked(handle);
  CUresult result = stream == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
  struct vd_memory *memory = vd_range_find(&vd.plain, address);
  bool known = memory != NULL && memory->base == address;
  if (result == CUDA_SUCCESS && stream->capture != NULL) {
    result = vd_upcalls.capture_free(stream, address);
  } else if (result == CUDA_SUCCESS && (!known || memory->freed)) {
    vd.checks.free_unknown++;
    result = CUDA_ERROR_INVALID_VALUE;
  } else if (result == CUDA_SUCCESS && memory->of_graph) {
    result = vd_upcalls.graph_memory_free(memory);
  } else if (result == CUDA_SUCCESS) {
    uint64_t freed = address;
    struct vd_action *action = vd_action_new(VD_LOCKED, release, &freed, sizeof freed);
    struct gpu_operation operation = {.kind = GPU_COPY_LOCAL};
    if (action == NULL) {
      result = CUDA_ERROR_OUT_OF_MEMORY;
    } else {
      memory->freed = true;
      result = vd_submit_locked(stream, &operation, action);
      if (result != CUDA_SUCCESS) memory->freed = false;
    }
  }
  vd_unlock();
  return result;
}

static CUresult give_pool(CUmemoryPool *out, CUdevice device, struct vd_pool *pool) {
  if (out == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  *out = (CUmemoryPool)(void *)pool;
  return CUDA_SUCCESS;
}

CUresult vd_cuDeviceGetDefaultMemPool(CUmemoryPool *out, CUdevice device) {
  return give_pool(out, device, &standard);
}

CUresult vd_cuDeviceGetMemPool(CUmemoryPool *out, CUdevice device) {
  return give_pool(out, device, current);
}

CUresult vd_cuDeviceSetMemPool(CUdevice device, CUmemoryPool handle) {
  struct vd_pool *pool = pool_of(handle);
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  if (pool == NULL) return CUDA_ERROR_INVALID_VALUE;
  current = pool;
  return CUDA_SUCCESS;
}

/* Checks the location and kind of a pool: only the GPU's device memory has pools. */
static CUresult pool_kind(const CUmemLocation *location, int type) {
  if (location == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (location->type != CU_MEM_LOCATION_TYPE_DEVICE || type != 1 /* pinned */)
    return CUDA_ERROR_NOT_SUPPORTED;
  return location->id == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult vd_cuMemGetDefaultMemPool(CUmemoryPool *out, CUmemLocation *location, int type) {
  CUresult result = pool_kind(location, type);
  return result == CUDA_SUCCESS ? give_pool(out, 0, &standard) : result;
}

CUresult vd_cuMemGetMemPool(CUmemoryPool *out, CUmemLocation *location, int type) {
  CUresult result = pool_kind(location, type);
  return result == CUDA_SUCCESS ? give_pool(out, 0, current) : result;
}

CUresult vd_cuMemSetMemPool(CUmemLocation *location, int type, CUmemoryPool pool) {
  CUresult result = pool_kind(location, type);
  return result == CUDA_SUCCESS ? vd_cuDeviceSetMemPool(0, pool) : result;
}

CUresult vd_cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *properties) {
  if (out == NULL || properties == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
      properties->location.id != 0 || properties->allocType != 1 /* pinned */)
    return CUDA_ERROR_NOT_SUPPORTED;
  vd_lock();
  struct vd_pool *pool = vd_object_new(VD_POOL);
  if (pool != NULL) pool->most_bytes = properties->maxSize;
  vd_unlock();
  if (pool == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = (CUmemoryPool)(void *)pool;
  return CUDA_SUCCESS;
}

CUresult vd_cuMemPoolDestroy(CUmemoryPool handle) {
  struct vd_pool *pool = pool_of(handle);
  if (pool == NULL || pool->is_default) return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  for (size_t i = 0; i < vd.plain.count; i++)
    if (vd.plain.entries[i].memory->pool == pool) vd.plain.entries[i].memory->pool = NULL;
  if (current == pool) current = &standard;
  vd_object_free(pool);
  vd_unlock();
  return CUDA_SUCCESS;
}

CUresult vd_cuMemPoolTrimTo(CUmemoryPool handle, size_t keep_bytes) {
  (void)keep_bytes; /* nothing is cached */
  return pool_of(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult vd_cuMemPoolSetAttribute(CUmemoryPool handle, int attribute, void *value) {
  struct vd_pool *pool = pool_of(handle);
  if (pool == NULL || value == NULL) return CUDA_ERROR_INVALID_VALUE;
  int flag;
  switch (attribute) {
  case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
  case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
  case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
    memcpy(&flag, value, sizeof flag);
    pool->settings[attribute] = flag != 0;
    return CUDA_SUCCESS;
  case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
    memcpy(&pool->release_threshold, value, 8);
    return CUDA_SUCCESS;
  case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
  case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
    pool->used_high_bytes = pool->used_bytes;
    return 0;
  default:
    return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult vd_cuMemPoolGetAttribute(CUmemoryPool handle, int attribute, void *value) {
  const struct vd_pool *pool = pool_of(handle);
  if (pool == NULL || value == NULL) return CUDA_ERROR_INVALID_VALUE;
  int flag;
  switch (attribute) {
  case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
  case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
  case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
    flag = (int)pool->settings[attribute];
    memcpy(value, &flag, sizeof flag);
    return CUDA_SUCCESS;
  case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
    memcpy(value, &pool->release_threshold, 8);
    return CUDA_SUCCESS;
  case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
  case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
    memcpy(value, &pool->used_bytes, 8);
    return 0;
  case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
  case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
    memcpy(value, &pool->used_high_bytes, 8);
    return 0;
  default:
    return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult vd_cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc *accesses,
                               size_t count) {
  if (pool_of(handle) == NULL || (count > 0 && accesses == NULL))
    return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; i++)
    if (accesses[i].location.id != 0) return CUDA_ERROR_INVALID_DEVICE;
  return CUDA_SUCCESS;
}

CUresult vd_cuMemPoolGetAccess(int *flags, CUmemoryPool handle, CUmemLocation *location) {
  if (flags == NULL || location == NULL || pool_of(handle) == NULL)
    return CUDA_ERROR_INVALID_VALUE;
  *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return CUDA_SUCCESS;
}
