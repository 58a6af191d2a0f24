/* schedule.h - what moves next, and what it waits for (docs/schedule.md). */
#ifndef PUMP_SCHEDULE_H
#define PUMP_SCHEDULE_H

#include "daemon/core/model/model_state.h"

/* A schedule that ended for want of operations is made anew once so many more are known, or
 * that part (one in so many) of what was known. */
#define HEAD_AGAIN 8

/* A slice that goes once that has executed, so much has left and so much of what comes has
 * ended: struct pump_entry. */
struct schedule_entry {
  int32_t first_block, blocks;
  uint32_t slot, after_stream, need_stream;
  uint64_t after_seq, left_bytes, ended_bytes;
  int64_t need; /* the operation that it comes for; 0: it leaves */
};

struct schedule_lists {
  bool short_of_ops;  /* it ends where no more operations are known */
  bool short_of_room; /* or where no block may leave for one that is needed */
  uint32_t count[PUMP_DIRECTIONS];
  struct schedule_entry entries[PUMP_DIRECTIONS][PUMP_SCHEDULE_ENTRIES];
};

/* Makes the device's schedule from the known operations, predicted ones up to `until_seq`.
 * Changes nothing in the model. */
void schedule_make(struct pump_model *m, uint32_t device, uint64_t until_seq,
                   struct schedule_lists *out);
/* Gives each of these a place in `transfers`; returns how many of them got one. */
uint32_t schedule_hold(struct pump_model *m, uint32_t device, uint32_t way,
                       const struct schedule_entry *scheduled, uint32_t count,
                       uint16_t *places);
/* The first: no executor has taken the entry, and none will. The second: one has, and it is
 * under way. */
void schedule_give_back(struct pump_model *m, uint32_t place);
void schedule_taken(struct pump_model *m, uint32_t place);

/* True once enough operations are known behind those that the last one was made of. */
bool schedule_has_grown(const struct pump_model *m, uint32_t device);
/* True while a schedule is in force that is right as far as is known, and not used up. */
bool schedule_holds(const struct pump_model *m, uint32_t device);

#endif
