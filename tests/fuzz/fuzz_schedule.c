/* fuzz_schedule.c - schedules on a mapping with arbitrary writes by the client: cursor,
 * count, left_bytes and entries of schedules, entry_ends, armed, valid_seq, predicted,
 * next_seq, progress (daemon/core/worker).
 *
 * First the client repeats itself until a schedule is in force on both devices. Then the
 * input lists actions of client and worker: a byte each, and its arguments. For any
 * input, each transfer is in exactly one place, and counters match the contents.
 */
#include "daemon/core/model/model_state.h"
#include "fuzz_input.h"
#include "pump_ring.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#define DEVICES 2
#define LAYERS 5 /* on each device */
#define BLOCKS 4 /* in each layer */
#define BUDGET 12
#define STEPS (2 * LAYERS * DEVICES) /* an iteration: up and down, devices alternate */
#define AHEAD 3
#define LEARNED (8 * STEPS) /* most operations */
#define ACTIONS 512         /* most actions per input */

static struct pump_shm shm;
static struct pump_batch batch;
static struct pump_model *model;
static uint32_t step;
static uint32_t generation[DEVICES * LAYERS];

/* ---- the client ------------------------------------------------------------------ */

static uint32_t stream_of(uint32_t device) {
  return 1 + device;
}

static void push(const struct pump_event *event) {
  uint64_t position = shm.header.event_tail++;
  shm.events[position % PUMP_EVENT_SLOTS] = *event;
  shm.events[position % PUMP_EVENT_SLOTS].sequence = position + 1;
}

static struct pump_extent extent_of(uint32_t slot) {
  uint64_t length_bytes = (uint64_t)BLOCKS * PUMP_BLOCK_BYTES;
  return (struct pump_extent){.slot = slot,
                              .generation = generation[slot],
                              .length_access = length_bytes << 2 | PUMP_ACCESS_READ};
}

static void alloc_or_free(uint32_t slot, uint16_t kind) {
  struct pump_event event = {.kind = kind,
                             .device = (uint16_t)(slot % DEVICES),
                             .function = (uint64_t)(slot + 1) << 30,
                             .extent_count = 1};
  if (kind == PUMP_EVENT_ALLOC) generation[slot]++;
  event.extents[0] = extent_of(slot);
  push(&event);
}

static void issue(uint32_t slot) {
  uint64_t seq = shm.header.next_seq++;
  struct pump_event event = {.kind = PUMP_EVENT_KERNEL,
                             .seq = seq,
                             .function = slot + 1,
                             .signature = slot + 1,
                             .device = (uint16_t)(slot % DEVICES),
                             .stream = stream_of(slot % DEVICES),
                             .extent_count = 1};
  event.extents[0] = extent_of(slot);
  push(&event);
  uint64_t word =
      pump_prediction_word(seq, stream_of(slot % DEVICES), PUMP_EVENT_KERNEL, slot + 1);
  if (shm.header.armed != 0 && pump_prediction_at(&shm, seq)->signature != word)
    pump_schedule_deviate(&shm, seq);
}

/* Issues the program's next operation; the hook compares it. */
static void issue_next(void) {
  uint32_t at = step++ % STEPS, layer = at / DEVICES;
  if (layer >= LAYERS) layer = 2 * LAYERS - 1 - layer;
  issue(layer * DEVICES + at % DEVICES);
}

static void execute(uint64_t seq) {
  for (uint32_t d = 0; d < DEVICES; d++) shm.progress[stream_of(d)].executed_seq = seq;
}

