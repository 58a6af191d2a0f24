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
  uint64_t bytes;
  uint8_t device, direction;
  bool expected; /* for an operation that had not been issued */
  bool planned;  /* taken from a plan: what is sent for now does not wait for it */
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
  struct list discard_pending; /* resident or maybe evicted, not needed, to be discarded */
  struct list sure;            /* resident, migrated longest ago first */
  struct list maybe_evicted;   /* those of them that are maybe evicted; all older */
  int64_t in_flight[PUMP_DIRECTIONS];
  uint64_t left_bytes; /* moved to the host since the mapping is in use, as far as known */
  uint64_t leaving_bytes;            /* on their way there */
  uint64_t discarding_seq;           /* behind it the newest discard under way */
  int64_t held_at[PUMP_DIRECTIONS];  /* what had been observed when one was refused */
  int64_t block_us[PUMP_DIRECTIONS]; /* what a block took lately, microseconds << 8 */
  uint64_t missed;                   /* blocks that came by fault since progress was read */
  int64_t faults;                    /* since the last view */
  int64_t exchange;                  /* blocks that views may offer for exchange */
  int64_t left_over;                 /* since a switch: fewest blocks that took room */
  int64_t allowance;   /* blocks of room that may be taken without a decision */
  int64_t hold;        /* nothing to decide before so many may move */
  int64_t latest_need; /* what arrives and is needed then or later may leave itself */
  int64_t later[PUMP_VIEW_CANDIDATES]; /* what leaves next, in this order */
  uint32_t later_at, later_count;
  bool held_back; /* at the last view the link was idle, and nothing could come */
  bool settled;   /* what leaves is decided, as long as nothing but arrivals happens */
  bool known, short_of_room;
  bool args_truncated; /* an operation used more than its record named */
};

/* ---- by the view (model_view.c) ---- */

/* Fills in what is missing on the device, at most so many blocks; blocks that may be on
 * their way in a direction, and that may be sent there now. */
void model_missing(struct pump_model *m, uint32_t device, struct pump_view *view,
                   uint32_t most);
int64_t model_flight_most(const struct pump_model *m, const struct device *device);
int64_t model_credit(const struct pump_model *m, const struct device *device, int way);
/* Operations have executed: if the next ones wait for what the last view held back, views
 * may offer an exchange. */
void model_allow_exchange(struct pump_model *m, struct device *device);

/* ---- by decisions (model_transfers.c) ---- */

/* Starts what the device misses, soonest first, as far as its allowance goes. Fills
 * `commands`; returns how many of at most `max`. */
uint32_t model_use_allowance(struct pump_model *m, uint32_t device,
                             struct pump_command *commands, uint32_t max);
/* Whether more transfers may start now by the last decision. */
bool model_may_go_on(const struct pump_model *m, uint32_t device);
/* What the last decision, if it is settled, sends that way now that transfers have ended.
 * Where it names too few, it is settled no more, and the policy decides again. To
 * be called before pump_model_holds, first for what leaves. */
uint32_t model_go_on(struct pump_model *m, uint32_t device, uint32_t way,
                     struct pump_command *commands, uint32_t max);

/* Blocks that one command takes at most. */
uint32_t model_slice(const struct pump_model *m, const struct device *device, int way);
uint64_t model_ticket(struct pump_model *m, uint32_t place);

#endif
