/* kernels.cu - the kernels of the examples: a deep perceptron and Adam; a sweep, a gather,
 * embedding bags.
 *
 * NVRTC compiles this file for the GPU. A C compiler compiles it, after host_kernels.h, into
 * host functions for the virtual GPU's compute mode. So it uses only the common subset of
 * CUDA C++ and C11.
 *
 * DESIGN
 * Results are bit-identical in every run: one thread sums each output element in a fixed
 * order, without atomics. Every kernel is a grid-stride loop over its work items, so that the
 * grid does not affect the result. On the host the grid is one thread, which processes all
 * items.
 *
 * Matrices are row major. A layer maps x [batch, inputs] to y [batch, outputs]
 * with weights [inputs, outputs]. An item of the products is ROWS rows times
 * TILE columns: on the GPU TILE is 1 (neighbouring threads read neighbouring
 * columns), on the host it is as wide as the inner, vectorised loop wants.
 * batch and inputs must be multiples of ROWS; outputs may be anything.
 */
#ifdef __CUDACC__
#define KERNEL extern "C" __global__
#define DEVICE static __device__ __forceinline__
#define TILE 1
#define TILE_WIDTH(left) 1 /* a constant, so that the sums live in registers */
#define LANES 4
#endif

#define ROWS 8 /* train_mlp.py checks its shapes against it */

/* The work items of this thread. */
#define FOR_EACH_ITEM(item, count)                                                         \
  for (unsigned item = blockIdx.x * blockDim.x + threadIdx.x; item < (unsigned)(count);    \
       item += gridDim.x * blockDim.x)

/* sum[r][c] = sum over j of a[r * row_step + j * inner_step] * b[j][column + c] */
DEVICE void multiply_tile(float sum[ROWS][TILE], const float *__restrict__ a, int row_step,
                          int inner_step, const float *__restrict__ b, int inner,
                          int columns, int column) {
  const int width = TILE_WIDTH(columns - column);
  for (int r = 0; r < ROWS; r++)
    for (int c = 0; c < TILE; c++) sum[r][c] = 0.0f;
  for (int j = 0; j < inner; j++) {
    const float *__restrict__ line = b + (size_t)j * columns + column;
    for (int r = 0; r < ROWS; r++) {
      const float factor = a[(size_t)r * row_step + (size_t)j * inner_step];
      for (int c = 0; c < width; c++) sum[r][c] += factor * line[c];
    }
  }
}

/* y = x * weights + bias, then max(0, y) where relu is not 0 */
KERNEL void dense_forward(float *__restrict__ y, const float *__restrict__ x,
                          const float *__restrict__ weights, const float *__restrict__ bias,
                          int batch, int inputs, int outputs, int relu) {
  const int tiles = (outputs + TILE - 1) / TILE;
  FOR_EACH_ITEM(item, batch / ROWS * tiles) {
    const int row = (int)(item / tiles) * ROWS, column = (int)(item % tiles) * TILE;
    const int width = TILE_WIDTH(outputs - column);
    float sum[ROWS][TILE];
    multiply_tile(sum, x + (size_t)row * inputs, inputs, 1, weights, inputs, outputs,
                  column);
    for (int r = 0; r < ROWS; r++)
      for (int c = 0; c < width; c++) {
        const float value = sum[r][c] + bias[column + c];
        y[(size_t)(row + r) * outputs + column + c] = relu ? fmaxf(value, 0.0f) : value;
      }
  }
}

/* weights_grad = transpose(x) * y_grad */
KERNEL void dense_backward_weights(float *__restrict__ weights_grad,
                                   const float *__restrict__ x,
                                   const float *__restrict__ y_grad, int batch, int inputs,
                                   int outputs) {
  const int tiles = (outputs + TILE - 1) / TILE;
  FOR_EACH_ITEM(item, inputs / ROWS * tiles) {
    const int row = (int)(item / tiles) * ROWS, column = (int)(item % tiles) * TILE;
    const int width = TILE_WIDTH(outputs - column);
    float sum[ROWS][TILE];
    multiply_tile(sum, x + row, 1, inputs, y_grad, batch, outputs, column);
    for (int r = 0; r < ROWS; r++)
      for (int c = 0; c < width; c++)
        weights_grad[(size_t)(row + r) * outputs + column + c] = sum[r][c];
  }
}

/* bias_grad = column sums of y_grad */
KERNEL void dense_backward_bias(float *__restrict__ bias_grad,
                                const float *__restrict__ y_grad, int batch, int outputs) {
  FOR_EACH_ITEM(column, outputs) {
    float sum = 0.0f;
    for (int row = 0; row < batch; row++) sum += y_grad[(size_t)row * outputs + column];
    bias_grad[column] = sum;
  }
}

