/* sim_worker.c - the worker as pumpd runs it: rows in, progress, and a decision. */
#include <stdlib.h>

#include "sim_state.h"

#define SPIN_NS 20000 /* after a tick it stays awake that long: worker.py */
#define QUIET_NS 1000000
#define SLEEP_NS 250000000
#define PREDICT_AT_ONCE 128 /* operations: worker_step.c */

/* ---- when ------------------------------------------------------------------------- */

void sim_worker_stir(struct pump_sim *sim) {
  if (sim->model == NULL || !sim->active) return;
  uint64_t begin_ns = sim_most(sim->now_ns, sim->busy_until_ns);
  if (sim->now_ns > sim->busy_until_ns + SPIN_NS) begin_ns += sim->settings.wake_ns;
  sim->tick_ns = sim_least(sim->tick_ns, begin_ns);
  sim->naps = 0;
}

uint64_t sim_worker_awake_ns(const struct pump_sim *sim, uint64_t time_ns) {
  uint64_t every_ns = sim->settings.stop_every_ns;
  if (every_ns == 0 || time_ns == GPU_NEVER) return time_ns;
  uint64_t begin_ns = time_ns / every_ns * every_ns;
  bool stopped = time_ns - begin_ns >= every_ns - sim->settings.stop_ns;
  return stopped ? begin_ns + every_ns : time_ns;
}

void sim_worker_judge(struct pump_sim *sim) {
  if (sim->active || sim->allocated_bytes <= sim->settings.budget_bytes) return;
  sim->active = true;
  sim->active_from = sim->step;
}

void sim_worker_look(struct pump_sim *sim) {
  uint64_t every = sim->settings.marker_poll_ns, now = gpu_now_ns(sim->engine);
  sim->poll_ns = sim_least(sim->poll_ns, (now / every + 1) * every);
}

void sim_worker_poll(struct pump_sim *sim) {
  bool advanced = sim_discards_poll(sim);
  for (uint32_t i = 0; i < sim->program.streams; i++) {
    struct sim_stream *stream = &sim->streams[i];
    if (stream->marked_seq <= stream->executed_seq) continue;
    stream->executed_seq = stream->marked_seq;
    advanced = true;
  }
  sim->poll_ns = GPU_NEVER;
  if (advanced) sim_worker_stir(sim);
}

/* ---- rows --------------------------------------------------------------------------- */

static void add_use(const struct pump_sim *sim, const struct pump_sim_use *use) {
  struct pump_batch *batch = sim->batch;
  const struct pump_sim_range *range = &sim->program.ranges[use->range];
  uint32_t i = batch->uses++;
  batch->slot[i] = range->slot;
  batch->generation[i] = range->generation;
  batch->offset_bytes[i] = use->offset_bytes;
  batch->length_bytes[i] = use->length_bytes;
  batch->access[i] = (uint8_t)use->access;
}

static uint32_t begin_row(const struct pump_sim *sim, uint16_t kind) {
  struct pump_batch *batch = sim->batch;
  uint32_t row = batch->rows;
  batch->kind[row] = kind;
  batch->device[row] = 0;
  batch->stream[row] = 0;
  batch->seq[row] = batch->function[row] = batch->signature[row] = 0;
  batch->time_ns[row] = sim->now_ns;
  batch->payload_bytes[row] = 0;
  batch->dropped[row] = 0;
  return row;
}

static uint16_t event_kind(uint32_t kind) {
  if (kind == GPU_KERNEL) return PUMP_EVENT_KERNEL;
  return kind == GPU_MEMSET ? PUMP_EVENT_MEMSET : PUMP_EVENT_COPY;
}

