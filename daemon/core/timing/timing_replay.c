/* timing_replay.c - replays the run without waits for memory. See timing.h.
 *
 * The program's thread issues as long after its last wait as it really did. An operation
 * begins when it is issued and all earlier ones on its stream have ended. It takes its
 * own time. A wait ends when the awaited operations have ended. So a stall is free if the
 * GPU would be idle anyway, because the program issues nothing.
 *
 * Three delays are not the program's work:
 *
 *   1. The driver wakes the waiting thread some time after the last execution, on a busy
 *      machine much later.
 *   2. A launch waits for space in the driver's queue: while many operations are in
 *      flight, the time since the previous issue is unusually long.
 *   3. Threads wait for CPU cores.
 *
 * A wait for operations that all found their blocks ends as late as it really did. These
 * waits show how late others end on average; without them, the shortest waits show it.
 *
 * The times of unreported operations (lost events) are unknown. Up to the next known end
 * nothing counts as lost.
 */
#include <stdlib.h>
#include <string.h>

#include "timing.h"

/* Average delay until a poll sees an end: half of its longest pause, 2 *
 * PUMP_POLL_MIN_NS, and the slack [derived]. */
#define POLLED_LATE_NS 60000
/* Bounds of the usual delay between the last execution and the end of the wait for it, and
 * the least usual gap between two issues [guessed]. */
#define DELAY_LEAST_NS 5000u
#define DELAY_MOST_NS 200000u
#define GAP_LEAST_NS 20000u
/* With enough memory, all gaps between issues together are this much longer than the own
 * gaps, pauses of the program left out [measured: 0057]. */
#define USUAL_EXCESS_PERCENT 20
/* Issues after one whose memory was absent, during which memory counts as moving
 * [measured: 0057]. */
#define MOVING_OPERATIONS 256u

static int by_size(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return (x > y) - (x < y);
}

/* Returns the value at `percent` of the newest `room` values. */
static uint32_t percentile(const uint32_t *values, uint32_t count, uint32_t room,
                           uint32_t percent) {
  uint32_t copy[TIMING_GAPS];
  if (count > room) count = room;
  if (count == 0) return 0;
  memcpy(copy, values, count * sizeof *copy);
  qsort(copy, count, sizeof *copy, by_size);
  return copy[(uint64_t)(count - 1) * percent / 100];
}

static uint32_t capped(int64_t ns) {
  return ns < 0 ? 0 : ns > UINT32_MAX ? UINT32_MAX : (uint32_t)ns;
}

static void note_gap(struct timing_replay *r, int64_t gap_ns) {
  r->gaps[r->gap_count++ % TIMING_GAPS] = capped(gap_ns);
  if (r->gap_count % 32 != 0 && r->gap_count > 32) return;
  r->usual_gap_ns = percentile(r->gaps, r->gap_count, TIMING_GAPS, 90);
  if (r->usual_gap_ns < GAP_LEAST_NS) r->usual_gap_ns = GAP_LEAST_NS;
}

/* Notes the delay of a wait for ready operations. */
static void note_ready(struct timing_replay *r, int64_t delay_ns) {
  uint64_t sum_ns = 0;
  r->delays[r->ready_count++ % TIMING_DELAYS] = capped(delay_ns);
  uint32_t count = r->ready_count < TIMING_DELAYS ? r->ready_count : TIMING_DELAYS;
  for (uint32_t i = 0; i < count; i++) sum_ns += r->delays[i];
  r->usual_delay_ns = (uint32_t)(sum_ns / count);
}

static void note_delay(struct timing_replay *r, int64_t delay_ns) {
  if (r->ready_count != 0) return;
  r->delays[r->delay_count++ % TIMING_DELAYS] = capped(delay_ns);
  if (r->delay_count % 8 != 0 && r->delay_count > 8) return;
  uint32_t usual = percentile(r->delays, r->delay_count, TIMING_DELAYS, 10);
  if (usual < DELAY_LEAST_NS) usual = DELAY_LEAST_NS;
  r->usual_delay_ns = usual < DELAY_MOST_NS ? usual : DELAY_MOST_NS;
}

static int64_t larger(int64_t a, int64_t b) {
  return a > b ? a : b;
}

void timing_stopped(struct pump_timing *timing, uint64_t began_ns, uint64_t ended_ns) {
  struct timing_stop *stop = &timing->stops[timing->stop_count++ % TIMING_STOPS];
  if (ended_ns > TIMING_END_NS) ended_ns = TIMING_END_NS;
  if (timing->stop_count > TIMING_STOPS)
    timing->stopped_ns += stop->ended_ns - stop->began_ns;
  *stop = (struct timing_stop){timing_at_most(began_ns, ended_ns), ended_ns};
}

