/* sim_worker.c - the worker as pumpd runs it: reads rows, updates progress, decides. */
#include <stdlib.h>

#include "shim/progress/marker_rule.h"
#include "sim_state.h"

#define SLEEP_NS 251000000 /* until the next tick if nothing happens: worker.py */

/* ---- time -------------------------------------------------------------------------- */

void sim_worker_wake(struct pump_sim *sim) {
  if (sim->model == NULL || !sim->active || sim->woken) return;
  uint64_t begin_ns = sim_most(sim->now_ns, sim->busy_until_ns);
  begin_ns =
      sim_wait_end_ns(&sim->wait, &sim->settings.worker_wake, sim->busy_until_ns, begin_ns);
  sim->woken = true;
  sim->tick_ns = sim_least(sim->tick_ns, begin_ns);
}

uint64_t sim_worker_due_ns(const struct pump_sim *sim, uint64_t time_ns) {
  uint64_t every_ns = sim->settings.stop_every_ns;
  if (every_ns == 0 || time_ns == GPU_NEVER) return time_ns;
  uint64_t begin_ns = time_ns / every_ns * every_ns;
  bool stopped = time_ns - begin_ns >= every_ns - sim->settings.stop_ns;
  return stopped ? begin_ns + every_ns : time_ns;
}

void sim_worker_activate(struct pump_sim *sim) {
  if (sim->active || sim->allocated_bytes <= sim->settings.budget_bytes) return;
  sim->active = true;
  sim->active_from = sim->step;
}

void sim_worker_poll_next(struct pump_sim *sim) {
  uint64_t every = sim->settings.marker_poll_ns, now = gpu_now_ns(sim->engine);
  sim->poll_ns = sim_least(sim->poll_ns, (now / every + 1) * every);
}

static bool presume(struct pump_sim *sim) {
  bool any = false;
  if (sim->now_ns - sim->presumed_ns < PUMP_PRESUME_NS) return false;
  sim->presumed_ns = sim->now_ns;
  for (uint32_t i = 0; i < sim->program.streams; i++) {
    struct sim_stream *stream = &sim->streams[i];
    if (!pump_marker_presumes(&stream->sign, stream->issued_seq, *sim_executed_seq(sim, i),
                              stream->asked_seq))
      continue;
    *sim_executed_seq(sim, i) = stream->issued_seq;
    any = true;
  }
  return any;
}

void sim_worker_poll(struct pump_sim *sim) {
  bool advanced = sim_discards_poll(sim) | presume(sim);
  for (uint32_t i = 0; i < sim->program.streams; i++) {
    const struct sim_stream *stream = &sim->streams[i];
    if (stream->marked_seq <= *sim_executed_seq(sim, i)) continue;
    *sim_executed_seq(sim, i) = stream->marked_seq;
    advanced = true;
  }
  sim->poll_ns = GPU_NEVER;
  if (advanced) sim_worker_wake(sim);
}

/* ---- rows ------------------------------------------------------------------------ */

/* Reads all steps before `until`, and ended discards; returns the number of rows. */
static uint32_t read_rows(struct pump_sim *sim, uint32_t until) {
  uint32_t rows = 0;
  int read;
  do {
    sim_events_write(sim, until);
    read = pump_worker_read(sim->shm, sim->model, sim->batch);
    if (read > 0) rows += (uint32_t)read;
  } while (read > 0);
  return rows;
}

/* Returns the end of the steps that the worker may read now. Steps that the program has
 * not reached are included only up to the next allocation or free. */
static uint32_t predicted(const struct pump_sim *sim, bool asked) {
  const struct pump_sim_settings *settings = &sim->settings;
  uint32_t base = settings->foresight_run ? sim->run_step : sim->step;
  uint64_t until = base;
  if (asked && sim->step >= settings->foresight_from) until += settings->foresight;
  if (until > sim->program.step_count) until = sim->program.step_count;
  uint32_t end = sim_most(sim->step, sim->written) < until
                     ? (uint32_t)sim_most(sim->step, sim->written)
                     : (uint32_t)until;
  for (; end < until; end++) {
    uint32_t kind = sim->program.steps[end].kind;
    if (kind == PUMP_SIM_ALLOC || kind == PUMP_SIM_FREE) break;
  }
  return end;
}

