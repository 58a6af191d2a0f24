/* model_state.h - inside of the model; see model.h and the DESIGN of model_blocks.c. */
#ifndef PUMP_MODEL_STATE_H
#define PUMP_MODEL_STATE_H

#include <stdbool.h>

#include "daemon/core/extents/extents.h"
#include "daemon/core/predict/learner.h"
#include "model.h"

#define EXPORT __attribute__((visibility("default")))

#define OPS (1u << 14)  /* of the window; a power of two */
#define USES (1u << 21) /* of all operations of the window; a power of two */
#define NONE (-1)

/* An operation that uses more than that of the budget is filled up to the budget, and the
 * rest of it left to faults. */
#define LARGER_PERCENT 90
/* Where an operation uses more than that of the budget without telling, nothing is
 * expected: what stays or comes early for later takes the room that is left for it. */
#define UNTOLD_PERCENT 10

/* Blocks that an operation is the next to use are counted by whether they are there. */
enum { DUE_SURE, DUE_DOUBTED, DUE_AWAY, DUE_KINDS };

/* Ends of a list; blocks are linked through themselves. */
struct list {
  int32_t head, tail;
};

struct op {
  uint64_t seq;
  uint64_t rank;     /* how many operations its stream issued before it */
  uint32_t uses;     /* blocks that it uses, in the order in which it reaches them */
  int32_t first_use; /* in the use ring */
  int32_t next;      /* next operation of its stream, or NONE */
  uint32_t stream;
  uint32_t due[DUE_KINDS];
  uint64_t likeness; /* of its stream and blocks: what was expected is known by it */
  bool executed;
  bool partial;  /* expected, and it will reach what does not exist yet */
  bool larger;   /* uses more than LARGER_PERCENT of its device's budget */
  bool in_order; /* larger: what was there of it comes again, in its order */
  bool untold;   /* uses more than it told */
};

struct use {
  int32_t block; /* NONE once the block is gone */
  int32_t next;  /* next use of the same block, or NONE */
  int32_t prev;  /* the use before it; means something while that has not been retired */
  uint16_t op;
  uint8_t flags;
};

#define USE_FRESH 1 /* nothing that was there before is worth keeping: discarded */
#define USE_ENDS 2  /* once it has executed the contents are discarded: told */
#define USE_GIVES 4 /* the same, told or expected: counted in `gives` */

/* One cache line. */
struct block {
  int64_t next_use;    /* PUMP_NOT_NEEDED, or the seq of `first` */
  int64_t last_use;    /* newest issued use; 0: none */
  int64_t migrated;    /* order in which blocks last became resident */
  int32_t first, last; /* uses that have not executed, oldest and newest, or NONE */
  int32_t issued;      /* the newest of them that is not only expected, or NONE */
  int32_t idle_prev, idle_next; /* in the device's list, when need is NEED_IDLE */
  int32_t age_prev, age_next;   /* in the device's list that `age_list` names */
  uint32_t slot;                /* of the range that owns it */
  int32_t due_use;              /* whose operation counts it, when need says so */
  uint8_t state, device;
  uint8_t need;         /* NEED_* */
  uint8_t age_list : 2; /* AGE_* */
  bool dead : 1;        /* no tensor is there: the first to leave, until it is used again */
  bool discarded : 1;   /* since its newest use */
  bool used : 1;        /* by an operation that has executed, since it was allocated */
  bool doomed : 1; /* it will be, once what was issued has executed: it does not leave */
  bool comes : 1;  /* an entry of the plan in force brings it, */
  bool goes : 1;   /* or another one takes it away */
};
_Static_assert(sizeof(struct block) == 64, "one cache line");

/* NEED_DUE + DUE_*: its operation counts it, and `due_uses` has a bit for it. NEED_DOOMED:
 * `due_use` tells since when. */
enum { NEED_NONE, NEED_IDLE, NEED_DOOMED, NEED_DUE };
enum { AGE_NONE, AGE_SURE, AGE_DOUBTED };

struct range {
  uint64_t base, length_bytes;
  int32_t first_block; /* NONE: no range */
  int32_t blocks;
  uint32_t generation;
  uint32_t device;
  uint64_t lead_bytes; /* between the start of the first block and the base */
};

