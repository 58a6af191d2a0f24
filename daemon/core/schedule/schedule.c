/* schedule.c - makes a device's schedule: the next transfers and their conditions
 * (docs/schedule.md).
 *
 * DESIGN. The planner visits the known operations in order and tracks the free memory that
 * each takes and returns. Free memory is used in order of availability: free now,
 * returned by discards in flight, returned by evictions in flight, returned by discards
 * after operations. Each absent block of an operation takes free memory and waits for the
 * event that frees it. Without free memory, the block with the latest next use is
 * evicted. There are two kinds of candidates:
 *
 *   - Resident blocks that no earlier operation needs. They may leave at once.
 *   - Blocks that visited operations use. They may leave after these have executed.
 *
 * The next use of a candidate must be more than 1.5 times as far away as the operation
 * that needs the memory (later_than). Otherwise the eviction would only move the miss. A
 * later schedule knows better candidates and moves fewer blocks.
 *
 * To find candidates, an operation counts as executed when later operations have taken
 * REACH_BLOCKS of memory, as much as the list of arrivals holds. Waiting for a later
 * operation would delay arrivals too much. If no candidate may leave by this rule,
 * further operations count as executed until one of their blocks may leave.
 *
 * The plan ends if no block may leave for an arrival, at the first use of an evicted
 * block, and after an operation that is too large for the budget. If the list of arrivals
 * is full, the planner still tracks memory. Predicted operations are ignored if one of them
 * will reach a range that does not exist yet, because the memory that it takes is
 * unknown.
 *
 * Pacing: an eviction waits until the arrivals listed before its newcomer have ended,
 * except for PACE_BYTES. An earlier eviction would leave memory idle until arrivals catch
 * up. The waits cannot form a cycle: an earlier arrival waits only for earlier evictions.
 * Pacing stops after an arrival that waits for an operation, and for unlisted arrivals.
 * There the program is the bottleneck, not the link, and evictions use the time. Before
 * an operation larger than the budget there is no pacing, because its faults take memory,
 * too.
 *
 * A worker makes many schedules, so for speed the planner handles runs of blocks.
 * Consecutive blocks that the same operation lacks, or needs again, are adjacent in the
 * tables, and the same decision applies to all of them. The result equals the rule
 * applied block by block (tests/support/schedule_by_blocks.py).
 */
#include "schedule_planner.h"

#define REACH_BLOCKS 512 /* listed in each direction: 1 GiB [measured: 0047] */
/* An eviction need not wait for the newest arrivals of this size [measured: 0053]. */
#define PACE_BYTES (96ull << 20)
/* Minimum length of a slice of duplicates, in blocks [measured: 0051]. */
#define CLEAN_SLICE 8

/* ---- slices ------------------------------------------------------------------------ */

/* Sets the maximum length of slices for this run. A slice of duplicates includes a call
 * of cuMemAdvise, which waits for migrations, and they for it. These waits are part of
 * the measured time, which would make slices too short. */
static inline void set_slice(struct planner *p, uint32_t direction, const struct run *run) {
  struct slice_list *list = &p->lists[direction];
  bool clean = p->m->duplicates && p->m->blocks.all[run->block].clean;
  list->slice = clean && list->measured < CLEAN_SLICE ? CLEAN_SLICE : list->measured;
}

/* Returns how many blocks fit into the newest slice (`with`) or into a new one; 0: the
 * list is full. */
static inline uint32_t slots_left(const struct slice_list *list, bool with) {
  uint32_t most = list->slice;
  if (with)
    most -= (uint32_t)list->newest->blocks;
  else if (list->slices_left == 0)
    return 0;
  return most < list->blocks_left ? most : list->blocks_left;
}

/* Moves the run's first `count` blocks to the newest slice (`with`) or to a new one. */
static inline void add_to_slice(struct slice_list *list, bool with, struct run *run,
                                uint32_t count, const struct awaited *awaited) {
  int32_t blocks = (int32_t)count, lowest = run->block;
  PUMP_ASSERT(count <= run->count && count <= list->blocks_left &&
                  (with ? (uint32_t)list->newest->blocks + count <= list->slice
                        : list->slices_left != 0 && count <= list->slice),
              "the lists and their slices have bounds");
  if (run->step < 0) lowest -= blocks - 1;
  run->block += run->step < 0 ? -blocks : blocks;
  run->count -= count;
  list->blocks_left -= count;
  if (!with) {
    struct schedule_entry *slice = list->newest = list->next++;
    list->slices_left--;
    slice->first_block = lowest;
    slice->blocks = blocks;
    slice->slot = run->slot;
    slice->after_stream = awaited->after_stream;
    slice->after_seq = awaited->after_seq;
    slice->left_bytes = awaited->left_bytes;
    slice->ended_bytes = 0;
    slice->advice = PUMP_ADVICE_NONE;
    return;
  }
  struct schedule_entry *slice = list->newest;
  if (lowest < slice->first_block) slice->first_block = lowest;
  slice->blocks += blocks;
  if (awaited->after_seq > slice->after_seq) {
    slice->after_seq = awaited->after_seq;
    slice->after_stream = awaited->after_stream;
  }
  if (awaited->left_bytes > slice->left_bytes) slice->left_bytes = awaited->left_bytes;
}

