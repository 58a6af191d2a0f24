/* cudart_memory.c - memory, pools, memsets, hints; attributes of an address. */
#include <stdint.h>
#include <string.h>

#include "cudart.h"

/* -- allocation -- */

/* Allocates; a length of 0 gives no address and only starts the driver. */
static cudaError_t allocate(void **out, size_t length_bytes, bool managed, unsigned flags) {
  CUdeviceptr address = 0;
  cudaError_t error = out == NULL ? cudaErrorInvalidValue : rt_enter();
  if (error != cudaSuccess) return error;
  if (length_bytes > 0)
    error = managed ? rt_driver.cuMemAllocManaged(&address, length_bytes, flags)
                    : rt_driver.cuMemAlloc_v2(&address, length_bytes);
  if (error == cudaSuccess) *out = rt_pointer(address);
  return error;
}

RT_API(cudaMalloc, (void **out, size_t length_bytes)) {
  return rt_keep(allocate(out, length_bytes, false, 0));
}

RT_API(cudaMallocManaged, (void **out, size_t length_bytes, unsigned int flags)) {
  return rt_keep(allocate(out, length_bytes, true, flags));
}

RT_API(cudaMallocPitch, (void **out, size_t *pitch, size_t width_bytes, size_t height)) {
  CUdeviceptr address = 0;
  cudaError_t error = out == NULL || pitch == NULL ? cudaErrorInvalidValue : rt_enter();
  if (error == cudaSuccess)
    error = rt_driver.cuMemAllocPitch_v2(&address, pitch, width_bytes, height, 4);
  if (error == cudaSuccess) *out = rt_pointer(address);
  return rt_keep(error);
}

/* Frees memory. cudaFree(0) is also the usual way to start the runtime. */
RT_API(cudaFree, (void *pointer)) {
  cudaError_t error = rt_enter();
  if (error != cudaSuccess || pointer == NULL) return rt_keep(error);
  rt_block(rt_address(pointer), 0); /* from cudaMallocAsync, or no block */
  return rt_keep(rt_driver.cuMemFree_v2(rt_address(pointer)));
}

RT_FORWARD(cudaMallocHost, (void **out, size_t length_bytes), cuMemHostAlloc,
           (out, length_bytes, 0))
RT_FORWARD(cudaHostAlloc, (void **out, size_t length_bytes, unsigned int flags),
           cuMemHostAlloc, (out, length_bytes, flags))
RT_FORWARD(cudaHostRegister, (void *pointer, size_t length_bytes, unsigned int flags),
           cuMemHostRegister_v2, (pointer, length_bytes, flags))
RT_FORWARD(cudaHostUnregister, (void *pointer), cuMemHostUnregister, (pointer))
RT_FORWARD(cudaHostGetFlags, (unsigned int *flags, void *pointer), cuMemHostGetFlags,
           (flags, pointer))
RT_FORWARD(cudaMemGetInfo, (size_t *free, size_t *total), cuMemGetInfo_v2, (free, total))

RT_API(cudaFreeHost, (void *pointer)) {
  cudaError_t error = rt_enter();
  if (error == cudaSuccess && pointer != NULL) error = rt_driver.cuMemFreeHost(pointer);
  return rt_keep(error);
}

RT_API(cudaHostGetDevicePointer, (void **out, void *pointer, unsigned int flags)) {
  CUdeviceptr address = 0;
  cudaError_t error = out == NULL ? cudaErrorInvalidValue : rt_enter();
  if (error == cudaSuccess)
    error = rt_driver.cuMemHostGetDevicePointer_v2(&address, pointer, flags);
  if (error == cudaSuccess) *out = rt_pointer(address);
  return rt_keep(error);
}

/* -- in stream order -- */

/* Allocates from that pool, or from the device's current one. */
static cudaError_t allocate_async(const struct rt_driver *driver, void **out,
                                  size_t length_bytes, const cudaMemPool_t *pool,
                                  cudaStream_t stream) {
  CUdeviceptr address = 0;
  cudaError_t error = out == NULL ? cudaErrorInvalidValue : rt_enter();
  if (error != cudaSuccess) return error;
  if (length_bytes > 0)
    error = pool == NULL
                ? driver->cuMemAllocAsync(&address, length_bytes, stream)
                : driver->cuMemAllocFromPoolAsync(&address, length_bytes, *pool, stream);
  if (error != cudaSuccess) return error;
  rt_block(address, length_bytes);
  *out = rt_pointer(address);
  return cudaSuccess;
}

