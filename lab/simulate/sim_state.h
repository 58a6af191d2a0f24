/* sim_state.h - inside of the simulator; see sim.h. */
#ifndef PUMP_SIM_STATE_H
#define PUMP_SIM_STATE_H

#include <stdbool.h>

#include "daemon/core/worker/worker.h"
#include "pump_ring.h"
#include "shim/execute/adapt.h"
#include "shim/execute/own_context.h"
#include "sim.h"

#define SIM_LANES 32 /* slices that one mover has in flight, at most */
#define SIM_MOVERS 4 /* of a direction: PUMP_OUT_THREADS_MOST */

/* ---- the program's thread (sim_program.c) ---------------------------------------- */

/* `streams` has one more than the program: that of the discards. */
struct sim_stream {
  uint32_t number; /* in the engine */
  uint32_t unfinished;
  uint32_t since_marker;
  uint64_t touched_bytes, marked_ns;
  uint64_t issued_seq, finished_seq;
  uint64_t marked_seq; /* newest finished operation with a marker behind it */
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
  uint64_t random; /* state of gpu_random */
  uint64_t end_ns; /* of the newest one */
};

/* ---- the movers (sim_movers.c) --------------------------------------------------- */

struct sim_command {
  struct pump_command command;
  struct pump_command *sent; /* where it ends in the ring; NULL: it was not sent */
  bool scheduled;            /* taken from the schedule; neither: populates, not reported */
  /* Of a command that a mover carries out in several calls: when it began, and how many
   * blocks are done.
   */
  uint64_t called_ns;
  uint32_t blocks_done;
  uint32_t duplicates, kept; /* struct pump_entry, struct pump_entry_end */
};

struct sim_lane {
  struct sim_command job;
  uint32_t stream;
  uint32_t waiting, in_flight;
  uint64_t called_ns, returned_ns;
  uint64_t done_ns; /* the event behind the slice; GPU_NEVER: not yet */
};

struct sim_mover {
  struct sim_lane lanes[SIM_LANES];
  uint32_t oldest, in_flight;
  uint64_t free_ns; /* in the driver until then */
  bool records;     /* and records an event next */
  bool goes_on;     /* with `job` */
  struct sim_command job;
};

struct sim_direction {
  struct pump_adapt_bounds bounds;
  uint32_t slices; /* that a mover has in flight, at most */
  struct sim_mover movers[SIM_MOVERS];
  struct pump_adapt adapt;
  uint64_t seen; /* commands that have a time when they can be seen */
  uint64_t visible_ns[PUMP_COMMAND_SLOTS];
  uint32_t flight_bytes, flight_slices;
  uint64_t idle_since_ns;
  struct sim_wait wait; /* of one mover, the first to go on */
  uint64_t entry_ns; /* when a mover takes the next entry; GPU_NEVER: it may not go yet */
};

/* Cookie of the event behind a slice, plus the place of its lane among all lanes. */
#define SIM_LANE_COOKIE (1ull << 62)
#define SIM_DISCARD_COOKIE (1ull << 63) /* of the event behind a discard */

/* ---- discards (sim_discards.c) --------------------------------------------------- */

#define SIM_DISCARDS 4096 /* with an event of their own */

struct sim_discards {
  uint32_t issued, ended; /* discards */
  uint32_t part;          /* of what the step submits beside itself, so much is */
  uint32_t *of_block;     /* the newest issued discard, from 1; 0: none */
  /* Steps: all discards before it have ended, a poll saw that, and their ends are written.
   */
  uint32_t ended_step, seen_step, written_step;
};

/* ---- duplicates (sim_duplicates.c) ----------------------------------------------- */

struct sim_duplicates {
  bool *hinted; /* by block: under READ_MOSTLY */
};

/* ---- flash (sim_flash.c) --------------------------------------------------------- */

struct sim_tiered {
  int64_t next_use; /* PUMP_NOT_NEEDED: of no known operation */
  int64_t last_use;
  uint32_t block;
};

#define SIM_FLASH_BLOCKS 32 /* that are chosen at once */

struct sim_chosen {
  struct sim_tiered blocks[SIM_FLASH_BLOCKS]; /* in order */
  uint32_t count, done;
};

struct sim_flash {
  uint64_t next_ns;           /* when something is done next */
  uint64_t plan_ns, wait_ns;  /* when it is chosen anew, and how long after the last time */
  uint64_t write_ns, read_ns; /* when flash can take the next */
  struct sim_chosen writes, reads, drops;
};

/* A range that shall be resident before it is used, while everything fits. */
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
  bool host_done; /* the time of the host before the step has passed */
  enum sim_waits waits;
  uint64_t program_ns, wait_began_ns;
  uint64_t map_ns;     /* when memory is mapped next */
  uint32_t unfinished; /* operations of all streams */
  struct sim_stream *streams;
  struct gpu_use *scratch_uses;
  uint8_t *marker_behind; /* by step */
  uint64_t *last_use_seq; /* PUMP_USE_SLICES a range */
  uint8_t *live;          /* by range */
  uint64_t allocated_bytes;

  /* worker */
  struct pump_shm *shm;
  uint64_t cursors[PUMP_DIRECTIONS * PUMP_MAX_DEVICES]; /* pump_worker_follow's */
  uint64_t schedule_ns;      /* when the one in force can be seen */
  uint32_t schedule_version; /* and which one that is */
  struct pump_batch *batch;
  bool active;
  uint32_t active_from, written, expected; /* steps */
  uint8_t *fresh;                          /* by use: PUMP_FRESH_* when it was used last */
  uint32_t run_step;                       /* all steps before it have finished, about */
  uint64_t tick_ns, busy_until_ns, poll_ns;
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

