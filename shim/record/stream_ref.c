/* stream_ref.c - finds an operation's progress slot (of its stream) and device.
 *
 * DESIGN. The look-ups (current context, its device, slot of the stream) cost a launch
 * more than its parameters do, and a thread uses few streams. So each thread caches the
 * last ones. An ordinary stream belongs to one context for its lifetime, so its handle is
 * the whole key. A default stream is a different stream in each context, so the key
 * includes the current context, which must be queried. The end of any stream or context
 * invalidates the whole cache (`epoch`), because its handle may be reused.
 */
#include "record.h"

#define KEPT 8u /* a power of two */

/* Starts at 1; unused cache entries have 0. */
static uint32_t epoch = 1;

static __thread struct {
  CUstream given;
  CUcontext context; /* NULL for an ordinary stream */
  uint32_t epoch;
  bool per_thread;
  struct pump_stream_ref ref;
} kept[KEPT] __attribute__((tls_model("initial-exec")));

void pump_stream_refs_forget(void) {
  PUMP_ADD(&epoch, 1);
}

static CUcontext current_context(void) {
  CUcontext context = NULL;
  if (!PUMP_HAS(cuCtxGetCurrent) || pump_real.cuCtxGetCurrent(&context) != CUDA_SUCCESS)
    return NULL;
  return context;
}

struct pump_stream_ref pump_stream_ref_of(struct pump_at at) {
  uint32_t now = PUMP_LOAD_ACQUIRE(&epoch);
  bool ordinary = (uintptr_t)at.given > 2;
  CUcontext context = ordinary ? NULL : current_context();
  uint64_t key = (uint64_t)(uintptr_t)at.given + at.per_thread;
  uint32_t i = (uint32_t)(key * 0x9e3779b97f4a7c15u >> 32) & (KEPT - 1);
  if (PUMP_LIKELY(kept[i].given == at.given && kept[i].epoch == now &&
                  kept[i].per_thread == at.per_thread && kept[i].context == context))
    return kept[i].ref;
  int device = pump_current_device(NULL);
  struct pump_stream_ref ref = {.stream_index = pump_stream_index(at.given, at.per_thread),
                                .device = device < 0 ? 0 : (uint32_t)device};
  /* Slot 0 is for streams beyond the table, which may get a slot later. */
  if (device >= 0 && ref.stream_index != 0 && (ordinary || context != NULL)) {
    kept[i].given = at.given;
    kept[i].context = context;
    kept[i].epoch = now;
    kept[i].per_thread = at.per_thread;
    kept[i].ref = ref;
  }
  return ref;
}
