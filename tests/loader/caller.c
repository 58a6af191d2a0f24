/* caller.c - a library that allocates, gets handles, and calls given functions, for rules
 * by library.
 */
#include "pump_cuda.h"

#define EXPORT __attribute__((visibility("default")))

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes);
CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address);
CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute,
                               CUdeviceptr address);
CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes,
                                void **data, CUdeviceptr address);

EXPORT CUresult allocate(CUdeviceptr *address, size_t bytes);
EXPORT CUresult ask_for_handle(CUdeviceptr address);
EXPORT CUresult ask_kind(CUdeviceptr address, unsigned int *kinds);
EXPORT CUresult call_back(CUresult (*function)(size_t), size_t bytes);

/* Keeps results, so that no call is a tail call and each leaves a frame. */
EXPORT CUresult allocate(CUdeviceptr *address, size_t bytes) {
  volatile CUresult result = cuMemAlloc_v2(address, bytes);
  return result;
}

EXPORT CUresult ask_for_handle(CUdeviceptr address) {
  CUipcMemHandle handle;
  volatile CUresult result = cuIpcGetMemHandle(&handle, address);
  return result;
}

/* Queries IS_MANAGED twice: with the singular call and with the plural one. */
EXPORT CUresult ask_kind(CUdeviceptr address, unsigned int *kinds) {
  CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_IS_MANAGED;
  void *second = &kinds[1];
  volatile CUresult result = cuPointerGetAttribute(&kinds[0], attribute, address);
  if (result == CUDA_SUCCESS)
    result = cuPointerGetAttributes(1, &attribute, &second, address);
  return result;
}

EXPORT CUresult call_back(CUresult (*function)(size_t), size_t bytes) {
  volatile CUresult result = function(bytes);
  return result;
}
