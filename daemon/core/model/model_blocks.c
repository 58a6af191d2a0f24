/* model_blocks.c - block states and block lists; creation and reports of a model.
 *
 * DESIGN
 * Operations are in a ring in issue order, and in a list per stream. Each (operation,
 * block) pair is a use. Uses are in a second ring and chained per block, oldest first:
 * `first` is the oldest use whose operation has not executed. Streams retire out of issue
 * order, so a chain may contain uses of executed operations. They are skipped when the
 * chain's head moves. A ring slot is reused only after everything older has executed, so
 * each link of a chain is valid.
 *
 * Each decision asks two questions: what does the window need next that is absent, and
 * which block would leave first? Scans are too slow (20,000 blocks, a decision each 100
 * us), so every change keeps the answers ready:
 *
 *   1. Each operation counts the blocks that it is the *next* to use: resident (SURE),
 *      maybe evicted (MAYBE_EVICTED) or absent (AWAY). A bit per operation marks counts
 *      above 0, a bit per use marks the blocks. Walking the bits forward finds the
 *      soonest missing blocks; walking backward finds the last needed ones. If several
 *      streams wait for a block, its first issued use counts.
 *   2. Each device lists its idle blocks (resident and unneeded) in the order of their
 *      last use. Dead blocks, which the program's allocator has taken back, come before
 *      them. Two groups have their own lists: blocks that stay longest because they must
 *      be copied (`staying`, see model_duplicates.c), and blocks with a pending discard
 *      (FREED). Copying these would be in vain.
 *   3. Each device lists its resident blocks in the driver's eviction order, by their
 *      last migration (uvm_pmm_gpu.c): `maybe_evicted`, all older, then `sure`.
 *
 * Within an operation, uses are in the order in which it will reach them. Kernels mostly
 * sweep their operands side by side, so the operands' runs are interleaved in slices: the
 * first reached block arrives first, and the last reached block leaves first.
 *
 * Operations do not count ARRIVING, LEAVING or DISCARDING blocks. A LEAVING block keeps
 * its position by age: an eviction that does not happen moves nothing.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model_state.h"
#include "pump_assert.h"

/* Bound of the votes on the order of idle blocks; half of it changes the order
 * [guessed]. */
#define TURN_MOST 256
/* A stay ends once this many times the budget has left [guessed]. */
#define STAY_BUDGETS 8

/* ---- lists -------------------------------------------------------------------- */

/* A block has two pairs of links: by age and by idleness. */
static int32_t *prev_of(struct pump_model *m, int32_t block, bool age) {
  return age ? &m->blocks.all[block].age_prev : &m->blocks.all[block].idle_prev;
}

static int32_t *next_of(struct pump_model *m, int32_t block, bool age) {
  return age ? &m->blocks.all[block].age_next : &m->blocks.all[block].idle_next;
}

static void append(struct pump_model *m, struct list *list, int32_t block, bool age) {
  *prev_of(m, block, age) = list->tail;
  *next_of(m, block, age) = NONE;
  if (list->tail == NONE)
    list->head = block;
  else
    *next_of(m, list->tail, age) = block;
  list->tail = block;
}

/* Puts the block at the head of the idle list. */
static void prepend_idle(struct pump_model *m, struct list *list, int32_t block) {
  m->blocks.all[block].idle_prev = NONE;
  m->blocks.all[block].idle_next = list->head;
  if (list->head == NONE)
    list->tail = block;
  else
    m->blocks.all[list->head].idle_prev = block;
  list->head = block;
}

static void unlink_block(struct pump_model *m, struct list *list, int32_t block, bool age) {
  int32_t prev = *prev_of(m, block, age), next = *next_of(m, block, age);
  if (prev == NONE)
    list->head = next;
  else
    *next_of(m, prev, age) = next;
  if (next == NONE)
    list->tail = prev;
  else
    *prev_of(m, next, age) = prev;
}

/* ---- due blocks ------------------------------------------------------------------- */

static void set_bits(struct pump_model *m, uint32_t op) {
  const uint32_t *due = m->window.ops[op].due;
  uint64_t bit = 1ull << (op & 63);
  uint64_t *leave = &m->window.can_leave[op >> 6], *miss = &m->window.misses[op >> 6];
  *leave = due[DUE_MAYBE_EVICTED] + due[DUE_SURE] != 0 ? *leave | bit : *leave & ~bit;
  *miss = due[DUE_MAYBE_EVICTED] + due[DUE_AWAY] != 0 ? *miss | bit : *miss & ~bit;
}

