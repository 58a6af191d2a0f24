/* pump_ring.h - push, pop and every memory fence of the shared mapping.
 *
 * Only this file orders memory between shim and worker. The comment of each fence names
 * the accesses that the *other* side must see. A process that we do not trust writes the
 * mapping, so every index is masked here.
 *
 * Event ring: many producers (application threads), one consumer (the worker). A producer
 * never waits: if the ring is full, the event is dropped and the caller counts it.
 * Positions grow without end; slot = position & (slots - 1). They continue when a client
 * attaches to a new mapping, so a late write of a producer that reserved in the old
 * mapping can never look current.
 *
 * Schedules: one producer, several consumers, one word that decides (`cursor`). An executor
 * copies an entry, then counts it as taken. The copy is valid if `cursor` has not changed
 * in between; otherwise the worker may have been writing it. The worker withdraws a
 * schedule before it writes the next, and so learns which entries were taken.
 */
#ifndef PUMP_RING_H
#define PUMP_RING_H

#include <errno.h>
#include <linux/futex.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "pump_abi.h"

_Static_assert((PUMP_EVENT_SLOTS & (PUMP_EVENT_SLOTS - 1)) == 0, "masked");

#define PUMP_LOAD(p) __atomic_load_n((p), __ATOMIC_RELAXED)
#define PUMP_STORE(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
#define PUMP_LOAD_ACQUIRE(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define PUMP_STORE_RELEASE(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
#define PUMP_ADD(p, v) __atomic_fetch_add((p), (v), __ATOMIC_RELAXED)

/* Returns the microseconds between, at most UINT32_MAX; 0 if `to_ns` is earlier. */
static inline uint32_t pump_us_between(uint64_t from_ns, uint64_t to_ns) {
  uint64_t us = to_ns > from_ns ? (to_ns - from_ns) / 1000 : 0;
  return us < UINT32_MAX ? (uint32_t)us : UINT32_MAX;
}

/* ---- sleeping and waking: futex words in the mapping ------------------------- */

static inline long pump_futex(uint32_t *word, int op, uint32_t value,
                              const struct timespec *timeout) {
  return syscall(SYS_futex, word, op, value, timeout, NULL, 0);
}

/* Wakes the threads that sleep on `wakes`, a count of wake-ups. A thread sets `asleep`
 * before it sleeps. If no thread sleeps, the call costs a fence and a load. */
static inline void pump_wake(uint32_t *asleep, uint32_t *wakes) {
  /* The sleeper stores `asleep`, then checks its queue again; we have filled the queue,
   * then check `asleep`. Both need the full fence, so that at least one of the two sees
   * the other's store. */
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  if (PUMP_LOAD(asleep) == 0) return;
  PUMP_STORE(asleep, 0);
  __atomic_fetch_add(wakes, 1, __ATOMIC_RELEASE);
  pump_futex(wakes, FUTEX_WAKE, INT32_MAX, NULL);
}

/* Wakes like pump_wake, but without the fence: for a producer that wakes often and must
 * not wait for its stores to arrive. It may read `asleep` before the queue's new contents
 * are visible, and then not wake a thread that falls asleep at that moment. So the
 * sleeper must first sleep for at most PUMP_SLEEP_GRACE_NS, check the queue again, and
 * only then sleep on. By then the stores are visible: they wait only for a cache line,
 * and a thread that loses its CPU core drains its stores. A later producer reads an
 * `asleep` that was set long ago. */
#define PUMP_SLEEP_GRACE_NS 1000000u
static inline void pump_wake_later(uint32_t *asleep, uint32_t *wakes) {
  __atomic_signal_fence(__ATOMIC_SEQ_CST); /* at least the compiler keeps the order */
  if (PUMP_LOAD(asleep) == 0) return;
  pump_wake(asleep, wakes);
}

/* Prepares a sleep, before the last check of the queue. Returns a ticket for the wait. */
static inline uint32_t pump_sleep_prepare(uint32_t *asleep, const uint32_t *wakes) {
  uint32_t ticket = PUMP_LOAD_ACQUIRE(wakes);
  PUMP_STORE(asleep, 1);
  __atomic_thread_fence(__ATOMIC_SEQ_CST); /* see pump_wake */
  return ticket;
}

static inline void pump_sleep_wait(uint32_t *wakes, uint32_t ticket, uint64_t timeout_ns) {
  struct timespec t = {.tv_sec = (time_t)(timeout_ns / 1000000000u),
                       .tv_nsec = (long)(timeout_ns % 1000000000u)};
  pump_futex(wakes, FUTEX_WAIT, ticket, &t);
}

/* Returns how long a thread spins before it sleeps, given its last wait. Spinning pays
 * only if work arrives faster than the thread could fall asleep. */
#define PUMP_SPIN_NS 20000u
static inline uint64_t pump_spin_ns(uint64_t last_wait_ns) {
  return last_wait_ns < PUMP_SPIN_NS ? PUMP_SPIN_NS : 0;
}

