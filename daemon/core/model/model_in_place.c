/* model_in_place.c - decides which ranges kernels read on the host (docs/sparse.md).
 *
 * DESIGN. A kernel that reads few bytes of each page is faster if its pages stay on the
 * host. The driver maps them for the GPU under SET_ACCESSED_BY, and faults migrate nothing.
 * For dense memory this is slower, and each further read of a byte costs the link again.
 *
 * No property of a launch tells the two apart, so a trial decides. A range is a candidate
 * if operations lack much of it again and again. Executors set the advice for the whole
 * range. Its blocks then count as not needed: they neither arrive nor fault. The first
 * timed operation after that is the trial. Reads in place stay if it took at most half of
 * the least time in which its missing blocks could have arrived. They end when two
 * consecutive operations take longer than that time, and never return to the range. That
 * time excludes evictions, so trials err towards migration. One range is on trial at a
 * time: the verdict on its function saves trials of others.
 *
 * All trials together may cost TRIALS_PART of the run's time. A kernel of unknown kind is
 * assumed to read its memory READS times, one whose name tells of a gather once. What
 * slower operations lose is added, so the next trial comes later.
 */
#include "model_state.h"
#include "pump_assert.h"

/* Blocks that an operation must lack, and divisor of the range that it must lack, to be a
 * reason or a proof [guessed]. */
#define LACKS_BLOCKS 32
#define LACKS_PART 8
#define LARGE_LEAST 2  /* operations that lack as much before a trial [guessed] */
#define KEPT_TIMES 2   /* a trial must be this many times as fast as migration [guessed] */
#define SLOWER_LEAST 2 /* consecutive slower operations that end it [guessed] */
#define TRIALS_PART 50 /* trials cost at most 1 / TRIALS_PART of the time [guessed] */
#define SEEN_LATE_NS 2000000 /* an operation's end may be seen this late [guessed] */
/* A trial without proof, because little is missing, ends after so many operations and so
 * long. The verdict on the function decides [guessed]. */
#define TRIAL_LEAST 4
#define TRIAL_NS 100000000
#define READS 8 /* assumed reads of each byte by a kernel of unknown kind [guessed] */

EXPORT void pump_model_read_in_place(struct pump_model *m, uint32_t mode) {
  m->in_place.mode = mode;
}

static bool is_read(const struct range *range) {
  return range->in_place.state == IN_PLACE_TRIAL || range->in_place.state == IN_PLACE_KEPT;
}

bool model_is_in_place(const struct pump_model *m, const struct model_run *run) {
  return m->in_place.ranges != 0 && is_read(&m->ranges.all[m->blocks.all[run->first].slot]);
}

/* ---- the advice ------------------------------------------------------------------ */

static void count(struct pump_model *m, const struct range *range, bool read) {
  m->in_place.ranges += read ? 1 : UINT32_MAX;
  m->in_place.bytes += read ? range->length_bytes : 0 - range->length_bytes;
  if (m->in_place.bytes > m->in_place.bytes_peak)
    m->in_place.bytes_peak = m->in_place.bytes;
}

static uint32_t is_on_trial(const struct range *range) {
  return range->in_place.state == IN_PLACE_TRIAL;
}

/* Makes issued operations read the range in place, too. */
static void drop_uses(struct pump_model *m, const struct range *range) {
  for (int32_t i = range->first_block; i < range->first_block + range->blocks; i++) {
    for (int32_t use = m->blocks.all[i].first; use != NONE; use = m->window.uses[use].next)
      m->window.ops[m->window.uses[use].op].in_place = true;
    model_drop_chain(m, i);
    model_duplicate_dropped(m, i);
    model_relist(m, i);
  }
}

static void set_state(struct pump_model *m, struct range *range, uint32_t state) {
  bool before = is_read(range);
  m->in_place.on_trial -= is_on_trial(range);
  range->in_place.state = (uint8_t)state;
  m->in_place.on_trial += is_on_trial(range);
  if (m->timing != NULL) range->in_place.since_ns = m->timing->now_ns;
  if (is_read(range) != before) count(m, range, !before);
  /* Expected operations need other blocks now, and the schedule has other entries. */
  if (is_read(range) != before) pump_model_expect_nothing(m);
  if (is_read(range) && !before) drop_uses(m, range);
  model_deviate(m);
}

static void change_advice(struct pump_model *m, uint32_t slot, uint32_t state) {
  struct range *range = &m->ranges.all[slot];
  range->in_place.asked = range->in_place.answered = 0;
  range->in_place.failed = false;
  m->in_place.changing = slot + 1;
  set_state(m, range, state);
}

int32_t model_in_place_take(struct pump_model *m, uint32_t device, int32_t most,
                            uint32_t *slot, int32_t *first_block) {
  if (m->in_place.changing == 0) return 0;
  struct range *range = &m->ranges.all[m->in_place.changing - 1];
  int32_t blocks = range->blocks - range->in_place.asked;
  if (range->device != device || blocks == 0) return 0;
  if (blocks > most) blocks = most;
  *slot = m->in_place.changing - 1;
  *first_block = range->first_block + range->in_place.asked;
  range->in_place.asked += blocks;
  return blocks;
}

