/* learner_match.c - matches: found by contexts, followed stream by stream.
 *
 * A match has one front for all streams, and a cursor for each stream of the history: its
 * first operation that was not repeated. So streams may interleave differently than
 * before, up to STREAM_SPREAD operations apart. The match finds out which current stream
 * repeats which stream of the history. Usually it is the same one, but some programs
 * create a new stream each iteration. When a match begins, other streams may be late with
 * earlier operations. So a stream without a cursor is also searched before the match's
 * beginning.
 */
#include "learner_state.h"

uint32_t learner_branch_name(const struct stream_state *state) {
  return (uint32_t)(learner_mix(state->contexts[LEVEL_BRANCH].hash) >> 32) | 1;
}

void learner_shift_share(float *share, bool right) {
  *share += ((right ? 1.0f : 0.0f) - *share) / 8;
}

bool learner_is_trusted(const struct pump_learner *l) {
  const struct match *match = &l->match;
  return match->on && (match->since >= TRIAL || l->scores[match->level] >= SHARE_TRUSTED);
}

uint64_t learner_period(const struct pump_learner *l) {
  uint64_t behind = l->head - l->match.front;
  return behind > l->match.beyond ? behind - l->match.beyond : 1;
}

/* ---- following -------------------------------------------------------------------- */

bool learner_was_seen(const struct pump_learner *l, uint64_t number) {
  const struct cursor *cursor = &l->cursors[learner_entry(l, number)->stream];
  return cursor->epoch == l->match.epoch && cursor->at > number;
}

/* Returns the next operation of a stream of the history, at or after the front. */
static uint64_t first_of(const struct pump_learner *l, uint32_t stream) {
  const struct cursor *cursor = &l->cursors[stream];
  if (cursor->epoch == l->match.epoch) return cursor->at;
  uint64_t end = l->match.front + STREAM_SPREAD;
  for (uint64_t i = l->match.front; i < l->head && i < end; i++)
    if (learner_entry(l, i)->stream == stream) return i;
  return NEVER;
}

/* Returns a late operation of the stream, which came before the match's beginning in the
 * history, or NEVER. */
static uint64_t late_one(const struct pump_learner *l, uint32_t stream, uint64_t key) {
  uint32_t before = learner_branch_name(&l->streams[stream]);
  for (uint64_t i = 1; i <= STREAM_SPREAD && l->match.base >= l->oldest + i; i++) {
    const struct history_entry *entry = learner_entry(l, l->match.base - i);
    if (entry->stream == stream && entry->key == key && entry->before == before)
      return l->match.base - i;
  }
  return NEVER;
}

uint64_t learner_expected(struct pump_learner *l, uint32_t stream, uint64_t key) {
  const struct stream_state *state = &l->streams[stream];
  const struct history_entry *front = learner_entry(l, l->match.front);
  bool tied = state->epoch == l->match.epoch;
  uint32_t as = tied ? state->as : stream;
  if (front->key == key && front->stream == as &&
      (tied || l->cursors[as].epoch != l->match.epoch))
    return l->match.front;
  if (tied || l->cursors[as].epoch != l->match.epoch) {
    uint64_t at = first_of(l, as);
    if (at != NEVER && at < l->head && at < l->match.front + STREAM_SPREAD &&
        learner_entry(l, at)->key == key)
      return at;
  }
  if (tied) return NEVER;
  if (front->key == key && l->cursors[front->stream].epoch != l->match.epoch)
    return l->match.front;
  return l->cursors[as].epoch == l->match.epoch ? NEVER : late_one(l, stream, key);
}

