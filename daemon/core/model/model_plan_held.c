/* model_plan_held.c - transfers of a plan that is in force: held, given back, taken; and
 * how long the plan holds.
 */
#include "model_state.h"

#define LEAST_BLOCKS 64 /* 128 MiB */
#define RING_PLACES 256 /* transfers that are left for commands */

static void mark(struct pump_model *m, const struct transfer *transfer, bool planned) {
  for (int32_t i = 0; i < transfer->blocks; i++) {
    struct block *b = &m->blocks.all[transfer->first_block + i];
    if (transfer->direction == PUMP_TO_GPU)
      b->comes = planned;
    else
      b->goes = planned;
  }
}

uint32_t model_plan_hold(struct pump_model *m, uint32_t device, uint32_t way,
                         const struct model_planned *planned, uint32_t count,
                         uint16_t *places) {
  uint32_t held = 0;
  for (; held < count && m->transfers.unused_count > RING_PLACES; held++, planned++) {
    const struct range *range = &m->ranges.all[planned->slot];
    uint32_t place = m->transfers.unused[--m->transfers.unused_count];
    m->transfers.all[place] = (struct transfer){
        .ticket = model_ticket(m, place),
        .first_block = planned->first_block,
        .blocks = planned->blocks,
        .slot = planned->slot,
        .generation = range->generation,
        .bytes = model_span(range, planned->first_block, planned->blocks).length_bytes,
        .device = (uint8_t)device,
        .direction = (uint8_t)way,
        .expected = true,
        .planned = true};
    mark(m, &m->transfers.all[place], true);
    places[held] = (uint16_t)place;
  }
  m->plans.places += held;
  return held;
}

void model_plan_give_back(struct pump_model *m, uint32_t place) {
  mark(m, &m->transfers.all[place], false);
  m->transfers.all[place].ticket = 0;
  m->transfers.unused[m->transfers.unused_count++] = place;
  m->plans.places--;
}

void model_plan_taken(struct pump_model *m, uint32_t place) {
  struct transfer *transfer = &m->transfers.all[place];
  const struct range *range = &m->ranges.all[transfer->slot];
  struct device *device = &m->devices[transfer->device];
  bool to_gpu = transfer->direction == PUMP_TO_GPU;
  m->plans.places--;
  mark(m, transfer, false);
  /* Should it be refused, for a use that was not predicted, that is one behind these. */
  int64_t observed = (int64_t)m->totals.observed_seq;
  if (transfer->observed_seq > observed) transfer->observed_seq = observed;
  if (!to_gpu) device->leaving_bytes += transfer->bytes;
  if (!to_gpu) model_decision_invalidate(m);
  if (range->first_block == NONE || range->generation != transfer->generation) return;
  for (int32_t b = transfer->first_block; b < transfer->first_block + transfer->blocks;
       b++) {
    uint8_t state = m->blocks.all[b].state;
    bool there = state == PUMP_BLOCK_RESIDENT || state == PUMP_BLOCK_MAYBE_EVICTED;
    bool away = state == PUMP_BLOCK_HOST || state == PUMP_BLOCK_ABSENT;
    if (to_gpu && away && --device->allowance < 0) model_decision_drop(device);
    if (there || (to_gpu && away))
      model_set_state(m, b, to_gpu ? PUMP_BLOCK_ARRIVING : PUMP_BLOCK_LEAVING);
  }
}

/* What is left is enough: half of it, nine tenths of a schedule, and LEAST_BLOCKS; or no
 * entry is taken. A schedule is renewed sooner: no decision makes up for what it lacks. */
static bool is_enough(const struct pump_model *m, const struct plan *plan, uint32_t way) {
  int64_t enough = m->plans.alone ? plan->blocks[way] * 9 / 10 : plan->blocks[way] / 2;
  if (enough < LEAST_BLOCKS) enough = LEAST_BLOCKS;
  return plan->left[way] == plan->blocks[way] || plan->left[way] >= enough;
}

bool model_plan_holds(const struct pump_model *m, uint32_t index) {
  const struct plan *plan = &m->plans.all[index];
  if (!plan->in_force || plan->deviations != m->plans.deviations ||
      m->devices[index].faults != 0)
    return false;
  int64_t grown = m->window.op_head - plan->op_head;
  if (grown >= model_head_again(m) && (plan->short_of_ops || 2 * grown >= plan->known))
    return false;
  return is_enough(m, plan, PUMP_TO_HOST) && is_enough(m, plan, PUMP_TO_GPU);
}
