/* populate.c - prefetches new ranges before their first use.
 *
 * A converted allocation initially has no pages, so its first use would fault. While
 * everything fits into the budget, in-threads prefetch new ranges in slices, in order of
 * allocation, whenever no entry is ready. This file is only a queue: each slice is
 * validated like a command, so freed ranges drop out.
 *
 * Once allocations exceed the budget, the queue is emptied, and the policy decides which
 * blocks are resident.
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "executors.h"

#define QUEUE_LENGTH 4096 /* ranges; further ones are paged in by faults */

struct entry {
  uint32_t slot, generation;
  uint64_t offset_bytes; /* next byte to populate */
};

/* One queue per device, under its lock. `count` is also read without the lock. */
static struct queue {
  pthread_mutex_t lock;
  uint32_t first, count;
  struct entry entries[QUEUE_LENGTH];
} queues[PUMP_MAX_DEVICES] = {
    [0 ... PUMP_MAX_DEVICES - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER}};

void pump_populate_add(uint32_t slot, uint32_t generation) {
  if (slot >= PUMP_MAX_RANGES) return;
  uint32_t device = PUMP_LOAD(&pump_shm->ranges[slot].device);
  if (device >= PUMP_MAX_DEVICES) return;
  int saved = errno;
  struct queue *queue = &queues[device];
  pthread_mutex_lock(&queue->lock);
  if (queue->count < QUEUE_LENGTH) {
    uint32_t at = (queue->first + queue->count) % QUEUE_LENGTH;
    queue->entries[at] = (struct entry){.slot = slot, .generation = generation};
    PUMP_STORE(&queue->count, queue->count + 1);
  }
  pthread_mutex_unlock(&queue->lock);
  /* A program that does not fit needs more threads and markers. Starting them here,
   * rather than at the program's first launch, makes the markers available in time. */
  pump_executors_start(device, PUMP_LOAD(&pump_shm->devices[device].device_state) ==
                                   PUMP_DEVICE_ACTIVE);
  struct pump_executors_sleep *sleep = &pump_shm->executors[device][PUMP_TO_GPU];
  pump_wake(&sleep->asleep, &sleep->wakes);
  errno = saved;
}

bool pump_populate_is_queued(uint32_t device) {
  return PUMP_LOAD(&queues[device].count) != 0;
}

static void drop_first(struct queue *queue) {
  queue->first = (queue->first + 1) % QUEUE_LENGTH;
  PUMP_STORE(&queue->count, queue->count - 1);
}

/* Cuts the next slice off the first queued range that is still live. The caller holds the
 * queue's lock. */
static bool cut_slice(struct queue *queue, struct pump_populate_slice *slice) {
  PUMP_ASSERT(pump_is_locked(&queue->lock), "the queue's lock guards it");
  PUMP_ASSERT(queue->count <= QUEUE_LENGTH, "the queue has a bound");
  while (queue->count > 0) {
    struct entry *entry = &queue->entries[queue->first];
    struct pump_range range;
    if (!pump_range_read(&pump_shm->ranges[entry->slot], &range) ||
        range.generation != entry->generation ||
        entry->offset_bytes >= range.length_bytes) {
      drop_first(queue);
      continue;
    }
    uint64_t left_bytes = range.length_bytes - entry->offset_bytes;
    *slice = (struct pump_populate_slice){
        .slot = entry->slot,
        .generation = entry->generation,
        .offset_bytes = entry->offset_bytes,
        .length_bytes = left_bytes < PUMP_SLICE_BYTES ? left_bytes : PUMP_SLICE_BYTES};
    entry->offset_bytes += slice->length_bytes;
    if (slice->length_bytes == left_bytes) drop_first(queue);
    return true;
  }
  return false;
}

bool pump_populate_take_slice(uint32_t device, struct pump_populate_slice *slice) {
  struct queue *queue = &queues[device];
  if (PUMP_LOAD(&queue->count) == 0) return false;
  const struct pump_device *state = &pump_shm->devices[device];
  pthread_mutex_lock(&queue->lock);
  if (PUMP_LOAD(&state->allocated_bytes) > PUMP_LOAD(&state->budget_bytes))
    PUMP_STORE(&queue->count, 0);
  bool found = cut_slice(queue, slice);
  pthread_mutex_unlock(&queue->lock);
  return found;
}

void pump_populate_fork_child(void) {
  for (int d = 0; d < PUMP_MAX_DEVICES; d++) {
    pthread_mutex_init(&queues[d].lock, NULL);
    queues[d].first = queues[d].count = 0;
  }
}