void learner_advance(struct pump_learner *l, uint32_t stream, uint64_t found) {
  struct match *match = &l->match;
  const struct history_entry *entry = learner_entry(l, found);
  struct stream_state *state = &l->streams[stream];
  state->epoch = match->epoch;
  state->as = entry->stream;
  l->cursors[entry->stream] =
      (struct cursor){.epoch = match->epoch, .at = entry->next, .current = stream};
  if (found == match->front) {
    match->front++;
    while (match->beyond > 0 && match->front < l->head &&
           learner_was_seen(l, match->front)) {
      match->front++;
      match->beyond--;
    }
  } else if (found > match->front) {
    match->beyond++;
  }
  if (++match->since == TRIAL && !match->judged) {
    match->judged = true;
    learner_shift_share(&l->scores[match->level], true);
  }
}

/* ---- ending ----------------------------------------------------------------------- */

void learner_drop(struct pump_learner *l, uint32_t stream) {
  struct match *match = &l->match;
  if (learner_is_trusted(l)) {
    learner_branch_wrong(l, learner_branch_name(&l->streams[stream]));
    l->resume = (struct resume){match->front, l->head, match->from};
  }
  if (!match->judged) learner_shift_share(&l->scores[match->level], false);
  match->on = false;
  match->epoch = ++l->epochs;
}

/* ---- finding ---------------------------------------------------------------------- */

static uint64_t *entry_of(const struct pump_learner *l, uint32_t level, uint64_t name) {
  return &l->index[level][name & l->index_mask];
}

/* Returns the newest operation at the end of the context, or NEVER. */
static uint64_t look_up(const struct pump_learner *l, const struct stream_state *state,
                        uint32_t level, uint64_t key) {
  const struct context *context = &state->contexts[level];
  if (context->filled < CONTEXT_LEAST(level)) return NEVER;
  uint64_t name = learner_mix(context->hash);
  uint64_t entry = *entry_of(l, level, name);
  if (entry >> 32 != (name >> 32 | 1)) return NEVER;
  uint64_t number = l->head - (uint32_t)((uint32_t)l->head - (uint32_t)entry);
  if (number < l->oldest || number + 1 >= l->head || learner_entry(l, number)->key != key)
    return NEVER;
  return number;
}

static uint64_t resumed(const struct pump_learner *l, uint32_t stream, uint64_t number,
                        uint64_t key) {
  const struct resume *resume = &l->resume;
  if (resume->front == NEVER || number - resume->ended > RESUME_AGE) return NEVER;
  for (uint64_t i = resume->front; i <= resume->front + RESUME_SKIP && i < number; i++) {
    const struct history_entry *entry = learner_entry(l, i);
    if (i >= l->oldest && entry->key == key && entry->stream == stream) return i;
  }
  return NEVER;
}

uint64_t learner_find(struct pump_learner *l, uint32_t stream, uint64_t number) {
  const struct stream_state *state = &l->streams[stream];
  uint64_t key = learner_entry(l, number)->key, found = NEVER;
  uint32_t level = LEVELS;
  while (found == NEVER && level > LEVEL_SURE) found = look_up(l, state, --level, key);
  if (found == NEVER) {
    found = resumed(l, stream, number, key);
    if (found != NEVER) level = LEVEL_RESUME;
  }
  if (found == NEVER) level = LEVEL_SURE;
  while (found == NEVER && level > 0) found = look_up(l, state, --level, key);
  if (found == NEVER) return NEVER;
  bool resumes = level == LEVEL_RESUME;
  l->match = (struct match){.epoch = ++l->epochs,
                            .base = found,
                            .front = found,
                            .from = resumes ? l->resume.from : state->contexts[level].tail,
                            .level = level,
                            .on = true};
  return found;
}

void learner_index(struct pump_learner *l, uint32_t stream, uint64_t number) {
  const struct stream_state *state = &l->streams[stream];
  for (uint32_t level = 0; level < LEVELS; level++) {
    const struct context *context = &state->contexts[level];
    if (context->filled < CONTEXT_LEAST(level)) continue;
    uint64_t name = learner_mix(context->hash);
    *entry_of(l, level, name) = (name >> 32 | 1) << 32 | (uint32_t)number;
  }
}
