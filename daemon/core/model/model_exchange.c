/* model_exchange.c - blocks that change places although room would come by itself.
 *
 * Where something is missing, room for it will come back in time, and nothing is under way,
 * policy `planned` holds back: whoever left for it now would only have to come again. How
 * long an operation takes nobody knows here. So it may be that room comes back so late that
 * the GPU waits while what was held back crosses the link. That can be seen: an operation
 * is the next to run and waits for what had been held back. Then blocks may be exchanged,
 * what is needed last for what is missing first, while nothing is under way: twice as many
 * as it waits for. It may have waited only because a plan was new; so many does no harm.
 * Where operations go on waiting it is twice as many again each time, up to 64 times.
 *
 * Where a link is busy anyway more bytes make it worse. There nothing is under way only for
 * moments, so no block is exchanged before an operation waits again. Then the next waits
 * are passed over, twice as many each time.
 */
#include "model_state.h"

#define EXCHANGED_MOST 2048
#define TIMES_FIRST 2u
#define TIMES_DOUBLINGS 5
#define PASSED_OVER_DOUBLINGS 20

/* How many of the device's blocks the operation waits for. */
static uint32_t waits_for(const struct pump_model *m, const struct op *op,
                          uint32_t device) {
  uint32_t missing = 0;
  for (uint32_t i = 0; i < op->uses; i++) {
    int32_t block = m->uses[use_index((int64_t)op->first_use + i)].block;
    if (block == NONE || m->blocks[block].device != device) continue;
    uint8_t state = m->blocks[block].state;
    missing += state == PUMP_BLOCK_HOST || state == PUMP_BLOCK_ARRIVING;
  }
  return missing;
}

static void grant(struct exchange *exchange, uint32_t missing) {
  if (exchange->left == 0) exchange->used = false;
  exchange->left += (TIMES_FIRST << exchange->grants) * missing;
  if (exchange->left > EXCHANGED_MOST) exchange->left = EXCHANGED_MOST;
  if (exchange->grants < TIMES_DOUBLINGS) exchange->grants++;
}

static void waited(struct exchange *exchange, uint32_t missing) {
  if (exchange->left > 0 && !exchange->used) {
    exchange->left = exchange->grants = 0;
    if (exchange->vain < PASSED_OVER_DOUBLINGS) exchange->vain++;
    exchange->pass_over = 1u << exchange->vain;
  } else if (exchange->left == 0 && exchange->pass_over > 0) {
    exchange->pass_over--;
  } else {
    grant(exchange, missing);
  }
}

void model_exchange_waits(struct pump_model *m, uint32_t device) {
  struct exchange *exchange = &m->devices[device].exchange;
  if (m->op_tail >= m->op_issued) return;
  const struct op *op = &m->ops[op_index(m->op_tail)];
  int64_t seq = (int64_t)op->seq;
  if (seq < exchange->first || seq > exchange->last || seq == exchange->waited) return;
  uint32_t missing = waits_for(m, op, device);
  if (missing == 0) return;
  exchange->waited = seq;
  waited(exchange, missing);
}

/* The operations whose blocks are held back: as many blocks as may be in flight. */
uint32_t model_exchange_look(struct pump_model *m, uint32_t device,
                             const struct pump_view *view) {
  struct exchange *exchange = &m->devices[device].exchange;
  int64_t free = view->budget - view->resident - view->arriving - view->leaving;
  exchange->held = view->expected > 0 && view->arrivals_count > 0 && free <= 0 &&
                   view->arriving + view->leaving == 0 && view->shortfalls_count == 0 &&
                   view->surplus == 0;
  if (!exchange->held) return 0;
  uint32_t count = view->arrivals_count;
  if (count > m->bounds.in_flight) count = m->bounds.in_flight;
  int64_t first = view->arrivals_need[0], last = view->arrivals_need[count - 1];
  if (first > exchange->last) exchange->first = first;
  if (last > exchange->last) exchange->last = last;
  return (uint32_t)exchange->left;
}

void model_exchange_left(struct device *device, uint32_t blocks) {
  struct exchange *exchange = &device->exchange;
  if (!exchange->held) return;
  exchange->left -= blocks < exchange->left ? blocks : exchange->left;
  exchange->used = true;
}
