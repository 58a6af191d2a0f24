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

#define HOOK_LAUNCH(name, per_thread)                                                      \
  CUresult name(CUfunction function, unsigned int grid_x, unsigned int grid_y,             \
                unsigned int grid_z, unsigned int block_x, unsigned int block_y,           \
                unsigned int block_z, unsigned int shared_bytes, CUstream stream,          \
                void **params, void **extra) {                                             \
    if (pump_quiet())                                                                      \
      return pump_real.name(function, grid_x, grid_y, grid_z, block_x, block_y, block_z,   \
                            shared_bytes, stream, params, extra);                          \
    CUresult result = pump_real.name(function, grid_x, grid_y, grid_z, block_x, block_y,   \
                                     block_z, shared_bytes, stream, params, extra);        \
    if (result == CUDA_SUCCESS)                                                            \
      record(function, pump_at(stream, per_thread), params, extra);                        \
    return result;                                                                         \
  }

HOOK_LAUNCH(cuLaunchKernel, false)
HOOK_LAUNCH(cuLaunchKernel_ptsz, true)

#define HOOK_LAUNCH_EX(name, per_thread)                                                   \
  CUresult name(const CUlaunchConfig *config, CUfunction function, void **params,          \
                void **extra) {                                                            \
    if (pump_quiet()) return pump_real.name(config, function, params, extra);              \
    CUresult result = pump_real.name(config, function, params, extra);                     \
    if (result == CUDA_SUCCESS)                                                            \
      record(function, pump_at(config->hStream, per_thread), params, extra);               \
    return result;                                                                         \
  }

HOOK_LAUNCH_EX(cuLaunchKernelEx, false)
HOOK_LAUNCH_EX(cuLaunchKernelEx_ptsz, true)

#define HOOK_COOPERATIVE(name, per_thread)                                                 \
  CUresult name(CUfunction function, unsigned int grid_x, unsigned int grid_y,             \
                unsigned int grid_z, unsigned int block_x, unsigned int block_y,           \
                unsigned int block_z, unsigned int shared_bytes, CUstream stream,          \
                void **params) {                                                           \
    if (pump_quiet())                                                                      \
      return pump_real.name(function, grid_x, grid_y, grid_z, block_x, block_y, block_z,   \
                            shared_bytes, stream, params);                                 \
    CUresult result = pump_real.name(function, grid_x, grid_y, grid_z, block_x, block_y,   \
                                     block_z, shared_bytes, stream, params);               \
    if (result == CUDA_SUCCESS)                                                            \
      record(function, pump_at(stream, per_thread), params, NULL);                         \
    return result;                                                                         \
  }

HOOK_COOPERATIVE(cuLaunchCooperativeKernel, false)
HOOK_COOPERATIVE(cuLaunchCooperativeKernel_ptsz, true)

/* ---- modules and libraries: their handles may be used again --------------- */

CUresult cuModuleUnload(CUmodule module) {
  CUresult result = pump_real.cuModuleUnload(module);
  if (!pump_inert()) pump_params_forget();
  return result;
}

CUresult cuLibraryUnload(CUlibrary library) {
  CUresult result = pump_real.cuLibraryUnload(library);
  if (!pump_inert()) pump_params_forget();
  return result;
}
