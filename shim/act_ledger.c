/* act_ledger.c - what all processes under pump together may push onto this host.
 *
 * Each process that converts memory keeps one small file in the folder that PUMP_LEDGER
 * names: what it has claimed, and which levels of host memory (the machine, cgroups) that
 * would come out of. It decides nothing (act_limit.c does), and frees nothing.
 *
 * DESIGN. Claim first, look then: a process writes its larger claim down before it reads
 * the others', so of two that claim the last of a level at least one sees the other. What
 * is claimed and not yet decided upon is told apart (`pending`), so that two that saw each
 * other can try again instead of both giving up. There is no lock that somebody could be
 * stopped or killed with, no daemon, and nothing is mapped that others could cut off.
 *
 * A process writes to its own file alone. Files of users in a common folder are theirs by
 * the kernel's word (the name begins with the owner's number); what is in them is believed.
 * A file whose process is gone counts nothing; who finds it and may, removes it. Files of
 * another PID namespace are left alone: nobody here can tell who of them lives.
 *
 * Descriptors are opened for each look and closed: the program owns the numbers.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "act.h"
#include "act_private.h"
#include "pump_ring.h"
#include "shim.h"

#define ENTRY_MAGIC 0x314c504d55500001ull
#define FILES_MOST 4096 /* no more is read of a folder that somebody has filled */
#define UNWRITTEN_S 60
#define PATH_BYTES 512

struct entry {
  uint64_t magic;
  uint64_t check; /* over all that follows: an entry may be read while it is written */
  int64_t pid;
  uint64_t start_ticks;
  uint64_t pid_namespace;
  uint64_t claimed_bytes, pending_bytes;
  uint64_t active, level_count;
  struct {
    uint64_t id, first_bytes;
  } levels[PUMP_HOST_LEVELS];
};

/* Guarded by the lock of act_limit.c; a forked child starts again from nothing. */
static char own_path[PATH_BYTES];
static uint64_t own_start_ticks, own_namespace;
static uint32_t leaving; /* the process ends: what it still does is nobody's business */

static uint64_t check_of(const struct entry *entry) {
  const unsigned char *byte = (const unsigned char *)&entry->pid;
  const unsigned char *end = (const unsigned char *)(entry + 1);
  uint64_t hash = 0xcbf29ce484222325u;
  for (; byte < end; byte++) hash = (hash ^ *byte) * 0x100000001b3u;
  return hash;
}

/* Start of a process in clock ticks since boot; 0 where that cannot be seen. */
static uint64_t start_ticks(int64_t pid) {
  char path[64], text[1024];
  snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  ssize_t n = read(file, text, sizeof text - 1);
  close(file);
  if (n <= 0) return 0;
  text[n] = '\0';
  char *at = strrchr(text, ')'); /* the name in front may hold anything */
  for (int field = 2; at != NULL && field < 22; field++) {
    at = strchr(at + 1, ' ');
  }
  return at != NULL ? strtoull(at, NULL, 10) : 0;
}

static bool lives(const struct entry *entry) {
  if (entry->pid <= 0 || (kill((pid_t)entry->pid, 0) != 0 && errno == ESRCH)) return false;
  uint64_t start = start_ticks(entry->pid);
  return start == 0 || entry->start_ticks == 0 || start == entry->start_ticks;
}

static const char *folder(void) {
  const char *name = getenv("PUMP_LEDGER");
  return name != NULL && name[0] != '\0' ? name : NULL;
}

static void complain(const char *what, int error) {
  static uint32_t said;
  pump_log_once(&said, PUMP_LOG_WARNING,
                "cannot keep the ledger of host memory at %s (%s): memory that other jobs "
                "convert is not counted; start the job with pump-run, or make room there",
                PUMP_QUOTED(what), strerror(error));
}