struct stream {
  int32_t head, tail; /* first and last operation not retired, or NONE */
  uint64_t issued, expected;
  bool listed; /* stands in `busy` */
};

struct device {
  struct pump_model_device facts;
  struct pump_model_tally tally;
  int64_t counts[PUMP_BLOCK_STATES];
  struct list
      idle; /* resident or doubted, not needed: the dead, then longest unused first */
  struct list doomed;  /* resident or doubted, not needed, to be discarded */
  struct list sure;    /* resident, migrated longest ago first */
  struct list doubted; /* those of them that were put in doubt; all older */
  int64_t in_flight[PUMP_DIRECTIONS];
  uint64_t left_bytes; /* moved to the host since the mapping is in use, as far as known */
  uint64_t leaving_bytes;            /* on their way there */
  int64_t held_at[PUMP_DIRECTIONS];  /* what had been observed when one was refused */
  int64_t block_us[PUMP_DIRECTIONS]; /* what a block took lately, microseconds << 8 */
  uint64_t missed;                   /* blocks that came by fault since the last look */
  int64_t faults;                    /* since the last view */
  int64_t exchange;                  /* blocks that views may offer for exchange */
  int64_t left_over;                 /* since a switch: fewest blocks that took room */
  int64_t allowance;                 /* blocks of room that may be taken without asking */
  int64_t hold;                      /* nothing to decide before so many may move */
  int64_t latest_need; /* what arrives and is needed then or later may be who leaves */
  int64_t later[PUMP_VIEW_LEAVERS]; /* who leaves next, in this order */
  uint32_t later_at, later_count;
  bool held_back; /* at the last view the link was idle, and nothing could come */
  bool settled; /* who leaves is decided, as long as nothing but arrivals happens */
  bool known, short_of_room;
  bool untold; /* an operation used more than it told, since the last look */
};

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

/* What something planned waits for: struct pump_planned. */
struct model_wait {
  uint64_t after_seq, left_bytes;
  uint32_t after_stream;
};

/* A plan of a device, as it stands in the mapping. */
struct plan {
  uint32_t version;
  bool in_force;
  bool short_of_ops; /* it ends where no more operations were known */
  uint32_t count[PUMP_DIRECTIONS];
  uint32_t taken[PUMP_DIRECTIONS];                             /* as far as it is known */
  uint16_t places[PUMP_DIRECTIONS][PUMP_PLAN_ENTRIES];         /* in `transfers` */
  struct model_wait waits[PUMP_DIRECTIONS][PUMP_PLAN_ENTRIES]; /* of the first blocks */
  int64_t blocks[PUMP_DIRECTIONS];                             /* of all its entries, */
  int64_t left[PUMP_DIRECTIONS]; /* and of those that were not taken */
  uint64_t stamp, strays;        /* `changes` and `strays` when it was made */
  int64_t op_head, known;        /* what was known then: up to that, so many operations */
  uint64_t executed;             /* operations, then */
};

#define GRAPH_LAUNCHES 64 /* followed at once; others are seen to end all at once */
#define GRAPHS_KNOWN 256

/* A launch of a graph that has not been seen to execute. */
struct graph_launch {
  uint64_t first, last; /* numbers of its operations */
  uint64_t executable;
  uint64_t began_ns;        /* 0: not yet */
  uint64_t weight, retired; /* blocks that its operations use, and one for each */
  uint32_t stream;
};

struct graph_time {
  uint64_t executable, duration_ns; /* of its last run */
};

struct graphs {
  struct graph_launch launches[GRAPH_LAUNCHES];
  struct graph_time known[GRAPHS_KNOWN];
  uint32_t count;
};

#define GAP_SIZES 4096 /* gaps of up to so many blocks have a list each */

