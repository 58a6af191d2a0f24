/* sim_movers.c - the executors' threads: take, validate, move, report (execute/executor.c).
 *
 * The number of working threads is decided by the shim's own controller (execute/adapt.h).
 * Bounds are the same as in execute/device_executors.c and executors.h. */
#include "sim_state.h"

#define IN_FLIGHT_BYTES (128u << 20)
#define OUT_FLIGHT_BYTES (64u << 20)
#define PREDICTED_BYTES (16u << 20)
#define SLICE_BYTES (32u << 20)

static const struct pump_adapt_bounds bounds[PUMP_DIRECTIONS] = {
    [PUMP_TO_GPU] = {.threads_min = 1,
                     .threads_max = 2,
                     .threads_first = 1,
                     .flight_bytes = IN_FLIGHT_BYTES},
    [PUMP_TO_HOST] = {.threads_min = 2,
                      .threads_max = SIM_MOVERS,
                      .threads_first = 3,
                      .flight_bytes = OUT_FLIGHT_BYTES},
};

bool sim_movers_init(struct pump_sim *sim) {
  for (uint32_t direction = 0; direction < PUMP_DIRECTIONS; direction++) {
    struct sim_direction *state = &sim->directions[direction];
    uint32_t lanes = sim->settings.lanes[direction];
    if (lanes == 0 || lanes > SIM_LANES) return false;
    state->bounds = bounds[direction];
    state->slices = direction == PUMP_TO_GPU ? lanes : 1;
    state->adapt = pump_adapt_begin(&state->bounds);
    state->entry_ns = GPU_NEVER;
    for (uint32_t i = 0; i < state->bounds.threads_max * lanes; i++) {
      int number = gpu_stream_create(sim->engine, GPU_STREAM_NONBLOCKING,
                                     sim->settings.lane_priority);
      if (number < 0) return false;
      state->movers[i / lanes].lanes[i % lanes].stream = (uint32_t)number;
    }
  }
  return true;
}

/* ---- waiting decisions ------------------------------------------------------------- */

/* Returns the number of visible decisions that no mover has taken. */
static uint32_t waiting(const struct pump_sim *sim, uint32_t direction) {
  return (uint32_t)(sim->directions[direction].seen -
                    sim->directions[direction].decisions.head);
}

/* Returns when a mover sees something that becomes visible at `visible_ns`. */
static uint64_t seen_ns(struct pump_sim *sim, uint32_t direction, uint64_t visible_ns) {
  struct sim_direction *state = &sim->directions[direction];
  uint64_t since_ns = sim_most(state->idle_since_ns, state->wait.end_ns);
  if (visible_ns <= state->wait.end_ns) return state->wait.end_ns;
  if (state->flight_slices != 0 || waiting(sim, direction) != 0 || visible_ns <= since_ns)
    return visible_ns;
  return sim_wait_end_ns(&state->wait, &sim->settings.mover_wake, since_ns, visible_ns);
}

void sim_movers_show(struct pump_sim *sim, uint64_t visible_ns) {
  for (uint32_t direction = 0; direction < PUMP_DIRECTIONS; direction++) {
    struct sim_direction *state = &sim->directions[direction];
    for (; state->seen != state->decisions.tail; state->seen++) {
      state->visible_ns[state->seen % SIM_DECISIONS] = seen_ns(sim, direction, visible_ns);
    }
  }
}

/* Returns when movers can first see the oldest decision; GPU_NEVER: there is none. */
static uint64_t visible_ns(const struct pump_sim *sim, uint32_t direction) {
  uint64_t head = sim->directions[direction].decisions.head;
  return waiting(sim, direction) == 0
             ? GPU_NEVER
             : sim->directions[direction].visible_ns[head % SIM_DECISIONS];
}

static bool decision_waits(const struct pump_sim *sim, uint32_t direction) {
  return visible_ns(sim, direction) <= sim->now_ns;
}

void sim_movers_populate(struct pump_sim *sim, uint32_t range) {
  uint32_t at = (sim->populate_head + sim->populate_count) % (sim->program.range_count + 1);
  if (sim->populate_count > sim->program.range_count) return;
  sim->populate[at] = (struct sim_populate){.range = range};
  sim->populate_count++;
}

