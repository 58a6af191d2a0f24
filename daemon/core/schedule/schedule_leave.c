/* schedule_leave.c - the eviction candidates of a walk, latest next use first. */
#include <string.h>

#include "schedule_walk.h"

static inline bool is_there(const struct pump_model *m, int32_t use) {
  const uint64_t *words = m->window.due_uses[use >> 6];
  return (words[DUE_SURE] | words[DUE_MAYBE_EVICTED]) >> (use & 63) & 1;
}

void walk_look_at_later(struct walk *w, int64_t from) {
  const struct pump_model *m = w->m;
  w->later = model_previous_set(m, m->window.can_leave, from);
  if (w->later < m->window.op_tail) return;
  const struct op *op = &m->window.ops[op_index(w->later)];
  w->later_use = (int64_t)op->first_use + op->uses;
}

/* Returns whether the present search includes the block, which operation `later` uses. */
static inline bool is_searched(const struct walk *w, int32_t block) {
  const struct block *b = &w->m->blocks.all[block];
  if (b->device != w->device) return false;
  return (model_stays(w->m, b) && w->later >= w->m->window.op_issued) == w->staying;
}

static int32_t look_later(struct walk *w) {
  const struct pump_model *m = w->m;
  while (w->later >= m->window.op_tail) {
    int64_t begin = m->window.ops[op_index(w->later)].first_use;
    while ((w->later_use = model_previous_due(m, DUE_SURE, begin, w->later_use)) >= begin) {
      int32_t block = m->window.uses[use_index(w->later_use)].block;
      if (is_searched(w, block)) return block;
    }
    walk_look_at_later(w, w->later - 1);
  }
  return NONE;
}

int32_t walk_look_there(struct walk *w, int64_t need) {
  const struct pump_model *m = w->m;
  if (w->there == NONE && w->idle != NONE) {
    w->there = w->idle;
    w->idle = model_next_idle(m, w->device, w->idle);
  }
  if (w->there == NONE) w->there = look_later(w);
  if (w->staying || m->devices[w->device].duplicates.trials == 0 ||
      (w->there != NONE && m->blocks.all[w->there].next_use > need))
    return w->there;
  w->staying = true;
  walk_look_at_later(w, m->window.op_head - 1);
  return w->there = look_later(w);
}

struct run walk_take_there(struct walk *w, uint32_t most) {
  const struct pump_model *m = w->m;
  struct run run = walk_begin_run(m, w->there, -1, &most);
  w->there = NONE;
  if (m->blocks.all[run.block].first == NONE) return run;
  int64_t begin = m->window.ops[op_index(w->later)].first_use;
  for (; run.count < most && w->later_use > begin; run.count++, w->later_use--) {
    int32_t use = use_index(w->later_use - 1), block = m->window.uses[use].block;
    if (block != run.block - (int32_t)run.count || !is_there(m, use)) break;
    if (!is_searched(w, block) || !walk_alike(w, run.block, block)) break;
  }
  return run;
}

/* Compares next uses. On a tie, the operation that executes first counts as later. */
static bool is_later(const struct walk *w, const struct spent *a, const struct spent *b) {
  if (a->again_seq != b->again_seq) return a->again_seq > b->again_seq;
  return w->m->window.ops[a->op].seq < w->m->window.ops[b->op].seq;
}

static void sift_down(struct walk *w, uint32_t i) {
  for (;;) {
    uint32_t child = 2 * i + 1;
    if (child >= w->spent_count) return;
    if (child + 1 < w->spent_count && is_later(w, &w->spent[child + 1], &w->spent[child]))
      child++;
    if (!is_later(w, &w->spent[child], &w->spent[i])) return;
    struct spent moved = w->spent[i];
    w->spent[i] = w->spent[child];
    w->spent[child] = moved;
    i = child;
  }
}

static void add_spent(struct walk *w, uint32_t op) {
  if (w->m->window.again[op] == 0 || w->m->window.ops[op].executed) return;
  uint32_t i = w->spent_count++;
  struct spent added = {.again_seq = w->m->window.again_seq[op], .op = op};
  for (; i > 0 && is_later(w, &added, &w->spent[(i - 1) / 2]); i = (i - 1) / 2)
    w->spent[i] = w->spent[(i - 1) / 2];
  w->spent[i] = added;
}

void walk_count_executed(struct walk *w) {
  uint32_t i = op_index(w->ran++);
  w->behind -= w->takes;
  w->takes = walk_takes(w, w->ran);
  if (w->m->window.op_device[i] == w->device) add_spent(w, i);
}

/* Returns the block of the use to examine, if its next use is the operation's latest one;
 * otherwise NONE. */
static inline int32_t spent_block(const struct walk *w, const struct spent *top) {
  const struct pump_model *m = w->m;
  const struct op *op = &m->window.ops[top->op];
  const struct use *use = &m->window.uses[use_index((int64_t)op->first_use + top->use)];
  if (use->block == NONE || use->next == NONE) return NONE;
  const struct use *next = &m->window.uses[use->next];
  if ((next->flags & USE_FRESH) != 0 ||
      (int64_t)m->window.ops[next->op].seq != top->again_seq)
    return NONE;
  return m->blocks.all[use->block].device == w->device ? use->block : NONE;
}

int32_t walk_look_spent(struct walk *w, int64_t need) {
  while (w->spent_count > 0 && w->spent[0].again_seq > need) {
    struct spent *top = &w->spent[0];
    for (; top->use < w->m->window.ops[top->op].uses; top->use++) {
      int32_t block = spent_block(w, top);
      if (block != NONE) return block;
    }
    *top = w->spent[--w->spent_count];
    sift_down(w, 0);
  }
  return NONE;
}

struct run walk_take_spent(struct walk *w, int32_t block, uint32_t most) {
  const struct pump_model *m = w->m;
  struct spent *top = &w->spent[0];
  struct run run = walk_begin_run(m, block, 1, &most);
  uint32_t uses = m->window.ops[top->op].uses;
  for (top->use++; run.count < most && top->use < uses; run.count++, top->use++)
    if (spent_block(w, top) != block + (int32_t)run.count ||
        !walk_alike(w, block, block + (int32_t)run.count))
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

void walk_ready_first(const struct pump_model *m, struct schedule_entry *entries,
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
  set_pace(m, entries, sorted, count);
  memcpy(entries, sorted, count * sizeof *entries);
}
