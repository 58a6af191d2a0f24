/* observe_launch.c - hooks of kernel launches, and of the calls after which kernel
 * handles mean something else.
 *
 * Each hook and each _ptsz twin: guard, its own real call, record. The arguments
 * are still the program's when the call has returned, so they are read then.
 */
#include <errno.h>

#include "observe.h"
#include "pump_ring.h"

static void record(CUfunction function, struct pump_at at, void **params, void **extra) {
  struct pump_op op;
  int saved = errno;
  pump_op_begin(&op);
  pump_params_scan(&op, function, params, extra);
  pump_op_report(&op, PUMP_EVENT_KERNEL, (uint64_t)(uintptr_t)function, at);
  errno = saved;
}

/* The dormant path is a branch and a jump: what an active client does stands in a
 * function of its own, so that no register has to be saved for it. */
#define HOOK_LAUNCH(name, at, parameters, arguments, params, extra)                        \
  static __attribute__((noinline)) CUresult active_##name parameters {                     \
    CUresult result = pump_real.name arguments;                                            \
    if (result == CUDA_SUCCESS && pump_inside == 0) record(function, at, params, extra);   \
    return result;                                                                         \
  }                                                                                        \
  CUresult name parameters {                                                               \
    if (PUMP_LIKELY(pump_dormant())) return pump_real.name arguments;                      \
    return active_##name arguments;                                                        \
  }

#define KERNEL                                                                             \
  (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,     \
   unsigned int block_x, unsigned int block_y, unsigned int block_z,                       \
   unsigned int shared_bytes, CUstream stream, void **params, void **extra)
#define KERNEL_ARGUMENTS                                                                   \
  (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream,      \
   params, extra)
HOOK_LAUNCH(cuLaunchKernel, pump_at(stream, false), KERNEL, KERNEL_ARGUMENTS, params, extra)
HOOK_LAUNCH(cuLaunchKernel_ptsz, pump_at(stream, true), KERNEL, KERNEL_ARGUMENTS, params,
            extra)

#define KERNEL_EX                                                                          \
  (const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
#define KERNEL_EX_ARGUMENTS (config, function, params, extra)
HOOK_LAUNCH(cuLaunchKernelEx, pump_at(config->hStream, false), KERNEL_EX,
            KERNEL_EX_ARGUMENTS, params, extra)
HOOK_LAUNCH(cuLaunchKernelEx_ptsz, pump_at(config->hStream, true), KERNEL_EX,
            KERNEL_EX_ARGUMENTS, params, extra)

#define COOPERATIVE                                                                        \
  (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,     \
   unsigned int block_x, unsigned int block_y, unsigned int block_z,                       \
   unsigned int shared_bytes, CUstream stream, void **params)
#define COOPERATIVE_ARGUMENTS                                                              \
  (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream,      \
   params)
HOOK_LAUNCH(cuLaunchCooperativeKernel, pump_at(stream, false), COOPERATIVE,
            COOPERATIVE_ARGUMENTS, params, NULL)
HOOK_LAUNCH(cuLaunchCooperativeKernel_ptsz, pump_at(stream, true), COOPERATIVE,
            COOPERATIVE_ARGUMENTS, params, NULL)

/* ---- modules and libraries: their handles may be used again --------------- */

/* Forgotten before: once the real call is through, another thread may launch another
 * kernel by the same handle. */
CUresult cuModuleUnload(CUmodule module) {
  if (!pump_inert()) pump_params_forget();
  return pump_real.cuModuleUnload(module);
}

CUresult cuLibraryUnload(CUlibrary library) {
  if (!pump_inert()) pump_params_forget();
  return pump_real.cuLibraryUnload(library);
}