/* A new file of this process's own; its name cannot be taken beforehand. -1 for none. */
static int create(const char *where) {
  uint64_t chance = 0;
  if (getrandom(&chance, sizeof chance, GRND_NONBLOCK) < 0) chance = pump_now_ns();
  int n = snprintf(own_path, sizeof own_path, "%s/%u-%d-%016llx", where,
                   (unsigned)geteuid(), (int)getpid(), (unsigned long long)chance);
  int file = -1;
  if (n > 0 && n < (int)sizeof own_path)
    file = open(own_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
  else
    errno = ENAMETOOLONG;
  if (file < 0) {
    int error = errno;
    own_path[0] = '\0';
    complain(where, error);
    return -1;
  }
  fchmod(file, 0644); /* whatever the umask: other users have to see it */
  own_start_ticks = start_ticks(getpid());
  struct stat status;
  own_namespace = stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
  return file;
}

void pump_ledger_write(uint64_t claimed_bytes, uint64_t pending_bytes, bool active,
                       const struct pump_host_memory *first) {
  const char *where = folder();
  if (claimed_bytes == 0 && own_path[0] == '\0') return;
  if (where == NULL) {
    static uint32_t said;
    pump_log_once(&said, PUMP_LOG_INFO,
                  "PUMP_LEDGER is not set: memory that other jobs convert is not counted");
    return;
  }
  if (PUMP_LOAD(&leaving) != 0) return;
  int file = -1;
  if (own_path[0] != '\0') file = open(own_path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0) file = create(where); /* also when somebody has removed it */
  if (file < 0) return;
  struct entry entry = {.magic = ENTRY_MAGIC,
                        .pid = getpid(),
                        .start_ticks = own_start_ticks,
                        .pid_namespace = own_namespace,
                        .claimed_bytes = claimed_bytes,
                        .pending_bytes = pending_bytes,
                        .active = active,
                        .level_count = first->level_count};
  for (uint32_t i = 0; i < first->level_count; i++) {
    entry.levels[i].id = first->levels[i].id;
    entry.levels[i].first_bytes = first->levels[i].headroom_bytes;
  }
  entry.check = check_of(&entry);
  struct pump_hush hush;
  bool hushed = pump_hush_begin(&hush);
  errno = 0;
  bool written = hushed && pwrite(file, &entry, sizeof entry, 0) == (ssize_t)sizeof entry;
  int error = errno != 0 ? errno : ENOSPC;
  if (hushed) pump_hush_end(&hush);
  if (!written) complain(own_path, error);
  close(file);
}

/* Reads the file `name` of user `user`; false when there is nothing sound in it. */
static bool read_entry(int where, const char *name, uid_t user, struct entry *entry) {
  int file = openat(where, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return false;
  struct stat status;
  bool sound = false;
  if (fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == user)
    for (int tries = 0; tries < 3 && !sound; tries++)
      sound = pread(file, entry, sizeof *entry, 0) == (ssize_t)sizeof *entry &&
              entry->magic == ENTRY_MAGIC && entry->level_count <= PUMP_HOST_LEVELS &&
              entry->check == check_of(entry);
  close(file);
  return sound;
}

static void count(const struct entry *entry, const struct pump_host_memory *host,
                  struct pump_claims claims[PUMP_HOST_LEVELS]) {
  if (entry->claimed_bytes == 0) return;
  for (uint32_t i = 0; i < host->level_count; i++)
    for (uint32_t k = 0; k < entry->level_count; k++) {
      if (entry->levels[k].id != host->levels[i].id) continue;
      struct pump_claims *c = &claims[i];
      uint64_t room = UINT64_MAX / 4 - c->bytes; /* of sums of figures that may be lies */
      uint64_t bytes = entry->claimed_bytes < room ? entry->claimed_bytes : room;
      uint64_t pending = entry->pending_bytes < bytes ? entry->pending_bytes : bytes;
      c->bytes += bytes;
      c->pending_bytes += pending;
      if (entry->active) c->active_bytes += bytes;
      if (entry->levels[k].first_bytes > c->first_bytes)
        c->first_bytes = entry->levels[k].first_bytes;
      if (bytes > c->largest_bytes) {
        c->largest_bytes = bytes;
        c->largest_pid = entry->pid;
      }
      c->processes++;
      break;
    }
}

/* Removes a file of ours that was never written: its process was killed right after it had
 * made the file. One that was only stopped there makes another. */
static void sweep(int where, const char *name) {
  struct stat status;
  if (fstatat(where, name, &status, AT_SYMLINK_NOFOLLOW) != 0) return;
  if (!S_ISREG(status.st_mode) || status.st_uid != geteuid() || status.st_size != 0) return;
  if (time(NULL) - status.st_mtime >= UNWRITTEN_S) unlinkat(where, name, 0);
}

void pump_ledger_read(const struct pump_host_memory *host,
                      struct pump_claims claims[PUMP_HOST_LEVELS]) {
  memset(claims, 0, PUMP_HOST_LEVELS * sizeof *claims);
  const char *where = folder(), *own = strrchr(own_path, '/');
  DIR *files = where != NULL ? opendir(where) : NULL;
  if (files == NULL) return;
  struct stat status;
  uint64_t space = stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
  const struct dirent *each;
  for (int left = FILES_MOST; left > 0 && (each = readdir(files)) != NULL; left--) {
    char *end;
    struct entry entry;
    unsigned long user = strtoul(each->d_name, &end, 10);
    if (end == each->d_name || *end != '-') continue;
    if (own != NULL && strcmp(each->d_name, own + 1) == 0) continue;
    if (!read_entry(dirfd(files), each->d_name, (uid_t)user, &entry)) {
      sweep(dirfd(files), each->d_name);
      continue;
    }
    if (entry.pid_namespace != space) continue;
    if (lives(&entry) && entry.pid != getpid()) /* ours: of what ran before an exec */
      count(&entry, host, claims);
    else if (user == geteuid())
      unlinkat(dirfd(files), each->d_name, 0);
  }
  closedir(files);
}

void pump_ledger_leave(void) {
  PUMP_STORE(&leaving, 1);
  if (own_path[0] != '\0') unlink(own_path);
}

void pump_ledger_fork_child(void) {
  own_path[0] = '\0';
  leaving = 0;
}
