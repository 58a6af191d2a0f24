/* sim.c - the simulator's clock: start, next event, end. */
#include <stdlib.h>
#include <string.h>

#include "sim_state.h"

#define ENGINE_OPERATIONS_MOST 65536u
#define ENGINE_USES_MOST (1u << 22)

/* ---- start and end ---------------------------------------------------------------- */

static void on_finish(void *context, uint64_t cookie, uint64_t ticket, uint64_t start_ns,
                      uint64_t end_ns) {
  struct pump_sim *sim = context;
  (void)ticket, (void)start_ns, (void)end_ns;
  if (cookie >= SIM_DISCARD_COOKIE)
    sim_discards_ended(sim, (uint32_t)(cookie - SIM_DISCARD_COOKIE));
  else if (cookie >= SIM_LANE_COOKIE)
    sim_movers_arrived(sim, cookie - SIM_LANE_COOKIE);
  else if (cookie != 0)
    sim_program_finished(sim, (uint32_t)(cookie - 1));
}

static bool use_fits(const struct pump_sim_program *program,
                     const struct pump_sim_use *use) {
  if (use->range >= program->range_count) return false;
  uint64_t most = program->ranges[use->range].length_bytes;
  return use->length_bytes > 0 && use->offset_bytes < most &&
         (use->rows == 0 || use->row_bytes > 0) &&
         use->length_bytes <= most - use->offset_bytes;
}

/* Returns whether the program ends with a synchronisation of all its work. */
static bool ends_with_sync(const struct pump_sim_program *program) {
  if (program->step_count == 0) return false;
  const struct pump_sim_step *last = &program->steps[program->step_count - 1];
  return last->kind == PUMP_SIM_SYNC && last->stream == PUMP_SIM_ALL;
}

static bool tables_make_sense(const struct pump_sim_program *program) {
  for (uint32_t i = 0; i < program->range_count; i++) {
    const struct pump_sim_range *range = &program->ranges[i];
    if (range->length_bytes == 0 || range->length_bytes % GPU_BLOCK_BYTES != 0 ||
        range->slot >= PUMP_MAX_RANGES || range->first_block > program->blocks ||
        range->length_bytes / GPU_BLOCK_BYTES > program->blocks - range->first_block)
      return false;
  }
  for (uint32_t i = 0; i < program->use_count; i++)
    if (!use_fits(program, &program->uses[i])) return false;
  for (uint32_t i = 0; i < program->step_count; i++) {
    const struct pump_sim_step *step = &program->steps[i];
    bool all = step->kind == PUMP_SIM_SYNC && step->stream == PUMP_SIM_ALL;
    if (step->stream >= program->streams && !all) return false;
    if (step->uses > program->uses_most || step->uses > PUMP_EVENT_SLOTS ||
        step->first_use > program->use_count ||
        step->uses > program->use_count - step->first_use)
      return false;
    bool ranged = step->kind == PUMP_SIM_ALLOC || step->kind == PUMP_SIM_FREE ||
                  step->kind == PUMP_SIM_ADVISE;
    if (ranged && step->range >= program->range_count) return false;
  }
  return program->streams > 0 && program->streams + 1 < PUMP_MAX_STREAMS &&
         program->blocks > 0 && ends_with_sync(program);
}

