/* launch.c - kernel launches: which memory a kernel touches, how long it takes.
 *
 * DESIGN
 * The parameters are copied into one buffer with the kernel's layout, exactly as many
 * bytes as its image declares. Every aligned 8-byte word that is an address in a live
 * allocation counts as a pointer argument, also inside structs passed by value. The kernel
 * touches that allocation, or the block of the program's allocator (pieces.c), from the
 * address to its end. A host library may report other touches (touch.c). A kernel computes
 * for the time that the profile gives for its bytes, or longer if the library reports so,
 * and waits for missing blocks. Pointers in device memory are not seen. */
#include <stdlib.h>
#include <string.h>

#include "code.h"

#define MOST_POINTERS 1024 /* distinct allocations in one launch */
#define MOST_PARAMETER_BYTES 32768

struct touched {
  struct {
    uint64_t base, end; /* bounds of the allocation */
    uint64_t from;
  } parts[MOST_POINTERS];
  uint32_t count;
};

static void add(struct touched *touched, uint64_t base, uint64_t end, uint64_t from) {
  for (uint32_t i = 0; i < touched->count; i++) {
    if (touched->parts[i].base != base) continue;
    if (from < touched->parts[i].from) touched->parts[i].from = from;
    return;
  }
  if (touched->count == MOST_POINTERS) return;
  touched->parts[touched->count].base = base;
  touched->parts[touched->count].end = end;
  touched->parts[touched->count++].from = from;
}

static void touch(struct touched *touched, uint64_t word) {
  const struct vd_memory *memory = NULL;
  uint64_t base, end;
  if (vd_texture_memory_locked(word, &base, &end)) add(touched, base, base + end, base);
  if (word >= vd.managed.base && word < vd.managed.end)
    memory = vd_range_find(&vd.managed, word);
  else if (word >= vd.plain.base && word < vd.plain.end)
    memory = vd_range_find(&vd.plain, word);
  else if (vd.mapped.count != 0)
    memory = vd_range_find(&vd.mapped, word);
  if (memory == NULL || word >= memory->base + memory->length_bytes) return;
  if (vd_memory_piece(memory, word, &base, &end)) add(touched, base, end, word);
}

/* Fills the operation from the parameters; `uses` has space for MOST_POINTERS. */
static void describe(const struct vd_function *function, const uint8_t *buffer,
                     struct gpu_operation *operation, struct gpu_use *uses) {
  struct touched touched;
  uint64_t bytes = 0;
  uint32_t wide = uvm_wide_uses(function->kernel->name);
  touched.count = 0;
  for (uint32_t at = 0; at + 8 <= function->kernel->parameter_bytes; at += 8) {
    uint64_t word;
    memcpy(&word, buffer + at, sizeof word);
    touch(&touched, word);
  }
  for (uint32_t i = 0; i < touched.count; i++) {
    uint64_t from = touched.parts[i].from, length = touched.parts[i].end - from;
    uint16_t access = GPU_READ | GPU_WRITE;
    if (uvm_wide_use(wide, i)) access |= GPU_WIDE;
    bytes += length;
    operation->use_count += vd_uses_of(from, length, access, &uses[operation->use_count]);
  }
  operation->duration_ns =
      uvm_profile_kernel_ns(&vd.profile, function->kernel->name, bytes);
}

/* Fills the operation from the host library's report; the caller frees the returned uses.
 * Returns NULL if out of memory. */
static struct gpu_use *describe_told(const struct vd_function *function,
                                     const struct vd_touched *touched,
                                     struct gpu_operation *operation) {
  uint64_t bytes = 0;
  struct gpu_use *uses = vd_touches_uses_locked(touched, &operation->use_count, &bytes);
  bool wide = uvm_wide_uses(function->kernel->name) == UVM_WIDE_ALL;
  for (uint32_t i = 0; uses != NULL && wide && i < operation->use_count; i++)
    uses[i].access |= GPU_WIDE;
  operation->duration_ns =
      uvm_profile_kernel_ns(&vd.profile, function->kernel->name, bytes);
  return uses;
}

/* Builds the parameter buffer as the kernel sees it. */
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

