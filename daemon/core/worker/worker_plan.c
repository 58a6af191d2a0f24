/* worker_plan.c - plans between model and mapping: put in force, withdrawn, followed.
 *
 * A plan is made behind a decision, from what the model is then. While it holds
 * (model_plan_holds) the worker follows it too: what stands in front it takes as executors
 * do, and sends it as commands, of which more may be in flight. So a plan is made anew when
 * half of it is used up, or when something has happened that it did not predict, or when a
 * decision is another one or allows more (worker_send.c).
 *
 * Before anything else is started, it is withdrawn: from then on no executor takes of it,
 * and what was taken is known. In between the executors have no plan, for some
 * microseconds.
 */
#include "pump_ring.h"
#include "worker.h"

/* To take entries: a client may write `turn` as well. */
#define TRIES (4 * PUMP_PLAN_ENTRIES)

/* ---- what is predicted ----------------------------------------------------------- */

/* Writes the words of operations that have become expected since the last time; returns
 * the newest operation that has one. */
static uint64_t write_predictions(struct pump_shm *shm, struct pump_model *m) {
  uint64_t newest =
      m->window.added_seq + (uint64_t)(m->window.op_head - m->window.op_issued);
  uint64_t most = m->window.added_seq + PUMP_PREDICTIONS / 2;
  if (newest > most) newest = most;
  uint64_t from = m->expected.sent_seq > m->window.added_seq ? m->expected.sent_seq
                                                             : m->window.added_seq;
  for (uint64_t seq = from + 1; seq <= newest; seq++) {
    int64_t at = m->window.op_issued + (int64_t)(seq - m->window.added_seq) - 1;
    const struct pump_prediction *word = &m->expected.predictions[op_index(at)];
    PUMP_STORE(&pump_prediction_at(shm, seq)->signature, word->signature);
    PUMP_STORE(&pump_prediction_at(shm, seq)->shape, word->shape);
  }
  if (newest > m->expected.sent_seq) m->expected.sent_seq = newest;
  return newest;
}

void worker_plan_predict(struct pump_shm *shm, struct pump_model *m) {
  bool any = false;
  for (uint32_t device = 0; device < PUMP_MAX_DEVICES; device++)
    any |= m->plans.all[device].in_force;
  if (any) write_predictions(shm, m);
}

/* True when all that was issued behind what we have read is compared. */
static bool arm(struct pump_shm *shm, struct pump_model *m) {
  if (PUMP_LOAD(&shm->header.armed) == 0) {
    pump_worker_withdraw(shm, m);
    PUMP_STORE_RELEASE(&shm->header.armed, 1);
    __atomic_thread_fence(__ATOMIC_SEQ_CST); /* before the look: an operation that is
                                                numbered later sees it */
    m->expected.compared_seq = PUMP_LOAD(&shm->header.next_seq);
  }
  return m->window.added_seq + 1 >= m->expected.compared_seq;
}

/* ---- taken and ended ------------------------------------------------------------- */

static void adopt(struct pump_model *m, uint32_t device, uint32_t way, uint64_t turn) {
  struct plan *plan = &m->plans.all[device];
  uint32_t taken = pump_plan_taken(turn, way);
  if (turn >> 32 != plan->version || taken > plan->count[way]) return; /* not ours */
  for (; plan->taken[way] < taken; plan->taken[way]++) {
    uint32_t place = plan->places[way][plan->taken[way]];
    plan->left[way] -= m->transfers.all[place].blocks;
    model_plan_taken(m, place);
    m->plans.running[m->plans.running_count++] = (uint16_t)place;
    m->plans.changes++;
  }
}

static void take_ends(struct pump_shm *shm, struct pump_model *m, uint32_t way) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < m->plans.running_count; i++) {
    uint32_t place = m->plans.running[i];
    const struct transfer *transfer = &m->transfers.all[place];
    const struct pump_plan_end *end = &shm->plan_ends[place];
    if (transfer->direction != way || PUMP_LOAD_ACQUIRE(&end->ticket) != transfer->ticket) {
      m->plans.running[kept++] = (uint16_t)place;
      continue;
    }
    model_plan_ended(m, place, PUMP_LOAD(&end->result), PUMP_LOAD(&end->duration_us));
  }
  m->plans.running_count = kept;
}

static void follow(struct pump_shm *shm, struct pump_model *m, uint32_t way) {
  for (uint32_t device = 0; device < PUMP_MAX_DEVICES; device++)
    if (m->plans.all[device].in_force)
      adopt(m, device, way, PUMP_LOAD_ACQUIRE(&shm->plans[device].turn));
  if (m->plans.running_count > 0) take_ends(shm, m, way);
}