struct pump_model {
  struct pump_model_bounds bounds;
  struct block *blocks;
  int32_t high;                /* blocks at and above this one were never used */
  int32_t gaps[GAP_SIZES + 1]; /* by size; linked through idle_next; [0]: larger ones */
  int64_t clock;
  struct range ranges[PUMP_MAX_RANGES];
  struct pump_model_totals totals;
  struct device devices[PUMP_MAX_DEVICES];
  int64_t op_head, op_tail; /* positions; the slot is the position masked */
  int64_t op_issued;        /* from here on operations are expected, not issued */
  uint64_t vague_seq;       /* newest operation that told too little of itself; 0: none */
  uint64_t added_seq;       /* of the newest that was issued */
  int64_t use_head, use_tail;
  struct op ops[OPS];
  struct use uses[USES];
  uint64_t can_leave[OPS / 64]; /* bit: the operation has due blocks that may leave */
  uint64_t misses[OPS / 64];    /* bit: it has due blocks that are not surely there */
  /* Bit of a kind: the use is the next one of its block, which is of that kind. */
  uint64_t due_uses[USES / 64][DUE_KINDS];
  /* Room, in blocks: what an operation takes for blocks that are away, and for those that
   * will be discarded before it and used anew; what is free again behind it. */
  int32_t away[OPS], births[OPS], gives[OPS];
  /* Of the blocks that an operation uses, those that are needed again last and still worth
   * something: by which operation, and how many. */
  int64_t again_seq[OPS];
  int32_t again[OPS];
  uint8_t op_device[OPS]; /* of the operation; beside these, for whoever walks over all */
  struct stream streams[PUMP_MAX_STREAMS];
  uint32_t busy[PUMP_MAX_STREAMS];
  uint32_t busy_count;
  struct transfer transfers[PUMP_MAX_UNDER_WAY];
  uint32_t unused_transfers[PUMP_MAX_UNDER_WAY];
  uint32_t unused_count;
  uint64_t tickets;
  struct graphs graphs;
  struct pump_extents *extents;
  struct pump_learner *learner; /* NULL: nobody asked for it */
  struct plan plans[PUMP_MAX_DEVICES];
  struct pump_foreseen foreseen[OPS]; /* of operations that were expected */
  uint64_t told_seq;                  /* newest of them whose words stand in the mapping */
  uint64_t armed_seq;   /* operations from this one on are compared with them */
  uint64_t changes;     /* counts what may make another plan possible, */
  uint64_t strays;      /* and what makes one wrong: it was not foreseen */
  uint32_t partial;     /* expected operations that are */
  bool settling;        /* what plans brought is known, what they took away is not yet */
  bool plans_void;      /* something that plans rest on has proved wrong */
  uint32_t plan_places; /* transfers that may be taken and were not */
  uint16_t plan_running[PUMP_MAX_UNDER_WAY]; /* transfers that were taken, not ended */
  uint32_t plan_running_count;
  struct pump_view scratch;
};

/* The decision does not hold any more, nor what it allowed as long as it does. */
static inline void model_ask(struct device *device) {
  if (device->hold != 0) device->allowance = 0;
  device->hold = 0;
  device->settled = false;
}

/* Something happened that is neither an operation nor a transfer that ended well: every
 * policy has to look again. */
static inline void model_ask_all(struct pump_model *m) {
  m->changes++;
  for (uint32_t i = 0; i < PUMP_MAX_DEVICES; i++) model_ask(&m->devices[i]);
}

/* And it was not foreseen either. */
static inline void model_look_again(struct pump_model *m) {
  m->strays++;
  model_ask_all(m);
}

static inline bool model_under_way(const struct device *device) {
  return device->counts[PUMP_BLOCK_ARRIVING] + device->counts[PUMP_BLOCK_LEAVING] > 0;
}

/* Something else than a transfer that was decided: who leaves has to be decided anew. */
static inline void model_unsettle(struct pump_model *m) {
  for (uint32_t i = 0; i < PUMP_MAX_DEVICES; i++) m->devices[i].settled = false;
}

/* ---- blocks (model_blocks.c) ---- */

void model_set_state(struct pump_model *m, int32_t block, uint32_t state);
/* Counts or lists the block where its state and its next use say. */
void model_relist(struct pump_model *m, int32_t block);
/* Nothing there is worth keeping: of what nothing needs it leaves first. */
void model_set_dead(struct pump_model *m, int32_t block);
/* Its contents will be discarded once what was issued on it has executed. */
void model_set_doomed(struct pump_model *m, int32_t block);
/* What was to be discarded for long, and was not, is only dead. */
void model_give_up_doomed(struct pump_model *m, struct device *device);

/* Room that blocks take: resident, doubted, on their way in or out. */
int64_t model_occupied(const struct device *device);

