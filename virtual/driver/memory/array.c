/* array.c - arrays and mipmapped arrays: memory that is taken from the card, by a handle.
 *
 * They hold nothing: no copy reaches them (CUDA_ERROR_INVALID_VALUE), no texture reads
 * them. Rows take whole sectors of 64 bytes, an array whole pages.
 */
#include "virtual/driver/driver.h"

#define SECTOR_BYTES 64u
#define PAGE_BYTES 65536u

/* 0: a format that is not known here. */
static size_t channel_bytes(int format) {
  switch (format) {
  case 0x01: /* unsigned, signed */
  case 0x08:
    return 1;
  case 0x02:
  case 0x09:
  case 0x10: /* half */
    return 2;
  case 0x03:
  case 0x0a:
  case 0x20: /* float */
    return 4;
  default:
    return 0;
  }
}

static size_t half(size_t extent) {
  return extent > 1 ? extent / 2 : extent;
}

static CUresult create(uint64_t *handle, CUDA_ARRAY3D_DESCRIPTOR shape, unsigned int levels,
                       const char *what) {
  size_t texel = channel_bytes(shape.Format) * shape.NumChannels, sum = 0;
  bool layered = (shape.Flags & CUDA_ARRAY3D_LAYERED) != 0;
  if (handle == NULL || shape.Width == 0 || texel == 0 || shape.NumChannels > 4 ||
      shape.NumChannels == 3 || levels == 0)
    return CUDA_ERROR_INVALID_VALUE;
  for (unsigned int i = 0; i < levels; i++) {
    size_t rows = (shape.Height | !shape.Height) * (shape.Depth | !shape.Depth);
    size_t row = (shape.Width * texel + SECTOR_BYTES - 1) / SECTOR_BYTES * SECTOR_BYTES;
    sum += row * rows;
    shape.Width = half(shape.Width);
    shape.Height = half(shape.Height);
    if (!layered) shape.Depth = half(shape.Depth);
  }
  struct vd_memory *memory;
  vd_lock();
  CUresult result = vd_capture_unsafe_locked(what);
  if (result == CUDA_SUCCESS)
    result =
        vd_memory_new(VD_PLAIN, (sum + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES, &memory);
  if (result == CUDA_SUCCESS) {
    memory->is_array = true;
    *handle = memory->base;
  }
  vd_unlock();
  return result;
}

static CUresult destroy(uint64_t handle) {
  vd_lock();
  struct vd_memory *memory = vd_memory_at(handle);
  bool known = memory != NULL && memory->is_array && memory->base == handle;
  if (known) {
    vd_wait_device_locked();
    memory = vd_memory_at(handle); /* another thread may have destroyed it meanwhile */
    known = memory != NULL && memory->is_array;
  }
  if (known) vd_wait_until_locked(vd_memory_release(memory));
  vd_unlock();
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult vd_cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *shape) {
  if (shape == NULL) return CUDA_ERROR_INVALID_VALUE;
  return create((uint64_t *)array, *shape, 1, "cuArray3DCreate");
}

CUresult vd_cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *shape) {
  if (shape == NULL) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_ARRAY3D_DESCRIPTOR whole = {.Width = shape->Width,
                                         .Height = shape->Height,
                                         .Format = shape->Format,
                                         .NumChannels = shape->NumChannels};
  return create((uint64_t *)array, whole, 1, "cuArrayCreate");
}

CUresult vd_cuArrayDestroy(CUarray array) {
  return destroy((uint64_t)array);
}

CUresult vd_cuMipmappedArrayCreate(CUmipmappedArray *array,
                                   const CUDA_ARRAY3D_DESCRIPTOR *shape,
                                   unsigned int levels) {
  if (shape == NULL) return CUDA_ERROR_INVALID_VALUE;
  return create((uint64_t *)array, *shape, levels, "cuMipmappedArrayCreate");
}

CUresult vd_cuMipmappedArrayDestroy(CUmipmappedArray array) {
  return destroy((uint64_t)array);
}
