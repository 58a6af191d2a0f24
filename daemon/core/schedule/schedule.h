/* schedule.h - the next transfers and their conditions (docs/schedule.md). */
#ifndef PUMP_SCHEDULE_H
#define PUMP_SCHEDULE_H

#include "daemon/core/model/model_state.h"
#include "pump_assert.h"

/* A schedule that ended with the known operations is renewed when HEAD_AGAIN more are
 * known, or when the known ones have grown by 1 / HEAD_AGAIN [measured: 0047]. */
#define HEAD_AGAIN 8

/* A slice and its conditions: an operation has executed, bytes have left, bytes of
 * arrivals have ended (struct pump_entry). */
struct schedule_entry {
  int32_t first_block, blocks;
  uint32_t slot, after_stream, need_stream;
  uint64_t after_seq, left_bytes, ended_bytes;
  int64_t need;    /* operation that the arrival serves; 0: a departure, or advice */
  uint32_t advice; /* PUMP_ADVICE_* */
};

struct schedule_lists {
  bool short_of_ops;    /* it ends where the known operations end */
  bool short_of_memory; /* it ends because no block may leave for a needed one */
  uint32_t count[PUMP_DIRECTIONS];
  struct schedule_entry entries[PUMP_DIRECTIONS][PUMP_SCHEDULE_ENTRIES];
};

/* Makes the device's schedule from the issued operations and the predicted ones up to
 * `until_seq`. Does not change the model. */
void schedule_make(struct pump_model *m, uint32_t device, uint64_t until_seq,
                   struct schedule_lists *out);
/* Makes the schedule of a policy that leaves arrivals to faults: with an emulated budget,
 * the blocks above it leave in the driver's own order. */
void schedule_make_excess(struct pump_model *m, uint32_t device,
                          struct schedule_lists *out);
/* Adds the device's pending changes of advice before the arrivals, as far as they fit. */
void schedule_add_advice(struct pump_model *m, uint32_t device, struct schedule_lists *out);
/* Allocates a transfer for each entry; returns how many entries got one. */
uint32_t schedule_make_transfers(struct pump_model *m, uint32_t device, uint32_t direction,
                                 const struct schedule_entry *scheduled, uint32_t count,
                                 uint16_t *indices);
/* Releases the transfer of an entry that no executor has taken or will take. */
void schedule_release_transfer(struct pump_model *m, uint32_t index);
/* Notes that an executor has taken the entry: its transfer is in flight. `valid_seq` as in
 * the mapping's header: the executor counted later uses as unknown. */
void schedule_note_taken(struct pump_model *m, uint32_t index, uint64_t valid_seq);

/* Returns whether enough operations were added since the device's schedule was made. */
bool schedule_has_grown(const struct pump_model *m, uint32_t device);
/* Returns whether a schedule is in force, valid as far as known, and not used up. */
bool schedule_is_valid(const struct pump_model *m, uint32_t device);

#endif
