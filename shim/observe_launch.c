/* observe_launch.c - hooks of kernel launches, and of the calls after which kernel
 * handles mean something else.
 *
 * Each hook and each _ptsz twin: guard, its own real call, record. The arguments
 * are still the program's when the call has returned, so they are read then.
 */
#include "observe.h"

/* The dormant path is a branch and a jump: what an active client does stands in a
 * function of its own, so that no register has to be saved for it. */
#define HOOK_LAUNCH(name, at, launch, parameters, arguments)                               \
  static __attribute__((noinline)) CUresult active_##name parameters {                     \
    CUresult result = pump_real.name arguments;                                            \
    if (result == CUDA_SUCCESS && pump_inside == 0) {                                      \
      struct pump_launch made = launch;                                                    \
      pump_launch_report(&made, at);                                                       \
    }                                                                                      \
    return result;                                                                         \
  }                                                                                        \
  CUresult name parameters {                                                               \
    if (PUMP_LIKELY(pump_dormant())) return pump_real.name arguments;                      \
    return active_##name arguments;                                                        \
  }

#define LAUNCH(given_extra)                                                                \
  {.function = function,                                                                   \
   .grid = {grid_x, grid_y, grid_z},                                                       \
   .block = {block_x, block_y, block_z},                                                   \
   .params = params,                                                                       \
   .extra = given_extra}

#define KERNEL                                                                             \
  (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,     \
   unsigned int block_x, unsigned int block_y, unsigned int block_z,                       \
   unsigned int shared_bytes, CUstream stream, void **params, void **extra)
#define KERNEL_ARGUMENTS                                                                   \
  (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream,      \
   params, extra)
HOOK_LAUNCH(cuLaunchKernel, pump_at(stream, false), LAUNCH(extra), KERNEL, KERNEL_ARGUMENTS)
HOOK_LAUNCH(cuLaunchKernel_ptsz, pump_at(stream, true), LAUNCH(extra), KERNEL,
            KERNEL_ARGUMENTS)

/* Whether the launch may begin before the one in front of it on its stream has ended, or
 * lets others begin before it has itself. */
static bool chained(const CUlaunchConfig *config) {
  const CUlaunchAttribute *attributes = config->attrs;
  if (attributes == NULL) return false;
  for (unsigned int i = 0; i < config->numAttrs; i++) {
    const CUlaunchAttribute *attribute = &attributes[i];
    if (attribute->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
        attribute->value.programmaticStreamSerializationAllowed != 0)
      return true;
    if (attribute->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT) return true;
  }
  return false;
}

#define LAUNCH_EX                                                                          \
  {.function = function,                                                                   \
   .grid = {config->gridDimX, config->gridDimY, config->gridDimZ},                         \
   .block = {config->blockDimX, config->blockDimY, config->blockDimZ},                     \
   .params = params,                                                                       \
   .extra = extra,                                                                         \
   .chained = chained(config)}

#define KERNEL_EX                                                                          \
  (const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
#define KERNEL_EX_ARGUMENTS (config, function, params, extra)
HOOK_LAUNCH(cuLaunchKernelEx, pump_at(config->hStream, false), LAUNCH_EX, KERNEL_EX,
            KERNEL_EX_ARGUMENTS)
HOOK_LAUNCH(cuLaunchKernelEx_ptsz, pump_at(config->hStream, true), LAUNCH_EX, KERNEL_EX,
            KERNEL_EX_ARGUMENTS)

#define COOPERATIVE                                                                        \
  (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,     \
   unsigned int block_x, unsigned int block_y, unsigned int block_z,                       \
   unsigned int shared_bytes, CUstream stream, void **params)
#define COOPERATIVE_ARGUMENTS                                                              \
  (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream,      \
   params)
HOOK_LAUNCH(cuLaunchCooperativeKernel, pump_at(stream, false), LAUNCH(NULL), COOPERATIVE,
            COOPERATIVE_ARGUMENTS)
HOOK_LAUNCH(cuLaunchCooperativeKernel_ptsz, pump_at(stream, true), LAUNCH(NULL),
            COOPERATIVE, COOPERATIVE_ARGUMENTS)

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
