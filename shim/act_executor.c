/* act_executor.c - carries out the worker's commands: validate, move, report.
 *
 * It never decides what to move. A mover thread owns one stream and one event,
 * both of the program's context, takes one command at a time from the ring of its
 * device and direction, and is done with it when the driver is. So what is in
 * flight is bounded by threads times slice: 64 MiB in, 96 MiB out a device.
 *
 * DESIGN. The mapping is written by another process, so nothing in a command is
 * believed. Prefetching wrong bytes would be harmless anyway (it changes no
 * data), a wrong address would only make the driver answer an error; the checks
 * keep useless and late work off the link.
 *
 * Free against a running slice. cuMemFree of a range while a prefetch on it is
 * under way must not happen, and a free must not wait for more than that. Two
 * words of different owners decide (Dekker's scheme):
 *
 *   mover                              free (application thread)
 *   running[slot]++                    range's generation changes in the table
 *   full fence                         full fence (pump_act_wait_slot)
 *   read the generation                read running[slot]
 *
 * At least one side sees the other's store: either the mover sees a dead
 * generation and touches nothing, or the free sees the running slice and waits.
 *
 * Attach. Taking and finishing happen inside pump_mapping_enter/leave; a command
 * that was taken from an earlier mapping is dropped instead of being written into
 * the ring that now lies at the same address.
 */
#include <errno.h>
#include <string.h>

#include "act.h"
#include "act_private.h"

#define IDLE_NS 1000000000u
#define FREE_WAIT_NS 5000000000u /* a stuck driver must not hang a free in our code */

/* Slices that run per slot; written by movers, read by frees. */
static uint32_t running[PUMP_MAX_RANGES];
static uint32_t waiting_frees;

struct mover {
  struct pump_thread_role role;
  CUstream stream;
  CUevent event; /* blocking: a spinning wait would take a core from the program */
  bool over;     /* the driver is being torn down */
};

/* ---- slices that run --------------------------------------------------------- */

static void slot_begin(uint32_t slot) {
  __atomic_fetch_add(&running[slot], 1, __ATOMIC_SEQ_CST);
  __atomic_thread_fence(__ATOMIC_SEQ_CST); /* before the generation is read */
}

static void slot_end(uint32_t slot) {
  if (__atomic_sub_fetch(&running[slot], 1, __ATOMIC_SEQ_CST) == 0 &&
      __atomic_load_n(&waiting_frees, __ATOMIC_SEQ_CST) != 0)
    pump_futex_wake(&running[slot]);
}

void pump_act_wait_slot(uint32_t slot) {
  if (slot >= PUMP_MAX_RANGES) return;
  __atomic_thread_fence(__ATOMIC_SEQ_CST); /* after the generation was changed */
  if (PUMP_LIKELY(PUMP_LOAD_ACQUIRE(&running[slot]) == 0)) return;
  int saved = errno;
  uint64_t deadline_ns = pump_now_ns() + FREE_WAIT_NS;
  __atomic_fetch_add(&waiting_frees, 1, __ATOMIC_SEQ_CST);
  uint32_t seen;
  while ((seen = __atomic_load_n(&running[slot], __ATOMIC_SEQ_CST)) != 0) {
    if (pump_now_ns() > deadline_ns) {
      static uint32_t said;
      pump_log_once(
          &said, PUMP_LOG_WARNING,
          "a prefetch has been in the driver for 5 s: a free no longer waits for it");
      break;
    }
    pump_futex_sleep(&running[slot], seen, 10000000);
  }
  __atomic_fetch_sub(&waiting_frees, 1, __ATOMIC_SEQ_CST);
  errno = saved;
}

/* ---- validation -------------------------------------------------------------- */

static bool on_block_border(const struct pump_range *range, uint64_t offset_bytes) {
  return offset_bytes == 0 || offset_bytes == range->length_bytes ||
         (range->base + offset_bytes) % PUMP_BLOCK_BYTES == 0;
}

static bool well_formed(const struct mover *mover, const struct pump_command *command,
                        const struct pump_range *range) {
  if (range->device != mover->role.set->device) return false;
  if (command->length_bytes > range->length_bytes) return false;
  if (command->offset_bytes > range->length_bytes - command->length_bytes) return false;
  return on_block_border(range, command->offset_bytes) &&
         on_block_border(range, command->offset_bytes + command->length_bytes);
}

