/* fake_work.c - functions of the fake driver with a little state in FAKE_MODE=work: one
 * device of 16 GiB, host memory as device memory.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "fake.h"

#define BLOCK ((size_t)2 << 20)
#define CODE(name)                                                                         \
  CUresult result = fake_answer(#name, code_##name);                                       \
  if (result != CUDA_SUCCESS) return result;

static int initialised;
static __thread CUcontext current;
static struct {
  CUdeviceptr base;
  size_t bytes;
  bool managed;
} live[64];

static CUresult allocate(CUdeviceptr *address, size_t bytes, bool managed) {
  for (int i = 0; i < 64; i++) {
    if (live[i].base != 0) continue;
    char *memory = mmap(NULL, bytes + 2 * BLOCK, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    live[i].base = ((CUdeviceptr)memory + BLOCK) / BLOCK * BLOCK;
    live[i].bytes = bytes;
    live[i].managed = managed;
    *address = live[i].base;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Returns the index of the allocation that contains `address`, or -1. */
static int find(CUdeviceptr address) {
  for (int i = 0; i < 64; i++)
    if (live[i].base != 0 && address - live[i].base < live[i].bytes) return i;
  return -1;
}

EXPORT CUresult cuInit(unsigned int flags) {
  (void)flags;
  if (getenv("FAKE_INIT") == NULL) {
    CODE(cuInit)
  }
  initialised = 1;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetCount(int *count) {
  if (count == NULL) return fake_answer("cuDeviceGetCount", code_cuDeviceGetCount);
  if (!initialised) return CUDA_ERROR_NOT_INITIALIZED;
  *count = 1;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute,
                                     CUdevice device) {
  (void)device;
  if (value == NULL) return fake_answer("cuDeviceGetAttribute", code_cuDeviceGetAttribute);
  const char *concurrent = getenv("FAKE_CONCURRENT");
  *value = attribute == 89 && concurrent != NULL ? atoi(concurrent) : 1;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device) {
  (void)flags, (void)device;
  CODE(cuCtxCreate_v2)
  *context = current = (CUcontext)0x1000;
  return result;
}

EXPORT CUresult cuCtxDestroy_v2(CUcontext context) {
  (void)context;
  CODE(cuCtxDestroy_v2)
  memset(live, 0, sizeof live);
  current = NULL;
  return result;
}

/* FAKE_USES: calls that it takes to destroy a context, as after cuCtxAttach. */
EXPORT CUresult cuCtxDetach(CUcontext context) {
  static int calls;
  const char *uses = getenv("FAKE_USES");
  CODE(cuCtxDetach)
  if (++calls < (uses == NULL ? 1 : atoi(uses))) return result;
  calls = 0;
  return cuCtxDestroy_v2(context);
}

static int primary_active;

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  (void)device;
  CODE(cuDevicePrimaryCtxRetain)
  *context = (CUcontext)0x2000;
  primary_active = 1;
  return result;
}

EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags,
                                           int *active) {
  (void)device;
  CODE(cuDevicePrimaryCtxGetState)
  *flags = 0;
  *active = primary_active || getenv("FAKE_PRIMARY") != NULL;
  return result;
}

EXPORT CUresult cuCtxGetCurrent(CUcontext *context) {
  if (context == NULL) return fake_answer("cuCtxGetCurrent", code_cuCtxGetCurrent);
  *context = current;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSetCurrent(CUcontext context) {
  CODE(cuCtxSetCurrent)
  if (context == NULL) fake_log("left\n");
  current = context;
  return result;
}

EXPORT CUresult cuCtxGetDevice(CUdevice *device) {
  if (device == NULL) return fake_answer("cuCtxGetDevice", code_cuCtxGetDevice);
  *device = 0;
  return current == NULL ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
  CODE(cuMemGetInfo_v2)
  if (free_bytes != NULL) *free_bytes = (size_t)15 << 30;
  if (total_bytes != NULL) *total_bytes = (size_t)16 << 30;
  return result;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
  CODE(cuMemAlloc_v2)
  fake_log("plain %zu\n", bytes);
  const char *most = getenv("FAKE_PLAIN_MIB");
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (most != NULL && bytes > strtoull(most, NULL, 10) << 20)
    return CUDA_ERROR_OUT_OF_MEMORY;
  return allocate(address, bytes, false);
}

EXPORT CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned int flags) {
  CODE(cuMemAllocManaged)
  fake_log("managed %zu %u\n", bytes, flags);
  return allocate(address, bytes, true);
}

EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width_bytes,
                                   size_t height, unsigned int element_bytes) {
  (void)element_bytes;
  CODE(cuMemAllocPitch_v2)
  *pitch = (width_bytes + 511) / 512 * 512;
  fake_log("pitch %zu %zu\n", *pitch, height);
  return allocate(address, *pitch * height, false);
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr address) {
  CODE(cuMemFree_v2)
  fake_log("free %d\n", address == 0 ? 0 : 1);
  if (address == 0) return CUDA_SUCCESS;
  int i = find(address);
  if (i < 0 || live[i].base != address) return CUDA_ERROR_INVALID_VALUE;
  live[i].base = 0;
  return CUDA_SUCCESS;
}