static bool make_engine(struct pump_sim *sim, const struct uvm_profile *profile) {
  const struct pump_sim_program *program = &sim->program;
  uint64_t operations = (uint64_t)(program->streams + 1) * (GPU_STREAM_QUEUE + 8) + 64;
  if (operations > ENGINE_OPERATIONS_MOST) operations = ENGINE_OPERATIONS_MOST;
  uint64_t uses = operations * (program->uses_most + 1);
  if (uses > ENGINE_USES_MOST) uses = ENGINE_USES_MOST;
  struct gpu_capacity capacity = {.blocks = program->blocks,
                                  .streams = program->streams +
                                             PUMP_DIRECTIONS * SIM_MOVERS * SIM_LANES + 2,
                                  .events = program->streams + SIM_DISCARDS,
                                  .operations = (uint32_t)operations,
                                  .uses = (uint32_t)uses};
  size_t bytes = gpu_engine_bytes(&capacity);
  if (bytes == 0) return false;
  sim->engine_memory = calloc(1, bytes);
  if (sim->engine_memory == NULL) return false;
  sim->engine = gpu_engine_create(sim->engine_memory, bytes, &capacity, profile,
                                  sim->settings.memory_bytes, 0);
  if (sim->engine == NULL) return false;
  if (sim->settings.host.memory_bytes != 0 &&
      gpu_host_limit(sim->engine, &sim->settings.host) != GPU_OK)
    return false;
  if (gpu_jitter(sim->engine, sim->settings.jitter, sim->settings.jitter_seed) != GPU_OK ||
      gpu_locks(sim->engine, sim->settings.locks) != GPU_OK ||
      gpu_connections(sim->engine, sim->settings.connections) != GPU_OK)
    return false;
  for (uint32_t i = 0; i < program->streams; i++) {
    int number = gpu_stream_create(sim->engine, GPU_STREAM_NONBLOCKING, 0);
    if (number < 0) return false;
    sim->streams[i].number = (uint32_t)number;
  }
  return sim_discards_init(sim) && sim_duplicates_init(sim) && sim_flash_init(sim) &&
         sim_movers_init(sim);
}

static bool make_tables(struct pump_sim *sim) {
  const struct pump_sim_program *program = &sim->program;
  for (uint32_t i = 0; i < program->step_count; i++) {
    if (program->steps[i].kind != PUMP_SIM_SYNC) continue;
    sim->syncs_most++;
    sim->marks_most += program->steps[i].mark != 0;
  }
  sim->streams = calloc(program->streams + 1, sizeof *sim->streams);
  sim->scratch_uses = calloc(program->uses_most + 1, sizeof *sim->scratch_uses);
  sim->marker_after = calloc(program->step_count + 1, 1);
  sim->last_use_seq = calloc((size_t)program->range_count * PUMP_RANGE_EIGHTHS + 1,
                             sizeof *sim->last_use_seq);
  sim->live = calloc(program->range_count + 1, 1);
  sim->populate = calloc(program->range_count + 1, sizeof *sim->populate);
  sim->range_of_slot = calloc(PUMP_MAX_RANGES, sizeof *sim->range_of_slot);
  sim->marks = calloc(sim->marks_most + 1, sizeof *sim->marks);
  sim->syncs_ns = calloc(sim->syncs_most + 1, sizeof *sim->syncs_ns);
  sim->transfers = calloc(sim->settings.transfers_most + 1, sizeof *sim->transfers);
  sim->batch = calloc(1, sizeof *sim->batch);
  sim->fresh = calloc(program->use_count + 1, sizeof *sim->fresh);
  sim->discards.of_block = calloc(program->blocks, sizeof *sim->discards.of_block);
  sim->shm = calloc(1, sizeof *sim->shm);
  return sim->streams && sim->scratch_uses && sim->marker_after && sim->last_use_seq &&
         sim->live && sim->populate && sim->range_of_slot && sim->marks && sim->syncs_ns &&
         sim->transfers && sim->batch && sim->fresh && sim->discards.of_block && sim->shm;
}

struct pump_sim *pump_sim_new(const struct pump_sim_program *program,
                              const struct pump_sim_settings *settings,
                              const struct uvm_profile *profile, struct pump_model *model) {
  if (settings->queue_operations == 0 || settings->queue_operations > GPU_STREAM_QUEUE ||
      settings->marker_poll_ns == 0 || !tables_make_sense(program))
    return NULL;
  struct pump_sim *sim = calloc(1, sizeof *sim);
  if (sim == NULL) return NULL;
  sim->program = *program;
  sim->settings = *settings;
  sim->model = model;
  sim->hooks = (struct gpu_hooks){.context = sim, .finish = on_finish};
  sim->tick_ns = sim->poll_ns = GPU_NEVER;
  sim->map_ns = settings->map_every_ns != 0 ? settings->map_every_ns : GPU_NEVER;
  if (!sim_waits_init(sim) || !make_tables(sim) || !make_engine(sim, profile) ||
      (settings->foresight_expects && !sim_worker_find_fresh(sim))) {
    pump_sim_delete(sim);
    return NULL;
  }
  return sim;
}

