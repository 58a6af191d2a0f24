/* sim_state.h - internal state of the simulator; see sim.h. */
#ifndef PUMP_SIM_STATE_H
#define PUMP_SIM_STATE_H

#include <stdbool.h>

#include "daemon/core/worker/worker.h"
#include "pump_ring.h"
#include "shim/execute/adapt.h"
#include "shim/execute/own_context.h"
#include "sim.h"

#define SIM_LANES 32 /* most slices in flight per mover */
#define SIM_MOVERS 4 /* per direction: PUMP_OUT_THREADS_MOST */

/* ---- the program's thread (sim_program.c) ---------------------------------------- */

/* `streams` has one more entry than the program has streams, for the discards. */
struct sim_stream {
  uint32_t number; /* number in the engine */
  uint32_t unfinished;
  uint32_t since_marker;
  uint64_t touched_bytes, marked_ns;
  uint64_t issued_seq, finished_seq;
  uint64_t marked_seq; /* newest finished operation that a marker follows */
  uint64_t asked_seq;  /* newest issued operation that a marker follows */
  uint64_t sign;       /* see pump_marker_presumes */
};

enum sim_waits {
  SIM_RUNS,
  SIM_WAITS_QUEUE,
  SIM_WAITS_SYNC,
  SIM_RETRIES,
  SIM_LOCKED,
  SIM_ENDED
};

/* ---- waiting for work (sim_wakes.c) ---------------------------------------------- */

struct sim_wait {
  uint64_t random; /* state of gpu_random() */
  uint64_t end_ns; /* end of the newest wait */
};

/* ---- the movers (sim_movers.c) --------------------------------------------------- */

/* A transfer that a studied policy chose (sim_decide.c). */
struct sim_decision {
  struct pump_command command;
  uint32_t result, duration_us;
  bool ended, noted; /* noted: the model knows the end */
};

#define SIM_DECISIONS 256

/* Positions grow without end. noted <= head <= tail. */
struct sim_decisions {
  uint64_t noted, head, tail; /* all before are noted; taken by movers; decided */
  struct sim_decision all[SIM_DECISIONS];
};

struct sim_command {
  struct pump_command command;
  struct sim_decision *decided; /* NULL: not by a studied policy */
  /* From the schedule. A command neither decided nor scheduled populates, unreported. */
  bool scheduled;
  /* For a command that takes several calls: when it began, and how many blocks are done. */
  uint64_t called_ns;
  uint32_t blocks_done;
  uint32_t duplicates, kept; /* as in struct pump_entry, struct pump_entry_end */
};

struct sim_lane {
  struct sim_command job;
  uint32_t stream;
  uint32_t waiting, in_flight;
  uint64_t called_ns, returned_ns;
  uint64_t done_ns; /* time of the event after the slice; GPU_NEVER: not yet */
};

struct sim_mover {
  struct sim_lane lanes[SIM_LANES];
  uint32_t oldest, in_flight;
  uint64_t free_ns; /* in the driver until then */
  bool records;     /* next records the event of its last slice */
  bool goes_on;     /* continues with `job` */
  struct sim_command job;
};

struct sim_direction {
  struct pump_adapt_bounds bounds;
  uint32_t slices; /* most slices in flight per mover */
  struct sim_mover movers[SIM_MOVERS];
  struct pump_adapt adapt;
  struct sim_decisions decisions;
  uint64_t seen; /* decisions with a known time of visibility */
  uint64_t visible_ns[SIM_DECISIONS];
  uint32_t flight_bytes, flight_slices;
  uint64_t idle_since_ns;
  struct sim_wait wait; /* of the mover that wakes first */
  uint64_t entry_ns;    /* when a mover takes the next entry; GPU_NEVER: not ready */
};

/* Cookie of the event after a slice, plus the index of its lane among all lanes. */
#define SIM_LANE_COOKIE (1ull << 62)
#define SIM_DISCARD_COOKIE (1ull << 63) /* cookie of the event after a discard */

/* ---- discards (sim_discards.c) --------------------------------------------------- */

#define SIM_DISCARDS 4096 /* discards with their own event */

struct sim_discards {
  uint32_t issued, ended; /* numbers of discards */
  uint32_t part;          /* submitted parts of the step's additional operations */
  uint32_t *of_block;     /* newest issued discard, from 1; 0: none */
  /* Discards before ended_step have ended. Before seen_step a poll saw their ends, before
   * written_step these are in the ring. */
  uint32_t ended_step, seen_step, written_step;
};

