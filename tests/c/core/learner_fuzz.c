/* learner_fuzz.c - fuzzes the iteration learner, and compares it with naive models.
 *
 * `noise SEED ROUNDS`: random operations, streams, ranges, losses and queries, from
 * small sets, so that they repeat. After each operation, a second learner with the same
 * input must give the same answers. Predictions must have been seen before, and
 * pump_learner_see must confirm them.
 *
 * `logs SEED ROUNDS`: learners that load random data as another run's event log, and
 * then get noise.
 *
 * `contexts SEED ROUNDS`: compares the rolling hashes of every stream with recomputed ones.
 */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "daemon/core/predict/learner_state.h"
#include "noise.h"

static uint64_t state;

static uint64_t next(void) {
  return noise_next(&state);
}

static uint32_t below(uint32_t bound) {
  return noise_below(&state, bound);
}

static struct pump_learner *learners[2];

/* ---- noise ------------------------------------------------------------------------- */

static uint32_t body[64], length, at;

/* Returns the next signature of a loop whose body sometimes changes, with random extras. */
static uint64_t signature(void) {
  if (length == 0 || below(2000) == 0) {
    length = 1 + below(64);
    for (uint32_t i = 0; i < length; i++) body[i] = 1 + below(12);
  }
  if (below(100) == 0) return 1 + below(1000);
  return body[at++ % length];
}

static void fill(struct pump_operation *operation, struct pump_access *accesses) {
  uint32_t most = below(50) == 0 ? PUMP_MAX_EXTENTS + 8 : 6;
  *operation = (struct pump_operation){.function = below(3),
                                       .signature = signature(),
                                       .stream = below(40) == 0 ? below(4096) : 1,
                                       .kind = PUMP_EVENT_KERNEL,
                                       .count = below(most),
                                       .accesses = accesses};
  if (below(10) == 0) operation->signature = 0;
  for (uint32_t i = 0; i < operation->count; i++)
    accesses[i] = (struct pump_access){.slot = below(6),
                                       .generation = 1 + below(3),
                                       .offset_bytes = (uint64_t)below(4) << 21,
                                       .length_bytes = (uint64_t)(1 + below(3)) << 21,
                                       .access = below(4)};
}

static void check_prediction(uint32_t index) {
  struct pump_predicted a, b;
  int found = pump_learner_next(learners[0], index, &a);
  CHECK(pump_learner_next(learners[1], index, &b) == found);
  if (found != 0) return;
  CHECK(a.number == b.number && a.count == b.count && a.missing == b.missing);
  CHECK(a.number < learners[0]->head && a.number >= learners[0]->oldest);
  CHECK(a.count <= PUMP_MAX_EXTENTS && a.missing <= a.count);
  CHECK(a.count == 0 || memcmp(a.accesses, b.accesses, a.count * sizeof *a.accesses) == 0);
  for (uint32_t i = 0; i < a.count; i++) CHECK(a.accesses[i].slot < 6);
}

/* Feeds other events than operations and queries. */
static void disturb(void) {
  uint32_t slot = below(6), generation = 1 + below(3), what = below(200);
  const uint32_t grid[3] = {1 + below(3), 1, 1}, block[3] = {32, 1, 1};
  uint64_t told = 1 + below(12), bytes = (uint64_t)(1 + below(2)) << 21;
  for (uint32_t i = 0; i < 2; i++) {
    if (what < 20) pump_learner_alloc(learners[i], slot, generation, bytes);
    if (what >= 20 && what < 40) pump_learner_free(learners[i], slot, generation);
    if (what == 40) pump_learner_shape(learners[i], told, 1, grid, block);
    if (what == 41 && told == 1) pump_learner_lost(learners[i]);
  }
}

static void noise(uint32_t rounds) {
  struct pump_access accesses[PUMP_MAX_EXTENTS + 8];
  for (uint32_t i = 0; i < 2; i++) CHECK((learners[i] = pump_learner_new(1u << 9)) != NULL);
  for (uint32_t round = 0; round < rounds; round++) {
    disturb();
    if (below(8) == 0) check_prediction(below(1200));
    uint32_t most = below(1500);
    uint32_t ahead = pump_learner_ahead(learners[0], most);
    CHECK(ahead <= most && pump_learner_ahead(learners[1], most) == ahead);
    struct pump_operation operation;
    fill(&operation, accesses);
    struct pump_predicted predicted;
    bool any = pump_learner_next(learners[0], 0, &predicted) == 0;
    int said = pump_learner_see(learners[0], &operation);
    CHECK(pump_learner_see(learners[1], &operation) == said);
    CHECK((said != PUMP_LEARNER_UNKNOWN) == any);
    CHECK(ahead == 0 || any);
  }
  struct pump_learner_report report;
  pump_learner_report(learners[0], &report);
  CHECK(report.seen == rounds && report.confirmed > rounds / 4);
  for (uint32_t i = 0; i < 2; i++) pump_learner_delete(learners[i]);
}

