/* array_bytes.c - computes how much memory an array takes from its shape. The driver does
 * not report the sizes of arrays; padding by their tiles is unknown and not included.
 */
#include "memory.h"

#define PAGE_BYTES 65536u

/* Returns the bits of a texel, by CUarray_format. The table has bits of one channel, or,
 * with `of_all`, of all together. Unknown formats count as 32 bits a channel, the most. */
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

uint64_t pump_array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned int levels) {
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

void pump_array_count(struct pump_plain_info info, const void *handle, uint64_t bytes) {
  if (info.device >= PUMP_MAX_DEVICES || bytes == 0 || bytes > UINT64_MAX / 4) return;
  info.base = (uintptr_t)handle;
  info.bytes = (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
  pump_plain_add(&info);
}
