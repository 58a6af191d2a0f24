/* copy_nd.c - copies of two and three dimensions, one by one and in batches. Arrays
 * (textures) do not exist. */
#include "virtual/driver/driver.h"

static bool address_of(int type, const void *host, CUdeviceptr device, uint64_t *address) {
  switch (type) {
  case CU_MEMORYTYPE_HOST:
    *address = (uint64_t)host;
    return true;
  case CU_MEMORYTYPE_DEVICE:
  case CU_MEMORYTYPE_UNIFIED:
    *address = device;
    return true;
  default:
    return false;
  }
}

static CUresult copy_2d(CUstream stream, const CUDA_MEMCPY2D *p, bool synchronous,
                        const char *what) {
  if (p == NULL) return CUDA_ERROR_INVALID_VALUE;
  struct vd_copy copy = {.width_bytes = p->WidthInBytes, .height = p->Height, .depth = 1};
  if (!address_of(p->srcMemoryType, p->srcHost, p->srcDevice, &copy.source) ||
      !address_of(p->dstMemoryType, p->dstHost, p->dstDevice, &copy.destination))
    return CUDA_ERROR_NOT_SUPPORTED;
  copy.source_pitch = p->srcPitch ? p->srcPitch : p->WidthInBytes + p->srcXInBytes;
  copy.destination_pitch = p->dstPitch ? p->dstPitch : p->WidthInBytes + p->dstXInBytes;
  if (copy.source_pitch < p->WidthInBytes + p->srcXInBytes ||
      copy.destination_pitch < p->WidthInBytes + p->dstXInBytes)
    return CUDA_ERROR_INVALID_VALUE;
  copy.source += p->srcY * copy.source_pitch + p->srcXInBytes;
  copy.destination += p->dstY * copy.destination_pitch + p->dstXInBytes;
  return vd_copy(stream, &copy, synchronous, what);
}

/* The two structures of three dimensions have the same fields, but for contexts. */
#define COPY_OF_3D(linkage, function, type)                                                \
  linkage CUresult function(const type *p, struct vd_copy *out) {                          \
    if (p == NULL || p->srcLOD != 0 || p->dstLOD != 0) return CUDA_ERROR_INVALID_VALUE;    \
    size_t source_row = p->WidthInBytes + p->srcXInBytes;                                  \
    size_t destination_row = p->WidthInBytes + p->dstXInBytes;                             \
    struct vd_copy copy = {                                                                \
        .width_bytes = p->WidthInBytes, .height = p->Height, .depth = p->Depth};           \
    if (!address_of(p->srcMemoryType, p->srcHost, p->srcDevice, &copy.source) ||           \
        !address_of(p->dstMemoryType, p->dstHost, p->dstDevice, &copy.destination))        \
      return CUDA_ERROR_NOT_SUPPORTED;                                                     \
    copy.source_pitch = p->srcPitch ? p->srcPitch : source_row;                            \
    copy.destination_pitch = p->dstPitch ? p->dstPitch : destination_row;                  \
    if (copy.source_pitch < source_row || copy.destination_pitch < destination_row)        \
      return CUDA_ERROR_INVALID_VALUE;                                                     \
    copy.source_slice = copy.source_pitch * (p->srcHeight ? p->srcHeight : p->Height);     \
    copy.destination_slice =                                                               \
        copy.destination_pitch * (p->dstHeight ? p->dstHeight : p->Height);                \
    copy.source +=                                                                         \
        p->srcZ * copy.source_slice + p->srcY * copy.source_pitch + p->srcXInBytes;        \
    copy.destination += p->dstZ * copy.destination_slice +                                 \
                        p->dstY * copy.destination_pitch + p->dstXInBytes;                 \
    *out = copy;                                                                           \
    return CUDA_SUCCESS;                                                                   \
  }
COPY_OF_3D(, vd_copy_of_3d, CUDA_MEMCPY3D)
COPY_OF_3D(static, copy_of_peer, CUDA_MEMCPY3D_PEER) /* one device: contexts say nothing */

static CUresult copy_3d(CUstream stream, const CUDA_MEMCPY3D *p, bool synchronous,
                        const char *what) {
  struct vd_copy copy;
  CUresult result = vd_copy_of_3d(p, &copy);
  return result == CUDA_SUCCESS ? vd_copy(stream, &copy, synchronous, what) : result;
}

static CUresult copy_peer(CUstream stream, const CUDA_MEMCPY3D_PEER *p, bool synchronous,
                          const char *what) {
  struct vd_copy copy;
  CUresult result = copy_of_peer(p, &copy);
  return result == CUDA_SUCCESS ? vd_copy(stream, &copy, synchronous, what) : result;
}

/* Pointers only, so lengths are in bytes. */
static CUresult copy_operands(CUstream stream, const CUDA_MEMCPY3D_BATCH_OP *p) {
  if (p->src.type != CU_MEMCPY_OPERAND_TYPE_POINTER ||
      p->dst.type != CU_MEMCPY_OPERAND_TYPE_POINTER)
    return CUDA_ERROR_NOT_SUPPORTED;
  size_t width = p->extent.width, height = p->extent.height;
  size_t from_row = p->src.op.ptr.rowLength, from_rows = p->src.op.ptr.layerHeight;
  size_t to_row = p->dst.op.ptr.rowLength, to_rows = p->dst.op.ptr.layerHeight;
  if (width == 0 || height == 0 || p->extent.depth == 0) return CUDA_ERROR_INVALID_VALUE;
  if (from_row == 0) from_row = width;
  if (to_row == 0) to_row = width;
  if (from_row < width || to_row < width || (from_rows != 0 && from_rows < height) ||
      (to_rows != 0 && to_rows < height))
    return CUDA_ERROR_INVALID_VALUE;
  struct vd_copy copy = {.source = p->src.op.ptr.ptr,
                         .destination = p->dst.op.ptr.ptr,
                         .width_bytes = width,
                         .height = height,
                         .depth = p->extent.depth,
                         .source_pitch = from_row,
                         .source_slice = from_row * (from_rows ? from_rows : height),
                         .destination_pitch = to_row,
                         .destination_slice = to_row * (to_rows ? to_rows : height)};
  return vd_copy(stream, &copy, false, "cuMemcpy3DBatchAsync");
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
