/* act_limit.c - may another allocation be converted?
 *
 * Two bounds: the job's own (PUMP_LIMIT) and what the host can take. It does
 * not read or write memory of the program and frees nothing.
 *
 * DESIGN. Converted memory that does not fit on the GPU lives in host pages that
 * cannot be swapped. If they outgrew the host, the machine would lock up or the
 * kernel would kill the job; refusing an allocation is the honest answer, and
 * the only error that pump may invent. So two conditions must hold:
 *
 *   converted + bytes <= min(limit, headroom when nothing was converted yet)
 *   converted + bytes - pushed <= headroom now
 *
 * where headroom = what the host, or the tightest cgroup above this process,
 * could still give (host_memory.c), less a reserve for everybody else. `pushed`
 * is the part of the converted bytes that already has host pages and therefore
 * is missing from "now": while every device is dormant nothing was pushed out;
 * afterwards it is at most what has disappeared since the first sample. That
 * credits to us what other processes took meanwhile; the arbiter of the system
 * service, which sees all jobs, is the exact answer.
 *
 * A job that fits on its card would run without pump, however small its host is. So
 * what the host cannot take stays plain device memory while the device has room.
 *
 * The first sample is taken again whenever nothing is converted. A sample costs
 * some file reads, so one is used for 100 ms unless it would refuse.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "act.h"
#include "act_private.h"
#include "pump_ring.h"
#include "shim.h"

#define SAMPLE_AGE_NS 100000000u
#define REPEAT_NS 1000000000u /* not more than one refusal line a second */

/* Process-wide; guarded by `lock`; a forked child starts again from zero. */
static struct {
  bool configured;
  bool limit_percent;  /* `limit` is a percentage of the first headroom */
  uint64_t limit;      /* UINT64_MAX: none */
  uint64_t converted;  /* bytes admitted and not returned */
  uint64_t peak;       /* largest `converted` */
  uint64_t sampled_ns; /* of `now` */
  uint64_t refused_ns; /* of the last refusal line */
  struct pump_host_memory first, now;
} limit;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* "" | decimal bytes | NN%. False when the text is none of them. */
static bool parse_limit(const char *text) {
  limit.limit = UINT64_MAX;
  limit.limit_percent = false;
  if (text == NULL || *text == '\0') return true;
  if (*text < '0' || *text > '9') return false;
  char *end;
  errno = 0;
  unsigned long long value = strtoull(text, &end, 10);
  if (errno != 0) return false;
  if (strcmp(end, "%") == 0) {
    if (value == 0 || value > 100) return false;
    limit.limit_percent = true;
  } else if (*end != '\0') {
    return false;
  }
  limit.limit = value;
  return true;
}

static void configure(void) {
  limit.configured = true;
  const char *text = getenv("PUMP_LIMIT");
  if (!parse_limit(text)) {
    limit.limit = UINT64_MAX;
    pump_log(PUMP_LOG_WARNING,
             "PUMP_LIMIT=\"%s\" is neither bytes nor NN%%; only the host's memory bounds "
             "this job (pump-run --limit sets it)",
             text);
  }
}

static void sample(uint64_t now_ns) {
  pump_host_memory_read(&limit.now);
  limit.sampled_ns = now_ns;
  if (limit.converted == 0) limit.first = limit.now;
}

static uint64_t limit_bytes(void) {
  if (!limit.limit_percent) return limit.limit;
  if (limit.first.headroom_bytes == UINT64_MAX) return UINT64_MAX;
  return limit.first.headroom_bytes / 100 * limit.limit;
}

static uint64_t pushed_bytes(void) {
  bool active = false;
  for (int d = 0; d < PUMP_MAX_DEVICES; d++)
    active |= PUMP_LOAD(&pump_shm->devices[d].device_state) == PUMP_DEVICE_ACTIVE;
  if (!active || limit.now.headroom_bytes >= limit.first.headroom_bytes) return 0;
  uint64_t gone = limit.first.headroom_bytes - limit.now.headroom_bytes;
  return gone < limit.converted ? gone : limit.converted;
}

