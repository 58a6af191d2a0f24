/* sim.h - a program, pump and a GPU, on a virtual clock (for Python: lab/pump_lab/sim).
 *
 * Joins the model of the GPU (gpu_engine.h) and the model of the client (model.h).
 * Between them it simulates the program's thread with its launch queue and waits,
 * markers, the worker's latency and the executors. Under a studied policy that decides
 * itself, pump_sim_run() stops before each decision. Python then reads the view
 * (pump_sim_view), asks the policy and applies its answer (pump_sim_decide). The
 * simulation is deterministic and uses no clock, thread or I/O.
 *
 * The model of the client gets only the contents of pump_abi.h events. With `foresight`
 * it reads operations before they are issued, for policies that by definition know more
 * than a program reveals.
 *
 * Simpler than reality: one device, one program thread, a worker that reads everything
 * issued when its tick begins, and movers that wait only for locks of the driver. */
#ifndef PUMP_SIM_H
#define PUMP_SIM_H

#include "daemon/core/model/model.h"
#include "lab/gpu/gpu_engine.h"

#ifdef PUMP_LAB_EXPORT
#pragma GCC visibility push(default)
#endif
/* cffi: begin */

/* Kinds of steps that are not operations of the GPU. GPU operations use GPU_KERNEL ...
 * GPU_MEMSET, and GPU_DISCARD in stream order. */
#define PUMP_SIM_SYNC 32   /* waits for the stream, or for all streams (PUMP_SIM_ALL) */
#define PUMP_SIM_ALLOC 33  /* allocates `range` */
#define PUMP_SIM_FREE 34   /* frees `range` after the GPU has executed all issued work */
#define PUMP_SIM_ADVISE 35 /* advises `range`: cuMemAdvise; `mark` is a GPU_ADVICE_* */
#define PUMP_SIM_ALL 0xffffffff

/* Results of pump_sim_run() */
#define PUMP_SIM_DECIDE 1
#define PUMP_SIM_DONE 0
#define PUMP_SIM_STUCK -1   /* no event is left: a bug of the simulator */
#define PUMP_SIM_REFUSED -2 /* the model of the GPU refused a call, see `failed_step` */

#define PUMP_VIEW_MISSING 128
#define PUMP_VIEW_CANDIDATES 64

/* One device at one moment. Needs and next uses are operation numbers. */
struct pump_view {
  /* `resident` includes maybe evicted blocks, `leaving` blocks under discard. */
  int64_t budget, resident, arriving, leaving;
  int64_t to_gpu_credit, to_host_credit; /* blocks that may be sent now */
  int64_t faults; /* blocks fetched by faults since the device's last view */
  uint32_t missing_count;
  uint32_t arrivals_count; /* missing blocks that need free memory: not maybe evicted */
  uint32_t missing_more;   /* lower bound of the missing blocks beyond `missing` */
  uint32_t candidates_count;
  uint32_t candidates_maybe_evicted; /* maybe evicted ones among the candidates */
  uint32_t oldest_count;
  uint32_t expected; /* operations expected after the window */
  uint32_t reserved;
  /* Needed blocks that are not surely resident and not in flight; the nearest to their
   * stream's head first. */
  int64_t missing[128];
  int64_t missing_need[128];
  int64_t missing_room[128];  /* blocks of free memory needed by the list up to here; a
                                 maybe evicted block needs none, because its memory is
                                 counted already */
  int64_t arrivals_need[128]; /* missing_need of the blocks that take free memory */
  /* Eviction candidates: unneeded blocks in the order of model_next_idle, then the others
   * with the latest need first. */
  int64_t eviction_candidates[64];
  int64_t candidates_next_use[64];
  /* Blocks in the driver's eviction order: the least recently migrated first. */
  int64_t oldest[64];
  int64_t oldest_next_use[64];
};

struct pump_sim_step {
  uint64_t host_ns;      /* time of the program's thread before the step */
  uint64_t duration_ns;  /* computing time of an operation */
  uint64_t length_bytes; /* copies over the link */
  uint64_t seq;          /* operations: ascending from 1; else 0 */
  uint32_t kind;
  uint32_t stream; /* from 0, less than `streams` */
  uint32_t first_use;
  uint32_t uses;
  uint32_t range;     /* ALLOC, FREE, ADVISE: index */
  uint16_t mark;      /* SYNC: 1 keeps the counters for pump_sim_mark() */
  uint16_t wide;      /* kernels: wide uses, as uvm_wide_uses() returns them */
  uint64_t signature; /* shared by kernels that differ only in addresses; 0: none */
  uint32_t dropped;   /* operations: further operands than `uses`, unknown */
  uint32_t reserved;
};

