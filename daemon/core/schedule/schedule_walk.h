/* schedule_walk.h - the state of the walk; see the DESIGN of schedule.c. */
#ifndef PUMP_SCHEDULE_WALK_H
#define PUMP_SCHEDULE_WALK_H

#include "schedule.h"

#define ROOMS (OPS + 3)    /* free memory: one entry per operation, three initially */
#define WAITING_BLOCKS 128 /* listed blocks that leave after an operation, at most */

/* Conditions of a transfer: an operation has executed (0: none), bytes have left. */
struct awaited {
  uint64_t after_seq, left_bytes;
  uint32_t after_stream;
};

/* Free memory, in blocks, and the condition that makes it available. */
struct room {
  int64_t blocks;
  struct awaited awaited;
  uint64_t step_bytes; /* added to left_bytes for each block that is taken */
};

/* An operation that counts as executed, and its next use to examine. */
struct spent {
  int64_t again_seq; /* latest next use of its blocks; the heap's order */
  uint32_t op, use;
};

/* Consecutive blocks of one range, in the order in which they move. */
struct run {
  int32_t block, step; /* the first block; 1 or -1 */
  uint32_t count, slot;
};

/* The list of one direction while it is written: the newest slice, the next slot, a
 * slice's maximum of blocks (now; as measured), and the remaining slices and blocks.
 * `newest` is at first a dummy that no block continues. */
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
  uint64_t left_bytes;  /* the device's left_bytes once all departures have left */
  uint64_t ended_bytes; /* the device's ended_bytes once all arrivals have ended */
  uint64_t step_bytes;  /* size of the arrival that each departing block makes room for */
  int64_t horizon;      /* first operation that uses a departed block */
  struct spent spent[OPS];
  uint32_t spent_count;
  int64_t at, ran; /* current position; first one that does not count as executed */
  int64_t behind;  /* blocks of memory taken by operations from `ran` to `at` */
  int64_t takes;   /* blocks of memory taken by operation `ran` */
  int32_t idle;    /* next idle candidate */
  /* Operation to search after the idle blocks, and the end of its unexamined uses. */
  int64_t later, later_use;
  bool staying;       /* last search: staying blocks of predicted operations */
  int32_t there;      /* next candidate that may leave at once; NONE: not searched yet */
  bool ended;         /* the walk ended before the known operations */
  bool paced;         /* departures wait for arrivals */
  bool full;          /* the list of departures is full */
  bool short_of_room; /* no block may leave for a needed one */
  uint32_t waiting;   /* listed blocks that leave after an operation */
};

/* Begins a run with that block. Limits `*most` to the rest of the block's range. */
static inline struct run walk_begin_run(const struct pump_model *m, int32_t block,
                                        int32_t step, uint32_t *most) {
  uint32_t slot = m->blocks.all[block].slot;
  const struct range *range = &m->ranges.all[slot];
  int32_t place = block - range->first_block;
  uint32_t there = (uint32_t)(step > 0 ? range->blocks - place : place + 1);
  if (there < *most) *most = there;
  return (struct run){.block = block, .step = step, .count = 1, .slot = slot};
}

/* Returns whether slices with either block have the same maximum length. */
static inline bool walk_alike(const struct walk *w, int32_t block, int32_t other) {
  const struct block *all = w->m->blocks.all;
  return !w->m->duplicates || all[block].clean == all[other].clean;
}

/* Returns how many blocks of memory the operation at that position takes. */
static inline int64_t walk_takes(const struct walk *w, int64_t at) {
  uint32_t i = op_index(at);
  return w->m->window.op_device[i] == w->device
             ? w->m->window.away[i] + w->m->window.allocates_blocks[i]
             : 0;
}

/* ---- eviction candidates (schedule_leave.c) ---- */

/* Sets `later` to the last operation up to position `from` with blocks that may leave. */
void walk_look_at_later(struct walk *w, int64_t from);
/* Returns the candidate for immediate eviction with the latest next use, or NONE. If that
 * use is not after `need`, also searches the staying blocks. */
int32_t walk_look_there(struct walk *w, int64_t need);
/* Takes that block and adjacent blocks with the same next use, at most `most`. */
struct run walk_take_there(struct walk *w, uint32_t most);
/* Counts one more operation as executed. */
void walk_count_executed(struct walk *w);
/* Returns a block with the latest next use among the blocks of operations that count as
 * executed, or NONE if that use is not after `need`. */
int32_t walk_look_spent(struct walk *w, int64_t need);
/* Takes that block and the following ones with the same next use, at most `most`. */
struct run walk_take_spent(struct walk *w, int32_t block, uint32_t most);
/* Sorts departures for executors, which take entries from the front. Entries that may
 * start at once come first, the others in the order in which operations execute. Arrivals
 * wait for amounts of memory, so their conditions stay valid. */
void walk_ready_first(const struct pump_model *m, struct schedule_entry *entries,
                      uint32_t count);

#endif
