/* launch.c - hooks of kernel launches.
 *
 * Each hook and each _ptsz twin: guard, its own real call, record. The arguments still
 * belong to the program when the call has returned, so they are read then.
 */
#include "shim/record/record.h"

/* The dormant path is a branch and a jump. The active path is a separate function, so
 * that the dormant path saves no registers. `before`: code to run before the real call. */
#define HOOK_LAUNCH(name, at, launch, before, parameters, arguments)                       \
  static __attribute__((noinline)) CUresult active_##name parameters {                     \
    bool loads = false;                                                                    \
    before;                                                                                \
    CUresult result = pump_real.name arguments;                                            \
    if (PUMP_UNLIKELY(loads)) pump_first_launched();                                       \
    if (result == CUDA_SUCCESS && pump_reentry_depth == 0) {                               \
      struct pump_launch made = launch;                                                    \
      pump_launch_report(&made, at);                                                       \
    }                                                                                      \
    pump_op_end_timing();                                                                  \
    return result;                                                                         \
  }                                                                                        \
  CUresult name parameters {                                                               \
    if (PUMP_LIKELY(pump_reports_nothing())) return pump_real.name arguments;              \
    return active_##name arguments;                                                        \
  }

/* A launch that may begin early is neither timed nor gated, because an event or gate
 * before it would prevent that. The measured time begins behind the gate. */
#define AHEAD(at, grid_x, may)                                                             \
  loads = pump_launch_loads(function, at);                                                 \
  pump_launch_gate(function, grid_x, at, may);                                             \
  pump_op_begin_timing(at, may)
#define AHEAD_OF(stream, per_thread) AHEAD(pump_at(stream, per_thread), grid_x, true)
/* Before the real call the configuration may still be NULL. */
#define STREAM_EX (config == NULL ? NULL : config->hStream)
#define GRID_X_EX (config == NULL ? 0 : config->gridDimX)
#define AHEAD_EX(per_thread)                                                               \
  forget_events(config);                                                                   \
  AHEAD(pump_at(STREAM_EX, per_thread), GRID_X_EX, !chained(config))

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
HOOK_LAUNCH(cuLaunchKernel, pump_at(stream, false), LAUNCH(extra), AHEAD_OF(stream, false),
            KERNEL, KERNEL_ARGUMENTS)
HOOK_LAUNCH(cuLaunchKernel_ptsz, pump_at(stream, true), LAUNCH(extra),
            AHEAD_OF(stream, true), KERNEL, KERNEL_ARGUMENTS)

/* Returns whether the launch may begin before the previous one on its stream has ended,
 * or allows later ones to begin before its own end. */
static bool chained(const CUlaunchConfig *config) {
  const CUlaunchAttribute *attributes = config == NULL ? NULL : config->attrs;
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

/* Invalidates earlier records of the events that the launch records. */
static void forget_events(const CUlaunchConfig *config) {
  const CUlaunchAttribute *attributes = config == NULL ? NULL : config->attrs;
  pump_enter();
  for (unsigned int i = 0; attributes != NULL && i < config->numAttrs; i++)
    if (attributes[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT ||
        attributes[i].id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT)
      pump_progress_event_gone((CUevent)(uintptr_t)attributes[i].value.bytes[0]);
  pump_leave();
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
HOOK_LAUNCH(cuLaunchKernelEx, pump_at(config->hStream, false), LAUNCH_EX, AHEAD_EX(false),
            KERNEL_EX, KERNEL_EX_ARGUMENTS)
HOOK_LAUNCH(cuLaunchKernelEx_ptsz, pump_at(config->hStream, true), LAUNCH_EX,
            AHEAD_EX(true), KERNEL_EX, KERNEL_EX_ARGUMENTS)

#define COOPERATIVE                                                                        \
  (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,     \
   unsigned int block_x, unsigned int block_y, unsigned int block_z,                       \
   unsigned int shared_bytes, CUstream stream, void **params)
#define COOPERATIVE_ARGUMENTS                                                              \
  (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream,      \
   params)
HOOK_LAUNCH(cuLaunchCooperativeKernel, pump_at(stream, false), LAUNCH(NULL),
            AHEAD_OF(stream, false), COOPERATIVE, COOPERATIVE_ARGUMENTS)
HOOK_LAUNCH(cuLaunchCooperativeKernel_ptsz, pump_at(stream, true), LAUNCH(NULL),
            AHEAD_OF(stream, true), COOPERATIVE, COOPERATIVE_ARGUMENTS)

/* ---- obsolete launches ---------------------------------------------------- */

/* Obsolete launches get their parameters and block shapes from separate calls. Such a
 * kernel is reported as one with unknown uses. */
#define OBSOLETE(width, height)                                                            \
  {.function = function,                                                                   \
   .grid = {(uint32_t)(width), (uint32_t)(height), 1},                                     \
   .block = {1, 1, 1},                                                                     \
   .unknown = true}
HOOK_LAUNCH(cuLaunch, pump_at(NULL, false), OBSOLETE(1, 1),
            AHEAD(pump_at(NULL, false), 1, true), (CUfunction function), (function))
HOOK_LAUNCH(cuLaunchGrid, pump_at(NULL, false), OBSOLETE(width, height),
            AHEAD(pump_at(NULL, false), (uint32_t)width, true),
            (CUfunction function, int width, int height), (function, width, height))
HOOK_LAUNCH(cuLaunchGridAsync, pump_at(stream, false), OBSOLETE(width, height),
            AHEAD(pump_at(stream, false), (uint32_t)width, true),
            (CUfunction function, int width, int height, CUstream stream),
            (function, width, height, stream))

/* ---- one kernel on several devices ---------------------------------------- */

/* Reports a launch in the context of its stream, even if another context is current. */
static void report_of_context(const CUDA_LAUNCH_PARAMS *params) {
  CUcontext current = NULL, own = NULL;
  struct pump_launch made = {
      .function = params->function,
      .grid = {params->gridDimX, params->gridDimY, params->gridDimZ},
      .block = {params->blockDimX, params->blockDimY, params->blockDimZ},
      .params = params->kernelParams};
  if (!PUMP_HAS(cuStreamGetCtx) || !PUMP_HAS(cuCtxSetCurrent)) return;
  pump_enter();
  bool known = pump_real.cuCtxGetCurrent(&current) == CUDA_SUCCESS &&
               pump_real.cuStreamGetCtx(params->hStream, &own) == CUDA_SUCCESS;
  bool moved = known && own != current && pump_real.cuCtxSetCurrent(own) == CUDA_SUCCESS;
  pump_leave();
  if (known && (moved || own == current))
    pump_launch_report(&made, pump_at(params->hStream, false));
  pump_enter();
  if (moved) pump_real.cuCtxSetCurrent(current);
  pump_leave();
}

CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launches,
                                              unsigned int count, unsigned int flags) {
  CUresult result = pump_real.cuLaunchCooperativeKernelMultiDevice(launches, count, flags);
  if (result != CUDA_SUCCESS || pump_quiet()) return result;
  for (unsigned int i = 0; i < count; i++) report_of_context(&launches[i]);
  return result;
}
