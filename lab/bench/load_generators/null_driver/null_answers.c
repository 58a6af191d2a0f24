/* null_answers.c - the functions of the null driver that return data. They present one
 * device of 1 TiB, increasing addresses without memory, handles, and the parameters of
 * kernels. A kernel's name defines its parameters: "p10" has ten pointers, "s4096" a
 * structure of 4,096 bytes, "p2s100" two pointers and a structure.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "pump_cuda.h"
#include "pump_cuda_graph.h"

#define EXPORT __attribute__((visibility("default")))

/* Declares every function with its real prototype, which the definitions must match. */
#define PUMP_HOOK(name, pfn, parameters, arguments) EXPORT CUresult name parameters;
#define PUMP_CALL(name, pfn, parameters) EXPORT CUresult name parameters;
#include "shim/driver/hooks.h"

#define BLOCK ((CUdeviceptr)2 << 20)
#define DEVICE_BYTES ((size_t)1 << 40)
#define MAX_PARAMS 512
#define MAX_KERNELS 64

struct kernel {
  char name[32];
  size_t count, offsets[MAX_PARAMS], sizes[MAX_PARAMS];
};
static struct kernel kernels[MAX_KERNELS];
static int kernels_used;
static __thread CUcontext current __attribute__((tls_model("initial-exec")));
static CUdeviceptr next_address = (CUdeviceptr)0x7000 << 32;
static uintptr_t next_handle = 0x100000;

static void *new_handle(void) {
  return (void *)__atomic_add_fetch(&next_handle, 64, __ATOMIC_RELAXED);
}

/* ---- devices and contexts -------------------------------------------------- */

CUresult cuDeviceGetCount(int *count) {
  *count = 1;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal);
CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
  (void)attribute, (void)device;
  *value = 1;
  return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
  (void)device;
  *bytes = DEVICE_BYTES;
  return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
  *free_bytes = *total_bytes = DEVICE_BYTES;
  return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device) {
  (void)flags, (void)device;
  *context = current = new_handle();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context) {
  *context = current;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  current = context;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device) {
  *device = 0;
  return current == NULL ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
  *least = 0;
  *greatest = -5;
  return CUDA_SUCCESS;
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority) {
  (void)flags;
  (void)priority;
  *stream = new_handle();
  return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *event, unsigned int flags) {
  (void)flags;
  *event = new_handle();
  return CUDA_SUCCESS;
}

/* Returns the only pool; pump serves its allocations from pump's own pool. */
CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device) {
  (void)device;
  *pool = (CUmemoryPool)0x9000;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device) {
  return cuDeviceGetDefaultMemPool(pool, device);
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext *context) {
  (void)stream;
  *context = current;
  return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status) {
  (void)stream;
  *status = CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

/* ---- memory ----------------------------------------------------------------- */

static CUresult allocate(CUdeviceptr *address, size_t bytes) {
  CUdeviceptr whole = (bytes + BLOCK - 1) / BLOCK * BLOCK;
  *address = __atomic_fetch_add(&next_address, whole, __ATOMIC_RELAXED);
  return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
  return allocate(address, bytes);
}

CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned int flags) {
  (void)flags;
  return allocate(address, bytes);
}

/* ---- kernels ---------------------------------------------------------------- */

static void add_param(struct kernel *kernel, size_t bytes) {
  size_t last = kernel->count == 0
                    ? 0
                    : kernel->offsets[kernel->count - 1] + kernel->sizes[kernel->count - 1];
  if (kernel->count == MAX_PARAMS) abort();
  kernel->offsets[kernel->count] = (last + 7) / 8 * 8;
  kernel->sizes[kernel->count++] = bytes;
}

EXPORT CUresult cuModuleGetFunction(CUfunction *function, CUmodule module,
                                    const char *name);
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  (void)module;
  if (kernels_used == MAX_KERNELS || strlen(name) >= sizeof kernels[0].name)
    return CUDA_ERROR_NOT_FOUND;
  struct kernel *kernel = &kernels[kernels_used++];
  strcpy(kernel->name, name);
  for (const char *at = name; *at != '\0';) {
    char kind = *at, *end;
    size_t number = strtoul(at + 1, &end, 10);
    if ((kind != 'p' && kind != 's') || end == at + 1) return CUDA_ERROR_NOT_FOUND;
    if (kind == 's') add_param(kernel, number);
    for (size_t i = 0; kind == 'p' && i < number; i++) add_param(kernel, sizeof(void *));
    at = end;
  }
  *function = (CUfunction)kernel;
  return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset,
                            size_t *bytes) {
  const struct kernel *kernel = (const struct kernel *)function;
  if (index >= kernel->count) return CUDA_ERROR_INVALID_VALUE;
  *offset = kernel->offsets[index];
  *bytes = kernel->sizes[index];
  return CUDA_SUCCESS;
}

CUresult cuFuncGetName(const char **name, CUfunction function) {
  *name = ((const struct kernel *)function)->name;
  return CUDA_SUCCESS;
}

/* ---- look-up ------------------------------------------------------------------ */

void *null_function(const char *name);

CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status) {
  (void)version, (void)flags;
  *pfn = null_function(symbol);
  if (status != NULL) *status = *pfn == NULL;
  return *pfn == NULL ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}
