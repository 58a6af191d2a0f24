/* case_event.c - scenarios of the program's own events, and the progress that they show. */
#include <pthread.h>

#include "executor_harness.h"

static CUstream streams[2];
static uint32_t indexes[2];

static void begin(void) {
  CUcontext context = fake_context_create(0);
  pump_threads_start();
  pump_context_note(0, context);
  for (int i = 0; i < 2; i++) {
    streams[i] = fake_stream_create(context);
    indexes[i] = pump_stream_index(streams[i], false);
  }
}

static uint64_t executed(int stream) {
  return PUMP_LOAD(&pump_shm->progress[indexes[stream]].executed_seq);
}

/* The program queries the event, and the driver reports that it is complete. */
static void complete(CUevent event) {
  pump_progress_event_synced(event, pump_progress_event_asked(event));
}

SCENARIO(an_event_that_is_gone_says_nothing_about_its_successor) {
  begin();
  CUevent event = (CUevent)(void *)&indexes;
  pump_progress_event_recorded(event, indexes[0], 500);
  pump_progress_event_gone((CUevent)(void *)&streams); /* another event */
  pump_progress_event_gone(event);
  complete(event); /* the same handle, a new event, never recorded */
  CHECK(executed(0) == 0);
  pump_progress_event_recorded(event, indexes[0], 600);
  complete(event);
  CHECK(executed(0) == 600);
}

SCENARIO(an_answer_about_an_event_that_is_recorded_meanwhile_tells_nothing) {
  begin();
  CUevent event = (CUevent)(void *)&indexes;
  pump_progress_event_recorded(event, indexes[0], 500);
  uint64_t asked = pump_progress_event_asked(event);
  pump_progress_event_gone(event);
  pump_progress_event_synced(event, asked); /* the new record is in progress */
  pump_progress_event_recorded(event, indexes[1], 600);
  pump_progress_event_synced(event, asked);
  CHECK(executed(0) == 0 && executed(1) == 0);
  complete(event);
  CHECK(executed(0) == 0 && executed(1) == 600);
}

/* The driver's view: after which operation the event was last recorded, and how far the
 * streams really are. */
static pthread_mutex_t driver_lock = PTHREAD_MUTEX_INITIALIZER;
static int recorded_on;
static uint64_t recorded_seq, really[2], issued_seq[2];
static bool over;

static void *record_on_both_in_turn(void *event) {
  for (uint64_t seq = 1; seq <= 40000; seq++) {
    int on = (int)(seq & 1);
    pump_progress_event_gone(event);
    pthread_mutex_lock(&driver_lock);
    recorded_on = on;
    recorded_seq = issued_seq[on] = seq;
    pthread_mutex_unlock(&driver_lock);
    pump_progress_event_recorded(event, indexes[on], seq);
    pthread_mutex_lock(&driver_lock);
    if (seq % 3 == 0) really[on] = issued_seq[on]; /* one stream lags */
    pthread_mutex_unlock(&driver_lock);
  }
  __atomic_store_n(&over, true, __ATOMIC_RELEASE);
  return NULL;
}

SCENARIO(an_event_recorded_and_asked_by_two_threads_never_runs_ahead) {
  begin();
  CUevent event = (CUevent)(void *)&indexes;
  pthread_t recorder;
  CHECK(pthread_create(&recorder, NULL, record_on_both_in_turn, event) == 0);
  while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE)) {
    uint64_t asked = pump_progress_event_asked(event);
    pthread_mutex_lock(&driver_lock);
    bool is_complete = recorded_seq != 0 && really[recorded_on] >= recorded_seq;
    pthread_mutex_unlock(&driver_lock);
    if (is_complete) pump_progress_event_synced(event, asked);
    for (int i = 0; i < 2; i++) {
      uint64_t seen = executed(i);
      pthread_mutex_lock(&driver_lock);
      CHECK(seen <= really[i]);
      pthread_mutex_unlock(&driver_lock);
    }
  }
  pthread_join(recorder, NULL);
}

SCENARIO(an_event_that_another_process_has_as_well_tells_nothing) {
  begin();
  CUevent event = (CUevent)(void *)&indexes, other = (CUevent)(void *)&streams;
  pump_progress_event_recorded(event, indexes[0], 500);
  CHECK(!pump_progress_events_distrusted() && pump_progress_event_distrust(event));
  CHECK(pump_progress_events_distrusted() && !pump_progress_event_distrust(event));
  complete(event); /* recorded earlier, but perhaps shared since then */
  pump_progress_event_gone(event);
  pump_progress_event_recorded(event, indexes[0], 600);
  complete(event);
  CHECK(executed(0) == 0);
  pump_progress_event_recorded(other, indexes[1], 700);
  complete(other); /* other events are not affected */
  CHECK(executed(1) == 700 && !pump_progress_event_trust(other));
  pump_progress_event_gone(event);
  CHECK(pump_progress_event_trust(event) && !pump_progress_events_distrusted());
  pump_progress_event_recorded(event, indexes[0], 800); /* a new event with that handle */
  complete(event);
  CHECK(executed(0) == 800);
}

SCENARIO(with_more_shared_events_than_can_be_kept_none_is_believed) {
  begin();
  CUevent event = (CUevent)(void *)&indexes;
  for (uintptr_t i = 1; i <= 100000; i++) pump_progress_event_distrust((CUevent)(i * 64));
  pump_progress_event_recorded(event, indexes[0], 500);
  complete(event);
  for (uintptr_t i = 1; i <= 100000; i++) pump_progress_event_trust((CUevent)(i * 64));
  complete(event); /* pump lost track of the shared ones */
  CHECK(executed(0) == 0 && pump_progress_events_distrusted());
}