/* Takes the next slice to populate; empties the queue if allocations exceed the budget. */
static bool take_populate(struct pump_sim *sim, struct sim_command *job) {
  if (sim->allocated_bytes > sim->settings.budget_bytes) sim->populate_count = 0;
  while (sim->populate_count > 0) {
    struct sim_populate *entry = &sim->populate[sim->populate_head];
    const struct pump_sim_range *range = &sim->program.ranges[entry->range];
    uint64_t left_bytes = range->length_bytes - entry->offset_bytes;
    if (!sim->live[entry->range] || left_bytes == 0) {
      sim->populate_head = (sim->populate_head + 1) % (sim->program.range_count + 1);
      sim->populate_count--;
      continue;
    }
    uint64_t length_bytes = sim_least(left_bytes, SLICE_BYTES);
    *job = (struct sim_command){.command = {.slot = range->slot,
                                            .generation = range->generation,
                                            .offset_bytes = entry->offset_bytes,
                                            .length_bytes = length_bytes}};
    entry->offset_bytes += length_bytes;
    return true;
  }
  return false;
}

/* ---- validating (execute/validate.c) --------------------------------------------- */

static uint64_t last_use(const struct pump_sim *sim, uint32_t index,
                         const struct pump_command *command) {
  uint64_t length_bytes = sim->program.ranges[index].length_bytes, newest = 0;
  uint32_t first = pump_range_eighth(length_bytes, command->offset_bytes);
  uint32_t last =
      pump_range_eighth(length_bytes, command->offset_bytes + command->length_bytes - 1);
  for (uint32_t i = first; i <= last; i++)
    newest = sim_most(newest, sim->last_use_seq[index * PUMP_RANGE_EIGHTHS + i]);
  return newest;
}

static uint32_t validate(const struct pump_sim *sim, uint32_t direction, uint32_t index,
                         const struct pump_command *command) {
  const struct pump_sim_range *range = &sim->program.ranges[index];
  if (!sim->live[index] || range->generation != command->generation)
    return PUMP_RESULT_DEAD;
  /* With foresight_run the policy ignores issued operations by design, so its eviction is
   * never stale. */
  if (direction == PUMP_TO_HOST && !sim->settings.foresight_run)
    return last_use(sim, index, command) > command->observed_seq ? PUMP_RESULT_STALE
                                                                 : PUMP_RESULT_MOVED;
  if (direction == PUMP_TO_HOST || command->needed_by_seq == 0 || command->stream == 0)
    return PUMP_RESULT_MOVED;
  return *sim_executed_seq(sim, command->stream - 1) >= command->needed_by_seq
             ? PUMP_RESULT_LATE
             : PUMP_RESULT_MOVED;
}

/* ---- reporting ------------------------------------------------------------------- */

static void report(struct pump_sim *sim, uint32_t direction, const struct sim_command *job,
                   uint32_t result, uint64_t called_ns) {
  if (!job->scheduled && job->decided == NULL) return;
  bool moved = result == PUMP_RESULT_MOVED;
  if (direction == PUMP_TO_HOST && moved)
    sim->shm->schedules[0].left_bytes += job->command.length_bytes;
  sim->result.refused[result] += result != PUMP_RESULT_MOVED;
  if (result == PUMP_RESULT_MOVED) {
    if (direction == PUMP_TO_GPU)
      sim->result.moved_to_gpu_bytes += job->command.length_bytes;
    else
      sim->result.moved_to_host_bytes +=
          job->command.length_bytes -
          (uint64_t)(uint32_t)__builtin_popcount(job->kept) * GPU_BLOCK_BYTES;
  }
  uint32_t duration_us = (uint32_t)((sim->now_ns - called_ns) / 1000);
  if (job->scheduled) {
    sim->shm->schedules[0].ended_bytes +=
        pump_ended_bytes(direction, result, job->command.length_bytes);
    if (moved) sim->result.scheduled_bytes += job->command.length_bytes;
    pump_schedule_finish(sim->shm, job->command.ticket, result, duration_us, job->kept);
  } else {
    job->decided->result = result;
    job->decided->duration_us = duration_us;
    job->decided->ended = true;
  }
  sim_worker_wake(sim);
}

static void finish_oldest(struct pump_sim *sim, uint32_t direction,
                          struct sim_mover *mover) {
  struct sim_direction *state = &sim->directions[direction];
  struct sim_lane *lane = &mover->lanes[mover->oldest];
  mover->oldest = (mover->oldest + 1) % sim->settings.lanes[direction];
  mover->in_flight--;
  state->flight_slices--;
  state->flight_bytes -= (uint32_t)lane->job.command.length_bytes;
  state->idle_since_ns = sim->now_ns;
  struct pump_adapt_sample sample = {.call_ns = lane->returned_ns - lane->called_ns,
                                     .done_ns = sim->now_ns - lane->returned_ns,
                                     .bytes = lane->job.command.length_bytes,
                                     .waiting = lane->waiting,
                                     .in_flight = lane->in_flight};
  state->adapt = pump_adapt_next(state->adapt, &state->bounds, &sample);
  report(sim, direction, &lane->job, PUMP_RESULT_MOVED, lane->called_ns);
}

