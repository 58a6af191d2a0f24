/* model_state.h - the whole model; the headers of the other files have its parts. */
#ifndef PUMP_MODEL_STATE_H
#define PUMP_MODEL_STATE_H

#include "daemon/core/extents/extents.h"
#include "daemon/core/timing/timing.h"
#include "model_blocks.h"
#include "model_expect.h"
#include "model_graph.h"
#include "model_in_place.h"
#include "model_ranges.h"
#include "model_schedules.h"
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
  struct schedules schedules;
  struct in_place in_place;
  bool duplicates;            /* blocks are duplicated on trial (model_duplicates.c) */
  struct pump_timing *timing; /* NULL: times are not tracked */
  uint64_t *arrived_ns;       /* by block: when a transfer last brought it */
};

/* Notes an unpredicted event, which may invalidate schedules. */
static inline void model_deviate(struct pump_model *m) {
  m->schedules.changes++;
  m->schedules.deviations++;
}

/* Returns how many blocks will become free without another departure. */
static inline int64_t model_making_room(const struct device *device) {
  return device->counts[PUMP_BLOCK_LEAVING] + device->counts[PUMP_BLOCK_DISCARDING];
}

/* Returns whether the use is of an expected operation, which may never be issued. */
static inline bool model_is_expected(const struct pump_model *m, int32_t use) {
  const struct window *w = &m->window;
  uint32_t behind = (w->uses[use].op - (uint32_t)w->op_issued) & (OPS - 1);
  return (int64_t)behind < w->op_head - w->op_issued;
}

/* Returns a bit for each of 64 uses: due as `kind` or as maybe evicted. */
static inline uint64_t model_due_word(const struct pump_model *m, uint32_t kind,
                                      uint32_t use) {
  const uint64_t *words = m->window.due_uses[use >> 6];
  return words[kind] | words[DUE_MAYBE_EVICTED];
}

/* Returns the first use in [from, end) of one operation that is due as `kind` or as maybe
 * evicted, or `end`. */
static inline int64_t model_next_due(const struct pump_model *m, uint32_t kind,
                                     int64_t from, int64_t end) {
  while (from < end) {
    uint32_t at = (uint32_t)use_index(from);
    uint64_t word = model_due_word(m, kind, at) >> (at & 63);
    if (word != 0) {
      from += __builtin_ctzll(word);
      return from < end ? from : end;
    }
    from += 64 - (int64_t)(at & 63);
  }
  return end;
}

#endif
