/* cublas.h - declarations shared by the stand-ins for cuBLAS and cuBLASLt. */
#ifndef PUMP_CUBLAS_H
#define PUMP_CUBLAS_H

#include "cublas_types.h"
#include "gemm.h"

#define BLAS_API(name, parameters) RT_FUNCTION(cublasStatus_t, name, parameters)

struct cublasContext {
  cudaStream_t stream;
  cublasPointerMode_t pointer_mode;
  cublasMath_t math_mode;
  cublasAtomicsMode_t atomics_mode;
};

static inline cublasStatus_t blas_status(cudaError_t error) {
  switch (error) {
  case cudaSuccess:
    return CUBLAS_STATUS_SUCCESS;
  case cudaErrorMemoryAllocation:
    return CUBLAS_STATUS_ALLOC_FAILED;
  case cudaErrorInitializationError:
  case cudaErrorInsufficientDriver:
    return CUBLAS_STATUS_NOT_INITIALIZED;
  default:
    return CUBLAS_STATUS_EXECUTION_FAILED;
  }
}

#endif
