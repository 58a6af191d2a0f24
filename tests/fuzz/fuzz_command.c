/* fuzz_command.c - executors with a mapping of arbitrary contents: commands, schedules,
 * predictions and range records, from a broken worker or a process that writes to its
 * memory (execute/validate.c, execute/schedule.c).
 *
 * The input overwrites schedules and range records of two devices, and valid_seq. Then
 * the target takes the schedules, validates commands and compares operations. For any
 * input, an executor moves at most one slice per command, inside the named range as it
 * was read. It moves nothing that is not valid, and every schedule ends.
 */
#include "fuzz_input.h"
#include "shim/execute/executors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#define DEVICES 2
#define RANGES 4
#define ENTRIES 6

static struct pump_shm shm;
_Static_assert(sizeof(struct pump_range) == 128 && sizeof(struct pump_entry) == 88,
               "command_seeds.py writes these");
struct pump_shm *pump_shm = &shm;

bool pump_log_once(uint32_t *said, int level, const char *format, ...) {
  (void)said, (void)level, (void)format;
  return false;
}

uint64_t pump_now_ns(void) {
  return 0;
}

bool pump_mapping_entered(void) {
  return true;
}

/* Reports that half of all possible operations have executed. */
uint64_t pump_progress_executed(uint32_t stream) {
  must(stream < PUMP_MAX_STREAMS);
  return UINT64_MAX / 2;
}

bool pump_flight_fits(uint32_t device, uint32_t direction, uint64_t bytes,
                      uint32_t most_bytes) {
  must(device < PUMP_MAX_DEVICES && direction < PUMP_DIRECTIONS);
  must(most_bytes == UINT32_MAX || most_bytes == PUMP_PREDICTED_BYTES);
  return bytes <= PUMP_SLICE_BYTES;
}

static void judge(const struct pump_command *command, uint32_t device, uint32_t direction) {
  uint64_t address = 0;
  if (!pump_command_validate_fields(command)) return; /* like execute/executor.c */
  pump_slot_begin(command->slot);
  uint32_t result = pump_command_validate_state(command, device, direction, &address);
  pump_slot_end(command->slot);
  if (result != PUMP_RESULT_MOVED) return;
  const struct pump_range *range = &shm.ranges[command->slot];
  must(range->device == device && range->generation == command->generation);
  must(address - range->base <= range->length_bytes);
  must(command->length_bytes <= range->length_bytes - (address - range->base));
}

static void take_schedules(void) {
  struct pump_entry entry;
  uint64_t made_ns;
  for (uint32_t d = 0; d < DEVICES; d++)
    for (uint32_t direction = 0; direction < PUMP_DIRECTIONS; direction++) {
      uint32_t turns = 0;
      pump_schedule_can_start(d, direction);
      pump_schedule_ready(d, direction);
      for (; pump_schedule_take(d, direction, &entry, &made_ns); turns++) {
        const struct pump_command *command = &entry.command;
        must(turns < PUMP_SCHEDULE_ENTRIES);
        must((direction == PUMP_TO_GPU ? command->needed_by_seq : command->observed_seq) <=
             shm.header.valid_seq);
        judge(command, d, direction);
        pump_schedule_finish(&shm, command->ticket, PUMP_RESULT_MOVED, 1, 0);
        if (direction == PUMP_TO_HOST)
          pump_schedule_add_left_bytes(d, command->length_bytes);
      }
    }
}

static void issue(struct input *input) {
  uint32_t grid[3], block[3];
  struct pump_issued issued = {.grid = grid, .block = block};
  take(input, &issued.seq, sizeof issued.seq);
  take(input, &issued.signature, sizeof issued.signature);
  take(input, &issued.stream, sizeof issued.stream);
  take(input, grid, sizeof grid);
  take(input, block, sizeof block);
  uint64_t before = shm.header.valid_seq;
  pump_schedule_compare(&issued);
  must(shm.header.valid_seq == before || /* or this operation is the first different one */
       (shm.header.valid_seq == issued.seq - 1 && issued.seq <= before));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  struct input input = {.at = data, .left = bytes};
  for (uint32_t i = 0; i < RANGES; i++) {
    take(&input, &shm.ranges[i], sizeof shm.ranges[i]);
    shm.ranges[i].version &= ~1ull; /* else readers wait for the writer */
  }
  for (uint32_t d = 0; d < DEVICES; d++) {
    struct pump_schedule *schedule = &shm.schedules[d];
    take(&input, &schedule->cursor, sizeof schedule->cursor);
    take(&input, schedule->count, sizeof schedule->count);
    take(&input, &schedule->left_bytes, sizeof schedule->left_bytes);
    for (uint32_t direction = 0; direction < PUMP_DIRECTIONS; direction++)
      take(&input, schedule->entries[direction],
           ENTRIES * sizeof schedule->entries[direction][0]);
    for (uint32_t direction = 0; direction < PUMP_DIRECTIONS; direction++)
      for (uint32_t i = 0; i < ENTRIES; i++)
        judge(&schedule->entries[direction][i].command, d, direction);
  }
  take(&input, &shm.header.next_seq, sizeof shm.header.next_seq);
  take(&input, &shm.header.valid_seq, sizeof shm.header.valid_seq);
  take_schedules();
  pump_schedule_wake();
  issue(&input);
  return 0;
}
