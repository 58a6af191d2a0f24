/* cudart_array.c - arrays and mipmapped arrays, their texel formats, and texture and
 * surface objects.
 */
#include <string.h>

#include "cudart.h"

/* -- texels -- */

static const struct {
  int kind, bits, format; /* CU_AD_FORMAT_* */
} formats[] = {
    {cudaChannelFormatKindUnsigned, 8, 0x01},  {cudaChannelFormatKindUnsigned, 16, 0x02},
    {cudaChannelFormatKindUnsigned, 32, 0x03}, {cudaChannelFormatKindSigned, 8, 0x08},
    {cudaChannelFormatKindSigned, 16, 0x09},   {cudaChannelFormatKindSigned, 32, 0x0a},
    {cudaChannelFormatKindFloat, 16, 0x10},    {cudaChannelFormatKindFloat, 32, 0x20}};
#define FORMATS (sizeof formats / sizeof *formats)

static cudaError_t format_of(const struct cudaChannelFormatDesc *desc, int *format,
                             unsigned int *channels) {
  const int bits[] = {desc->x, desc->y, desc->z, desc->w};
  *channels = 0;
  for (unsigned int i = 0; i < 4; i++) {
    if (bits[i] != 0 && (bits[i] != desc->x || *channels != i))
      return cudaErrorInvalidChannelDescriptor;
    if (bits[i] != 0) *channels = i + 1;
  }
  for (size_t i = 0; i < FORMATS; i++) {
    if (formats[i].kind != desc->f || formats[i].bits != desc->x) continue;
    *format = formats[i].format;
    return cudaSuccess;
  }
  return cudaErrorInvalidChannelDescriptor;
}

static struct cudaChannelFormatDesc described(int format, unsigned int channels,
                                              size_t *texel_bytes) {
  for (size_t i = 0; i < FORMATS; i++) {
    int bits = formats[i].bits;
    if (formats[i].format != format) continue;
    *texel_bytes = channels * (size_t)bits / 8;
    return (struct cudaChannelFormatDesc){bits, channels > 1 ? bits : 0,
                                          channels > 2 ? bits : 0, channels > 3 ? bits : 0,
                                          formats[i].kind};
  }
  *texel_bytes = 1;
  return (struct cudaChannelFormatDesc){0};
}

RT_FUNCTION(struct cudaChannelFormatDesc, cudaCreateChannelDesc,
            (int x, int y, int z, int w, RT_ENUM(cudaChannelFormatKind) kind)) {
  return (struct cudaChannelFormatDesc){x, y, z, w, kind};
}

/* -- arrays -- */

cudaError_t rt_array_shape(cudaArray_const_t array, CUDA_ARRAY3D_DESCRIPTOR *shape,
                           size_t *texel_bytes) {
  cudaError_t error = array == NULL ? cudaErrorInvalidValue : rt_enter();
  if (error == cudaSuccess)
    error = rt_driver.cuArray3DGetDescriptor_v2(shape, (CUarray)(uintptr_t)array);
  if (error == cudaSuccess) described(shape->Format, shape->NumChannels, texel_bytes);
  return error;
}

static cudaError_t shape_of(const struct cudaChannelFormatDesc *desc,
                            struct cudaExtent extent, unsigned int flags,
                            CUDA_ARRAY3D_DESCRIPTOR *shape) {
  cudaError_t error = desc == NULL ? cudaErrorInvalidValue : rt_enter();
  if (error != cudaSuccess) return error;
  *shape = (CUDA_ARRAY3D_DESCRIPTOR){.Width = extent.width,
                                     .Height = extent.height,
                                     .Depth = extent.depth,
                                     .Flags = flags};
  return format_of(desc, &shape->Format, &shape->NumChannels);
}

static cudaError_t create(cudaArray_t *out, const struct cudaChannelFormatDesc *desc,
                          struct cudaExtent extent, unsigned int flags) {
  CUDA_ARRAY3D_DESCRIPTOR shape;
  return rt_keep(shape_of(desc, extent, flags, &shape)
                     ?: rt_driver.cuArray3DCreate_v2(out, &shape));
}

RT_API(cudaMallocArray, (cudaArray_t * out, const struct cudaChannelFormatDesc *desc,
                         size_t width, size_t height, unsigned int flags)) {
  return create(out, desc, (struct cudaExtent){width, height, 0}, flags);
}

RT_API(cudaMalloc3DArray, (cudaArray_t * out, const struct cudaChannelFormatDesc *desc,
                           struct cudaExtent extent, unsigned int flags)) {
  return create(out, desc, extent, flags);
}

RT_API(cudaMallocMipmappedArray,
       (cudaMipmappedArray_t * out, const struct cudaChannelFormatDesc *desc,
        struct cudaExtent extent, unsigned int levels, unsigned int flags)) {
  CUDA_ARRAY3D_DESCRIPTOR shape;
  return rt_keep(shape_of(desc, extent, flags, &shape)
                     ?: rt_driver.cuMipmappedArrayCreate(out, &shape, levels));
}