/* Whether the use is of an operation that was not issued yet, and so may never come. */
static inline bool model_is_expected(const struct pump_model *m, int32_t use) {
  uint32_t behind = (m->uses[use].op - (uint32_t)m->op_issued) & (OPS - 1);
  return (int64_t)behind < m->op_head - m->op_issued;
}

/* ---- looking (model_look.c) ---- */

/* Last position in [op_tail, from] whose bit is set, or op_tail - 1. */
int64_t model_previous_set(const struct pump_model *m, const uint64_t *bits, int64_t from);
/* The due uses that are counted as `kind` or in doubt; `from`, `end`: positions, of one
 * operation's uses. The first in [from, end), or `end`. */
int64_t model_next_due(const struct pump_model *m, uint32_t kind, int64_t from,
                       int64_t end);
/* The last in [begin, end), or `begin` - 1. */
int64_t model_previous_due(const struct pump_model *m, uint32_t kind, int64_t begin,
                           int64_t end);
/* Fills in what is missing on the device, at most so many blocks; blocks that may be on
 * their way in a direction, and that may be sent there now. */
void model_missing(struct pump_model *m, uint32_t device, struct pump_view *view,
                   uint32_t most);
int64_t model_flight_most(const struct pump_model *m, const struct device *device);
int64_t model_credit(const struct pump_model *m, const struct device *device, int way);
/* Operations have executed: if the next ones wait for what the last view held back, views
 * may offer an exchange. */
void model_allow_exchange(struct pump_model *m, struct device *device);

/* ---- transfers (model_transfers.c) ---- */

/* Starts what the device misses, soonest first, as far as its allowance goes. Fills
 * `commands`; returns how many of at most `max`. */
uint32_t model_use_allowance(struct pump_model *m, uint32_t device,
                             struct pump_command *commands, uint32_t max);
/* Whether transfers may go on now by the last decision. */
bool model_may_go_on(const struct pump_model *m, uint32_t device);
/* What the last decision, if it is settled, sends that way now that transfers have ended.
 * Where it does not say enough, it is settled no more, and the policy has to be asked. To
 * be called before pump_model_holds, first for what leaves. */
uint32_t model_go_on(struct pump_model *m, uint32_t device, uint32_t way,
                     struct pump_command *commands, uint32_t max);

struct model_span {
  uint64_t offset_bytes, length_bytes;
};
/* The part of their range that these blocks are. */
static inline struct model_span model_span(const struct range *range, int32_t first_block,
                                           int32_t blocks) {
  uint64_t begin = (uint64_t)(first_block - range->first_block) << 21;
  uint64_t end = begin + ((uint64_t)blocks << 21);
  begin = begin > range->lead_bytes ? begin - range->lead_bytes : 0;
  end -= range->lead_bytes;
  if (end > range->length_bytes) end = range->length_bytes;
  return (struct model_span){begin, end - begin};
}
/* Blocks that one command takes at most. */
uint32_t model_slice(const struct pump_model *m, const struct device *device, int way);
uint64_t model_ticket(struct pump_model *m, uint32_t place);

/* ---- plans (model_plan.c, serve_plan.c) ---- */

#define HEAD_AGAIN 64 /* operations known beyond a plan that ended for want of them */

/* A slice that goes once that has executed and so much has left: struct pump_planned. */
struct model_planned {
  int32_t first_block, blocks;
  uint32_t slot, after_stream, need_stream;
  struct model_wait first; /* of its first block alone: others wait no less */
  uint64_t after_seq, left_bytes;
  int64_t need; /* the operation that it comes for; 0: it leaves */
};

struct model_rehearsal {
  bool short_of_ops; /* it ends where no more operations are known */
  uint32_t count[PUMP_DIRECTIONS];
  struct model_planned entries[PUMP_DIRECTIONS][PUMP_PLAN_ENTRIES];
};

/* What will be sent next, as far as operations up to that one tell. Changes nothing. */
void model_rehearse(struct pump_model *m, uint32_t device, uint64_t until_seq,
                    struct model_rehearsal *out);
/* Each of these holds a place in `transfers` from now on; returns how many of them found
 * one. */
uint32_t model_plan_hold(struct pump_model *m, uint32_t device, uint32_t way,
                         const struct model_planned *planned, uint32_t count,
                         uint16_t *places);
/* Nobody has taken it, and nobody will; or somebody has, and it is under way, or has
 * ended. */
