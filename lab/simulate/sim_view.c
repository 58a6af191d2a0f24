/* sim_view.c - what a studied policy sees of one device: missing blocks and eviction
 * candidates. The schedule of pump's own policies reads the model itself. */
#include "daemon/core/model/model_state.h"
#include "sim.h"

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
  for (int64_t at = model_next_set(m, m->window.misses, m->window.op_tail);
       at < m->window.op_issued; at = model_next_set(m, m->window.misses, at + 1)) {
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

static void list_missing(struct pump_model *m, uint32_t device, struct pump_view *view,
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
  for (int64_t at = model_next_set(m, m->window.misses, from); at < m->window.op_head;
       at = model_next_set(m, m->window.misses, at + 1)) {
    if (looked++ == LACKING_MOST) {
      view->missing_more += view->missing_more == 0;
      return;
    }
    if (!collect_missing(m, at, device, view, most)) return;
  }
}

uint32_t pump_sim_away(const struct pump_model *m, int64_t *blocks, uint32_t count) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < count; i++) {
    if (blocks[i] < 0 || blocks[i] >= m->ranges.block_end) continue;
    uint8_t state = m->blocks.all[blocks[i]].state;
    if (state == PUMP_BLOCK_HOST || state == PUMP_BLOCK_ABSENT) blocks[kept++] = blocks[i];
  }
  return kept;
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

/* ---- the view -------------------------------------------------------------------- */

/* Returns how many more blocks may be sent in the direction. */
static int64_t credit(const struct pump_model *m, uint32_t index, int direction) {
  const struct device *device = &m->devices[index];
  if (device->held_at[direction] >= (int64_t)m->totals.observed_seq) return 0;
  int64_t left = model_flight_most(m, device);
  for (uint32_t i = 0; i < PUMP_MAX_IN_FLIGHT; i++) {
    const struct transfer *transfer = &m->transfers.all[i];
    if (transfer->ticket != 0 && transfer->device == index &&
        transfer->direction == direction)
      left -= transfer->blocks;
  }
  return left > 0 ? left : 0;
}

void pump_sim_view(struct pump_model *m, uint32_t index, struct pump_view *view) {
  index &= PUMP_MAX_DEVICES - 1;
  struct device *device = &m->devices[index];
  const int64_t *counts = device->counts;
  view->resident = counts[PUMP_BLOCK_RESIDENT] + counts[PUMP_BLOCK_MAYBE_EVICTED];
  view->leaving = model_making_room(device);
  view->to_gpu_credit = credit(m, index, PUMP_TO_GPU);
  view->to_host_credit = credit(m, index, PUMP_TO_HOST);
  view->faults = device->faults;
  device->faults = 0;
  view->candidates_maybe_evicted = view->candidates_count = view->oldest_count = 0;
  view->expected = (uint32_t)(m->window.op_head - m->window.op_issued);
  list_missing(m, index, view, PUMP_VIEW_MISSING);
  list_candidates(m, index, view);
  list_oldest(m, index, view);
}
