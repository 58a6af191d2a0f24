/* observe_pool.c - hooks of stream-ordered allocation.
 *
 * Our own pool (pool.h) serves what it can. What the driver's own pools hand out is device
 * memory like any other that is not converted: it counts against the budget from the call
 * that allocates it to the call that frees it. Only what is used counts; what a pool keeps
 * beside that is the driver's to give back when memory runs short.
 *
 * Inside a capture an allocation makes a node of the graph and no memory: it passes
 * through, uncounted. What is freed in stream order may be memory that a plain call
 * has allocated, and the other way round (cuMemFree, observe_memory.c).
 *
 * Pools that are shared with other processes stay the driver's: managed memory belongs
 * to one process.
 */
#include <errno.h>
#include <string.h>

#include "shim/pool/convert.h"
#include "shim/pool/pool.h"

/* After the real call, in the guard. */
static void count_plain(CUdeviceptr address, size_t bytes, CUstream stream) {
  CUcontext context = NULL;
  int device = pump_current_device(&context);
  struct pump_driver_scope scope = pump_driver_scope_open();
  bool captured = pump_capturing(stream);
  pump_driver_scope_close(scope);
  if (device < 0 || captured) return;
  pump_plain_add(&(struct pump_plain_info){
      .base = address, .bytes = bytes, .context = context, .device = (uint32_t)device});
}

#define HOOK_ALLOCATE(name, per_thread, from, parameters, arguments)                       \
  CUresult name parameters {                                                               \
    if (pump_inert()) return pump_real.name arguments;                                     \
    int saved = errno;                                                                     \
    pump_enter();                                                                          \
    PUMP_ADD(&pump_calls_seen, 1);                                                         \
    CUresult result;                                                                       \
    struct pump_at at = pump_at(stream, per_thread);                                       \
    if (!pump_pool_allocate(address, bytes, from, at, &result)) {                          \
      result = pump_real.name arguments;                                                   \
      if (result == CUDA_SUCCESS && address != NULL)                                       \
        count_plain(*address, bytes, at.stream);                                           \
    }                                                                                      \
    pump_leave();                                                                          \
    errno = saved;                                                                         \
    return result;                                                                         \
  }

HOOK_ALLOCATE(cuMemAllocAsync, false, NULL,
              (CUdeviceptr * address, size_t bytes, CUstream stream),
              (address, bytes, stream))
HOOK_ALLOCATE(cuMemAllocAsync_ptsz, true, NULL,
              (CUdeviceptr * address, size_t bytes, CUstream stream),
              (address, bytes, stream))
HOOK_ALLOCATE(cuMemAllocFromPoolAsync, false, pool,
              (CUdeviceptr * address, size_t bytes, CUmemoryPool pool, CUstream stream),
              (address, bytes, pool, stream))
HOOK_ALLOCATE(cuMemAllocFromPoolAsync_ptsz, true, pool,
              (CUdeviceptr * address, size_t bytes, CUmemoryPool pool, CUstream stream),
              (address, bytes, pool, stream))

/* A range of ours that the program frees in stream order. What the driver answers for
 * managed memory is the program's answer. */
static CUresult free_range_async(CUdeviceptr address, struct pump_range_info *info,
                                 CUresult (*real)(CUdeviceptr, CUstream), CUstream stream) {
  pump_event_range(PUMP_EVENT_FREE, info);
  pump_act_wait_slot(info->slot);
  CUresult result = real(address, stream);
  pump_range_free_ended(info, result);
  return result;
}

static CUresult free_async(CUdeviceptr address, CUresult (*real)(CUdeviceptr, CUstream),
                           CUstream stream, bool per_thread) {
  CUresult answer;
  if (pump_pool_free_ordered(address, pump_at(stream, per_thread), &answer)) return answer;
  struct pump_range_info range;
  if (pump_range_remove(address, &range) == 0)
    return free_range_async(address, &range, real, stream);
  struct pump_plain_info plain;
  bool counted = pump_plain_remove(address, &plain);
  CUresult result = real(address, stream);
  if (counted && result != CUDA_SUCCESS) pump_plain_add(&plain);
  return result;
}

#define HOOK_FREE(name, per_thread)                                                        \
  CUresult name(CUdeviceptr address, CUstream stream) {                                    \
    if (pump_inert()) return pump_real.name(address, stream);                              \
    int saved = errno;                                                                     \
    pump_enter();                                                                          \
    PUMP_ADD(&pump_calls_seen, 1);                                                         \
    CUresult result = free_async(address, pump_real.name, stream, per_thread);             \
    pump_leave();                                                                          \
    errno = saved;                                                                         \
    return result;                                                                         \
  }

HOOK_FREE(cuMemFreeAsync, false)
HOOK_FREE(cuMemFreeAsync_ptsz, true)

/* ---- pools that leave the process ------------------------------------------ */

static void say_shared(void) {
  static uint32_t said;
  pump_log_once(&said, PUMP_LOG_WARNING,
                "a memory pool is shared between processes: what it allocates stays device "
                "memory, which cannot exceed the card (managed memory cannot be shared)");
}

CUresult cuMemPoolExportToShareableHandle(void *handle, CUmemoryPool pool,
                                          CUmemAllocationHandleType type,
                                          unsigned long long flags) {
  CUresult result = pump_real.cuMemPoolExportToShareableHandle(handle, pool, type, flags);
  if (result == CUDA_SUCCESS && !pump_inert()) say_shared();
  return result;
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool, void *handle,
                                            CUmemAllocationHandleType type,
                                            unsigned long long flags) {
  CUresult result = pump_real.cuMemPoolImportFromShareableHandle(pool, handle, type, flags);
  if (result == CUDA_SUCCESS && !pump_inert()) say_shared();
  return result;
}

/* ---- pools of the program ---------------------------------------------------- */

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *wishes) {
  CUresult result = pump_real.cuMemPoolCreate(pool, wishes);
  if (result == CUDA_SUCCESS && !pump_inert() && pool != NULL && wishes != NULL)
    pump_pool_made(*pool, wishes);
  return result;
}

/* The books are closed before: once the real call is through, another thread may be given
 * the handle for a pool of its own. */
CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  struct pump_pool_closed closed = {0};
  if (pump_inert() || pool == NULL) return pump_real.cuMemPoolDestroy(pool);
  pump_pool_close(pool, &closed);
  CUresult result = pump_real.cuMemPoolDestroy(pool);
  int saved = errno;
  pump_pool_closed(pool, &closed, result == CUDA_SUCCESS);
  errno = saved;
  return result;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep_bytes) {
  CUresult result = pump_real.cuMemPoolTrimTo(pool, keep_bytes);
  if (result != CUDA_SUCCESS || pump_inert() || pool == NULL) return result;
  int saved = errno;
  pump_pool_trim_to(pool, keep_bytes);
  errno = saved;
  return result;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute,
                               void *value) {
  CUresult result = pump_real.cuMemPoolGetAttribute(pool, attribute, value);
  uint64_t ours;
  if (result != CUDA_SUCCESS || pump_inert() || pool == NULL || value == NULL ||
      !pump_pool_figure(pool, attribute, &ours))
    return result;
  cuuint64_t answer;
  memcpy(&answer, value, sizeof answer);
  answer += ours;
  memcpy(value, &answer, sizeof answer);
  return result;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute,
                               void *value) {
  CUresult result = pump_real.cuMemPoolSetAttribute(pool, attribute, value);
  if (result == CUDA_SUCCESS && !pump_inert() && pool != NULL)
    pump_pool_figure_reset(pool, attribute);
  return result;
}
