/* convert.c - plain allocations: which kind of memory they become, and their end.
 *
 * Device memory of 2 MiB or more is allocated as managed memory, in whole blocks. Smaller
 * allocations stay device memory: they hold stream memory operations, semaphores and hot
 * workspaces, and only whole blocks can be evicted. Memory that the rules keep
 * (memory/rules.c) stays device memory too. The program's own managed memory is tracked
 * and never refused.
 *
 * Order of record and real call: an allocation is recorded after the call, because before
 * it there is no address. A free is recorded before the call: afterwards another thread
 * may get the same address, and its record must come second. If the driver refuses the
 * free, the record is undone.
 *
 * Calls that replace the program's own (managed instead of plain) run in its capture
 * mode: inside a capture they must fail if the program's own call would.
 */
#include <errno.h>

#include "convert.h"
#include "mapped.h"
#include "pool.h"
#include "shim/memory/rules.h"

static uint64_t whole_blocks(uint64_t bytes) {
  return (bytes + PUMP_BLOCK_BYTES - 1) / PUMP_BLOCK_BYTES * PUMP_BLOCK_BYTES;
}

/* Returns whether the program's own kind of allocation may still succeed after this
 * error. Any other error (capture, a broken context) would have been its answer too. */
static bool try_plain(CUresult error) {
  return error == CUDA_ERROR_OUT_OF_MEMORY || error == CUDA_ERROR_NOT_SUPPORTED ||
         error == CUDA_ERROR_INVALID_VALUE;
}

/* Whether the GPU had no memory for an allocation that was not converted. */
static bool refused;

bool pump_plain_refused(void) {
  return PUMP_LOAD(&refused);
}

static CUresult allocate_plain(CUdeviceptr *address, size_t bytes, int device,
                               CUcontext context) {
  CUresult result = pump_real.cuMemAlloc_v2(address, bytes);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) PUMP_STORE(&refused, true);
  if (result == CUDA_SUCCESS && device >= 0)
    pump_plain_add(&(struct pump_plain_info){
        .base = *address, .bytes = bytes, .context = context, .device = (uint32_t)device});
  return result;
}

/* Replaces managed memory that cannot be tracked with plain memory: otherwise it would
 * never be evicted, nor returned to the limit. */
static CUresult undo_conversion(CUdeviceptr *address, size_t bytes, int device,
                                CUcontext context, int why) {
  static uint32_t said;
  pump_log_once(
      &said, PUMP_LOG_WARNING,
      "an allocation stays device memory, because pump cannot track its range (%s)",
      why == -ENOSPC   ? "too many ranges: allocate fewer, larger ones"
      : why == -ERANGE ? "unexpected address"
                       : "out of host memory");
  CUresult result = pump_real.cuMemFree_v2(*address);
  pump_limit_return((uint32_t)device, whole_blocks(bytes));
  return result == CUDA_SUCCESS ? allocate_plain(address, bytes, device, context) : result;
}

/* Refuses an allocation. During a capture the program's own call might have failed in
 * another way, and ended the capture. A small allocation makes the driver report that. */
