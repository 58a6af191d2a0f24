/* worker.h - a worker's step: schedules put in force and followed, and what is sent. */
#ifndef PUMP_WORKER_H
#define PUMP_WORKER_H

#include "daemon/core/schedule/schedule.h"

/* Both enter into the model what executors have taken of schedules, and what has ended: the
 * first arrivals; the second departures, to be called after progress and the ends of
 * commands. Since the last time blocks may have come, been used, and left, so only after
 * the second call it is known how much room there is. */
void worker_schedule_arrived(struct pump_shm *shm, struct pump_model *m);
void worker_schedule_left(struct pump_shm *shm, struct pump_model *m);
/* Writes what has become expected into the mapping, so that the client compares a schedule
 * that stays in force with that as well. */
void worker_schedule_predict(struct pump_shm *shm, struct pump_model *m);
/* Renews the device's schedule where it does not hold and another one can be made. */
void worker_schedule_renew(struct pump_shm *shm, struct pump_model *m, uint32_t device);

#endif
