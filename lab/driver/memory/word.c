/* word.c - stream memory operations: a stream writes a word, or waits for its value. */
#include "memory.h"

struct word {
  uint64_t address, value;
  uint32_t bytes, flags;
};

static bool write_value(const void *what) {
  const struct word *word = what;
  if (word->bytes == 4)
    __atomic_store_n((uint32_t *)word->address, (uint32_t)word->value, __ATOMIC_RELEASE);
  else
    __atomic_store_n((uint64_t *)word->address, word->value, __ATOMIC_RELEASE);
  return true;
}

static bool value_arrived(const void *what) {
  const struct word *word = what;
  uint64_t seen, value = word->value;
  if (word->bytes == 4)
    seen = __atomic_load_n((const uint32_t *)word->address, __ATOMIC_ACQUIRE);
  else
    seen = __atomic_load_n((const uint64_t *)word->address, __ATOMIC_ACQUIRE);
  switch (word->flags & 3) {
  case CU_STREAM_WAIT_VALUE_GEQ:
    if (word->bytes == 4) return (int32_t)((uint32_t)seen - (uint32_t)value) >= 0;
    return (int64_t)(seen - value) >= 0;
  case CU_STREAM_WAIT_VALUE_EQ:
    return word->bytes == 4 ? (uint32_t)seen == (uint32_t)value : seen == value;
  case CU_STREAM_WAIT_VALUE_AND:
    return (seen & value) != 0;
  default:
    return (word->bytes == 4 ? (uint32_t)~(seen | value) : ~(seen | value)) != 0;
  }
}

enum effect { WRITE, WAIT };

static CUresult word_operation(CUstream handle, enum effect effect, uint64_t address,
                               uint64_t value, uint32_t bytes, unsigned int flags) {
  if (address % bytes != 0) return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  const struct vd_memory *memory = vd_memory_at(address);
  bool managed = memory != NULL && memory->kind == VD_MANAGED;
  if (managed) vd.checks.managed_stream_operations++;
  vd_unlock();
  if (managed) /* cuda.h: these operations do not accept pointers to managed memory */
    vd_log("stream memory operation on managed memory 0x%llx", (unsigned long long)address);
  if (memory == NULL || managed) return CUDA_ERROR_INVALID_VALUE;
  struct word word = {address, value, bytes, flags};
  return effect == WAIT
             ? vd_host_operation(handle, VD_POLLED, value_arrived, &word, sizeof word)
             : vd_host_operation(handle, VD_APART, write_value, &word, sizeof word);
}

#define WORD_OPERATIONS(suffix)                                                            \
  CUresult vd_cuStreamWaitValue32##suffix(CUstream s, CUdeviceptr a, uint32_t v,           \
                                          unsigned int f) {                                \
    return word_operation(s, WAIT, a, v, 4, f);                                            \
  }                                                                                        \
  CUresult vd_cuStreamWaitValue64##suffix(CUstream s, CUdeviceptr a, uint64_t v,           \
                                          unsigned int f) {                                \
    return word_operation(s, WAIT, a, v, 8, f);                                            \
  }                                                                                        \
  CUresult vd_cuStreamWriteValue32##suffix(CUstream s, CUdeviceptr a, uint32_t v,          \
                                           unsigned int f) {                               \
    return word_operation(s, WRITE, a, v, 4, f);                                           \
  }                                                                                        \
  CUresult vd_cuStreamWriteValue64##suffix(CUstream s, CUdeviceptr a, uint64_t v,          \
                                           unsigned int f) {                               \
    return word_operation(s, WRITE, a, v, 8, f);                                           \
  }
WORD_OPERATIONS()
WORD_OPERATIONS(_v2)

CUresult vd_cuStreamBatchMemOp_v2(CUstream stream, unsigned int count,
                                  CUstreamBatchMemOpParams *parameters,
                                  unsigned int flags) {
  if (count > 256 || (count > 0 && parameters == NULL) || flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  for (unsigned int i = 0; i < count; i++) {
    const CUstreamBatchMemOpParams *p = &parameters[i];
    CUresult result = CUDA_SUCCESS;
    uint64_t a = p->value_op.address, v = p->value_op.value;
    unsigned int f = p->value_op.flags;
    switch (p->operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      result = word_operation(stream, WAIT, a, (uint32_t)v, 4, f);
      break;
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      result = word_operation(stream, WAIT, a, v, 8, f);
      break;
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      result = word_operation(stream, WRITE, a, (uint32_t)v, 4, f);
      break;
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      result = word_operation(stream, WRITE, a, v, 8, f);
      break;
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
    case CU_STREAM_MEM_OP_BARRIER:
      break; /* one memory: nothing to flush */
    default:
      result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult vd_cuStreamBatchMemOp(CUstream stream, unsigned int count,
                               CUstreamBatchMemOpParams *parameters, unsigned int flags) {
  return vd_cuStreamBatchMemOp_v2(stream, count, parameters, flags);
}
