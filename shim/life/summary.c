/* summary.c - one line at exit: what pump did, and why it was not faster.
 *
 * Where it did nothing (every device stayed dormant) job_end.c has the line. It reads
 * counters only; the worker's are written by another process and are not trusted.
 * In a recorded job a second line says where the recording is.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "life.h"
#include "shim/execute/executors.h"
#include "shim/link/link.h"
#include "shim/memory/host.h"

/* Budgets of the devices on which executors ever ran. */
static uint64_t budget_of_used_devices(void) {
  uint64_t sum = 0;
  for (uint32_t d = 0; d < PUMP_MAX_DEVICES; d++)
    if (PUMP_LOAD(&pump_executors_of(d)->life) != 0)
      sum += PUMP_LOAD(&pump_shm->devices[d].budget_bytes);
  return sum;
}

/* A recorded job's devices are active also where all of it fits. */
static bool recorded_and_fitted(void) {
  const struct pump_shim_counters *counters = &pump_shm->shim_counters;
  return PUMP_LOAD(&pump_shm->header.recording) != 0 &&
         PUMP_LOAD(&counters->moved_to_host_bytes) == 0 &&
         PUMP_LOAD(&counters->converted_bytes_peak) <= budget_of_used_devices();
}

static bool did_anything(void) {
  if (recorded_and_fitted()) return false;
  for (int d = 0; d < PUMP_MAX_DEVICES; d++)
    if (PUMP_LOAD(&pump_shm->devices[d].device_state) == PUMP_DEVICE_ACTIVE) return true;
  return PUMP_LOAD(&pump_shm->shim_counters.operations) != 0;
}

/* Everything stayed in device memory: what that was, of the devices' budgets. */
static void fitted_print(void) {
  uint64_t budget = 0;
  for (uint32_t d = 0; d < PUMP_MAX_DEVICES; d++)
    if (PUMP_LOAD(&pump_shm->devices[d].device_state) != PUMP_DEVICE_ABSENT)
      budget += PUMP_LOAD(&pump_shm->devices[d].budget_bytes);
  pump_job_fitted(PUMP_LOAD(&pump_shm->shim_counters.converted_bytes_peak) +
                      pump_plain_peak_bytes(),
                  budget);
}

/* NULL: none was counted. */
static const char *main_cause(const struct pump_worker_counters *counters) {
  const struct {
    uint64_t count;
    const char *words;
  } causes[] = {
      {PUMP_LOAD(&counters->miss_late), "blocks were still on their way"},
      {PUMP_LOAD(&counters->miss_unseen), "operations ran before they could be decided on"},
      {PUMP_LOAD(&counters->miss_no_room),
       "the budget left no room to bring blocks in early"},
      {PUMP_LOAD(&counters->miss_policy), "the policy does not prefetch"},
  };
  const char *words = NULL;
  uint64_t most = 0;
  for (size_t i = 0; i < sizeof causes / sizeof causes[0]; i++)
    if (causes[i].count > most) {
      most = causes[i].count;
      words = causes[i].words;
    }
  return words;
}

/* "hit rate about 93.4 %, main cause of misses: ..." No cause of what rounds to nothing:
 * the share of block uses that missed, to a tenth of a percent, is what is said. */
static void hits_text(char *text, size_t room) {
  const struct pump_worker_counters *counters = &pump_shm->worker_counters;
  uint64_t used = PUMP_LOAD(&counters->blocks_used), hit = PUMP_LOAD(&counters->blocks_hit);
  const char *cause = main_cause(counters);
  if (PUMP_LOAD(&pump_shm->shim_counters.attaches) == 0)
    snprintf(text, room, "no pumpd: demand paging only");
  else if (used == 0)
    snprintf(text, room, "no operation was followed to its end");
  else if (hit >= used || cause == NULL || used - hit < used / 1000)
    snprintf(text, room, "hit rate about %.1f %%",
             hit < used ? 100.0 * (double)hit / (double)used : 100.0);
  else
    snprintf(text, room, "hit rate about %.1f %%, main cause of misses: %s",
             100.0 * (double)hit / (double)used, cause);
}

/* Whole and tenths of a second, or milliseconds. */
static void time_text(char *text, size_t room, uint64_t time_ns) {
  if (time_ns < 1000000000u)
    snprintf(text, room, "%.0f ms", (double)time_ns / 1e6);
  else
    snprintf(text, room, "%.2f s", (double)time_ns / 1e9);
}

static uint64_t less(uint64_t a, uint64_t b) {
  return a > b ? a - b : 0;
}

/* "lost about 1.15 s of 2.20 s to memory (52 %; 1.06 s to 1.24 s), with room for all
 * about 1.05 s", a range alone where that is all that is known. The worker's figures, so
 * any. */
