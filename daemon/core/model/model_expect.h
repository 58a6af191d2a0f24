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
/* Expects a predicted operation like pump_model_expect, with slots for unknown uses.
 * Returns false if the window is full. */
bool model_expect(struct pump_model *m, const struct pump_predicted *next);
/* Reports an operation to the learner before it is added to the window. Returns true if it
 * was predicted. */
bool model_learn_operation(struct pump_model *m, const struct pump_operation *op);
void model_learn_range(struct pump_model *m, uint32_t slot, bool gone);
void model_learn_loss(struct pump_model *m);
/* Returns the recent share of operations that the learner predicted with confidence; 0
 * without a learner. */
double model_confidence(const struct pump_model *m);

#endif
