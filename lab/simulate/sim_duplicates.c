/* sim_duplicates.c - driver calls of a mover (a simulated executor thread) for blocks that
 * are kept valid both on the host and on the GPU (execute/duplicates.c).
 *
 *   arrival:    READ_MOSTLY for the blocks to duplicate, then the prefetch.
 *   departure:  The end of READ_MOSTLY, which drops duplicates. Then a prefetch to the
 *               host for each run of blocks that the host lacks. A real job first reads
 *               its own page map to find them.
 *   discard:    The advice ends after it.
 *
 * A mover makes these calls one after the other. */
#include <stdlib.h>
#include <string.h>

#include "sim_state.h"

/* Advises these blocks; returns when the thread is free again. */
static uint64_t advise(struct pump_sim *sim, uint32_t first, uint32_t count,
                       uint32_t advice, uint64_t free_ns) {
  struct gpu_cost cost;
  for (uint32_t i = first; i < first + count; i++)
    sim->duplicates.hinted[i] = advice == GPU_ADVICE_READ_MOSTLY;
  if (gpu_advise(sim->engine, sim->now_ns, &sim->hooks, first, count, advice, &cost) !=
      GPU_OK) {
    sim->failure = PUMP_SIM_REFUSED;
    sim->result.failed_step = sim->step;
    return free_ns;
  }
  sim->result.advice_calls++;
  return sim_most(free_ns, cost.caller_free_ns);
}

static bool is_asked(uint32_t mask, uint32_t i) {
  return i < PUMP_MASK_BLOCKS && (mask >> i & 1);
}

/* Finds wanted blocks that the host has mapped completely. Blocks without a valid host
 * copy are on the GPU already, and their eviction gives no information. */
static uint32_t find_kept(const struct pump_sim *sim, uint32_t wanted, uint32_t first,
                          uint32_t count) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < count && i < PUMP_MASK_BLOCKS; i++)
    if ((wanted >> i & 1) &&
        gpu_cpu_mapped(sim->engine, first + i) == (1ull << GPU_PAGES_PER_BLOCK) - 1)
      kept |= 1u << i;
  return kept;
}

static uint64_t advise_arrivals(struct pump_sim *sim, struct sim_command *job,
                                uint32_t first, uint32_t count) {
  uint64_t free_ns = sim->now_ns;
  job->kept = find_kept(sim, job->duplicates, first, count);
  for (uint32_t i = 0, end; i < count; i = end) {
    bool hint = is_asked(job->kept, i) && !sim->duplicates.hinted[first + i];
    for (end = i + 1; end < count && (is_asked(job->kept, end) &&
                                      !sim->duplicates.hinted[first + end]) == hint;)
      end++;
    if (hint) free_ns = advise(sim, first + i, end - i, GPU_ADVICE_READ_MOSTLY, free_ns);
  }
  return free_ns;
}

static uint64_t advise_departures(struct pump_sim *sim, struct sim_command *job,
                                  uint32_t first, uint32_t count) {
  uint32_t begin = UINT32_MAX, end = 0;
  for (uint32_t i = first; i < first + count; i++) {
    uint32_t kept = 0;
    if (!sim->duplicates.hinted[i]) continue;
    if (begin == UINT32_MAX) begin = i;
    end = i + 1;
    (void)gpu_read_mostly(sim->engine, i, 1, &kept);
    if (kept == 0 && i - first < PUMP_MASK_BLOCKS) job->kept |= 1u << (i - first);
  }
  return end == 0 ? sim->now_ns
                  : advise(sim, begin, end - begin, GPU_ADVICE_READ_MOSTLY_ENDS, 0);
}

uint64_t sim_duplicates_advise(struct pump_sim *sim, uint32_t direction,
                               struct sim_command *job, uint32_t first, uint32_t count) {
  job->kept = 0;
  if (!sim->settings.duplicates) return sim->now_ns;
  if (direction == PUMP_TO_HOST) return advise_departures(sim, job, first, count);
  return advise_arrivals(sim, job, first, count);
}

void sim_duplicates_run(const struct sim_command *job, uint32_t direction, uint32_t begin,
                        uint32_t *first, uint32_t *count) {
  if (direction != PUMP_TO_HOST) return;
  uint32_t end = *first + *count;
  while (*first < end && is_asked(job->kept, *first - begin)) ++*first;
  uint32_t stop = *first;
  while (stop < end && !is_asked(job->kept, stop - begin)) stop++;
  *count = stop - *first;
}

void sim_duplicates_discarded(struct pump_sim *sim, uint32_t step) {
  const struct pump_sim_step *discard = &sim->program.steps[step];
  if (!sim->settings.duplicates || discard->kind != GPU_DISCARD) return;
  for (uint32_t u = discard->first_use; u < discard->first_use + discard->uses; u++) {
    const struct pump_sim_use *use = &sim->program.uses[u];
    uint32_t first = sim->program.ranges[use->range].first_block;
    uint64_t begin = (use->offset_bytes + GPU_BLOCK_BYTES - 1) / GPU_BLOCK_BYTES;
    uint64_t end = (use->offset_bytes + use->length_bytes) / GPU_BLOCK_BYTES;
    uint32_t from = UINT32_MAX, until = 0;
    for (uint32_t i = first + (uint32_t)begin; i < first + end; i++) {
      if (!sim->duplicates.hinted[i]) continue;
      if (from == UINT32_MAX) from = i;
      until = i + 1;
    }
    if (until != 0) advise(sim, from, until - from, GPU_ADVICE_READ_MOSTLY_ENDS, 0);
  }
}

void sim_duplicates_freed(struct pump_sim *sim, const struct pump_sim_range *range) {
  if (!sim->settings.duplicates) return;
  memset(&sim->duplicates.hinted[range->first_block], 0,
         range->length_bytes / GPU_BLOCK_BYTES * sizeof *sim->duplicates.hinted);
}

bool sim_duplicates_init(struct pump_sim *sim) {
  if (!sim->settings.duplicates) return true;
  sim->duplicates.hinted = calloc(sim->program.blocks, sizeof *sim->duplicates.hinted);
  return sim->duplicates.hinted != NULL;
}