enum verdict { ADMIT, OVER_LIMIT, OVER_HOST };

static enum verdict judge(uint64_t bytes) {
  if (bytes > UINT64_MAX - limit.converted) return OVER_LIMIT;
  uint64_t wanted = limit.converted + bytes;
  if (wanted > limit_bytes()) return OVER_LIMIT;
  if (wanted > limit.first.headroom_bytes) return OVER_HOST;
  if (wanted - pushed_bytes() > limit.now.headroom_bytes) return OVER_HOST;
  return ADMIT;
}

static void explain(enum verdict verdict, uint32_t device, uint64_t bytes) {
  char asked[32], held[32], bound[32], reserve[32];
  pump_bytes_text(asked, sizeof asked, bytes);
  pump_bytes_text(held, sizeof held, limit.converted);
  if (verdict == OVER_LIMIT) {
    pump_bytes_text(bound, sizeof bound, limit_bytes());
    pump_say("out of memory: %s more on device %u would exceed this job's limit of %s "
             "(PUMP_LIMIT); %s are converted already; raise it with pump-run --limit",
             asked, device, bound, held);
    return;
  }
  const struct pump_host_memory *tight =
      limit.now.headroom_bytes < limit.first.headroom_bytes ? &limit.now : &limit.first;
  pump_bytes_text(bound, sizeof bound, tight->headroom_bytes);
  pump_bytes_text(reserve, sizeof reserve, tight->reserve_bytes);
  if (tight->cgroup[0] != '\0')
    pump_say("out of memory: %s more on device %u would exceed the headroom of %s that "
             "cgroup %s leaves (%s of it kept in reserve); %s are converted already; raise "
             "the cgroup's memory limit",
             asked, device, bound, tight->cgroup, reserve, held);
  else
    pump_say(
        "out of memory: %s more on device %u would exceed the headroom of %s that this "
        "host's memory leaves (%s kept in reserve); %s are converted already; free host "
        "memory or use a machine with more",
        asked, device, bound, reserve, held);
}

/* The figures are the worker's copies: good enough, for should they be wrong, the
 * driver itself refuses the plain memory. */
static bool device_has_room(uint32_t device, uint64_t bytes) {
  if (device >= PUMP_MAX_DEVICES) return false;
  const struct pump_device *d = &pump_shm->devices[device];
  return PUMP_LOAD(&d->allocated_bytes) + PUMP_LOAD(&d->plain_bytes) + bytes <=
         PUMP_LOAD(&d->budget_bytes);
}

/* 0 and counted, -ENOSPC, or -ENOMEM, which `say` explains; see act.h. */
static int admit(uint32_t device, uint64_t bytes, bool say) {
  int saved = errno;
  uint64_t now_ns = pump_now_ns();
  pthread_mutex_lock(&lock);
  if (!limit.configured) configure();
  bool fresh = false;
  if (limit.sampled_ns == 0 || now_ns - limit.sampled_ns > SAMPLE_AGE_NS ||
      limit.converted == 0) {
    sample(now_ns);
    fresh = true;
  }
  enum verdict verdict = judge(bytes);
  if (verdict != ADMIT && !fresh) {
    sample(now_ns);
    verdict = judge(bytes);
  }
  int answer = verdict == ADMIT ? 0 : -ENOMEM;
  if (verdict == ADMIT) {
    limit.converted += bytes;
    if (limit.converted > limit.peak) limit.peak = limit.converted;
    PUMP_STORE(&pump_shm->shim_counters.converted_bytes_peak, limit.peak);
  } else if (verdict == OVER_HOST && device_has_room(device, bytes)) {
    answer = -ENOSPC;
    static uint32_t said;
    pump_log_once(&said, PUMP_LOG_INFO,
                  "the host has no room for what might have to leave device %u: further "
                  "allocations that fit there stay device memory",
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
  pthread_mutex_lock(&lock);
  limit.converted -= bytes < limit.converted ? bytes : limit.converted;
  pthread_mutex_unlock(&lock);
}

void pump_limit_fork_child(void) {
  pthread_mutex_init(&lock, NULL);
  memset(&limit, 0, sizeof limit);
}
