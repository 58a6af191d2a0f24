/* observe_pointer.c - what the program may learn about a pointer.
 *
 * Converted memory answers as the device memory that the program asked for, in
 * every call alike; the program's own managed memory stays what it is. Only
 * answers that the driver gave are corrected, with one exception that the driver
 * itself makes for device memory: it has no host pointer. Libraries that register
 * device memory with network cards are told the truth: they would fail.
 *
 * cuMemGetAddressRange gives the size that the program asked for, not the whole
 * blocks that it got: programs compare it with their own sizes, and would take the
 * rest of the last block for theirs.
 */
#include <errno.h>

#include "shim/memory/observe_rules.h"
#include "shim/pool/pool.h"

static bool converted(CUdeviceptr address, struct pump_hit *hit) {
  return pump_range_lookup(address, hit) && hit->kind == PUMP_RANGE_CONVERTED;
}

/* Converted memory that `address` lies in, as the program knows it: a block of our pool
 * stands for itself, not for the segment that it was cut from. */
struct seen {
  uint64_t base, requested_bytes;
  CUmemoryPool pool; /* whose memory it is; NULL: of none */
};

static bool see(CUdeviceptr address, struct seen *seen) {
  struct pump_hit hit;
  struct pump_pool_block block;
  if (!converted(address, &hit)) return false;
  *seen = (struct seen){.base = hit.base, .requested_bytes = hit.requested_bytes};
  if (hit.pool != NULL && pump_pool_find(address, &block))
    *seen = (struct seen){block.base, block.requested_bytes, block.pool};
  return true;
}

/* Whether an answer of the driver about `address` is to be corrected. */
static bool corrected(CUdeviceptr address, struct seen *seen) {
  if (!see(address, seen)) return false;
  int saved = errno;
  pump_enter();
  bool truth = pump_rule_told_truth();
  pump_leave();
  errno = saved;
  return !truth;
}

/* Corrects one answer of the driver. */
static void correct(CUpointer_attribute attribute, void *data, const struct seen *hit) {
  if (data == NULL) return;
  switch (attribute) {
  case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    *(unsigned int *)data = CU_MEMORYTYPE_DEVICE;
    break;
  case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    *(unsigned int *)data = 0;
    break;
  case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    *(void **)data = NULL;
    break;
  case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    *(CUdeviceptr *)data = hit->base;
    break;
  case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    *(size_t *)data = hit->requested_bytes;
    break;
  case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    *(CUmemoryPool *)data = hit->pool;
    break;
  default:
    break;
  }
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute,
                               CUdeviceptr address) {
  CUresult result = pump_real.cuPointerGetAttribute(data, attribute, address);
  struct seen hit;
  if (result != CUDA_SUCCESS || pump_inert() || !corrected(address, &hit)) return result;
  correct(attribute, data, &hit);
  return attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER ? CUDA_ERROR_INVALID_VALUE : result;
}

CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes,
                                void **data, CUdeviceptr address) {
  CUresult result = pump_real.cuPointerGetAttributes(count, attributes, data, address);
  struct seen hit;
  if (result != CUDA_SUCCESS || attributes == NULL || data == NULL || pump_inert() ||
      !corrected(address, &hit))
    return result;
  for (unsigned int i = 0; i < count; i++) correct(attributes[i], data[i], &hit);
  return result;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address) {
  CUresult result = pump_real.cuMemGetAddressRange_v2(base, bytes, address);
  struct seen hit;
  if (result != CUDA_SUCCESS || pump_inert() || !see(address, &hit)) return result;
  if (base != NULL) *base = hit.base;
  if (bytes != NULL) *bytes = hit.requested_bytes;
  return result;
}
