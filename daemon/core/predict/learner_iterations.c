/* learner_iterations.c - where iterations begin, and which ones are equal. Only for
 * reports: predictions do not need iterations.
 *
 * An iteration begins at the anchor: a key that occurs once in a completely confirmed
 * period. The first such period is often a layer of the model. If a longer period
 * contains the anchor more than once, a new one is chosen. So the anchor soon occurs once
 * in the program's real iteration. Iterations are of one kind if they have the same keys,
 * in any order.
 */
#include "learner_state.h"

#include <string.h>

/* Periods without the anchor after which it is dropped [guessed]. */
#define PERIODS_WITHOUT 16u

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

/* Chooses a key that occurs once in the newest `period` operations. */
static void choose(struct pump_learner *l, uint64_t period) {
  struct iterations *it = &l->iterations;
  memset(l->key_counts, 0, sizeof l->key_counts);
  for (uint64_t i = l->head - period; i < l->head; i++) {
    uint16_t *counter = count_of(l, learner_entry(l, i)->key);
    if (*counter < UINT16_MAX) ++*counter;
  }
  if (it->anchor != 0 && *count_of(l, it->anchor) == 1) return;
  for (uint64_t i = l->head - period; i < l->head; i++) {
    uint64_t key = learner_entry(l, i)->key;
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