/* How far pump knows a stream to have executed; behind the program's there is one more. */
static inline uint64_t *sim_executed_seq(const struct pump_sim *sim, uint32_t stream) {
  return &sim->shm->progress[stream + 1].executed_seq;
}

/* sim_program.c */
void sim_program_go(struct pump_sim *sim);
void sim_program_finished(struct pump_sim *sim, uint32_t step);

/* sim_discards.c */
bool sim_discards_init(struct pump_sim *sim);
/* Puts what is left of the step's discard beside the program, of these blocks. The answer
 * and `submitted` are gpu_submit()'s. */
int sim_discards_issue(struct pump_sim *sim, const struct pump_sim_step *step,
                       const struct gpu_operation *discard,
                       struct gpu_submitted *submitted);
/* Has the stream wait for discards of these blocks that have not ended. */
int sim_discards_await(struct pump_sim *sim, const struct pump_sim_step *step,
                       const struct gpu_operation *operation,
                       struct gpu_submitted *submitted);
/* One more discard has ended. */
void sim_discards_ended(struct pump_sim *sim, uint32_t step);
/* Polls for ends of discards; true if there are any. */
bool sim_discards_poll(struct pump_sim *sim);
/* The operation that a step stands behind; 0: none. */
uint64_t sim_discards_behind(const struct pump_sim *sim, uint32_t step);

/* sim_events.c */
uint16_t sim_event_kind(uint32_t kind);
/* Writes all steps before `until`, and the discards that were seen to have ended, into the
 * ring, as far as it has room. */
void sim_events_write(struct pump_sim *sim, uint32_t until);

/* sim_worker.c */
/* When a tick that is due then begins: not while the worker is stopped. */
uint64_t sim_worker_due_ns(const struct pump_sim *sim, uint64_t time_ns);
/* Compares an operation that has got its number with the predicted one. */
void sim_worker_compare(struct pump_sim *sim, const struct pump_sim_step *step);
/* Wakes the worker: something has happened. */
void sim_worker_wake(struct pump_sim *sim);
/* Activates the client where live memory outgrows the budget. */
void sim_worker_activate(struct pump_sim *sim);
/* Makes what was sent and put in force visible from the end of the tick on. */
void sim_worker_show(struct pump_sim *sim);
/* The first half of a tick, up to the decision. */
void sim_worker_tick(struct pump_sim *sim);
/* Notes which blocks each use will find fresh, for what is expected. False when memory is
 * short. */
bool sim_worker_find_fresh(struct pump_sim *sim);
/* A marker or a discard has executed: the next poll sees it. */
void sim_worker_poll_next(struct pump_sim *sim);
/* Polls markers and discards; wakes the worker where one has executed. */
void sim_worker_poll(struct pump_sim *sim);

/* sim_wakes.c */
/* False for delays that make no sense. */
bool sim_waits_init(struct pump_sim *sim);
/* When a thread that waits since `since_ns` goes on, for what it can see from `visible_ns`
 * on, which is no earlier. */
uint64_t sim_wait_end_ns(struct sim_wait *wait, const struct pump_sim_delays *delays,
                         uint64_t since_ns, uint64_t visible_ns);

/* sim_duplicates.c */
bool sim_duplicates_init(struct pump_sim *sim);
/* A mover makes the advice calls that come before blocks arrive or leave; returns when it
 * may go on. */
uint64_t sim_duplicates_advise(struct pump_sim *sim, uint32_t way, struct sim_command *job,
                               uint32_t first, uint32_t count);
/* The first of these blocks, in a row, that a prefetch has to move; perhaps none. `begin`:
 * the first of the job. */
void sim_duplicates_run(const struct sim_command *job, uint32_t way, uint32_t begin,
                        uint32_t *first, uint32_t *count);
/* If the step is a discard, its blocks have lost their contents. */
void sim_duplicates_discarded(struct pump_sim *sim, uint32_t step);
void sim_duplicates_freed(struct pump_sim *sim, const struct pump_sim_range *range);

/* sim_flash.c */
bool sim_flash_init(struct pump_sim *sim);
/* Writes ahead, reads ahead and makes room in the host, as far as it is time for it. */
void sim_flash_go(struct pump_sim *sim);

/* sim_movers.c */
bool sim_movers_init(struct pump_sim *sim);
/* Makes what was sent since the last call visible from then on. */
void sim_movers_show(struct pump_sim *sim, uint64_t visible_ns);
void sim_movers_populate(struct pump_sim *sim, uint32_t range);
void sim_movers_go(struct pump_sim *sim, uint32_t direction);
/* The event behind the slice in that lane has completed. */
void sim_movers_arrived(struct pump_sim *sim, uint64_t place);
/* When movers of the direction do something next. */
uint64_t sim_movers_next_ns(struct pump_sim *sim, uint32_t direction);

#endif