struct pump_sim_use {
  uint64_t offset_bytes;
  uint64_t length_bytes;
  uint32_t range;
  uint32_t access;    /* PUMP_ACCESS_* */
  uint64_t rows;      /* kernels: touched rows of the use's blocks; 0: everything */
  uint32_t row_bytes; /* of each row */
  uint16_t sorted;    /* 1: rows are reached in the order of their addresses */
  uint16_t pages;     /* kernels: touched 64 KiB pages of each block; 0: all */
};

/* A range for its whole lifetime; its blocks of the arena begin at first_block. */
struct pump_sim_range {
  uint64_t length_bytes; /* length of the range, a multiple of the block size */
  uint32_t first_block;
  uint32_t slot;
  uint32_t generation;
  uint32_t reserved;
};

/* The last step must be a SYNC of all streams. */
struct pump_sim_program {
  const struct pump_sim_step *steps;
  const struct pump_sim_use *uses;
  const struct pump_sim_range *ranges;
  uint32_t step_count, use_count, range_count;
  uint32_t blocks; /* blocks of the arena */
  uint32_t streams;
  uint32_t uses_most; /* most uses of one step */
};

/* How late a thread wakes. Quantiles: the share shares[i] of all wake-ups is at most ns[i]
 * late; `shares` ascend from 0 to 1. With a count of 1, every wake-up is ns[0] late. */
#define PUMP_SIM_QUANTILES 16
struct pump_sim_delays {
  double shares[16];
  double ns[16];
  uint32_t count;
  uint32_t reserved;
};

struct pump_sim_settings {
  uint64_t memory_bytes;      /* GPU memory */
  uint64_t budget_bytes;      /* pump's budget */
  uint64_t tick_ns;           /* fixed part of a tick's duration */
  uint64_t row_ns;            /* additional duration for each row that a tick reads */
  uint64_t marker_poll_ns;    /* between two polls of the markers */
  uint64_t foresight;         /* steps that the worker reads ahead of the program */
  uint64_t foresight_from;    /* starts when the program reaches this step */
  uint32_t foresight_run;     /* 1: ahead of the executed steps, not of the issued ones */
  uint32_t foresight_expects; /* 1: as predictions, not as issued operations */
  struct gpu_host host;       /* host memory for evicted blocks; memory 0: no limit */
  double jitter;              /* of transfer times: gpu_jitter() */
  uint64_t jitter_seed;
  uint32_t queue_operations; /* limit of unfinished operations of a stream */
  uint32_t locks;            /* locks of the driver: GPU_LOCK_* */
  uint64_t map_every_ns;     /* interval of the program's memory mappings; 0: none */
  uint64_t map_ns;           /* duration of a mapping */
  uint32_t connections;      /* work queues of a priority: gpu_connections() */
  uint32_t lanes[2];         /* streams of each mover, by direction: 1 to 32 */
  uint32_t lane_priority;    /* priority of these streams; the program's have 0 */
  uint64_t stop_every_ns;    /* stops the worker in the last stop_ns of each; 0: never */
  uint64_t stop_ns;
  struct pump_sim_delays worker_wake; /* delay of a sleeping worker's tick */
  struct pump_sim_delays mover_wake;  /* delay of a sleeping mover's next command */
  uint64_t wake_seed;                 /* for both delays */
  uint64_t transfers_most;            /* limit for pump_sim_transfers() */
  uint32_t duplicates;                /* 1: duplicates blocks on trial */
  uint32_t flash_ahead;               /* 1: known operations decide what is on flash */
  uint32_t decides;                   /* 1: a studied policy chooses transfers itself */
};

