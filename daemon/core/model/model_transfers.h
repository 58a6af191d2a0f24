/* model_transfers.h - a device's transfers: limits, and transfers in flight. */
#ifndef PUMP_MODEL_TRANSFERS_H
#define PUMP_MODEL_TRANSFERS_H

#include <stdbool.h>

#include "model_blocks.h"

struct transfer {
  uint64_t ticket; /* 0: unused */
  int64_t observed_seq;
  int32_t first_block, blocks;
  uint32_t slot, generation;
  uint64_t offset_bytes, bytes; /* offset_bytes: from the range's base */
  uint32_t duplicates;          /* as in struct pump_entry */
  uint8_t device, direction;
  bool expected;  /* serves an operation that was not issued yet */
  uint8_t advice; /* PUMP_ADVICE_*; if any, it moves nothing */
};

struct transfers {
  struct transfer all[PUMP_MAX_IN_FLIGHT];
  uint32_t unused[PUMP_MAX_IN_FLIGHT];
  uint32_t unused_count;
  uint64_t tickets; /* number of tickets given */
};

struct device {
  struct pump_model_device facts;
  struct pump_model_tally tally;
  int64_t counts[PUMP_BLOCK_STATES];
  struct list idle;    /* unneeded blocks, maybe evicted or not: dead, then LRU */
  struct list staying; /* unneeded blocks that leave after the idle ones: model_stays */
  int32_t in_turn;     /* votes of note_turn (model_blocks.c) */
  bool tells_dead, discards;   /* has had dead blocks; has had pending discards */
  struct list discard_pending; /* unneeded blocks that will be discarded */
  struct list sure;            /* resident blocks, the least recently migrated first */
  struct list maybe_evicted;   /* maybe evicted blocks, least recently migrated first */
  uint64_t left_bytes;         /* pump_schedule.left_bytes, as far as known */
  uint64_t leaving_bytes;      /* bytes on their way to the host */
  uint64_t ended_bytes;        /* pump_schedule.ended_bytes, as far as known */
  uint64_t arriving_bytes;     /* bytes on their way to the GPU */
  uint64_t discarding_seq;     /* the newest discard in flight follows this operation */
  int64_t held_at[PUMP_DIRECTIONS];  /* newest operation observed at a refusal */
  int64_t block_us[PUMP_DIRECTIONS]; /* recent time per block, microseconds << 8 */
  struct duplicates duplicates;
  uint64_t missed; /* blocks fetched by faults since progress was read */
  int64_t faults;  /* blocks fetched by faults since its newest schedule */
  /* model_ready: the first operation whose memory may be incomplete, and how many of its
   * uses were found resident. */
  int64_t ready_at;
  uint32_t ready_uses;
  int64_t left_over; /* lowest occupancy in blocks since a switch */
  bool known;
  bool short_of_memory; /* a needed block was left out: no block may leave for it */
  bool args_truncated;  /* an operation used more memory than its record names */
};

/* ---- in flight (model_transfers.c) ---- */

/* Returns how many blocks may be in flight in one direction. */
int64_t model_flight_most(const struct pump_model *m, const struct device *device);
/* Processes the end of a transfer. `kept`: as in pump_entry_end. */
void model_transfer_ended(struct pump_model *m, uint32_t index, uint32_t result,
                          uint32_t duration_us, uint32_t kept);
/* Returns the maximum number of blocks of one transfer. */
uint32_t model_slice(const struct pump_model *m, const struct device *device,
                     int direction);
uint64_t model_ticket(struct pump_model *m, uint32_t index);

#endif
