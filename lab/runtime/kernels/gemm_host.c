/* gemm_host.c - functions that the virtual driver calls for the matrix product kernel.
 *
 * Sums are in float (in double for double and complex types), one column of D at a time.
 * A real library sums in another order. The code is not tuned for speed.
 */
#include <complex.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lab/runtime/gemm.h"
#include "touch.h"

RT_EXPORT unsigned pump_touch_pump_gemm(void **parameters, const unsigned grid[3],
                                        const unsigned block[3], struct touch *out,
                                        unsigned most);
RT_EXPORT double pump_cycles_pump_gemm(void **parameters, const unsigned grid[3],
                                       const unsigned block[3]);
RT_EXPORT void pump_host_pump_gemm(void **parameters, const unsigned grid[3],
                                   const unsigned block[3]);

static void read_parameters(void **parameters, struct gemm *out) {
  for (int i = 0; i < GEMM_POINTERS; i++)
    memcpy(&out->pointers[i], parameters[i], sizeof out->pointers[i]);
  memcpy(&out->shape, parameters[GEMM_POINTERS], sizeof out->shape);
}

/* Returns rows and columns as stored in memory. */
static void stored_size(const struct gemm_shape *s, int matrix, int64_t *rows,
                        int64_t *columns) {
  bool turned = (matrix == GEMM_A && s->op_a != GEMM_OP_N) ||
                (matrix == GEMM_B && s->op_b != GEMM_OP_N);
  int64_t height = matrix == GEMM_B ? s->k : s->m;
  int64_t width = matrix == GEMM_A ? s->k : s->n;
  *rows = turned ? width : height;
  *columns = turned ? height : width;
}

static uint64_t span_bytes(const struct gemm_shape *s, int matrix) {
  int64_t rows, columns;
  stored_size(s, matrix, &rows, &columns);
  if (rows <= 0 || columns <= 0) return 0;
  int64_t last = (s->batch_count - 1) * s->stride[matrix] + (columns - 1) * s->ld[matrix];
  return (uint64_t)(last + rows) * gemm_type_bytes(s->type[matrix]);
}

static bool reads_c(const struct gemm *gemm) {
  const struct gemm_shape *s = &gemm->shape;
  return gemm->pointers[GEMM_BETA] != 0 || s->beta[0] != 0 || s->beta[1] != 0;
}

unsigned pump_touch_pump_gemm(void **parameters, const unsigned grid[3],
                              const unsigned block[3], struct touch *out, unsigned most) {
  struct gemm gemm;
  unsigned count = 0;
  (void)grid, (void)block, (void)most; /* space for more than the few parts used here */
  read_parameters(parameters, &gemm);
  const struct gemm_shape *s = &gemm.shape;
  for (int i = GEMM_A; i <= GEMM_D; i++) {
    if (i == GEMM_C && !reads_c(&gemm)) continue;
    uint64_t length = s->pointer_arrays ? (uint64_t)s->batch_count * 8 : span_bytes(s, i);
    if (length == 0) continue;
    if (i != GEMM_D) length |= TOUCH_READ;
    if (i == GEMM_B) length |= TOUCH_WIDE; /* like uvm_wide_uses() for a recording */
    out[count++] = (struct touch){gemm.pointers[i], length};
  }
  if (gemm.pointers[GEMM_BIAS] != 0)
    out[count++] =
        (struct touch){gemm.pointers[GEMM_BIAS],
                       (uint64_t)s->m * gemm_type_bytes(s->bias_type) | TOUCH_READ};
  return count;
}

/* Returns fused multiply-adds per cycle of a multiprocessor, from NVIDIA's description of
 * the A100 (GA100): with tensor cores for 16 bits and less, and for double. */
static double per_cycle(int type) {
  switch (type) {
  case GEMM_R_16F:
  case GEMM_R_16BF:
    return 1024;
  case GEMM_R_8I:
    return 2048;
  default:
    return 64;
  }
}

double pump_cycles_pump_gemm(void **parameters, const unsigned grid[3],
                             const unsigned block[3]) {
  struct gemm gemm;
  (void)grid, (void)block;
  read_parameters(parameters, &gemm);
  const struct gemm_shape *s = &gemm.shape;
  double products = (double)s->m * (double)s->n * (double)s->k * s->batch_count;
  bool is_complex = s->type[GEMM_A] == GEMM_C_32F || s->type[GEMM_A] == GEMM_C_64F;
  return products * (is_complex ? 4 : 1) / per_cycle(s->type[GEMM_A]);
}

