/* sim.h - a program, pump and a GPU, on a virtual clock (for Python: lab/pump_lab/sim).
 *
 * Joins the model of the GPU (gpu_engine.h), the model of the client (model.h) and what
 * lies between them: the program's thread with its launch queue and its waits, markers,
 * the worker's latency, the executors. Python decides alone: pump_sim_run() goes on until
 * the worker is about to decide, Python looks at the model's view, lets the policy answer
 * and carries the answer out (pump_worker_carry_out). Deterministic; no clock, thread or
 * I/O.
 *
 * The model of the client is fed with what an event of pump_abi.h carries and nothing
 * else. With `foresight` it reads operations before they are issued, for policies that are
 * defined by knowing more than a program tells.
 *
 * Simpler than the real thing: one device, one thread of the program, a worker that reads
 * everything that was issued when its tick begins, a mover that never waits for locks.
 */
#ifndef PUMP_SIM_H
#define PUMP_SIM_H

#include "daemon/core/model/model.h"
#include "lab/gpu/gpu_engine.h"

#ifdef PUMP_LAB_EXPORT
#pragma GCC visibility push(default)
#endif
/* cffi: begin */

/* Kinds of step that are no operation of the GPU's (those are GPU_KERNEL ... GPU_MEMSET,
 * and GPU_DISCARD in stream order). */
#define PUMP_SIM_SYNC 32  /* waits for the stream, or for all (stream PUMP_SIM_ALL) */
#define PUMP_SIM_ALLOC 33 /* `range` is allocated */
#define PUMP_SIM_FREE 34  /* and freed, when the GPU has done all that was issued */
#define PUMP_SIM_ALL 0xffffffff

/* What pump_sim_run() returns */
#define PUMP_SIM_DECIDE 1
#define PUMP_SIM_DONE 0
#define PUMP_SIM_STUCK -1   /* nothing will happen: a fault of the simulator */
#define PUMP_SIM_REFUSED -2 /* the model of the GPU refused a call: `failed_step` */

struct pump_sim_step {
  uint64_t host_ns;      /* of the program's thread, before the step */
  uint64_t duration_ns;  /* operations: computing */
  uint64_t length_bytes; /* copies over the link */
  uint64_t seq;          /* operations: from 1, ascending; else 0 */
  uint32_t kind;
  uint32_t stream; /* from 0, below `streams` */
  uint32_t first_use;
  uint32_t uses;
  uint32_t range;     /* ALLOC, FREE: index */
  uint16_t mark;      /* SYNC: 1: counters are kept for pump_sim_mark() */
  uint16_t wide;      /* kernels: which uses, as uvm_wide_uses() has it */
  uint64_t signature; /* kernels that do the same on other addresses share one; 0: none */
  uint32_t dropped;   /* operations: operands beyond `uses`, which are unknown */
  uint32_t reserved;
};

struct pump_sim_use {
  uint64_t offset_bytes;
  uint64_t length_bytes;
  uint32_t range;
  uint32_t access; /* PUMP_ACCESS_* */
};

/* A range for its whole life; its blocks are those of the arena from first_block on. */
struct pump_sim_range {
  uint64_t length_bytes; /* whole blocks */
  uint32_t first_block;
  uint32_t slot;
  uint32_t generation;
  uint32_t reserved;
};

/* The last step has to be a SYNC of all streams. */
struct pump_sim_program {
  const struct pump_sim_step *steps;
  const struct pump_sim_use *uses;
  const struct pump_sim_range *ranges;
  uint32_t step_count, use_count, range_count;
  uint32_t blocks; /* of the arena */
  uint32_t streams;
  uint32_t uses_most; /* of one step */
};

/* How much later than its wake-up a thread runs. Quantiles: `shares` of all wake-ups,
 * ascending from 0 to 1, are at most `ns` late. With a count of 1 all are the first. */
#define PUMP_SIM_QUANTILES 16
struct pump_sim_delays {
  double shares[16];
  double ns[16];
  uint32_t count;
  uint32_t reserved;
};

