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
  struct pump_model_totals totals;
  struct device devices[PUMP_MAX_DEVICES];
  struct blocks blocks;
  struct ranges ranges;
  struct window window;
  struct streams streams;
  struct transfers transfers;
  struct graphs graphs;
  struct pump_extents *extents;
  struct expected expected;
  struct plans plans;
  struct pump_view scratch;
};

/* Ends the last decision, and what it allows as long as it holds. */
static inline void model_decision_drop(struct device *device) {
  if (device->hold != 0) device->allowance = 0;
  device->hold = 0;
  device->settled = false;
}

/* Something happened that is neither an operation nor a transfer that ended well: the
 * policy has to decide again for each device. */
static inline void model_decisions_drop(struct pump_model *m) {
  m->plans.changes++;
  for (uint32_t i = 0; i < PUMP_MAX_DEVICES; i++) model_decision_drop(&m->devices[i]);
}

/* The same, and it was not predicted. */
static inline void model_deviate(struct pump_model *m) {
  m->plans.deviations++;
  model_decisions_drop(m);
}

static inline bool model_under_way(const struct device *device) {
  return device->counts[PUMP_BLOCK_ARRIVING] + device->counts[PUMP_BLOCK_LEAVING] > 0;
}

/* Their room comes by itself. */
static inline int64_t model_making_room(const struct device *device) {
  return device->counts[PUMP_BLOCK_LEAVING] + device->counts[PUMP_BLOCK_DISCARDING];
}

static inline int64_t model_head_again(const struct pump_model *m) {
  return m->plans.alone ? HEAD_AGAIN_ALONE : HEAD_AGAIN;
}

/* Something else than a transfer that was decided: what leaves has to be decided anew. */
static inline void model_decision_invalidate(struct pump_model *m) {
  for (uint32_t i = 0; i < PUMP_MAX_DEVICES; i++) m->devices[i].settled = false;
}

/* Whether the use is of an operation that was not issued yet, and so may never come. */
static inline bool model_is_expected(const struct pump_model *m, int32_t use) {
  const struct window *w = &m->window;
  uint32_t behind = (w->uses[use].op - (uint32_t)w->op_issued) & (OPS - 1);
  return (int64_t)behind < w->op_head - w->op_issued;
}

#endif