/* ---- duplicates (sim_duplicates.c) ----------------------------------------------- */

struct sim_duplicates {
  bool *hinted; /* by block: under READ_MOSTLY */
};

/* ---- flash (sim_flash.c) --------------------------------------------------------- */

struct sim_tiered {
  int64_t next_use; /* PUMP_NOT_NEEDED: no known operation uses it */
  int64_t last_use;
  uint32_t block;
};

#define SIM_FLASH_BLOCKS 32 /* chosen at once */

struct sim_chosen {
  struct sim_tiered blocks[SIM_FLASH_BLOCKS]; /* in order */
  uint32_t count, done;
};

struct sim_flash {
  uint64_t next_ns;           /* time of the next action */
  uint64_t plan_ns, wait_ns;  /* time of the next choice, and the interval until then */
  uint64_t write_ns, read_ns; /* when flash can take the next block */
  struct sim_chosen writes, reads, drops;
};

/* A range to populate before its first use, while everything fits. */
struct sim_populate {
  uint32_t range;
  uint64_t offset_bytes;
};

struct pump_sim {
  struct pump_sim_program program;
  struct pump_sim_settings settings;
  struct pump_sim_result result;
  struct gpu_engine *engine;
  void *engine_memory;
  struct gpu_hooks hooks;
  struct pump_model *model;
  uint64_t now_ns;
  int failure; /* PUMP_SIM_REFUSED */

  /* program */
  uint32_t step;
  bool host_done; /* the host time before the step has passed */
  enum sim_waits waits;
  uint64_t program_ns, wait_began_ns;
  uint64_t map_ns;     /* time of the next mapping of memory */
  uint32_t unfinished; /* operations of all streams */
  struct sim_stream *streams;
  struct gpu_use *scratch_uses;
  uint8_t *marker_after;  /* by step */
  uint64_t *last_use_seq; /* PUMP_RANGE_EIGHTHS per range */
  uint8_t *live;          /* by range */
  uint64_t allocated_bytes;

  /* worker */
  struct pump_shm *shm;
  uint64_t schedule_ns;      /* when the schedule in force becomes visible */
  uint32_t schedule_version; /* version of that schedule */
  struct pump_batch *batch;
  bool active;
  uint32_t active_from, written, expected; /* steps */
  uint16_t *fresh;                         /* by use: PUMP_FRESH_* at its last use */
  uint32_t run_step; /* steps before it have finished, approximately */
  uint64_t tick_ns, busy_until_ns, poll_ns, presumed_ns;
  struct sim_wait wait; /* between ticks */
  bool woken;           /* since the last tick */

  struct sim_discards discards;
  struct sim_duplicates duplicates;
  struct sim_flash flash;
  struct sim_direction directions[PUMP_DIRECTIONS];
  struct pump_own_context own_context;
  struct sim_populate *populate; /* ring of range_count entries */
  uint32_t populate_head, populate_count;
  uint32_t *range_of_slot;

  struct pump_sim_mark *marks;
  uint32_t mark_count, marks_most;
  struct pump_sim_transfer *transfers;
  uint64_t transfer_count;
  uint64_t *syncs_ns;
  uint32_t sync_count, syncs_most;
};