static cudaError_t free_async(const struct rt_driver *driver, void *pointer,
                              cudaStream_t stream) {
  cudaError_t error = rt_enter();
  if (error != cudaSuccess || pointer == NULL) return error;
  rt_block(rt_address(pointer), 0);
  return driver->cuMemFreeAsync(rt_address(pointer), stream);
}

RT_TWINS(_ptsz, cudaMallocAsync, (void **out, size_t length_bytes, cudaStream_t stream),
         allocate_async(driver, out, length_bytes, NULL, stream))
RT_TWINS(_ptsz, cudaMallocFromPoolAsync,
         (void **out, size_t length_bytes, cudaMemPool_t pool, cudaStream_t stream),
         allocate_async(driver, out, length_bytes, &pool, stream))
RT_TWINS(_ptsz, cudaFreeAsync, (void *pointer, cudaStream_t stream),
         free_async(driver, pointer, stream))

RT_FORWARD(cudaDeviceGetDefaultMemPool, (cudaMemPool_t * out, int device),
           cuDeviceGetDefaultMemPool, (out, device))
RT_FORWARD(cudaDeviceGetMemPool, (cudaMemPool_t * out, int device), cuDeviceGetMemPool,
           (out, device))
RT_FORWARD(cudaDeviceSetMemPool, (int device, cudaMemPool_t pool), cuDeviceSetMemPool,
           (device, pool))
RT_FORWARD(cudaMemGetDefaultMemPool,
           (cudaMemPool_t * out, struct cudaMemLocation *location,
            RT_ENUM(cudaMemAllocationType) type),
           cuMemGetDefaultMemPool, (out, (CUmemLocation *)(void *)location, type))
RT_FORWARD(cudaMemGetMemPool,
           (cudaMemPool_t * out, struct cudaMemLocation *location,
            RT_ENUM(cudaMemAllocationType) type),
           cuMemGetMemPool, (out, (CUmemLocation *)(void *)location, type))
RT_FORWARD(cudaMemSetMemPool,
           (struct cudaMemLocation * location, RT_ENUM(cudaMemAllocationType) type,
            cudaMemPool_t pool),
           cuMemSetMemPool, ((CUmemLocation *)(void *)location, type, pool))
RT_FORWARD(cudaMemPoolCreate, (cudaMemPool_t * out, const struct cudaMemPoolProps *given),
           cuMemPoolCreate, (out, (const CUmemPoolProps *)(const void *)given))
RT_FORWARD(cudaMemPoolDestroy, (cudaMemPool_t pool), cuMemPoolDestroy, (pool))
RT_FORWARD(cudaMemPoolTrimTo, (cudaMemPool_t pool, size_t keep_bytes), cuMemPoolTrimTo,
           (pool, keep_bytes))
RT_FORWARD(cudaMemPoolSetAttribute,
           (cudaMemPool_t pool, RT_ENUM(cudaMemPoolAttr) attribute, void *value),
           cuMemPoolSetAttribute, (pool, attribute, value))
RT_FORWARD(cudaMemPoolGetAttribute,
           (cudaMemPool_t pool, RT_ENUM(cudaMemPoolAttr) attribute, void *value),
           cuMemPoolGetAttribute, (pool, attribute, value))
RT_FORWARD(cudaMemPoolSetAccess,
           (cudaMemPool_t pool, const struct cudaMemAccessDesc *accesses, size_t count),
           cuMemPoolSetAccess,
           (pool, (const CUmemAccessDesc *)(const void *)accesses, count))
RT_FORWARD(cudaMemPoolGetAccess,
           (RT_ENUM(cudaMemAccessFlags) * flags, cudaMemPool_t pool,
            struct cudaMemLocation *location),
           cuMemPoolGetAccess, (flags, pool, (CUmemLocation *)(void *)location))

/* -- shared with other processes -- */

RT_FORWARD(cudaIpcGetMemHandle, (cudaIpcMemHandle_t * out, void *pointer),
           cuIpcGetMemHandle, (out, rt_address(pointer)))
RT_FORWARD(cudaIpcCloseMemHandle, (void *pointer), cuIpcCloseMemHandle,
           (rt_address(pointer)))