/* ---- free memory ------------------------------------------------------------------- */

static void add_free(struct planner *p, struct free_memory memory) {
  if (p->free_taken == p->free_made) p->free_taken = p->free_made = 0;
  PUMP_ASSERT(p->free_made < FREE_ENTRIES, "each operation frees memory once");
  if (memory.blocks > 0) p->free[p->free_made++] = memory;
}

/* Returns the ended_bytes that a departure waits for: all arrivals listed before its
 * newcomer, except for PACE_BYTES. `blocks`: arrivals that will be listed before it. */
static inline uint64_t pace(const struct planner *p, uint32_t blocks) {
  uint64_t ended_bytes = p->ended_bytes + blocks * p->step_bytes;
  return p->paced && ended_bytes > PACE_BYTES ? ended_bytes - PACE_BYTES : 0;
}

/* Returns whether the run continues the newest slice of departures. */
static inline bool leaves_with(const struct slice_list *list, const struct run *run,
                               const struct awaited *awaited) {
  const struct schedule_entry *last = list->newest;
  bool near =
      run->block == last->first_block - 1 || run->block == last->first_block + last->blocks;
  return near && last->slot == run->slot && last->after_seq == awaited->after_seq &&
         (uint32_t)last->blocks < list->slice;
}

/* Lists the run's departure as far as there is space; returns how many of its blocks
 * leave. Lists at most WAITING_BLOCKS of the blocks that wait for an operation. The
 * others leave, too, but a later schedule lists them. */
static uint32_t list_departures(struct planner *p, struct run run,
                                const struct awaited *awaited) {
  struct slice_list *list = &p->lists[PUMP_TO_HOST];
  const struct range *range = &p->m->ranges.all[run.slot];
  uint32_t gone = run.count;
  int32_t lowest = run.block;
  set_slice(p, PUMP_TO_HOST, &run);
  if (awaited->after_seq != 0) {
    if (run.count > WAITING_BLOCKS - p->waiting) run.count = WAITING_BLOCKS - p->waiting;
    p->waiting += run.count;
  }
  uint32_t listed = run.count;
  while (run.count > 0) {
    bool with = leaves_with(list, &run, awaited);
    uint32_t count = slots_left(list, with);
    if (count > run.count) count = run.count;
    if (count == 0) break;
    uint64_t ended_bytes = pace(p, listed - run.count);
    PUMP_ASSERT(ended_bytes <= p->ended_bytes,
                "an eviction waits only for earlier arrivals");
    add_to_slice(list, with, &run, count, awaited);
    if (!with) list->newest->ended_bytes = ended_bytes;
    list->newest->need = 0;
    list->newest->need_stream = 0;
  }
  p->full = run.count > 0;
  if (p->full) gone = (uint32_t)(run.step * (run.block - lowest));
  if (run.step < 0) lowest -= (int32_t)gone - 1;
  if (gone > 0) p->left_bytes += model_span(range, lowest, (int32_t)gone).length_bytes;
  return gone;
}

/* Returns the operation after which a block must be needed to leave for `need`. */
static inline int64_t later_than(const struct pump_model *m, int64_t need) {
  int64_t first = (int64_t)m->window.ops[op_index(m->window.op_tail)].seq;
  return need > first ? need + (need - first) / 2 : need;
}

/* Evicts up to `most` blocks for the operation `need`. Returns how many; 0: no block may
 * leave. */
