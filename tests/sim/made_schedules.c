/* made_schedules.c - hands each schedule, and the facts it was made from, to a test.
 *
 * Wraps the model's schedule_make (-Wl,--wrap=schedule_make). Making a schedule changes
 * nothing. So variants are made too: another budget, fewer known operations, ranges that
 * end within a block, no stream for discards. All data are rows of int64_t: see
 * compare_schedules.py. */
#include <string.h>

#include "daemon/core/schedule/schedule.h"

#define VARIANTS 5
#define ROWS (1u << 20)
#define PARTIAL_BYTES (1 << 16)

typedef void handed(const int64_t *head, const int64_t *ops, const int64_t *uses,
                    const int64_t *idle, const int64_t *entries);

static handed *hand_over;
static int64_t every = 1, seen;
static int64_t ops[OPS][7], uses[ROWS][7], idle[ROWS][4],
    entries[2 * PUMP_SCHEDULE_ENTRIES][9];

EXPORT void on_schedules(handed *to, int64_t each);
EXPORT void on_schedules(handed *to, int64_t each) {
  hand_over = to;
  every = each;
}

static int64_t bytes_of(const struct pump_model *m, int32_t block) {
  const struct range *range = &m->ranges.all[m->blocks.all[block].slot];
  return (int64_t)model_span(range, block, 1).length_bytes;
}

static int64_t due_of(const struct block *b, int32_t use) {
  return b->first == use && b->need >= NEED_DUE ? b->need - NEED_DUE : -1;
}

/* Returns the next known operation that uses the block; 0 if there is none, if it does
 * not need the contents (USE_FRESH), or if `op` has executed. */
static int64_t again_of(const struct pump_model *m, const struct op *op,
                        const struct use *use) {
  if (op->executed || use->next == NONE) return 0;
  const struct use *next = &m->window.uses[use->next];
  return next->flags & USE_FRESH ? 0 : (int64_t)m->window.ops[next->op].seq;
}

/* Lists the uses of an operation that are still in the chains of their blocks. */
static int64_t list_uses(const struct pump_model *m, int64_t at, int64_t found) {
  const struct op *op = &m->window.ops[op_index(at)];
  for (uint32_t i = 0; i < op->uses; i++) {
    int32_t number = use_index((int64_t)op->first_use + i);
    const struct use *use = &m->window.uses[number];
    if (use->block == NONE) continue;
    const struct block *b = &m->blocks.all[use->block];
    int32_t link = b->first;
    while (link != NONE && link != number) link = m->window.uses[link].next;
    if (link == NONE) continue;
    int64_t row[7] = {use->block,
                      due_of(b, number),
                      again_of(m, op, use),
                      b->slot,
                      bytes_of(m, use->block),
                      model_stays(m, b),
                      m->duplicates && b->clean};
    memcpy(uses[found++], row, sizeof row);
  }
  return found;
}

static int64_t list_entries(const struct schedule_lists *made) {
  int64_t found = 0;
  for (int64_t way = 0; way < PUMP_DIRECTIONS; way++)
    for (uint32_t i = 0; i < made->count[way]; i++) {
      const struct schedule_entry *one = &made->entries[way][i];
      int64_t row[9] = {way,
                        one->first_block,
                        one->blocks,
                        one->slot,
                        one->need,
                        (int64_t)one->after_seq,
                        one->after_seq == 0 ? 0 : one->after_stream,
                        (int64_t)one->left_bytes,
                        (int64_t)one->ended_bytes};
      memcpy(entries[found++], row, sizeof row);
    }
  return found;
}

static void pass_to_test(struct pump_model *m, uint32_t index, uint64_t until_seq,
                         const struct schedule_lists *made) {
  const struct device *device = &m->devices[index];
  const struct window *w = &m->window;
  int64_t op_count = 0, use_count = 0, idle_count = 0;
  for (int64_t at = w->op_tail; at < w->op_head; at++, op_count++) {
    const struct op *op = &w->ops[op_index(at)];
    uint32_t i = op_index(at);
    int64_t from = use_count;
    use_count = list_uses(m, at, use_count);
    int64_t row[7] = {(int64_t)op->seq,   op->stream,
                      use_count - from,   w->allocates_blocks[i],
                      w->frees_blocks[i], op->larger && !op->executed,
                      at >= w->op_issued};
    memcpy(ops[op_count], row, sizeof row);
  }
  for (int32_t b = model_next_idle(m, index, NONE); b != NONE;
       b = model_next_idle(m, index, b)) {
    int64_t row[4] = {b, m->blocks.all[b].slot, bytes_of(m, b),
                      m->duplicates && m->blocks.all[b].clean};
    memcpy(idle[idle_count++], row, sizeof row);
  }
  const int64_t *counts = device->counts;
  int64_t known = w->op_issued + (int64_t)(until_seq - w->added_seq) - w->op_tail;
  const int64_t head[] = {known,
                          op_count,
                          use_count,
                          idle_count,
                          list_entries(made),
                          device->facts.budget,
                          counts[PUMP_BLOCK_RESIDENT] + counts[PUMP_BLOCK_MAYBE_EVICTED],
                          counts[PUMP_BLOCK_ARRIVING],
                          counts[PUMP_BLOCK_LEAVING],
                          counts[PUMP_BLOCK_DISCARDING],
                          counts[PUMP_BLOCK_ABSENT] + counts[PUMP_BLOCK_HOST],
                          (int64_t)device->discarding_seq,
                          m->streams.discard_stream,
                          (int64_t)device->left_bytes,
                          (int64_t)device->leaving_bytes,
                          (int64_t)(device->ended_bytes + device->arriving_bytes),
                          model_slice(m, device, PUMP_TO_GPU),
                          model_slice(m, device, PUMP_TO_HOST),
                          made->short_of_ops};
  hand_over(head, ops[0], uses[0], idle[0], entries[0]);
}

void __real_schedule_make(struct pump_model *m, uint32_t device, uint64_t until_seq,
                          struct schedule_lists *out);
void __wrap_schedule_make(struct pump_model *m, uint32_t device, uint64_t until_seq,
                          struct schedule_lists *out);

static void lengthen(struct pump_model *m, int64_t by_bytes) {
  for (uint32_t i = 0; i < PUMP_MAX_RANGES; i++)
    if (m->ranges.all[i].first_block != NONE)
      m->ranges.all[i].length_bytes += (uint64_t)by_bytes;
}

static void hand_varied(struct pump_model *m, uint32_t device, uint64_t until_seq,
                        int64_t variant) {
  static const int64_t percent[VARIANTS] = {100, 60, 90, 140, 100};
  static struct schedule_lists made;
  int64_t *budget = &m->devices[device].facts.budget, right = *budget;
  uint32_t discard_stream = m->streams.discard_stream;
  if (variant == VARIANTS - 1) until_seq = m->window.added_seq;
  *budget = right * percent[variant] / 100;
  if (variant > 1) m->streams.discard_stream = 0; /* the operation's own */
  lengthen(m, -PARTIAL_BYTES * (variant & 1));
  __real_schedule_make(m, device, until_seq, &made);
  pass_to_test(m, device, until_seq, &made);
  lengthen(m, PARTIAL_BYTES * (variant & 1));
  m->streams.discard_stream = discard_stream;
  *budget = right;
}

void __wrap_schedule_make(struct pump_model *m, uint32_t device, uint64_t until_seq,
                          struct schedule_lists *out) {
  if (hand_over != NULL && seen++ % every == 0)
    hand_varied(m, device, until_seq, seen / every % VARIANTS);
  __real_schedule_make(m, device, until_seq, out);
}