void timing_delayed(struct pump_timing *timing, uint64_t at_ns, uint64_t sum_ns) {
  uint32_t count = timing->delayed_count;
  struct timing_delay last = timing->delayed[(count - 1) % TIMING_DELAYED];
  if (count == 0) last = timing->delayed_first = (struct timing_delay){at_ns, 0};
  if (count != 0 && at_ns <= last.at_ns) return;
  /* Waits before memory was short are not lost to memory. A thread may spin while it waits
   * for the GPU, and so wait for a core all that time, which is therefore subtracted. */
  uint64_t spent_ns = timing->delayed_ns + timing->waited_ns;
  if (timing->left && sum_ns > spent_ns) last.sum_ns += sum_ns - spent_ns;
  timing->delayed_ns = sum_ns;
  timing->waited_ns = 0;
  last.at_ns = at_ns;
  timing->delayed[count % TIMING_DELAYED] = last;
  timing->delayed_count++;
}

/* Returns the total wait for CPU cores until `time_ns`, interpolated between kept
 * readings. Calls must not go back in time. */
static uint64_t core_wait_until(const struct pump_timing *timing, struct timing_replay *r,
                                uint64_t time_ns) {
  uint32_t count = timing->delayed_count;
  if (count - r->reading > TIMING_DELAYED) r->reading = count - TIMING_DELAYED;
  const struct timing_delay *next = &timing->delayed[r->reading % TIMING_DELAYED];
  while (r->reading != count && next->at_ns <= time_ns) {
    r->read = *next;
    next = &timing->delayed[++r->reading % TIMING_DELAYED];
  }
  struct timing_delay from = r->read.at_ns != 0 ? r->read : timing->delayed_first;
  if (r->reading == count || from.at_ns >= time_ns) return from.sum_ns;
  double share = (double)(time_ns - from.at_ns) / (double)(next->at_ns - from.at_ns);
  return from.sum_ns + (uint64_t)(share * (double)(next->sum_ns - from.sum_ns));
}

/* Adds up to `most_ns` to *claimed_ns, but not beyond `sum_ns`; returns the added
 * time. */
static int64_t claim(uint64_t *claimed_ns, uint64_t sum_ns, int64_t most_ns) {
  if (sum_ns <= *claimed_ns || most_ns <= 0) return 0;
  uint64_t more_ns = timing_at_most(sum_ns - *claimed_ns, (uint64_t)most_ns);
  *claimed_ns += more_ns;
  return (int64_t)more_ns;
}

/* Returns how much of the gap before an issue is caused by waits for CPU cores. own_ns: the
 * own gap. A thread that loses its core also finds cold caches, so the excess over the own
 * gap may be twice the waits. If the excess does not explain the waits, most gaps contain
 * some. */
static int64_t claim_delay(const struct pump_timing *timing, struct timing_replay *r,
                           const struct timing_op *op, int64_t gap_ns, int64_t own_ns) {
  uint64_t waits_ns = core_wait_until(timing, r, op->issued_ns);
  int64_t longer_ns = gap_ns - own_ns;
  if (own_ns < 0 || r->claimed_ns < waits_ns - waits_ns / 8)
    return claim(&r->claimed_ns, waits_ns, gap_ns);
  int64_t delayed_ns = claim(&r->claimed_ns, waits_ns, longer_ns);
  return delayed_ns + claim(&r->slowed_ns, waits_ns, longer_ns - delayed_ns);
}

/* Returns how much longer than usual the gap before an issue is because memory moves:
 * driver calls of pump's threads hold its locks, and caches are cold. Longer pauses are
 * the program's; next to other processes, their work may be the cause. */
static int64_t slow_gap(const struct pump_timing *timing, struct timing_replay *r,
                        const struct timing_op *op, int64_t gap_ns, int64_t own_ns) {
  if (op->retired && (!op->clean || op->arrived_ns > op->issued_ns))
    r->moving = MOVING_OPERATIONS;
  if (r->moving == 0) return 0;
  r->moving--;
  int64_t longer_ns = gap_ns - own_ns;
  if (own_ns < 0 || longer_ns > TIMING_GAP_MOST_NS || timing->neighbours != 0) return 0;
  return larger(0, longer_ns - own_ns * USUAL_EXCESS_PERCENT / 100);
}

/* Returns the time minus all stops of the process before it. */
static uint64_t awake_ns(const struct pump_timing *timing, uint64_t time_ns) {
  uint64_t stopped_ns = timing->stopped_ns;
  for (uint32_t i = 0; i < TIMING_STOPS && i < timing->stop_count; i++) {
    const struct timing_stop *stop = &timing->stops[i];
    if (time_ns > stop->began_ns)
      stopped_ns += timing_at_most(time_ns, stop->ended_ns) - stop->began_ns;
  }
  return time_ns > stopped_ns ? time_ns - stopped_ns : 0;
}

