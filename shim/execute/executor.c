/* executor.c - carries out entries of the worker's schedule: take, move, report.
 *
 * The worker decides what to move, and validate.c decides whether an entry may run. A
 * mover thread serves one device and direction. It owns lanes, each a stream and an event
 * in the program's context. The driver works in the calling thread only while the stream
 * is idle, so a second slice needs a second stream. While one slice is on the link, the
 * thread already submits the next, so the link stays busy. A prefetch to the host blocks
 * its thread, so in that direction each thread has one slice in flight.
 *
 * DESIGN. Measured slice times determine the number of threads (adapt.h). A thread fills
 * all its lanes: with fewer slices in flight it would lose bandwidth to other processes
 * whenever their slices delay its own. The bytes of all threads in the driver are bounded
 * (flight.c). A thread reserves bytes before it validates and submits a slice. If too
 * many bytes are in flight, it first finishes its own slices, then waits.
 *
 * Wake-ups. A wake-up is for one thread. The thread that takes an entry sets `asleep`
 * again for the threads that still sleep, and wakes one if more work is waiting.
 *
 * Attach. An entry is taken and finished inside pump_mapping_enter/leave. An entry from an
 * earlier mapping is dropped, because another schedule is now mapped at the same address.
 */
#include "executors.h"

#define LANES PUMP_IN_LANES

#define OWN_CONTEXTS                                                                       \
  "evictions delay the program's calls on device %u: they now use contexts of their own"
#define IN_VAIN                                                                            \
  "calls on device %u are still slow, so evictions use the program's context again"

/* One slice to move, also while it is in flight in a lane. */
struct job {
  struct pump_command command;
  bool scheduled;            /* taken from the schedule; else it populates */
  uint32_t duplicates, kept; /* bits per block, see pump_entry and pump_entry_end */
  uint64_t epoch;            /* mapping that it was taken from */
  struct pump_slice_times times;
  uint32_t waiting; /* more was ready when it was taken */
  uint32_t in_flight;
};

struct lane {
  CUstream stream;
  CUevent event; /* blocking: spinning would take a CPU core from the program */
  struct job job;
};

struct mover {
  struct pump_thread_role role;
  struct pump_direction *direction;
  struct lane lanes[LANES];
  uint32_t lane_count; /* lanes in use: 1 in the direction to the host */
  /* The mover works in a context of its own (own_context.h). It then records no events,
   * because work in another context may take the GPU from the program. */
  bool own_context;
  uint32_t oldest, in_flight; /* busy lanes: oldest .. oldest + in_flight - 1, modulo */
  uint64_t slice_ns_per_mib;  /* running mean from call to arrival; 0: unknown */
  uint64_t spin_ns;
  uint64_t free_ns; /* idle since; set only if the job is recorded */
  bool over;        /* the thread must end */
};

static bool to_gpu(const struct mover *mover) {
  return mover->role.direction == PUMP_TO_GPU;
}

static struct pump_executors_sleep *sleep_of(const struct mover *mover) {
  return &pump_shm->executors[mover->role.set->device][mover->role.direction];
}

/* ---- the driver ---------------------------------------------------------------- */

/* Logs a failed driver call, and sets `over` if the thread must end. Returns whether the
 * call has succeeded. */
static bool check_call(struct mover *mover, CUresult result, const char *call) {
  if (!pump_executors_note_result(mover->role.set, result, call)) mover->over = true;
  return result == CUDA_SUCCESS;
}

/* Creates the lane's stream and event, if needed. Retries after a failure. */
static bool lane_open(struct mover *mover, struct lane *lane) {
  if (lane->stream == NULL &&
      !check_call(mover, pump_stream_make(&lane->stream), "cuStreamCreateWithPriority")) {
    lane->stream = NULL;
    return false;
  }
  if (lane->event == NULL &&
      !check_call(mover,
                  pump_real.cuEventCreate(&lane->event,
                                          CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING),
                  "cuEventCreate"))
    lane->event = NULL;
  return lane->event != NULL;
}

static void lane_close(struct lane *lane) {
  if (lane->event != NULL) pump_real.cuEventDestroy_v2(lane->event);
  if (lane->stream != NULL) pump_real.cuStreamDestroy_v2(lane->stream);
  lane->event = NULL;
  lane->stream = NULL;
}

/* Moves to a context of the mover's own, or back. Requires that nothing is in flight. */
static void change_context(struct mover *mover, bool own_context) {
  PUMP_ASSERT(mover->in_flight == 0, "a mover changes its context with nothing in flight");
  lane_close(&mover->lanes[0]);
  mover->own_context = own_context;
  if (!pump_executors_change_context(&mover->role, own_context)) mover->over = true;
}

