/* nccl_like.c - creates memory like NCCL with NCCL_CUMEM_ENABLE=1: exportable, and mapped
 * at its own addresses. Built as libnccl.so.2; pump leaves this library's memory to the
 * driver.
 */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "shim/include/pump_cuda.h"

#define CALL(name, ...) ((CUresult (*)())dlsym(RTLD_DEFAULT, #name))(__VA_ARGS__)

int make_buffer(size_t bytes) {
  CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                    .requestedHandleTypes = 1,
                                    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUmemGenericAllocationHandle handle;
  CUdeviceptr address;
  CUresult result = CALL(cuMemCreate, &handle, bytes, &properties, 0ull);
  if (result == CUDA_SUCCESS)
    result = CALL(cuMemAddressReserve, &address, bytes, (size_t)0, (CUdeviceptr)0, 0ull);
  if (result == CUDA_SUCCESS)
    result = CALL(cuMemMap, address, bytes, (size_t)0, handle, 0ull);
  if (result == CUDA_SUCCESS)
    result = CALL(cuMemSetAccess, address, bytes, &access, (size_t)1);
  return (int)result;
}
