/* schedule_evictions.c - the eviction candidates of a plan, latest next use first. */
#include <string.h>

#include "schedule_planner.h"

static inline bool is_resident(const struct pump_model *m, int32_t use) {
  const uint64_t *words = m->window.due_uses[use >> 6];
  return (words[DUE_SURE] | words[DUE_MAYBE_EVICTED]) >> (use & 63) & 1;
}

void planner_begin_search(struct planner *p, int64_t from) {
  const struct pump_model *m = p->m;
  p->later = model_previous_set(m, m->window.can_leave, from);
  if (p->later < m->window.op_tail) return;
  const struct op *op = &m->window.ops[op_index(p->later)];
  p->later_use = (int64_t)op->first_use + op->uses;
}

/* Returns whether the present search includes the block, which operation `later` uses. */
static inline bool is_searched(const struct planner *p, int32_t block) {
  const struct block *b = &p->m->blocks.all[block];
  if (b->device != p->device) return false;
  return (model_stays(p->m, b) && p->later >= p->m->window.op_issued) == p->staying;
}

static int32_t find_resident_before(struct planner *p) {
  const struct pump_model *m = p->m;
  while (p->later >= m->window.op_tail) {
    int64_t begin = m->window.ops[op_index(p->later)].first_use;
    while ((p->later_use = model_previous_due(m, DUE_SURE, begin, p->later_use)) >= begin) {
      int32_t block = m->window.uses[use_index(p->later_use)].block;
      if (is_searched(p, block)) return block;
    }
    planner_begin_search(p, p->later - 1);
  }
  return NONE;
}

int32_t planner_find_resident(struct planner *p, int64_t need) {
  const struct pump_model *m = p->m;
  if (p->resident == NONE && p->idle != NONE) {
    p->resident = p->idle;
    p->idle = model_next_idle(m, p->device, p->idle);
  }
  if (p->resident == NONE) p->resident = find_resident_before(p);
  if (p->staying || m->devices[p->device].duplicates.trials == 0 ||
      (p->resident != NONE && m->blocks.all[p->resident].next_use > need))
    return p->resident;
  p->staying = true;
  planner_begin_search(p, m->window.op_head - 1);
  return p->resident = find_resident_before(p);
}

struct run planner_take_resident(struct planner *p, uint32_t most) {
  const struct pump_model *m = p->m;
  struct run run = planner_begin_run(m, p->resident, -1, &most);
  p->resident = NONE;
  if (m->blocks.all[run.block].first == NONE) return run;
  int64_t begin = m->window.ops[op_index(p->later)].first_use;
  for (; run.count < most && p->later_use > begin; run.count++, p->later_use--) {
    int32_t use = use_index(p->later_use - 1), block = m->window.uses[use].block;
    if (block != run.block - (int32_t)run.count || !is_resident(m, use)) break;
    if (!is_searched(p, block) || !planner_same_slice(p, run.block, block)) break;
  }
  return run;
}

/* Compares next uses. On a tie, the operation that executes first counts as later. */
static bool is_later(const struct planner *p, const struct releasable *a,
                     const struct releasable *b) {
  if (a->again_seq != b->again_seq) return a->again_seq > b->again_seq;
  return p->m->window.ops[a->op].seq < p->m->window.ops[b->op].seq;
}

static void sift_down(struct planner *p, uint32_t i) {
  for (;;) {
    uint32_t child = 2 * i + 1;
    if (child >= p->releasable_count) return;
    if (child + 1 < p->releasable_count &&
        is_later(p, &p->releasable[child + 1], &p->releasable[child]))
      child++;
    if (!is_later(p, &p->releasable[child], &p->releasable[i])) return;
    struct releasable moved = p->releasable[i];
    p->releasable[i] = p->releasable[child];
    p->releasable[child] = moved;
    i = child;
  }
}

static void add_releasable(struct planner *p, uint32_t op) {
  if (p->m->window.again[op] == 0 || p->m->window.ops[op].executed) return;
  PUMP_ASSERT(p->releasable_count < OPS, "an operation counts as executed once");
  uint32_t i = p->releasable_count++;
  struct releasable added = {.again_seq = p->m->window.again_seq[op], .op = op};
  for (; i > 0 && is_later(p, &added, &p->releasable[(i - 1) / 2]); i = (i - 1) / 2)
    p->releasable[i] = p->releasable[(i - 1) / 2];
  p->releasable[i] = added;
}

