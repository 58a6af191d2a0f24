/* load_generator.c - a client for the suites ring and policy: writes a mapping like the
 * shim, at full speed. No CUDA. Built and loaded by load_generator.py.
 *
 * DESIGN
 * Ranges have equal size and are adjacent, four to a layer. An iteration passes through
 * the layers forward, then backward, with one operation each. The first two ranges of a
 * layer belong to its forward operation, the others to its backward operation. An
 * operation writes its own two ranges. It reads the first range of the layer's other
 * operation and the last own range of the previous operation.
 *
 * The suite policy also has a clock. Operations execute 16 at a time, when a marker
 * reports them, and as many new ones are issued. Each direction of the link carries one
 * transfer at a time: the next startable entry of the worker's schedule, with a fixed
 * time per block. The function load_generator_next() advances to the next event; between
 * calls the caller lets the worker tick.
 *
 * In the suite ring, threads push as fast as the ring accepts operations.
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pump_ring.h"

#define EXPORT __attribute__((visibility("default")))
#define EXTENTS 4
#define RECORDS 2 /* records of an operation, 3 extents each */
#define BASE (1ull << 40)
#define FUNCTIONS 12
#define PER_MARKER 16
#define MOST_THREADS 16
#define STREAM 1
#define PARAMETER_BYTES 40 /* four pointers, two ints: a payload of one record */

struct generator {
  struct pump_shm *shm;
  uint64_t ranges, range_blocks, operations; /* operations: in one iteration */
  uint32_t arguments; /* 1: extents without lengths, as the shim reports them */
  uint64_t issued;    /* number of the newest issued operation */
  uint64_t executed;  /* number of the newest executed operation */
  uint64_t now_ns, marker_ns, marker_every_ns, block_ns;
  struct pump_command running[PUMP_DIRECTIONS]; /* ticket 0: no transfer */
  uint64_t ends_ns[PUMP_DIRECTIONS];
  uint64_t moved_blocks[PUMP_DIRECTIONS];
  uint64_t transfers[PUMP_DIRECTIONS];
};

static void fill_ranges(struct generator *f) {
  uint64_t length = f->range_blocks * PUMP_BLOCK_BYTES;
  for (uint64_t i = 0; i < f->ranges; i++) {
    struct pump_range *range = &f->shm->ranges[i];
    pump_range_write_begin(range);
    range->generation = 1;
    range->range_kind = PUMP_RANGE_CONVERTED;
    range->base = BASE + i * length;
    range->length_bytes = length;
    range->device = 0;
    range->alloc_seq = 1;
    pump_range_write_end(range);
  }
  f->shm->header.range_high = f->ranges;
  f->shm->header.range_version++;
}

/* Lays out a mapping of one device. `active`: the worker moves blocks instead of only
 * reading events. Returns NULL on failure. */
EXPORT struct generator *load_generator_new(struct pump_shm *shm, uint64_t budget_blocks,
                                            uint64_t ranges, uint64_t range_blocks,
                                            uint32_t active, uint32_t arguments) {
  struct generator *f = calloc(1, sizeof *f);
  if (f == NULL || ranges < 8 || ranges % 4 != 0 || ranges > PUMP_MAX_RANGES) {
    free(f);
    return NULL;
  }
  *f = (struct generator){.shm = shm,
                          .ranges = ranges,
                          .range_blocks = range_blocks,
                          .operations = ranges / 2,
                          .arguments = arguments};
  shm->header.magic = PUMP_ABI_MAGIC;
  shm->header.abi_version = PUMP_ABI_VERSION;
  shm->header.header_bytes = sizeof shm->header;
  shm->header.shm_bytes = sizeof *shm;
  shm->header.device_count = 1;
  shm->header.client_state = PUMP_CLIENT_RUNNING;
  shm->header.next_seq = 1;
  struct pump_device *device = &shm->devices[0];
  device->total_bytes = 1ull << 40;
  device->budget_bytes = device->free_at_start_bytes = budget_blocks * PUMP_BLOCK_BYTES;
  device->allocated_bytes = ranges * range_blocks * PUMP_BLOCK_BYTES;
  device->device_state = active ? PUMP_DEVICE_ACTIVE : PUMP_DEVICE_DORMANT;
  fill_ranges(f);
  return f;
}