/* Returns how an operation counts a block in that state, or -1. */
static int due_kind(uint32_t state) {
  switch (state) {
  case PUMP_BLOCK_RESIDENT:
    return DUE_SURE;
  case PUMP_BLOCK_MAYBE_EVICTED:
    return DUE_MAYBE_EVICTED;
  case PUMP_BLOCK_HOST:
  case PUMP_BLOCK_ABSENT:
    return DUE_AWAY;
  default:
    return -1;
  }
}

/* Removes the block from the counts of its next operation. */
static void end_due(struct pump_model *m, const struct block *b) {
  uint32_t kind = b->need - NEED_DUE, op = m->window.uses[b->due_use].op;
  m->window.due_uses[b->due_use >> 6][kind] &= ~(1ull << (b->due_use & 63));
  m->window.away[op] -= kind == DUE_AWAY;
  if (--m->window.ops[op].due[kind] == 0) set_bits(m, op);
}

static void begin_due(struct pump_model *m, struct block *b, uint32_t kind) {
  uint32_t op = m->window.uses[b->first].op;
  b->due_use = b->first;
  b->need = (NEED_DUE + kind) & 7;
  m->window.due_uses[b->first >> 6][kind] |= 1ull << (b->first & 63);
  m->window.away[op] += kind == DUE_AWAY;
  if (m->window.ops[op].due[kind]++ == 0) set_bits(m, op);
}

/* Votes on the order of the idle blocks when one of them is used. If the oldest is used,
 * the program sweeps through its memory, like a decoder through its weights for each
 * token. If the newest is used, the program returns the way it came. Votes only count if
 * the program reports dead memory without discards. Otherwise the oldest blocks are
 * mostly dead. */
static void note_turn(const struct pump_model *m, struct device *device,
                      const struct block *b) {
  if (!device->tells_dead || device->discards || b->dead || b->first == NONE) return;
  bool oldest = b->idle_prev == NONE || m->blocks.all[b->idle_prev].dead;
  bool newest = b->idle_next == NONE;
  if (oldest && !newest && device->in_turn < TURN_MOST) device->in_turn++;
  if (newest && !oldest && device->in_turn > -TURN_MOST) device->in_turn--;
}

/* Returns the next idle block to evict, without staying blocks. */
static int32_t next_of_idle(const struct pump_model *m, const struct device *d,
                            int32_t block) {
  const struct block *all = m->blocks.all;
  bool newest_first = d->in_turn > TURN_MOST / 2;
  if (newest_first && block != NONE && !all[block].dead) {
    int32_t older = all[block].idle_prev;
    return older != NONE && all[older].dead ? NONE : older;
  }
  int32_t next = block == NONE ? d->idle.head : all[block].idle_next;
  return newest_first && next != NONE && !all[next].dead ? d->idle.tail : next;
}

EXPORT int32_t model_next_idle(const struct pump_model *m, uint32_t device, int32_t block) {
  const struct device *d = &m->devices[device];
  if (block != NONE && m->blocks.all[block].need == NEED_STAYS)
    return m->blocks.all[block].idle_next;
  int32_t next = next_of_idle(m, d, block);
  return next == NONE ? d->staying.head : next;
}

void model_relist(struct pump_model *m, int32_t block) {
  struct block *b = &m->blocks.all[block];
  struct device *device = &m->devices[b->device];
  if (b->need == NEED_IDLE) {
    note_turn(m, device, b);
    unlink_block(m, &device->idle, block, false);
  } else if (b->need == NEED_STAYS) {
    unlink_block(m, &device->staying, block, false);
  } else if (b->need == NEED_DISCARD_PENDING) {
    unlink_block(m, &device->discard_pending, block, false);
  } else if (b->need != NEED_NONE) {
    end_due(m, b);
  }
  b->need = NEED_NONE;
  int kind = due_kind(b->state);
  if (kind < 0) return;
  if (b->discard_pending && kind != DUE_AWAY &&
      (b->first == NONE || model_is_expected(m, b->first))) {
    b->need = NEED_DISCARD_PENDING;
    b->due_use = (uint16_t)m->totals.operations;
    append(m, &device->discard_pending, block, false);
  } else if (b->first != NONE) {
    begin_due(m, b, (uint32_t)kind);
  } else if (kind != DUE_AWAY) {
    bool stays = !b->dead && model_stays(m, b);
    b->need = stays ? NEED_STAYS : NEED_IDLE;
    if (b->dead)
      prepend_idle(m, &device->idle, block);
    else
      append(m, stays ? &device->staying : &device->idle, block, false);
    if (stays) b->due_use = (int32_t)device->duplicates.left;
  }
}

