/* case_apart.c - scenarios of evictions that delay the program's calls. */
#include "executor_harness.h"

#define IN_TURN 4 /* slices of each direction that wait or move */

static CUcontext begin(uint32_t lock) {
  PUMP_STORE(&fake.lock, lock);
  PUMP_STORE(&fake.prefetch_us, 300);
  CUcontext context = fake_context_create(0);
  pump_threads_start();
  pump_context_note(0, context);
  pump_executors_start(0, true);
  return context;
}

/* Moves `slices` slices in each direction; returns the context of the last one to the
 * host. */
static CUcontext move(uint32_t slices) {
  static uint32_t slot = UINT32_MAX;
  if (slot == UINT32_MAX) slot = harness_allocate(0, 8);
  for (uint32_t i = 0; i < slices + IN_TURN; i++)
    for (uint32_t way = 0; way < PUMP_DIRECTIONS; way++) {
      if (i < slices) CHECK(worker_submit(0, way, harness_slice(slot, i % 8, 1)));
      if (i >= IN_TURN) CHECK(worker_reap(0, way) == PUMP_RESULT_MOVED);
    }
  return __atomic_load_n(&fake.host_context, __ATOMIC_RELAXED);
}

static uint32_t state(void) {
  return pump_executors_of(0)->own_context.state;
}

static uint64_t made(void) {
  return PUMP_LOAD(&pump_shm->shim_counters.own_contexts);
}

SCENARIO(evictions_that_hold_nothing_up_stay_in_the_program_s_context) {
  CUcontext context = begin(FAKE_LOCK_NONE);
  CHECK(move(20 * PUMP_OWN_CONTEXT_CALLS) == context);
  CHECK(state() == PUMP_OWN_CONTEXT_NO && made() == 0);
}

SCENARIO(evictions_that_hold_calls_up_get_contexts_of_their_own_and_keep_them) {
  CUcontext first = begin(FAKE_LOCK_CONTEXT), second = fake_context_create(0);
  for (int i = 0; i < 100 && state() == PUMP_OWN_CONTEXT_NO; i++)
    move(PUMP_OWN_CONTEXT_CALLS);
  CHECK(state() == PUMP_OWN_CONTEXT_YES);
  CUcontext own = move(4 * PUMP_OWN_CONTEXT_CALLS);
  CHECK(own != first && own != second && state() == PUMP_OWN_CONTEXT_YES);
  CHECK(made() != 0 && made() <= PUMP_OUT_THREADS_MOST);
  CHECK(PUMP_LOAD(&fake.own_bytes) == made() * FAKE_CONTEXT_BYTES);
  /* End the program's context. It may contain nothing of ours, and our contexts are
   * reused. */
  pump_context_note(0, second);
  pump_executors_context_gone(first);
  fake_context_destroy(first);
  CHECK(state() == PUMP_OWN_CONTEXT_YES);
  own = move(4 * PUMP_OWN_CONTEXT_CALLS);
  CHECK(own != first && own != second);
  CHECK(made() <= PUMP_OUT_THREADS_MOST);
  pump_executors_context_gone(second);
  fake_context_destroy(second);
  CHECK(PUMP_LOAD(&fake.events_alive) == 0 && PUMP_LOAD(&fake.streams_alive) == 0);
}

SCENARIO(evictions_come_back_where_contexts_of_their_own_change_nothing) {
  CUcontext context = begin(FAKE_LOCK_ALL);
  for (int i = 0; i < 100 && state() != PUMP_OWN_CONTEXT_IN_VAIN; i++)
    move(PUMP_OWN_CONTEXT_CALLS);
  CHECK(state() == PUMP_OWN_CONTEXT_IN_VAIN);
  CHECK(move(8) == context);
  pump_executors_context_gone(context);
  fake_context_destroy(context);
}

SCENARIO(where_no_context_can_be_made_evictions_go_on_in_the_program_s) {
  PUMP_STORE(&fake.contexts_refused, 1);
  CUcontext context = begin(FAKE_LOCK_CONTEXT);
  for (int i = 0; i < 100 && state() != PUMP_OWN_CONTEXT_IN_VAIN; i++)
    CHECK(move(PUMP_OWN_CONTEXT_CALLS) == context);
  CHECK(state() == PUMP_OWN_CONTEXT_IN_VAIN && made() == 0);
}
