/* cublaslt.c - the stand-in for cuBLASLt: descriptors and the one product (gemm.h). */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "cublas.h"

#define VERSION 130000

/* Contents of the opaque descriptors. */
struct matmul {
  int32_t compute, scale_type, pointer_mode, op_a, op_b;
  uint32_t epilogue;
  uint64_t bias;
  int64_t bias_stride;
  int32_t bias_type, other; /* `other`: an unsupported attribute that was set */
};
struct layout {
  uint32_t type, order;
  uint64_t rows, columns;
  int64_t ld, stride;
  int32_t batch_count, padding;
};
_Static_assert(sizeof(struct matmul) <= sizeof(cublasLtMatmulDescOpaque_t), "fits");
_Static_assert(sizeof(struct layout) <= sizeof(cublasLtMatrixLayoutOpaque_t), "fits");

RT_FUNCTION(size_t, cublasLtGetVersion, (void)) {
  return VERSION;
}
RT_FUNCTION(size_t, cublasLtGetCudartVersion, (void)) {
  return 13000;
}

BLAS_API(cublasLtCreate, (cublasLtHandle_t * out)) {
  if (out == NULL) return CUBLAS_STATUS_INVALID_VALUE;
  cublasStatus_t status = blas_status(rt_enter());
  if (status == CUBLAS_STATUS_SUCCESS) *out = (cublasLtHandle_t)calloc(1, 1);
  return status;
}

BLAS_API(cublasLtDestroy, (cublasLtHandle_t handle)) {
  free(handle);
  return CUBLAS_STATUS_SUCCESS;
}

/* -- descriptors -- */

BLAS_API(cublasLtMatmulDescInit_internal,
         (cublasLtMatmulDesc_t out, size_t length_bytes, cublasComputeType_t compute,
          cudaDataType scale)) {
  struct matmul fresh = {.compute = compute,
                         .scale_type = scale,
                         .epilogue = CUBLASLT_EPILOGUE_DEFAULT,
                         .bias_type = -1};
  if (out == NULL || length_bytes < sizeof fresh) return CUBLAS_STATUS_INVALID_VALUE;
  memset(out, 0, length_bytes);
  memcpy(out, &fresh, sizeof fresh);
  return CUBLAS_STATUS_SUCCESS;
}

BLAS_API(cublasLtMatmulDescCreate,
         (cublasLtMatmulDesc_t * out, cublasComputeType_t compute, cudaDataType scale)) {
  if (out == NULL) return CUBLAS_STATUS_INVALID_VALUE;
  *out = malloc(sizeof **out);
  if (*out == NULL) return CUBLAS_STATUS_ALLOC_FAILED;
  return cublasLtMatmulDescInit_internal(*out, sizeof **out, compute, scale);
}

BLAS_API(cublasLtMatmulDescDestroy, (cublasLtMatmulDesc_t descriptor)) {
  free(descriptor);
  return CUBLAS_STATUS_SUCCESS;
}

BLAS_API(cublasLtMatrixLayoutInit_internal,
         (cublasLtMatrixLayout_t out, size_t length_bytes, cudaDataType type, uint64_t rows,
          uint64_t columns, int64_t ld)) {
  struct layout fresh = {
      .type = (uint32_t)type, .rows = rows, .columns = columns, .ld = ld, .batch_count = 1};
  if (out == NULL || length_bytes < sizeof fresh) return CUBLAS_STATUS_INVALID_VALUE;
  memset(out, 0, length_bytes);
  memcpy(out, &fresh, sizeof fresh);
  return CUBLAS_STATUS_SUCCESS;
}

BLAS_API(cublasLtMatrixLayoutCreate, (cublasLtMatrixLayout_t * out, cudaDataType type,
                                      uint64_t rows, uint64_t columns, int64_t ld)) {
  if (out == NULL) return CUBLAS_STATUS_INVALID_VALUE;
  *out = malloc(sizeof **out);
  if (*out == NULL) return CUBLAS_STATUS_ALLOC_FAILED;
  return cublasLtMatrixLayoutInit_internal(*out, sizeof **out, type, rows, columns, ld);
}

BLAS_API(cublasLtMatrixLayoutDestroy, (cublasLtMatrixLayout_t layout)) {
  free(layout);
  return CUBLAS_STATUS_SUCCESS;
}

