/* schedule.h - what moves next, and what it waits for (docs/schedule.md). */
#ifndef PUMP_SCHEDULE_H
#define PUMP_SCHEDULE_H

#include "daemon/core/model/model_state.h"

/* Operations known beyond a schedule, so that another one may see more: so many, or that
 * part of what was known. */
#define HEAD_AGAIN 8

/* A slice that goes once that has executed and so much has left: struct pump_entry. */
struct schedule_entry {
  int32_t first_block, blocks;
  uint32_t slot, after_stream, need_stream;
  uint64_t after_seq, left_bytes;
  int64_t need; /* the operation that it comes for; 0: it leaves */
};

struct schedule_lists {
  bool short_of_ops;  /* it ends where no more operations are known */
  bool short_of_room; /* or where no block may leave for one that is needed */
  uint32_t count[PUMP_DIRECTIONS];
  struct schedule_entry entries[PUMP_DIRECTIONS][PUMP_SCHEDULE_ENTRIES];
};

/* What will be sent next, as far as operations up to that one determine it. Changes
 * nothing. */
void schedule_make(struct pump_model *m, uint32_t device, uint64_t until_seq,
                   struct schedule_lists *out);
/* Each of these holds a place in `transfers` from now on; returns how many of them found
 * one. */
uint32_t schedule_hold(struct pump_model *m, uint32_t device, uint32_t way,
                       const struct schedule_entry *scheduled, uint32_t count,
                       uint16_t *places);
/* No executor has taken it, and none will; or one has, and it is under way. */
void schedule_give_back(struct pump_model *m, uint32_t place);
void schedule_taken(struct pump_model *m, uint32_t place);

/* True once enough operations are known behind those that the last one was made of. */
bool schedule_has_grown(const struct pump_model *m, uint32_t device);
/* True while a schedule is in force that is right for all we know, and not used up: what
 * goes next goes by it. */
bool schedule_holds(const struct pump_model *m, uint32_t device);

#endif
