/* torch_kernels.c - which memory PyTorch's kernels touch whose parameters say more than
 * their pointers do (PUMP_VIRTUAL_KERNELS; lab/driver/code/touch.c has the interface).
 *
 * A modelled kernel touches all that its pointers reach. Some of PyTorch's kernels are
 * given pointers that they never follow: what is passed by value, tables of addresses or
 * shapes, has room for more than a launch has, and in the rest stands what the launch
 * before left on the stack; and a reduction gets a scratch buffer of which it uses some
 * percent. A quarter of all blocks that a training with foreach AdamW seems to touch is of
 * that kind; of a decoder that generates, the weights of each attention.
 *
 * Here the kernels are played as the device runs them, block of threads by block of
 * threads. Source: PyTorch 2.11, ATen/native/cuda/MultiTensorApply.cuh, Reduce.cuh,
 * Loops.cuh, OffsetCalculator.cuh and Indexing.cu. For the types that the benchmarks have;
 * other kernels stay unknown.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_ELEMENTS 65536u
#define BLOCKS_MOST 320u
#define TO_THE_END (1ull << 40) /* of the allocation: longer parts are cut there */
#define READ (1ull << 63)       /* in a length: it is only read */

struct pump_touch {
  uint64_t address, length_bytes;
};
int pump_touch_any(const char *kernel, const void *parameters, unsigned parameter_bytes,
                   const unsigned grid[3], const unsigned block[3], struct pump_touch *out,
                   unsigned most);

struct parts {
  struct pump_touch *out;
  unsigned count, most;
};

static void add(struct parts *parts, uint64_t address, uint64_t length_bytes) {
  if (address == 0 || length_bytes == 0) return;
  if (parts->count < parts->most)
    parts->out[parts->count] = (struct pump_touch){address, length_bytes};
  parts->count++;
}

static uint64_t word(const uint8_t *at) {
  uint64_t value;
  memcpy(&value, at, sizeof value);
  return value;
}

static int32_t number(const uint8_t *at) {
  int32_t value;
  memcpy(&value, at, sizeof value);
  return value;
}

/* ---- multi_tensor_apply ------------------------------------------------------------- */

/* addresses[depth][room], numel[room], with scalars: scalar_vals[room] of float, tensor of
 * each block of threads (a byte), its chunk of that tensor (an int). */
static int multi_tensor(const uint8_t *table, unsigned bytes, unsigned depth, int scalars,
                        const unsigned grid[3], struct parts *parts) {
  static const unsigned rooms[] = {110, 64, 48, 36, 30};
  if (depth < 1 || depth > 5) return -1;
  unsigned room = scalars && depth == 1 ? 96 : rooms[depth - 1];
  const uint8_t *numel = table + 8 * depth * room;
  const uint8_t *tensor_of = numel + 8 * room + (scalars ? 4 * room : 0);
  const uint8_t *chunk_of = tensor_of + BLOCKS_MOST;
  if (grid[0] > BLOCKS_MOST || chunk_of + 4 * BLOCKS_MOST > table + bytes) return -1;
  for (unsigned b = 0; b < grid[0]; b++) {
    unsigned tensor = tensor_of[b];
    uint64_t first = (uint64_t)number(chunk_of + 4 * b) * CHUNK_ELEMENTS;
    if (tensor >= room || first >= word(numel + 8 * tensor)) return -1;
    uint64_t left = word(numel + 8 * tensor) - first;
    if (left > CHUNK_ELEMENTS) left = CHUNK_ELEMENTS;
    for (unsigned list = 0; list < depth; list++)
      add(parts, word(table + 8 * (list * room + tensor)) + first * sizeof(float),
          left * sizeof(float));
  }
  return 0;
}

/* ---- reduce_kernel --------------------------------------------------------------------
 */

/* struct ReduceOp: {ops, identity, configuration, two calculators, source, destination[2],
 * accumulator, scratch, semaphores, base, flags}. An element of the scratch buffer is what
 * the identity is: a float of a sum, a float and an index of a maximum's place. */
enum { /* ints of the configuration */
       BLOCKS_PER_OUTPUT = 5,
       INPUT_MULT = 6,
       WIDTH = 11,
       HEIGHT = 12,
       THREADS = 13,
       VECTOR = 15,
};

