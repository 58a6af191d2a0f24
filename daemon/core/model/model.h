/* model.h - the worker's state of one client: ranges, blocks, the window of issued
 * operations, transfers in flight (for Python and for the simulator).
 *
 * Input: batches and progress. Calls no driver, reads no clock, accesses no mapping and
 * decides nothing: schedules (daemon/core/schedule) are made from it. The driver does not
 * report a block's real location, so the model derives states from the requested
 * transfers and the executed operations.
 *
 * States of a block:
 *
 *   ABSENT, HOST --start--> ARRIVING --finish--> RESIDENT --start--> LEAVING --> HOST
 *        \________________ an operation faulted __/  \--driver may evict--> MAYBE_EVICTED
 *
 * and with a discard after its last use:
 *
 *   RESIDENT --last use executed--> DISCARDING --> ABSENT
 *
 * Not thread-safe. See the DESIGN block of model_blocks.c.
 */
#ifndef PUMP_MODEL_H
#define PUMP_MODEL_H

#include "daemon/core/predict/learner.h"
#include "daemon/core/pump_core.h"

/* cffi: begin */

/* Limits the batches of one tick, so that a flood of events does not delay decisions
 * [guessed]. */
#define PUMP_BATCHES_AT_ONCE 8

/* States of a block. */
#define PUMP_BLOCK_FREE 0
#define PUMP_BLOCK_ABSENT 1 /* never populated */
#define PUMP_BLOCK_HOST 2
#define PUMP_BLOCK_ARRIVING 3
#define PUMP_BLOCK_RESIDENT 4
#define PUMP_BLOCK_LEAVING 5
#define PUMP_BLOCK_MAYBE_EVICTED 6 /* the driver may have evicted it */
#define PUMP_BLOCK_DISCARDING 7    /* its discard is in flight: it must not move */
#define PUMP_BLOCK_STATES 8

/* next_use of a block that no operation of the window uses: after all operations
 * [derived]. */
#define PUMP_NOT_NEEDED 0x3fffffffffffffff

/* Bound of the listed, taken and running transfers of a client [guessed]. */
#define PUMP_MAX_IN_FLIGHT 1024

/* Bounds of a model, in blocks unless noted otherwise. */
struct pump_model_bounds {
  uint32_t capacity;         /* tracked blocks, at most 2^24 */
  uint32_t slice_least;      /* lower bound of a slice's adaptive maximum size */
  uint32_t slice_most;       /* upper bound of a slice's adaptive maximum size */
  uint32_t slice_us;         /* target duration of a slice, microseconds */
  uint32_t in_flight;        /* maximum in flight in one direction */
  uint32_t in_flight_share;  /* divisor of the budget: also limits the blocks in flight */
  uint32_t doubts_per_fault; /* blocks that become maybe evicted with each fault */
  uint32_t spare_percent;    /* percent of the budget kept free if not everything fits */
};

/* A device's sizes as reported by the shim, in blocks. */
struct pump_model_device {
  int64_t budget;
  int64_t capacity;  /* blocks that physically fit; beyond this, the driver evicts */
  uint32_t emulated; /* the budget is below the GPU's memory by choice */
};

/* Hits and misses of executed operations, counted for the device of the block. */
struct pump_model_tally {
  uint64_t blocks;    /* block uses, without the first use of a new block */
  uint64_t hit;       /* uses that found the block resident, as far as known */
  uint64_t late;      /* uses during the block's arrival */
  uint64_t unseen;    /* misses despite free memory or an eviction candidate */
  uint64_t no_room;   /* misses while no block could leave, or of `larger` operations */
  uint64_t overshoot; /* peak of blocks above the budget since the last switch */
  uint64_t refused;   /* transfers that executors refused */
  uint64_t least;     /* smallest budget in blocks that holds each executed operation */
};

struct pump_model_totals {
  uint64_t operations;
  uint64_t operations_hit; /* operations that found all blocks resident */
  uint64_t lost;           /* operations retired early because the window was full */
  uint64_t larger;         /* operations too large for the budget */
  uint64_t ranges_untracked;
  uint64_t observed_seq; /* newest operation read */
  uint32_t window_depth; /* operations issued and not retired */
  uint32_t in_flight;    /* transfers in flight */
  uint32_t ranges;
  uint32_t expected;  /* operations expected after the window */
  uint64_t predicted; /* operations expected with exactly the blocks that they used */
  uint64_t predictions_lost; /* times that expected operations were dropped */
  uint64_t schedules;        /* schedules put in force */
  uint64_t trials;           /* duplicates that have left or lost their contents */
  uint64_t trials_wrong;     /* trials whose block was written or lost its contents */
  uint64_t in_place_bytes;   /* bytes of the ranges that kernels read in place */
  uint64_t in_place_bytes_peak;
  uint32_t trials_ended; /* devices without duplicates, because these arrived too late */
  /* Recent share of operations that were predicted with confidence; 0: no learner. */
  double confidence;
};

