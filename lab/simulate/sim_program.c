/* sim_program.c - the program's thread: issues, waits, allocates and frees. */
#include "shim/progress/marker_rule.h"
#include "sim_state.h"

void sim_program_finished(struct pump_sim *sim, uint32_t index) {
  const struct pump_sim_step *step = &sim->program.steps[index];
  struct sim_stream *stream = &sim->streams[step->stream];
  stream->unfinished--;
  stream->finished_seq = sim_most(stream->finished_seq, step->seq);
  sim->unfinished--;
  if (index >= sim->run_step) sim->run_step = index + 1;
  sim->result.operations++;
  if (!sim->marker_after[index]) return;
  stream->marked_seq = sim_most(stream->marked_seq, step->seq);
  sim_worker_poll_next(sim);
}

/* ---- issuing --------------------------------------------------------------------- */

static void touch(struct pump_sim *sim, const struct pump_sim_use *use, uint64_t seq) {
  uint64_t length_bytes = sim->program.ranges[use->range].length_bytes;
  uint32_t first = pump_range_eighth(length_bytes, use->offset_bytes);
  uint32_t last =
      pump_range_eighth(length_bytes, use->offset_bytes + use->length_bytes - 1);
  for (uint32_t i = first; i <= last; i++)
    sim->last_use_seq[use->range * PUMP_RANGE_EIGHTHS + i] = seq;
}

/* Only what is overwritten as a whole is not read. */
static uint16_t access_of(const struct pump_sim_use *use) {
  if (use->access == PUMP_ACCESS_READ) return GPU_READ;
  return use->access == PUMP_ACCESS_OVERWRITE ? GPU_WRITE : GPU_READ | GPU_WRITE;
}

/* Converts the step's uses to blocks; a discard includes only whole blocks. */
static uint32_t convert_uses(struct pump_sim *sim, const struct pump_sim_step *step,
                             uint64_t *touched_bytes) {
  bool whole = step->kind == GPU_DISCARD;
  uint32_t count = 0;
  for (uint32_t i = 0; i < step->uses; i++) {
    const struct pump_sim_use *use = &sim->program.uses[step->first_use + i];
    uint64_t end = use->offset_bytes + use->length_bytes;
    uint64_t begin_block = use->offset_bytes, end_block = end + GPU_BLOCK_BYTES - 1;
    if (whole) begin_block += GPU_BLOCK_BYTES - 1, end_block = end;
    begin_block /= GPU_BLOCK_BYTES;
    end_block /= GPU_BLOCK_BYTES;
    if (step->seq != 0) touch(sim, use, step->seq);
    *touched_bytes += use->length_bytes;
    if (end_block <= begin_block) continue;
    uint16_t marks = uvm_wide_use(step->wide, i) ? GPU_WIDE : 0;
    if (use->sorted != 0) marks |= GPU_SORTED;
    sim->scratch_uses[count++] = (struct gpu_use){
        .first_block = sim->program.ranges[use->range].first_block + (uint32_t)begin_block,
        .block_count = (uint32_t)(end_block - begin_block),
        .pages_per_block = use->pages,
        .access = access_of(use) | marks,
        .rows = use->rows,
        .row_bytes = use->row_bytes};
  }
  return count;
}

static void note_marker(struct pump_sim *sim, struct sim_stream *stream,
                        uint64_t touched_bytes) {
  stream->since_marker++;
  stream->touched_bytes += touched_bytes;
  if (!pump_marker_is_due(stream->since_marker, sim->now_ns - stream->marked_ns,
                          stream->touched_bytes, 1))
    return;
  sim->marker_after[sim->step] = 1;
  stream->asked_seq = stream->issued_seq;
  stream->since_marker = 0;
  stream->touched_bytes = 0;
  stream->marked_ns = sim->now_ns;
}

static void begin_wait(struct pump_sim *sim, enum sim_waits waits) {
  if (sim->waits != waits) sim->wait_began_ns = sim->now_ns;
  sim->waits = waits;
}

static void fail(struct pump_sim *sim) {
  sim->failure = PUMP_SIM_REFUSED;
  sim->result.failed_step = sim->step;
}

static void next_step(struct pump_sim *sim) {
  sim->step++;
  sim->host_done = false;
  sim->discards.part = 0;
}

