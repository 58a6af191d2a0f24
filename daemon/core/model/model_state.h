/* model_state.h - all that the model keeps; its parts are in the headers of their files. */
#ifndef PUMP_MODEL_STATE_H
#define PUMP_MODEL_STATE_H

#include "daemon/core/extents/extents.h"
#include "model_blocks.h"
#include "model_expect.h"
#include "model_graph.h"
#include "model_plan.h"
#include "model_ranges.h"
#include "model_transfers.h"
#include "model_window.h"

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
  uint64_t
      args_truncated_seq; /* newest operation that told too little of itself; 0: none */
  uint64_t added_seq;     /* of the newest that was issued */
  uint32_t discards;      /* whose progress tells of discards; 0: of no stream known */
  int64_t use_head, use_tail;
  struct op ops[OPS];
  struct use uses[USES];
  uint64_t can_leave[OPS / 64]; /* bit: the operation has due blocks that may leave */
  uint64_t misses[OPS / 64];    /* bit: it has due blocks that are not surely there */
  /* Bit of a kind: the use is the next one of its block, which is of that kind. */
  uint64_t due_uses[USES / 64][DUE_KINDS];
  /* Room, in blocks: what an operation takes for blocks that are away, and for those that
   * will be discarded before it and used anew; what is free again behind it. */
  int32_t away[OPS], allocates_blocks[OPS], frees_blocks[OPS];
  /* Of the blocks that an operation uses, those that are needed again last and still worth
   * something: by which operation, and how many. */
  int64_t again_seq[OPS];
  int32_t again[OPS];
  uint8_t op_device[OPS]; /* of the operation; beside these, for walks over all */
  struct stream streams[PUMP_MAX_STREAMS];
  uint32_t busy[PUMP_MAX_STREAMS];
  uint32_t busy_count;
  struct transfer transfers[PUMP_MAX_UNDER_WAY];
  uint32_t unused_transfers[PUMP_MAX_UNDER_WAY];
  uint32_t unused_count;
  uint64_t tickets;
  struct graphs graphs;
  struct pump_extents *extents;
  struct pump_learner *learner; /* NULL: not asked for */
  struct plan plans[PUMP_MAX_DEVICES];
  struct pump_prediction predicted[OPS]; /* of operations that were expected */
  uint64_t told_seq;    /* newest of them whose words stand in the mapping */
  uint64_t armed_seq;   /* operations from this one on are compared with them */
  uint64_t changes;     /* counts what may make another plan possible, */
  uint64_t deviations;  /* and what makes one wrong: it was not predicted */
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

/* And it was not predicted either. */
static inline void model_deviate(struct pump_model *m) {
  m->deviations++;
  model_ask_all(m);
}

static inline bool model_under_way(const struct device *device) {
  return device->counts[PUMP_BLOCK_ARRIVING] + device->counts[PUMP_BLOCK_LEAVING] > 0;
}

/* Their room comes by itself. */
static inline int64_t model_making_room(const struct device *device) {
  return device->counts[PUMP_BLOCK_LEAVING] + device->counts[PUMP_BLOCK_DISCARDING];
}

/* Something else than a transfer that was decided: what leaves has to be decided anew. */
static inline void model_decision_invalidate(struct pump_model *m) {
  for (uint32_t i = 0; i < PUMP_MAX_DEVICES; i++) m->devices[i].settled = false;
}

/* Whether the use is of an operation that was not issued yet, and so may never come. */
static inline bool model_is_expected(const struct pump_model *m, int32_t use) {
  uint32_t behind = (m->uses[use].op - (uint32_t)m->op_issued) & (OPS - 1);
  return (int64_t)behind < m->op_head - m->op_issued;
}

#endif
