/* cudnn.c - the stand-in for cuDNN: its version, and handles.
 *
 * XLA needs a cuDNN handle before it compiles anything, but uses it only for
 * convolutions. Every operation returns "not supported". The version is taken from the
 * headers that the names come from.
 */
#include <stdio.h>
#include <stdlib.h>

#include "runtime.h"

enum {
  CUDNN_STATUS_SUCCESS = 0,
  CUDNN_STATUS_NOT_INITIALIZED = 1001,
  CUDNN_STATUS_BAD_PARAM = 2000,
  CUDNN_STATUS_NOT_SUPPORTED = 3000,
  CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED = 4003
};

#define VERSION 91900 /* major * 10000 + minor * 100 + patch */

typedef int cudnnStatus_t, libraryPropertyType;
typedef struct cudnnContext {
  cudaStream_t stream;
} *cudnnHandle_t;

#define DNN_API(name, parameters) RT_FUNCTION(cudnnStatus_t, name, parameters)

DNN_API(cudnnCreate, (cudnnHandle_t * out)) {
  if (out == NULL) return CUDNN_STATUS_BAD_PARAM;
  if (rt_enter() != cudaSuccess) return CUDNN_STATUS_NOT_INITIALIZED;
  *out = calloc(1, sizeof **out);
  return *out != NULL ? CUDNN_STATUS_SUCCESS
                      : CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
}

DNN_API(cudnnDestroy, (cudnnHandle_t handle)) {
  free(handle);
  return CUDNN_STATUS_SUCCESS;
}

DNN_API(cudnnSetStream, (cudnnHandle_t handle, cudaStream_t stream)) {
  if (handle == NULL) return CUDNN_STATUS_BAD_PARAM;
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

DNN_API(cudnnGetStream, (cudnnHandle_t handle, cudaStream_t *stream)) {
  if (handle == NULL || stream == NULL) return CUDNN_STATUS_BAD_PARAM;
  *stream = handle->stream;
  return CUDNN_STATUS_SUCCESS;
}

RT_FUNCTION(size_t, cudnnGetVersion, (void)) {
  return VERSION;
}

RT_FUNCTION(size_t, cudnnGetCudartVersion, (void)) {
  return 13000;
}

/* Property 0 is the major version, 1 the minor one, 2 the patch level. */
DNN_API(cudnnGetProperty, (libraryPropertyType type, int *value)) {
  static const int values[] = {VERSION / 10000, VERSION / 100 % 100, VERSION % 100};
  if (value == NULL || type < 0 || type > 2) return CUDNN_STATUS_BAD_PARAM;
  *value = values[type];
  return CUDNN_STATUS_SUCCESS;
}

RT_FUNCTION(const char *, cudnnGetErrorString, (cudnnStatus_t status)) {
  switch (status) {
  case CUDNN_STATUS_SUCCESS:
    return "CUDNN_STATUS_SUCCESS";
  case CUDNN_STATUS_NOT_INITIALIZED:
    return "CUDNN_STATUS_NOT_INITIALIZED";
  case CUDNN_STATUS_BAD_PARAM:
    return "CUDNN_STATUS_BAD_PARAM";
  case CUDNN_STATUS_NOT_SUPPORTED:
    return "CUDNN_STATUS_NOT_SUPPORTED";
  default:
    return "CUDNN_STATUS_INTERNAL_ERROR";
  }
}

RT_FUNCTION(void, cudnnGetLastErrorString, (char *message, size_t room_bytes)) {
  if (message != NULL && room_bytes != 0)
    snprintf(message, room_bytes, "pump's substitute for cuDNN has no operations");
}
