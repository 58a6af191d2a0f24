/* model_duplicates.c - which blocks are duplicated when they come, and what shows whether
 * that was right (docs/decisions/0051-read-duplication.md).
 *
 * DESIGN. While a block is a duplicate the host's copy stays valid, so what was not written
 * leaves without a copy. A block that has left once is expected to be like that. Each trial
 * is its own evidence: when the block leaves, the client tells whether it had to be copied.
 * DUPLICATES_WRONG wrong guesses end it for that block. A block without a right one is
 * tried only while the device's wrong trials, those whose end is not known among them, are
 * not more than the right ones, WRONG_FREE, and one for each COPIES_A_TRIAL blocks that
 * were copied: a program that writes all of its memory pays for few, and one whose first
 * trials were of written blocks gets others. Neighbours are mostly alike, so the first ones
 * are of one block for each entry that brings some, another one each time.
 *
 * What costs a copy stays behind what leaves without one (model_stays, schedule_leave.c):
 * the blocks that are written and, where most trials are right, those that have not left
 * yet. What is not used while STAY_BUDGETS times the budget leave does so no more: it is
 * memory that the program has done with.
 *
 * Advice waits for migrations under way, and they for it. Where it takes too long, blocks
 * come too late, the program's faults bring them without a copy on the host, and they are
 * copied when they leave, which advice waits for in its turn. Where less than KEPT_PERCENT
 * of ASKED_BLOCKS are duplicates once they have come, no block of the device is any more.
 *
 * A wrong guess costs time, never bits: what the GPU writes it writes to its own copy.
 */
#include "model_state.h"

#define DUPLICATES_WRONG 2
#define WRONG_FREE 16       /* blocks that may be wrong before others were right, */
#define COPIES_A_TRIAL 1024 /* and one more for each so many that leave with a copy */
#define SPREAD_BLOCKS 256   /* at most that are to be duplicates, one for each entry */
#define FEW_TRIALS 256      /* which do not show yet that most are right, */
#define RIGHT_FOR_WRONG 4   /* nor do those without so many right ones for each wrong one */
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
