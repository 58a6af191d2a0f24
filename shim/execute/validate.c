/* validate.c - decides whether a command of the worker may run, and makes frees wait for
 * running slices.
 *
 * It calls no driver function. executor.c calls it immediately before a slice goes to the
 * driver, no matter how long the command has waited.
 *
 * DESIGN. Another process writes the mapping, so every field of a command is checked. A
 * prefetch of wrong bytes would be harmless, because it changes no data, and a wrong
 * address would only make the driver return an error. The checks keep useless and late
 * transfers off the link. A prefetch of resident blocks passes them: it protects the
 * blocks from the driver's own eviction.
 *
 * Free against a running slice. cuMemFree must not run during a prefetch of the same
 * range, and must not wait longer than that. Two words with different writers decide
 * (Dekker's algorithm):
 *
 *   Mover                              Free (application thread)
 *   running[slot]++                    change the range's generation in the table
 *   full fence                         full fence (pump_slot_wait)
 *   read the generation                read running[slot]
 *
 * At least one side sees the other's store. Either the mover sees a dead generation and
 * touches nothing, or the free sees the running slice and waits. So commands that are
 * still queued when their range is freed end as DEAD.
 */
#include <errno.h>

#include "executors.h"

/* Running slices per slot. Written by movers, read by frees. */
static uint32_t running[PUMP_MAX_RANGES];
static uint32_t waiting_frees;

void pump_slot_begin(uint32_t slot) {
  __atomic_fetch_add(&running[slot], 1, __ATOMIC_SEQ_CST);
  __atomic_thread_fence(__ATOMIC_SEQ_CST); /* before the generation is read */
}

void pump_slot_end(uint32_t slot) {
  PUMP_ASSERT(__atomic_load_n(&running[slot], __ATOMIC_SEQ_CST) != 0,
              "each pump_slot_end follows a pump_slot_begin");
  if (__atomic_sub_fetch(&running[slot], 1, __ATOMIC_SEQ_CST) == 0 &&
      __atomic_load_n(&waiting_frees, __ATOMIC_SEQ_CST) != 0)
    pump_futex_wake(&running[slot]);
}

/* How many times each slot is closed. Written by the pool, read by movers after
 * pump_slot_begin. Works as above, with this word instead of the generation. */
static uint32_t closed[PUMP_MAX_RANGES];

bool pump_slot_close(uint32_t slot) {
  __atomic_fetch_add(&closed[slot], 1, __ATOMIC_SEQ_CST);
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  return __atomic_load_n(&running[slot], __ATOMIC_SEQ_CST) == 0;
}

void pump_slot_open(uint32_t slot) {
  PUMP_ASSERT(__atomic_load_n(&closed[slot], __ATOMIC_SEQ_CST) != 0,
              "each pump_slot_open follows a pump_slot_close");
  __atomic_fetch_sub(&closed[slot], 1, __ATOMIC_SEQ_CST);
}

void pump_slot_wait(uint32_t slot) {
  if (slot >= PUMP_MAX_RANGES) return;
  /* The caller has changed the slot's generation: before `running` is read. */
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  if (PUMP_LIKELY(PUMP_LOAD_ACQUIRE(&running[slot]) == 0)) return;
  int saved = errno;
  uint64_t deadline_ns = pump_now_ns() + PUMP_FREE_WAIT_NS;
  __atomic_fetch_add(&waiting_frees, 1, __ATOMIC_SEQ_CST);
  uint32_t seen;
  while ((seen = __atomic_load_n(&running[slot], __ATOMIC_SEQ_CST)) != 0) {
    if (pump_now_ns() > deadline_ns) {
      static uint32_t said;
      pump_log_once(&said, PUMP_LOG_WARNING,
                    "a prefetch has been in the driver for 5 s, so frees no longer wait "
                    "for it. Check dmesg and nvidia-smi");
      break;
    }
    pump_futex_sleep(&running[slot], seen, 10000000);
  }
  __atomic_fetch_sub(&waiting_frees, 1, __ATOMIC_SEQ_CST);
  errno = saved;
}

void pump_slot_fork_child(void) {
  for (uint32_t i = 0; i < PUMP_MAX_RANGES; i++)
    if (running[i] != 0) running[i] = 0; /* do not copy untouched pages */
  for (uint32_t i = 0; i < PUMP_MAX_RANGES; i++)
    if (closed[i] != 0) closed[i] = 0;
  waiting_frees = 0;
}

/* ---- commands ------------------------------------------------------------------ */

bool pump_command_validate_fields(const struct pump_command *command) {
  return command->slot < PUMP_MAX_RANGES && command->length_bytes != 0 &&
         command->length_bytes <= PUMP_SLICE_BYTES;
}

static bool on_block_border(const struct pump_range *range, uint64_t offset_bytes) {
  return offset_bytes == 0 || offset_bytes == range->length_bytes ||
         (range->base + offset_bytes) % PUMP_BLOCK_BYTES == 0;
}

static bool well_formed(const struct pump_command *command, const struct pump_range *range,
                        uint32_t device) {
  if (range->device != device) return false;
  if (command->length_bytes > range->length_bytes) return false;
  if (command->offset_bytes > range->length_bytes - command->length_bytes) return false;
  return on_block_border(range, command->offset_bytes) &&
         on_block_border(range, command->offset_bytes + command->length_bytes);
}

/* Returns the newest operation that uses any eighth of the range touched by the slice. */
static uint64_t last_use(const struct pump_range *range, uint64_t offset_bytes,
                         uint64_t length_bytes) {
  uint32_t first = pump_range_eighth(range->length_bytes, offset_bytes);
  uint32_t last = pump_range_eighth(range->length_bytes, offset_bytes + length_bytes - 1);
  uint64_t newest = 0;
  for (uint32_t i = first; i <= last; i++)
    if (range->last_use_seq[i] > newest) newest = range->last_use_seq[i];
  return newest;
}

uint32_t pump_command_validate_state(const struct pump_command *command, uint32_t device,
                                     uint32_t direction, uint64_t *address) {
  struct pump_range range;
  PUMP_ASSERT(pump_command_validate_fields(command) &&
                  __atomic_load_n(&running[command->slot], __ATOMIC_SEQ_CST) != 0,
              "a slot is validated between its begin and its end");
  /* A record that keeps changing is being freed or replaced. */
  if (!pump_range_read(&pump_shm->ranges[command->slot], &range)) return PUMP_RESULT_DEAD;
  if (range.range_kind == PUMP_RANGE_FREE || range.generation != command->generation)
    return PUMP_RESULT_DEAD;
  if (!well_formed(command, &range, device)) return PUMP_RESULT_INVALID;
  if (__atomic_load_n(&closed[command->slot], __ATOMIC_SEQ_CST) != 0)
    return PUMP_RESULT_STALE;
  *address = range.base + command->offset_bytes;
  if (direction == PUMP_TO_HOST)
    return last_use(&range, command->offset_bytes, command->length_bytes) >
                   command->observed_seq
               ? PUMP_RESULT_STALE
               : PUMP_RESULT_MOVED;
  if (command->needed_by_seq == 0) return PUMP_RESULT_MOVED;
  if (command->stream >= PUMP_MAX_STREAMS) return PUMP_RESULT_INVALID;
  return pump_progress_executed(command->stream) >= command->needed_by_seq
             ? PUMP_RESULT_LATE
             : PUMP_RESULT_MOVED;
}
