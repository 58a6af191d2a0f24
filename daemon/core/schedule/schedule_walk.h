/* schedule_walk.h - the state of the walk; see the DESIGN of schedule.c. */
#ifndef PUMP_SCHEDULE_WALK_H
#define PUMP_SCHEDULE_WALK_H

#include "schedule.h"

#define ROOMS (OPS + 3)    /* one behind each operation, three at the beginning */
#define WAITING_BLOCKS 128 /* listed to leave once an operation has executed */

/* What a transfer has to wait for: an operation has executed (0: none), so much has left.
 */
struct awaited {
  uint64_t after_seq, left_bytes;
  uint32_t after_stream;
};

/* Room for so many blocks, and what brings it. */
struct room {
  int64_t blocks;
  struct awaited awaited;
  uint64_t step_bytes; /* so much more has to leave for each block that is taken */
};

/* An operation that counts as executed, and which of its uses is examined next. */
struct spent {
  int64_t again_seq; /* when most of what it used is needed again; a heap by that */
  uint32_t op, use;
};

/* Consecutive blocks of one range, in the order in which they go. */
struct run {
  int32_t block, step; /* the first of them; 1 or -1 */
  uint32_t count, slot;
};

/* The list of one direction while it is written: the newest slice (at first one that
 * nothing continues), where the next one is written, the most blocks of a slice (now, and
 * as it was measured), and the places left. */
struct slice_list {
  struct schedule_entry *newest, *next;
  uint32_t slice, measured, slices_left, blocks_left;
};

struct walk {
  struct pump_model *m;
  uint32_t device;
  struct slice_list lists[PUMP_DIRECTIONS];
  struct room rooms[ROOMS];
  uint32_t rooms_taken, rooms_made;
  uint64_t left_bytes;  /* once all that leaves so far has left */
  uint64_t ended_bytes; /* once all that comes so far has ended, */
  uint64_t step_bytes;  /* and so much more for each block that leaves at present */
  int64_t horizon;      /* the first operation that uses what has left */
  struct spent spent[OPS];
  uint32_t spent_count;
  int64_t at, ran; /* operations: that of the walk; the first that does not count as
                      executed yet, */
  int64_t behind;  /* and the room that is taken from there on; */
  int64_t takes;   /* what that one takes of it */
  int32_t idle;    /* next of the idle ones; behind them those of operation `later`, */
  int64_t later, later_use; /* of which uses up to this one have not been examined */
  bool staying;             /* at last those that stay, which predicted ones need */
  int32_t there;            /* the next that may go at once, NONE: not searched yet */
  bool ended;               /* before operations did */
  bool paced;               /* what leaves waits for what comes */
  bool full;                /* there is no place for more that leaves */
  bool short_of_room;       /* no block may leave for one that is needed */
  uint32_t waiting;         /* blocks among those that leave that wait for an operation */
};

/* Begins a run with that block; `*most` becomes at most the blocks that its range has from
 * there on. */
static inline struct run walk_begin_run(const struct pump_model *m, int32_t block,
                                        int32_t step, uint32_t *most) {
  uint32_t slot = m->blocks.all[block].slot;
  const struct range *range = &m->ranges.all[slot];
  int32_t place = block - range->first_block;
  uint32_t there = (uint32_t)(step > 0 ? range->blocks - place : place + 1);
  if (there < *most) *most = there;
  return (struct run){.block = block, .step = step, .count = 1, .slot = slot};
}

/* Whether a slice that has the one of these blocks may be as long with the other. */
static inline bool walk_alike(const struct walk *w, int32_t block, int32_t other) {
  const struct block *all = w->m->blocks.all;
  return !w->m->duplicates || all[block].clean == all[other].clean;
}

/* Room that the operation at that position takes. */
static inline int64_t walk_takes(const struct walk *w, int64_t at) {
  uint32_t i = op_index(at);
  return w->m->window.op_device[i] == w->device
             ? w->m->window.away[i] + w->m->window.allocates_blocks[i]
             : 0;
}

/* ---- what may leave (schedule_leave.c) ---- */

/* The operation from which blocks needed last are searched: none behind that position. */
void walk_look_at_later(struct walk *w, int64_t from);
/* Of the blocks that may go at once for the operation `need`, the one that leaves first, or
 * NONE. */
int32_t walk_look_there(struct walk *w, int64_t need);
/* Takes that block and the ones next to it that are needed at the same time, at most so
 * many. */
struct run walk_take_there(struct walk *w, uint32_t most);
/* Counts one more operation as executed. */
void walk_count_executed(struct walk *w);
/* The block that is needed again last of those that operations counted as executed have
 * used, and only behind `need`; or NONE.
 */
int32_t walk_look_spent(struct walk *w, int64_t need);
/* Takes that block and those behind it that are needed again at the same time, at most so
 * many. */
struct run walk_take_spent(struct walk *w, int32_t block, uint32_t most);
/* What may leave at once stands in front of what waits, and that in the order in which
 * operations execute: an executor takes from the front. Arrivals wait for amounts. */
void walk_ready_first(const struct pump_model *m, struct schedule_entry *entries,
                      uint32_t count);

#endif
