/* schedule_planner.h - the planner's state; see the DESIGN of schedule.c. */
#ifndef PUMP_SCHEDULE_PLANNER_H
#define PUMP_SCHEDULE_PLANNER_H

#include "schedule.h"

/* Entries of free memory: one per operation, three initially [derived]. */
#define FREE_ENTRIES (OPS + 3)
/* Most listed blocks that leave only after an operation [measured: 0047]. */
#define WAITING_BLOCKS 128

/* Conditions of a transfer: an operation has executed (0: none), bytes have left. */
struct awaited {
  uint64_t after_seq, left_bytes;
  uint32_t after_stream;
};

/* Free memory, in blocks, and the condition that makes it available. */
struct free_memory {
  int64_t blocks;
  struct awaited awaited;
  uint64_t step_bytes; /* added to left_bytes for each block that is taken */
};

/* An operation that counts as executed, and its next use to examine. */
struct releasable {
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

struct planner {
  struct pump_model *m;
  uint32_t device;
  struct slice_list lists[PUMP_DIRECTIONS];
  struct free_memory free[FREE_ENTRIES];
  uint32_t free_taken, free_made;
  uint64_t left_bytes;  /* the device's left_bytes once all departures have left */
  uint64_t ended_bytes; /* the device's ended_bytes once all arrivals have ended */
  uint64_t step_bytes;  /* size of the arrival that gets a departing block's memory */
  int64_t horizon;      /* first operation that uses a departed block */
  struct releasable releasable[OPS];
  uint32_t releasable_count;
  int64_t at, ran;         /* current position; first one that does not count as executed */
  int64_t taken_since_ran; /* blocks of memory taken by operations from `ran` to `at` */
  int64_t takes;           /* blocks of memory taken by operation `ran` */
  int32_t idle;            /* next idle candidate */
  /* Operation to search after the idle blocks, and the end of its unexamined uses. */
  int64_t later, later_use;
  bool staying;         /* last search: staying blocks of predicted operations */
  int32_t resident;     /* next candidate that may leave at once; NONE: not searched yet */
  bool ended;           /* the plan ended before the known operations */
  bool paced;           /* departures wait for arrivals */
  bool full;            /* the list of departures is full */
  bool short_of_memory; /* no block may leave for a needed one */
  uint32_t waiting;     /* listed blocks that leave after an operation */
};

/* Begins a run with that block. Limits `*most` to the rest of the block's range. */
static inline struct run planner_begin_run(const struct pump_model *m, int32_t block,
                                           int32_t step, uint32_t *most) {
  uint32_t slot = m->blocks.all[block].slot;
  const struct range *range = &m->ranges.all[slot];
  int32_t index = block - range->first_block;
  uint32_t left = (uint32_t)(step > 0 ? range->blocks - index : index + 1);
  if (left < *most) *most = left;
  return (struct run){.block = block, .step = step, .count = 1, .slot = slot};
}

/* Returns whether slices with either block have the same maximum length. */
static inline bool planner_same_slice(const struct planner *p, int32_t block,
                                      int32_t other) {
  const struct block *all = p->m->blocks.all;
  return !p->m->duplicates || all[block].clean == all[other].clean;
}

/* Returns how many blocks of memory the operation at that position takes. */
static inline int64_t planner_blocks_taken(const struct planner *p, int64_t at) {
  uint32_t i = op_index(at);
  return p->m->window.op_device[i] == p->device
             ? p->m->window.away[i] + p->m->window.allocates_blocks[i]
             : 0;
}

/* ---- eviction candidates (schedule_evictions.c) ---- */

/* Sets `later` to the last operation up to position `from` with blocks that may leave. */
void planner_begin_search(struct planner *p, int64_t from);
/* Returns the candidate for immediate eviction with the latest next use, or NONE. If that
 * use is not after `need`, also searches the staying blocks. */
int32_t planner_find_resident(struct planner *p, int64_t need);
/* Takes that block and adjacent blocks with the same next use, at most `most`. */
struct run planner_take_resident(struct planner *p, uint32_t most);
/* Counts one more operation as executed. */
void planner_assume_executed(struct planner *p);
/* Returns a block with the latest next use among the blocks of operations that count as
 * executed, or NONE if that use is not after `need`. */
int32_t planner_find_releasable(struct planner *p, int64_t need);
/* Takes that block and the following ones with the same next use, at most `most`. */
struct run planner_take_releasable(struct planner *p, int32_t block, uint32_t most);
/* Sorts departures for executors, which take entries from the front. Entries that may
 * start at once come first, the others in the order in which operations execute. Arrivals
 * wait for amounts of memory, so their conditions stay valid. */
void planner_sort_ready_first(const struct pump_model *m, struct schedule_entry *entries,
                              uint32_t count);

#endif
