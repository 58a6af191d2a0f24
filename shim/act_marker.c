/* act_marker.c - cheap events that tell how far the program's streams have executed.
 *
 * A marker is one event of ours, recorded by the application thread behind an
 * operation it has just issued, polled by the device's marker thread. Nobody
 * waits for a marker: without one, progress is known later, never wrong.
 *
 * DESIGN. Life of a marker: FREE queue -> application thread (records) -> FRESH
 * queue -> marker thread's waiting list (polls, oldest first per stream) -> FREE.
 * Both queues are bounded and take no lock, so an application thread does one pop,
 * one record and one push. The marker thread makes the events, ahead of need, and
 * destroys all of them before the context goes: it collects what it made from the
 * queues and its list, for at most COLLECT_NS because an application thread may
 * hold one for the length of its record call.
 *
 * One that comes back later than that must not be mistaken for an event of the
 * next life of the set: a queue's ticket holds the life beside the number, and a
 * marker that is still `held` is not made anew.
 */
#include <string.h>

#include "act.h"
#include "act_private.h"

#define POOL                                                                               \
  4096 /* markers a device: one for each operation of four full launch queues              \
        */
#define GROWTH 64
#define AHEAD 1024 /* free markers kept for a program that runs: one full launch queue */
#define POLL_MIN_NS 50000
#define POLL_MAX_NS 100000
#define IDLE_NS 1000000000u
#define COLLECT_NS 100000000u

struct marker {
  CUevent event;
  uint64_t seq;
  uint32_t stream_index;
  uint32_t held; /* 1 while an application thread has it */
};

/* What queues hold: number | life << 12. */
static uint32_t ticket_of(uint32_t number, uint32_t life) {
  return number | life << 12;
}
static uint32_t number_of(uint32_t ticket) {
  return ticket % POOL;
}
static bool of_life(uint32_t ticket, uint32_t life) {
  return ticket >> 12 == (life & 0xfffff);
}
_Static_assert(POOL == 4096, "a number has 12 bits in a ticket");

/* Bounded queue of tickets, many producers and consumers: a cell's turn
 * says whether it is empty for position p (turn == p) or filled (turn == p + 1). */
struct queue {
  uint64_t head, tail;
  struct {
    uint64_t turn;
    uint32_t value;
  } cells[POOL];
};

static struct pool {
  struct marker markers[POOL];
  struct queue free, fresh;
  bool ready; /* queues are initialised; under the lock of act_context.c */
  uint64_t skipped;
} pools[PUMP_MAX_DEVICES];

static void queue_init(struct queue *queue) {
  PUMP_STORE(&queue->head, 0);
  PUMP_STORE(&queue->tail, 0);
  for (uint64_t i = 0; i < POOL; i++) PUMP_STORE(&queue->cells[i].turn, i);
}