/* ---- moving ---------------------------------------------------------------------- */

static bool has_room(const struct pump_sim *sim, const struct sim_direction *state,
                     uint64_t length_bytes, uint64_t flight_bytes) {
  uint64_t bound = sim_least(sim->settings.budget_bytes / 2, flight_bytes);
  return state->flight_bytes == 0 || state->flight_bytes + length_bytes <= bound;
}

/* Returns the context whose lock the call takes; 0 is the program's. */
static uint32_t context_of(const struct pump_sim *sim, uint32_t direction,
                           const struct sim_mover *mover) {
  bool own_context =
      direction == PUMP_TO_HOST && sim->own_context.state == PUMP_OWN_CONTEXT_YES;
  return own_context ? 1 + (uint32_t)(mover - sim->directions[direction].movers) : 0;
}

/* Records the event of a slice to the GPU as soon as the driver accepts a launch.
 * execute/own_context.h decides by the duration of that wait. */
static void record_event(struct pump_sim *sim, struct sim_mover *mover) {
  uint64_t free_ns = sim_most(gpu_call_ns(sim->engine, GPU_CALL_LAUNCH, 0), sim->now_ns);
  const struct sim_direction *in = &sim->directions[PUMP_TO_GPU];
  if (mover == in->movers && sim->directions[PUMP_TO_HOST].flight_slices != 0)
    sim->own_context = pump_own_context_next(sim->own_context, free_ns - sim->now_ns);
  mover->records = false;
  mover->free_ns = free_ns;
}

static bool has_waited(const struct pump_sim *sim, const struct pump_entry *entry) {
  return sim->shm->schedules[0].left_bytes >= entry->left_bytes &&
         sim->shm->schedules[0].ended_bytes >= entry->ended_bytes &&
         (entry->after_seq == 0 ||
          *sim_executed_seq(sim, entry->after_stream - 1) >= entry->after_seq);
}

/* Returns whether the next entry of the schedule waits only for a mover. */
static bool is_next_ready(const struct pump_sim *sim, uint32_t direction) {
  struct pump_entry entry;
  uint64_t cursor;
  return pump_schedule_peek(sim->shm, 0, direction, &entry, &cursor) &&
         has_waited(sim, &entry);
}

static void note(struct pump_sim *sim, uint32_t direction, const struct sim_command *job,
                 const struct gpu_prefetch_call *call) {
  if (!job->scheduled && job->decided == NULL) return;
  uint64_t at = sim->transfer_count++;
  if (at < sim->settings.transfers_most)
    sim->transfers[at] =
        (struct pump_sim_transfer){.needed_by_seq = job->command.needed_by_seq,
                                   .first_block = call->first_block,
                                   .blocks = call->block_count,
                                   .direction = direction,
                                   .issued = sim->step,
                                   .run = sim->run_step};
}

/* Keeps the mover in the driver's call until `free_ns`; then it continues with the job. */
static void go_on_later(struct pump_sim *sim, uint32_t direction, struct sim_mover *mover,
                        const struct sim_command *job, uint64_t free_ns) {
  sim->directions[direction].flight_slices++;
  sim->directions[direction].flight_bytes += (uint32_t)job->command.length_bytes;
  sim->result.mover_ns[direction] += free_ns - sim->now_ns;
  mover->free_ns = free_ns;
  mover->goes_on = true;
  mover->job = *job;
}

