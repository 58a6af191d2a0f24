/* fuzz_ring.c - a worker with a mapping that a client filled with arbitrary bytes: event
 * records, range records (core/batch.c).
 *
 * The input: the ring's head, the number of records, and the raw records. The rest fills
 * the first range records. For any input, decoded rows stay in their bounds, and
 * afterwards the ring is empty or waits for a record that is not ready.
 */
#include "daemon/core/pump_core.h"
#include "fuzz_input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#define RANGES 16

static struct pump_shm shm;
static struct pump_batch batch;

static void check_batch(void) {
  must(batch.use_begin[0] == 0 && batch.uses <= sizeof batch.slot / sizeof *batch.slot);
  for (uint32_t row = 0; row < batch.rows; row++) {
    must(batch.use_begin[row] <= batch.use_begin[row + 1]);
    must(batch.kind[row] != 0 && batch.kind[row] <= PUMP_EVENT_TIMED);
    must(batch.stream[row] < PUMP_MAX_STREAMS && batch.device[row] < PUMP_MAX_DEVICES);
    must(batch.payload_begin[row] + batch.payload_bytes[row] <= batch.payload_used);
  }
  must(batch.use_begin[batch.rows] == batch.uses);
  must(batch.payload_used <= sizeof batch.payload);
  for (uint32_t use = 0; use < batch.uses; use++)
    must(batch.slot[use] < PUMP_MAX_RANGES && batch.access[use] < 4);
}

static void drain(struct input *input) {
  uint8_t count, ready;
  take(input, &shm.header.event_head, sizeof shm.header.event_head);
  take(input, &count, sizeof count);
  uint64_t head = shm.header.event_head;
  for (uint32_t i = 0; i < count; i++) {
    struct pump_event *event = &shm.events[(head + i) % PUMP_EVENT_SLOTS];
    take(input, &ready, sizeof ready);
    take(input, (char *)event + sizeof event->sequence,
         sizeof *event - sizeof event->sequence);
    event->sequence = ready == 0xff ? head : head + i + 1;
  }
  shm.header.event_tail = head + count;
  for (int turn = 0; turn <= 256; turn++) { /* each turn releases at least one record */
    uint64_t before = shm.header.event_head;
    int rows = pump_core_drain(&shm, &batch);
    must(rows == (int)batch.rows);
    check_batch();
    if (shm.header.event_head == before) break;
    must(turn < 256);
  }
  must(pump_core_backlog(&shm) <= count);
  for (uint32_t i = 0; i < count; i++)
    memset(&shm.events[(head + i) % PUMP_EVENT_SLOTS], 0, sizeof shm.events[0]);
}

static void ranges(struct input *input) {
  static uint32_t slots[RANGES];
  static struct pump_range copies[RANGES + 1];
  take(input, &shm.header.range_high, sizeof shm.header.range_high);
  take(input, shm.ranges, RANGES * sizeof shm.ranges[0]);
  uint32_t found = pump_core_ranges(&shm, slots, copies, RANGES);
  must(found <= RANGES);
  for (uint32_t i = 0; i < found; i++) must(slots[i] < RANGES);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  struct input input = {.at = data, .left = bytes};
  drain(&input);
  ranges(&input);
  return 0;
}
