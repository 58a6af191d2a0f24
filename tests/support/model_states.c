/* model_states.c - sets the state of blocks of a model, for tests (model_states.py). */
#include "daemon/core/model/model_state.h"

EXPORT void set_states(struct pump_model *m, const int64_t *blocks, uint32_t count,
                       uint32_t state) {
  model_deviate(m);
  for (uint32_t i = 0; i < count; i++) model_set_state(m, (int32_t)blocks[i], state);
}
