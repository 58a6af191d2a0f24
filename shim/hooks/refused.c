/* refused.c - hooks of calls that CUDA refuses for managed memory, and so for converted
 * memory. They create handles for other processes and devices, prepare such a use, or are
 * stream memory operations. The driver's result passes unchanged. After a refusal, one
 * line gives the reason and the rule that keeps such memory device memory.
 *
 * Not here: cuIpcOpenMemHandle, cuMemExportToShareableHandle and similar calls, because
 * they open or export only memory that was never converted.
 */
#include "shim/memory/memory.h"
#include "shim/memory/rules.h"

#define HOOK_HANDLE(name, parameters, arguments)                                           \
  CUresult name parameters {                                                               \
    CUresult result = pump_real.name arguments;                                            \
    static uint32_t said;                                                                  \
    if (pump_inert()) return result;                                                       \
    if (result == CUDA_SUCCESS)                                                            \
      pump_rule_handle_given();                                                            \
    else                                                                                   \
      pump_refusal_explain(#name, address, true, &said);                                   \
    return result;                                                                         \
  }

HOOK_HANDLE(cuIpcGetMemHandle, (CUipcMemHandle * handle, CUdeviceptr address),
            (handle, address))
/* SYNC_MEMOPS: a library sets it before it registers the memory with a NIC. */
HOOK_HANDLE(cuPointerSetAttribute,
            (const void *value, CUpointer_attribute attribute, CUdeviceptr address),
            (value, attribute, address))
HOOK_HANDLE(cuMemGetHandleForAddressRange,
            (void *handle, CUdeviceptr address, size_t bytes, CUmemRangeHandleType type,
             unsigned long long flags),
            (handle, address, bytes, type, flags))

/* ---- stream memory operations --------------------------------------------- */

static uint32_t said_stream;

#define HOOK_WORD(name, type)                                                              \
  CUresult name(CUstream stream, CUdeviceptr address, type value, unsigned int flags) {    \
    CUresult result = pump_real.name(stream, address, value, flags);                       \
    if (result != CUDA_SUCCESS && !pump_inert())                                           \
      pump_refusal_explain(#name, address, false, &said_stream);                           \
    return result;                                                                         \
  }

#define HOOK_WORDS(name, type)                                                             \
  HOOK_WORD(name, type)                                                                    \
  HOOK_WORD(name##_ptsz, type)                                                             \
  HOOK_WORD(name##_v2, type)                                                               \
  HOOK_WORD(name##_v2_ptsz, type)

HOOK_WORDS(cuStreamWaitValue32, cuuint32_t)
HOOK_WORDS(cuStreamWaitValue64, cuuint64_t)
HOOK_WORDS(cuStreamWriteValue32, cuuint32_t)
HOOK_WORDS(cuStreamWriteValue64, cuuint64_t)

static bool has_address(const CUstreamBatchMemOpParams *operation) {
  return operation->operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
         operation->operation == CU_STREAM_MEM_OP_WRITE_VALUE_32 ||
         operation->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 ||
         operation->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
}

static void explain_batch(const CUstreamBatchMemOpParams *operations, unsigned int count) {
  for (unsigned int i = 0; operations != NULL && i < count; i++)
    if (has_address(&operations[i]))
      pump_refusal_explain("cuStreamBatchMemOp", operations[i].value_op.address, false,
                           &said_stream);
}

#define HOOK_BATCH_WORDS(name)                                                             \
  CUresult name(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *operations, \
                unsigned int flags) {                                                      \
    CUresult result = pump_real.name(stream, count, operations, flags);                    \
    if (result != CUDA_SUCCESS && !pump_inert()) explain_batch(operations, count);         \
    return result;                                                                         \
  }

HOOK_BATCH_WORDS(cuStreamBatchMemOp)
HOOK_BATCH_WORDS(cuStreamBatchMemOp_ptsz)
HOOK_BATCH_WORDS(cuStreamBatchMemOp_v2)
HOOK_BATCH_WORDS(cuStreamBatchMemOp_v2_ptsz)
