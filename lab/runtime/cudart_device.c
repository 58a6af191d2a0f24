/* cudart_device.c - devices, versions, entry points of the driver. */
#include <string.h>

#include "cudart.h"

#define RUNTIME_VERSION 13000

RT_API(cudaRuntimeGetVersion, (int *version)) {
  if (version == NULL) return rt_keep(cudaErrorInvalidValue);
  *version = RUNTIME_VERSION;
  return cudaSuccess;
}

/* Returns version 0 without a driver, which is not an error. */
RT_API(cudaDriverGetVersion, (int *version)) {
  if (version == NULL) return rt_keep(cudaErrorInvalidValue);
  *version = 0;
  return rt_load() == cudaSuccess ? rt_keep(rt_driver.cuDriverGetVersion(version))
                                  : cudaSuccess;
}

RT_API(cudaGetDeviceCount, (int *count)) {
  cudaError_t error = count == NULL ? cudaErrorInvalidValue : rt_init();
  if (error == cudaSuccess) error = rt_driver.cuDeviceGetCount(count);
  return rt_keep(error);
}

/* Returns the device of the current context, or the first device. */
RT_API(cudaGetDevice, (int *device)) {
  CUcontext current = NULL;
  if (device == NULL) return rt_keep(cudaErrorInvalidValue);
  *device = 0;
  cudaError_t error = rt_init();
  if (error == cudaSuccess && rt_driver.cuCtxGetCurrent(&current) == CUDA_SUCCESS &&
      current != NULL)
    error = rt_driver.cuCtxGetDevice(device);
  return rt_keep(error);
}

/* Makes the primary context of the only device current. */
RT_API(cudaSetDevice, (int device)) {
  int count = 0;
  cudaError_t error = rt_init();
  if (error == cudaSuccess) error = rt_driver.cuDeviceGetCount(&count);
  if (error == cudaSuccess && (device < 0 || device >= count))
    error = cudaErrorInvalidDevice;
  if (error == cudaSuccess) error = rt_enter();
  return rt_keep(error);
}

RT_API(cudaDeviceReset, (void)) {
  cudaError_t error = rt_enter();
  if (error == cudaSuccess) error = rt_driver.cuDevicePrimaryCtxReset_v2(0);
  if (error == cudaSuccess) rt_forget_context();
  return rt_keep(error);
}

/* Sets the flags of the primary context, which may not exist yet. */
RT_API(cudaSetDeviceFlags, (unsigned int flags)) {
  return rt_keep(rt_init() ?: rt_driver.cuDevicePrimaryCtxSetFlags_v2(0, flags));
}

/* Returns the flags of the current context, or of the primary one. */
RT_API(cudaGetDeviceFlags, (unsigned int *flags)) {
  CUcontext current = NULL;
  int active;
  cudaError_t error = rt_init();
  if (error == cudaSuccess) error = rt_driver.cuCtxGetCurrent(&current);
  if (error == cudaSuccess)
    error = current != NULL ? rt_driver.cuCtxGetFlags(flags)
                            : rt_driver.cuDevicePrimaryCtxGetState(0, flags, &active);
  return rt_keep(error);
}

RT_FORWARD(cudaCtxResetPersistingL2Cache, (void), cuCtxResetPersistingL2Cache, ())
RT_FORWARD(cudaDeviceSynchronize, (void), cuCtxSynchronize, ())
RT_FORWARD(cudaDeviceGetAttribute,
           (int *value, RT_ENUM(cudaDeviceAttr) attribute, int device),
           cuDeviceGetAttribute, (value, attribute, device))
RT_FORWARD(cudaDeviceCanAccessPeer, (int *can, int device, int peer), cuDeviceCanAccessPeer,
           (can, device, peer))
RT_FORWARD(cudaDeviceGetPCIBusId, (char *text, int length, int device), cuDeviceGetPCIBusId,
           (text, length, device))
RT_FORWARD(cudaDeviceGetByPCIBusId, (int *device, const char *text), cuDeviceGetByPCIBusId,
           (device, text))
RT_FORWARD(cudaDeviceGetStreamPriorityRange, (int *least, int *greatest),
           cuCtxGetStreamPriorityRange, (least, greatest))
RT_FORWARD(cudaDeviceGetLimit, (size_t *value, RT_ENUM(cudaLimit) limit), cuCtxGetLimit,
           (value, limit))
RT_FORWARD(cudaDeviceSetLimit, (RT_ENUM(cudaLimit) limit, size_t value), cuCtxSetLimit,
           (limit, value))
RT_FORWARD(cudaProfilerStart, (void), cuProfilerStart, ())
RT_FORWARD(cudaProfilerStop, (void), cuProfilerStop, ())

/* -- properties: attributes of the driver, by their offset in the struct -- */

struct property {
  int attribute; /* CU_DEVICE_ATTRIBUTE_* */
  size_t offset;
  bool wide; /* the field is a size_t, not an int */
};
#define INT(attribute, field) {attribute, offsetof(struct cudaDeviceProp, field), false}
#define WIDE(attribute, field) {attribute, offsetof(struct cudaDeviceProp, field), true}