static bool queue_push(struct queue *queue, uint32_t value) {
  uint64_t tail = PUMP_LOAD(&queue->tail);
  for (;;) {
    uint64_t turn = PUMP_LOAD_ACQUIRE(&queue->cells[tail % POOL].turn);
    if (turn < tail) return false; /* full */
    if (turn > tail) {
      tail = PUMP_LOAD(&queue->tail);
    } else if (__atomic_compare_exchange_n(&queue->tail, &tail, tail + 1, true,
                                           __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
      PUMP_STORE(&queue->cells[tail % POOL].value, value);
      PUMP_STORE_RELEASE(&queue->cells[tail % POOL].turn, tail + 1);
      return true;
    }
  }
}

static bool queue_pop(struct queue *queue, uint32_t *value) {
  uint64_t head = PUMP_LOAD(&queue->head);
  for (;;) {
    uint64_t turn = PUMP_LOAD_ACQUIRE(&queue->cells[head % POOL].turn);
    if (turn < head + 1) return false; /* empty */
    if (turn > head + 1) {
      head = PUMP_LOAD(&queue->head);
    } else if (__atomic_compare_exchange_n(&queue->head, &head, head + 1, true,
                                           __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
      *value = PUMP_LOAD(&queue->cells[head % POOL].value);
      PUMP_STORE_RELEASE(&queue->cells[head % POOL].turn, head + POOL);
      return true;
    }
  }
}

/* ---- application threads ---------------------------------------------------- */

/* True unless work of a capture would end up on the stream, or the driver cannot
 * tell. Asking is only needed while something is captured at all. */
static bool stream_is_open(CUstream stream) {
  if (__atomic_load_n(&pump_captures, __ATOMIC_ACQUIRE) == 0) return true;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (pump_real.cuStreamIsCapturing == NULL) return false;
  return pump_real.cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
         status == CU_STREAM_CAPTURE_STATUS_NONE;
}

static bool record(CUevent event, CUstream stream) {
  struct pump_bracket bracket = pump_bracket_open();
  bool recorded =
      stream_is_open(stream) && pump_real.cuEventRecord(event, stream) == CUDA_SUCCESS;
  pump_bracket_close(bracket);
  return recorded;
}

bool pump_marker_record(uint32_t device, CUcontext context, uint32_t stream_index,
                        CUstream stream, uint64_t seq) {
  struct pump_set *set = pump_set_of(device);
  struct pool *pool = &pools[device];
  uint32_t life = PUMP_LOAD_ACQUIRE(&set->life), ticket;
  /* An event can be recorded on streams of its own context only. */
  if (PUMP_LOAD_ACQUIRE(&set->state) != PUMP_SET_RUNNING || context == NULL ||
      __atomic_load_n(&set->context, __ATOMIC_ACQUIRE) != context) {
    PUMP_ADD(&pool->skipped, 1);
    return false;
  }
  if (!queue_pop(&pool->free, &ticket)) {
    PUMP_ADD(&pool->skipped, 1);
    pump_bell_ring(&set->mark_asleep, &set->mark_bell); /* more are made, if any may be */
    return false;
  }
  if (!of_life(ticket, life)) return false; /* left over from an earlier life */
  struct marker *marker = &pool->markers[number_of(ticket)];
  PUMP_STORE(&marker->held, 1);
  marker->seq = seq;
  marker->stream_index = stream_index;
  bool recorded = record(marker->event, stream);
  /* As many cells as markers: a push finds room. */
  queue_push(recorded ? &pool->fresh : &pool->free, ticket);
  PUMP_STORE_RELEASE(&marker->held, 0);
  if (!recorded) {
    PUMP_ADD(&pool->skipped, 1);
    return false;
  }
  PUMP_ADD(&pump_shm->shim_counters.markers, 1);
  pump_bell_ring(&set->mark_asleep, &set->mark_bell);
  return true;
}

uint64_t pump_markers_skipped(void) {
  uint64_t sum = 0;
  for (int d = 0; d < PUMP_MAX_DEVICES; d++) sum += PUMP_LOAD(&pools[d].skipped);
  return sum;
}

/* ---- the marker thread ------------------------------------------------------ */

struct poller {
  struct pump_thread_role role;
  struct pool *pool;
  uint32_t next;          /* number to make next */
  uint32_t made;          /* events that exist */
  uint32_t waiting_count; /* recorded, not yet complete; in order of recording */
  uint32_t waiting[POOL]; /* tickets */
  uint32_t round;         /* number of the present pass */
  uint32_t blocked[PUMP_MAX_STREAMS]; /* pass in which a stream's oldest was not ready */
  bool over;
};
static struct poller pollers[PUMP_MAX_DEVICES]; /* 20 KiB each: not on a stack */

static bool note(struct poller *poller, CUresult result, const char *call) {
  if (!pump_set_note(poller->role.set, result, call)) poller->over = true;
  return result == CUDA_SUCCESS;
}

static void make_markers(struct poller *poller) {
  for (uint32_t i = 0; i < GROWTH && poller->next < POOL; i++, poller->next++) {
    struct marker *marker = &poller->pool->markers[poller->next];
    if (PUMP_LOAD_ACQUIRE(&marker->held) != 0) continue;
    if (!note(poller, pump_real.cuEventCreate(&marker->event, CU_EVENT_DISABLE_TIMING),
              "cuEventCreate"))
      return;
    poller->made++;
    queue_push(&poller->pool->free, ticket_of(poller->next, poller->role.life));
  }
}

/* A program issues a thousand operations within milliseconds and then waits for them.
 * Without markers behind the last of them nobody would know how far they are until
 * the program's wait is over, so the markers have to be there before the burst. */
static bool short_of_markers(const struct queue *queue) {
  uint64_t head = PUMP_LOAD(&queue->head);
  uint64_t wanted = pump_dormant() ? GROWTH / 4 : AHEAD;
  return PUMP_LOAD(&queue->tail) - head < wanted;
}

/* Moves fresh markers to the end of the waiting list. */
static void collect_fresh(struct poller *poller) {
  uint32_t ticket;
  while (poller->waiting_count < POOL && queue_pop(&poller->pool->fresh, &ticket))
    if (of_life(ticket, poller->role.life))
      poller->waiting[poller->waiting_count++] = ticket;
}

/* One pass over the waiting list; true when any stream has advanced. */
static bool poll_waiting(struct poller *poller) {
  uint32_t kept = 0, done = 0;
  poller->round++;
  for (uint32_t i = 0; i < poller->waiting_count; i++) {
    uint32_t ticket = poller->waiting[i];
    const struct marker *marker = &poller->pool->markers[number_of(ticket)];
    CUresult result = CUDA_ERROR_NOT_READY;
    if (!poller->over && poller->blocked[marker->stream_index] != poller->round)
      result = pump_real.cuEventQuery(marker->event);
    if (result == CUDA_ERROR_NOT_READY) {
      poller->blocked[marker->stream_index] = poller->round;
      poller->waiting[kept++] = ticket;
      continue;
    }
    if (note(poller, result, "cuEventQuery")) {
      pump_progress_advance(marker->stream_index, marker->seq);
      done++;
    } /* else: the marker tells nothing, the next one may */
    queue_push(&poller->pool->free, ticket);
  }
  poller->waiting_count = kept;
  return done != 0;
}

static bool pop_any(struct poller *poller, uint32_t *ticket) {
  if (poller->waiting_count > 0) {
    *ticket = poller->waiting[--poller->waiting_count];
    return true;
  }
  return queue_pop(&poller->pool->fresh, ticket) || queue_pop(&poller->pool->free, ticket);
}

/* Destroys every event of this life that can be found; see DESIGN. */
static void destroy_markers(struct poller *poller) {
  uint64_t deadline_ns = pump_now_ns() + COLLECT_NS;
  while (poller->made > 0) {
    uint32_t ticket;
    if (pop_any(poller, &ticket)) {
      if (!of_life(ticket, poller->role.life)) continue;
      pump_real.cuEventDestroy_v2(poller->pool->markers[number_of(ticket)].event);
      poller->made--;
      continue;
    }
    if (pump_now_ns() >= deadline_ns) return;
    struct timespec nap = {.tv_nsec = 100000};
    nanosleep(&nap, NULL);
  }
}

static void work(struct poller *poller) {
  struct pump_set *set = poller->role.set;
  uint64_t pause_ns = POLL_MIN_NS;
  while (!poller->over && pump_set_lives(&poller->role)) {
    while (poller->next < POOL && short_of_markers(&poller->pool->free) && !poller->over &&
           !pump_set_gave_up(set) && pump_set_lives(&poller->role))
      make_markers(poller);
    collect_fresh(poller);
    bool advanced = poll_waiting(poller);
    uint32_t ticket = pump_bell_prepare(&set->mark_asleep, &set->mark_bell);
    if (poller->waiting_count > 0) {
      /* Records need not wake us now: the pause is short. Ends of life do. */
      PUMP_STORE(&set->mark_asleep, 0);
      pause_ns = advanced ? POLL_MIN_NS : pause_ns * 5 / 4;
      if (pause_ns > POLL_MAX_NS) pause_ns = POLL_MAX_NS;
      if (pump_set_lives(&poller->role)) pump_bell_wait(&set->mark_bell, ticket, pause_ns);
      continue;
    }
    struct queue *fresh = &poller->pool->fresh;
    if (PUMP_LOAD(&fresh->head) != PUMP_LOAD(&fresh->tail)) continue;
    if (pump_set_lives(&poller->role)) pump_bell_wait(&set->mark_bell, ticket, IDLE_NS);
  }
}

void *pump_marker_thread(void *argument) {
  const struct pump_thread_role *role = argument;
  struct poller *poller = &pollers[role->set->device];
  memset(poller, 0, sizeof *poller);
  poller->role = *role;
  poller->pool = &pools[role->set->device];
  poller->over = !pump_set_thread_begin(&poller->role);
  work(poller);
  destroy_markers(poller);
  pump_set_thread_end(&poller->role);
  return NULL;
}

void pump_marker_prepare(uint32_t device) {
  struct pool *pool = &pools[device];
  if (pool->ready) return;
  queue_init(&pool->free);
  queue_init(&pool->fresh);
  pool->ready = true;
}

void pump_marker_fork_child(void) {
  for (int d = 0; d < PUMP_MAX_DEVICES; d++) {
    if (pools[d].skipped != 0) pools[d].skipped = 0;
    if (!pools[d].ready) continue; /* a fork shall not make copies of untouched pages */
    pools[d].ready = false;
    for (int i = 0; i < POOL; i++) pools[d].markers[i].held = 0;
  }
}
