/* fake_worker.c - a test worker that submits and reaps commands, for case_*.c. */
#include "executor_harness.h"

#include <string.h>

static uint64_t reaped[PUMP_MAX_DEVICES][PUMP_DIRECTIONS];
struct pump_shm *worker_shm;

bool worker_submit(uint32_t device, uint32_t direction, struct pump_command command) {
  struct pump_command_ring *ring = &worker_shm->commands[device][direction];
  if (!pump_command_push(ring, &command)) return false;
  pump_wake(&ring->executors_asleep, &ring->wakes);
  return true;
}

int worker_try_reap(uint32_t device, uint32_t direction, uint64_t *ticket) {
  struct pump_command *command =
      pump_command_at(&worker_shm->commands[device][direction], reaped[device][direction]);
  if (PUMP_LOAD_ACQUIRE(&command->state) != PUMP_COMMAND_DONE) return -1;
  int result = (int)command->result;
  if (ticket != NULL) *ticket = command->ticket;
  PUMP_STORE_RELEASE(&command->state, PUMP_COMMAND_EMPTY);
  reaped[device][direction]++;
  return result;
}

uint32_t worker_reap(uint32_t device, uint32_t direction) {
  int result;
  EVENTUALLY((result = worker_try_reap(device, direction, NULL)) >= 0);
  return (uint32_t)result;
}

void worker_forget(void) {
  memset(reaped, 0, sizeof reaped);
}
