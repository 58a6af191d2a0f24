/* pointer.c - attributes of a pointer. */
#include <string.h>

#include "memory.h"

static CUresult copy_out(void *data, const void *value, size_t bytes) {
  memcpy(data, value, bytes);
  return CUDA_SUCCESS;
}

static CUresult put_int(void *data, int value) {
  return copy_out(data, &value, 4);
}
static CUresult put_word(void *data, uint64_t value) {
  return copy_out(data, &value, 8);
}
static CUresult put_bool(void *data, bool value) {
  return copy_out(data, &value, 1);
}

/* Writes an attribute; `memory` may be NULL: ordinary host memory. */
static CUresult attribute_of(void *data, int attribute, const struct vd_memory *memory,
                             uint64_t address) {
  bool host = memory == NULL || memory->kind < VD_PLAIN;
  bool managed = memory != NULL && memory->kind == VD_MANAGED;
  switch (attribute) {
  case CU_POINTER_ATTRIBUTE_CONTEXT:
    if (memory == NULL) return CUDA_ERROR_INVALID_VALUE;
    return copy_out(data, &memory->context, sizeof(void *));
  case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    if (memory == NULL) return CUDA_ERROR_INVALID_VALUE;
    return put_int(data, host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
  case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    if (memory == NULL) return CUDA_ERROR_INVALID_VALUE;
    return put_word(data, address);
  case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    if (memory == NULL || (!host && !managed)) return CUDA_ERROR_INVALID_VALUE;
    return put_word(data, address);
  case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    return put_int(data, memory != NULL && memory->sync_memops);
  case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    if (memory == NULL) return CUDA_ERROR_INVALID_VALUE;
    return put_word(data, memory->id);
  case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    return put_int(data, managed);
  case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    return put_int(data, memory == NULL ? CU_DEVICE_INVALID : 0);
  case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    if (memory == NULL) return CUDA_ERROR_INVALID_VALUE;
    return put_word(data, memory->base);
  case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    if (memory == NULL) return CUDA_ERROR_INVALID_VALUE;
    return put_word(data, memory->length_bytes);
  case CU_POINTER_ATTRIBUTE_MAPPED:
    return put_int(data, memory != NULL);
  case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
    return put_int(data, memory != NULL ? 3 : 0);
  case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: {
    const void *pool = memory != NULL ? memory->pool : NULL;
    return copy_out(data, &pool, sizeof pool);
  }
  case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
  case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    return put_bool(data, false);
  case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    return put_word(data, 0);
  default:
    return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult vd_cuPointerGetAttribute(void *data, int attribute, CUdeviceptr address) {
  if (data == NULL) return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  CUresult result = attribute_of(data, attribute, vd_memory_at(address), address);
  vd_unlock();
  return result;
}

/* The plural form returns zeros if the singular form fails. */
CUresult vd_cuPointerGetAttributes(unsigned int count, int *attributes, void **data,
                                   CUdeviceptr address) {
  if (count > 0 && (attributes == NULL || data == NULL)) return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  const struct vd_memory *memory = vd_memory_at(address);
  for (unsigned int i = 0; i < count; i++) {
    if (data[i] == NULL) continue;
    if (attribute_of(data[i], attributes[i], memory, address) == CUDA_SUCCESS) continue;
    bool word = attributes[i] != CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    memset(data[i], 0, word ? 8 : 4);
  }
  vd_unlock();
  return CUDA_SUCCESS;
}

CUresult vd_cuPointerSetAttribute(const void *value, int attribute, CUdeviceptr address) {
  if (value == NULL || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
    return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  struct vd_memory *memory = vd_memory_at(address);
  int wanted;
  memcpy(&wanted, value, sizeof wanted);
  if (memory != NULL) memory->sync_memops = wanted != 0;
  vd_unlock();
  return memory != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
