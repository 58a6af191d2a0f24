/* model.h - the state of one client as far as the worker knows it: ranges, blocks, the
 * window of issued operations, transfers under way (for Python, and for the simulator).
 *
 * Fed with batches, progress and outcomes; answers with views. It calls no driver,
 * reads no clock, touches no mapping and decides nothing: policies, in Python, choose
 * from a view what shall move. The driver does not report where a block really is, so all
 * of it follows from the transfers that were requested and the operations that executed.
 *
 * The life of a block
 *
 *   ABSENT, HOST --start--> ARRIVING --finish--> RESIDENT --start--> LEAVING --> HOST
 *        \________________ an operation faulted __/  \--driver may evict--> MAYBE_EVICTED
 *
 *   RESIDENT --used for the last time, its discard under way--> DISCARDING --> ABSENT
 *
 * One thread at a time. See the DESIGN block of model_blocks.c.
 */
#ifndef PUMP_MODEL_H
#define PUMP_MODEL_H

#include "daemon/core/predict/learner.h"
#include "daemon/core/pump_core.h"

/* cffi: begin */

/* Batches read in one tick: a flood must not keep the worker from deciding. */
#define PUMP_BATCHES_AT_ONCE 8

/* Where a block is. */
#define PUMP_BLOCK_FREE 0
#define PUMP_BLOCK_ABSENT 1 /* never populated */
#define PUMP_BLOCK_HOST 2
#define PUMP_BLOCK_ARRIVING 3
#define PUMP_BLOCK_RESIDENT 4
#define PUMP_BLOCK_LEAVING 5
#define PUMP_BLOCK_MAYBE_EVICTED 6 /* the driver may have evicted it since */
#define PUMP_BLOCK_DISCARDING 7    /* closed: it is neither fetched nor sent away */
#define PUMP_BLOCK_STATES 8

/* next_use of a block that the window does not need. */
#define PUMP_NOT_NEEDED 0x3fffffffffffffff

#define PUMP_VIEW_MISSING 128
#define PUMP_VIEW_CANDIDATES 64
#define PUMP_MAX_UNDER_WAY 1024

/* Bounds of a model; all of them count blocks but for the shares. */
struct pump_model_bounds {
  uint32_t capacity;         /* blocks that can be kept track of, at most 2^24 */
  uint32_t slice_least;      /* of one command, at most: adapted between these two, */
  uint32_t slice_most;       /* so that a command takes about slice_us */
  uint32_t slice_us;         /* microseconds */
  uint32_t in_flight;        /* on their way in one direction, at most */
  uint32_t in_flight_share;  /* and never more than the budget over this */
  uint32_t doubts_per_fault; /* blocks that become maybe evicted for each fault */
  uint32_t spare_percent;    /* of the budget, kept free where not everything fits */
};

/* What the shim wrote about a device; sizes in blocks. */
struct pump_model_device {
  int64_t budget;
  int64_t capacity; /* blocks that really fit: beyond, the driver evicts by itself */
};

/* What executed operations met, counted by the device of the block. */
struct pump_model_tally {
  uint64_t blocks;  /* block uses; the first of a block needs nothing and does not count */
  uint64_t hit;     /* of these: resident, as far as is known */
  uint64_t late;    /* on their way */
  uint64_t unseen;  /* came by fault, though there was room */
  uint64_t no_room; /* came by fault while there was no eviction candidate */
  uint64_t overshoot; /* peak of blocks above the budget since the last switch */
  uint64_t refused;   /* transfers that the executors did not carry out */
  uint64_t least;     /* blocks of the least budget that holds each operation so far */
};

