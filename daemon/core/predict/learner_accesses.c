/* learner_accesses.c - replaces a match if operations are equal but their accesses
 * differ.
 *
 * Keys contain no addresses, because these may change each iteration. So a program of one
 * kernel that sweeps over many buffers seems to repeat with each operation. The learner
 * then predicts the previous operation's buffer, at best as a tensor that moves with each
 * operation. A match with a short period that keeps failing in this way is wrong. The
 * learner then searches for the program's real position: the newest one where the same
 * operations reached the same addresses. If there is none, as in noise, the learner waits
 * before the next search, twice as long each time.
 */
#include "learner_state.h"

/* Numbers of operations [guessed]. */
#define PERIOD_MOST 64u /* longest period of a match that may be replaced */
#define MISPLACED 16u   /* consecutive operations with other addresses before a search */
#define ALIKE 8u        /* operations whose keys and accesses must be equal */
#define BACK 32768u     /* operations to search, and the longest wait after a search */

/* Returns the newest operation of the stream before `number`, or NEVER. */
static uint64_t before(const struct pump_learner *l, uint32_t stream, uint64_t number) {
  for (uint64_t i = 0; i < STREAM_SPREAD && number > l->oldest; i++)
    if (learner_entry(l, --number)->stream == stream) return number;
  return NEVER;
}

static bool is_same(const struct pump_learner *l, uint64_t a, uint64_t b) {
  const struct history_entry *one = learner_entry(l, a), *other = learner_entry(l, b);
  if (one->key != other->key || one->stream != other->stream || one->count != other->count)
    return false;
  for (uint32_t i = 0; i < one->count; i++) {
    const struct pump_access *x = learner_access(l, one, i),
                             *y = learner_access(l, other, i);
    if (x->slot != y->slot || x->generation != y->generation ||
        x->offset_bytes != y->offset_bytes)
      return false;
  }
  return true;
}

static bool is_alike(const struct pump_learner *l, uint32_t stream, uint64_t a,
                     uint64_t b) {
  for (uint32_t i = 0; i < ALIKE; i++) {
    if (a == NEVER || b == NEVER || !is_same(l, a, b)) return false;
    a = before(l, stream, a);
    b = before(l, stream, b);
  }
  return true;
}

uint64_t learner_replace(struct pump_learner *l, uint32_t stream, uint64_t number,
                         uint64_t then) {
  l->misplaced = is_same(l, then, number) ? 0 : l->misplaced + 1;
  if (l->misplaced < MISPLACED || number < l->replace_after ||
      learner_period(l) > PERIOD_MOST)
    return NEVER;
  l->misplaced = 0;
  for (uint64_t i = number; i > l->oldest && i + BACK > number;) {
    i--;
    if (!is_same(l, i, number) || !is_alike(l, stream, i, number)) continue;
    if (i == then) return NEVER;
    l->replace_wait = 0;
    l->match = (struct match){.epoch = ++l->epochs,
                              .base = i,
                              .front = i,
                              .from = number,
                              .level = LEVEL_SURE,
                              .on = true};
    return i;
  }
  l->replace_wait = l->replace_wait == 0 ? MISPLACED : 2 * l->replace_wait;
  if (l->replace_wait > BACK) l->replace_wait = BACK;
  l->replace_after = number + l->replace_wait;
  return NEVER;
}