RT_API(cudaFreeArray, (cudaArray_t array)) {
  cudaError_t error = rt_enter();
  if (error == cudaSuccess && array != NULL) error = rt_driver.cuArrayDestroy(array);
  return rt_keep(error);
}

RT_API(cudaFreeMipmappedArray, (cudaMipmappedArray_t array)) {
  cudaError_t error = rt_enter();
  if (error == cudaSuccess && array != NULL)
    error = rt_driver.cuMipmappedArrayDestroy(array);
  return rt_keep(error);
}

RT_FORWARD(cudaGetMipmappedArrayLevel,
           (cudaArray_t * out, cudaMipmappedArray_const_t array, unsigned int level),
           cuMipmappedArrayGetLevel, (out, (CUmipmappedArray)(uintptr_t)array, level))

RT_API(cudaArrayGetInfo, (struct cudaChannelFormatDesc * desc, struct cudaExtent *extent,
                          unsigned int *flags, cudaArray_t array)) {
  CUDA_ARRAY3D_DESCRIPTOR shape;
  size_t texel_bytes;
  cudaError_t error = rt_array_shape(array, &shape, &texel_bytes);
  if (error != cudaSuccess) return rt_keep(error);
  if (desc != NULL) *desc = described(shape.Format, shape.NumChannels, &texel_bytes);
  if (extent != NULL) *extent = (struct cudaExtent){shape.Width, shape.Height, shape.Depth};
  if (flags != NULL) *flags = shape.Flags;
  return cudaSuccess;
}

RT_API(cudaGetChannelDesc, (struct cudaChannelFormatDesc * desc, cudaArray_const_t array)) {
  CUDA_ARRAY3D_DESCRIPTOR shape;
  size_t texel_bytes;
  cudaError_t error =
      desc == NULL ? cudaErrorInvalidValue : rt_array_shape(array, &shape, &texel_bytes);
  if (error == cudaSuccess)
    *desc = described(shape.Format, shape.NumChannels, &texel_bytes);
  return rt_keep(error);
}

/* -- texture and surface objects -- */

static cudaError_t resource_of(const struct cudaResourceDesc *given,
                               CUDA_RESOURCE_DESC *out) {
  cudaError_t error = given == NULL ? cudaErrorInvalidValue : rt_enter();
  if (error != cudaSuccess) return error;
  *out = (CUDA_RESOURCE_DESC){.resType = given->resType, .flags = given->flags};
  switch (given->resType) {
  case cudaResourceTypeArray:
    out->res.array.hArray = given->res.array.array;
    return cudaSuccess;
  case cudaResourceTypeMipmappedArray:
    out->res.mipmap.hMipmappedArray = given->res.mipmap.mipmap;
    return cudaSuccess;
  case cudaResourceTypeLinear:
    out->res.linear.devPtr = rt_address(given->res.linear.devPtr);
    out->res.linear.sizeInBytes = given->res.linear.sizeInBytes;
    return format_of(&given->res.linear.desc, &out->res.linear.format,
                     &out->res.linear.numChannels);
  case cudaResourceTypePitch2D:
    out->res.pitch2D.devPtr = rt_address(given->res.pitch2D.devPtr);
    out->res.pitch2D.width = given->res.pitch2D.width;
    out->res.pitch2D.height = given->res.pitch2D.height;
    out->res.pitch2D.pitchInBytes = given->res.pitch2D.pitchInBytes;
    return format_of(&given->res.pitch2D.desc, &out->res.pitch2D.format,
                     &out->res.pitch2D.numChannels);
  default:
    return cudaErrorInvalidValue;
  }
}

static void tell_resource(const CUDA_RESOURCE_DESC *given, struct cudaResourceDesc *out) {
  size_t texel_bytes;
  *out = (struct cudaResourceDesc){.resType = given->resType, .flags = given->flags};
  switch (given->resType) {
  case cudaResourceTypeArray:
    out->res.array.array = given->res.array.hArray;
    break;
  case cudaResourceTypeMipmappedArray:
    out->res.mipmap.mipmap = given->res.mipmap.hMipmappedArray;
    break;
  case cudaResourceTypeLinear:
    out->res.linear.devPtr = rt_pointer(given->res.linear.devPtr);
    out->res.linear.sizeInBytes = given->res.linear.sizeInBytes;
    out->res.linear.desc =
        described(given->res.linear.format, given->res.linear.numChannels, &texel_bytes);
    break;
  default:
    out->res.pitch2D.devPtr = rt_pointer(given->res.pitch2D.devPtr);
    out->res.pitch2D.width = given->res.pitch2D.width;
    out->res.pitch2D.height = given->res.pitch2D.height;
    out->res.pitch2D.pitchInBytes = given->res.pitch2D.pitchInBytes;
    out->res.pitch2D.desc =
        described(given->res.pitch2D.format, given->res.pitch2D.numChannels, &texel_bytes);
  }
}

enum {
  AS_INTEGER = 0x01,
  NORMALIZED = 0x02,
  SRGB = 0x10,
  NO_TRILINEAR = 0x20,
  SEAMLESS = 0x40
};