/* Warns once that kernels compute nothing; the program may print results anyway. */
static void say_that_nothing_is_computed(void) {
  static bool said;
  if (__atomic_exchange_n(&said, true, __ATOMIC_RELAXED)) return;
  vd_error("timing mode: kernels take simulated time and compute nothing, so ignore the "
           "program's results, such as a loss of 0");
}

static bool call_kernel(const void *what) {
  const struct vd_kernel_call *call = what;
  const struct image_kernel *kernel = call->function->kernel;
  void *pointers[kernel->parameter_count + 1];
  for (uint32_t i = 0; i < kernel->parameter_count; i++)
    pointers[i] = call->parameters + kernel->parameters[i].offset_bytes;
  pointers[kernel->parameter_count] = NULL;
  call->function->host(pointers, call->grid, call->block);
  return true;
}

/* Makes the kernel's action in compute mode; returns an error if it has no C function. */
static CUresult compute_action(const struct vd_kernel_call *call, struct vd_action **out) {
  const struct vd_function *function = call->function;
  if (vd.mode != VD_COMPUTE) {
    say_that_nothing_is_computed();
    return CUDA_SUCCESS;
  }
  if (function->host == NULL) {
    vd_error(
        "compute mode: PUMP_VIRTUAL_KERNELS has no function pump_host_%s for kernel %s",
        function->kernel->name, function->kernel->name);
    return CUDA_ERROR_NOT_FOUND;
  }
  struct vd_kernel_call own = *call;
  own.parameters = malloc(call->parameter_bytes ? call->parameter_bytes : 1);
  struct vd_action *action =
      own.parameters ? vd_action_new(VD_APART, call_kernel, &own, sizeof own) : NULL;
  if (action == NULL) {
    free(own.parameters);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  memcpy(own.parameters, call->parameters, call->parameter_bytes);
  action->owned = own.parameters;
  *out = action;
  return CUDA_SUCCESS;
}

/* Submits a kernel; `touched` is the host library's report. */
static CUresult submit(struct vd_stream *stream, const struct vd_kernel_call *call,
                       const struct vd_touched *touched, bool of_graph) {
  struct gpu_use all[MOST_POINTERS], *told = NULL;
  struct gpu_operation operation = {.kind = GPU_KERNEL, .uses = all};
  struct vd_action *action = NULL;
  vd_pieces_replay(of_graph);
  if (touched->parts != NULL)
    operation.uses = told = describe_told(call->function, touched, &operation);
  else
    describe(call->function, call->parameters, &operation, all);
  vd_pieces_replay(false);
  if (operation.duration_ns < touched->least_ns) operation.duration_ns = touched->least_ns;
  uint64_t issued_ns = vd_now_ns();
  CUresult result =
      operation.uses == NULL ? CUDA_ERROR_OUT_OF_MEMORY : compute_action(call, &action);
  if (result == CUDA_SUCCESS) vd_load_locked(stream, &call->function->loaded);
  if (result == CUDA_SUCCESS) result = vd_submit_locked(stream, &operation, action);
  if (result == CUDA_SUCCESS)
    vd_log_launch(stream->last_ticket, issued_ns, call->function->kernel->name, &operation);
  free(told);
  if (result == CUDA_SUCCESS && call->function->count != NULL) ++*call->function->count;
  return result;
}

CUresult vd_kernel_submit_locked(struct vd_stream *stream,
                                 const struct vd_kernel_call *call) {
  struct vd_touched touched;
  if (!vd_is(call->function, VD_FUNCTION)) return CUDA_ERROR_INVALID_HANDLE;
  vd_touches_ask(call->function, call->grid, call->block, call->parameters, &touched);
  CUresult result = submit(stream, call, &touched, true);
  free(touched.parts);
  return result;
}

/* Fills the call, except its *out->parameter_bytes bytes of parameters. */
static CUresult call_of(CUfunction handle, const unsigned grid[3], const unsigned block[3],
                        unsigned shared_bytes, struct vd_kernel_call *out) {
  struct vd_function *function = (void *)handle;
  if (!vd_is(function, VD_FUNCTION)) return CUDA_ERROR_INVALID_HANDLE;
  CUresult result = check_shape(function, grid, block, shared_bytes);
  if (result != CUDA_SUCCESS) return result;
  if (function->kernel->parameter_bytes > MOST_PARAMETER_BYTES)
    return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  *out = (struct vd_kernel_call){.function = function,
                                 .shared_bytes = shared_bytes,
                                 .parameter_bytes = function->kernel->parameter_bytes};
  memcpy(out->grid, grid, sizeof out->grid);
  memcpy(out->block, block, sizeof out->block);
  return CUDA_SUCCESS;
}

CUresult vd_kernel_call_new(CUfunction function, const unsigned grid[3],
                            const unsigned block[3], unsigned shared_bytes,
                            void **parameters, void **extra, struct vd_kernel_call *out) {
  CUresult result = call_of(function, grid, block, shared_bytes, out);
  if (result != CUDA_SUCCESS) return result;
  out->parameters = malloc(out->parameter_bytes ? out->parameter_bytes : 1);
  if (out->parameters == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  result = gather(out->function->kernel, parameters, extra, out->parameters);
  if (result != CUDA_SUCCESS) free(out->parameters);
  return result;
}

static CUresult launch(CUfunction handle, const CUlaunchConfig *config, void **parameters,
                       void **extra) {
  const unsigned grid[3] = {config->gridDimX, config->gridDimY, config->gridDimZ};
  const unsigned block[3] = {config->blockDimX, config->blockDimY, config->blockDimZ};
  struct vd_kernel_call call;
  CUresult result = call_of(handle, grid, block, config->sharedMemBytes, &call);
  if (result != CUDA_SUCCESS) return result;
  const struct vd_function *function = call.function;
  uint64_t words[call.parameter_bytes / 8 + 1];
  call.parameters = (uint8_t *)words;
  result = gather(function->kernel, parameters, extra, call.parameters);
  if (result != CUDA_SUCCESS) return result;
  struct vd_touched touched;
  vd_touches_ask(function, grid, block, call.parameters, &touched);
  vd_lock();
  struct vd_stream *stream = vd_stream_of_locked(config->hStream);
  bool captured = false;
  result = stream == NULL ? CUDA_ERROR_INVALID_HANDLE
                          : vd_upcalls.capture_kernel(stream, &call, config, &captured);
  if (result == CUDA_SUCCESS && !captured) result = submit(stream, &call, &touched, false);
  vd_unlock();
  free(touched.parts);
  return result;
}

CUresult vd_cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                           unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                           unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                           void **parameters, void **extra) {
  const CUlaunchConfig config = {grid_x,  grid_y,       grid_z, block_x, block_y,
                                 block_z, shared_bytes, stream, NULL,    0};
  return launch(function, &config, parameters, extra);
}

CUresult vd_cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x,
                                      unsigned int grid_y, unsigned int grid_z,
                                      unsigned int block_x, unsigned int block_y,
                                      unsigned int block_z, unsigned int shared_bytes,
                                      CUstream stream, void **parameters) {
  CUlaunchAttribute cooperative = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
                                   .value.cooperative = 1};
  const CUlaunchConfig config = {grid_x,  grid_y,       grid_z, block_x,      block_y,
                                 block_z, shared_bytes, stream, &cooperative, 1};
  return launch(function, &config, parameters, NULL);
}

/* Each launch needs its own device and no default stream, so only one is possible. */
CUresult vd_cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launches,
                                                 unsigned int count, unsigned int flags) {
  if (launches == NULL || count != 1 || flags > 3 || launches->hStream == NULL)
    return CUDA_ERROR_INVALID_VALUE;
  return vd_cuLaunchCooperativeKernel(
      launches->function, launches->gridDimX, launches->gridDimY, launches->gridDimZ,
      launches->blockDimX, launches->blockDimY, launches->blockDimZ,
      launches->sharedMemBytes, launches->hStream, launches->kernelParams);
}

/* Launch attributes affect a kernel's scheduling, not the memory that it touches. */
CUresult vd_cuLaunchKernelEx(CUstream stream, const CUlaunchConfig *given,
                             CUfunction function, void **parameters, void **extra) {
  if (given == NULL) return CUDA_ERROR_INVALID_VALUE;
  CUlaunchConfig config = *given;
  if (config.hStream == NULL) config.hStream = stream;
  return launch(function, &config, parameters, extra);
}