void model_in_place_put_back(struct pump_model *m, uint32_t slot, int32_t blocks) {
  m->ranges.all[slot].in_place.asked -= blocks;
}

uint32_t model_in_place_advice(const struct pump_model *m, uint32_t slot) {
  return m->ranges.all[slot].in_place.state == IN_PLACE_ASKED ? PUMP_ADVICE_IN_PLACE
                                                              : PUMP_ADVICE_MIGRATE;
}

/* Ends a change of advice whose last block was answered. */
static void end_change(struct pump_model *m, uint32_t slot) {
  struct range *range = &m->ranges.all[slot];
  m->in_place.changing = 0;
  if (range->in_place.state == IN_PLACE_ENDING)
    set_state(m, range, IN_PLACE_NEVER);
  else if (range->in_place.failed)
    change_advice(m, slot, IN_PLACE_ENDING);
  else
    set_state(m, range,
              m->in_place.mode == PUMP_IN_PLACE_AUTO ? IN_PLACE_TRIAL : IN_PLACE_KEPT);
}

void model_in_place_answered(struct pump_model *m, uint32_t slot, int32_t blocks,
                             bool done) {
  struct range *range = &m->ranges.all[slot];
  PUMP_ASSERT(m->in_place.changing == slot + 1 &&
                  range->in_place.answered + blocks <= range->in_place.asked,
              "executors answer for the range whose advice changes");
  range->in_place.answered += blocks;
  range->in_place.failed |= !done;
  if (range->in_place.answered == range->blocks) end_change(m, slot);
}

void model_in_place_gone(struct pump_model *m, uint32_t slot) {
  struct range *range = &m->ranges.all[slot];
  if (is_read(range)) count(m, range, false);
  m->in_place.on_trial -= is_on_trial(range);
  range->in_place.state = IN_PLACE_NO;
  if (m->in_place.changing == slot + 1) m->in_place.changing = 0;
}

/* Returns the range's blocks to migration for good. */
static void end(struct pump_model *m, uint32_t slot) {
  if (m->in_place.changing == 0) change_advice(m, slot, IN_PLACE_ENDING);
}

void model_in_place_freed(struct pump_model *m, uint32_t slot) {
  if (is_read(&m->ranges.all[slot])) end(m, slot);
}

/* ---- reasons --------------------------------------------------------------------- */

/* Returns how many of the run's blocks are certainly on the host. */
static int64_t missing_blocks(const struct pump_model *m, const struct model_run *run) {
  int64_t missing = 0;
  for (int32_t i = 0; i < run->count; i++)
    missing += m->blocks.all[run->first + i].state == PUMP_BLOCK_HOST;
  return missing;
}

static bool is_much(const struct range *range, int64_t missing) {
  return missing >= LACKS_BLOCKS && missing >= range->blocks / LACKS_PART;
}

/* Returns the least time in which so many blocks arrive; 0: unknown. */
static uint64_t arrival_ns(struct pump_model *m, uint32_t device, int64_t blocks) {
  int64_t block_us = m->devices[device].block_us[PUMP_TO_GPU];
  int64_t *least = &m->in_place.block_us[device];
  if (*least == 0 || block_us < *least) *least = block_us;
  return (uint64_t)blocks * (uint64_t)*least * 1000 >> 8;
}

/* Returns whether the advice would have its effect on all blocks of the range. A first
 * touch populates on the GPU, a discarded block gets no mapping, a dead one may get another
 * use. */
static bool is_suitable(const struct pump_model *m, const struct range *range) {
  for (int32_t i = 0; i < range->blocks; i++) {
    const struct block *b = &m->blocks.all[range->first_block + i];
    if (b->state == PUMP_BLOCK_ABSENT || b->state == PUMP_BLOCK_DISCARDING || b->dead ||
        b->discarded || b->discard_pending)
      return false;
  }
  return true;
}

void model_in_place_issued(struct pump_model *m, const struct pump_operation *issued,
                           const struct model_run *runs) {
  if (m->in_place.mode == PUMP_IN_PLACE_OFF || m->timing == NULL) return;
  if (m->in_place.begun_ns == 0) m->in_place.begun_ns = m->timing->now_ns;
  int64_t most = 0;
  for (uint32_t i = 0; i < issued->count; i++) {
    uint32_t slot = issued->accesses[i].slot;
    const struct range *range = &m->ranges.all[slot];
    if (runs[i].count < LACKS_BLOCKS || range->in_place.state == IN_PLACE_NEVER) continue;
    int64_t missing = missing_blocks(m, &runs[i]);
    if (missing < most || !(is_read(range) || is_much(range, missing))) continue;
    most = missing + 1;
    m->in_place.ops[issued->seq % IN_PLACE_OPS] =
        (struct in_place_op){.seq = issued->seq,
                             .function = issued->function,
                             .slot = slot,
                             .generation = range->generation,
                             .run = runs[i],
                             .migrate_ns = arrival_ns(m, range->device, missing)};
  }
}