RT_API(cudaIpcOpenMemHandle, (void **out, cudaIpcMemHandle_t handle, unsigned int flags)) {
  CUdeviceptr address = 0;
  cudaError_t error = out == NULL ? cudaErrorInvalidValue : rt_enter();
  if (error == cudaSuccess)
    error = rt_driver.cuIpcOpenMemHandle_v2(&address, handle, flags);
  if (error == cudaSuccess) *out = rt_pointer(address);
  return rt_keep(error);
}

/* -- attributes of an address -- */

RT_API(cudaPointerGetAttributes,
       (struct cudaPointerAttributes * out, const void *pointer)) {
  unsigned int type = 0, managed = 0;
  int device = CU_DEVICE_INVALID;
  CUdeviceptr on_device = 0;
  void *on_host = NULL;
  int attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                      CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                      CU_POINTER_ATTRIBUTE_HOST_POINTER};
  void *values[] = {&type, &managed, &device, &on_device, &on_host};
  cudaError_t error = out == NULL ? cudaErrorInvalidValue : rt_enter();
  if (error == cudaSuccess)
    error = rt_driver.cuPointerGetAttributes(5, attributes, values, rt_address(pointer));
  if (error != cudaSuccess) return rt_keep(error);
  memset(out, 0, sizeof *out);
  out->type = managed                        ? cudaMemoryTypeManaged
              : type == CU_MEMORYTYPE_DEVICE ? cudaMemoryTypeDevice
              : type == CU_MEMORYTYPE_HOST   ? cudaMemoryTypeHost
                                             : cudaMemoryTypeUnregistered;
  out->device = out->type == cudaMemoryTypeUnregistered ? CU_DEVICE_INVALID : device;
  out->devicePointer = rt_pointer(on_device);
  out->hostPointer = on_host;
  if (out->type == cudaMemoryTypeUnregistered)
    out->hostPointer = rt_pointer(rt_address(pointer));
  return cudaSuccess;
}

/* -- memsets, managed memory -- */

RT_FORWARD_TWINS(_ptds, cudaMemset, (void *pointer, int value, size_t length_bytes),
                 cuMemsetD8_v2, (rt_address(pointer), (unsigned char)value, length_bytes))
RT_FORWARD_TWINS(_ptsz, cudaMemsetAsync,
                 (void *pointer, int value, size_t length_bytes, cudaStream_t stream),
                 cuMemsetD8Async,
                 (rt_address(pointer), (unsigned char)value, length_bytes, stream))
RT_FORWARD_TWINS(_ptds, cudaMemset2D,
                 (void *pointer, size_t pitch, int value, size_t width_bytes,
                  size_t height),
                 cuMemsetD2D8_v2,
                 (rt_address(pointer), pitch, (unsigned char)value, width_bytes, height))
RT_FORWARD_TWINS(_ptsz, cudaMemset2DAsync,
                 (void *pointer, size_t pitch, int value, size_t width_bytes, size_t height,
                  cudaStream_t stream),
                 cuMemsetD2D8Async,
                 (rt_address(pointer), pitch, (unsigned char)value, width_bytes, height,
                  stream))
RT_FORWARD_TWINS(_ptsz, cudaMemPrefetchAsync,
                 (const void *pointer, size_t length_bytes, struct cudaMemLocation location,
                  unsigned int flags, cudaStream_t stream),
                 cuMemPrefetchAsync_v2,
                 (rt_address(pointer), length_bytes,
                  (CUmemLocation){location.type, location.id}, flags, stream))
RT_FORWARD(cudaMemAdvise,
           (const void *pointer, size_t length_bytes, RT_ENUM(cudaMemoryAdvise) advice,
            struct cudaMemLocation location),
           cuMemAdvise_v2,
           (rt_address(pointer), length_bytes, advice,
            (CUmemLocation){location.type, location.id}))
RT_FORWARD(cudaMemRangeGetAttribute,
           (void *data, size_t data_bytes, RT_ENUM(cudaMemRangeAttribute) attribute,
            const void *pointer, size_t length_bytes),
           cuMemRangeGetAttribute,
           (data, data_bytes, attribute, rt_address(pointer), length_bytes))
RT_FORWARD(cudaMemRangeGetAttributes,
           (void **data, size_t *data_bytes, RT_ENUM(cudaMemRangeAttribute) * attributes,
            size_t count, const void *pointer, size_t length_bytes),
           cuMemRangeGetAttributes,
           (data, data_bytes, attributes, count, rt_address(pointer), length_bytes))