/* ---- event ring --------------------------------------------------------- */

static inline struct pump_event *pump_event_at(struct pump_shm *shm, uint64_t position) {
  return &shm->events[position & (PUMP_EVENT_SLOTS - 1)];
}

/* Reserves `count` consecutive records. If the ring is full, returns false and changes
 * nothing. The head is in another core's cache line, so its last known value is kept next
 * to the tail (event_free_end) and checked first. */
static inline bool pump_event_reserve(struct pump_shm *shm, uint64_t count,
                                      uint64_t *position) {
  uint64_t tail = PUMP_LOAD(&shm->header.event_tail);
  for (;;) {
    /* Acquire, here and for the head: the worker reads a record before it moves the head,
     * so our writes after these loads cannot reach its copy. A producer that saw the head
     * passes this on with its release of event_free_end. */
    uint64_t end = PUMP_LOAD_ACQUIRE(&shm->header.event_free_end);
    if (end - tail > PUMP_EVENT_SLOTS || end - tail < count) {
      uint64_t head = PUMP_LOAD_ACQUIRE(&shm->header.event_head);
      if (tail + count - head > PUMP_EVENT_SLOTS) {
        /* Full, or others have reserved and the worker has read since our loads. */
        uint64_t now = PUMP_LOAD_ACQUIRE(&shm->header.event_tail);
        if (now == tail) return false;
        tail = now;
        continue;
      }
      PUMP_STORE_RELEASE(&shm->header.event_free_end, head + PUMP_EVENT_SLOTS);
    }
    if (__atomic_compare_exchange_n(&shm->header.event_tail, &tail, tail + count, true,
                                    __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
      *position = tail;
      return true;
    }
  }
}

/* Hands a filled record to the worker. Publish the records of an operation last to first:
 * the worker starts only at a first record. */
static inline void pump_event_publish(struct pump_shm *shm, uint64_t position) {
  PUMP_STORE_RELEASE(&pump_event_at(shm, position)->sequence, position + 1);
}

/* Returns the record at the worker's own head, or NULL while it is not ready. */
static inline const struct pump_event *pump_event_peek(struct pump_shm *shm,
                                                       uint64_t position) {
  struct pump_event *event = pump_event_at(shm, position);
  return PUMP_LOAD_ACQUIRE(&event->sequence) == position + 1 ? event : NULL;
}

/* Gives records below `position` back to the producers. */
static inline void pump_event_release(struct pump_shm *shm, uint64_t position) {
  PUMP_STORE_RELEASE(&shm->header.event_head, position);
}

/* ---- range records: written under the shim's lock, read by seqlock ------- */

static inline void pump_range_write_begin(struct pump_range *range) {
  PUMP_STORE(&range->version, PUMP_LOAD(&range->version) + 1);
  __atomic_thread_fence(__ATOMIC_RELEASE); /* odd version before the fields */
}

static inline void pump_range_write_end(struct pump_range *range) {
  PUMP_STORE_RELEASE(&range->version, PUMP_LOAD(&range->version) + 1);
}

/* Copies a record that does not change during the copy; returns false after 64 tries. */
static inline bool pump_range_read(const struct pump_range *range,
                                   struct pump_range *copy) {
  for (int attempt = 0; attempt < 64; attempt++) {
    uint64_t before = PUMP_LOAD_ACQUIRE(&range->version);
    if (before & 1) continue;
    const uint64_t *from = (const uint64_t *)range;
    uint64_t *to = (uint64_t *)copy;
    for (size_t i = 0; i < sizeof *copy / sizeof *to; i++) to[i] = PUMP_LOAD(&from[i]);
    __atomic_thread_fence(__ATOMIC_ACQUIRE); /* fields before the second load */
    if (PUMP_LOAD(&range->version) == before) return true;
  }
  return false;
}

/* End of the addresses of an x86-64 program [published: Linux, mm.rst]. */
#define PUMP_ADDRESS_END (1ull << 47)

/* Returns the eighth of a range that contains an offset: the index into last_use_seq. */
static inline uint32_t pump_range_eighth(uint64_t range_bytes, uint64_t offset_bytes) {
  uint64_t eighth_bytes = (range_bytes + PUMP_RANGE_EIGHTHS - 1) / PUMP_RANGE_EIGHTHS;
  uint64_t eighth = eighth_bytes == 0 ? 0 : offset_bytes / eighth_bytes;
  return eighth < PUMP_RANGE_EIGHTHS ? (uint32_t)eighth : PUMP_RANGE_EIGHTHS - 1;
}

/* ---- schedules ---------------------------------------------------------------- */

_Static_assert((PUMP_PREDICTIONS & (PUMP_PREDICTIONS - 1)) == 0, "masked");
_Static_assert((PUMP_SCHEDULE_TICKETS & (PUMP_SCHEDULE_TICKETS - 1)) == 0, "masked");

static inline uint32_t pump_schedule_taken_count(uint64_t cursor, uint32_t direction) {
  return (uint32_t)(cursor >> (16 * direction)) & 0xffff;
}

/* Executor: copies the next entry of a direction; returns false if none may start. The
 * caller owns the entry once pump_schedule_claim succeeds with the same cursor. */
static inline bool pump_schedule_peek(struct pump_shm *shm, uint32_t device,
                                      uint32_t direction, struct pump_entry *entry,
                                      uint64_t *cursor) {
  struct pump_schedule *schedule = &shm->schedules[device];
  *cursor = PUMP_LOAD_ACQUIRE(&schedule->cursor);
  uint32_t at = pump_schedule_taken_count(*cursor, direction);
  if (*cursor >> 32 == 0 || at >= PUMP_SCHEDULE_ENTRIES ||
      at >= PUMP_LOAD(&schedule->count[direction]))
    return false;
  const uint64_t *from = (const uint64_t *)&schedule->entries[direction][at];
  uint64_t *to = (uint64_t *)entry;
  for (size_t i = 0; i < sizeof *entry / sizeof *to; i++) to[i] = PUMP_LOAD(&from[i]);
  __atomic_thread_fence(__ATOMIC_ACQUIRE); /* the copy before the next check of `cursor` */
  uint64_t valid_seq = PUMP_LOAD(&shm->header.valid_seq);
  if (direction == PUMP_TO_GPU) return entry->command.needed_by_seq <= valid_seq;
  if (entry->command.observed_seq > valid_seq) entry->command.observed_seq = valid_seq;
  return true;
}

/* Shim: an operation differs from its prediction. Returns true for the first one. */
static inline bool pump_schedule_deviate(struct pump_shm *shm, uint64_t seq) {
  uint64_t valid_seq = PUMP_LOAD(&shm->header.valid_seq);
  while (valid_seq >= seq)
    if (__atomic_compare_exchange_n(&shm->header.valid_seq, &valid_seq, seq - 1, true,
                                    __ATOMIC_RELAXED, __ATOMIC_RELAXED))
      return valid_seq == PUMP_ALL_VALID;
  return false;
}

static inline bool pump_schedule_claim(struct pump_schedule *schedule, uint32_t direction,
                                       uint64_t cursor) {
  return __atomic_compare_exchange_n(&schedule->cursor, &cursor,
                                     cursor + (1ull << (16 * direction)), false,
                                     __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

static inline void pump_schedule_finish(struct pump_shm *shm, uint64_t ticket,
                                        uint32_t result, uint32_t duration_us,
                                        uint32_t kept) {
  struct pump_entry_end *end = &shm->entry_ends[ticket & (PUMP_SCHEDULE_TICKETS - 1)];
  PUMP_STORE(&end->result, result);
  PUMP_STORE(&end->kept, kept);
  PUMP_STORE(&end->duration_us, duration_us);
  PUMP_STORE_RELEASE(&end->ticket, ticket);
}

/* Returns the amount that the end of an entry adds to pump_schedule.ended_bytes. */
static inline uint64_t pump_ended_bytes(uint32_t direction, uint32_t result,
                                        uint64_t length_bytes) {
  if (direction == PUMP_TO_GPU) return length_bytes;
  return result == PUMP_RESULT_MOVED ? 0 : PUMP_UNPACED_BYTES;
}

/* Worker: withdraws the schedule from executors. Returns its last cursor. */
static inline uint64_t pump_schedule_withdraw(struct pump_schedule *schedule) {
  uint64_t cursor = __atomic_exchange_n(&schedule->cursor, 0, __ATOMIC_ACQ_REL);
  __atomic_thread_fence(__ATOMIC_RELEASE); /* before its entries are written */
  return cursor;
}

/* Hashes 64 bits: each bit of the result depends on all bits of `x`. */
static inline uint64_t pump_mix(uint64_t x) {
  x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
  x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
  return x ^ x >> 32;
}

/* Hashes function identity, grid and block: other arguments do not change the shape. */
static inline uint64_t pump_shape(uint64_t identity, const uint32_t grid[3],
                                  const uint32_t block[3]) {
  uint64_t key = pump_mix(identity);
  for (int i = 0; i < 3; i++) key = pump_mix(key + ((uint64_t)grid[i] << 32 | block[i]));
  return key;
}

/* Returns a word of `struct pump_prediction`. It matches only this number, not others
 * with the same index. `what`: signature or shape. */
static inline uint64_t pump_prediction_word(uint64_t seq, uint32_t stream, uint32_t kind,
                                            uint64_t what) {
  return what ^ ((uint64_t)stream << 8 | kind) * 0x9e3779b97f4a7c15u ^
         (seq + 1) * 0xc2b2ae3d27d4eb4fu;
}

static inline struct pump_prediction *pump_prediction_at(struct pump_shm *shm,
                                                         uint64_t seq) {
  return &shm->predicted[seq & (PUMP_PREDICTIONS - 1)];
}

#endif
