/* extents_tables.c - decodes parameter structures that PyTorch passes by value.
 *
 * Half of all pointer words in a foreach optimizer are unused slots of by-value pointer
 * tables, with leftovers of the previous launch. The structures show the used slots and
 * their numbers of elements. Layouts are those in PyTorch 2.0 to 2.11:
 * MultiTensorApply.cuh, Shape.cu (concatenation), Reduce.cuh, ForeachReduceOp.cu and
 * CUDALoops.cuh, described here by their sizes.
 *
 * The kernel's name selects a structure, whose content must then be consistent. Chunks of
 * a multi-tensor table must count up to each tensor's end; a reduction's block and grid
 * must be the launch's own. If the name is missing, the two structures with the strongest
 * evidence are still recognized.
 */
#include <string.h>

#include "extents_state.h"

/* Elements of a tensor that one block of multi_tensor_apply processes
 * [published: MultiTensorApply.cuh]. */
#define CHUNK_ELEMENTS 65536u
/* A structure with a larger number of elements is not consistent [guessed]. */
#define ELEMENTS_MOST (1ull << 40)

static uint32_t word32(const struct extents_pending *launch, uint32_t at) {
  uint32_t value;
  memcpy(&value, launch->parameters + at, sizeof(value));
  return value;
}

static uint64_t word64(const struct extents_pending *launch, uint32_t at) {
  uint64_t value;
  memcpy(&value, launch->parameters + at, sizeof(value));
  return value;
}

static bool add(struct extents_table *table, uint32_t argument, uint32_t what,
                uint64_t value) {
  if (table->count == EXTENTS_TABLE) return false;
  table->entries[table->count++] =
      (struct extents_entry){.argument = argument, .what = what, .value = value};
  return true;
}

/* --- multi_tensor_apply ------------------------------------------------------ */

/* Blocks of one launch [published: MultiTensorApply.cuh]. */
#define MULTI_BLOCKS 320u

/* Layout: addresses[depth][slots], numel[slots], extra[slots], tensor of each block (a
 * byte), chunk of each block, and in two of three structures an int. */
struct multi_layout {
  uint32_t depth;
  uint32_t slots;
  uint32_t extra_bytes; /* per slot: scalars, or step pointers */
  uint32_t steps;       /* 1: extra has a pointer to a single number per slot */
};

static uint32_t extra_at(const struct multi_layout *layout) {
  return 8 * layout->slots * (layout->depth + 1);
}
static uint32_t tensors_at(const struct multi_layout *layout) {
  return extra_at(layout) + layout->extra_bytes * layout->slots;
}
static uint32_t chunks_at(const struct multi_layout *layout) {
  return tensors_at(layout) + MULTI_BLOCKS;
}

static uint64_t elements_of(const struct extents_pending *launch,
                            const struct multi_layout *layout, uint32_t slot) {
  return word64(launch, 8 * (layout->slots * layout->depth + slot));
}

/* Returns the number of used slots if each block follows from the previous one; otherwise
 * 0. */
static uint32_t multi_slots(const struct extents_pending *launch,
                            const struct multi_layout *layout) {
  uint32_t blocks = launch->grid[0];
  if (blocks == 0 || blocks > MULTI_BLOCKS ||
      chunks_at(layout) + 4 * MULTI_BLOCKS > launch->bytes)
    return 0;
  uint32_t tensor = 0;
  uint64_t chunk = 0;
  for (uint32_t block = 0; block < blocks; block++) {
    uint32_t next = launch->parameters[tensors_at(layout) + block];
    uint64_t here = word32(launch, chunks_at(layout) + 4 * block);
    uint64_t elements = next < layout->slots ? elements_of(launch, layout, next) : 0;
    if (elements == 0 || elements > ELEMENTS_MOST) return 0;
    uint64_t last = (elements - 1) / CHUNK_ELEMENTS;
    if (here > last) return 0;
    if (block == 0) {
      if (next != 0) return 0;
    } else if (next == tensor) {
      if (here != chunk + 1) return 0;
    } else {
      uint64_t ended = (elements_of(launch, layout, tensor) - 1) / CHUNK_ELEMENTS;
      if (next != tensor + 1 || chunk != ended || here != 0) return 0;
    }
    tensor = next;
    chunk = here;
  }
  return tensor + 1;
}

