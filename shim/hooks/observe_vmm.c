/* observe_vmm.c - hooks of virtual memory management, for the figures only.
 *
 * Memory of cuMemCreate passes through as it is: it has no managed counterpart. It counts
 * against the budget from its creation until its last handle and its last mapping have
 * gone, as the driver does it. What other processes have made counts with them, and what
 * lies in host memory not at all. When a table is full, further memory is not counted.
 */
#include <errno.h>

#include "families.h"
#include "shim/memory/memory.h"
#include "shim/memory/observe_table.h"

#define PLACES (1u << 16)

struct physical {
  uint64_t handle; /* the key */
  uint64_t bytes;
  uint32_t device, references, mappings;
};

struct mapping {
  uint64_t address; /* the key */
  uint64_t bytes, handle;
};

/* All under pump_range_lock. */
static struct physical physical_places[PLACES];
static struct mapping mapping_places[PLACES];
static struct pump_table physicals = PUMP_TABLE(physical_places);
static struct pump_table mappings = PUMP_TABLE(mapping_places);
static uint64_t live_bytes, peak_bytes;

uint64_t pump_vmm_peak_bytes(void) {
  return PUMP_LOAD(&peak_bytes);
}

static void account(uint32_t device, int64_t bytes) {
  live_bytes += (uint64_t)bytes;
  if (live_bytes > peak_bytes) PUMP_STORE(&peak_bytes, live_bytes);
  pump_device_account(device, 0, bytes);
}

static void end_if_unused(struct physical *physical) {
  if (physical->references != 0 || physical->mappings != 0) return;
  account(physical->device, -(int64_t)physical->bytes);
  pump_table_take_out(&physicals, physical);
}

static void created(uint64_t handle, uint64_t bytes, uint32_t device) {
  pthread_mutex_lock(&pump_range_lock);
  struct physical *physical = pump_table_find(&physicals, handle);
  if (physical != NULL) /* the driver has given it out again: it was gone */
    account(physical->device, -(int64_t)physical->bytes);
  else
    physical = pump_table_add(&physicals, handle);
  if (physical != NULL) {
    *physical = (struct physical){
        .handle = handle, .bytes = bytes, .device = device, .references = 1};
    account(device, (int64_t)bytes);
  }
  pthread_mutex_unlock(&pump_range_lock);
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                     const CUmemAllocationProp *properties, unsigned long long flags) {
  if (pump_inert()) return pump_real.cuMemCreate(handle, bytes, properties, flags);
  int saved = errno;
  PUMP_ADD(&pump_calls_seen, 1);
  pump_current_device(NULL); /* its budget is chosen before memory is taken */
  CUresult result = pump_real.cuMemCreate(handle, bytes, properties, flags);
  if (result == CUDA_SUCCESS && properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
      properties->location.id >= 0 && properties->location.id < PUMP_MAX_DEVICES)
    created(*handle, bytes, (uint32_t)properties->location.id);
  errno = saved;
  return result;
}

/* Before the real call: afterwards another thread may be given the same handle. */
static bool count_reference(uint64_t handle, int change) {
  pthread_mutex_lock(&pump_range_lock);
  struct physical *physical = pump_table_find(&physicals, handle);
  bool known = physical != NULL && (change > 0 || physical->references != 0);
  if (known) {
    physical->references += (uint32_t)change;
    end_if_unused(physical);
  }
  pthread_mutex_unlock(&pump_range_lock);
  return known;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  if (!pump_inert()) count_reference(handle, -1);
  return pump_real.cuMemRelease(handle);
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address) {
  CUresult result = pump_real.cuMemRetainAllocationHandle(handle, address);
  if (result == CUDA_SUCCESS && !pump_inert()) count_reference(*handle, 1);
  return result;
}

static void mapped(uint64_t address, uint64_t bytes, uint64_t handle) {
  pthread_mutex_lock(&pump_range_lock);
  struct physical *physical = pump_table_find(&physicals, handle);
  struct mapping *mapping = physical == NULL ? NULL : pump_table_find(&mappings, address);
  if (physical != NULL && mapping == NULL) mapping = pump_table_add(&mappings, address);
  if (mapping != NULL) {
    *mapping = (struct mapping){address, bytes, handle};
    physical->mappings++;
  }
  pthread_mutex_unlock(&pump_range_lock);
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags) {
  CUresult result = pump_real.cuMemMap(address, bytes, offset, handle, flags);
  if (result == CUDA_SUCCESS && !pump_inert()) mapped(address, bytes, handle);
  return result;
}

/* The first mapping that begins in [at, end), or NULL. Behind one that was not tracked (the
 * table was full then) it is looked for everywhere. */
static struct mapping *mapping_from(uint64_t at, uint64_t end) {
  struct mapping *first = pump_table_find(&mappings, at);
  if (first != NULL || mappings.used == 0) return first;
  for (uint32_t i = 0; i < PLACES; i++)
    if (mapping_places[i].address >= at && mapping_places[i].address < end &&
        (first == NULL || mapping_places[i].address < first->address))
      first = &mapping_places[i];
  return first;
}

/* One call may end several mappings; each of them whole. */
static void unmapped(uint64_t address, uint64_t bytes) {
  struct mapping *mapping;
  uint64_t end = address + bytes;
  pthread_mutex_lock(&pump_range_lock);
  for (uint64_t at = address; at < end;) {
    mapping = mapping_from(at, end);
    if (mapping == NULL) break;
    at = mapping->address + mapping->bytes;
    struct physical *physical = pump_table_find(&physicals, mapping->handle);
    pump_table_take_out(&mappings, mapping);
    if (physical == NULL || physical->mappings == 0) continue;
    physical->mappings--;
    end_if_unused(physical);
  }
  pthread_mutex_unlock(&pump_range_lock);
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  CUresult result = pump_real.cuMemUnmap(address, bytes);
  if (result == CUDA_SUCCESS && !pump_inert()) unmapped(address, bytes);
  return result;
}

void pump_vmm_reset(void) {
  pump_table_reset(&physicals);
  pump_table_reset(&mappings);
  live_bytes = peak_bytes = 0;
}
