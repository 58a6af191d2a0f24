/* advice.c - hooks of the program's memory advice, and of its queries about it.
 *
 * Device memory neither takes nor reports advice (cuda.h: only managed or pageable
 * memory). Converted memory must behave the same, so the hooks refuse calls that the
 * driver would accept.
 *
 * The program's own managed memory under READ_MOSTLY has copies on both sides. A prefetch
 * to the host writes back but frees nothing. The driver drops such copies when it needs
 * memory (UVM's uvm_migrate.c and uvm_va_block_evict_chunks). So pump does not move an
 * allocation if any part has this advice. The allocation counts as device memory until
 * the advice is withdrawn from every part.
 */
#include <errno.h>

#include "shim/pool/convert.h"

#define SET_READ_MOSTLY 1 /* CU_MEM_ADVISE_SET_READ_MOSTLY */
#define UNSET_READ_MOSTLY 2

static void advised(CUdeviceptr address, size_t bytes, CUmem_advise advice) {
  int saved = errno;
  pump_enter();
  if (advice == SET_READ_MOSTLY) pump_managed_leave(address);
  if (advice == UNSET_READ_MOSTLY) pump_managed_return(address, bytes);
  if (!pump_reports_nothing()) pump_event_hint(address, bytes, pump_at(NULL, false));
  pump_leave();
  errno = saved;
}

#define HOOK_ADVICE(name, parameters, arguments)                                           \
  CUresult name parameters {                                                               \
    if (pump_inert()) return pump_real.name arguments;                                     \
    if (pump_converted(address)) return CUDA_ERROR_INVALID_VALUE;                          \
    CUresult result = pump_real.name arguments;                                            \
    if (result == CUDA_SUCCESS) advised(address, bytes, advice);                           \
    return result;                                                                         \
  }

HOOK_ADVICE(cuMemAdvise,
            (CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice device),
            (address, bytes, advice, device))
HOOK_ADVICE(cuMemAdvise_v2,
            (CUdeviceptr address, size_t bytes, CUmem_advise advice,
             CUmemLocation location),
            (address, bytes, advice, location))

#define HOOK_QUESTION(name, parameters, arguments)                                         \
  CUresult name parameters {                                                               \
    if (!pump_inert() && pump_converted(address)) return CUDA_ERROR_INVALID_VALUE;         \
    return pump_real.name arguments;                                                       \
  }

HOOK_QUESTION(cuMemRangeGetAttribute,
              (void *data, size_t dataSize, CUmem_range_attribute attribute,
               CUdeviceptr address, size_t count),
              (data, dataSize, attribute, address, count))
HOOK_QUESTION(cuMemRangeGetAttributes,
              (void **data, size_t *dataSizes, CUmem_range_attribute *attributes,
               size_t numAttributes, CUdeviceptr address, size_t count),
              (data, dataSizes, attributes, numAttributes, address, count))
