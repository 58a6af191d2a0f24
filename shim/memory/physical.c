/* physical.c - device memory of cuMemCreate, for accounting only.
 *
 * This memory counts against the budget from its creation until its last handle and its
 * last mapping are gone, as in the driver. Memory from other processes counts too; host
 * memory does not. When a table is full, further memory is not counted.
 */
#include "memory.h"
#include "shim/base/key_table.h"

#define BUCKETS (1u << 16)

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
static struct physical physical_buckets[BUCKETS];
static struct mapping mapping_buckets[BUCKETS];
static struct pump_table physicals = PUMP_TABLE(physical_buckets);
static struct pump_table mappings = PUMP_TABLE(mapping_buckets);
static uint64_t live_bytes, peak_bytes;

uint64_t pump_physical_peak_bytes(void) {
  return PUMP_LOAD(&peak_bytes);
}

static void account(uint32_t device, int64_t bytes) {
  live_bytes += (uint64_t)bytes;
  if (live_bytes > peak_bytes) PUMP_STORE(&peak_bytes, live_bytes);
  pump_device_add_bytes(device, 0, bytes);
}

static void end_if_unused(struct physical *physical) {
  if (physical->references != 0 || physical->mappings != 0) return;
  account(physical->device, -(int64_t)physical->bytes);
  pump_table_take_out(&physicals, physical);
}

void pump_physical_created(uint64_t handle, uint64_t bytes, uint32_t device) {
  pthread_mutex_lock(&pump_range_lock);
  struct physical *physical = pump_table_find(&physicals, handle);
  if (physical != NULL) /* the driver has reused the handle: the old memory is gone */
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

void pump_physical_add_references(uint64_t handle, int change) {
  pthread_mutex_lock(&pump_range_lock);
  struct physical *physical = pump_table_find(&physicals, handle);
  if (physical != NULL && (change > 0 || physical->references != 0)) {
    physical->references += (uint32_t)change;
    end_if_unused(physical);
  }
  pthread_mutex_unlock(&pump_range_lock);
}

void pump_physical_mapped(uint64_t address, uint64_t bytes, uint64_t handle) {
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

/* Returns the first mapping that begins in [at, end), or NULL. Searches the whole table
 * if none begins at `at`: that mapping may be untracked, because the table was full. */
static struct mapping *mapping_from(uint64_t at, uint64_t end) {
  struct mapping *first = pump_table_find(&mappings, at);
  if (first != NULL || mappings.used == 0) return first;
  for (uint32_t i = 0; i < BUCKETS; i++)
    if (mapping_buckets[i].address >= at && mapping_buckets[i].address < end &&
        (first == NULL || mapping_buckets[i].address < first->address))
      first = &mapping_buckets[i];
  return first;
}

/* Removes the mappings that one call ends; it may end several, each as a whole. */
void pump_physical_unmapped(uint64_t address, uint64_t bytes) {
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

void pump_physical_reset(void) {
  pump_table_reset(&physicals);
  pump_table_reset(&mappings);
  live_bytes = peak_bytes = 0;
}