/* Stream-ordered memory is plain memory here, never managed. */
EXPORT CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream) {
  (void)stream;
  CODE(cuMemAllocAsync)
  fake_log("async %zu\n", bytes);
  return allocate(address, bytes, false);
}

EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes,
                                        CUmemoryPool pool, CUstream stream) {
  (void)pool, (void)stream;
  CODE(cuMemAllocFromPoolAsync)
  fake_log("async %zu\n", bytes);
  return allocate(address, bytes, false);
}

EXPORT CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  (void)stream;
  CODE(cuMemFreeAsync)
  fake_log("freeasync %d\n", address == 0 ? 0 : 1);
  int i = find(address);
  if (i < 0 || live[i].base != address || live[i].managed) return CUDA_ERROR_INVALID_VALUE;
  live[i].base = 0;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes,
                                        CUdeviceptr address) {
  CODE(cuMemGetAddressRange_v2)
  int i = find(address);
  if (i < 0) return CUDA_ERROR_NOT_FOUND;
  if (base != NULL) *base = live[i].base;
  if (bytes != NULL) *bytes = live[i].bytes;
  return result;
}

static CUresult attribute_of(int i, CUpointer_attribute attribute, void *data) {
  switch (attribute) {
  case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    *(unsigned int *)data = CU_MEMORYTYPE_DEVICE;
    return CUDA_SUCCESS;
  case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    *(unsigned int *)data = live[i].managed;
    return CUDA_SUCCESS;
  case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    *(CUdeviceptr *)data = live[i].managed ? live[i].base : 0;
    return live[i].managed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    *(size_t *)data = live[i].bytes;
    return CUDA_SUCCESS;
  default:
    return CUDA_ERROR_INVALID_VALUE;
  }
}

EXPORT CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute,
                                      CUdeviceptr address) {
  CODE(cuPointerGetAttribute)
  int i = find(address);
  return i < 0 ? CUDA_ERROR_INVALID_VALUE : attribute_of(i, attribute, data);
}

EXPORT CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes,
                                       void **data, CUdeviceptr address) {
  CODE(cuPointerGetAttributes)
  int i = find(address);
  for (unsigned int n = 0; i >= 0 && n < count; n++)
    attribute_of(i, attributes[n], data[n]);
  return result;
}

/* ---- calls that refuse managed memory ----------------------------------- */

static CUresult refuse_managed(CUdeviceptr address) {
  int i = find(address);
  return i < 0 || live[i].managed ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

EXPORT CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address) {
  (void)handle;
  CODE(cuIpcGetMemHandle)
  return refuse_managed(address);
}

EXPORT CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute,
                                      CUdeviceptr address) {
  (void)value, (void)attribute;
  CODE(cuPointerSetAttribute)
  return refuse_managed(address);
}

EXPORT CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr address,
                                              size_t bytes, CUmemRangeHandleType type,
                                              unsigned long long flags) {
  (void)handle, (void)bytes, (void)type, (void)flags;
  CODE(cuMemGetHandleForAddressRange)
  return refuse_managed(address);
}

EXPORT CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address,
                                       cuuint32_t value, unsigned int flags) {
  (void)stream, (void)value, (void)flags;
  CODE(cuStreamWaitValue32_v2)
  return refuse_managed(address);
}

EXPORT CUresult cuStreamWriteValue64_ptsz(CUstream stream, CUdeviceptr address,
                                          cuuint64_t value, unsigned int flags) {
  (void)stream, (void)value, (void)flags;
  CODE(cuStreamWriteValue64_ptsz)
  return refuse_managed(address);
}

EXPORT CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count,
                                      CUstreamBatchMemOpParams *operations,
                                      unsigned int flags) {
  (void)stream, (void)flags;
  CODE(cuStreamBatchMemOp_v2)
  for (unsigned int i = 0; i < count; i++)
    if (operations[i].operation != CU_STREAM_MEM_OP_BARRIER &&
        refuse_managed(operations[i].value_op.address) != CUDA_SUCCESS)
      return CUDA_ERROR_INVALID_VALUE;
  return result;
}

/* ---- lookup: works in every mode ----------------------------------------- */

CUresult fake_look_up(const char *symbol, void **pfn, int version, cuuint64_t flags);

EXPORT CUresult cuGetProcAddress(const char *symbol, void **pfn, int version,
                                 cuuint64_t flags) {
  return fake_look_up(symbol, pfn, version, flags);
}

EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int version,
                                    cuuint64_t flags,
                                    CUdriverProcAddressQueryResult *status) {
  CUresult result = fake_look_up(symbol, pfn, version, flags);
  if (status != NULL) *status = result == CUDA_SUCCESS ? 0 : 1;
  return result;
}