/* Newest operation that uses any eighth of the range which the slice touches. */
static uint64_t last_use(const struct pump_range *range, uint64_t offset_bytes,
                         uint64_t length_bytes) {
  uint32_t first = pump_use_slice(range->length_bytes, offset_bytes);
  uint32_t last = pump_use_slice(range->length_bytes, offset_bytes + length_bytes - 1);
  uint64_t newest = 0;
  for (uint32_t i = first; i <= last; i++)
    if (range->last_use_seq[i] > newest) newest = range->last_use_seq[i];
  return newest;
}

/* Whether the slice may be moved: PUMP_RESULT_MOVED, or the reason why not. */
static uint32_t judge(const struct mover *mover, const struct pump_command *command,
                      struct pump_range *range) {
  /* A record that keeps changing is one that is being freed or replaced. */
  if (!pump_range_read(&pump_shm->ranges[command->slot], range)) return PUMP_RESULT_DEAD;
  if (range->range_kind == PUMP_RANGE_FREE || range->generation != command->generation)
    return PUMP_RESULT_DEAD;
  if (!well_formed(mover, command, range)) return PUMP_RESULT_INVALID;
  if (mover->role.direction == PUMP_TO_HOST)
    return last_use(range, command->offset_bytes, command->length_bytes) >
                   command->observed_seq
               ? PUMP_RESULT_STALE
               : PUMP_RESULT_MOVED;
  if (command->needed_by_seq == 0) return PUMP_RESULT_MOVED;
  if (command->stream >= PUMP_MAX_STREAMS) return PUMP_RESULT_INVALID;
  return PUMP_LOAD(&pump_shm->progress[command->stream].executed_seq) >=
                 command->needed_by_seq
             ? PUMP_RESULT_LATE
             : PUMP_RESULT_MOVED;
}

/* ---- the driver -------------------------------------------------------------- */

static bool note(struct mover *mover, CUresult result, const char *call) {
  if (!pump_set_note(mover->role.set, result, call)) mover->over = true;
  return result == CUDA_SUCCESS;
}

/* Stream and event, created when first needed and again after a failure. */
static bool mover_open(struct mover *mover) {
  if (mover->stream == NULL &&
      !note(mover, pump_real.cuStreamCreate(&mover->stream, CU_STREAM_NON_BLOCKING),
            "cuStreamCreate")) {
    mover->stream = NULL;
    return false;
  }
  if (mover->event == NULL &&
      !note(mover,
            pump_real.cuEventCreate(&mover->event,
                                    CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING),
            "cuEventCreate"))
    mover->event = NULL;
  return mover->event != NULL;
}

static void mover_close(struct mover *mover) {
  if (mover->event != NULL) pump_real.cuEventDestroy_v2(mover->event);
  if (mover->stream != NULL) pump_real.cuStreamDestroy_v2(mover->stream);
  mover->event = NULL;
  mover->stream = NULL;
}

static CUresult prefetch(const struct mover *mover, uint64_t address,
                         uint64_t length_bytes) {
  bool to_gpu = mover->role.direction == PUMP_TO_GPU;
  CUdevice device = (CUdevice)mover->role.set->device;
  if (PUMP_HAS(cuMemPrefetchAsync_v2)) {
    CUmemLocation location = {.type = to_gpu ? CU_MEM_LOCATION_TYPE_DEVICE
                                             : CU_MEM_LOCATION_TYPE_HOST,
                              .id = to_gpu ? device : 0};
    return pump_real.cuMemPrefetchAsync_v2(address, length_bytes, location, 0,
                                           mover->stream);
  }
  return pump_real.cuMemPrefetchAsync(address, length_bytes,
                                      to_gpu ? device : CU_DEVICE_CPU, mover->stream);
}

/* Moves the bytes and waits until they are there. */
static uint32_t move(struct mover *mover, uint64_t address, uint64_t length_bytes) {
  if (pump_set_gave_up(mover->role.set) || mover->over || !mover_open(mover))
    return PUMP_RESULT_FAILED;
  CUresult result = prefetch(mover, address, length_bytes);
  if (result != CUDA_SUCCESS) {
    note(mover, result, "cuMemPrefetchAsync");
    return PUMP_RESULT_FAILED;
  }
  result = pump_real.cuEventRecord(mover->event, mover->stream);
  if (result == CUDA_SUCCESS) result = pump_real.cuEventSynchronize(mover->event);
  return note(mover, result, "waiting for a prefetch") ? PUMP_RESULT_MOVED
                                                       : PUMP_RESULT_FAILED;
}

/* ---- work -------------------------------------------------------------------- */

