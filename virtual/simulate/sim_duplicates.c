/* sim_duplicates.c - on request: blocks that leave without a copy, because the host's is
 * valid (docs/decisions/0051-read-duplication.md).
 *
 * DESIGN. A block that has left is duplicated when it comes again. Whether that was right
 * shows when it leaves: the pages that were written are those whose mapping for the CPU is
 * gone, which a job may read of its own page map. So each trial is its own evidence. Two
 * wrong ones end the trials of a block for the kernel that it comes for: the same block
 * may be written behind one kernel and only read behind another.
 *
 *   arrival    READ_MOSTLY for blocks that are to be duplicated, and its end for those
 *              that still have it and are not; then the prefetch
 *   departure  the end of READ_MOSTLY, at which duplicates are gone; then a prefetch to the
 *              host of each run of blocks that the host does not have
 *   discard    the trial gained nothing, which counts as wrong; the advice ends behind it
 *
 * A mover makes these calls, one behind the other.
 */
#include <stdlib.h>
#include <string.h>

#include "sim_state.h"

#define WRONG_MOST 2
#define SPAN_BLOCKS 32 /* 64 MiB: what one advice covers at most */

static uint32_t kernel_of(const struct pump_sim *sim, uint64_t seq) {
  if (seq == 0 || seq >= sim->duplicates.operations) return 0;
  uint64_t signature = sim->program.steps[sim->duplicates.step_of_seq[seq]].signature;
  return (uint32_t)(signature ^ signature >> 32);
}

/* The trials of a block for that kernel; NULL: it has too many others. */
static struct sim_trial *trial_of(struct sim_duplicate *block, uint32_t kernel) {
  for (uint32_t i = 0; i < SIM_TRIALS; i++) {
    struct sim_trial *trial = &block->trials[i];
    if (!trial->known) *trial = (struct sim_trial){.kernel = kernel, .known = true};
    if (trial->kernel == kernel) return trial;
  }
  return NULL;
}

/* Advises these blocks; the thread is free again at the time that is returned. */
static uint64_t advise(struct pump_sim *sim, uint32_t first, uint32_t count,
                       uint32_t advice, uint64_t free_ns) {
  struct gpu_cost cost;
  for (uint32_t i = first; i < first + count; i++)
    sim->duplicates.blocks[i].hinted = advice == GPU_ADVICE_READ_MOSTLY;
  if (gpu_advise(sim->engine, sim->now_ns, &sim->hooks, first, count, advice, &cost) !=
      GPU_OK) {
    sim->failure = PUMP_SIM_REFUSED;
    sim->result.failed_step = sim->step;
    return free_ns;
  }
  sim->result.advice_calls++;
  return sim_most(free_ns, cost.caller_free_ns);
}

static bool is_wanted(struct pump_sim *sim, uint32_t index, uint32_t kernel) {
  struct sim_duplicate *block = &sim->duplicates.blocks[index];
  struct sim_trial *trial = block->left ? trial_of(block, kernel) : NULL;
  return trial != NULL && trial->wrong < WRONG_MOST;
}

/* What the block needs before it comes for that kernel; 0: nothing. What is there already
 * has no copy on the host, and shows nothing when it leaves. */
static uint32_t advice_for(struct pump_sim *sim, uint32_t index, uint32_t kernel) {
  struct sim_duplicate *block = &sim->duplicates.blocks[index];
  uint32_t kept;
  (void)gpu_read_mostly(sim->engine, index, 1, &kept);
  block->trial = SIM_TRIALS;
  if (kept != 0) return 0;
  bool wanted = is_wanted(sim, index, kernel);
  if (wanted) block->trial = (uint8_t)(trial_of(block, kernel) - block->trials);
  if (wanted == block->hinted) return 0;
  return wanted ? GPU_ADVICE_READ_MOSTLY : GPU_ADVICE_READ_MOSTLY_ENDS;
}

/* Advice is a barrier for all that migrates, so neighbours get theirs by the same call. */
static uint32_t widen(struct pump_sim *sim, uint32_t first, uint32_t *end,
                      uint32_t kernel) {
  uint32_t least = first / SPAN_BLOCKS * SPAN_BLOCKS;
  uint32_t most = (*end + SPAN_BLOCKS - 1) / SPAN_BLOCKS * SPAN_BLOCKS;
  const struct sim_duplicate *blocks = sim->duplicates.blocks;
  while (first > least && !blocks[first - 1].hinted && is_wanted(sim, first - 1, kernel))
    first--;
  while (*end < most && *end < sim->program.blocks && !blocks[*end].hinted &&
         is_wanted(sim, *end, kernel))
    ++*end;
  return first;
}