void worker_plan_arrived(struct pump_shm *shm, struct pump_model *m) {
  follow(shm, m, PUMP_TO_GPU);
  m->plans.settling = m->plans.places + m->plans.running_count > 0;
}

void worker_plan_left(struct pump_shm *shm, struct pump_model *m) {
  follow(shm, m, PUMP_TO_HOST);
  if (m->plans.settling) {
    m->plans.settling = false;
    model_retired(m);
  }
  if (m->plans.invalid) pump_worker_withdraw(shm, m);
  m->plans.invalid = false;
}

/* ---- in force -------------------------------------------------------------------- */

void worker_plan_withdraw(struct pump_shm *shm, struct pump_model *m, uint32_t device) {
  struct plan *plan = &m->plans.all[device];
  if (!plan->in_force) return;
  uint64_t turn = pump_plan_withdraw(&shm->plans[device]);
  plan->in_force = false;
  for (uint32_t way = 0; way < PUMP_DIRECTIONS; way++) {
    adopt(m, device, way, turn);
    while (plan->count[way] > plan->taken[way])
      model_plan_give_back(m, plan->places[way][--plan->count[way]]);
  }
}

EXPORT void pump_worker_withdraw(struct pump_shm *shm, struct pump_model *m) {
  for (uint32_t device = 0; device < PUMP_MAX_DEVICES; device++)
    worker_plan_withdraw(shm, m, device);
}

/* observed_seq: uses up to that operation are predicted. What is not read of an entry is
 * left as it is. */
static void write_entry(struct pump_planned *to, const struct pump_model *m,
                        const struct transfer *transfer,
                        const struct model_planned *planned, uint64_t observed_seq) {
  struct pump_command *command = &to->command;
  struct model_span span =
      model_span(&m->ranges.all[planned->slot], planned->first_block, planned->blocks);
  bool to_host = transfer->direction == PUMP_TO_HOST;
  PUMP_STORE(&command->ticket, transfer->ticket);
  PUMP_STORE(&command->slot, transfer->slot);
  PUMP_STORE(&command->generation, transfer->generation);
  PUMP_STORE(&command->offset_bytes, span.offset_bytes);
  PUMP_STORE(&command->length_bytes, span.length_bytes);
  PUMP_STORE(&command->observed_seq, to_host ? observed_seq : 0); /* or no function */
  PUMP_STORE(&command->needed_by_seq, (uint64_t)planned->need);
  PUMP_STORE(&command->stream, planned->need_stream);
  PUMP_STORE(&to->after_seq, planned->after_seq);
  PUMP_STORE(&to->left_bytes, planned->left_bytes);
  PUMP_STORE(&to->after_stream, planned->after_stream);
}

static bool waited_for(const struct pump_shm *shm, uint32_t device,
                       const struct model_wait *wait) {
  return PUMP_LOAD(&shm->plans[device].left_bytes) >= wait->left_bytes &&
         (wait->after_seq == 0 ||
          PUMP_LOAD(&shm->progress[wait->after_stream].executed_seq) >= wait->after_seq);
}

/* Whether its first entry could go now, so that it is worth waking an executor. */
static bool may_go(const struct pump_shm *shm, const struct pump_model *m, uint32_t device,
                   uint32_t way, const struct model_planned *first) {
  const struct model_wait wait = {.after_seq = first->after_seq,
                                  .left_bytes = first->left_bytes,
                                  .after_stream = first->after_stream};
  return m->plans.all[device].count[way] > 0 &&
         m->devices[device].in_flight[way] < m->bounds.in_flight &&
         waited_for(shm, device, &wait);
}

static void put_in_force(struct pump_shm *shm, struct pump_model *m, uint32_t device,
                         const struct model_rehearsal *found, uint64_t until_seq) {
  struct plan *plan = &m->plans.all[device];
  struct pump_plan *shared = &shm->plans[device];
  for (uint32_t way = 0; way < PUMP_DIRECTIONS; way++) {
    const struct model_planned *planned = found->entries[way];
    uint32_t count =
        model_plan_hold(m, device, way, planned, found->count[way], plan->places[way]);
    plan->blocks[way] = 0;
    for (uint32_t i = 0; i < count; i++) {
      struct transfer *transfer = &m->transfers.all[plan->places[way][i]];
      transfer->observed_seq = (int64_t)until_seq;
      write_entry(&shared->entries[way][i], m, transfer, &planned[i], until_seq);
      plan->waits[way][i] = planned[i].first;
      plan->blocks[way] += planned[i].blocks;
    }
    plan->taken[way] = 0;
    plan->count[way] = count;
    plan->left[way] = plan->blocks[way];
    PUMP_STORE(&shared->count[way], plan->count[way]);
  }
  if (++plan->version == 0) plan->version = 1;
  plan->in_force = true;
  PUMP_STORE_RELEASE(&shared->turn, (uint64_t)plan->version << 32);
  for (uint32_t way = 0; way < PUMP_DIRECTIONS; way++) {
    struct pump_command_ring *ring = &shm->commands[device][way];
    if (may_go(shm, m, device, way, &found->entries[way][0]))
      pump_wake(&ring->executors_asleep, &ring->wakes);
  }
}

