/* learner_story.c - what a learner was told, kept for the next run of the program.
 *
 * A story is the beginning of what was told: operations by key, with what they reached, and
 * the ranges that came and went. A later run's learner is told it first, as its past, with
 * a tear behind it. All else is as ever: the program's first operations stand behind
 * contexts of that past, so a pointer into it is found as into any other, and ends as any
 * other does.
 *
 * Keys name kernels by what they are (pump_abi.h, identity) and no addresses, so both runs
 * have the same. Ranges are named by slot and generation, which is the order in which they
 * were allocated; those of the other run get names of their own, and today's take their
 * parts as new ranges take the parts of old ones (learner_places.c).
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

/* `mark`: beside the slots. */
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

/* Tells the story. Returns the longest period that the match followed from end to end, or
 * 0. The period at the story's end would not do: many programs end with equal copies, and
 * the period of those is one operation. */
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