void model_end_stay(struct pump_model *m, uint32_t index) {
  struct device *device = &m->devices[index];
  int32_t oldest = device->staying.head;
  if (oldest == NONE) return;
  struct block *b = &m->blocks.all[oldest];
  uint32_t left = (uint32_t)device->duplicates.left - (uint32_t)b->due_use;
  if (left < STAY_BUDGETS * device->facts.budget) return;
  unlink_block(m, &device->staying, oldest, false);
  b->need = NEED_IDLE;
  append(m, &device->idle, oldest, false);
}

void model_set_dead(struct pump_model *m, int32_t block) {
  model_duplicate_ended(m, block);
  m->blocks.all[block].dead = true;
  m->devices[m->blocks.all[block].device].tells_dead = true;
  model_relist(m, block);
}

void model_set_discard_pending(struct pump_model *m, int32_t block) {
  model_duplicate_ended(m, block);
  m->blocks.all[block].discard_pending = true;
  m->devices[m->blocks.all[block].device].discards = true;
  model_relist(m, block);
}

/* Operations after which a pending discard that was not reported is given up
 * [guessed]. */
#define DISCARD_WAIT_OPERATIONS 256

void model_give_up_pending_discards(struct pump_model *m, struct device *device) {
  int32_t block;
  while ((block = device->discard_pending.head) != NONE &&
         (uint16_t)((uint16_t)m->totals.operations - m->blocks.all[block].due_use) >
             DISCARD_WAIT_OPERATIONS) {
    m->blocks.all[block].discard_pending = false;
    model_set_dead(m, block);
  }
}

/* ---- states --------------------------------------------------------------------- */

static void leave_age(struct pump_model *m, struct device *device, int32_t block) {
  struct block *b = &m->blocks.all[block];
  if (b->age_list == AGE_SURE) unlink_block(m, &device->sure, block, true);
  if (b->age_list == AGE_MAYBE_EVICTED)
    unlink_block(m, &device->maybe_evicted, block, true);
  b->age_list = AGE_NONE;
}

/* A bit for each state that may follow a state. */
#define TO(state) (1u << PUMP_BLOCK_##state)
static const uint32_t followers[PUMP_BLOCK_STATES] = {
    [PUMP_BLOCK_FREE] = TO(ABSENT) | TO(HOST) | TO(RESIDENT) | TO(MAYBE_EVICTED),
    [PUMP_BLOCK_ABSENT] = TO(FREE) | TO(ABSENT) | TO(ARRIVING) | TO(RESIDENT),
    [PUMP_BLOCK_HOST] = TO(FREE) | TO(ABSENT) | TO(ARRIVING) | TO(RESIDENT),
    [PUMP_BLOCK_ARRIVING] = TO(FREE) | TO(HOST) | TO(RESIDENT) | TO(MAYBE_EVICTED),
    [PUMP_BLOCK_RESIDENT] = ~0u,
    [PUMP_BLOCK_LEAVING] = TO(FREE) | TO(HOST) | TO(RESIDENT) | TO(MAYBE_EVICTED),
    [PUMP_BLOCK_MAYBE_EVICTED] = ~TO(MAYBE_EVICTED),
    [PUMP_BLOCK_DISCARDING] = TO(FREE) | TO(ABSENT) | TO(RESIDENT),
};

void model_set_state(struct pump_model *m, int32_t block, uint32_t state) {
  struct block *b = &m->blocks.all[block];
  struct device *device = &m->devices[b->device];
  PUMP_ASSERT(followers[b->state] >> state & 1, "a block's states follow each other");
  if (b->state == PUMP_BLOCK_LEAVING && state == PUMP_BLOCK_RESIDENT &&
      b->age_list == AGE_MAYBE_EVICTED)
    state = PUMP_BLOCK_MAYBE_EVICTED; /* not evicted by pump, but maybe by the driver */
  device->counts[b->state]--;
  device->counts[state]++;
  if (state == PUMP_BLOCK_RESIDENT && b->state != PUMP_BLOCK_LEAVING) {
    /* Prefetching a resident block also makes it the newest in the driver's list. */
    leave_age(m, device, block);
    b->migrated = ++m->blocks.migrations;
    b->age_list = AGE_SURE;
    append(m, &device->sure, block, true);
  } else if (state == PUMP_BLOCK_MAYBE_EVICTED && b->state != PUMP_BLOCK_LEAVING) {
    leave_age(m, device, block);
    b->age_list = AGE_MAYBE_EVICTED;
    append(m, &device->maybe_evicted, block, true);
  } else if (state != PUMP_BLOCK_LEAVING && state != PUMP_BLOCK_RESIDENT &&
             state != PUMP_BLOCK_MAYBE_EVICTED) {
    leave_age(m, device, block);
  }
  b->state = (uint8_t)state;
  if (state == PUMP_BLOCK_HOST && m->timing != NULL) m->timing->left = true;
  model_relist(m, block);
}