static bool multi_read(const struct extents_pending *launch,
                       const struct multi_layout *layout, uint32_t element_bytes,
                       struct extents_table *table) {
  uint32_t slots = multi_slots(launch, layout);
  if (slots == 0) return false;
  table->count = 0;
  for (uint32_t depth = 0; depth < layout->depth; depth++) {
    for (uint32_t slot = 0; slot < slots; slot++) {
      uint32_t at = 8 * (layout->slots * depth + slot);
      if (word64(launch, at) == 0) return false;
      if (!add(table, at, EXTENTS_EXACT, elements_of(launch, layout, slot) * element_bytes))
        return false;
    }
  }
  for (uint32_t slot = 0; layout->steps && slot < slots; slot++)
    if (!add(table, extra_at(layout) + 8 * slot, EXTENTS_EXACT, 4)) return false;
  /* The int after the blocks shares its word with leftovers in the padding. */
  table->zero_end = (chunks_at(layout) + 4 * MULTI_BLOCKS + 4) / 8 * 8;
  if (layout->extra_bytes == 0 || layout->steps) table->zero_end += 8;
  table->small_begin = table->zero_end; /* scalars, flags, one number per chunk */
  return true;
}

static bool multi(const struct extents_named *named, const struct extents_pending *launch,
                  struct extents_table *table) {
  static const uint16_t slots[5] = {110, 64, 48, 36, 30};
  static const uint16_t slots_scalars[5] = {96, 64, 48, 36, 30};
  static const uint16_t slots_wide[2] = {72, 60}; /* scalars of 16 bytes */
  uint32_t size = named->element_bytes;
  for (uint32_t depth = 1; depth <= 5; depth++) {
    if (named->depth != 0 && named->depth != depth) continue;
    struct multi_layout layout = {.depth = depth, .slots = slots[depth - 1]};
    bool any = named->structure == 0;
    if ((any || named->structure == EXTENTS_MULTI_PLAIN) &&
        multi_read(launch, &layout, size, table))
      return true;
    layout.extra_bytes = 8;
    layout.steps = 1;
    if ((any || named->structure == EXTENTS_MULTI_STEPS) && depth >= 2 &&
        multi_read(launch, &layout, size, table))
      return true;
    layout.steps = 0;
    layout.slots = slots_scalars[depth - 1];
    for (uint32_t bytes = 4; bytes <= 16; bytes *= 2) {
      if (!any && named->structure != EXTENTS_MULTI_SCALARS) break;
      layout.extra_bytes = bytes;
      if (bytes == 16 && depth <= 2) layout.slots = slots_wide[depth - 1];
      if (multi_read(launch, &layout, size, table)) return true;
    }
  }
  return false;
}

/* --- concatenation ----------------------------------------------------------- */

/* Layout: output, {input[n], offset[n], size[n], elements[n], contiguous[n],
 * sizes_strides[s]}, sizes_strides, dimension, stride; 32 bit indices. */
static bool concatenation(const struct extents_pending *launch, uint32_t element_bytes,
                          struct extents_table *table) {
  uint32_t batch = launch->grid[1];
  for (uint32_t n = 8; n <= 256; n *= 2) {
    uint32_t head_bytes = 8 + 21 * n + 40;
    if (launch->bytes != head_bytes + 32 && launch->bytes != head_bytes + 32 * n) continue;
    if (batch == 0 || batch > n) return false;
    uint64_t sum = 0;
    uint32_t elements_begin = 8 + 16 * n;
    for (uint32_t i = 0; i < batch; i++)
      sum += (uint64_t)word32(launch, elements_begin + 4 * i) * element_bytes;
    if (word32(launch, 8 + 8 * n) == 0)
      add(table, 0, EXTENTS_EXACT, sum);
    else
      table->open = 1;
    for (uint32_t i = 0; i < batch; i++) {
      uint64_t elements = word32(launch, elements_begin + 4 * i);
      if (elements == 0 || word64(launch, 8 + 8 * i) == 0) return false;
      if (!add(table, 8 + 8 * i, EXTENTS_EXACT, elements * element_bytes)) return false;
    }
    table->zero_begin = 8;
    table->zero_end = launch->bytes;
    return true;
  }
  return false;
}

/* --- reductions -------------------------------------------------------------- */

