/* peer_access.c - GPUs of one process that access each other's memory.
 *
 * A kernel that reads plain device memory of another GPU reads it over the link.
 * Converted memory would migrate to whichever GPU faulted last, back and forth, while
 * pump believes a block to be on one device. If that device is its preferred location,
 * the block stays there and the peer maps it (UVM's block_select_processor_residency), as
 * with device memory. Pump gives this advice only once a peer has access
 * (cuCtxEnablePeerAccess, cuMemSetAccess), because the advice waits for migrations.
 */
#include <string.h>

#include "memory.h"

#define SET_PREFERRED_LOCATION 3 /* CU_MEM_ADVISE_SET_PREFERRED_LOCATION */

/* 1 if a peer may reach the device's memory; never reset. Read and written relaxed: a
 * range gets the advice from the thread that adds it, from the one that sets the flag, or
 * from both. A forked child starts with zeros. */
static uint32_t reached[PUMP_MAX_DEVICES];

static void advise(const struct pump_range_info *info) {
  CUresult result = CUDA_ERROR_NOT_FOUND;
  if (PUMP_HAS(cuMemAdvise_v2)) {
    CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, (int)info->device};
    result = pump_real.cuMemAdvise_v2(info->base, info->length_bytes,
                                      SET_PREFERRED_LOCATION, location);
  } else if (PUMP_HAS(cuMemAdvise)) {
    result = pump_real.cuMemAdvise(info->base, info->length_bytes, SET_PREFERRED_LOCATION,
                                   (CUdevice)info->device);
  }
  static uint32_t said;
  if (result != CUDA_SUCCESS)
    pump_log_once(&said, PUMP_LOG_WARNING,
                  "peer memory may move back and forth: the driver refused cuMemAdvise "
                  "with CUDA error %d",
                  result);
}

bool pump_peer_may_reach(uint32_t device) {
  return device < PUMP_MAX_DEVICES && PUMP_LOAD(&reached[device]) != 0;
}

void pump_peer_keep_on_device(const struct pump_range_info *info) {
  if (PUMP_LIKELY(PUMP_LOAD(&reached[info->device]) == 0)) return;
  struct pump_driver_scope scope = pump_driver_scope_open();
  advise(info);
  pump_driver_scope_close(scope);
}

void pump_peer_note_device(uint32_t device) {
  struct pump_range_info info;
  uint32_t cursor = 0;
  if (__atomic_exchange_n(&reached[device], 1, __ATOMIC_SEQ_CST) != 0) return;
  struct pump_driver_scope scope = pump_driver_scope_open();
  while (pump_range_next_converted(device, &cursor, &info)) advise(&info);
  pump_driver_scope_close(scope);
}

/* Marks the device of the context, or all devices if no hook has seen the context yet. */
void pump_peer_note_context(CUcontext peer) {
  int device = pump_context_device(peer, NULL);
  for (uint32_t d = 0; d < PUMP_MAX_DEVICES; d++)
    if (device < 0 || (int)d == device) pump_peer_note_device(d);
}

void pump_peer_reset(void) {
  memset(reached, 0, sizeof reached);
}
