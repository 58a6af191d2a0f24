/* model_window.h - operations that were issued or are expected, and what they use. */
#ifndef PUMP_MODEL_WINDOW_H
#define PUMP_MODEL_WINDOW_H

#include <stdbool.h>

#include "model_blocks.h"

#define OPS (1u << 14)  /* of the window; a power of two */
#define USES (1u << 21) /* of all operations of the window; a power of two */

/* An operation that uses more than that of the budget is filled up to the budget, and the
 * rest of it left to faults. */
#define LARGER_PERCENT 90
/* Where an operation uses more than that of the budget than its record names, nothing
 * is expected: what stays or comes early for later takes the room that is left for it. */
#define TRUNCATED_PERCENT 10

struct op {
  uint64_t seq;
  uint64_t rank;     /* how many operations its stream issued before it */
  uint32_t uses;     /* blocks that it uses, in the order in which it reaches them */
  int32_t first_use; /* in the use ring */
  int32_t next;      /* next operation of its stream, or NONE */
  uint32_t stream;
  uint32_t due[DUE_KINDS];
  uint64_t access_hash; /* of its stream and blocks: what was expected is known by it */
  bool executed;
  bool partial;        /* expected, and it will reach what does not exist yet */
  bool larger;         /* uses more than LARGER_PERCENT of its device's budget */
  bool in_order;       /* larger: what was there of it comes again, in its order */
  bool args_truncated; /* uses more than its record names */
};

struct use {
  int32_t block; /* NONE once the block is gone */
  int32_t next;  /* next use of the same block, or NONE */
  int32_t prev;  /* the use before it; means something while that has not been retired */
  uint16_t op;
  uint8_t flags;
};

#define USE_FRESH 1 /* the contents before it are worthless: discarded */
#define USE_ENDS 2  /* once it has executed the contents are discarded: reported */
#define USE_FREES 4 /* the same, reported or expected: counted in `frees_blocks` */

/* The slot of a position in `ops` or `uses` is the position masked. */
struct window {
  int64_t op_head, op_tail;
  int64_t op_issued;           /* from here on operations are expected, not issued */
  uint64_t added_seq;          /* of the newest that was issued */
  uint64_t args_truncated_seq; /* of the newest that used more than its record; 0: none */
  int64_t use_head, use_tail;
  struct op ops[OPS];
  struct use uses[USES];
  uint64_t can_leave[OPS / 64]; /* bit: the operation has due blocks that may leave */
  uint64_t misses[OPS / 64];    /* bit: it has due blocks that are not surely there */
  /* A bit for each use and kind: the use is the next one of its block, and the block is of
   * that kind (DUE_*). */
  uint64_t due_uses[USES / 64][DUE_KINDS];
  /* Room, in blocks: what an operation takes for blocks that are away, what it takes for
   * blocks that are discarded before it and written anew, and what is free again behind it.
   */
  int32_t away[OPS], allocates_blocks[OPS], frees_blocks[OPS];
  /* Of the blocks that an operation uses and that keep their contents: the operation that
   * needs some of them last of all, and how many those are. */
  int64_t again_seq[OPS];
  int32_t again[OPS];
  uint8_t
      op_device[OPS]; /* of the operation; apart from `ops`, for walks over all of them */
};

struct stream {
  int32_t head, tail; /* first and last operation not retired, or NONE */
  uint64_t issued, expected;
  bool listed; /* stands in `busy` */
};

struct streams {
  struct stream all[PUMP_MAX_STREAMS];
  uint32_t busy[PUMP_MAX_STREAMS]; /* those with operations that have not been retired */
  uint32_t busy_count;
  uint32_t discard_stream; /* its progress includes discards; 0: no stream is known */
};

struct model_run {
  int32_t first, count;
  uint32_t fresh; /* PUMP_FRESH_* */
};

static inline uint32_t op_index(int64_t position) {
  return (uint32_t)((uint64_t)position & (OPS - 1));
}

static inline int32_t use_index(int64_t position) {
  return (int32_t)((uint64_t)position & (USES - 1));
}

/* ---- operations come and go (model_window.c) ---- */

