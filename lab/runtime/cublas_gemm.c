/* cublas_gemm.c - all cuBLAS products that frameworks call, each as one launch (gemm.h). */
#include "cublas.h"

/* The arguments of all functions. Without batches, strides are 0 and batch_count is 1. */
struct product {
  cublasOperation_t op_a, op_b;
  int64_t m, n, k;
  const void *alpha, *a, *b, *beta;
  void *c;
  int64_t lda, ldb, ldc, stride_a, stride_b, stride_c;
  int type_a, type_b, type_c, scale_type;
  int batch_count;
  bool pointer_arrays;
};

static cublasStatus_t run(cublasHandle_t handle, const struct product *p) {
  if (handle == NULL) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (p->m < 0 || p->n < 0 || p->k < 0 || p->batch_count < 0 || p->alpha == NULL ||
      p->beta == NULL || p->op_a < GEMM_OP_N || p->op_a > GEMM_OP_C ||
      p->op_b < GEMM_OP_N || p->op_b > GEMM_OP_C)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (gemm_type_bytes(p->type_a) == 0 || gemm_type_bytes(p->type_b) == 0 ||
      gemm_type_bytes(p->type_c) == 0)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  uint64_t c = (uint64_t)(uintptr_t)p->c;
  struct gemm gemm = {
      .pointers = {[GEMM_A] = (uint64_t)(uintptr_t)p->a,
                   [GEMM_B] = (uint64_t)(uintptr_t)p->b,
                   [GEMM_C] = c,
                   [GEMM_D] = c},
      .shape = {.m = p->m,
                .n = p->n,
                .k = p->k,
                .ld = {p->lda, p->ldb, p->ldc, p->ldc},
                .stride = {p->stride_a, p->stride_b, p->stride_c, p->stride_c},
                .type = {p->type_a, p->type_b, p->type_c, p->type_c},
                .scale_type = p->scale_type,
                .op_a = p->op_a,
                .op_b = p->op_b,
                .batch_count = p->batch_count,
                .pointer_arrays = p->pointer_arrays}};
  if (handle->pointer_mode == CUBLAS_POINTER_MODE_DEVICE) {
    gemm.pointers[GEMM_ALPHA] = (uint64_t)(uintptr_t)p->alpha;
    gemm.pointers[GEMM_BETA] = (uint64_t)(uintptr_t)p->beta;
  } else {
    gemm_scalar(p->scale_type, p->alpha, gemm.shape.alpha);
    gemm_scalar(p->scale_type, p->beta, gemm.shape.beta);
  }
  return blas_status(gemm_launch(&gemm, handle->stream));
}

static bool is_complex(int type) {
  return type == GEMM_C_32F || type == GEMM_C_64F;
}

/* Returns the type of alpha and beta; -1: an unknown compute type. */
static int scale_type_of(int compute, int type_c) {
  switch (compute) {
  case CUBLAS_COMPUTE_16F:
  case CUBLAS_COMPUTE_16F_PEDANTIC:
    return GEMM_R_16F;
  case CUBLAS_COMPUTE_64F:
  case CUBLAS_COMPUTE_64F_PEDANTIC:
    return is_complex(type_c) ? GEMM_C_64F : GEMM_R_64F;
  case CUBLAS_COMPUTE_32I:
  case CUBLAS_COMPUTE_32I_PEDANTIC:
    return GEMM_R_32I;
  default:
    if (compute < CUBLAS_COMPUTE_32F || compute > 79) return -1;
    return is_complex(type_c) ? GEMM_C_32F : GEMM_R_32F;
  }
}

static cublasStatus_t run_typed(cublasHandle_t handle, struct product *p, int compute) {
  p->scale_type = scale_type_of(compute, p->type_c);
  return p->scale_type < 0 ? CUBLAS_STATUS_NOT_SUPPORTED : run(handle, p);
}

/* Initializers of a product from arguments of the same names. */
#define SIZES                                                                              \
  .op_a = op_a, .op_b = op_b, .m = m, .n = n, .k = k, .alpha = alpha, .beta = beta,        \
  .lda = lda, .ldb = ldb, .ldc = ldc
#define MATRICES .a = a, .b = b, .c = c
#define STRIDES                                                                            \
  .stride_a = stride_a, .stride_b = stride_b, .stride_c = stride_c,                        \
  .batch_count = batch_count
#define ARRAYS                                                                             \
  .a = a, .b = b, .c = (void *)(uintptr_t)c, .batch_count = batch_count,                   \
  .pointer_arrays = true
