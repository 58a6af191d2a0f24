/* host_claims.c - the ledger, in which all processes under pump publish what they may
 * push onto this host, and what they need on each GPU.
 *
 * Each process keeps one small file, its entry: the bytes claimed, and the levels of host
 * memory (machine, cgroups) that they would come from. After that come its GPUs, and the
 * job whose limit the claim counts against. This file decides nothing (limit.c and
 * share.c do), and frees nothing.
 *
 * DESIGN. PUMP_LEDGER names a folder with one folder for each user, which has the user's
 * number as its name and belongs to that user. The entries in it are named 0 to
 * CLAIMS_SLOTS - 1. A common folder belongs to root, which makes the users' folders. So
 * no user can take another's name, or make a reader look at more than CLAIMS_SLOTS names
 * a user.
 *
 * Claim first, then look: a process writes its larger claim before it reads the others'.
 * So if two processes claim the rest of a level, at least one notices the other.
 * Undecided claims are marked (`pending`), so that two processes that saw each other can
 * try again instead of both giving up. No application thread waits for another process:
 * each look opens and closes files, and maps nothing that others could truncate.
 *
 * An entry is alive while a write lock is on it (F_OFD_SETLK). The kernel removes the
 * lock when the last descriptor of that open file is closed. The link thread keeps it in
 * its own table of descriptors (link/connect.c). So the program cannot close it, a forked
 * child has no copy, an exec ends it, and pid namespaces do not matter. Others can open
 * an entry only for reading, so they can set only read locks. These cannot make a dead
 * entry look alive, because the query asks for conflicts with a read lock. They cannot
 * block the write lock either, because it is placed before others can open the file.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host_claims.h"
#include "shim/base/settings.h"

#define FIRST_SLOT_NS 200000000u /* how long the first claim waits for the link thread */
#define TURN_TRIES 9             /* for the user's lock: the last after half a second */

static struct claims_location own;
static pthread_mutex_t own_lock = PTHREAD_MUTEX_INITIALIZER;
static int keeper = -1;      /* descriptor that holds the own entry's lock (link thread) */
static uint32_t looked;      /* futex: the link thread has tried to create an entry */
static uint32_t own_failure; /* errno of that try; 0: the entry exists */
static uint64_t namespace;   /* our pid namespace; 0: not looked up */
static uint32_t leaving;     /* the process ends: publish no more claims */

static uint64_t hash_of(const void *begin, const void *end) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const unsigned char *byte = begin; byte < (const unsigned char *)end; byte++)
    hash = (hash ^ *byte) * 0x100000001b3u;
  return hash;
}

uint64_t claims_checksum_entry(const struct claims_entry *entry) {
  return hash_of(&entry->pid, entry + 1);
}

uint64_t claims_checksum_gpus(const struct claims_gpus *gpus) {
  return hash_of(gpus->gpus, gpus + 1);
}

uint64_t claims_checksum_job(const struct claims_job *job) {
  return hash_of(&job->job, job + 1);
}

/* Returns our pid namespace, which never changes during the life of a process. */
uint64_t claims_own_namespace(void) {
  struct stat status;
  if (PUMP_LOAD(&namespace) == 0 && stat("/proc/self/ns/pid", &status) == 0)
    PUMP_STORE(&namespace, status.st_ino);
  return PUMP_LOAD(&namespace);
}

/* PUMP_LEDGER as of the start, because programs rewrite their environment while our
 * thread runs. "": no ledger. A path that is too long is cut, and names no folder. */
static char ledger[CLAIMS_PATH_BYTES];
static uint64_t own_job; /* PUMP_JOB, also as of the start */

bool pump_claims_start(void) {
  const char *name = pump_setting("PUMP_LEDGER"), *number = pump_setting("PUMP_JOB");
  snprintf(ledger, sizeof ledger, "%s", name != NULL ? name : "");
  own_job = number != NULL ? strtoull(number, NULL, 16) : 0;
  return pump_claims_exist();
}

bool pump_claims_exist(void) {
  return ledger[0] != '\0';
}

uint64_t pump_claims_job(void) {
  return own_job;
}

const char *claims_folder(void) {
  return pump_claims_exist() ? ledger : NULL;
}

struct claims_location claims_own_location(void) {
  pthread_mutex_lock(&own_lock);
  struct claims_location location = own;
  pthread_mutex_unlock(&own_lock);
  return location;
}