void pump_sim_delete(struct pump_sim *sim) {
  if (sim == NULL) return;
  void *const owned[] = {sim->streams,       sim->scratch_uses,
                         sim->marker_after,  sim->last_use_seq,
                         sim->live,          sim->populate,
                         sim->range_of_slot, sim->marks,
                         sim->syncs_ns,      sim->batch,
                         sim->fresh,         sim->engine_memory,
                         sim->shm,           sim->discards.of_block,
                         sim->transfers,     sim->duplicates.hinted};
  for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++) free(owned[i]);
  free(sim);
}

/* ---- running --------------------------------------------------------------------- */

static uint64_t next_ns(struct pump_sim *sim) {
  uint64_t next = gpu_next_event_ns(sim->engine);
  next = sim_least(next, sim->map_ns);
  bool timed =
      sim->waits == SIM_RUNS || sim->waits == SIM_RETRIES || sim->waits == SIM_LOCKED;
  if (timed) next = sim_least(next, sim->program_ns);
  if (sim->model == NULL) return next;
  uint64_t tick_ns = sim_worker_due_ns(sim, sim->tick_ns);
  next = sim_least(next, sim_least(tick_ns, sim->poll_ns));
  for (uint32_t i = 0; i < PUMP_DIRECTIONS; i++)
    next = sim_least(next, sim_movers_next_ns(sim, i));
  if (sim->settings.flash_ahead) next = sim_least(next, sim->flash.next_ns);
  return next;
}

void pump_sim_leaves_for_flash(struct pump_sim *sim, uint32_t block) {
  gpu_leaves_for_flash(sim->engine, block);
}

int pump_sim_run(struct pump_sim *sim) {
  if (sim->model != NULL) sim_worker_show(sim); /* makes the last decision visible */
  while (sim->failure == 0) {
    if (sim->waits == SIM_ENDED) return PUMP_SIM_DONE;
    uint64_t next = next_ns(sim);
    if (next == GPU_NEVER) return PUMP_SIM_STUCK;
    sim->now_ns = sim_most(sim->now_ns, next);
    gpu_advance(sim->engine, sim->now_ns, &sim->hooks);
    /* The program has waited for the lock longer than any other thread. */
    if (sim->waits == SIM_LOCKED) sim_program_go(sim);
    if (sim->model != NULL) {
      if (sim->poll_ns <= sim->now_ns) sim_worker_poll(sim);
      for (uint32_t i = 0; i < PUMP_DIRECTIONS; i++) sim_movers_go(sim, i);
      if (sim->settings.flash_ahead && sim->flash.next_ns <= sim->now_ns) sim_flash_go(sim);
    }
    sim_program_go(sim);
    if (sim->model != NULL && sim_worker_due_ns(sim, sim->tick_ns) <= sim->now_ns &&
        sim->waits != SIM_ENDED) {
      sim_worker_tick(sim);
      if (sim->settings.decides) return PUMP_SIM_DECIDE;
    }
  }
  return sim->failure;
}

/* ---- queries ---------------------------------------------------------------------- */

void pump_sim_result(const struct pump_sim *sim, struct pump_sim_result *out) {
  *out = sim->result;
  out->now_ns = sim->now_ns;
  out->schedules = sim->schedule_version;
  for (uint32_t i = 0; i < PUMP_DIRECTIONS; i++)
    out->movers[i] = sim->directions[i].adapt.threads;
  if (sim->model == NULL) return;
  struct pump_model_totals totals;
  pump_model_totals(sim->model, &totals);
  out->trials = totals.trials;
  out->trials_wrong = totals.trials_wrong;
}

uint32_t pump_sim_mark(const struct pump_sim *sim, uint32_t i, struct pump_sim_mark *out) {
  if (i < sim->mark_count) *out = sim->marks[i];
  return sim->mark_count;
}

uint32_t pump_sim_step_now(const struct pump_sim *sim) {
  return sim->step;
}

uint32_t pump_sim_step_run(const struct pump_sim *sim) {
  return sim->run_step;
}

const struct pump_sim_transfer *pump_sim_transfers(const struct pump_sim *sim,
                                                   uint64_t *count) {
  *count = sim->transfer_count;
  return sim->transfers;
}

uint32_t pump_sim_syncs(const struct pump_sim *sim, uint64_t *times_ns, uint32_t max) {
  for (uint32_t i = 0; i < sim->sync_count && i < max; i++) times_ns[i] = sim->syncs_ns[i];
  return sim->sync_count;
}
