/* host_claims.h - an entry of the host's claims, as its owner writes it (host_claims.c) and
 * others read it (claims_of_others.c).
 */
#ifndef PUMP_HOST_CLAIMS_H
#define PUMP_HOST_CLAIMS_H

#include <sys/stat.h>

#include "host.h"

#define CLAIMS_SLOTS 256 /* processes of a user that can claim */
#define CLAIMS_PATH_BYTES 512
#define CLAIMS_ENTRY_MAGIC 0x324c504d55500001ull
#define CLAIMS_CARDS_MAGIC 0x324c504d55500002ull
#define CLAIMS_JOB_MAGIC 0x324c504d55500003ull

struct claims_entry {
  uint64_t magic;
  uint64_t check; /* over all that follows: an entry may be read while it is written */
  int64_t pid;
  uint64_t pid_namespace;
  uint64_t claimed_bytes, pending_bytes;
  uint64_t active, level_count;
  struct {
    uint64_t id, first_bytes;
  } levels[PUMP_HOST_LEVELS];
};

/* Behind the entry in the same file; older processes neither write nor read it. */
struct claims_cards {
  uint64_t magic;
  uint64_t check; /* over all that follows */
  struct pump_card cards[PUMP_MAX_DEVICES];
};

/* After the cards: whose limit the entry's claim counts against, and what multiples and
 * percentages of that limit refer to. */
struct claims_job {
  uint64_t magic;
  uint64_t check;       /* over all that follows */
  uint64_t job;         /* PUMP_JOB */
  uint64_t first_bytes; /* headroom of the host when nothing was converted */
  struct claims_device {
    uint8_t uuid[16];
    uint64_t total_bytes; /* 0: no device */
  } devices[PUMP_MAX_DEVICES];
};
#define CLAIMS_JOB_OFFSET (sizeof(struct claims_entry) + sizeof(struct claims_cards))

/* Where this process's entry is; path "": nowhere. Written by the link thread; `own_lock`,
 * never held over a system call, guards it. A forked child starts again from nothing. */
struct claims_place {
  char path[CLAIMS_PATH_BYTES];
  dev_t device;
  ino_t inode;
  uid_t user;
};

/* The check sum over all that follows it in the entry. */
uint64_t claims_check(const struct claims_entry *entry);
uint64_t claims_check_cards(const struct claims_cards *cards);
uint64_t claims_check_job(const struct claims_job *job);

/* The devices that this process uses. */
void claims_own_devices(struct claims_device devices[PUMP_MAX_DEVICES]);

/* The folder of all claims; NULL: there is none. */
const char *claims_folder(void);
/* Where this process's entry is, and whether that is the file. */
struct claims_place claims_own_place(void);
bool claims_is_at(const struct claims_place *place, const struct stat *status);
/* The namespace of process numbers that this process is in. */
uint64_t claims_own_namespace(void);
/* Whether its owner still holds its lock. Where the query fails it counts as alive. */
bool claims_entry_lives(int file);

#endif