/* Layout: {operation, identity, configuration, index calculators, source, destination[2],
 * accumulator, scratch, semaphores, base index, flags}. The pointers are found from the
 * end, and the configuration by its agreement with the launch. */
static bool reduction(const struct extents_pending *launch, struct extents_table *table) {
  if (launch->bytes < 256 || launch->bytes % 8 != 0) return false;
  for (uint32_t at = 4; at <= 64; at += 4) {
    uint32_t size = word32(launch, at);
    uint64_t inputs = word32(launch, at + 4);
    uint64_t outputs = word32(launch, at + 8);
    uint32_t spread = word32(launch, at + 20); /* blocks of the grid per output */
    uint32_t width = word32(launch, at + 44);
    uint32_t height = word32(launch, at + 48);
    uint32_t threads = word32(launch, at + 52);
    uint32_t vector = word32(launch, at + 60); /* outputs per thread */
    bool sizes = size != 0 && size <= 32 && vector >= 1 && vector <= 16;
    if (!sizes || inputs == 0 || outputs == 0 || spread != launch->grid[1] ||
        (uint64_t)width * height != threads || threads != launch->threads || threads == 0)
      continue;
    uint32_t pointers = launch->bytes - 64;
    /* Partial results of blocks. PyTorch allocates memory for every thread of every
     * output here and uses only this much. */
    uint64_t scratch = (uint64_t)size * vector * launch->grid[0] * spread;
    if (word32(launch, at + 24) == 0) scratch *= width;
    add(table, pointers, EXTENTS_COUNT, inputs * outputs);
    add(table, pointers + 8, EXTENTS_COUNT, outputs);
    add(table, pointers + 16, EXTENTS_COUNT, outputs);
    add(table, pointers + 24, EXTENTS_EXACT, outputs * size);
    add(table, pointers + 32, EXTENTS_EXACT, scratch);
    add(table, pointers + 40, EXTENTS_EXACT, 4ull * launch->grid[0]);
    table->zero_end = launch->bytes;
    table->open = 1;
    return true;
  }
  return false;
}

/* --- other structures -------------------------------------------------------- */

/* Decodes a pointer, a table of pointers to single numbers, and an int. */
static bool addresses(const struct extents_pending *launch, uint32_t element_bytes,
                      struct extents_table *table) {
  if (launch->bytes < 28 || launch->grid[0] > (launch->bytes - 12) / 8) return false;
  for (uint32_t i = 0; i < launch->grid[0]; i++)
    if (!add(table, 8 + 8 * i, EXTENTS_EXACT, element_bytes)) return false;
  table->zero_begin = 8;
  table->zero_end = launch->bytes;
  return true;
}

/* Decodes a count as the first parameter; all later pointers are dense. */
static bool elementwise(const struct extents_pending *launch, struct extents_table *table) {
  if (launch->bytes < 16) return false;
  uint64_t elements = word32(launch, 0);
  uint64_t threads = (uint64_t)launch->grid[0] * launch->threads;
  if (elements == 0 || elements > threads * 64 || threads > elements + launch->threads)
    return false;
  table->all_count = 1;
  table->open = 1;
  table->all_elements = elements;
  return true;
}

static void clear(struct extents_table *table) {
  memset(table, 0, offsetof(struct extents_table, entries));
  table->small_begin = UINT32_MAX;
}

bool extents_decode(const struct extents_named *named, const struct extents_pending *launch,
                    struct extents_table *table) {
  static const struct extents_named nothing = {.element_bytes = 4};
  clear(table);
  bool read = false;
  switch (named->kind) {
  case EXTENTS_KIND_UNNAMED:
    read = multi(&nothing, launch, table);
    if (!read) {
      clear(table);
      read = reduction(launch, table);
    }
    break;
  case EXTENTS_KIND_MULTI:
    read = multi(named, launch, table);
    break;
  case EXTENTS_KIND_CAT:
    read = concatenation(launch, named->element_bytes, table);
    break;
  case EXTENTS_KIND_REDUCE:
    read = reduction(launch, table);
    break;
  case EXTENTS_KIND_ADDRESSES:
    read = addresses(launch, named->element_bytes, table);
    break;
  case EXTENTS_KIND_ELEMENTWISE:
    read = elementwise(launch, table);
    break;
  default:
    break;
  }
  return read;
}
