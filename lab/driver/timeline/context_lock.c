/* context_lock.c - calls that wait for the lock of their context.
 *
 * The model knows how long calls hold it (lab/gpu/gpu_engine_locks.c). With lazy loading
 * (`locks=lazy`), the first launch of a function holds it, too, until all work in the
 * context has executed. That time is not known in advance, so the lock is held here.
 * docs/uvm.md gives the evidence. */
#include "timeline.h"

#define CHECK_NS 1000000

/* By context number. `came` and `passed` count arrivals and passes of the calls that wait
 * for the lock, which pass in order of arrival, as in the model. Without these counters an
 * awake thread would overtake a blocked one. */
static struct {
  uint64_t came, passed;
  bool loads; /* a thread is loading a function */
} locks[GPU_LOCK_CONTEXTS];

static void wait_for_change_locked(void) {
  struct timespec time = vd_timespec(vd_now_ns() + CHECK_NS);
  vd_wait_locked(&vd.changed, &time);
}

void vd_pass_locked(uint32_t call, const struct vd_stream *stream) {
  uint32_t context = vd_lock_number(stream);
  if (vd.locks == 0) return;
  uint64_t turn = locks[context].came++;
  for (;;) {
    uint64_t now_ns = vd_now_ns(), free_ns = gpu_call_ns(vd.engine, call, context);
    if (locks[context].passed < turn || locks[context].loads)
      wait_for_change_locked();
    else if (free_ns > now_ns)
      vd_wait_until_locked(free_ns);
    else
      break;
  }
  if (++locks[context].passed != locks[context].came) pthread_cond_broadcast(&vd.changed);
}

void vd_pass_loads_locked(const struct vd_context *context) {
  while (context != NULL && locks[context->number].loads) wait_for_change_locked();
}

void vd_load_locked(const struct vd_stream *stream, bool *loaded) {
  uint32_t context = vd_lock_number(stream);
  if (*loaded) return;
  *loaded = true;
  if ((vd.locks & VD_LOCK_LAZY) == 0) return;
  vd_pass_locked(GPU_CALL_LAUNCH, stream);
  locks[context].loads = true;
  vd_wait_context_locked(stream == &vd_streams.legacy ? vd_current() : stream->context);
  locks[context].loads = false;
  pthread_cond_broadcast(&vd.changed);
}