static void add_range_row(const struct pump_sim *sim, const struct pump_sim_step *step) {
  const struct pump_sim_range *range = &sim->program.ranges[step->range];
  bool alloc = step->kind == PUMP_SIM_ALLOC;
  uint32_t row = begin_row(sim, alloc ? PUMP_EVENT_ALLOC : PUMP_EVENT_FREE);
  struct pump_sim_use whole = {.length_bytes = range->length_bytes, .range = step->range};
  sim->batch->function[row] = ((uint64_t)range->first_block + 1) * GPU_BLOCK_BYTES;
  add_use(sim, &whole);
}

/* A trace has no handles: kernels that do the same share one. */
static uint64_t function_of(const struct pump_sim_step *step) {
  return step->kind == GPU_KERNEL ? step->signature : 0;
}

static void add_operation_row(const struct pump_sim *sim,
                              const struct pump_sim_step *step) {
  uint32_t row = begin_row(sim, event_kind(step->kind));
  sim->batch->seq[row] = step->seq;
  sim->batch->signature[row] = step->signature;
  sim->batch->function[row] = function_of(step);
  sim->batch->stream[row] = step->stream + 1;
  uint32_t told = step->uses < PUMP_MAX_EXTENTS ? step->uses : PUMP_MAX_EXTENTS;
  sim->batch->dropped[row] = (uint16_t)sim_least(step->uses - told, UINT16_MAX);
  for (uint32_t i = 0; i < told; i++) add_use(sim, &sim->program.uses[step->first_use + i]);
}

static void apply(struct pump_sim *sim) {
  struct pump_batch *batch = sim->batch;
  pump_model_ingest(sim->model, batch);
  batch->rows = batch->uses = batch->payload_used = 0;
}

/* That it will come behind what was issued, or that it has ended. */
static void add_discard_row(const struct pump_sim *sim, uint16_t kind, uint32_t index) {
  const struct pump_sim_step *step = &sim->program.steps[index];
  uint32_t row = begin_row(sim, kind);
  sim->batch->seq[row] = sim_discards_behind(sim, index);
  sim->batch->stream[row] = sim->program.streams + 1;
  for (uint32_t i = 0; i < step->uses; i++)
    add_use(sim, &sim->program.uses[step->first_use + i]);
}

/* Turns a step into a row; false where there is none to make of it. */
static bool add_row(const struct pump_sim *sim, uint32_t index) {
  const struct pump_sim_step *step = &sim->program.steps[index];
  if (step->kind == PUMP_SIM_ALLOC || step->kind == PUMP_SIM_FREE)
    add_range_row(sim, step);
  else if (step->seq != 0 && index >= sim->active_from)
    add_operation_row(sim, step);
  else if (step->kind == GPU_DISCARD && index >= sim->active_from)
    add_discard_row(sim, PUMP_EVENT_FREED, index);
  else
    return false;
  return true;
}

/* Turns a step that is a discard and has ended into a row. */
static bool add_ended_row(const struct pump_sim *sim, uint32_t index) {
  if (sim->program.steps[index].kind != GPU_DISCARD || index < sim->active_from)
    return false;
  add_discard_row(sim, PUMP_EVENT_DISCARDED, index);
  return true;
}

#define BATCH_ROWS (sizeof((struct pump_batch *)0)->seq / sizeof(uint64_t))
#define BATCH_USES (sizeof((struct pump_batch *)0)->slot / sizeof(uint32_t))

static void end_row(struct pump_sim *sim) {
  struct pump_batch *batch = sim->batch;
  batch->use_begin[++batch->rows] = batch->uses;
  if (batch->rows == BATCH_ROWS || batch->uses + sim->program.uses_most > BATCH_USES)
    apply(sim);
}

/* Tells the model of all steps before `until`, and of discards that have ended; returns how
 * many rows that made. */
static uint32_t tell(struct pump_sim *sim, uint32_t until) {
  uint32_t rows = 0;
  for (; sim->told < until; sim->told++)
    if (add_row(sim, sim->told)) end_row(sim), rows++;
  uint32_t ended = (uint32_t)sim_least(sim->discards.seen_step, sim->told);
  for (uint32_t *told = &sim->discards.told_step; *told < ended; ++*told)
    if (add_ended_row(sim, *told)) end_row(sim), rows++;
  if (sim->batch->rows > 0) apply(sim);
  return rows;
}

