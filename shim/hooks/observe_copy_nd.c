/* observe_copy_nd.c - hooks of copies of rows and boxes, of batches, and from and to
 * arrays. Each is an operation with at most one extent a side: from the first byte that
 * it reaches to the last. Memory between its rows counts as reached, and only where
 * there is none is the destination overwritten whole.
 *
 * A batch is reported as so many copies: the driver may carry them out in any order, and
 * each has extents of its own. Arrays are never paged; of a copy that has one, only the
 * other side is of interest.
 *
 * Order of record and real call as in observe_copy.c.
 */
#include "observe_copy.h"

/* One side of a copy; address 0: an array. */
struct side {
  uint64_t address, pitch, slice_bytes;
};

struct box {
  uint64_t width_bytes, height, depth;
  struct side from, to;
};

static void side_extent(struct pump_op *op, const struct side *side, const struct box *box,
                        uint32_t access) {
  if (side->address == 0 || box->width_bytes == 0 || box->height == 0 || box->depth == 0)
    return;
  bool dense = (box->height == 1 || side->pitch == box->width_bytes) &&
               (box->depth == 1 || side->slice_bytes == side->pitch * box->height);
  if (access == PUMP_ACCESS_OVERWRITE && !dense) access = PUMP_ACCESS_WRITE;
  uint64_t bytes = side->slice_bytes * (box->depth - 1) + side->pitch * (box->height - 1) +
                   box->width_bytes;
  pump_op_bytes(op, side->address, bytes, access);
}

static void box_extents(struct pump_op *op, const struct box *box) {
  pump_op_begin(op);
  side_extent(op, &box->from, box, PUMP_ACCESS_READ);
  side_extent(op, &box->to, box, PUMP_ACCESS_OVERWRITE);
}

static void copied(const struct box *box, struct pump_at at) {
  struct pump_op op;
  box_extents(&op, box);
  pump_copy_report(&op, at);
}

static struct pump_token copying(const struct box *box, struct pump_at at) {
  struct pump_op op;
  box_extents(&op, box);
  return pump_copy_announce(&op, at);
}

/* ---- what the program's structures say ------------------------------------ */

static struct side side_of(int type, const void *host, CUdeviceptr device, uint64_t pitch,
                           uint64_t height) {
  struct side side = {.pitch = pitch, .slice_bytes = pitch * height};
  if (type == CU_MEMORYTYPE_HOST) side.address = (uint64_t)(uintptr_t)host;
  if (type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED) side.address = device;
  return side;
}

/* Pitch and height may be left out where there is one row, or one layer. */
#define SIDE(copy, end, rows)                                                              \
  side_of((copy)->end##MemoryType, (copy)->end##Host, (copy)->end##Device,                 \
          (copy)->end##Pitch != 0 ? (copy)->end##Pitch                                     \
                                  : (copy)->end##XInBytes + (copy)->WidthInBytes,          \
          rows)

static void advance(struct side *side, uint64_t x_bytes, uint64_t y, uint64_t z) {
  if (side->address != 0)
    side->address += z * side->slice_bytes + y * side->pitch + x_bytes;
}

static struct box box_2d(const CUDA_MEMCPY2D *copy) {
  struct box box = {.depth = 1};
  if (copy == NULL) return box; /* the driver's to refuse */
  box.width_bytes = copy->WidthInBytes;
  box.height = copy->Height;
  box.from = SIDE(copy, src, 0);
  box.to = SIDE(copy, dst, 0);
  advance(&box.from, copy->srcXInBytes, copy->srcY, 0);
  advance(&box.to, copy->dstXInBytes, copy->dstY, 0);
  return box;
}

