/* mapped_access.c - which devices may access mapped memory, and look-ups by address. See
 * also mapped.h.
 */
#include "mapped_state.h"

/* ---- access ------------------------------ */

static bool valid_access(const CUmemAccessDesc *access, size_t count) {
  if (access == NULL || count == 0) return false;
  for (size_t i = 0; i < count; i++)
    if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        access[i].location.id < 0 ||
        access[i].location.id >= (int)pump_shm->header.device_count)
      return false;
  return true;
}

static void set_one(struct mapped_mapping *mapping, const CUmemAccessDesc *access) {
  uint32_t device = 1u << access->location.id;
  bool reads = (access->flags & CU_MEM_ACCESS_FLAGS_PROT_READ) != 0;
  bool writes = access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  PUMP_STORE(&mapping->readers,
             reads ? mapping->readers | device : mapping->readers & ~device);
  mapping->writers = writes ? mapping->writers | device : mapping->writers & ~device;
}

/* Keeps the memory on its device if other GPUs can access it. */
static void note_peers(const struct mapped_mapping *mapping) {
  bool ours;
  const struct mapped_handle *handle = mapped_handle_find(mapping->handle, &ours);
  if ((mapping->readers & ~(1u << handle->device)) != 0)
    pump_peer_note_device(handle->device);
}

