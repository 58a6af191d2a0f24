/* cudart_launch.c - kernel launches and attributes of kernels. */
#include <string.h>

#include "cudart.h"

/* -- <<<grid, block, shared, stream>>>: stored from its evaluation to the launch -- */

#define MOST_CONFIGURATIONS 16
static __thread struct configuration {
  dim3 grid, block;
  size_t shared_bytes;
  cudaStream_t stream;
} configurations[MOST_CONFIGURATIONS];
static __thread unsigned configuration_count;

RT_FUNCTION(unsigned, __cudaPushCallConfiguration,
            (dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream)) {
  if (configuration_count == MOST_CONFIGURATIONS) return 1;
  configurations[configuration_count++] =
      (struct configuration){grid, block, shared_bytes, stream};
  return 0;
}

RT_API(__cudaPopCallConfiguration,
       (dim3 * grid, dim3 *block, size_t *shared_bytes, void *stream)) {
  if (configuration_count == 0) return rt_keep(cudaErrorMissingConfiguration);
  const struct configuration *top = &configurations[--configuration_count];
  *grid = top->grid;
  *block = top->block;
  *shared_bytes = top->shared_bytes;
  memcpy(stream, &top->stream, sizeof top->stream);
  return cudaSuccess;
}

/* -- launches -- */

static cudaError_t enter_kernel(const void *function, CUkernel *kernel) {
  cudaError_t error = rt_enter();
  return error != cudaSuccess ? error : rt_kernel_of(function, kernel);
}

RT_API(__cudaGetKernel, (cudaKernel_t * out, const void *function)) {
  return rt_keep(enter_kernel(function, out));
}

RT_API(cudaGetKernel, (cudaKernel_t * out, const void *function)) {
  return rt_keep(enter_kernel(function, out));
}

static cudaError_t launch_kernel(const struct rt_driver *driver, CUkernel kernel, dim3 grid,
                                 dim3 block, void **arguments, size_t shared_bytes,
                                 cudaStream_t stream) {
  cudaError_t error = kernel == NULL ? cudaErrorInvalidDeviceFunction : rt_enter();
  if (error != cudaSuccess) return error;
  error = driver->cuLaunchKernel((CUfunction)(void *)kernel, grid.x, grid.y, grid.z,
                                 block.x, block.y, block.z, (unsigned)shared_bytes, stream,
                                 arguments, NULL);
  return error == cudaErrorInvalidValue ? cudaErrorInvalidConfiguration : error;
}

RT_TWINS(_ptsz, __cudaLaunchKernel,
         (cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t shared_bytes,
          cudaStream_t stream),
         launch_kernel(driver, kernel, grid, block, arguments, shared_bytes, stream))

static cudaError_t launch(const struct rt_driver *driver, const void *function, dim3 grid,
                          dim3 block, void **arguments, size_t shared_bytes,
                          cudaStream_t stream) {
  CUkernel kernel;
  cudaError_t error = enter_kernel(function, &kernel);
  if (error != cudaSuccess) return error;
  return launch_kernel(driver, kernel, grid, block, arguments, shared_bytes, stream);
}

RT_TWINS(_ptsz, cudaLaunchKernel,
         (const void *function, dim3 grid, dim3 block, void **arguments,
          size_t shared_bytes, cudaStream_t stream),
         launch(driver, function, grid, block, arguments, shared_bytes, stream))

static cudaError_t cooperative(const struct rt_driver *driver, const void *function,
                               dim3 grid, dim3 block, void **arguments, size_t shared_bytes,
                               cudaStream_t stream) {
  CUkernel kernel;
  cudaError_t error = enter_kernel(function, &kernel);
  if (error != cudaSuccess) return error;
  return driver->cuLaunchCooperativeKernel((CUfunction)(void *)kernel, grid.x, grid.y,
                                           grid.z, block.x, block.y, block.z,
                                           (unsigned)shared_bytes, stream, arguments);
}

RT_TWINS(_ptsz, cudaLaunchCooperativeKernel,
         (const void *function, dim3 grid, dim3 block, void **arguments,
          size_t shared_bytes, cudaStream_t stream),
         cooperative(driver, function, grid, block, arguments, shared_bytes, stream))

