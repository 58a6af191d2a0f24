/* in_place.c - lets kernels read memory in place on the host, or migrates it again
 * (docs/sparse.md).
 *
 * Under SET_ACCESSED_BY the driver maps pages of the host for the GPU instead of migrating
 * them. Explicit prefetches still move them. UNSET removes no mapping: blocks come back as
 * they are prefetched. The advice changes no data, and ends with the allocation.
 */
#include "executors.h"

#define SET_ACCESSED_BY 5 /* CU_MEM_ADVISE_SET_ACCESSED_BY */
#define UNSET_ACCESSED_BY 6

bool pump_in_place_advise(uint32_t device, uint64_t address, uint64_t length_bytes,
                          uint32_t advice) {
  static uint32_t said;
  uint32_t dropped;
  if (!pump_takes_advice(device, address)) return false;
  /* Under READ_MOSTLY faults duplicate pages, whatever other advice there is. */
  CUresult result =
      pump_duplicates_prepare_eviction(device, address, length_bytes, &dropped);
  if (result == CUDA_SUCCESS)
    result =
        pump_advise(device, address, length_bytes,
                    advice == PUMP_ADVICE_IN_PLACE ? SET_ACCESSED_BY : UNSET_ACCESSED_BY);
  if (result != CUDA_SUCCESS)
    pump_log_once(&said, PUMP_LOG_INFO,
                  "the driver refuses ACCESSED_BY (error %d): sparse memory migrates",
                  (int)result);
  return result == CUDA_SUCCESS;
}
