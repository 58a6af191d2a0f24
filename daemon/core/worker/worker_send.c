/* worker_send.c - what a worker sends: by a decision, by what that allows, or by the plan.
 */
#include "worker.h"

#define AT_ONCE PUMP_VIEW_CANDIDATES /* blocks; more than may be in flight */

/* What finds no room in the ring is as if never started. */
static void submit(struct pump_shm *shm, struct pump_model *m, uint32_t device,
                   uint32_t way, const struct pump_command *commands, uint32_t made) {
  if (made == 0) return;
  int given = pump_core_submit(shm, device, way, commands, made);
  uint32_t sent = given < 0 ? 0 : (uint32_t)given;
  pump_model_take_back(m, &commands[sent], made - sent);
}

static void start(struct pump_shm *shm, struct pump_model *m, uint32_t device, uint32_t way,
                  const int64_t *blocks, uint32_t count) {
  struct pump_command commands[PUMP_COMMAND_SLOTS];
  if (count == 0) return;
  uint32_t made =
      pump_model_start(m, device, way, blocks, count, commands, PUMP_COMMAND_SLOTS);
  submit(shm, m, device, way, commands, made);
}

/* ---- by the plan in force -------------------------------------------------------- */

static void leave(struct pump_shm *shm, struct pump_model *m, uint32_t device) {
  int64_t blocks[AT_ONCE];
  uint32_t count = worker_plan_leaving(shm, m, device, blocks, AT_ONCE);
  start(shm, m, device, PUMP_TO_HOST, blocks, count);
}

static void arrive(struct pump_shm *shm, struct pump_model *m, uint32_t device,
                   const int64_t *missing, uint32_t count) {
  int64_t blocks[AT_ONCE];
  count = worker_plan_arriving(shm, m, device, missing, count, blocks, AT_ONCE);
  start(shm, m, device, PUMP_TO_GPU, blocks, count);
}

static void go_on_by_plan(struct pump_shm *shm, struct pump_model *m, uint32_t device) {
  const struct device *d = &m->devices[device];
  leave(shm, m, device);
  int64_t credit = model_credit(m, d, PUMP_TO_GPU);
  int64_t room = d->facts.budget - model_occupied(d);
  if (credit < m->bounds.slice_least || room < m->bounds.slice_least) return;
  model_missing(m, device, &m->scratch, AT_ONCE);
  arrive(shm, m, device, m->scratch.missing, m->scratch.missing_count);
}

/* ---- what is sent ---------------------------------------------------------------- */

void worker_go_on(struct pump_shm *shm, struct pump_model *m, uint32_t device) {
  static const uint32_t ways[] = {PUMP_TO_HOST, PUMP_TO_GPU};
  struct pump_command commands[PUMP_COMMAND_SLOTS];
  pump_model_turn(m, device);
  if (m->plans.alone) {
    if (m->devices[device].known && worker_plan_is_due(m, device))
      pump_worker_plan(shm, m, device);
    return;
  }
  if (model_plan_holds(m, device)) go_on_by_plan(shm, m, device);
  if (!model_may_go_on(m, device)) return; /* or what the decision allows besides */
  worker_plan_withdraw(shm, m, device);
  for (uint32_t i = 0; i < PUMP_DIRECTIONS; i++) {
    uint32_t made = model_go_on(m, device, ways[i], commands, PUMP_COMMAND_SLOTS);
    submit(shm, m, device, ways[i], commands, made);
  }
  pump_worker_plan(shm, m, device);
}

void worker_allowance(struct pump_shm *shm, struct pump_model *m, uint32_t device) {
  struct pump_command commands[PUMP_COMMAND_SLOTS];
  if (m->devices[device].allowance <= 0 || model_plan_holds(m, device)) return;
  worker_plan_withdraw(shm, m, device); /* the tick that follows makes another one */
  uint32_t made = model_use_allowance(m, device, commands, PUMP_COMMAND_SLOTS);
  submit(shm, m, device, PUMP_TO_GPU, commands, made);
}

void worker_decision(struct pump_shm *shm, struct pump_model *m, uint32_t device,
                     const struct worker_moves *moves) {
  bool any = moves->to_host_count + moves->to_gpu_count > 0;
  if (model_plan_holds(m, device) && worker_plan_agrees(shm, m, device, moves)) {
    leave(shm, m, device);
    arrive(shm, m, device, moves->to_gpu, moves->to_gpu_count);
    return;
  }
  if (any) worker_plan_withdraw(shm, m, device);
  start(shm, m, device, PUMP_TO_HOST, moves->to_host, moves->to_host_count);
  start(shm, m, device, PUMP_TO_GPU, moves->to_gpu, moves->to_gpu_count);
  if (any || worker_plan_is_due(m, device)) pump_worker_plan(shm, m, device);
}
