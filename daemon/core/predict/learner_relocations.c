/* learner_places.c - translates accesses of the history to current addresses.
 *
 * Two things move between iterations: ranges (a program that allocates in each iteration
 * gets new ones) and tensors inside a caching allocator's ranges. Both are followed by
 * their role.
 *
 *   1. A range's successor is allocated between the same operations, or repeated
 *      operations reach it in its place.
 *   2. A tensor has moved if an access begins elsewhere than in the repeated operation.
 *      From then on it is expected at its new address. This is right unless another
 *      tensor takes the old address.
 *
 * A caching allocator rarely hands out the same addresses in each iteration, but often in
 * each second or third one. So the newest repetition is not always the best prediction of
 * accesses; an older one, up to LAGS repetitions back, may be better. Each of these
 * lookbacks (`way`), and the newest one with moved tensors followed, has a recent success
 * rate. The best one is used.
 *
 * Accesses not yet seen in the current iteration keep their address, or have none:
 * `missing`.
 *
 * Some addresses cannot be predicted: a mixture of experts reads other weights for each
 * token. An access is *astray* if it reached other blocks than predicted, and nothing else
 * reached the predicted ones since the operation that it repeats. (A tensor that moves
 * leaves its address to others, so a wrong prediction of it prefetches what they need.) An
 * access that is often astray is not predicted.
 */
#include "learner_state.h"

#include <string.h>

#define CHAIN 16u /* maximum of successors to follow: iterations since the access */

/* ---- lives ------------------------------------------------------------------------ */

static struct life *life_slot(const struct pump_learner *l, uint64_t name) {
  return (struct life *)&l->lives[learner_mix(name) & (LIVES - 1)];
}

static struct life *life_of(const struct pump_learner *l, uint64_t name) {
  struct life *life = life_slot(l, name);
  return life->name == name ? life : NULL;
}

static bool succeed(struct pump_learner *l, struct life *old, uint64_t after) {
  struct life *new = life_of(l, after);
  if (old == NULL || new == NULL || old->allocated_at >= new->allocated_at) return false;
  l->successors_early += old->live && old->successor == 0;
  old->successor = after;
  new->repeated = true;
  return true;
}

static void end(struct pump_learner *l, struct life *life) {
  l->successors_early -= life->live && life->successor != 0;
  life->live = false;
}

