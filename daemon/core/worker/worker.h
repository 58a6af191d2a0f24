/* worker.h - a worker's step: plans put in force and followed, and what is sent. */
#ifndef PUMP_WORKER_H
#define PUMP_WORKER_H

#include "daemon/core/model/model_state.h"

/* ---- plans (worker_plan.c) ------------------------------------------------------- */

/* Enter into the model what executors have taken of plans, and what has ended: arrivals,
 * then, behind progress and the ends of commands, departures; since the last time blocks
 * may have come, been used, and left. How much room that leaves is known behind the second
 * call alone. */
void worker_plan_arrived(struct pump_shm *shm, struct pump_model *m);
void worker_plan_left(struct pump_shm *shm, struct pump_model *m);
/* The device has no plan in force any more, and what was taken of it is known. */
void worker_plan_withdraw(struct pump_shm *shm, struct pump_model *m, uint32_t device);
/* Writes what has become expected into the mapping, so that the client compares a plan that
 * stays in force with that as well. */
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

/* ---- what is sent (worker_send.c) ------------------------------------------------ */

/* What goes next by the plan in force, or by the last decision if that allows it, now that
 * transfers have ended. */
void worker_go_on(struct pump_shm *shm, struct pump_model *m, uint32_t device);
/* What the device misses, soonest first, as far as the allowance goes. */
void worker_allowance(struct pump_shm *shm, struct pump_model *m, uint32_t device);
/* What a policy has decided; then plans what comes next, unless the plan in force says the
 * same. */
void worker_decision(struct pump_shm *shm, struct pump_model *m, uint32_t device,
                     const struct worker_moves *moves);

#endif
