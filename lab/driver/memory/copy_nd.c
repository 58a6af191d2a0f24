/* copy_nd.c - copies of two and three dimensions, single and in batches, and copies from
 * and to arrays. */
#include "memory.h"

/* One end of a copy, as the structures of all dimensions describe it. */
struct side {
  int type; /* CU_MEMORYTYPE_* */
  const void *host;
  CUdeviceptr device;
  CUarray array;
  size_t x_bytes, y, z, pitch, height;
};
/* Start address, row pitch and slice pitch of one end. */
struct located {
  uint64_t address;
  size_t pitch, slice;
  CUarray array;
};

static CUresult locate_in_array(const struct side *side, const struct vd_copy *copy,
                                struct located *out) {
  struct vd_texels texels;
  if (!vd_array_texels_locked(side->array, &texels)) return CUDA_ERROR_INVALID_HANDLE;
  if (copy->width_bytes > texels.row_bytes ||
      side->x_bytes > texels.row_bytes - copy->width_bytes || copy->height > texels.rows ||
      side->y > texels.rows - copy->height || copy->depth > texels.slices ||
      side->z > texels.slices - copy->depth || side->x_bytes % texels.texel_bytes != 0 ||
      copy->width_bytes % texels.texel_bytes != 0)
    return CUDA_ERROR_INVALID_VALUE;
  out->array = side->array;
  out->pitch = texels.pitch;
  out->slice = texels.pitch * texels.rows;
  out->address =
      texels.address + side->z * out->slice + side->y * out->pitch + side->x_bytes;
  return CUDA_SUCCESS;
}

static CUresult locate(const struct side *side, const struct vd_copy *copy,
                       struct located *out) {
  if (side->type == CU_MEMORYTYPE_ARRAY) return locate_in_array(side, copy, out);
  if (side->type != CU_MEMORYTYPE_HOST && side->type != CU_MEMORYTYPE_DEVICE &&
      side->type != CU_MEMORYTYPE_UNIFIED)
    return CUDA_ERROR_INVALID_VALUE;
  size_t row = copy->width_bytes + side->x_bytes;
  out->array = NULL;
  out->pitch = side->pitch ? side->pitch : row;
  if (out->pitch < row) return CUDA_ERROR_INVALID_VALUE;
  size_t rows = side->height ? side->height : copy->height, bytes;
  if (__builtin_mul_overflow(out->pitch, rows, &out->slice) ||
      __builtin_mul_overflow(out->slice, copy->depth, &bytes) || bytes >> 47 != 0)
    return CUDA_ERROR_INVALID_VALUE; /* more than the address space */
  out->address = side->type == CU_MEMORYTYPE_HOST ? (uint64_t)side->host : side->device;
  out->address += side->z * out->slice + side->y * out->pitch + side->x_bytes;
  return CUDA_SUCCESS;
}

/* Fills in both ends of a copy whose extents are known. */
static CUresult locate_both_locked(const struct side *from, const struct side *to,
                                   struct vd_copy *copy) {
  struct located source, destination;
  CUresult result = locate(from, copy, &source);
  if (result == CUDA_SUCCESS) result = locate(to, copy, &destination);
  if (result != CUDA_SUCCESS) return result;
  copy->source = source.address;
  copy->source_pitch = source.pitch;
  copy->source_slice = source.slice;
  copy->source_array = source.array;
  copy->destination = destination.address;
  copy->destination_pitch = destination.pitch;
  copy->destination_slice = destination.slice;
  copy->destination_array = destination.array;
  return CUDA_SUCCESS;
}

static CUresult copy_between(CUstream stream, const struct side *from,
                             const struct side *to, struct vd_copy copy, bool synchronous,
                             const char *what) {
  vd_lock();
  CUresult result = locate_both_locked(from, to, &copy);
  vd_unlock();
  return result == CUDA_SUCCESS ? vd_copy(stream, &copy, synchronous, what) : result;
}

static CUresult copy_2d(CUstream stream, const CUDA_MEMCPY2D *p, bool synchronous,
                        const char *what) {
  if (p == NULL) return CUDA_ERROR_INVALID_VALUE;
  struct vd_copy copy = {.width_bytes = p->WidthInBytes, .height = p->Height, .depth = 1};
  struct side from = {
      p->srcMemoryType, p->srcHost, p->srcDevice, p->srcArray, p->srcXInBytes, p->srcY, 0,
      p->srcPitch,      0};
  struct side to = {
      p->dstMemoryType, p->dstHost, p->dstDevice, p->dstArray, p->dstXInBytes, p->dstY, 0,
      p->dstPitch,      0};
  return copy_between(stream, &from, &to, copy, synchronous, what);
}