bool worker_plan_is_due(const struct pump_model *m, uint32_t device) {
  const struct plan *plan = &m->plans.all[device];
  if (model_plan_holds(m, device)) return false;
  return plan->in_force || plan->stamp != m->plans.changes ||
         m->window.op_head - plan->op_head >= model_head_again(m) ||
         plan->executed != m->totals.operations;
}

EXPORT void pump_worker_plan(struct pump_shm *shm, struct pump_model *m, uint32_t device) {
  static struct model_rehearsal found; /* one thread at a time */
  struct plan *plan = &m->plans.all[device];
  worker_plan_withdraw(shm, m, device);
  plan->stamp = m->plans.changes;
  plan->deviations = m->plans.deviations;
  plan->op_head = m->window.op_head;
  plan->known = m->window.op_head - m->window.op_tail;
  plan->executed = m->totals.operations;
  bool expects = m->window.op_issued < m->window.op_head;
  if (m->plans.alone) {
    m->devices[device].faults = 0;
    if (!expects) m->expected.sent_seq = m->window.added_seq;
  } else if (m->plans.off || m->expected.learner == NULL || !expects ||
             m->expected.partial > 0) {
    return;
  }
  uint64_t until_seq = write_predictions(shm, m);
  if (m->expected.partial > 0) until_seq = m->window.added_seq;
  if (!arm(shm, m)) {
    plan->stamp--; /* again at the next occasion */
    return;
  }
  model_rehearse(m, device, until_seq, &found);
  plan->short_of_ops = found.short_of_ops;
  if (found.count[0] + found.count[1] > 0) put_in_force(shm, m, device, &found, until_seq);
}

/* ---- followed by the worker ------------------------------------------------------ */

/* What the worker sends of a plan: as much as it may, and there is place for. */
struct taking {
  struct pump_shm *shm;
  struct pump_model *m;
  uint32_t device, way;
  int64_t credit, room;
  int64_t *blocks;
  uint32_t count, most;
  uint32_t tries;
};

static struct taking begin_taking(struct pump_shm *shm, struct pump_model *m,
                                  uint32_t device, uint32_t way, int64_t *blocks,
                                  uint32_t most) {
  const struct device *d = &m->devices[device];
  return (struct taking){.shm = shm,
                         .m = m,
                         .device = device,
                         .way = way,
                         .credit = model_credit(m, d, (int)way),
                         .room = d->facts.budget - model_occupied(d),
                         .blocks = blocks,
                         .most = most,
                         .tries = TRIES};
}

/* The entry in front, once it is known what executors have taken; NULL: there is none. */
static const struct transfer *front(const struct taking *t, uint64_t *turn) {
  struct plan *plan = &t->m->plans.all[t->device];
  *turn = PUMP_LOAD_ACQUIRE(&t->shm->plans[t->device].turn);
  adopt(t->m, t->device, t->way, *turn);
  uint32_t at = plan->taken[t->way];
  if (*turn >> 32 != plan->version || pump_plan_taken(*turn, t->way) != at) return NULL;
  return at < plan->count[t->way] ? &t->m->transfers.all[plan->places[t->way][at]] : NULL;
}

/* Takes the entry in front, if it is still there. */
static bool claim(struct taking *t, uint64_t turn) {
  struct plan *plan = &t->m->plans.all[t->device];
  t->tries--;
  if (!pump_plan_claim(&t->shm->plans[t->device], t->way, turn)) return false;
  uint32_t place = plan->places[t->way][plan->taken[t->way]++];
  plan->left[t->way] -= t->m->transfers.all[place].blocks;
  model_plan_give_back(t->m, place);
  return true;
}

/* The first slice may be longer than what may be in flight. */
static bool has_credit(const struct taking *t, int32_t blocks) {
  bool alone = t->count == 0 && t->m->devices[t->device].in_flight[t->way] == 0;
  return t->credit > 0 && (blocks <= t->credit || alone) &&
         t->count + (uint32_t)blocks <= t->most;
}

static void send(struct taking *t, int32_t first_block, int32_t blocks) {
  for (int32_t i = 0; i < blocks; i++) t->blocks[t->count++] = first_block + i;
  t->credit -= blocks;
  t->room -= blocks;
}

