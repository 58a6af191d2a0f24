/* markers.h - the pools of markers, between the threads of the program that record them
 * (marker.c) and the thread of a device that makes and polls them (execute/poll.c).
 *
 * DESIGN. Life of a marker: FREE queue -> application thread (records) -> FRESH
 * queue -> marker thread's waiting list (polls, oldest first per stream) -> FREE.
 * Both queues are bounded and take no lock, so an application thread does one pop,
 * one record and one push. An event can be recorded on streams of its own context
 * only, so each context has a pool; the device's marker thread serves all of them. It
 * makes the events, ahead of need, and destroys them before any context of the device
 * goes: it collects what it made from the queues and its list, for at most PUMP_COLLECT_NS
 * because an application thread may hold one for the length of its record call.
 *
 * Some markers are *timed*: `begin` is an event directly in front of one operation, `event`
 * the one directly behind it, and both have timing. They have a FREE queue of their own.
 *
 * A marker that comes back later than that must not be mistaken for an event of the pool's
 * next life: a queue's ticket holds the life beside the number, and a marker that is still
 * `held` is not made anew. No two lives have the same number.
 *
 * Wake-ups. While anything is recorded the marker thread sleeps for PUMP_POLL_MAX_NS at
 * most, and for PUMP_LINGER_NS after that, and needs no waking. Only then it says that it
 * is asleep, and looks at the fresh queues once more. A recording thread moves the
 * queue's tail before it looks whether the marker thread is asleep; both operations
 * are sequentially consistent, so one of the two sees the other's, without a fence.
 */
#ifndef PUMP_MARKERS_H
#define PUMP_MARKERS_H

#include "progress.h"

struct pump_marker {
  CUevent event;
  CUevent begin; /* NULL: it is not timed */
  uint64_t seq;
  uint32_t stream_index;
  uint32_t held; /* 1 while an application thread has it */
};

#define PUMP_MARKER_LIFE_MASK 0xfffffu

/* What queues hold: number | life << 12. */
static inline uint32_t pump_marker_ticket_of(uint32_t number, uint32_t life) {
  return number | life << 12;
}
static inline uint32_t pump_marker_number_of(uint32_t ticket) {
  return ticket % PUMP_MARKERS;
}
static inline bool pump_marker_of_life(uint32_t ticket, uint32_t life) {
  return ticket >> 12 == life;
}
/* Lives of pools are counted up, 20 bits of them. */
static inline bool pump_marker_of_later_life(uint32_t ticket, uint32_t life) {
  uint32_t ahead = ((ticket >> 12) - life) & PUMP_MARKER_LIFE_MASK;
  return ahead != 0 && ahead <= PUMP_MARKER_LIFE_MASK / 2;
}
_Static_assert(PUMP_MARKERS == 4096, "a number has 12 bits in a ticket");

/* Bounded queue of tickets, many producers and consumers: a cell's turn
 * says whether it is empty for position p (turn == p) or filled (turn == p + 1). */
struct pump_marker_queue {
  uint64_t head, tail;
  struct {
    uint64_t turn;
    uint32_t value;
  } cells[PUMP_MARKERS];
};

/* One for each small number of a context. `life` and `context` are written by the
 * marker thread that serves it; all below `skipped` is that thread's own. */
extern struct pump_marker_pool {
  struct pump_marker_queue free, timed, fresh; /* timed: the free ones */
  struct pump_marker markers[PUMP_MARKERS];
  uint32_t life; /* 0: nothing can be recorded */
  CUcontext context;
  uint64_t skipped;
  bool ready;                     /* the queues are initialised */
  bool broken;                    /* the driver does not know the context */
  uint32_t next;                  /* number to make next */
  uint32_t made;                  /* markers that exist */
  uint32_t made_timed;            /* of them */
  uint64_t looked_ns;             /* when the pass before this one began; 0: long ago */
  uint32_t waiting_count;         /* recorded, not yet complete; in order of recording */
  uint32_t waiting[PUMP_MARKERS]; /* tickets */
} pump_marker_pools[PUMP_MAX_CONTEXTS];

/* For each device: the futex that its marker thread sleeps on, private to the process, and
 * whether it sleeps.
 */
extern struct pump_marker_sleeper {
  uint32_t wakes, asleep;
} pump_marker_sleepers[PUMP_MAX_DEVICES];

void pump_marker_queue_init(struct pump_marker_queue *queue);
/* false where the queue is full, or empty. */
bool pump_marker_queue_push(struct pump_marker_queue *queue, uint32_t value);
bool pump_marker_queue_pop(struct pump_marker_queue *queue, uint32_t *value);

/* For the thread that records it: takes one of the queue, NULL where there is none; then
 * gives it to the marker thread, or back unrecorded. */
struct pump_marker *pump_marker_take(struct pump_marker_pool *pool,
                                     struct pump_marker_queue *queue, CUcontext context,
                                     uint32_t *ticket);
void pump_marker_give(struct pump_marker_queue *queue, struct pump_marker *marker,
                      uint32_t ticket);
/* Records the event, unless the stream is capturing; false: it did not. */
bool pump_marker_event(CUevent event, CUstream stream);
/* A marker was recorded: the marker thread has to look. */
void pump_marker_wake(uint32_t device);

#endif
