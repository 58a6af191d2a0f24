/* pool.c - hooks of stream-ordered allocation. The shim's pool (pool/pool.h) serves the
 * calls that it can, and the driver's pool serves the others (pool/stream_ordered.c).
 *
 * Pools that are shared with other processes remain with the driver, because managed
 * memory belongs to one process.
 */
#include <errno.h>
#include <string.h>

#include "shim/pool/convert.h"
#include "shim/pool/pool.h"

/* `known`: whether there is a pool. `from`: the pool to use; NULL: the current one. */
#define HOOK_ALLOCATE(name, per_thread, known, from, parameters, arguments)                \
  CUresult name parameters {                                                               \
    if (pump_inert() || !(known)) return pump_real.name arguments;                         \
    int saved = errno;                                                                     \
    pump_enter();                                                                          \
    PUMP_ADD(&pump_calls_seen, 1);                                                         \
    CUresult result;                                                                       \
    struct pump_at at = pump_at(stream, per_thread);                                       \
    if (!pump_pool_allocate(address, bytes, from, at, &result)) {                          \
      result = pump_real.name arguments;                                                   \
      if (result == CUDA_SUCCESS && address != NULL)                                       \
        pump_plain_track(*address, bytes, at.stream);                                      \
    }                                                                                      \
    pump_leave();                                                                          \
    errno = saved;                                                                         \
    return result;                                                                         \
  }

HOOK_ALLOCATE(cuMemAllocAsync, false, true, NULL,
              (CUdeviceptr * address, size_t bytes, CUstream stream),
              (address, bytes, stream))
HOOK_ALLOCATE(cuMemAllocAsync_ptsz, true, true, NULL,
              (CUdeviceptr * address, size_t bytes, CUstream stream),
              (address, bytes, stream))
HOOK_ALLOCATE(cuMemAllocFromPoolAsync, false, pool != NULL, pool,
              (CUdeviceptr * address, size_t bytes, CUmemoryPool pool, CUstream stream),
              (address, bytes, pool, stream))
HOOK_ALLOCATE(cuMemAllocFromPoolAsync_ptsz, true, pool != NULL, pool,
              (CUdeviceptr * address, size_t bytes, CUmemoryPool pool, CUstream stream),
              (address, bytes, pool, stream))

#define HOOK_FREE(name, per_thread)                                                        \
  CUresult name(CUdeviceptr address, CUstream stream) {                                    \
    if (pump_inert()) return pump_real.name(address, stream);                              \
    int saved = errno;                                                                     \
    pump_enter();                                                                          \
    PUMP_ADD(&pump_calls_seen, 1);                                                         \
    CUresult result = pump_free_ordered(address, pump_real.name, stream, per_thread);      \
    pump_leave();                                                                          \
    errno = saved;                                                                         \
    return result;                                                                         \
  }

HOOK_FREE(cuMemFreeAsync, false)
HOOK_FREE(cuMemFreeAsync_ptsz, true)

/* ---- pools shared with other processes ------------------------------------- */

CUresult cuMemPoolExportToShareableHandle(void *handle, CUmemoryPool pool,
                                          CUmemAllocationHandleType type,
                                          unsigned long long flags) {
  CUresult result = pump_real.cuMemPoolExportToShareableHandle(handle, pool, type, flags);
  if (result == CUDA_SUCCESS && !pump_inert()) pump_pool_warn_of_sharing();
  return result;
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool, void *handle,
                                            CUmemAllocationHandleType type,
                                            unsigned long long flags) {
  CUresult result = pump_real.cuMemPoolImportFromShareableHandle(pool, handle, type, flags);
  if (result == CUDA_SUCCESS && !pump_inert()) pump_pool_warn_of_sharing();
  return result;
}

/* ---- the program's pools ----------------------------------------------------- */

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties) {
  CUresult result = pump_real.cuMemPoolCreate(pool, properties);
  if (result == CUDA_SUCCESS && !pump_inert() && pool != NULL && properties != NULL)
    pump_pool_note_created(*pool, properties);
  return result;
}

/* Drops the pool before the real call: after it, another thread may get the handle for a
 * new pool. */
CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  struct pump_pool_detached closed = {0};
  if (pump_inert() || pool == NULL) return pump_real.cuMemPoolDestroy(pool);
  pump_pool_detach(pool, &closed);
  CUresult result = pump_real.cuMemPoolDestroy(pool);
  int saved = errno;
  pump_pool_finish_destroy(pool, &closed, result == CUDA_SUCCESS);
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
      !pump_pool_usage(pool, attribute, &ours))
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
    pump_pool_apply_attribute(pool, attribute);
  return result;
}
