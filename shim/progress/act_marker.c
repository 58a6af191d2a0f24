/* act_marker.c - cheap events that tell how far the program's streams have executed.
 *
 * A marker is one event of ours, recorded by the application thread behind an
 * operation it has just issued, polled by the device's marker thread. No thread
 * waits for a marker: without one, progress is known later, never wrong.
 *
 * DESIGN. Life of a marker: FREE queue -> application thread (records) -> FRESH
 * queue -> marker thread's waiting list (polls, oldest first per stream) -> FREE.
 * Both queues are bounded and take no lock, so an application thread does one pop,
 * one record and one push. An event can be recorded on streams of its own context
 * only, so each context has a pool; the device's marker thread serves all of them. It
 * makes the events, ahead of need, and destroys them before any context of the device
 * goes: it collects what it made from the queues and its list, for at most COLLECT_NS
 * because an application thread may hold one for the length of its record call.
 *
 * One that comes back later than that must not be mistaken for an event of the
 * pool's next life: a queue's ticket holds the life beside the number, and a
 * marker that is still `held` is not made anew. No two lives have the same number.
 *
 * Wake-ups. While anything is recorded the marker thread sleeps for POLL_MAX_NS at
 * most, and for LINGER_NS after that, and needs no waking. Only then it says that it
 * is asleep, and looks at the fresh queues once more. A recording thread moves the
 * queue's tail before it looks whether the marker thread is asleep; both operations
 * are sequentially consistent, so one of the two sees the other's, without a fence.
 */
#include <string.h>
#include <sys/prctl.h>

#include "shim/execute/act.h"
#include "shim/execute/act_private.h"
#include "shim/pool/pool.h"

#define POOL 4096 /* markers a context: one for each operation of four launch queues */
#define GROWTH 64
#define AHEAD 1024 /* free markers kept for a program that runs: one full launch queue */
#define FEW 64     /* with fewer than that left, one in sixteen operations has to do */
#define FIRST 128  /* made for a context before anything is recorded there */
#define POLL_MIN_NS 50000
#define POLL_MAX_NS 100000
#define LINGER_NS 5000000 /* a program that goes on within that wakes no thread */
#define SLACK_NS 10000    /* a timed sleep ends at most that late */
#define IDLE_NS 1000000000u
#define COLLECT_NS 100000000u

struct marker {
  CUevent event;
  uint64_t seq;
  uint32_t stream_index;
  uint32_t held; /* 1 while an application thread has it */
};

#define LIFE_MASK 0xfffffu

