/* copy_nd.c - copies of two and three dimensions. Arrays (textures) do not exist. */
#include "driver.h"

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

static CUresult copy_3d(CUstream stream, const CUDA_MEMCPY3D *p, bool synchronous,
                        const char *what) {
  if (p == NULL || p->srcLOD != 0 || p->dstLOD != 0) return CUDA_ERROR_INVALID_VALUE;
  struct vd_copy copy = {
      .width_bytes = p->WidthInBytes, .height = p->Height, .depth = p->Depth};
  if (!address_of(p->srcMemoryType, p->srcHost, p->srcDevice, &copy.source) ||
      !address_of(p->dstMemoryType, p->dstHost, p->dstDevice, &copy.destination))
    return CUDA_ERROR_NOT_SUPPORTED;
  copy.source_pitch = p->srcPitch ? p->srcPitch : p->WidthInBytes + p->srcXInBytes;
  copy.destination_pitch = p->dstPitch ? p->dstPitch : p->WidthInBytes + p->dstXInBytes;
  copy.source_slice = copy.source_pitch * (p->srcHeight ? p->srcHeight : p->Height);
  copy.destination_slice =
      copy.destination_pitch * (p->dstHeight ? p->dstHeight : p->Height);
  if (copy.source_pitch < p->WidthInBytes + p->srcXInBytes ||
      copy.destination_pitch < p->WidthInBytes + p->dstXInBytes)
    return CUDA_ERROR_INVALID_VALUE;
  copy.source += p->srcZ * copy.source_slice + p->srcY * copy.source_pitch + p->srcXInBytes;
  copy.destination +=
      p->dstZ * copy.destination_slice + p->dstY * copy.destination_pitch + p->dstXInBytes;
  return vd_copy(stream, &copy, synchronous, what);
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
