/* model_window.h - issued and expected operations, and the blocks that they use. */
#ifndef PUMP_MODEL_WINDOW_H
#define PUMP_MODEL_WINDOW_H

#include <stdbool.h>

#include "model_blocks.h"

/* Entries of tables; powers of two. If one is full, the oldest operations are
 * forgotten [guessed]. */
#define OPS (1u << 14)  /* operations in the window */
#define USES (1u << 21) /* uses of all operations in the window */

/* If an operation uses more than this percentage of the budget, only as many of its
 * blocks as fit are prefetched. Faults bring the rest [guessed]. */
#define LARGER_PERCENT 90
/* If an operation's unrecorded uses exceed this percentage of the budget, nothing is
 * expected: blocks kept or prefetched for later operations would take its memory
 * [guessed]. */
#define TRUNCATED_PERCENT 10

struct op {
  uint64_t seq;
  uint64_t rank;     /* number of earlier operations of its stream */
  uint32_t uses;     /* number of blocks that it uses, in the order of access */
  int32_t first_use; /* index of its first use in the ring */
  int32_t next;      /* next operation of its stream, or NONE */
  uint32_t stream;
  uint32_t due[DUE_KINDS];
  uint64_t access_hash; /* hash of stream and blocks; identifies an expected operation */
  bool executed;
  bool partial;        /* expected, and will reach ranges that do not exist yet */
  bool larger;         /* uses more than LARGER_PERCENT of its device's budget */
  bool in_order;       /* larger, and its resident blocks are prefetched again in order */
  bool args_truncated; /* uses more memory than its record names */
  bool in_place;       /* reads memory of the host in place */
};

struct use {
  int32_t block; /* NONE: the block is gone */
  int32_t next;  /* next use of the same block, or NONE */
  int32_t prev;  /* previous use of the block; valid until that use is retired */
  uint16_t op;
  uint8_t flags;
};

#define USE_FRESH 1 /* the block was discarded before this use */
#define USE_ENDS 2  /* a reported discard of the block follows this use */
#define USE_FREES 4 /* a reported or expected discard is counted in `frees_blocks` */

/* A position in `ops` or `uses`, masked, is the index of its slot. */
struct window {
  int64_t op_head, op_tail;
  int64_t op_issued;           /* position of the first expected operation */
  uint64_t added_seq;          /* newest issued operation */
  uint64_t args_truncated_seq; /* newest operation with many unrecorded uses; 0: none */
  int64_t use_head, use_tail;
  struct op ops[OPS];
  struct use uses[USES];
  uint64_t can_leave[OPS / 64]; /* bit per operation: some of its due blocks may leave */
  uint64_t misses[OPS / 64]; /* bit per operation: some of its due blocks may be absent */
  /* Bit per use and kind: the use is its block's next use, and the block is of that kind
   * (DUE_*). */
  uint64_t due_uses[USES / 64][DUE_KINDS];
  /* Blocks of memory per operation: needed for absent blocks, needed for blocks that were
   * discarded and are rewritten, freed by discards after the operation. */
  int32_t away[OPS], allocates_blocks[OPS], frees_blocks[OPS];
  /* For an operation's blocks that keep their contents: the latest next use among them
   * (an operation's number), and how many blocks have it. */
  int64_t again_seq[OPS];
  int32_t again[OPS];
  uint8_t op_device[OPS]; /* separate from `ops`, for fast scans */
};

struct stream {
  int32_t head, tail; /* first and last operation that is not retired, or NONE */
  uint64_t issued, expected;
  bool listed; /* is in `busy` */
};

