/* marker.c - cheap events that show how far the program's streams have executed.
 *
 * A marker is an event of ours. The application thread records it after an operation that
 * it has just issued; the device's marker thread polls it (execute/poll.c). No thread
 * waits for a marker: without one, progress is known later, but never wrongly. markers.h
 * has the design.
 */
#include <string.h>

#include "markers.h"

struct pump_marker_pool pump_marker_pools[PUMP_MAX_CONTEXTS];
struct pump_marker_sleeper pump_marker_sleepers[PUMP_MAX_DEVICES];

void pump_marker_queue_init(struct pump_marker_queue *queue) {
  PUMP_STORE(&queue->head, 0);
  PUMP_STORE(&queue->tail, 0);
  for (uint64_t i = 0; i < PUMP_MARKERS; i++) PUMP_STORE(&queue->cells[i].sequence, i);
}

bool pump_marker_queue_push(struct pump_marker_queue *queue, uint32_t value) {
  uint64_t tail = PUMP_LOAD(&queue->tail);
  for (;;) {
    uint64_t sequence = PUMP_LOAD_ACQUIRE(&queue->cells[tail % PUMP_MARKERS].sequence);
    if (sequence < tail) return false; /* full */
    if (sequence > tail) {
      tail = PUMP_LOAD(&queue->tail);
    } else if (__atomic_compare_exchange_n(&queue->tail, &tail, tail + 1, true,
                                           __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
      PUMP_STORE(&queue->cells[tail % PUMP_MARKERS].value, value);
      PUMP_STORE_RELEASE(&queue->cells[tail % PUMP_MARKERS].sequence, tail + 1);
      return true;
    }
  }
}

bool pump_marker_queue_pop(struct pump_marker_queue *queue, uint32_t *value) {
  uint64_t head = PUMP_LOAD(&queue->head);
  for (;;) {
    uint64_t sequence = PUMP_LOAD_ACQUIRE(&queue->cells[head % PUMP_MARKERS].sequence);
    if (sequence < head + 1) return false; /* empty */
    if (sequence > head + 1) {
      head = PUMP_LOAD(&queue->head);
    } else if (__atomic_compare_exchange_n(&queue->head, &head, head + 1, true,
                                           __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
      *value = PUMP_LOAD(&queue->cells[head % PUMP_MARKERS].value);
      PUMP_STORE_RELEASE(&queue->cells[head % PUMP_MARKERS].sequence, head + PUMP_MARKERS);
      return true;
    }
  }
}

/* ---- application threads ---------------------------------------------------- */

bool pump_marker_event(CUevent event, CUstream stream) {
  struct pump_driver_scope scope = pump_driver_scope_open();
  bool recorded =
      !pump_capturing(stream) && pump_real.cuEventRecord(event, stream) == CUDA_SUCCESS;
  pump_driver_scope_close(scope);
  return recorded;
}

void pump_marker_wake(uint32_t device) {
  struct pump_marker_sleeper *sleeper = &pump_marker_sleepers[device];
  if (PUMP_LIKELY(__atomic_load_n(&sleeper->asleep, __ATOMIC_SEQ_CST) == 0)) return;
  pump_wake(&sleeper->asleep, &sleeper->wakes);
}

static bool count_skipped(struct pump_marker_pool *pool, uint32_t device) {
  PUMP_ADD(&pool->skipped, 1);
  pump_marker_wake(device); /* the thread may open the pool or make more markers */
  return false;
}

struct pump_marker *pump_marker_take(struct pump_marker_pool *pool,
                                     struct pump_marker_queue *queue, CUcontext context,
                                     uint32_t *ticket) {
  uint32_t epoch = PUMP_LOAD_ACQUIRE(&pool->epoch);
  if (epoch == 0 || __atomic_load_n(&pool->context, __ATOMIC_RELAXED) != context ||
      !pump_marker_queue_pop(queue, ticket))
    return NULL;
  if (!pump_marker_of_epoch(*ticket, epoch)) {
    /* Left over from an earlier epoch. Or the pool has begun a new epoch since we read
     * `epoch`; the thread that ends the new epoch must then find this marker. */
    if (pump_marker_of_later_epoch(*ticket, epoch)) pump_marker_queue_push(queue, *ticket);
    return NULL;
  }
  struct pump_marker *marker = &pool->markers[pump_marker_number_of(*ticket)];
  PUMP_STORE(&marker->in_use, 1);
  return marker;
}

void pump_marker_give(struct pump_marker_queue *queue, struct pump_marker *marker,
                      uint32_t ticket) {
  pump_marker_queue_push(queue, ticket); /* as many cells as markers: never full */
  PUMP_STORE_RELEASE(&marker->in_use, 0);
}

bool pump_marker_record(uint32_t device, CUcontext context, uint32_t context_index,
                        uint32_t stream_index, CUstream stream, uint64_t seq) {
  if (context_index >= PUMP_MAX_CONTEXTS) return false;
  struct pump_marker_pool *pool = &pump_marker_pools[context_index];
  uint32_t ticket;
  struct pump_marker *marker = pump_marker_take(pool, &pool->free, context, &ticket);
  if (marker == NULL) return count_skipped(pool, device);
  marker->seq = seq;
  marker->stream_index = stream_index;
  bool recorded = pump_marker_event(marker->event, stream);
  pump_marker_give(recorded ? &pool->fresh : &pool->free, marker, ticket);
  if (!recorded) return count_skipped(pool, device);
  pump_marker_wake(device);
  return true;
}

bool pump_markers_are_few(uint32_t context_index) {
  if (context_index >= PUMP_MAX_CONTEXTS) return true;
  const struct pump_marker_queue *queue = &pump_marker_pools[context_index].free;
  return PUMP_LOAD(&queue->tail) - PUMP_LOAD(&queue->head) < PUMP_MARKERS_FEW;
}

uint64_t pump_markers_skipped(void) {
  uint64_t sum = 0;
  for (int i = 0; i < PUMP_MAX_CONTEXTS; i++)
    sum += PUMP_LOAD(&pump_marker_pools[i].skipped);
  return sum;
}

void pump_markers_wake(uint32_t device) {
  __atomic_fetch_add(&pump_marker_sleepers[device].wakes, 1, __ATOMIC_RELEASE);
  pump_futex_wake(&pump_marker_sleepers[device].wakes);
}

void pump_marker_fork_child(void) {
  for (int i = 0; i < PUMP_MAX_CONTEXTS; i++) {
    struct pump_marker_pool *pool = &pump_marker_pools[i];
    if (pool->skipped != 0) pool->skipped = 0;
    if (!pool->ready) continue; /* a fork must not copy untouched pages */
    pool->ready = false;
    pool->epoch = 0;
    for (int m = 0; m < PUMP_MARKERS; m++) pool->markers[m].in_use = 0;
  }
  memset(pump_marker_sleepers, 0, sizeof pump_marker_sleepers);
}
