/* context.c - contexts: created, ended, their settings. base/current.c has the current one.
 *
 * All contexts share the one device, its memory and the model. Streams, modules and
 * memory of a context end with it. Settings are only stored and returned.
 */
#include <string.h>

#include "calls.h"

static void defaults(struct vd_context *context, unsigned int flags, unsigned int version) {
  context->flags = flags;
  context->api_version = version;
  context->cache_config = 0;
  context->shared_config = 0;
  memset(context->limits, 0, sizeof context->limits);
  context->limits[0] = 1024;    /* stack */
  context->limits[1] = 1 << 20; /* printf */
  context->limits[2] = 8 << 20; /* malloc heap */
  context->limits[3] = 2;
  context->limits[4] = 2048;
  context->limits[5] = 64;
  __atomic_store_n(&context->alive, true, __ATOMIC_RELEASE);
}

/* Frees everything that the context owns; its work has ended. */
static void drop_locked(struct vd_context *context) {
  vd_streams_drop_context_locked(context);
  vd_modules_drop_context_locked(context);
  vd_memory_drop_context_locked(context);
  __atomic_store_n(&context->alive, false, __ATOMIC_RELEASE);
}

/* -- the primary context -- */

CUresult vd_cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device) {
  if (out == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  vd_lock();
  if (vd.primary.references++ == 0) {
    defaults(&vd.primary, vd.primary.flags, VD_DRIVER_VERSION);
    vd_streams.legacy.context = &vd.primary;
  }
  *out = (CUcontext)(void *)&vd.primary;
  vd_unlock();
  return CUDA_SUCCESS;
}

static CUresult primary_end_locked(void) {
  if (!vd.primary.alive) return CUDA_SUCCESS;
  CUresult result = vd_wait_device_locked();
  drop_locked(&vd.primary);
  return result;
}

CUresult vd_cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  CUresult result = CUDA_SUCCESS;
  vd_lock();
  if (vd.primary.references == 0)
    result = CUDA_ERROR_INVALID_CONTEXT;
  else if (--vd.primary.references == 0)
    result = primary_end_locked();
  vd_unlock();
  return result;
}

CUresult vd_cuDevicePrimaryCtxReset_v2(CUdevice device) {
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  vd_lock();
  CUresult result = primary_end_locked();
  /* The primary context returns automatically for libraries that still hold it. */
  if (vd.primary.references > 0) defaults(&vd.primary, vd.primary.flags, VD_DRIVER_VERSION);
  vd_unlock();
  return result;
}

CUresult vd_cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags) {
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  if (flags > 0xff) return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  vd.primary.flags = flags;
  vd_unlock();
  return CUDA_SUCCESS;
}

CUresult vd_cuDevicePrimaryCtxRelease(CUdevice device) {
  return vd_cuDevicePrimaryCtxRelease_v2(device);
}
CUresult vd_cuDevicePrimaryCtxReset(CUdevice device) {
  return vd_cuDevicePrimaryCtxReset_v2(device);
}
CUresult vd_cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags) {
  return vd_cuDevicePrimaryCtxSetFlags_v2(device, flags);
}

