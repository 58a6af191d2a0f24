/* model_blocks.h - blocks, and the lists of them. See the DESIGN of model_blocks.c. */
#ifndef PUMP_MODEL_BLOCKS_H
#define PUMP_MODEL_BLOCKS_H

#include <stdbool.h>

#include "model.h"

#define EXPORT __attribute__((visibility("default")))

#define NONE (-1)

struct device;

/* Ends of a list; blocks are linked through themselves. */
struct list {
  int32_t head, tail;
};

/* Blocks that an operation is the next to use are counted by whether they are there. */
enum { DUE_SURE, DUE_MAYBE_EVICTED, DUE_AWAY, DUE_KINDS };

/* One cache line. */
struct block {
  int64_t next_use;    /* PUMP_NOT_NEEDED, or the seq of `first` */
  int64_t last_use;    /* newest issued use; 0: none */
  int64_t migrated;    /* order in which blocks last became resident */
  int32_t first, last; /* uses that have not executed, oldest and newest, or NONE */
  int32_t issued;      /* the newest of them whose operation was issued, or NONE */
  int32_t idle_prev, idle_next; /* in one of the device's lists, when it is idle */
  int32_t age_prev, age_next;   /* in the device's list that `age_list` names */
  uint32_t slot;                /* of the range that owns it */
  int32_t due_use;              /* its operation counts the block when need >= NEED_DUE */
  uint8_t state, device;
  uint8_t need : 3;     /* NEED_* */
  bool left : 1;        /* by request, since it was allocated or lost its contents */
  bool duplicated : 1;  /* it came as a duplicate, and has not left since */
  bool clean : 1;       /* the last time that it was one it was not written */
  uint8_t wrong : 2;    /* times that it was, DUPLICATES_WRONG at most */
  uint8_t age_list : 2; /* AGE_* */
  bool dead : 1;        /* holds no tensor: the first to leave, until it is used again */
  bool discarded : 1;   /* since its newest use */
  bool used : 1;        /* by an operation that has executed, since it was allocated */
  bool discard_pending
      : 1; /* it will be discarded, once what was issued has executed: it does not leave */
  bool comes : 1; /* an entry of the schedule in force brings it, */
  bool goes : 1;  /* or another one takes it away */
};
_Static_assert(sizeof(struct block) == 64, "one cache line");

/* NEED_IDLE: it is idle; NEED_STAYS: and leaves behind those. `due_use` is how many blocks
 * had left when that began. NEED_DUE + DUE_*: its operation counts it, and `due_uses` has a
 * bit for it. NEED_DISCARD_PENDING: `due_use` is when that began. */
enum { NEED_NONE, NEED_IDLE, NEED_STAYS, NEED_DISCARD_PENDING, NEED_DUE };
enum { AGE_NONE, AGE_SURE, AGE_MAYBE_EVICTED };

struct blocks {
  struct block *all;  /* by number */
  int64_t migrations; /* counts blocks that have become resident */
};

void model_set_state(struct pump_model *m, int32_t block, uint32_t state);
/* Counts or lists the block where its state and its next use say. */
void model_relist(struct pump_model *m, int32_t block);
/* Which of the idle blocks leaves behind that one; of NONE: the first. The dead, then the
 * longest unused first, or the newest where idle blocks are used in turn; then those that
 * stay. NONE: no more. */
int32_t model_next_idle(const struct pump_model *m, uint32_t device, int32_t block);
/* Another block has left the device: of those that stay the one that has been idle for too
 * long joins the other idle ones. */
void model_end_stay(struct pump_model *m, uint32_t device);
/* Its contents are worthless: of the blocks that nothing needs it leaves first. */
void model_set_dead(struct pump_model *m, int32_t block);
/* Its contents will be discarded once what was issued on it has executed. */
void model_set_discard_pending(struct pump_model *m, int32_t block);
/* Blocks that have waited too long for their discard count as dead only. */
void model_give_up_pending_discards(struct pump_model *m, struct device *device);

/* ---- duplicates (model_duplicates.c) ---- */

/* Of a device. */
struct duplicates {
  uint64_t trials, wrong; /* duplicates that have left, and had been written */
  uint64_t open;          /* that are there, and whose block has no right trial yet; */
  uint64_t marked;        /* and those that the schedule in force will bring */
  uint64_t left;          /* blocks, duplicates or not */
  uint32_t asked, kept;   /* lately: to be duplicates when they came, and were */
  bool ended;             /* they come too late: none any more */
};

/* A schedule is about to be put in force for the device. */
void model_duplicates_anew(struct pump_model *m, uint32_t device);
/* Of these blocks, which it will bring, those that are to be duplicated: a bit for each. */
uint32_t model_duplicates_mark(struct pump_model *m, int32_t first, int32_t blocks);
/* The block has come, and was to be a duplicate; `kept`: it is one. */
void model_duplicate_came(struct pump_model *m, int32_t block, bool kept);
/* The block has left; `kept`: without a copy. */
void model_duplicate_left(struct pump_model *m, int32_t block, bool kept);
/* Whether it stays longer than others: its departure would be a copy, theirs not. */
bool model_stays(const struct pump_model *m, const struct block *b);
/* Its contents have become worthless, so what it was says nothing of its next owner. */
void model_duplicate_ended(struct pump_model *m, int32_t block);

/* Room that blocks take: resident, maybe evicted, on their way in or out. */
int64_t model_occupied(const struct device *device);

#endif
