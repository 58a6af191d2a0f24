/* schedule.c - takes entries of schedules, and checks which entries are still valid.
 *
 * The worker puts a device's schedule in force (pump_abi.h). Executors take its ready
 * entries, which are validated and bounded in flight (validate.c, flight.c). So executors
 * continue with the schedule while the worker is late or dead.
 *
 * DESIGN. A schedule may serve operations that the worker predicted. Then each operation
 * that the program issues is compared with the prediction for its number. The first
 * difference lowers `valid_seq`, which every executor reads before it takes an entry.
 * Entries for operations up to `valid_seq` stay valid. Predictions that the worker has
 * not written yet differ too, so executors never run ahead of the predictions. Only the
 * worker raises `valid_seq` again, with the next schedule.
 *
 * An entry waits for the program (operations have executed) or for executors (bytes were
 * evicted, arrivals ended). The thread that completes such a condition checks whether an
 * entry has become ready, and wakes an executor for it (pump_schedule_wake).
 */
#include "executors.h"

#define LOOK_AHEAD 8 /* operations; another core wrote the predictions last */

/* ---- comparison of issued operations -------------------------------------------- */

static bool any_in_force(void) {
  for (uint32_t d = 0; d < PUMP_MAX_DEVICES; d++)
    if (PUMP_LOAD(&pump_shm->schedules[d].cursor) >> 32 != 0) return true;
  return false;
}

static bool same_shape(const struct pump_issued *issued, uint64_t expected) {
  if (issued->grid == NULL) return false;
  uint64_t shape = pump_shape(issued->identity, issued->grid, issued->block);
  return pump_prediction_word(issued->seq, issued->stream, issued->kind, shape) == expected;
}

void pump_schedule_compare(const struct pump_issued *issued) {
  const struct pump_prediction *predicted = pump_prediction_at(pump_shm, issued->seq);
  __builtin_prefetch(pump_prediction_at(pump_shm, issued->seq + LOOK_AHEAD));
  uint64_t word =
      pump_prediction_word(issued->seq, issued->stream, issued->kind, issued->signature);
  if (PUMP_LIKELY(PUMP_LOAD(&predicted->signature) == word)) return;
  if (same_shape(issued, PUMP_LOAD(&predicted->shape))) return;
  if (pump_schedule_deviate(pump_shm, issued->seq) && any_in_force())
    PUMP_ADD(&pump_shm->shim_counters.schedules_dropped, 1);
}

/* ---- entries that may start ------------------------------------------------------- */

static bool has_executed(uint32_t stream, uint64_t seq) {
  return seq == 0 || (stream < PUMP_MAX_STREAMS && pump_progress_executed(stream) >= seq);
}

/* Returns the entry's bound on bytes in flight. It is lower for predicted operations:
 * they may never be issued, and frees and faults wait for their transfers. */
static uint32_t bound_of(uint32_t direction, const struct pump_entry *entry) {
  bool issued = entry->command.needed_by_seq < PUMP_LOAD(&pump_shm->header.next_seq);
  return direction == PUMP_TO_HOST || issued ? UINT32_MAX : PUMP_PREDICTED_BYTES;
}

static bool has_waited(uint32_t device, const struct pump_entry *entry) {
  return has_executed(entry->after_stream, entry->after_seq) &&
         PUMP_LOAD(&pump_shm->schedules[device].left_bytes) >= entry->left_bytes &&
         PUMP_LOAD(&pump_shm->schedules[device].ended_bytes) >= entry->ended_bytes;
}

static bool may_go(uint32_t device, uint32_t direction, const struct pump_entry *entry) {
  return has_waited(device, entry) &&
         pump_flight_fits(device, direction, entry->command.length_bytes,
                          bound_of(direction, entry));
}

bool pump_schedule_ready(uint32_t device, uint32_t direction) {
  struct pump_entry entry;
  uint64_t cursor;
  return pump_schedule_peek(pump_shm, device, direction, &entry, &cursor) &&
         has_waited(device, &entry);
}

bool pump_schedule_can_start(uint32_t device, uint32_t direction) {
  struct pump_entry entry;
  uint64_t cursor;
  return pump_schedule_peek(pump_shm, device, direction, &entry, &cursor) &&
         may_go(device, direction, &entry);
}

bool pump_schedule_take(uint32_t device, uint32_t direction, struct pump_entry *entry,
                        uint64_t *made_ns) {
  struct pump_schedule *schedule = &pump_shm->schedules[device];
  uint64_t cursor;
  while (pump_schedule_peek(pump_shm, device, direction, entry, &cursor)) {
    *made_ns = PUMP_LOAD(&schedule->made_ns);
    if (!may_go(device, direction, entry)) return false;
    if (pump_schedule_claim(schedule, direction, cursor)) return true;
  }
  return false;
}

void pump_schedule_add_left_bytes(uint32_t device, uint64_t bytes) {
  PUMP_ASSERT(pump_mapping_entered(), "the mapping stays while it is written");
  __atomic_fetch_add(&pump_shm->schedules[device].left_bytes, bytes, __ATOMIC_SEQ_CST);
}

void pump_schedule_add_ended_bytes(uint32_t device, uint32_t direction, uint32_t result,
                                   uint64_t bytes) {
  PUMP_ASSERT(pump_mapping_entered(), "the mapping stays while it is written");
  __atomic_fetch_add(&pump_shm->schedules[device].ended_bytes,
                     pump_ended_bytes(direction, result, bytes), __ATOMIC_SEQ_CST);
}

void pump_schedule_wake(void) {
  for (uint32_t d = 0; d < PUMP_MAX_DEVICES; d++) {
    if (PUMP_LOAD(&pump_shm->schedules[d].cursor) == 0) continue;
    for (uint32_t direction = 0; direction < PUMP_DIRECTIONS; direction++) {
      struct pump_executors_sleep *sleep = &pump_shm->executors[d][direction];
      if (PUMP_LOAD(&sleep->asleep) != 0 && pump_schedule_can_start(d, direction))
        pump_wake(&sleep->asleep, &sleep->wakes);
    }
  }
}
