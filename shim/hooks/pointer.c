/* pointer.c - hooks of queries about pointers (pool/pointer_answers.c). */
#include "shim/pool/pool.h"

static bool is_outside_requested_bytes(CUdeviceptr address,
                                       const struct pump_pointer *hit) {
  return address - hit->base >= hit->requested_bytes;
}

/* Returns whether the driver's answer about `*address` must be corrected.
 * Replaces an address outside the requested memory by the address of a shim variable, which
 * the driver does not know. */
static bool answer_needs_correction(CUdeviceptr *address, struct pump_pointer *hit) {
  static const char unknown;
  if (pump_inert() || !pump_pointer_corrected(*address, hit)) return false;
  if (!is_outside_requested_bytes(*address, hit)) return true;
  *address = (CUdeviceptr)(uintptr_t)&unknown;
  return false;
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute,
                               CUdeviceptr address) {
  struct pump_pointer hit;
  bool correct = answer_needs_correction(&address, &hit);
  CUresult result = pump_real.cuPointerGetAttribute(data, attribute, address);
  if (result != CUDA_SUCCESS || !correct) return result;
  pump_pointer_correct(attribute, data, &hit);
  return attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER ? CUDA_ERROR_INVALID_VALUE : result;
}

CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes,
                                void **data, CUdeviceptr address) {
  struct pump_pointer hit;
  bool correct = answer_needs_correction(&address, &hit);
  CUresult result = pump_real.cuPointerGetAttributes(count, attributes, data, address);
  if (result != CUDA_SUCCESS || attributes == NULL || data == NULL || !correct)
    return result;
  for (unsigned int i = 0; i < count; i++)
    pump_pointer_correct(attributes[i], data[i], &hit);
  return result;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address) {
  struct pump_pointer hit;
  bool seen = !pump_inert() && pump_pointer_see(address, &hit);
  if (seen && is_outside_requested_bytes(address, &hit)) return CUDA_ERROR_NOT_FOUND;
  CUresult result = pump_real.cuMemGetAddressRange_v2(base, bytes, address);
  if (result != CUDA_SUCCESS || !seen) return result;
  if (base != NULL) *base = hit.base;
  if (bytes != NULL) *bytes = hit.requested_bytes;
  return result;
}
