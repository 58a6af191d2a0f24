/* worker_step.c - the worker's steps over both mapping and model, in few calls.
 *
 * A tick happens for each batch of events, each marker and each completion. A call from
 * Python costs as much as the work on several blocks, so the steps that decide nothing
 * are combined here. The model itself does not access the mapping.
 */
#include <errno.h>

#include "pump_ring.h"
#include "worker.h"

/* Time between two guesses how far a graph launch has executed [guessed]. */
#define GUESS_NS 200000

EXPORT int pump_worker_read(struct pump_shm *shm, struct pump_model *model,
                            struct pump_batch *batch) {
  int rows = 0;
  pump_model_now(model, pump_core_now_ns());
  for (int i = 0; i < PUMP_BATCHES_AT_ONCE; i++) {
    int drained = pump_core_drain(shm, batch);
    if (drained < 0) return drained;
    if (drained == 0) break;
    pump_model_ingest(model, batch);
    rows += drained;
    if (batch->rows < sizeof batch->seq / sizeof batch->seq[0] / 2) break;
  }
  return rows;
}

EXPORT void pump_worker_follow(struct pump_shm *shm, struct pump_model *model) {
  pump_model_now(model, pump_core_now_ns());
  worker_apply_prefetches(shm, model);
  pump_model_progress(model, &shm->progress[0].executed_seq,
                      sizeof shm->progress[0] / sizeof(uint64_t));
  if (model->graphs.count != 0)
    pump_model_graphs(model, &shm->progress[0].executed_seq,
                      sizeof shm->progress[0] / sizeof(uint64_t), pump_core_now_ns());
  worker_apply_evictions(shm, model);
  if (pump_model_predict(model, PUMP_PREDICT_AT_ONCE) > 0)
    worker_schedule_predict(shm, model);
  for (uint32_t device = 0; device < PUMP_MAX_DEVICES; device++) {
    pump_model_turn(model, device);
    worker_schedule_renew(shm, model, device);
    PUMP_STORE(&shm->devices[device].ready_seq, model_ready(model, device));
  }
}

EXPORT int pump_worker_wait(struct pump_shm *shm, const struct pump_model *model,
                            uint64_t seen_activity, uint64_t spin_ns, uint64_t timeout_ns) {
  bool guessing = model->graphs.count != 0;
  if (guessing && timeout_ns > GUESS_NS) timeout_ns = GUESS_NS;
  return pump_core_wait(shm, seen_activity, spin_ns, timeout_ns) != 0 || guessing;
}
