/* managed.c - the program's hints on managed memory: prefetch, discard, advice.
 *
 * Each hint becomes a call of the model, and its caller is busy as long as with a real
 * driver. The model knows three kinds of advice, per block: READ_MOSTLY, whether the GPU
 * is preferred, and whether it accesses memory of the host in place. Other advice is
 * stored and returned, but has no effect. Duplicates exist only in the model's state of a
 * block; its bytes are never stored twice. */
#include <string.h>

#include "memory.h"

#define POISON_BYTE 0xdb

static bool poison(const void *address) {
  uint64_t at = *(const uint64_t *)address;
  if (vd_memory_at(at) != NULL) memset((void *)at, POISON_BYTE, GPU_BLOCK_BYTES);
  return true;
}

/* Poisons a dropped block: a program that still reads it must notice. */
void vd_on_drop(void *context, uint32_t block) {
  (void)context;
  if (vd.mode != VD_COMPUTE) return;
  uint64_t address = vd_block_address(block);
  struct vd_action *action = vd_action_new(VD_LOCKED, poison, &address, sizeof address);
  if (action != NULL) vd_action_emit(action);
}

/* Finds the blocks of [address, +length), which must be inside one live managed range. */
static struct vd_memory *blocks_of(uint64_t address, size_t length_bytes, bool whole,
                                   uint32_t *first, uint32_t *count) {
  struct vd_memory *memory = vd_range_find(&vd.managed, address);
  if (memory == NULL || length_bytes == 0) return NULL;
  uint64_t limit = memory->base + memory->reserved_bytes;
  if (length_bytes > limit - address) return NULL;
  uint64_t begin = address, end = address + length_bytes;
  if (whole) { /* only blocks that are completely inside */
    if (end == memory->base + memory->length_bytes) end = limit;
    begin = (begin + GPU_BLOCK_BYTES - 1) & ~(GPU_BLOCK_BYTES - 1ull);
    end &= ~(GPU_BLOCK_BYTES - 1ull);
  }
  *first = vd_memory_block(memory, begin);
  *count = end > begin ? vd_memory_block(memory, end - 1) - *first + 1 : 0;
  return memory;
}

/* Executes one range of a prefetch or discard, in the caller or, if the stream is busy,
 * in the driver's worker. */
static CUresult carry_out_locked(struct vd_stream *stream, struct gpu_prefetch_call *call) {
  call->stream = stream->number;
  call->context = vd_lock_number(stream);
  vd_pass_locked(GPU_CALL_PREFETCH, stream);
  for (;;) {
    struct vd_begun begun = vd_begin();
    int step = gpu_prefetch_step(vd.engine, begun.now_ns, &vd_hooks, call);
    if (step == GPU_OK && call->ticket != 0) stream->last_ticket = call->ticket;
    if (step == GPU_OK || step == GPU_MORE)
      vd_pay_locked(begun, &call->cost);
    else if (step == GPU_WAIT || step == GPU_FULL)
      vd_wait_until_locked(step == GPU_WAIT && call->retry_ns != GPU_NEVER
                               ? call->retry_ns
                               : vd_now_ns() + 100000);
    else
      return CUDA_ERROR_INVALID_VALUE;
    if (step == GPU_OK) return CUDA_SUCCESS;
  }
}

static CUresult prefetch_locked(struct vd_stream *stream, uint64_t address,
                                size_t length_bytes, CUmemLocation location) {
  struct gpu_prefetch_call call = {0};
  struct vd_memory *memory =
      blocks_of(address, length_bytes, false, &call.first_block, &call.block_count);
  if (memory == NULL) {
    vd.checks.prefetch_unknown++;
    vd_log("prefetch of 0x%llx, %zu bytes: not live managed memory",
           (unsigned long long)address, length_bytes);
    return CUDA_ERROR_INVALID_VALUE;
  }
  bool to_device = location.type == CU_MEM_LOCATION_TYPE_DEVICE && location.id == 0;
  bool to_host = location.type >= CU_MEM_LOCATION_TYPE_HOST &&
                 location.type <= CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
  if (!to_device && !to_host) return CUDA_ERROR_INVALID_DEVICE;
  CUresult result = vd_capture_refuse_locked(stream, "cuMemPrefetchAsync");
  if (result != CUDA_SUCCESS) return result;
  memory->last_prefetch = location;
  memory->prefetched = true;
  call.to_host = to_host;
  return carry_out_locked(stream, &call);
}

