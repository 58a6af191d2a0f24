/* limit.c - decides whether another allocation may be converted.
 *
 * There are two bounds: the job's limit (PUMP_LIMIT, at most the administrator's
 * PUMP_LIMIT_MOST), which all its processes share, and what the host can take.
 * Percentages refer to the largest headroom that a process of the job began with,
 * multiples ("1.5x") to the memory of all GPUs that the job uses. Without PUMP_JOB each
 * process is a job by itself. This file does not access the program's memory, and frees
 * nothing.
 *
 * DESIGN. Converted memory that does not fit on the GPU is in host pages that cannot be
 * swapped. If these outgrew the host, the machine would lock up or the kernel would kill
 * the job. So pump refuses the allocation, which is the only error of its own. On each
 * level of host memory (the machine, and every cgroup above with a limit) this must hold:
 *
 *   `converted + bytes + others <= headroom + pushed`
 *
 * `bytes`: the request. `others`: claims of other processes under pump (host_claims.c).
 * `headroom`: bytes that the level can still give (host_memory.c), less a reserve for
 * other programs. `pushed`: the part of the left side that already has host pages, and so
 * is missing from `headroom`. A process whose devices hold everything has pushed nothing
 * out. For the others `pushed` is at most the headroom that was lost since the first of
 * these processes began. This also credits them with memory that programs without pump
 * have taken since.
 *
 * If others cannot see our claim, or we cannot see theirs, that sum misses claims. Then a
 * process keeps its claim from the time when claims were visible, and gets only a share
 * of the room in addition. The job's limit is shared in the same way: limit less claims
 * of its other processes.
 *
 * A claim may exceed the converted bytes, so that the ledger is not written for every
 * allocation. The excess is at most CLAIM_BYTES and a small part of the room, because
 * others are refused the bytes claimed here. The link thread gives back the unused part.
 *
 * A job that fits on its GPU would run without pump, however small its host is. So memory
 * that the host cannot take stays plain device memory while the device has room for it.
 *
 * The first sample is taken again whenever nothing is converted. A sample costs some file
 * reads, so it is used for 100 ms unless it would cause a refusal.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "host.h"
#include "shim/base/amount.h"
#include "shim/base/settings.h"

#define SAMPLE_AGE_NS 100000000u
#define REPEAT_NS 1000000000u /* at most one refusal line a second */
#define CLAIM_BYTES (64ull << 20)
#define CLAIM_PART 64 /* divisor of the remaining room: the most to claim ahead */
#define TRIES_MOST 6  /* retries while others claim the same; 63 ms in all */

/* Process-wide; guarded by `lock`; a forked child starts again from zero. */
static struct {
  bool configured;
  struct pump_amount limit, most; /* of the job; of the administrator */
  uint64_t converted;             /* admitted and not returned */
  uint64_t claimed;               /* as claimed in the ledger */
  uint64_t settled;               /* claimed and granted with all claims visible */
  int unseen, blind;              /* errno: why our claim is hidden, why theirs are */
  uint64_t idle;                  /* `converted` when the link thread last polled */
  bool active;                    /* as published in the ledger */
  uint64_t peak;                  /* largest `converted` */
  uint64_t sampled_ns;            /* time of `now` */
  uint64_t refused_ns;            /* time of the last refusal line */
  struct pump_host_memory first, now;
  struct pump_claims others[PUMP_HOST_LEVELS]; /* for each level of `now` */
  struct pump_job_claims job;
} limit;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct pump_amount amount_from(const char *variable) {
  const char *text = pump_setting(variable);
  struct pump_amount amount;
  if (!pump_amount_parse(text, &amount)) {
    amount.kind = PUMP_AMOUNT_NONE;
    pump_log(
        PUMP_LOG_WARNING,
        "ignoring %s=%s: must be a size such as 4GiB, a percentage such as 80%% or a "
        "factor such as 1.5x (pump-run --limit sets it). Only host memory limits this job",
        variable, PUMP_QUOTED(text));
  }
  return amount;
}