struct pump_model_totals {
  uint64_t operations;
  uint64_t operations_hit; /* all blocks were resident */
  uint64_t lost;           /* retired unseen: the window was full */
  uint64_t larger;         /* operations too large for the budget */
  uint64_t ranges_untracked;
  uint64_t observed_seq; /* newest operation that was read */
  uint32_t window_depth; /* operations issued and not retired */
  uint32_t under_way;    /* transfers */
  uint32_t ranges;
  uint32_t expected;  /* operations behind the window */
  uint64_t predicted; /* operations that were expected, with the blocks that they used */
  uint64_t predictions_lost; /* times that what was expected was dropped */
  uint64_t schedules;        /* put in force */
  uint64_t trials;           /* blocks that have left after they were duplicated, */
  uint64_t trials_wrong;     /* and had been written */
  uint32_t trials_ended;     /* devices where duplicates come too late: none any more */
  double confidence; /* of the learner, lately: share of operations, 0 without one */
};

/* One device at one moment. Orders are operation numbers; at most so many of each. */
struct pump_view {
  /* `resident`: those maybe evicted included; `leaving`: those whose discard is under way
   */
  int64_t budget, resident, arriving, leaving;
  int64_t to_gpu_credit, to_host_credit; /* blocks that may be sent at once */
  int64_t faults; /* blocks that came by fault since the last view of the device */
  uint32_t missing_count;
  uint32_t arrivals_count; /* missing ones that take room: the rest is maybe evicted */
  uint32_t missing_more;   /* beyond these, no less if more than there are places for */
  uint32_t candidates_count;
  uint32_t candidates_maybe_evicted; /* how many of them are maybe evicted */
  uint32_t oldest_count;
  uint32_t expected; /* operations behind the window */
  uint32_t reserved;
  /* needed, and not surely there or on their way: nearest to their stream's head first */
  int64_t missing[128];
  int64_t missing_need[128];
  int64_t missing_room[128];  /* that they take up to and including each: one maybe evicted
                                 takes none, its room is counted already */
  int64_t arrivals_need[128]; /* missing_need of those that take room */
  /* may leave: those that nothing needs, as model_next_idle has them; then needed last
   * first */
  int64_t eviction_candidates[64];
  int64_t candidates_next_use[64];
  /* the driver's own order: migrated longest ago first */
  int64_t oldest[64];
  int64_t oldest_next_use[64];
};

/* Slices of schedules that have ended, as columns, for a recorder; it sets `count` to 0
 * once it has read them. Times in us: struct pump_entry_end; what the client wrote is as it
 * is. */
struct pump_slices {
  uint32_t count;
  uint32_t lost; /* ends for which there was no place */
  uint64_t ended_ns[4096];
  uint64_t offset_bytes[4096]; /* from the range's base */
  uint64_t bytes[4096];
  uint32_t slot[4096];
  uint32_t generation[4096];
  uint32_t waited_us[4096];
  uint32_t called_us[4096];
  uint32_t driver_us[4096];
  uint32_t link_us[4096];
  uint32_t seen_us[4096]; /* from its end until the worker read it */
  uint32_t kept[4096];
  uint8_t device[4096];
  uint8_t direction[4096];
  uint8_t result[4096];
};

/* For reports. */
struct pump_block_info {
  uint32_t state, device;
  int64_t next_use, last_use, migrated;
  uint32_t slot, generation;
};
struct pump_range_blocks {
  int64_t first_block, blocks;
  uint32_t generation, device;
};

struct pump_model;

/* NULL when memory is short or a bound makes no sense. */
struct pump_model *pump_model_new(const struct pump_model_bounds *bounds);
void pump_model_delete(struct pump_model *model);

/* ---- what is reported ---- */

/* Makes a device known, or changes it. Ranges on unknown devices are tracked too. */
void pump_model_device(struct pump_model *model, uint32_t device,
                       const struct pump_model_device *facts);

/* Applies the rows of a batch in order. For each kernel the lengths behind its
 * pointers are worked out and written to batch->length_bytes (0: not used at all). */
void pump_model_ingest(struct pump_model *model, struct pump_batch *batch);

/* Makes the ranges those of `ranges` (base 0: not live): at the start, and after a
 * loss. `slots[i]` is the slot of ranges[i]. Ranges that are known stay as they are.
 * No event will report operations up to `newest_seq` that were not read. */
void pump_model_resync(struct pump_model *model, uint32_t count, const uint32_t *slots,
                       const struct pump_range *ranges, uint64_t newest_seq);