/* x_grad = y_grad * transpose(weights), where x, an output of relu, is above 0 */
KERNEL void dense_backward_input(float *__restrict__ x_grad,
                                 const float *__restrict__ y_grad,
                                 const float *__restrict__ weights,
                                 const float *__restrict__ x, int batch, int inputs,
                                 int outputs) {
  FOR_EACH_ITEM(item, batch / ROWS * inputs) {
    const int row = (int)(item / inputs) * ROWS, input = (int)(item % inputs);
    const float *__restrict__ line = weights + (size_t)input * outputs;
    const float *__restrict__ grad = y_grad + (size_t)row * outputs;
    float sum[ROWS][LANES];
    for (int r = 0; r < ROWS; r++)
      for (int c = 0; c < LANES; c++) sum[r][c] = 0.0f;
    int o = 0;
    for (; o + LANES <= outputs; o += LANES)
      for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < LANES; c++)
          sum[r][c] += grad[(size_t)r * outputs + o + c] * line[o + c];
    for (; o < outputs; o++)
      for (int r = 0; r < ROWS; r++) sum[r][0] += grad[(size_t)r * outputs + o] * line[o];
    for (int r = 0; r < ROWS; r++) {
      const size_t at = (size_t)(row + r) * inputs + input;
      float total = 0.0f;
      for (int c = 0; c < LANES; c++) total += sum[r][c];
      x_grad[at] = x[at] > 0.0f ? total : 0.0f;
    }
  }
}

/* Per row: loss = -log softmax(logits)[label]; logits_grad is the mean loss's gradient. */
KERNEL void softmax_loss(float *__restrict__ loss, float *__restrict__ logits_grad,
                         const float *__restrict__ logits, const int *__restrict__ labels,
                         int batch, int classes) {
  FOR_EACH_ITEM(row, batch) {
    const float *__restrict__ line = logits + (size_t)row * classes;
    const int label = labels[row];
    float top = line[0], sum = 0.0f;
    for (int c = 1; c < classes; c++) top = fmaxf(top, line[c]);
    for (int c = 0; c < classes; c++) sum += expf(line[c] - top);
    loss[row] = logf(sum) - (line[label] - top);
    for (int c = 0; c < classes; c++)
      logits_grad[(size_t)row * classes + c] =
          (expf(line[c] - top) / sum - (c == label ? 1.0f : 0.0f)) / (float)batch;
  }
}

/* Adam. mean_scale = 1 / (1 - mean_decay^t), square_scale likewise, t from 1. */
KERNEL void adam(float *__restrict__ value, const float *__restrict__ grad,
                 float *__restrict__ mean, float *__restrict__ square, int count,
                 float rate, float mean_decay, float square_decay, float mean_scale,
                 float square_scale) {
  FOR_EACH_ITEM(i, count) {
    const float g = grad[i];
    const float m = mean_decay * mean[i] + (1.0f - mean_decay) * g;
    const float s = square_decay * square[i] + (1.0f - square_decay) * g * g;
    mean[i] = m;
    square[i] = s;
    value[i] -= rate * (m * mean_scale) / (sqrtf(s * square_scale) + 1e-8f);
  }
}

/* Uniform in [-bound, bound), from a hash of (seed, index): no state, any grid. */
KERNEL void init_uniform(float *__restrict__ value, int count, unsigned seed, float bound) {
  FOR_EACH_ITEM(i, count) {
    unsigned h = (unsigned)i * 0x9e3779b9u + seed * 0x85ebca6bu;
    h = (h ^ (h >> 16)) * 0x7feb352du;
    h = (h ^ (h >> 15)) * 0x846ca68bu;
    h ^= h >> 16;
    value[i] = ((float)(h >> 8) * (1.0f / 8388608.0f) - 1.0f) * bound;
  }
}

KERNEL void fill(float *__restrict__ value, int count, float constant) {
  FOR_EACH_ITEM(i, count) value[i] = constant;
}

/* One pass over a buffer with `rounds` multiply-adds: 2 * rounds / 4 flops a byte. */
KERNEL void sweep(float *__restrict__ buffer, int count, int rounds) {
  FOR_EACH_ITEM(i, count) {
    float value = buffer[i];
    for (int r = 0; r < rounds; r++) value = value * 0.999f + 0.001f;
    buffer[i] = value;
  }
}

/* sums[r] += table[index[r]], rows of `width` values, with the same arithmetic as sweep. */
KERNEL void gather(float *__restrict__ sums, const float *__restrict__ table,
                   const int *__restrict__ index, int rows, int width, int rounds) {
  FOR_EACH_ITEM(i, rows * width) {
    float value = table[(size_t)index[i / width] * width + i % width];
    for (int r = 0; r < rounds; r++) value = value * 0.999f + 0.001f;
    sums[i] += value;
  }
}

/* sums[b] = the sum of the `count` rows of `table` that `ids` names for bag b, each with the
 * same arithmetic as sweep. Rows have `width` values. */
KERNEL void embedding_bag(float *__restrict__ sums, const float *__restrict__ table,
                          const int *__restrict__ ids, int bags, int count, int width,
                          int rounds) {
  FOR_EACH_ITEM(i, bags * width) {
    const int *bag = ids + (size_t)(i / width) * count;
    float sum = 0;
    for (int j = 0; j < count; j++) {
      float value = table[(size_t)bag[j] * width + i % width];
      for (int r = 0; r < rounds; r++) value = value * 0.999f + 0.001f;
      sum += value;
    }
    sums[i] = sum;
  }
}