struct streams {
  struct stream all[PUMP_MAX_STREAMS];
  uint32_t busy[PUMP_MAX_STREAMS]; /* streams with operations that are not retired */
  uint32_t busy_count;
  uint32_t discard_stream; /* stream whose progress includes discards; 0: unknown */
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

/* ---- adding and retiring operations (model_window.c) ---- */

/* Finds the blocks of an access, and cuts it at its range's end. Returns false if it is
 * empty, begins beyond its range, or the tracked range in that slot is another one. */
bool model_run_of(const struct pump_model *m, struct pump_access *access,
                  struct model_run *run);
/* Adds an issued operation that uses these runs of blocks, one for each access. If it
 * matches the next expected operation, it takes its slot; otherwise all expected operations
 * are dropped. `predicted`: the learner predicted the operation, whatever blocks it uses.
 */
void model_op_add(struct pump_model *m, const struct pump_operation *op,
                  const struct model_run *runs, bool predicted);
/* Notes a discard of the block after its newest issued use. Returns false if all issued
 * uses have executed. */
bool model_ends(struct pump_model *m, int32_t block);
/* Notes that the block's operations up to `seq` have executed and its discard is in
 * flight. */
void model_discarding(struct pump_model *m, int32_t block, uint64_t seq);
/* Retires the first operation of the stream. Call model_retired afterwards, once for
 * several. */
void model_retire_head(struct pump_model *m, uint32_t stream);
void model_retired(struct pump_model *m);

/* ---- tables (model_uses.c) ---- */

/* Appends an operation; the ring must have a free slot. */
struct op *model_op_begin(struct pump_model *m, uint64_t seq, uint32_t stream);
/* Adds uses to the newest operation. `lose` frees slots of the ring, or returns false.
 * NULL: uses that do not fit are left out. */
void model_op_uses(struct pump_model *m, const struct model_run *runs, uint32_t count,
                   bool (*lose)(struct pump_model *m));
/* Replaces the uses of the first expected operation by these runs when it is issued.
 * Returns false, with no change, if its slots are too few. */
bool model_op_replace(struct pump_model *m, const struct model_run *runs, uint32_t count);
/* Reserves `slots` more uses for the newest operation. */
void model_op_reserve(struct pump_model *m, uint32_t slots);
/* Returns whether `blocks` is more than `percent` of the budget of the operation's
 * device. */
bool model_is_share(const struct pump_model *m, uint32_t index, int64_t blocks,
                    int64_t percent);
uint64_t model_access_hash(uint32_t stream, const struct model_run *runs, uint32_t count);
/* Moves the head of the block's chain to the next use that has not executed. Returns
 * whether a discard follows the last passed use. */
bool model_advance_chain(struct pump_model *m, int32_t block);
/* Counts one block of memory as free after the use, once. */
void model_count_freed_block(struct pump_model *m, int32_t use);
/* Counts the memory and next need of a use that was linked after another use. */
void model_linked(struct pump_model *m, int32_t use);
/* Unlinks the use from the use before it and undoes model_linked. */
void model_unlink(struct pump_model *m, int32_t use);
/* Drops the block's issued uses up to `seq`, which have executed although progress does
 * not show it yet. */
void model_used_up(struct pump_model *m, int32_t block, uint64_t seq);
/* Drops all uses of a block. */
void model_drop_chain(struct pump_model *m, int32_t block);

/* ---- walks (model_walk.c) ---- */

/* Returns the first position in [from, op_head) with a set bit, or op_head. */
int64_t model_next_set(const struct pump_model *m, const uint64_t *bits, int64_t from);
/* Returns the last position in [op_tail, from] with a set bit, or op_tail - 1. */
int64_t model_previous_set(const struct pump_model *m, const uint64_t *bits, int64_t from);
/* Returns the newest issued operation before the first that lacks memory on the device,
 * as far as known. Ignores executed operations and operations left to faults. Blocks that
 * will leave again count as resident. UINT64_MAX: schedules have no arrivals. */
uint64_t model_ready(struct pump_model *m, uint32_t device);
/* Returns the last due use at positions [begin, end), or `begin` - 1; see model_next_due
 * (model_state.h). */
int64_t model_previous_due(const struct pump_model *m, uint32_t kind, int64_t begin,
                           int64_t end);

#endif
