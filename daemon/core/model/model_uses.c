/* model_uses.c - the window's tables: operations and the blocks that they use, issued and
 * expected alike. See the DESIGN of model_blocks.c.
 *
 * Discards. A use is *fresh* if its block was discarded since the previous use. The
 * previous use then frees one block of memory (`frees_blocks`), and the fresh use
 * allocates it again (`allocates_blocks`). Both count until the fresh use is the first of
 * its chain. From then on the block's state shows the discard.
 */
#include "model_state.h"

/* Most steps in which an operation's runs of blocks are interleaved [guessed]. */
#define STEPS_MAX 64
/* Blocks of each run that are prefetched into the CPU cache [guessed]. */
#define FETCH_RUN 16

/* ---- free memory ----------------------------------------------------------------- */

void model_count_freed_block(struct pump_model *m, int32_t use) {
  if (m->window.uses[use].flags & USE_FREES) return;
  m->window.uses[use].flags |= USE_FREES;
  m->window.frees_blocks[m->window.uses[use].op]++;
}

static void count_allocation(struct pump_model *m, int32_t use) {
  m->window.allocates_blocks[m->window.uses[use].op]++;
  model_count_freed_block(m, m->window.uses[use].prev);
}

static void uncount_allocation(struct pump_model *m, int32_t use) {
  struct use *before = &m->window.uses[m->window.uses[use].prev];
  m->window.allocates_blocks[m->window.uses[use].op]--;
  if (before->flags & USE_ENDS) return; /* a reported discard happens anyway */
  before->flags &= (uint8_t)~USE_FREES;
  m->window.frees_blocks[before->op]--;
}

/* ---- next needs ------------------------------------------------------------------- */

static void count_again(struct pump_model *m, uint32_t op, int64_t seq) {
  if (seq > m->window.again_seq[op]) {
    m->window.again_seq[op] = seq;
    m->window.again[op] = 0;
  }
  m->window.again[op] += seq == m->window.again_seq[op];
}

static void recount(struct pump_model *m, uint32_t op) {
  m->window.again_seq[op] = m->window.again[op] = 0;
  for (uint32_t i = 0; i < m->window.ops[op].uses; i++) {
    const struct use *use =
        &m->window.uses[use_index((int64_t)m->window.ops[op].first_use + i)];
    if (use->block == NONE || use->next == NONE) continue;
    if (m->window.uses[use->next].flags & USE_FRESH) continue;
    count_again(m, op, (int64_t)m->window.ops[m->window.uses[use->next].op].seq);
  }
}

void model_linked(struct pump_model *m, int32_t use) {
  uint32_t before = m->window.uses[m->window.uses[use].prev].op;
  if (m->window.uses[use].flags & USE_FRESH)
    count_allocation(m, use);
  else
    count_again(m, before, (int64_t)m->window.ops[m->window.uses[use].op].seq);
}

void model_unlink(struct pump_model *m, int32_t use) {
  int32_t prev = m->window.uses[use].prev;
  uint32_t before = m->window.uses[prev].op;
  m->window.uses[prev].next = NONE;
  if (m->window.uses[use].flags & USE_FRESH)
    uncount_allocation(m, use);
  else if (m->window.again_seq[before] ==
               (int64_t)m->window.ops[m->window.uses[use].op].seq &&
           --m->window.again[before] == 0)
    recount(m, before);
}

/* ---- chains ------------------------------------------------------------------------ */

bool model_advance_chain(struct pump_model *m, int32_t block) {
  struct block *b = &m->blocks.all[block];
  int32_t use = b->first, next;
  bool ended;
  do {
    next = m->window.uses[use].next;
    ended = (m->window.uses[use].flags & USE_ENDS) != 0;
    if (next != NONE && (m->window.uses[next].flags & USE_FRESH))
      uncount_allocation(m, next);
    if (ended)
      m->window.frees_blocks[m->window.uses[use].op]--; /* now in the block's state */
    if (use == b->issued) b->issued = NONE;
    use = next;
  } while (use != NONE && m->window.ops[m->window.uses[use].op].executed);
  b->first = use;
  if (use == NONE) {
    b->last = NONE;
    b->next_use = PUMP_NOT_NEEDED;
  } else {
    b->next_use = (int64_t)m->window.ops[m->window.uses[use].op].seq;
  }
  return ended;
}

void model_used_up(struct pump_model *m, int32_t block, uint64_t seq) {
  struct block *b = &m->blocks.all[block];
  while (b->first != NONE && !model_is_expected(m, b->first) &&
         b->next_use <= (int64_t)seq) {
    int32_t use = b->first;
    model_advance_chain(m, block);
    m->window.uses[use].block = NONE;
  }
  model_relist(m, block);
}

