/* markers.h - pools of markers, shared by the program's threads, which record markers
 * (marker.c), and a device's marker thread, which makes and polls them (execute/poll.c).
 *
 * DESIGN. Life of a marker: FREE queue -> application thread (records) -> FRESH queue ->
 * marker thread's waiting list (polls, oldest first per stream) -> FREE. Both queues are
 * bounded and take no lock, so an application thread does one pop, one record and one
 * push. An event can be recorded only on streams of its own context, so each context has
 * a pool. The device's marker thread serves all pools. It makes the events ahead of need
 * and destroys them before any context of the device ends. For this it collects its
 * events from the queues and its list, for at most PUMP_COLLECT_NS, because an
 * application thread may hold one during its record call.
 *
 * Some markers are *timed*: `begin` is an event directly before an operation, `event` is
 * the event directly after it, and both have timing. They have their own FREE queue.
 *
 * A marker returned after that must not be mistaken for an event of the pool's next epoch.
 * So a queue's ticket holds epoch and number, and a marker that is still `in_use` is not
 * made again. No two epochs have the same number.
 *
 * Wake-ups. While markers are recorded, and for PUMP_LINGER_NS afterwards, the marker
 * thread sleeps for 2 * PUMP_POLL_MIN_NS at most and needs no wake-up. After that
 * it sets `asleep` and checks the fresh queues once more. A recording thread moves the
 * queue's tail before it checks `asleep`. Both are sequentially consistent, so one of the
 * two threads sees the other's write without a fence.
 */
#ifndef PUMP_MARKERS_H
#define PUMP_MARKERS_H

#include "progress.h"

struct pump_marker {
  CUevent event;
  CUevent begin; /* NULL: not timed */
  uint64_t seq;
  uint32_t stream_index;
  uint32_t in_use; /* 1 while an application thread has it */
};

#define PUMP_MARKER_EPOCH_MASK 0xfffffu

/* Tickets in queues: number | epoch << 12. */
static inline uint32_t pump_marker_ticket_of(uint32_t number, uint32_t epoch) {
  return number | epoch << 12;
}
static inline uint32_t pump_marker_number_of(uint32_t ticket) {
  return ticket % PUMP_MARKERS;
}
static inline bool pump_marker_of_epoch(uint32_t ticket, uint32_t epoch) {
  return ticket >> 12 == epoch;
}
/* Lives of pools are counted modulo 2^20. */
static inline bool pump_marker_of_later_epoch(uint32_t ticket, uint32_t epoch) {
  uint32_t ahead = ((ticket >> 12) - epoch) & PUMP_MARKER_EPOCH_MASK;
  return ahead != 0 && ahead <= PUMP_MARKER_EPOCH_MASK / 2;
}
_Static_assert(PUMP_MARKERS == 4096, "a number has 12 bits in a ticket");

/* A bounded queue of tickets, many producers and consumers. The cell for position p is
 * empty if sequence == p, and filled if sequence == p + 1. */
struct pump_marker_queue {
  uint64_t head, tail;
  struct {
    uint64_t sequence;
    uint32_t value;
  } cells[PUMP_MARKERS];
};

/* A pool for each small number of a context. The marker thread that serves it writes
 * `epoch` and `context`; all fields after `skipped` belong to that thread. */
extern struct pump_marker_pool {
  struct pump_marker_queue free, timed, fresh; /* timed: the free markers with timing */
  struct pump_marker markers[PUMP_MARKERS];
  uint32_t epoch; /* 0: nothing can be recorded */
  CUcontext context;
  uint64_t skipped;
  bool ready;                     /* the queues are initialised */
  bool broken;                    /* the driver does not know the context */
  uint32_t next;                  /* number of the next marker to make */
  uint32_t made;                  /* markers that exist */
  uint32_t made_timed;            /* markers with timing that exist */
  uint64_t looked_ns;             /* when the previous pass began; 0: long ago */
  uint32_t waiting_count;         /* recorded markers (events) that are not complete */
  uint32_t waiting[PUMP_MARKERS]; /* tickets of waiting markers, in order of recording */
} pump_marker_pools[PUMP_MAX_CONTEXTS];

/* For each device: the futex on which its marker thread sleeps, private to the process,
 * and whether it sleeps. */
extern struct pump_marker_sleeper {
  uint32_t wakes, asleep;
} pump_marker_sleepers[PUMP_MAX_DEVICES];

void pump_marker_queue_init(struct pump_marker_queue *queue);
/* Returns false if the queue is full (push) or empty (pop). */
bool pump_marker_queue_push(struct pump_marker_queue *queue, uint32_t value);
bool pump_marker_queue_pop(struct pump_marker_queue *queue, uint32_t *value);

/* For the recording thread. `take` returns a marker from the queue, or NULL. `give` puts
 * it into the marker thread's queue, or back if it was not recorded. */
struct pump_marker *pump_marker_take(struct pump_marker_pool *pool,
                                     struct pump_marker_queue *queue, CUcontext context,
                                     uint32_t *ticket);
void pump_marker_give(struct pump_marker_queue *queue, struct pump_marker *marker,
                      uint32_t ticket);
/* Records the event unless the stream is capturing; returns whether it did. */
bool pump_marker_event(CUevent event, CUstream stream);
/* Wakes the marker thread to poll a marker that was recorded. */
void pump_marker_wake(uint32_t device);

#endif
