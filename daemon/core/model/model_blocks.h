/* model_blocks.h - blocks and their lists. See the DESIGN of model_blocks.c. */
#ifndef PUMP_MODEL_BLOCKS_H
#define PUMP_MODEL_BLOCKS_H

#include <stdbool.h>

#include "model.h"

#define EXPORT __attribute__((visibility("default")))

#define NONE (-1)

struct device;

/* Ends of a list whose links are in the blocks. */
struct list {
  int32_t head, tail;
};

/* Kinds of due blocks: whether a block is resident when its next operation needs it. */
enum { DUE_SURE, DUE_MAYBE_EVICTED, DUE_AWAY, DUE_KINDS };

/* One cache line. */
struct block {
  int64_t next_use;             /* the seq of `first`, or PUMP_NOT_NEEDED */
  int64_t last_use;             /* newest issued operation that uses it; 0: none */
  int64_t migrated;             /* position in the order of arrivals (`migrations`) */
  int32_t first, last;          /* the block's oldest and newest pending use, or NONE */
  int32_t issued;               /* newest issued use that has not executed, or NONE */
  int32_t idle_prev, idle_next; /* links in the idle, staying or discard_pending list */
  int32_t age_prev, age_next;   /* links in the device's list that `age_list` names */
  uint32_t slot;                /* of the owning range */
  int32_t due_use; /* while need >= NEED_DUE: the use whose operation counts it */
  uint8_t state, device;
  uint8_t need : 3;         /* NEED_* */
  bool left : 1;            /* has left by request under its current owner */
  bool duplicated : 1;      /* arrived as a duplicate and has not left since */
  bool clean : 1;           /* was not written in its last trial as a duplicate */
  uint8_t wrong : 2;        /* number of its wrong trials, at most DUPLICATES_WRONG */
  uint8_t age_list : 2;     /* AGE_* */
  bool dead : 1;            /* holds no tensor: evicted first, until it is used again */
  bool discarded : 1;       /* a discard has followed, or will follow, its newest use */
  bool used : 1;            /* an executed operation has used it since its allocation */
  bool discard_pending : 1; /* a discard follows its issued operations: must not leave */
  bool comes : 1;           /* an entry of the schedule in force brings it */
  bool goes : 1;            /* an entry of the schedule in force evicts it */
};
_Static_assert(sizeof(struct block) == 64, "one cache line");

/* NEED_IDLE: idle. NEED_STAYS: idle, but evicted after the idle blocks; `due_use` is the
 * device's number of departed blocks at that time. NEED_DISCARD_PENDING: `due_use` is the
 * number of executed operations at that time. NEED_DUE + DUE_*: the operation of
 * `due_use` counts it, and `due_uses` has a bit for it. */
enum { NEED_NONE, NEED_IDLE, NEED_STAYS, NEED_DISCARD_PENDING, NEED_DUE };
enum { AGE_NONE, AGE_SURE, AGE_MAYBE_EVICTED };

struct blocks {
  struct block *all;  /* by block number */
  int64_t migrations; /* number of times that a block became resident */
};

/* Returns whether a transfer of the block is in flight. */
static inline bool model_is_moving(const struct block *b) {
  return b->state == PUMP_BLOCK_ARRIVING || b->state == PUMP_BLOCK_LEAVING;
}

/* Changes the state of a block: all changes pass through here. An assertion checks that the
 * new state may follow the old one. */
void model_set_state(struct pump_model *m, int32_t block, uint32_t state);
/* Counts or lists the block according to its state and its next use. */
void model_relist(struct pump_model *m, int32_t block);
/* Returns the idle block to evict after `block` (NONE: the first), or NONE at the end.
 * Dead blocks come first, then the least recently used, or the most recently used if idle
 * blocks are used in turn. Blocks that stay come last. */
int32_t model_next_idle(const struct pump_model *m, uint32_t device, int32_t block);
/* After a departure, moves the oldest staying block to the idle list if it has been idle
 * for too long. */
void model_end_stay(struct pump_model *m, uint32_t device);
/* Marks the block as dead: the first unneeded block to leave. */
void model_set_dead(struct pump_model *m, int32_t block);
/* Notes that the block will be discarded once its issued operations have executed. */
void model_set_discard_pending(struct pump_model *m, int32_t block);
/* Marks blocks as dead that have waited too long for their discard. */
void model_give_up_pending_discards(struct pump_model *m, struct device *device);

/* ---- duplicates (model_duplicates.c) ---- */

/* A device's duplicates. */
struct duplicates {
  uint64_t trials, wrong; /* ended trials; wrong ones: written, or contents lost */
  uint64_t open;          /* resident duplicates of blocks without a right trial */
  uint64_t marked;        /* duplicates without a right trial in the schedule in force */
  uint64_t left;          /* departed blocks, duplicates or not */
  uint32_t asked, kept;   /* recent arrivals to be duplicated; duplicates among them */
  bool ended;             /* no more duplicates, because they arrive too late */
};

/* Resets `marked` before a new schedule is put in force. */
void model_duplicates_anew(struct pump_model *m, uint32_t device);
/* Returns a bit for each arriving block that is to be duplicated. */
uint32_t model_duplicates_mark(struct pump_model *m, int32_t first, int32_t blocks);
/* Notes the arrival of a block that should be a duplicate; `kept`: it is one. */
void model_duplicate_came(struct pump_model *m, int32_t block, bool kept);
/* Notes the departure of a block; `kept`: without a copy. */
void model_duplicate_left(struct pump_model *m, int32_t block, bool kept);
/* Returns whether the block stays longer than others, because only it must be copied. */
bool model_stays(const struct pump_model *m, const struct block *b);
/* Notes that the block's contents became worthless: ends its trial, as wrong, and clears
 * `left`, which does not apply to the next owner. */
void model_duplicate_ended(struct pump_model *m, int32_t block);
/* Notes that the block's duplicate was given up: its trial shows nothing. */
void model_duplicate_dropped(struct pump_model *m, int32_t block);

/* Returns the device's used memory in blocks: resident, maybe evicted, in flight,
 * discarding. */
int64_t model_occupied(const struct device *device);

#endif
