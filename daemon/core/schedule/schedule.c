/* schedule.c - a device's schedule: what moves next, and what it waits for
 * (docs/schedule.md).
 *
 * DESIGN. The walk goes over the operations in order, with the room that each takes and
 * gives back. Room is used in the order in which it is known to come: what is free, what
 * discards under way give back, what is leaving already, what discards behind operations
 * give back. Each block that an operation lacks takes room for one and waits for what
 * brings it. Where no room is left, a block leaves: the one that is needed last,
 *
 *   - of those that are there and not needed before: they may leave at once, and
 *   - of those that operations of the walk use: they may leave once these have executed.
 *
 * It has to be needed half as far behind what comes as that is ahead (later_than). One that
 * is needed hardly later would only have to come back instead: a later schedule, which has
 * what is needed last to choose from, moves less.
 *
 * An operation counts as executed for that once REACH_BLOCKS of room have been taken behind
 * it, as much as the list of arrivals holds: what waits for a later one would not be on its
 * way in time. Where no block may leave by this rule, the next operations count as
 * executed, until one of their blocks may.
 *
 * The walk ends where nothing may leave for what comes in, where a block is used that has
 * left in the course of it, and behind an operation that is too large for the budget. Where
 * the list of arrivals is full it goes on for room alone. Predicted operations do not count
 * where one of them will reach what does not exist yet: it is unknown what room that takes.
 *
 * What leaves is paced: it waits until what is listed to come in front of what takes its
 * room has ended, but for PACE_BYTES. What left earlier would be idle memory until arrivals
 * catch up. None waits in a circle: what comes in front waits for less than leaves in
 * front. Behind an arrival that waits for an operation nothing is paced, nor for what is
 * not listed: there the program is behind, not the link, and departures use the time. Nor
 * in front of an operation larger than the budget: what faults bring takes room, too.
 *
 * What is discarded in the course of it and written anew later takes room as well: the
 * newest there is. It cannot come before its discard, so that is mostly its own room, and
 * room that comes sooner is left to other blocks.
 *
 * A worker makes many schedules, so it goes by runs: consecutive blocks that are lacked by
 * the same operation, or needed again by the same one, follow each other in the tables, and
 * what holds for a block here holds for all of a run. What comes out is what would come out
 * block by block (tests/support/schedule_by_blocks.py).
 */
#include "schedule_walk.h"

#define REACH_BLOCKS 512 /* in each direction: 1 GiB */
#define PACE_BYTES (96ull << 20)
#define CLEAN_SLICE 8 /* blocks, at least, of a slice of duplicates */

/* ---- slices ------------------------------------------------------------------------ */

/* How long slices are from this run on. One of duplicates costs a call of advice, which all
 * migrations wait for: its measured time, that wait included, would make slices short. */
static inline void set_slice(struct walk *w, uint32_t way, const struct run *run) {
  struct slice_list *list = &w->lists[way];
  bool clean = w->m->duplicates && w->m->blocks.all[run->block].clean;
  list->slice = clean && list->measured < CLEAN_SLICE ? CLEAN_SLICE : list->measured;
}

/* How many blocks may be added to the newest slice (`with`), or make a new one; 0: the list
 * is full. */
static inline uint32_t places(const struct slice_list *list, bool with) {
  uint32_t most = list->slice;
  if (with)
    most -= (uint32_t)list->newest->blocks;
  else if (list->slices_left == 0)
    return 0;
  return most < list->blocks_left ? most : list->blocks_left;
}

/* Moves the first `count` blocks of the run to the newest slice (`with`), or to a new one.
 */
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

/* ---- room -------------------------------------------------------------------------- */

static void add_room(struct walk *w, struct room room) {
  if (w->rooms_taken == w->rooms_made) w->rooms_taken = w->rooms_made = 0;
  if (room.blocks > 0) w->rooms[w->rooms_made++] = room;
}

/* What has to have ended before a block leaves: arrivals that are listed in front of what
 * takes its room, but for PACE_BYTES. Those of `blocks` blocks are about to be. */
static inline uint64_t pace(const struct walk *w, uint32_t blocks) {
  uint64_t ended_bytes = w->ended_bytes + blocks * w->step_bytes;
  return w->paced && ended_bytes > PACE_BYTES ? ended_bytes - PACE_BYTES : 0;
}

/* Whether the run continues the slice that leaves just before. */
static inline bool leaves_with(const struct slice_list *list, const struct run *run,
                               const struct awaited *awaited) {
  const struct schedule_entry *last = list->newest;
  bool near =
      run->block == last->first_block - 1 || run->block == last->first_block + last->blocks;
  return near && last->slot == run->slot && last->after_seq == awaited->after_seq &&
         (uint32_t)last->blocks < list->slice;
}