static uint32_t choose_departures(struct planner *p, int64_t need, uint32_t most) {
  struct pump_model *m = p->m;
  if (p->full) return 0;
  int64_t least = later_than(m, need);
  int32_t resident = planner_find_resident(p, least), releasable = NONE;
  int64_t resident_next = resident == NONE ? 0 : m->blocks.all[resident].next_use;
  /* Searched only if its next use may be later than the resident block's. */
  if (resident_next <= least ||
      (p->releasable_count > 0 && p->releasable[0].again_seq > resident_next))
    releasable = planner_find_releasable(p, least);
  while (resident_next <= least && releasable == NONE && p->ran < p->at) {
    planner_assume_executed(p);
    releasable = planner_find_releasable(p, least);
  }
  if (resident_next <= least && releasable == NONE) {
    p->short_of_memory = need > 0;
    return 0;
  }
  int64_t releasable_next = releasable == NONE ? 0 : p->releasable[0].again_seq;
  int64_t next_use = resident_next < releasable_next ? releasable_next : resident_next;
  struct awaited awaited = {0};
  uint32_t gone;
  PUMP_ASSERT(next_use > least,
              "a block leaves only if it is needed later than the newcomer");
  if (resident_next < releasable_next) {
    const struct op *op = &m->window.ops[p->releasable[0].op];
    awaited.after_seq = op->seq;
    awaited.after_stream = op->stream;
    gone = list_departures(p, planner_take_releasable(p, releasable, most), &awaited);
  } else {
    gone = list_departures(p, planner_take_resident(p, most), &awaited);
  }
  if (gone > 0 && next_use < p->horizon) p->horizon = next_use;
  return gone;
}

/* Takes free memory for up to `most` blocks of the operation `need` and sets `*awaited` to
 * their conditions. Returns for how many; 0: there is no free memory. */
static inline uint32_t take_free(struct planner *p, int64_t need, uint32_t most,
                                 struct awaited *awaited) {
  if (p->free_taken == p->free_made) {
    uint32_t gone = choose_departures(p, need, most);
    *awaited = (struct awaited){.left_bytes = p->left_bytes};
    return gone;
  }
  struct free_memory *memory = &p->free[p->free_taken];
  if (memory->blocks < (int64_t)most) most = (uint32_t)memory->blocks;
  memory->awaited.left_bytes += memory->step_bytes * most;
  *awaited = memory->awaited;
  PUMP_ASSERT(awaited->left_bytes <= p->left_bytes,
              "an arrival waits only for evictions that are listed before it");
  memory->blocks -= most;
  if (memory->blocks == 0) p->free_taken++;
  return most;
}

/* Takes free memory for blocks that the operation rewrites after their discard. Returns
 * false if there is not enough. */
static bool take_rewritten(struct planner *p, const struct op *op, int32_t blocks) {
  struct awaited awaited; /* unused: no entry is listed that could wait */
  while (blocks > 0) {
    uint32_t taken = take_free(p, (int64_t)op->seq, (uint32_t)blocks, &awaited);
    if (taken == 0) return false;
    blocks -= (int32_t)taken;
  }
  return true;
}

/* ---- the plan ---------------------------------------------------------------------- */

/* Returns whether the run continues the newest slice of arrivals. */
static inline bool comes_with(const struct slice_list *list, const struct run *run,
                              int64_t need) {
  const struct schedule_entry *last = list->newest;
  return run->block == last->first_block + last->blocks && last->need == need &&
         last->slot == run->slot && (uint32_t)last->blocks < list->slice;
}

/* Lists the run's arrival for that operation; returns false when the plan ends. If the
 * list is full, still takes free memory, so that blocks leave for a later schedule's
 * arrivals. */
static inline bool list_arrivals(struct planner *p, struct run run, bool away,
                                 const struct op *op) {
  struct slice_list *list = &p->lists[PUMP_TO_GPU];
  int64_t need = (int64_t)op->seq;
  set_slice(p, PUMP_TO_GPU, &run);
  while (run.count > 0) {
    bool with = comes_with(list, &run, need);
    struct awaited awaited = {0};
    uint32_t count = slots_left(list, with), granted = run.count;
    if (count > 0 && granted > count) granted = count;
    if (away && count == 0) p->paced = false;
    if (away) {
      p->step_bytes = PUMP_BLOCK_BYTES;
      granted = take_free(p, need, granted, &awaited);
      p->step_bytes = 0;
      if (granted == 0) return false;
    }
    if (awaited.after_seq != 0) p->paced = false;
    if (count > granted) count = granted;
    /* A slice waits for operations of a single stream. */
    if (with && list->newest->after_seq != 0 && awaited.after_seq != 0 &&
        list->newest->after_stream != awaited.after_stream) {
      with = false;
      if (list->slices_left == 0) count = 0;
    }
    if (count == 0) {
      run.block += (int32_t)granted;
      run.count -= granted;
      continue;
    }
    const struct range *range = &p->m->ranges.all[run.slot];
    p->ended_bytes += model_span(range, run.block, (int32_t)count).length_bytes;
    add_to_slice(list, with, &run, count, &awaited);
    list->newest->need = need;
    list->newest->need_stream = op->stream;
  }
  return true;
}