/* What queues hold: number | life << 12. */
static uint32_t ticket_of(uint32_t number, uint32_t life) {
  return number | life << 12;
}
static uint32_t number_of(uint32_t ticket) {
  return ticket % POOL;
}
static bool of_life(uint32_t ticket, uint32_t life) {
  return ticket >> 12 == life;
}
/* Lives of pools are counted up, 20 bits of them. */
static bool of_later_life(uint32_t ticket, uint32_t life) {
  uint32_t ahead = ((ticket >> 12) - life) & LIFE_MASK;
  return ahead != 0 && ahead <= LIFE_MASK / 2;
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

/* One for each small number of a context. `life` and `context` are written by the
 * marker thread that serves it; all below `skipped` is that thread's own. */
static struct pool {
  struct queue free, fresh;
  struct marker markers[POOL];
  uint32_t life; /* 0: nothing can be recorded */
  CUcontext context;
  uint64_t skipped;
  bool ready;             /* the queues are initialised */
  bool broken;            /* the driver does not know the context */
  uint32_t next;          /* number to make next */
  uint32_t made;          /* events that exist */
  uint32_t waiting_count; /* recorded, not yet complete; in order of recording */
  uint32_t waiting[POOL]; /* tickets */
} pools[PUMP_MAX_CONTEXTS];

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
                                           __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
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

static bool record(CUevent event, CUstream stream) {
  struct pump_bracket bracket = pump_bracket_open();
  bool recorded =
      !pump_capturing(stream) && pump_real.cuEventRecord(event, stream) == CUDA_SUCCESS;
  pump_bracket_close(bracket);
  return recorded;
}

static void wake_if_asleep(struct pump_set *set) {
  if (PUMP_LIKELY(__atomic_load_n(&set->mark_asleep, __ATOMIC_SEQ_CST) == 0)) return;
  pump_bell_ring(&set->mark_asleep, &set->mark_bell);
}

static bool skip(struct pool *pool, struct pump_set *set) {
  PUMP_ADD(&pool->skipped, 1);
  wake_if_asleep(set); /* the pool is opened, or more is made, if any may be */
  return false;
}

bool pump_marker_record(uint32_t device, CUcontext context, uint32_t context_index,
                        uint32_t stream_index, CUstream stream, uint64_t seq) {
  struct pump_set *set = pump_set_of(device);
  if (context_index >= PUMP_MAX_CONTEXTS) return false;
  struct pool *pool = &pools[context_index];
  uint32_t life = PUMP_LOAD_ACQUIRE(&pool->life), ticket;
  if (life == 0 || __atomic_load_n(&pool->context, __ATOMIC_RELAXED) != context ||
      !queue_pop(&pool->free, &ticket))
    return skip(pool, set);
  if (!of_life(ticket, life)) {
    /* Left over from an earlier life; or the pool began anew between our two looks, and the
     * thread that ends it will look for this one. */
    if (of_later_life(ticket, life)) queue_push(&pool->free, ticket);
    return false;
  }
  struct marker *marker = &pool->markers[number_of(ticket)];
  PUMP_STORE(&marker->held, 1);
  marker->seq = seq;
  marker->stream_index = stream_index;
  bool recorded = record(marker->event, stream);
  /* As many cells as markers: a push finds room. */
  queue_push(recorded ? &pool->fresh : &pool->free, ticket);
  PUMP_STORE_RELEASE(&marker->held, 0);
  if (!recorded) return skip(pool, set);
  wake_if_asleep(set);
  return true;
}

bool pump_markers_are_few(uint32_t context_index) {
  if (context_index >= PUMP_MAX_CONTEXTS) return true;
  const struct queue *queue = &pools[context_index].free;
  return PUMP_LOAD(&queue->tail) - PUMP_LOAD(&queue->head) < FEW;
}

uint64_t pump_markers_skipped(void) {
  uint64_t sum = 0;
  for (int i = 0; i < PUMP_MAX_CONTEXTS; i++) sum += PUMP_LOAD(&pools[i].skipped);
  return sum;
}

/* ---- the marker thread ------------------------------------------------------ */

struct poller {
  struct pump_thread_role role;
  uint64_t served;                    /* contexts whose pools are ours, a bit each */
  CUcontext current;                  /* the driver's current one on this thread */
  uint32_t round;                     /* number of the present pass */
  uint32_t blocked[PUMP_MAX_STREAMS]; /* pass in which a stream's oldest was not ready */
  bool over;
};
static struct poller pollers[PUMP_MAX_DEVICES]; /* 4 KiB each: not on a stack */
static uint32_t lives;                          /* of pools, all devices */
_Static_assert(PUMP_MAX_CONTEXTS == 64, "a bit each in poller.served");

#define FOR_SERVED(poller, i)                                                              \
  for (uint32_t i = 0; i < PUMP_MAX_CONTEXTS; i++)                                         \
    if (((poller)->served >> i & 1) != 0)

static bool note(struct poller *poller, CUresult result, const char *call) {
  if (!pump_set_note(poller->role.set, result, call)) poller->over = true;
  return result == CUDA_SUCCESS;
}

static bool enter_context(struct poller *poller, struct pool *pool) {
  if (poller->current == pool->context) return true;
  if (pool->broken) return false;
  if (pump_real.cuCtxSetCurrent(pool->context) != CUDA_SUCCESS) {
    pool->broken = true; /* it ended behind our back */
    return false;
  }
  poller->current = pool->context;
  return true;
}

/* Opens pools of contexts that have come since the last look. */
static void adopt_contexts(struct poller *poller) {
  for (uint32_t i = 0; i < PUMP_MAX_CONTEXTS; i++) {
    CUcontext context = pump_context_at(i, poller->role.set->device);
    if (context == NULL || (poller->served >> i & 1) != 0) continue;
    struct pool *pool = &pools[i];
    if (!pool->ready) {
      queue_init(&pool->free);
      queue_init(&pool->fresh);
      pool->ready = true;
    }
    pool->broken = false;
    pool->next = pool->made = pool->waiting_count = 0;
    __atomic_store_n(&pool->context, context, __ATOMIC_RELAXED);
    uint32_t life = 0;
    while (life == 0) life = (PUMP_ADD(&lives, 1) + 1) & LIFE_MASK;
    PUMP_STORE_RELEASE(&pool->life, life);
    poller->served |= (uint64_t)1 << i;
  }
}

static void make_markers(struct poller *poller, struct pool *pool) {
  for (uint32_t i = 0; i < GROWTH && pool->next < POOL; i++, pool->next++) {
    struct marker *marker = &pool->markers[pool->next];
    if (PUMP_LOAD_ACQUIRE(&marker->held) != 0) continue;
    if (!note(poller, pump_real.cuEventCreate(&marker->event, CU_EVENT_DISABLE_TIMING),
              "cuEventCreate"))
      return;
    pool->made++;
    queue_push(&pool->free, ticket_of(pool->next, pool->life));
  }
}

/* A program issues a thousand operations within milliseconds and then waits for them.
 * Without markers behind the last of them it would be unknown how far they are until
 * the program's wait is over, so the markers have to be there before the burst. A
 * context in which nothing was ever recorded gets so many that one in sixteen
 * operations of a full launch queue can have one. */
static bool short_of_markers(const struct pool *pool) {
  uint64_t head = PUMP_LOAD(&pool->free.head);
  bool busy = !pump_dormant() && pool->made != PUMP_LOAD(&pool->free.tail) - head;
  uint64_t wanted = busy || pool->made > FIRST ? AHEAD : FIRST;
  return pool->next < POOL && PUMP_LOAD(&pool->free.tail) - head < wanted;
}

static void fill_pool(struct poller *poller, struct pool *pool) {
  while (short_of_markers(pool) && !poller->over && !pump_set_gave_up(poller->role.set) &&
         pump_set_lives(&poller->role) && enter_context(poller, pool))
    make_markers(poller, pool);
}

/* Moves fresh markers to the end of the waiting list. */
static void collect_fresh(struct pool *pool) {
  uint32_t ticket, before = pool->waiting_count;
  while (pool->waiting_count < POOL && queue_pop(&pool->fresh, &ticket))
    if (of_life(ticket, pool->life)) pool->waiting[pool->waiting_count++] = ticket;
  if (pool->waiting_count != before)
    PUMP_ADD(&pump_shm->shim_counters.markers, pool->waiting_count - before);
}

/* One pass over the waiting list; true when any stream has advanced. */
static bool poll_waiting(struct poller *poller, struct pool *pool) {
  uint32_t kept = 0, done = 0;
  bool asked = enter_context(poller, pool);
  for (uint32_t i = 0; i < pool->waiting_count; i++) {
    uint32_t ticket = pool->waiting[i];
    const struct marker *marker = &pool->markers[number_of(ticket)];
    CUresult result = CUDA_ERROR_NOT_READY;
    if (asked && !poller->over && poller->blocked[marker->stream_index] != poller->round)
      result = pump_real.cuEventQuery(marker->event);
    if (result == CUDA_ERROR_NOT_READY) {
      poller->blocked[marker->stream_index] = poller->round;
      pool->waiting[kept++] = ticket;
      continue;
    }
    if (note(poller, result, "cuEventQuery")) {
      pump_progress_advance(marker->stream_index, marker->seq);
      done++;
    } /* else: the marker tells nothing, the next one may */
    queue_push(&pool->free, ticket);
  }
  pool->waiting_count = kept;
  return done != 0;
}

static bool pop_any(struct pool *pool, uint32_t *ticket) {
  if (pool->waiting_count > 0) {
    *ticket = pool->waiting[--pool->waiting_count];
    return true;
  }
  return queue_pop(&pool->fresh, ticket) || queue_pop(&pool->free, ticket);
}

/* Destroys every event of this life that can be found; see DESIGN. */
static void close_pool(struct poller *poller, struct pool *pool) {
  uint32_t life = pool->life, ticket;
  PUMP_STORE_RELEASE(&pool->life, 0);
  bool inside = enter_context(poller, pool);
  if (inside) pump_pool_dead_leave(pool->context);
  uint64_t deadline_ns = pump_now_ns() + COLLECT_NS;
  while (pool->made > 0) {
    if (pop_any(pool, &ticket)) {
      if (!of_life(ticket, life)) continue;
      if (inside) pump_real.cuEventDestroy_v2(pool->markers[number_of(ticket)].event);
      pool->made--;
      continue;
    }
    if (pump_now_ns() >= deadline_ns) return;
    struct timespec nap = {.tv_nsec = 100000};
    nanosleep(&nap, NULL);
  }
}

struct look {
  bool advanced; /* a stream has */
  bool waiting;  /* markers are recorded and not complete */
};

static struct look look(struct poller *poller) {
  struct look seen = {false, false};
  adopt_contexts(poller);
  poller->round++;
  FOR_SERVED(poller, i) {
    struct pool *pool = &pools[i];
    fill_pool(poller, pool);
    uint64_t now_ns = pump_now_ns();
    if (pump_pool_dead_due(pool->context, now_ns) && enter_context(poller, pool))
      pump_pool_dead_tick(pool->context, now_ns);
    collect_fresh(pool);
    if (pool->waiting_count == 0) continue;
    seen.advanced |= poll_waiting(poller, pool);
    seen.waiting |= pool->waiting_count > 0 && !pool->broken;
  }
  return seen;
}

static bool anything_fresh(const struct poller *poller) {
  FOR_SERVED(poller, i) {
    const struct queue *fresh = &pools[i].fresh;
    if (PUMP_LOAD(&fresh->head) != PUMP_LOAD(&fresh->tail)) return true;
  }
  return false;
}

static void work(struct poller *poller) {
  struct pump_set *set = poller->role.set;
  uint64_t pause_ns = POLL_MIN_NS, busy_ns = 0; /* when something last waited */
  while (!poller->over && pump_set_lives(&poller->role)) {
    uint32_t bell = PUMP_LOAD_ACQUIRE(&set->mark_bell);
    struct look seen = look(poller);
    uint64_t now_ns = pump_now_ns();
    if (seen.waiting || seen.advanced) busy_ns = now_ns;
    if (now_ns - busy_ns < LINGER_NS) {
      pause_ns = seen.advanced ? POLL_MIN_NS : pause_ns * 5 / 4;
      if (pause_ns > POLL_MAX_NS) pause_ns = POLL_MAX_NS;
      if (pump_set_lives(&poller->role)) pump_bell_wait(&set->mark_bell, bell, pause_ns);
      continue;
    }
    bell = pump_bell_prepare(&set->mark_asleep, &set->mark_bell);
    if (!anything_fresh(poller) && pump_set_lives(&poller->role))
      pump_bell_wait(&set->mark_bell, bell, IDLE_NS);
    __atomic_store_n(&set->mark_asleep, 0, __ATOMIC_SEQ_CST);
  }
}

void *pump_marker_thread(void *argument) {
  const struct pump_thread_role *role = argument;
  struct poller *poller = &pollers[role->set->device];
  memset(poller, 0, sizeof *poller);
  poller->role = *role;
  prctl(PR_SET_TIMERSLACK, (unsigned long)SLACK_NS); /* this thread's alone */
  poller->over = !pump_set_thread_begin(&poller->role);
  poller->current = poller->role.context;
  work(poller);
  FOR_SERVED(poller, i) close_pool(poller, &pools[i]);
  pump_set_thread_end(&poller->role);
  return NULL;
}

void pump_marker_fork_child(void) {
  for (int i = 0; i < PUMP_MAX_CONTEXTS; i++) {
    struct pool *pool = &pools[i];
    if (pool->skipped != 0) pool->skipped = 0;
    if (!pool->ready) continue; /* a fork shall not make copies of untouched pages */
    pool->ready = false;
    pool->life = 0;
    for (int m = 0; m < POOL; m++) pool->markers[m].held = 0;
  }
}
