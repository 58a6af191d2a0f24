/* learner_relocations.c - translates accesses of the history to current addresses.
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
 * accesses; an older one, up to LOOKBACKS - 1 repetitions back, may be better. Each of
 * these lookbacks, and the newest one with moved tensors followed, has a recent success
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

/* Most successors that are followed: iterations since the access [guessed]. */
#define CHAIN 16u

/* ---- allocations ------------------------------------------------------------------- */

static struct allocation *allocation_slot(const struct pump_learner *l, uint64_t name) {
  return (struct allocation *)&l->allocations[learner_mix(name) & (ALLOCATIONS - 1)];
}

static struct allocation *allocation_of(const struct pump_learner *l, uint64_t name) {
  struct allocation *allocation = allocation_slot(l, name);
  return allocation->name == name ? allocation : NULL;
}

static bool succeed(struct pump_learner *l, struct allocation *old, uint64_t after) {
  struct allocation *new = allocation_of(l, after);
  if (old == NULL || new == NULL || old->allocated_at >= new->allocated_at) return false;
  l->successors_early += old->live && old->successor == 0;
  old->successor = after;
  new->repeated = true;
  return true;
}

static void end(struct pump_learner *l, struct allocation *allocation) {
  l->successors_early -= allocation->live && allocation->successor != 0;
  allocation->live = false;
}

