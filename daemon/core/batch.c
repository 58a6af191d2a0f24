/* batch.c - the worker's side of the rings, for Python.
 *
 * Converts event records into columns, sleeps and wakes. Trusts nothing in the mapping:
 * whatever a client writes there, reading it neither crashes nor loops forever, though the
 * rows may be wrong.
 */
#include "pump_core.h"

#include <string.h>

#include "pump_clock.h"
#include "pump_ring.h"

#define EXPORT __attribute__((visibility("default")))

/* Rows, uses and payload bytes of struct pump_batch [guessed]. */
#define BATCH_ROWS 4096u
#define BATCH_USES 65536u
#define BATCH_PAYLOAD 1048576u
_Static_assert(sizeof(((struct pump_batch *)0)->seq) == BATCH_ROWS * 8, "rows");
_Static_assert(sizeof(((struct pump_batch *)0)->slot) == BATCH_USES * 4, "uses");

/* Returns how many records an operation with `extents` extents takes. */
static uint32_t records_for(uint32_t extents) {
  return extents == 0 ? 1 : (extents + PUMP_EVENT_EXTENTS - 1) / PUMP_EVENT_EXTENTS;
}

static uint32_t records_for_payload(uint32_t bytes) {
  return bytes == 0 ? 1 : (bytes + PUMP_EVENT_PAYLOAD_BYTES - 1) / PUMP_EVENT_PAYLOAD_BYTES;
}

static bool take_extent(struct pump_batch *batch, const struct pump_extent *extent) {
  uint32_t slot = PUMP_LOAD(&extent->slot);
  uint64_t length_access = PUMP_LOAD(&extent->length_access);
  if (slot >= PUMP_MAX_RANGES) return false;
  uint32_t use = batch->uses++;
  batch->slot[use] = slot;
  batch->generation[use] = PUMP_LOAD(&extent->generation);
  bool argument = (length_access & 3) == PUMP_ACCESS_ARGUMENT;
  batch->offset_bytes[use] = PUMP_LOAD(&extent->offset_bytes);
  batch->length_bytes[use] = argument ? 0 : length_access >> 2;
  uint64_t place = argument ? length_access >> 2 : 0;
  batch->argument[use] = (uint32_t)(place & ((1u << PUMP_ARGUMENT_BITS) - 1));
  batch->block_units[use] = (uint32_t)(place >> PUMP_ARGUMENT_BITS);
  batch->access[use] = (uint8_t)(length_access & 3);
  return true;
}

/* Copies the payload of PARAMS and NAME: `bytes` bytes in consecutive records. */
static bool take_payload(struct pump_shm *shm, uint64_t position, uint32_t bytes,
                         struct pump_batch *batch) {
  uint8_t *to = &batch->payload[batch->payload_used];
  for (uint32_t at = 0; at < bytes; at += PUMP_EVENT_PAYLOAD_BYTES) {
    const struct pump_event *event =
        pump_event_peek(shm, position + at / PUMP_EVENT_PAYLOAD_BYTES);
    if (event == NULL || (at > 0 && PUMP_LOAD(&event->kind) != PUMP_EVENT_MORE))
      return false;
    uint32_t left = bytes - at;
    memcpy(to + at, event->extents,
           left < PUMP_EVENT_PAYLOAD_BYTES ? left : PUMP_EVENT_PAYLOAD_BYTES);
  }
  return true;
}

/* Decodes the operation that starts at `position`. Returns the number of records that it
 * occupies, or 0 when it is not ready yet. */
static uint32_t take_row(struct pump_shm *shm, uint64_t position,
                         struct pump_batch *batch) {
  const struct pump_event *first = pump_event_peek(shm, position);
  if (first == NULL) return 0;
  uint16_t kind = PUMP_LOAD(&first->kind);
  uint16_t extents = PUMP_LOAD(&first->extent_count);
  bool has_payload = kind == PUMP_EVENT_PARAMS || kind == PUMP_EVENT_NAME;
  uint32_t payload_bytes = has_payload ? PUMP_LOAD(&first->payload_bytes) : 0;
  if (kind == PUMP_EVENT_MORE || kind == 0 || kind > PUMP_EVENT_TIMED ||
      extents > PUMP_MAX_EXTENTS || payload_bytes > PUMP_MAX_PAYLOAD_BYTES ||
      (has_payload && extents != 0) || !take_payload(shm, position, payload_bytes, batch)) {
    batch->malformed++;
    return 1;
  }
  uint32_t records =
      has_payload ? records_for_payload(payload_bytes) : records_for(extents);
  uint32_t row = batch->rows;
  uint32_t uses_before = batch->uses;
  for (uint32_t i = 0; i < extents; i++) {
    const struct pump_event *event =
        pump_event_peek(shm, position + i / PUMP_EVENT_EXTENTS);
    bool ready = event != NULL &&
                 (i < PUMP_EVENT_EXTENTS || PUMP_LOAD(&event->kind) == PUMP_EVENT_MORE);
    if (!ready || !take_extent(batch, &event->extents[i % PUMP_EVENT_EXTENTS])) {
      batch->uses = uses_before;
      batch->malformed++;
      return 1;
    }
  }
  batch->seq[row] = PUMP_LOAD(&first->seq);
  batch->time_ns[row] = PUMP_LOAD(&first->time_ns);
  batch->function[row] = PUMP_LOAD(&first->function);
  batch->signature[row] = PUMP_LOAD(&first->signature);
  batch->payload_begin[row] = batch->payload_used;
  batch->payload_bytes[row] = payload_bytes;
  batch->payload_used += payload_bytes;
  batch->stream[row] = PUMP_LOAD(&first->stream) & (PUMP_MAX_STREAMS - 1);
  batch->device[row] = PUMP_LOAD(&first->device) & (PUMP_MAX_DEVICES - 1);
  batch->kind[row] = kind;
  batch->dropped[row] = PUMP_LOAD(&first->extents_dropped);
  batch->rows = row + 1;
  batch->use_begin[row + 1] = batch->uses;
  return records;
}