/* Gives the controller (own_context.h) the duration of a call that has no work of its
 * own, measured while slices to the host are in the driver. */
static void measure_call(const struct mover *mover, uint64_t call_ns) {
  struct pump_device_executors *set = mover->role.set;
  struct pump_own_context own_context = pump_own_context_next(set->own_context, call_ns);
  if (own_context.state != set->own_context.state)
    pump_log(PUMP_LOG_INFO,
             own_context.state == PUMP_OWN_CONTEXT_YES ? OWN_CONTEXTS : IN_VAIN,
             set->device);
  set->own_context = own_context;
  PUMP_STORE(&set->own_contexts_now, own_context.state == PUMP_OWN_CONTEXT_YES);
}

/* Prefetches a slice, after the advice for duplicates. */
static CUresult move(const struct mover *mover, CUstream stream, uint64_t address,
                     struct job *job) {
  uint32_t device = mover->role.set->device;
  uint64_t length_bytes = job->command.length_bytes, at = 0, bytes = 0;
  CUresult result = CUDA_SUCCESS;
  if (to_gpu(mover))
    job->kept =
        pump_duplicates_prepare_arrival(device, address, length_bytes, job->duplicates);
  else
    result = pump_duplicates_prepare_eviction(device, address, length_bytes, &job->kept);
  uint32_t skipped = to_gpu(mover) ? 0 : job->kept;
  while (result == CUDA_SUCCESS &&
         pump_duplicates_next_dirty(skipped, length_bytes, &at, &bytes))
    result = pump_prefetch(device, to_gpu(mover), address + at, bytes, stream);
  return result;
}

/* Hands the lane's slice to the driver. Returns true if it is in flight. */
static bool submit(struct mover *mover, struct lane *lane, uint64_t address) {
  struct job *job = &lane->job;
  bool own_context = !to_gpu(mover) && PUMP_LOAD(&mover->role.set->own_contexts_now) != 0;
  if (pump_executors_gave_up(mover->role.set)) return false;
  if (own_context != mover->own_context) change_context(mover, own_context);
  if (mover->over || !lane_open(mover, lane)) return false;
  job->in_flight = PUMP_ADD(&mover->direction->flight_slices, 1) + 1;
  job->times.called_ns = pump_now_ns();
  CUresult result = move(mover, lane->stream, address, job);
  job->times.returned_ns = pump_now_ns();
  if (!check_call(mover, result, "cuMemPrefetchAsync")) {
    __atomic_fetch_sub(&mover->direction->flight_slices, 1, __ATOMIC_RELAXED);
    return false;
  }
  bool evicting = to_gpu(mover) && mover->role.number == 0 &&
                  PUMP_LOAD(&mover->role.set->directions[PUMP_TO_HOST].flight_slices) != 0;
  /* If the record fails, the event is not valid for this slice: wait for the stream. */
  result = mover->own_context ? pump_real.cuStreamSynchronize(lane->stream)
                              : pump_real.cuEventRecord(lane->event, lane->stream);
  if (evicting) measure_call(mover, pump_now_ns() - job->times.returned_ns);
  if (!check_call(mover, result,
                  mover->own_context ? "cuStreamSynchronize" : "cuEventRecord")) {
    if (pump_real.cuStreamSynchronize != NULL) pump_real.cuStreamSynchronize(lane->stream);
    __atomic_fetch_sub(&mover->direction->flight_slices, 1, __ATOMIC_RELAXED);
    return false;
  }
  return true;
}

/* ---- reports ------------------------------------------------------------------- */

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
  else if (to_gpu(mover))
    PUMP_ADD(&counters->moved_to_gpu_bytes, length_bytes);
  else
    PUMP_ADD(&counters->moved_to_host_bytes, length_bytes);
}

/* Returns how many bytes of a moved slice were copied. */
static uint64_t copied_bytes(const struct mover *mover, const struct job *job) {
  if (job->command.advice != PUMP_ADVICE_NONE) return 0;
  uint64_t kept = to_gpu(mover) ? 0 : (uint64_t)(uint32_t)__builtin_popcount(job->kept);
  return job->command.length_bytes - kept * PUMP_BLOCK_BYTES;
}