static int submit(struct pump_sim *sim, const struct pump_sim_step *step,
                  const struct gpu_operation *asked, struct gpu_submitted *submitted) {
  if (asked->kind == GPU_DISCARD) return sim_discards_issue(sim, step, asked, submitted);
  int result = sim_discards_await(sim, step, asked, submitted);
  if (result != GPU_OK) return result;
  return gpu_submit(sim->engine, sim->now_ns, &sim->hooks,
                    sim->streams[step->stream].number, asked, submitted);
}

static void issue(struct pump_sim *sim, const struct pump_sim_step *step) {
  struct sim_stream *stream = &sim->streams[step->stream];
  bool operation = step->seq != 0;
  if (operation && stream->unfinished >= sim->settings.queue_operations) {
    begin_wait(sim, SIM_WAITS_QUEUE);
    return;
  }
  uint64_t free_ns = gpu_call_ns(sim->engine, GPU_CALL_LAUNCH, 0);
  if (free_ns > sim->now_ns) {
    begin_wait(sim, SIM_LOCKED);
    sim->program_ns = free_ns;
    return;
  }
  uint64_t touched_bytes = 0;
  struct gpu_operation asked = {.kind = step->kind,
                                .uses = sim->scratch_uses,
                                .duration_ns = step->duration_ns,
                                .length_bytes = step->length_bytes,
                                .cookie = operation ? (uint64_t)sim->step + 1 : 0,
                                .discard_kind = GPU_DISCARD_UNMAP};
  asked.use_count = convert_uses(sim, step, &touched_bytes);
  if (operation) { /* before the submission, in which it may finish */
    stream->unfinished++;
    sim->unfinished++;
    stream->issued_seq = step->seq;
    sim_worker_compare(sim, step);
    note_marker(sim, stream, touched_bytes);
  }
  struct gpu_submitted submitted;
  int result = submit(sim, step, &asked, &submitted);
  if (result == GPU_OK) {
    next_step(sim);
    sim_worker_wake(sim);
    return;
  }
  if (operation) {
    stream->unfinished--;
    sim->unfinished--;
  }
  if (result == GPU_WAIT && submitted.retry_ns != GPU_NEVER) {
    sim->waits = SIM_RETRIES;
    sim->program_ns = sim_most(submitted.retry_ns, sim->now_ns + 1);
    return;
  }
  fail(sim);
}

/* ---- waiting, allocating --------------------------------------------------------- */

/* Notes what the program's wait proves: these streams have executed all issued work. */
static void learn(struct pump_sim *sim, uint32_t first, uint32_t end) {
  for (uint32_t i = first; i < end; i++)
    *sim_executed_seq(sim, i) =
        sim_most(*sim_executed_seq(sim, i), sim->streams[i].issued_seq);
  sim_worker_wake(sim);
}

static bool is_idle(const struct pump_sim *sim, uint32_t stream) {
  return (stream == PUMP_SIM_ALL ? sim->unfinished : sim->streams[stream].unfinished) == 0;
}

static bool may_free(const struct pump_sim *sim) {
  return sim->unfinished == 0 && sim->discards.ended == sim->discards.issued;
}

static void synchronise(struct pump_sim *sim, const struct pump_sim_step *step) {
  if (!is_idle(sim, step->stream)) {
    begin_wait(sim, SIM_WAITS_SYNC);
    return;
  }
  bool all = step->stream == PUMP_SIM_ALL;
  learn(sim, all ? 0 : step->stream, all ? sim->program.streams : step->stream + 1);
  sim->syncs_ns[sim->sync_count++] = sim->now_ns;
  if (step->mark != 0) {
    struct pump_sim_mark *mark = &sim->marks[sim->mark_count++];
    mark->time_ns = sim->now_ns;
    gpu_counters_get(sim->engine, &mark->counters);
  }
  next_step(sim);
}

static void allocate(struct pump_sim *sim, const struct pump_sim_step *step) {
  const struct pump_sim_range *range = &sim->program.ranges[step->range];
  uint32_t blocks = (uint32_t)(range->length_bytes / GPU_BLOCK_BYTES);
  if (gpu_range_create(sim->engine, sim->now_ns, &sim->hooks, range->first_block, blocks) !=
      GPU_OK) {
    fail(sim);
    return;
  }
  sim->live[step->range] = 1;
  sim->range_of_slot[range->slot] = step->range;
  sim->allocated_bytes += range->length_bytes;
  next_step(sim);
  if (sim->model == NULL) return;
  sim_movers_populate(sim, step->range);
  sim_worker_activate(sim);
  sim_worker_wake(sim);
}

