/* model_walk.c - finds operations and uses in the window: the next with missing blocks, the
 * last that is due, the first that is not ready. */
#include "model_state.h"

EXPORT int64_t model_next_set(const struct pump_model *m, const uint64_t *bits,
                              int64_t from) {
  while (from < m->window.op_head) {
    uint64_t at = (uint64_t)from & (OPS - 1);
    uint64_t word = bits[at >> 6] >> (at & 63);
    if (word != 0) {
      from += __builtin_ctzll(word);
      return from < m->window.op_head ? from : m->window.op_head;
    }
    from += 64 - (int64_t)(at & 63);
  }
  return m->window.op_head;
}

EXPORT int64_t model_previous_set(const struct pump_model *m, const uint64_t *bits,
                                  int64_t from) {
  while (from >= m->window.op_tail) {
    uint64_t at = (uint64_t)from & (OPS - 1);
    uint64_t word = bits[at >> 6] << (63 - (at & 63));
    if (word != 0) {
      from -= __builtin_clzll(word);
      return from >= m->window.op_tail ? from : m->window.op_tail - 1;
    }
    from -= (int64_t)(at & 63) + 1;
  }
  return m->window.op_tail - 1;
}

static bool is_there(const struct pump_model *m, int32_t use) {
  int32_t block = m->window.uses[use].block;
  if (block == NONE || (m->window.uses[use].flags & USE_FRESH)) return true;
  uint32_t state = m->blocks.all[block].state;
  return state == PUMP_BLOCK_RESIDENT || state == PUMP_BLOCK_MAYBE_EVICTED ||
         state == PUMP_BLOCK_DISCARDING;
}

uint64_t model_ready(struct pump_model *m, uint32_t device) {
  struct device *d = &m->devices[device];
  if (!m->schedules.arrivals) return UINT64_MAX;
  if (d->ready_at < m->window.op_tail) {
    d->ready_at = m->window.op_tail;
    d->ready_uses = 0;
  }
  for (; d->ready_at < m->window.op_issued; d->ready_at++, d->ready_uses = 0) {
    uint32_t i = op_index(d->ready_at);
    const struct op *op = &m->window.ops[i];
    if (op->executed || op->larger || m->window.op_device[i] != device) continue;
    for (; d->ready_uses < op->uses; d->ready_uses++)
      if (!is_there(m, use_index(op->first_use + (int64_t)d->ready_uses)))
        return op->seq - 1;
  }
  return m->window.added_seq;
}

EXPORT int64_t model_previous_due(const struct pump_model *m, uint32_t kind, int64_t begin,
                                  int64_t end) {
  while (end > begin) {
    uint32_t at = (uint32_t)use_index(end - 1);
    uint64_t word = model_due_word(m, kind, at) << (63 - (at & 63));
    if (word != 0) {
      end -= __builtin_clzll(word) + 1;
      return end >= begin ? end : begin - 1;
    }
    end -= (int64_t)(at & 63) + 1;
  }
  return begin - 1;
}

/* Faults fetch the missing blocks of an operation larger than the budget, and for each
 * the driver evicts the least recently migrated block. If this is the order in which the
 * operation reaches its blocks, each evicted block was used already. So the resident
 * blocks are prefetched again with the missing ones, in that order: each prefetch makes a
 * block the newest. */
EXPORT void pump_model_turn(struct pump_model *m, uint32_t index) {
  int64_t at = model_next_set(m, m->window.misses, m->window.op_tail);
  struct op *op = &m->window.ops[op_index(at)];
  index &= PUMP_MAX_DEVICES - 1;
  if (at == m->window.op_head || !op->larger || op->in_order) return;
  if (m->window.op_device[op_index(at)] != index) return;
  op->in_order = true;
  m->schedules.changes++;
  int64_t end = (int64_t)op->first_use + op->uses, use = op->first_use;
  for (; (use = model_next_due(m, DUE_SURE, use, end)) < end; use++) {
    int32_t block = m->window.uses[use_index(use)].block;
    if (m->blocks.all[block].device == index &&
        m->blocks.all[block].state == PUMP_BLOCK_RESIDENT)
      model_set_state(m, block, PUMP_BLOCK_MAYBE_EVICTED);
  }
}