void model_drop_chain(struct pump_model *m, int32_t block) {
  struct block *b = &m->blocks.all[block];
  for (int32_t use = b->first, next; use != NONE; use = next) {
    next = m->window.uses[use].next;
    if (use != b->first) model_unlink(m, use);
    if (m->window.uses[use].flags & USE_ENDS)
      m->window.frees_blocks[m->window.uses[use].op]--;
    m->window.uses[use].block = NONE;
    m->window.ops[m->window.uses[use].op].access_hash = 0; /* matches no operation */
  }
  b->first = b->last = b->issued = NONE;
  b->next_use = PUMP_NOT_NEEDED;
}

/* ---- operations -------------------------------------------------------------------- */

struct op *model_op_begin(struct pump_model *m, uint64_t seq, uint32_t stream) {
  uint32_t index = op_index(m->window.op_head++);
  struct op *op = &m->window.ops[index];
  *op = (struct op){.seq = seq,
                    .first_use = use_index(m->window.use_head),
                    .next = NONE,
                    .stream = stream};
  m->window.can_leave[index >> 6] &= ~(1ull << (index & 63));
  m->window.misses[index >> 6] &= ~(1ull << (index & 63));
  m->window.away[index] = m->window.allocates_blocks[index] =
      m->window.frees_blocks[index] = m->window.again[index] = 0;
  m->window.again_seq[index] = 0;
  m->window.op_device[index] = 0;
  return op;
}

uint64_t model_access_hash(uint32_t stream, const struct model_run *runs, uint32_t count) {
  uint64_t access_hash = stream + 1ull;
  for (uint32_t i = 0; i < count; i++) {
    uint64_t run = (uint64_t)(uint32_t)runs[i].first << 32 | (uint32_t)runs[i].count;
    access_hash = (access_hash ^ run) * 0x9e3779b97f4a7c15u;
    access_hash ^= access_hash >> 29;
  }
  return access_hash;
}

/* An operation's uses while they are added to the ring. */
struct filling {
  uint32_t op;
  bool issued, reuses; /* reuses: the operation's own slots, up to `end` */
  int64_t slot, end;
  bool (*lose)(struct pump_model *m);
};

/* Links the use into its block's chain: after the issued uses, or at the end. */
static void add_use(struct pump_model *m, const struct filling *filling, int32_t use,
                    int32_t block, bool fresh) {
  struct block *b = &m->blocks.all[block];
  const struct op *op = &m->window.ops[filling->op];
  int32_t before = filling->issued ? b->issued : b->last;
  int32_t next = before == NONE ? b->first : m->window.uses[before].next;
  if (next != NONE && before != NONE) model_unlink(m, next);
  m->window.uses[use] = (struct use){.block = block,
                                     .next = next,
                                     .prev = before,
                                     .op = (uint16_t)filling->op,
                                     .flags = fresh ? USE_FRESH : 0};
  if (before != NONE) {
    m->window.uses[before].next = use;
    model_linked(m, use);
  }
  if (next != NONE) {
    m->window.uses[next].prev = use;
    model_linked(m, next);
  } else {
    b->last = use;
  }
  if (filling->issued) {
    b->issued = use;
    b->last_use = (int64_t)op->seq;
    b->dead = b->discarded = b->discard_pending = false;
  }
  if (before != NONE) return;
  b->first = use;
  b->next_use = (int64_t)op->seq;
  model_relist(m, block);
}

/* Unlinks the use from its block's chain. */
static void remove_use(struct pump_model *m, int32_t use) {
  int32_t block = m->window.uses[use].block;
  if (block == NONE) return;
  struct block *b = &m->blocks.all[block];
  int32_t before = b->first == use ? NONE : m->window.uses[use].prev,
          next = m->window.uses[use].next;
  if (next != NONE) model_unlink(m, next);
  if (before != NONE) model_unlink(m, use);
  m->window.uses[use].block = NONE;
  if (next == NONE)
    b->last = before;
  else
    m->window.uses[next].prev = before;
  if (before != NONE) {
    m->window.uses[before].next = next;
    if (next != NONE) model_linked(m, next);
    return;
  }
  b->first = next;
  b->next_use =
      next == NONE ? PUMP_NOT_NEEDED : (int64_t)m->window.ops[m->window.uses[next].op].seq;
  model_relist(m, block);
}

/* Returns a slot for a use, or NONE. */
static int32_t take_slot(struct pump_model *m, struct filling *filling) {
  if (filling->reuses)
    return filling->slot < filling->end ? use_index(filling->slot++) : NONE;
  while (m->window.use_head - m->window.use_tail >= USES)
    if (filling->lose == NULL || !filling->lose(m)) return NONE;
  m->window.ops[filling->op].uses++;
  return use_index(m->window.use_head++);
}