/* The descriptor field that holds an attribute. */
struct field {
  int attribute;
  size_t offset_bytes, length_bytes;
};
#define FIELD(attribute, type, name)                                                       \
  {attribute, offsetof(struct type, name), sizeof((struct type){0}.name)}

static const struct field matmul_fields[] = {
    FIELD(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, matmul, compute),
    FIELD(CUBLASLT_MATMUL_DESC_SCALE_TYPE, matmul, scale_type),
    FIELD(CUBLASLT_MATMUL_DESC_POINTER_MODE, matmul, pointer_mode),
    FIELD(CUBLASLT_MATMUL_DESC_TRANSA, matmul, op_a),
    FIELD(CUBLASLT_MATMUL_DESC_TRANSB, matmul, op_b),
    FIELD(CUBLASLT_MATMUL_DESC_EPILOGUE, matmul, epilogue),
    FIELD(CUBLASLT_MATMUL_DESC_BIAS_POINTER, matmul, bias),
    FIELD(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, matmul, bias_stride),
    FIELD(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, matmul, bias_type),
};
static const struct field layout_fields[] = {
    FIELD(CUBLASLT_MATRIX_LAYOUT_TYPE, layout, type),
    FIELD(CUBLASLT_MATRIX_LAYOUT_ORDER, layout, order),
    FIELD(CUBLASLT_MATRIX_LAYOUT_ROWS, layout, rows),
    FIELD(CUBLASLT_MATRIX_LAYOUT_COLS, layout, columns),
    FIELD(CUBLASLT_MATRIX_LAYOUT_LD, layout, ld),
    FIELD(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, layout, batch_count),
    FIELD(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, layout, stride),
};
#define COUNT(fields) (sizeof(fields) / sizeof(fields)[0])