/* Returns what was noted about the operation, if its range still exists; else NULL. */
static struct in_place_op *find_op(struct pump_model *m, uint64_t seq) {
  struct in_place_op *op = &m->in_place.ops[seq % IN_PLACE_OPS];
  const struct range *range = &m->ranges.all[op->slot];
  bool found = seq != 0 && op->seq == seq && range->first_block != NONE &&
               range->generation == op->generation;
  return found ? op : NULL;
}

/* Returns how many times the function is assumed to read its memory; 0: a trial has shown
 * that it reads little. UINT64_MAX: a trial has shown that it does not. */
static uint64_t reads_of(struct pump_model *m, uint64_t function) {
  for (uint32_t i = 0; i < IN_PLACE_KNOWN && function != 0; i++)
    if (m->in_place.known[i].function == function)
      return m->in_place.known[i].dense ? UINT64_MAX : 0;
  return pump_extents_gathers(m->extents, function) ? 1 : READS;
}

/* Remembers the first verdict on a function. Gathers may have dense operands, too. */
static void remember(struct pump_model *m, uint64_t function, bool dense) {
  uint64_t reads = reads_of(m, function);
  if (reads == 0 || reads == UINT64_MAX || (dense && reads == 1)) return;
  m->in_place.known[m->in_place.known_count++ % IN_PLACE_KNOWN] =
      (struct in_place_known){.function = function, .dense = dense};
}

/* Asks for the operation's range if it is a reason, and a trial may cost its time. */
static void consider(struct pump_model *m, const struct in_place_op *op) {
  struct range *range = &m->ranges.all[op->slot];
  uint64_t reads = m->in_place.mode == PUMP_IN_PLACE_AUTO ? reads_of(m, op->function) : 0;
  uint64_t cost_ns = reads * op->migrate_ns;
  uint64_t run_ns = m->timing->now_ns - m->in_place.begun_ns;
  if (range->in_place.large < LARGE_LEAST) range->in_place.large++;
  if (range->in_place.large < LARGE_LEAST || m->in_place.changing != 0 ||
      m->in_place.on_trial != 0 || reads == UINT64_MAX || (reads != 0 && cost_ns == 0) ||
      (reads != 0 && (m->in_place.trials_ns + cost_ns) * TRIALS_PART > run_ns) ||
      !is_suitable(m, range))
    return;
  m->in_place.trials_ns += cost_ns;
  change_advice(m, op->slot, IN_PLACE_ASKED);
}

/* ---- proofs ---------------------------------------------------------------------- */

/* Judges a measured operation by the blocks that are missing now: those of a range that is
 * read in place hardly change while it runs. It must have begun after the advice. */
static void judge(struct pump_model *m, const struct in_place_op *op) {
  struct range *range = &m->ranges.all[op->slot];
  int64_t missing = missing_blocks(m, &op->run);
  uint64_t migrate_ns = arrival_ns(m, range->device, missing);
  if (m->in_place.mode != PUMP_IN_PLACE_AUTO || !is_much(range, missing) ||
      migrate_ns == 0 ||
      op->seen_ns < range->in_place.since_ns + op->elapsed_ns + SEEN_LATE_NS)
    return;
  bool slower = op->elapsed_ns > migrate_ns;
  if (slower) m->in_place.trials_ns += op->elapsed_ns - migrate_ns;
  range->in_place.slower = slower ? (uint8_t)(range->in_place.slower + 1) : 0;
  if (range->in_place.state == IN_PLACE_KEPT) {
    if (range->in_place.slower >= SLOWER_LEAST) end(m, op->slot);
  } else if (op->elapsed_ns <= migrate_ns / KEPT_TIMES) {
    remember(m, op->function, false);
    set_state(m, range, IN_PLACE_KEPT);
  } else {
    remember(m, op->function, true);
    end(m, op->slot);
  }
}

void model_in_place_retired(struct pump_model *m, uint64_t seq) {
  struct in_place_op *op = find_op(m, seq);
  if (op == NULL) return;
  op->retired = true;
  struct range *range = &m->ranges.all[op->slot];
  if (range->in_place.state == IN_PLACE_NO) consider(m, op);
  if (is_read(range) && op->elapsed_ns != 0) judge(m, op);
  if (!is_on_trial(range) || ++range->in_place.unproven < TRIAL_LEAST ||
      m->timing->now_ns - range->in_place.since_ns < TRIAL_NS)
    return;
  if (reads_of(m, op->function) == 0)
    set_state(m, range, IN_PLACE_KEPT);
  else
    end(m, op->slot);
}

void model_in_place_timed(struct pump_model *m, uint64_t seq, uint64_t elapsed_ns,
                          uint64_t seen_ns) {
  struct in_place_op *op = find_op(m, seq);
  if (op == NULL || elapsed_ns >= TIMING_END_NS || seen_ns >= TIMING_END_NS) return;
  op->elapsed_ns = elapsed_ns;
  op->seen_ns = seen_ns;
  if (op->retired && is_read(&m->ranges.all[op->slot])) judge(m, op);
}