/* ---- predictions -------------------------------------------------------------------- */

/* Scans the program for blocks that were discarded since their last use. */
bool sim_worker_find_fresh(struct pump_sim *sim) {
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
        sim->fresh[u] = (uint16_t)((span[0] ? PUMP_FRESH_FIRST : 0) |
                                   (span[count / 2] ? PUMP_FRESH : 0) |
                                   (span[count - 1] ? PUMP_FRESH_LAST : 0));
      for (uint64_t b = 0; b < count; b++) span[b] = discards;
    }
  }
  free(discarded);
  return true;
}

#define EXPECT_AT_ONCE 512 /* operations */

/* Returns true while there is space for more. */
static bool expect_step(struct pump_sim *sim, const struct pump_sim_step *step) {
  struct pump_access accesses[PUMP_MAX_EXTENTS];
  uint32_t count = 0;
  if (step->seq == 0) return true;
  for (uint32_t u = step->first_use; u < step->first_use + step->uses; u++) {
    const struct pump_sim_use *use = &sim->program.uses[u];
    const struct pump_sim_range *range = &sim->program.ranges[use->range];
    if (count < PUMP_MAX_EXTENTS)
      accesses[count++] = (struct pump_access){.slot = range->slot,
                                               .generation = range->generation,
                                               .offset_bytes = use->offset_bytes,
                                               .length_bytes = use->length_bytes,
                                               .access = sim->fresh[u]};
  }
  return pump_model_expect(sim->model, step->stream + 1, accesses, count) == 0;
}

static void expect(struct pump_sim *sim) {
  struct pump_model *model = sim->model;
  uint32_t until = predicted(sim, true), from = sim->expected;
  if (model->window.op_issued == model->window.op_head || from < sim->written)
    from = sim->written;
  uint32_t end = (uint32_t)sim_least(until, (uint64_t)from + EXPECT_AT_ONCE);
  while (from < end && expect_step(sim, &sim->program.steps[from])) from++;
  sim->expected = from;
}

/* ---- a tick ---------------------------------------------------------------------- */

void sim_worker_show(struct pump_sim *sim) {
  sim_movers_show(sim, sim->busy_until_ns);
  if (sim->schedule_version == sim->model->schedules.all[0].version) return;
  sim->schedule_version = sim->model->schedules.all[0].version;
  sim->schedule_ns = sim->busy_until_ns;
}

void sim_worker_tick(struct pump_sim *sim) {
  bool expects = sim->settings.foresight_expects != 0;
  uint32_t rows = read_rows(sim, predicted(sim, !expects));
  sim_movers_show(sim, sim->now_ns); /* before Python wakes */
  if (expects && sim->active) expect(sim);
  sim->result.ticks++;
  sim->woken = false;
  sim->busy_until_ns = sim->now_ns + sim->settings.tick_ns + rows * sim->settings.row_ns;
  if (sim->settings.decides)
    sim_decide_follow(sim);
  else
    pump_worker_follow(sim->shm, sim->model);
  sim_worker_show(sim);
  sim->tick_ns = sim->busy_until_ns + SLEEP_NS;
}

/* ---- schedules ----------------------------------------------------------------------- */

void sim_worker_compare(struct pump_sim *sim, const struct pump_sim_step *step) {
  struct pump_header *header = &sim->shm->header;
  header->next_seq = step->seq + 1;
  if (header->armed == 0) return;
  uint64_t word = pump_prediction_word(step->seq, step->stream + 1,
                                       sim_event_kind(step->kind), step->signature);
  if (pump_prediction_at(sim->shm, step->seq)->signature == word) return;
  if (pump_schedule_deviate(sim->shm, step->seq))
    sim->result.schedules_dropped += sim->model->schedules.all[0].in_force;
}