/* Finished slices of schedules, as columns, for a recorder, which sets `count` to 0 after
 * reading them. Times in us, as in struct pump_entry_end; values from the client are
 * unchecked. */
struct pump_slices {
  uint32_t count;
  uint32_t lost; /* slices that did not fit */
  uint64_t ended_ns[4096];
  uint64_t offset_bytes[4096]; /* from the range's base */
  uint64_t bytes[4096];
  uint32_t slot[4096];
  uint32_t generation[4096];
  uint32_t waited_us[4096];
  uint32_t called_us[4096];
  uint32_t driver_us[4096];
  uint32_t link_us[4096];
  uint32_t seen_us[4096]; /* from the slice's end until the worker read it */
  uint32_t kept[4096];
  uint8_t device[4096];
  uint8_t direction[4096];
  uint8_t result[4096];
};

/* Block and range as they appear in reports. */
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

/* Returns a new model; NULL if memory is short or a bound is invalid. */
struct pump_model *pump_model_new(const struct pump_model_bounds *bounds);
void pump_model_delete(struct pump_model *model);

/* ---- input ---- */

/* Adds or updates a device. Ranges on unknown devices are tracked, too. */
void pump_model_device(struct pump_model *model, uint32_t device,
                       const struct pump_model_device *facts);

/* Applies the rows of a batch in order. Estimates how many bytes each kernel uses after
 * each of its pointers and writes them to batch->length_bytes (0: unused). */
void pump_model_ingest(struct pump_model *model, struct pump_batch *batch);

/* Replaces the known ranges by `ranges`, at the start and after lost events. `slots[i]`,
 * ascending, is the slot of ranges[i]. Ranges that are known already keep their state.
 * Operations up to `newest_seq` count as observed, because no event will report them. */
void pump_model_resync(struct pump_model *model, uint32_t count, const uint32_t *slots,
                       const struct pump_range *ranges, uint64_t newest_seq);

/* Retires the whole window: it is unknown which of its operations have executed. */
void pump_model_forget_window(struct pump_model *model);

/* Retires executed operations. Word `stream * stride` of `executed_seq` is the stream's
 * newest executed operation. Absent blocks that they used count as fetched by faults. */
void pump_model_progress(struct pump_model *model, const uint64_t *executed_seq,
                         uint32_t stride);
/* Guesses which operations of running graphs have executed at `now_ns`. Call it after
 * pump_model_progress, with the same `executed_seq`. */
void pump_model_graphs(struct pump_model *model, const uint64_t *executed_seq,
                       uint32_t stride, uint64_t now_ns);

/* ---- expected operations ---- */

/* Appends an expected operation, after the issued and expected ones. The view shows it
 * like an operation of the window, under its future number. The next issued operation
 * replaces the expected one if it uses the same blocks on the same stream, or if the
 * learner predicted it. Otherwise all expected operations are dropped. Returns 0, or
 * -ENOSPC when the window is full. */
int pump_model_expect(struct pump_model *model, uint32_t stream,
                      const struct pump_access *accesses, uint32_t count);
void pump_model_expect_nothing(struct pump_model *model);

#define PUMP_LEARN_NOTHING 0
#define PUMP_LEARN 1
#define PUMP_LEARN_AND_KEEP 2 /* keep a log for another run of the program */

/* Starts or stops learning the repeated operations (learner.h). Returns 0, or -ENOMEM:
 * nothing is learned and the caller may try again. */
int pump_model_learn(struct pump_model *model, uint32_t wanted);
/* Returns the learner's log in `event_log`, empty if no log is kept. It belongs to the
 * model and is valid until the model's next call. */
void pump_model_kept(const struct pump_model *model, struct pump_learner_log *event_log);
/* Puts an earlier run's log before the learner's own history, which requires that this
 * run's log is kept. Returns 0, or -ENOMEM: the caller may try again. */
int pump_model_recall(struct pump_model *model, const struct pump_learner_log *event_log);
/* Selects whether schedules have arrivals, as at the start. Without arrivals, faults bring
 * blocks, and schedules list only departures above an emulated budget. Voids the schedules
 * in force. */
void pump_model_schedule(struct pump_model *model, uint32_t arrivals);
/* Selects whether schedules duplicate blocks that were not written in earlier rounds.
 * These blocks leave without a copy (docs/decisions/0051-read-duplication.md). */