EXPORT int pump_core_drain(struct pump_shm *shm, struct pump_batch *batch) {
  batch->rows = 0;
  batch->uses = 0;
  batch->malformed = 0;
  batch->payload_used = 0;
  batch->use_begin[0] = 0;
  uint64_t head = PUMP_LOAD(&shm->header.event_head);
  uint64_t tail = PUMP_LOAD_ACQUIRE(&shm->header.event_tail);
  if (tail - head > PUMP_EVENT_SLOTS) {
    pump_event_release(shm, tail);
    return -EPROTO;
  }
  while (head != tail && batch->rows < BATCH_ROWS &&
         batch->uses + PUMP_MAX_EXTENTS <= BATCH_USES &&
         batch->payload_used + PUMP_MAX_PAYLOAD_BYTES <= BATCH_PAYLOAD) {
    uint32_t records = take_row(shm, head, batch);
    if (records == 0) break;
    head = tail - head < records ? tail : head + records;
  }
  pump_event_release(shm, head);
  return (int)batch->rows;
}

EXPORT uint32_t pump_core_backlog(struct pump_shm *shm) {
  uint64_t waiting =
      PUMP_LOAD(&shm->header.event_tail) - PUMP_LOAD(&shm->header.event_head);
  return waiting > PUMP_EVENT_SLOTS ? PUMP_EVENT_SLOTS : (uint32_t)waiting;
}

EXPORT uint32_t pump_core_skip(struct pump_shm *shm) {
  uint32_t waiting = pump_core_backlog(shm);
  pump_event_release(shm, PUMP_LOAD_ACQUIRE(&shm->header.event_tail));
  return waiting;
}

EXPORT uint32_t pump_core_ranges(struct pump_shm *shm, uint32_t *slots,
                                 struct pump_range *copies, uint32_t max) {
  uint64_t high = PUMP_LOAD_ACQUIRE(&shm->header.range_high);
  if (high > PUMP_MAX_RANGES) high = PUMP_MAX_RANGES;
  uint32_t count = 0;
  for (uint32_t slot = 0; slot < high && count < max; slot++) {
    if (PUMP_LOAD(&shm->ranges[slot].range_kind) == PUMP_RANGE_FREE) continue;
    if (!pump_range_read(&shm->ranges[slot], &copies[count])) continue;
    if (copies[count].range_kind != PUMP_RANGE_FREE) slots[count++] = slot;
  }
  return count;
}

EXPORT uint64_t pump_core_activity(struct pump_shm *shm) {
  return PUMP_LOAD_ACQUIRE(&shm->header.activity);
}

EXPORT void pump_core_knock(struct pump_shm *shm) {
  PUMP_ADD(&shm->header.activity, 1);
  pump_wake(&shm->header.worker_asleep, &shm->header.worker_wakes);
}

static pump_clock_function clock_of_kernel = clock_gettime;

__attribute__((constructor)) static void find_clock(void) {
  clock_of_kernel = pump_clock_find();
}

EXPORT uint64_t pump_core_now_ns(void) {
  return pump_clock_ns(clock_of_kernel);
}

/* Hints to the CPU core that this is a spin loop. */
static inline void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static bool work_waits(struct pump_shm *shm, uint64_t seen_activity) {
  if (pump_core_activity(shm) != seen_activity) return true;
  uint64_t head = PUMP_LOAD(&shm->header.event_head);
  return pump_event_peek(shm, head) != NULL;
}

EXPORT uint64_t pump_core_spin_ns(uint64_t waited_ns) {
  return pump_spin_ns(waited_ns);
}

EXPORT int pump_core_wait(struct pump_shm *shm, uint64_t seen_activity, uint64_t spin_ns,
                          uint64_t timeout_ns) {
  if (work_waits(shm, seen_activity)) return 1;
  if (spin_ns > 0) {
    uint64_t until_ns = pump_core_now_ns() + spin_ns;
    do {
      if (work_waits(shm, seen_activity)) return 1;
      relax();
    } while (pump_core_now_ns() < until_ns);
  }
  uint32_t *asleep = &shm->header.worker_asleep;
  uint32_t *wakes = &shm->header.worker_wakes;
  uint32_t ticket = pump_sleep_prepare(asleep, wakes);
  /* Sleeps in two parts, as pump_wake_later requires of its sleepers. */
  uint64_t grace_ns = timeout_ns < PUMP_SLEEP_GRACE_NS ? timeout_ns : PUMP_SLEEP_GRACE_NS;
  if (!work_waits(shm, seen_activity)) pump_sleep_wait(wakes, ticket, grace_ns);
  if (PUMP_LOAD(wakes) == ticket && !work_waits(shm, seen_activity) &&
      timeout_ns > grace_ns)
    pump_sleep_wait(wakes, ticket, timeout_ns - grace_ns);
  PUMP_STORE(asleep, 0);
  return work_waits(shm, seen_activity) ? 1 : 0;
}