/* -- elements -- */

static double _Complex get(int type, const void *base, int64_t index) {
  const char *at = (const char *)base + (size_t)index * gemm_type_bytes(type);
  uint16_t half;
  uint32_t bits;
  float number, pair[2];
  switch (type) {
  case GEMM_R_16BF:
    memcpy(&half, at, sizeof half);
    bits = (uint32_t)half << 16;
    memcpy(&number, &bits, sizeof number);
    return (double)number;
  case GEMM_R_8I:
    return *(const int8_t *)at;
  case GEMM_C_32F:
    memcpy(pair, at, sizeof pair);
    return (double)pair[0] + (double)pair[1] * I;
  default: {
    double value[2];
    gemm_scalar(type, at, value);
    return value[0] + value[1] * I;
  }
  }
}

/* Rounds to nearest, ties to even, as the hardware does. */
static uint16_t to_bfloat16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if (isnan(value)) return (uint16_t)(bits >> 16 | 0x40);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Rounds in the same way; the smallest step of a half is 2^-24. */
static uint16_t to_half(double value) {
  uint16_t sign = signbit(value) ? 0x8000 : 0;
  double size = fabs(value);
  if (isnan(value)) return 0x7e00;
  if (size >= 65520) return sign | 0x7c00;
  if (size < 0x1p-14) return (uint16_t)(sign | (uint16_t)nearbyint(size * 0x1p24));
  int exponent = ilogb(size);
  int fraction = (int)nearbyint(ldexp(size, 10 - exponent)); /* 1024 to 2048 */
  return (uint16_t)(sign | (((exponent + 14) << 10) + fraction));
}

static void put(int type, void *base, int64_t index, double _Complex value) {
  char *at = (char *)base + (size_t)index * gemm_type_bytes(type);
  double real = creal(value), pair[2] = {real, cimag(value)};
  float narrow[2] = {(float)pair[0], (float)pair[1]};
  uint16_t half = to_half(real);
  uint16_t brain = to_bfloat16(narrow[0]);
  int32_t whole = type == GEMM_R_32I || type == GEMM_R_8I ? (int32_t)real : 0;
  int8_t small = (int8_t)(whole > 127 ? 127 : whole < -128 ? -128 : whole);
  switch (type) {
  case GEMM_R_16F:
    memcpy(at, &half, 2);
    break;
  case GEMM_R_16BF:
    memcpy(at, &brain, 2);
    break;
  case GEMM_R_8I:
    memcpy(at, &small, 1);
    break;
  case GEMM_R_32I:
    memcpy(at, &whole, 4);
    break;
  case GEMM_R_64F:
    memcpy(at, pair, 8);
    break;
  case GEMM_C_32F:
    memcpy(at, narrow, 8);
    break;
  case GEMM_C_64F:
    memcpy(at, pair, 16);
    break;
  default:
    memcpy(at, narrow, 4);
  }
}

/* -- the product -- */

struct work {
  const struct gemm_shape *shape;
  const void *matrix[4];
  const void *bias;
  double _Complex alpha, beta;
  bool wide;            /* complex, with sums in double */
  float *rows, *column; /* copies: op(A) in row order, one column of op(B) */
  double _Complex *wide_rows, *wide_column;
};

static double _Complex operand(const struct work *w, int matrix, int64_t row,
                               int64_t column) {
  const struct gemm_shape *s = w->shape;
  int op = matrix == GEMM_A ? s->op_a : s->op_b;
  int64_t index =
      op == GEMM_OP_N ? row + column * s->ld[matrix] : column + row * s->ld[matrix];
  double _Complex value = get(s->type[matrix], w->matrix[matrix], index);
  return op == GEMM_OP_C ? conj(value) : value;
}

/* Keeps eight sums in parallel, so that the compiler can vectorize. */
static float dot(const float *a, const float *b, int64_t count) {
  float sums[8] = {0};
  int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    for (int lane = 0; lane < 8; lane++) sums[lane] += a[i + lane] * b[i + lane];
  for (; i < count; i++) sums[i & 7] += a[i] * b[i];
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) +
         ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

static double _Complex wide_dot(const double _Complex *a, const double _Complex *b,
                                int64_t count) {
  double _Complex sum = 0;
  for (int64_t i = 0; i < count; i++) sum += a[i] * b[i];
  return sum;
}

