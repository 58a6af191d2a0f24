/* learner_story.c - the log of a learner's input, kept for the next run of the program.
 *
 * The log (`story`) contains the first inputs: operations by key with their accesses, and
 * ranges that appeared and disappeared. The next run's learner first replays it as its
 * history, followed by a gap, as after lost operations. The rest works as usual: the
 * contexts of the program's first operations occur in that history, so matches with it are
 * found and end like any others.
 *
 * Keys identify kernels by content (pump_abi.h, identity) and contain no addresses, so
 * they are equal in both runs. Ranges are named by slot and generation, in the order of
 * their allocation. Ranges of the other run get distinct names, and current ranges
 * succeed them like any successor (learner_places.c).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "learner_state.h"

EXPORT int pump_learner_keep(struct pump_learner *l) {
  struct story *story = &l->story;
  if (story->steps != NULL) return 0;
  story->steps = calloc(PUMP_LEARNER_STEPS, sizeof *story->steps);
  story->accesses = calloc(PUMP_LEARNER_STORY_ACCESSES, sizeof *story->accesses);
  if (story->steps != NULL && story->accesses != NULL) return 0;
  free(story->steps);
  free(story->accesses);
  *story = (struct story){0};
  return -ENOMEM;
}

EXPORT void pump_learner_kept(const struct pump_learner *l,
                              struct pump_learner_story *story) {
  *story = (struct pump_learner_story){.steps = l->story.steps,
                                       .accesses = l->story.accesses,
                                       .step_count = l->story.step_count,
                                       .access_count = l->story.access_count,
                                       .operations = l->story.operations};
}

void learner_note(struct pump_learner *l, struct pump_learner_step step,
                  const struct pump_access *accesses) {
  struct story *story = &l->story;
  if (story->steps == NULL || story->full) return;
  bool operation = step.what == PUMP_LEARNER_OPERATION;
  story->full = story->step_count == PUMP_LEARNER_STEPS ||
                story->access_count + step.count > PUMP_LEARNER_STORY_ACCESSES ||
                (operation && story->operations == PUMP_LEARNER_STORY_OPERATIONS);
  if (story->full) return;
  if (step.count != 0)
    memcpy(&story->accesses[story->access_count], accesses, step.count * sizeof *accesses);
  story->access_count += step.count;
  story->operations += operation;
  story->steps[story->step_count++] = step;
}

/* Replays one step. `mark` is set in its slots. */
static void tell(struct pump_learner *l, const struct pump_learner_step *step,
                 const struct pump_access *accesses, uint32_t mark) {
  struct pump_access marked[PUMP_LEARNER_MAX_ACCESSES];
  struct pump_learner_operation op = {.signature = step->signature,
                                      .stream = step->stream,
                                      .kind = step->kind,
                                      .count = step->count,
                                      .accesses = marked};
  switch (step->what) {
  case PUMP_LEARNER_OPERATION:
    for (uint32_t i = 0; i < step->count; i++) {
      marked[i] = accesses[i];
      marked[i].slot |= mark;
      marked[i].missing = 0;
    }
    learner_saw(l, &op, step->key);
    break;
  case PUMP_LEARNER_ALLOC:
    learner_allocated(l, step->slot | mark, step->generation, step->length_bytes);
    break;
  case PUMP_LEARNER_FREE:
    learner_freed(l, step->slot | mark, step->generation);
    break;
  case PUMP_LEARNER_LOST:
    learner_tear(l);
    break;
  default:
    break;
  }
}

/* Replays the log. Returns the longest period that the match followed from end to end, or
 * 0. The last period would mislead: many programs end with equal copies (a period of one
 * operation). */
static uint64_t tell_all(struct pump_learner *l, const struct pump_learner_story *story,
                         uint32_t mark) {
  uint64_t longest = 0;
  uint32_t at = 0;
  for (uint32_t i = 0; i < story->step_count; i++) {
    const struct pump_learner_step *step = &story->steps[i];
    if (step->count > PUMP_LEARNER_MAX_ACCESSES || step->count > story->access_count - at)
      break;
    tell(l, step, &story->accesses[at], mark);
    at += step->count;
    uint64_t period = l->match.on ? learner_period(l) : 0;
    if (period > longest && l->match.since >= period) longest = period;
  }
  return longest;
}

EXPORT void pump_learner_recall(struct pump_learner *l,
                                const struct pump_learner_story *story) {
  l->recalled_period = tell_all(l, story, RECALLED_SLOT);
  l->recalled = l->head;
  learner_end_lives(l);
  learner_tear(l);
  memset(&l->totals, 0, sizeof l->totals);
  l->iterations.whole = 0;
}

EXPORT void pump_learner_take_over(struct pump_learner *l, struct pump_learner *from) {
  struct pump_learner_story story;
  pump_learner_kept(from, &story);
  memcpy(l->shapes, from->shapes, sizeof l->shapes);
  tell_all(l, &story, 0);
  struct story none = l->story;
  l->story = from->story;
  from->story = none;
}