/* Counts the consecutive uses from this one that are `kind`, up to the end of a word. */
static inline uint32_t due_run(const struct pump_model *m, uint32_t kind, int32_t use) {
  uint64_t others = ~m->window.due_uses[use >> 6][kind] >> (use & 63);
  return others == 0 ? 64u - (uint32_t)(use & 63) : (uint32_t)__builtin_ctzll(others);
}

/* Lists the arrivals of the operation's missing blocks in order of access, with at most
 * `free` blocks that take free memory. Returns false when the plan ends. */
static bool bring_missing(struct planner *p, const struct op *op, int64_t free) {
  const struct pump_model *m = p->m;
  int64_t at = op->first_use, end = at + op->uses;
  while ((at = model_next_due(m, DUE_AWAY, at, end)) < end) {
    int32_t use = use_index(at), block = m->window.uses[use].block;
    uint32_t most = due_run(m, DUE_AWAY, use), away = most;
    if (most == 0) most = due_run(m, DUE_MAYBE_EVICTED, use);
    if (most > end - at) most = (uint32_t)(end - at);
    at++;
    if (m->blocks.all[block].device != p->device) continue;
    struct run run = planner_begin_run(m, block, 1, &most);
    const struct use *next = &m->window.uses[use + 1];
    for (; run.count < most && next->block == block + (int32_t)run.count &&
           planner_same_slice(p, block, next->block);
         at++, next++)
      run.count++;
    if (away > 0) {
      if (free == 0) continue;
      if (run.count > free) run.count = (uint32_t)free;
      free -= run.count;
    }
    if (!list_arrivals(p, run, away > 0, op)) return false;
  }
  return true;
}

/* Fills the budget for an operation that is larger. Faults bring the rest, and the plan
 * ends. */
static void fill_up(struct planner *p, const struct op *op) {
  const struct device *device = &p->m->devices[p->device];
  int64_t free = device->facts.budget - device->counts[PUMP_BLOCK_ARRIVING] -
                 op->due[DUE_SURE] - op->due[DUE_MAYBE_EVICTED];
  if (free > 0) (void)bring_missing(p, op, free);
}

/* Returns the condition of memory that is freed by discards after the operation. */
static inline struct awaited discarded(const struct pump_model *m, uint64_t seq,
                                       uint32_t stream) {
  return (struct awaited){
      .after_seq = seq,
      .after_stream = m->streams.discard_stream != 0 ? m->streams.discard_stream : stream};
}

/* Handles the operation at index `i`. Returns false when the plan ends. */
static bool step(struct planner *p, uint32_t i) {
  struct pump_model *m = p->m;
  const struct op *op = &m->window.ops[i];
  if (op->larger && !op->executed) {
    fill_up(p, op);
    return false;
  }
  if (op->due[DUE_AWAY] + op->due[DUE_MAYBE_EVICTED] > 0 &&
      !bring_missing(p, op, INT64_MAX))
    return false;
  if (!take_rewritten(p, op, m->window.allocates_blocks[i])) return false;
  add_free(p, (struct free_memory){.blocks = m->window.frees_blocks[i],
                                   .awaited = discarded(m, op->seq, op->stream)});
  return true;
}

/* Evicts the `over` blocks above the budget, before anything else. */
static void push_out(struct planner *p, int64_t over) {
  while (over > 0) {
    uint32_t gone = choose_departures(p, 0, (uint32_t)over);
    if (gone == 0) return;
    over -= gone;
  }
}

/* Returns whether the window has an operation that is larger than the budget. */
static bool knows_larger(const struct pump_model *m) {
  for (int64_t at = m->window.op_tail; at < m->window.op_head; at++) {
    const struct op *op = &m->window.ops[op_index(at)];
    if (op->larger && !op->executed) return true;
  }
  return false;
}