EXPORT void load_generator_free(struct generator *f) {
  free(f);
}

/* Sets the four ranges of an operation (see DESIGN). The first two are its own. */
static void ranges_of(const struct generator *f, uint64_t number, uint64_t slots[EXTENTS]) {
  uint64_t k = number % f->operations, layers = f->operations / 2;
  bool back = k >= layers;
  uint64_t layer = back ? f->operations - 1 - k : k;
  slots[0] = 4 * layer + (back ? 2 : 0);
  slots[1] = slots[0] + 1;
  slots[2] = slots[0] ^ 2;
  slots[3] = (slots[0] + (back ? 5 : f->ranges - 3)) % f->ranges;
}

static void fill_operation(const struct generator *f, struct pump_event *event,
                           uint64_t seq, uint32_t stream, uint32_t part,
                           const uint64_t slots[EXTENTS]) {
  uint64_t k = seq % f->operations, length = f->range_blocks * PUMP_BLOCK_BYTES;
  event->seq = seq;
  event->time_ns = seq; /* in the worker, only a recorder reads it */
  event->function = 0x1000 + k % FUNCTIONS;
  event->kind = part == 0 ? PUMP_EVENT_KERNEL : PUMP_EVENT_MORE;
  event->extent_count = EXTENTS;
  event->stream = stream;
  event->device = 0;
  event->extents_dropped = 0;
  event->signature = 0x9e3779b97f4a7c15u * (k % FUNCTIONS + 1);
  for (uint32_t i = 0; i < PUMP_EVENT_EXTENTS && 3 * part + i < EXTENTS; i++) {
    uint32_t which = 3 * part + i;
    uint64_t told = length << 2 | (which < 2 ? PUMP_ACCESS_WRITE : PUMP_ACCESS_READ);
    uint64_t argument = (uint64_t)(8 * which) << 2 | PUMP_ACCESS_ARGUMENT;
    event->extents[i] =
        (struct pump_extent){.slot = (uint32_t)slots[which],
                             .generation = 1,
                             .length_access = f->arguments ? argument : told};
  }
}

/* Puts one operation into the ring; returns false if the ring is full. */
static bool push(const struct generator *f, uint64_t seq, uint32_t stream) {
  uint64_t slots[EXTENTS], position;
  if (!pump_event_reserve(f->shm, RECORDS, &position)) return false;
  ranges_of(f, seq, slots);
  for (uint32_t part = RECORDS; part-- > 0;) {
    fill_operation(f, pump_event_at(f->shm, position + part), seq, stream, part, slots);
    pump_event_publish(f->shm, position + part);
  }
  return true;
}

static void add_seq(struct generator *f, uint64_t count) {
  PUMP_STORE(&f->shm->header.next_seq, PUMP_LOAD(&f->shm->header.next_seq) + count);
}

/* Issues `count` operations; returns how many the ring accepted. */
EXPORT uint64_t load_generator_issue(struct generator *f, uint64_t count) {
  for (uint64_t i = 0; i < count; i++) {
    add_seq(f, 1);
    if (!push(f, f->issued + 1, STREAM)) return i;
    f->issued++;
  }
  PUMP_STORE(&f->shm->progress[STREAM].issued_seq, f->issued);
  return count;
}