static void set_location(const struct claims_location *location) {
  pthread_mutex_lock(&own_lock);
  own = *location;
  pthread_mutex_unlock(&own_lock);
}

bool claims_is_at(const struct claims_location *location, const struct stat *status) {
  return status->st_dev == location->device && status->st_ino == location->inode;
}

/* ---- whether an entry is alive ------------------------------------------------- */

/* Returns whether there is a write lock on the entry; true if the query fails. */
bool claims_entry_is_alive(int file) {
  struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
  return fcntl(file, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

static int lock_whole(int file) {
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  return fcntl(file, F_OFD_SETLK, &lock) == 0 ? 0 : -errno;
}

/* ---- creation of this process's entry, by the link thread ----------------------- */

/* Opens the folder of this process's user, creating it if allowed; -errno on failure. */
static int open_own_folder(const char *where, uid_t user) {
  char path[CLAIMS_PATH_BYTES];
  int n = snprintf(path, sizeof path, "%s/%u", where, (unsigned)user);
  if (n < 0 || n >= (int)sizeof path) return -ENAMETOOLONG;
  bool made = mkdir(path, 0755) == 0;
  int error = errno;
  int found = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (found < 0) return errno == ENOENT ? -error : -errno;
  struct stat status;
  if (fstat(found, &status) == 0 && status.st_uid == user) {
    /* Sets the mode despite the umask, and takes others' right to add entries. */
    if (made || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0) fchmod(found, 0755);
    return found;
  }
  close(found);
  return -EPERM; /* another user took the name */
}

/* Returns whether the file is an entry, or the lock, of this process's user. The folder
 * may have been another user's before root gave it away, with files still in it. */
static bool is_own(int where, const char *name) {
  struct stat status;
  errno = 0;
  return fstatat(where, name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
         S_ISREG(status.st_mode) && status.st_uid == geteuid();
}

/* Frees a name in the own folder, whatever has it. A folder of another user that is not
 * empty is renamed to a name that its owner cannot guess. */
static bool free_name(int where, const char *name) {
  if (unlinkat(where, name, 0) == 0 || errno == ENOENT) return true;
  if (unlinkat(where, name, AT_REMOVEDIR) == 0) return true;
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  char other[64];
  snprintf(other, sizeof other, "foreign-%lld.%09ld", (long long)now.tv_sec, now.tv_nsec);
  return renameat(where, name, where, other) == 0;
}

static bool is_at_name(int where, const char *name, int file) {
  struct stat opened, named;
  return fstat(file, &opened) == 0 &&
         fstatat(where, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

/* Serializes the processes of a user that create entries: a process that removes a dead
 * entry must not remove another's new entry. Other users cannot open the locked file. The
 * lock counts only if the file still has its name, because a process that found another
 * user's file there may have removed it. Returns a descriptor to close, or -errno. */
static int lock_folder(int where) {
  int error = -EAGAIN;
  for (uint32_t tries = 0; tries <= TURN_TRIES; tries++) {
    if (!is_own(where, "turn") && errno != ENOENT) free_name(where, "turn");
    int file =
        openat(where, "turn", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (file < 0) return -errno;
    error = lock_whole(file);
    if (error == 0 && is_at_name(where, "turn", file)) return file;
    close(file);
    if (error != 0 && error != -EAGAIN && error != -EACCES) return error;
    const struct timespec pause = {.tv_nsec = 1000000l << tries};
    nanosleep(&pause, NULL);
  }
  return error == 0 ? -EAGAIN : error;
}

/* Removes entries that are dead or another user's; the first free slot, or -EUSERS. */
static int free_slot(int where) {
  int first = -EUSERS;
  for (int slot = 0; slot < CLAIMS_SLOTS; slot++) {
    char name[16];
    snprintf(name, sizeof name, "%d", slot);
    int file = openat(where, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    bool alive = file >= 0 ? claims_entry_is_alive(file) : pump_is_shortage(errno);
    if (file >= 0) close(file);
    bool taken = alive && is_own(where, name);
    if (taken || !free_name(where, name)) continue;
    if (first < 0) first = slot;
  }
  return first;
}

/* Creates an entry in a free slot, locked before others can open it. Returns its
 * descriptor, or -errno. */
static int make_entry(int where, int *slot) {
  const struct claims_entry empty = {0};
  free_name(where, "new");
  int file = openat(where, "new", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) return -errno;
  errno = ENOSPC;
  int error = write(file, &empty, sizeof empty) == (ssize_t)sizeof empty ? 0 : -errno;
  if (error == 0) error = lock_whole(file);
  if (error == 0 && fchmod(file, 0644) != 0) error = -errno;
  *slot = error == 0 ? free_slot(where) : error;
  char name[16];
  snprintf(name, sizeof name, "%d", *slot);
  if (*slot < 0)
    error = *slot;
  else if (PUMP_LOAD(&leaving) != 0)
    error = -ECANCELED;
  else if (renameat(where, "new", where, name) != 0)
    error = -errno;
  if (error == 0) return file;
  unlinkat(where, "new", 0);
  close(file);
  return error;
}

/* Moves a descriptor above the program's, if both share a table (link/connect.c). */
static int moved_up(int file) {
  int high = fcntl(file, F_DUPFD_CLOEXEC, PUMP_HIGH_DESCRIPTOR);
  if (high < 0) return file;
  close(file);
  return high;
}

static bool has_lock_of(const struct claims_location *location) {
  struct stat status;
  return keeper >= 0 && fstat(keeper, &status) == 0 && claims_is_at(location, &status);
}

static int create_entry(const char *where, struct claims_location *location) {
  location->user = geteuid();
  int slot = -1, own_folder = open_own_folder(where, location->user);
  if (own_folder < 0) return own_folder;
  int folder_lock = lock_folder(own_folder);
  int file = folder_lock < 0 ? folder_lock : make_entry(own_folder, &slot);
  struct stat status;
  if (file >= 0 && fstat(file, &status) == 0) {
    location->device = status.st_dev;
    location->inode = status.st_ino;
    snprintf(location->path, sizeof location->path, "%.480s/%u/%d", where,
             (unsigned)location->user, slot);
    keeper = moved_up(file);
  }
  if (folder_lock >= 0) close(folder_lock);
  close(own_folder);
  return file < 0 ? file : 0;
}

bool pump_claims_keep(void) {
  const char *where = claims_folder();
  if (where == NULL || PUMP_LOAD(&leaving) != 0) return false;
  struct claims_location location = claims_own_location();
  struct stat status;
  if (location.path[0] != '\0') {
    if (has_lock_of(&location) && location.user == geteuid() &&
        lstat(location.path, &status) == 0 && claims_is_at(&location, &status))
      return false;
    if (has_lock_of(&location))
      close(keeper); /* removed, or the program has changed its user */
  }
  keeper = -1;
  location.path[0] = '\0';
  int error = create_entry(where, &location);
  set_location(&location);
  PUMP_STORE(&own_failure, (uint32_t)-error);
  PUMP_STORE_RELEASE(&looked, 1);
  pump_futex_wake(&looked);
  return error == 0;
}

/* ---- contents of this process's entry ---------------------------------------------- */

static void complain(const char *where, int error) {
  static uint32_t said;
  bool closed = error == EACCES || error == EPERM || error == EROFS;
  char path[CLAIMS_PATH_BYTES + 12], remedy[PUMP_QUOTED_BYTES + 100];
  snprintf(path, sizeof path, "%s/%u", where, (unsigned)geteuid());
  snprintf(remedy, sizeof remedy, "an administrator must run: install -d -o %u %s",
           (unsigned)geteuid(), PUMP_QUOTED(path));
  pump_log_once(&said, PUMP_LOG_WARNING,
                "cannot record claims of host memory at %s (%s): other jobs do not see "
                "this one, so it may use only %s of the free host memory; %s",
                PUMP_QUOTED(path), strerror(error), PUMP_UNSEEN_SHARE_TEXT,
                closed            ? remedy
                : error == EUSERS ? "run fewer GPU processes of this user at once"
                : error == ENOSPC ? "free space there"
                : error == EMFILE ? "raise ulimit -n"
                : error == ETIMEDOUT
                    ? "its thread did not start: allow the job one more (ulimit -u)"
                    : "start the job with pump-run");
}

/* Writes a part of this process's entry; 0 or -errno. */
static int write_own(const void *data, size_t bytes, off_t offset) {
  if (PUMP_LOAD_ACQUIRE(&looked) == 0) /* the process has just started */
    pump_futex_sleep(&looked, 0, FIRST_SLOT_NS);
  if (PUMP_LOAD_ACQUIRE(&looked) == 0) return -ETIMEDOUT;
  struct claims_location location = claims_own_location();
  if (location.path[0] == '\0') {
    int failure = (int)PUMP_LOAD(&own_failure);
    return failure != 0 ? -failure : -ENOENT;
  }
  int file = open(location.path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return -errno;
  struct stat status;
  struct pump_write_signals signals;
  int error = fstat(file, &status) == 0 && claims_is_at(&location, &status) ? 0 : -ESTALE;
  if (error == 0 && pump_block_write_signals(&signals)) {
    errno = ENOSPC;
    error = pwrite(file, data, bytes, offset) == (ssize_t)bytes ? 0 : -errno;
    pump_restore_write_signals(&signals);
  }
  close(file);
  return error;
}

void claims_own_devices(struct claims_device devices[PUMP_MAX_DEVICES]) {
  memset(devices, 0, PUMP_MAX_DEVICES * sizeof *devices);
  for (uint32_t i = 0; i < PUMP_MAX_DEVICES; i++) {
    struct pump_gpu_use gpu;
    if (!pump_device_read_use(i, &gpu)) continue;
    memcpy(devices[i].uuid, gpu.uuid, sizeof gpu.uuid);
    devices[i].total_bytes = PUMP_LOAD(&pump_shm->devices[i].total_bytes);
  }
}

static int write_job(const struct pump_host_memory *first) {
  struct claims_job mine = {.magic = CLAIMS_JOB_MAGIC, .job = own_job};
  if (own_job == 0) return 0;
  mine.first_bytes = first->headroom_bytes;
  claims_own_devices(mine.devices);
  mine.check = claims_checksum_job(&mine);
  return write_own(&mine, sizeof mine, CLAIMS_JOB_OFFSET);
}

int pump_claims_write(uint64_t claimed_bytes, uint64_t pending_bytes, bool active,
                      const struct pump_host_memory *first) {
  const char *where = claims_folder();
  if (PUMP_LOAD(&leaving) != 0) return 0;
  if (where == NULL) {
    static uint32_t said;
    pump_log_once(
        &said, PUMP_LOG_INFO,
        "PUMP_LEDGER is not set: pump does not see the host memory that other jobs use");
    return 0;
  }
  struct claims_entry entry = {.magic = CLAIMS_ENTRY_MAGIC,
                               .pid = getpid(),
                               .pid_namespace = claims_own_namespace(),
                               .claimed_bytes = claimed_bytes,
                               .pending_bytes = pending_bytes,
                               .active = active,
                               .level_count = first->level_count};
  for (uint32_t i = 0; i < first->level_count; i++) {
    entry.levels[i].id = first->levels[i].id;
    entry.levels[i].first_bytes = first->levels[i].headroom_bytes;
  }
  entry.check = claims_checksum_entry(&entry);
  int error = write_job(first); /* before the claim, which needs it */
  if (error == 0) error = write_own(&entry, sizeof entry, 0);
  if (error != 0) complain(where, -error);
  return error;
}

int pump_claims_publish(const struct pump_gpu_use *own_gpus, uint32_t count) {
  struct claims_gpus gpus = {.magic = CLAIMS_GPUS_MAGIC};
  if (PUMP_LOAD(&leaving) != 0 || claims_folder() == NULL) return 0;
  memcpy(gpus.gpus, own_gpus, count * sizeof *own_gpus);
  gpus.check = claims_checksum_gpus(&gpus);
  return write_own(&gpus, sizeof gpus, sizeof(struct claims_entry));
}

/* ---- end and fork ---------------------------------------------------------------- */

void pump_claims_leave(void) {
  PUMP_STORE(&leaving, 1);
  struct claims_location location = claims_own_location();
  struct stat status;
  if (location.path[0] != '\0' && lstat(location.path, &status) == 0 &&
      claims_is_at(&location, &status))
    unlink(location.path);
}

void pump_claims_fork_child(void) {
  /* A copy of this descriptor would keep the claim alive after the parent's end. */
  if (!pump_log_is_deferring() && has_lock_of(&own)) close(keeper);
  keeper = -1;
  memset(&own, 0, sizeof own);
  pthread_mutex_init(&own_lock, NULL);
  looked = own_failure = leaving = 0;
  namespace = 0;
}