/* Adds the free memory that exists at the beginning. */
static void begin(struct planner *p) {
  const struct device *device = &p->m->devices[p->device];
  int64_t free = device->facts.budget - model_occupied(device);
  int64_t leaving = device->counts[PUMP_BLOCK_LEAVING];
  int64_t discarding = device->counts[PUMP_BLOCK_DISCARDING];
  p->left_bytes = device->left_bytes + device->leaving_bytes;
  p->ended_bytes = device->ended_bytes + device->arriving_bytes;
  push_out(p, -(free + leaving));
  p->paced = !knows_larger(p->m);
  add_free(p, (struct free_memory){.blocks = free});
  int64_t owed = free < 0 ? -free : 0;
  struct awaited owed_left = {.left_bytes =
                                  device->left_bytes + (uint64_t)owed * PUMP_BLOCK_BYTES};
  struct awaited end =
      discarded(p->m, device->discarding_seq, p->m->streams.discard_stream);
  if (owed > leaving) owed = leaving;
  add_free(p, (struct free_memory){.blocks = discarding, .awaited = end});
  add_free(p, (struct free_memory){.blocks = leaving - owed,
                                   .awaited = owed_left,
                                   .step_bytes = PUMP_BLOCK_BYTES});
}

/* Walks over the known operations up to position `end`. */
static void plan_operations(struct planner *p, int64_t end) {
  const struct pump_model *m = p->m;
  for (p->at = m->window.op_tail; p->at < end; p->at++) {
    uint32_t i = op_index(p->at);
    if ((int64_t)m->window.ops[i].seq >= p->horizon) return;
    p->taken_since_ran += planner_blocks_taken(p, p->at);
    while (p->ran < p->at && p->taken_since_ran - p->takes >= REACH_BLOCKS)
      planner_assume_executed(p);
    if (m->window.op_device[i] == p->device && !step(p, i)) return;
  }
  p->ended = false;
}

/* Evicts blocks without a known use, so that memory for unannounced needs is free. */
static void keep_spare(struct planner *p) {
  const struct device *device = &p->m->devices[p->device];
  int64_t wanted = device->facts.budget * p->m->bounds.spare_percent / 100;
  int64_t above = -device->facts.budget;
  for (uint32_t state = PUMP_BLOCK_ABSENT; state < PUMP_BLOCK_STATES; state++)
    above += device->counts[state];
  if (wanted > above) wanted = above;
  for (uint32_t i = p->free_taken; i < p->free_made; i++) wanted -= p->free[i].blocks;
  struct awaited awaited = {0};
  while (wanted > 0) {
    int32_t resident = planner_find_resident(p, 0);
    if (resident == NONE || p->m->blocks.all[resident].next_use != PUMP_NOT_NEEDED) return;
    uint32_t gone =
        list_departures(p, planner_take_resident(p, (uint32_t)wanted), &awaited);
    if (gone == 0) return;
    wanted -= gone;
  }
}

void schedule_make(struct pump_model *m, uint32_t device, uint64_t until_seq,
                   struct schedule_lists *out) {
  static struct planner planner; /* too large for a stack; not thread-safe */
  static struct schedule_entry nothing = {.blocks = INT32_MAX};
  struct planner *p = &planner;
  p->m = m;
  p->device = device;
  for (int direction = 0; direction < PUMP_DIRECTIONS; direction++)
    p->lists[direction] =
        (struct slice_list){.newest = &nothing,
                            .next = out->entries[direction],
                            .measured = model_slice(m, &m->devices[device], direction),
                            .slices_left = PUMP_SCHEDULE_ENTRIES,
                            .blocks_left = REACH_BLOCKS};
  p->free_taken = p->free_made = p->releasable_count = 0;
  p->at = p->ran = m->window.op_tail;
  p->taken_since_ran = 0;
  p->horizon = PUMP_NOT_NEEDED;
  p->idle = model_next_idle(m, device, NONE);
  p->resident = NONE;
  p->staying = false;
  p->paced = p->full = false;
  p->step_bytes = 0;
  p->short_of_memory = false;
  p->waiting = 0;
  p->ended = true;
  p->takes = planner_blocks_taken(p, p->ran);
  planner_begin_search(p, m->window.op_head - 1);
  int64_t known = m->window.op_issued + (int64_t)(until_seq - m->window.added_seq);
  begin(p);
  plan_operations(p, known < m->window.op_head ? known : m->window.op_head);
  p->paced = false;
  if (!p->ended) keep_spare(p);
  for (int direction = 0; direction < PUMP_DIRECTIONS; direction++)
    out->count[direction] = PUMP_SCHEDULE_ENTRIES - p->lists[direction].slices_left;
  out->short_of_ops = !p->ended;
  out->short_of_memory = p->short_of_memory;
  planner_sort_ready_first(m, out->entries[PUMP_TO_HOST], out->count[PUMP_TO_HOST]);
}
