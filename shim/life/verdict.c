/* verdict.c - at exit, one line for each way in which pump was of little use to this
 * process, with the measure and the remedy. Nothing where all went well. It reads
 * counters only and changes nothing.
 *
 * Not here: a driver that was reached without passing us (start.c), and devices
 * that cannot page (memory/devices.c).
 */
#include "life.h"
#include "shim/pool/convert.h"

/* Memory that is not pageable is worth a line from this share of the budget on: so much
 * small allocations may have in any case. */
#define PLAIN_SHARE 20u /* one in so many */

/* A job thrashes when at least half of so many block uses found their block elsewhere
 * although a policy prefetched, and so many times the budget was brought in. */
#define USES_LEAST 2048u
#define BUDGETS_MOVED 8u

static uint64_t budgets_of_pageable_devices(void) {
  uint64_t sum = 0;
  for (uint32_t d = 0; d < PUMP_MAX_DEVICES; d++)
    if (pump_device_converts(d)) sum += PUMP_LOAD(&pump_shm->devices[d].budget_bytes);
  return sum;
}

static void judge_memory(uint64_t budget) {
  char plain[32], pageable[32];
  uint64_t converted = PUMP_LOAD(&pump_shm->shim_counters.converted_bytes_peak);
  uint64_t vmm = pump_physical_peak_bytes(), all = pump_plain_peak_bytes();
  pump_bytes_text(pageable, sizeof pageable, converted);
  if (vmm > budget / PLAIN_SHARE) {
    pump_bytes_text(plain, sizeof plain, vmm);
    pump_say(
        "only partly intercepted: %s that the driver itself made for virtual memory "
        "management calls (cuMemCreate) cannot be paged, %s elsewhere can; that is memory "
        "of libraries or of everything that --keep-device names, memory that was shared, "
        "and all of it where the host has less memory free than the device; with PyTorch "
        "set PYTORCH_ALLOC_CONF=expandable_segments:False for the last",
        plain, pageable);
  }
  uint64_t other = all > vmm ? all - vmm : 0;
  bool hurt = pump_plain_refused() || all + converted > budget; /* else all fitted */
  if (hurt && other > budget / PLAIN_SHARE && other > converted) {
    pump_bytes_text(plain, sizeof plain, other);
    pump_say("only partly intercepted: %s of GPU memory cannot be paged (allocations below "
             "2 MiB, what --keep-device or too little host memory kept, what CUDA graphs "
             "allocate), %s can",
             plain, pageable);
  }
}

/* A program that ended before its first launch (memory ran out) has issued nothing. One
 * that waited for the GPU had issued something, if not through us. */
static void judge_operations(uint64_t budget) {
  const struct pump_shim_counters *counters = &pump_shm->shim_counters;
  if (PUMP_LOAD(&counters->converted_bytes_peak) <= budget) return;
  if (PUMP_LOAD(&counters->operations) != 0 || !pump_event_waited()) return;
  pump_say(
      "perhaps only partly intercepted: since its memory exceeds the budget this process "
      "has waited for the GPU, but not one launch or copy of it was seen, so nothing was "
      "prefetched; a library loaded with RTLD_DEEPBIND hides them: load it without");
}

static void judge_traffic(uint64_t budget) {
  const struct pump_worker_counters *worker = &pump_shm->worker_counters;
  uint64_t used = PUMP_LOAD(&worker->blocks_used), hit = PUMP_LOAD(&worker->blocks_hit);
  uint64_t missed = used > hit ? used - hit : 0;
  uint64_t unhelped = PUMP_LOAD(&worker->miss_policy); /* no policy tried */
  uint64_t moved = PUMP_LOAD(&pump_shm->shim_counters.moved_to_gpu_bytes);
  if (used < USES_LEAST || missed < used / 2 || unhelped > missed / 2) return;
  if (moved / BUDGETS_MOVED < budget) return;
  char budget_text[32], moved_text[32];
  pump_bytes_text(budget_text, sizeof budget_text, budget);
  pump_bytes_text(moved_text, sizeof moved_text, moved);
  pump_say("this job thrashes: %.0f %% of its block uses had to wait for their block, and "
           "%s were brought into a budget of %s; give it more memory (--budget, fewer "
           "other jobs, a larger GPU) or less to do at once (a smaller batch)",
           100.0 * (double)missed / (double)used, moved_text, budget_text);
}

void pump_verdict_print(void) {
  if (pump_shm == NULL) return;
  uint64_t budget = budgets_of_pageable_devices();
  if (budget == 0) return;
  judge_memory(budget);
  judge_operations(budget);
  judge_traffic(budget);
}
