/* sim_discards.c - discards in their own stream, next to the program's streams.
 *
 * Discards work as in the pool's thread (pool_dead.c). A discard waits for an event of
 * the program's stream and is followed by its own event, which the next use of the memory
 * waits for. Discards run in order. Their ends count as progress of their stream. */
#include "sim_state.h"

static uint32_t event_after(const struct pump_sim *sim, uint32_t number) {
  return sim->program.streams + number % SIM_DISCARDS;
}

bool sim_discards_init(struct pump_sim *sim) {
  /* If lanes have their own priority, this stream shares queues with neither them nor the
   * program. */
  uint32_t priority = (sim->settings.lane_priority + 1) % GPU_PRIORITIES;
  int number = gpu_stream_create(sim->engine, GPU_STREAM_NONBLOCKING, priority);
  if (number < 0) return false;
  sim->streams[sim->program.streams].number = (uint32_t)number;
  for (uint32_t i = 0; i < sim->program.streams + SIM_DISCARDS; i++)
    if (gpu_event_create(sim->engine) != (int)i) return false;
  return true;
}

static void note_blocks(struct pump_sim *sim, const struct gpu_operation *discard) {
  sim->discards.issued++;
  for (uint32_t i = 0; i < discard->use_count; i++) {
    const struct gpu_use *use = &discard->uses[i];
    for (uint32_t b = use->first_block; b < use->first_block + use->block_count; b++)
      sim->discards.of_block[b] = sim->discards.issued;
  }
}

int sim_discards_issue(struct pump_sim *sim, const struct pump_sim_step *step,
                       const struct gpu_operation *discard,
                       struct gpu_submitted *submitted) {
  uint32_t own = sim->streams[step->stream].number;
  uint32_t discarding = sim->streams[sim->program.streams].number;
  const struct {
    uint32_t stream;
    struct gpu_operation operation;
  } parts[] = {
      {own, {.kind = GPU_EVENT_RECORD, .event = step->stream}},
      {discarding, {.kind = GPU_EVENT_WAIT, .event = step->stream}},
      {discarding, *discard},
      {discarding,
       {.kind = GPU_EVENT_RECORD,
        .event = event_after(sim, sim->discards.issued + 1),
        .cookie = SIM_DISCARD_COOKIE + sim->step}},
  };
  for (; sim->discards.part < sizeof parts / sizeof parts[0]; sim->discards.part++) {
    uint32_t i = sim->discards.part;
    int result = gpu_submit(sim->engine, sim->now_ns, &sim->hooks, parts[i].stream,
                            &parts[i].operation, submitted);
    if (result != GPU_OK) return result;
  }
  note_blocks(sim, discard);
  return GPU_OK;
}

int sim_discards_await(struct pump_sim *sim, const struct pump_sim_step *step,
                       const struct gpu_operation *operation,
                       struct gpu_submitted *submitted) {
  uint32_t newest = 0;
  for (uint32_t i = 0; i < operation->use_count; i++) {
    const struct gpu_use *use = &operation->uses[i];
    for (uint32_t b = use->first_block; b < use->first_block + use->block_count; b++)
      if (sim->discards.of_block[b] > newest) newest = sim->discards.of_block[b];
  }
  if (newest <= sim->discards.ended || sim->discards.part != 0) return GPU_OK;
  const struct gpu_operation wait = {.kind = GPU_EVENT_WAIT,
                                     .event = event_after(sim, newest)};
  int result = gpu_submit(sim->engine, sim->now_ns, &sim->hooks,
                          sim->streams[step->stream].number, &wait, submitted);
  sim->discards.part = result == GPU_OK;
  return result;
}

void sim_discards_ended(struct pump_sim *sim, uint32_t step) {
  sim->discards.ended++;
  sim->discards.ended_step = step + 1;
  sim_worker_poll_next(sim);
}

bool sim_discards_poll(struct pump_sim *sim) {
  struct sim_discards *discards = &sim->discards;
  if (discards->seen_step == discards->ended_step) return false;
  for (; discards->seen_step < discards->ended_step; discards->seen_step++)
    sim_duplicates_discarded(sim, discards->seen_step);
  *sim_executed_seq(sim, sim->program.streams) =
      sim_discards_after(sim, discards->seen_step - 1);
  return true;
}

uint64_t sim_discards_after(const struct pump_sim *sim, uint32_t step) {
  while (step > 0 && sim->program.steps[step].seq == 0) step--;
  return sim->program.steps[step].seq;
}
