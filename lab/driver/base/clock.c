/* clock.c - makes a thread spend the time that the model gives to its call.
 *
 * DESIGN
 * A call of the model has parts of two kinds (struct gpu_cost):
 *   work:  The thread computes until it has used that much CPU time of its own
 *          (CLOCK_THREAD_CPUTIME_ID). If other threads want the core, this takes longer,
 *          as the real call would.
 *   wait:  The thread blocks until the model ends the wait. The profile may make it spin
 *          through the first part (copy_wait_spin).
 * The CPU time of the model itself counts as finished work. The code never calls
 * sched_yield(). The scheduler treats a yield as a used-up time slice. A call that needed
 * a few more microseconds would then wait milliseconds for a busy process
 * (docs/decisions/0046-work-and-waits.md).
 *
 * A blocked thread wakes 10 to 60 microseconds late, although its timer slack is almost
 * 0. So the thread requests a wake-up `lead` earlier and spins through the remaining
 * time. The lead adapts to the delay of past wake-ups. The remainder is some
 * microseconds, at most LEAD_MOST_NS; it is the driver's error in CPU time. A wake-up
 * later than LEAD_MOST_NS waited for a core, which no lead would help.
 */
#include <errno.h>
#include <sys/prctl.h>
#include <time.h>

#include "driver.h"

#define LEAD_FIRST_NS 30000
#define LEAD_MOST_NS 70000
#define LOST_NS 5000         /* longest gap between two clock reads on a kept core */
#define SLEEP_LEAST_NS 10000 /* shorter sleeps save no CPU time */

static uint64_t lead_ns = LEAD_FIRST_NS; /* relaxed: any recent value will do */

static uint64_t clock_ns(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

uint64_t vd_now_ns(void) {
  return clock_ns(CLOCK_MONOTONIC);
}

/* Spins; returns false if the thread may have lost its core in that time. */
static bool spin_until(uint64_t end_ns) {
  bool kept = true;
  for (uint64_t now_ns = vd_now_ns(), next_ns; now_ns < end_ns; now_ns = next_ns) {
    next_ns = vd_now_ns();
    kept &= next_ns - now_ns < LOST_NS;
  }
  return kept;
}

uint64_t vd_wake_ns(uint64_t end_ns) {
  uint64_t early_ns = __atomic_load_n(&lead_ns, __ATOMIC_RELAXED);
  return end_ns > vd_now_ns() + early_ns + SLEEP_LEAST_NS ? end_ns - early_ns : 0;
}

/* Updates the lead after a thread woke that had asked for `wake_ns`. The lead converges
 * to a value that exceeds about three of four wake-up delays. */
static void learn_lead(uint64_t wake_ns) {
  uint64_t now_ns = vd_now_ns(), lead = __atomic_load_n(&lead_ns, __ATOMIC_RELAXED);
  uint64_t late_ns = now_ns > wake_ns ? now_ns - wake_ns : 0;
  if (late_ns > LEAD_MOST_NS) return;
  lead = late_ns > lead ? lead + (late_ns - lead) / 4 : lead - (lead - late_ns) / 12;
  __atomic_store_n(&lead_ns, lead, __ATOMIC_RELAXED);
}

unsigned long vd_slack_change(unsigned long slack_ns) {
  int old_ns = prctl(PR_GET_TIMERSLACK);
  prctl(PR_SET_TIMERSLACK, slack_ns);
  return old_ns > 0 ? (unsigned long)old_ns : 0; /* 0: the thread's default */
}

void vd_wait_until(uint64_t end_ns) {
  uint64_t wake_ns = vd_wake_ns(end_ns);
  if (wake_ns != 0) {
    struct timespec time = vd_timespec(wake_ns);
    unsigned long slack_ns = vd_slack_change(1);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) == EINTR) continue;
    learn_lead(wake_ns);
    (void)vd_slack_change(slack_ns);
  }
  spin_until(end_ns);
}

struct vd_begun vd_begin(void) {
  uint64_t now_ns =
      vd_now_ns(); /* read first: reading the other clock takes up to a microsecond */
  return (struct vd_begun){.now_ns = now_ns,
                           .processor_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID)};
}

/* Spends `length_ns` from `begun`, the given share of the time as CPU work. */
static void work(struct vd_begun begun, uint64_t length_ns, double share) {
  uint64_t work_ns = (uint64_t)((double)length_ns * share);
  bool done = work_ns == 0;
  while (!done) {
    uint64_t used_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - begun.processor_ns;
    done = used_ns >= work_ns || spin_until(vd_now_ns() + work_ns - used_ns);
  }
  vd_wait_until(begun.now_ns + length_ns);
}

void vd_pay(struct vd_begun begun, const struct gpu_cost *cost) {
  double share = vd.profile.call_work_share, spin = vd.profile.copy_wait_spin;
  uint64_t from_ns = cost->waits_from_ns, until_ns = cost->waits_until_ns;
  if (from_ns < begun.now_ns) from_ns = begun.now_ns;
  if (until_ns < from_ns) until_ns = from_ns;
  uint64_t rest_ns = cost->caller_free_ns - until_ns;
  if (until_ns > from_ns) {
    work(begun, from_ns - begun.now_ns, share);
    spin_until(from_ns + (uint64_t)((double)(until_ns - from_ns) * spin));
    vd_wait_until(until_ns);
    begun = vd_begin();
  }
  work(begun, rest_ns, share);
}
