/* model_expect.h - operations that were not issued yet (model_expect.c, model_learn.c). */
#ifndef PUMP_MODEL_EXPECT_H
#define PUMP_MODEL_EXPECT_H

#include <stdbool.h>

#include "daemon/core/predict/learner.h"
#include "model_window.h"

struct expected {
  struct pump_learner *learner;            /* NULL: nothing is learned */
  uint32_t partial;                        /* how many expected operations are `partial` */
  struct pump_prediction predictions[OPS]; /* of operations that were expected */
  uint64_t sent_seq;     /* the newest of them that stands in the mapping */
  uint64_t compared_seq; /* the client compares operations from this one on */
};

/* To be called when the operation that was expected next has been issued: it takes its
 * place in the window. */
void model_adopt(struct pump_model *m);
/* Expects an operation as pump_model_expect does, with `spare` places for uses that are not
 * known yet. */
int model_expect(struct pump_model *m, uint32_t stream,
                 const struct pump_model_extent *extents, uint32_t count, uint32_t spare);
/* Notes of the operation that was expected last by what it is recognised when it is issued,
 * and whether it will reach what does not exist yet. */
void model_expect_known(struct pump_model *m, const struct pump_predicted *next);
/* An operation is about to be added that reaches these extents. True if it is the one that
 * was predicted. */
bool model_learn_operation(struct pump_model *m, const struct pump_batch *batch,
                           uint32_t row, const struct pump_model_extent *extents,
                           uint32_t count);
void model_learn_range(struct pump_model *m, uint32_t slot, bool gone);
void model_learn_shape(struct pump_model *m, uint64_t signature,
                       const struct pump_params *head);
void model_learn_loss(struct pump_model *m);
/* The learner's share of confident predictions, lately; 0 without a learner. */
double model_confidence(const struct pump_model *m);

#endif
