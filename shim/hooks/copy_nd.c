/* copy_nd.c - hooks of copies of rows and boxes, of batches, and from and to arrays
 * (record/copy_extents.c).
 *
 * A batch is reported as separate copies, because the driver may execute them in any
 * order, and each has its own extents. Record and real call are ordered as in copy.c.
 */
#include "copy.h"

static void copied(const struct pump_box *box, struct pump_at at) {
  struct pump_op op;
  pump_box_extents(&op, box);
  pump_copy_report(&op, at);
}

static struct pump_token copying(const struct pump_box *box, struct pump_at at) {
  struct pump_op op;
  pump_box_extents(&op, box);
  return pump_copy_begin(&op, at);
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
    struct pump_box box = box_of(copy);                                                    \
    if (pump_box_refused(&box)) return CUDA_ERROR_INVALID_VALUE;                           \
    if (pump_quiet()) return pump_real.name(copy);                                         \
    struct pump_at at = pump_at(NULL, per_thread);                                         \
    struct pump_token token = copying(&box, at);                                           \
    CUresult result = pump_real.name(copy);                                                \
    if (result == CUDA_SUCCESS) done(token, at, copy->dstMemoryType);                      \
    return result;                                                                         \
  }

#define HOOK_BOX_ASYNC(name, per_thread, box_of, type)                                     \
  CUresult name(const type *copy, CUstream stream) {                                       \
    struct pump_box box = box_of(copy);                                                    \
    if (pump_box_refused(&box)) return CUDA_ERROR_INVALID_VALUE;                           \
    if (pump_quiet()) return pump_real.name(copy, stream);                                 \
    struct pump_at at = pump_at(stream, per_thread);                                       \
    struct pump_op op;                                                                     \
    pump_box_extents(&op, &box);                                                           \
    struct pump_token token = pump_copy_announce_wait(&op, box.to.address, at);            \
    CUresult result = pump_real.name(copy, stream);                                        \
    if (result == CUDA_SUCCESS) pump_copy_follow(&op, token, at);                          \
    return result;                                                                         \
  }

HOOK_BOX_BLOCKING(cuMemcpy2D_v2, false, pump_box_2d, CUDA_MEMCPY2D)
HOOK_BOX_BLOCKING(cuMemcpy2D_v2_ptds, true, pump_box_2d, CUDA_MEMCPY2D)
HOOK_BOX_BLOCKING(cuMemcpy2DUnaligned_v2, false, pump_box_2d, CUDA_MEMCPY2D)
HOOK_BOX_BLOCKING(cuMemcpy2DUnaligned_v2_ptds, true, pump_box_2d, CUDA_MEMCPY2D)
HOOK_BOX_ASYNC(cuMemcpy2DAsync_v2, false, pump_box_2d, CUDA_MEMCPY2D)
HOOK_BOX_ASYNC(cuMemcpy2DAsync_v2_ptsz, true, pump_box_2d, CUDA_MEMCPY2D)
HOOK_BOX_BLOCKING(cuMemcpy3D_v2, false, pump_box_3d, CUDA_MEMCPY3D)
HOOK_BOX_BLOCKING(cuMemcpy3D_v2_ptds, true, pump_box_3d, CUDA_MEMCPY3D)
HOOK_BOX_ASYNC(cuMemcpy3DAsync_v2, false, pump_box_3d, CUDA_MEMCPY3D)
HOOK_BOX_ASYNC(cuMemcpy3DAsync_v2_ptsz, true, pump_box_3d, CUDA_MEMCPY3D)
HOOK_BOX_BLOCKING(cuMemcpy3DPeer, false, pump_box_peer, CUDA_MEMCPY3D_PEER)
HOOK_BOX_BLOCKING(cuMemcpy3DPeer_ptds, true, pump_box_peer, CUDA_MEMCPY3D_PEER)
HOOK_BOX_ASYNC(cuMemcpy3DPeerAsync, false, pump_box_peer, CUDA_MEMCPY3D_PEER)
HOOK_BOX_ASYNC(cuMemcpy3DPeerAsync_ptsz, true, pump_box_peer, CUDA_MEMCPY3D_PEER)

/* ---- batches -------------------------------------------------------------- */

static void batch_copied(const CUdeviceptr *to, const CUdeviceptr *from,
                         const size_t *bytes, size_t count, struct pump_at at) {
  for (size_t i = 0; i < count; i++) {
    struct pump_box box = pump_box_of_bytes(to[i], from[i], bytes[i]);
    copied(&box, at);
  }
}

/* Returns whether to refuse a batch. Sets `*failed`, like the driver, to the index of the
 * refused copy. The driver may already have executed the earlier copies. */
static bool batch_refused(const CUdeviceptr *to, const CUdeviceptr *from,
                          const size_t *bytes, size_t count, size_t *failed) {
  if (pump_inert() || !pump_list_given(to, count, sizeof *to) || from == NULL ||
      bytes == NULL)
    return false;
  size_t i = 0;
  while (i < count && !pump_copy_refused(to[i], from[i], bytes[i])) i++;
  if (i < count && failed != NULL) *failed = i;
  return i < count;
}

