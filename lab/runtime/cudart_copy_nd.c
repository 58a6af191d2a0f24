/* cudart_copy_nd.c - copies of rows and slices between memory and arrays; memsets of
 * slices.
 *
 * Addresses show which memory they are in, so a copy's direction is only checked.
 */
#include <string.h>

#include "cudart.h"

static bool known_direction(int kind) {
  return kind >= cudaMemcpyHostToHost && kind <= cudaMemcpyDefault;
}

/* -- rows -- */

/* One end: memory with a pitch, or a position in an array. */
struct end {
  const void *pointer;
  size_t pitch;
  cudaArray_const_t array; /* NULL: memory */
  size_t x_bytes, y;
};

static CUarray handle_of(cudaArray_const_t array) {
  return (CUarray)(uintptr_t)array;
}

static cudaError_t copy_rows(const struct rt_driver *driver, const struct end *to,
                             const struct end *from, size_t width_bytes, size_t height,
                             int kind, const cudaStream_t *stream) {
  CUDA_MEMCPY2D what = {
      .srcMemoryType = from->array ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_UNIFIED,
      .srcArray = handle_of(from->array),
      .srcXInBytes = from->x_bytes,
      .srcY = from->y,
      .srcDevice = rt_address(from->pointer),
      .srcPitch = from->pitch,
      .dstMemoryType = to->array ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_UNIFIED,
      .dstArray = handle_of(to->array),
      .dstXInBytes = to->x_bytes,
      .dstY = to->y,
      .dstDevice = rt_address(to->pointer),
      .dstPitch = to->pitch,
      .WidthInBytes = width_bytes,
      .Height = height};
  if (!known_direction(kind)) return cudaErrorInvalidMemcpyDirection;
  cudaError_t error = rt_enter();
  if (error != cudaSuccess || width_bytes == 0 || height == 0) return error;
  return stream == NULL ? driver->cuMemcpy2DUnaligned_v2(&what)
                        : driver->cuMemcpy2DAsync_v2(&what, *stream);
}

#define MEMORY(pointer, pitch) &((struct end){pointer, pitch, NULL, 0, 0})
#define POSITION(array, x_bytes, y) &((struct end){NULL, 0, array, x_bytes, y})

RT_TWINS(_ptds, cudaMemcpy2D,
         (void *to, size_t to_pitch, const void *from, size_t from_pitch,
          size_t width_bytes, size_t height, RT_ENUM(cudaMemcpyKind) kind),
         copy_rows(driver, MEMORY(to, to_pitch), MEMORY(from, from_pitch), width_bytes,
                   height, kind, NULL))
RT_TWINS(_ptsz, cudaMemcpy2DAsync,
         (void *to, size_t to_pitch, const void *from, size_t from_pitch,
          size_t width_bytes, size_t height, RT_ENUM(cudaMemcpyKind) kind,
          cudaStream_t stream),
         copy_rows(driver, MEMORY(to, to_pitch), MEMORY(from, from_pitch), width_bytes,
                   height, kind, &stream))

/* A missing array must not become memory at address 0. */
#define OF_ARRAY(array, copying) (array) == NULL ? cudaErrorInvalidValue : (copying)

RT_TWINS(_ptds, cudaMemcpy2DToArray,
         (cudaArray_t to, size_t x_bytes, size_t y, const void *from, size_t pitch,
          size_t width_bytes, size_t height, RT_ENUM(cudaMemcpyKind) kind),
         OF_ARRAY(to, copy_rows(driver, POSITION(to, x_bytes, y), MEMORY(from, pitch),
                                width_bytes, height, kind, NULL)))
RT_TWINS(_ptsz, cudaMemcpy2DToArrayAsync,
         (cudaArray_t to, size_t x_bytes, size_t y, const void *from, size_t pitch,
          size_t width_bytes, size_t height, RT_ENUM(cudaMemcpyKind) kind,
          cudaStream_t stream),
         OF_ARRAY(to, copy_rows(driver, POSITION(to, x_bytes, y), MEMORY(from, pitch),
                                width_bytes, height, kind, &stream)))