/* Writes the job's result. The job's own mapping is entered. */
static void write_result(const struct mover *mover, const struct job *job,
                         uint32_t result) {
  uint32_t duration_us = pump_us_between(job->times.taken_ns, pump_now_ns());
  if (!to_gpu(mover) && result == PUMP_RESULT_MOVED) {
    pump_schedule_add_left_bytes(mover->role.set->device, job->command.length_bytes);
    if (pump_recording) pump_hops_note_eviction(mover->role.set->device);
  }
  if (job->command.advice == PUMP_ADVICE_NONE)
    pump_schedule_add_ended_bytes(mover->role.set->device, mover->role.direction, result,
                                  job->command.length_bytes);
  if (pump_recording) pump_hops_note_end(mover->role.set->device);
  if (pump_recording) pump_hops_write(job->command.ticket, &job->times);
  pump_schedule_finish(pump_shm, job->command.ticket, result, duration_us, job->kept);
}

static void report(const struct mover *mover, const struct job *job, uint32_t result) {
  uint64_t epoch_now, bytes = job->command.length_bytes;
  if (!job->scheduled) {
    if (result == PUMP_RESULT_MOVED)
      PUMP_ADD(&pump_shm->shim_counters.populate_bytes, bytes);
    return;
  }
  count(mover, result, copied_bytes(mover, job));
  if (result == PUMP_RESULT_MOVED && job->command.advice == PUMP_ADVICE_NONE)
    PUMP_ADD(&pump_shm->shim_counters.scheduled_bytes, bytes);
  if (!pump_mapping_enter(&epoch_now)) return; /* the job's worker is gone */
  if (epoch_now == job->epoch) write_result(mover, job, result);
  pump_mapping_leave();
  pump_worker_notify();
  pump_schedule_wake();
}

/* Gives the controller the slice's times, and follows its answer. */
static void adapt(struct mover *mover, const struct job *job, uint64_t now_ns) {
  struct pump_direction *direction = mover->direction;
  struct pump_adapt_sample sample = {.call_ns =
                                         job->times.returned_ns - job->times.called_ns,
                                     .done_ns = now_ns - job->times.returned_ns,
                                     .bytes = job->command.length_bytes,
                                     .waiting = job->waiting,
                                     .in_flight = job->in_flight};
  uint64_t per_mib = (sample.call_ns + sample.done_ns) / ((sample.bytes >> 20) + 1);
  uint64_t before_ns = mover->slice_ns_per_mib;
  mover->slice_ns_per_mib = before_ns == 0 ? per_mib : (7 * before_ns + per_mib) / 8;
  if (__atomic_exchange_n(&direction->adapting, 1, __ATOMIC_ACQUIRE) != 0) return;
  direction->adapt = pump_adapt_next(direction->adapt,
                                     pump_direction_bounds(mover->role.direction), &sample);
  uint32_t threads = direction->adapt.threads;
  uint32_t before = PUMP_LOAD(&direction->wanted);
  PUMP_STORE(&direction->wanted, threads);
  __atomic_store_n(&direction->adapting, 0, __ATOMIC_RELEASE);
  if (threads <= before) return;
  pump_futex_wake(&direction->wanted);
  pump_executors_grow(&mover->role);
}

/* ---- slices -------------------------------------------------------------------- */

/* Notes when the mover became idle. */
static void note_free(struct mover *mover) {
  if (pump_recording) mover->free_ns = pump_now_ns();
}

static void finish_oldest(struct mover *mover) {
  struct lane *lane = &mover->lanes[mover->oldest];
  CUresult result = CUDA_SUCCESS;
  PUMP_ASSERT(mover->in_flight != 0, "a slice that ends is in flight");
  if (!mover->own_context) result = pump_real.cuEventSynchronize(lane->event);
  uint64_t now_ns = lane->job.times.done_ns = pump_now_ns();
  pump_slot_end(lane->job.command.slot);
  __atomic_fetch_sub(&mover->direction->flight_slices, 1, __ATOMIC_RELAXED);
  pump_flight_release(mover->direction, (uint32_t)lane->job.command.length_bytes);
  mover->oldest = (mover->oldest + 1) % mover->lane_count;
  mover->in_flight--;
  bool moved = check_call(mover, result, "waiting for a transfer's end");
  if (moved) adapt(mover, &lane->job, now_ns);
  report(mover, &lane->job, moved ? PUMP_RESULT_MOVED : PUMP_RESULT_FAILED);
  note_free(mover);
}

/* Reserves `bytes`, waiting if necessary. Cannot deadlock: a mover finishes its own
 * slices before it waits. */
