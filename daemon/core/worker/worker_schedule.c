/* worker_schedule.c - schedules between model and mapping: put in force, withdrawn,
 * followed.
 *
 * A device's schedule is made from the model. It is renewed when a tenth of its blocks
 * are taken, when more operations are known, or after a deviation from the prediction.
 * The old schedule is withdrawn first: from then on no executor takes an entry, and all
 * taken entries are known. Executors have no schedule for the few microseconds in
 * between.
 */
#include "pump_ring.h"
#include "worker.h"

/* ---- predictions ----------------------------------------------------------------- */

/* Writes the predictions made since the last call; returns the newest operation with a
 * prediction in the mapping. */
static uint64_t write_predictions(struct pump_shm *shm, struct pump_model *m) {
  uint64_t newest =
      m->window.added_seq + (uint64_t)(m->window.op_head - m->window.op_issued);
  uint64_t most = m->window.added_seq + PUMP_PREDICTIONS / 2;
  if (newest > most) newest = most;
  /* Withdraw schedules that rely on dropped predictions. */
  if (m->expected.sent_seq == 0) pump_worker_withdraw(shm, m);
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

void worker_schedule_predict(struct pump_shm *shm, struct pump_model *m) {
  bool any = false;
  for (uint32_t device = 0; device < PUMP_MAX_DEVICES; device++)
    any |= m->schedules.all[device].in_force;
  if (any) write_predictions(shm, m);
}

/* After a deviation, withdraws all schedules and makes all entries valid again. Then
 * starts the client's comparison, or stops it. */
static void validate(struct pump_shm *shm, struct pump_model *m, bool compares) {
  if (PUMP_LOAD(&shm->header.valid_seq) != PUMP_ALL_VALID) {
    pump_worker_withdraw(shm, m);
    PUMP_STORE_RELEASE(&shm->header.valid_seq, PUMP_ALL_VALID);
    m->expected.compared_seq = UINT64_MAX;
  }
  PUMP_STORE_RELEASE(&shm->header.armed, compares);
  if (!compares) m->expected.compared_seq = UINT64_MAX;
  if (!compares || m->expected.compared_seq != UINT64_MAX) return;
  /* Before the load of next_seq: operations with later numbers see these stores. */
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  m->expected.compared_seq = PUMP_LOAD(&shm->header.next_seq);
}

/* Returns whether the client has compared all operations after the last one read. */
static bool has_compared(const struct pump_model *m) {
  return m->window.added_seq + 1 >= m->expected.compared_seq;
}

/* Returns the newest operation that a schedule may rely on. Predicted operations count
 * only after the client has compared all operations issued since the last one read. */
static uint64_t known_until(struct pump_shm *shm, struct pump_model *m) {
  bool predicts = m->window.op_issued < m->window.op_head && m->expected.partial == 0;
  uint64_t until_seq = predicts ? write_predictions(shm, m) : m->window.added_seq;
  validate(shm, m, predicts);
  return predicts && has_compared(m) ? until_seq : m->window.added_seq;
}

/* ---- taken and ended ------------------------------------------------------------- */

static void adopt(const struct pump_shm *shm, struct pump_model *m, uint32_t device,
                  uint32_t direction, uint64_t cursor) {
  struct schedule *schedule = &m->schedules.all[device];
  uint64_t valid_seq = PUMP_LOAD(&shm->header.valid_seq);
  uint32_t taken = pump_schedule_taken_count(cursor, direction);
  if (cursor >> 32 != schedule->version || taken > schedule->count[direction])
    return; /* another schedule's cursor */
  for (; schedule->taken[direction] < taken; schedule->taken[direction]++) {
    uint32_t index = schedule->indices[direction][schedule->taken[direction]];
    schedule->left[direction] -= m->transfers.all[index].blocks;
    schedule_note_taken(m, index, valid_seq);
    m->schedules.running[m->schedules.running_count++] = (uint16_t)index;
    m->schedules.changes++;
  }
}

static void record_end(struct pump_slices *to, const struct transfer *transfer,
                       const struct pump_entry_end *end, uint64_t now_ns) {
  if (to->count >= sizeof to->bytes / sizeof to->bytes[0]) {
    to->lost++;
    return;
  }
  uint32_t at = to->count++, result = PUMP_LOAD(&end->result);
  to->ended_ns[at] = PUMP_LOAD(&end->ended_ns);
  to->offset_bytes[at] = transfer->offset_bytes;
  to->bytes[at] = transfer->bytes;
  to->slot[at] = transfer->slot;
  to->generation[at] = transfer->generation;
  to->waited_us[at] = PUMP_LOAD(&end->waited_us);
  to->called_us[at] = PUMP_LOAD(&end->called_us);
  to->driver_us[at] = PUMP_LOAD(&end->driver_us);
  to->link_us[at] = PUMP_LOAD(&end->link_us);
  to->seen_us[at] = pump_us_between(to->ended_ns[at], now_ns);
  to->kept[at] = PUMP_LOAD(&end->kept);
  to->device[at] = transfer->device;
  to->direction[at] = transfer->direction;
  to->result[at] = result < UINT8_MAX ? (uint8_t)result : UINT8_MAX;
}

EXPORT void pump_worker_record(struct pump_model *m, struct pump_slices *slices) {
  m->schedules.recorded = slices;
}

static void take_ends(struct pump_shm *shm, struct pump_model *m, uint32_t direction) {
  uint64_t now_ns = m->schedules.recorded != NULL ? pump_core_now_ns() : 0;
  uint32_t kept = 0;
  for (uint32_t i = 0; i < m->schedules.running_count; i++) {
    uint32_t index = m->schedules.running[i];
    const struct transfer *transfer = &m->transfers.all[index];
    const struct pump_entry_end *end = &shm->entry_ends[index];
    if (transfer->direction != direction ||
        PUMP_LOAD_ACQUIRE(&end->ticket) != transfer->ticket) {
      m->schedules.running[kept++] = (uint16_t)index;
      continue;
    }
    if (m->schedules.recorded != NULL && transfer->advice == PUMP_ADVICE_NONE)
      record_end(m->schedules.recorded, transfer, end, now_ns);
    model_transfer_ended(m, index, PUMP_LOAD(&end->result), PUMP_LOAD(&end->duration_us),
                         PUMP_LOAD(&end->kept));
  }
  m->schedules.running_count = kept;
}

static void follow(struct pump_shm *shm, struct pump_model *m, uint32_t direction) {
  for (uint32_t device = 0; device < PUMP_MAX_DEVICES; device++)
    if (m->schedules.all[device].in_force)
      adopt(shm, m, device, direction, PUMP_LOAD_ACQUIRE(&shm->schedules[device].cursor));
  if (m->schedules.running_count > 0) take_ends(shm, m, direction);
}

void worker_apply_prefetches(struct pump_shm *shm, struct pump_model *m) {
  follow(shm, m, PUMP_TO_GPU);
  m->schedules.settling = m->schedules.untaken + m->schedules.running_count > 0;
}

void worker_apply_evictions(struct pump_shm *shm, struct pump_model *m) {
  follow(shm, m, PUMP_TO_HOST);
  if (m->schedules.settling) {
    m->schedules.settling = false;
    model_retired(m);
  }
}

/* ---- in force -------------------------------------------------------------------- */

static void withdraw(struct pump_shm *shm, struct pump_model *m, uint32_t device) {
  struct schedule *schedule = &m->schedules.all[device];
  if (!schedule->in_force) return;
  uint64_t cursor = pump_schedule_withdraw(&shm->schedules[device]);
  schedule->in_force = false;
  for (uint32_t direction = 0; direction < PUMP_DIRECTIONS; direction++) {
    adopt(shm, m, device, direction, cursor);
    while (schedule->count[direction] > schedule->taken[direction])
      schedule_release_transfer(m,
                                schedule->indices[direction][--schedule->count[direction]]);
  }
}

EXPORT void pump_worker_withdraw(struct pump_shm *shm, struct pump_model *m) {
  for (uint32_t device = 0; device < PUMP_MAX_DEVICES; device++) withdraw(shm, m, device);
}

/* Writes an entry. `observed_seq`: the newest operation whose uses the schedule knows,
 * predicted ones included. Fields that executors do not read are not written. */
static void write_entry(struct pump_entry *to, const struct pump_model *m,
                        const struct transfer *transfer,
                        const struct schedule_entry *scheduled, uint64_t observed_seq) {
  struct pump_command *command = &to->command;
  struct model_span span = model_span(&m->ranges.all[scheduled->slot],
                                      scheduled->first_block, scheduled->blocks);
  bool to_host = transfer->direction == PUMP_TO_HOST;
  PUMP_STORE(&command->ticket, transfer->ticket);
  PUMP_STORE(&command->slot, transfer->slot);
  PUMP_STORE(&command->generation, transfer->generation);
  PUMP_STORE(&command->offset_bytes, span.offset_bytes);
  PUMP_STORE(&command->length_bytes, span.length_bytes);
  PUMP_STORE(&command->observed_seq, to_host ? observed_seq : 0); /* unused by arrivals */
  PUMP_STORE(&command->needed_by_seq, (uint64_t)scheduled->need);
  PUMP_STORE(&command->stream, scheduled->need_stream);
  PUMP_STORE(&command->advice, scheduled->advice);
  PUMP_STORE(&to->after_seq, scheduled->after_seq);
  PUMP_STORE(&to->left_bytes, scheduled->left_bytes);
  PUMP_STORE(&to->ended_bytes, scheduled->ended_bytes);
  PUMP_STORE(&to->after_stream, scheduled->after_stream);
  PUMP_STORE(&to->duplicates, transfer->duplicates);
}

/* Returns whether the entry could start at once, so that waking an executor pays. */
static bool may_go(const struct pump_shm *shm, uint32_t device,
                   const struct schedule_entry *entry) {
  return PUMP_LOAD(&shm->schedules[device].left_bytes) >= entry->left_bytes &&
         PUMP_LOAD(&shm->schedules[device].ended_bytes) >= entry->ended_bytes &&
         (entry->after_seq == 0 ||
          PUMP_LOAD(&shm->progress[entry->after_stream].executed_seq) >= entry->after_seq);
}

static void put_in_force(struct pump_shm *shm, struct pump_model *m, uint32_t device,
                         const struct schedule_lists *found, uint64_t until_seq) {
  struct schedule *schedule = &m->schedules.all[device];
  struct pump_schedule *shared = &shm->schedules[device];
  model_duplicates_anew(m, device);
  for (uint32_t direction = 0; direction < PUMP_DIRECTIONS; direction++) {
    const struct schedule_entry *scheduled = found->entries[direction];
    uint32_t count =
        schedule_make_transfers(m, device, direction, scheduled, found->count[direction],
                                schedule->indices[direction]);
    schedule->blocks[direction] = 0;
    for (uint32_t i = 0; i < count; i++) {
      struct transfer *transfer = &m->transfers.all[schedule->indices[direction][i]];
      transfer->observed_seq = (int64_t)until_seq;
      if (direction == PUMP_TO_GPU)
        transfer->duplicates =
            model_duplicates_mark(m, scheduled[i].first_block, scheduled[i].blocks);
      write_entry(&shared->entries[direction][i], m, transfer, &scheduled[i], until_seq);
      schedule->blocks[direction] += scheduled[i].blocks;
    }
    schedule->taken[direction] = 0;
    schedule->count[direction] = count;
    schedule->left[direction] = schedule->blocks[direction];
    PUMP_STORE(&shared->count[direction], schedule->count[direction]);
  }
  if (++schedule->version == 0) schedule->version = 1;
  schedule->in_force = true;
  m->totals.schedules++;
  if (m->schedules.recorded != NULL) PUMP_STORE(&shared->made_ns, pump_core_now_ns());
  PUMP_STORE_RELEASE(&shared->cursor, (uint64_t)schedule->version << 32);
  for (uint32_t direction = 0; direction < PUMP_DIRECTIONS; direction++) {
    struct pump_executors_sleep *sleep = &shm->executors[device][direction];
    if (schedule->count[direction] > 0 &&
        may_go(shm, device, &found->entries[direction][0]))
      pump_wake(&sleep->asleep, &sleep->wakes);
  }
}

/* Returns whether an entry was refused and no further operation was read since. A new
 * schedule would only repeat the refused entry. */
static bool waits_after_refusal(const struct pump_model *m, const struct device *device) {
  int64_t observed = (int64_t)m->totals.observed_seq;
  return device->held_at[PUMP_TO_GPU] >= observed ||
         device->held_at[PUMP_TO_HOST] >= observed;
}

/* Returns whether the schedule is void or used up, and can be replaced. */
static bool is_due(const struct pump_shm *shm, const struct pump_model *m,
                   uint32_t device) {
  const struct schedule *schedule = &m->schedules.all[device];
  if (!m->devices[device].known || waits_after_refusal(m, &m->devices[device]))
    return false;
  if (schedule->incomplete && has_compared(m)) return true;
  bool valid = PUMP_LOAD(&shm->header.valid_seq) == PUMP_ALL_VALID;
  if (valid && schedule_is_valid(m, device)) return false;
  return schedule->in_force || schedule->stamp != m->schedules.changes ||
         schedule_has_grown(m, device) || schedule->executed != m->totals.operations;
}

EXPORT void pump_worker_schedule(struct pump_shm *shm, struct pump_model *m,
                                 uint32_t device) {
  static struct schedule_lists found; /* static: only one thread at a time calls this */
  struct schedule *schedule = &m->schedules.all[device];
  withdraw(shm, m, device);
  schedule->stamp = m->schedules.changes;
  schedule->deviations = m->schedules.deviations;
  schedule->op_head = m->window.op_head;
  schedule->known = m->window.op_head - m->window.op_tail;
  schedule->executed = m->totals.operations;
  m->devices[device].faults = 0;
  uint64_t until_seq = known_until(shm, m);
  if (m->schedules.arrivals)
    schedule_make(m, device, until_seq, &found);
  else
    schedule_make_excess(m, device, &found);
  schedule_add_advice(m, device, &found);
  schedule->short_of_ops = found.short_of_ops;
  schedule->incomplete =
      until_seq == m->window.added_seq && m->window.op_issued < m->window.op_head;
  m->devices[device].short_of_memory = found.short_of_memory;
  if (found.count[0] + found.count[1] > 0) put_in_force(shm, m, device, &found, until_seq);
}

void worker_schedule_renew(struct pump_shm *shm, struct pump_model *m, uint32_t device) {
  /* A dormant device holds all its memory; its operations are only recorded. */
  if (PUMP_LOAD(&shm->devices[device].device_state) == PUMP_DEVICE_DORMANT) return;
  if (is_due(shm, m, device)) pump_worker_schedule(shm, m, device);
}