#define BOX_3D(name, type)                                                                 \
  static struct box name(const type *copy) {                                               \
    struct box box = {0};                                                                  \
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
BOX_3D(box_3d, CUDA_MEMCPY3D)
BOX_3D(box_peer, CUDA_MEMCPY3D_PEER)

void pump_copy_extents_3d(struct pump_op *op, const CUDA_MEMCPY3D *copy) {
  struct box box = box_3d(copy);
  box_extents(op, &box);
}

/* The largest element that an array can have: four channels of 32 bits. */
#define ELEMENT_BYTES_MOST 16u

static struct side side_of_operand(const CUmemcpy3DOperand *operand,
                                   const CUDA_MEMCPY3D_BATCH_OP *copy,
                                   uint64_t element_bytes) {
  struct side side = {0};
  if (operand->type != CU_MEMCPY_OPERAND_TYPE_POINTER) return side;
  uint64_t row = operand->op.ptr.rowLength, height = operand->op.ptr.layerHeight;
  side.address = operand->op.ptr.ptr;
  side.pitch = (row != 0 ? row : copy->extent.width) * element_bytes;
  side.slice_bytes = side.pitch * (height != 0 ? height : copy->extent.height);
  return side;
}

/* Beside an array, lengths are in its elements, whose size is not known here: the other
 * side is taken to reach as far as the largest would. */
static struct box box_of_operands(const CUDA_MEMCPY3D_BATCH_OP *copy) {
  bool array = copy->src.type == CU_MEMCPY_OPERAND_TYPE_ARRAY ||
               copy->dst.type == CU_MEMCPY_OPERAND_TYPE_ARRAY;
  uint64_t element_bytes = array ? ELEMENT_BYTES_MOST : 1;
  return (struct box){.width_bytes = copy->extent.width * element_bytes,
                      .height = copy->extent.height,
                      .depth = copy->extent.depth,
                      .from = side_of_operand(&copy->src, copy, element_bytes),
                      .to = side_of_operand(&copy->dst, copy, element_bytes)};
}

/* ---- hooks ---------------------------------------------------------------- */

static void done(struct pump_token token, struct pump_at at, int to_type) {
  if (to_type == CU_MEMORYTYPE_HOST)
    pump_copy_arrived(token, at);
  else
    pump_op_issued(token, at);
}

#define HOOK_BOX_BLOCKING(name, per_thread, box_of, type)                                  \
  CUresult name(const type *copy) {                                                        \
    if (pump_quiet()) return pump_real.name(copy);                                         \
    struct pump_at at = pump_at(NULL, per_thread);                                         \
    struct box box = box_of(copy);                                                         \
    struct pump_token token = copying(&box, at);                                           \
    CUresult result = pump_real.name(copy);                                                \
    if (result == CUDA_SUCCESS) done(token, at, copy->dstMemoryType);                      \
    return result;                                                                         \
  }

#define HOOK_BOX_ASYNC(name, per_thread, box_of, type)                                     \
  CUresult name(const type *copy, CUstream stream) {                                       \
    if (pump_quiet()) return pump_real.name(copy, stream);                                 \
    CUresult result = pump_real.name(copy, stream);                                        \
    if (result != CUDA_SUCCESS) return result;                                             \
    struct box box = box_of(copy);                                                         \
    copied(&box, pump_at(stream, per_thread));                                             \
    return result;                                                                         \
  }

HOOK_BOX_BLOCKING(cuMemcpy2D_v2, false, box_2d, CUDA_MEMCPY2D)
HOOK_BOX_BLOCKING(cuMemcpy2D_v2_ptds, true, box_2d, CUDA_MEMCPY2D)
HOOK_BOX_BLOCKING(cuMemcpy2DUnaligned_v2, false, box_2d, CUDA_MEMCPY2D)
HOOK_BOX_BLOCKING(cuMemcpy2DUnaligned_v2_ptds, true, box_2d, CUDA_MEMCPY2D)
HOOK_BOX_ASYNC(cuMemcpy2DAsync_v2, false, box_2d, CUDA_MEMCPY2D)
HOOK_BOX_ASYNC(cuMemcpy2DAsync_v2_ptsz, true, box_2d, CUDA_MEMCPY2D)
HOOK_BOX_BLOCKING(cuMemcpy3D_v2, false, box_3d, CUDA_MEMCPY3D)
HOOK_BOX_BLOCKING(cuMemcpy3D_v2_ptds, true, box_3d, CUDA_MEMCPY3D)
HOOK_BOX_ASYNC(cuMemcpy3DAsync_v2, false, box_3d, CUDA_MEMCPY3D)
HOOK_BOX_ASYNC(cuMemcpy3DAsync_v2_ptsz, true, box_3d, CUDA_MEMCPY3D)
HOOK_BOX_BLOCKING(cuMemcpy3DPeer, false, box_peer, CUDA_MEMCPY3D_PEER)
HOOK_BOX_BLOCKING(cuMemcpy3DPeer_ptds, true, box_peer, CUDA_MEMCPY3D_PEER)
HOOK_BOX_ASYNC(cuMemcpy3DPeerAsync, false, box_peer, CUDA_MEMCPY3D_PEER)
HOOK_BOX_ASYNC(cuMemcpy3DPeerAsync_ptsz, true, box_peer, CUDA_MEMCPY3D_PEER)

/* ---- batches -------------------------------------------------------------- */

static struct box box_of_bytes(uint64_t to, uint64_t from, uint64_t bytes) {
  return (struct box){.width_bytes = bytes,
                      .height = 1,
                      .depth = 1,
                      .from = {.address = from},
                      .to = {.address = to}};
}

static void batch_copied(const CUdeviceptr *to, const CUdeviceptr *from,
                         const size_t *bytes, size_t count, struct pump_at at) {
  for (size_t i = 0; i < count; i++) {
    struct box box = box_of_bytes(to[i], from[i], bytes[i]);
    copied(&box, at);
  }
}

static void boxes_copied(const CUDA_MEMCPY3D_BATCH_OP *copies, size_t count,
                         struct pump_at at) {
  for (size_t i = 0; i < count; i++) {
    struct box box = box_of_operands(&copies[i]);
    copied(&box, at);
  }
}

/* Of each part, and the word that tells how much it has become. */
static void decompressed(const CUmemDecompressParams *parts, size_t count,
                         struct pump_at at) {
  for (size_t i = 0; i < count; i++) {
    struct pump_op op;
    pump_op_begin(&op);
    pump_op_bytes(&op, (uintptr_t)parts[i].src, parts[i].srcNumBytes, PUMP_ACCESS_READ);
    pump_op_bytes(&op, (uintptr_t)parts[i].dst, parts[i].dstNumBytes, PUMP_ACCESS_WRITE);
    pump_op_bytes(&op, (uintptr_t)parts[i].dstActBytes, sizeof *parts[i].dstActBytes,
                  PUMP_ACCESS_WRITE);
    pump_copy_report(&op, at);
  }
}

#define HOOK_BATCH(name, per_thread, note, parameters, arguments)                          \
  CUresult name parameters {                                                               \
    if (pump_quiet()) return pump_real.name arguments;                                     \
    CUresult result = pump_real.name arguments;                                            \
    struct pump_at at = pump_at(stream, per_thread);                                       \
    if (result == CUDA_SUCCESS) note;                                                      \
    return result;                                                                         \
  }

#define BATCH                                                                              \
  (CUdeviceptr * to, CUdeviceptr * from, size_t *bytes, size_t count,                      \
   CUmemcpyAttributes *attributes, size_t *indices, size_t attribute_count,                \
   size_t *failed, CUstream stream)
#define BATCH_ARGUMENTS                                                                    \
  (to, from, bytes, count, attributes, indices, attribute_count, failed, stream)
#define BATCH_V2                                                                           \
  (CUdeviceptr * to, CUdeviceptr * from, size_t *bytes, size_t count,                      \
   CUmemcpyAttributes *attributes, size_t *indices, size_t attribute_count,                \
   CUstream stream)
#define BATCH_V2_ARGUMENTS                                                                 \
  (to, from, bytes, count, attributes, indices, attribute_count, stream)
#define NOTE_BATCH batch_copied(to, from, bytes, count, at)
HOOK_BATCH(cuMemcpyBatchAsync, false, NOTE_BATCH, BATCH, BATCH_ARGUMENTS)
HOOK_BATCH(cuMemcpyBatchAsync_ptsz, true, NOTE_BATCH, BATCH, BATCH_ARGUMENTS)
HOOK_BATCH(cuMemcpyBatchAsync_v2, false, NOTE_BATCH, BATCH_V2, BATCH_V2_ARGUMENTS)
HOOK_BATCH(cuMemcpyBatchAsync_v2_ptsz, true, NOTE_BATCH, BATCH_V2, BATCH_V2_ARGUMENTS)

#define BOXES                                                                              \
  (size_t count, CUDA_MEMCPY3D_BATCH_OP *copies, size_t *failed, unsigned long long flags, \
   CUstream stream)
#define BOXES_V2                                                                           \
  (size_t count, CUDA_MEMCPY3D_BATCH_OP *copies, unsigned long long flags, CUstream stream)
#define BOXES_ARGUMENTS (count, copies, failed, flags, stream)
#define BOXES_V2_ARGUMENTS (count, copies, flags, stream)
#define NOTE_BOXES boxes_copied(copies, count, at)
HOOK_BATCH(cuMemcpy3DBatchAsync, false, NOTE_BOXES, BOXES, BOXES_ARGUMENTS)
HOOK_BATCH(cuMemcpy3DBatchAsync_ptsz, true, NOTE_BOXES, BOXES, BOXES_ARGUMENTS)
HOOK_BATCH(cuMemcpy3DBatchAsync_v2, false, NOTE_BOXES, BOXES_V2, BOXES_V2_ARGUMENTS)
HOOK_BATCH(cuMemcpy3DBatchAsync_v2_ptsz, true, NOTE_BOXES, BOXES_V2, BOXES_V2_ARGUMENTS)

#define ONE_BOX (CUDA_MEMCPY3D_BATCH_OP * copy, unsigned long long flags, CUstream stream)
HOOK_BATCH(cuMemcpy3DWithAttributesAsync, false, boxes_copied(copy, 1, at), ONE_BOX,
           (copy, flags, stream))
HOOK_BATCH(cuMemcpy3DWithAttributesAsync_ptsz, true, boxes_copied(copy, 1, at), ONE_BOX,
           (copy, flags, stream))

#define DECOMPRESS                                                                         \
  (CUmemDecompressParams * parts, size_t count, unsigned int flags, size_t *failed,        \
   CUstream stream)
#define DECOMPRESS_ARGUMENTS (parts, count, flags, failed, stream)
HOOK_BATCH(cuMemBatchDecompressAsync, false, decompressed(parts, count, at), DECOMPRESS,
           DECOMPRESS_ARGUMENTS)
HOOK_BATCH(cuMemBatchDecompressAsync_ptsz, true, decompressed(parts, count, at), DECOMPRESS,
           DECOMPRESS_ARGUMENTS)

/* ---- arrays: their other side --------------------------------------------- */

#define HOOK_ARRAY(name, per_thread, to_address, from_address, parameters, arguments)      \
  CUresult name parameters {                                                               \
    if (pump_quiet()) return pump_real.name arguments;                                     \
    struct pump_at at = pump_at(NULL, per_thread);                                         \
    struct box box = box_of_bytes(to_address, from_address, bytes);                        \
    struct pump_token token = copying(&box, at);                                           \
    CUresult result = pump_real.name arguments;                                            \
    if (result == CUDA_SUCCESS) pump_op_issued(token, at);                                 \
    return result;                                                                         \
  }

#define D_TO_A (CUarray to, size_t offset, CUdeviceptr from, size_t bytes)
#define A_TO_D (CUdeviceptr to, CUarray from, size_t offset, size_t bytes)
HOOK_ARRAY(cuMemcpyDtoA_v2, false, 0, from, D_TO_A, (to, offset, from, bytes))
HOOK_ARRAY(cuMemcpyDtoA_v2_ptds, true, 0, from, D_TO_A, (to, offset, from, bytes))
HOOK_ARRAY(cuMemcpyAtoD_v2, false, to, 0, A_TO_D, (to, from, offset, bytes))
HOOK_ARRAY(cuMemcpyAtoD_v2_ptds, true, to, 0, A_TO_D, (to, from, offset, bytes))
