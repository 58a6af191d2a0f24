/* schedule.c - makes a device's schedule: the next transfers and their conditions
 * (docs/schedule.md).
 *
 * DESIGN. The walk visits the known operations in order and tracks the free memory that
 * each takes and returns. Free memory is used in order of availability: free now,
 * returned by discards in flight, returned by evictions in flight, returned by discards
 * after operations. Each absent block of an operation takes free memory and waits for the
 * event that frees it. Without free memory, the block with the latest next use is
 * evicted. There are two kinds of candidates:
 *
 *   - Resident blocks that no earlier operation needs. They may leave at once.
 *   - Blocks that operations of the walk use. They may leave after these have executed.
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
 * The walk ends if no block may leave for an arrival, at the first use of an evicted
 * block, and after an operation that is too large for the budget. If the list of arrivals
 * is full, the walk still tracks memory. Predicted operations are ignored if one of them
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
 * A block that is discarded during the walk and rewritten later takes the newest free
 * memory. It needs that memory only after its discard, so this is mostly its own memory,
 * and older free memory is left to other blocks.
 *
 * A worker makes many schedules, so for speed the walk handles runs of blocks.
 * Consecutive blocks that the same operation lacks, or needs again, are adjacent in the
 * tables, and the same decision applies to all of them. The result equals the rule
 * applied block by block (tests/support/schedule_by_blocks.py).
 */
#include "schedule_walk.h"

#define REACH_BLOCKS 512 /* in each direction: 1 GiB */
#define PACE_BYTES (96ull << 20)
#define CLEAN_SLICE 8 /* minimum length of a slice of duplicates, in blocks */

/* ---- slices ------------------------------------------------------------------------ */

/* Sets the maximum length of slices for this run. A slice of duplicates includes a call
 * of cuMemAdvise, which waits for migrations, and they for it. These waits are part of
 * the measured time, which would make slices too short. */
static inline void set_slice(struct walk *w, uint32_t way, const struct run *run) {
  struct slice_list *list = &w->lists[way];
  bool clean = w->m->duplicates && w->m->blocks.all[run->block].clean;
  list->slice = clean && list->measured < CLEAN_SLICE ? CLEAN_SLICE : list->measured;
}

/* Returns how many blocks fit into the newest slice (`with`) or into a new one; 0: the
 * list is full. */
