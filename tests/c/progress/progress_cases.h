/* progress_cases.h - what scenarios of markers and of times share. */
#ifndef PROGRESS_CASES_H
#define PROGRESS_CASES_H

#include "executor_harness.h"

static inline CUcontext begin(void) {
  CUcontext context = fake_context_create(0);
  pump_threads_start();
  pump_context_note(0, context);
  pump_executors_start(0, true);
  /* With few free markers, streams get theirs less often. */
  EVENTUALLY(PUMP_LOAD(&fake.events_alive) >= PUMP_MARKERS_FIRST);
  return context;
}

static inline uint64_t executed(uint32_t index) {
  return PUMP_LOAD(&pump_shm->progress[index].executed_seq);
}

/* Issues one operation like a launch hook. */
static inline uint64_t issue(CUstream stream, uint64_t now_ns) {
  uint32_t index = pump_stream_index(stream, false);
  uint64_t seq = PUMP_ADD(&pump_shm->header.next_seq, 1);
  if ((uintptr_t)stream > 2) PUMP_ADD(&((struct fake_stream *)(void *)stream)->issued, 1);
  pump_progress_issued(index, stream, seq, now_ns, 0);
  return seq;
}

#endif