struct pump_sim_settings {
  uint64_t memory_bytes;      /* of the GPU */
  uint64_t budget_bytes;      /* of pump */
  uint64_t tick_ns;           /* of a tick, whatever it does */
  uint64_t row_ns;            /* and for each row that it reads */
  uint64_t marker_poll_ns;    /* between two polls of markers */
  uint64_t foresight;         /* steps beyond the program's that the worker reads */
  uint64_t foresight_from;    /* once the program is at this step */
  uint32_t foresight_run;     /* 1: beyond what has run, not beyond what was issued */
  uint32_t foresight_expects; /* 1: as expected, not as issued */
  struct gpu_host host;       /* of what leaves the GPU; no memory: it holds all */
  double jitter;              /* of transfers' times: gpu_jitter */
  uint64_t jitter_seed;
  uint32_t queue_operations; /* of a stream, issued and not finished: then launches wait */
  uint32_t locks;            /* of the driver: GPU_LOCK_* */
  uint64_t map_every_ns;     /* the program maps memory that often; 0: never */
  uint64_t map_ns;           /* and that takes so long */
  uint32_t connections;      /* work queues of a priority: gpu_connections */
  uint32_t lanes[2];         /* streams of each mover, by direction: 1 to 32 */
  uint32_t lane_priority;    /* of these streams; the program's have 0 */
  uint64_t stop_every_ns; /* the worker is stopped in the last stop_ns of each; 0: never */
  uint64_t stop_ns;
  struct pump_sim_delays worker_wake; /* until a worker that sleeps begins its tick */
  struct pump_sim_delays mover_wake;  /* until a mover that sleeps takes a command */
  uint64_t wake_seed;                 /* of both */
  uint64_t transfers_most;            /* kept for pump_sim_transfers() */
  uint32_t duplicates;                /* 1: blocks are duplicated on trial */
  uint32_t flash_ahead; /* 1: what is known decides what is on flash (sim_flash.c) */
};

/* Totals of all that has happened so far; times in ns. */
struct pump_sim_result {
  uint64_t now_ns;
  uint64_t operations;
  uint64_t ticks;
  uint64_t queue_wait_ns; /* the program's: for the launch queue, for the GPU */
  uint64_t sync_wait_ns;
  uint64_t lock_wait_ns;       /* the program's thread, for the driver's locks */
  uint64_t map_wait_ns;        /* another one that maps memory, for the same */
  uint64_t moved_to_gpu_bytes; /* by the movers */
  uint64_t moved_to_host_bytes;
  uint64_t refused[6];  /* commands by PUMP_RESULT_* */
  uint64_t mover_ns[2]; /* that movers spent in the driver, by direction */
  uint32_t movers[2];   /* that work at present */
  uint32_t failed_step;
  uint32_t reserved;
  uint64_t scheduled_bytes;   /* of those moved: by entries of schedules */
  uint64_t schedules_dropped; /* in force when something else was issued */
  uint64_t schedules;         /* that were put in force */
  uint64_t advice_calls;
  uint64_t trials;       /* blocks that left after they were duplicated */
  uint64_t trials_wrong; /* and had been written */
};

/* A slice that a mover submitted, and the program's steps then. */
struct pump_sim_transfer {
  uint64_t needed_by_seq; /* the operation it serves; 0: none */
  uint32_t first_block;
  uint32_t blocks;
  uint32_t way;    /* PUMP_TO_GPU, PUMP_TO_HOST */
  uint32_t issued; /* as pump_sim_step_now() */
  uint32_t run;    /* as pump_sim_step_run() */
  uint32_t reserved;
};

struct pump_sim_mark {
  uint64_t time_ns; /* when the synchronisation returned */
  struct gpu_counters counters;
};

struct pump_sim;

/* `program` and `settings` are copied, the tables of the program are not and stay the
 * caller's. `model` NULL: without pump. NULL when memory is short or a table makes no
 * sense. The model's device 0 has to be known. */
struct pump_sim *pump_sim_new(const struct pump_sim_program *program,
                              const struct pump_sim_settings *settings,
                              const struct uvm_profile *profile, struct pump_model *model);
void pump_sim_delete(struct pump_sim *sim);

/* Goes on to the next decision; returns PUMP_SIM_DECIDE and so on. */
int pump_sim_run(struct pump_sim *sim);

/* gpu_leaves_for_flash. */
void pump_sim_leaves_for_flash(struct pump_sim *sim, uint32_t block);

/* Where the transfers of a decision go, after PUMP_SIM_DECIDE (pump_worker_carry_out); they
 * reach the movers at the end of the tick. */
struct pump_shm *pump_sim_mapping(struct pump_sim *sim);

void pump_sim_result(const struct pump_sim *sim, struct pump_sim_result *out);
/* How many marks there are; fills the i-th if it exists. */
uint32_t pump_sim_mark(const struct pump_sim *sim, uint32_t i, struct pump_sim_mark *out);
/* The step that the program is at, and the one behind the newest that has run. */
uint32_t pump_sim_step_now(const struct pump_sim *sim);
uint32_t pump_sim_step_run(const struct pump_sim *sim);
/* When each SYNC returned: up to `max` times; returns how many there were. */
uint32_t pump_sim_syncs(const struct pump_sim *sim, uint64_t *times_ns, uint32_t max);

/* One wake-up's delay, drawn by inverse distribution, linear between quantiles; `*random`
 * begins as the seed. */
uint64_t pump_sim_delay_ns(const struct pump_sim_delays *delays, uint64_t *random);
/* The transfers in the order in which they began, at most `transfers_most`; `*count`: how
 * many there were. They stay the simulator's. */
const struct pump_sim_transfer *pump_sim_transfers(const struct pump_sim *sim,
                                                   uint64_t *count);

/* cffi: end */
#ifdef PUMP_LAB_EXPORT
#pragma GCC visibility pop
#endif

#endif
