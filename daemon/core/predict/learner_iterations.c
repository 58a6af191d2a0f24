/* learner_iterations.c - where iterations begin, and which of them are of one kind. For
 * reports: predictions need neither.
 *
 * An iteration begins at the anchor: a key that stands once in a period that was confirmed
 * as a whole. The layers of a model are the first such period that shows; a longer one in
 * which there is more than one anchor makes choose anew, so the anchor soon stands once in
 * what the program really repeats. Iterations are of one kind if they have the same keys,
 * in whichever order.
 */
#include "learner_state.h"

#include <string.h>

#define PERIODS_WITHOUT 16u /* after which an anchor that did not come is given up */

static uint32_t kind_of(struct iterations *it) {
  for (uint32_t i = 0; i < it->kinds; i++)
    if (it->known[i].sum == it->sum) return i;
  uint32_t kind = it->kinds < KINDS ? it->kinds++ : KINDS - 1;
  it->known[kind] = (struct kind_of){.sum = it->sum};
  return kind;
}

static uint16_t *count_of(struct pump_learner *l, uint64_t key) {
  return &l->key_counts[learner_mix(key) & (KEY_COUNTS - 1)];
}

/* Chooses a key that stands once in the newest `period` operations. */
static void choose(struct pump_learner *l, uint64_t period) {
  struct iterations *it = &l->iterations;
  memset(l->key_counts, 0, sizeof l->key_counts);
  for (uint64_t i = l->head - period; i < l->head; i++) {
    uint16_t *counter = count_of(l, learner_past(l, i)->key);
    if (*counter < UINT16_MAX) ++*counter;
  }
  if (it->anchor != 0 && *count_of(l, it->anchor) == 1) return;
  for (uint64_t i = l->head - period; i < l->head; i++) {
    uint64_t key = learner_past(l, i)->key;
    if (*count_of(l, key) != 1) continue;
    it->anchor = key;
    it->began = NEVER;
    it->period = period;
    return;
  }
}

void learner_iteration(struct pump_learner *l, uint64_t key) {
  struct iterations *it = &l->iterations;
  if (it->anchor != 0 && key == it->anchor) {
    if (it->began != NEVER) {
      it->whole++;
      it->kind = kind_of(it);
      it->known[it->kind].count++;
    }
    it->began = l->head - 1;
    it->sum = 0;
  }
  it->sum += learner_mix(key ^ 1);
  if (it->began != NEVER && l->head - it->began > PERIODS_WITHOUT * it->period) {
    it->anchor = 0;
    it->began = NEVER;
  }
  if (!l->match.on) return;
  uint64_t period = learner_period(l);
  if (l->match.since == period && period > 1 && l->head - period >= l->oldest &&
      (it->anchor == 0 || period > it->period))
    choose(l, period);
}