/* The future is told up to the next change of what is live. */
static uint32_t predicted(const struct pump_sim *sim, bool asked) {
  const struct pump_sim_settings *settings = &sim->settings;
  uint32_t base = settings->foresight_run ? sim->run_step : sim->step;
  uint64_t until = base;
  if (asked && sim->step >= settings->foresight_from) until += settings->foresight;
  if (until > sim->program.step_count) until = sim->program.step_count;
  uint32_t end = sim_most(sim->step, sim->told) < until
                     ? (uint32_t)sim_most(sim->step, sim->told)
                     : (uint32_t)until;
  for (; end < until; end++) {
    uint32_t kind = sim->program.steps[end].kind;
    if (kind == PUMP_SIM_ALLOC || kind == PUMP_SIM_FREE) break;
  }
  return end;
}

/* ---- what is expected ------------------------------------------------------------ */

/* A pass over the program with what was discarded since its last use. */
bool sim_worker_foresee(struct pump_sim *sim) {
  const struct pump_sim_program *program = &sim->program;
  uint8_t *discarded = calloc(program->blocks, 1);
  if (discarded == NULL) return false;
  for (uint32_t i = 0; i < program->step_count; i++) {
    const struct pump_sim_step *step = &program->steps[i];
    bool discards = step->kind == GPU_DISCARD;
    if (!discards && step->seq == 0) continue;
    for (uint32_t u = step->first_use; u < step->first_use + step->uses; u++) {
      const struct pump_sim_use *use = &program->uses[u];
      uint32_t first = program->ranges[use->range].first_block;
      uint64_t begin = use->offset_bytes, end = begin + use->length_bytes;
      if (discards) begin += GPU_BLOCK_BYTES - 1;
      if (!discards) end += GPU_BLOCK_BYTES - 1;
      begin /= GPU_BLOCK_BYTES, end /= GPU_BLOCK_BYTES;
      if (end <= begin) continue;
      uint8_t *span = &discarded[first + begin];
      uint64_t count = end - begin;
      if (!discards)
        sim->fresh[u] = (uint8_t)((span[0] ? PUMP_FRESH_FIRST : 0) |
                                  (span[count / 2] ? PUMP_FRESH : 0) |
                                  (span[count - 1] ? PUMP_FRESH_LAST : 0));
      for (uint64_t b = 0; b < count; b++) span[b] = discards;
    }
  }
  free(discarded);
  return true;
}

#define EXPECT_AT_ONCE 512 /* operations */

/* True while there is a place for more. */
static bool expect_step(struct pump_sim *sim, const struct pump_sim_step *step) {
  struct pump_model_extent extents[PUMP_MAX_EXTENTS];
  uint32_t count = 0;
  if (step->seq == 0) return true;
  for (uint32_t u = step->first_use; u < step->first_use + step->uses; u++) {
    const struct pump_sim_use *use = &sim->program.uses[u];
    const struct pump_sim_range *range = &sim->program.ranges[use->range];
    if (count < PUMP_MAX_EXTENTS)
      extents[count++] = (struct pump_model_extent){.slot = range->slot,
                                                    .generation = range->generation,
                                                    .offset_bytes = use->offset_bytes,
                                                    .length_bytes = use->length_bytes,
                                                    .fresh = sim->fresh[u]};
  }
  return pump_model_expect(sim->model, step->stream + 1, extents, count) == 0;
}

static void expect(struct pump_sim *sim) {
  struct pump_model *model = sim->model;
  uint32_t until = predicted(sim, true), from = sim->expected;
  if (model->op_issued == model->op_head || from < sim->told) from = sim->told;
  uint32_t end = (uint32_t)sim_least(until, (uint64_t)from + EXPECT_AT_ONCE);
  while (from < end && expect_step(sim, &sim->program.steps[from])) from++;
  sim->expected = from;
}