#define TYPES .type_a = type_a, .type_b = type_b, .type_c = type_c
#define TYPE(number)                                                                       \
  .type_a = number, .type_b = number, .type_c = number, .scale_type = number

/* -- types by argument -- */

BLAS_API(cublasGemmEx,
         (cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m,
          int n, int k, const void *alpha, const void *a, cudaDataType type_a, int lda,
          const void *b, cudaDataType type_b, int ldb, const void *beta, void *c,
          cudaDataType type_c, int ldc, cublasComputeType_t compute,
          cublasGemmAlgo_t algo)) {
  struct product p = {SIZES, MATRICES, TYPES, .batch_count = 1};
  (void)algo;
  return run_typed(handle, &p, compute);
}

BLAS_API(cublasGemmStridedBatchedEx,
         (cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m,
          int n, int k, const void *alpha, const void *a, cudaDataType type_a, int lda,
          long long int stride_a, const void *b, cudaDataType type_b, int ldb,
          long long int stride_b, const void *beta, void *c, cudaDataType type_c, int ldc,
          long long int stride_c, int batch_count, cublasComputeType_t compute,
          cublasGemmAlgo_t algo)) {
  struct product p = {SIZES, MATRICES, STRIDES, TYPES};
  (void)algo;
  return run_typed(handle, &p, compute);
}

BLAS_API(cublasGemmBatchedEx,
         (cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m,
          int n, int k, const void *alpha, const void *const a[], cudaDataType type_a,
          int lda, const void *const b[], cudaDataType type_b, int ldb, const void *beta,
          void *const c[], cudaDataType type_c, int ldc, int batch_count,
          cublasComputeType_t compute, cublasGemmAlgo_t algo)) {
  struct product p = {SIZES, ARRAYS, TYPES};
  (void)algo;
  return run_typed(handle, &p, compute);
}

BLAS_API(cublasSgemmEx,
         (cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m,
          int n, int k, const float *alpha, const void *a, cudaDataType type_a, int lda,
          const void *b, cudaDataType type_b, int ldb, const float *beta, void *c,
          cudaDataType type_c, int ldc)) {
  return cublasGemmEx(handle, op_a, op_b, m, n, k, alpha, a, type_a, lda, b, type_b, ldb,
                      beta, c, type_c, ldc, CUBLAS_COMPUTE_32F, 0);
}

/* -- one type: plain, in strides, by arrays of pointers -- */

#define PRODUCTS(letter, type, number)                                                     \
  BLAS_API(cublas##letter##gemm_v2,                                                        \
           (cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m,  \
            int n, int k, const type *alpha, const type *a, int lda, const type *b,        \
            int ldb, const type *beta, type *c, int ldc)) {                                \
    const struct product p = {SIZES, MATRICES, TYPE(number), .batch_count = 1};            \
    return run(handle, &p);                                                                \
  }                                                                                        \
  BLAS_API(cublas##letter##gemmStridedBatched,                                             \
           (cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m,  \
            int n, int k, const type *alpha, const type *a, int lda,                       \
            long long int stride_a, const type *b, int ldb, long long int stride_b,        \
            const type *beta, type *c, int ldc, long long int stride_c,                    \
            int batch_count)) {                                                            \
    const struct product p = {SIZES, MATRICES, STRIDES, TYPE(number)};                     \
    return run(handle, &p);                                                                \
  }                                                                                        \
  BLAS_API(cublas##letter##gemmBatched,                                                    \
           (cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m,  \
            int n, int k, const type *alpha, const type *const a[], int lda,               \
            const type *const b[], int ldb, const type *beta, type *const c[], int ldc,    \
            int batch_count)) {                                                            \
    const struct product p = {SIZES, ARRAYS, TYPE(number)};                                \
    return run(handle, &p);                                                                \
  }                                                                                        \
  BLAS_API(cublas##letter##gemv_v2,                                                        \
           (cublasHandle_t handle, cublasOperation_t op, int m, int n, const type *alpha,  \
            const type *a, int lda, const type *x, int x_step, const type *beta, type *y,  \
            int y_step)) {                                                                 \
    struct product p = {.alpha = alpha,                                                    \
                        .beta = beta,                                                      \
                        .a = x,                                                            \
                        .b = a,                                                            \
                        .c = y,                                                            \
                        .lda = x_step,                                                     \
                        .ldb = lda,                                                        \
                        .ldc = y_step,                                                     \
                        TYPE(number)};                                                     \
    return matrix_vector(handle, &p, op, m, n);                                            \
  }

/* Multiplies a matrix by a vector: the result is the row of a product, y' = x' op(A)'. A
 * conjugated matrix and negative steps are not supported. */
