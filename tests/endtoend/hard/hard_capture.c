/* hard_capture.c - stream capture while pump is active: no call of pump is captured.
 *
 * Usage: hard_capture CASE. Prints "right" (exit status 0) or an error (exit status 9).
 */
#include "hard.h"

static CUcontext context;
static CUfunction mix;

/* Captures twelve mixes of a set on `stream`; applies them to the model `times` times. */
static CUgraphExec capture(struct set *set, CUstream stream, int mode, unsigned times) {
  unsigned target[12], source[12];
  uint64_t seed[12];
  CUgraph graph;
  CUgraphExec exec;
  int status;
  MUST(cu.StreamBeginCapture(stream, mode));
  for (int i = 0; i < 12; i++) {
    target[i] = set_random(set, set->count);
    source[i] = set_random(set, set->count);
    seed[i] = set_random(set, 1000);
    launch_mix(&cu, mix, stream, set->buffers[target[i]], set->buffers[source[i]], seed[i]);
  }
  usleep(2000); /* lets executors and markers run */
  MUST(cu.StreamIsCapturing(stream, &status));
  CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  MUST(cu.StreamEndCapture(stream, &graph));
  MUST(cu.GraphInstantiateWithFlags(&exec, graph, 0));
  MUST(cu.GraphDestroy(graph));
  for (unsigned n = 0; n < times; n++)
    for (int i = 0; i < 12; i++)
      for (size_t w = 0; w < SAMPLES; w++)
        set->model[target[i]][w] = set->model[target[i]][w] * 6364136223846793005u +
                                   set->model[source[i]][w] + seed[i];
  return exec;
}

