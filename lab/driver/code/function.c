/* function.c - functions and kernels: attributes, parameters, occupancy, host code.
 *
 * CUfunction and CUkernel are the same kind of object; only their owner differs. A
 * CUkernel is accepted wherever a CUfunction is expected. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "code.h"

#define MAX_HOST_LIBRARIES 16

/* Set by cuInit. */
static void *host_libraries[MAX_HOST_LIBRARIES];
static size_t host_library_count;
vd_touch_any_fn vd_touch_any;

struct vd_kernel_count *vd_kernel_counts; /* one for every name ever seen; never freed */

void vd_host_kernels_open(void) {
  const char *text = getenv("PUMP_VIRTUAL_KERNELS");
  while (text != NULL && *text) {
    char path[4096];
    size_t length = strcspn(text, ":");
    if (length > 0 && length < sizeof path && host_library_count < MAX_HOST_LIBRARIES) {
      memcpy(path, text, length);
      path[length] = 0;
      void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
      if (library == NULL)
        vd_error("PUMP_VIRTUAL_KERNELS: %s", dlerror());
      else
        host_libraries[host_library_count++] = library;
      void *any = library == NULL ? NULL : dlsym(library, "pump_touch_any");
      if (vd_touch_any == NULL) memcpy(&vd_touch_any, &any, sizeof any);
    }
    text += length + (text[length] == ':');
  }
}

static uint64_t *count_of(const char *name) {
  struct vd_kernel_count *count;
  for (count = vd_kernel_counts; count != NULL; count = count->next)
    if (strcmp(count->name, name) == 0) return &count->launches;
  count = calloc(1, sizeof *count + strlen(name) + 1);
  if (count == NULL) return NULL;
  memcpy(count->name, name, strlen(name) + 1);
  count->next = vd_kernel_counts;
  vd_kernel_counts = count;
  return &count->launches;
}

/* Returns a kernel's symbol from the first host library that has it. */
static void *host_symbol(const char *prefix, const char *kernel) {
  char symbol[1024];
  void *found = NULL;
  int length = snprintf(symbol, sizeof symbol, "%s%s", prefix, kernel);
  if (length < 0 || (size_t)length >= sizeof symbol) return NULL;
  for (size_t i = 0; i < host_library_count && found == NULL; i++)
    found = dlsym(host_libraries[i], symbol);
  return found;
}

struct vd_function *vd_function_new(const struct image_kernel *kernel,
                                    struct vd_module *module, struct vd_library *library) {
  struct vd_function *function = vd_object_new(VD_FUNCTION);
  if (function == NULL) return NULL;
  function->kernel = kernel;
  function->module = module;
  function->library = library;
  function->is_kernel = module == NULL;
  function->count = count_of(kernel->name);
  void *host = host_symbol("pump_host_", kernel->name);
  void *touches = host_symbol("pump_touch_", kernel->name);
  memcpy(&function->host, &host, sizeof host);
  void *cycles = host_symbol("pump_cycles_", kernel->name);
  memcpy(&function->touches, &touches, sizeof touches);
  memcpy(&function->cycles, &cycles, sizeof cycles);
  return function;
}

static struct vd_function *function_of(const void *handle) {
  return vd_is(handle, VD_FUNCTION) ? (struct vd_function *)(uintptr_t)handle : NULL;
}

/* -- attributes -- */

static CUresult get_attribute(int *value, int attribute, const struct vd_function *f) {
  if (value == NULL || attribute < 0 || attribute >= VD_FUNCTION_ATTRIBUTES)
    return CUDA_ERROR_INVALID_VALUE;
  if (f == NULL) return CUDA_ERROR_INVALID_HANDLE;
  if (f->set_attributes >> attribute & 1) {
    *value = f->attributes[attribute];
    return CUDA_SUCCESS;
  }
  const struct image_kernel *kernel = f->kernel;
  switch (attribute) {
  case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    *value = kernel->max_threads ? (int)kernel->max_threads : 1024;
    break;
  case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
    *value = (int)kernel->shared_bytes;
    break;
  case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
    *value = (int)kernel->local_bytes;
    break;
  case CU_FUNC_ATTRIBUTE_NUM_REGS:
    *value = (int)kernel->registers;
    break;
  case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    *value = kernel->ptx_version;
    break;
  case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
    *value = kernel->binary_version;
    break;
  case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
    *value = (int)vd.profile.shared_bytes_per_block - (int)kernel->shared_bytes;
    break;
  case 9:
    *value = -1;
    break; /* preferred shared memory carve-out: chosen by the driver */
  default:
    *value = 0;
  }
  return CUDA_SUCCESS;
}