/* Checks a discard of pump's pool: it must overlap no live allocation, and all issued
 * work on it must have executed. Discards of other memory are not checked. */
static void check_dead(const struct gpu_prefetch_call *call, uint64_t address,
                       size_t length_bytes) {
  uint64_t base = address, piece_bytes = 0, end = address + length_bytes;
  bool live = false, ours = false;
  for (uint64_t at = address; at < end; at = base + piece_bytes) {
    int piece = vd_pool_piece(at, &base, &piece_bytes);
    if (piece == VD_PIECE_NONE) break;
    ours = true;
    live |= piece == VD_PIECE_LIVE;
  }
  if (!ours || call->block_count == 0) return;
  gpu_advance(vd.engine, vd_now_ns(), &vd_hooks);
  uint32_t pending = gpu_uses_pending(vd.engine, call->first_block, call->block_count);
  vd.checks.discard_live += live;
  vd.checks.discard_pending += pending != 0;
  if (live || pending != 0)
    vd_log("discard of 0x%llx, %zu bytes: %s", (unsigned long long)address, length_bytes,
           live ? "it overlaps a live allocation" : "pending work uses it");
}

static CUresult discard_locked(struct vd_stream *stream, uint64_t address,
                               size_t length_bytes) {
  struct gpu_prefetch_call call = {.discard_kind = vd.discard_kind};
  if (blocks_of(address, length_bytes, true, &call.first_block, &call.block_count) ==
      NULL) {
    vd.checks.discard_unknown++;
    vd_log("discard of 0x%llx, %zu bytes: not live managed memory",
           (unsigned long long)address, length_bytes);
    return CUDA_ERROR_INVALID_VALUE;
  }
  check_dead(&call, address, length_bytes);
  CUresult result = vd_capture_refuse_locked(stream, "cuMemDiscardBatchAsync");
  if (result != CUDA_SUCCESS || call.block_count == 0) return result;
  return carry_out_locked(stream, &call);
}

static CUresult prefetch(CUstream handle, uint64_t address, size_t length_bytes,
                         CUmemLocation location) {
  vd_lock();
  struct vd_stream *stream = vd_stream_of_locked(handle);
  CUresult result = stream == NULL
                        ? CUDA_ERROR_INVALID_HANDLE
                        : prefetch_locked(stream, address, length_bytes, location);
  vd_unlock();
  return result;
}

static CUmemLocation location_of(CUdevice device) {
  if (device == CU_DEVICE_CPU) return (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST, 0};
  return (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, device};
}

CUresult vd_cuMemPrefetchAsync(CUdeviceptr address, size_t length_bytes, CUdevice device,
                               CUstream stream) {
  return prefetch(stream, address, length_bytes, location_of(device));
}

CUresult vd_cuMemPrefetchAsync_v2(CUdeviceptr address, size_t length_bytes,
                                  CUmemLocation location, unsigned int flags,
                                  CUstream stream) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return prefetch(stream, address, length_bytes, location);
}

/* Processes a batch in order: discards each range, then prefetches it, as requested. */
static CUresult batch(CUstream handle, CUdeviceptr *addresses, size_t *lengths,
                      size_t count, const CUmemLocation *locations,
                      const size_t *location_indices, size_t location_count,
                      unsigned long long flags, bool discards, bool prefetches) {
  if (addresses == NULL || lengths == NULL || count == 0 || flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (prefetches && (locations == NULL || location_indices == NULL || location_count == 0 ||
                     location_count > count || location_indices[0] != 0))
    return CUDA_ERROR_INVALID_VALUE;
  if (handle == NULL || handle == CU_STREAM_LEGACY) return CUDA_ERROR_INVALID_HANDLE;
  vd_lock();
  struct vd_stream *stream = vd_stream_of_locked(handle);
  CUresult result = stream == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
  size_t location = 0;
  for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
    if (discards) result = discard_locked(stream, addresses[i], lengths[i]);
    if (result != CUDA_SUCCESS || !prefetches) continue;
    if (location + 1 < location_count && location_indices[location + 1] <= i) location++;
    result = prefetch_locked(stream, addresses[i], lengths[i], locations[location]);
  }
  vd_unlock();
  return result;
}