/* Both 3D structures have the same fields, except contexts. */
#define COPY_OF_3D(linkage, function, type)                                                \
  linkage CUresult function(const type *p, struct vd_copy *out) {                          \
    if (p == NULL || p->srcLOD != 0 || p->dstLOD != 0) return CUDA_ERROR_INVALID_VALUE;    \
    struct side from = {p->srcMemoryType, p->srcHost,     p->srcDevice,                    \
                        p->srcArray,      p->srcXInBytes, p->srcY,                         \
                        p->srcZ,          p->srcPitch,    p->srcHeight};                   \
    struct side to = {p->dstMemoryType, p->dstHost,     p->dstDevice,                      \
                      p->dstArray,      p->dstXInBytes, p->dstY,                           \
                      p->dstZ,          p->dstPitch,    p->dstHeight};                     \
    *out = (struct vd_copy){                                                               \
        .width_bytes = p->WidthInBytes, .height = p->Height, .depth = p->Depth};           \
    return locate_both_locked(&from, &to, out);                                            \
  }
COPY_OF_3D(, vd_copy_of_3d_locked, CUDA_MEMCPY3D)
COPY_OF_3D(static, copy_of_peer_locked,
           CUDA_MEMCPY3D_PEER) /* one device: contexts are ignored */

static CUresult copy_3d(CUstream stream, const CUDA_MEMCPY3D *p, bool synchronous,
                        const char *what) {
  struct vd_copy copy;
  vd_lock();
  CUresult result = vd_copy_of_3d_locked(p, &copy);
  vd_unlock();
  return result == CUDA_SUCCESS ? vd_copy(stream, &copy, synchronous, what) : result;
}

static CUresult copy_peer(CUstream stream, const CUDA_MEMCPY3D_PEER *p, bool synchronous,
                          const char *what) {
  struct vd_copy copy;
  vd_lock();
  CUresult result = copy_of_peer_locked(p, &copy);
  vd_unlock();
  return result == CUDA_SUCCESS ? vd_copy(stream, &copy, synchronous, what) : result;
}

/* Describes one end; lengths are in texels. false: a row or layer is too short. */
static bool side_of(const CUmemcpy3DOperand *operand, size_t texel_bytes,
                    const CUDA_MEMCPY3D_BATCH_OP *p, struct side *side) {
  if (operand->type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
    *side = (struct side){.type = CU_MEMORYTYPE_ARRAY,
                          .array = operand->op.array.array,
                          .x_bytes = operand->op.array.offset.x * texel_bytes,
                          .y = operand->op.array.offset.y,
                          .z = operand->op.array.offset.z};
    return true;
  }
  size_t row = operand->op.ptr.rowLength, rows = operand->op.ptr.layerHeight;
  *side = (struct side){.type = CU_MEMORYTYPE_UNIFIED,
                        .device = operand->op.ptr.ptr,
                        .pitch = row * texel_bytes,
                        .height = rows};
  return operand->type == CU_MEMCPY_OPERAND_TYPE_POINTER &&
         (rows == 0 || rows >= p->extent.height);
}

/* Lengths are in texels if an end is an array, else in bytes. */
static CUresult copy_operands(CUstream stream, const CUDA_MEMCPY3D_BATCH_OP *p) {
  struct vd_texels texels = {.texel_bytes = 1};
  struct side from, to;
  const CUmemcpy3DOperand *ends[] = {&p->src, &p->dst};
  bool known = true;
  vd_lock();
  for (int i = 0; i < 2 && known; i++)
    known = ends[i]->type != CU_MEMCPY_OPERAND_TYPE_ARRAY ||
            vd_array_texels_locked(ends[i]->op.array.array, &texels);
  vd_unlock();
  if (!known) return CUDA_ERROR_INVALID_HANDLE;
  if (p->extent.width == 0 || p->extent.height == 0 || p->extent.depth == 0 ||
      !side_of(&p->src, texels.texel_bytes, p, &from) ||
      !side_of(&p->dst, texels.texel_bytes, p, &to))
    return CUDA_ERROR_INVALID_VALUE;
  struct vd_copy copy = {.width_bytes = p->extent.width * texels.texel_bytes,
                         .height = p->extent.height,
                         .depth = p->extent.depth};
  return copy_between(stream, &from, &to, copy, false, "cuMemcpy3DBatchAsync");
}

