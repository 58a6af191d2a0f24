/* copy_extents.c - the extents of copies and memsets: at most one per side, from the
 * first byte touched to the last. Gaps between rows count as touched. The destination
 * counts as overwritten only if there are no gaps.
 *
 * Arrays are never paged, so a copy from or to an array has only one extent.
 */
#include "copy_extents.h"

uint64_t pump_side_bytes(const struct pump_side *side, const struct pump_box *box) {
  uint64_t layers, rows, bytes;
  if (side->address == 0 || box->width_bytes == 0 || box->height == 0 || box->depth == 0)
    return 0;
  if (__builtin_mul_overflow(side->slice_bytes, box->depth - 1, &layers) ||
      __builtin_mul_overflow(side->pitch, box->height - 1, &rows) ||
      __builtin_add_overflow(layers, rows, &bytes) ||
      __builtin_add_overflow(bytes, box->width_bytes, &bytes))
    return 0;
  return bytes;
}

static void side_extent(struct pump_op *op, const struct pump_side *side,
                        const struct pump_box *box, uint32_t access) {
  uint64_t bytes = pump_side_bytes(side, box);
  bool dense = (box->height == 1 || side->pitch == box->width_bytes) &&
               (box->depth == 1 || side->slice_bytes == side->pitch * box->height);
  if (access == PUMP_ACCESS_OVERWRITE && !dense) access = PUMP_ACCESS_WRITE;
  pump_op_bytes(op, side->address, bytes, access);
}

void pump_box_extents(struct pump_op *op, const struct pump_box *box) {
  pump_op_begin(op);
  side_extent(op, &box->from, box, PUMP_ACCESS_READ);
  side_extent(op, &box->to, box, PUMP_ACCESS_OVERWRITE);
}

struct pump_box pump_box_of_bytes(uint64_t to, uint64_t from, uint64_t bytes) {
  return (struct pump_box){.width_bytes = bytes,
                           .height = 1,
                           .depth = 1,
                           .from = {.address = from},
                           .to = {.address = to}};
}

void pump_copy_extents(struct pump_op *op, uint64_t to, uint64_t from, size_t bytes) {
  pump_op_begin(op);
  pump_op_bytes(op, from, bytes, PUMP_ACCESS_READ);
  pump_op_bytes(op, to, bytes, PUMP_ACCESS_OVERWRITE);
}

/* Sets the extent of a memset. Rows without gaps are one overwritten piece. With gaps,
 * the extent reaches from the first byte to the last and counts only as written. */
void pump_set_extents(struct pump_op *op, uint64_t to, uint64_t pitch, uint64_t row_bytes,
                      uint64_t height) {
  bool dense = height == 1 || pitch == row_bytes;
  pump_op_begin(op);
  if (height == 0 || row_bytes == 0) return;
  pump_op_bytes(op, to, pitch * (height - 1) + row_bytes,
                dense ? PUMP_ACCESS_OVERWRITE : PUMP_ACCESS_WRITE);
}

/* ---- boxes from the program's structures ---------------------------------- */

static struct pump_side side_of(int type, const void *host, CUdeviceptr device,
                                uint64_t pitch, uint64_t height) {
  struct pump_side side = {.pitch = pitch, .slice_bytes = pitch * height};
  if (type == CU_MEMORYTYPE_HOST) side.address = (uint64_t)(uintptr_t)host;
  if (type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED) side.address = device;
  return side;
}

/* Pitch and height may be 0 if there is only one row, or one layer. */
#define SIDE(copy, end, rows)                                                              \
  side_of((copy)->end##MemoryType, (copy)->end##Host, (copy)->end##Device,                 \
          (copy)->end##Pitch != 0 ? (copy)->end##Pitch                                     \
                                  : (copy)->end##XInBytes + (copy)->WidthInBytes,          \
          rows)

static void advance(struct pump_side *side, uint64_t x_bytes, uint64_t y, uint64_t z) {
  if (side->address != 0)
    side->address += z * side->slice_bytes + y * side->pitch + x_bytes;
}

struct pump_box pump_box_2d(const CUDA_MEMCPY2D *copy) {
  struct pump_box box = {.depth = 1};
  if (copy == NULL) return box; /* the driver refuses the call */
  box.width_bytes = copy->WidthInBytes;
  box.height = copy->Height;
  box.from = SIDE(copy, src, 0);
  box.to = SIDE(copy, dst, 0);
  advance(&box.from, copy->srcXInBytes, copy->srcY, 0);
  advance(&box.to, copy->dstXInBytes, copy->dstY, 0);
  return box;
}

#define BOX_3D(name, type)                                                                 \
  struct pump_box name(const type *copy) {                                                 \
    struct pump_box box = {0};                                                             \
    if (copy == NULL) return box;                                                          \
    box.width_bytes = copy->WidthInBytes;                                                  \
    box.height = copy->Height;                                                             \
    box.depth = copy->Depth;                                                               \
    box.from = SIDE(copy, src, copy->srcHeight != 0 ? copy->srcHeight : copy->Height);     \
    box.to = SIDE(copy, dst, copy->dstHeight != 0 ? copy->dstHeight : copy->Height);       \
    advance(&box.from, copy->srcXInBytes, copy->srcY, copy->srcZ);                         \
    advance(&box.to, copy->dstXInBytes, copy->dstY, copy->dstZ);                           \
    return box;                                                                            \
  }
BOX_3D(pump_box_3d, CUDA_MEMCPY3D)
BOX_3D(pump_box_peer, CUDA_MEMCPY3D_PEER)

void pump_copy_extents_3d(struct pump_op *op, const CUDA_MEMCPY3D *copy) {
  struct pump_box box = pump_box_3d(copy);
  pump_box_extents(op, &box);
}

/* Size of the largest array element: four channels of 32 bits. */
#define ELEMENT_BYTES_MOST 16u

static struct pump_side side_of_operand(const CUmemcpy3DOperand *operand,
                                        const CUDA_MEMCPY3D_BATCH_OP *copy,
                                        uint64_t element_bytes) {
  struct pump_side side = {0};
  if (operand->type != CU_MEMCPY_OPERAND_TYPE_POINTER) return side;
  uint64_t row = operand->op.ptr.rowLength, height = operand->op.ptr.layerHeight;
  side.address = operand->op.ptr.ptr;
  side.pitch = (row != 0 ? row : copy->extent.width) * element_bytes;
  side.slice_bytes = side.pitch * (height != 0 ? height : copy->extent.height);
  return side;
}

/* If one side is an array, lengths are in elements of unknown size. The other side's
 * length is then an upper bound, computed with the largest element. */
struct pump_box pump_box_of_operands(const CUDA_MEMCPY3D_BATCH_OP *copy) {
  bool array = copy->src.type == CU_MEMCPY_OPERAND_TYPE_ARRAY ||
               copy->dst.type == CU_MEMCPY_OPERAND_TYPE_ARRAY;
  uint64_t element_bytes = array ? ELEMENT_BYTES_MOST : 1;
  return (struct pump_box){.width_bytes = copy->extent.width * element_bytes,
                           .height = copy->extent.height,
                           .depth = copy->extent.depth,
                           .at_most = array,
                           .from = side_of_operand(&copy->src, copy, element_bytes),
                           .to = side_of_operand(&copy->dst, copy, element_bytes)};
}
