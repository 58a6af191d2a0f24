/* model_expect.h - operations that are not issued yet (model_expect.c, model_learn.c). */
#ifndef PUMP_MODEL_EXPECT_H
#define PUMP_MODEL_EXPECT_H

#include <stdbool.h>

#include "daemon/core/predict/learner.h"
#include "model_window.h"

struct expected {
  struct pump_learner *learner; /* NULL: nothing is learned */
  uint32_t partial;             /* number of expected operations that are `partial` */
  struct pump_prediction predictions[OPS]; /* predictions of the expected operations */
  uint64_t sent_seq;                       /* newest prediction in the mapping */
  uint64_t compared_seq;                   /* first operation that the client compares */
};

/* Moves the next expected operation into the window when it has been issued. */
void model_adopt(struct pump_model *m);
/* Expects an operation like pump_model_expect, with `spare` slots for unknown uses. */
int model_expect(struct pump_model *m, uint32_t stream,
                 const struct pump_model_extent *extents, uint32_t count, uint32_t spare);
/* Sets how the newest expected operation is recognised when it is issued, and whether it
 * will reach ranges that do not exist yet. */
void model_expect_known(struct pump_model *m, const struct pump_predicted *next);
/* Reports an operation with these extents to the learner before it is added. Returns true
 * if it was predicted. */
bool model_learn_operation(struct pump_model *m, const struct pump_batch *batch,
                           uint32_t row, const struct pump_model_extent *extents,
                           uint32_t count);
void model_learn_range(struct pump_model *m, uint32_t slot, bool gone);
void model_learn_shape(struct pump_model *m, uint64_t signature,
                       const struct pump_params *head);
void model_learn_loss(struct pump_model *m);
/* Returns the recent share of operations that the learner predicted with confidence; 0
 * without a learner. */
double model_confidence(const struct pump_model *m);

#endif
