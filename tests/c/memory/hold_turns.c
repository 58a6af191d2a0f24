/* hold_turns.c - tests holds during other jobs' turns, and the drains that they begin
 * (memory/drain.c). Waiting threads are in progress/case_progress.c, budgets are in
 * budget_share.c.
 */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "shim/memory/memory.h"

#define SECOND_NS 1000000000ull
#define IDLE_NS 250000000u /* without an operation, a drain ends */

static struct pump_shm *mapping(void) {
  struct pump_shm *made = calloc(1, sizeof *made);
  CHECK(made != NULL);
  return made;
}
struct pump_shm *pump_shm;
static uint64_t now_ns = 1000 * SECOND_NS;
uint64_t pump_now_ns(void) {
  return now_ns;
}

static void a_hold_begins_a_drain_once_and_lasts_until_its_time(void) {
  CHECK(!pump_draining() && !pump_hold_lasts(3));
  uint64_t until_ns = now_ns + SECOND_NS;
  pump_hold_set(3, until_ns);
  CHECK(pump_draining() && pump_drain_lasts() && pump_hold_lasts(3));
  now_ns += IDLE_NS;
  CHECK(!pump_drain_lasts() && pump_draining() && pump_hold_lasts(3));
  pump_hold_set(3, until_ns); /* as the link thread does at each poll */
  pump_hold_set(3, until_ns += SECOND_NS);
  CHECK(!pump_drain_lasts());
  now_ns = until_ns - 1;
  CHECK(pump_hold_lasts(3) && pump_draining());
  now_ns++;
  CHECK(!pump_hold_lasts(3) && !pump_draining());
  pump_hold_set(3, until_ns);
  CHECK(!pump_draining() && !pump_drain_lasts());
  pump_hold_set(3, now_ns + 1); /* a new hold */
  CHECK(pump_drain_lasts());
}

static void a_hold_is_bounded_and_the_same_time_again_renews_nothing(void) {
  uint64_t end_ns = now_ns + PUMP_HOLD_MOST_NS;
  pump_hold_set(3, UINT64_MAX);
  now_ns = end_ns - 1;
  pump_hold_set(3, UINT64_MAX);
  CHECK(!pump_drain_lasts() && pump_hold_lasts(3));
  now_ns = end_ns;
  pump_hold_set(3, UINT64_MAX);
  CHECK(!pump_hold_lasts(3) && !pump_draining());
}

static void a_hold_that_is_taken_back_ends_at_once(void) {
  pump_hold_set(3, now_ns + SECOND_NS);
  now_ns += IDLE_NS;
  CHECK(!pump_drain_lasts() && pump_hold_lasts(3));
  pump_hold_set(3, 0);
  CHECK(!pump_hold_lasts(3) && !pump_draining());
}

static void a_hold_during_a_drain_leaves_the_drain_its_time(void) {
  pump_drain_launch_queues();
  now_ns += IDLE_NS - 1;
  pump_hold_set(3, now_ns + SECOND_NS);
  CHECK(pump_drain_lasts());
  now_ns++;
  CHECK(!pump_drain_lasts() && pump_hold_lasts(3));
  pump_drain_launch_queues(); /* begins a new drain, as a smaller budget does */
  CHECK(pump_drain_lasts());
}

static void a_device_is_held_without_the_others(void) {
  pump_hold_set(3, now_ns + SECOND_NS);
  pump_hold_set(0, now_ns + 2 * SECOND_NS);
  CHECK(pump_hold_lasts(0) && pump_hold_lasts(3));
  CHECK(!pump_hold_lasts(1));
  now_ns += SECOND_NS;
  CHECK(!pump_drain_lasts());
  CHECK(pump_hold_lasts(0) && !pump_hold_lasts(3));
  CHECK(pump_draining());
  pump_hold_set(3, now_ns + 2 * SECOND_NS);
  now_ns += IDLE_NS;
  pump_hold_set(0, 0);
  CHECK(!pump_drain_lasts() && pump_draining());
  CHECK(!pump_hold_lasts(0) && pump_hold_lasts(3));
}

static void threads_that_wait_are_counted_into_whichever_mapping_there_is(void) {
  pump_hold_enter(3);
  pump_hold_enter(3);
  CHECK(pump_shm->devices[3].held_threads == 2 && pump_shm->devices[0].held_threads == 0);
  free(pump_shm);
  pump_shm = mapping(); /* a new worker's mapping */
  pump_hold_set(3, 0);
  CHECK(pump_shm->devices[3].held_threads == 2);
  pump_hold_leave(3, 5 * SECOND_NS);
  pump_hold_leave(3, 2 * SECOND_NS);
  CHECK(pump_shm->devices[3].held_threads == 0);
  CHECK(pump_shm->shim_counters.held_ns == 7 * SECOND_NS);
}

static void a_forked_child_waits_for_no_turn(void) {
  pump_hold_set(3, now_ns + SECOND_NS);
  pump_hold_enter(3);
  pump_drain_fork_child();
  CHECK(!pump_hold_lasts(3) && !pump_draining() && !pump_drain_lasts());
  pump_hold_set(3, now_ns + SECOND_NS); /* the child's own worker requests the same */
  CHECK(pump_shm->devices[3].held_threads == 0 && pump_hold_lasts(3));
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    void (*run)(void);
  } scenarios[] = {
#define SCENARIO(name) {#name, name}
      SCENARIO(a_hold_begins_a_drain_once_and_lasts_until_its_time),
      SCENARIO(a_hold_is_bounded_and_the_same_time_again_renews_nothing),
      SCENARIO(a_hold_that_is_taken_back_ends_at_once),
      SCENARIO(a_hold_during_a_drain_leaves_the_drain_its_time),
      SCENARIO(a_device_is_held_without_the_others),
      SCENARIO(threads_that_wait_are_counted_into_whichever_mapping_there_is),
      SCENARIO(a_forked_child_waits_for_no_turn),
  };
  for (size_t i = 0; i < sizeof scenarios / sizeof scenarios[0]; i++)
    if (argc == 2 && strcmp(argv[1], scenarios[i].name) == 0) {
      pump_shm = mapping();
      scenarios[i].run();
      free(pump_shm);
      return 0;
    }
  return 2;
}