static void wait_for_space(struct mover *mover, uint32_t bytes) {
  struct pump_direction *direction = mover->direction;
  uint32_t bound = pump_flight_bound(mover->role.set->device, mover->role.direction);
  while (!pump_flight_reserve(direction, bytes, bound)) {
    if (mover->in_flight > 0) {
      finish_oldest(mover);
      continue;
    }
    __atomic_fetch_add(&direction->flight_waiters, 1, __ATOMIC_SEQ_CST);
    uint32_t in_flight = __atomic_load_n(&direction->flight_bytes, __ATOMIC_SEQ_CST);
    if (in_flight != 0)
      pump_futex_sleep(&direction->flight_bytes, in_flight, PUMP_SPACE_NS);
    __atomic_fetch_sub(&direction->flight_waiters, 1, __ATOMIC_SEQ_CST);
  }
}

/* Returns the next lane, round-robin. The caller finishes its slice before reusing it. */
static uint32_t next_lane(const struct mover *mover) {
  PUMP_ASSERT(mover->in_flight < mover->lane_count, "a lane has one slice");
  return (mover->oldest + mover->in_flight) % mover->lane_count;
}

/* Validates the job and hands it to the driver, or reports why it may not run. */
static void submit_or_refuse(struct mover *mover, const struct job *job) {
  if (!pump_command_validate_fields(&job->command)) {
    report(mover, job, PUMP_RESULT_INVALID);
    return;
  }
  uint32_t bytes = (uint32_t)job->command.length_bytes;
  uint32_t device = mover->role.set->device, next = next_lane(mover);
  wait_for_space(mover, bytes);
  struct lane *lane = &mover->lanes[next];
  lane->job = *job;
  uint64_t address;
  pump_slot_begin(job->command.slot);
  uint32_t result =
      pump_command_validate_state(&job->command, device, mover->role.direction, &address);
  if (result == PUMP_RESULT_MOVED && job->command.advice != PUMP_ADVICE_NONE) {
    if (pump_executors_gave_up(mover->role.set) ||
        !pump_in_place_advise(device, address, bytes, job->command.advice))
      result = PUMP_RESULT_FAILED;
  } else if (result == PUMP_RESULT_MOVED) {
    if (submit(mover, lane, address)) {
      mover->in_flight++;
      return;
    }
    result = PUMP_RESULT_FAILED;
  }
  pump_slot_end(job->command.slot);
  pump_flight_release(mover->direction, bytes);
  report(mover, job, result);
}

/* ---- entries ------------------------------------------------------------------- */

static bool more_waits(const struct mover *mover) {
  return pump_schedule_can_start(mover->role.set->device, mover->role.direction);
}

/* Wakes another thread if more work is waiting. Called after taking an entry. */
static void pass_on(struct mover *mover) {
  struct pump_executors_sleep *sleep = sleep_of(mover);
  if (PUMP_LOAD(&mover->direction->asleep) == 0) return;
  if (PUMP_LOAD(&sleep->asleep) == 0) {
    PUMP_STORE(&sleep->asleep, 1);
    __atomic_thread_fence(__ATOMIC_SEQ_CST); /* before more_waits, see pump_wake */
  }
  if (!more_waits(mover)) return;
  __atomic_fetch_add(&sleep->wakes, 1, __ATOMIC_RELEASE);
  pump_futex(&sleep->wakes, FUTEX_WAKE, 1, NULL);
}

/* Takes an entry of the schedule. Returns false if none may start. Returns true without a
 * job (not `scheduled`) while the mapping is being replaced. */
static bool take_entry(struct mover *mover, struct job *job) {
  if (!pump_mapping_enter(&job->epoch)) {
    struct timespec pause = {.tv_nsec = 50000};
    nanosleep(&pause, NULL);
    return true;
  }
  uint32_t device = mover->role.set->device, direction = mover->role.direction;
  struct pump_entry entry;
  uint64_t made_ns;
  job->scheduled = pump_schedule_take(device, direction, &entry, &made_ns);
  if (job->scheduled) {
    job->command = entry.command;
    job->duplicates = entry.duplicates;
    if (pump_recording)
      job->times.free_ns =
          pump_hops_find_ready(mover->role.set, direction, &entry, made_ns);
    job->waiting = pump_schedule_ready(device, direction);
    pass_on(mover);
  }
  pump_mapping_leave();
  return job->scheduled;
}

static bool take_populate(const struct mover *mover, struct job *job) {
  struct pump_populate_slice slice;
  if (!to_gpu(mover) || !pump_populate_take_slice(mover->role.set->device, &slice))
    return false;
  *job = (struct job){.command = {.slot = slice.slot,
                                  .generation = slice.generation,
                                  .offset_bytes = slice.offset_bytes,
                                  .length_bytes = slice.length_bytes},
                      .waiting = pump_populate_is_queued(mover->role.set->device)};
  return true;
}