/* Lists the run's departure, as far as there are places; returns how many of its blocks
 * leave. Of blocks that wait for an operation only the first WAITING_BLOCKS are listed: the
 * others leave too, and a later schedule lists them.
 */
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

/* The operation behind which a block has to be needed that leaves for what `need` lacks. */
static inline int64_t later_than(const struct pump_model *m, int64_t need) {
  int64_t first = (int64_t)m->window.ops[op_index(m->window.op_tail)].seq;
  return need > first ? need + (need - first) / 2 : need;
}

/* Chooses blocks that leave for what the operation `need` lacks, at most `most` of them.
 * Returns how many; 0: none may. */
static uint32_t choose_departures(struct walk *w, int64_t need, uint32_t most) {
  struct pump_model *m = w->m;
  if (w->full) return 0;
  int64_t least = later_than(m, need);
  int32_t there = walk_look_there(w, least), spent = NONE;
  int64_t there_next = there == NONE ? 0 : m->blocks.all[there].next_use;
  /* Looked for only if it may be needed later than the block that is there. */
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

/* Takes blocks of that room. Neither the first room of the list nor the last is empty
 * afterwards. */
static inline void use_up(struct walk *w, struct room *room, uint32_t blocks) {
  room->blocks -= blocks;
  if (room->blocks > 0) return;
  while (w->rooms_taken < w->rooms_made && w->rooms[w->rooms_made - 1].blocks == 0)
    w->rooms_made--;
  while (w->rooms_taken < w->rooms_made && w->rooms[w->rooms_taken].blocks == 0)
    w->rooms_taken++;
}

/* Takes room for blocks that come for the operation `need`, at most `most` of them;
 * `*awaited`: what they wait for. Returns for how many; 0: there is none. */
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

/* Takes room for what the operation writes anew: the newest there is, mostly what the
 * discard of the same blocks gives back. False where there is none. */
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

/* Whether the run continues the slice that comes just before. */
static inline bool comes_with(const struct slice_list *list, const struct run *run,
                              int64_t need) {
  const struct schedule_entry *last = list->newest;
  return run->block == last->first_block + last->blocks && last->need == need &&
         last->slot == run->slot && (uint32_t)last->blocks < list->slice;
}

/* Lists the run's arrival for that operation; false where the walk ends. Where the list is
 * full, room is taken all the same, so that blocks leave for what a later schedule brings.
 */
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
    /* One slice waits for operations of one stream. */
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

/* How many uses from this one on are due and of that kind; of one word at most. */
static inline uint32_t due_run(const struct pump_model *m, uint32_t kind, int32_t use) {
  uint64_t others = ~m->window.due_uses[use >> 6][kind] >> (use & 63);
  return others == 0 ? 64u - (uint32_t)(use & 63) : (uint32_t)__builtin_ctzll(others);
}

/* Lists the arrival of what the operation lacks, in the order in which it uses it, at most
 * `room` blocks that take room. False where the walk ends. */
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

/* An operation that is larger than the budget is filled up to it, and the rest of it left
 * to faults; the walk ends there. */
static void fill_up(struct walk *w, const struct op *op) {
  const struct device *device = &w->m->devices[w->device];
  int64_t room = device->facts.budget - device->counts[PUMP_BLOCK_ARRIVING] -
                 op->due[DUE_SURE] - op->due[DUE_MAYBE_EVICTED];
  if (room > 0) (void)bring_missing(w, op, room);
}

/* What waits for the discards behind the operation. */
static inline struct awaited discarded(const struct pump_model *m, uint64_t seq,
                                       uint32_t stream) {
  return (struct awaited){
      .after_seq = seq,
      .after_stream = m->streams.discard_stream != 0 ? m->streams.discard_stream : stream};
}

/* False where the walk ends. */
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

/* The blocks above the budget leave first, `over` of them. */
static void push_out(struct walk *w, int64_t over) {
  while (over > 0) {
    uint32_t gone = choose_departures(w, 0, (uint32_t)over);
    if (gone == 0) return;
    over -= gone;
  }
}

/* Whether an operation that is larger than the budget lies ahead. */
static bool knows_larger(const struct pump_model *m) {
  for (int64_t at = m->window.op_tail; at < m->window.op_head; at++) {
    const struct op *op = &m->window.ops[op_index(at)];
    if (op->larger && !op->executed) return true;
  }
  return false;
}

/* Adds the room that there is at the beginning. */
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

/* Walks over the known operations, up to position `end`. */
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

/* Spare room for what nothing has announced: blocks that no known operation needs leave. */
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
  static struct walk walk; /* one thread at a time, and too large for a stack */
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