static cublasStatus_t matrix_vector(cublasHandle_t handle, struct product *p, int op, int m,
                                    int n) {
  bool turned = op != GEMM_OP_N;
  if (p->lda <= 0 || p->ldc <= 0 || op == GEMM_OP_C) return CUBLAS_STATUS_NOT_SUPPORTED;
  p->op_b = turned ? GEMM_OP_N : GEMM_OP_T;
  p->m = 1;
  p->n = turned ? n : m;
  p->k = turned ? m : n;
  p->batch_count = 1;
  return run(handle, p);
}

PRODUCTS(S, float, GEMM_R_32F)
PRODUCTS(D, double, GEMM_R_64F)
PRODUCTS(C, cuComplex, GEMM_C_32F)
PRODUCTS(Z, cuDoubleComplex, GEMM_C_64F)

/* -- scalar products: x' y, of one row and one column. The pointer mode decides where the
 * result goes. The product writes it to device memory; for host memory the call waits and
 * reads it back. -- */

static cublasStatus_t dot(cublasHandle_t handle, int n, const void *x, int x_step,
                          const void *y, int y_step, void *result, int type,
                          bool conjugate) {
  double one[2] = {1, 0}, nothing[2] = {0, 0};
  CUdeviceptr address = (uint64_t)(uintptr_t)result;
  if (handle == NULL) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (x_step <= 0 || y_step <= 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  bool on_host = handle->pointer_mode == CUBLAS_POINTER_MODE_HOST;
  cudaError_t error = rt_enter();
  if (error == cudaSuccess && on_host)
    error = rt_driver.cuMemAllocAsync(&address, 16, handle->stream);
  if (error != cudaSuccess) return blas_status(error);
  struct gemm gemm = {.pointers = {[GEMM_A] = (uint64_t)(uintptr_t)x,
                                   [GEMM_B] = (uint64_t)(uintptr_t)y,
                                   [GEMM_C] = address,
                                   [GEMM_D] = address},
                      .shape = {.m = 1,
                                .n = 1,
                                .k = n,
                                .ld = {x_step, y_step, 1, 1},
                                .type = {type, type, type, type},
                                .scale_type = GEMM_C_64F,
                                .op_b = GEMM_OP_T,
                                .batch_count = 1}};
  if (conjugate) { /* op C reads the stored matrix transposed: a column of x */
    gemm.shape.op_a = GEMM_OP_C;
    if (x_step != 1) error = cudaErrorNotSupported;
    gemm.shape.ld[GEMM_A] = n > 0 ? n : 1;
  }
  gemm_scalar(GEMM_C_64F, one, gemm.shape.alpha);
  gemm_scalar(GEMM_C_64F, nothing, gemm.shape.beta);
  if (error == cudaSuccess) error = gemm_launch(&gemm, handle->stream);
  if (on_host) {
    cudaError_t freed;
    if (error == cudaSuccess)
      error = rt_driver.cuMemcpyDtoHAsync_v2(result, address, gemm_type_bytes(type),
                                             handle->stream);
    freed = rt_driver.cuMemFreeAsync(address, handle->stream);
    if (error == cudaSuccess) error = freed;
    if (error == cudaSuccess) error = rt_driver.cuStreamSynchronize(handle->stream);
  }
  return blas_status(error);
}

BLAS_API(cublasDotEx,
         (cublasHandle_t handle, int n, const void *x, cudaDataType type_x, int x_step,
          const void *y, cudaDataType type_y, int y_step, void *result,
          cudaDataType result_type, cudaDataType execution_type)) {
  (void)execution_type;
  if (type_x != type_y || type_x != result_type || gemm_type_bytes(type_x) == 0)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  return dot(handle, n, x, x_step, y, y_step, result, type_x, false);
}

#define DOT(name, type, number, conjugate)                                                 \
  BLAS_API(name, (cublasHandle_t handle, int n, const type *x, int x_step, const type *y,  \
                  int y_step, type *result)) {                                             \
    return dot(handle, n, x, x_step, y, y_step, result, number, conjugate);                \
  }

DOT(cublasSdot_v2, float, GEMM_R_32F, false)
DOT(cublasDdot_v2, double, GEMM_R_64F, false)
DOT(cublasCdotu_v2, cuComplex, GEMM_C_32F, false)
DOT(cublasZdotu_v2, cuDoubleComplex, GEMM_C_64F, false)
DOT(cublasCdotc_v2, cuComplex, GEMM_C_32F, true)
DOT(cublasZdotc_v2, cuDoubleComplex, GEMM_C_64F, true)