/* Drops the operations of the window: it is unknown whether they have executed. */
void pump_model_forget_window(struct pump_model *model);

/* Retires what has executed. Word `stream * stride` of `executed_seq` is the stream's
 * newest executed operation. Blocks that were not there have come by fault. */
void pump_model_progress(struct pump_model *model, const uint64_t *executed_seq,
                         uint32_t stride);
/* Guesses what has executed, at the time given, of graphs that are under way; to be called
 * after pump_model_progress, with the same words. */
void pump_model_graphs(struct pump_model *model, const uint64_t *executed_seq,
                       uint32_t stride, uint64_t now_ns);

/* ---- what is expected ---- */

/* Which blocks of an extent were discarded since they were used: the first, those between,
 * the last. */
#define PUMP_FRESH_FIRST 1
#define PUMP_FRESH 2
#define PUMP_FRESH_LAST 4

struct pump_model_extent {
  uint32_t slot, generation;
  uint64_t offset_bytes, length_bytes;
  uint32_t fresh; /* PUMP_FRESH_* */
  uint32_t reserved;
};

/* Expects an operation behind all that was issued or is expected. The view shows it like
 * those of the window, under the number that it will have. The next operation issued takes
 * its place if it uses the same blocks on the same stream; if not, nothing is
 * expected after it. Returns 0, or -ENOSPC when there is no place for it. */
int pump_model_expect(struct pump_model *model, uint32_t stream,
                      const struct pump_model_extent *extents, uint32_t count);
void pump_model_expect_nothing(struct pump_model *model);

#define PUMP_LEARN_NOTHING 0
#define PUMP_LEARN 1
#define PUMP_LEARN_AND_KEEP 2 /* for another run of the program */

/* Learns what the client repeats (learner.h), or forgets it. -ENOMEM: nothing is learned;
 * the caller may try again. */
int pump_model_learn(struct pump_model *model, uint32_t wanted);
/* What is kept; nothing, where nothing is. It belongs to the model, until its next call. */
void pump_model_kept(const struct pump_model *model, struct pump_learner_story *story);
/* Gives the learner an earlier run for its past, ahead of what it was told so far, which
 * has to be kept. Returns 0; -ENOMEM: not now. */
int pump_model_recall(struct pump_model *model, const struct pump_learner_story *story);
/* Whether the worker makes schedules; otherwise a policy says what moves. */
void pump_model_schedule(struct pump_model *model, uint32_t wanted);
/* Whether schedules duplicate what was not written the times before, so that it leaves
 * without a copy (docs/decisions/0051-read-duplication.md). */
void pump_model_duplicate(struct pump_model *model, uint32_t wanted);
/* Expects what was learned, as far as it goes, at most `most` operations more. Nothing
 * as long as an operation of the program uses much that its record does not name. Returns
 * how many. */
uint32_t pump_model_predict(struct pump_model *model, uint32_t most);

/* ---- the time that is lost ---- */

/* What the repeated run itself may be wrong by
 * (docs/decisions/0057-time-lost-from-samples.md) */
#define PUMP_LOST_PERCENT 8

/* How long the GPU waited for memory and the program lost by that, of `of_ns` since its
 * first operation; at the least, at the most. of_ns 0: nothing is known. */
struct pump_lost {
  uint64_t of_ns, likely_ns, least_ns, most_ns;
  uint64_t delayed_ns; /* that the program waited for a processor, in likely_ns */
};
/* Follows times from now on. 0, or -ENOMEM. */
int pump_model_time(struct pump_model *model);
/* The time of what is reported next. */
void pump_model_now(struct pump_model *model, uint64_t now_ns);
/* The client's process was stopped from then to then: that time is not lost to memory. */
void pump_model_stopped(struct pump_model *model, uint64_t began_ns, uint64_t ended_ns);
/* The client's threads that issue have waited `sum_ns` for a processor, up to then; `share`
 * of it at least because of the job itself. */
void pump_model_delayed(struct pump_model *model, uint64_t at_ns, uint64_t sum_ns,
                        double share);
/* `neighbours`: other processes that may compute on the GPUs, at the most. */
void pump_model_lost(struct pump_model *model, uint32_t neighbours, struct pump_lost *lost);

