/* sim_events.c - the program's actions as records of the event ring (record/event.c).
 *
 * The worker reads everything issued when its tick begins, so records are written then.
 * If the ring is full, the rest waits until the worker has read it.
 */
#include "sim_state.h"

struct record {
  struct pump_event event;
  const struct pump_sim_use *uses;
  uint32_t count;
};

static void write_extent(struct pump_extent *extent, const struct pump_sim_range *range,
                         const struct pump_sim_use *use) {
  extent->slot = range->slot;
  extent->generation = range->generation;
  extent->offset_bytes = use->offset_bytes;
  extent->length_access = use->length_bytes << 2 | use->access;
}

/* Returns false if the ring has no space for it. */
static bool write_record(struct pump_sim *sim, const struct record *record) {
  uint32_t records = (record->count + PUMP_EVENT_EXTENTS - 1) / PUMP_EVENT_EXTENTS;
  uint64_t position;
  if (records == 0) records = 1;
  if (!pump_event_reserve(sim->shm, records, &position)) return false;
  for (uint32_t i = 0; i < records; i++) {
    struct pump_event *event = pump_event_at(sim->shm, position + i);
    *event = record->event;
    event->time_ns = sim->now_ns;
    event->extent_count = (uint16_t)record->count;
    if (i > 0) event->kind = PUMP_EVENT_MORE;
  }
  for (uint32_t i = 0; i < record->count; i++) {
    const struct pump_sim_use *use = &record->uses[i];
    struct pump_event *event = pump_event_at(sim->shm, position + i / PUMP_EVENT_EXTENTS);
    write_extent(&event->extents[i % PUMP_EVENT_EXTENTS], &sim->program.ranges[use->range],
                 use);
  }
  while (records-- > 0) pump_event_publish(sim->shm, position + records);
  return true;
}

static bool write_range(struct pump_sim *sim, const struct pump_sim_step *step) {
  const struct pump_sim_range *range = &sim->program.ranges[step->range];
  bool alloc = step->kind == PUMP_SIM_ALLOC;
  const struct pump_sim_use whole = {.length_bytes = range->length_bytes,
                                     .range = step->range,
                                     .access = PUMP_ACCESS_WRITE};
  const struct record record = {
      .event = {.kind = alloc ? PUMP_EVENT_ALLOC : PUMP_EVENT_FREE,
                .function = ((uint64_t)range->first_block + 1) * GPU_BLOCK_BYTES},
      .uses = &whole,
      .count = 1};
  return write_record(sim, &record);
}

uint16_t sim_event_kind(uint32_t kind) {
  if (kind == GPU_KERNEL) return PUMP_EVENT_KERNEL;
  return kind == GPU_MEMSET ? PUMP_EVENT_MEMSET : PUMP_EVENT_COPY;
}

static bool write_operation(struct pump_sim *sim, const struct pump_sim_step *step) {
  uint32_t count = step->uses < PUMP_MAX_EXTENTS ? step->uses : PUMP_MAX_EXTENTS;
  const struct record record = {
      .event = {.kind = sim_event_kind(step->kind),
                .seq = step->seq,
                .signature = step->signature,
                /* A trace has no handles: kernels that do the same share one. */
                .function = step->kind == GPU_KERNEL ? step->signature : 0,
                .stream = step->stream + 1,
                .extents_dropped =
                    (uint16_t)sim_least(step->uses - count + step->dropped, UINT16_MAX)},
      .uses = &sim->program.uses[step->first_use],
      .count = count};
  return write_record(sim, &record);
}

/* Writes that a discard will follow the issued work, or that it has ended. */
static bool write_discard(struct pump_sim *sim, uint16_t kind, uint32_t index) {
  const struct pump_sim_step *step = &sim->program.steps[index];
  if (PUMP_EVENT_SLOTS - pump_core_backlog(sim->shm) < step->uses) return false;
  for (uint32_t i = 0; i < step->uses; i += PUMP_MAX_EXTENTS) {
    const struct record record = {
        .event = {.kind = kind,
                  .seq = sim_discards_after(sim, index),
                  .stream = sim->program.streams + 1},
        .uses = &sim->program.uses[step->first_use + i],
        .count = (uint32_t)sim_least(step->uses - i, PUMP_MAX_EXTENTS)};
    write_record(sim, &record);
  }
  return true;
}

/* Returns false if the ring has no space for the step's records. */
static bool write_step(struct pump_sim *sim, uint32_t index) {
  const struct pump_sim_step *step = &sim->program.steps[index];
  if (step->kind == PUMP_SIM_ALLOC || step->kind == PUMP_SIM_FREE)
    return write_range(sim, step);
  if (index < sim->active_from) return true;
  if (step->seq != 0) return write_operation(sim, step);
  return step->kind != GPU_DISCARD || write_discard(sim, PUMP_EVENT_FREED, index);
}

static bool write_ended(struct pump_sim *sim, uint32_t index) {
  if (sim->program.steps[index].kind != GPU_DISCARD || index < sim->active_from)
    return true;
  return write_discard(sim, PUMP_EVENT_DISCARDED, index);
}

void sim_events_write(struct pump_sim *sim, uint32_t until) {
  while (sim->written < until)
    if (write_step(sim, sim->written))
      sim->written++;
    else
      return;
  uint32_t ended = (uint32_t)sim_least(sim->discards.seen_step, sim->written);
  for (uint32_t *written = &sim->discards.written_step; *written < ended; ++*written)
    if (!write_ended(sim, *written)) return;
}
