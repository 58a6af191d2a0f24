/* launch.c - kernel launches: which memory a kernel touches, how long it takes.
 *
 * DESIGN
 * The parameters are copied into one buffer laid out as the kernel's, exactly as
 * many bytes as its image declares. Every aligned 8-byte word that lies in a live
 * allocation counts as a pointer argument, also inside structs passed by value; the
 * kernel touches that allocation from there to its end, unless its host library tells
 * what it touches (touch.c). A kernel computes for the time that the profile gives for
 * so many bytes, and waits for what is not resident. Pointers in device memory are not
 * seen.
 */
#include <stdlib.h>
#include <string.h>

#include "driver.h"

#define MOST_POINTERS 1024 /* distinct allocations in one launch */
#define MOST_PARAMETER_BYTES 32768

struct touched {
  struct {
    const struct vd_memory *memory;
    uint64_t from;
  } parts[MOST_POINTERS];
  uint32_t count;
};

static void touch(struct touched *touched, uint64_t word) {
  const struct vd_memory *memory = NULL;
  if (word >= vd.managed.base && word < vd.managed.end)
    memory = vd_range_find(&vd.managed, word);
  else if (word >= vd.plain.base && word < vd.plain.end)
    memory = vd_range_find(&vd.plain, word);
  if (memory == NULL || word >= memory->base + memory->length_bytes) return;
  for (uint32_t i = 0; i < touched->count; i++) {
    if (touched->parts[i].memory != memory) continue;
    if (word < touched->parts[i].from) touched->parts[i].from = word;
    return;
  }
  if (touched->count == MOST_POINTERS) return;
  touched->parts[touched->count].memory = memory;
  touched->parts[touched->count++].from = word;
}

/* Fills the operation from the parameters; `uses` has room for MOST_POINTERS. */
static void describe(const struct vd_function *function, const uint8_t *buffer,
                     struct gpu_operation *operation, struct gpu_use *uses) {
  struct touched touched;
  uint64_t bytes = 0;
  touched.count = 0;
  for (uint32_t at = 0; at + 8 <= function->kernel->parameter_bytes; at += 8) {
    uint64_t word;
    memcpy(&word, buffer + at, sizeof word);
    touch(&touched, word);
  }
  for (uint32_t i = 0; i < touched.count; i++) {
    const struct vd_memory *memory = touched.parts[i].memory;
    uint64_t from = touched.parts[i].from;
    uint64_t length = memory->base + memory->length_bytes - from;
    bytes += length;
    operation->use_count +=
        vd_uses_of(from, length, GPU_READ | GPU_WRITE, &uses[operation->use_count]);
  }
  operation->duration_ns =
      uvm_profile_kernel_ns(&vd.profile, function->kernel->name, bytes);
}

/* The same from what the host library told; the uses are the caller's to free. NULL:
 * no memory. */
static struct gpu_use *describe_told(const struct vd_function *function,
                                     const struct vd_touched *touched,
                                     struct gpu_operation *operation) {
  uint64_t bytes = 0;
  struct gpu_use *uses = vd_touches_uses_locked(touched, &operation->use_count, &bytes);
  operation->duration_ns =
      uvm_profile_kernel_ns(&vd.profile, function->kernel->name, bytes);
  return uses;
}

/* The buffer of parameters as the kernel sees it. */
static CUresult gather(const struct image_kernel *kernel, void **parameters, void **extra,
                       uint8_t *buffer) {
  memset(buffer, 0, kernel->parameter_bytes);
  if (parameters != NULL && extra != NULL) return CUDA_ERROR_INVALID_VALUE;
  if (extra != NULL) {
    const void *source = NULL;
    size_t length = 0;
    for (int i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
      if (i > 8) return CUDA_ERROR_INVALID_VALUE;
      if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER) source = extra[i + 1];
      if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE && extra[i + 1] != NULL)
        memcpy(&length, extra[i + 1], sizeof length);
    }
    if (length > kernel->parameter_bytes) length = kernel->parameter_bytes;
    if (source == NULL && kernel->parameter_count > 0) return CUDA_ERROR_INVALID_VALUE;
    if (source != NULL) memcpy(buffer, source, length);
    return CUDA_SUCCESS;
  }
  if (parameters == NULL && kernel->parameter_count > 0) return CUDA_ERROR_INVALID_VALUE;
  for (uint32_t i = 0; i < kernel->parameter_count; i++) {
    const struct image_parameter *p = &kernel->parameters[i];
    if (parameters[i] == NULL) return CUDA_ERROR_INVALID_VALUE;
    memcpy(buffer + p->offset_bytes, parameters[i], p->length_bytes);
  }
  return CUDA_SUCCESS;
}