static void submit(struct pump_sim *sim, uint32_t direction, struct sim_mover *mover,
                   struct sim_command *job, uint32_t index) {
  struct sim_direction *state = &sim->directions[direction];
  uint32_t first = sim->program.ranges[index].first_block +
                   (uint32_t)(job->command.offset_bytes / GPU_BLOCK_BYTES);
  uint32_t end = first + (uint32_t)(job->command.length_bytes / GPU_BLOCK_BYTES);
  if (job->called_ns == 0) {
    job->called_ns = sim->now_ns;
    uint64_t free_ns = sim_duplicates_advise(sim, direction, job, first, end - first);
    if (free_ns > sim->now_ns) {
      go_on_later(sim, direction, mover, job, free_ns);
      return;
    }
  }
  uint32_t from = first + job->blocks_done, count = end - from;
  sim_duplicates_run(job, direction, first, &from, &count);
  uint32_t at = (mover->oldest + mover->in_flight) % sim->settings.lanes[direction];
  struct sim_lane *lane = &mover->lanes[at];
  const struct pump_command *command = &job->command;
  struct gpu_prefetch_call call = {.stream = lane->stream,
                                   .first_block = from,
                                   .block_count = count,
                                   .cost.caller_free_ns = sim->now_ns,
                                   .to_host = direction == PUMP_TO_HOST,
                                   .context = context_of(sim, direction, mover)};
  uint32_t number = (uint32_t)(mover - state->movers);
  uint64_t lane_number = ((uint64_t)direction * SIM_MOVERS + number) * SIM_LANES + at;
  struct gpu_operation record = {.kind = GPU_EVENT_RECORD,
                                 .event = GPU_NO_EVENT,
                                 .cookie = SIM_LANE_COOKIE + lane_number};
  struct gpu_submitted submitted;
  lane->done_ns = GPU_NEVER;
  bool refused = count > 0 &&
                 gpu_prefetch_step(sim->engine, sim->now_ns, &sim->hooks, &call) != GPU_OK;
  if (!refused && from + count < end) {
    job->blocks_done = from + count - first;
    go_on_later(sim, direction, mover, job, call.cost.caller_free_ns);
    return;
  }
  if (refused || gpu_submit(sim->engine, sim->now_ns, &sim->hooks, lane->stream, &record,
                            &submitted) != GPU_OK) {
    sim->failure = PUMP_SIM_REFUSED;
    sim->result.failed_step = sim->step;
    return;
  }
  note(sim, direction, job, &call);
  mover->in_flight++;
  state->flight_slices++;
  state->flight_bytes += (uint32_t)command->length_bytes;
  mover->free_ns = call.cost.caller_free_ns;
  mover->records = direction == PUMP_TO_GPU;
  sim->result.mover_ns[direction] += mover->free_ns - sim->now_ns;
  lane->job = *job;
  lane->waiting = waiting(sim, direction) + is_next_ready(sim, direction);
  lane->in_flight = state->flight_slices;
  lane->called_ns = job->called_ns;
  lane->returned_ns = mover->free_ns;
}

void sim_movers_arrived(struct pump_sim *sim, uint64_t lane_number) {
  uint64_t mover = lane_number / SIM_LANES;
  struct sim_direction *state = &sim->directions[mover / SIM_MOVERS];
  state->movers[mover % SIM_MOVERS].lanes[lane_number % SIM_LANES].done_ns =
      gpu_now_ns(sim->engine);
}

/* ---- entries of the schedule (execute/schedule.c) --------------------------------- */

static bool may_go(const struct pump_sim *sim, uint32_t direction,
                   const struct pump_entry *entry) {
  bool issued = entry->command.needed_by_seq < sim->shm->header.next_seq;
  uint64_t ahead = issued ? IN_FLIGHT_BYTES : PREDICTED_BYTES;
  uint64_t bound = direction == PUMP_TO_GPU ? ahead : OUT_FLIGHT_BYTES;
  return has_room(sim, &sim->directions[direction], entry->command.length_bytes, bound) &&
         has_waited(sim, entry);
}

/* Computes when a mover takes the schedule's next entry: a sleeping one wakes first. */
static void date_entry(struct pump_sim *sim, uint32_t direction) {
  struct sim_direction *state = &sim->directions[direction];
  struct pump_entry entry;
  uint64_t cursor;
  if (!pump_schedule_peek(sim->shm, 0, direction, &entry, &cursor) ||
      !may_go(sim, direction, &entry)) {
    state->entry_ns = GPU_NEVER;
  } else if (state->entry_ns == GPU_NEVER) {
    state->entry_ns = seen_ns(sim, direction, sim_most(sim->now_ns, sim->schedule_ns));
  }
}

static bool take_entry(struct pump_sim *sim, uint32_t direction, struct sim_command *job) {
  struct pump_entry entry;
  uint64_t cursor;
  date_entry(sim, direction);
  if (sim->directions[direction].entry_ns > sim->now_ns ||
      !pump_schedule_peek(sim->shm, 0, direction, &entry, &cursor))
    return false;
  pump_schedule_claim(&sim->shm->schedules[0], direction, cursor);
  *job = (struct sim_command){
      .command = entry.command, .scheduled = true, .duplicates = entry.duplicates};
  sim->directions[direction].entry_ns = GPU_NEVER;
  return true;
}

