/* gemm_launch.c - launches the kernel of a matrix product. */
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "gemm.h"

/* Only the name and the parameters matter: the virtual driver executes no PTX. */
static const char image[] =
    ".version 7.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry " GEMM_KERNEL "(.param .u64 a, .param .u64 b, .param .u64 c,\n"
    "  .param .u64 d, .param .u64 bias, .param .u64 alpha, .param .u64 beta,\n"
    "  .param .align 8 .b8 shape[176])\n{\n  ret;\n}\n";

#define TILE 128 /* rows and columns of D per thread block of the real kernels */
#define THREADS 256

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUkernel kernel; /* under `lock` */

static cudaError_t load(CUkernel *out) {
  CUlibrary library;
  cudaError_t error = cudaSuccess;
  pthread_mutex_lock(&lock);
  if (kernel == NULL) {
    error = rt_driver.cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0);
    if (error == cudaSuccess)
      error = rt_driver.cuLibraryGetKernel(&kernel, library, GEMM_KERNEL);
  }
  *out = kernel;
  pthread_mutex_unlock(&lock);
  return error;
}

size_t gemm_type_bytes(int type) {
  switch (type) {
  case GEMM_R_8I:
    return 1;
  case GEMM_R_16F:
  case GEMM_R_16BF:
    return 2;
  case GEMM_R_32F:
  case GEMM_R_32I:
    return 4;
  case GEMM_R_64F:
  case GEMM_C_32F:
    return 8;
  case GEMM_C_64F:
    return 16;
  default:
    return 0;
  }
}

/* Converts by hand, because not every compiler has a 16-bit floating-point type. */
static double half_of(uint16_t bits) {
  int exponent = bits >> 10 & 31, fraction = bits & 1023;
  double value = exponent == 31  ? (fraction ? (double)NAN : (double)INFINITY)
                 : exponent == 0 ? ldexp(fraction, -24)
                                 : ldexp(1024 + fraction, exponent - 25);
  return bits >> 15 ? -value : value;
}

void gemm_scalar(int scale_type, const void *from, double out[2]) {
  float narrow[2];
  int32_t whole;
  uint16_t half;
  out[0] = out[1] = 0;
  switch (scale_type) {
  case GEMM_R_16F:
    memcpy(&half, from, sizeof half);
    out[0] = half_of(half);
    break;
  case GEMM_R_32I:
    memcpy(&whole, from, sizeof whole);
    out[0] = whole;
    break;
  case GEMM_R_64F:
    memcpy(out, from, 8);
    break;
  case GEMM_C_64F:
    memcpy(out, from, 16);
    break;
  case GEMM_C_32F:
    memcpy(narrow, from, 8);
    out[0] = (double)narrow[0];
    out[1] = (double)narrow[1];
    break;
  default:
    memcpy(narrow, from, 4);
    out[0] = (double)narrow[0];
  }
}

static unsigned tiles(int64_t length, unsigned most) {
  int64_t count = (length + TILE - 1) / TILE;
  return count < (int64_t)most ? (unsigned)count : most;
}

cudaError_t gemm_launch(const struct gemm *gemm, cudaStream_t stream) {
  const struct gemm_shape *shape = &gemm->shape;
  void *arguments[GEMM_POINTERS + 1];
  CUkernel function;
  if (shape->m <= 0 || shape->n <= 0 || shape->batch_count <= 0) return cudaSuccess;
  cudaError_t error = rt_enter();
  if (error == cudaSuccess) error = load(&function);
  if (error != cudaSuccess) return error;
  for (int i = 0; i < GEMM_POINTERS; i++)
    arguments[i] = (void *)(uintptr_t)&gemm->pointers[i];
  arguments[GEMM_POINTERS] = (void *)(uintptr_t)shape;
  unsigned depth = shape->batch_count < 65535 ? (unsigned)shape->batch_count : 65535;
  return rt_driver.cuLaunchKernel((CUfunction)(void *)function,
                                  tiles(shape->m, 2147483647u), tiles(shape->n, 65535),
                                  depth, THREADS, 1, 1, 0, stream, arguments, NULL);
}