/* Sends the parameters of each function, as the shim does before its first launch. */
EXPORT uint64_t load_generator_report(struct generator *f) {
  for (uint64_t k = 0; k < FUNCTIONS; k++) {
    struct {
      struct pump_params head;
      uint64_t pointers[EXTENTS];
      uint32_t numbers[2];
    } payload = {.head = {.grid = {1024, 1, 1},
                          .block = {256, 1, 1},
                          .parameter_bytes = PARAMETER_BYTES}};
    _Static_assert(sizeof payload == PUMP_EVENT_PAYLOAD_BYTES, "one record");
    uint64_t slots[EXTENTS], position;
    ranges_of(f, k, slots);
    for (int i = 0; i < EXTENTS; i++) payload.pointers[i] = f->shm->ranges[slots[i]].base;
    payload.numbers[0] = (uint32_t)(f->range_blocks * PUMP_BLOCK_BYTES / 4);
    if (!pump_event_reserve(f->shm, 1, &position)) return k;
    struct pump_event *event = pump_event_at(f->shm, position);
    event->seq = 0;
    event->function = 0x1000 + k;
    event->signature = 0x9e3779b97f4a7c15u * (k + 1);
    event->kind = PUMP_EVENT_PARAMS;
    event->extent_count = 0;
    event->payload_bytes = sizeof payload;
    memcpy(event->extents, &payload, sizeof payload);
    pump_event_publish(f->shm, position);
  }
  return FUNCTIONS;
}

/* ---- the clock of policy ------------------------------------------------ */

EXPORT void load_generator_clock(struct generator *f, uint64_t operation_ns,
                                 uint64_t block_ns) {
  f->marker_every_ns = operation_ns * PER_MARKER;
  f->marker_ns = f->now_ns + f->marker_every_ns;
  f->block_ns = block_ns;
}

static bool take(struct generator *f, uint32_t direction, struct pump_command *command) {
  struct pump_schedule *schedule = &f->shm->schedules[0];
  struct pump_entry entry;
  uint64_t cursor;
  if (!pump_schedule_peek(f->shm, 0, direction, &entry, &cursor) ||
      entry.after_seq > f->executed || entry.left_bytes > schedule->left_bytes ||
      !pump_schedule_claim(schedule, direction, cursor))
    return false;
  *command = entry.command;
  return true;
}

static void start_transfers(struct generator *f) {
  for (uint32_t d = 0; d < PUMP_DIRECTIONS; d++) {
    struct pump_command *running = &f->running[d];
    if (running->ticket != 0 || !take(f, d, running)) continue;
    uint64_t blocks = running->length_bytes / PUMP_BLOCK_BYTES;
    f->ends_ns[d] = f->now_ns + blocks * f->block_ns;
    f->moved_blocks[d] += blocks;
    f->transfers[d]++;
  }
}

static void end_transfer(struct generator *f, uint32_t direction) {
  struct pump_command *ended = &f->running[direction];
  uint64_t blocks = ended->length_bytes / PUMP_BLOCK_BYTES;
  if (direction == PUMP_TO_HOST) f->shm->schedules[0].left_bytes += ended->length_bytes;
  pump_schedule_finish(f->shm, ended->ticket, PUMP_RESULT_MOVED,
                       (uint32_t)(blocks * f->block_ns / 1000), 0);
  ended->ticket = 0;
}

/* Advances to the next completion or marker. Returns 1 for a marker (16 operations have
 * executed and 16 were issued), 0 for a completion, -1 if the ring was full. */
EXPORT int load_generator_next(struct generator *f) {
  start_transfers(f);
  uint32_t next = PUMP_DIRECTIONS;
  uint64_t at = f->marker_ns;
  for (uint32_t d = 0; d < PUMP_DIRECTIONS; d++)
    if (f->running[d].ticket != 0 && f->ends_ns[d] <= at) {
      at = f->ends_ns[d];
      next = d;
    }
  f->now_ns = at;
  PUMP_ADD(&f->shm->header.activity, 1);
  if (next < PUMP_DIRECTIONS) {
    end_transfer(f, next);
    return 0;
  }
  f->marker_ns += f->marker_every_ns;
  f->executed += PER_MARKER;
  PUMP_STORE_RELEASE(&f->shm->progress[STREAM].executed_seq, f->executed);
  return load_generator_issue(f, PER_MARKER) == PER_MARKER ? 1 : -1;
}

