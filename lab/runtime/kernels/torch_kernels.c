/* torch_kernels.c - memory touched by those PyTorch kernels whose parameters hold more
 * pointers than the kernels follow (interface: lab/driver/code/touch.c).
 *
 * A modelled kernel touches each block that one of its pointers is in, from the pointer
 * to the block's end. Some of PyTorch's kernels get pointers that they never follow. A
 * table of addresses or shapes is passed by value and has space for more entries than a
 * launch uses. The rest holds stack contents of the previous launch. A reduction uses
 * only a few percent of its scratch buffer. A convolution without cuDNN gets one sample
 * of a batch after the other.
 *
 * Each function below follows the parameters as the kernel does. It returns -1 for
 * parameters that do not match the known structure. Source: PyTorch 2.11,
 * ATen/native/cuda/MultiTensorApply.cuh, Reduce.cuh, ForeachReduceOp.cu, Shape.cu,
 * Loops.cuh, OffsetCalculator.cuh, Indexing.cu and im2col.cuh.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "touch.h"

#define TO_THE_END (1ull << 40) /* to the block's end: the driver cuts longer parts */
#define READ TOUCH_READ

__attribute__((visibility("default"))) int
pump_touch_any(const char *kernel, const void *parameters, unsigned parameter_bytes,
               const unsigned grid[3], const unsigned block[3], struct touch *out,
               unsigned most);

struct parts {
  struct touch *out;
  unsigned count, most;
};