RT_TWINS(_ptds, cudaMemcpy2DFromArray,
         (void *to, size_t pitch, cudaArray_const_t from, size_t x_bytes, size_t y,
          size_t width_bytes, size_t height, RT_ENUM(cudaMemcpyKind) kind),
         OF_ARRAY(from, copy_rows(driver, MEMORY(to, pitch), POSITION(from, x_bytes, y),
                                  width_bytes, height, kind, NULL)))
RT_TWINS(_ptsz, cudaMemcpy2DFromArrayAsync,
         (void *to, size_t pitch, cudaArray_const_t from, size_t x_bytes, size_t y,
          size_t width_bytes, size_t height, RT_ENUM(cudaMemcpyKind) kind,
          cudaStream_t stream),
         OF_ARRAY(from, copy_rows(driver, MEMORY(to, pitch), POSITION(from, x_bytes, y),
                                  width_bytes, height, kind, &stream)))
RT_TWINS(_ptds, cudaMemcpy2DArrayToArray,
         (cudaArray_t to, size_t to_x_bytes, size_t to_y, cudaArray_const_t from,
          size_t from_x_bytes, size_t from_y, size_t width_bytes, size_t height,
          RT_ENUM(cudaMemcpyKind) kind),
         to == NULL || from == NULL ? cudaErrorInvalidValue
                                    : copy_rows(driver, POSITION(to, to_x_bytes, to_y),
                                                POSITION(from, from_x_bytes, from_y),
                                                width_bytes, height, kind, NULL))

/* -- bytes that continue from row to row of an array -- */

/* Checks that the array has that many bytes from the position; returns the row length. */
static cudaError_t check_run(cudaArray_const_t array, size_t x_bytes, size_t y,
                             size_t length_bytes, size_t *row_bytes) {
  CUDA_ARRAY3D_DESCRIPTOR shape;
  size_t texel_bytes;
  cudaError_t error = rt_array_shape(array, &shape, &texel_bytes);
  if (error != cudaSuccess) return error;
  size_t rows = shape.Height ? shape.Height : 1;
  *row_bytes = shape.Width * texel_bytes;
  bool fits =
      y < rows && x_bytes < *row_bytes && length_bytes <= (rows - y) * *row_bytes - x_bytes;
  return fits ? cudaSuccess : cudaErrorInvalidValue;
}

static cudaError_t copy_run(const struct rt_driver *driver, cudaArray_const_t array,
                            size_t x_bytes, size_t y, const void *memory,
                            size_t length_bytes, bool to_array, int kind,
                            const cudaStream_t *stream) {
  size_t row_bytes;
  cudaError_t error = check_run(array, x_bytes, y, length_bytes, &row_bytes);
  const char *at = memory;
  while (error == cudaSuccess && length_bytes > 0) {
    size_t left_bytes = row_bytes - x_bytes, height = 1;
    size_t width_bytes = length_bytes < left_bytes ? length_bytes : left_bytes;
    if (x_bytes == 0 && length_bytes >= row_bytes) height = length_bytes / row_bytes;
    const struct end *there = POSITION(array, x_bytes, y), *here = MEMORY(at, width_bytes);
    error = copy_rows(driver, to_array ? there : here, to_array ? here : there, width_bytes,
                      height, kind, stream);
    at += width_bytes * height;
    length_bytes -= width_bytes * height;
    y += height;
    x_bytes = 0;
  }
  return error;
}

RT_TWINS(_ptds, cudaMemcpyToArray,
         (cudaArray_t to, size_t x_bytes, size_t y, const void *from, size_t length_bytes,
          RT_ENUM(cudaMemcpyKind) kind),
         copy_run(driver, to, x_bytes, y, from, length_bytes, true, kind, NULL))
RT_TWINS(_ptsz, cudaMemcpyToArrayAsync,
         (cudaArray_t to, size_t x_bytes, size_t y, const void *from, size_t length_bytes,
          RT_ENUM(cudaMemcpyKind) kind, cudaStream_t stream),
         copy_run(driver, to, x_bytes, y, from, length_bytes, true, kind, &stream))
