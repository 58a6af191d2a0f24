/* latency_driver.c - the part of the latency benchmark's driver that logs prefetch calls
 * with their times. The rest is the null driver (null_driver/).
 *
 * While latency_log.closed is set, no event is complete. So an operation stays in the
 * window until the benchmark has seen its prefetch.
 */
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "latency.h"
#include "pump_cuda.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT struct latency_log latency_log;

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

EXPORT CUresult cuMemPrefetchAsync_v2(CUdeviceptr address, size_t bytes,
                                      CUmemLocation location, unsigned int flags,
                                      CUstream stream);
CUresult cuMemPrefetchAsync_v2(CUdeviceptr address, size_t bytes, CUmemLocation location,
                               unsigned int flags, CUstream stream) {
  (void)flags, (void)stream;
  uint64_t time_ns = now_ns();
  bool to_gpu = location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  for (uint64_t at = address; at < address + bytes; at += LATENCY_BLOCK_BYTES)
    __atomic_store_n(latency_there(&latency_log, at), to_gpu, __ATOMIC_RELEASE);
  if (!to_gpu) return CUDA_SUCCESS;
  uint64_t number = __atomic_fetch_add(&latency_log.reserved, 1, __ATOMIC_RELAXED);
  struct latency_call *call = &latency_log.calls[number % LATENCY_CALLS];
  call->time_ns = time_ns;
  call->address = address;
  call->bytes = bytes;
  __atomic_store_n(&call->sequence, number + 1, __ATOMIC_RELEASE);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuEventQuery(CUevent event);
CUresult cuEventQuery(CUevent event) {
  (void)event;
  return __atomic_load_n(&latency_log.closed, __ATOMIC_ACQUIRE) != 0 ? CUDA_ERROR_NOT_READY
                                                                     : CUDA_SUCCESS;
}
