/* plain.c - device memory that was not converted, for accounting only.
 *
 * A table from base to size, because a free has no size. There is no index by address,
 * because operations on such memory do not matter to pump. When the table is full,
 * further allocations are not counted, but work as usual.
 */
#include "memory.h"
#include "shim/base/key_table.h"

/* All under pump_range_lock. */
static struct pump_plain_info buckets[1u << 16];
static struct pump_table plains = PUMP_TABLE(buckets);

void pump_plain_add(const struct pump_plain_info *info) {
  pthread_mutex_lock(&pump_range_lock);
  struct pump_plain_info *plain = pump_table_find(&plains, info->base);
  if (plain != NULL) /* its context ended without a free */
    pump_device_add_bytes(plain->device, 0, -(int64_t)plain->bytes);
  else
    plain = pump_table_add(&plains, info->base);
  if (plain != NULL) {
    *plain = *info;
    pump_device_add_bytes(info->device, 0, (int64_t)info->bytes);
  }
  pthread_mutex_unlock(&pump_range_lock);
}

/* Uses the context's handle as the key, which is never an address of the device. */
void pump_plain_add_own(uint32_t device, CUcontext context, uint64_t bytes) {
  struct pump_plain_info info = {
      .base = (uint64_t)context, .bytes = bytes, .context = context, .device = device};
  pump_plain_add(&info);
}

static void take_out(struct pump_plain_info *plain) {
  pump_device_add_bytes(plain->device, 0, -(int64_t)plain->bytes);
  pump_table_take_out(&plains, plain);
}

bool pump_plain_known(uint64_t base) {
  pthread_mutex_lock(&pump_range_lock);
  bool known = pump_table_find(&plains, base) != NULL;
  pthread_mutex_unlock(&pump_range_lock);
  return known;
}

bool pump_plain_remove(uint64_t base, struct pump_plain_info *info) {
  pthread_mutex_lock(&pump_range_lock);
  struct pump_plain_info *plain = pump_table_find(&plains, base);
  if (plain != NULL) {
    *info = *plain;
    take_out(plain);
  }
  pthread_mutex_unlock(&pump_range_lock);
  return plain != NULL;
}

/* Removes all allocations of a context. A removal may move another record into the free
 * bucket, even from the table's end. So each bucket is checked again, and scans are
 * repeated until one finds nothing. */
void pump_plain_context_gone(CUcontext context) {
  pthread_mutex_lock(&pump_range_lock);
  bool found = plains.used != 0;
  while (found) {
    found = false;
    for (uint32_t i = 0; i < plains.buckets; i++)
      while (buckets[i].base != 0 && buckets[i].context == context) {
        take_out(&buckets[i]);
        found = true;
      }
  }
  pthread_mutex_unlock(&pump_range_lock);
}

void pump_plain_reset(void) {
  pump_table_reset(&plains);
}
