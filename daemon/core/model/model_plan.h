/* model_plan.h - plans of what goes next (model_plan.c, model_plan_held.c). */
#ifndef PUMP_MODEL_PLAN_H
#define PUMP_MODEL_PLAN_H

#include <stdbool.h>

#include "model.h"

/* What something planned waits for: struct pump_planned. */
struct model_wait {
  uint64_t after_seq, left_bytes;
  uint32_t after_stream;
};

/* A plan of a device, as it stands in the mapping. */
struct plan {
  uint32_t version;
  bool in_force;
  bool short_of_ops; /* it ends where no more operations were known */
  uint32_t count[PUMP_DIRECTIONS];
  uint32_t taken[PUMP_DIRECTIONS];                             /* as far as it is known */
  uint16_t places[PUMP_DIRECTIONS][PUMP_PLAN_ENTRIES];         /* in `transfers` */
  struct model_wait waits[PUMP_DIRECTIONS][PUMP_PLAN_ENTRIES]; /* of the first blocks */
  int64_t blocks[PUMP_DIRECTIONS];                             /* of all its entries, */
  int64_t left[PUMP_DIRECTIONS]; /* and of those that were not taken */
  uint64_t stamp, deviations;    /* `changes` and `deviations` when it was made */
  int64_t op_head, known;        /* what was known then: up to that, so many operations */
  uint64_t executed;             /* operations, then */
};

struct plans {
  struct plan all[PUMP_MAX_DEVICES]; /* by device */
  uint64_t changes;                  /* counts what may make another plan possible, */
  uint64_t deviations;               /* and what makes one wrong: it was not predicted */
  bool off;                          /* none is put in force */
  bool alone;                        /* nothing else is sent: pump_model_schedule */
  bool settling;   /* what plans brought is known, what they took away is not yet */
  bool invalid;    /* something that plans rest on has proved wrong */
  uint32_t places; /* transfers that may be taken and were not */
  uint16_t running[PUMP_MAX_UNDER_WAY]; /* transfers that were taken, not ended */
  uint32_t running_count;
};

/* Operations known beyond a plan that ended for want of them: of a schedule, and else. */
#define HEAD_AGAIN_ALONE 8
#define HEAD_AGAIN 64

/* A slice that goes once that has executed and so much has left: struct pump_planned. */
struct model_planned {
  int32_t first_block, blocks;
  uint32_t slot, after_stream, need_stream;
  struct model_wait first; /* of its first block alone: others wait no less */
  uint64_t after_seq, left_bytes;
  int64_t need; /* the operation that it comes for; 0: it leaves */
};

struct model_rehearsal {
  bool short_of_ops; /* it ends where no more operations are known */
  uint32_t count[PUMP_DIRECTIONS];
  struct model_planned entries[PUMP_DIRECTIONS][PUMP_PLAN_ENTRIES];
};

/* What will be sent next, as far as operations up to that one determine it. Changes
 * nothing. */
void model_rehearse(struct pump_model *m, uint32_t device, uint64_t until_seq,
                    struct model_rehearsal *out);
/* Each of these holds a place in `transfers` from now on; returns how many of them found
 * one. */
uint32_t model_plan_hold(struct pump_model *m, uint32_t device, uint32_t way,
                         const struct model_planned *planned, uint32_t count,
                         uint16_t *places);
/* No executor has taken it, and none will; or one has, and it is under way, or has
 * ended. */
void model_plan_give_back(struct pump_model *m, uint32_t place);
void model_plan_taken(struct pump_model *m, uint32_t place);
void model_plan_ended(struct pump_model *m, uint32_t place, uint32_t result,
                      uint32_t duration_us);

/* True while a plan is in force that is right for all we know, and not used up: what goes
 * next goes by it. */
bool model_plan_holds(const struct pump_model *m, uint32_t device);

#endif
