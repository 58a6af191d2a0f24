/* gemm.h - a matrix product as one kernel of ours: its parameters and its two halves.
 *
 * gemm_launch.c loads the kernel's image and launches it, as the real libraries do. So a
 * shim sees pointers among the launch parameters, and a graph can capture the launch. The
 * virtual driver calls kernels/gemm_host.c for that kernel, which reports the touched
 * memory and, in compute mode, computes the product.
 *
 * D = activation(alpha * op(A) * op(B) + beta * C + bias), column-major, in batches.
 */
#ifndef PUMP_GEMM_H
#define PUMP_GEMM_H

#include "runtime.h"

#define GEMM_KERNEL "pump_gemm"

/* The supported values of cudaDataType. */
enum gemm_type {
  GEMM_R_32F = 0,
  GEMM_R_64F = 1,
  GEMM_R_16F = 2,
  GEMM_R_8I = 3,
  GEMM_C_32F = 4,
  GEMM_C_64F = 5,
  GEMM_R_32I = 10,
  GEMM_R_16BF = 14
};
enum gemm_op { GEMM_OP_N = 0, GEMM_OP_T = 1, GEMM_OP_C = 2 };
enum gemm_activation { GEMM_IDENTITY, GEMM_RELU, GEMM_GELU };

/* The kernel's parameters: the pointers come first, one parameter each. */
enum gemm_pointer {
  GEMM_A,
  GEMM_B,
  GEMM_C,
  GEMM_D,
  GEMM_BIAS,
  GEMM_ALPHA, /* in device memory; NULL: the shape's `alpha` is used */
  GEMM_BETA,
  GEMM_POINTERS
};

/* The last parameter, passed by value. Lengths and strides count elements. */
struct gemm_shape {
  int64_t m, n, k;
  int64_t ld[4]; /* leading dimensions of A, B, C, D */
  int64_t stride[4], bias_stride;
  int32_t type[4], bias_type, scale_type;
  int32_t op_a, op_b;
  int32_t batch_count;
  int32_t pointer_arrays; /* A, B, C and D point to arrays of pointers */
  int32_t activation, padding;
  double alpha[2], beta[2]; /* real and imaginary part */
};
_Static_assert(sizeof(struct gemm_shape) == 176, "as the kernel's image says");

struct gemm {
  CUdeviceptr pointers[GEMM_POINTERS];
  struct gemm_shape shape;
};

size_t gemm_type_bytes(int type); /* 0: not supported */
/* Launches the product; sizes of 0 launch nothing. Returns a cudaError_t. */
cudaError_t gemm_launch(const struct gemm *gemm, cudaStream_t stream);
/* Converts a scalar of the library's `scale_type` from host memory. */
void gemm_scalar(int scale_type, const void *from, double out[2]);

#endif