static uint64_t arrive(struct pump_sim *sim, uint32_t kernel, uint32_t first,
                       uint32_t count) {
  uint64_t free_ns = sim->now_ns;
  for (uint32_t i = first, end; i < first + count; i = end) {
    uint32_t advice = advice_for(sim, i, kernel);
    for (end = i + 1; end < first + count && advice_for(sim, end, kernel) == advice;) end++;
    if (advice == 0) continue;
    uint32_t from = i, until = end;
    if (advice == GPU_ADVICE_READ_MOSTLY) from = widen(sim, i, &until, kernel);
    free_ns = advise(sim, from, until - from, advice, free_ns);
  }
  return free_ns;
}

/* Ends the advice of blocks that leave. Which of them were written is read before. */
static uint64_t depart(struct pump_sim *sim, uint32_t first, uint32_t count) {
  uint32_t begin = UINT32_MAX, end = 0;
  for (uint32_t i = first; i < first + count; i++) {
    struct sim_duplicate *block = &sim->duplicates.blocks[i];
    uint32_t kept = 0;
    block->left = true;
    block->clean = false;
    if (!block->hinted) continue;
    if (begin == UINT32_MAX) begin = i;
    end = i + 1;
    (void)gpu_read_mostly(sim->engine, i, 1, &kept);
    block->clean = kept == 0;
    if (block->trial == SIM_TRIALS) continue;
    sim->result.trials++;
    sim->result.trials_wrong += kept != 0;
    if (kept != 0) block->trials[block->trial].wrong++;
  }
  return end == 0 ? sim->now_ns
                  : advise(sim, begin, end - begin, GPU_ADVICE_READ_MOSTLY_ENDS, 0);
}

uint64_t sim_duplicates_advise(struct pump_sim *sim, uint32_t way, uint64_t needed_by_seq,
                               uint32_t first, uint32_t count) {
  if (!sim->settings.duplicates) return sim->now_ns;
  if (way == PUMP_TO_HOST) return depart(sim, first, count);
  return arrive(sim, kernel_of(sim, needed_by_seq), first, count);
}

void sim_duplicates_run(const struct pump_sim *sim, uint32_t way, uint32_t *first,
                        uint32_t *count) {
  if (!sim->settings.duplicates || way != PUMP_TO_HOST) return;
  const struct sim_duplicate *blocks = sim->duplicates.blocks;
  uint32_t end = *first + *count;
  while (*first < end && blocks[*first].clean) ++*first;
  uint32_t stop = *first;
  while (stop < end && !blocks[stop].clean) stop++;
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
      struct sim_duplicate *block = &sim->duplicates.blocks[i];
      block->left = false;
      if (!block->hinted) continue;
      if (block->trial < SIM_TRIALS) block->trials[block->trial].wrong++;
      if (from == UINT32_MAX) from = i;
      until = i + 1;
    }
    if (until != 0) advise(sim, from, until - from, GPU_ADVICE_READ_MOSTLY_ENDS, 0);
  }
}

void sim_duplicates_freed(struct pump_sim *sim, const struct pump_sim_range *range) {
  if (!sim->settings.duplicates) return;
  memset(&sim->duplicates.blocks[range->first_block], 0,
         range->length_bytes / GPU_BLOCK_BYTES * sizeof *sim->duplicates.blocks);
}

bool sim_duplicates_init(struct pump_sim *sim) {
  if (!sim->settings.duplicates) return true;
  const struct pump_sim_program *program = &sim->program;
  struct sim_duplicates *duplicates = &sim->duplicates;
  uint64_t operations = 1;
  for (uint32_t i = 0; i < program->step_count; i++)
    operations += program->steps[i].seq != 0;
  duplicates->operations = operations;
  duplicates->step_of_seq = calloc(operations, sizeof *duplicates->step_of_seq);
  duplicates->blocks = calloc(program->blocks, sizeof *duplicates->blocks);
  if (duplicates->step_of_seq == NULL || duplicates->blocks == NULL) return false;
  for (uint32_t i = 0; i < program->step_count; i++)
    if (program->steps[i].seq < operations)
      duplicates->step_of_seq[program->steps[i].seq] = i;
  return true;
}
