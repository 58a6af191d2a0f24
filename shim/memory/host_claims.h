/* host_claims.h - the format of a ledger entry. Its owner writes it (host_claims.c),
 * others read it (claims_of_others.c).
 */
#ifndef PUMP_HOST_CLAIMS_H
#define PUMP_HOST_CLAIMS_H

#include <sys/stat.h>

#include "host.h"

#define CLAIMS_SLOTS 256 /* processes of a user that can have entries */
#define CLAIMS_PATH_BYTES 512
#define CLAIMS_ENTRY_MAGIC 0x324c504d55500001ull
#define CLAIMS_GPUS_MAGIC 0x324c504d55500002ull
#define CLAIMS_JOB_MAGIC 0x324c504d55500003ull

struct claims_entry {
  uint64_t magic;
  uint64_t check; /* checksum of all that follows: readers may see a half-written entry */
  int64_t pid;
  uint64_t pid_namespace;
  uint64_t claimed_bytes, pending_bytes;
  uint64_t active, level_count;
  struct {
    uint64_t id, first_bytes;
  } levels[PUMP_HOST_LEVELS];
};

/* GPUs, after the entry in the same file. Older versions neither write nor read them. */
struct claims_gpus {
  uint64_t magic;
  uint64_t check; /* checksum of all that follows */
  struct pump_gpu_use gpus[PUMP_MAX_DEVICES];
};

/* The job, after the GPUs: whose limit the claim counts against, and what multiples and
 * percentages of that limit refer to. */
struct claims_job {
  uint64_t magic;
  uint64_t check;       /* checksum of all that follows */
  uint64_t job;         /* PUMP_JOB */
  uint64_t first_bytes; /* headroom of the host when nothing was converted */
  struct claims_device {
    uint8_t uuid[16];
    uint64_t total_bytes; /* 0: no device */
  } devices[PUMP_MAX_DEVICES];
};
#define CLAIMS_JOB_OFFSET (sizeof(struct claims_entry) + sizeof(struct claims_gpus))

/* Location of this process's entry; path "": none. Written by the link thread under
 * `own_lock`, never held over a system call. A forked child starts without an entry. */
struct claims_location {
  char path[CLAIMS_PATH_BYTES];
  dev_t device;
  ino_t inode;
  uid_t user;
};

/* Returns the checksum of everything after the field `check`. */
uint64_t claims_checksum_entry(const struct claims_entry *entry);
uint64_t claims_checksum_gpus(const struct claims_gpus *gpus);
uint64_t claims_checksum_job(const struct claims_job *job);

/* Fills in the devices that this process uses. */
void claims_own_devices(struct claims_device devices[PUMP_MAX_DEVICES]);

/* Returns the folder of all claims; NULL if there is none. */
const char *claims_folder(void);
/* Returns where this process's entry is, and (claims_is_at) whether a file is there. */
struct claims_location claims_own_location(void);
bool claims_is_at(const struct claims_location *location, const struct stat *status);
/* Returns the pid namespace that this process is in. */
uint64_t claims_own_namespace(void);
/* Returns whether the entry's owner still holds its lock; true if the query fails. */
bool claims_entry_is_alive(int file);

#endif