static void release(struct pump_sim *sim, const struct pump_sim_step *step) {
  if (!may_free(sim)) {
    begin_wait(sim, SIM_WAITS_SYNC);
    return;
  }
  const struct pump_sim_range *range = &sim->program.ranges[step->range];
  struct gpu_cost cost;
  sim->live[step->range] = 0;
  if (gpu_range_destroy(sim->engine, sim->now_ns, &sim->hooks, range->first_block,
                        (uint32_t)(range->length_bytes / GPU_BLOCK_BYTES),
                        &cost) != GPU_OK) {
    fail(sim);
    return;
  }
  sim->allocated_bytes -= range->length_bytes;
  sim_duplicates_freed(sim, range);
  learn(sim, 0, sim->program.streams);
  next_step(sim);
  sim->program_ns = sim_most(sim->now_ns, cost.complete_ns);
}

static void advise(struct pump_sim *sim, const struct pump_sim_step *step) {
  const struct pump_sim_range *range = &sim->program.ranges[step->range];
  struct gpu_cost cost;
  if (gpu_advise(sim->engine, sim->now_ns, &sim->hooks, range->first_block,
                 (uint32_t)(range->length_bytes / GPU_BLOCK_BYTES), step->mark,
                 &cost) != GPU_OK) {
    fail(sim);
    return;
  }
  next_step(sim);
  sim->program_ns = sim_most(sim->now_ns, cost.caller_free_ns);
}

/* ---- step by step ------------------------------------------------------------------ */

static void do_step(struct pump_sim *sim) {
  const struct pump_sim_step *step = &sim->program.steps[sim->step];
  switch (step->kind) {
  case PUMP_SIM_SYNC:
    synchronise(sim, step);
    return;
  case PUMP_SIM_ALLOC:
    allocate(sim, step);
    return;
  case PUMP_SIM_FREE:
    release(sim, step);
    return;
  case PUMP_SIM_ADVISE:
    advise(sim, step);
    return;
  default:
    issue(sim, step);
    return;
  }
}

static void end_wait(struct pump_sim *sim) {
  uint64_t waited_ns = sim->now_ns - sim->wait_began_ns;
  if (sim->waits == SIM_WAITS_QUEUE)
    sim->result.queue_wait_ns += waited_ns;
  else if (sim->waits == SIM_WAITS_SYNC)
    sim->result.sync_wait_ns += waited_ns;
  else if (sim->waits == SIM_LOCKED)
    sim->result.lock_wait_ns += waited_ns;
  sim->waits = SIM_RUNS;
  sim->program_ns = sim->now_ns;
}

/* Ends the program's wait if it is over. Returns whether the program may take its next
 * step. */
static bool end_wait_if_over(struct pump_sim *sim) {
  if (sim->waits == SIM_RUNS) return sim->program_ns <= sim->now_ns;
  if (sim->waits == SIM_RETRIES || sim->waits == SIM_LOCKED) {
    if (sim->program_ns > sim->now_ns) return false;
    end_wait(sim);
    return true;
  }
  const struct pump_sim_step *step = &sim->program.steps[sim->step];
  if (sim->waits == SIM_WAITS_QUEUE) {
    if (sim->streams[step->stream].unfinished >= sim->settings.queue_operations)
      return false;
  } else if (step->kind == PUMP_SIM_FREE ? !may_free(sim) : !is_idle(sim, step->stream)) {
    return false;
  }
  end_wait(sim);
  return true;
}

/* Maps memory in another thread of the program. */
static void map_memory(struct pump_sim *sim) {
  uint64_t taken_ns = sim->settings.map_ns;
  uint64_t end_ns = gpu_map_memory(sim->engine, sim->now_ns, &sim->hooks, taken_ns);
  sim->result.map_wait_ns += end_ns - taken_ns - sim->now_ns;
  sim->map_ns = end_ns + sim->settings.map_every_ns;
}

void sim_program_go(struct pump_sim *sim) {
  if (sim->map_ns <= sim->now_ns && sim->waits != SIM_ENDED) map_memory(sim);
  while (sim->waits != SIM_ENDED && sim->failure == 0 && end_wait_if_over(sim)) {
    if (sim->step == sim->program.step_count) {
      sim->waits = SIM_ENDED;
      return;
    }
    if (!sim->host_done) {
      sim->host_done = true;
      sim->program_ns = sim->now_ns + sim->program.steps[sim->step].host_ns;
      continue;
    }
    do_step(sim);
    if (sim->waits == SIM_RUNS) sim->program_ns = sim_most(sim->program_ns, sim->now_ns);
  }
}
