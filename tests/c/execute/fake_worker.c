/* fake_worker.c - a test worker, for case_*.c: it gives executors single commands, each as
 * an entry without conditions at the end of the schedule, and collects their ends. */
#include "executor_harness.h"

#include <pthread.h>
#include <string.h>

#define MOST PUMP_SCHEDULE_ENTRIES

/* The commands of a device and direction that were submitted and not collected. */
struct given {
  struct pump_command commands[MOST];
  uint64_t asked_tickets[MOST]; /* by the test; the entry's own tickets are unique */
  uint32_t count, taken;        /* taken: by executors, as far as known */
};

static struct given given[PUMP_MAX_DEVICES][PUMP_DIRECTIONS];
static uint64_t tickets, versions;
static pthread_mutex_t worker_lock = PTHREAD_MUTEX_INITIALIZER;
struct pump_shm *worker_shm;

static void withdraw(uint32_t device) {
  uint64_t cursor = pump_schedule_withdraw(&worker_shm->schedules[device]);
  if (cursor >> 32 == 0) return;
  for (uint32_t direction = 0; direction < PUMP_DIRECTIONS; direction++)
    given[device][direction].taken += pump_schedule_taken_count(cursor, direction);
}

static void put_in_force(uint32_t device) {
  struct pump_schedule *schedule = &worker_shm->schedules[device];
  for (uint32_t direction = 0; direction < PUMP_DIRECTIONS; direction++) {
    const struct given *of = &given[device][direction];
    for (uint32_t i = of->taken; i < of->count; i++) {
      struct pump_entry entry = {.command = of->commands[i]};
      uint64_t words[sizeof entry / 8];
      memcpy(words, &entry, sizeof entry);
      uint64_t *to = (uint64_t *)&schedule->entries[direction][i - of->taken];
      for (size_t w = 0; w < sizeof entry / 8; w++) PUMP_STORE(&to[w], words[w]);
    }
    PUMP_STORE(&schedule->count[direction], of->count - of->taken);
  }
  PUMP_STORE_RELEASE(&worker_shm->header.valid_seq, PUMP_ALL_VALID);
  PUMP_STORE_RELEASE(&schedule->cursor, ++versions << 32);
}

bool worker_put(uint32_t device, uint32_t direction, struct pump_command command) {
  struct given *of = &given[device][direction];
  pthread_mutex_lock(&worker_lock);
  bool fits = of->count < MOST;
  if (fits) {
    withdraw(device);
    of->asked_tickets[of->count] = command.ticket;
    command.ticket = ++tickets;
    of->commands[of->count++] = command;
    put_in_force(device);
  }
  pthread_mutex_unlock(&worker_lock);
  return fits;
}

bool worker_submit(uint32_t device, uint32_t direction, struct pump_command command) {
  if (!worker_put(device, direction, command)) return false;
  struct pump_executors_sleep *sleep = &worker_shm->executors[device][direction];
  pump_wake(&sleep->asleep, &sleep->wakes);
  return true;
}

int worker_try_reap(uint32_t device, uint32_t direction, uint64_t *ticket) {
  struct given *of = &given[device][direction];
  int result = -1;
  pthread_mutex_lock(&worker_lock);
  uint64_t oldest = of->commands[0].ticket;
  const struct pump_entry_end *end =
      &worker_shm->entry_ends[oldest % PUMP_SCHEDULE_TICKETS];
  if (of->count > 0 && PUMP_LOAD_ACQUIRE(&end->ticket) == oldest) {
    result = (int)PUMP_LOAD(&end->result);
    if (ticket != NULL) *ticket = of->asked_tickets[0];
    withdraw(device);
    of->count--;
    of->taken--;
    memmove(of->commands, of->commands + 1, of->count * sizeof of->commands[0]);
    memmove(of->asked_tickets, of->asked_tickets + 1,
            of->count * sizeof of->asked_tickets[0]);
    put_in_force(device);
  }
  pthread_mutex_unlock(&worker_lock);
  return result;
}

uint32_t worker_reap(uint32_t device, uint32_t direction) {
  int result;
  EVENTUALLY((result = worker_try_reap(device, direction, NULL)) >= 0);
  return (uint32_t)result;
}

void worker_forget(void) {
  memset(given, 0, sizeof given);
}