/* ---- logs --------------------------------------------------------------------------- */

/* Fills an event log: most steps are plausible, a few are far out of bounds. */
static uint32_t fill_event_log(struct pump_learner_step *steps, uint32_t count,
                               struct pump_access *accesses, uint32_t most) {
  uint32_t used = 0;
  for (uint32_t i = 0; i < count; i++) {
    bool wild = below(5000) == 0;
    steps[i] = (struct pump_learner_step){.key = 1 + below(12),
                                          .signature = signature(),
                                          .length_bytes = wild ? next() : 1ull << 21,
                                          .slot = wild ? (uint32_t)next() : below(6),
                                          .generation = 1 + below(3),
                                          .what = (uint16_t)below(wild ? 65536 : 4),
                                          .stream = (uint16_t)(wild ? next() : below(3)),
                                          .kind = (uint16_t)(wild ? next() : 1),
                                          .count = (uint16_t)below(wild ? 65536 : 5)};
    for (uint32_t k = 0; k < steps[i].count && used < most; k++, used++)
      accesses[used] = (struct pump_access){.slot = wild ? (uint32_t)next() : below(6),
                                            .generation = 1 + below(3),
                                            .offset_bytes = next(),
                                            .length_bytes = next(),
                                            .access = (uint32_t)next(),
                                            .missing = below(3)};
  }
  return used;
}

static void logs(uint32_t rounds) {
  struct pump_learner_step *steps = calloc(rounds, sizeof *steps);
  struct pump_access *accesses = calloc(4ull * rounds, sizeof *accesses);
  CHECK(steps != NULL && accesses != NULL);
  struct pump_learner *l = pump_learner_new(1u << 9), *from = pump_learner_new(1u << 9);
  CHECK(l != NULL && from != NULL && pump_learner_keep(from) == 0);
  uint32_t used = fill_event_log(steps, rounds, accesses, 4 * rounds);
  struct pump_learner_log event_log = {
      .steps = steps, .accesses = accesses, .step_count = rounds, .access_count = used};
  learners[0] = learners[1] = from;
  for (uint32_t round = 0; round < 2000; round++) {
    disturb();
    struct pump_operation operation;
    struct pump_access reached[PUMP_MAX_EXTENTS + 8];
    struct pump_predicted predicted;
    fill(&operation, reached);
    if (round == 200) {
      pump_learner_recall(l, &event_log);
      pump_learner_take_over(l, from);
      learners[0] = learners[1] = l;
    }
    bool any = pump_learner_next(learners[0], below(2 * rounds), &predicted) == 0;
    CHECK(!any ||
          (predicted.count <= PUMP_MAX_EXTENTS && predicted.missing <= predicted.count));
    pump_learner_ahead(learners[0], 4 * rounds);
    CHECK((pump_learner_see(learners[0], &operation) != PUMP_LEARNER_UNKNOWN) == any);
  }
  struct pump_learner_log kept;
  pump_learner_kept(l, &kept);
  CHECK(kept.operations == 2000 && kept.step_count > 2000);
  pump_learner_delete(l);
  pump_learner_delete(from);
  free(accesses);
  free(steps);
}

/* ---- contexts ---------------------------------------------------------------------- */

/* Recomputes the hash of a context from its keys. */
static uint64_t made_anew(const struct pump_learner *l, const struct context *context) {
  uint64_t hash = 0, number = context->tail;
  for (uint64_t i = 0; i < context->filled; i++) {
    const struct history_entry *entry = learner_entry(l, number);
    hash = hash * 0x9e3779b97f4a7c15u + entry->key;
    number = entry->next;
  }
  CHECK(number == NEVER); /* the context ends with the stream's newest operation */
  return hash;
}

static void contexts(uint32_t rounds) {
  struct pump_learner *l = pump_learner_new(1u << 11);
  CHECK(l != NULL);
  for (uint32_t round = 0; round < rounds; round++) {
    uint32_t stream = below(3) * below(3);
    struct pump_operation operation = {.signature = 1 + below(5), .stream = stream};
    if (below(5000) == 0) pump_learner_lost(l);
    pump_learner_see(l, &operation);
    for (uint32_t level = 0; level < LEVELS; level++) {
      const struct context *context = &l->streams[stream].contexts[level];
      CHECK(context->filled >= 1 && context->filled <= CONTEXT_LEAST(level));
      if (context->tail >= l->oldest) CHECK(made_anew(l, context) == context->hash);
    }
  }
  pump_learner_delete(l);
}

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  state = noise_begin(strtoull(argv[2], NULL, 10));
  uint32_t rounds = (uint32_t)strtoul(argv[3], NULL, 10);
  if (strcmp(argv[1], "noise") == 0)
    noise(rounds);
  else if (strcmp(argv[1], "logs") == 0)
    logs(rounds);
  else if (strcmp(argv[1], "contexts") == 0)
    contexts(rounds);
  else
    return 2;
  return 0;
}