CUresult vd_cuMemPrefetchBatchAsync(CUdeviceptr *addresses, size_t *lengths, size_t count,
                                    CUmemLocation *locations, size_t *location_indices,
                                    size_t location_count, unsigned long long flags,
                                    CUstream stream) {
  return batch(stream, addresses, lengths, count, locations, location_indices,
               location_count, flags, false, true);
}

CUresult vd_cuMemDiscardBatchAsync(CUdeviceptr *addresses, size_t *lengths, size_t count,
                                   unsigned long long flags, CUstream stream) {
  return batch(stream, addresses, lengths, count, NULL, NULL, 0, flags, true, false);
}

CUresult vd_cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr *addresses, size_t *lengths,
                                              size_t count, CUmemLocation *locations,
                                              size_t *location_indices,
                                              size_t location_count,
                                              unsigned long long flags, CUstream stream) {
  return batch(stream, addresses, lengths, count, locations, location_indices,
               location_count, flags, true, true);
}

/* -- advice and attributes: READ_MOSTLY per block, the rest per allocation -- */

/* Returns whether the range begins or ends in pump's pool. Its memory changes owners
 * without a call that would end an advice. */
static bool is_pools(uint64_t address, size_t length_bytes) {
  uint64_t base, piece_bytes;
  return vd_pool_piece(address, &base, &piece_bytes) != VD_PIECE_NONE ||
         vd_pool_piece(address + length_bytes - 1, &base, &piece_bytes) != VD_PIECE_NONE;
}

static void advise_locked(uint32_t first, uint32_t count, uint32_t advice) {
  struct gpu_cost cost;
  struct vd_begun begun = vd_begin();
  if (gpu_advise(vd.engine, begun.now_ns, &vd_hooks, first, count, advice, &cost) == GPU_OK)
    vd_pay_locked(begun, &cost);
}

/* The attribute of the whole allocation says what was advised last. */
static void accessed_by_locked(struct vd_memory *memory, uint32_t first, uint32_t count,
                               CUmemLocation location, bool set) {
  if (location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    memory->accessed_by_host = set;
    return;
  }
  memory->accessed_by_gpu = set;
  advise_locked(first, count, set ? GPU_ADVICE_ACCESSED_BY : GPU_ADVICE_ACCESSED_BY_ENDS);
}

CUresult vd_cuMemAdvise_v2(CUdeviceptr address, size_t length_bytes, int advice,
                           CUmemLocation location) {
  if (advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY)
    return CUDA_ERROR_INVALID_VALUE;
  uint32_t first, count;
  vd_lock();
  struct vd_memory *memory = blocks_of(address, length_bytes, false, &first, &count);
  if (memory != NULL) {
    const CUmemLocation nowhere = {0, 0};
    switch (advice) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
      if (is_pools(address, length_bytes)) {
        vd.checks.advise_pool++;
        vd_log("READ_MOSTLY on 0x%llx, %zu bytes: not possible for memory of a pool",
               (unsigned long long)address, length_bytes);
      }
      advise_locked(first, count, GPU_ADVICE_READ_MOSTLY);
      break;
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
      advise_locked(first, count, GPU_ADVICE_READ_MOSTLY_ENDS);
      break;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
      memory->preferred = location;
      advise_locked(first, count,
                    location.type == CU_MEM_LOCATION_TYPE_DEVICE ? GPU_ADVICE_PREFER_GPU
                                                                 : GPU_ADVICE_PREFER_NONE);
      break;
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
      memory->preferred = nowhere;
      advise_locked(first, count, GPU_ADVICE_PREFER_NONE);
      break;
    default: /* set or unset ACCESSED_BY, for the GPU or the CPU */
      accessed_by_locked(memory, first, count, location,
                         advice == CU_MEM_ADVISE_SET_ACCESSED_BY);
      break;
    }
  }
  vd_unlock();
  return memory != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult vd_cuMemAdvise(CUdeviceptr address, size_t length_bytes, int advice,
                        CUdevice device) {
  return vd_cuMemAdvise_v2(address, length_bytes, advice, location_of(device));
}