CUresult vd_cuMemcpy3DBatchAsync_v2(size_t count, CUDA_MEMCPY3D_BATCH_OP *copies,
                                    unsigned long long flags, CUstream stream) {
  if (count == 0 || copies == NULL || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (stream == NULL || stream == CU_STREAM_LEGACY) return CUDA_ERROR_INVALID_HANDLE;
  for (size_t i = 0; i < count; i++) {
    CUresult result = copy_operands(stream, &copies[i]);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}
CUresult vd_cuMemcpy3DWithAttributesAsync(CUDA_MEMCPY3D_BATCH_OP *copy,
                                          unsigned long long flags, CUstream stream) {
  if (copy == NULL || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return copy_operands(stream, copy);
}
CUresult vd_cuMemcpy3DBatchAsync(size_t count, CUDA_MEMCPY3D_BATCH_OP *copies,
                                 size_t *failed, unsigned long long flags,
                                 CUstream stream) {
  CUresult result = vd_cuMemcpy3DBatchAsync_v2(count, copies, flags, stream);
  if (result != CUDA_SUCCESS && failed != NULL) *failed = SIZE_MAX;
  return result;
}

CUresult vd_cuMemcpy2D_v2(CUstream stream, const CUDA_MEMCPY2D *p) {
  return copy_2d(stream, p, true, "cuMemcpy2D");
}
CUresult vd_cuMemcpy2DUnaligned_v2(CUstream stream, const CUDA_MEMCPY2D *p) {
  return copy_2d(stream, p, true, "cuMemcpy2DUnaligned");
}
CUresult vd_cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *p, CUstream stream) {
  return copy_2d(stream, p, false, "cuMemcpy2DAsync");
}
CUresult vd_cuMemcpy3D_v2(CUstream stream, const CUDA_MEMCPY3D *p) {
  return copy_3d(stream, p, true, "cuMemcpy3D");
}
CUresult vd_cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *p, CUstream stream) {
  return copy_3d(stream, p, false, "cuMemcpy3DAsync");
}
CUresult vd_cuMemcpy3DPeer(CUstream stream, const CUDA_MEMCPY3D_PEER *p) {
  return copy_peer(stream, p, true, "cuMemcpy3DPeer");
}
CUresult vd_cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *p, CUstream stream) {
  return copy_peer(stream, p, false, "cuMemcpy3DPeerAsync");
}

/* ---- one-dimensional copies of array bytes ------------------------- */

static struct side array_at(CUarray array, size_t offset) {
  return (struct side){.type = CU_MEMORYTYPE_ARRAY, .array = array, .x_bytes = offset};
}

static struct side memory_at(uint64_t address) {
  return (struct side){.type = CU_MEMORYTYPE_UNIFIED, .device = address};
}

static CUresult copy_row(CUstream stream, struct side to, struct side from, size_t bytes,
                         bool synchronous, const char *what) {
  struct vd_copy copy = {.width_bytes = bytes, .height = 1, .depth = 1};
  return copy_between(stream, &from, &to, copy, synchronous, what);
}

CUresult vd_cuMemcpyDtoA_v2(CUstream stream, CUarray to, size_t offset, CUdeviceptr from,
                            size_t bytes) {
  return copy_row(stream, array_at(to, offset), memory_at(from), bytes, false,
                  "cuMemcpyDtoA");
}
CUresult vd_cuMemcpyAtoD_v2(CUstream stream, CUdeviceptr to, CUarray from, size_t offset,
                            size_t bytes) {
  return copy_row(stream, memory_at(to), array_at(from, offset), bytes, false,
                  "cuMemcpyAtoD");
}
CUresult vd_cuMemcpyHtoA_v2(CUstream stream, CUarray to, size_t offset, const void *from,
                            size_t bytes) {
  return copy_row(stream, array_at(to, offset), memory_at((uint64_t)from), bytes, true,
                  "cuMemcpyHtoA");
}
CUresult vd_cuMemcpyAtoH_v2(CUstream stream, void *to, CUarray from, size_t offset,
                            size_t bytes) {
  return copy_row(stream, memory_at((uint64_t)to), array_at(from, offset), bytes, true,
                  "cuMemcpyAtoH");
}
CUresult vd_cuMemcpyHtoAAsync_v2(CUarray to, size_t offset, const void *from, size_t bytes,
                                 CUstream stream) {
  return copy_row(stream, array_at(to, offset), memory_at((uint64_t)from), bytes, false,
                  "cuMemcpyHtoAAsync");
}
CUresult vd_cuMemcpyAtoHAsync_v2(void *to, CUarray from, size_t offset, size_t bytes,
                                 CUstream stream) {
  return copy_row(stream, memory_at((uint64_t)to), array_at(from, offset), bytes, false,
                  "cuMemcpyAtoHAsync");
}
CUresult vd_cuMemcpyAtoA_v2(CUstream stream, CUarray to, size_t to_offset, CUarray from,
                            size_t from_offset, size_t bytes) {
  return copy_row(stream, array_at(to, to_offset), array_at(from, from_offset), bytes,
                  false, "cuMemcpyAtoA");
}
