/* plan.c - plans: what executors do next without a command, and when it is void.
 *
 * The worker puts a plan in force (pump_abi.h); executors take of it what may go now
 * whenever their command ring has nothing for them, under the same validation and the same
 * bound of bytes in flight as commands. So executors go on while a worker is late, or gone,
 * until the plan is used up.
 *
 * DESIGN. A plan is void as soon as the program issues an operation that the worker did not
 * predict. Each operation is compared with the word that stands under its number, wherever
 * a plan may be in force; the first that differs clears `armed`, which every executor looks
 * at before it takes. Numbers that the worker has not written yet differ too: no executor
 * runs ahead of what is known. Only the worker arms again, once it has read what was issued
 * meanwhile.
 *
 * What an entry waits for comes from the program's side (operations have executed) or from
 * the executors' own (bytes have left), so the executor that brings it about looks whether
 * another may go on now, and wakes it (pump_plan_look).
 */
#include <stdlib.h>
#include <string.h>

#include "executors.h"

#define LOOK_AHEAD 8 /* operations: the worker wrote their words last, on another core */

static bool off; /* nothing is taken */

void pump_plan_start(void) {
  const char *text = getenv("PUMP_PLANS");
  off = text != NULL && strcmp(text, "0") == 0;
}

/* ---- what is issued ------------------------------------------------------------- */

static bool any_in_force(void) {
  for (uint32_t d = 0; d < PUMP_MAX_DEVICES; d++)
    if (PUMP_LOAD(&pump_shm->plans[d].turn) >> 32 != 0) return true;
  return false;
}

static bool same_shape(const struct pump_issued *issued, uint64_t expected) {
  if (issued->grid == NULL) return false;
  uint64_t shape = pump_shape(issued->function, issued->grid, issued->block);
  return pump_prediction_word(issued->seq, issued->stream, issued->kind, shape) == expected;
}

void pump_plan_compare(const struct pump_issued *issued) {
  const struct pump_prediction *predicted = pump_prediction_at(pump_shm, issued->seq);
  __builtin_prefetch(pump_prediction_at(pump_shm, issued->seq + LOOK_AHEAD));
  uint64_t word =
      pump_prediction_word(issued->seq, issued->stream, issued->kind, issued->signature);
  if (PUMP_LIKELY(PUMP_LOAD(&predicted->signature) == word)) return;
  if (same_shape(issued, PUMP_LOAD(&predicted->shape))) return;
  if (any_in_force()) PUMP_ADD(&pump_shm->shim_counters.plans_dropped, 1);
  PUMP_STORE(&pump_shm->header.armed, 0);
}

/* ---- what may go ------------------------------------------------------------------ */

static bool has_executed(uint32_t stream, uint64_t seq) {
  return seq == 0 || (stream < PUMP_MAX_STREAMS && pump_progress_executed(stream) >= seq);
}

static bool may_go(uint32_t device, const struct pump_planned *entry) {
  return has_executed(entry->after_stream, entry->after_seq) &&
         PUMP_LOAD(&pump_shm->plans[device].left_bytes) >= entry->left_bytes;
}

bool pump_plan_waits(uint32_t device, uint32_t direction) {
  struct pump_planned entry;
  uint64_t turn;
  return !off && pump_plan_peek(pump_shm, device, direction, &entry, &turn) &&
         may_go(device, &entry) &&
         pump_flight_has_room(device, direction, entry.command.length_bytes);
}

bool pump_plan_take(uint32_t device, uint32_t direction, struct pump_command *command) {
  struct pump_planned entry;
  uint64_t turn;
  while (!off && pump_plan_peek(pump_shm, device, direction, &entry, &turn)) {
    if (!may_go(device, &entry) ||
        !pump_flight_has_room(device, direction, entry.command.length_bytes))
      return false;
    if (!pump_plan_claim(&pump_shm->plans[device], direction, turn)) continue;
    *command = entry.command;
    return true;
  }
  return false;
}

void pump_plan_left(uint32_t device, uint64_t bytes) {
  __atomic_fetch_add(&pump_shm->plans[device].left_bytes, bytes, __ATOMIC_SEQ_CST);
}

void pump_plan_wake(void) {
  for (uint32_t d = 0; d < PUMP_MAX_DEVICES; d++) {
    if (PUMP_LIKELY(PUMP_LOAD(&pump_shm->plans[d].turn) == 0)) continue;
    for (uint32_t way = 0; way < PUMP_DIRECTIONS; way++) {
      struct pump_command_ring *ring = &pump_shm->commands[d][way];
      if (PUMP_LOAD(&ring->executors_asleep) != 0 && pump_plan_waits(d, way))
        pump_wake(&ring->executors_asleep, &ring->wakes);
    }
  }
}