static cudaError_t launch_configured(const struct rt_driver *driver,
                                     const cudaLaunchConfig_t *given, const void *function,
                                     void **arguments) {
  CUkernel kernel;
  cudaError_t error =
      given == NULL ? cudaErrorInvalidValue : enter_kernel(function, &kernel);
  if (error != cudaSuccess) return error;
  CUlaunchConfig config = {.gridDimX = given->gridDim.x,
                           .gridDimY = given->gridDim.y,
                           .gridDimZ = given->gridDim.z,
                           .blockDimX = given->blockDim.x,
                           .blockDimY = given->blockDim.y,
                           .blockDimZ = given->blockDim.z,
                           .sharedMemBytes = (unsigned)given->dynamicSmemBytes,
                           .hStream = given->stream,
                           .attrs = given->attrs,
                           .numAttrs = given->numAttrs};
  return driver->cuLaunchKernelEx(&config, (CUfunction)(void *)kernel, arguments, NULL);
}

RT_TWINS(_ptsz, cudaLaunchKernelExC,
         (const cudaLaunchConfig_t *given, const void *function, void **arguments),
         launch_configured(driver, given, function, arguments))

RT_FORWARD_TWINS(_ptsz, cudaLaunchHostFunc,
                 (cudaStream_t stream, cudaHostFn_t function, void *data), cuLaunchHostFunc,
                 (stream, function, data))

/* -- attributes -- */

RT_API(cudaFuncGetAttributes, (struct cudaFuncAttributes * out, const void *function)) {
  CUkernel kernel;
  cudaError_t error = out == NULL ? cudaErrorInvalidValue : enter_kernel(function, &kernel);
  if (error != cudaSuccess) return rt_keep(error);
  int values[10] = {0};
  for (int i = 0; i < 10 && error == cudaSuccess; i++)
    error = rt_driver.cuFuncGetAttribute(&values[i], i, (CUfunction)(void *)kernel);
  memset(out, 0, sizeof *out);
  out->maxThreadsPerBlock = values[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK];
  out->sharedSizeBytes = (size_t)values[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES];
  out->constSizeBytes = (size_t)values[CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES];
  out->localSizeBytes = (size_t)values[CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES];
  out->numRegs = values[CU_FUNC_ATTRIBUTE_NUM_REGS];
  out->ptxVersion = values[CU_FUNC_ATTRIBUTE_PTX_VERSION];
  out->binaryVersion = values[CU_FUNC_ATTRIBUTE_BINARY_VERSION];
  out->cacheModeCA = values[CU_FUNC_ATTRIBUTE_CACHE_MODE_CA];
  out->maxDynamicSharedSizeBytes = values[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES];
  out->preferredShmemCarveout = values[9];
  return rt_keep(error);
}

RT_API(cudaFuncSetAttribute,
       (const void *function, RT_ENUM(cudaFuncAttribute) attribute, int value)) {
  CUkernel kernel;
  cudaError_t error = enter_kernel(function, &kernel);
  if (error == cudaSuccess)
    error = rt_driver.cuFuncSetAttribute((CUfunction)(void *)kernel, attribute, value);
  return rt_keep(error);
}

RT_API(cudaFuncSetCacheConfig, (const void *function, RT_ENUM(cudaFuncCache) config)) {
  CUkernel kernel;
  cudaError_t error = enter_kernel(function, &kernel);
  if (error == cudaSuccess)
    error = rt_driver.cuFuncSetCacheConfig((CUfunction)(void *)kernel, config);
  return rt_keep(error);
}

RT_API(cudaGetFuncBySymbol, (cudaFunction_t * out, const void *function)) {
  CUkernel kernel;
  cudaError_t error = out == NULL ? cudaErrorInvalidValue : enter_kernel(function, &kernel);
  if (error == cudaSuccess) error = rt_driver.cuKernelGetFunction(out, kernel);
  return rt_keep(error);
}

/* -- occupancy -- */

RT_API(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
       (int *blocks, const void *function, int block_size, size_t shared_bytes,
        unsigned int flags)) {
  CUkernel kernel;
  cudaError_t error = enter_kernel(function, &kernel);
  if (error == cudaSuccess)
    error = rt_driver.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks, (CUfunction)(void *)kernel, block_size, shared_bytes, flags);
  return rt_keep(error);
}

RT_API(cudaOccupancyMaxActiveBlocksPerMultiprocessor,
       (int *blocks, const void *function, int block_size, size_t shared_bytes)) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
      blocks, function, block_size, shared_bytes, 0);
}