static bool boxes_refused(const CUDA_MEMCPY3D_BATCH_OP *copies, size_t count,
                          size_t *failed) {
  if (pump_inert() || !pump_list_given(copies, count, sizeof *copies)) return false;
  for (size_t i = 0; i < count; i++) {
    struct pump_box box = pump_box_of_operands(&copies[i]);
    if (!pump_box_refused(&box)) continue;
    if (failed != NULL) *failed = i;
    return true;
  }
  return false;
}

static void boxes_copied(const CUDA_MEMCPY3D_BATCH_OP *copies, size_t count,
                         struct pump_at at) {
  for (size_t i = 0; i < count; i++) {
    struct pump_box box = pump_box_of_operands(&copies[i]);
    copied(&box, at);
  }
}

/* Reports each part as a copy, which also writes the word for the part's size. */
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

#define HOOK_BATCH(name, per_thread, refused, note, parameters, arguments)                 \
  CUresult name parameters {                                                               \
    if (refused) return CUDA_ERROR_INVALID_VALUE;                                          \
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
#define REFUSED_BATCH(failed) batch_refused(to, from, bytes, count, failed)
#define NOTE_BATCH batch_copied(to, from, bytes, count, at)
HOOK_BATCH(cuMemcpyBatchAsync, false, REFUSED_BATCH(failed), NOTE_BATCH, BATCH,
           BATCH_ARGUMENTS)
HOOK_BATCH(cuMemcpyBatchAsync_ptsz, true, REFUSED_BATCH(failed), NOTE_BATCH, BATCH,
           BATCH_ARGUMENTS)
HOOK_BATCH(cuMemcpyBatchAsync_v2, false, REFUSED_BATCH(NULL), NOTE_BATCH, BATCH_V2,
           BATCH_V2_ARGUMENTS)
HOOK_BATCH(cuMemcpyBatchAsync_v2_ptsz, true, REFUSED_BATCH(NULL), NOTE_BATCH, BATCH_V2,
           BATCH_V2_ARGUMENTS)

#define BOXES                                                                              \
  (size_t count, CUDA_MEMCPY3D_BATCH_OP *copies, size_t *failed, unsigned long long flags, \
   CUstream stream)
#define BOXES_V2                                                                           \
  (size_t count, CUDA_MEMCPY3D_BATCH_OP *copies, unsigned long long flags, CUstream stream)
#define BOXES_ARGUMENTS (count, copies, failed, flags, stream)
#define BOXES_V2_ARGUMENTS (count, copies, flags, stream)
#define REFUSED_BOXES(failed) boxes_refused(copies, count, failed)
#define NOTE_BOXES boxes_copied(copies, count, at)
HOOK_BATCH(cuMemcpy3DBatchAsync, false, REFUSED_BOXES(failed), NOTE_BOXES, BOXES,
           BOXES_ARGUMENTS)
HOOK_BATCH(cuMemcpy3DBatchAsync_ptsz, true, REFUSED_BOXES(failed), NOTE_BOXES, BOXES,
           BOXES_ARGUMENTS)
HOOK_BATCH(cuMemcpy3DBatchAsync_v2, false, REFUSED_BOXES(NULL), NOTE_BOXES, BOXES_V2,
           BOXES_V2_ARGUMENTS)
HOOK_BATCH(cuMemcpy3DBatchAsync_v2_ptsz, true, REFUSED_BOXES(NULL), NOTE_BOXES, BOXES_V2,
           BOXES_V2_ARGUMENTS)

#define ONE_BOX (CUDA_MEMCPY3D_BATCH_OP * copy, unsigned long long flags, CUstream stream)
HOOK_BATCH(cuMemcpy3DWithAttributesAsync, false, boxes_refused(copy, 1, NULL),
           boxes_copied(copy, 1, at), ONE_BOX, (copy, flags, stream))
HOOK_BATCH(cuMemcpy3DWithAttributesAsync_ptsz, true, boxes_refused(copy, 1, NULL),
           boxes_copied(copy, 1, at), ONE_BOX, (copy, flags, stream))

#define DECOMPRESS                                                                         \
  (CUmemDecompressParams * parts, size_t count, unsigned int flags, size_t *failed,        \
   CUstream stream)
#define DECOMPRESS_ARGUMENTS (parts, count, flags, failed, stream)
HOOK_BATCH(cuMemBatchDecompressAsync, false, false, decompressed(parts, count, at),
           DECOMPRESS, DECOMPRESS_ARGUMENTS)
HOOK_BATCH(cuMemBatchDecompressAsync_ptsz, true, false, decompressed(parts, count, at),
           DECOMPRESS, DECOMPRESS_ARGUMENTS)

/* ---- copies from and to arrays --------------------------------------------- */

#define HOOK_ARRAY(name, per_thread, to_address, from_address, parameters, arguments)      \
  CUresult name parameters {                                                               \
    if (pump_quiet()) return pump_real.name arguments;                                     \
    struct pump_at at = pump_at(NULL, per_thread);                                         \
    struct pump_box box = pump_box_of_bytes(to_address, from_address, bytes);              \
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