RT_TWINS(_ptds, cudaMemcpyFromArray,
         (void *to, cudaArray_const_t from, size_t x_bytes, size_t y, size_t length_bytes,
          RT_ENUM(cudaMemcpyKind) kind),
         copy_run(driver, from, x_bytes, y, to, length_bytes, false, kind, NULL))
RT_TWINS(_ptsz, cudaMemcpyFromArrayAsync,
         (void *to, cudaArray_const_t from, size_t x_bytes, size_t y, size_t length_bytes,
          RT_ENUM(cudaMemcpyKind) kind, cudaStream_t stream),
         copy_run(driver, from, x_bytes, y, to, length_bytes, false, kind, &stream))

/* Copies row by row of both: a run may end within a row of either. */
static cudaError_t copy_arrays(const struct rt_driver *driver, struct end to,
                               struct end from, size_t length_bytes, int kind) {
  struct end *ends[] = {&to, &from};
  size_t row_bytes[2];
  cudaError_t error = cudaSuccess;
  for (int i = 0; i < 2 && error == cudaSuccess; i++)
    error = check_run(ends[i]->array, ends[i]->x_bytes, ends[i]->y, length_bytes,
                      &row_bytes[i]);
  while (error == cudaSuccess && length_bytes > 0) {
    size_t width_bytes = length_bytes;
    for (int i = 0; i < 2; i++)
      if (width_bytes > row_bytes[i] - ends[i]->x_bytes)
        width_bytes = row_bytes[i] - ends[i]->x_bytes;
    error = copy_rows(driver, &to, &from, width_bytes, 1, kind, NULL);
    length_bytes -= width_bytes;
    for (int i = 0; i < 2; i++) {
      ends[i]->x_bytes += width_bytes;
      if (ends[i]->x_bytes < row_bytes[i]) continue;
      ends[i]->x_bytes = 0;
      ends[i]->y++;
    }
  }
  return error;
}

RT_TWINS(_ptds, cudaMemcpyArrayToArray,
         (cudaArray_t to, size_t to_x_bytes, size_t to_y, cudaArray_const_t from,
          size_t from_x_bytes, size_t from_y, size_t length_bytes,
          RT_ENUM(cudaMemcpyKind) kind),
         copy_arrays(driver, *POSITION(to, to_x_bytes, to_y),
                     *POSITION(from, from_x_bytes, from_y), length_bytes, kind))

/* -- slices -- */

/* Returns the texel size of the array, or 1 byte without an array. */
static cudaError_t unit_of(cudaArray_t array, size_t *unit_bytes) {
  CUDA_ARRAY3D_DESCRIPTOR shape;
  *unit_bytes = 1;
  return array == NULL ? cudaSuccess : rt_array_shape(array, &shape, unit_bytes);
}

/* Returns the unit of the width; two arrays must have equal texel sizes. */
static cudaError_t units_of(cudaArray_t from, cudaArray_t to, size_t *from_bytes,
                            size_t *to_bytes, size_t *width_bytes) {
  cudaError_t error = unit_of(from, from_bytes) ?: unit_of(to, to_bytes);
  *width_bytes = from != NULL ? *from_bytes : *to_bytes;
  if (from != NULL && to != NULL && *from_bytes != *to_bytes) return cudaErrorInvalidValue;
  return error;
}