/* Works like an executor. */
static void carry_out(uint32_t device, uint32_t direction, uint32_t most, uint32_t result) {
  struct pump_schedule *schedule = &shm.schedules[device];
  struct pump_entry entry;
  uint64_t cursor;
  for (uint32_t i = 0;
       i < most && pump_schedule_peek(&shm, device, direction, &entry, &cursor); i++) {
    if (shm.progress[entry.after_stream % PUMP_MAX_STREAMS].executed_seq <
            entry.after_seq ||
        schedule->left_bytes < entry.left_bytes ||
        schedule->ended_bytes < entry.ended_bytes ||
        !pump_schedule_claim(schedule, direction, cursor))
      break;
    if (direction == PUMP_TO_HOST && result == PUMP_RESULT_MOVED)
      schedule->left_bytes += entry.command.length_bytes;
    schedule->ended_bytes +=
        pump_ended_bytes(direction, result, entry.command.length_bytes);
    pump_schedule_finish(&shm, entry.command.ticket, result, 100,
                         (uint32_t)(entry.command.ticket * 0x9e3779b9u));
  }
}

static void carry_out_all(void) {
  for (uint32_t i = 0; i < 4; i++)
    for (uint32_t d = 0; d < DEVICES; d++) {
      carry_out(d, PUMP_TO_HOST, PUMP_SCHEDULE_ENTRIES, PUMP_RESULT_MOVED);
      carry_out(d, PUMP_TO_GPU, PUMP_SCHEDULE_ENTRIES, PUMP_RESULT_MOVED);
    }
}

/* ---- the worker -------------------------------------------------------------------- */

/* Runs the worker's tick without Python. */
static void tick(void) {
  must(pump_worker_read(&shm, model, &batch) >= 0);
  pump_worker_follow(&shm, model);
}

/* ---- invariants ------------------------------------------------------------------ */

static void check_transfers(void) {
  static uint8_t seen[PUMP_MAX_IN_FLIGHT];
  uint32_t waiting = 0;
  memset(seen, 0, sizeof seen);
  must(model->transfers.unused_count <= PUMP_MAX_IN_FLIGHT);
  for (uint32_t i = 0; i < model->transfers.unused_count; i++) {
    uint32_t index = model->transfers.unused[i];
    must(index < PUMP_MAX_IN_FLIGHT && !seen[index]++ &&
         model->transfers.all[index].ticket == 0);
  }
  must(model->schedules.running_count <= PUMP_MAX_IN_FLIGHT);
  for (uint32_t i = 0; i < model->schedules.running_count; i++) {
    const struct transfer *transfer = &model->transfers.all[model->schedules.running[i]];
    must(!seen[model->schedules.running[i]]++ && transfer->ticket != 0);
  }
  for (uint32_t d = 0; d < PUMP_MAX_DEVICES; d++) {
    const struct schedule *schedule = &model->schedules.all[d];
    for (uint32_t direction = 0; schedule->in_force && direction < PUMP_DIRECTIONS;
         direction++)
      for (uint32_t i = schedule->taken[direction]; i < schedule->count[direction];
           i++, waiting++)
        must(!seen[schedule->indices[direction][i]]++ &&
             model->transfers.all[schedule->indices[direction][i]].ticket != 0);
  }
  must(waiting == model->schedules.untaken);
}

static void check_counts(void) {
  uint64_t moving_bytes[DEVICES][PUMP_DIRECTIONS] = {0};
  static bool waits[PUMP_MAX_IN_FLIGHT];
  memset(waits, 0, sizeof waits);
  for (uint32_t d = 0; d < PUMP_MAX_DEVICES; d++)
    for (uint32_t direction = 0;
         model->schedules.all[d].in_force && direction < PUMP_DIRECTIONS; direction++)
      for (uint32_t i = model->schedules.all[d].taken[direction];
           i < model->schedules.all[d].count[direction]; i++)
        waits[model->schedules.all[d].indices[direction][i]] = true;
  for (uint32_t i = 0; i < PUMP_MAX_IN_FLIGHT; i++) {
    const struct transfer *transfer = &model->transfers.all[i];
    if (transfer->ticket == 0 || waits[i]) continue;
    moving_bytes[transfer->device][transfer->direction] += transfer->bytes;
  }
  for (uint32_t d = 0; d < DEVICES; d++) {
    const struct device *device = &model->devices[d];
    int64_t blocks = 0;
    for (uint32_t s = 1; s < PUMP_BLOCK_STATES; s++) {
      must(device->counts[s] >= 0);
      blocks += device->counts[s];
    }
    must(blocks <= LAYERS * BLOCKS);
    must(device->leaving_bytes == moving_bytes[d][PUMP_TO_HOST]);
    must(device->arriving_bytes == moving_bytes[d][PUMP_TO_GPU]);
  }
}

