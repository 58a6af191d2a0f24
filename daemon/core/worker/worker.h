/* worker.h - a worker's step: puts schedules in force and follows them. */
#ifndef PUMP_WORKER_H
#define PUMP_WORKER_H

#include "daemon/core/schedule/schedule.h"

/* Updates the model with the prefetches that executors have taken or finished. */
void worker_apply_prefetches(struct pump_shm *shm, struct pump_model *m);
/* Updates the model with the evictions likewise. Call it after reading progress: since the
 * last step blocks may have arrived, been used and left. So the free memory is known only
 * after this call. */
void worker_apply_evictions(struct pump_shm *shm, struct pump_model *m);
/* Writes new predictions into the mapping, so that the client also compares its
 * operations with them while the schedule stays in force. */
void worker_schedule_predict(struct pump_shm *shm, struct pump_model *m);
/* Renews the device's schedule if it is void or used up and can be replaced. */
void worker_schedule_renew(struct pump_shm *shm, struct pump_model *m, uint32_t device);

#endif
