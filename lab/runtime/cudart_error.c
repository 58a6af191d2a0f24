/* cudart_error.c - the thread's last error, names and texts of errors. */
#include "cudart.h"

static __thread cudaError_t last_error;

cudaError_t rt_keep(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

RT_API(cudaGetLastError, (void)) {
  cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}

RT_API(cudaPeekAtLastError, (void)) {
  return last_error;
}

/* Errors that the driver does not have, or has under another name. */
static const struct {
  cudaError_t error;
  const char *name, *text;
} own[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid launch configuration"},
    {cudaErrorInvalidSymbol, "cudaErrorInvalidSymbol", "no such device symbol"},
    {cudaErrorInvalidChannelDescriptor, "cudaErrorInvalidChannelDescriptor",
     "invalid channel descriptor"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection",
     "invalid copy direction"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "no driver that works with this runtime"},
    {cudaErrorMissingConfiguration, "cudaErrorMissingConfiguration",
     "kernel launch without configuration"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction",
     "no such kernel, or none for this device"},
    {100, "cudaErrorNoDevice", "no CUDA device"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "no such device"},
    {209, "cudaErrorNoKernelImageForDevice", "no kernel image for this device"},
    {400, "cudaErrorInvalidResourceHandle", "invalid handle"},
    {500, "cudaErrorSymbolNotFound", "named symbol not found"},
    {600, "cudaErrorNotReady", "not finished yet"},
    {700, "cudaErrorIllegalAddress", "illegal memory access"},
    {719, "cudaErrorLaunchFailure", "launch failed"},
    {800, "cudaErrorNotPermitted", "operation not permitted"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {900, "cudaErrorStreamCaptureUnsupported", "not permitted while a stream is captured"},
    {901, "cudaErrorStreamCaptureInvalidated", "the capture has been invalidated"},
    {904, "cudaErrorStreamCaptureUnjoined", "a captured stream was not joined"},
    {906, "cudaErrorStreamCaptureImplicit",
     "the capturing stream depends on the legacy stream"},
};

RT_FUNCTION(const char *, cudaGetErrorName, (cudaError_t error)) {
  const char *name;
  for (size_t i = 0; i < sizeof own / sizeof *own; i++)
    if (own[i].error == error) return own[i].name;
  if (rt_load() != cudaSuccess || rt_driver.cuGetErrorName(error, &name) != CUDA_SUCCESS)
    return "unrecognized error code";
  return name;
}

RT_FUNCTION(const char *, cudaGetErrorString, (cudaError_t error)) {
  const char *text;
  for (size_t i = 0; i < sizeof own / sizeof *own; i++)
    if (own[i].error == error) return own[i].text;
  if (rt_load() != cudaSuccess || rt_driver.cuGetErrorString(error, &text) != CUDA_SUCCESS)
    return "unrecognized error code";
  return text;
}