cudaError_t rt_box_of(const struct cudaMemcpy3DParms *given, CUDA_MEMCPY3D *out) {
  size_t from_bytes, to_bytes, unit_bytes;
  if (given == NULL || (given->srcArray != NULL) == (given->srcPtr.ptr != NULL) ||
      (given->dstArray != NULL) == (given->dstPtr.ptr != NULL))
    return cudaErrorInvalidValue;
  if (!known_direction(given->kind)) return cudaErrorInvalidMemcpyDirection;
  cudaError_t error = rt_enter()
                          ?: units_of(given->srcArray, given->dstArray, &from_bytes,
                                      &to_bytes, &unit_bytes);
  if (error != cudaSuccess) return error;
  *out = (CUDA_MEMCPY3D){
      .srcXInBytes = given->srcPos.x * from_bytes,
      .srcY = given->srcPos.y,
      .srcZ = given->srcPos.z,
      .srcMemoryType = given->srcArray ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_UNIFIED,
      .srcDevice = rt_address(given->srcPtr.ptr),
      .srcArray = given->srcArray,
      .srcPitch = given->srcPtr.pitch,
      .srcHeight = given->srcPtr.ysize,
      .dstXInBytes = given->dstPos.x * to_bytes,
      .dstY = given->dstPos.y,
      .dstZ = given->dstPos.z,
      .dstMemoryType = given->dstArray ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_UNIFIED,
      .dstDevice = rt_address(given->dstPtr.ptr),
      .dstArray = given->dstArray,
      .dstPitch = given->dstPtr.pitch,
      .dstHeight = given->dstPtr.ysize,
      .WidthInBytes = given->extent.width * unit_bytes,
      .Height = given->extent.height,
      .Depth = given->extent.depth};
  return cudaSuccess;
}

static struct cudaPitchedPtr pitched_ptr_of(int type, const void *host, CUdeviceptr device,
                                            size_t pitch, size_t height) {
  if (type == CU_MEMORYTYPE_ARRAY) return (struct cudaPitchedPtr){0};
  CUdeviceptr address = type == CU_MEMORYTYPE_HOST ? rt_address(host) : device;
  return (struct cudaPitchedPtr){rt_pointer(address), pitch, pitch, height};
}

cudaError_t rt_box_as_parms(const CUDA_MEMCPY3D *box, struct cudaMemcpy3DParms *out) {
  size_t from_bytes, to_bytes, unit_bytes;
  bool from_host = box->srcMemoryType == CU_MEMORYTYPE_HOST;
  bool to_host = box->dstMemoryType == CU_MEMORYTYPE_HOST;
  cudaError_t error =
      units_of(box->srcArray, box->dstArray, &from_bytes, &to_bytes, &unit_bytes);
  if (error != cudaSuccess) return error;
  *out = (struct cudaMemcpy3DParms){
      .srcArray = box->srcArray,
      .srcPos = {box->srcXInBytes / from_bytes, box->srcY, box->srcZ},
      .srcPtr = pitched_ptr_of(box->srcMemoryType, box->srcHost, box->srcDevice,
                               box->srcPitch, box->srcHeight),
      .dstArray = box->dstArray,
      .dstPos = {box->dstXInBytes / to_bytes, box->dstY, box->dstZ},
      .dstPtr = pitched_ptr_of(box->dstMemoryType, box->dstHost, box->dstDevice,
                               box->dstPitch, box->dstHeight),
      .extent = {box->WidthInBytes / unit_bytes, box->Height, box->Depth},
      .kind = from_host ? (to_host ? cudaMemcpyHostToHost : cudaMemcpyHostToDevice)
                        : (to_host ? cudaMemcpyDeviceToHost : cudaMemcpyDeviceToDevice)};
  return cudaSuccess;
}

static cudaError_t copy_box(const struct rt_driver *driver,
                            const struct cudaMemcpy3DParms *given,
                            const cudaStream_t *stream) {
  CUDA_MEMCPY3D box;
  cudaError_t error = rt_box_of(given, &box);
  if (error != cudaSuccess || box.WidthInBytes == 0 || box.Height == 0 || box.Depth == 0)
    return error;
  return stream == NULL ? driver->cuMemcpy3D_v2(&box)
                        : driver->cuMemcpy3DAsync_v2(&box, *stream);
}

RT_TWINS(_ptds, cudaMemcpy3D, (const struct cudaMemcpy3DParms *given),
         copy_box(driver, given, NULL))
