/* observe_advice.c - the program's own advice on memory.
 *
 * Device memory takes no advice (cuda.h: managed or pageable memory alone), so neither does
 * what was converted: the driver is not asked, for it would follow.
 *
 * The program's managed memory under READ_MOSTLY has copies on both sides. A prefetch to
 * the host writes back and frees nothing; the driver drops such copies where it needs room
 * (UVM's uvm_migrate.c and uvm_va_block_evict_chunks). So pump moves nothing of an
 * allocation any part of which was advised so: it counts as device memory, until the
 * advice is taken back for all of it.
 */
#include <errno.h>

#include "shim/execute/execute.h"

#define SET_READ_MOSTLY 1 /* CU_MEM_ADVISE_SET_READ_MOSTLY */
#define UNSET_READ_MOSTLY 2

static bool is_converted(CUdeviceptr address) {
  struct pump_hit hit;
  return pump_range_lookup(address, &hit) && hit.kind == PUMP_RANGE_CONVERTED;
}

/* No command for it is carried out any more, as if it had been freed. */
static void leave_alone(CUdeviceptr address) {
  struct pump_hit hit;
  struct pump_range_info info;
  if (!pump_range_lookup(address, &hit) || pump_range_remove(hit.base, &info) != 0) return;
  pump_event_range(PUMP_EVENT_FREE, &info);
  pump_act_wait_slot(info.slot);
  pump_range_release(info.slot);
  pump_plain_add(&(struct pump_plain_info){.base = info.base,
                                           .bytes = info.length_bytes,
                                           .context = info.context,
                                           .device = info.device});
}

static void take_back(CUdeviceptr address, size_t bytes) {
  struct pump_plain_info info;
  if (!pump_plain_remove(address, &info)) return;
  if (info.bytes > bytes ||
      !pump_managed_add(info.base, info.bytes, info.device, info.context))
    pump_plain_add(&info);
}

static void advised(CUdeviceptr address, size_t bytes, CUmem_advise advice) {
  int saved = errno;
  pump_enter();
  if (advice == SET_READ_MOSTLY) leave_alone(address);
  if (advice == UNSET_READ_MOSTLY) take_back(address, bytes);
  if (!pump_dormant()) pump_event_hint(address, bytes, pump_at(NULL, false));
  pump_leave();
  errno = saved;
}

#define HOOK_ADVICE(name, parameters, arguments)                                           \
  CUresult name parameters {                                                               \
    if (pump_inert()) return pump_real.name arguments;                                     \
    if (is_converted(address)) return CUDA_ERROR_INVALID_VALUE;                            \
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
