/* serve_plan.c - plans between model and mapping: put in force, withdrawn, followed.
 *
 * A plan is made behind each decision that moves something, from what the model is then. It
 * is withdrawn before anything else is started: from then on nobody takes of it, and what
 * was taken is known. In between the executors have no plan, for some microseconds.
 */
#include "model_state.h"
#include "pump_ring.h"

#define HEAD_AGAIN 64 /* operations known beyond a plan that ended for want of them */

/* ---- what is foreseen ---------------------------------------------------------------- */

/* Writes the words of operations that have become expected since the last time; returns
 * the newest operation that has one. */
static uint64_t write_foreseen(struct pump_shm *shm, struct pump_model *m) {
  uint64_t newest = m->added_seq + (uint64_t)(m->op_head - m->op_issued);
  uint64_t most = m->added_seq + PUMP_FORESEEN / 2;
  if (newest > most) newest = most;
  uint64_t from = m->told_seq > m->added_seq ? m->told_seq : m->added_seq;
  for (uint64_t seq = from + 1; seq <= newest; seq++) {
    int64_t at = m->op_issued + (int64_t)(seq - m->added_seq) - 1;
    const struct pump_foreseen *word = &m->foreseen[op_index(at)];
    PUMP_STORE(&pump_foreseen_at(shm, seq)->signature, word->signature);
    PUMP_STORE(&pump_foreseen_at(shm, seq)->shape, word->shape);
  }
  if (newest > m->told_seq) m->told_seq = newest;
  return newest;
}

/* True when all that was issued behind what we have read is compared. */
static bool arm(struct pump_shm *shm, struct pump_model *m) {
  if (PUMP_LOAD(&shm->header.armed) == 0) {
    pump_serve_withdraw(shm, m);
    PUMP_STORE_RELEASE(&shm->header.armed, 1);
    __atomic_thread_fence(
        __ATOMIC_SEQ_CST); /* before the look: who numbers later, sees it */
    m->armed_seq = PUMP_LOAD(&shm->header.next_seq);
  }
  return m->added_seq + 1 >= m->armed_seq;
}

/* ---- taken and ended ------------------------------------------------------------------
 */

static void adopt(struct pump_model *m, uint32_t device, uint32_t way, uint64_t turn) {
  struct plan *plan = &m->plans[device];
  uint32_t taken = pump_plan_taken(turn, way);
  if (turn >> 32 != plan->version || taken > plan->count[way]) return; /* not ours */
  for (; plan->taken[way] < taken; plan->taken[way]++) {
    uint32_t place = plan->places[way][plan->taken[way]];
    model_plan_taken(m, place);
    m->plan_running[m->plan_running_count++] = (uint16_t)place;
    m->changes++;
  }
}

static void take_ends(struct pump_shm *shm, struct pump_model *m, uint32_t way) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < m->plan_running_count; i++) {
    uint32_t place = m->plan_running[i];
    const struct transfer *transfer = &m->transfers[place];
    const struct pump_plan_end *end = &shm->plan_ends[place];
    if (transfer->direction != way || PUMP_LOAD_ACQUIRE(&end->ticket) != transfer->ticket) {
      m->plan_running[kept++] = (uint16_t)place;
      continue;
    }
    model_plan_ended(m, place, PUMP_LOAD(&end->result), PUMP_LOAD(&end->duration_us));
  }
  m->plan_running_count = kept;
}

static void follow(struct pump_shm *shm, struct pump_model *m, uint32_t way) {
  for (uint32_t device = 0; device < PUMP_MAX_DEVICES; device++)
    if (m->plans[device].in_force)
      adopt(m, device, way, PUMP_LOAD_ACQUIRE(&shm->plans[device].turn));
  if (m->plan_running_count > 0) take_ends(shm, m, way);
}

void serve_plan_arrived(struct pump_shm *shm, struct pump_model *m) {
  follow(shm, m, PUMP_TO_GPU);
  m->settling = m->plan_places + m->plan_running_count > 0;
}

void serve_plan_left(struct pump_shm *shm, struct pump_model *m) {
  follow(shm, m, PUMP_TO_HOST);
  if (m->settling) {
    m->settling = false;
    model_retired(m);
  }
  if (m->plans_void) pump_serve_withdraw(shm, m);
  m->plans_void = false;
}

