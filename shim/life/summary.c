/* summary.c - at the end of a process, composes its last line and logs all other results
 * at level info. job_end.c decides which process of a job prints.
 *
 * It reads only counters. The worker's are written by another process and not trusted.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "life.h"
#include "shim/link/link.h"
#include "shim/memory/host.h"
#include "shim/pool/convert.h"
#include "verdict.h"

/* Returns the sum of the budgets of all devices that pump knows, even dormant ones. */
static uint64_t budget_of_known_devices(void) {
  uint64_t sum = 0;
  for (uint32_t d = 0; d < PUMP_MAX_DEVICES; d++)
    if (PUMP_LOAD(&pump_shm->devices[d].device_state) != PUMP_DEVICE_ABSENT)
      sum += PUMP_LOAD(&pump_shm->devices[d].budget_bytes);
  return sum;
}

static bool did_anything(void) {
  for (int d = 0; d < PUMP_MAX_DEVICES; d++)
    if (PUMP_LOAD(&pump_shm->devices[d].device_state) == PUMP_DEVICE_ACTIVE) return true;
  /* A recorded job reports operations even if everything fits. */
  return PUMP_LOAD(&pump_shm->header.recording) == 0 &&
         PUMP_LOAD(&pump_shm->shim_counters.operations) != 0;
}

/* ---- lines at level info ----------------------------------------------------------- */

static uint64_t less(uint64_t a, uint64_t b) {
  return a > b ? a - b : 0;
}

/* Logs the time lost. The worker's numbers may have any values. */
static void detail_lost(const struct pump_moved *moved) {
  char lost[PUMP_DURATION_BYTES], of[PUMP_DURATION_BYTES], least[PUMP_DURATION_BYTES],
      most[PUMP_DURATION_BYTES], fewest[PUMP_DURATION_BYTES], longest[PUMP_DURATION_BYTES];
  if (moved->of_ns == 0) return;
  pump_log(PUMP_LOG_INFO,
           "time lost to memory: about %s of %s (%s to %s); with enough memory the run "
           "would take %s to %s (to measure: pump compare -- COMMAND)",
           pump_duration_text(lost, moved->lost_ns), pump_duration_text(of, moved->of_ns),
           pump_duration_text(least, moved->least_ns),
           pump_duration_text(most, moved->most_ns),
           pump_duration_text(fewest, less(moved->of_ns, moved->most_ns)),
           pump_duration_text(longest, less(moved->of_ns, moved->least_ns)));
  if (pump_line_delayed(moved))
    pump_log(
        PUMP_LOG_INFO,
        "%s of that time, the program waited for a CPU core: pump's threads and the driver "
        "use CPU cores, too. Give the job more CPU cores",
        pump_duration_text(lost, moved->delayed_ns));
}

/* Logs budgets that changed: a lease or a user may change them during the run. */
static void detail_budgets(void) {
  for (uint32_t d = 0; d < PUMP_MAX_DEVICES; d++) {
    char least_text[32], most_text[32];
    uint64_t least, most;
    pump_device_adopted_budgets(d, &least, &most);
    if (least == most) continue;
    pump_bytes_text(least_text, sizeof least_text, least);
    pump_bytes_text(most_text, sizeof most_text, most);
    pump_log(PUMP_LOG_INFO, "device %u: pumpd set budgets from %s to %s during the run", d,
             least_text, most_text);
  }
}

static void detail_bytes(const struct pump_moved *moved) {
  const struct pump_shim_counters *counters = &pump_shm->shim_counters;
  char peak[32], budget[32], in[32], out[32];
  pump_bytes_text(peak, sizeof peak, moved->peak_bytes);
  pump_bytes_text(budget, sizeof budget, moved->budget_bytes);
  pump_bytes_text(in, sizeof in, PUMP_LOAD(&counters->moved_to_gpu_bytes));
  pump_bytes_text(out, sizeof out, PUMP_LOAD(&counters->moved_to_host_bytes));
  pump_log(PUMP_LOG_INFO, "memory: peak %s, budget %s; %s prefetched, %s evicted", peak,
           moved->budget_bytes != 0 ? budget : "not known", in, out);
  uint64_t in_place = PUMP_LOAD(&pump_shm->worker_counters.in_place_bytes_peak);
  pump_bytes_text(in, sizeof in, in_place);
  if (in_place != 0)
    pump_log(PUMP_LOG_INFO, "kernels read allocations of up to %s in place on the host",
             in);
  detail_budgets();
}

/* Logs the hit rate of block uses, and the misses by cause. */
static void detail_hits(void) {
  const struct pump_worker_counters *worker = &pump_shm->worker_counters;
  uint64_t used = PUMP_LOAD(&worker->blocks_used), hit = PUMP_LOAD(&worker->blocks_hit);
  if (used == 0) return;
  pump_log(PUMP_LOG_INFO,
           "hit rate about %.1f %% of %llu block uses; misses: %llu prefetched too late, "
           "%llu used before pump could prefetch, %llu without free memory, %llu by policy",
           hit < used ? 100.0 * (double)hit / (double)used : 100.0,
           (unsigned long long)used, (unsigned long long)PUMP_LOAD(&worker->miss_late),
           (unsigned long long)PUMP_LOAD(&worker->miss_unseen),
           (unsigned long long)PUMP_LOAD(&worker->miss_no_room),
           (unsigned long long)PUMP_LOAD(&worker->miss_policy));
}

