/* observe_plain.c - device memory that was not converted, for the figures only.
 *
 * An open-addressing table from base to size, because a free does not tell its
 * size. Not indexed: operations on such memory are of no interest. When the table
 * is three quarters full, further allocations are not counted; nothing else
 * changes for them.
 */
#include <string.h>

#include "observe.h"

#define ENTRIES (1u << 16)
#define FULL (ENTRIES / 4 * 3)

/* Under pump_range_lock. base 0: empty. */
static struct pump_plain_info entries[ENTRIES];
static uint32_t used;

static uint32_t home(uint64_t base) {
  return (uint32_t)(base * 0x9e3779b97f4a7c15u >> 48) & (ENTRIES - 1);
}

static uint32_t find(uint64_t base) {
  uint32_t i = home(base);
  while (entries[i].base != 0 && entries[i].base != base) i = (i + 1) & (ENTRIES - 1);
  return i;
}

void pump_plain_add(const struct pump_plain_info *info) {
  if (info->base == 0) return;
  pthread_mutex_lock(&pump_range_lock);
  uint32_t i = find(info->base);
  if (entries[i].base == info->base) { /* its context went away without a free */
    pump_device_account(entries[i].device, 0, -(int64_t)entries[i].bytes);
  } else if (used >= FULL) {
    pthread_mutex_unlock(&pump_range_lock);
    return;
  } else {
    used++;
  }
  entries[i] = *info;
  pump_device_account(info->device, 0, (int64_t)info->bytes);
  pthread_mutex_unlock(&pump_range_lock);
}

/* Empties entry `hole` and closes the gap, so that no probe stops too early. */
static void take_out(uint32_t hole) {
  for (uint32_t i = (hole + 1) & (ENTRIES - 1); entries[i].base != 0;
       i = (i + 1) & (ENTRIES - 1)) {
    /* May move into the hole only what does not get in front of its home. */
    uint32_t from_home = (i - home(entries[i].base)) & (ENTRIES - 1);
    if (from_home < ((i - hole) & (ENTRIES - 1))) continue;
    entries[hole] = entries[i];
    hole = i;
  }
  entries[hole] = (struct pump_plain_info){0};
  used--;
}

bool pump_plain_remove(uint64_t base, struct pump_plain_info *info) {
  if (base == 0) return false;
  pthread_mutex_lock(&pump_range_lock);
  uint32_t i = find(base);
  bool found = entries[i].base == base;
  if (found) {
    *info = entries[i];
    take_out(i);
    pump_device_account(info->device, 0, -(int64_t)info->bytes);
  }
  pthread_mutex_unlock(&pump_range_lock);
  return found;
}

/* Taking one out may move another into its place, also one from the table's end: so
 * a place is looked at again, and the table once more until nothing is found. */
void pump_plain_context_gone(CUcontext context) {
  pthread_mutex_lock(&pump_range_lock);
  bool found = used != 0;
  while (found) {
    found = false;
    for (uint32_t i = 0; i < ENTRIES; i++)
      while (entries[i].base != 0 && entries[i].context == context) {
        pump_device_account(entries[i].device, 0, -(int64_t)entries[i].bytes);
        take_out(i);
        found = true;
      }
  }
  pthread_mutex_unlock(&pump_range_lock);
}

void pump_plain_reset(void) {
  memset(entries, 0, sizeof entries);
  used = 0;
}