uint32_t worker_plan_leaving(struct pump_shm *shm, struct pump_model *m, uint32_t device,
                             int64_t *blocks, uint32_t most) {
  struct taking taking = begin_taking(shm, m, device, PUMP_TO_HOST, blocks, most);
  const struct plan *plan = &m->plans.all[device];
  const struct transfer *next;
  uint64_t turn;
  while (taking.tries > 0 && (next = front(&taking, &turn)) != NULL) {
    int32_t first = next->first_block, count = next->blocks;
    if (!has_credit(&taking, count) ||
        !waited_for(shm, device, &plan->waits[PUMP_TO_HOST][plan->taken[PUMP_TO_HOST]]))
      break;
    if (claim(&taking, turn)) send(&taking, first, count);
  }
  return taking.count;
}

static bool is_away(const struct pump_model *m, int64_t block) {
  uint8_t state = m->blocks.all[block].state;
  return state == PUMP_BLOCK_HOST || state == PUMP_BLOCK_ABSENT;
}

/* Nothing of it has to come any more. */
static bool is_moot(const struct pump_model *m, const struct transfer *transfer) {
  for (int32_t i = 0; i < transfer->blocks; i++) {
    int32_t block = transfer->first_block + i;
    if (is_away(m, block) || m->blocks.all[block].state == PUMP_BLOCK_MAYBE_EVICTED)
      return false;
  }
  return true;
}

/* The entry that brings the block, or so much of it as there is room for: the rest is not
 * for others to bring then, and so the next that is missing. False when it does not stand
 * in front, or may not go yet. */
static bool bring_entry(struct taking *t, int64_t block) {
  const struct transfer *next;
  uint64_t turn;
  while (t->tries > 0 && (next = front(t, &turn)) != NULL) {
    int32_t first = next->first_block, count = next->blocks;
    if (is_moot(t->m, next)) {
      claim(t, turn);
      continue;
    }
    const struct plan *plan = &t->m->plans.all[t->device];
    if (block < first || block >= first + count ||
        !waited_for(t->shm, t->device, &plan->waits[t->way][plan->taken[t->way]]))
      return false;
    int64_t most = t->room < t->credit ? t->room : t->credit;
    if (most < count && most < t->m->bounds.slice_least) return false;
    if (most < count) count = (int32_t)most;
    if (!has_credit(t, count)) return false;
    if (!claim(t, turn)) continue;
    send(t, first, count);
    return true;
  }
  return false;
}

uint32_t worker_plan_arriving(struct pump_shm *shm, struct pump_model *m, uint32_t device,
                              const int64_t *missing, uint32_t count, int64_t *blocks,
                              uint32_t most) {
  struct taking taking = begin_taking(shm, m, device, PUMP_TO_GPU, blocks, most);
  for (uint32_t i = 0; i < count; i++) {
    int64_t block = missing[i];
    if (block < 0 || block >= m->ranges.block_end) continue;
    /* Of an entry that was taken: on its way, or about to be. */
    bool sent = m->blocks.all[block].state == PUMP_BLOCK_ARRIVING;
    for (uint32_t j = 0; j < taking.count && !sent; j++) sent = blocks[j] == block;
    if (sent) continue;
    if (m->blocks.all[block].comes) {
      if (!bring_entry(&taking, block)) break;
    } else {
      if (!has_credit(&taking, 1) || taking.room < is_away(m, block)) break;
      send(&taking, (int32_t)block, 1);
      taking.room += !is_away(m, block);
    }
  }
  return taking.count;
}

static bool goes(const struct pump_model *m, int64_t block) {
  return block >= 0 && block < m->ranges.block_end && m->blocks.all[block].goes;
}

static bool comes(const struct pump_model *m, int64_t block) {
  return block >= 0 && block < m->ranges.block_end && m->blocks.all[block].comes;
}

bool worker_plan_agrees(const struct pump_shm *shm, const struct pump_model *m,
                        uint32_t device, const struct worker_moves *moves) {
  const struct plan *plan = &m->plans.all[device];
  uint32_t at = plan->taken[PUMP_TO_HOST], next = plan->taken[PUMP_TO_GPU], i = 0;
  for (uint32_t j = 0; j < moves->to_host_count; j++)
    if (!goes(m, moves->to_host[j])) return false;
  if (moves->to_host_count > 0 &&
      (at == plan->count[PUMP_TO_HOST] ||
       !waited_for(shm, device, &plan->waits[PUMP_TO_HOST][at])))
    return false;
  while (i < moves->to_gpu_count && !comes(m, moves->to_gpu[i])) i++;
  if (i == moves->to_gpu_count) return true;
  if (next == plan->count[PUMP_TO_GPU]) return false;
  const struct transfer *first = &m->transfers.all[plan->places[PUMP_TO_GPU][next]];
  return moves->to_gpu[i] >= first->first_block &&
         moves->to_gpu[i] < first->first_block + first->blocks &&
         waited_for(shm, device, &plan->waits[PUMP_TO_GPU][next]);
}
