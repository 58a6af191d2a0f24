/* torch_kernels.c - which memory PyTorch's kernels touch whose parameters say more than
 * their pointers do (PUMP_VIRTUAL_KERNELS; virtual/driver/code/touch.c has the interface).
 *
 * A modelled kernel touches all that its pointers reach. Three of PyTorch's kernels are
 * given pointers that they never follow: tables of addresses that are passed by value have
 * room for more tensors than a launch has, and in the rest stands what the launch before
 * left on the stack; and a reduction gets a scratch buffer of which it uses some percent.
 * A quarter of all blocks that a training with foreach AdamW seems to touch is of that
 * kind.
 *
 * Here the kernels are played as the device runs them, block of threads by block of
 * threads. Source: PyTorch 2.11, ATen/native/cuda/MultiTensorApply.cuh and Reduce.cuh. For
 * tensors of float, which is all that the benchmark has; other kernels stay unknown.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_ELEMENTS 65536u
#define BLOCKS_MOST 320u
#define TO_THE_END (1ull << 40) /* of the allocation: longer parts are cut there */

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

/* struct ReduceOp of a sum: {ops, identity, configuration, two calculators, source,
 * destination[2], accumulator, scratch, semaphores, base, flags}. */
#define CONFIGURATION 8u
enum { /* of its ints */
       BLOCKS_PER_OUTPUT = 5,
       INPUT_MULT = 6,
       WIDTH = 11,
       HEIGHT = 12,
       THREADS = 13,
       VECTOR = 15,
};

static int reduce(const uint8_t *operation, unsigned bytes, const unsigned grid[3],
                  const unsigned block[3], struct parts *parts) {
  if (bytes < 256) return -1;
  const uint8_t *tail = operation + bytes - 64;
  int32_t config[16];
  memcpy(config, operation + CONFIGURATION, sizeof config);
  if (config[WIDTH] != (int32_t)block[0] || config[HEIGHT] != (int32_t)block[1] ||
      config[THREADS] != config[WIDTH] * config[HEIGHT] || config[VECTOR] < 1 ||
      config[BLOCKS_PER_OUTPUT] != (int32_t)grid[1])
    return -1;
  for (unsigned i = 0; i < 4; i++) add(parts, word(tail + 8 * i), TO_THE_END);
  if (config[INPUT_MULT + 2] == 0) return 0; /* nothing is left for other blocks */
  /* The highest place that a block writes: staging_memory_offset. */
  uint64_t places = (uint64_t)grid[0] * grid[1];
  if (config[INPUT_MULT] == 0) places *= block[0];
  add(parts, word(tail + 32), places * (uint64_t)config[VECTOR] * sizeof(float));
  add(parts, word(tail + 40), grid[0] * sizeof(int));
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
  } else if (strstr(kernel, "13reduce_kernel") != NULL &&
             strstr(kernel, "sum_functorIfff")) {
    known = reduce(parameters, parameter_bytes, grid, block, &parts);
  }
  return known < 0 ? -1 : (int)parts.count;
}