/* Adds the uses of blocks [from, to) of the run. Returns false if no slot is left. */
static bool add_part(struct pump_model *m, struct filling *filling,
                     const struct model_run *run, int32_t from, int32_t to) {
  for (int32_t i = from; i < to; i++) {
    int32_t block = run->first + i;
    const struct block *b = &m->blocks.all[block];
    if (block + 1 < m->ranges.block_end && b[1].last != NONE)
      __builtin_prefetch(&m->window.uses[b[1].last], 1);
    if (b->state == PUMP_BLOCK_FREE) continue;
    int32_t before = filling->issued ? b->issued : b->last;
    /* The operation has a use of this block already. */
    if (before != NONE && m->window.uses[before].op == filling->op) continue;
    int32_t use = take_slot(m, filling);
    if (use == NONE) return false;
    bool fresh = b->discarded;
    if (filling->issued && b->goes) m->schedules.deviations++;
    if (!filling->issued) {
      uint32_t what = PUMP_FRESH;
      if (i == 0) what = PUMP_FRESH_FIRST;
      if (i == run->count - 1) what = PUMP_FRESH_LAST;
      fresh = (run->fresh & what) != 0;
    }
    add_use(m, filling, use, block, fresh);
  }
  return true;
}

bool model_is_share(const struct pump_model *m, uint32_t index, int64_t blocks,
                    int64_t percent) {
  const struct device *device = &m->devices[m->window.op_device[index]];
  return device->known && blocks > device->facts.budget * percent / 100;
}

static void note_larger(struct pump_model *m, const struct filling *filling,
                        const struct model_run *run) {
  uint32_t index = filling->op;
  struct op *op = &m->window.ops[index];
  int64_t uses = filling->reuses ? filling->slot - op->first_use : op->uses;
  m->window.op_device[index] = m->blocks.all[run->first].device;
  op->larger = model_is_share(m, index, uses, LARGER_PERCENT);
}

static void fill(struct pump_model *m, struct filling *filling,
                 const struct model_run *runs, uint32_t count) {
  int32_t longest = 0;
  for (uint32_t i = 0; i < count; i++)
    if (runs[i].count > longest) longest = runs[i].count;
  int32_t slice = (int32_t)m->bounds.slice_least;
  int32_t steps = (longest + slice - 1) / slice;
  for (uint32_t i = 0; i < count; i++)
    for (int32_t b = 0; b < runs[i].count && b < FETCH_RUN; b++)
      __builtin_prefetch(&m->blocks.all[runs[i].first + b], 1);
  if (steps > STEPS_MAX) steps = STEPS_MAX;
  for (int64_t step = 0; step < steps; step++) {
    for (uint32_t i = 0; i < count; i++) {
      int32_t from = (int32_t)(runs[i].count * step / steps);
      int32_t to = (int32_t)(runs[i].count * (step + 1) / steps);
      if (to > from && !model_is_in_place(m, &runs[i]) &&
          !add_part(m, filling, &runs[i], from, to))
        return;
    }
  }
  for (uint32_t i = 0; i < count; i++)
    m->window.ops[filling->op].in_place |= model_is_in_place(m, &runs[i]);
  if (count > 0) note_larger(m, filling, &runs[0]);
}

void model_op_uses(struct pump_model *m, const struct model_run *runs, uint32_t count,
                   bool (*lose)(struct pump_model *m)) {
  struct filling filling = {.op = op_index(m->window.op_head - 1),
                            .issued = m->window.op_issued == m->window.op_head,
                            .lose = lose};
  fill(m, &filling, runs, count);
}

bool model_op_replace(struct pump_model *m, const struct model_run *runs, uint32_t count) {
  uint32_t index = op_index(m->window.op_issued);
  const struct op *op = &m->window.ops[index];
  int64_t first = op->first_use, needed = 0;
  for (uint32_t i = 0; i < count; i++)
    if (!model_is_in_place(m, &runs[i])) needed += runs[i].count;
  if (needed > op->uses) return false;
  for (uint32_t i = 0; i < op->uses; i++) remove_use(m, use_index(first + i));
  struct filling filling = {
      .op = index, .issued = true, .reuses = true, .slot = first, .end = first + op->uses};
  fill(m, &filling, runs, count);
  return true;
}

void model_op_reserve(struct pump_model *m, uint32_t slots) {
  struct op *op = &m->window.ops[op_index(m->window.op_head - 1)];
  for (; slots > 0 && m->window.use_head - m->window.use_tail < USES; slots--, op->uses++)
    m->window.uses[use_index(m->window.use_head++)] =
        (struct use){.block = NONE, .next = NONE};
}