RT_TWINS(_ptsz, cudaMemcpy3DAsync,
         (const struct cudaMemcpy3DParms *given, cudaStream_t stream),
         copy_box(driver, given, &stream))

/* Both sides are on the one device; the driver needs the context of each. */
static cudaError_t copy_peer(const struct rt_driver *driver,
                             const struct cudaMemcpy3DPeerParms *given,
                             const cudaStream_t *stream) {
  CUDA_MEMCPY3D box;
  CUDA_MEMCPY3D_PEER what;
  CUcontext context;
  if (given == NULL) return cudaErrorInvalidValue;
  if (given->srcDevice != 0 || given->dstDevice != 0) return cudaErrorInvalidDevice;
  const struct cudaMemcpy3DParms one = {.srcArray = given->srcArray,
                                        .srcPos = given->srcPos,
                                        .srcPtr = given->srcPtr,
                                        .dstArray = given->dstArray,
                                        .dstPos = given->dstPos,
                                        .dstPtr = given->dstPtr,
                                        .extent = given->extent,
                                        .kind = cudaMemcpyDefault};
  cudaError_t error = rt_box_of(&one, &box) ?: rt_driver.cuCtxGetCurrent(&context);
  if (error != cudaSuccess || box.WidthInBytes == 0 || box.Height == 0 || box.Depth == 0)
    return error;
  _Static_assert(sizeof what == sizeof box, "alike but for the contexts");
  memcpy(&what, &box, sizeof what);
  what.srcContext = what.dstContext = context;
  return stream == NULL ? driver->cuMemcpy3DPeer(&what)
                        : driver->cuMemcpy3DPeerAsync(&what, *stream);
}

RT_TWINS(_ptds, cudaMemcpy3DPeer, (const struct cudaMemcpy3DPeerParms *given),
         copy_peer(driver, given, NULL))
RT_TWINS(_ptsz, cudaMemcpy3DPeerAsync,
         (const struct cudaMemcpy3DPeerParms *given, cudaStream_t stream),
         copy_peer(driver, given, &stream))

RT_API(cudaMalloc3D, (struct cudaPitchedPtr * out, struct cudaExtent extent)) {
  CUdeviceptr address = 0;
  size_t pitch = 0, rows = 0;
  cudaError_t error =
      out == NULL || __builtin_mul_overflow(extent.height, extent.depth, &rows)
          ? cudaErrorInvalidValue
          : rt_enter();
  if (error == cudaSuccess && extent.width != 0 && rows != 0)
    error = rt_driver.cuMemAllocPitch_v2(&address, &pitch, extent.width, rows, 4);
  if (error == cudaSuccess)
    *out = (struct cudaPitchedPtr){rt_pointer(address), pitch, extent.width, extent.height};
  return rt_keep(error);
}

/* Sets slice by slice: between slices there may be rows that must not be set. */
static cudaError_t set_box(const struct rt_driver *driver, struct cudaPitchedPtr memory,
                           int value, struct cudaExtent extent,
                           const cudaStream_t *stream) {
  CUdeviceptr at = rt_address(memory.ptr);
  cudaError_t error = rt_enter();
  if (extent.width == 0 || extent.height == 0) return error;
  for (size_t z = 0; error == cudaSuccess && z < extent.depth; z++) {
    error = stream == NULL
                ? driver->cuMemsetD2D8_v2(at, memory.pitch, (unsigned char)value,
                                          extent.width, extent.height)
                : driver->cuMemsetD2D8Async(at, memory.pitch, (unsigned char)value,
                                            extent.width, extent.height, *stream);
    at += memory.pitch * memory.ysize;
  }
  return error;
}

RT_TWINS(_ptds, cudaMemset3D,
         (struct cudaPitchedPtr memory, int value, struct cudaExtent extent),
         set_box(driver, memory, value, extent, NULL))
RT_TWINS(_ptsz, cudaMemset3DAsync,
         (struct cudaPitchedPtr memory, int value, struct cudaExtent extent,
          cudaStream_t stream),
         set_box(driver, memory, value, extent, &stream))
