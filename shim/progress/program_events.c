/* program_events.c - learns progress from the program's own events.
 *
 * The newest record of each event is kept in a lossy table: events with the same index
 * overwrite each other. A hook removes the old record before the event is recorded again.
 * So if a record is the same before and after the driver's answer "complete", it is the
 * complete one. If two threads record one event at once, either record may be used.
 *
 * An event that another process shares, or that a graph records, proves nothing: it may
 * be recorded again without a hook. These events are rare; without any, the check costs
 * one load.
 */
#include <pthread.h>
#include <string.h>

#include "progress.h"
#include "shim/base/key_table.h"

#define EVENT_SLOTS 4096
#define EVENT_BUSY 1
#define DISTRUSTED_SLOTS 4096 /* PyTorch shares a thousand at most */

static struct {
  uint64_t event;
  uint64_t where; /* seq << 10 | stream index; not 0, because no index here is 0 */
} events[EVENT_SLOTS];
_Static_assert(PUMP_MAX_STREAMS <= 1024, "the index has 10 bits in events[].where");

static uint64_t distrusted_events[DISTRUSTED_SLOTS];
static struct pump_table distrusted = PUMP_TABLE(distrusted_events);
static pthread_mutex_t distrust_lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t any_distrusted; /* 1: some; 2: the table overflowed, trust no event */

/* ---- records -------------------------------------------------------------------- */

static uint32_t event_bucket(CUevent event) {
  return (uint32_t)(((uint64_t)(uintptr_t)event * 0x9e3779b97f4a7c15u) >> 52);
}

void pump_progress_event_recorded(CUevent event, uint32_t stream_index, uint64_t seq) {
  if (event == NULL || stream_index == 0 || stream_index >= PUMP_MAX_STREAMS) return;
  uint64_t *word = &events[event_bucket(event)].event;
  uint64_t seen = PUMP_LOAD(word);
  /* Another thread is writing here: the loss of a record costs only time. */
  if (seen == EVENT_BUSY ||
      !__atomic_compare_exchange_n(word, &seen, EVENT_BUSY, false, __ATOMIC_ACQUIRE,
                                   __ATOMIC_RELAXED))
    return;
  PUMP_STORE(&events[event_bucket(event)].where, seq << 10 | stream_index);
  PUMP_STORE_RELEASE(word, (uint64_t)(uintptr_t)event);
}

uint64_t pump_progress_event_asked(CUevent event) {
  if (event == NULL) return 0;
  uint32_t bucket = event_bucket(event);
  if (PUMP_LOAD_ACQUIRE(&events[bucket].event) != (uint64_t)(uintptr_t)event) return 0;
  uint64_t where = PUMP_LOAD_ACQUIRE(&events[bucket].where);
  return PUMP_LOAD(&events[bucket].event) == (uint64_t)(uintptr_t)event ? where : 0;
}

void pump_progress_event_gone(CUevent event) {
  if (event == NULL) return;
  uint64_t *word = &events[event_bucket(event)].event;
  uint64_t seen = (uint64_t)(uintptr_t)event;
  __atomic_compare_exchange_n(word, &seen, 0, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

/* ---- events recorded unseen ---------------------------------------------------- */

bool pump_progress_events_distrusted(void) {
  return __atomic_load_n(&any_distrusted, __ATOMIC_ACQUIRE) != 0;
}

bool pump_progress_event_distrust(CUevent event) {
  const uint64_t key = (uint64_t)(uintptr_t)event;
  pthread_mutex_lock(&distrust_lock);
  bool fresh = key != 0 && pump_table_find(&distrusted, key) == NULL;
  uint32_t any = fresh && pump_table_add(&distrusted, key) == NULL ? 2 : 1;
  if (fresh && any > any_distrusted)
    __atomic_store_n(&any_distrusted, any, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&distrust_lock);
  return fresh;
}

bool pump_progress_event_trust(CUevent event) {
  if (!pump_progress_events_distrusted()) return false;
  pthread_mutex_lock(&distrust_lock);
  void *found = pump_table_find(&distrusted, (uint64_t)(uintptr_t)event);
  if (found != NULL) pump_table_take_out(&distrusted, found);
  if (distrusted.used == 0 && any_distrusted == 1)
    __atomic_store_n(&any_distrusted, 0, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&distrust_lock);
  return found != NULL;
}

static bool is_distrusted(CUevent event) {
  uint32_t any = __atomic_load_n(&any_distrusted, __ATOMIC_ACQUIRE);
  if (PUMP_LIKELY(any == 0)) return false;
  pthread_mutex_lock(&distrust_lock);
  bool found = any == 2 || pump_table_find(&distrusted, (uint64_t)(uintptr_t)event) != NULL;
  pthread_mutex_unlock(&distrust_lock);
  return found;
}

void pump_progress_event_synced(CUevent event, uint64_t asked) {
  if (asked == 0 || is_distrusted(event) || pump_progress_event_asked(event) != asked)
    return;
  pump_progress_advance((uint32_t)(asked & 1023), asked >> 10);
}

void pump_event_fork_child(void) {
  pthread_mutex_init(&distrust_lock, NULL);
  pump_table_reset(&distrusted);
  any_distrusted = 0;
  memset(events, 0, sizeof events);
}