/* ---- in force ---------------------------------------------------------------------------
 */

void serve_plan_withdraw(struct pump_shm *shm, struct pump_model *m, uint32_t device) {
  struct plan *plan = &m->plans[device];
  if (!plan->in_force) return;
  uint64_t turn = pump_plan_withdraw(&shm->plans[device]);
  plan->in_force = false;
  for (uint32_t way = 0; way < PUMP_DIRECTIONS; way++) {
    adopt(m, device, way, turn);
    while (plan->count[way] > plan->taken[way])
      model_plan_give_back(m, plan->places[way][--plan->count[way]]);
  }
}

EXPORT void pump_serve_withdraw(struct pump_shm *shm, struct pump_model *m) {
  for (uint32_t device = 0; device < PUMP_MAX_DEVICES; device++)
    serve_plan_withdraw(shm, m, device);
}

/* observed_seq: uses up to that operation are foreseen. What nobody reads of an entry is
 * left as it is. */
static void write_entry(struct pump_planned *to, const struct pump_model *m,
                        const struct transfer *transfer,
                        const struct model_planned *planned, uint64_t observed_seq) {
  struct pump_command *command = &to->command;
  struct model_span span =
      model_span(&m->ranges[planned->slot], planned->first_block, planned->blocks);
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

/* Whether its first entry could go now, so that it is worth waking somebody. */
static bool may_go(const struct pump_shm *shm, const struct pump_model *m, uint32_t device,
                   uint32_t way) {
  const struct pump_planned *entry = &shm->plans[device].entries[way][0];
  return m->plans[device].count[way] > 0 &&
         m->devices[device].in_flight[way] < m->bounds.in_flight &&
         PUMP_LOAD(&shm->plans[device].left_bytes) >= entry->left_bytes &&
         (entry->after_seq == 0 ||
          PUMP_LOAD(&shm->progress[entry->after_stream].executed_seq) >= entry->after_seq);
}

static void put_in_force(struct pump_shm *shm, struct pump_model *m, uint32_t device,
                         const struct model_rehearsal *found, uint64_t until_seq) {
  struct plan *plan = &m->plans[device];
  struct pump_plan *shared = &shm->plans[device];
  for (uint32_t way = 0; way < PUMP_DIRECTIONS; way++) {
    const struct model_planned *planned = found->entries[way];
    uint32_t count =
        model_plan_hold(m, device, way, planned, found->count[way], plan->places[way]);
    for (uint32_t i = 0; i < count; i++)
      write_entry(&shared->entries[way][i], m, &m->transfers[plan->places[way][i]],
                  &planned[i], until_seq);
    plan->taken[way] = 0;
    plan->count[way] = count;
    PUMP_STORE(&shared->count[way], plan->count[way]);
  }
  if (++plan->version == 0) plan->version = 1;
  plan->in_force = true;
  PUMP_STORE_RELEASE(&shared->turn, (uint64_t)plan->version << 32);
  for (uint32_t way = 0; way < PUMP_DIRECTIONS; way++) {
    struct pump_command_ring *ring = &shm->commands[device][way];
    if (may_go(shm, m, device, way)) pump_bell_ring(&ring->executors_asleep, &ring->bell);
  }
}

bool serve_plan_is_old(const struct pump_model *m, uint32_t device) {
  const struct plan *plan = &m->plans[device];
  if (plan->stamp != m->changes || m->op_head - plan->op_head >= HEAD_AGAIN) return true;
  return !plan->in_force && plan->executed != m->totals.operations;
}

EXPORT void pump_serve_plan(struct pump_shm *shm, struct pump_model *m, uint32_t device) {
  static struct model_rehearsal found; /* one thread at a time */
  struct plan *plan = &m->plans[device];
  serve_plan_withdraw(shm, m, device);
  plan->stamp = m->changes;
  plan->op_head = m->op_head;
  plan->executed = m->totals.operations;
  if (m->learner == NULL || m->op_issued == m->op_head || m->partial > 0) return;
  uint64_t until_seq = write_foreseen(shm, m);
  if (!arm(shm, m)) {
    plan->stamp--; /* again at the next occasion */
    return;
  }
  model_rehearse(m, device, until_seq, &found);
  if (found.count[0] + found.count[1] > 0) put_in_force(shm, m, device, &found, until_seq);
}