static CUresult set_attribute(struct vd_function *f, int attribute, int value) {
  if (f == NULL) return CUDA_ERROR_INVALID_HANDLE;
  if (attribute < CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ||
      attribute >= VD_FUNCTION_ATTRIBUTES)
    return CUDA_ERROR_INVALID_VALUE;
  if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES &&
      (value < 0 ||
       (uint64_t)value + f->kernel->shared_bytes > vd.profile.shared_bytes_per_block_optin))
    return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  f->attributes[attribute] = value;
  f->set_attributes |= 1ull << attribute;
  vd_unlock();
  return CUDA_SUCCESS;
}

CUresult vd_cuFuncGetAttribute(int *value, int attribute, CUfunction f) {
  return get_attribute(value, attribute, function_of(f));
}
CUresult vd_cuFuncSetAttribute(CUfunction f, int attribute, int value) {
  return set_attribute(function_of(f), attribute, value);
}
CUresult vd_cuKernelGetAttribute(int *value, int attribute, CUkernel k, CUdevice device) {
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  return get_attribute(value, attribute, function_of(k));
}
CUresult vd_cuKernelSetAttribute(int attribute, int value, CUkernel k, CUdevice device) {
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  return set_attribute(function_of(k), attribute, value);
}

static CUresult accept(const void *handle, int config) {
  if (function_of(handle) == NULL) return CUDA_ERROR_INVALID_HANDLE;
  return config >= 0 && config <= 3 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult vd_cuFuncSetCacheConfig(CUfunction f, int config) {
  return accept(f, config);
}
CUresult vd_cuFuncSetSharedMemConfig(CUfunction f, int config) {
  return accept(f, config);
}
/* Only checks the shape: launches of the old kind are not supported. */
CUresult vd_cuFuncSetBlockShape(CUfunction f, int x, int y, int z) {
  if (function_of(f) == NULL) return CUDA_ERROR_INVALID_HANDLE;
  bool fits = x > 0 && y > 0 && z > 0 && x <= 1024 && y <= 1024 && z <= 64 &&
              (int64_t)x * y * z <= 1024;
  return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult vd_cuFuncSetSharedSize(CUfunction f, unsigned int bytes) {
  if (function_of(f) == NULL) return CUDA_ERROR_INVALID_HANDLE;
  return bytes <= vd.profile.shared_bytes_per_block_optin ? CUDA_SUCCESS
                                                          : CUDA_ERROR_INVALID_VALUE;
}
CUresult vd_cuKernelSetCacheConfig(CUkernel k, int config, CUdevice device) {
  return device != 0 ? CUDA_ERROR_INVALID_DEVICE : accept(k, config);
}

/* -- parameters and names -- */

static CUresult parameter(const struct vd_function *f, size_t index, size_t *offset_bytes,
                          size_t *length_bytes) {
  if (f == NULL) return CUDA_ERROR_INVALID_HANDLE;
  if (offset_bytes == NULL || index >= f->kernel->parameter_count)
    return CUDA_ERROR_INVALID_VALUE;
  *offset_bytes = f->kernel->parameters[index].offset_bytes;
  if (length_bytes != NULL) *length_bytes = f->kernel->parameters[index].length_bytes;
  return CUDA_SUCCESS;
}

CUresult vd_cuFuncGetParamInfo(CUfunction f, size_t index, size_t *offset, size_t *length) {
  return parameter(function_of(f), index, offset, length);
}
CUresult vd_cuKernelGetParamInfo(CUkernel k, size_t index, size_t *offset, size_t *length) {
  return parameter(function_of(k), index, offset, length);
}

static CUresult parameter_count(const struct vd_function *f, size_t *count) {
  if (f == NULL) return CUDA_ERROR_INVALID_HANDLE;
  if (count == NULL) return CUDA_ERROR_INVALID_VALUE;
  *count = f->kernel->parameter_count;
  return CUDA_SUCCESS;
}

CUresult vd_cuFuncGetParamCount(CUfunction f, size_t *count) {
  return parameter_count(function_of(f), count);
}
CUresult vd_cuKernelGetParamCount(CUkernel k, size_t *count) {
  return parameter_count(function_of(k), count);
}

static CUresult name_of(const char **name, const void *handle) {
  const struct vd_function *f = function_of(handle);
  if (name == NULL || handle == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (f == NULL) return CUDA_ERROR_INVALID_HANDLE;
  *name = f->kernel->name;
  return CUDA_SUCCESS;
}

CUresult vd_cuFuncGetName(const char **name, CUfunction f) {
  return name_of(name, f);
}
CUresult vd_cuKernelGetName(const char **name, CUkernel k) {
  return name_of(name, k);
}

CUresult vd_cuFuncGetModule(CUmodule *out, CUfunction handle) {
  const struct vd_function *f = function_of(handle);
  if (out == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (f == NULL) return CUDA_ERROR_INVALID_HANDLE;
  if (f->is_kernel) {
    if (vd_current() == NULL) return CUDA_ERROR_INVALID_CONTEXT;
    return vd_cuLibraryGetModule(out, (CUlibrary)(void *)f->library);
  }
  *out = (CUmodule)(void *)f->module;
  return CUDA_SUCCESS;
}

CUresult vd_cuFuncIsLoaded(int *state, CUfunction f) {
  if (state == NULL) return CUDA_ERROR_INVALID_VALUE;
  const struct vd_function *function = function_of(f);
  if (function == NULL) return CUDA_ERROR_INVALID_HANDLE;
  *state = function->loaded || (vd.locks & VD_LOCK_LAZY) == 0;
  return CUDA_SUCCESS;
}

CUresult vd_cuFuncLoad(CUfunction f) {
  struct vd_function *function = function_of(f);
  if (function == NULL) return CUDA_ERROR_INVALID_HANDLE;
  vd_lock();
  vd_load_locked(&vd_streams.legacy, &function->loaded);
  vd_unlock();
  return CUDA_SUCCESS;
}

/* -- occupancy: by threads, registers, shared memory; without allocation granularity -- */

static int active_blocks(const struct vd_function *f, int block_size,
                         size_t dynamic_bytes) {
  const struct uvm_profile *p = &vd.profile;
  if (block_size <= 0 || block_size > 1024) return 0;
  int blocks = (int)p->threads_per_multiprocessor / block_size;
  if (blocks > 32) blocks = 32;
  uint64_t registers = (uint64_t)(f->kernel->registers ? f->kernel->registers : 32) *
                       (uint64_t)((block_size + 31) / 32 * 32);
  if ((uint64_t)blocks * registers > p->registers_per_block)
    blocks = (int)(p->registers_per_block / registers);
  uint64_t shared = dynamic_bytes + f->kernel->shared_bytes + 1024;
  if (shared - 1024 > p->shared_bytes_per_block_optin) return 0;
  if ((uint64_t)blocks * shared > p->shared_bytes_per_multiprocessor)
    blocks = (int)(p->shared_bytes_per_multiprocessor / shared);
  return blocks;
}

CUresult vd_cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction handle,
                                                        int block_size,
                                                        size_t dynamic_bytes) {
  const struct vd_function *f = function_of(handle);
  if (blocks == NULL || block_size <= 0) return CUDA_ERROR_INVALID_VALUE;
  if (f == NULL) return CUDA_ERROR_INVALID_HANDLE;
  *blocks = active_blocks(f, block_size, dynamic_bytes);
  return CUDA_SUCCESS;
}

CUresult vd_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction f,
                                                                 int block_size,
                                                                 size_t dynamic_bytes,
                                                                 unsigned int flags) {
  if (flags > 1) return CUDA_ERROR_INVALID_VALUE;
  return vd_cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, f, block_size,
                                                        dynamic_bytes);
}

CUresult vd_cuOccupancyMaxPotentialBlockSize(int *grid, int *block, CUfunction handle,
                                             CUoccupancyB2DSize shared_of,
                                             size_t dynamic_bytes, int limit) {
  const struct vd_function *f = function_of(handle);
  if (grid == NULL || block == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (f == NULL) return CUDA_ERROR_INVALID_HANDLE;
  int most = f->kernel->max_threads ? (int)f->kernel->max_threads : 1024, best = 0;
  if (limit > 0 && limit < most) most = limit;
  *grid = *block = 0;
  for (int size = most; size > 0; size -= size > 32 ? 32 : size) {
    int blocks = active_blocks(f, size, shared_of ? shared_of(size) : dynamic_bytes);
    if (blocks * size <= best) continue;
    best = blocks * size;
    *block = size;
    *grid = blocks * (int)vd.profile.multiprocessors;
  }
  return best > 0 ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
}

CUresult vd_cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block, CUfunction f,
                                                      CUoccupancyB2DSize shared_of,
                                                      size_t dynamic_bytes, int limit,
                                                      unsigned int flags) {
  if (flags > 1) return CUDA_ERROR_INVALID_VALUE;
  return vd_cuOccupancyMaxPotentialBlockSize(grid, block, f, shared_of, dynamic_bytes,
                                             limit);
}

CUresult vd_cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, CUfunction handle,
                                                    int blocks, int block_size) {
  const struct vd_function *f = function_of(handle);
  if (bytes == NULL || blocks <= 0 || block_size <= 0) return CUDA_ERROR_INVALID_VALUE;
  if (f == NULL) return CUDA_ERROR_INVALID_HANDLE;
  uint64_t share = vd.profile.shared_bytes_per_multiprocessor / (unsigned)blocks;
  uint64_t used = f->kernel->shared_bytes + 1024;
  *bytes = share > used ? share - used : 0;
  if (*bytes > vd.profile.shared_bytes_per_block)
    *bytes = vd.profile.shared_bytes_per_block;
  return CUDA_SUCCESS;
}