static const struct property properties[] = {
    WIDE(8, sharedMemPerBlock),
    INT(12, regsPerBlock),
    INT(10, warpSize),
    WIDE(11, memPitch),
    INT(1, maxThreadsPerBlock),
    INT(2, maxThreadsDim[0]),
    INT(3, maxThreadsDim[1]),
    INT(4, maxThreadsDim[2]),
    INT(5, maxGridSize[0]),
    INT(6, maxGridSize[1]),
    INT(7, maxGridSize[2]),
    WIDE(9, totalConstMem),
    INT(75, major),
    INT(76, minor),
    WIDE(14, textureAlignment),
    WIDE(51, texturePitchAlignment),
    INT(16, multiProcessorCount),
    INT(18, integrated),
    INT(19, canMapHostMemory),
    INT(31, concurrentKernels),
    INT(32, ECCEnabled),
    INT(33, pciBusID),
    INT(34, pciDeviceID),
    INT(50, pciDomainID),
    INT(35, tccDriver),
    INT(40, asyncEngineCount),
    INT(41, unifiedAddressing),
    INT(37, memoryBusWidth),
    INT(38, l2CacheSize),
    INT(108, persistingL2CacheMaxSize),
    INT(39, maxThreadsPerMultiProcessor),
    INT(78, streamPrioritiesSupported),
    INT(79, globalL1CacheSupported),
    INT(80, localL1CacheSupported),
    WIDE(81, sharedMemPerMultiprocessor),
    INT(82, regsPerMultiprocessor),
    INT(83, managedMemory),
    INT(84, isMultiGpuBoard),
    INT(85, multiGpuBoardGroupID),
    INT(86, hostNativeAtomicSupported),
    INT(88, pageableMemoryAccess),
    INT(89, concurrentManagedAccess),
    INT(90, computePreemptionSupported),
    INT(91, canUseHostPointerForRegisteredMem),
    INT(95, cooperativeLaunch),
    WIDE(97, sharedMemPerBlockOptin),
    INT(100, pageableMemoryAccessUsesHostPageTables),
    INT(101, directManagedMemAccessFromHost),
    INT(106, maxBlocksPerMultiProcessor),
    INT(109, accessPolicyMaxWindowSize),
    WIDE(111, reservedSharedMemPerBlock),
    INT(99, hostRegisterSupported),
    INT(113, hostRegisterReadOnlySupported),
    INT(115, memoryPoolsSupported),
    INT(116, gpuDirectRDMASupported),
    INT(119, memoryPoolSupportedHandleTypes),
    INT(120, clusterLaunch),
};

RT_API(cudaGetDeviceProperties, (struct cudaDeviceProp * out, int device)) {
  cudaError_t error = out == NULL ? cudaErrorInvalidValue : rt_init();
  if (error != cudaSuccess) return rt_keep(error);
  memset(out, 0, sizeof *out);
  error = rt_driver.cuDeviceGetName(out->name, sizeof out->name, device);
  if (error == cudaSuccess) error = rt_driver.cuDeviceGetUuid_v2(&out->uuid, device);
  if (error == cudaSuccess)
    error = rt_driver.cuDeviceTotalMem_v2(&out->totalGlobalMem, device);
  for (size_t i = 0; i < sizeof properties / sizeof *properties; i++) {
    int value = 0;
    if (error == cudaSuccess)
      error = rt_driver.cuDeviceGetAttribute(&value, properties[i].attribute, device);
    size_t wide = (size_t)value;
    char *field = (char *)out + properties[i].offset;
    if (properties[i].wide)
      memcpy(field, &wide, sizeof wide);
    else
      memcpy(field, &value, sizeof value);
  }
  return rt_keep(error);
}

/* -- the driver's functions, for programs that call some of them directly -- */

/* Finds a driver function; the twins ask for per-thread default streams. */
static cudaError_t entry_point(const struct rt_driver *driver, const char *symbol,
                               void **function, unsigned int version,
                               unsigned long long flags, int *status) {
  int found;
  cudaError_t error =
      symbol == NULL || function == NULL ? cudaErrorInvalidValue : rt_load();
  if (error != cudaSuccess) return error;
  if (flags == CU_GET_PROC_ADDRESS_DEFAULT && driver == &rt_per_thread)
    flags = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  error = rt_driver.cuGetProcAddress_v2(symbol, function, (int)version, flags, &found);
  if (status != NULL) *status = found;
  if (error == CUDA_ERROR_NOT_FOUND && status != NULL) return cudaSuccess; /* reported */
  return error;
}

RT_TWINS(_ptsz, cudaGetDriverEntryPointByVersion,
         (const char *symbol, void **function, unsigned int version,
          unsigned long long flags, RT_ENUM(cudaDriverEntryPointQueryResult) * status),
         entry_point(driver, symbol, function, version, flags, status))
RT_TWINS(_ptsz, cudaGetDriverEntryPoint,
         (const char *symbol, void **function, unsigned long long flags,
          RT_ENUM(cudaDriverEntryPointQueryResult) * status),
         entry_point(driver, symbol, function, RUNTIME_VERSION, flags, status))
