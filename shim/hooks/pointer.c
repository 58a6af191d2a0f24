/* pointer.c - hooks of questions about pointers (pool/pointer_answers.c). */
#include "shim/pool/pool.h"

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute,
                               CUdeviceptr address) {
  CUresult result = pump_real.cuPointerGetAttribute(data, attribute, address);
  struct pump_pointer hit;
  if (result != CUDA_SUCCESS || pump_inert() || !pump_pointer_corrected(address, &hit))
    return result;
  pump_pointer_correct(attribute, data, &hit);
  return attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER ? CUDA_ERROR_INVALID_VALUE : result;
}

CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes,
                                void **data, CUdeviceptr address) {
  CUresult result = pump_real.cuPointerGetAttributes(count, attributes, data, address);
  struct pump_pointer hit;
  if (result != CUDA_SUCCESS || attributes == NULL || data == NULL || pump_inert() ||
      !pump_pointer_corrected(address, &hit))
    return result;
  for (unsigned int i = 0; i < count; i++)
    pump_pointer_correct(attributes[i], data[i], &hit);
  return result;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address) {
  struct pump_pointer hit;
  bool seen = !pump_inert() && pump_pointer_see(address, &hit);
  if (seen && address - hit.base >= hit.requested_bytes) return CUDA_ERROR_NOT_FOUND;
  CUresult result = pump_real.cuMemGetAddressRange_v2(base, bytes, address);
  if (result != CUDA_SUCCESS || !seen) return result;
  if (base != NULL) *base = hit.base;
  if (bytes != NULL) *bytes = hit.requested_bytes;
  return result;
}
