/* model_schedules.h - the schedules in force, and what makes them void. */
#ifndef PUMP_MODEL_SCHEDULES_H
#define PUMP_MODEL_SCHEDULES_H

#include <stdbool.h>

#include "model.h"

/* A device's schedule in the mapping. */
struct schedule {
  uint32_t version;
  bool in_force;
  bool short_of_ops; /* it ends where the known operations end */
  bool incomplete;   /* it uses issued operations only, although others are predicted */
  uint32_t count[PUMP_DIRECTIONS];
  uint32_t taken[PUMP_DIRECTIONS]; /* taken entries, as far as known */
  uint16_t indices[PUMP_DIRECTIONS][PUMP_SCHEDULE_ENTRIES]; /* indices in `transfers` */
  int64_t blocks[PUMP_DIRECTIONS];                          /* blocks of all entries */
  int64_t left[PUMP_DIRECTIONS]; /* blocks of the entries that were not taken */
  uint64_t stamp, deviations;    /* `changes` and `deviations` when it was made */
  int64_t op_head, known; /* end and number of the known operations when it was made */
  uint64_t executed;      /* executed operations when it was made */
};

struct schedules {
  struct schedule all[PUMP_MAX_DEVICES]; /* by device */
  uint64_t changes;    /* number of events that may make a better schedule possible */
  uint64_t deviations; /* number of unpredicted events, which make schedules void */
  bool arrivals;       /* whether schedules have arrivals: pump_model_schedule */
  bool settling;       /* arrivals of schedules are processed, departures not yet */
  uint32_t untaken;    /* scheduled transfers that no executor has taken */
  uint16_t running[PUMP_MAX_IN_FLIGHT]; /* transfers that were taken and have not ended */
  uint32_t running_count;
  struct pump_slices *recorded; /* where the ends of slices are recorded; NULL: nowhere */
};

#endif
