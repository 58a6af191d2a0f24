/* observe_array.c - device memory without addresses: arrays and what is imported, for the
 * figures only.
 *
 * It cannot be paged and counts against the budget, by its handle, until it is destroyed or
 * its context ends. The driver tells no sizes of arrays: they follow from the shape, in
 * whole pages, without what their tiles take besides. Imported memory is taken for the
 * device's, where the other interface (Vulkan, a dma-buf of another driver) has it as a
 * rule.
 *
 * A multicast object has no memory of its own: what is bound to it is cuMemCreate's
 * (observe_vmm.c). Nor has an array that is sparse or mapped later: that is bound to it as
 * well.
 */
#include <errno.h>

#include "shim/memory/memory.h"

#define PAGE_BYTES 65536u

/* Bits of a channel, or where `of_all` of all channels together, by CUarray_format. Of
 * others 32 a channel: nothing is wider. */
static uint64_t texel_bits(int format, uint64_t channels) {
  static const struct {
    int first, last, bits;
    bool of_all;
  } formats[] = {
      {0x01, 0x01, 8, false},  {0x02, 0x02, 16, false}, {0x03, 0x03, 32, false},
      {0x08, 0x08, 8, false},  {0x09, 0x09, 16, false}, {0x0a, 0x0a, 32, false},
      {0x10, 0x10, 16, false}, {0x20, 0x20, 32, false}, {0x50, 0x50, 32, true},
      {0x91, 0x92, 4, true},   {0x93, 0x96, 8, true},   {0x97, 0x98, 4, true},
      {0x99, 0x9e, 8, true},   {0x9f, 0xa1, 24, true}, /* BC1-BC7; P010, P016 */
      {0xb0, 0xb0, 12, true},                          /* NV12 */
      {0xc0, 0xc2, 8, false},  {0xc3, 0xc5, 16, false}, {0xc6, 0xc8, 8, false},
      {0xc9, 0xcb, 16, false},
  };
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
    if (format >= formats[i].first && format <= formats[i].last)
      return (uint64_t)formats[i].bits * (formats[i].of_all ? 1 : channels);
  return 32 * channels;
}

static uint64_t at_least_one(uint64_t count) {
  return count != 0 ? count : 1;
}

/* 0 where it has no memory of its own. Sums that no card could hold are UINT64_MAX. */
static uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned int levels) {
  uint64_t width = at_least_one(shape->Width), height = at_least_one(shape->Height);
  uint64_t depth = at_least_one(shape->Depth), sum = 0;
  if ((shape->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) != 0) return 0;
  for (unsigned int i = 0; i < levels; i++) {
    uint64_t bits, texels;
    if (__builtin_mul_overflow(width, height, &texels) ||
        __builtin_mul_overflow(texels, depth, &texels) ||
        __builtin_mul_overflow(texels, texel_bits(shape->Format, shape->NumChannels),
                               &bits) ||
        __builtin_add_overflow(sum, bits / 8 + (bits % 8 != 0), &sum))
      return UINT64_MAX;
    if (width == 1 && height == 1 && ((shape->Flags & CUDA_ARRAY3D_LAYERED) || depth == 1))
      break;
    width = at_least_one(width / 2);
    height = at_least_one(height / 2);
    if (!(shape->Flags & CUDA_ARRAY3D_LAYERED)) depth = at_least_one(depth / 2);
  }
  return sum;
}

/* Before the real call: the device's budget is chosen before memory is taken. */
static struct pump_plain_info here(void) {
  struct pump_plain_info info = {0};
  PUMP_ADD(&pump_calls_seen, 1);
  int device = pump_current_device(&info.context);
  info.device = device >= 0 ? (uint32_t)device : PUMP_MAX_DEVICES;
  return info;
}

static void count(struct pump_plain_info info, const void *handle, uint64_t bytes) {
  if (info.device >= PUMP_MAX_DEVICES || bytes == 0 || bytes > UINT64_MAX / 4) return;
  info.base = (uintptr_t)handle;
  info.bytes = (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
  pump_plain_add(&info);
}

#define HOOK_CREATE(name, handle, bytes, parameters, arguments)                            \
  CUresult name parameters {                                                               \
    if (pump_inert()) return pump_real.name arguments;                                     \
    int saved = errno;                                                                     \
    pump_enter();                                                                          \
    struct pump_plain_info info = here();                                                  \
    CUresult result = pump_real.name arguments;                                            \
    if (result == CUDA_SUCCESS) count(info, *(handle), bytes);                             \
    pump_leave();                                                                          \
    errno = saved;                                                                         \
    return result;                                                                         \
  }

/* Before the real call: afterwards another thread may be given the same handle. */
#define HOOK_DESTROY(name, type)                                                           \
  CUresult name(type handle) {                                                             \
    if (pump_inert()) return pump_real.name(handle);                                       \
    struct pump_plain_info info;                                                           \
    bool counted = pump_plain_remove((uintptr_t)handle, &info);                            \
    CUresult result = pump_real.name(handle);                                              \
    if (counted && result != CUDA_SUCCESS) pump_plain_add(&info);                          \
    return result;                                                                         \
  }

static uint64_t flat_bytes(const CUDA_ARRAY_DESCRIPTOR *shape) {
  const CUDA_ARRAY3D_DESCRIPTOR whole = {.Width = shape->Width,
                                         .Height = shape->Height,
                                         .Format = shape->Format,
                                         .NumChannels = shape->NumChannels};
  return array_bytes(&whole, 1);
}

HOOK_CREATE(cuArrayCreate_v2, array, flat_bytes(shape),
            (CUarray * array, const CUDA_ARRAY_DESCRIPTOR *shape), (array, shape))
HOOK_CREATE(cuArray3DCreate_v2, array, array_bytes(shape, 1),
            (CUarray * array, const CUDA_ARRAY3D_DESCRIPTOR *shape), (array, shape))
HOOK_DESTROY(cuArrayDestroy, CUarray)
HOOK_CREATE(cuMipmappedArrayCreate, array, array_bytes(shape, levels),
            (CUmipmappedArray * array, const CUDA_ARRAY3D_DESCRIPTOR *shape,
             unsigned int levels),
            (array, shape, levels))
HOOK_DESTROY(cuMipmappedArrayDestroy, CUmipmappedArray)
HOOK_CREATE(cuImportExternalMemory, memory, description->size,
            (CUexternalMemory * memory,
             const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *description),
            (memory, description))
HOOK_DESTROY(cuDestroyExternalMemory, CUexternalMemory)
