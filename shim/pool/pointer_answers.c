/* pointer_answers.c - the answers that the program gets about a pointer.
 *
 * Converted memory looks like the device memory that the program requested, in every
 * call. The program's own managed memory is shown as managed. Pump corrects only answers
 * that the driver gave, with one exception that the driver itself makes for device
 * memory: it has no host pointer. Libraries that register device memory with network
 * cards see converted memory as managed. Otherwise they would fail.
 *
 * cuMemGetAddressRange returns the size that the program requested, not the size of the
 * whole blocks. Programs compare it with their own sizes, and would use the rest of the
 * last block. For the same reason addresses in that rest are unknown in every query, and
 * copies and memsets that reach into it are refused.
 */
#include <errno.h>

#include "mapped.h"
#include "pool.h"
#include "shim/memory/rules.h"

static bool converted(CUdeviceptr address, struct pump_hit *hit) {
  return pump_range_lookup(address, hit) && hit->kind == PUMP_RANGE_CONVERTED;
}

bool pump_pointer_see(CUdeviceptr address, struct pump_pointer *seen) {
  struct pump_hit hit;
  struct pump_pool_block block;
  struct pump_mapping mapping;
  if (!converted(address, &hit)) return false;
  *seen = (struct pump_pointer){.base = hit.base, .requested_bytes = hit.requested_bytes};
  if (hit.pool != NULL && pump_pool_find(address, &block))
    *seen = (struct pump_pointer){block.base, block.requested_bytes, block.pool, 0};
  else if (hit.pool != NULL) /* free memory of our pool */
    seen->requested_bytes = 0;
  else if (hit.by_handle && pump_mapped_find(address, &mapping))
    *seen = (struct pump_pointer){mapping.base, mapping.bytes, NULL, mapping.handle_types};
  return true;
}

bool pump_pointer_beyond(CUdeviceptr address, uint64_t bytes) {
  struct pump_hit hit;
  struct pump_pool_block block;
  if (pump_mapped_touches_gap(address, bytes)) return true;
  if (bytes == 0 || !converted(address, &hit)) return false;
  uint64_t offset = address - hit.base;
  if (bytes > hit.length_bytes - offset) return false; /* the driver refuses it */
  if (hit.pool == NULL) return offset + bytes > hit.requested_bytes;
  return pump_pool_find(address, &block) &&
         address - block.base + bytes > block.requested_bytes;
}

bool pump_pointer_corrected(CUdeviceptr address, struct pump_pointer *seen) {
  if (!pump_pointer_see(address, seen)) return false;
  int saved = errno;
  pump_enter();
  bool sees_managed = pump_rule_sees_managed();
  pump_leave();
  errno = saved;
  return !sees_managed;
}

void pump_pointer_correct(CUpointer_attribute attribute, void *data,
                          const struct pump_pointer *hit) {
  if (data == NULL) return;
  switch (attribute) {
  case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    *(unsigned int *)data = CU_MEMORYTYPE_DEVICE;
    break;
  case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    *(unsigned int *)data = 0;
    break;
  case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    *(void **)data = NULL;
    break;
  case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    *(CUdeviceptr *)data = hit->base;
    break;
  case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    *(size_t *)data = hit->requested_bytes;
    break;
  case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    *(uint64_t *)data = (uint64_t)hit->handle_types;
    break;
  case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    *(CUmemoryPool *)data = hit->pool;
    break;
  default:
    break;
  }
}