void pump_model_duplicate(struct pump_model *model, uint32_t wanted);
/* Ranges that kernels read in place on the host (docs/sparse.md): none; those for which a
 * trial was faster; all of which operations lack much. */
#define PUMP_IN_PLACE_OFF 0
#define PUMP_IN_PLACE_AUTO 1
#define PUMP_IN_PLACE_ALWAYS 2
/* Selects them: PUMP_IN_PLACE_*. Ranges that are already read in place remain so. */
void pump_model_read_in_place(struct pump_model *model, uint32_t mode);
/* Most operations that a worker's step predicts, so that it stays short [guessed]. */
#define PUMP_PREDICT_AT_ONCE 128
/* Expects up to `most` more predicted operations; returns how many. Expects none for two
 * iterations after an operation that used much more memory than its record names. */
uint32_t pump_model_predict(struct pump_model *model, uint32_t most);

/* ---- lost time ---- */

/* Error of the replay, in percent of the lost time [guessed]. */
#define PUMP_LOST_PERCENT 8

/* Time that the program lost to waits of the GPU for memory, out of `of_ns` since its
 * first operation: likely, least, most. of_ns 0: unknown. */
struct pump_lost {
  uint64_t of_ns, likely_ns, least_ns, most_ns;
  uint64_t delayed_ns; /* part of likely_ns in which the program waited for a CPU core */
};
/* Starts to track times. Returns 0, or -ENOMEM. */
int pump_model_time(struct pump_model *model);
/* Sets the time of the next reports. */
void pump_model_now(struct pump_model *model, uint64_t now_ns);
/* Reports that the process was stopped: this time is not lost to memory. */
void pump_model_stopped(struct pump_model *model, uint64_t began_ns, uint64_t ended_ns);
/* Reports that the client's issuing threads have waited `sum_ns` for a CPU core until
 * `at_ns`. The job itself caused at least `share` of this time. */
void pump_model_delayed(struct pump_model *model, uint64_t at_ns, uint64_t sum_ns,
                        double share);
/* Computes the lost time. `neighbours`: the maximum number of other processes that
 * compute on the GPUs. */
void pump_model_lost(struct pump_model *model, uint32_t neighbours, struct pump_lost *lost);

/* ---- reports ---- */

/* Call once per tick, after reading. If the next operation with missing blocks is larger
 * than the budget, its resident blocks are prefetched again together with the missing
 * ones. */
void pump_model_turn(struct pump_model *model, uint32_t device);

/* Notes a change of policy or budget: earlier shortages are void and the overshoot
 * restarts. Until the device has been within its budget once, overshoot counts from the
 * lowest occupancy since the change. */
void pump_model_switched(struct pump_model *model);

void pump_model_totals(const struct pump_model *model, struct pump_model_totals *totals);
void pump_model_tally(const struct pump_model *model, uint32_t device,
                      struct pump_model_tally *tally);

/* Returns 0, or -EINVAL for a block number out of bounds. */
int pump_model_block(const struct pump_model *model, int64_t block,
                     struct pump_block_info *info);
/* Returns 0, or -ENOENT when no range is tracked in that slot. */
int pump_model_range(const struct pump_model *model, uint32_t slot,
                     struct pump_range_blocks *range);
/* Fills `counts` with the blocks of `device` in each of the PUMP_BLOCK_STATES states. */
void pump_model_counts(const struct pump_model *model, uint32_t device, int64_t *counts);

/* ---- a worker's steps over mapping and model (worker_step.c) ---- */

/* Waits like pump_core_wait, but returns 1 early while the progress of a graph is
 * guessed. */
int pump_worker_wait(struct pump_shm *shm, const struct pump_model *model,
                     uint64_t seen_activity, uint64_t spin_ns, uint64_t timeout_ns);

/* Drains the ring into `batch` and applies it, several times in a flood. Returns the
 * number of rows, or -EPROTO like pump_core_drain. */
int pump_worker_read(struct pump_shm *shm, struct pump_model *model,
                     struct pump_batch *batch);

/* Reads progress and the ends of entries of every known device, then renews the schedules
 * that need it. */
void pump_worker_follow(struct pump_shm *shm, struct pump_model *model);

/* Puts a new schedule in force for the device. */
void pump_worker_schedule(struct pump_shm *shm, struct pump_model *model, uint32_t device);
/* Starts to record the ends of slices in `slices`, the caller's memory; NULL stops it. */
void pump_worker_record(struct pump_model *model, struct pump_slices *slices);
/* Withdraws all schedules that are in force. */
void pump_worker_withdraw(struct pump_shm *shm, struct pump_model *model);

/* cffi: end */

#endif
