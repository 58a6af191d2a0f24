/* learner_ahead.c - the predicted operations, and how far they are trusted.
 *
 * Predictions follow the history from the front of the match to its end, then repeat the
 * newest period. Operations of other streams that were already repeated are skipped.
 */
#include "learner_state.h"

#include <errno.h>

/* Returns the operation at a position. Positions continue the numbers of the history:
 * after its end the newest period repeats, for the `rounds`th time. */
static uint64_t number_at(const struct pump_learner *l, uint64_t position,
                          uint64_t *rounds) {
  *rounds = 0;
  if (position < l->head) return position;
  uint64_t period = learner_period(l), beyond = position - l->head;
  *rounds = 1 + beyond / period;
  return l->head - period + beyond % period;
}

EXPORT uint32_t pump_learner_ahead(struct pump_learner *l, uint32_t most) {
  if (!learner_is_trusted(l)) return 0;
  const struct match *match = &l->match;
  if (l->clear_epoch != match->epoch || l->clear_until < match->front) {
    l->clear_epoch = match->epoch;
    l->clear_until = match->front;
  }
  uint64_t rounds, end = match->front + match->beyond + most;
  for (; l->clear_until < end; l->clear_until++) {
    uint64_t number = number_at(l, l->clear_until, &rounds);
    if (!learner_branches_here(l, number)) continue;
    uint64_t to = rounds == 0 ? learner_turn(l, number) : NEVER;
    if (to == NEVER) break;
    end += to - number;
    l->clear_until = to; /* positions now follow the new front */
  }
  uint64_t clear = l->clear_until - match->front;
  clear = clear > match->beyond ? clear - match->beyond : 0;
  return clear < most ? (uint32_t)clear : most;
}

/* Returns the position of the operation that is expected after `index` others. */
static uint64_t position_of(const struct pump_learner *l, uint32_t index) {
  uint64_t position = l->match.front, beyond = l->match.beyond, left = index;
  for (; beyond > 0 && position < l->head; position++) {
    if (learner_was_seen(l, position))
      beyond--;
    else if (left-- == 0)
      return position;
  }
  return position + left;
}

EXPORT int pump_learner_next(struct pump_learner *l, uint32_t index,
                             struct pump_predicted *predicted) {
  if (!l->match.on) return -ENOENT;
  uint64_t rounds, number = number_at(l, position_of(l, index), &rounds);
  const struct history_entry *entry = learner_entry(l, number);
  const struct cursor *cursor = &l->cursors[entry->stream];
  const struct history_entry *source = learner_source(l, number, rounds);
  uint32_t missing = 0;
  for (uint32_t i = 0; i < source->count; i++) {
    learner_translate(l, learner_access(l, source, i), rounds, &l->answer[i]);
    missing += l->answer[i].missing != 0;
    if (learner_astray(l, entry, i, learner_period(l)) >= ASTRAY_LEAST)
      l->answer[i].missing = PUMP_LEARNER_ASTRAY;
  }
  *predicted = (struct pump_predicted){
      .number = number,
      .signature = entry->signature,
      .key = entry->key,
      .stream = cursor->epoch == l->match.epoch ? cursor->current : entry->stream,
      .kind = entry->kind,
      .count = source->count,
      .missing = missing,
      .accesses = l->answer};
  return 0;
}
