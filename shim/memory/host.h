/* host.h - what host memory and cards leave to this process beside others: for the limit,
 * for its share of a card, and for the link thread, which keeps both up to date.
 */
#ifndef PUMP_HOST_H
#define PUMP_HOST_H

#include <errno.h>

#include "memory.h"

/* ---- host memory (host_memory.c) -------------------------------------- */

/* A whole small file as text; -errno where it cannot be read or is empty. */
int pump_text_read(const char *path, char *text, size_t room);

/* A level that host memory is taken from: the machine, or a cgroup with a limit. */
struct pump_host_level {
  uint64_t id;             /* the same for all processes on this machine */
  uint64_t headroom_bytes; /* may still be taken, reserve deducted */
  uint64_t total_bytes;
  uint64_t reserve_bytes; /* what was deducted */
  char cgroup[1024];      /* its directory; "" for the machine */
};

#define PUMP_HOST_LEVELS 8

struct pump_host_memory {
  uint64_t headroom_bytes; /* of the tightest level; UINT64_MAX: unknown, without levels */
  uint32_t level_count;
  struct pump_host_level levels[PUMP_HOST_LEVELS];
};
/* -errno: the process may open no more files, so figures are missing. */
int pump_host_memory_read(struct pump_host_memory *memory);

/* The process is short of descriptors or memory: the error says nothing about the file. */
static inline bool pump_is_shortage(int error) {
  return error == EMFILE || error == ENFILE || error == ENOMEM;
}

/* ---- neighbours (share.c) --------------------------------------------- */

#define PUMP_NEIGHBOURS_MOST 256 /* those beyond count as absent */

/* A card as processes under pump publish it. */
struct pump_card {
  uint8_t uuid[16];
  uint64_t found_bytes; /* free before any of them had anything there, as far as is known */
  uint64_t plain_bytes; /* of the process, which cannot make way */
  uint64_t need_bytes;  /* these, and what it would have resident besides */
};

/* What others have on cards, by the ledger. */
struct pump_neighbours {
  uint32_t count;
  struct pump_card cards[PUMP_NEIGHBOURS_MOST];
};
/* -errno: not all of them could be read. */
int pump_neighbours_look(struct pump_neighbours *neighbours);

/* How many of them use the card; `*found_bytes` becomes the most that one of them found. */
uint32_t pump_neighbours_on(const struct pump_neighbours *neighbours,
                            const uint8_t uuid[16], uint64_t *found_bytes);

/* How much of `bytes` of the card is this process's, while it needs all that it can get:
 * each other process has what it needs, but no more than an equal share. */
uint64_t pump_neighbours_leave(const struct pump_neighbours *neighbours,
                               const uint8_t uuid[16], uint64_t bytes);

/* ---- what other processes have claimed of it (host_claims.c) ------------------ */

/* What a process may convert beyond its earlier claims while others cannot see a larger
 * one, or it cannot see theirs: one part in so many of what the host leaves. */
#define PUMP_UNSEEN_SHARE 8
#define PUMP_UNSEEN_SHARE_TEXT "an eighth"

/* What all others have claimed of one level. active_bytes: of those whose devices do not
 * hold all that they converted, so that part of it may be on the host already. first_bytes:
 * the largest headroom that any of them began with. */
struct pump_claims {
  uint64_t bytes, pending_bytes, active_bytes, first_bytes, largest_bytes;
  int64_t largest_pid;
  uint32_t largest_user;
  bool largest_is_near; /* the number is of our namespace of process numbers */
  uint32_t processes;
};

/* What the other processes of this job and user have claimed of the job's limit (`host`
 * does not matter), and what their GPUs add to this process's. `claims.first_bytes` is the
 * largest headroom of the host that any of them began with. */
struct pump_job_claims {
  struct pump_claims claims;
  uint64_t devices_bytes;
};

/* Before the link thread starts: whether there is a ledger. */
bool pump_claims_start(void);
bool pump_claims_exist(void);
/* PUMP_JOB: all processes of a job know it. 0: this process is a job of its own. */
uint64_t pump_claims_job(void);
/* Makes sure, by the link thread and often, that this process has an entry that the others
 * see. True: it is a new one, which is empty. */
bool pump_claims_keep(void);
/* Publishes what this process claims, `pending_bytes` of it not decided yet.
 * first: as it was when nothing was converted. -errno: they do not see it. Callers hold the
 * lock of limit.c. */
int pump_claims_write(uint64_t claimed_bytes, uint64_t pending_bytes, bool active,
                      const struct pump_host_memory *first);
/* For each level of `host`, and for the job. -errno: not all of them could be read. */
int pump_claims_read(const struct pump_host_memory *host,
                     struct pump_claims claims[PUMP_HOST_LEVELS],
                     struct pump_job_claims *job);
/* To be called at the end of the process: takes its entry away. */
void pump_claims_leave(void);
void pump_claims_fork_child(void);

/* What this process has on its cards, for the others; -errno. By the link thread. */
int pump_claims_publish(const struct pump_card *cards, uint32_t count);
/* Adds the others' cards. -errno: not all of them could be read. */
int pump_claims_cards(struct pump_neighbours *neighbours);

/* By the link thread, often: publishes whether this process is active, where that
 * has changed. fresh: the entry is a new one. */
void pump_limit_refresh(bool fresh);

/* By the link thread, often: publishes what this process has on its cards, and takes
 * what they leave. Answers like pump_device_adopt_budgets. */
uint32_t pump_share_refresh(bool fresh);
void pump_share_start(void);
void pump_share_fork_child(void);

void pump_limit_fork_child(void);

#endif