static int reduce(const uint8_t *operation, unsigned bytes, unsigned element_bytes,
                  const unsigned grid[3], const unsigned block[3], struct parts *parts) {
  if (bytes < 256) return -1;
  const uint8_t *tail = operation + bytes - 64;
  int32_t config[16];
  unsigned identity = element_bytes < 8 ? element_bytes : 8; /* its place, by alignment */
  memcpy(config, operation + identity + element_bytes, sizeof config);
  if (config[WIDTH] != (int32_t)block[0] || config[HEIGHT] != (int32_t)block[1] ||
      config[THREADS] != config[WIDTH] * config[HEIGHT] || config[VECTOR] < 1 ||
      config[BLOCKS_PER_OUTPUT] != (int32_t)grid[1])
    return -1;
  add(parts, word(tail), TO_THE_END | READ);
  for (unsigned i = 1; i < 4; i++) add(parts, word(tail + 8 * i), TO_THE_END);
  if (config[INPUT_MULT + 2] == 0) return 0; /* nothing is left for other blocks */
  /* The highest place that a block writes: staging_memory_offset. */
  uint64_t places = (uint64_t)grid[0] * grid[1];
  if (config[INPUT_MULT] == 0) places *= block[0];
  add(parts, word(tail + 32), places * (uint64_t)config[VECTOR] * element_bytes);
  add(parts, word(tail + 40), grid[0] * sizeof(int));
  return 0;
}

/* ---- elementwise_kernel, without casts ------------------------------------------------
 */

#define DIMENSIONS_MOST 25u
#define SIZES 12u /* behind the number of elements, and of dimensions; 12 bytes each */
#define STRIDES (SIZES + 12 * DIMENSIONS_MOST)

/* {elements, {calculator: dimensions, sizes, strides[dimension][tensor]; addresses[tensor],
 * function}}: the first tensor is the result. */
static int elementwise(const uint8_t *launch, unsigned bytes, struct parts *parts) {
  unsigned tensors = 1, dimensions = (unsigned)number(launch + 8);
  while (STRIDES + (4 * DIMENSIONS_MOST + 8) * (tensors + 1) + 16 <= bytes) tensors++;
  unsigned addresses = (STRIDES + 4 * DIMENSIONS_MOST * tensors + 7) / 8 * 8;
  if (bytes < addresses + 8 * tensors || dimensions > DIMENSIONS_MOST) return -1;
  for (unsigned tensor = 0; tensor < tensors; tensor++) {
    uint64_t last = 0, element_bytes = 8;
    for (unsigned i = 0; i < dimensions; i++) {
      uint32_t size = (uint32_t)number(launch + SIZES + 12 * i);
      uint32_t stride = (uint32_t)number(launch + STRIDES + 4 * (tensors * i + tensor));
      last += (uint64_t)(size - 1) * stride;
    }
    add(parts, word(launch + addresses + 8 * tensor),
        (last + element_bytes) | (tensor != 0 ? READ : 0));
  }
  return 0;
}

/* ---- indexSelectSmallIndex ------------------------------------------------------------
 */

/* Of int: {address, sizes[25], strides[25], dimensions}. */
#define TENSOR_INFO (8 + 4 * (2 * DIMENSIONS_MOST + 1) + 4)

/* {result, source, indices, ...}; of the source any row. */
static int index_select(const uint8_t *launch, unsigned bytes, struct parts *parts) {
  if (bytes < 3 * TENSOR_INFO) return -1;
  add(parts, word(launch), TO_THE_END);
  add(parts, word(launch + TENSOR_INFO), TO_THE_END | READ);
  add(parts, word(launch + 2 * TENSOR_INFO), TO_THE_END | READ);
  return 0;
}

/* ---- by name ----------------------------------------------------------------------------
 */

int pump_touch_any(const char *kernel, const void *parameters, unsigned parameter_bytes,
                   const unsigned grid[3], const unsigned block[3], struct pump_touch *out,
                   unsigned most) {
  static const char plain[] = "TensorListMetadataILi";
  static const char with_scalars[] = "TensorListScalarListMetadataIfLi";
  struct parts parts = {.out = out, .most = most};
  int known = -1;
  if (strstr(kernel, "multi_tensor_apply_kernel") != NULL) {
    const char *depth = strstr(kernel, plain), *scalars = strstr(kernel, with_scalars);
    if (depth != NULL)
      known = multi_tensor(parameters, parameter_bytes,
                           (unsigned)atoi(depth + sizeof plain - 1), 0, grid, &parts);
    else if (scalars != NULL)
      known =
          multi_tensor(parameters, parameter_bytes,
                       (unsigned)atoi(scalars + sizeof with_scalars - 1), 1, grid, &parts);
  } else if (strstr(kernel, "13reduce_kernel") != NULL) {
    unsigned element_bytes = strstr(kernel, "sum_functorIfff") != NULL  ? 4
                             : strstr(kernel, "ArgMaxOpsIfEEj") != NULL ? 16
                                                                        : 0;
    if (element_bytes != 0)
      known = reduce(parameters, parameter_bytes, element_bytes, grid, block, &parts);
  } else if (strstr(kernel, "gpu_kernel_impl_nocast") != NULL &&
             strstr(kernel, "18elementwise_kernel") != NULL) {
    known = elementwise(parameters, parameter_bytes, &parts);
  } else if (strstr(kernel, "indexSelectSmallIndex") != NULL &&
             strstr(kernel, "EljL") != NULL) {
    known = index_select(parameters, parameter_bytes, &parts);
  }
  return known < 0 ? -1 : (int)parts.count;
}
