/* hops.c - measures where scheduled slices lose time (struct pump_entry_end).
 *
 * DESIGN. A slice waits for its readers, for evicted bytes and for earlier slices. These
 * waits are not a loss. Only the time from the last of these events until an executor
 * takes the slice is lost. So each event notes its time, and the executor looks these
 * times up when it takes an entry. Times are hints, and measured only if the job is
 * recorded.
 */
#include "executors.h"
#include "shim/base/moments.h"

static struct pump_moments left[PUMP_MAX_DEVICES];  /* times of left_bytes */
static struct pump_moments ended[PUMP_MAX_DEVICES]; /* times of ended_bytes */

static uint64_t later(uint64_t a, uint64_t b) {
  return a > b ? a : b;
}

void pump_hops_note_eviction(uint32_t device) {
  pump_moments_add(&left[device], PUMP_LOAD(&pump_shm->schedules[device].left_bytes),
                   pump_now_ns());
}

void pump_hops_note_end(uint32_t device) {
  pump_moments_add(&ended[device], PUMP_LOAD(&pump_shm->schedules[device].ended_bytes),
                   pump_now_ns());
}

uint64_t pump_hops_find_ready(struct pump_device_executors *set, uint32_t direction,
                              const struct pump_entry *entry, uint64_t made_ns) {
  struct pump_direction *state = &set->directions[direction];
  uint64_t ready_ns = made_ns;
  if (entry->after_seq != 0)
    ready_ns = later(ready_ns, pump_progress_moment(entry->after_stream, entry->after_seq));
  if (entry->left_bytes != 0)
    ready_ns = later(ready_ns, pump_moments_find(&left[set->device], entry->left_bytes));
  if (entry->ended_bytes != 0)
    ready_ns = later(ready_ns, pump_moments_find(&ended[set->device], entry->ended_bytes));
  uint64_t lacked_ns = __atomic_exchange_n(&state->lacked_ns, 0, __ATOMIC_RELAXED);
  if (lacked_ns != 0)
    ready_ns = later(ready_ns, later(lacked_ns, PUMP_LOAD(&state->released_ns)));
  return ready_ns;
}

void pump_hops_write(uint64_t ticket, const struct pump_slice_times *times) {
  struct pump_entry_end *end = &pump_shm->entry_ends[ticket & (PUMP_SCHEDULE_TICKETS - 1)];
  uint64_t now_ns = pump_now_ns();
  uint64_t called_ns = times->called_ns != 0 ? times->called_ns : now_ns;
  PUMP_STORE(&end->ended_ns, now_ns);
  PUMP_STORE(&end->waited_us, pump_us_between(times->free_ns, times->taken_ns));
  PUMP_STORE(&end->called_us, pump_us_between(times->taken_ns, called_ns));
  PUMP_STORE(&end->driver_us, pump_us_between(called_ns, times->returned_ns));
  PUMP_STORE(&end->link_us, pump_us_between(times->returned_ns, times->done_ns));
}
