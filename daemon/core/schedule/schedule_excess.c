/* schedule_excess.c - the schedule of a policy that leaves arrivals to faults (demand).
 *
 * With an emulated budget the driver does not evict, so the worker does, in the driver's
 * own order: the block that migrated longest ago leaves first (kernel-open/nvidia-uvm,
 * uvm_pmm_gpu.c). Without one there is nothing to schedule.
 */
#include <stdlib.h>

#include "schedule.h"

/* Collects the oldest resident blocks, `most` at most. Returns how many. */
static uint32_t oldest(const struct pump_model *m, const struct device *device,
                       int32_t *blocks, int64_t most) {
  const int32_t heads[] = {device->maybe_evicted.head, device->sure.head};
  uint32_t count = 0;
  if (most > PUMP_SCHEDULE_ENTRIES) most = PUMP_SCHEDULE_ENTRIES;
  for (int i = 0; i < 2; i++)
    for (int32_t b = heads[i]; b != NONE && count < most; b = m->blocks.all[b].age_next)
      if (m->blocks.all[b].state != PUMP_BLOCK_LEAVING) blocks[count++] = b;
  return count;
}

static int by_number(const void *a, const void *b) {
  int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
  return (x > y) - (x < y);
}

void schedule_make_excess(struct pump_model *m, uint32_t index,
                          struct schedule_lists *out) {
  int32_t blocks[PUMP_SCHEDULE_ENTRIES];
  const struct device *device = &m->devices[index];
  const int64_t *counts = device->counts;
  struct schedule_entry *entries = out->entries[PUMP_TO_HOST];
  int64_t leaving = counts[PUMP_BLOCK_LEAVING];
  int64_t excess = model_occupied(device) - leaving - counts[PUMP_BLOCK_DISCARDING] -
                   device->facts.budget;
  int64_t most = model_flight_most(m, device) - leaving;
  uint32_t count =
      device->facts.emulated ? oldest(m, device, blocks, excess < most ? excess : most) : 0;
  int32_t longest = (int32_t)model_slice(m, device, PUMP_TO_HOST);
  *out = (struct schedule_lists){0};
  /* No operation waits for them, so neighbours can leave together. */
  qsort(blocks, count, sizeof blocks[0], by_number);
  for (uint32_t i = 0, made = 0; i < count; i++) {
    struct schedule_entry *newest = &entries[made - (made > 0)];
    uint32_t slot = m->blocks.all[blocks[i]].slot;
    if (made > 0 && newest->slot == slot && newest->blocks < longest &&
        newest->first_block + newest->blocks == blocks[i])
      newest->blocks++;
    else
      entries[made++] =
          (struct schedule_entry){.first_block = blocks[i], .blocks = 1, .slot = slot};
    out->count[PUMP_TO_HOST] = made;
  }
}
