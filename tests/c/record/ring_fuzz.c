/* ring_fuzz.c - tests the event ring with several producers and one consumer of varying
 * speed. Every operation must arrive exactly once, complete, and in its producer's order,
 * or be counted as dropped. Needs only the header pump_ring.h.
 *
 * Usage: ring_fuzz SEED OPERATIONS PRODUCERS
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "check.h"
#include "pump_ring.h"

#define MOST_PRODUCERS 8
#define MOST_RECORDS 64

static struct pump_shm *shm;
static uint64_t seed_base, operations;
static uint64_t dropped[MOST_PRODUCERS];
static uint32_t running;

static uint64_t next_random(uint64_t *state) { /* splitmix64 */
  uint64_t z = *state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

static uint64_t mark(uint64_t producer, uint64_t number, uint64_t part) {
  return producer << 56 ^ number << 8 ^ part * 0x9e3779b97f4a7c15u;
}

static void *produce(void *argument) {
  uint64_t producer = (uint64_t)(uintptr_t)argument, seed = seed_base + producer;
  for (uint64_t number = 1; number <= operations; number++) {
    uint64_t records = 1 + next_random(&seed) % (next_random(&seed) % MOST_RECORDS + 1);
    uint64_t position;
    if (!pump_event_reserve(shm, records, &position)) {
      dropped[producer]++;
      continue;
    }
    for (uint64_t i = records; i-- > 0;) {
      struct pump_event *event = pump_event_at(shm, position + i);
      PUMP_STORE(&event->seq, number);
      PUMP_STORE(&event->function, producer);
      PUMP_STORE(&event->time_ns, mark(producer, number, i));
      PUMP_STORE(&event->kind, i == 0 ? PUMP_EVENT_KERNEL : PUMP_EVENT_MORE);
      PUMP_STORE(&event->extent_count, (uint16_t)records);
      PUMP_STORE(&event->signature, i);
      pump_event_publish(shm, position + i);
    }
    pump_wake(&shm->header.worker_asleep, &shm->header.worker_wakes);
    if (number % 512 == 0) sched_yield();
  }
  __atomic_fetch_sub(&running, 1, __ATOMIC_RELEASE);
  return NULL;
}

/* Takes one operation at `position`; returns its number of records, 0 if not ready. */
static uint64_t take(uint64_t position, uint64_t newest[MOST_PRODUCERS]) {
  const struct pump_event *first = pump_event_peek(shm, position);
  if (first == NULL) return 0;
  CHECK(PUMP_LOAD(&first->kind) == PUMP_EVENT_KERNEL);
  uint64_t producer = PUMP_LOAD(&first->function), number = PUMP_LOAD(&first->seq);
  uint64_t records = PUMP_LOAD(&first->extent_count);
  CHECK(producer < MOST_PRODUCERS && number > newest[producer]);
  newest[producer] = number;
  for (uint64_t i = 0; i < records; i++) {
    const struct pump_event *event = pump_event_peek(shm, position + i);
    CHECK(event != NULL); /* published last to first: all are ready */
    CHECK(PUMP_LOAD(&event->time_ns) == mark(producer, number, i));
    CHECK(PUMP_LOAD(&event->signature) == i && PUMP_LOAD(&event->seq) == number);
    CHECK(i == 0 || PUMP_LOAD(&event->kind) == PUMP_EVENT_MORE);
  }
  return records;
}

/* Acts like a late worker: producers reach the end of the ring. */
static void wait_until_full(void) {
  while (__atomic_load_n(&running, __ATOMIC_ACQUIRE) != 0 &&
         PUMP_LOAD(&shm->header.event_tail) - PUMP_LOAD(&shm->header.event_head) <
             PUMP_EVENT_SLOTS - MOST_RECORDS / 2)
    usleep(200);
  usleep(200);
}

int main(int argc, char **argv) {
  CHECK(argc == 4);
  seed_base = strtoull(argv[1], NULL, 10);
  operations = strtoull(argv[2], NULL, 10);
  uint64_t producers = strtoull(argv[3], NULL, 10), seed = seed_base ^ 77;
  CHECK(producers <= MOST_PRODUCERS);
  shm = calloc(1, sizeof *shm);
  CHECK(shm != NULL);
  /* Positions begin high, and not at a multiple of the slots. */
  uint64_t position = (1ull << 40) + 12345;
  shm->header.event_tail = shm->header.event_head = position;
  running = (uint32_t)producers;
  pthread_t threads[MOST_PRODUCERS];
  for (uint64_t i = 0; i < producers; i++)
    pthread_create(&threads[i], NULL, produce, (void *)(uintptr_t)i);
  uint64_t newest[MOST_PRODUCERS] = {0}, taken[MOST_PRODUCERS] = {0}, unreleased = 0;
  for (;;) {
    bool last_look = __atomic_load_n(&running, __ATOMIC_ACQUIRE) == 0;
    const struct pump_event *event = pump_event_peek(shm, position);
    uint64_t producer = event == NULL ? 0 : PUMP_LOAD(&event->function);
    /* An event that arrives after this peek is taken in the next round, because its
     * producer was not read. */
    uint64_t records = event == NULL ? 0 : take(position, newest);
    if (records != 0) taken[producer]++;
    position += records;
    unreleased += records;
    if (records == 0 || unreleased > next_random(&seed) % 4096) {
      pump_event_release(shm, position);
      unreleased = 0;
      if (next_random(&seed) % 32 == 0) wait_until_full();
    }
    if (records == 0 && last_look) break;
    if (records != 0) continue;
    uint32_t ticket =
        pump_sleep_prepare(&shm->header.worker_asleep, &shm->header.worker_wakes);
    if (pump_event_peek(shm, position) == NULL)
      pump_sleep_wait(&shm->header.worker_wakes, ticket, 1000000);
  }
  uint64_t lost = 0;
  for (uint64_t i = 0; i < producers; i++) {
    pthread_join(threads[i], NULL);
    CHECK(taken[i] + dropped[i] == operations);
    lost += dropped[i];
  }
  CHECK(position == shm->header.event_tail);
  printf("dropped %llu of %llu\n", (unsigned long long)lost,
         (unsigned long long)(operations * producers));
  free(shm);
  return 0;
}