static double activate(int activation, double x) {
  if (activation == GEMM_RELU) return x > 0 ? x : 0;
  if (activation == GEMM_GELU) /* the tanh form */
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
  return x;
}

static void one_column(struct work *w, int64_t column) {
  const struct gemm_shape *s = w->shape;
  for (int64_t i = 0; i < s->k; i++) {
    double _Complex value = operand(w, GEMM_B, i, column);
    if (w->wide)
      w->wide_column[i] = value;
    else
      w->column[i] = (float)creal(value);
  }
  for (int64_t row = 0; row < s->m; row++) {
    double _Complex sum =
        w->wide ? wide_dot(w->wide_rows + row * s->k, w->wide_column, s->k)
                : (double _Complex)(double)dot(w->rows + row * s->k, w->column, s->k);
    sum *= w->alpha;
    if (w->beta != 0)
      sum +=
          w->beta * get(s->type[GEMM_C], w->matrix[GEMM_C], row + column * s->ld[GEMM_C]);
    if (w->bias != NULL) sum += get(s->bias_type, w->bias, row);
    if (s->activation != GEMM_IDENTITY) sum = activate(s->activation, creal(sum));
    put(s->type[GEMM_D], (void *)(uintptr_t)w->matrix[GEMM_D], row + column * s->ld[GEMM_D],
        sum);
  }
}

static void one_product(struct work *w) {
  const struct gemm_shape *s = w->shape;
  for (int64_t row = 0; row < s->m; row++)
    for (int64_t i = 0; i < s->k; i++) {
      double _Complex value = operand(w, GEMM_A, row, i);
      if (w->wide)
        w->wide_rows[row * s->k + i] = value;
      else
        w->rows[row * s->k + i] = (float)creal(value);
    }
  for (int64_t column = 0; column < s->n; column++) one_column(w, column);
}

static const void *matrix_of(const struct gemm *gemm, int matrix, int64_t batch) {
  const struct gemm_shape *s = &gemm->shape;
  const char *base = (const char *)(uintptr_t)gemm->pointers[matrix];
  const void *pointer = base;
  if (base == NULL) return NULL;
  if (s->pointer_arrays)
    memcpy(&pointer, base + 8 * batch, sizeof pointer);
  else
    pointer = base + batch * s->stride[matrix] * (int64_t)gemm_type_bytes(s->type[matrix]);
  return pointer;
}

static double _Complex scalar(CUdeviceptr pointer, int type, const double given[2]) {
  double value[2] = {given[0], given[1]};
  if (pointer != 0) gemm_scalar(type, (const void *)(uintptr_t)pointer, value);
  return value[0] + value[1] * I;
}

void pump_host_pump_gemm(void **parameters, const unsigned grid[3],
                         const unsigned block[3]) {
  struct gemm gemm;
  (void)grid, (void)block;
  read_parameters(parameters, &gemm);
  const struct gemm_shape *s = &gemm.shape;
  struct work w = {.shape = s};
  w.wide = s->type[GEMM_D] == GEMM_R_64F || s->type[GEMM_D] == GEMM_C_32F ||
           s->type[GEMM_D] == GEMM_C_64F || s->type[GEMM_D] == GEMM_R_32I;
  size_t element = w.wide ? sizeof(double _Complex) : sizeof(float);
  void *rows = malloc((size_t)(s->m * s->k + 1) * element);
  void *column = malloc((size_t)(s->k + 1) * element);
  w.alpha = scalar(gemm.pointers[GEMM_ALPHA], s->scale_type, s->alpha);
  w.beta = scalar(gemm.pointers[GEMM_BETA], s->scale_type, s->beta);
  w.rows = w.wide ? NULL : rows;
  w.column = w.wide ? NULL : column;
  w.wide_rows = w.wide ? rows : NULL;
  w.wide_column = w.wide ? column : NULL;
  for (int64_t batch = 0; rows != NULL && column != NULL && batch < s->batch_count;
       batch++) {
    for (int i = GEMM_A; i <= GEMM_D; i++) w.matrix[i] = matrix_of(&gemm, i, batch);
    CUdeviceptr bias = gemm.pointers[GEMM_BIAS];
    if (bias != 0)
      bias += (uint64_t)(batch * s->bias_stride) * gemm_type_bytes(s->bias_type);
    w.bias = (const void *)(uintptr_t)bias;
    one_product(&w);
  }
  free(rows);
  free(column);
}