static void issue(const struct pump_timing *timing, struct timing_replay *r,
                  const struct timing_op *op) {
  uint64_t awake_issued_ns = awake_ns(timing, op->issued_ns);
  int64_t own_ns[TIMING_WAYS], issued_ns = (int64_t)awake_issued_ns, queued_ns = 0;
  if (r->begun_ns == 0) r->begun_ns = r->at_ns = awake_issued_ns;
  int64_t gap_ns = issued_ns - (int64_t)r->at_ns;
  if (gap_ns > 0 && !op->deep)
    note_gap(r, gap_ns);
  else if (gap_ns > (int64_t)r->usual_gap_ns && op->deep)
    queued_ns = gap_ns - (int64_t)r->usual_gap_ns;
  int64_t own_gap_ns = timing_own_gap(timing, op->pair);
  int64_t delayed_ns = claim_delay(timing, r, op, gap_ns, own_gap_ns);
  int64_t slow_ns = larger(delayed_ns, slow_gap(timing, r, op, gap_ns, own_gap_ns));
  if (gap_ns > 0) r->at_ns = awake_issued_ns;
  timing_own_times(timing, op, own_ns);
  if (!op->ready && !op->inside) r->unready |= UINT64_C(1) << op->stream;
  int64_t delays_ns[TIMING_RUNS] = {slow_ns, slow_ns,
                                    (int64_t)((double)delayed_ns * timing->delayed_share),
                                    slow_ns - delayed_ns};
  for (int run = 0; run < TIMING_RUNS; run++) {
    int64_t *free_ns = &r->free_ns[run][op->stream];
    int64_t more_ns = larger(queued_ns, delays_ns[run]);
    r->late_ns[run] = larger(0, r->late_ns[run] + more_ns);
    if (r->late_ns[run] > TIMING_END_NS) r->late_ns[run] = TIMING_END_NS;
    *free_ns = larger(issued_ns - r->late_ns[run], *free_ns) +
               own_ns[run == TIMING_STALLS ? TIMING_LIKELY : run];
    if (*free_ns > TIMING_END_NS) *free_ns = TIMING_END_NS;
    if (op->seen_ns == 0) continue;
    int64_t ended_ns = (int64_t)awake_ns(timing, op->seen_ns) - POLLED_LATE_NS;
    if (r->missing)
      *free_ns = ended_ns - r->lost_ns[run];
    else
      r->lost_ns[run] = ended_ns - *free_ns;
  }
  if (op->seen_ns != 0) r->missing = false;
}

/* Returns when the stream (0: all streams) has executed everything. */
static int64_t done_at(const struct timing_replay *r, int run, uint32_t stream) {
  int64_t done_ns = 0;
  if (stream != 0) return r->free_ns[run][stream];
  for (uint32_t i = 0; i < TIMING_STREAMS; i++)
    done_ns = larger(done_ns, r->free_ns[run][i]);
  return done_ns;
}

static void wait_for(const struct pump_timing *timing, struct timing_replay *r,
                     const struct timing_wait *wait) {
  int64_t began_ns = (int64_t)awake_ns(timing, wait->began_ns);
  int64_t ended_ns = (int64_t)awake_ns(timing, wait->ended_ns);
  uint64_t streams = wait->stream != 0 ? UINT64_C(1) << wait->stream : UINT64_MAX;
  bool ready = !r->missing && (r->unready & streams) == 0;
  r->unready &= ~streams;
  for (int run = 0; run < TIMING_RUNS; run++) {
    int64_t done_ns = done_at(r, run, wait->stream), called_ns = began_ns - r->late_ns[run];
    if (run == TIMING_LIKELY && done_ns > called_ns)
      (ready ? note_ready : note_delay)(r, ended_ns - r->late_ns[run] - done_ns);
    int64_t delay_ns = (int64_t)r->usual_delay_ns;
    if (delay_ns > ended_ns - began_ns) delay_ns = ended_ns - began_ns;
    if (!r->missing && !ready)
      r->late_ns[run] = larger(0, ended_ns - larger(called_ns, done_ns) - delay_ns);
    r->lost_ns[run] = r->late_ns[run];
    for (uint32_t i = 0; i < TIMING_STREAMS; i++)
      if ((wait->stream == 0 || i == wait->stream) &&
          r->free_ns[run][i] > ended_ns - r->late_ns[run])
        r->free_ns[run][i] = ended_ns - r->late_ns[run];
  }
  r->missing = false;
  if ((uint64_t)ended_ns > r->at_ns) r->at_ns = (uint64_t)ended_ns;
}

void timing_advance(struct pump_timing *timing, struct timing_replay *r,
                    uint64_t until_seq) {
  if (timing->next_seq - r->seq > TIMING_OPS) r->seq = timing->next_seq - TIMING_OPS;
  if (timing->wait_count - r->wait > TIMING_WAITS)
    r->wait = timing->wait_count - TIMING_WAITS;
  for (;; r->seq++) {
    for (; r->wait < timing->wait_count; r->wait++) {
      const struct timing_wait *wait = &timing->waits[r->wait & (TIMING_WAITS - 1)];
      if (wait->seq >= r->seq && r->seq < timing->next_seq) break;
      wait_for(timing, r, wait);
    }
    if (r->seq >= until_seq) return;
    const struct timing_op *op = timing_find(timing, r->seq);
    if (op == NULL)
      r->missing = true;
    else
      issue(timing, r, op);
  }
}