bool pump_mapped_set_access(CUdeviceptr address, size_t bytes,
                            const CUmemAccessDesc *access, size_t count, CUresult *result) {
  if (PUMP_LOAD(&pump_mapped_reservations) == 0) return false;
  pthread_mutex_lock(&mapped_lock);
  bool ours = mapped_reservation_at(address) != NULL;
  *result =
      !ours || mapped_is_filled(address, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  if (*result == CUDA_SUCCESS && !valid_access(access, count))
    *result =
        access == NULL || count == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_DEVICE;
  bool set = ours && *result == CUDA_SUCCESS;
  for (uint64_t at = address; set && at < address + bytes;) {
    struct mapped_mapping *mapping = mapped_span_find(&mapped_mappings, at);
    at += mapping->bytes;
    for (size_t i = 0; i < count; i++) set_one(mapping, &access[i]);
    note_peers(mapping);
  }
  if (set) mapped_ranges_add(address, bytes);
  pthread_mutex_unlock(&mapped_lock);
  return ours;
}

bool pump_mapped_get_access(unsigned long long *flags, const CUmemLocation *location,
                            CUdeviceptr address, CUresult *result) {
  if (PUMP_LOAD(&pump_mapped_reservations) == 0) return false;
  pthread_mutex_lock(&mapped_lock);
  bool ours = mapped_reservation_at(address) != NULL;
  const struct mapped_mapping *mapping = mapped_span_find(&mapped_mappings, address);
  bool known = mapping != NULL && flags != NULL && location != NULL;
  if (known) {
    bool device = location->type == CU_MEM_LOCATION_TYPE_DEVICE && location->id >= 0 &&
                  location->id < PUMP_MAX_DEVICES;
    uint32_t bit = device ? 1u << location->id : 0;
    *flags = (mapping->writers & bit) != 0   ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
             : (mapping->readers & bit) != 0 ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                             : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  }
  pthread_mutex_unlock(&mapped_lock);
  *result = known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  return ours;
}

/* ---- look-ups by address -------------------------------------- */

bool pump_mapped_contains(CUdeviceptr address) {
  if (PUMP_LOAD(&pump_mapped_reservations) == 0) return false;
  pthread_mutex_lock(&mapped_lock);
  bool found = mapped_span_find(&mapped_reservations, address) != NULL;
  pthread_mutex_unlock(&mapped_lock);
  return found;
}

static bool accessible(const struct mapped_mapping *mapping) {
  return PUMP_LOAD(&mapping->readers) != 0;
}

/* Returns the accessible mappings without a gap around number `i`. */
static struct mapped_span run_of(size_t i, const struct mapped_reservation *reserved) {
  struct mapped_span run = *(struct mapped_span *)mapped_span_at(&mapped_mappings, i);
  const struct mapped_mapping *mapping;
  for (size_t at = i; at-- > 0 && run.base > reserved->base; run.base = mapping->base) {
    mapping = mapped_span_at(&mapped_mappings, at);
    if (mapping->base + mapping->bytes != run.base || !accessible(mapping)) break;
    run.bytes += mapping->bytes;
  }
  for (size_t at = i + 1; at < mapped_mappings.count; at++) {
    uint64_t end = run.base + run.bytes;
    mapping = mapped_span_at(&mapped_mappings, at);
    if (mapping->base != end || end == reserved->base + reserved->bytes ||
        !accessible(mapping))
      break;
    run.bytes += mapping->bytes;
  }
  return run;
}

/* Returns the gap from the address to the next accessible mapping, from number `i` on. */
static struct mapped_span gap_from(uint64_t address, size_t i,
                                   const struct mapped_reservation *reserved) {
  uint64_t end = reserved->base + reserved->bytes;
  for (; i < mapped_mappings.count; i++) {
    const struct mapped_mapping *mapping = mapped_span_at(&mapped_mappings, i);
    if (!accessible(mapping)) continue;
    if (mapping->base < end) end = mapping->base;
    break;
  }
  return (struct mapped_span){address, end - address};
}

bool pump_mapped_piece(CUdeviceptr address, uint64_t *base, uint64_t *bytes, bool *live) {
  if (PUMP_LIKELY(PUMP_LOAD(&pump_mapped_reservations) == 0)) return false;
  pthread_mutex_lock(&mapped_spans_lock);
  const struct mapped_reservation *reserved =
      mapped_span_find(&mapped_reservations, address);
  if (reserved != NULL) {
    size_t i = mapped_span_index(&mapped_mappings, address);
    const struct mapped_mapping *mapping = mapped_span_at(&mapped_mappings, i);
    *live = i < mapped_mappings.count && mapping->base <= address && accessible(mapping);
    struct mapped_span piece = *live ? run_of(i, reserved) : gap_from(address, i, reserved);
    *base = piece.base;
    *bytes = piece.bytes;
  }
  pthread_mutex_unlock(&mapped_spans_lock);
  return reserved != NULL;
}

bool pump_mapped_touches_gap(CUdeviceptr address, uint64_t bytes) {
  if (PUMP_LIKELY(PUMP_LOAD(&pump_mapped_reservations) == 0) || bytes == 0 ||
      address > PUMP_ADDRESS_END - bytes)
    return false;
  const struct mapped_mapping *mapping;
  uint64_t at = address, end = address + bytes;
  pthread_mutex_lock(&mapped_lock);
  const struct mapped_reservation *reserved =
      mapped_span_within(&mapped_reservations, at, bytes);
  if (reserved == NULL) at = end;
  while (at < end && (mapping = mapped_span_find(&mapped_mappings, at)) != NULL &&
         mapping->readers != 0)
    at = mapping->base + mapping->bytes;
  pthread_mutex_unlock(&mapped_lock);
  return at < end;
}

bool pump_mapped_find(CUdeviceptr address, struct pump_mapping *found) {
  bool ours = false;
  if (PUMP_LOAD(&pump_mapped_reservations) == 0) return false;
  pthread_mutex_lock(&mapped_lock);
  const struct mapped_mapping *mapping = mapped_span_find(&mapped_mappings, address);
  if (mapping != NULL) {
    const struct mapped_handle *handle = mapped_handle_find(mapping->handle, &ours);
    *found = (struct pump_mapping){mapping->base, mapping->bytes,
                                   handle->properties.requestedHandleTypes};
  }
  pthread_mutex_unlock(&mapped_lock);
  return mapping != NULL;
}