void model_plan_give_back(struct pump_model *m, uint32_t place);
void model_plan_taken(struct pump_model *m, uint32_t place);
void model_plan_ended(struct pump_model *m, uint32_t place, uint32_t result,
                      uint32_t duration_us);

/* True while a plan is in force that is right for all we know, and not used up: what goes
 * next goes by it. */
bool model_plan_holds(const struct pump_model *m, uint32_t device);

/* What was taken of plans is under way, what has ended has ended. In two parts, progress
 * and the ends of commands between them: blocks may have come, been used, and left since we
 * looked last. How much room that leaves is known behind the second part alone. */
void serve_plan_arrived(struct pump_shm *shm, struct pump_model *m);
void serve_plan_left(struct pump_shm *shm, struct pump_model *m);
/* The device has no plan in force any more, and what was taken of it is known. */
void serve_plan_withdraw(struct pump_shm *shm, struct pump_model *m, uint32_t device);
/* Tells the client what has become expected, so that a plan that stays in force is compared
 * with that as well. */
void serve_plan_foresee(struct pump_shm *shm, struct pump_model *m);
/* What a policy has decided: block numbers that it may have made up. */
struct serve_moves {
  const int64_t *to_host, *to_gpu;
  uint32_t to_host_count, to_gpu_count;
};
/* Whether a decision is what the plan says: who leaves leaves by the plan as well, and no
 * later, and what comes first comes first. */
bool serve_plan_agrees(const struct pump_shm *shm, const struct pump_model *m,
                       uint32_t device, const struct serve_moves *moves);
/* Take what stands in front of the plan and may go now, and fill `blocks` with it, at most
 * so many; return how many. Nobody else takes that any more, and the plan stays in force.
 * Of `missing` blocks those count that are to come, in order of need: what the plan did not
 * bring comes too, but nothing before what is needed sooner. */
uint32_t serve_plan_leaving(struct pump_shm *shm, struct pump_model *m, uint32_t device,
                            int64_t *blocks, uint32_t most);
uint32_t serve_plan_arriving(struct pump_shm *shm, struct pump_model *m, uint32_t device,
                             const int64_t *missing, uint32_t count, int64_t *blocks,
                             uint32_t most);
/* None holds, and another one could be made by now. */
bool serve_plan_is_due(const struct pump_model *m, uint32_t device);

/* ---- what is sent (serve_send.c) ---- */

/* Where commands go: to the executors of a mapping, or to those of the simulator. */
struct serve_executors {
  void *context;
  /* Hands commands over; returns how many of them found room. */
  uint32_t (*submit)(void *context, uint32_t device, uint32_t direction,
                     const struct pump_command *commands, uint32_t count);
};

struct serve {
  struct pump_shm *shm;
  struct pump_model *model;
  struct serve_executors executors;
  bool plans; /* put in force what comes next, where it is known */
};

/* What goes next by the plan in force, or by the last decision if that allows it, now that
 * transfers have ended. */
void serve_go_on(const struct serve *to, uint32_t device);
/* What the device misses, soonest first, as far as the allowance goes. */
void serve_allowance(const struct serve *to, uint32_t device);
/* What a policy has decided; then plans what comes next, unless the plan in force says the
 * same. */
void serve_decision(const struct serve *to, uint32_t device,
                    const struct serve_moves *moves);

/* ---- ranges (model_ranges.c) ---- */

struct model_found {
  uint32_t slot, generation, device;
  uint64_t base, length_bytes;
};
/* Tracks a range; what was in the slot is forgotten. */
void model_range_add(struct pump_model *m, const struct model_found *found, uint32_t state);
void model_range_remove(struct pump_model *m, uint32_t slot);

/* ---- window (model_window.c) ---- */

struct model_run {
  int32_t first, count;
  uint32_t fresh; /* PUMP_FRESH_* */
};
/* The blocks of an extent. False when the range is not the one that is known. */
bool model_run_of(const struct pump_model *m, const struct pump_model_extent *extent,
                  struct model_run *run);
/* Notes which of its blocks were discarded since they were used. */
void model_note_fresh(const struct pump_model *m, struct model_run *run);
/* Adds an operation that uses these runs of blocks. If it is what was expected next, it
 * takes that one's place; if something else was, nothing is expected any more. `foreseen`:
 * it is what was expected, whatever blocks it uses. */
