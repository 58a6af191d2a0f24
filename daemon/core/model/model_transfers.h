/* model_transfers.h - a device's transfers: what may go, and what is under way. */
#ifndef PUMP_MODEL_TRANSFERS_H
#define PUMP_MODEL_TRANSFERS_H

#include <stdbool.h>

#include "model_blocks.h"

struct transfer {
  uint64_t ticket; /* 0: unused */
  int64_t observed_seq;
  int32_t first_block, blocks;
  uint32_t slot, generation;
  uint64_t offset_bytes, bytes; /* offset: from the range's base; of scheduled ones */
  uint32_t duplicates;          /* pump_entry */
  uint8_t device, direction;
  bool expected;  /* for an operation that had not been issued */
  bool scheduled; /* taken from a schedule: it takes no credit of commands */
};

struct transfers {
  struct transfer all[PUMP_MAX_UNDER_WAY];
  uint32_t unused[PUMP_MAX_UNDER_WAY];
  uint32_t unused_count;
  uint64_t tickets; /* given so far */
};

struct device {
  struct pump_model_device facts;
  struct pump_model_tally tally;
  int64_t counts[PUMP_BLOCK_STATES];
  struct list
      idle; /* resident or maybe evicted, not needed: the dead, then longest unused first */
  struct list staying;         /* others like them, which leave last: model_stays */
  int32_t in_turn;             /* note_turn of model_blocks.c */
  bool tells_dead, discards;   /* a block was dead, or had to be discarded */
  struct list discard_pending; /* resident or maybe evicted, not needed, to be discarded */
  struct list sure;            /* resident, migrated longest ago first */
  struct list maybe_evicted;   /* those of them that are maybe evicted; all older */
  int64_t in_flight[PUMP_DIRECTIONS];
  uint64_t left_bytes; /* moved to the host since the mapping is in use, as far as known */
  uint64_t leaving_bytes;            /* on their way there */
  uint64_t ended_bytes;              /* pump_schedule.ended_bytes, as far as known */
  uint64_t arriving_bytes;           /* of schedules, on their way to the GPU */
  uint64_t discarding_seq;           /* behind it the newest discard under way */
  int64_t held_at[PUMP_DIRECTIONS];  /* newest operation observed when one was refused */
  int64_t block_us[PUMP_DIRECTIONS]; /* what a block took lately, microseconds << 8 */
  struct duplicates duplicates;
  uint64_t missed; /* blocks that came by fault since progress was read */
  int64_t faults;  /* since the last view */
  /* model_ready: position of the first operation whose memory may not be there, and how
   * many of its uses were found there */
  int64_t ready_at;
  uint32_t ready_uses;
  int64_t left_over; /* fewest blocks that took room since a switch */
  bool known;
  bool short_of_room;  /* something needed was left out: no block may leave for it */
  bool args_truncated; /* an operation used more than its record named */
};

/* ---- by the view (model_view.c) ---- */

/* The first fills in what is missing on the device, at most so many blocks. The others: how
 * many blocks may be on their way in a direction, and how many more may be sent. */
void model_missing(struct pump_model *m, uint32_t device, struct pump_view *view,
                   uint32_t most);
int64_t model_flight_most(const struct pump_model *m, const struct device *device);
int64_t model_credit(const struct pump_model *m, const struct device *device, int way);

/* ---- under way (model_transfers.c) ---- */

/* An entry of a schedule, which an executor has taken, has ended. `kept`: pump_entry_end.
 */
void model_transfer_ended(struct pump_model *m, uint32_t place, uint32_t result,
                          uint32_t duration_us, uint32_t kept);
/* Blocks that one command takes at most. */
uint32_t model_slice(const struct pump_model *m, const struct device *device, int way);
uint64_t model_ticket(struct pump_model *m, uint32_t place);

#endif
