/* learner.c - the history of operations, and the handling of a new operation.
 *
 * DESIGN. Each operation has a key, which is equal at each repetition. A launch's key is
 * the function's identity, grid and block, or its signature if these were not reported.
 * Scalar parameters are left out, because step counts and seeds change each iteration.
 * The key of a copy or memset consists of the lengths of its accesses. Keys contain
 * neither addresses nor streams, because both may change each iteration.
 *
 * The history is a ring. A context is a rolling polynomial hash of a stream's newest 1,
 * 4, 16, ... 1024 keys. An index maps each context to the newest operation at its end.
 * Matches are found there (learner_match.c): the longest known context wins. So after an
 * evaluation, a short batch or the fourth of four steps, the match continues as after the
 * last one with the same history. A match that is not contradicted stays. After a whole
 * cycle (a hundred steps, then an evaluation) it is one cycle back, and right at each
 * branch.
 *
 * Recent success decides about trust. Each level of contexts has a success rate. So has
 * each branch point, which is identified by the stream's newest four keys. A low
 * rate ends the confident predictions.
 */
#include "learner_state.h"

#include <stdlib.h>
#include <string.h>

/* Factor of the polynomial: 2^64 / the golden ratio, odd [published: Knuth, TAOCP 6.4]. */
#define FACTOR 0x9e3779b97f4a7c15u
/* Accesses for each operation of the history, in the mean; with more, the oldest operations
 * are forgotten [guessed]. */
#define ACCESSES_AN_OPERATION 8u
/* Operations in the mean of the confidence [guessed]. */
#define LATELY 64.0

static uint64_t power(uint64_t base, uint64_t exponent) {
  uint64_t result = 1;
  for (; exponent != 0; exponent >>= 1, base *= base)
    if (exponent & 1) result *= base;
  return result;
}

EXPORT struct pump_learner *pump_learner_new(uint32_t capacity) {
  if (capacity < 1u << 8 || capacity > 1u << 20 || (capacity & (capacity - 1)) != 0)
    return NULL;
  struct pump_learner *l = calloc(1, sizeof *l);
  if (l == NULL) return NULL;
  l->capacity = capacity;
  l->mask = capacity - 1;
  l->access_mask = capacity * ACCESSES_AN_OPERATION - 1;
  l->index_mask = 2 * capacity - 1;
  l->history = calloc(capacity, sizeof *l->history);
  l->accesses = calloc((size_t)l->access_mask + 1, sizeof *l->accesses);
  bool whole = l->history != NULL && l->accesses != NULL;
  for (uint32_t level = 0; level < LEVELS; level++) {
    l->index[level] = calloc((size_t)l->index_mask + 1, sizeof(uint64_t));
    whole &= l->index[level] != NULL;
    l->powers[level] = power(FACTOR, CONTEXT_LEAST(level));
    l->scores[level] = level >= LEVEL_SURE ? 0.9f : 0.6f;
  }
  l->scores[LEVEL_RESUME] = 0.6f;
  if (!whole) {
    pump_learner_delete(l);
    return NULL;
  }
  for (uint32_t i = 0; i < PUMP_MAX_STREAMS; i++) l->streams[i].last = NEVER;
  l->resume.front = NEVER;
  return l;
}

EXPORT void pump_learner_delete(struct pump_learner *l) {
  if (l == NULL) return;
  for (uint32_t level = 0; level < LEVELS; level++) free(l->index[level]);
  free(l->event_log.steps);
  free(l->event_log.accesses);
  free(l->accesses);
  free(l->history);
  free(l);
}

/* ---- keys ------------------------------------------------------------------------- */

/* Returns the signature's entry, or the least recently used entry of its set. A repeated
 * signature is reported only once, so signatures with counters or seeds must not evict
 * it. */
static struct shape *shape_for(struct pump_learner *l, uint64_t signature) {
  struct shape *set = &l->shapes[learner_mix(signature) & (SHAPES - SHAPE_WAYS)];
  struct shape *oldest = set;
  for (uint32_t i = 0; i < SHAPE_WAYS; i++) {
    if (set[i].signature == signature) return &set[i];
    if (set[i].used < oldest->used) oldest = &set[i];
  }
  return oldest;
}

EXPORT void pump_learner_shape(struct pump_learner *l, uint64_t signature,
                               uint64_t identity, const uint32_t grid[3],
                               const uint32_t block[3]) {
  uint64_t key = pump_shape(identity, grid, block);
  *shape_for(l, signature) = (struct shape){signature, key, l->head + 1};
}

static uint64_t key_of(struct pump_learner *l, const struct pump_operation *op) {
  if (op->signature != 0) {
    struct shape *shape = shape_for(l, op->signature);
    if (shape->signature == op->signature) {
      shape->used = l->head + 1;
      return shape->key;
    }
    return learner_mix(op->signature);
  }
  uint64_t key = learner_mix(op->function + op->kind);
  for (uint32_t i = 0; i < op->count && i < PUMP_MAX_EXTENTS; i++)
    key = learner_mix(key +
                      (op->accesses[i].length_bytes << 2 | (op->accesses[i].access & 3)));
  return key;
}

/* ---- the history ------------------------------------------------------------------ */

