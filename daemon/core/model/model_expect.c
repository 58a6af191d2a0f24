/* model_expect.c - operations that are expected after the issued ones.
 *
 * They share the window's ring and chains, so every walk over the window includes them:
 * for missing blocks, for the block needed last, for memory that discards free. Only
 * streams do not list them, because an operation retires only after it was issued. The
 * next issued operation replaces the first expected one if both use the same blocks on
 * the same stream under the same number. If it was predicted and only reaches other
 * blocks, its uses are replaced: tensors move. Otherwise all expected operations are
 * dropped, which leaves the window as if nothing had been expected.
 */
#include <errno.h>

#include "model_state.h"
#include "pump_ring.h"

/* Expects an operation, with `spare` more slots for uses than its known accesses need. */
static bool expect(struct pump_model *m, uint32_t stream,
                   const struct pump_access *accesses, uint32_t count, uint64_t spare) {
  struct model_run runs[PUMP_MAX_EXTENTS];
  uint32_t found = 0;
  int64_t most = (int64_t)spare;
  if (stream >= PUMP_MAX_STREAMS || spare > USES) return false;
  for (uint32_t i = 0; i < count && found < PUMP_MAX_EXTENTS; i++) {
    struct pump_access access = accesses[i];
    if (access.missing == 0 && model_run_of(m, &access, &runs[found]))
      most += runs[found++].count;
  }
  if (m->window.op_head - m->window.op_tail >= OPS ||
      m->window.use_head - m->window.use_tail + most > USES)
    return false;
  uint64_t seq =
      m->window.added_seq + (uint64_t)(m->window.op_head - m->window.op_issued) + 1;
  struct op *op = model_op_begin(m, seq, stream);
  op->access_hash = model_access_hash(stream, runs, found);
  op->rank = m->streams.all[stream].issued + m->streams.all[stream].expected++;
  model_op_uses(m, runs, found, NULL);
  model_op_reserve(m, (uint32_t)most - op->uses);
  return true;
}

/* Accesses to missing ranges only reserve slots, because only their length is known. Each
 * access has one spare slot, because it may begin at another offset in its first block. */
bool model_expect(struct pump_model *m, const struct pump_predicted *next) {
  uint64_t spare = next->count;
  for (uint32_t i = 0; i < next->count; i++)
    if (next->accesses[i].missing != 0)
      spare += next->accesses[i].length_bytes / PUMP_BLOCK_BYTES + 1;
  if (!expect(m, next->stream, next->accesses, next->count, spare)) return false;
  uint32_t index = op_index(m->window.op_head - 1);
  struct op *op = &m->window.ops[index];
  op->partial = next->missing != 0;
  m->expected.partial += op->partial;
  m->expected.predictions[index] = (struct pump_prediction){
      .signature = pump_prediction_word(op->seq, op->stream, next->kind, next->signature),
      .shape = pump_prediction_word(op->seq, op->stream, next->kind, next->key)};
  return true;
}

EXPORT int pump_model_expect(struct pump_model *m, uint32_t stream,
                             const struct pump_access *accesses, uint32_t count) {
  return expect(m, stream, accesses, count, 0) ? 0 : -ENOSPC;
}

/* Corrects USE_FRESH when the operation is issued. Only then is it known whether the block
 * was discarded before. */
static void correct_freshness(struct pump_model *m, int32_t use, bool fresh) {
  if (((m->window.uses[use].flags & USE_FRESH) != 0) == fresh) return;
  bool linked = m->blocks.all[m->window.uses[use].block].first != use;
  if (linked) model_unlink(m, use);
  m->window.uses[use].flags ^= USE_FRESH;
  if (!linked) return;
  m->window.uses[m->window.uses[use].prev].next = use;
  model_linked(m, use);
}

void model_adopt(struct pump_model *m) {
  struct op *op = &m->window.ops[op_index(m->window.op_issued++)];
  m->expected.partial -= op->partial;
  op->partial = false;
  m->streams.all[op->stream].expected--;
  for (uint32_t i = 0; i < op->uses; i++) {
    int32_t use = use_index((int64_t)op->first_use + i), block = m->window.uses[use].block;
    if (block == NONE) continue;
    struct block *b = &m->blocks.all[block];
    if (b->issued == use) continue; /* replaced when it was issued */
    correct_freshness(m, use, b->discarded);
    b->issued = use;
    b->last_use = (int64_t)op->seq;
    b->dead = b->discarded = b->discard_pending = false;
    if (b->need == NEED_DISCARD_PENDING) model_relist(m, block);
  }
}

/* Cuts the block's chain at its first expected use. Later uses need no work, because all
 * expected operations are dropped. */
static void drop_expected(struct pump_model *m, int32_t use) {
  int32_t block = m->window.uses[use].block;
  if (block == NONE) return;
  struct block *b = &m->blocks.all[block];
  if (b->first == use) {
    b->first = b->last = NONE;
    b->next_use = PUMP_NOT_NEEDED;
    model_relist(m, block);
  } else if (!model_is_expected(m, m->window.uses[use].prev)) {
    b->last = m->window.uses[use].prev;
    model_unlink(m, use);
  }
}

EXPORT void pump_model_expect_nothing(struct pump_model *m) {
  m->totals.predictions_lost += m->window.op_head > m->window.op_issued;
  if (m->window.op_head > m->window.op_issued) model_deviate(m);
  m->expected.sent_seq = 0;
  for (int64_t at = m->window.op_head - 1; at >= m->window.op_issued; at--) {
    struct op *op = &m->window.ops[op_index(at)];
    for (uint32_t i = 0; i < op->uses; i++)
      drop_expected(m, use_index(--m->window.use_head));
    m->streams.all[op->stream].expected--;
    m->expected.partial -= op->partial;
  }
  m->window.op_head = m->window.op_issued;
}