/* ---- functions that act as the client ---------------------------------------------- */

/* Returns a meaningful word or an arbitrary one. */
static uint64_t word(struct input *input) {
  uint8_t what[3];
  uint64_t any;
  take(input, what, sizeof what);
  const struct pump_schedule *schedule = &shm.schedules[what[1] % DEVICES];
  uint32_t direction = what[1] / DEVICES % PUMP_DIRECTIONS;
  uint64_t taken = 1ull << 16 * direction;
  switch (what[0] % 11) {
  case 0:
    return what[1];
  case 1:
    return UINT64_MAX - what[1];
  case 2:
    return schedule->cursor + taken * what[2];
  case 3:
    return schedule->cursor - taken * what[2];
  case 4:
    return schedule->cursor + (1ull << 32);
  case 5:
    return schedule->entries[direction][what[2]].command.ticket;
  case 6:
    return model->transfers.all[(what[1] % 4u) << 8 | what[2]].ticket;
  case 7:
    return shm.header.next_seq + what[1] - what[2];
  case 8:
    return schedule->left_bytes + ((uint64_t)what[2] << 20);
  case 9:
    return 1ull << what[1] % 64;
  default:
    take(input, &any, sizeof any);
    return any;
  }
}

static uint32_t device_of(uint8_t what) {
  return what % 8 == 7 ? what / 8 % PUMP_MAX_DEVICES : what % DEVICES;
}

/* Overwrites a schedule, or the end of one of its commands. */
static void scribble_schedule(struct input *input, uint32_t kind, uint8_t where) {
  struct pump_schedule *schedule = &shm.schedules[device_of(where)];
  uint64_t value = word(input);
  uint8_t at;
  take(input, &at, 1);
  uint32_t direction = where / 16 % PUMP_DIRECTIONS;
  uint64_t *entry = (uint64_t *)&schedule->entries[direction][at];
  switch (kind) {
  case 0:
    schedule->cursor = value;
    break;
  case 1:
    schedule->left_bytes = value;
    break;
  case 2:
    schedule->count[direction] = (uint32_t)value;
    break;
  case 3:
    entry[where / 32] = value;
    break;
  default:
    pump_schedule_finish(&shm, value, at & 15, where, where * 0x9e3779b9u);
    break;
  }
}

static void scribble_header(struct input *input, uint32_t kind, uint8_t where) {
  uint64_t value = word(input);
  switch (kind) {
  case 0:
    if (where % 2 == 0)
      shm.header.armed = (uint32_t)value;
    else
      shm.header.valid_seq = value;
    break;
  case 1:
    shm.header.next_seq = value;
    break;
  case 2:
    pump_prediction_at(&shm, value)->signature = value;
    break;
  case 3:
    pump_prediction_at(&shm, value)->shape = value;
    break;
  default:
    shm.progress[stream_of(where % DEVICES)].executed_seq = value;
    break;
  }
}