/* Totals until now; times in ns. */
struct pump_sim_result {
  uint64_t now_ns;
  uint64_t operations;
  uint64_t ticks;
  uint64_t queue_wait_ns; /* the program's waits for the launch queue */
  uint64_t sync_wait_ns;
  uint64_t lock_wait_ns;       /* the program's thread waited for locks of the driver */
  uint64_t map_wait_ns;        /* the thread that maps memory waited for them */
  uint64_t moved_to_gpu_bytes; /* by the movers */
  uint64_t moved_to_host_bytes;
  uint64_t refused[6];  /* commands, by PUMP_RESULT_* */
  uint64_t mover_ns[2]; /* time of movers in the driver, by direction */
  uint32_t movers[2];   /* working movers, by direction */
  uint32_t failed_step;
  uint32_t reserved;
  uint64_t scheduled_bytes;   /* moved by entries of schedules */
  uint64_t schedules_dropped; /* dropped at an operation that was predicted wrongly */
  uint64_t schedules;         /* schedules put in force */
  uint64_t advice_calls;
  uint64_t trials;       /* duplicated blocks that were evicted */
  uint64_t trials_wrong; /* evicted duplicates that had been written */
};

/* A slice that a mover submitted, and the program's progress then. */
struct pump_sim_transfer {
  uint64_t needed_by_seq; /* the operation that needs it; 0: none */
  uint32_t first_block;
  uint32_t blocks;
  uint32_t direction; /* PUMP_TO_GPU, PUMP_TO_HOST */
  uint32_t issued;    /* pump_sim_step_now() then */
  uint32_t run;       /* pump_sim_step_run() then */
  uint32_t reserved;
};

struct pump_sim_mark {
  uint64_t time_ns; /* time when the synchronisation returned */
  struct gpu_counters counters;
};

struct pump_sim;

/* Creates a simulation. Copies `program` and `settings`; the caller keeps the program's
 * tables. `model` NULL: without pump. Returns NULL if memory is short or a table is
 * invalid. Device 0 of the model must be known. */
struct pump_sim *pump_sim_new(const struct pump_sim_program *program,
                              const struct pump_sim_settings *settings,
                              const struct uvm_profile *profile, struct pump_model *model);
void pump_sim_delete(struct pump_sim *sim);

/* Runs to the next decision; returns PUMP_SIM_DECIDE and so on. */
int pump_sim_run(struct pump_sim *sim);

/* Calls gpu_leaves_for_flash(). */
void pump_sim_leaves_for_flash(struct pump_sim *sim, uint32_t block);

/* Fills the view and restarts the device's count of faults. */
void pump_sim_view(struct pump_model *model, uint32_t device, struct pump_view *view);
/* Keeps only those blocks of the list that are HOST or ABSENT; returns how many. */
uint32_t pump_sim_away(const struct pump_model *model, int64_t *blocks, uint32_t count);
/* Carries out a decision, after PUMP_SIM_DECIDE: the transfers reach the movers at the end
 * of the tick. */
void pump_sim_decide(struct pump_sim *sim, const int64_t *to_host, uint32_t to_host_count,
                     const int64_t *to_gpu, uint32_t to_gpu_count);
/* Turns chosen blocks into transfers of consecutive blocks, each at most one slice, and
 * counts them as in flight. Skips blocks that cannot move. Fills `commands`; returns how
 * many, at most `most`. */
uint32_t pump_sim_start(struct pump_model *model, uint32_t device, uint32_t direction,
                        const int64_t *blocks, uint32_t count,
                        struct pump_command *commands, uint32_t most);
/* Processes the end of such a transfer. Ignores unknown tickets. */
void pump_sim_end(struct pump_model *model, uint64_t ticket, uint32_t result,
                  uint32_t duration_us);

void pump_sim_result(const struct pump_sim *sim, struct pump_sim_result *out);
/* Returns the number of marks; fills the i-th if it exists. */
uint32_t pump_sim_mark(const struct pump_sim *sim, uint32_t i, struct pump_sim_mark *out);
/* Returns the program's current step. */
uint32_t pump_sim_step_now(const struct pump_sim *sim);
/* Returns the step after the newest executed one. */
uint32_t pump_sim_step_run(const struct pump_sim *sim);
/* Fills in when each SYNC returned, up to `max` times; returns how many there were. */
uint32_t pump_sim_syncs(const struct pump_sim *sim, uint64_t *times_ns, uint32_t max);

/* Draws the delay of one wake-up by the inverse distribution, linear between quantiles;
 * `*random` begins as the seed. */
uint64_t pump_sim_delay_ns(const struct pump_sim_delays *delays, uint64_t *random);
/* Returns the transfers in order of their start, at most `transfers_most`, and in
 * `*count` how many there were. The simulator owns the array. */
const struct pump_sim_transfer *pump_sim_transfers(const struct pump_sim *sim,
                                                   uint64_t *count);

/* cffi: end */
#ifdef PUMP_LAB_EXPORT
#pragma GCC visibility pop
#endif

#endif