/* Returns the first allocation at or after operation `allocated_at`, or the end. */
static uint64_t allocation_events_from(const struct pump_learner *l,
                                       uint64_t allocated_at) {
  uint64_t low =
      l->allocation_events_head > ALLOCATIONS ? l->allocation_events_head - ALLOCATIONS : 0;
  uint64_t high = l->allocation_events_head;
  while (low < high) {
    uint64_t middle = low + (high - low) / 2;
    if (l->allocation_events[middle & (ALLOCATIONS - 1)].allocated_at < allocated_at)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

void learner_allocated(struct pump_learner *l, uint32_t slot, uint32_t generation,
                       uint64_t length_bytes) {
  uint64_t name = allocation_name(slot, generation);
  struct allocation *allocation = allocation_slot(l, name);
  if (allocation->name == name && allocation->live) return; /* reported twice */
  end(l, allocation);
  *allocation = (struct allocation){
      .name = name, .allocated_at = l->head, .length_bytes = length_bytes, .live = true};
  struct allocation *recalled =
      l->recalled == 0
          ? NULL
          : allocation_of(l, allocation_name(slot | RECALLED_SLOT, generation));
  if (recalled != NULL && recalled->length_bytes == length_bytes)
    succeed(l, recalled, name);
  if (learner_is_trusted(l)) {
    uint64_t at = allocation_events_from(l, l->match.front) + l->allocations_now;
    const struct allocation_event *event = &l->allocation_events[at & (ALLOCATIONS - 1)];
    if (at < l->allocation_events_head && event->allocated_at == l->match.front) {
      struct allocation *before = allocation_of(l, event->allocation);
      if (before != NULL && before->length_bytes == length_bytes) succeed(l, before, name);
    }
  }
  l->allocations_now++;
  l->allocation_events[l->allocation_events_head++ & (ALLOCATIONS - 1)] =
      (struct allocation_event){name, l->head};
}

void learner_freed(struct pump_learner *l, uint32_t slot, uint32_t generation) {
  struct allocation *allocation = allocation_of(l, allocation_name(slot, generation));
  if (allocation != NULL) end(l, allocation);
}

void learner_end_allocations(struct pump_learner *l) {
  for (uint32_t i = 0; i < ALLOCATIONS; i++) end(l, &l->allocations[i]);
  l->lookback = LOOKBACK_RELOCATED;
  memset(l->lookbacks, 0, sizeof l->lookbacks);
  memset(l->lookbacks_seen, 0, sizeof l->lookbacks_seen);
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

/* Hashes an address: a range's allocation and an offset. */
static uint64_t hash_of(uint64_t allocation, uint64_t offset_bytes) {
  return learner_mix(allocation * 0x9e3779b97f4a7c15u + offset_bytes);
}

/* ---- relocations ------------------------------------------------------------------ */

static struct relocation *relocation_slot(const struct pump_learner *l, uint64_t allocation,
                                          uint64_t offset) {
  return (struct relocation *)&l
      ->relocations[hash_of(allocation, offset) & (RELOCATIONS - 1)];
}

static struct relocation *relocation_of(const struct pump_learner *l, uint64_t allocation,
                                        uint64_t offset) {
  struct relocation *relocation = relocation_slot(l, allocation, offset);
  return relocation->from_allocation == allocation && relocation->from_offset == offset
             ? relocation
             : NULL;
}

static void move(struct pump_learner *l, uint64_t allocation,
                 const struct pump_access *then, uint64_t to,
                 const struct pump_access *now) {
  struct relocation *relocation = relocation_slot(l, allocation, then->offset_bytes);
  l->relocations_used += relocation->from_allocation == 0;
  *relocation = (struct relocation){allocation, then->offset_bytes, to, now->offset_bytes};
}

static bool is_live(const struct pump_learner *l, uint64_t name) {
  const struct allocation *allocation = allocation_of(l, name);
  return allocation == NULL || allocation->live; /* an unreported range is persistent */
}

static void put(struct pump_access *today, uint64_t allocation, uint64_t offset) {
  today->slot = (uint32_t)((allocation - 1) >> 32);
  today->generation = (uint32_t)(allocation - 1);
  today->offset_bytes = offset;
}

static bool through_relocation(const struct pump_learner *l, const struct pump_access *then,
                               struct pump_access *today) {
  if (l->relocations_used == 0) return false;
  const struct relocation *relocation =
      relocation_of(l, allocation_name(then->slot, then->generation), then->offset_bytes);
  if (relocation == NULL || !is_live(l, relocation->to_allocation)) return false;
  put(today, relocation->to_allocation, relocation->to_offset);
  return true;
}

static void through_allocations(const struct pump_learner *l, uint64_t rounds,
                                struct pump_access *today) {
  const struct allocation *allocation =
      allocation_of(l, allocation_name(today->slot, today->generation));
  if (allocation == NULL) {
    today->slot &= ~RECALLED_SLOT; /* an unreported range keeps its name in each run */
    return;
  }
  /* A period later, the range's current successor will have been replaced as well. */
  today->missing = rounds > 0 && allocation->successor != 0;
  if (today->missing) return;
  /* Allocated later in the repeated iteration, and not yet in this one. */
  today->missing = allocation->allocated_at >= l->match.front &&
                   allocation->successor == 0 &&
                   (allocation->repeated || !allocation->live);
  if (today->missing) return;
  for (uint32_t i = 0; i < CHAIN && allocation->successor != 0; i++) {
    const struct allocation *next = allocation_of(l, allocation->successor);
    if (next == NULL) break;
    allocation = next;
  }
  today->missing = !allocation->live;
  if (allocation->live) put(today, allocation->name, today->offset_bytes);
}

void learner_translate(const struct pump_learner *l, const struct pump_access *then,
                       uint64_t rounds, struct pump_access *today) {
  *today = *then;
  today->missing = 0;
  if (l->lookback == LOOKBACK_RELOCATED && through_relocation(l, then, today)) return;
  through_allocations(l, rounds, today);
}

/* ---- lookbacks --------------------------------------------------------------------- */

/* Returns the operation `lag` - 1 repetitions before `number`, or NULL. */
static const struct history_entry *lagging(const struct pump_learner *l, uint64_t number,
                                           uint32_t lag) {
  for (; lag > 1; lag--) {
    uint64_t back = learner_entry(l, number)->back;
    if (back == 0 || number < l->oldest + back) return NULL;
    number -= back;
  }
  return learner_entry(l, number);
}

const struct history_entry *learner_source(const struct pump_learner *l, uint64_t number,
                                           uint64_t rounds) {
  /* The prediction is `rounds` periods ahead, so its source is that many fewer
   * repetitions back. */
  uint32_t lag = l->lookback;
  if (lag > 1) lag -= (uint32_t)(rounds % lag);
  const struct history_entry *source = lagging(l, number, lag);
  return source != NULL ? source : learner_entry(l, number);
}

static bool is_same(const struct pump_access *a, const struct pump_access *b) {
  return a->slot == b->slot && a->generation == b->generation &&
         a->offset_bytes == b->offset_bytes;
}

/* Returns how many accesses of `now` are where `source` predicts them. */
static uint32_t right_of(const struct pump_learner *l, const struct history_entry *source,
                         const struct history_entry *now, bool relocated) {
  bool plain = l->successors_early == 0 && (!relocated || l->relocations_used == 0);
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
    if (!relocated || !through_relocation(l, a, &today)) through_allocations(l, 0, &today);
    right += today.missing == 0 && is_same(&today, b);
  }
  return right;
}

/* Compares all lookbacks on this operation and selects the best. */
static void compare(struct pump_learner *l, uint64_t then,
                    const struct history_entry *now) {
  uint32_t best = l->lookback;
  for (uint32_t lookback = 0; lookback < LOOKBACKS; lookback++) {
    const struct history_entry *source = lagging(l, then, lookback);
    if (source == NULL) continue; /* too few repetitions yet */
    uint32_t right = right_of(l, source, now, lookback == LOOKBACK_RELOCATED);
    uint32_t seen = ++l->lookbacks_seen[lookback];
    float weight = 1.0f / (float)(seen < LOOKBACK_LATELY ? seen : LOOKBACK_LATELY);
    l->lookbacks[lookback] +=
        ((float)right / (float)now->count - l->lookbacks[lookback]) * weight;
    if (seen < LOOKBACK_LATELY) continue;
    if (l->lookbacks[lookback] > l->lookbacks[best]) best = lookback;
  }
  if (1 - l->lookbacks[best] < LOOKBACK_MISSES * (1 - l->lookbacks[l->lookback]))
    l->lookback = best;
}

/* ---- accesses astray --------------------------------------------------------------- */

static struct reached *reached_slot(struct pump_learner *l,
                                    const struct pump_access *access) {
  uint64_t address =
      hash_of(allocation_name(access->slot, access->generation), access->offset_bytes);
  struct reached *reached = &l->reached[address & (RELOCATIONS - 1)];
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
static void count_astray(struct pump_learner *l, const struct history_entry *source,
                         uint64_t then, const struct history_entry *now) {
  const struct history_entry *old = learner_entry(l, then);
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
  const struct history_entry *now = learner_entry(l, number);
  if (now->count == 0) return;
  const struct history_entry *source = learner_source(l, then, 0);
  uint32_t right = right_of(l, source, now, l->lookback == LOOKBACK_RELOCATED);
  count_astray(l, source, then, now);
  l->totals.accesses_right += right;
  l->totals.accesses_missed += now->count - right;
  if (learner_mix(number) % LOOKBACK_SAMPLE == 0) compare(l, then, now);
}

/* ---- learning --------------------------------------------------------------------- */

/* Learns that the tensor that began at `a` begins at `b` now. */
static void learn(struct pump_learner *l, const struct pump_access *a,
                  const struct pump_access *b) {
  uint64_t from = allocation_name(a->slot, a->generation);
  uint64_t to = allocation_name(b->slot, b->generation);
  struct allocation *old = allocation_of(l, from);
  bool follows = from == to || (old != NULL && old->successor == to);
  if (!follows && old != NULL && !old->live) follows = succeed(l, old, to);
  if (!follows || a->offset_bytes != b->offset_bytes) {
    move(l, from, a, to, b);
    return;
  }
  struct relocation *relocation =
      l->relocations_used == 0 ? NULL : relocation_of(l, from, a->offset_bytes);
  if (relocation != NULL) {
    relocation->from_allocation = 0;
    l->relocations_used--;
  }
  if (from != to || old == NULL || old->successor == 0) return;
  l->successors_early -= old->live;
  old->successor = 0; /* the old range is used again */
}

void learner_link(struct pump_learner *l, uint64_t then, uint64_t number, bool count) {
  const struct history_entry *old = learner_entry(l, then);
  struct history_entry *now = learner_entry(l, number);
  now->back = (uint32_t)(number - then);
  if (count) judge(l, then, number);
  if (!learner_is_trusted(l)) return;
  bool plain = l->relocations_used == 0 && l->successors_early == 0;
  for (uint32_t i = 0; i < old->count && i < now->count; i++) {
    const struct pump_access *a = learner_access(l, old, i), *b = learner_access(l, now, i);
    if (!plain || !is_same(a, b)) learn(l, a, b);
  }
}