/* ---- transfers ---- */

/* Turns blocks that a policy chose into commands of consecutive blocks, one slice at most,
 * and counts them as under way; blocks that cannot move are passed over.
 * Fills `commands`; returns how many of at most `max`. */
uint32_t pump_model_start(struct pump_model *model, uint32_t device, uint32_t direction,
                          const int64_t *blocks, uint32_t count,
                          struct pump_command *commands, uint32_t max);

/* Takes the ends of commands; unknown tickets, and those of schedules, are passed over. */
void pump_model_finish(struct pump_model *model, const struct pump_outcome *outcomes,
                       uint32_t count);

/* Commands that could not be handed over count as never started. */
void pump_model_take_back(struct pump_model *model, const struct pump_command *commands,
                          uint32_t count);

/* ---- views ---- */

/* To be called in each tick, after all reading and before any sending. Where an operation
 * that is larger than the budget is next, the blocks of it that are there will be
 * prefetched again, with those that it lacks. */
void pump_model_turn(struct pump_model *model, uint32_t device);
/* Fills the view, for which faults are counted anew. */
void pump_model_view(struct pump_model *model, uint32_t device, struct pump_view *view);

/* The policy or a budget has changed: what the earlier one lacked is void, and
 * the overshoot counts from here on. Blocks that are above the budget at the switch count
 * only after they have left and others have come. */
void pump_model_switched(struct pump_model *model);

void pump_model_totals(const struct pump_model *model, struct pump_model_totals *totals);
void pump_model_tally(const struct pump_model *model, uint32_t device,
                      struct pump_model_tally *tally);

/* 0, or -EINVAL for a block number out of bounds. */
int pump_model_block(const struct pump_model *model, int64_t block,
                     struct pump_block_info *info);
/* 0, or -ENOENT when no range is tracked in that slot. */
int pump_model_range(const struct pump_model *model, uint32_t slot,
                     struct pump_range_blocks *range);
/* How many blocks of `device` are in each state: PUMP_BLOCK_STATES counts. */
void pump_model_counts(const struct pump_model *model, uint32_t device, int64_t *counts);

/* ---- a worker's steps over mapping and model (worker_step.c) ---- */

/* Waits as pump_core_wait does; returns 1 soon where it has to be guessed how far a graph
 * has executed. */
int pump_worker_wait(struct pump_shm *shm, const struct pump_model *model,
                     uint64_t seen_activity, uint64_t spin_ns, uint64_t timeout_ns);

/* Drains the ring into `batch` and applies it, several times in a flood. Returns the
 * number of rows, or -EPROTO as pump_core_drain does. */
int pump_worker_read(struct pump_shm *shm, struct pump_model *model,
                     struct pump_batch *batch);

/* Takes over progress, and the ends of commands and entries of every known device; then
 * renews the schedules that need it. `cursors`: two words a device, 0 at first. */
void pump_worker_follow(struct pump_shm *shm, struct pump_model *model, uint64_t *cursors);

/* Carries out what a policy has decided: makes commands of the blocks and hands them to the
 * executors; what finds no room in the ring is as if never started. */
void pump_worker_carry_out(struct pump_shm *shm, struct pump_model *model, uint32_t device,
                           const int64_t *to_host, uint32_t to_host_count,
                           const int64_t *to_gpu, uint32_t to_gpu_count);

/* Puts a schedule in force for the device, in place of the one before. */
void pump_worker_schedule(struct pump_shm *shm, struct pump_model *model, uint32_t device);
/* The ends of slices are written there, in memory of the caller's, from this call on; NULL:
 * nowhere.
 */
void pump_worker_record(struct pump_model *model, struct pump_slices *slices);
/* Ends all schedules that are in force. */
void pump_worker_withdraw(struct pump_shm *shm, struct pump_model *model);

/* Keeps of these blocks those that are neither there nor on their way; returns how many. */
uint32_t pump_model_away(const struct pump_model *model, int64_t *blocks, uint32_t count);

/* cffi: end */

#endif