CUresult vd_cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active) {
  if (flags == NULL || active == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  *flags = vd.primary.flags;
  *active = vd_context_alive(&vd.primary);
  return CUDA_SUCCESS;
}

/* -- created contexts -- */

static CUresult create(CUcontext *out, unsigned int flags, CUdevice device,
                       unsigned int version) {
  if (out == NULL || flags > 0xff) return CUDA_ERROR_INVALID_VALUE;
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  if (vd_thread.depth == VD_CONTEXT_DEPTH) return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  struct vd_context *context = vd_object_new(VD_CONTEXT);
  uint32_t slot = 0;
  while (slot < VD_MAX_CONTEXTS && vd.contexts[slot] != NULL) slot++;
  if (context == NULL || slot == VD_MAX_CONTEXTS) {
    if (context != NULL) vd_object_free(context);
    vd_unlock();
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  vd.contexts[slot] = context;
  context->id = vd.next_id++;
  context->number = slot;
  context->references = 1;
  defaults(context, flags, version);
  vd_unlock();
  *out = (CUcontext)(void *)context;
  return vd_context_push(context);
}

CUresult vd_cuCtxCreate_v2(CUcontext *out, unsigned int flags, CUdevice device) {
  return create(out, flags, device, 3020);
}

CUresult vd_cuCtxCreate_v3(CUcontext *out, CUexecAffinityParam *affinity, int count,
                           unsigned int flags, CUdevice device) {
  if (affinity != NULL || count != 0) return CUDA_ERROR_NOT_SUPPORTED;
  return create(out, flags, device, 3021);
}

CUresult vd_cuCtxCreate_v4(CUcontext *out, CUctxCreateParams *parameters,
                           unsigned int flags, CUdevice device) {
  if (parameters != NULL && parameters->execAffinityParams == NULL &&
      parameters->numExecAffinityParams != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (parameters != NULL &&
      (parameters->execAffinityParams != NULL || parameters->cigParams != NULL))
    return CUDA_ERROR_NOT_SUPPORTED;
  return create(out, flags, device, 3021);
}

CUresult vd_cuCtxDestroy_v2(CUcontext handle) {
  struct vd_context *context = (void *)handle;
  if (!vd_context_alive(context) || context->primary) return CUDA_ERROR_INVALID_CONTEXT;
  vd_lock();
  CUresult result = vd_wait_device_locked();
  drop_locked(context);
  for (uint32_t i = 0; i < VD_MAX_CONTEXTS; i++)
    if (vd.contexts[i] == context) vd.contexts[i] = NULL;
  vd_object_free(context);
  vd_unlock();
  if (vd_current() == context) vd_thread.depth--;
  return result;
}

/* Count uses of a created context; the primary context has its own calls. */
CUresult vd_cuCtxAttach(CUcontext *out, unsigned int flags) {
  if (out == NULL || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  struct vd_context *context = vd_current();
  if (context->primary) return CUDA_ERROR_INVALID_CONTEXT;
  vd_lock();
  context->references++;
  vd_unlock();
  *out = (CUcontext)(void *)context;
  return CUDA_SUCCESS;
}

CUresult vd_cuCtxDetach(CUcontext handle) {
  struct vd_context *context = (void *)handle;
  if (context != vd_current() || context->primary) return CUDA_ERROR_INVALID_CONTEXT;
  vd_lock();
  bool last = --context->references == 0;
  vd_unlock();
  return last ? vd_cuCtxDestroy_v2(handle) : CUDA_SUCCESS;
}

CUresult vd_cuCtxGetDevice(CUdevice *device) {
  if (device == NULL) return CUDA_ERROR_INVALID_VALUE;
  *device = 0;
  return CUDA_SUCCESS;
}

CUresult vd_cuCtxGetDevice_v2(CUdevice *device, CUcontext handle) {
  if (device == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (handle == NULL && vd_current() == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  if (handle != NULL && !vd_context_alive((void *)handle))
    return CUDA_ERROR_INVALID_CONTEXT;
  *device = 0;
  return CUDA_SUCCESS;
}

/* -- settings -- */

CUresult vd_cuCtxGetFlags(unsigned int *flags) {
  if (flags == NULL) return CUDA_ERROR_INVALID_VALUE;
  *flags = vd_current()->flags;
  return CUDA_SUCCESS;
}

CUresult vd_cuCtxSetFlags(unsigned int flags) {
  if (flags > 0xff) return CUDA_ERROR_INVALID_VALUE;
  vd_current()->flags = flags;
  return CUDA_SUCCESS;
}

CUresult vd_cuCtxGetId(CUcontext handle, unsigned long long *id) {
  struct vd_context *context = handle ? (void *)handle : vd_current();
  if (id == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (!vd_context_alive(context)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  *id = context->id;
  return CUDA_SUCCESS;
}

CUresult vd_cuCtxGetApiVersion(CUcontext handle, unsigned int *version) {
  struct vd_context *context = handle ? (void *)handle : vd_current();
  if (version == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (!vd_context_alive(context)) return CUDA_ERROR_INVALID_CONTEXT;
  *version = context->api_version;
  return CUDA_SUCCESS;
}

static CUresult synchronize(const struct vd_context *context) {
  vd_lock();
  vd_pass_loads_locked(context);
  CUresult result = vd_capture_unsafe_locked("cuCtxSynchronize");
  if (result == CUDA_SUCCESS) result = vd_wait_context_locked(context);
  vd_unlock();
  return result;
}

CUresult vd_cuCtxSynchronize(void) {
  return synchronize(vd_current());
}

CUresult vd_cuCtxSynchronize_v2(CUcontext handle) {
  if (handle == NULL && vd_current() == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  if (handle != NULL && !vd_context_alive((void *)handle))
    return CUDA_ERROR_INVALID_CONTEXT;
  return synchronize(handle != NULL ? (void *)handle : vd_current());
}

CUresult vd_cuCtxSetLimit(int limit, size_t value) {
  if (limit < 0 || limit >= VD_LIMITS) return CUDA_ERROR_INVALID_VALUE;
  if (limit > 6) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  vd_current()->limits[limit] = value;
  return CUDA_SUCCESS;
}

CUresult vd_cuCtxGetLimit(size_t *value, int limit) {
  if (value == NULL || limit < 0 || limit >= VD_LIMITS) return CUDA_ERROR_INVALID_VALUE;
  *value = vd_current()->limits[limit];
  return CUDA_SUCCESS;
}

CUresult vd_cuCtxGetCacheConfig(int *config) {
  if (config == NULL) return CUDA_ERROR_INVALID_VALUE;
  *config = vd_current()->cache_config;
  return CUDA_SUCCESS;
}

CUresult vd_cuCtxSetCacheConfig(int config) {
  if (config < 0 || config > 3) return CUDA_ERROR_INVALID_VALUE;
  vd_current()->cache_config = config;
  return CUDA_SUCCESS;
}

CUresult vd_cuCtxGetSharedMemConfig(int *config) {
  if (config == NULL) return CUDA_ERROR_INVALID_VALUE;
  *config = vd_current()->shared_config;
  return CUDA_SUCCESS;
}

CUresult vd_cuCtxSetSharedMemConfig(int config) {
  if (config < 0 || config > 2) return CUDA_ERROR_INVALID_VALUE;
  vd_current()->shared_config = config;
  return CUDA_SUCCESS;
}

CUresult vd_cuCtxGetStreamPriorityRange(int *least, int *greatest) {
  if (least != NULL) *least = 0;
  if (greatest != NULL) *greatest = VD_GREATEST_PRIORITY;
  return CUDA_SUCCESS;
}

CUresult vd_cuCtxResetPersistingL2Cache(void) {
  return CUDA_SUCCESS;
}
