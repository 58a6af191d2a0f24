/* current.c - the state of the driver and of a thread, and which context is current. */
#include "driver.h"

struct vd_driver vd = {.lock = PTHREAD_MUTEX_INITIALIZER};
__thread struct vd_thread vd_thread;

bool vd_context_alive(const struct vd_context *context) {
  return vd_is(context, VD_CONTEXT) && __atomic_load_n(&context->alive, __ATOMIC_ACQUIRE);
}

CUresult vd_context_push(struct vd_context *context) {
  if (vd_thread.depth == VD_CONTEXT_DEPTH) return CUDA_ERROR_INVALID_VALUE;
  vd_thread.stack[vd_thread.depth++] = context;
  return CUDA_SUCCESS;
}

CUresult vd_cuCtxPushCurrent_v2(CUcontext handle) {
  struct vd_context *context = (void *)handle;
  if (!vd_context_alive(context)) return CUDA_ERROR_INVALID_CONTEXT;
  return vd_context_push(context);
}

CUresult vd_cuCtxPopCurrent_v2(CUcontext *out) {
  if (vd_thread.depth == 0) return CUDA_ERROR_INVALID_CONTEXT;
  struct vd_context *context = vd_thread.stack[--vd_thread.depth];
  if (out != NULL) *out = (CUcontext)(void *)context;
  return CUDA_SUCCESS;
}

/* Replaces the top of the stack; NULL pops it. */
CUresult vd_cuCtxSetCurrent(CUcontext handle) {
  struct vd_context *context = (void *)handle;
  if (context != NULL && !vd_context_alive(context)) return CUDA_ERROR_INVALID_CONTEXT;
  if (vd_thread.depth > 0) vd_thread.depth--;
  return context != NULL ? vd_context_push(context) : CUDA_SUCCESS;
}

CUresult vd_cuCtxGetCurrent(CUcontext *out) {
  if (out == NULL) return CUDA_ERROR_INVALID_VALUE;
  *out = (CUcontext)(void *)vd_current();
  return CUDA_SUCCESS;
}