/* Returns the first allocation at or after operation `allocated_at`, or the end. */
static uint64_t allocations_from(const struct pump_learner *l, uint64_t allocated_at) {
  uint64_t low = l->allocations_head > ALLOCATIONS ? l->allocations_head - ALLOCATIONS : 0;
  uint64_t high = l->allocations_head;
  while (low < high) {
    uint64_t middle = low + (high - low) / 2;
    if (l->allocations[middle & (ALLOCATIONS - 1)].allocated_at < allocated_at)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

void learner_allocated(struct pump_learner *l, uint32_t slot, uint32_t generation,
                       uint64_t length_bytes) {
  uint64_t name = life_name(slot, generation);
  struct life *life = life_slot(l, name);
  if (life->name == name && life->live) return; /* reported twice */
  end(l, life);
  *life = (struct life){
      .name = name, .allocated_at = l->head, .length_bytes = length_bytes, .live = true};
  struct life *recalled =
      l->recalled == 0 ? NULL : life_of(l, life_name(slot | RECALLED_SLOT, generation));
  if (recalled != NULL && recalled->length_bytes == length_bytes)
    succeed(l, recalled, name);
  if (learner_is_trusted(l)) {
    uint64_t at = allocations_from(l, l->match.front) + l->allocations_now;
    const struct allocation *allocation = &l->allocations[at & (ALLOCATIONS - 1)];
    if (at < l->allocations_head && allocation->allocated_at == l->match.front) {
      struct life *before = life_of(l, allocation->life);
      if (before != NULL && before->length_bytes == length_bytes) succeed(l, before, name);
    }
  }
  l->allocations_now++;
  l->allocations[l->allocations_head++ & (ALLOCATIONS - 1)] =
      (struct allocation){name, l->head};
}

void learner_freed(struct pump_learner *l, uint32_t slot, uint32_t generation) {
  struct life *life = life_of(l, life_name(slot, generation));
  if (life != NULL) end(l, life);
}

void learner_end_lives(struct pump_learner *l) {
  for (uint32_t i = 0; i < LIVES; i++) end(l, &l->lives[i]);
  l->way = WAY_PLACES;
  memset(l->ways, 0, sizeof l->ways);
  memset(l->ways_seen, 0, sizeof l->ways_seen);
}

EXPORT void pump_learner_alloc(struct pump_learner *l, uint32_t slot, uint32_t generation,
                               uint64_t length_bytes) {
  learner_note(l,
               (struct pump_learner_step){.what = PUMP_LEARNER_ALLOC,
                                          .slot = slot,
                                          .generation = generation,
                                          .length_bytes = length_bytes},
               NULL);
  learner_allocated(l, slot, generation, length_bytes);
}

EXPORT void pump_learner_free(struct pump_learner *l, uint32_t slot, uint32_t generation) {
  learner_note(l,
               (struct pump_learner_step){
                   .what = PUMP_LEARNER_FREE, .slot = slot, .generation = generation},
               NULL);
  learner_freed(l, slot, generation);
}

/* ---- relocations ------------------------------------------------------------------ */

static struct place *place_slot(const struct pump_learner *l, uint64_t life,
                                uint64_t offset) {
  uint64_t h = learner_mix(life * 0x9e3779b97f4a7c15u + offset);
  return (struct place *)&l->places[h & (PLACES - 1)];
}

static struct place *place_of(const struct pump_learner *l, uint64_t life,
                              uint64_t offset) {
  struct place *place = place_slot(l, life, offset);
  return place->from_life == life && place->from_offset == offset ? place : NULL;
}

static void move(struct pump_learner *l, uint64_t life, const struct pump_access *then,
                 uint64_t to, const struct pump_access *now) {
  struct place *place = place_slot(l, life, then->offset_bytes);
  l->places_used += place->from_life == 0;
  *place = (struct place){life, then->offset_bytes, to, now->offset_bytes};
}

static bool is_live(const struct pump_learner *l, uint64_t name) {
  const struct life *life = life_of(l, name);
  return life == NULL || life->live; /* an unreported range is persistent */
}

static void put(struct pump_access *today, uint64_t life, uint64_t offset) {
  today->slot = (uint32_t)((life - 1) >> 32);
  today->generation = (uint32_t)(life - 1);
  today->offset_bytes = offset;
}

static bool through_place(const struct pump_learner *l, const struct pump_access *then,
                          struct pump_access *today) {
  if (l->places_used == 0) return false;
  const struct place *place =
      place_of(l, life_name(then->slot, then->generation), then->offset_bytes);
  if (place == NULL || !is_live(l, place->to_life)) return false;
  put(today, place->to_life, place->to_offset);
  return true;
}

static void through_lives(const struct pump_learner *l, uint64_t rounds,
                          struct pump_access *today) {
  const struct life *life = life_of(l, life_name(today->slot, today->generation));
  if (life == NULL) {
    today->slot &= ~RECALLED_SLOT; /* an unreported range keeps its name in each run */
    return;
  }
  /* A period later, the range's current successor will have been replaced as well. */
  today->missing = rounds > 0 && life->successor != 0;
  if (today->missing) return;
  /* Allocated later in the repeated iteration, and not yet in this one. */
  today->missing = life->allocated_at >= l->match.front && life->successor == 0 &&
                   (life->repeated || !life->live);
  if (today->missing) return;
  for (uint32_t i = 0; i < CHAIN && life->successor != 0; i++) {
    const struct life *next = life_of(l, life->successor);
    if (next == NULL) break;
    life = next;
  }
  today->missing = !life->live;
  if (life->live) put(today, life->name, today->offset_bytes);
}

void learner_translate(const struct pump_learner *l, const struct pump_access *then,
                       uint64_t rounds, struct pump_access *today) {
  *today = *then;
  today->missing = 0;
  if (l->way == WAY_PLACES && through_place(l, then, today)) return;
  through_lives(l, rounds, today);
}

/* ---- ways ------------------------------------------------------------------------- */

/* Returns the operation `lag` - 1 repetitions before `number`, or NULL. */
static const struct past *lagging(const struct pump_learner *l, uint64_t number,
                                  uint32_t lag) {
  for (; lag > 1; lag--) {
    uint64_t back = learner_past(l, number)->back;
    if (back == 0 || number < l->oldest + back) return NULL;
    number -= back;
  }
  return learner_past(l, number);
}

const struct past *learner_source(const struct pump_learner *l, uint64_t number,
                                  uint64_t rounds) {
  /* The prediction is `rounds` periods ahead, so its source is that many fewer
   * repetitions back. */
  uint32_t lag = l->way;
  if (lag > 1) lag -= (uint32_t)(rounds % lag);
  const struct past *source = lagging(l, number, lag);
  return source != NULL ? source : learner_past(l, number);
}

static bool is_same(const struct pump_access *a, const struct pump_access *b) {
  return a->slot == b->slot && a->generation == b->generation &&
         a->offset_bytes == b->offset_bytes;
}

/* Returns how many accesses of `now` are where `source` predicts them. */
static uint32_t right_of(const struct pump_learner *l, const struct past *source,
                         const struct past *now, bool places) {
  bool plain = l->successors_early == 0 && (!places || l->places_used == 0);
  uint32_t right = 0;
  for (uint32_t i = 0; i < source->count && i < now->count; i++) {
    const struct pump_access *a = learner_access(l, source, i);
    const struct pump_access *b = learner_access(l, now, i);
    if (plain && is_same(a, b)) {
      right++;
      continue;
    }
    struct pump_access today = *a;
    today.missing = 0;
    if (!places || !through_place(l, a, &today)) through_lives(l, 0, &today);
    right += today.missing == 0 && is_same(&today, b);
  }
  return right;
}

/* Compares all lookbacks (ways) on this operation and selects the best. */
static void compare(struct pump_learner *l, uint64_t then, const struct past *now) {
  uint32_t best = l->way;
  for (uint32_t way = 0; way < WAYS; way++) {
    const struct past *source = lagging(l, then, way);
    if (source == NULL) continue; /* too few repetitions yet */
    uint32_t right = right_of(l, source, now, way == WAY_PLACES);
    uint32_t seen = ++l->ways_seen[way];
    float weight = 1.0f / (float)(seen < WAY_LATELY ? seen : WAY_LATELY);
    l->ways[way] += ((float)right / (float)now->count - l->ways[way]) * weight;
    if (seen < WAY_LEAST) continue;
    if (l->ways[way] > l->ways[best]) best = way;
  }
  if (1 - l->ways[best] < WAY_MISSES * (1 - l->ways[l->way])) l->way = best;
}

/* ---- accesses astray --------------------------------------------------------------- */

static struct reached *reached_slot(struct pump_learner *l,
                                    const struct pump_access *access) {
  uint64_t life = life_name(access->slot, access->generation);
  uint64_t address = learner_mix(life * 0x9e3779b97f4a7c15u + access->offset_bytes);
  struct reached *reached = &l->reached[address & (PLACES - 1)];
  if (reached->address != address) *reached = (struct reached){.address = address};
  return reached;
}

void learner_reached(struct pump_learner *l, const struct pump_access *access,
                     uint64_t number) {
  reached_slot(l, access)->number = number;
}

/* Returns whether `now`, predicted by `source`, is astray. */
static bool is_astray(struct pump_learner *l, const struct pump_access *source,
                      const struct pump_access *now, uint64_t then) {
  struct pump_access predicted;
  learner_translate(l, source, 0, &predicted);
  if (predicted.missing != 0) return false;
  bool same_blocks =
      predicted.slot == now->slot && predicted.generation == now->generation &&
      predicted.offset_bytes / PUMP_BLOCK_BYTES == now->offset_bytes / PUMP_BLOCK_BYTES;
  return !same_blocks && reached_slot(l, &predicted)->number <= then;
}

/* Counts for how many repetitions each access of `now` was astray. One that is not astray
 * halves its count. */
static void count_astray(struct pump_learner *l, const struct past *source, uint64_t then,
                         const struct past *now) {
  const struct past *old = learner_past(l, then);
  for (uint32_t i = 0; i < source->count && i < now->count; i++) {
    const struct pump_access *a = learner_access(l, source, i);
    struct pump_access *b = learner_access(l, now, i);
    uint32_t before = learner_astray(l, old, i, now->back);
    if (is_same(a, b) || !is_astray(l, a, b, then))
      b->missing = before / 2;
    else
      b->missing = before < ASTRAY_MOST ? before + 1 : ASTRAY_MOST;
  }
}

static void judge(struct pump_learner *l, uint64_t then, uint64_t number) {
  const struct past *now = learner_past(l, number);
  if (now->count == 0) return;
  const struct past *source = learner_source(l, then, 0);
  uint32_t right = right_of(l, source, now, l->way == WAY_PLACES);
  count_astray(l, source, then, now);
  l->totals.accesses_right += right;
  l->totals.accesses_missed += now->count - right;
  if (learner_mix(number) % WAY_SAMPLE == 0) compare(l, then, now);
}

/* ---- learning --------------------------------------------------------------------- */

/* Learns that the tensor that began at `a` begins at `b` now. */
static void learn(struct pump_learner *l, const struct pump_access *a,
                  const struct pump_access *b) {
  uint64_t from = life_name(a->slot, a->generation);
  uint64_t to = life_name(b->slot, b->generation);
  struct life *old = life_of(l, from);
  bool follows = from == to || (old != NULL && old->successor == to);
  if (!follows && old != NULL && !old->live) follows = succeed(l, old, to);
  if (!follows || a->offset_bytes != b->offset_bytes) {
    move(l, from, a, to, b);
    return;
  }
  struct place *place = l->places_used == 0 ? NULL : place_of(l, from, a->offset_bytes);
  if (place != NULL) {
    place->from_life = 0;
    l->places_used--;
  }
  if (from != to || old == NULL || old->successor == 0) return;
  l->successors_early -= old->live;
  old->successor = 0; /* the old range is used again */
}

void learner_link(struct pump_learner *l, uint64_t then, uint64_t number, bool count) {
  const struct past *old = learner_past(l, then);
  struct past *now = learner_past(l, number);
  now->back = (uint32_t)(number - then);
  if (count) judge(l, then, number);
  if (!learner_is_trusted(l)) return;
  bool plain = l->places_used == 0 && l->successors_early == 0;
  for (uint32_t i = 0; i < old->count && i < now->count; i++) {
    const struct pump_access *a = learner_access(l, old, i), *b = learner_access(l, now, i);
    if (!plain || !is_same(a, b)) learn(l, a, b);
  }
}