static inline uint32_t places(const struct slice_list *list, bool with) {
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

static void add_room(struct walk *w, struct room room) {
  if (w->rooms_taken == w->rooms_made) w->rooms_taken = w->rooms_made = 0;
  if (room.blocks > 0) w->rooms[w->rooms_made++] = room;
}

/* Returns the ended_bytes that a departure waits for: all arrivals listed before its
 * newcomer, except for PACE_BYTES. `blocks`: arrivals that will be listed before it. */
static inline uint64_t pace(const struct walk *w, uint32_t blocks) {
  uint64_t ended_bytes = w->ended_bytes + blocks * w->step_bytes;
  return w->paced && ended_bytes > PACE_BYTES ? ended_bytes - PACE_BYTES : 0;
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
static uint32_t list_departures(struct walk *w, struct run run,
                                const struct awaited *awaited) {
  struct slice_list *list = &w->lists[PUMP_TO_HOST];
  const struct range *range = &w->m->ranges.all[run.slot];
  uint32_t gone = run.count;
  int32_t lowest = run.block;
  set_slice(w, PUMP_TO_HOST, &run);
  if (awaited->after_seq != 0) {
    if (run.count > WAITING_BLOCKS - w->waiting) run.count = WAITING_BLOCKS - w->waiting;
    w->waiting += run.count;
  }
  uint32_t listed = run.count;
  while (run.count > 0) {
    bool with = leaves_with(list, &run, awaited);
    uint32_t count = places(list, with);
    if (count > run.count) count = run.count;
    if (count == 0) break;
    uint64_t ended_bytes = pace(w, listed - run.count);
    add_to_slice(list, with, &run, count, awaited);
    if (!with) list->newest->ended_bytes = ended_bytes;
    list->newest->need = 0;
    list->newest->need_stream = 0;
  }
  w->full = run.count > 0;
  if (w->full) gone = (uint32_t)(run.step * (run.block - lowest));
  if (run.step < 0) lowest -= (int32_t)gone - 1;
  if (gone > 0) w->left_bytes += model_span(range, lowest, (int32_t)gone).length_bytes;
  return gone;
}

/* Returns the operation after which a block must be needed to leave for `need`. */
static inline int64_t later_than(const struct pump_model *m, int64_t need) {
  int64_t first = (int64_t)m->window.ops[op_index(m->window.op_tail)].seq;
  return need > first ? need + (need - first) / 2 : need;
}

/* Evicts up to `most` blocks for the operation `need`. Returns how many; 0: no block may
 * leave. */
static uint32_t choose_departures(struct walk *w, int64_t need, uint32_t most) {
  struct pump_model *m = w->m;
  if (w->full) return 0;
  int64_t least = later_than(m, need);
  int32_t there = walk_look_there(w, least), spent = NONE;
  int64_t there_next = there == NONE ? 0 : m->blocks.all[there].next_use;
  /* Searched only if its next use may be later than the resident block's. */
  if (there_next <= least || (w->spent_count > 0 && w->spent[0].again_seq > there_next))
    spent = walk_look_spent(w, least);
  while (there_next <= least && spent == NONE && w->ran < w->at) {
    walk_count_executed(w);
    spent = walk_look_spent(w, least);
  }
  if (there_next <= least && spent == NONE) {
    w->short_of_room = need > 0;
    return 0;
  }
  int64_t spent_next = spent == NONE ? 0 : w->spent[0].again_seq;
  int64_t next_use = there_next < spent_next ? spent_next : there_next;
  struct awaited awaited = {0};
  uint32_t gone;
  if (there_next < spent_next) {
    const struct op *op = &m->window.ops[w->spent[0].op];
    awaited.after_seq = op->seq;
    awaited.after_stream = op->stream;
    gone = list_departures(w, walk_take_spent(w, spent, most), &awaited);
  } else {
    gone = list_departures(w, walk_take_there(w, most), &awaited);
  }
  if (gone > 0 && next_use < w->horizon) w->horizon = next_use;
  return gone;
}

/* Takes blocks from the room. Keeps the first and the last room of the list nonempty. */
static inline void use_up(struct walk *w, struct room *room, uint32_t blocks) {
  room->blocks -= blocks;
  if (room->blocks > 0) return;
  while (w->rooms_taken < w->rooms_made && w->rooms[w->rooms_made - 1].blocks == 0)
    w->rooms_made--;
  while (w->rooms_taken < w->rooms_made && w->rooms[w->rooms_taken].blocks == 0)
    w->rooms_taken++;
}

/* Takes free memory for up to `most` arrivals of the operation `need` and sets `*awaited`
 * to their conditions. Returns for how many; 0: there is no free memory. */
static inline uint32_t take_room(struct walk *w, int64_t need, uint32_t most,
                                 struct awaited *awaited) {
  if (w->rooms_taken == w->rooms_made) {
    w->step_bytes = PUMP_BLOCK_BYTES;
    uint32_t gone = choose_departures(w, need, most);
    w->step_bytes = 0;
    *awaited = (struct awaited){.left_bytes = w->left_bytes};
    return gone;
  }
  struct room *room = &w->rooms[w->rooms_taken];
  if (room->blocks < (int64_t)most) most = (uint32_t)room->blocks;
  room->awaited.left_bytes += room->step_bytes * most;
  *awaited = room->awaited;
  use_up(w, room, most);
  return most;
}

/* Takes memory for blocks that the operation rewrites: the newest free memory, mostly
 * freed by the discard of the same blocks. Returns false if there is not enough. */
static bool take_newest_room(struct walk *w, const struct op *op, int32_t blocks) {
  while (blocks > 0) {
    uint32_t taken = (uint32_t)blocks;
    if (w->rooms_taken == w->rooms_made) {
      taken = choose_departures(w, (int64_t)op->seq, taken);
      if (taken == 0) return false;
    } else {
      struct room *room = &w->rooms[w->rooms_made - 1];
      if (room->blocks < blocks) taken = (uint32_t)room->blocks;
      use_up(w, room, taken);
    }
    blocks -= (int32_t)taken;
  }
  return true;
}

/* ---- the walk ---------------------------------------------------------------------- */

/* Returns whether the run continues the newest slice of arrivals. */
static inline bool comes_with(const struct slice_list *list, const struct run *run,
                              int64_t need) {
  const struct schedule_entry *last = list->newest;
  return run->block == last->first_block + last->blocks && last->need == need &&
         last->slot == run->slot && (uint32_t)last->blocks < list->slice;
}

/* Lists the run's arrival for that operation; returns false when the walk ends. If the
 * list is full, still takes free memory, so that blocks leave for a later schedule's
 * arrivals. */
static inline bool list_arrivals(struct walk *w, struct run run, bool away,
                                 const struct op *op) {
  struct slice_list *list = &w->lists[PUMP_TO_GPU];
  int64_t need = (int64_t)op->seq;
  set_slice(w, PUMP_TO_GPU, &run);
  while (run.count > 0) {
    bool with = comes_with(list, &run, need);
    struct awaited awaited = {0};
    uint32_t count = places(list, with), room = run.count;
    if (count > 0 && room > count) room = count;
    if (away && count == 0) w->paced = false;
    if (away && (room = take_room(w, need, room, &awaited)) == 0) return false;
    if (awaited.after_seq != 0) w->paced = false;
    if (count > room) count = room;
    /* A slice waits for operations of a single stream. */
    if (with && list->newest->after_seq != 0 && awaited.after_seq != 0 &&
        list->newest->after_stream != awaited.after_stream) {
      with = false;
      if (list->slices_left == 0) count = 0;
    }
    if (count == 0) {
      run.block += (int32_t)room;
      run.count -= room;
      continue;
    }
    const struct range *range = &w->m->ranges.all[run.slot];
    w->ended_bytes += model_span(range, run.block, (int32_t)count).length_bytes;
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
 * `room` blocks that take free memory. Returns false when the walk ends. */
static bool bring_missing(struct walk *w, const struct op *op, int64_t room) {
  const struct pump_model *m = w->m;
  int64_t at = op->first_use, end = at + op->uses;
  while ((at = model_next_due(m, DUE_AWAY, at, end)) < end) {
    int32_t use = use_index(at), block = m->window.uses[use].block;
    uint32_t most = due_run(m, DUE_AWAY, use), away = most;
    if (most == 0) most = due_run(m, DUE_MAYBE_EVICTED, use);
    if (most > end - at) most = (uint32_t)(end - at);
    at++;
    if (m->blocks.all[block].device != w->device) continue;
    struct run run = walk_begin_run(m, block, 1, &most);
    const struct use *next = &m->window.uses[use + 1];
    for (; run.count < most && next->block == block + (int32_t)run.count &&
           walk_alike(w, block, next->block);
         at++, next++)
      run.count++;
    if (away > 0) {
      if (room == 0) continue;
      if (run.count > room) run.count = (uint32_t)room;
      room -= run.count;
    }
    if (!list_arrivals(w, run, away > 0, op)) return false;
  }
  return true;
}

/* Fills the budget for an operation that is larger. Faults bring the rest, and the walk
 * ends. */
static void fill_up(struct walk *w, const struct op *op) {
  const struct device *device = &w->m->devices[w->device];
  int64_t room = device->facts.budget - device->counts[PUMP_BLOCK_ARRIVING] -
                 op->due[DUE_SURE] - op->due[DUE_MAYBE_EVICTED];
  if (room > 0) (void)bring_missing(w, op, room);
}

/* Returns the condition of memory that is freed by discards after the operation. */
static inline struct awaited discarded(const struct pump_model *m, uint64_t seq,
                                       uint32_t stream) {
  return (struct awaited){
      .after_seq = seq,
      .after_stream = m->streams.discard_stream != 0 ? m->streams.discard_stream : stream};
}

/* Handles the operation at index `i`. Returns false when the walk ends. */
static bool step(struct walk *w, uint32_t i) {
  struct pump_model *m = w->m;
  const struct op *op = &m->window.ops[i];
  if (op->larger && !op->executed) {
    fill_up(w, op);
    return false;
  }
  if (op->due[DUE_AWAY] + op->due[DUE_MAYBE_EVICTED] > 0 &&
      !bring_missing(w, op, INT64_MAX))
    return false;
  if (!take_newest_room(w, op, m->window.allocates_blocks[i])) return false;
  add_room(w, (struct room){.blocks = m->window.frees_blocks[i],
                            .awaited = discarded(m, op->seq, op->stream)});
  return true;
}

/* Evicts the `over` blocks above the budget, before anything else. */
static void push_out(struct walk *w, int64_t over) {
  while (over > 0) {
    uint32_t gone = choose_departures(w, 0, (uint32_t)over);
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
static void begin(struct walk *w) {
  const struct device *device = &w->m->devices[w->device];
  int64_t free = device->facts.budget - model_occupied(device);
  int64_t leaving = device->counts[PUMP_BLOCK_LEAVING];
  int64_t discarding = device->counts[PUMP_BLOCK_DISCARDING];
  w->left_bytes = device->left_bytes + device->leaving_bytes;
  w->ended_bytes = device->ended_bytes + device->arriving_bytes;
  push_out(w, -(free + leaving));
  w->paced = !knows_larger(w->m);
  add_room(w, (struct room){.blocks = free});
  int64_t owed = free < 0 ? -free : 0;
  struct awaited owed_left = {.left_bytes =
                                  device->left_bytes + (uint64_t)owed * PUMP_BLOCK_BYTES};
  struct awaited end =
      discarded(w->m, device->discarding_seq, w->m->streams.discard_stream);
  if (owed > leaving) owed = leaving;
  add_room(w, (struct room){.blocks = discarding, .awaited = end});
  add_room(w, (struct room){.blocks = leaving - owed,
                            .awaited = owed_left,
                            .step_bytes = PUMP_BLOCK_BYTES});
}

/* Walks over the known operations up to position `end`. */
static void walk_over(struct walk *w, int64_t end) {
  const struct pump_model *m = w->m;
  for (w->at = m->window.op_tail; w->at < end; w->at++) {
    uint32_t i = op_index(w->at);
    if ((int64_t)m->window.ops[i].seq >= w->horizon) return;
    w->behind += walk_takes(w, w->at);
    while (w->ran < w->at && w->behind - w->takes >= REACH_BLOCKS) walk_count_executed(w);
    if (m->window.op_device[i] == w->device && !step(w, i)) return;
  }
  w->ended = false;
}

/* Evicts blocks without a known use, so that memory for unannounced needs is free. */
static void keep_spare(struct walk *w) {
  const struct device *device = &w->m->devices[w->device];
  int64_t wanted = device->facts.budget * w->m->bounds.spare_percent / 100;
  int64_t above = -device->facts.budget;
  for (uint32_t state = PUMP_BLOCK_ABSENT; state < PUMP_BLOCK_STATES; state++)
    above += device->counts[state];
  if (wanted > above) wanted = above;
  for (uint32_t i = w->rooms_taken; i < w->rooms_made; i++) wanted -= w->rooms[i].blocks;
  struct awaited awaited = {0};
  while (wanted > 0) {
    int32_t there = walk_look_there(w, 0);
    if (there == NONE || w->m->blocks.all[there].next_use != PUMP_NOT_NEEDED) return;
    uint32_t gone = list_departures(w, walk_take_there(w, (uint32_t)wanted), &awaited);
    if (gone == 0) return;
    wanted -= gone;
  }
}

void schedule_make(struct pump_model *m, uint32_t device, uint64_t until_seq,
                   struct schedule_lists *out) {
  static struct walk walk; /* too large for a stack; not thread-safe */
  static struct schedule_entry nothing = {.blocks = INT32_MAX};
  struct walk *w = &walk;
  w->m = m;
  w->device = device;
  for (int way = 0; way < PUMP_DIRECTIONS; way++)
    w->lists[way] =
        (struct slice_list){.newest = &nothing,
                            .next = out->entries[way],
                            .measured = model_slice(m, &m->devices[device], way),
                            .slices_left = PUMP_SCHEDULE_ENTRIES,
                            .blocks_left = REACH_BLOCKS};
  w->rooms_taken = w->rooms_made = w->spent_count = 0;
  w->at = w->ran = m->window.op_tail;
  w->behind = 0;
  w->horizon = PUMP_NOT_NEEDED;
  w->idle = model_next_idle(m, device, NONE);
  w->there = NONE;
  w->staying = false;
  w->paced = w->full = false;
  w->step_bytes = 0;
  w->short_of_room = false;
  w->waiting = 0;
  w->ended = true;
  w->takes = walk_takes(w, w->ran);
  walk_look_at_later(w, m->window.op_head - 1);
  int64_t known = m->window.op_issued + (int64_t)(until_seq - m->window.added_seq);
  begin(w);
  walk_over(w, known < m->window.op_head ? known : m->window.op_head);
  w->paced = false;
  if (!w->ended) keep_spare(w);
  for (int way = 0; way < PUMP_DIRECTIONS; way++)
    out->count[way] = PUMP_SCHEDULE_ENTRIES - w->lists[way].slices_left;
  out->short_of_ops = !w->ended;
  out->short_of_room = w->short_of_room;
  walk_ready_first(m, out->entries[PUMP_TO_HOST], out->count[PUMP_TO_HOST]);
}
