/* touch.c - the memory that a launch touches and its duration, as reported by a host
 * library.
 *
 * DESIGN
 * A host library may report touches:
 *
 *   struct pump_touch { uint64_t address, length_bytes; };
 *   unsigned pump_touch_<kernel>(void **params, const unsigned grid[3],
 *                                const unsigned block[3], struct pump_touch *out,
 *                                unsigned most);
 *
 * `pump_touch_<kernel>` writes at most `most` parts, of all arguments, and returns their
 * number. It is called at the kernel's launch, in both modes, on the launching thread,
 * without the driver's lock. It may read device memory, for instance an index, with its
 * contents at the launch: earlier operations in flight have not written their results
 * yet. It must not call the driver. A kernel touches everything that its pointers reach
 * if it has no such function, or if the function returns more parts than fit.
 *
 * A library that does not know the names of its kernels in advance has one function for
 * all of them. It is called for kernels without their own function. It returns -1 for an
 * unknown kernel:
 *
 *   int pump_touch_any(const char *kernel, const void *parameters,
 *                      unsigned parameter_bytes, const unsigned grid[3],
 *                      const unsigned block[3], struct pump_touch *out, unsigned most);
 *
 * `length_bytes` may have marks. Without a mark the part counts as written, and the
 * kernel sweeps over it. PUMP_TOUCH_READ, 1 << 63: the part is only read, which matters
 * under READ_MOSTLY. PUMP_TOUCH_WIDE, 1 << 62: the kernel reaches blocks all over it at
 * once (GPU_WIDE).
 *
 * Libraries may also report the least computing time of a launch. The unit is a clock cycle
 * of one multiprocessor, summed over all of them (the profile has their number and clock):
 *
 *   double pump_cycles_<kernel>(void **params, const unsigned grid[3],
 *                               const unsigned block[3]);
 *
 * Parts may overlap and come in any order. They are sorted and become one use for each
 * block with its 64 KiB pages, or one for adjacent blocks that are touched as a whole.
 * Parts of up to 64 KiB are rows: where the GPU reads the host's memory in place, only
 * their bytes count, each time that they are reported. */
#include <stdlib.h>

#include "code.h"

#define MOST_PARTS 65536
#define PAGE_BYTES ((uint64_t)GPU_BLOCK_BYTES / GPU_PAGES_PER_BLOCK)
#define ALL_PAGES 0xffffffffu
#define TOUCH_READ (1ull << 63)
#define TOUCH_WIDE (1ull << 62)
#define TOUCH_LENGTH (TOUCH_WIDE - 1)

/* Returns the time of that many cycles, spread over all multiprocessors. */
static uint64_t least_ns(double cycles) {
  double multiprocessors = vd.profile.multiprocessors;
  double time_ns = cycles / multiprocessors / (vd.profile.clock_khz / 1e6);
  return time_ns > 0 && time_ns < 1e15 ? (uint64_t)time_ns : 0;
}

void vd_touches_ask(const struct vd_function *function, const unsigned grid[3],
                    const unsigned block[3], uint8_t *buffer, struct vd_touched *out) {
  const struct image_kernel *kernel = function->kernel;
  void *pointers[kernel->parameter_count + 1];
  *out = (struct vd_touched){0};
  if (function->touches == NULL && function->cycles == NULL && vd_touch_any == NULL) return;
  for (uint32_t i = 0; i < kernel->parameter_count; i++)
    pointers[i] = buffer + kernel->parameters[i].offset_bytes;
  pointers[kernel->parameter_count] = NULL;
  if (function->cycles != NULL)
    out->least_ns = least_ns(function->cycles(pointers, grid, block));
  if (function->touches == NULL && vd_touch_any == NULL) return;
  out->parts = malloc(MOST_PARTS * sizeof *out->parts);
  if (out->parts == NULL) return; /* so everything counts as touched */
  int count = function->touches != NULL
                  ? (int)function->touches(pointers, grid, block, out->parts, MOST_PARTS)
                  : vd_touch_any(kernel->name, buffer, kernel->parameter_bytes, grid, block,
                                 out->parts, MOST_PARTS);
  if (count >= 0 && count <= MOST_PARTS) {
    out->count = (uint32_t)count;
    return;
  }
  if (count >= 0)
    vd_error("pump_touch_%s returned %d parts, more than %d: the driver assumes that the "
             "kernel touches everything",
             kernel->name, count, MOST_PARTS);
  free(out->parts);
  out->parts = NULL;
}

static int by_address(const void *a, const void *b) {
  uint64_t x = ((const struct vd_touch *)a)->address;
  uint64_t y = ((const struct vd_touch *)b)->address;
  return (x > y) - (x < y);
}

/* Returns the bits of the pages from `first` to `last` of one block. */
static uint32_t pages_between(uint64_t first, uint64_t last) {
  uint32_t up_to_last = last == 31 ? ALL_PAGES : (1u << (last + 1)) - 1;
  return up_to_last & (ALL_PAGES << first);
}

