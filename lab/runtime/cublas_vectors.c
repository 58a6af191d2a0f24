/* cublas_vectors.c - copies vectors and matrices from the host to the GPU and back. */
#include "cublas.h"

/* `rows` runs of `width` elements; strides in elements. */
struct shape {
  int64_t width, rows, element_bytes, host_stride, device_stride;
};

static struct shape vector(int64_t count, int64_t element_bytes, int64_t host_stride,
                           int64_t device_stride) {
  if (host_stride == 1 && device_stride == 1)
    return (struct shape){count, count > 0, element_bytes, count, count};
  return (struct shape){1, count, element_bytes, host_stride, device_stride};
}

static cublasStatus_t copy(const struct shape *shape, const void *host, const void *device,
                           bool to_device, bool waits, cudaStream_t stream) {
  if (shape->width < 0 || shape->rows < 0 || shape->element_bytes <= 0 ||
      shape->host_stride < shape->width || shape->device_stride < shape->width ||
      (shape->width > 0 && shape->rows > 0 &&
       (shape->host_stride == 0 || shape->device_stride == 0)))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (shape->width == 0 || shape->rows == 0) return CUBLAS_STATUS_SUCCESS;
  cudaError_t error = rt_enter();
  if (error != cudaSuccess) return blas_status(error);
  size_t bytes = (size_t)shape->element_bytes;
  size_t host_pitch = (size_t)shape->host_stride * bytes;
  size_t device_pitch = (size_t)shape->device_stride * bytes;
  CUDA_MEMCPY2D params = {
      .srcMemoryType = to_device ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
      .dstMemoryType = to_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST,
      .srcHost = host,
      .dstHost = (void *)(uintptr_t)host,
      .srcDevice = (CUdeviceptr)(uintptr_t)device,
      .dstDevice = (CUdeviceptr)(uintptr_t)device,
      .srcPitch = to_device ? host_pitch : device_pitch,
      .dstPitch = to_device ? device_pitch : host_pitch,
      .WidthInBytes = (size_t)shape->width * bytes,
      .Height = (size_t)shape->rows,
  };
  return blas_status(waits ? rt_driver.cuMemcpy2D_v2(&params)
                           : rt_driver.cuMemcpy2DAsync_v2(&params, stream));
}

/* One call in its four forms: synchronous or in a stream, 32 or 64 bit. */
#define VECTORS(name, suffix, integer, from, to, host, to_device)                          \
  BLAS_API(name##suffix, (integer count, integer element_bytes, const void *x,             \
                          integer from, void *y, integer to)) {                            \
    struct shape shape =                                                                   \
        vector(count, element_bytes, to_device ? from : to, to_device ? to : from);        \
    return copy(&shape, host, host == x ? y : x, to_device, true, NULL);                   \
  }                                                                                        \
  BLAS_API(name##Async##suffix,                                                            \
           (integer count, integer element_bytes, const void *x, integer from, void *y,    \
            integer to, cudaStream_t stream)) {                                            \
    struct shape shape =                                                                   \
        vector(count, element_bytes, to_device ? from : to, to_device ? to : from);        \
    return copy(&shape, host, host == x ? y : x, to_device, false, stream);                \
  }
#define MATRICES(name, suffix, integer, from, to, host, to_device)                         \
  BLAS_API(name##suffix, (integer rows, integer columns, integer element_bytes,            \
                          const void *x, integer from, void *y, integer to)) {             \
    struct shape shape = {rows, columns, element_bytes, to_device ? from : to,             \
                          to_device ? to : from};                                          \
    return copy(&shape, host, host == x ? y : x, to_device, true, NULL);                   \
  }                                                                                        \
  BLAS_API(name##Async##suffix,                                                            \
           (integer rows, integer columns, integer element_bytes, const void *x,           \
            integer from, void *y, integer to, cudaStream_t stream)) {                     \
    struct shape shape = {rows, columns, element_bytes, to_device ? from : to,             \
                          to_device ? to : from};                                          \
    return copy(&shape, host, host == x ? y : x, to_device, false, stream);                \
  }

VECTORS(cublasSetVector, , int, from, to, x, true)
VECTORS(cublasSetVector, _64, int64_t, from, to, x, true)
VECTORS(cublasGetVector, , int, from, to, y, false)
VECTORS(cublasGetVector, _64, int64_t, from, to, y, false)
MATRICES(cublasSetMatrix, , int, from, to, x, true)
MATRICES(cublasSetMatrix, _64, int64_t, from, to, x, true)
MATRICES(cublasGetMatrix, , int, from, to, y, false)
MATRICES(cublasGetMatrix, _64, int64_t, from, to, y, false)
