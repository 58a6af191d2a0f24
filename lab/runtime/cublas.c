/* cublas.c - handles of the stand-in for cuBLAS, and their settings. */
#include <stdlib.h>

#include "cublas.h"

#define VERSION 130000 /* major * 10000 + minor * 100 + patch */

BLAS_API(cublasCreate_v2, (cublasHandle_t * out)) {
  if (out == NULL) return CUBLAS_STATUS_INVALID_VALUE;
  cublasStatus_t status = blas_status(rt_enter());
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  *out = calloc(1, sizeof(struct cublasContext));
  return *out != NULL ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

BLAS_API(cublasDestroy_v2, (cublasHandle_t handle)) {
  if (handle == NULL) return CUBLAS_STATUS_NOT_INITIALIZED;
  free(handle);
  return CUBLAS_STATUS_SUCCESS;
}

BLAS_API(cublasGetVersion_v2, (cublasHandle_t handle, int *version)) {
  (void)handle;
  if (version == NULL) return CUBLAS_STATUS_INVALID_VALUE;
  *version = VERSION;
  return CUBLAS_STATUS_SUCCESS;
}

/* Property 0 is the major version, 1 the minor one, 2 the patch level. */
BLAS_API(cublasGetProperty, (libraryPropertyType type, int *value)) {
  static const int values[] = {VERSION / 10000, VERSION / 100 % 100, VERSION % 100};
  if (value == NULL || type < 0 || type > 2) return CUBLAS_STATUS_INVALID_VALUE;
  *value = values[type];
  return CUBLAS_STATUS_SUCCESS;
}

RT_FUNCTION(size_t, cublasGetCudartVersion, (void)) {
  return 13000;
}

/* A field of the handle with its setter and getter. */
#define SETTING(setter, getter, type, field)                                               \
  BLAS_API(setter, (cublasHandle_t handle, type value)) {                                  \
    if (handle == NULL) return CUBLAS_STATUS_NOT_INITIALIZED;                              \
    handle->field = value;                                                                 \
    return CUBLAS_STATUS_SUCCESS;                                                          \
  }                                                                                        \
  BLAS_API(getter, (cublasHandle_t handle, type * value)) {                                \
    if (handle == NULL) return CUBLAS_STATUS_NOT_INITIALIZED;                              \
    if (value == NULL) return CUBLAS_STATUS_INVALID_VALUE;                                 \
    *value = handle->field;                                                                \
    return CUBLAS_STATUS_SUCCESS;                                                          \
  }

SETTING(cublasSetStream_v2, cublasGetStream_v2, cudaStream_t, stream)
SETTING(cublasSetPointerMode_v2, cublasGetPointerMode_v2, cublasPointerMode_t, pointer_mode)
SETTING(cublasSetMathMode, cublasGetMathMode, cublasMath_t, math_mode)
SETTING(cublasSetAtomicsMode, cublasGetAtomicsMode, cublasAtomicsMode_t, atomics_mode)

/* The products here need no workspace; the program's is not used. */
BLAS_API(cublasSetWorkspace_v2,
         (cublasHandle_t handle, void *workspace, size_t length_bytes)) {
  (void)workspace, (void)length_bytes;
  return handle == NULL ? CUBLAS_STATUS_NOT_INITIALIZED : CUBLAS_STATUS_SUCCESS;
}

RT_FUNCTION(const char *, cublasGetStatusName, (cublasStatus_t status)) {
  switch (status) {
  case CUBLAS_STATUS_SUCCESS:
    return "CUBLAS_STATUS_SUCCESS";
  case CUBLAS_STATUS_NOT_INITIALIZED:
    return "CUBLAS_STATUS_NOT_INITIALIZED";
  case CUBLAS_STATUS_ALLOC_FAILED:
    return "CUBLAS_STATUS_ALLOC_FAILED";
  case CUBLAS_STATUS_INVALID_VALUE:
    return "CUBLAS_STATUS_INVALID_VALUE";
  case CUBLAS_STATUS_NOT_SUPPORTED:
    return "CUBLAS_STATUS_NOT_SUPPORTED";
  default:
    return "CUBLAS_STATUS_EXECUTION_FAILED";
  }
}

RT_FUNCTION(const char *, cublasGetStatusString, (cublasStatus_t status)) {
  return cublasGetStatusName(status);
}