static uint32_t carry_out(struct mover *mover, const struct pump_command *command) {
  if (command->slot >= PUMP_MAX_RANGES || command->length_bytes == 0 ||
      command->length_bytes > PUMP_SLICE_BYTES)
    return PUMP_RESULT_INVALID;
  struct pump_range range;
  slot_begin(command->slot);
  uint32_t result = judge(mover, command, &range);
  if (result == PUMP_RESULT_MOVED)
    result = move(mover, range.base + command->offset_bytes, command->length_bytes);
  slot_end(command->slot);
  return result;
}

static void count(const struct mover *mover, uint32_t result, uint64_t length_bytes) {
  struct pump_shim_counters *counters = &pump_shm->shim_counters;
  uint64_t *const refused[] = {
      [PUMP_RESULT_STALE] = &counters->commands_stale,
      [PUMP_RESULT_LATE] = &counters->commands_late,
      [PUMP_RESULT_DEAD] = &counters->commands_dead,
      [PUMP_RESULT_INVALID] = &counters->commands_invalid,
      [PUMP_RESULT_FAILED] = &counters->commands_failed,
  };
  if (result != PUMP_RESULT_MOVED)
    PUMP_ADD(refused[result], 1);
  else if (mover->role.direction == PUMP_TO_GPU)
    PUMP_ADD(&counters->moved_to_gpu_bytes, length_bytes);
  else
    PUMP_ADD(&counters->moved_to_host_bytes, length_bytes);
}

static struct pump_command_ring *ring_of(const struct mover *mover) {
  return &pump_shm->commands[mover->role.set->device][mover->role.direction];
}

/* True when there was a command, or when the mapping is just being replaced. */
static bool serve_command(struct mover *mover) {
  uint64_t epoch, epoch_now;
  if (!pump_mapping_enter(&epoch)) {
    struct timespec nap = {.tv_nsec = 50000};
    nanosleep(&nap, NULL);
    return true;
  }
  struct pump_command command;
  struct pump_command *place = pump_command_take(ring_of(mover), &command);
  pump_mapping_leave();
  if (place == NULL) return false;
  uint64_t begin_ns = pump_now_ns();
  uint32_t result = carry_out(mover, &command);
  uint64_t duration_us = (pump_now_ns() - begin_ns) / 1000;
  count(mover, result, command.length_bytes);
  if (!pump_mapping_enter(&epoch_now)) return true; /* its worker is gone */
  if (epoch_now == epoch)
    pump_command_finish(place, result,
                        duration_us < UINT32_MAX ? (uint32_t)duration_us : UINT32_MAX);
  pump_mapping_leave();
  pump_tell_worker();
  return true;
}

static bool serve_populate(struct mover *mover) {
  struct pump_populate_slice slice;
  if (!pump_populate_next(mover->role.set->device, &slice)) return false;
  struct pump_command command = {.slot = slice.slot,
                                 .generation = slice.generation,
                                 .offset_bytes = slice.offset_bytes,
                                 .length_bytes = slice.length_bytes};
  if (carry_out(mover, &command) == PUMP_RESULT_MOVED)
    PUMP_ADD(&pump_shm->shim_counters.populate_bytes, slice.length_bytes);
  return true;
}

static bool command_waits(struct pump_command_ring *ring) {
  uint64_t head = PUMP_LOAD_ACQUIRE(&ring->head);
  return head != PUMP_LOAD_ACQUIRE(&ring->tail) &&
         PUMP_LOAD_ACQUIRE(&pump_command_at(ring, head)->state) == PUMP_COMMAND_READY;
}

void *pump_mover_thread(void *argument) {
  struct mover mover = {.role = *(struct pump_thread_role *)argument};
  struct pump_command_ring *ring = ring_of(&mover);
  bool to_gpu = mover.role.direction == PUMP_TO_GPU;
  mover.over = !pump_set_thread_begin(&mover.role);
  while (!mover.over && pump_set_lives(&mover.role)) {
    if (serve_command(&mover) || (to_gpu && serve_populate(&mover))) continue;
    uint32_t ticket = pump_bell_prepare(&ring->executors_asleep, &ring->bell);
    if (command_waits(ring) || !pump_set_lives(&mover.role)) continue;
    if (to_gpu && pump_populate_waits(mover.role.set->device)) continue;
    pump_bell_wait(&ring->bell, ticket, IDLE_NS);
  }
  mover_close(&mover);
  pump_set_thread_end(&mover.role);
  return NULL;
}

void pump_executor_fork_child(void) {
  memset(running, 0, sizeof running);
  waiting_frees = 0;
}