/* Extends the contexts of a stream by operation `number`, which is linked already. */
static void extend(struct pump_learner *l, struct stream_state *state, uint64_t number,
                   uint64_t key) {
  for (uint32_t level = 0; level < LEVELS; level++) {
    struct context *context = &state->contexts[level];
    if (context->filled == CONTEXT_LEAST(level) && context->tail >= l->oldest) {
      const struct history_entry *leaves = learner_entry(l, context->tail);
      context->hash = context->hash * FACTOR + key - leaves->key * l->powers[level];
      context->tail = leaves->next;
      continue;
    }
    if (context->filled == CONTEXT_LEAST(level) || context->filled == 0)
      *context = (struct context){.tail = number}; /* its oldest operation is forgotten */
    context->hash = context->hash * FACTOR + key;
    context->filled++;
  }
}

static void append(struct pump_learner *l, const struct pump_operation *op, uint64_t key,
                   uint32_t stream) {
  struct stream_state *state = &l->streams[stream];
  uint64_t number = l->head++;
  uint32_t count = op->count < PUMP_MAX_EXTENTS ? op->count : PUMP_MAX_EXTENTS;
  struct history_entry *entry = learner_entry(l, number);
  *entry = (struct history_entry){.key = key,
                                  .signature = op->signature,
                                  .first_access = l->access_head,
                                  .next = NEVER,
                                  .before = l->torn ? TORN : learner_branch_name(state),
                                  .stream = (uint16_t)stream,
                                  .kind = (uint16_t)op->kind,
                                  .count = (uint16_t)count};
  for (uint32_t i = 0; i < count; i++) {
    struct pump_access *access = learner_access(l, entry, i);
    *access = op->accesses[i];
    access->missing = 0;
    learner_reached(l, access, number);
  }
  l->access_head += count;
  if (l->head > l->oldest + l->capacity) l->oldest = l->head - l->capacity;
  while (l->access_head - learner_entry(l, l->oldest)->first_access > l->access_mask + 1ull)
    l->oldest++;
  if (state->last != NEVER && state->last >= l->oldest)
    learner_entry(l, state->last)->next = number;
  state->last = number;
  extend(l, state, number, key);
  l->allocations_now = 0;
  l->torn = false;
}

/* ---- an operation ----------------------------------------------------------------- */

static void count(struct pump_learner *l, int result, bool offered) {
  struct pump_learner_report *totals = &l->totals;
  bool right = offered && result == PUMP_LEARNER_CONFIRMED;
  totals->confirmed += result == PUMP_LEARNER_CONFIRMED;
  totals->deviated += result == PUMP_LEARNER_DEVIATED;
  totals->trusted += right;
  totals->misled += offered && result == PUMP_LEARNER_DEVIATED;
  totals->confidence += ((right ? 1.0 : 0.0) - totals->confidence) / LATELY;
}

int learner_saw(struct pump_learner *l, const struct pump_operation *op, uint64_t key) {
  uint32_t stream = op->stream & (PUMP_MAX_STREAMS - 1);
  uint64_t number = l->head;
  uint32_t branch = learner_branch_name(&l->streams[stream]);
  int result = PUMP_LEARNER_UNKNOWN;
  bool offered = pump_learner_ahead(l, 1) > 0;
  uint64_t then = NEVER;
  if (l->match.on) {
    then = learner_expected(l, stream, key);
    result = then == NEVER ? PUMP_LEARNER_DEVIATED : PUMP_LEARNER_CONFIRMED;
    if (then == NEVER)
      learner_drop(l, stream);
    else if (learner_is_trusted(l))
      learner_branch_right(l, branch);
  }
  append(l, op, key, stream);
  learner_branch_came(l, branch, number);
  uint64_t again = then == NEVER ? NEVER : learner_replace(l, stream, number, then);
  if (again != NEVER) {
    result = PUMP_LEARNER_DEVIATED; /* other addresses than predicted */
    then = again;
  }
  if (then == NEVER) then = learner_find(l, stream, number);
  learner_index(l, stream, number);
  if (then != NEVER) {
    learner_advance(l, stream, then);
    learner_link(l, then, number, result == PUMP_LEARNER_CONFIRMED);
    if (l->match.front < l->oldest) l->match.on = false; /* forgotten */
  }
  count(l, result, offered);
  return result;
}

EXPORT int pump_learner_see(struct pump_learner *l, const struct pump_operation *op) {
  uint64_t key = key_of(l, op);
  learner_note(
      l,
      (struct pump_learner_step){
          .what = PUMP_LEARNER_OPERATION,
          .key = key,
          .signature = op->signature,
          .stream = (uint16_t)(op->stream & (PUMP_MAX_STREAMS - 1)),
          .kind = (uint16_t)op->kind,
          .count = (uint16_t)(op->count < PUMP_MAX_EXTENTS ? op->count : PUMP_MAX_EXTENTS)},
      op->accesses);
  return learner_saw(l, op, key);
}

EXPORT void pump_learner_lost(struct pump_learner *l) {
  learner_note(l, (struct pump_learner_step){.what = PUMP_LEARNER_LOST}, NULL);
  learner_tear(l);
}

void learner_tear(struct pump_learner *l) {
  l->match.on = false;
  l->match.epoch = ++l->epochs;
  l->resume.front = NEVER;
  for (uint32_t i = 0; i < PUMP_MAX_STREAMS; i++) {
    l->streams[i].last = NEVER;
    memset(l->streams[i].contexts, 0, sizeof l->streams[i].contexts);
  }
  l->torn = true;
  l->totals.lost++;
}

EXPORT void pump_learner_report(const struct pump_learner *l,
                                struct pump_learner_report *report) {
  *report = l->totals;
  report->seen = l->head;
  report->period = l->match.on ? learner_period(l) : 0;
  if (l->match.on && l->match.front < l->recalled && l->recalled_period != 0)
    report->period = l->recalled_period;
  report->epoch = l->epochs;
}