static void client(struct input *input, uint8_t what, uint8_t where) {
  switch (what) {
  case 0:
  case 1:
    issue_next();
    break;
  case 2:
    issue(where % (LAYERS * DEVICES));
    break;
  case 3:
    execute(shm.header.next_seq - where % AHEAD);
    break;
  case 4:
    carry_out(where % DEVICES, where / DEVICES % PUMP_DIRECTIONS, 1 + where / 16 % 4 * 3u,
              where / 64 == 3 ? PUMP_RESULT_FAILED : PUMP_RESULT_MOVED);
    break;
  case 5:
    carry_out_all();
    break;
  case 6:
    alloc_or_free(where % (LAYERS * DEVICES),
                  where < 128 ? PUMP_EVENT_FREE : PUMP_EVENT_ALLOC);
    break;
  case 7:
  case 8:
  case 9:
  case 10:
  case 11:
  case 12:
    scribble_schedule(input, what - 8u, where);
    break;
  default:
    scribble_header(input, (what - 13u) % 5, where);
    break;
  }
}

static void worker(uint8_t what, uint8_t where) {
  switch (what) {
  case 0:
    must(pump_worker_read(&shm, model, &batch) >= 0);
    break;
  case 1:
    pump_worker_follow(&shm, model);
    break;
  case 2:
  case 3:
    pump_worker_schedule(&shm, model, where % DEVICES);
    break;
  case 4:
    pump_worker_withdraw(&shm, model);
    break;
  case 5:
    pump_model_predict(model, where);
    break;
  case 6:
    (void)pump_worker_wait(&shm, model, 0, 0, 0);
    break;
  default:
    if (where == 0) pump_model_forget_window(model);
    if (where == 1) pump_model_switched(model);
    if (where == 2) must(pump_model_learn(model, model->expected.learner == NULL) == 0);
    if (where == 4) pump_model_schedule(model, !model->schedules.arrivals);
    if (where == 3) pump_model_resync(model, 0, NULL, NULL, shm.header.next_seq - 1);
    tick();
    break;
  }
}

/* ---- one input ------------------------------------------------------------------------
 */

static void forget_mapping(void) {
  size_t events = offsetof(struct pump_shm, events);
  memset(&shm, 0, events);
  memset(shm.events, 0, sizeof shm.events);
}

static void begin(void) {
  const struct pump_model_bounds bounds = {.capacity = 4096,
                                           .slice_least = 2,
                                           .slice_most = 4,
                                           .slice_us = 1000,
                                           .in_flight = 8,
                                           .in_flight_share = 2,
                                           .doubts_per_fault = 1};
  const struct pump_model_device facts = {
      .budget = BUDGET, .capacity = BUDGET, .emulated = 1};
  forget_mapping();
  memset(generation, 0, sizeof generation);
  step = 0;
  shm.header.next_seq = 1;
  model = pump_model_new(&bounds);
  must(model != NULL);
  for (uint32_t d = 0; d < DEVICES; d++) pump_model_device(model, d, &facts);
  must(pump_model_learn(model, 1) == 0);
  pump_model_duplicate(model, 1);
  for (uint32_t slot = 0; slot < LAYERS * DEVICES; slot++)
    alloc_or_free(slot, PUMP_EVENT_ALLOC);
}

static bool in_force(void) {
  for (uint32_t d = 0; d < DEVICES; d++)
    if (!model->schedules.all[d].in_force) return false;
  return true;
}

/* Runs an honest client. */
static void repeat(uint32_t steps) {
  for (uint32_t i = 0; i < steps; i++) {
    issue_next();
    tick();
    carry_out_all();
    if (shm.header.next_seq > AHEAD) execute(shm.header.next_seq - AHEAD);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  struct input input = {.at = data, .left = bytes};
  begin();
  for (uint32_t i = 0; i < LEARNED && !in_force(); i++) repeat(1);
  must(in_force());
  for (uint32_t i = 0; i < ACTIONS && input.left > 0; i++) {
    uint8_t action[2];
    take(&input, action, sizeof action);
    if (action[0] < 0xa0)
      client(&input, action[0] & 31, action[1]);
    else
      worker(action[0] & 7, action[1]);
    check_transfers();
    check_counts();
  }
  pump_model_delete(model);
  return 0;
}
