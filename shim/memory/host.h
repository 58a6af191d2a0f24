/* host.h - what other processes leave to this one of host memory and GPUs. Used by the
 * limit, by the share of a GPU, and by the link thread, which keeps both up to date.
 */
#ifndef PUMP_HOST_H
#define PUMP_HOST_H

#include <errno.h>

#include "memory.h"

/* ---- host memory (host_memory.c) -------------------------------------- */

/* Reads a whole small file as text; -errno if it cannot be read or is empty. */
int pump_text_read(const char *path, char *text, size_t capacity);

/* A level of host memory: the machine, or a cgroup with a limit. */
struct pump_host_level {
  uint64_t id;             /* the same in all processes on this machine */
  uint64_t headroom_bytes; /* may still be taken, after the reserve */
  uint64_t total_bytes;
  uint64_t reserve_bytes; /* deducted from the headroom */
  char cgroup[1024];      /* directory of the cgroup; "" for the machine */
};

#define PUMP_HOST_LEVELS 8

struct pump_host_memory {
  uint64_t headroom_bytes; /* of the tightest level; UINT64_MAX: no level is known */
  uint32_t level_count;
  struct pump_host_level levels[PUMP_HOST_LEVELS];
};
/* Reads all levels; -errno if some are missing because descriptors or memory ran out. */
int pump_host_memory_read(struct pump_host_memory *memory);

/* Returns whether an error comes from a lack of descriptors or memory, not the file. */
static inline bool pump_is_shortage(int error) {
  return error == EMFILE || error == ENFILE || error == ENOMEM;
}

/* ---- neighbours (share.c) --------------------------------------------- */

#define PUMP_NEIGHBOURS_MOST 256 /* further ones count as absent */

/* A GPU, as a process under pump publishes it. */
struct pump_gpu_use {
  uint8_t uuid[16];
  uint64_t found_bytes; /* free before any process under pump used it, as far as known */
  uint64_t plain_bytes; /* device memory of the process that cannot be evicted */
  uint64_t need_bytes;  /* plain_bytes, and all that it would keep resident */
};

/* GPUs of other processes, according to the ledger. */
struct pump_neighbours {
  uint32_t count;
  struct pump_gpu_use gpus[PUMP_NEIGHBOURS_MOST];
};
/* Reads the GPUs of other processes; -errno if some could not be read. */
int pump_neighbours_read(struct pump_neighbours *neighbours);

/* Counts the neighbours on the GPU; `*found_bytes` becomes their largest found_bytes. */
uint32_t pump_neighbours_count(const struct pump_neighbours *neighbours,
                               const uint8_t uuid[16], uint64_t *found_bytes);

/* Returns this process's part of `bytes` of the GPU, if it needs all that it can get.
 * Each other process gets what it needs, but no more than an equal share. */
uint64_t pump_neighbours_share(const struct pump_neighbours *neighbours,
                               const uint8_t uuid[16], uint64_t bytes);

/* ---- claims of other processes (host_claims.c) -------------------------------- */

/* If claims are not visible, a process may convert only this part of the host's headroom
 * in addition to its earlier claims: one divided by PUMP_UNSEEN_SHARE. */
#define PUMP_UNSEEN_SHARE 8
#define PUMP_UNSEEN_SHARE_TEXT "an eighth"

/* Claims of all other processes on one level. `active_bytes`: claims of processes whose
 * devices do not hold all that they converted: part of that memory may already be on the
 * host. `first_bytes`: the largest headroom that any of the processes began with. */
struct pump_claims {
  uint64_t bytes, pending_bytes, active_bytes, first_bytes, largest_bytes;
  int64_t largest_pid;
  uint32_t largest_user;
  bool largest_is_near; /* largest_pid is from our pid namespace */
  uint32_t processes;
};

/* Claims on the job's limit by the other processes of this job and user, whatever the
 * host. `devices_bytes`: memory of GPUs that only they use. `claims.first_bytes`: the
 * largest headroom of the host that any of these processes began with. */
struct pump_job_claims {
  struct pump_claims claims;
  uint64_t devices_bytes;
};

/* Returns whether there is a ledger. Called before the link thread starts. */
bool pump_claims_start(void);
bool pump_claims_exist(void);
/* Returns PUMP_JOB, the same in all processes of a job; 0: the process is its own job. */
uint64_t pump_claims_job(void);
/* Makes sure that the others see an entry of this process. Returns true if the entry is
 * new, and therefore empty. Called often, by the link thread. */
bool pump_claims_keep(void);
/* Publishes this process's claim, including `pending_bytes` that are not decided yet.
 * `first`: the host's memory when nothing was converted. Returns -errno if others do not
 * see the claim. Requires the lock of limit.c. */
int pump_claims_write(uint64_t claimed_bytes, uint64_t pending_bytes, bool active,
                      const struct pump_host_memory *first);
/* Reads the claims of other processes, bytes that they may use of the host's memory: on
 * each level in `host` (machine, cgroups), and on the job's limit. Returns -errno if some
 * claims are unreadable. */
int pump_claims_read(const struct pump_host_memory *host,
                     struct pump_claims claims[PUMP_HOST_LEVELS],
                     struct pump_job_claims *job);
/* Removes this process's entry, at the end of the process. */
void pump_claims_leave(void);
void pump_claims_fork_child(void);

/* Publishes what this process has on its GPUs; 0 or -errno. Called by the link thread. */
int pump_claims_publish(const struct pump_gpu_use *gpus, uint32_t count);
/* Adds the GPUs of other processes. Returns -errno if some could not be read. */
int pump_claims_read_gpus(struct pump_neighbours *neighbours);

/* Publishes this process's claim on host memory again if its ledger entry is new
 * (`fresh`), the claim is larger than needed, or this process has become active or
 * dormant. Called often, by the link thread. */
void pump_limit_refresh(bool fresh);

/* Publishes what this process has on its GPUs, and adopts what the others leave. Returns
 * the same bits as pump_device_adopt_budgets. Called often, by the link thread. */
uint32_t pump_share_refresh(bool fresh);
void pump_share_start(void);
void pump_share_fork_child(void);

void pump_limit_fork_child(void);

#endif
