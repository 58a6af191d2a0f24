/* worker_send.c - what a worker sends: by a decision, by what that allows, or by the plan.
 *
 * The same for the worker over a mapping (worker_step.c) and for the simulator's
 * (sim_worker.c); they differ in where commands go.
 */
#include "worker.h"

#define AT_ONCE PUMP_VIEW_CANDIDATES /* blocks; more than may be in flight */

/* What finds no room with the executors is as if never started. */
static void submit(const struct worker *to, uint32_t device, uint32_t way,
                   const struct pump_command *commands, uint32_t made) {
  if (made == 0) return;
  const struct worker_executors *executors = &to->executors;
  uint32_t given = executors->submit(executors->context, device, way, commands, made);
  pump_model_take_back(to->model, &commands[given], made - given);
}

static void start(const struct worker *to, uint32_t device, uint32_t way,
                  const int64_t *blocks, uint32_t count) {
  struct pump_command commands[PUMP_COMMAND_SLOTS];
  if (count == 0) return;
  uint32_t made =
      pump_model_start(to->model, device, way, blocks, count, commands, PUMP_COMMAND_SLOTS);
  submit(to, device, way, commands, made);
}

static void plan(const struct worker *to, uint32_t device) {
  if (to->plans) pump_worker_plan(to->shm, to->model, device);
}

/* ---- by the plan in force ------------------------------------------------------------ */

static void leave(const struct worker *to, uint32_t device) {
  int64_t blocks[AT_ONCE];
  uint32_t count = worker_plan_leaving(to->shm, to->model, device, blocks, AT_ONCE);
  start(to, device, PUMP_TO_HOST, blocks, count);
}

static void arrive(const struct worker *to, uint32_t device, const int64_t *missing,
                   uint32_t count) {
  int64_t blocks[AT_ONCE];
  count = worker_plan_arriving(to->shm, to->model, device, missing, count, blocks, AT_ONCE);
  start(to, device, PUMP_TO_GPU, blocks, count);
}

static void go_on_by_plan(const struct worker *to, uint32_t device) {
  struct pump_model *m = to->model;
  const struct device *d = &m->devices[device];
  leave(to, device);
  int64_t credit = model_credit(m, d, PUMP_TO_GPU);
  int64_t room = d->facts.budget - model_occupied(d);
  if (credit < m->bounds.slice_least || room < m->bounds.slice_least) return;
  model_missing(m, device, &m->scratch, AT_ONCE);
  arrive(to, device, m->scratch.missing, m->scratch.missing_count);
}

/* ---- what is sent -------------------------------------------------------------------- */

void worker_go_on(const struct worker *to, uint32_t device) {
  static const uint32_t ways[] = {PUMP_TO_HOST, PUMP_TO_GPU};
  struct pump_command commands[PUMP_COMMAND_SLOTS];
  struct pump_model *m = to->model;
  pump_model_turn(m, device);
  if (model_plan_holds(m, device)) go_on_by_plan(to, device);
  if (!model_may_go_on(m, device)) return; /* or what the decision allows besides */
  worker_plan_withdraw(to->shm, m, device);
  for (uint32_t i = 0; i < PUMP_DIRECTIONS; i++) {
    uint32_t made = model_go_on(m, device, ways[i], commands, PUMP_COMMAND_SLOTS);
    submit(to, device, ways[i], commands, made);
  }
  plan(to, device);
}

void worker_allowance(const struct worker *to, uint32_t device) {
  struct pump_command commands[PUMP_COMMAND_SLOTS];
  struct pump_model *m = to->model;
  if (m->devices[device].allowance <= 0 || model_plan_holds(m, device)) return;
  worker_plan_withdraw(to->shm, m, device); /* the tick that follows makes another one */
  uint32_t made = model_use_allowance(m, device, commands, PUMP_COMMAND_SLOTS);
  submit(to, device, PUMP_TO_GPU, commands, made);
}

void worker_decision(const struct worker *to, uint32_t device,
                     const struct worker_moves *moves) {
  struct pump_model *m = to->model;
  bool any = moves->to_host_count + moves->to_gpu_count > 0;
  if (model_plan_holds(m, device) && worker_plan_agrees(to->shm, m, device, moves)) {
    leave(to, device);
    arrive(to, device, moves->to_gpu, moves->to_gpu_count);
    return;
  }
  if (any) worker_plan_withdraw(to->shm, m, device);
  start(to, device, PUMP_TO_HOST, moves->to_host, moves->to_host_count);
  start(to, device, PUMP_TO_GPU, moves->to_gpu, moves->to_gpu_count);
  if (any || worker_plan_is_due(m, device)) plan(to, device);
}
