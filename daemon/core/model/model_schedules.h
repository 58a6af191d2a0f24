/* model_schedules.h - the schedules in force, and what makes them void. */
#ifndef PUMP_MODEL_SCHEDULES_H
#define PUMP_MODEL_SCHEDULES_H

#include <stdbool.h>

#include "model.h"

/* A schedule of a device, as it stands in the mapping. */
struct schedule {
  uint32_t version;
  bool in_force;
  bool short_of_ops; /* it ends where no more operations were known */
  bool incomplete;   /* some operations were predicted, and the client did not compare all
                        issued ones yet */
  uint32_t count[PUMP_DIRECTIONS];
  uint32_t taken[PUMP_DIRECTIONS];                         /* as far as it is known */
  uint16_t places[PUMP_DIRECTIONS][PUMP_SCHEDULE_ENTRIES]; /* in `transfers` */
  int64_t blocks[PUMP_DIRECTIONS];                         /* of all its entries, */
  int64_t left[PUMP_DIRECTIONS]; /* and of those that were not taken */
  uint64_t stamp, deviations;    /* `changes` and `deviations` when it was made */
  int64_t op_head,
      known;         /* operations known when it was made: up to that position, so many */
  uint64_t executed; /* how many operations had executed when it was made */
};

struct schedules {
  struct schedule all[PUMP_MAX_DEVICES]; /* by device */
  uint64_t changes;    /* counts what may make another schedule possible, */
  uint64_t deviations; /* and what makes one wrong: it was not predicted */
  bool on;             /* schedules are made: pump_model_schedule */
  bool settling;       /* what schedules brought is known, what they took away is not yet */
  uint32_t places;     /* transfers that may be taken and were not */
  uint16_t running[PUMP_MAX_UNDER_WAY]; /* transfers that were taken, not ended */
  uint32_t running_count;
  struct pump_slices *recorded; /* where the ends of slices are kept; NULL: nowhere */
};

#endif
