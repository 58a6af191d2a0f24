/* function.c - asks the driver for the name and the parameter layout of a launch's
 * function handle. It stores neither.
 *
 * The handle of cuLaunchKernel is a CUfunction or a CUkernel, and the driver has queries
 * for each type. The effect of the wrong query is not documented, so hooks of calls that
 * return handles note each CUkernel. Other handles (cuLibraryEnumerateKernels, or a full
 * table) are tried as a function first, then as a kernel.
 */
#include "record.h"
#include "shim/base/key_table.h"

struct kernel {
  uint64_t handle; /* the key */
};

/* Process-wide, under kernels_lock; a forked child starts from an empty one. */
static struct kernel kernel_buckets[1u << 16];
static struct pump_table kernels = PUMP_TABLE(kernel_buckets);
static pthread_mutex_t kernels_lock = PTHREAD_MUTEX_INITIALIZER;

void pump_function_note(const void *handle, bool is_kernel) {
  uint64_t key = (uint64_t)(uintptr_t)handle;
  if (key == 0) return;
  pthread_mutex_lock(&kernels_lock);
  struct kernel *known = pump_table_find(&kernels, key);
  if (is_kernel && known == NULL)
    pump_table_add(&kernels, key);
  else if (!is_kernel && known != NULL) /* the handle was reused after an unload */
    pump_table_take_out(&kernels, known);
  pthread_mutex_unlock(&kernels_lock);
}

bool pump_function_is_kernel(CUfunction function) {
  pthread_mutex_lock(&kernels_lock);
  bool known = pump_table_find(&kernels, (uint64_t)(uintptr_t)function) != NULL;
  pthread_mutex_unlock(&kernels_lock);
  return known;
}

static bool refused(CUresult result) {
  return result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_NOT_FOUND;
}

CUresult pump_function_parameter(CUfunction function, size_t index, size_t *offset,
                                 size_t *bytes) {
  CUresult result = CUDA_ERROR_NOT_FOUND;
  bool kernel = pump_function_is_kernel(function);
  if (!kernel && PUMP_HAS(cuFuncGetParamInfo))
    result = pump_real.cuFuncGetParamInfo(function, index, offset, bytes);
  if (refused(result) && PUMP_HAS(cuKernelGetParamInfo))
    result = pump_real.cuKernelGetParamInfo((CUkernel)function, index, offset, bytes);
  return result;
}

CUresult pump_function_name(CUfunction function, const char **name) {
  CUresult result = CUDA_ERROR_NOT_FOUND;
  if (!pump_function_is_kernel(function) && PUMP_HAS(cuFuncGetName))
    result = pump_real.cuFuncGetName(name, function);
  if (result != CUDA_SUCCESS && PUMP_HAS(cuKernelGetName))
    result = pump_real.cuKernelGetName(name, (CUkernel)function);
  return result;
}

void pump_function_reset(void) {
  pthread_mutex_init(&kernels_lock, NULL);
  pump_table_reset(&kernels);
}
