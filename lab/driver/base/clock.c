/* clock.c - how a thread passes the time that the model says its call takes.
 *
 * DESIGN
 * A call of the model has parts of two kinds (struct gpu_cost):
 *   work   the thread computes until it has consumed so much processor time of its own
 *          (CLOCK_THREAD_CPUTIME_ID). Where others want the processor that takes longer,
 *          as the real call would.
 *   wait   the thread blocks until the time at which the model ends the wait; where the
 *          profile says so (copy_wait_spin) it computes through the first part.
 * What the model itself took of the processor counts as work that is done. No thread here
 * calls sched_yield(): the scheduler takes that for a whole slice used up, and beside a
 * busy process a call that had microseconds left would get the processor milliseconds later
 * (docs/decisions/0046-work-and-waits.md).
 *
 * A blocked thread wakes late, by ten to sixty microseconds, though its timer slack
 * is as good as none. So it asks to be woken `lead` earlier, and computes through what is
 * left. The lead follows how late wake-ups were: that remainder is some microseconds,
 * LEAD_MOST_NS at most, and is the driver's error in processor time. A wake-up later than
 * LEAD_MOST_NS waited for a processor, and no lead would help it.
 */
#include <errno.h>
#include <sys/prctl.h>
#include <time.h>

#include "driver.h"

#define LEAD_FIRST_NS 30000
#define LEAD_MOST_NS 70000
#define LOST_NS 5000 /* between two looks at the clock: most interrupts take less */
#define SLEEP_LEAST_NS                                                                     \
  10000 /* a shorter sleep costs as much processor time as it saves                        \
         */

static uint64_t lead_ns = LEAD_FIRST_NS; /* relaxed: any of the last values will do */

static uint64_t clock_ns(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

uint64_t vd_now_ns(void) {
  return clock_ns(CLOCK_MONOTONIC);
}

/* Computes; false: the thread may have lost its processor for a part of that time. */
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

/* A thread that had asked for `wake_ns` runs again. The lead comes to lie above three
 * wake-ups of four. */
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
      vd_now_ns(); /* first: reading the other one takes up to a microsecond */
  return (struct vd_begun){.now_ns = now_ns,
                           .processor_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID)};
}

/* A part that takes `length_ns` from `begun` on, and of that `share` of the processor. */
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