static inline uint64_t sim_least(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

static inline uint64_t sim_most(uint64_t a, uint64_t b) {
  return a > b ? a : b;
}

/* Returns a stream's progress as pump knows it; one stream more than the program has. */
static inline uint64_t *sim_executed_seq(const struct pump_sim *sim, uint32_t stream) {
  return &sim->shm->progress[stream + 1].executed_seq;
}

/* sim_program.c */
void sim_program_go(struct pump_sim *sim);
void sim_program_finished(struct pump_sim *sim, uint32_t step);

/* sim_discards.c */
bool sim_discards_init(struct pump_sim *sim);
/* Submits the remaining parts of the step's discard of these blocks to a separate stream.
 * Results are as for gpu_submit(). */
int sim_discards_issue(struct pump_sim *sim, const struct pump_sim_step *step,
                       const struct gpu_operation *discard,
                       struct gpu_submitted *submitted);
/* Makes the stream wait for unfinished discards of these blocks. */
int sim_discards_await(struct pump_sim *sim, const struct pump_sim_step *step,
                       const struct gpu_operation *operation,
                       struct gpu_submitted *submitted);
/* Notes that a discard has ended. */
void sim_discards_ended(struct pump_sim *sim, uint32_t step);
/* Polls for ended discards; returns true if there are any. */
bool sim_discards_poll(struct pump_sim *sim);
/* Returns the last operation up to a step; 0: none. */
uint64_t sim_discards_after(const struct pump_sim *sim, uint32_t step);

/* sim_events.c */
uint16_t sim_event_kind(uint32_t kind);
/* Writes all steps before `until` and the known ends of discards into the ring, as far as
 * it has space. */
void sim_events_write(struct pump_sim *sim, uint32_t until);

/* sim_worker.c */
/* Returns when a tick due at `time_ns` begins: not while the worker is stopped. */
uint64_t sim_worker_due_ns(const struct pump_sim *sim, uint64_t time_ns);
/* Compares a numbered operation with its prediction. */
void sim_worker_compare(struct pump_sim *sim, const struct pump_sim_step *step);
/* Wakes the worker after an event. */
void sim_worker_wake(struct pump_sim *sim);
/* Activates the client if live memory exceeds the budget. */
void sim_worker_activate(struct pump_sim *sim);
/* Makes decisions and the new schedule visible at the end of the tick. */
void sim_worker_show(struct pump_sim *sim);
/* Runs the first half of a tick, up to the decision. */
void sim_worker_tick(struct pump_sim *sim);
/* Notes which blocks predicted uses will find fresh. Returns false if memory is short. */
bool sim_worker_find_fresh(struct pump_sim *sim);
/* Schedules a poll after a marker or a discard has executed. */
void sim_worker_poll_next(struct pump_sim *sim);
/* Polls markers and discards; wakes the worker after any progress. */
void sim_worker_poll(struct pump_sim *sim);

/* sim_decide.c */
static inline struct sim_decision *sim_decision_at(struct sim_decisions *queue,
                                                   uint64_t position) {
  return &queue->all[position % SIM_DECISIONS];
}
/* Does what pump_worker_follow does for a schedule. */
void sim_decide_follow(struct pump_sim *sim);

/* sim_wakes.c */
/* Returns false for invalid delays. */
bool sim_waits_init(struct pump_sim *sim);
/* Returns when a thread that waits since `since_ns` continues. It waits for something
 * that becomes visible at `visible_ns`, which is not earlier. */
uint64_t sim_wait_end_ns(struct sim_wait *wait, const struct pump_sim_delays *delays,
                         uint64_t since_ns, uint64_t visible_ns);

/* sim_duplicates.c */
bool sim_duplicates_init(struct pump_sim *sim);
/* Makes a mover's advice calls before blocks arrive or leave; returns when it is free. */
uint64_t sim_duplicates_advise(struct pump_sim *sim, uint32_t direction,
                               struct sim_command *job, uint32_t first, uint32_t count);
/* Reduces the blocks to the first run that a prefetch must move, perhaps none. `begin`:
 * the first block of the job. */
void sim_duplicates_run(const struct sim_command *job, uint32_t direction, uint32_t begin,
                        uint32_t *first, uint32_t *count);
/* Ends the advice on the blocks of a discard step, whose contents are lost. */
void sim_duplicates_discarded(struct pump_sim *sim, uint32_t step);
void sim_duplicates_freed(struct pump_sim *sim, const struct pump_sim_range *range);

/* sim_flash.c */
bool sim_flash_init(struct pump_sim *sim);
/* Starts the moves between host and flash for which it is time: writes blocks to flash,
 * reads blocks back before their use, and frees host memory. */
void sim_flash_go(struct pump_sim *sim);

/* sim_movers.c */
bool sim_movers_init(struct pump_sim *sim);
/* Makes the decisions since the last call visible at `visible_ns`. */
void sim_movers_show(struct pump_sim *sim, uint64_t visible_ns);
void sim_movers_populate(struct pump_sim *sim, uint32_t range);
void sim_movers_go(struct pump_sim *sim, uint32_t direction);
/* Notes that the event after the slice in that lane has completed. */
void sim_movers_arrived(struct pump_sim *sim, uint64_t lane_number);
/* Returns the time of the next action of the direction's movers. */
uint64_t sim_movers_next_ns(struct pump_sim *sim, uint32_t direction);

#endif
