/* model_view.c - the view of one device: missing blocks and eviction candidates. */
#include <string.h>

#include "model_state.h"

/* ---- walking the window ------------------------------------------------------------ */

/* Returns the first position in [from, op_head) with a set bit, or op_head. */
static int64_t next_set(const struct pump_model *m, const uint64_t *bits, int64_t from) {
  while (from < m->window.op_head) {
    uint64_t at = (uint64_t)from & (OPS - 1);
    uint64_t word = bits[at >> 6] >> (at & 63);
    if (word != 0) {
      from += __builtin_ctzll(word);
      return from < m->window.op_head ? from : m->window.op_head;
    }
    from += 64 - (int64_t)(at & 63);
  }
  return m->window.op_head;
}

int64_t model_previous_set(const struct pump_model *m, const uint64_t *bits, int64_t from) {
  while (from >= m->window.op_tail) {
    uint64_t at = (uint64_t)from & (OPS - 1);
    uint64_t word = bits[at >> 6] << (63 - (at & 63));
    if (word != 0) {
      from -= __builtin_clzll(word);
      return from >= m->window.op_tail ? from : m->window.op_tail - 1;
    }
    from -= (int64_t)(at & 63) + 1;
  }
  return m->window.op_tail - 1;
}

static bool is_there(const struct pump_model *m, int32_t use) {
  int32_t block = m->window.uses[use].block;
  if (block == NONE || (m->window.uses[use].flags & USE_FRESH)) return true;
  uint32_t state = m->blocks.all[block].state;
  return state == PUMP_BLOCK_RESIDENT || state == PUMP_BLOCK_MAYBE_EVICTED ||
         state == PUMP_BLOCK_DISCARDING;
}

uint64_t model_ready(struct pump_model *m, uint32_t device) {
  struct device *d = &m->devices[device];
  if (m->schedules.what != PUMP_SCHEDULE_ALL) return UINT64_MAX;
  if (d->ready_at < m->window.op_tail) {
    d->ready_at = m->window.op_tail;
    d->ready_uses = 0;
  }
  for (; d->ready_at < m->window.op_issued; d->ready_at++, d->ready_uses = 0) {
    uint32_t i = op_index(d->ready_at);
    const struct op *op = &m->window.ops[i];
    if (op->executed || op->larger || m->window.op_device[i] != device) continue;
    for (; d->ready_uses < op->uses; d->ready_uses++)
      if (!is_there(m, use_index(op->first_use + (int64_t)d->ready_uses)))
        return op->seq - 1;
  }
  return m->window.added_seq;
}

int64_t model_previous_due(const struct pump_model *m, uint32_t kind, int64_t begin,
                           int64_t end) {
  while (end > begin) {
    uint32_t at = (uint32_t)use_index(end - 1);
    uint64_t word = model_due_word(m, kind, at) << (63 - (at & 63));
    if (word != 0) {
      end -= __builtin_clzll(word) + 1;
      return end >= begin ? end : begin - 1;
    }
    end -= (int64_t)(at & 63) + 1;
  }
  return begin - 1;
}

/* ---- missing blocks ---------------------------------------------------------------- */

/* An operation with missing blocks, ordered by its distance from its stream's head, then
 * by issue order. */
struct lacking {
  uint64_t distance;
  int64_t position;
};

static bool is_later(struct lacking a, struct lacking b) {
  return a.distance > b.distance || (a.distance == b.distance && a.position > b.position);
}

/* Restores the heap, with the latest operation, the next to be replaced, at its root. */
static void sift_down(struct lacking *heap, uint32_t count, uint32_t i) {
  for (;;) {
    uint32_t child = 2 * i + 1;
    if (child >= count) return;
    if (child + 1 < count && is_later(heap[child + 1], heap[child])) child++;
    if (!is_later(heap[child], heap[i])) return;
    struct lacking moved = heap[i];
    heap[i] = heap[child];
    heap[child] = moved;
    i = child;
  }
}

/* Sorts by heap sort, nearest first. */
static void sort(struct lacking *found, uint32_t count) {
  for (uint32_t i = count / 2; i-- > 0;) sift_down(found, count, i);
  for (uint32_t left = count; left > 1; left--) {
    struct lacking latest = found[0];
    found[0] = found[left - 1];
    found[left - 1] = latest;
    sift_down(found, left - 1, 0);
  }
}

/* Finds the nearest issued operations with missing blocks, nearest first. Some may only
 * miss another device's blocks, so twice as many operations as listed blocks are
 * examined. */