EXPORT uint64_t load_generator_moved(const struct generator *f, uint32_t direction) {
  return direction < PUMP_DIRECTIONS ? f->moved_blocks[direction] : 0;
}

EXPORT uint64_t load_generator_transfers(const struct generator *f, uint32_t direction) {
  return direction < PUMP_DIRECTIONS ? f->transfers[direction] : 0;
}

/* ---- the threads of ring ------------------------------------------------ */

struct producer {
  struct generator *generator;
  uint64_t operations, window, dropped, retries;
  uint32_t stream, throttle;
  int32_t cpu;
};

struct crowd {
  uint32_t threads;
  pthread_t handles[MOST_THREADS];
  struct producer producers[MOST_THREADS];
};

/* Returns whether the ring is below half. A worker with a longer backlog skips events,
 * which is also a loss. */
static bool has_room(struct pump_shm *shm) {
  uint64_t waiting =
      PUMP_LOAD(&shm->header.event_tail) - PUMP_LOAD(&shm->header.event_head);
  return waiting < PUMP_EVENT_SLOTS / 2;
}

static void *produce(void *argument) {
  struct producer *p = argument;
  struct pump_shm *shm = p->generator->shm;
  struct pump_progress *progress = &shm->progress[p->stream];
  uint64_t ring[4096] = {0}; /* numbers of this thread's newest operations */
  if (p->cpu >= 0) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)p->cpu, &set);
    (void)pthread_setaffinity_np(pthread_self(), sizeof set, &set);
  }
  for (uint64_t i = 0; i < p->operations; i++) {
    while (p->throttle && !has_room(shm)) {
      p->retries++;
      sched_yield();
    }
    uint64_t seq = PUMP_ADD(&shm->header.next_seq, 1);
    while (!push(p->generator, seq, p->stream)) {
      if (!p->throttle) {
        p->dropped++;
        PUMP_ADD(&shm->shim_counters.events_dropped, 1);
        break;
      }
      p->retries++;
      sched_yield();
    }
    ring[i % 4096] = seq;
    if (i % PER_MARKER == 0 && i >= p->window)
      PUMP_STORE_RELEASE(&progress->executed_seq, ring[(i - p->window) % 4096]);
    pump_wake(&shm->header.worker_asleep, &shm->header.worker_wakes);
  }
  PUMP_STORE_RELEASE(&progress->executed_seq, ring[(p->operations - 1) % 4096]);
  return NULL;
}

/* Starts threads that push `operations` each, on separate streams. The newest `window`
 * operations of a thread stay unexecuted, at most 4,095. `cpus`: a CPU for each thread,
 * or -1. Returns NULL on failure. */
EXPORT struct crowd *load_generator_start(struct generator *f, uint32_t threads,
                                          uint64_t operations, uint64_t window,
                                          uint32_t throttle, const int32_t *cpus) {
  if (threads == 0 || threads > MOST_THREADS || window > 4095 || operations == 0)
    return NULL;
  struct crowd *crowd = calloc(1, sizeof *crowd);
  if (crowd == NULL) return NULL;
  for (uint32_t i = 0; i < threads; i++) {
    crowd->producers[i] = (struct producer){.generator = f,
                                            .operations = operations,
                                            .window = window,
                                            .stream = STREAM + i,
                                            .throttle = throttle,
                                            .cpu = cpus[i]};
    if (pthread_create(&crowd->handles[i], NULL, produce, &crowd->producers[i]) != 0) break;
    crowd->threads++;
  }
  return crowd;
}

/* Waits for the threads and sums up dropped operations and retries. Returns the number of
 * threads. */
EXPORT uint32_t load_generator_join(struct crowd *crowd, uint64_t *dropped,
                                    uint64_t *retries) {
  uint32_t threads = crowd->threads;
  *dropped = *retries = 0;
  for (uint32_t i = 0; i < threads; i++) {
    pthread_join(crowd->handles[i], NULL);
    *dropped += crowd->producers[i].dropped;
    *retries += crowd->producers[i].retries;
  }
  free(crowd);
  return threads;
}
