/* learner_log.c - the log of a learner's input, kept for the next run of the program.
 *
 * The log contains the first inputs: operations by key with their accesses, and
 * ranges that appeared and disappeared. The next run's learner first replays it as its
 * history, followed by a gap, as after lost operations. The rest works as usual: the
 * contexts of the program's first operations occur in that history, so matches with it are
 * found and end like any others.
 *
 * Keys identify kernels by content (pump_abi.h, identity) and contain no addresses, so
 * they are equal in both runs. Ranges are named by slot and generation, in the order of
 * their allocation. Ranges of the other run get distinct names, and current ranges
 * succeed them like any successor (learner_relocations.c).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "learner_state.h"

EXPORT int pump_learner_keep(struct pump_learner *l) {
  struct event_log *event_log = &l->event_log;
  if (event_log->steps != NULL) return 0;
  event_log->steps = calloc(PUMP_LEARNER_STEPS, sizeof *event_log->steps);
  event_log->accesses = calloc(PUMP_LEARNER_LOG_ACCESSES, sizeof *event_log->accesses);
  if (event_log->steps != NULL && event_log->accesses != NULL) return 0;
  free(event_log->steps);
  free(event_log->accesses);
  *event_log = (struct event_log){0};
  return -ENOMEM;
}

EXPORT void pump_learner_kept(const struct pump_learner *l,
                              struct pump_learner_log *event_log) {
  *event_log = (struct pump_learner_log){.steps = l->event_log.steps,
                                         .accesses = l->event_log.accesses,
                                         .step_count = l->event_log.step_count,
                                         .access_count = l->event_log.access_count,
                                         .operations = l->event_log.operations};
}

void learner_note(struct pump_learner *l, struct pump_learner_step step,
                  const struct pump_access *accesses) {
  struct event_log *event_log = &l->event_log;
  if (event_log->steps == NULL || event_log->full) return;
  bool operation = step.what == PUMP_LEARNER_OPERATION;
  event_log->full = event_log->step_count == PUMP_LEARNER_STEPS ||
                    event_log->access_count + step.count > PUMP_LEARNER_LOG_ACCESSES ||
                    (operation && event_log->operations == PUMP_LEARNER_LOG_OPERATIONS);
  if (event_log->full) return;
  if (step.count != 0)
    memcpy(&event_log->accesses[event_log->access_count], accesses,
           step.count * sizeof *accesses);
  event_log->access_count += step.count;
  event_log->operations += operation;
  event_log->steps[event_log->step_count++] = step;
}

/* Replays one step. `mark` is set in its slots. */
static void replay_step(struct pump_learner *l, const struct pump_learner_step *step,
                        const struct pump_access *accesses, uint32_t mark) {
  struct pump_access marked[PUMP_MAX_EXTENTS];
  struct pump_operation op = {.signature = step->signature,
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
static uint64_t tell_all(struct pump_learner *l, const struct pump_learner_log *event_log,
                         uint32_t mark) {
  uint64_t longest = 0;
  uint32_t at = 0;
  for (uint32_t i = 0; i < event_log->step_count; i++) {
    const struct pump_learner_step *step = &event_log->steps[i];
    if (step->count > PUMP_MAX_EXTENTS || step->count > event_log->access_count - at) break;
    replay_step(l, step, &event_log->accesses[at], mark);
    at += step->count;
    uint64_t period = l->match.on ? learner_period(l) : 0;
    if (period > longest && l->match.since >= period) longest = period;
  }
  return longest;
}

EXPORT void pump_learner_recall(struct pump_learner *l,
                                const struct pump_learner_log *event_log) {
  l->recalled_period = tell_all(l, event_log, RECALLED_SLOT);
  l->recalled = l->head;
  learner_end_allocations(l);
  learner_tear(l);
  memset(&l->totals, 0, sizeof l->totals);
}

EXPORT void pump_learner_take_over(struct pump_learner *l, struct pump_learner *from) {
  struct pump_learner_log event_log;
  pump_learner_kept(from, &event_log);
  memcpy(l->shapes, from->shapes, sizeof l->shapes);
  tell_all(l, &event_log, 0);
  struct event_log none = l->event_log;
  l->event_log = from->event_log;
  from->event_log = none;
}
