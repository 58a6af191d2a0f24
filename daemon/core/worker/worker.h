/* worker.h - a worker's step: schedules put in force and followed, and what is sent. */
#ifndef PUMP_WORKER_H
#define PUMP_WORKER_H

#include "daemon/core/schedule/schedule.h"

/* Enter into the model what executors have taken of schedules, and what has ended:
 * arrivals, then, behind progress and the ends of commands, departures; since the last time
 * blocks may have come, been used, and left. How much room that leaves is known behind the
 * second call alone. */
void worker_schedule_arrived(struct pump_shm *shm, struct pump_model *m);
void worker_schedule_left(struct pump_shm *shm, struct pump_model *m);
/* Writes what has become expected into the mapping, so that the client compares a schedule
 * that stays in force with that as well. */
void worker_schedule_predict(struct pump_shm *shm, struct pump_model *m);
/* Renews the device's schedule where it does not hold any more and another one could be
 * made by now. */
void worker_schedule_renew(struct pump_shm *shm, struct pump_model *m, uint32_t device);

#endif
