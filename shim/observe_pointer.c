/* observe_pointer.c - what the program may learn about a pointer.
 *
 * Converted memory answers as the device memory that the program asked for, in
 * every call alike; the program's own managed memory stays what it is. Only
 * answers that the driver gave are corrected, with one exception that the driver
 * itself makes for device memory: it has no host pointer.
 *
 * cuMemGetAddressRange gives the size that the program asked for, not the whole
 * blocks that it got: programs compare it with their own sizes, and would take the
 * rest of the last block for theirs.
 */
#include <errno.h>

#include "observe.h"

static bool converted(CUdeviceptr address, struct pump_hit *hit) {
  return pump_range_lookup(address, hit) && hit->kind == PUMP_RANGE_CONVERTED;
}

/* Corrects one answer of the driver. */
static void correct(CUpointer_attribute attribute, void *data, const struct pump_hit *hit) {
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
  case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    *(size_t *)data = hit->requested_bytes;
    break;
  default:
    break;
  }
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute,
                               CUdeviceptr address) {
  CUresult result = pump_real.cuPointerGetAttribute(data, attribute, address);
  struct pump_hit hit;
  if (result != CUDA_SUCCESS || pump_inert() || !converted(address, &hit)) return result;
  correct(attribute, data, &hit);
  return attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER ? CUDA_ERROR_INVALID_VALUE : result;
}

CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes,
                                void **data, CUdeviceptr address) {
  CUresult result = pump_real.cuPointerGetAttributes(count, attributes, data, address);
  struct pump_hit hit;
  if (result != CUDA_SUCCESS || attributes == NULL || data == NULL || pump_inert() ||
      !converted(address, &hit))
    return result;
  for (unsigned int i = 0; i < count; i++) correct(attributes[i], data[i], &hit);
  return result;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address) {
  CUresult result = pump_real.cuMemGetAddressRange_v2(base, bytes, address);
  struct pump_hit hit;
  if (result == CUDA_SUCCESS && bytes != NULL && !pump_inert() && converted(address, &hit))
    *bytes = hit.requested_bytes;
  return result;
}