void planner_assume_executed(struct planner *p) {
  uint32_t i = op_index(p->ran++);
  PUMP_ASSERT(p->ran <= p->at + 1 && p->takes <= p->taken_since_ran,
              "operations count as executed in order, and only visited ones");
  p->taken_since_ran -= p->takes;
  p->takes = planner_blocks_taken(p, p->ran);
  if (p->m->window.op_device[i] == p->device) add_releasable(p, i);
}

/* Returns the block of the use to examine, if its next use is the operation's latest one;
 * otherwise NONE. */
static inline int32_t releasable_block(const struct planner *p,
                                       const struct releasable *top) {
  const struct pump_model *m = p->m;
  const struct op *op = &m->window.ops[top->op];
  const struct use *use = &m->window.uses[use_index((int64_t)op->first_use + top->use)];
  if (use->block == NONE || use->next == NONE) return NONE;
  const struct use *next = &m->window.uses[use->next];
  if ((next->flags & USE_FRESH) != 0 ||
      (int64_t)m->window.ops[next->op].seq != top->again_seq)
    return NONE;
  return m->blocks.all[use->block].device == p->device ? use->block : NONE;
}

int32_t planner_find_releasable(struct planner *p, int64_t need) {
  while (p->releasable_count > 0 && p->releasable[0].again_seq > need) {
    struct releasable *top = &p->releasable[0];
    for (; top->use < p->m->window.ops[top->op].uses; top->use++) {
      int32_t block = releasable_block(p, top);
      if (block != NONE) return block;
    }
    *top = p->releasable[--p->releasable_count];
    sift_down(p, 0);
  }
  return NONE;
}

struct run planner_take_releasable(struct planner *p, int32_t block, uint32_t most) {
  const struct pump_model *m = p->m;
  struct releasable *top = &p->releasable[0];
  struct run run = planner_begin_run(m, block, 1, &most);
  uint32_t uses = m->window.ops[top->op].uses;
  for (top->use++; run.count < most && top->use < uses; run.count++, top->use++)
    if (releasable_block(p, top) != block + (int32_t)run.count ||
        !planner_same_slice(p, block, block + (int32_t)run.count))
      break;
  return run;
}

static uint64_t bytes_of(const struct pump_model *m, const struct schedule_entry *entry) {
  const struct range *range = &m->ranges.all[entry->slot];
  return model_span(range, entry->first_block, entry->blocks).length_bytes;
}

/* Pacing is by amounts, too: each entry of `sorted` gets the ended_bytes of the entry in
 * `entries` that has as many bytes before it. */
static void set_pace(const struct pump_model *m, const struct schedule_entry *entries,
                     struct schedule_entry *sorted, uint32_t count) {
  uint64_t before_bytes = 0, until_bytes = 0;
  for (uint32_t i = 0, at = 0; i < count; i++) {
    while (until_bytes <= before_bytes) until_bytes += bytes_of(m, &entries[at++]);
    sorted[i].ended_bytes = entries[at - 1].ended_bytes;
    before_bytes += bytes_of(m, &sorted[i]);
  }
}

void planner_sort_ready_first(const struct pump_model *m, struct schedule_entry *entries,
                              uint32_t count) {
  static struct schedule_entry sorted[PUMP_SCHEDULE_ENTRIES];
  uint32_t ready = 0, made = 0;
  for (uint32_t i = 0; i < count; i++)
    if (entries[i].after_seq == 0) sorted[made++] = entries[i];
  ready = made;
  for (uint32_t i = 0; i < count; i++) {
    if (entries[i].after_seq == 0) continue;
    uint32_t at = made++;
    for (; at > ready && sorted[at - 1].after_seq > entries[i].after_seq; at--)
      sorted[at] = sorted[at - 1];
    sorted[at] = entries[i];
  }
  PUMP_ASSERT(made == count, "sorting keeps all entries");
  set_pace(m, entries, sorted, count);
  memcpy(entries, sorted, count * sizeof *entries);
}