/* Starts one job if there is one and it fits; returns true if there may be more. */
static bool start_one(struct pump_sim *sim, uint32_t direction, struct sim_mover *mover) {
  struct sim_direction *state = &sim->directions[direction];
  struct sim_command job;
  uint64_t lock_ns =
      gpu_call_ns(sim->engine, GPU_CALL_PREFETCH, context_of(sim, direction, mover));
  if (lock_ns > sim->now_ns) {
    mover->free_ns = lock_ns;
    return false;
  }
  if (mover->goes_on) {
    job = mover->job;
    mover->goes_on = false;
    state->flight_slices--;
    state->flight_bytes -= (uint32_t)job.command.length_bytes;
    uint32_t range = sim->range_of_slot[job.command.slot];
    if (validate(sim, direction, range, &job.command) == PUMP_RESULT_DEAD)
      report(sim, direction, &job, PUMP_RESULT_DEAD, job.called_ns);
    else
      submit(sim, direction, mover, &job, range);
    return sim->failure == 0;
  }
  if (decision_waits(sim, direction)) {
    struct sim_decision *oldest = sim_decision_at(&state->decisions, state->decisions.head);
    if (!has_room(sim, state, oldest->command.length_bytes, state->bounds.flight_bytes))
      return false;
    state->decisions.head++;
    job = (struct sim_command){.command = oldest->command, .decided = oldest};
  } else if (take_entry(sim, direction, &job)) {
    /* validated like any other */
  } else if (direction != PUMP_TO_GPU ||
             !has_room(sim, state, SLICE_BYTES, IN_FLIGHT_BYTES) ||
             !take_populate(sim, &job)) {
    return false;
  }
  uint32_t index = sim->range_of_slot[job.command.slot];
  uint32_t result = validate(sim, direction, index, &job.command);
  if (result == PUMP_RESULT_MOVED)
    submit(sim, direction, mover, &job, index);
  else
    report(sim, direction, &job, result, sim->now_ns);
  return sim->failure == 0;
}

void sim_movers_go(struct pump_sim *sim, uint32_t direction) {
  struct sim_direction *state = &sim->directions[direction];
  for (uint32_t i = 0; i < SIM_MOVERS; i++) {
    struct sim_mover *mover = &state->movers[i];
    if (mover->records && mover->free_ns <= sim->now_ns) record_event(sim, mover);
    while (mover->in_flight > 0 && mover->free_ns <= sim->now_ns &&
           mover->lanes[mover->oldest].done_ns <= sim->now_ns)
      finish_oldest(sim, direction, mover);
  }
  for (uint32_t i = 0; i < SIM_MOVERS; i++) {
    struct sim_mover *mover = &state->movers[i];
    while (mover->free_ns <= sim->now_ns &&
           (mover->goes_on ||
            (i < state->adapt.threads && mover->in_flight < state->slices)) &&
           start_one(sim, direction, mover)) {
    }
  }
}

static bool is_ready(const struct pump_sim *sim, const struct sim_direction *state) {
  for (uint32_t i = 0; i < state->adapt.threads; i++)
    if (state->movers[i].free_ns <= sim->now_ns &&
        state->movers[i].in_flight < state->slices)
      return true;
  return false;
}

uint64_t sim_movers_next_ns(struct pump_sim *sim, uint32_t direction) {
  const struct sim_direction *state = &sim->directions[direction];
  uint64_t next = GPU_NEVER;
  date_entry(sim, direction);
  if (!decision_waits(sim, direction) && is_ready(sim, state)) next = state->entry_ns;
  for (uint32_t i = 0; i < SIM_MOVERS; i++) {
    const struct sim_mover *mover = &state->movers[i];
    if (mover->free_ns > sim->now_ns) next = sim_least(next, mover->free_ns);
    uint64_t done_ns =
        mover->in_flight > 0 ? mover->lanes[mover->oldest].done_ns : GPU_NEVER;
    if (done_ns != GPU_NEVER) next = sim_least(next, sim_most(done_ns, mover->free_ns));
  }
  uint64_t sent_ns = visible_ns(sim, direction);
  return sent_ns > sim->now_ns ? sim_least(next, sent_ns) : next;
}