static CUresult refuse(void) {
  CUdeviceptr little;
  if (PUMP_LIKELY(PUMP_LOAD(&pump_captures) == 0)) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = pump_real.cuMemAlloc_v2(&little, 1);
  if (result == CUDA_SUCCESS) result = pump_real.cuMemFree_v2(little);
  return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

static CUresult allocate_converted(CUdeviceptr *address, size_t bytes, int device,
                                   CUcontext context) {
  uint64_t rounded = whole_blocks(bytes);
  int admitted = pump_limit_try((uint32_t)device, rounded);
  if (admitted == -ENOMEM) { /* gives idle pool memory back, as the driver's pools do */
    pump_pool_free_idle((uint32_t)device);
    admitted = pump_limit_admit((uint32_t)device, rounded);
  }
  if (admitted == -ENOSPC) return allocate_plain(address, bytes, device, context);
  if (admitted != 0) return refuse();
  CUresult result = pump_real.cuMemAllocManaged(address, rounded, CU_MEM_ATTACH_GLOBAL);
  if (result != CUDA_SUCCESS) {
    pump_limit_return((uint32_t)device, rounded);
    return try_plain(result) ? allocate_plain(address, bytes, device, context) : result;
  }
  struct pump_range_info info = {.base = *address,
                                 .length_bytes = rounded,
                                 .requested_bytes = bytes,
                                 .kind = PUMP_RANGE_CONVERTED,
                                 .device = (uint32_t)device,
                                 .context = context};
  int slot = pump_range_add(&info);
  if (info.displaced_bytes != 0) pump_limit_return(info.device, info.displaced_bytes);
  if (slot < 0) return undo_conversion(address, bytes, device, context, slot);
  pump_peer_keep_on_device(&info);
  pump_populate_add(info.slot, info.generation);
  pump_event_range(PUMP_EVENT_ALLOC, &info);
  return result;
}

CUresult pump_allocate(CUdeviceptr *address, size_t bytes) {
  CUcontext context = NULL;
  int device = pump_current_device(&context);
  if (device < 0 || address == NULL || bytes < PUMP_BLOCK_BYTES ||
      bytes > SIZE_MAX - PUMP_BLOCK_BYTES || !pump_device_converts((uint32_t)device))
    return allocate_plain(address, bytes, address == NULL ? -1 : device, context);
  enum pump_rule rule = pump_rule_for(bytes);
  if (rule != PUMP_RULE_NONE) {
    CUresult result = allocate_plain(address, bytes, device, context);
    if (rule != PUMP_RULE_SIZE || result != CUDA_ERROR_OUT_OF_MEMORY) return result;
  }
  return allocate_converted(address, bytes, device, context);
}

/* Allocates a single row first, because only the driver knows the pitch. */
CUresult pump_allocate_pitch(CUdeviceptr *address, size_t *pitch, size_t width_bytes,
                             size_t height, unsigned int element_bytes) {
  CUdeviceptr row = 0;
  size_t row_pitch = 0;
  CUresult result =
      pump_real.cuMemAllocPitch_v2(&row, &row_pitch, width_bytes, 1, element_bytes);
  if (result != CUDA_SUCCESS) return result;
  result = pump_real.cuMemFree_v2(row);
  size_t bytes;
  if (result != CUDA_SUCCESS) return result;
  if (row_pitch < width_bytes || __builtin_mul_overflow(row_pitch, height, &bytes))
    return pump_real.cuMemAllocPitch_v2(address, pitch, width_bytes, height, element_bytes);
  result = pump_allocate(address, bytes);
  if (result == CUDA_SUCCESS) *pitch = row_pitch;
  return result;
}

void pump_managed_track(CUdeviceptr address, size_t bytes) {
  CUcontext context = NULL;
  int device = pump_current_device(&context);
  if (device >= 0 && !pump_managed_add(address, bytes, (uint32_t)device, context))
    pump_plain_add(&(struct pump_plain_info){
        .base = address, .bytes = bytes, .context = context, .device = (uint32_t)device});
}

void pump_managed_leave(CUdeviceptr address) {
  struct pump_hit hit;
  struct pump_range_info info;
  if (!pump_range_lookup(address, &hit) || pump_range_remove(hit.base, &info) != 0) return;
  pump_event_range(PUMP_EVENT_FREE, &info);
  pump_slot_wait(info.slot);
  pump_range_release(info.slot);
  pump_plain_add(&(struct pump_plain_info){.base = info.base,
                                           .bytes = info.length_bytes,
                                           .context = info.context,
                                           .device = info.device});
}

void pump_managed_return(CUdeviceptr address, size_t bytes) {
  struct pump_plain_info info;
  if (!pump_plain_remove(address, &info)) return;
  if (info.bytes > bytes ||
      !pump_managed_add(info.base, info.bytes, info.device, info.context))
    pump_plain_add(&info);
}

static CUresult free_range(CUdeviceptr address, struct pump_range_info *info) {
  pump_event_range(PUMP_EVENT_FREE, info);
  pump_slot_wait(info->slot);
  CUresult result = pump_real.cuMemFree_v2(address);
  pump_range_free_ended(info, result);
  return result;
}

/* Frees memory that is in no range of ours; the driver must see the call in any case. */
static CUresult free_other(CUdeviceptr address) {
  struct pump_plain_info info;
  bool counted = pump_plain_remove(address, &info);
  CUresult result = pump_real.cuMemFree_v2(address);
  if (counted && result != CUDA_SUCCESS) pump_plain_add(&info);
  return result;
}

CUresult pump_free(CUdeviceptr address) {
  struct pump_range_info info;
  CUresult result;
  if (pump_mapped_contains(address)) return CUDA_ERROR_INVALID_VALUE; /* reserved address */
  if (pump_pool_free_now(address, &result)) return result;
  return pump_range_remove(address, &info) == 0 ? free_range(address, &info)
                                                : free_other(address);
}