int64_t model_occupied(const struct device *device) {
  return device->counts[PUMP_BLOCK_ARRIVING] + device->counts[PUMP_BLOCK_RESIDENT] +
         device->counts[PUMP_BLOCK_LEAVING] + device->counts[PUMP_BLOCK_MAYBE_EVICTED] +
         device->counts[PUMP_BLOCK_DISCARDING];
}

/* ---- creation -------------------------------------------------------------------- */

EXPORT void pump_model_delete(struct pump_model *m) {
  if (m == NULL) return;
  pump_extents_delete(m->extents);
  pump_learner_delete(m->expected.learner);
  free(m->blocks.all);
  free(m->timing);
  free(m->arrived_ns);
  free(m);
}

static bool sensible(const struct pump_model_bounds *bounds) {
  return bounds->capacity > 0 && bounds->capacity <= 1u << 24 && bounds->slice_least > 0 &&
         bounds->slice_most >= bounds->slice_least && bounds->in_flight > 0 &&
         bounds->in_flight_share > 0;
}

EXPORT struct pump_model *pump_model_new(const struct pump_model_bounds *bounds) {
  if (!sensible(bounds)) return NULL;
  struct pump_model *m = calloc(1, sizeof *m);
  if (m == NULL) return NULL;
  m->bounds = *bounds;
  m->schedules.arrivals = true;
  m->blocks.all = calloc(bounds->capacity, sizeof *m->blocks.all);
  m->extents = pump_extents_new();
  if (m->blocks.all == NULL || m->extents == NULL) {
    pump_model_delete(m);
    return NULL;
  }
  const struct list empty = {NONE, NONE};
  for (uint32_t i = 0; i < PUMP_MAX_RANGES; i++) m->ranges.all[i].first_block = NONE;
  for (uint32_t i = 0; i <= GAP_SIZES; i++) m->ranges.gaps[i] = NONE;
  for (uint32_t i = 0; i < PUMP_MAX_STREAMS; i++)
    m->streams.all[i] = (struct stream){.head = NONE, .tail = NONE};
  for (uint32_t i = 0; i < PUMP_MAX_DEVICES; i++) {
    struct device *device = &m->devices[i];
    device->idle = device->staying = device->discard_pending = device->sure =
        device->maybe_evicted = empty;
    device->held_at[0] = device->held_at[1] = -1;
  }
  for (uint32_t i = 0; i < PUMP_MAX_IN_FLIGHT; i++)
    m->transfers.unused[m->transfers.unused_count++] = PUMP_MAX_IN_FLIGHT - 1 - i;
  return m;
}

/* ---- reports ------------------------------------------------------------------------ */

EXPORT int pump_model_block(const struct pump_model *m, int64_t block,
                            struct pump_block_info *info) {
  if (block < 0 || block >= m->bounds.capacity) return -EINVAL;
  const struct block *b = &m->blocks.all[block];
  bool live = b->state != PUMP_BLOCK_FREE;
  *info = (struct pump_block_info){
      .state = b->state,
      .device = b->device,
      .next_use = live ? b->next_use : PUMP_NOT_NEEDED,
      .last_use = b->last_use,
      .migrated = b->migrated,
      .slot = b->slot,
      .generation = live ? m->ranges.all[b->slot].generation : 0,
  };
  return 0;
}

EXPORT void pump_model_counts(const struct pump_model *m, uint32_t device,
                              int64_t *counts) {
  memcpy(counts, m->devices[device & (PUMP_MAX_DEVICES - 1)].counts,
         sizeof m->devices[0].counts);
  counts[PUMP_BLOCK_FREE] = 0; /* numbers without a range belong to no device */
}

EXPORT void pump_model_totals(const struct pump_model *m,
                              struct pump_model_totals *totals) {
  *totals = m->totals;
  totals->expected = (uint32_t)(m->window.op_head - m->window.op_issued);
  totals->in_flight = PUMP_MAX_IN_FLIGHT - m->transfers.unused_count - m->schedules.untaken;
  totals->confidence = model_confidence(m);
  totals->in_place_bytes = m->in_place.bytes;
  totals->in_place_bytes_peak = m->in_place.bytes_peak;
  totals->trials = totals->trials_wrong = totals->trials_ended = 0;
  for (uint32_t i = 0; i < PUMP_MAX_DEVICES; i++) {
    totals->trials += m->devices[i].duplicates.trials;
    totals->trials_wrong += m->devices[i].duplicates.wrong;
    totals->trials_ended += m->devices[i].duplicates.ended;
  }
}

EXPORT void pump_model_tally(const struct pump_model *m, uint32_t device,
                             struct pump_model_tally *tally) {
  *tally = m->devices[device & (PUMP_MAX_DEVICES - 1)].tally;
}