struct collector {
  struct gpu_use *uses;
  uint32_t count, room;
  uint32_t begin;  /* first use that add_parts() is making now */
  uint16_t access; /* access of these uses */
  bool failed;
};

static bool make_room(struct collector *out) {
  if (out->count < out->room) return true;
  uint32_t room = out->room ? 2 * out->room : 256;
  struct gpu_use *uses = realloc(out->uses, room * sizeof *uses);
  if (uses == NULL) {
    out->failed = true;
    return false;
  }
  out->uses = uses;
  out->room = room;
  return true;
}

/* Adds a row to those of a use, or, with 0 bytes, touches all of its pages. */
static void add_row(struct gpu_use *use, uint32_t row_bytes) {
  if (use->row_bytes == 0 || row_bytes == 0) {
    use->row_bytes = 0;
    use->rows = 0;
    return;
  }
  uint64_t length_bytes = use->rows * use->row_bytes + row_bytes;
  use->rows++;
  use->row_bytes = (uint32_t)((length_bytes + use->rows - 1) / use->rows);
}

/* Adds pages of a block; blocks ascend, and a block may come several times in a row.
 * `row_bytes`: of a row in these pages; 0 for all of them. */
static void add_pages(struct collector *out, uint32_t block, uint32_t pages,
                      uint32_t row_bytes) {
  struct gpu_use *last = out->count > out->begin ? &out->uses[out->count - 1] : NULL;
  if (last != NULL && block < last->first_block + last->block_count) {
    if (last->block_count > 1) return; /* all are touched already */
    last->pages |= pages;
    add_row(last, row_bytes);
    return;
  }
  /* A whole block extends the run before it, if that run has only whole blocks. */
  if (last != NULL && pages == ALL_PAGES && last->pages == ALL_PAGES &&
      last->row_bytes == 0 && block == last->first_block + last->block_count) {
    last->block_count++;
    return;
  }
  if (!make_room(out)) return;
  out->uses[out->count++] = (struct gpu_use){.first_block = block,
                                             .block_count = 1,
                                             .access = out->access,
                                             .pages = pages,
                                             .rows = row_bytes != 0,
                                             .row_bytes = row_bytes};
}

static void add_part(struct collector *out, const struct vd_memory *memory, uint64_t from,
                     uint64_t to) {
  uint32_t row_bytes = to - from <= PAGE_BYTES ? (uint32_t)(to - from) : 0;
  while (from < to && !out->failed) {
    uint64_t block_end = (from / GPU_BLOCK_BYTES + 1) * GPU_BLOCK_BYTES;
    uint64_t end = to < block_end ? to : block_end;
    uint64_t first = from % GPU_BLOCK_BYTES / PAGE_BYTES;
    uint64_t last = (end - 1) % GPU_BLOCK_BYTES / PAGE_BYTES;
    add_pages(out, vd_memory_block(memory, from), pages_between(first, last), row_bytes);
    from = end;
  }
}

/* Adds the parts with exactly these marks (TOUCH_*), and their bytes. */
static void add_parts(struct collector *out, const struct vd_touched *touched,
                      uint64_t marks, uint64_t *length_bytes) {
  out->begin = out->count;
  out->access = (marks & TOUCH_READ) ? GPU_READ : GPU_READ | GPU_WRITE;
  if (marks & TOUCH_WIDE) out->access |= GPU_WIDE;
  for (uint32_t i = 0; i < touched->count; i++) {
    const struct vd_touch *part = &touched->parts[i];
    if ((part->length_bytes & ~TOUCH_LENGTH) != marks) continue;
    const struct vd_memory *memory = vd_range_find(&vd.managed, part->address);
    bool managed = memory != NULL;
    if (!managed) memory = vd_range_find(&vd.plain, part->address);
    if (memory == NULL) memory = vd_range_find(&vd.mapped, part->address);
    if (memory == NULL) continue;
    if (part->address >= memory->base + memory->length_bytes) continue;
    uint64_t base, end;
    if (!vd_memory_piece(memory, part->address, &base, &end)) continue;
    uint64_t left = end - part->address, length = part->length_bytes & TOUCH_LENGTH;
    if (length > left) length = left;
    *length_bytes += length;
    if (managed) add_part(out, memory, part->address, part->address + length);
  }
}

/* Returns the uses of the reported parts, for the caller to free, and the bytes of all
 * parts, including plain memory. Parts beyond their allocation are cut; parts in no
 * allocation are skipped. Returns NULL if out of memory. */
struct gpu_use *vd_touches_uses_locked(const struct vd_touched *touched, uint32_t *count,
                                       uint64_t *length_bytes) {
  struct collector out = {0};
  qsort(touched->parts, touched->count, sizeof *touched->parts, by_address);
  for (uint64_t marks = 0; marks < 4; marks++)
    add_parts(&out, touched, marks * TOUCH_WIDE, length_bytes);
  (void)make_room(&out); /* so that NULL only means failure */
  *count = out.count;
  if (!out.failed) return out.uses;
  free(out.uses);
  return NULL;
}
