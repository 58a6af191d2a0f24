/* worker.h - a worker's step: plans put in force and followed, and what is sent. */
#ifndef PUMP_WORKER_H
#define PUMP_WORKER_H

#include "daemon/core/model/model_state.h"

/* ---- plans (worker_plan.c) ---- */

/* What was taken of plans is under way, what has ended has ended. In two parts, progress
 * and the ends of commands between them: blocks may have come, been used, and left since we
 * looked last. How much room that leaves is known behind the second part alone. */
void worker_plan_arrived(struct pump_shm *shm, struct pump_model *m);
void worker_plan_left(struct pump_shm *shm, struct pump_model *m);
/* The device has no plan in force any more, and what was taken of it is known. */
void worker_plan_withdraw(struct pump_shm *shm, struct pump_model *m, uint32_t device);
/* Tells the client what has become expected, so that a plan that stays in force is compared
 * with that as well. */
void worker_plan_predict(struct pump_shm *shm, struct pump_model *m);
/* What a policy has decided: block numbers that it may have made up. */
struct worker_moves {
  const int64_t *to_host, *to_gpu;
  uint32_t to_host_count, to_gpu_count;
};
/* Whether a decision is what the plan says: each block of it that leaves does so by the
 * plan as well, and no later, and what comes first comes first. */
bool worker_plan_agrees(const struct pump_shm *shm, const struct pump_model *m,
                        uint32_t device, const struct worker_moves *moves);
/* Take what stands in front of the plan and may go now, and fill `blocks` with it, at most
 * so many; return how many. No executor takes that any more, and the plan stays in force.
 * Of `missing` blocks those count that are to come, in order of need: what the plan did not
 * bring comes too, but nothing before what is needed sooner. */
uint32_t worker_plan_leaving(struct pump_shm *shm, struct pump_model *m, uint32_t device,
                             int64_t *blocks, uint32_t most);
uint32_t worker_plan_arriving(struct pump_shm *shm, struct pump_model *m, uint32_t device,
                              const int64_t *missing, uint32_t count, int64_t *blocks,
                              uint32_t most);
/* None holds, and another one could be made by now. */
bool worker_plan_is_due(const struct pump_model *m, uint32_t device);

/* ---- what is sent (worker_send.c) ---- */

/* Where commands go: to the executors of a mapping, or to those of the simulator. */
struct worker_executors {
  void *context;
  /* Hands commands over; returns how many of them found room. */
  uint32_t (*submit)(void *context, uint32_t device, uint32_t direction,
                     const struct pump_command *commands, uint32_t count);
};

struct worker {
  struct pump_shm *shm;
  struct pump_model *model;
  struct worker_executors executors;
  bool plans; /* put in force what comes next, where it is known */
};

/* What goes next by the plan in force, or by the last decision if that allows it, now that
 * transfers have ended. */
void worker_go_on(const struct worker *to, uint32_t device);
/* What the device misses, soonest first, as far as the allowance goes. */
void worker_allowance(const struct worker *to, uint32_t device);
/* What a policy has decided; then plans what comes next, unless the plan in force says the
 * same. */
void worker_decision(const struct worker *to, uint32_t device,
                     const struct worker_moves *moves);

#endif