void model_op_add(struct pump_model *m, uint64_t seq, uint32_t stream,
                  const struct model_run *runs, uint32_t count, bool foreseen);
/* The newest uses `dropped` runs more than those `told`, which are believed to be alike:
 * behind it nobody knows what is there. Where that is much nothing is expected, for two
 * iterations. */
void model_op_untold(struct pump_model *m, uint32_t told, uint32_t dropped);
/* Its contents are discarded behind its newest issued use that has not executed. False
 * when there is none. */
bool model_ends(struct pump_model *m, int32_t block);
/* The first operation of the stream counts as executed; model_retired after the last. */
void model_retire_head(struct pump_model *m, uint32_t stream);
void model_retired(struct pump_model *m);

/* ---- the window's tables, for what is issued and what is expected (model_uses.c) ---- */

static inline uint32_t op_index(int64_t position) {
  return (uint32_t)((uint64_t)position & (OPS - 1));
}

static inline int32_t use_index(int64_t position) {
  return (int32_t)((uint64_t)position & (USES - 1));
}

/* A new operation at the head; the ring has to have a place for it. */
struct op *model_op_begin(struct pump_model *m, uint64_t seq, uint32_t stream);
/* Uses of the newest operation. `lose`: makes room in the ring, or returns false when there
 * can be none. NULL: what does not fit is left out. */
void model_op_uses(struct pump_model *m, const struct model_run *runs, uint32_t count,
                   bool (*lose)(struct pump_model *m));
/* The first expected operation uses these runs instead, as it is issued. False, and all is
 * as it was, when it has not so many places for uses. */
bool model_op_replace(struct pump_model *m, const struct model_run *runs, uint32_t count);
/* Places for so many uses more, of the newest operation. */
void model_op_reserve(struct pump_model *m, uint32_t slots);
/* So many blocks are more than that of the budget of the operation's device. */
bool model_is_share(const struct pump_model *m, uint32_t index, int64_t blocks,
                    int64_t percent);
/* The use leaves the chain of its block. */
void model_remove_use(struct pump_model *m, int32_t use);
uint64_t model_likeness(uint32_t stream, const struct model_run *runs, uint32_t count);
/* The chain's head moves on to the next use that has not executed. True when the contents
 * were discarded on the way. */
bool model_advance_chain(struct pump_model *m, int32_t block);
/* Counts that there is room again behind the use, once. */
void model_gives(struct pump_model *m, int32_t use);
/* The use has been linked behind another one of its block: its room, and who is needed
 * again, are counted. The other undoes that and the link. */
void model_linked(struct pump_model *m, int32_t use);
void model_unlink(struct pump_model *m, int32_t use);
/* What was issued on the block has executed, though that was not seen yet. */
void model_used_up(struct pump_model *m, int32_t block);
/* All uses of a block are dropped. */
void model_drop_chain(struct pump_model *m, int32_t block);

/* ---- what is expected (model_expect.c, model_learn.c) ---- */

/* The operation that was expected next has been issued. */
void model_adopt(struct pump_model *m);
/* Expects an operation as pump_model_expect does, with `spare` places for uses that are not
 * known yet. */
int model_expect(struct pump_model *m, uint32_t stream,
                 const struct pump_model_extent *extents, uint32_t count, uint32_t spare);
/* Of the operation that was expected last: what it is known by when it is issued, and
 * whether it will reach what does not exist yet. */
void model_expect_known(struct pump_model *m, const struct pump_predicted *next);
/* An operation is about to be added that reaches these extents. True if it is the one that
 * was predicted. */
bool model_learn_operation(struct pump_model *m, const struct pump_batch *batch,
                           uint32_t row, const struct pump_model_extent *extents,
                           uint32_t count);
void model_learn_range(struct pump_model *m, uint32_t slot, bool gone);
void model_learn_shape(struct pump_model *m, uint64_t signature, uint64_t function,
                       const struct pump_params *head);
void model_learn_loss(struct pump_model *m);
/* Of the learner, lately; 0 without one. */
double model_confidence(const struct pump_model *m);

/* ---- graphs (model_graph.c) ---- */

void model_graph_add(struct pump_model *m, const struct graph_launch *launch);
/* After the operation `seq` was added. */
void model_graph_weigh(struct pump_model *m, uint64_t seq);

#endif