#define LACKING_MOST (2 * PUMP_VIEW_MISSING)

static uint32_t nearest(const struct pump_model *m, struct lacking *found) {
  uint32_t count = 0;
  for (int64_t at = next_set(m, m->window.misses, m->window.op_tail);
       at < m->window.op_issued; at = next_set(m, m->window.misses, at + 1)) {
    const struct op *op = &m->window.ops[op_index(at)];
    uint64_t distance = op->rank - m->window.ops[m->streams.all[op->stream].head].rank;
    struct lacking candidate = {distance, at};
    if (count < LACKING_MOST) {
      found[count++] = candidate;
      if (count < LACKING_MOST) continue;
      for (uint32_t i = count / 2; i-- > 0;) sift_down(found, count, i);
    } else if (is_later(found[0], candidate)) {
      found[0] = candidate;
      sift_down(found, count, 0);
    }
  }
  sort(found, count);
  return count;
}

/* Lists the missing blocks of the operation at `position`; counts the rest. Returns false
 * once the list is full and as many more were counted. */
static bool collect_missing(const struct pump_model *m, int64_t position, uint32_t device,
                            struct pump_view *view, uint32_t most) {
  const struct op *op = &m->window.ops[op_index(position)];
  uint32_t away = op->due[DUE_AWAY], maybe_evicted = op->due[DUE_MAYBE_EVICTED];
  if (op->larger) { /* filled up to the budget; maybe evicted blocks take no memory */
    int64_t room = view->budget - view->arriving - op->due[DUE_SURE] - maybe_evicted;
    if (room < (int64_t)away) away = room > 0 ? (uint32_t)room : 0;
  }
  uint32_t left = away + maybe_evicted;
  int64_t end = (int64_t)op->first_use + op->uses;
  for (int64_t at = op->first_use; left > 0; at++) {
    at = model_next_due(m, DUE_AWAY, at, end);
    if (at == end) break;
    if (view->missing_count == most) {
      view->missing_more += left;
      return view->missing_more < most;
    }
    int32_t block = m->window.uses[use_index(at)].block;
    if (m->blocks.all[block].device != device) continue;
    bool takes_room = m->blocks.all[block].state != PUMP_BLOCK_MAYBE_EVICTED;
    if (takes_room && away == 0) continue;
    view->missing[view->missing_count] = block;
    view->missing_need[view->missing_count] = (int64_t)op->seq;
    if (takes_room) {
      view->arrivals_need[view->arrivals_count++] = (int64_t)op->seq;
      away--;
    }
    view->missing_room[view->missing_count++] = view->arrivals_count;
    left--;
  }
  return true;
}

void model_missing(struct pump_model *m, uint32_t device, struct pump_view *view,
                   uint32_t most) {
  struct lacking found[LACKING_MOST];
  uint32_t looked = 0;
  int64_t from = m->window.op_tail;
  view->budget = m->devices[device].facts.budget;
  view->arriving = m->devices[device].counts[PUMP_BLOCK_ARRIVING];
  view->missing_count = view->arrivals_count = view->missing_more = 0;
  if (m->streams.busy_count > 1) {
    /* Expected operations follow the issued ones, in order. */
    uint32_t count = nearest(m, found);
    while (looked < count)
      if (!collect_missing(m, found[looked++].position, device, view, most)) return;
    from = m->window.op_issued;
  }
  for (int64_t at = next_set(m, m->window.misses, from); at < m->window.op_head;
       at = next_set(m, m->window.misses, at + 1)) {
    if (looked++ == LACKING_MOST) {
      view->missing_more += view->missing_more == 0;
      return;
    }
    if (!collect_missing(m, at, device, view, most)) return;
  }
}

/* ---- eviction candidates ----------------------------------------------------------- */

static bool add_candidate(const struct pump_model *m, int32_t block,
                          struct pump_view *view) {
  view->eviction_candidates[view->candidates_count] = block;
  view->candidates_next_use[view->candidates_count] = m->blocks.all[block].next_use;
  view->candidates_maybe_evicted += m->blocks.all[block].state == PUMP_BLOCK_MAYBE_EVICTED;
  return ++view->candidates_count < PUMP_VIEW_CANDIDATES;
}