static void texture_of(const struct cudaTextureDesc *given, CUDA_TEXTURE_DESC *out) {
  *out = (CUDA_TEXTURE_DESC){.filterMode = given->filterMode,
                             .maxAnisotropy = given->maxAnisotropy,
                             .mipmapFilterMode = given->mipmapFilterMode,
                             .mipmapLevelBias = given->mipmapLevelBias,
                             .minMipmapLevelClamp = given->minMipmapLevelClamp,
                             .maxMipmapLevelClamp = given->maxMipmapLevelClamp};
  memcpy(out->addressMode, given->addressMode, sizeof out->addressMode);
  memcpy(out->borderColor, given->borderColor, sizeof out->borderColor);
  out->flags = (given->readMode == 0 ? AS_INTEGER : 0u) |
               (given->normalizedCoords ? NORMALIZED : 0u) | (given->sRGB ? SRGB : 0u) |
               (given->disableTrilinearOptimization ? NO_TRILINEAR : 0u) |
               (given->seamlessCubemap ? SEAMLESS : 0u);
}

static void tell_texture(const CUDA_TEXTURE_DESC *given, struct cudaTextureDesc *out) {
  *out = (struct cudaTextureDesc){.filterMode = given->filterMode,
                                  .readMode = (given->flags & AS_INTEGER) == 0,
                                  .sRGB = (given->flags & SRGB) != 0,
                                  .normalizedCoords = (given->flags & NORMALIZED) != 0,
                                  .maxAnisotropy = given->maxAnisotropy,
                                  .mipmapFilterMode = given->mipmapFilterMode,
                                  .mipmapLevelBias = given->mipmapLevelBias,
                                  .minMipmapLevelClamp = given->minMipmapLevelClamp,
                                  .maxMipmapLevelClamp = given->maxMipmapLevelClamp,
                                  .disableTrilinearOptimization =
                                      (given->flags & NO_TRILINEAR) != 0,
                                  .seamlessCubemap = (given->flags & SEAMLESS) != 0};
  memcpy(out->addressMode, given->addressMode, sizeof out->addressMode);
  memcpy(out->borderColor, given->borderColor, sizeof out->borderColor);
}

RT_API(cudaCreateTextureObject,
       (cudaTextureObject_t * out, const struct cudaResourceDesc *given,
        const struct cudaTextureDesc *sampling, const struct cudaResourceViewDesc *view)) {
  CUDA_RESOURCE_DESC resource;
  CUDA_TEXTURE_DESC texture;
  cudaError_t error =
      sampling == NULL ? cudaErrorInvalidValue : resource_of(given, &resource);
  if (error != cudaSuccess) return rt_keep(error);
  texture_of(sampling, &texture);
  return rt_keep(rt_driver.cuTexObjectCreate(
      out, &resource, &texture, (const CUDA_RESOURCE_VIEW_DESC *)(const void *)view));
}

RT_API(cudaCreateSurfaceObject,
       (cudaSurfaceObject_t * out, const struct cudaResourceDesc *given)) {
  CUDA_RESOURCE_DESC resource;
  return rt_keep(resource_of(given, &resource)
                     ?: rt_driver.cuSurfObjectCreate(out, &resource));
}

RT_FORWARD(cudaDestroyTextureObject, (cudaTextureObject_t object), cuTexObjectDestroy,
           (object))
RT_FORWARD(cudaDestroySurfaceObject, (cudaSurfaceObject_t object), cuSurfObjectDestroy,
           (object))

RT_API(cudaGetTextureObjectResourceDesc,
       (struct cudaResourceDesc * out, cudaTextureObject_t object)) {
  CUDA_RESOURCE_DESC resource;
  cudaError_t error = out == NULL ? cudaErrorInvalidValue : rt_enter();
  if (error == cudaSuccess) error = rt_driver.cuTexObjectGetResourceDesc(&resource, object);
  if (error == cudaSuccess) tell_resource(&resource, out);
  return rt_keep(error);
}

RT_API(cudaGetSurfaceObjectResourceDesc,
       (struct cudaResourceDesc * out, cudaSurfaceObject_t object)) {
  CUDA_RESOURCE_DESC resource;
  cudaError_t error = out == NULL ? cudaErrorInvalidValue : rt_enter();
  if (error == cudaSuccess)
    error = rt_driver.cuSurfObjectGetResourceDesc(&resource, object);
  if (error == cudaSuccess) tell_resource(&resource, out);
  return rt_keep(error);
}

RT_API(cudaGetTextureObjectTextureDesc,
       (struct cudaTextureDesc * out, cudaTextureObject_t object)) {
  CUDA_TEXTURE_DESC texture;
  cudaError_t error = out == NULL ? cudaErrorInvalidValue : rt_enter();
  if (error == cudaSuccess) error = rt_driver.cuTexObjectGetTextureDesc(&texture, object);
  if (error == cudaSuccess) tell_texture(&texture, out);
  return rt_keep(error);
}

RT_FORWARD(cudaGetTextureObjectResourceViewDesc,
           (struct cudaResourceViewDesc * out, cudaTextureObject_t object),
           cuTexObjectGetResourceViewDesc, ((CUDA_RESOURCE_VIEW_DESC *)(void *)out, object))
