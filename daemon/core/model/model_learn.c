/* model_learn.c - feeds the learner (learner.h) and expects the predicted operations.
 *
 * The learner gets every operation, range and loss. Confident predictions become expected
 * operations, up to HORIZON_PERIODS iterations ahead. A single iteration would not show
 * when the memory that it takes becomes free again. A wrong prediction drops all expected
 * operations.
 */
#include <errno.h>

#include "model_state.h"

/* Operations of the learner's history: the longest cycle whose branches it predicts
 * [guessed]. */
#define REMEMBERED (1u << 17)
/* Iterations ahead that are expected. A single one would not show when its memory becomes
 * free again [derived]. */
#define HORIZON_PERIODS 2

EXPORT int pump_model_learn(struct pump_model *m, uint32_t wanted) {
  if ((wanted != 0) == (m->expected.learner != NULL)) return 0;
  pump_model_expect_nothing(m);
  pump_learner_delete(m->expected.learner);
  m->expected.learner = NULL;
  if (wanted == 0) return 0;
  m->expected.learner = pump_learner_new(REMEMBERED);
  if (m->expected.learner == NULL) return -ENOMEM;
  /* The log is optional. */
  if (wanted == PUMP_LEARN_AND_KEEP) pump_learner_keep(m->expected.learner);
  for (uint32_t slot = 0; slot < PUMP_MAX_RANGES; slot++)
    if (m->ranges.all[slot].first_block != NONE) model_learn_range(m, slot, false);
  return 0;
}

EXPORT void pump_model_kept(const struct pump_model *m,
                            struct pump_learner_log *event_log) {
  *event_log = (struct pump_learner_log){0};
  if (m->expected.learner != NULL) pump_learner_kept(m->expected.learner, event_log);
}

EXPORT int pump_model_recall(struct pump_model *m,
                             const struct pump_learner_log *event_log) {
  if (m->expected.learner == NULL) return 0;
  struct pump_learner *learner = pump_learner_new(REMEMBERED);
  if (learner == NULL) return -ENOMEM;
  pump_model_expect_nothing(m);
  pump_learner_recall(learner, event_log);
  pump_learner_take_over(learner, m->expected.learner);
  pump_learner_delete(m->expected.learner);
  m->expected.learner = learner;
  return 0;
}

EXPORT void pump_model_schedule(struct pump_model *m, uint32_t arrivals) {
  m->schedules.arrivals = arrivals != 0;
  model_deviate(m);
}

/* ---- input of the learner ---------------------------------------------------------- */

bool model_learn_operation(struct pump_model *m, const struct pump_operation *op) {
  if (m->expected.learner == NULL) return false;
  int result = pump_learner_see(m->expected.learner, op);
  if (result == PUMP_LEARNER_DEVIATED) pump_model_expect_nothing(m);
  return result == PUMP_LEARNER_CONFIRMED;
}

void model_learn_range(struct pump_model *m, uint32_t slot, bool gone) {
  const struct range *range = &m->ranges.all[slot];
  if (m->expected.learner == NULL) return;
  if (gone)
    pump_learner_free(m->expected.learner, slot, range->generation);
  else
    pump_learner_alloc(m->expected.learner, slot, range->generation, range->length_bytes);
}

void model_learn_loss(struct pump_model *m) {
  pump_model_expect_nothing(m);
  if (m->expected.learner != NULL) pump_learner_lost(m->expected.learner);
}

/* ---- expected operations ----------------------------------------------------------- */

double model_confidence(const struct pump_model *m) {
  struct pump_learner_report report;
  if (m->expected.learner == NULL) return 0;
  pump_learner_report(m->expected.learner, &report);
  return report.confidence;
}

static uint32_t horizon(const struct pump_model *m) {
  struct pump_learner_report report;
  pump_learner_report(m->expected.learner, &report);
  uint64_t most = report.period != 0 ? HORIZON_PERIODS * report.period : OPS;
  return most < OPS ? (uint32_t)most : OPS;
}

/* Expects the operation predicted after `index` others. */
static bool expect_next(struct pump_model *m, uint32_t index) {
  struct pump_predicted next;
  return pump_learner_next(m->expected.learner, index, &next) == 0 &&
         model_expect(m, &next);
}

EXPORT uint32_t pump_model_predict(struct pump_model *m, uint32_t most) {
  uint32_t added = 0, expected = (uint32_t)(m->window.op_head - m->window.op_issued);
  if (m->expected.learner == NULL) return 0;
  if (m->window.args_truncated_seq != 0 &&
      m->window.added_seq - m->window.args_truncated_seq < horizon(m))
    return 0;
  uint32_t ahead = pump_learner_ahead(m->expected.learner, horizon(m));
  while (added < most && expected < ahead && expect_next(m, expected)) {
    added++;
    expected++;
  }
  return added;
}
