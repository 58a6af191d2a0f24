/* tensor.c - hooks of the calls that encode tensor map descriptors (TMA). */
#include "shim/record/record.h"

#define RANK_MOST 5 /* maximum rank of a tensor map (cuda.h) */

/* Hashes the kind, type, rank, sizes and strides of a tensor map. */
static uint64_t shape_of(uint32_t kind, CUtensorMapDataType type, cuuint32_t rank,
                         const cuuint64_t *sizes, const cuuint64_t *strides) {
  uint64_t shape = pump_tensor_mix((uint64_t)kind << 32 | (uint32_t)type, rank);
  for (uint32_t i = 0; i < rank && i < RANK_MOST; i++) {
    shape = pump_tensor_mix(shape, sizes[i]);
    if (i + 1 < rank) shape = pump_tensor_mix(shape, strides[i]);
  }
  return shape;
}

#define HOOK_ENCODE(name, kind, parameters, arguments)                                     \
  CUresult name parameters {                                                               \
    CUresult result = pump_real.name arguments;                                            \
    if (result == CUDA_SUCCESS && !pump_inert())                                           \
      pump_tensor_note(map, address, shape_of(kind, type, rank, sizes, strides));          \
    return result;                                                                         \
  }

HOOK_ENCODE(cuTensorMapEncodeTiled, 1,
            (CUtensorMap * map, CUtensorMapDataType type, cuuint32_t rank, void *address,
             const cuuint64_t *sizes, const cuuint64_t *strides, const cuuint32_t *box,
             const cuuint32_t *steps, CUtensorMapInterleave interleave,
             CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
             CUtensorMapFloatOOBfill fill),
            (map, type, rank, address, sizes, strides, box, steps, interleave, swizzle,
             promotion, fill))
HOOK_ENCODE(cuTensorMapEncodeIm2col, 2,
            (CUtensorMap * map, CUtensorMapDataType type, cuuint32_t rank, void *address,
             const cuuint64_t *sizes, const cuuint64_t *strides, const int *lower,
             const int *upper, cuuint32_t channels, cuuint32_t pixels,
             const cuuint32_t *steps, CUtensorMapInterleave interleave,
             CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
             CUtensorMapFloatOOBfill fill),
            (map, type, rank, address, sizes, strides, lower, upper, channels, pixels,
             steps, interleave, swizzle, promotion, fill))
HOOK_ENCODE(cuTensorMapEncodeIm2colWide, 3,
            (CUtensorMap * map, CUtensorMapDataType type, cuuint32_t rank, void *address,
             const cuuint64_t *sizes, const cuuint64_t *strides, int lower, int upper,
             cuuint32_t channels, cuuint32_t pixels, const cuuint32_t *steps,
             CUtensorMapInterleave interleave, CUtensorMapIm2ColWideMode mode,
             CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
             CUtensorMapFloatOOBfill fill),
            (map, type, rank, address, sizes, strides, lower, upper, channels, pixels,
             steps, interleave, mode, swizzle, promotion, fill))

CUresult cuTensorMapReplaceAddress(CUtensorMap *map, void *address) {
  if (pump_inert()) return pump_real.cuTensorMapReplaceAddress(map, address);
  struct pump_tensor before = {0, 0};
  if (map != NULL) pump_tensor_find(map, &before);
  CUresult result = pump_real.cuTensorMapReplaceAddress(map, address);
  if (result == CUDA_SUCCESS) pump_tensor_note(map, address, before.shape);
  return result;
}