/* Logs the predictions of policy `planned`, and the waits for turns on a shared GPU. */
static void detail_rest(void) {
  const struct pump_worker_counters *worker = &pump_shm->worker_counters;
  uint64_t seen = PUMP_LOAD(&worker->operations), known = PUMP_LOAD(&worker->predicted);
  uint64_t held_ns = PUMP_LOAD(&pump_shm->shim_counters.held_ns);
  char waited[PUMP_DURATION_BYTES];
  if (known != 0 && seen != 0)
    pump_log(PUMP_LOG_INFO, "%.0f %% of operations predicted",
             known < seen ? 100.0 * (double)known / (double)seen : 100.0);
  if (held_ns != 0)
    pump_log(PUMP_LOG_INFO, "waited %s for its turns on the GPU (sum of all threads)",
             pump_duration_text(waited, held_ns));
}

/* Reports the recording; a result that the user did not ask for is an error. The count is
 * of operations sent to the worker; it is unknown if a worker was lost. */
static void recording_print(void) {
  const struct pump_worker_counters *worker = &pump_shm->worker_counters;
  const struct pump_shim_counters *counters = &pump_shm->shim_counters;
  const char *file = getenv("PUMP_RECORD");
  uint64_t number = PUMP_LOAD(&worker->recorded_file);
  uint64_t error = PUMP_LOAD(&worker->recording_error);
  uint64_t sent = PUMP_LOAD(&counters->operations);
  uint64_t dropped = PUMP_LOAD(&counters->events_dropped);
  char suffix[32] = "", lost[64] = "";
  if (file == NULL) return;
  if (number > 1) snprintf(suffix, sizeof suffix, ".%llu", (unsigned long long)number);
  if (dropped != 0)
    snprintf(lost, sizeof lost, ", but %llu events were lost", (unsigned long long)dropped);
  if (number == 0)
    pump_say("recorded nothing to %s: no pumpd served this process", PUMP_QUOTED(file));
  else if (error != 0)
    pump_say("the recording to %s%s stopped early: %s", PUMP_QUOTED(file), suffix,
             error == EBUSY ? "another job records to this file"
                            : strerror(error < 4096 ? (int)error : EIO));
  else if (PUMP_LOAD(&worker->figures_final) == 0)
    pump_say(
        "the recording to %s%s is not complete yet; check it with: pump trace info FILE",
        PUMP_QUOTED(file), suffix);
  else if (PUMP_LOAD(&counters->attaches) > 1)
    pump_say("recorded to %s%s, but without the operations before a worker was lost%s",
             PUMP_QUOTED(file), suffix, lost);
  else if (dropped != 0)
    pump_say("recorded %llu operations to %s%s%s", (unsigned long long)sent,
             PUMP_QUOTED(file), suffix, lost);
  else
    pump_log(PUMP_LOG_INFO, "recorded %llu operations to %s%s", (unsigned long long)sent,
             PUMP_QUOTED(file), suffix);
}

/* ---- the line ---------------------------------------------------------------------- */

static struct pump_moved moved_of_process(void) {
  const struct pump_worker_counters *worker = &pump_shm->worker_counters;
  return (struct pump_moved){
      .lost_ns = PUMP_LOAD(&worker->lost_ns),
      .least_ns = PUMP_LOAD(&worker->lost_least_ns),
      .most_ns = PUMP_LOAD(&worker->lost_most_ns),
      .of_ns = PUMP_LOAD(&worker->lost_of_ns),
      .delayed_ns = PUMP_LOAD(&worker->lost_delayed_ns),
      .peak_bytes = PUMP_LOAD(&pump_shm->shim_counters.converted_bytes_peak),
      .budget_bytes = budget_of_known_devices(),
  };
}

static void compose(struct pump_line *line) {
  struct pump_moved moved = moved_of_process();
  struct pump_line ignored = {0}; /* pump_verdict also logs at level info */
  const char *caveat = pump_job_computes_nothing() ? PUMP_NOTHING_COMPUTED : NULL;
  uint64_t plain = pump_plain_peak_bytes();
  if (did_anything()) {
    pump_line_of_moved(line, &moved);
    pump_verdict(line, &moved);
    detail_lost(&moved);
    detail_bytes(&moved);
    detail_hits();
    detail_rest();
    return;
  }
  if (pump_plain_refused())
    pump_line_of_refused(line, plain);
  else
    pump_line_of_fitted(line, moved.peak_bytes + plain, moved.budget_bytes, caveat);
  pump_verdict(&ignored, &moved);
  if (moved.peak_bytes + plain != 0) detail_bytes(&moved);
}

void pump_summary_print(int status) {
  static uint32_t printed;
  struct pump_line line = {0};
  if (pump_shm == NULL || __atomic_exchange_n(&printed, 1, __ATOMIC_RELAXED) != 0) return;
  const struct pump_shim_counters *counters = &pump_shm->shim_counters;
  if (PUMP_LOAD(&pump_shm->header.recording) != 0 && PUMP_LOAD(&counters->operations) != 0)
    recording_print();
  compose(&line);
  pump_job_line(&line, status);
  pump_summary_write(line.full);
  pump_log(
      PUMP_LOG_DEBUG,
      "commands stale %llu, late %llu, dead %llu, invalid %llu, failed %llu; markers %llu, "
      "skipped %llu; events dropped %llu",
      (unsigned long long)PUMP_LOAD(&counters->commands_stale),
      (unsigned long long)PUMP_LOAD(&counters->commands_late),
      (unsigned long long)PUMP_LOAD(&counters->commands_dead),
      (unsigned long long)PUMP_LOAD(&counters->commands_invalid),
      (unsigned long long)PUMP_LOAD(&counters->commands_failed),
      (unsigned long long)PUMP_LOAD(&counters->markers),
      (unsigned long long)pump_markers_skipped(),
      (unsigned long long)PUMP_LOAD(&counters->events_dropped));
}
