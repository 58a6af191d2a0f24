/* verdict.c - finds the one reason in the last line: why pump was of little use to this
 * process, or else the main cause of misses. At level info, logs the numbers and the
 * remedy. It reads only counters and changes nothing.
 *
 * Not here: programs that reach the driver without passing us (start.c), and devices that
 * cannot page (memory/devices.c).
 */
#include "verdict.h"

#include "life.h"
#include "shim/link/link.h"
#include "shim/pool/convert.h"

/* Memory that is not pageable is reported above this share of the budget: small
 * allocations may have that much in any case. */
#define PLAIN_SHARE 20u /* one in 20 */

/* A job thrashes if half of at least USES_LEAST block uses missed although a policy
 * prefetched, and BUDGETS_MOVED times the budget was brought in. */
#define USES_LEAST 2048u
#define BUDGETS_MOVED 8u

/* Pump gained little if this part of the blocks that operations waited for, or less, came
 * by its transfers. */
#define GAIN_SHARE 10u

/* Waits for turns, and misses, below these shares are not a reason. */
#define SHARE_LEAST 100u   /* one in 100, of the time */
#define MISSES_LEAST 1000u /* one in 1,000, of the block uses */

/* Logs memory that cannot be paged if it is much of the budget; returns whether it is. */
static bool log_unpageable_memory(uint64_t budget) {
  char plain[32], pageable[32];
  bool found = false;
  uint64_t converted = PUMP_LOAD(&pump_shm->shim_counters.converted_bytes_peak);
  uint64_t vmm = pump_physical_peak_bytes(), all = pump_plain_peak_bytes();
  pump_bytes_text(pageable, sizeof pageable, converted);
  if (vmm > budget / PLAIN_SHARE) {
    found = true;
    pump_bytes_text(plain, sizeof plain, vmm);
    pump_log(PUMP_LOG_INFO,
             "only partly intercepted: %s of cuMemCreate memory cannot be paged, %s "
             "elsewhere can. Causes: libraries, --keep-device, shared memory, or less free "
             "host memory than GPU memory. With PyTorch set "
             "PYTORCH_ALLOC_CONF=expandable_segments:False in the last case",
             plain, pageable);
  }
  uint64_t other = all > vmm ? all - vmm : 0;
  bool hurt = pump_plain_refused() || all + converted > budget; /* else all fitted */
  if (hurt && other > budget / PLAIN_SHARE && other > converted) {
    found = true;
    pump_bytes_text(plain, sizeof plain, other);
    pump_log(PUMP_LOG_INFO,
             "only partly intercepted: %s of GPU memory cannot be paged, %s can. Causes: "
             "allocations below 2 MiB, --keep-device, too little host memory, or CUDA "
             "graphs that allocate",
             plain, pageable);
  }
  return found;
}

/* Returns whether operations probably bypassed us: the program waited for the GPU, but we
 * saw none. Without a wait, memory may have run out before the first launch. */
static bool operations_were_not_seen(uint64_t budget) {
  const struct pump_shim_counters *counters = &pump_shm->shim_counters;
  if (PUMP_LOAD(&counters->converted_bytes_peak) <= budget) return false;
  if (PUMP_LOAD(&counters->operations) != 0 || !pump_event_waited()) return false;
  pump_log(PUMP_LOG_INFO, "perhaps only partly intercepted: this process waited for the "
                          "GPU, but pump saw no launch or copy and prefetched nothing. If "
                          "a library is loaded with RTLD_DEEPBIND, load it without");
  return true;
}

static bool job_thrashes(uint64_t budget) {
  const struct pump_worker_counters *worker = &pump_shm->worker_counters;
  uint64_t used = PUMP_LOAD(&worker->blocks_used), hit = PUMP_LOAD(&worker->blocks_hit);
  uint64_t missed = used > hit ? used - hit : 0;
  uint64_t unhelped = PUMP_LOAD(&worker->miss_policy); /* the policy did not try */
  uint64_t moved = PUMP_LOAD(&pump_shm->shim_counters.moved_to_gpu_bytes);
  if (used < USES_LEAST || missed < used / 2 || unhelped > missed / 2) return false;
  if (moved / BUDGETS_MOVED < budget) return false;
  char budget_text[32], moved_text[32];
  pump_bytes_text(budget_text, sizeof budget_text, budget);
  pump_bytes_text(moved_text, sizeof moved_text, moved);
  pump_log(PUMP_LOG_INFO,
           "this job thrashes: %.0f %% of its block uses waited for memory, and %s were "
           "moved into a budget of %s. Give it more memory (--budget, fewer jobs, a larger "
           "GPU) or smaller batches",
           100.0 * (double)missed / (double)used, moved_text, budget_text);
  return true;
}