/* ---- a tick -------------------------------------------------------------------------- */

static void take_progress(struct pump_sim *sim) {
  uint64_t executed[PUMP_MAX_STREAMS];
  executed[0] = 0;
  for (uint32_t i = 0; i <= sim->program.streams && i + 1 < PUMP_MAX_STREAMS; i++)
    executed[i + 1] = sim->shm->progress[i + 1].executed_seq = sim->streams[i].executed_seq;
  pump_model_progress(sim->model, executed, 1);
}

static uint32_t submit(void *context, uint32_t device, uint32_t direction,
                       const struct pump_command *commands, uint32_t count) {
  struct pump_sim *sim = context;
  (void)device;
  uint32_t given = 0;
  while (given < count && sim_movers_push(sim, direction, &commands[given], sim->sends_ns))
    given++;
  return given;
}

static struct worker worker_of(struct pump_sim *sim) {
  return (struct worker){.shm = sim->shm,
                         .model = sim->model,
                         .executors = {.context = sim, .submit = submit},
                         .plans = sim->settings.plans != 0};
}

/* A plan that was just put in force is seen at the end of the tick. */
static void date_plan(struct pump_sim *sim) {
  if (sim->plan_version == sim->model->plans[0].version) return;
  sim->plan_version = sim->model->plans[0].version;
  sim->plan_ns = sim->busy_until_ns;
}

void sim_worker_read(struct pump_sim *sim) {
  bool expects = sim->settings.foresight_expects != 0;
  const struct worker to = worker_of(sim);
  uint32_t rows = tell(sim, predicted(sim, !expects));
  if (expects && sim->active) expect(sim);
  if (pump_model_predict(sim->model, PREDICT_AT_ONCE) > 0)
    worker_plan_predict(sim->shm, sim->model);
  sim->sends_ns = sim->now_ns; /* before Python wakes */
  if (rows > 0) worker_allowance(&to, 0);
  worker_plan_arrived(sim->shm, sim->model);
  take_progress(sim);
  bool quiet = rows == 0 && sim->outcome_count == 0;
  pump_model_finish(sim->model, sim->outcomes, sim->outcome_count);
  sim->outcome_count = 0;
  worker_plan_left(sim->shm, sim->model);
  sim->result.ticks++;
  sim->busy_until_ns = sim->now_ns + sim->settings.tick_ns + rows * sim->settings.row_ns;
  sim->sends_ns = sim->busy_until_ns;
  worker_go_on(&to, 0);
  date_plan(sim);
  sim->naps = quiet ? sim->naps + 1 : 0;
  sim->tick_ns = sim->busy_until_ns + (sim->naps < 2 ? QUIET_NS : SLEEP_NS);
}

void pump_sim_carry_out(struct pump_sim *sim, const int64_t *to_host,
                        uint32_t to_host_count, const int64_t *to_gpu,
                        uint32_t to_gpu_count) {
  if (sim->model == NULL) return;
  const struct worker to = worker_of(sim);
  const struct worker_moves moves = {.to_host = to_host,
                                     .to_gpu = to_gpu,
                                     .to_host_count = to_host_count,
                                     .to_gpu_count = to_gpu_count};
  worker_decision(&to, 0, &moves);
  date_plan(sim);
}

/* ---- plans ------------------------------------------------------------------------ */

void sim_worker_compare(struct pump_sim *sim, const struct pump_sim_step *step) {
  struct pump_header *header = &sim->shm->header;
  header->next_seq = step->seq + 1;
  if (header->armed == 0) return;
  uint64_t word = pump_prediction_word(step->seq, step->stream + 1, event_kind(step->kind),
                                       step->signature);
  if (pump_prediction_at(sim->shm, step->seq)->signature == word) return;
  header->armed = 0;
  sim->result.plans_dropped += sim->model->plans[0].in_force;
}
