/* learner_branches.c - branch points, where the program did not continue as predicted.
 *
 * A branch point is named by the four operations before it. The continuation of
 * two of the last three passages is *usual*; any other one is a detour. A match that
 * predicts a detour needs a justification. Either it was right at the program's last
 * detour there, like a match that is one whole cycle back. Or the usual continuation has
 * come equally often in a row before both detours, for example five times if there are six
 * layers. Any other match merely points to an earlier change, such as that of the batch
 * size. It is replaced by a match that agrees with it up to the branch point and continues
 * there as usual.
 */
#include "learner_state.h"

static struct branch_point *branch_at(const struct pump_learner *l, uint32_t name) {
  return (struct branch_point *)&l->branch_points[name >> 1 & (BRANCH_POINTS - 1)];
}

static struct branch_point *branch_of(const struct pump_learner *l, uint32_t name) {
  struct branch_point *branch = branch_at(l, name);
  return branch->name == name ? branch : NULL;
}

static bool is_known(const struct pump_learner *l, uint64_t number) {
  return number >= l->oldest && number < l->head;
}

static bool is_alike(const struct pump_learner *l, uint64_t a, uint64_t b) {
  return is_known(l, a) && is_known(l, b) &&
         learner_entry(l, a)->key == learner_entry(l, b)->key;
}

/* Returns the newest operation that is usual there, or NEVER. */
static uint64_t usual(const struct pump_learner *l, const struct branch_point *branch) {
  const uint64_t *came = branch->came;
  if (is_alike(l, came[0], came[1]) || is_alike(l, came[0], came[2])) return came[0];
  return is_alike(l, came[1], came[2]) ? came[1] : NEVER;
}

/* ---- outcomes ---------------------------------------------------------------------- */

void learner_branch_right(struct pump_learner *l, uint32_t name) {
  struct branch_point *branch = branch_of(l, name);
  if (branch == NULL) return;
  learner_shift_share(&branch->right, true);
  branch->failed = false;
}

/* Returns a hash of the operation that came there last and how often in a row. */
static uint16_t run_of(const struct pump_learner *l, const struct branch_point *branch) {
  if (!is_known(l, branch->came[0])) return 0;
  uint64_t key = learner_entry(l, branch->came[0])->key;
  return (uint16_t)(learner_mix(key + branch->streak) >> 48 | 1);
}

static void came(struct pump_learner *l, struct branch_point *branch, uint64_t number) {
  learner_entry(l, number)->run = run_of(l, branch);
  bool differs = !is_alike(l, branch->came[0], number);
  branch->streak = differs ? 1 : branch->streak + 1;
  if (differs) branch->changed = branch->came[0] == NEVER ? number : branch->came[0];
  branch->came[2] = branch->came[1];
  branch->came[1] = branch->came[0];
  branch->came[0] = number;
}

void learner_branch_came(struct pump_learner *l, uint32_t name, uint64_t number) {
  struct branch_point *branch = branch_of(l, name);
  if (branch != NULL) came(l, branch, number);
}

void learner_branch_wrong(struct pump_learner *l, uint32_t name) {
  struct branch_point *branch = branch_of(l, name);
  if (branch == NULL) {
    branch = branch_at(l, name);
    *branch =
        (struct branch_point){.name = name, .right = 1, .came = {NEVER, NEVER, NEVER}};
    uint64_t from = l->head > BRANCH_HISTORY ? l->head - BRANCH_HISTORY : 0;
    for (uint64_t i = from > l->oldest ? from : l->oldest; i < l->head; i++)
      if (learner_entry(l, i)->before == name) came(l, branch, i);
  }
  learner_shift_share(&branch->right, false);
  branch->failed = true;
}

/* ---- trust ------------------------------------------------------------------------- */

/* Returns whether the match justifies the detour to `number`. Either it was right at the
 * last detour here, or the same operation came equally often in a row before its detour
 * and now. */
static bool knows_when(const struct pump_learner *l, const struct branch_point *branch,
                       uint64_t number) {
  if (!branch->failed && l->match.from <= branch->changed) return true;
  uint64_t first = l->match.front;
  while (first < number && learner_entry(l, first)->before != branch->name) first++;
  uint16_t run = learner_entry(l, first)->run;
  return run == 0 ? !branch->failed : run == run_of(l, branch);
}

bool learner_branches_here(const struct pump_learner *l, uint64_t number) {
  uint32_t name = learner_entry(l, number)->before;
  if (name == TORN) return true;
  const struct branch_point *branch = branch_of(l, name);
  if (branch == NULL) return false;
  if (branch->right < BRANCH_TRUSTED) return true;
  return !is_alike(l, usual(l, branch), number) && !knows_when(l, branch, number);
}

/* ---- another match ----------------------------------------------------------------- */

/* Returns how many equal operations precede `a` and `b`, at most `most`. */
static uint64_t common(const struct pump_learner *l, uint64_t a, uint64_t b,
                       uint64_t most) {
  uint64_t count = 0;
  for (; count < most; count++) {
    if (a - count <= l->oldest || b - count <= l->oldest) break;
    const struct history_entry *one = learner_entry(l, a - count - 1);
    const struct history_entry *other = learner_entry(l, b - count - 1);
    if (one->key != other->key || one->stream != other->stream) break;
  }
  return count;
}

/* Returns the first operation of the stream at or after `number`, or NEVER. */
static uint64_t next_of(const struct pump_learner *l, uint32_t stream, uint64_t number) {
  uint64_t end = number + STREAM_SPREAD < l->head ? number + STREAM_SPREAD : l->head;
  for (; number < end; number++)
    if (learner_entry(l, number)->stream == stream) return number;
  return NEVER;
}

uint64_t learner_turn(struct pump_learner *l, uint64_t number) {
  const struct branch_point *branch = branch_of(l, learner_entry(l, number)->before);
  struct match *match = &l->match;
  if (branch == NULL || branch->right < BRANCH_TRUSTED || knows_when(l, branch, number))
    return NEVER;
  uint64_t to = usual(l, branch), length = number - match->front;
  if (to == NEVER || to == number) return NEVER;
  struct aside *aside = &l->aside; /* prevents a comparison with each operation */
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
