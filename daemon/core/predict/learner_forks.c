/* learner_forks.c - places where the program continued differently than predicted.
 *
 * A fork is named by the four operations before it. What came there in two of the last
 * three cases is *usual* there; anything else is a turn. A turn is expected from a
 * pointer that was right when the program turned there the last time, as one is that is a
 * whole cycle behind; or if the same came as often in a row in front of it in the past as
 * this time, as in the last of six layers. Any other pointer only points where a turn
 * happened to come, such as a change of batch size. It is replaced by one that agrees with
 * it up to the fork and continues there as is usual.
 */
#include "learner_state.h"

static struct fork *fork_at(const struct pump_learner *l, uint32_t name) {
  return (struct fork *)&l->forks[name >> 1 & (FORKS - 1)];
}

static struct fork *fork_of(const struct pump_learner *l, uint32_t name) {
  struct fork *fork = fork_at(l, name);
  return fork->name == name ? fork : NULL;
}

static bool is_known(const struct pump_learner *l, uint64_t number) {
  return number >= l->oldest && number < l->head;
}

static bool is_alike(const struct pump_learner *l, uint64_t a, uint64_t b) {
  return is_known(l, a) && is_known(l, b) &&
         learner_past(l, a)->key == learner_past(l, b)->key;
}

/* The newest operation that is one of the usual ones, or NEVER. */
static uint64_t usual(const struct pump_learner *l, const struct fork *fork) {
  const uint64_t *came = fork->came;
  if (is_alike(l, came[0], came[1]) || is_alike(l, came[0], came[2])) return came[0];
  return is_alike(l, came[1], came[2]) ? came[1] : NEVER;
}

/* ---- what happened ------------------------------------------------------------------- */

void learner_fork_right(struct pump_learner *l, uint32_t name) {
  struct fork *fork = fork_of(l, name);
  if (fork == NULL) return;
  learner_shift_share(&fork->right, true);
  fork->failed = false;
}

/* Which operation came there last, and how often in a row. */
static uint16_t run_of(const struct pump_learner *l, const struct fork *fork) {
  if (!is_known(l, fork->came[0])) return 0;
  uint64_t key = learner_past(l, fork->came[0])->key;
  return (uint16_t)(learner_mix(key + fork->streak) >> 48 | 1);
}

static void came(struct pump_learner *l, struct fork *fork, uint64_t number) {
  learner_past(l, number)->run = run_of(l, fork);
  bool differs = !is_alike(l, fork->came[0], number);
  fork->streak = differs ? 1 : fork->streak + 1;
  if (differs) fork->turned = fork->came[0] == NEVER ? number : fork->came[0];
  fork->came[2] = fork->came[1];
  fork->came[1] = fork->came[0];
  fork->came[0] = number;
}

void learner_fork_came(struct pump_learner *l, uint32_t name, uint64_t number) {
  struct fork *fork = fork_of(l, name);
  if (fork != NULL) came(l, fork, number);
}

void learner_fork_wrong(struct pump_learner *l, uint32_t name) {
  struct fork *fork = fork_of(l, name);
  if (fork == NULL) {
    fork = fork_at(l, name);
    *fork = (struct fork){.name = name, .right = 1, .came = {NEVER, NEVER, NEVER}};
    uint64_t from = l->head > FORK_PAST ? l->head - FORK_PAST : 0;
    for (uint64_t i = from > l->oldest ? from : l->oldest; i < l->head; i++)
      if (learner_past(l, i)->before == name) came(l, fork, i);
  }
  learner_shift_share(&fork->right, false);
  fork->failed = true;
}

/* ---- which pointer is trusted -------------------------------------------------------- */

/* The pointer, which predicts `number`, knows when: it was right when the program
 * turned here the last time, or the same comes as often in a row in front of it as then. */
static bool knows_when(const struct pump_learner *l, const struct fork *fork,
                       uint64_t number) {
  if (!fork->failed && l->match.from <= fork->turned) return true;
  uint64_t first = l->match.front;
  while (first < number && learner_past(l, first)->before != fork->name) first++;
  uint16_t run = learner_past(l, first)->run;
  return run == 0 ? !fork->failed : run == run_of(l, fork);
}

bool learner_forks_here(const struct pump_learner *l, uint64_t number) {
  uint32_t name = learner_past(l, number)->before;
  if (name == TORN) return true;
  const struct fork *fork = fork_of(l, name);
  if (fork == NULL) return false;
  if (fork->right < FORK_TRUSTED) return true;
  return !is_alike(l, usual(l, fork), number) && !knows_when(l, fork, number);
}

/* ---- another pointer ----------------------------------------------------------------- */

/* Operations in front of `a` and `b` that are the same, at most `most`. */
static uint64_t common(const struct pump_learner *l, uint64_t a, uint64_t b,
                       uint64_t most) {
  uint64_t count = 0;
  for (; count < most; count++) {
    if (a - count <= l->oldest || b - count <= l->oldest) break;
    const struct past *one = learner_past(l, a - count - 1);
    const struct past *other = learner_past(l, b - count - 1);
    if (one->key != other->key || one->stream != other->stream) break;
  }
  return count;
}

/* The first operation of the stream from `number` on, or NEVER. */
static uint64_t next_of(const struct pump_learner *l, uint32_t stream, uint64_t number) {
  uint64_t end = number + STREAM_SPREAD < l->head ? number + STREAM_SPREAD : l->head;
  for (; number < end; number++)
    if (learner_past(l, number)->stream == stream) return number;
  return NEVER;
}

uint64_t learner_turn(struct pump_learner *l, uint64_t number) {
  const struct fork *fork = fork_of(l, learner_past(l, number)->before);
  struct match *match = &l->match;
  if (fork == NULL || fork->right < FORK_TRUSTED || knows_when(l, fork, number))
    return NEVER;
  uint64_t to = usual(l, fork), length = number - match->front;
  if (to == NEVER || to == number) return NEVER;
  struct aside *aside = &l->aside; /* not examined again with each operation */
  if (aside->number == number && aside->to == to && length > aside->common) return NEVER;
  uint64_t alike = common(l, number, to, length);
  if (alike < length) {
    *aside = (struct aside){number, to, alike};
    return NEVER;
  }
  uint64_t front = to - length;
  for (uint32_t i = 0; i < PUMP_MAX_STREAMS; i++) {
    struct cursor *cursor = &l->cursors[i];
    if (cursor->epoch != match->epoch || cursor->at == NEVER) continue;
    if (cursor->at < number)
      cursor->at += front - match->front;
    else
      cursor->at = next_of(l, i, to);
  }
  match->base = front;
  match->front = front;
  return to;
}