static void configure(void) {
  limit.configured = true;
  limit.limit = amount_from("PUMP_LIMIT");
  limit.most = amount_from("PUMP_LIMIT_MOST");
}

/* Takes a sample. Values that cannot be read keep their last value. */
static void sample(uint64_t now_ns) {
  struct pump_host_memory now;
  struct pump_claims others[PUMP_HOST_LEVELS];
  struct pump_job_claims job;
  limit.blind = -pump_host_memory_read(&now);
  if (limit.blind == 0) {
    limit.blind = -pump_claims_read(&now, others, &job);
    if (limit.blind == 0) limit.job = job;
    for (uint32_t i = 0; i < now.level_count; i++)
      if (limit.blind == 0 || limit.now.levels[i].id != now.levels[i].id)
        limit.others[i] = others[i];
    limit.now = now;
  }
  limit.sampled_ns = now_ns;
  if (limit.converted == 0) limit.first = limit.now;
}

static uint64_t least(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

/* Returns an amount in bytes; UINT64_MAX for none. Only devices already in use count. */
static uint64_t bytes_of(struct pump_amount amount) {
  uint64_t devices = limit.job.devices_bytes, first = limit.first.headroom_bytes;
  for (int d = 0; d < PUMP_MAX_DEVICES; d++)
    devices += PUMP_LOAD(&pump_shm->devices[d].total_bytes);
  if (limit.job.claims.first_bytes > first) first = limit.job.claims.first_bytes;
  return pump_amount_bytes(amount, first, devices);
}

static uint64_t limit_bytes(void) {
  return least(bytes_of(limit.limit), bytes_of(limit.most));
}

/* Returns whether the administrator's bound is below the job's limit. */
static bool bound_by_administrator(void) {
  return bytes_of(limit.most) < bytes_of(limit.limit);
}

static bool active(void) {
  bool found = false;
  for (int d = 0; d < PUMP_MAX_DEVICES; d++)
    found |= PUMP_LOAD(&pump_shm->devices[d].device_state) == PUMP_DEVICE_ACTIVE;
  return found;
}

/* Returns the bytes that this process may have converted in total, by level `i` of host
 * memory, if all claims are visible. */
static uint64_t allowed_in_sight(uint32_t i) {
  const struct pump_claims *others = &limit.others[i];
  uint64_t now = limit.now.levels[i].headroom_bytes, first = others->first_bytes;
  for (uint32_t k = 0; k < limit.first.level_count; k++)
    if (limit.first.levels[k].id == limit.now.levels[i].id &&
        limit.first.levels[k].headroom_bytes > first)
      first = limit.first.levels[k].headroom_bytes;
  uint64_t pushed = others->active_bytes + (active() ? limit.converted : 0);
  uint64_t allowed = now + (first > now ? least(first - now, pushed) : 0);
  return allowed > others->bytes ? allowed - others->bytes : 0;
}

/* Returns an errno if sums may miss claims, else 0. */
static int hiding_error(void) {
  return limit.unseen != 0 ? limit.unseen : limit.blind;
}

static uint64_t share_of(uint64_t allowed, int why) {
  return why == 0 ? allowed : least(allowed, limit.settled + allowed / PUMP_UNSEEN_SHARE);
}

/* Returns the same for the claims of this job's processes. */
static int hiding_error_in_job(void) {
  if (pump_claims_job() == 0) return 0;
  return pump_claims_exist() ? hiding_error() : ENOENT;
}

/* Returns the bytes that this process may have converted in total, by the job's limit. */
static uint64_t allowed_by_job(void) {
  uint64_t bytes = limit_bytes(), others = limit.job.claims.bytes;
  if (bytes == UINT64_MAX) return bytes; /* no limit is set */
  return share_of(bytes > others ? bytes - others : 0, hiding_error_in_job());
}

/* Finds the level with the least room; NULL if no level is known. */
static const struct pump_host_level *tightest(uint64_t *allowed,
                                              struct pump_claims *others) {
  const struct pump_host_level *found = NULL;
  *allowed = UINT64_MAX;
  for (uint32_t i = 0; i < limit.now.level_count; i++) {
    uint64_t bytes = share_of(allowed_in_sight(i), hiding_error());
    if (found != NULL && bytes >= *allowed) continue;
    *allowed = bytes;
    *others = limit.others[i];
    found = &limit.now.levels[i];
  }
  return found;
}

/* Returns the lesser of the host's room and the job's. */
static uint64_t allowed_in_all(void) {
  uint64_t allowed;
  struct pump_claims others;
  tightest(&allowed, &others);
  return least(allowed, allowed_by_job());
}

enum verdict { ADMIT, OVER_LIMIT, OVER_HOST };

/* Decides on `bytes`. `others_pending`: undecided claims, if only these prevent it. */
static enum verdict decide(uint64_t bytes, uint64_t *others_pending) {
  uint64_t allowed = allowed_by_job();
  struct pump_claims others = limit.job.claims;
  enum verdict refusal = OVER_LIMIT;
  *others_pending = 0;
  if (bytes > UINT64_MAX - limit.converted) return OVER_LIMIT;
  uint64_t wanted = limit.converted + bytes;
  if (wanted <= allowed) {
    refusal = OVER_HOST;
    tightest(&allowed, &others);
  }
  if (wanted <= allowed) return ADMIT;
  if (wanted <= allowed + others.pending_bytes) *others_pending = others.pending_bytes;
  return refusal;
}

static void claim(uint64_t bytes, uint64_t pending) {
  limit.active = active();
  if (bytes == 0 && limit.claimed == 0) return;
  limit.unseen = -pump_claims_write(bytes, pending, limit.active, &limit.first);
  if (limit.unseen == 0) limit.claimed = bytes;
  if (pending == 0 && bytes < limit.settled) limit.settled = bytes;
}

/* Makes a granted claim final. */
static enum verdict settle(uint64_t bytes) {
  claim(bytes, 0);
  if (hiding_error() == 0 && hiding_error_in_job() == 0) limit.settled = bytes;
  return ADMIT;
}

/* Claims `bytes` before it decides, so that a process that looks at the same time sees
 * the claim. Tries again if undecided claims of others are in the way. */
static enum verdict decide_claimed(uint64_t bytes) {
  uint64_t before = limit.claimed, wanted = limit.converted + bytes,
           most = allowed_in_all();
  if (wanted > limit_bytes()) sample(pump_now_ns()); /* the job may use new GPUs */
  if (wanted > limit_bytes()) return OVER_LIMIT;
  uint64_t ahead = 0;
  if (bytes < CLAIM_BYTES && wanted < most)
    ahead = least(CLAIM_BYTES, (most - wanted) / CLAIM_PART);
  for (uint32_t tries = 0;; tries++) {
    uint64_t pending;
    claim(wanted + ahead, wanted + ahead - before);
    sample(pump_now_ns());
    if (decide(bytes + ahead, &pending) == ADMIT) return settle(wanted + ahead);
    enum verdict verdict = decide(bytes, &pending);
    if (verdict == ADMIT) return settle(wanted);
    claim(before, 0);
    if (pending == 0 || tries == TRIES_MOST) return verdict;
    struct timespec pause = {.tv_nsec = 1000000l << tries};
    pause.tv_nsec = pause.tv_nsec / 2 + (long)(pump_now_ns() % (uint64_t)pause.tv_nsec) / 2;
    nanosleep(&pause, NULL);
  }
}

/* Writes the part of a bound that this process gets, and why. */
static void share_text(char *text, size_t bytes, int why) {
  if (why != 0)
    snprintf(text, bytes, ", and this process may use %s of it because %s (%s)",
             PUMP_UNSEEN_SHARE_TEXT,
             limit.blind != 0 && limit.unseen == 0 ? "it cannot read other jobs' claims"
                                                   : "other jobs cannot see its claim",
             strerror(why));
}

static void explain_limit(const char *asked, uint32_t device, const char *used) {
  const struct pump_claims *others = &limit.job.claims;
  bool administrator = bound_by_administrator();
  char bound[32], elsewhere[32], claims[120] = "", share[256] = "";
  pump_bytes_text(bound, sizeof bound, limit_bytes());
  pump_bytes_text(elsewhere, sizeof elsewhere, others->bytes);
  share_text(share, sizeof share, hiding_error_in_job());
  if (others->processes != 0)
    snprintf(claims, sizeof claims,
             " here and %s by %u other process%s of the job (largest: %lld)", elsewhere,
             others->processes, others->processes == 1 ? "" : "es",
             (long long)others->largest_pid);
  pump_say("out of memory: %s more on device %u would exceed this job's limit of %s "
           "(%s)%s; in use: %s%s; %s",
           asked, device, bound,
           administrator ? "set by the administrator in /etc/pump/config.toml"
                         : "PUMP_LIMIT",
           share, used, claims,
           administrator ? "ask for a higher limit" : "raise it with pump-run --limit");
}

static void explain(enum verdict verdict, uint32_t device, uint64_t bytes) {
  char asked[32], used[32], bound[32], reserve[32], elsewhere[32];
  pump_bytes_text(asked, sizeof asked, bytes);
  pump_bytes_text(used, sizeof used, limit.converted);
  if (verdict == OVER_LIMIT) {
    explain_limit(asked, device, used);
    return;
  }
  uint64_t allowed;
  struct pump_claims others = {0};
  const struct pump_host_level *tight = tightest(&allowed, &others);
  char claims[200] = "", where[1100] = "this host's memory", share[256] = "";
  pump_bytes_text(bound, sizeof bound,
                  allowed_in_sight((uint32_t)(tight - limit.now.levels)) + others.bytes);
  pump_bytes_text(reserve, sizeof reserve, tight->reserve_bytes);
  pump_bytes_text(elsewhere, sizeof elsewhere, others.bytes);
  bool group = tight->cgroup[0] != '\0', alone = others.processes == 0;
  if (group) snprintf(where, sizeof where, "cgroup %s", PUMP_QUOTED(tight->cgroup));
  share_text(share, sizeof share, hiding_error());
  if (!alone) {
    char whose[64] = "";
    if (!others.largest_is_near)
      snprintf(whose, sizeof whose, " in another container, user %u", others.largest_user);
    else if (others.largest_user != geteuid())
      snprintf(whose, sizeof whose, ", user %u", others.largest_user);
    snprintf(claims, sizeof claims,
             " and %s by %u other process%s under pump (largest: %lld%s)", elsewhere,
             others.processes, others.processes == 1 ? "" : "es",
             (long long)others.largest_pid, whose);
  }
  pump_say("out of memory: %s more on device %u would exceed the headroom of %s in %s "
           "(reserve: %s)%s; in use: %s%s; %s%s",
           asked, device, bound, where, reserve, share, used, claims,
           alone ? "" : "wait for the other jobs, or ",
           group ? "raise the cgroup's memory limit"
                 : "free host memory or use a machine with more");
}

/* Returns whether plain memory fits on the device. The worker's copies of the numbers
 * suffice: if they are wrong, the driver refuses the memory. */
static bool fits_as_plain(uint32_t device, uint64_t bytes) {
  if (device >= PUMP_MAX_DEVICES) return false;
  const struct pump_device *d = &pump_shm->devices[device];
  return PUMP_LOAD(&d->allocated_bytes) + PUMP_LOAD(&d->plain_bytes) + bytes <=
         PUMP_LOAD(&d->budget_bytes);
}

/* Makes sure that the sample is at most SAMPLE_AGE_NS old. */
static void prepare(uint64_t now_ns) {
  bool first = !limit.configured;
  if (first) configure();
  if (limit.sampled_ns == 0 || now_ns - limit.sampled_ns > SAMPLE_AGE_NS ||
      limit.converted == 0)
    sample(now_ns);
  if (first && limit.limit.kind != PUMP_AMOUNT_NONE && bound_by_administrator()) {
    char asked[32], bound[32];
    pump_bytes_text(asked, sizeof asked, bytes_of(limit.limit));
    pump_bytes_text(bound, sizeof bound, bytes_of(limit.most));
    pump_log(PUMP_LOG_WARNING,
             "the limit of %s is lowered to %s, the administrator's maximum "
             "(/etc/pump/config.toml)",
             asked, bound);
  }
}

/* Does the work of pump_limit_admit, with the line for -ENOMEM only if `say` is set. */
static int admit(uint32_t device, uint64_t bytes, bool say) {
  int saved = errno;
  uint64_t now_ns = pump_now_ns();
  pthread_mutex_lock(&lock);
  prepare(now_ns);
  enum verdict verdict = OVER_LIMIT;
  if (bytes <= UINT64_MAX / 4 - limit.converted) {
    bool counted = limit.converted + bytes <= limit.claimed;
    uint64_t pending;
    verdict = counted ? decide(bytes, &pending) : decide_claimed(bytes);
    if (counted && verdict != ADMIT) {
      sample(now_ns);
      verdict = decide(bytes, &pending);
    }
  }
  int answer = verdict == ADMIT ? 0 : -ENOMEM;
  if (verdict == ADMIT) {
    limit.converted += bytes;
    if (limit.converted > limit.peak) limit.peak = limit.converted;
    PUMP_STORE(&pump_shm->shim_counters.converted_bytes_peak, limit.peak);
  } else if (verdict == OVER_HOST && fits_as_plain(device, bytes)) {
    answer = -ENOSPC;
    static uint32_t said;
    pump_log_once(&said, PUMP_LOG_INFO,
                  "host memory cannot hold the evictions of device %u: later allocations "
                  "that fit on the GPU stay device memory",
                  device);
  } else if (say && (limit.refused_ns == 0 || now_ns - limit.refused_ns > REPEAT_NS)) {
    limit.refused_ns = now_ns;
    explain(verdict, device, bytes);
  }
  pthread_mutex_unlock(&lock);
  errno = saved;
  return answer;
}

int pump_limit_admit(uint32_t device, uint64_t bytes) {
  return admit(device, bytes, true);
}

int pump_limit_try(uint32_t device, uint64_t bytes) {
  return admit(device, bytes, false);
}

void pump_limit_explain(uint32_t device, uint64_t bytes) {
  if (admit(device, bytes, true) == 0) pump_limit_return(device, bytes);
}

void pump_limit_return(uint32_t device, uint64_t bytes) {
  (void)device;
  int saved = errno;
  pthread_mutex_lock(&lock);
  limit.converted -= bytes < limit.converted ? bytes : limit.converted;
  if (limit.claimed != 0 &&
      (limit.converted == 0 || limit.claimed - limit.converted >= 2 * CLAIM_BYTES))
    claim(limit.converted, 0);
  pthread_mutex_unlock(&lock);
  errno = saved;
}

void pump_limit_read(uint64_t *left, uint64_t *whole) {
  int saved = errno;
  pthread_mutex_lock(&lock);
  prepare(pump_now_ns());
  *left = allowed_in_all();
  *whole = least(limit_bytes(), limit.first.headroom_bytes);
  *left = least(*left, *whole);
  *left = *left > limit.converted ? *left - limit.converted : 0;
  pthread_mutex_unlock(&lock);
  errno = saved;
}

void pump_limit_refresh(bool fresh) {
  pthread_mutex_lock(&lock);
  uint64_t bytes = limit.claimed > limit.converted ? limit.claimed : limit.converted;
  bool idle = limit.idle == limit.converted && limit.claimed > limit.converted;
  limit.idle = limit.converted;
  if (idle) bytes = limit.converted;
  if (bytes != 0 && (fresh || idle || limit.active != active())) claim(bytes, 0);
  pthread_mutex_unlock(&lock);
}

void pump_limit_fork_child(void) {
  pthread_mutex_init(&lock, NULL);
  memset(&limit, 0, sizeof limit);
  pump_claims_fork_child();
  pump_share_fork_child();
}