static CUresult check_shape(const struct vd_function *function, const unsigned grid[3],
                            const unsigned block[3], unsigned shared_bytes) {
  for (int i = 0; i < 3; i++)
    if (grid[i] == 0 || block[i] == 0) return CUDA_ERROR_INVALID_VALUE;
  if (block[0] > 1024 || block[1] > 1024 || block[2] > 64 || grid[1] > 65535 ||
      grid[2] > 65535 || grid[0] > 2147483647u)
    return CUDA_ERROR_INVALID_VALUE;
  uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
  uint32_t most = function->kernel->max_threads ? function->kernel->max_threads : 1024;
  if (threads > 1024 || threads > most) return CUDA_ERROR_INVALID_VALUE;
  uint64_t shared = (uint64_t)shared_bytes + function->kernel->shared_bytes;
  if (shared > vd.profile.shared_bytes_per_block_optin) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

static struct vd_action *compute_action(struct vd_function *function,
                                        const unsigned grid[3], const unsigned block[3],
                                        const uint8_t *buffer) {
  struct vd_action *action = vd_action_new(VD_ACTION_KERNEL);
  size_t length = function->kernel->parameter_bytes;
  if (action == NULL) return NULL;
  action->kernel.function = function;
  memcpy(action->kernel.grid, grid, sizeof action->kernel.grid);
  memcpy(action->kernel.block, block, sizeof action->kernel.block);
  action->kernel.parameters = malloc(length ? length : 1);
  if (action->kernel.parameters == NULL) {
    vd_action_free(action);
    return NULL;
  }
  memcpy(action->kernel.parameters, buffer, length);
  return action;
}

static CUresult launch_locked(struct vd_function *function, struct vd_stream *stream,
                              const unsigned grid[3], const unsigned block[3],
                              const uint8_t *buffer, struct gpu_operation *operation) {
  struct vd_action *action = NULL;
  if (vd.mode == VD_COMPUTE) {
    if (function->host == NULL) {
      vd_error("compute mode: no host function pump_host_%s in PUMP_VIRTUAL_KERNELS for "
               "kernel %s",
               function->kernel->name, function->kernel->name);
      return CUDA_ERROR_NOT_FOUND;
    }
    action = compute_action(function, grid, block, buffer);
    if (action == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  CUresult result = vd_work_locked(stream, operation, action, CU_GRAPH_NODE_TYPE_KERNEL);
  if (result == CUDA_SUCCESS && function->count != NULL) ++*function->count;
  return result;
}

static CUresult launch(CUfunction handle, const unsigned grid[3], const unsigned block[3],
                       unsigned shared_bytes, CUstream stream_handle, void **parameters,
                       void **extra) {
  struct vd_function *function = (void *)handle;
  if (!vd_is(function, VD_FUNCTION)) return CUDA_ERROR_INVALID_HANDLE;
  CUresult result = check_shape(function, grid, block, shared_bytes);
  if (result != CUDA_SUCCESS) return result;
  if (function->kernel->parameter_bytes > MOST_PARAMETER_BYTES)
    return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  uint64_t words[function->kernel->parameter_bytes / 8 + 1];
  uint8_t *buffer = (uint8_t *)words;
  result = gather(function->kernel, parameters, extra, buffer);
  if (result != CUDA_SUCCESS) return result;
  struct vd_touched touched;
  struct gpu_use all[MOST_POINTERS], *told = NULL;
  struct gpu_operation operation = {.kind = GPU_KERNEL, .uses = all};
  vd_touches_ask(function, grid, block, buffer, &touched);
  vd_lock();
  struct vd_stream *stream = vd_stream_of_locked(stream_handle);
  if (touched.parts != NULL)
    operation.uses = told = describe_told(function, &touched, &operation);
  else
    describe(function, buffer, &operation, all);
  if (operation.uses == NULL)
    result = CUDA_ERROR_OUT_OF_MEMORY;
  else
    result = stream == NULL
                 ? CUDA_ERROR_INVALID_HANDLE
                 : launch_locked(function, stream, grid, block, buffer, &operation);
  vd_unlock();
  free(told);
  free(touched.parts);
  return result;
}

CUresult vd_cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                           unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                           unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                           void **parameters, void **extra) {
  const unsigned grid[3] = {grid_x, grid_y, grid_z}, block[3] = {block_x, block_y, block_z};
  return launch(function, grid, block, shared_bytes, stream, parameters, extra);
}

CUresult vd_cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x,
                                      unsigned int grid_y, unsigned int grid_z,
                                      unsigned int block_x, unsigned int block_y,
                                      unsigned int block_z, unsigned int shared_bytes,
                                      CUstream stream, void **parameters) {
  return vd_cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
                           shared_bytes, stream, parameters, NULL);
}

/* Launch attributes change how a kernel is scheduled, not what it touches. */
CUresult vd_cuLaunchKernelEx(CUstream stream, const CUlaunchConfig *config,
                             CUfunction function, void **parameters, void **extra) {
  if (config == NULL) return CUDA_ERROR_INVALID_VALUE;
  return vd_cuLaunchKernel(
      function, config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX,
      config->blockDimY, config->blockDimZ, config->sharedMemBytes,
      config->hStream != NULL ? config->hStream : stream, parameters, extra);
}