static void lost_text(char *text, size_t length) {
  const struct pump_worker_counters *counters = &pump_shm->worker_counters;
  uint64_t lost = PUMP_LOAD(&counters->lost_ns), of = PUMP_LOAD(&counters->lost_of_ns);
  uint64_t least = PUMP_LOAD(&counters->lost_least_ns),
           most = PUMP_LOAD(&counters->lost_most_ns);
  char lost_time[32], of_time[32], least_time[32], most_time[32], room[32], room_most[32];
  time_text(lost_time, sizeof lost_time, lost);
  time_text(of_time, sizeof of_time, of);
  time_text(least_time, sizeof least_time, least);
  time_text(most_time, sizeof most_time, most);
  bool range = most > least && most - least > of / 5;
  time_text(room, sizeof room, less(of, range ? most : lost));
  time_text(room_most, sizeof room_most, less(of, least));
  double whole = of == 0 ? 1 : (double)of;
  if (of == 0)
    snprintf(text, length, "how much time was lost to memory is not known");
  else if (most <= of / 100)
    snprintf(text, length, "lost no time to memory, of %s", of_time);
  else if (range)
    snprintf(text, length,
             "lost %s to %s of %s to memory (%.0f to %.0f %%), with room for all %s to %s",
             least_time, most_time, of_time, 100 * (double)least / whole,
             100 * (double)most / whole, room, room_most);
  else
    snprintf(
        text, length,
        "lost about %s of %s to memory (%.0f %%; %s to %s), with room for all about %s",
        lost_time, of_time, 100 * (double)lost / whole, least_time, most_time, room);
}

/* Under policy `planned`: "; 87 % of operations predicted". */
static void predicted_text(char *text, size_t room) {
  const struct pump_worker_counters *counters = &pump_shm->worker_counters;
  uint64_t seen = PUMP_LOAD(&counters->operations);
  uint64_t predicted = PUMP_LOAD(&counters->predicted);
  if (predicted == 0 || seen == 0) return;
  snprintf(text, room, "; %.0f %% of operations predicted",
           predicted < seen ? 100.0 * (double)predicted / (double)seen : 100.0);
}

/* The count is that of operations sent to the worker. It is unknown where a worker was lost
 * on the way. */
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
    snprintf(lost, sizeof lost, ", %llu events were lost", (unsigned long long)dropped);
  if (number == 0)
    pump_say("recorded nothing to %s: no worker of pumpd served this process",
             PUMP_QUOTED(file));
  else if (error != 0)
    pump_say("the recording to %s%s stopped early: %s", PUMP_QUOTED(file), suffix,
             error == EBUSY ? "another one is being written to it"
                            : strerror(error < 4096 ? (int)error : EIO));
  else if (PUMP_LOAD(&worker->recording_ended) == 0)
    pump_say("the recording to %s%s is not whole yet: pump trace info tells when it is",
             PUMP_QUOTED(file), suffix);
  else if (PUMP_LOAD(&counters->attaches) > 1)
    pump_say("recorded to %s%s what came after a worker was lost%s", PUMP_QUOTED(file),
             suffix, lost);
  else
    pump_say("recorded %llu operations to %s%s%s", (unsigned long long)sent,
             PUMP_QUOTED(file), suffix, lost);
}

void pump_summary_print(void) {
  static uint32_t printed;
  if (pump_shm == NULL || __atomic_exchange_n(&printed, 1, __ATOMIC_RELAXED) != 0) return;
  if (PUMP_LOAD(&pump_shm->header.recording) != 0 &&
      PUMP_LOAD(&pump_shm->shim_counters.operations) != 0)
    recording_print();
  if (!did_anything()) {
    fitted_print();
    return;
  }
  const struct pump_shim_counters *counters = &pump_shm->shim_counters;
  uint64_t peak = PUMP_LOAD(&counters->converted_bytes_peak);
  uint64_t budget = budget_of_used_devices();
  char peak_text[32], budget_text[32], in_text[32], out_text[32], hits[160], ratio[32] = "";
  char time[256], waited[64] = "", waited_time[32];
  lost_text(time, sizeof time);
  uint64_t held_ns = pump_held_ns();
  time_text(waited_time, sizeof waited_time, held_ns);
  if (held_ns != 0)
    snprintf(waited, sizeof waited, "; waited %s for its turns", waited_time);
  pump_bytes_text(peak_text, sizeof peak_text, peak);
  pump_bytes_text(budget_text, sizeof budget_text, budget);
  pump_bytes_text(in_text, sizeof in_text, PUMP_LOAD(&counters->moved_to_gpu_bytes));
  pump_bytes_text(out_text, sizeof out_text, PUMP_LOAD(&counters->moved_to_host_bytes));
  if (budget != 0) snprintf(ratio, sizeof ratio, " (%.2fx)", (double)peak / (double)budget);
  hits_text(hits, sizeof hits);
  uint32_t losses = pump_link_losses();
  char lost[48] = "", predicted[64] = "";
  if (losses != 0) snprintf(lost, sizeof lost, "; worker lost %u time(s)", losses);
  predicted_text(predicted, sizeof predicted);
  pump_say("%s%s; peak %s on a budget of %s%s; %s; prefetched %s in, %s out%s%s; "
           "pump compare -- COMMAND measures what memory costs%s",
           time, waited, peak_text, budget_text, ratio, hits, in_text, out_text, predicted,
           lost, pump_job_caveat());
  pump_job_said();
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