static cublasStatus_t set(void *descriptor, const struct field *fields, size_t count,
                          int attribute, const void *value, size_t length_bytes) {
  if (descriptor == NULL) return CUBLAS_STATUS_INVALID_VALUE;
  for (size_t i = 0; i < count; i++) {
    if (fields[i].attribute != attribute) continue;
    if (value == NULL || length_bytes != fields[i].length_bytes)
      return CUBLAS_STATUS_INVALID_VALUE;
    memcpy((char *)descriptor + fields[i].offset_bytes, value, length_bytes);
    return CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

/* Reads an attribute; returns only its length if `length_bytes` is 0. */
static cublasStatus_t get(const void *descriptor, const struct field *fields, size_t count,
                          int attribute, void *value, size_t length_bytes,
                          size_t *written) {
  if (descriptor == NULL) return CUBLAS_STATUS_INVALID_VALUE;
  for (size_t i = 0; i < count; i++) {
    if (fields[i].attribute != attribute) continue;
    if (written != NULL) *written = fields[i].length_bytes;
    if (length_bytes == 0 && written != NULL) return CUBLAS_STATUS_SUCCESS;
    if (value == NULL || length_bytes < fields[i].length_bytes)
      return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(value, (const char *)descriptor + fields[i].offset_bytes,
           fields[i].length_bytes);
    return CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

BLAS_API(cublasLtMatmulDescGetAttribute,
         (cublasLtMatmulDesc_t descriptor, cublasLtMatmulDescAttributes_t attribute,
          void *value, size_t length_bytes, size_t *written)) {
  return get(descriptor, matmul_fields, COUNT(matmul_fields), attribute, value,
             length_bytes, written);
}

BLAS_API(cublasLtMatrixLayoutGetAttribute,
         (cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute,
          void *value, size_t length_bytes, size_t *written)) {
  return get(layout, layout_fields, COUNT(layout_fields), attribute, value, length_bytes,
             written);
}

BLAS_API(cublasLtMatmulDescSetAttribute,
         (cublasLtMatmulDesc_t descriptor, cublasLtMatmulDescAttributes_t attribute,
          const void *value, size_t length_bytes)) {
  struct matmul *d = (struct matmul *)(void *)descriptor;
  cublasStatus_t status =
      set(d, matmul_fields, COUNT(matmul_fields), attribute, value, length_bytes);
  if (status != CUBLAS_STATUS_NOT_SUPPORTED) return status;
  if (value == NULL) return CUBLAS_STATUS_INVALID_VALUE;
  /* Zeros change nothing (no scale, no address for a maximum). Neither the number of
   * multiprocessors nor fast accumulation affects the result. */
  bool zeros = true;
  for (size_t i = 0; i < length_bytes; i++) zeros &= ((const char *)value)[i] == 0;
  if (zeros && d->other == attribute) d->other = 0;
  if (!zeros && attribute != CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET &&
      attribute != CUBLASLT_MATMUL_DESC_FAST_ACCUM)
    d->other = attribute;
  return CUBLAS_STATUS_SUCCESS;
}

BLAS_API(cublasLtMatrixLayoutSetAttribute,
         (cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute,
          const void *value, size_t length_bytes)) {
  return set(layout, layout_fields, COUNT(layout_fields), attribute, value, length_bytes);
}

/* Preferences choose among algorithms, but there is only one. */
BLAS_API(cublasLtMatmulPreferenceInit_internal,
         (cublasLtMatmulPreference_t out, size_t length_bytes)) {
  if (out == NULL) return CUBLAS_STATUS_INVALID_VALUE;
  memset(out, 0, length_bytes);
  return CUBLAS_STATUS_SUCCESS;
}

BLAS_API(cublasLtMatmulPreferenceCreate, (cublasLtMatmulPreference_t * out)) {
  if (out == NULL) return CUBLAS_STATUS_INVALID_VALUE;
  *out = calloc(1, sizeof **out);
  return *out != NULL ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

BLAS_API(cublasLtMatmulPreferenceDestroy, (cublasLtMatmulPreference_t preference)) {
  free(preference);
  return CUBLAS_STATUS_SUCCESS;
}

BLAS_API(cublasLtMatmulPreferenceSetAttribute,
         (cublasLtMatmulPreference_t preference,
          cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
          size_t length_bytes)) {
  (void)attribute, (void)length_bytes;
  return preference == NULL || value == NULL ? CUBLAS_STATUS_INVALID_VALUE
                                             : CUBLAS_STATUS_SUCCESS;
}

/* -- the product -- */

/* A row-major matrix is its transpose in column-major order. A row-major result is the
 * product of the transposes in reverse order. */
#define ORDER_ROWS 1

static bool swapped(const struct layout *const layouts[4]) {
  return layouts[GEMM_D]->order == ORDER_ROWS;
}

static int op_of(int op, const struct layout *layout, bool flip) {
  if (layout->order == ORDER_ROWS) flip = !flip;
  if (!flip) return op;
  return op == GEMM_OP_N ? GEMM_OP_T : GEMM_OP_N;
}

/* Fills the shape; returns false after a log line if the product is not supported. */
static bool fill(const struct matmul *d, const struct layout *const layouts[4],
                 struct gemm_shape *s) {
  uint32_t known = CUBLASLT_EPILOGUE_DEFAULT | CUBLASLT_EPILOGUE_RELU |
                   CUBLASLT_EPILOGUE_BIAS | CUBLASLT_EPILOGUE_GELU;
  if (d->other != 0 || (d->epilogue & ~known) != 0 || d->pointer_mode > 1) {
    rt_log("cublasLt: no product of attribute %d, epilogue %u, pointer mode %d", d->other,
           d->epilogue, d->pointer_mode);
    return false;
  }
  const struct layout *a = layouts[GEMM_A], *b = layouts[GEMM_B], *out = layouts[GEMM_D];
  bool swap = swapped(layouts);
  for (int i = GEMM_A; i <= GEMM_D; i++) {
    int from = swap && i <= GEMM_B ? GEMM_A + GEMM_B - i : i;
    const struct layout *l = layouts[from];
    if (l->order > ORDER_ROWS || gemm_type_bytes((int)l->type) == 0 ||
        (i == GEMM_C && l->order != out->order) ||
        ((l->type == GEMM_C_32F || l->type == GEMM_C_64F) && l->order != 0) ||
        (swap && (d->epilogue & CUBLASLT_EPILOGUE_BIAS) != 0)) {
      rt_log("cublasLt: no product of order %u, type %u, epilogue %u", l->order, l->type,
             d->epilogue);
      return false;
    }
    s->ld[i] = l->ld;
    s->stride[i] = l->stride;
    s->type[i] = (int32_t)l->type;
  }
  s->m = (int64_t)(swap ? out->columns : out->rows);
  s->n = (int64_t)(swap ? out->rows : out->columns);
  s->k = (int64_t)(d->op_a == GEMM_OP_N ? a->columns : a->rows);
  s->op_a = swap ? op_of(d->op_b, b, true) : op_of(d->op_a, a, false);
  s->op_b = swap ? op_of(d->op_a, a, true) : op_of(d->op_b, b, false);
  s->batch_count = out->batch_count;
  s->scale_type = d->scale_type;
  s->bias_type = d->bias_type >= 0 ? d->bias_type : (int32_t)out->type;
  s->bias_stride = d->bias_stride;
  s->activation = d->epilogue & CUBLASLT_EPILOGUE_RELU   ? GEMM_RELU
                  : d->epilogue & CUBLASLT_EPILOGUE_GELU ? GEMM_GELU
                                                         : GEMM_IDENTITY;
  return true;
}

/* Collects the layouts of A, B, C, D; returns false if one is missing. */
static bool collect(const void *a, const void *b, const void *c, const void *d,
                    const struct layout *out[4]) {
  const void *all[] = {a, b, c, d};
  for (int i = 0; i < 4; i++) {
    if (all[i] == NULL) return false;
    out[i] = (const struct layout *)all[i];
  }
  return true;
}

BLAS_API(cublasLtMatmulAlgoGetHeuristic,
         (cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a,
          cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
          cublasLtMatmulPreference_t preference, int asked,
          cublasLtMatmulHeuristicResult_t results[], int *count)) {
  const struct layout *layouts[4];
  struct gemm_shape shape = {0};
  (void)handle, (void)preference;
  if (operation == NULL || asked < 1 || results == NULL || count == NULL ||
      !collect(a, b, c, d, layouts))
    return CUBLAS_STATUS_INVALID_VALUE;
  *count = 0;
  memset(results, 0, sizeof *results);
  if (!fill((const struct matmul *)(void *)operation, layouts, &shape))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  results->state = CUBLAS_STATUS_SUCCESS;
  results->wavesCount = 1;
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}

BLAS_API(cublasLtMatmul, (cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                          const void *alpha, const void *a, cublasLtMatrixLayout_t layout_a,
                          const void *b, cublasLtMatrixLayout_t layout_b, const void *beta,
                          const void *c, cublasLtMatrixLayout_t layout_c, void *d,
                          cublasLtMatrixLayout_t layout_d, const cublasLtMatmulAlgo_t *algo,
                          void *workspace, size_t workspace_bytes, cudaStream_t stream)) {
  const struct matmul *m = (const struct matmul *)(void *)operation;
  const struct layout *layouts[4];
  struct gemm gemm = {0};
  (void)handle, (void)algo, (void)workspace, (void)workspace_bytes;
  if (m == NULL || alpha == NULL || beta == NULL ||
      !collect(layout_a, layout_b, layout_c, layout_d, layouts))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (!fill(m, layouts, &gemm.shape)) return CUBLAS_STATUS_NOT_SUPPORTED;
  bool swap = swapped(layouts);
  const void *pointers[] = {swap ? b : a, swap ? a : b, c, d};
  for (int i = GEMM_A; i <= GEMM_D; i++)
    gemm.pointers[i] = (uint64_t)(uintptr_t)pointers[i];
  if (m->epilogue & CUBLASLT_EPILOGUE_BIAS) gemm.pointers[GEMM_BIAS] = m->bias;
  if (m->pointer_mode == CUBLAS_POINTER_MODE_DEVICE) {
    gemm.pointers[GEMM_ALPHA] = (uint64_t)(uintptr_t)alpha;
    gemm.pointers[GEMM_BETA] = (uint64_t)(uintptr_t)beta;
  } else {
    gemm_scalar(m->scale_type, alpha, gemm.shape.alpha);
    gemm_scalar(m->scale_type, beta, gemm.shape.beta);
  }
  return blas_status(gemm_launch(&gemm, stream));
}