static void list_candidates(const struct pump_model *m, uint32_t device,
                            struct pump_view *view) {
  for (int32_t b = model_next_idle(m, device, NONE); b != NONE;
       b = model_next_idle(m, device, b))
    if (!add_candidate(m, b, view)) return;
  for (int64_t at = model_previous_set(m, m->window.can_leave, m->window.op_head - 1);
       at >= m->window.op_tail; at = model_previous_set(m, m->window.can_leave, at - 1)) {
    const struct op *op = &m->window.ops[(uint64_t)at & (OPS - 1)];
    int64_t begin = op->first_use, end = begin + op->uses;
    while ((end = model_previous_due(m, DUE_SURE, begin, end)) >= begin) {
      int32_t block = m->window.uses[use_index(end)].block;
      if (m->blocks.all[block].device == device && !add_candidate(m, block, view)) return;
    }
  }
}

static void list_oldest(const struct pump_model *m, uint32_t device,
                        struct pump_view *view) {
  const int32_t heads[] = {m->devices[device].maybe_evicted.head,
                           m->devices[device].sure.head};
  for (int i = 0; i < 2; i++) {
    for (int32_t b = heads[i]; b != NONE; b = m->blocks.all[b].age_next) {
      if (m->blocks.all[b].state == PUMP_BLOCK_LEAVING) continue;
      if (view->oldest_count == PUMP_VIEW_CANDIDATES) return;
      view->oldest[view->oldest_count] = b;
      view->oldest_next_use[view->oldest_count++] = m->blocks.all[b].next_use;
    }
  }
}

EXPORT uint32_t pump_model_away(const struct pump_model *m, int64_t *blocks,
                                uint32_t count) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < count; i++) {
    if (blocks[i] < 0 || blocks[i] >= m->ranges.block_end) continue;
    uint8_t state = m->blocks.all[blocks[i]].state;
    if (state == PUMP_BLOCK_HOST || state == PUMP_BLOCK_ABSENT) blocks[kept++] = blocks[i];
  }
  return kept;
}

/* ---- the view -------------------------------------------------------------------- */

int64_t model_flight_most(const struct pump_model *m, const struct device *device) {
  int64_t most = device->facts.budget / m->bounds.in_flight_share;
  if (most < m->bounds.slice_least) return m->bounds.slice_least;
  return most < m->bounds.in_flight ? most : m->bounds.in_flight;
}

int64_t model_credit(const struct pump_model *m, const struct device *device,
                     int direction) {
  if (device->held_at[direction] >= (int64_t)m->totals.observed_seq) return 0;
  int64_t left = model_flight_most(m, device) - device->in_flight[direction];
  return left > 0 ? left : 0;
}

/* Faults fetch the missing blocks of an operation larger than the budget, and for each
 * the driver evicts the least recently migrated block. If this is the order in which the
 * operation reaches its blocks, each evicted block was used already. So the resident
 * blocks are prefetched again with the missing ones, in that order: each prefetch makes a
 * block the newest. */
EXPORT void pump_model_turn(struct pump_model *m, uint32_t index) {
  int64_t at = next_set(m, m->window.misses, m->window.op_tail);
  struct op *op = &m->window.ops[op_index(at)];
  index &= PUMP_MAX_DEVICES - 1;
  if (at == m->window.op_head || !op->larger || op->in_order) return;
  if (m->window.op_device[op_index(at)] != index) return;
  op->in_order = true;
  m->schedules.changes++;
  int64_t end = (int64_t)op->first_use + op->uses, use = op->first_use;
  for (; (use = model_next_due(m, DUE_SURE, use, end)) < end; use++) {
    int32_t block = m->window.uses[use_index(use)].block;
    if (m->blocks.all[block].device == index &&
        m->blocks.all[block].state == PUMP_BLOCK_RESIDENT)
      model_set_state(m, block, PUMP_BLOCK_MAYBE_EVICTED);
  }
}

EXPORT void pump_model_view(struct pump_model *m, uint32_t index, struct pump_view *view) {
  index &= PUMP_MAX_DEVICES - 1;
  struct device *device = &m->devices[index];
  const int64_t *counts = device->counts;
  view->resident = counts[PUMP_BLOCK_RESIDENT] + counts[PUMP_BLOCK_MAYBE_EVICTED];
  view->leaving = model_making_room(device);
  view->to_gpu_credit = model_credit(m, device, PUMP_TO_GPU);
  view->to_host_credit = model_credit(m, device, PUMP_TO_HOST);
  view->faults = device->faults;
  device->faults = 0;
  view->candidates_maybe_evicted = view->candidates_count = view->oldest_count = 0;
  view->expected = (uint32_t)(m->window.op_head - m->window.op_issued);
  model_missing(m, index, view, PUMP_VIEW_MISSING);
  list_candidates(m, index, view);
  list_oldest(m, index, view);
}