static void add(struct parts *parts, uint64_t address, uint64_t length_bytes) {
  if (address == 0 || length_bytes == 0) return;
  if (parts->count < parts->most)
    parts->out[parts->count] = (struct touch){address, length_bytes};
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

/* ---- types in mangled names --------------------------------------------------------- */

/* Returns the size of the type that the mangled name `text` begins with; 0: unknown. */
static unsigned type_bytes(const char *text) {
  static const struct {
    const char *code;
    unsigned bytes;
  } types[] = {{"N3c104HalfE", 2},
               {"N3c108BFloat16E", 2},
               {"N3c107complexIfE", 8},
               {"N3c107complexIdE", 16},
               {"f", 4},
               {"d", 8},
               {"i", 4},
               {"l", 8},
               {"s", 2},
               {"h", 1},
               {"a", 1},
               {"b", 1}};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (strncmp(text, types[i].code, strlen(types[i].code)) == 0) return types[i].bytes;
  return 0;
}

/* Returns the text after the first `word` in the kernel's name, or NULL. */
static const char *after(const char *kernel, const char *word) {
  const char *found = strstr(kernel, word);
  return found == NULL ? NULL : found + strlen(word);
}

/* Returns the size of the functor's first template argument, which is the tensors' type. */
static unsigned functor_bytes(const char *kernel) {
  const char *at = after(kernel, "FunctorI");
  while (at != NULL && type_bytes(at) == 0) at = after(at, "FunctorI");
  return at == NULL ? 0 : type_bytes(at);
}

/* ---- multi_tensor_apply ------------------------------------------------------------- */

#define CHUNK_ELEMENTS 65536u
#define BLOCKS_MOST 320u

/* {addresses[depth][slots], elements[slots], extra[slots], tensor of each thread block (a
 * byte), its chunk of that tensor (an int)}. `extra`: scalars, or addresses of optimizer
 * steps (at most 96, as for scalars). */
struct table {
  unsigned depth, slots, extra_bytes;
  bool steps;
};

static bool multi_table(const char *kernel, struct table *table) {
  static const unsigned slots[] = {110, 64, 48, 36, 30};
  const char *plain = after(kernel, "18TensorListMetadataILi");
  const char *scalars = after(kernel, "28TensorListScalarListMetadataI");
  const char *steps = after(kernel, "32FusedOptimizerTensorListMetadataILi");
  const char *depth = plain ? plain : steps ? steps : scalars ? after(scalars, "Li") : NULL;
  if (depth == NULL || *depth < '1' || *depth > '5') return false;
  *table = (struct table){.depth = (unsigned)(*depth - '0'), .steps = steps != NULL};
  table->slots = slots[table->depth - 1];
  if (steps) table->extra_bytes = 8;
  if (scalars) {
    table->extra_bytes = type_bytes(scalars);
    if (table->extra_bytes == 16 && table->depth <= 2)
      table->slots = table->depth == 1 ? 72 : 60; /* for complex doubles */
    else if (table->depth == 1)
      table->slots = 96;
  }
  return scalars == NULL || table->extra_bytes != 0;
}

static int multi_tensor(const char *kernel, const uint8_t *parameters, unsigned bytes,
                        const unsigned grid[3], struct parts *parts) {
  struct table table;
  uint64_t element_bytes = functor_bytes(kernel);
  if (!multi_table(kernel, &table) || element_bytes == 0) return -1;
  const uint8_t *elements = parameters + 8 * table.depth * table.slots;
  const uint8_t *extra = elements + 8 * table.slots;
  unsigned extras = table.steps && table.depth == 1 ? 96 : table.slots;
  const uint8_t *tensor_of = extra + table.extra_bytes * extras;
  const uint8_t *chunk_of = tensor_of + BLOCKS_MOST;
  const uint8_t *rest = chunk_of + 4 * BLOCKS_MOST;
  if (grid[0] > BLOCKS_MOST || rest > parameters + bytes) return -1;
  for (unsigned b = 0; b < grid[0]; b++) {
    unsigned tensor = tensor_of[b];
    uint64_t first = (uint64_t)number(chunk_of + 4 * b) * CHUNK_ELEMENTS;
    if (tensor >= table.slots || first >= word(elements + 8 * tensor)) return -1;
    uint64_t left = word(elements + 8 * tensor) - first;
    if (left > CHUNK_ELEMENTS) left = CHUNK_ELEMENTS;
    for (unsigned list = 0; list < table.depth; list++)
      add(parts,
          word(parameters + 8 * (list * table.slots + tensor)) + first * element_bytes,
          left * element_bytes);
    if (table.steps) add(parts, word(extra + 8 * tensor), sizeof(float) | READ);
  }
  /* The functor and its own arguments, which every launch sets. */
  for (size_t at = ((size_t)(rest - parameters) + 7) / 8 * 8; at + 8 <= bytes; at += 8)
    add(parts, word(parameters + at), TO_THE_END);
  return 0;
}

/* {pointer, addresses[]}: each thread block writes one number (lpnorm_cleanup). */
static int address_list(const uint8_t *parameters, unsigned bytes, const unsigned grid[3],
                        struct parts *parts) {
  if (bytes < 8 || grid[0] > (bytes - 8) / 8) return -1;
  add(parts, word(parameters), TO_THE_END | READ);
  for (unsigned i = 0; i < grid[0]; i++)
    add(parts, word(parameters + 8 + 8 * i), sizeof(double));
  return 0;
}

/* ---- CatArrayBatchedCopy ------------------------------------------------------------ */

/* {result, {inputs[n], offsets[n], sizes[n], elements[n], contiguous[n] (a byte),
 * shapes}, shape, dimension, stride}: 32-bit numbers; a shape has 8. The inputs have one
 * shape together, or one each. An input that is not contiguous may reach further. */
static int concatenation(const char *kernel, const uint8_t *parameters, unsigned bytes,
                         const unsigned grid[3], struct parts *parts) {
  const char *type = after(kernel, "OpaqueTypeILj");
  uint64_t element_bytes = type == NULL ? 0 : (uint64_t)atoi(type);
  unsigned n = 8;
  while (n <= 256 && bytes != 8 + 21 * n + 40 + 32 && bytes != 8 + 21 * n + 40 + 32 * n)
    n *= 2;
  if (n > 256 || element_bytes == 0 || grid[1] > n) return -1;
  const uint8_t *inputs = parameters + 8, *elements = inputs + 16 * n;
  const uint8_t *contiguous = elements + 4 * n;
  bool shapes = bytes != 8 + 21 * n + 40 + 32;
  add(parts, word(parameters), TO_THE_END);
  for (unsigned i = 0; i < grid[1]; i++) {
    uint64_t length = (uint32_t)number(elements + 4 * i) * element_bytes;
    if (shapes && contiguous[i] == 0 && length != 0) length = TO_THE_END;
    add(parts, word(inputs + 8 * i), length | READ);
  }
  return 0;
}

/* ---- reduce_kernel ------------------------------------------------------------------ */

/* struct ReduceOp: {operation, identity, configuration, two calculators, source,
 * destination[2], accumulator, scratch, semaphores, base, flags}. The identity's type
 * varies, so the configuration is recognized by its match with the launch. */
enum { /* ints of the configuration */
       ELEMENT_BYTES = 0,
       BLOCKS_PER_OUTPUT = 5,
       INPUT_MULT = 6,
       WIDTH = 11,
       HEIGHT = 12,
       THREADS = 13,
       VECTOR = 15,
       CONFIGURATION = 16
};

static bool configured(const int32_t *config, const unsigned grid[3],
                       const unsigned block[3]) {
  return config[WIDTH] == (int32_t)block[0] && config[HEIGHT] == (int32_t)block[1] &&
         (unsigned)config[THREADS] == block[0] * block[1] &&
         config[BLOCKS_PER_OUTPUT] == (int32_t)grid[1] && config[VECTOR] >= 1 &&
         config[VECTOR] <= 16 && config[ELEMENT_BYTES] >= 1 && config[ELEMENT_BYTES] <= 32;
}

static int reduce(const uint8_t *operation, unsigned bytes, const unsigned grid[3],
                  const unsigned block[3], struct parts *parts) {
  int32_t config[CONFIGURATION];
  unsigned at = 4;
  if (bytes < 256) return -1;
  do memcpy(config, operation + at, sizeof config);
  while (!configured(config, grid, block) && (at += 4) <= 64);
  if (at > 64) return -1;
  const uint8_t *tail = operation + bytes - 64;
  add(parts, word(tail), TO_THE_END | READ);
  for (unsigned i = 1; i < 4; i++) add(parts, word(tail + 8 * i), TO_THE_END);
  if (config[INPUT_MULT + 2] == 0) return 0; /* no result is passed to other blocks */
  /* The highest offset that a block writes: staging_memory_offset. */
  uint64_t places = (uint64_t)grid[0] * grid[1];
  if (config[INPUT_MULT] == 0) places *= block[0];
  add(parts, word(tail + 32),
      places * (uint64_t)config[VECTOR] * (uint64_t)config[ELEMENT_BYTES]);
  add(parts, word(tail + 40), grid[0] * sizeof(int));
  return 0;
}

/* ---- elementwise_kernel, without casts ---------------------------------------------- */

#define DIMENSIONS_MOST 25u
#define SIZES 12u /* after the numbers of elements and of dimensions; 12 bytes each */
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

/* ---- indexSelectSmallIndex ---------------------------------------------------------- */

/* A TensorInfo of int: {address, sizes[25], strides[25], dimensions}. */
#define TENSOR_INFO (8 + 4 * (2 * DIMENSIONS_MOST + 1) + 4)

/* {result, source, indices, ...}; any row of the source. */
static int index_select(const uint8_t *launch, unsigned bytes, struct parts *parts) {
  if (bytes < 3 * TENSOR_INFO) return -1;
  add(parts, word(launch), TO_THE_END);
  add(parts, word(launch + TENSOR_INFO), TO_THE_END | READ);
  add(parts, word(launch + 2 * TENSOR_INFO), TO_THE_END | READ);
  return 0;
}

/* ---- im2col_kernel, col2im_kernel --------------------------------------------------- */

/* One sample of a convolution, as 64-bit words: {elements, source, image[2], kernel[2],
 * padding[2], stride[2], dilation[2], columns[2], result}; [2] is height and width.
 * `elements` counts the result or the image. */
static int columns(const char *kernel, const uint8_t *parameters, unsigned bytes,
                   struct parts *parts) {
  const char *make = after(kernel, "13im2col_kernelI");
  const char *type = make != NULL ? make : after(kernel, "13col2im_kernelI");
  uint64_t element_bytes = type == NULL ? 0 : type_bytes(type);
  if (bytes < 120 || element_bytes == 0) return -1;
  uint64_t image = word(parameters + 16) * word(parameters + 24);
  uint64_t taps = word(parameters + 32) * word(parameters + 40);
  uint64_t places = word(parameters + 96) * word(parameters + 104);
  if (image == 0 || places == 0) return -1;
  uint64_t channels = word(parameters) / (make != NULL ? places : image);
  uint64_t image_bytes = channels * image * element_bytes;
  uint64_t column_bytes = channels * taps * places * element_bytes;
  add(parts, word(parameters + 8), (make != NULL ? image_bytes : column_bytes) | READ);
  add(parts, word(parameters + 112), make != NULL ? column_bytes : image_bytes);
  return 0;
}

/* ---- by name ------------------------------------------------------------------------ */

int pump_touch_any(const char *kernel, const void *parameters, unsigned parameter_bytes,
                   const unsigned grid[3], const unsigned block[3], struct touch *out,
                   unsigned most) {
  struct parts parts = {.out = out, .most = most};
  int known = -1;
  if (strstr(kernel, "multi_tensor_apply_kernel") != NULL)
    known = multi_tensor(kernel, parameters, parameter_bytes, grid, &parts);
  else if (strstr(kernel, "TensorListAddresses") != NULL)
    known = address_list(parameters, parameter_bytes, grid, &parts);
  else if (strstr(kernel, "CatArrayBatchedCopy") != NULL)
    known = concatenation(kernel, parameters, parameter_bytes, grid, &parts);
  else if (strstr(kernel, "im2col_kernel") != NULL ||
           strstr(kernel, "col2im_kernel") != NULL)
    known = columns(kernel, parameters, parameter_bytes, &parts);
  else if (strstr(kernel, "13reduce_kernel") != NULL)
    known = reduce(parameters, parameter_bytes, grid, block, &parts);
  else if (strstr(kernel, "gpu_kernel_impl_nocast") != NULL &&
           strstr(kernel, "18elementwise_kernel") != NULL)
    known = elementwise(parameters, parameter_bytes, &parts);
  else if (strstr(kernel, "indexSelectSmallIndex") != NULL &&
           strstr(kernel, "EljL") != NULL)
    known = index_select(parameters, parameter_bytes, &parts);
  return known < 0 ? -1 : (int)parts.count;
}