/* Starts to move the blocks of one entry, or a slice of a new range. Returns false if there
 * is none; true if the caller should call again. */
static bool serve(struct mover *mover) {
  struct job job = {.in_flight = 0};
  if (take_entry(mover, &job)) {
    if (!job.scheduled) return true;
  } else if (!take_populate(mover, &job)) {
    return false;
  }
  job.times.taken_ns = pump_now_ns();
  if (job.times.free_ns < mover->free_ns) job.times.free_ns = mover->free_ns;
  submit_or_refuse(mover, &job);
  note_free(mover);
  return true;
}

/* ---- waiting ------------------------------------------------------------------- */

/* Marks a spin loop for the CPU. */
static inline void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static bool work_waits(const struct mover *mover) {
  return more_waits(mover) || !pump_executors_are_current(&mover->role) ||
         (to_gpu(mover) && pump_populate_is_queued(mover->role.set->device));
}

/* Sleeps until woken, but at most `longest_ns`. */
static void sleep_until_woken(struct mover *mover, uint64_t longest_ns) {
  struct pump_executors_sleep *sleep = sleep_of(mover);
  uint64_t begin_ns = pump_now_ns();
  while (mover->spin_ns != 0 && pump_now_ns() - begin_ns < mover->spin_ns) {
    if (work_waits(mover)) return;
    relax();
  }
  PUMP_ADD(&mover->direction->asleep, 1);
  uint32_t ticket = pump_sleep_prepare(&sleep->asleep, &sleep->wakes);
  if (!work_waits(mover)) pump_sleep_wait(&sleep->wakes, ticket, longest_ns);
  __atomic_fetch_sub(&mover->direction->asleep, 1, __ATOMIC_RELAXED);
  mover->spin_ns = pump_spin_ns(pump_now_ns() - begin_ns);
}

/* Waits for the oldest slice or for new work, whichever is first. */
static void wait_for_either(struct mover *mover) {
  const struct lane *lane = &mover->lanes[mover->oldest];
  uint64_t mib = (lane->job.command.length_bytes >> 20) + 1;
  uint64_t now_ns = pump_now_ns(),
           due_ns = now_ns + PUMP_PEEK_NS; /* first slice: time unknown */
  if (mover->slice_ns_per_mib != 0)
    due_ns = lane->job.times.called_ns + mib * mover->slice_ns_per_mib / 8 * 7;
  bool done = pump_real.cuEventQuery == NULL || now_ns >= due_ns ||
              pump_real.cuEventQuery(lane->event) != CUDA_ERROR_NOT_READY;
  if (done)
    finish_oldest(mover); /* sleeps until the slice has arrived */
  else
    sleep_until_woken(mover,
                      due_ns - now_ns < PUMP_PEEK_NS ? due_ns - now_ns : PUMP_PEEK_NS);
}

/* Idles a surplus thread for one round: finishes its oldest slice, or sleeps if nothing
 * is in flight. */
static void rest(struct mover *mover, uint32_t wanted) {
  if (mover->in_flight > 0)
    finish_oldest(mover);
  else
    pump_futex_sleep(&mover->direction->wanted, wanted, PUMP_IDLE_NS);
  note_free(mover);
}

void *pump_mover_thread(void *argument) {
  struct mover mover = {.role = *(struct pump_thread_role *)argument};
  mover.direction = &mover.role.set->directions[mover.role.direction];
  mover.over = !pump_executors_thread_begin(&mover.role);
  if (!mover.over) {
    pump_thread_bind_to_gpu(mover.role.set->device);
    mover.lane_count = to_gpu(&mover) ? pump_stream_lanes() : 1;
  }
  while (!mover.over && pump_executors_are_current(&mover.role)) {
    uint32_t wanted = PUMP_LOAD(&mover.direction->wanted);
    if (to_gpu(&mover) && mover.role.number == 0)
      pump_executors_start_requested(mover.role.set);
    if (mover.role.number >= wanted)
      rest(&mover, wanted);
    else if (mover.in_flight >= mover.lane_count)
      finish_oldest(&mover);
    else if (serve(&mover))
      continue;
    else if (mover.in_flight > 0)
      wait_for_either(&mover);
    else
      sleep_until_woken(&mover, PUMP_IDLE_NS);
  }
  while (mover.in_flight > 0) finish_oldest(&mover);
  for (int i = 0; i < LANES; i++) lane_close(&mover.lanes[i]);
  pump_executors_thread_end(&mover.role);
  return NULL;
}