/* Captures and replays between ordinary work, in one thread. */
static void capture_and_replay(int mode) {
  CUstream stream;
  struct set *set = set_make(24, 11);
  MUST(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  for (int round = 0; round < 6; round++) {
    for (int i = 0; i < 20; i++) set_step(set, &cu, mix, stream);
    CUgraphExec exec = capture(set, stream, mode, 3);
    for (int i = 0; i < 3; i++) MUST(cu.GraphLaunch(exec, stream));
    MUST(cu.StreamSynchronize(stream));
    MUST(cu.GraphExecDestroy(exec));
  }
  MUST(cu.StreamDestroy(stream));
  set_check(set);
}

static void capture_in_global_mode(void) {
  capture_and_replay(CU_STREAM_CAPTURE_MODE_GLOBAL);
}
static void capture_in_thread_mode(void) {
  capture_and_replay(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}
static void capture_in_relaxed_mode(void) {
  capture_and_replay(CU_STREAM_CAPTURE_MODE_RELAXED);
}

/* One thread captures while others launch. */
static bool capturing;
#define BESIDE 3
static pthread_barrier_t all_have_allocated;

static void *launcher(void *number) {
  unsigned me = (unsigned)(uintptr_t)number;
  CUstream stream;
  MUST(cu.CtxSetCurrent(context));
  MUST(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  struct set *set = set_make(8, me + 1);
  CUevent event;
  MUST(cu.EventCreate(&event, CU_EVENT_DISABLE_TIMING));
  pthread_barrier_wait(&all_have_allocated);
  for (int i = 0; i < 400; i++) {
    set_step(set, &cu, mix, stream);
    if (i % 25 == 24) MUST(cu.EventRecord(event, stream));
  }
  /* During a GLOBAL capture waits and frees are not allowed, so wait for its end. */
  while (__atomic_load_n(&capturing, __ATOMIC_ACQUIRE)) usleep(1000);
  MUST(cu.StreamSynchronize(stream));
  MUST(cu.EventDestroy(event));
  set_check(set);
  MUST(cu.StreamDestroy(stream));
  return NULL;
}

static void *capturer(void *unused) {
  (void)unused;
  CUstream stream;
  MUST(cu.CtxSetCurrent(context));
  MUST(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  struct set *set = set_make(8, 77);
  pthread_barrier_wait(&all_have_allocated);
  for (int round = 0; round < 12; round++) {
    CUgraphExec exec = capture(set, stream, CU_STREAM_CAPTURE_MODE_GLOBAL, 2);
    for (int i = 0; i < 2; i++) MUST(cu.GraphLaunch(exec, stream));
    MUST(cu.StreamSynchronize(stream));
    MUST(cu.GraphExecDestroy(exec));
  }
  __atomic_store_n(&capturing, false, __ATOMIC_RELEASE);
  set_check(set);
  MUST(cu.StreamDestroy(stream));
  return NULL;
}

static void *either(void *number) {
  return number == NULL ? capturer(NULL) : launcher(number);
}

static void beside(void) {
  capturing = true;
  pthread_barrier_init(&all_have_allocated, NULL, BESIDE);
  in_threads(BESIDE, either);
}

/* Calls that a capture does not allow fail as without pump, and end the capture. */
static void refused(void) {
  struct set *set = set_make(24, 9);
  for (int i = 0; i < 60; i++) set_step(set, &cu, mix, NULL);
  MUST(cu.CtxSynchronize());
  for (int mode = 0; mode <= 2; mode++) {
    for (int big = 0; big <= 1; big++) {
      CUstream stream;
      CUgraph graph = NULL;
      CUdeviceptr address = 0;
      MUST(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
      MUST(cu.StreamBeginCapture(stream, mode));
      launch_mix(&cu, mix, stream, set->buffers[0], set->buffers[1], 5);
      CUresult allocated = cu.MemAlloc(&address, big ? 4 * MIB : 4096);
      CUresult ended = cu.StreamEndCapture(stream, &graph);
      bool allowed = mode == CU_STREAM_CAPTURE_MODE_RELAXED;
      CHECK(allocated == (allowed ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED));
      CHECK(ended == (allowed ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));
      if (allowed) MUST(cu.MemFree(address));
      if (allowed) MUST(cu.GraphDestroy(graph));
      MUST(cu.StreamDestroy(stream));
      MUST(cu.MemAlloc(&address, 4 * MIB)); /* works again afterwards */
      MUST(cu.MemFree(address));
    }
  }
  for (int i = 0; i < 60; i++) set_step(set, &cu, mix, NULL);
  MUST(cu.CtxSynchronize());
  set_check(set);
}

/* Exceeds the job's limit, which the command line sets. Pump itself refuses, but answers
 * like the driver, including the state of the capture. */
static void limited(void) {
  struct set *set = set_make(24, 9);
  for (int mode = 0; mode <= 2; mode++) {
    CUstream stream;
    CUgraph graph = NULL;
    CUdeviceptr address = 0;
    MUST(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cu.StreamBeginCapture(stream, mode));
    launch_mix(&cu, mix, stream, set->buffers[0], set->buffers[1], 5);
    CUresult allocated = cu.MemAlloc(&address, 64 * MIB);
    CUresult ended = cu.StreamEndCapture(stream, &graph);
    bool relaxed = mode == CU_STREAM_CAPTURE_MODE_RELAXED;
    CHECK(allocated ==
          (relaxed ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED));
    CHECK(ended == (relaxed ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));
    if (relaxed) MUST(cu.GraphDestroy(graph));
    MUST(cu.StreamDestroy(stream));
  }
  set_check(set);
}

/* Captures that never end properly must not stop markers forever. */
static void abandoned(void) {
  struct set *set = set_make(24, 10);
  for (int i = 0; i < 20; i++) {
    CUstream stream;
    MUST(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cu.StreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    launch_mix(&cu, mix, stream, set->buffers[0], set->buffers[1], 5); /* never runs */
    MUST(cu.StreamDestroy(stream));
    for (int n = 0; n < 10; n++) set_step(set, &cu, mix, NULL);
  }
  MUST(cu.CtxSynchronize());
  set_check(set);
}

int main(int count, char **words) {
  static const struct hard_case cases[] = {{"global", capture_in_global_mode},
                                           {"thread_local", capture_in_thread_mode},
                                           {"relaxed", capture_in_relaxed_mode},
                                           {"beside", beside},
                                           {"refused", refused},
                                           {"limited", limited},
                                           {"abandoned", abandoned}};
  load_driver();
  context = start();
  mix = load_mix(NULL);
  return run_case(count, words, cases, sizeof cases / sizeof *cases);
}
