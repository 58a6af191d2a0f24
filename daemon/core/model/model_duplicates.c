/* model_duplicates.c - which arriving blocks are duplicated, and how trials are judged
 * (docs/decisions/0051-read-duplication.md).
 *
 * DESIGN. While a block is a duplicate, the host's copy stays valid, so an unwritten
 * block leaves without a copy. Each block that has left once may be duplicated. Each
 * duplicate is a trial: when the block leaves, the client reports whether it had to be
 * copied. After DUPLICATES_WRONG wrong trials a block is never duplicated again. A block
 * without a right trial is tried only while the device has few wrong and open trials:
 * fewer than right trials + WRONG_FREE + one per COPIES_A_TRIAL copied blocks. So a
 * program that writes all of its memory pays for few trials, and bad luck in the first
 * trials does not prevent others. Neighbours mostly behave alike, so the first trials use
 * one block per entry, at changing positions.
 *
 * Blocks that need a copy leave after blocks that need none (model_stays,
 * schedule_evictions.c). They are written blocks and, if most trials are right, blocks that
 * have not left yet. A block that stays unused while STAY_BUDGETS times the budget leave
 * becomes an ordinary candidate, because the program has probably finished with it.
 *
 * Calls of cuMemAdvise and migrations wait for each other. If this takes too long, arrivals
 * are late, and faults bring the blocks without a copy on the host. Their departures need
 * copies, which delay the calls again. If less than KEPT_PERCENT of ASKED_BLOCKS arrivals
 * became duplicates, the device duplicates no more blocks.
 *
 * A wrong guess costs time, but never changes data: the GPU writes to its own copy.
 */
#include "model_state.h"

/* Trials and departures, in blocks [guessed]. */
#define DUPLICATES_WRONG 2  /* wrong trials after which a block is not tried again */
#define WRONG_FREE 16       /* wrong trials allowed before the first right one */
#define COPIES_A_TRIAL 1024 /* departures with a copy that allow one more wrong trial */
#define SPREAD_BLOCKS 256   /* first arrivals to be duplicated, at most one per entry */
#define FEW_TRIALS 256      /* too few trials to show that most are right */
#define RIGHT_FOR_WRONG 4   /* right trials per wrong one that show that most are right */
/* Least percentage of this many arriving blocks that must become duplicates [guessed]. */
#define ASKED_BLOCKS 16384
#define KEPT_PERCENT 75

EXPORT void pump_model_duplicate(struct pump_model *m, uint32_t wanted) {
  m->duplicates = wanted != 0;
}

static uint64_t right_trials(const struct duplicates *of_device) {
  return of_device->trials - of_device->wrong;
}

static uint64_t not_right(const struct duplicates *of_device) {
  return of_device->wrong + of_device->open + of_device->marked;
}

static bool is_wanted(const struct pump_model *m, const struct block *b) {
  const struct duplicates *of_device = &m->devices[b->device].duplicates;
  if (of_device->ended || b->state != PUMP_BLOCK_HOST || !b->left || b->dead ||
      b->discard_pending || b->wrong >= DUPLICATES_WRONG)
    return false;
  uint64_t right = right_trials(of_device);
  uint64_t free = WRONG_FREE + (of_device->left - right) / COPIES_A_TRIAL;
  return b->clean || not_right(of_device) < free + right;
}

bool model_stays(const struct pump_model *m, const struct block *b) {
  const struct duplicates *of_device = &m->devices[b->device].duplicates;
  if (!m->duplicates || of_device->ended) return false;
  return b->wrong >= DUPLICATES_WRONG ||
         (!b->left && of_device->trials > FEW_TRIALS + RIGHT_FOR_WRONG * of_device->wrong);
}

void model_duplicates_anew(struct pump_model *m, uint32_t device) {
  m->devices[device].duplicates.marked = 0;
}

uint32_t model_duplicates_mark(struct pump_model *m, int32_t first, int32_t blocks) {
  uint32_t marks = 0;
  if (!m->duplicates) return 0;
  if (blocks > PUMP_MASK_BLOCKS) blocks = PUMP_MASK_BLOCKS;
  struct duplicates *of_device = &m->devices[m->blocks.all[first].device].duplicates;
  bool few = right_trials(of_device) < WRONG_FREE && of_device->asked < SPREAD_BLOCKS;
  int32_t one = (int32_t)(not_right(of_device) % (uint32_t)blocks);
  for (int32_t i = 0; i < blocks; i++) {
    const struct block *b = &m->blocks.all[first + i];
    if (!is_wanted(m, b) || (few && !b->clean && i != one)) continue;
    marks |= 1u << i;
    of_device->marked += !b->clean;
  }
  return marks;
}

void model_duplicate_came(struct pump_model *m, int32_t block, bool kept) {
  struct block *b = &m->blocks.all[block];
  struct duplicates *of_device = &m->devices[b->device].duplicates;
  if (kept && !b->duplicated) {
    b->duplicated = true;
    of_device->open += !b->clean;
  }
  of_device->kept += kept;
  if (++of_device->asked < ASKED_BLOCKS) return;
  of_device->ended = of_device->kept < ASKED_BLOCKS / 100 * KEPT_PERCENT;
  of_device->asked = of_device->kept = 0;
}

static void end_trial(struct pump_model *m, struct block *b, bool right) {
  struct duplicates *of_device = &m->devices[b->device].duplicates;
  of_device->trials++;
  of_device->wrong += !right;
  of_device->open -= !b->clean;
  if (!right && b->wrong < DUPLICATES_WRONG) b->wrong = (b->wrong + 1) & 3;
  b->clean = right;
  b->duplicated = false;
}

void model_duplicate_left(struct pump_model *m, int32_t block, bool kept) {
  struct block *b = &m->blocks.all[block];
  b->left = true;
  m->devices[b->device].duplicates.left++;
  if (b->duplicated) end_trial(m, b, kept);
  model_end_stay(m, b->device);
}

void model_duplicate_ended(struct pump_model *m, int32_t block) {
  struct block *b = &m->blocks.all[block];
  b->left = false;
  if (b->duplicated) end_trial(m, b, false);
}

void model_duplicate_dropped(struct pump_model *m, int32_t block) {
  struct block *b = &m->blocks.all[block];
  if (b->duplicated) m->devices[b->device].duplicates.open -= !b->clean;
  b->duplicated = false;
}
