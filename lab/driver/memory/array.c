/* array.c - arrays and mipmapped arrays: device memory that has a handle.
 *
 * A handle is the address of the first texel, which kernels' C functions may read. Copies
 * do not accept it as an address. Texels are stored row by row. A row takes whole sectors
 * of 64 bytes, an array takes whole pages, and levels of a mipmapped array follow each
 * other. */
#include <stdlib.h>

#include "memory.h"

#define SECTOR_BYTES 64u
#define PAGE_BYTES 65536u

/* Returns the bytes of a channel; 0: an unknown format. */
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

static size_t at_least_one(size_t extent) {
  return extent != 0 ? extent : 1;
}

/* Returns the layout, without the first texel's address. */
static struct vd_texels texels_of(const CUDA_ARRAY3D_DESCRIPTOR *shape) {
  struct vd_texels texels = {.texel_bytes =
                                 channel_bytes(shape->Format) * shape->NumChannels,
                             .rows = at_least_one(shape->Height),
                             .slices = at_least_one(shape->Depth)};
  texels.row_bytes = shape->Width * texels.texel_bytes;
  texels.pitch = (texels.row_bytes + SECTOR_BYTES - 1) / SECTOR_BYTES * SECTOR_BYTES;
  return texels;
}

static uint64_t bytes_of(const struct vd_texels *texels) {
  return texels->pitch * texels->rows * texels->slices;
}

static CUDA_ARRAY3D_DESCRIPTOR next_level(CUDA_ARRAY3D_DESCRIPTOR shape) {
  shape.Width = half(shape.Width);
  shape.Height = half(shape.Height);
  if ((shape.Flags & CUDA_ARRAY3D_LAYERED) == 0) shape.Depth = half(shape.Depth);
  return shape;
}

static CUresult create(uint64_t *handle, CUDA_ARRAY3D_DESCRIPTOR shape, unsigned int levels,
                       const char *what) {
  struct vd_texels first = texels_of(&shape);
  uint64_t sum = 0;
  if (handle == NULL || shape.Width == 0 || first.texel_bytes == 0 ||
      shape.NumChannels > 4 || shape.NumChannels == 3 || shape.Width > 1u << 27 ||
      shape.Height > 1u << 17 || shape.Depth > 1u << 14)
    return CUDA_ERROR_INVALID_VALUE;
  struct vd_array *array = calloc(1, sizeof *array);
  if (array == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  array->shape = shape;
  array->levels = levels;
  for (unsigned int i = 0; i < at_least_one(levels); i++) {
    struct vd_texels texels = texels_of(&shape);
    sum += bytes_of(&texels);
    shape = next_level(shape);
  }
  struct vd_memory *memory;
  vd_lock();
  CUresult result = vd_capture_unsafe_locked(what);
  if (result == CUDA_SUCCESS)
    result =
        vd_memory_new(VD_PLAIN, (sum + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES, &memory);
  if (result == CUDA_SUCCESS) {
    memory->array = array;
    *handle = memory->base;
  }
  vd_unlock();
  if (result != CUDA_SUCCESS) free(array);
  return result;
}

static CUresult destroy(uint64_t handle, bool mipmapped) {
  vd_lock();
  struct vd_memory *memory = vd_memory_at(handle);
  bool known = memory != NULL && memory->array != NULL && memory->base == handle &&
               (memory->array->levels != 0) == mipmapped;
  if (known) {
    uint64_t id = memory->id;
    vd_wait_device_locked();
    memory = vd_memory_at(handle); /* it may have been destroyed */
    known = memory != NULL && memory->id == id;
  }
  if (known) vd_wait_until_locked(vd_memory_release(memory));
  vd_unlock();
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* Finds the shape and the texels of a handle's array, or level of a mipmapped array. */
static bool see(uint64_t handle, CUDA_ARRAY3D_DESCRIPTOR *shape, struct vd_texels *texels) {
  const struct vd_memory *memory = vd_memory_at(handle);
  if (memory == NULL || memory->array == NULL) return false;
  uint64_t at = memory->base;
  *shape = memory->array->shape;
  *texels = texels_of(shape);
  for (unsigned int i = 1; i < memory->array->levels && at < handle; i++) {
    at += bytes_of(texels);
    *shape = next_level(*shape);
    *texels = texels_of(shape);
  }
  texels->address = at;
  return at == handle;
}

bool vd_array_texels_locked(CUarray array, struct vd_texels *texels) {
  CUDA_ARRAY3D_DESCRIPTOR shape;
  return see((uint64_t)array, &shape, texels);
}

CUresult vd_cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *shape) {
  if (shape == NULL) return CUDA_ERROR_INVALID_VALUE;
  return create((uint64_t *)array, *shape, 0, "cuArray3DCreate");
}

CUresult vd_cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *shape) {
  if (shape == NULL) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_ARRAY3D_DESCRIPTOR whole = {.Width = shape->Width,
                                         .Height = shape->Height,
                                         .Format = shape->Format,
                                         .NumChannels = shape->NumChannels};
  return create((uint64_t *)array, whole, 0, "cuArrayCreate");
}

CUresult vd_cuArrayDestroy(CUarray array) {
  return destroy((uint64_t)array, false);
}

CUresult vd_cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *shape, CUarray array) {
  struct vd_texels texels;
  if (shape == NULL) return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  bool known = see((uint64_t)array, shape, &texels);
  vd_unlock();
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult vd_cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *shape, CUarray array) {
  CUDA_ARRAY3D_DESCRIPTOR whole;
  if (shape == NULL) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = vd_cuArray3DGetDescriptor_v2(&whole, array);
  if (result == CUDA_SUCCESS)
    *shape =
        (CUDA_ARRAY_DESCRIPTOR){whole.Width, whole.Height, whole.Format, whole.NumChannels};
  return result;
}

CUresult vd_cuMipmappedArrayCreate(CUmipmappedArray *array,
                                   const CUDA_ARRAY3D_DESCRIPTOR *shape,
                                   unsigned int levels) {
  if (shape == NULL || levels == 0) return CUDA_ERROR_INVALID_VALUE;
  return create((uint64_t *)array, *shape, levels, "cuMipmappedArrayCreate");
}

CUresult vd_cuMipmappedArrayGetLevel(CUarray *level, CUmipmappedArray array,
                                     unsigned int number) {
  if (level == NULL) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = CUDA_ERROR_INVALID_HANDLE;
  vd_lock();
  const struct vd_memory *memory = vd_memory_at((uint64_t)array);
  if (memory != NULL && memory->array != NULL && memory->base == (uint64_t)array &&
      memory->array->levels != 0) {
    result = number < memory->array->levels ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    CUDA_ARRAY3D_DESCRIPTOR shape = memory->array->shape;
    uint64_t at = memory->base;
    for (unsigned int i = 0; i < number && result == CUDA_SUCCESS; i++) {
      struct vd_texels texels = texels_of(&shape);
      at += bytes_of(&texels);
      shape = next_level(shape);
    }
    if (result == CUDA_SUCCESS) *level = (CUarray)at;
  }
  vd_unlock();
  return result;
}

CUresult vd_cuMipmappedArrayDestroy(CUmipmappedArray array) {
  return destroy((uint64_t)array, true);
}