/* Returns whether policy `demand` would have taken about as long: nearly all blocks that
 * came to the GPU came by faults, although the policy prefetches. */
static bool gained_little(void) {
  const struct pump_worker_counters *worker = &pump_shm->worker_counters;
  uint64_t used = PUMP_LOAD(&worker->blocks_used), hit = PUMP_LOAD(&worker->blocks_hit);
  uint64_t missed = used > hit ? used - hit : 0;
  uint64_t moved = PUMP_LOAD(&pump_shm->shim_counters.moved_to_gpu_bytes);
  return missed > used / MISSES_LEAST && PUMP_LOAD(&worker->miss_policy) <= missed / 2 &&
         moved / PUMP_BLOCK_BYTES <= missed / GAIN_SHARE;
}

/* Returns the main cause of misses; NULL if there were almost none. */
static const char *main_cause(void) {
  const struct pump_worker_counters *worker = &pump_shm->worker_counters;
  const struct {
    uint64_t count;
    const char *words;
  } causes[] = {
      {PUMP_LOAD(&worker->miss_late), "prefetches arrived too late"},
      {PUMP_LOAD(&worker->miss_unseen), "too little lookahead to prefetch"},
      {PUMP_LOAD(&worker->miss_no_room), "no free memory to prefetch into"},
      {PUMP_LOAD(&worker->miss_policy), "the policy does not prefetch"},
  };
  uint64_t used = PUMP_LOAD(&worker->blocks_used), hit = PUMP_LOAD(&worker->blocks_hit);
  const char *words = NULL;
  uint64_t most = 0;
  if (hit >= used || used - hit < used / MISSES_LEAST) return NULL;
  for (size_t i = 0; i < sizeof causes / sizeof causes[0]; i++)
    if (causes[i].count > most) {
      most = causes[i].count;
      words = causes[i].words;
    }
  return words;
}

void pump_verdict(struct pump_line *line, const struct pump_moved *moved) {
  char waited[PUMP_DURATION_BYTES];
  uint64_t budget = moved->budget_bytes;
  uint64_t held_ns = PUMP_LOAD(&pump_shm->shim_counters.held_ns);
  const char *cause = main_cause();
  bool plain = log_unpageable_memory(budget);
  bool unseen = operations_were_not_seen(budget), thrashes = job_thrashes(budget);
  if (PUMP_LOAD(&pump_shm->shim_counters.attaches) == 0)
    pump_line_reason(line, "no pumpd served this process");
  else if (pump_link_losses() != 0)
    pump_line_reason(line, "pumpd's worker died %u time(s)", pump_link_losses());
  else if (plain)
    pump_line_reason(line, "only partly intercepted");
  else if (unseen)
    pump_line_reason(line, "perhaps only partly intercepted");
  else if (thrashes)
    pump_line_reason(line, "this job thrashes");
  else if (PUMP_LOAD(&pump_shm->worker_counters.blocks_used) == 0)
    pump_line_reason(line, "pump saw no operation finish");
  else if (pump_job_computes_nothing())
    pump_line_reason(line, PUMP_NOTHING_COMPUTED);
  else if (held_ns > moved->of_ns / SHARE_LEAST)
    pump_line_reason(line, "waited %s for its turns", pump_duration_text(waited, held_ns));
  else if (moved->of_ns != 0 && moved->most_ns <= moved->of_ns / SHARE_LEAST)
    return; /* nothing to explain */
  else if (gained_little())
    pump_line_reason(line, "gained under a tenth over demand");
  else if (pump_line_delayed(moved))
    pump_line_reason(line, "waited %s for a CPU core",
                     pump_duration_text(waited, moved->delayed_ns));
  else if (cause != NULL)
    pump_line_reason(line, "%s", cause);
}