/* The blocks of an extent. False when the range is not the one that is known. */
bool model_run_of(const struct pump_model *m, const struct pump_model_extent *extent,
                  struct model_run *run);
/* Notes which of its blocks were discarded since they were used. */
void model_note_fresh(const struct pump_model *m, struct model_run *run);
/* Adds an operation that uses these runs of blocks. If it is what was expected next, it
 * takes that one's place; if something else was, all that is expected is dropped.
 * `predicted`: it is what was expected, whatever blocks it uses. */
void model_op_add(struct pump_model *m, uint64_t seq, uint32_t stream,
                  const struct model_run *runs, uint32_t count, bool predicted);
/* The newest operation uses `dropped` runs more than the `recorded` ones, of the same size
 * as far as is known: which blocks are resident behind it is unknown. Where that is much,
 * nothing is expected for two iterations. */
void model_op_truncated(struct pump_model *m, uint32_t recorded, uint32_t dropped);
/* Notes that the block's contents are discarded behind its newest issued use that has not
 * executed. False when there is no such use. */
bool model_ends(struct pump_model *m, int32_t block);
/* Notes that what was issued on the block up to that operation has executed, and that its
 * discard is under way. */
void model_discarding(struct pump_model *m, int32_t block, uint64_t seq);
/* Counts the first operation of the stream as executed. To be followed by model_retired,
 * once for several. */
void model_retire_head(struct pump_model *m, uint32_t stream);
void model_retired(struct pump_model *m);

/* ---- their tables (model_uses.c) ---- */

/* A new operation at the head; the ring has to have a place for it. */
struct op *model_op_begin(struct pump_model *m, uint64_t seq, uint32_t stream);
/* Uses of the newest operation. `lose`: makes room in the ring, or returns false when there
 * can be none. NULL: what does not fit is left out. */
void model_op_uses(struct pump_model *m, const struct model_run *runs, uint32_t count,
                   bool (*lose)(struct pump_model *m));
/* Replaces the uses of the first expected operation by these runs, as it is issued. False,
 * with nothing changed, when it has too few places for uses. */
bool model_op_replace(struct pump_model *m, const struct model_run *runs, uint32_t count);
/* Reserves places for so many more uses of the newest operation. */
void model_op_reserve(struct pump_model *m, uint32_t slots);
/* Whether so many blocks are more than that part of the budget of the operation's device.
 */
bool model_is_share(const struct pump_model *m, uint32_t index, int64_t blocks,
                    int64_t percent);
uint64_t model_access_hash(uint32_t stream, const struct model_run *runs, uint32_t count);
/* Moves the head of the block's chain to the next use that has not executed. True when the
 * contents were discarded on the way. */
bool model_advance_chain(struct pump_model *m, int32_t block);
/* Counts one block of room behind the use, unless it is counted already. */
void model_frees_block(struct pump_model *m, int32_t use);
/* The first: the use has been linked behind another one of its block, so its room and its
 * next need are counted. The second undoes that and the link. */
void model_linked(struct pump_model *m, int32_t use);
void model_unlink(struct pump_model *m, int32_t use);
/* What was issued on the block up to that operation has executed, though progress has not
 * shown it yet. */
void model_used_up(struct pump_model *m, int32_t block, uint64_t seq);
/* Drops all uses of a block. */
void model_drop_chain(struct pump_model *m, int32_t block);

/* ---- what is due (model_view.c) ---- */

/* Last position in [op_tail, from] whose bit is set, or op_tail - 1. */
int64_t model_previous_set(const struct pump_model *m, const uint64_t *bits, int64_t from);
/* The newest issued operation up to which all of the device have their memory, as far as is
 * known, or have executed, or are left to faults; UINT64_MAX where all are. What leaves
 * again is not looked for. */
uint64_t model_ready(struct pump_model *m, uint32_t device);
/* The last due use in the positions [begin, end), or `begin` - 1; as model_next_due
 * (model_state.h). */
int64_t model_previous_due(const struct pump_model *m, uint32_t kind, int64_t begin,
                           int64_t end);

#endif
