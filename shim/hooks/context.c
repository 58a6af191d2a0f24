/* context.c - hooks of calls that create and end contexts (pool/context_end.c). */
#include <errno.h>

#include "shim/pool/convert.h"

/* Registers the new context, which is current after a successful creation. */
static void created(void) {
  int saved = errno;
  PUMP_ADD(&pump_calls_seen, 1);
  pump_current_device(NULL);
  errno = saved;
}

#define HOOK_CREATE(name, parameters, arguments)                                           \
  CUresult name parameters {                                                               \
    if (pump_inert()) return pump_real.name arguments;                                     \
    CUresult result = pump_real.name arguments;                                            \
    if (result == CUDA_SUCCESS) created();                                                 \
    return result;                                                                         \
  }

HOOK_CREATE(cuCtxCreate_v2, (CUcontext * context, unsigned int flags, CUdevice device),
            (context, flags, device))
HOOK_CREATE(cuCtxCreate_v3,
            (CUcontext * context, CUexecAffinityParam *params, int count,
             unsigned int flags, CUdevice device),
            (context, params, count, flags, device))
HOOK_CREATE(cuCtxCreate_v4,
            (CUcontext * context, CUctxCreateParams *params, unsigned int flags,
             CUdevice device),
            (context, params, flags, device))

#define HOOK_DESTROY(name)                                                                 \
  CUresult name(CUcontext context) {                                                       \
    if (pump_inert()) return pump_real.name(context);                                      \
    int saved = errno;                                                                     \
    struct pump_context_end end = pump_context_ending(context);                            \
    CUresult result = pump_real.name(context);                                             \
    pump_context_ended(&end, result == CUDA_SUCCESS);                                      \
    errno = saved;                                                                         \
    return result;                                                                         \
  }

HOOK_DESTROY(cuCtxDestroy)
HOOK_DESTROY(cuCtxDestroy_v2)

/* Releases one use of the calling thread's current context. The last release ends the
 * context, which is then not current. */
CUresult cuCtxDetach(CUcontext context) {
  if (pump_inert()) return pump_real.cuCtxDetach(context);
  int saved = errno;
  struct pump_context_end end = pump_context_ending(context);
  CUresult result = pump_real.cuCtxDetach(context);
  CUcontext current = context;
  if (PUMP_HAS(cuCtxGetCurrent)) pump_real.cuCtxGetCurrent(&current);
  pump_context_ended(&end, result == CUDA_SUCCESS && current != context);
  errno = saved;
  return result;
}

/* ---- primary contexts ----------------------------------------------------- */

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  CUresult result = pump_real.cuDevicePrimaryCtxRetain(context, device);
  if (pump_inert() || result != CUDA_SUCCESS || context == NULL) return result;
  int saved = errno;
  PUMP_ADD(&pump_calls_seen, 1);
  pump_primary_retained(device, *context);
  errno = saved;
  return result;
}

#define HOOK_PRIMARY_END(name, reset)                                                      \
  CUresult name(CUdevice device) {                                                         \
    if (pump_inert()) return pump_real.name(device);                                       \
    int saved = errno;                                                                     \
    struct pump_context_end end = pump_context_ending(pump_primary_ending(device, reset)); \
    CUresult result = pump_real.name(device);                                              \
    pump_context_ended(&end,                                                               \
                       result == CUDA_SUCCESS && pump_primary_has_ended(device, reset));   \
    errno = saved;                                                                         \
    return result;                                                                         \
  }

HOOK_PRIMARY_END(cuDevicePrimaryCtxRelease, false)
HOOK_PRIMARY_END(cuDevicePrimaryCtxRelease_v2, false)
HOOK_PRIMARY_END(cuDevicePrimaryCtxReset, true)
HOOK_PRIMARY_END(cuDevicePrimaryCtxReset_v2, true)

/* ---- green contexts --------------------------------------------------------- */

/* Ends the CUcontext that cuCtxFromGreenCtx derived, in which pump's threads may work,
 * and releases one use of the primary context. Memory does not end with a green context. */
CUresult cuGreenCtxDestroy(CUgreenCtx context) {
  if (pump_inert()) return pump_real.cuGreenCtxDestroy(context);
  int saved = errno;
  PUMP_ADD(&pump_calls_seen, 1);
  for (CUdevice device = 0; device < PUMP_MAX_DEVICES; device++)
    pump_contexts_leave(device);
  CUresult result = pump_real.cuGreenCtxDestroy(context);
  pump_contexts_unlearn(); /* another thread may have cached the context */
  errno = saved;
  return result;
}