/* Stands in for a process's page map of managed memory, which has no page tables here.
 * Each 4 KiB page has an entry, with the present bit if the CPU has mapped it. */
__attribute__((visibility("default"))) void
pump_page_map(uint64_t address, uint64_t *entries, uint32_t count);
void pump_page_map(uint64_t address, uint64_t *entries, uint32_t count) {
  memset(entries, 0, count * sizeof *entries);
  if (__atomic_load_n(&vd.state, __ATOMIC_ACQUIRE) != VD_READY) return;
  vd_lock();
  gpu_advance(vd.engine, vd_now_ns(), &vd_hooks);
  for (uint32_t i = 0; i < count; i++) {
    uint64_t at = address + i * 4096ull;
    const struct vd_memory *memory = vd_range_find(&vd.managed, at);
    if (memory == NULL) continue;
    uint32_t mapped = gpu_cpu_mapped(vd.engine, vd_memory_block(memory, at));
    if (mapped >> (at % GPU_BLOCK_BYTES / 65536) & 1) entries[i] = 1ull << 63;
  }
  vd_unlock();
}

static int device_of(CUmemLocation location) {
  if (location.type == 0) return CU_DEVICE_INVALID;
  return location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id : CU_DEVICE_CPU;
}

CUresult vd_cuMemRangeGetAttribute(void *data, size_t data_bytes, int attribute,
                                   CUdeviceptr address, size_t length_bytes) {
  uint32_t first, count, kept;
  if (data == NULL || data_bytes < 4 || data_bytes % 4 != 0)
    return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  const struct vd_memory *memory = blocks_of(address, length_bytes, false, &first, &count);
  CUresult result = memory == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  int value = 0;
  if (memory != NULL) {
    const CUmemLocation last = memory->last_prefetch;
    switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
      value = gpu_read_mostly(vd.engine, first, count, &kept) == count;
      break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
      value = device_of(memory->preferred);
      break;
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
      for (size_t i = 0; i < data_bytes / 4; i++) ((int *)data)[i] = CU_DEVICE_INVALID;
      value = memory->accessed_by_gpu    ? 0
              : memory->accessed_by_host ? CU_DEVICE_CPU
                                         : CU_DEVICE_INVALID;
      if (memory->accessed_by_gpu && memory->accessed_by_host && data_bytes > 4)
        ((int *)data)[1] = CU_DEVICE_CPU;
      break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
      value = device_of(last);
      break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
      value = memory->preferred.type;
      break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
      value = memory->preferred.id;
      break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
      value = last.type;
      break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
      value = last.id;
      break;
    default:
      result = CUDA_ERROR_INVALID_VALUE;
    }
  }
  vd_unlock();
  if (result == CUDA_SUCCESS) memcpy(data, &value, sizeof value);
  return result;
}

CUresult vd_cuMemRangeGetAttributes(void **data, size_t *data_bytes, int *attributes,
                                    size_t count, CUdeviceptr address,
                                    size_t length_bytes) {
  if (data == NULL || data_bytes == NULL || attributes == NULL || count == 0)
    return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; i++) {
    CUresult result = vd_cuMemRangeGetAttribute(data[i], data_bytes[i], attributes[i],
                                                address, length_bytes);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult vd_cuStreamAttachMemAsync(CUstream handle, CUdeviceptr address,
                                   size_t length_bytes, unsigned int flags) {
  (void)length_bytes;
  if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST &&
      flags != CU_MEM_ATTACH_SINGLE)
    return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  bool known = vd_range_find(&vd.managed, address) != NULL;
  bool stream = vd_stream_of_locked(handle) != NULL;
  vd_unlock();
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
