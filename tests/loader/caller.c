/* caller.c - a library that allocates, asks for handles, and calls what it is given: for
 * rules that go by library.
 */
#include "pump_cuda.h"

#define EXPORT __attribute__((visibility("default")))

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes);
CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address);

EXPORT CUresult allocate(CUdeviceptr *address, size_t bytes);
EXPORT CUresult ask_for_handle(CUdeviceptr address);
EXPORT CUresult call_back(CUresult (*function)(size_t), size_t bytes);

/* Results are kept, so that no call is a tail call and each leaves a frame. */
EXPORT CUresult allocate(CUdeviceptr *address, size_t bytes) {
  volatile CUresult result = cuMemAlloc_v2(address, bytes);
  return result;
}

EXPORT CUresult ask_for_handle(CUdeviceptr address) {
  CUipcMemHandle handle;
  volatile CUresult result = cuIpcGetMemHandle(&handle, address);
  return result;
}

EXPORT CUresult call_back(CUresult (*function)(size_t), size_t bytes) {
  volatile CUresult result = function(bytes);
  return result;
}
