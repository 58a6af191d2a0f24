/* host_claims.c - what all processes under pump tell each other: what they may push onto
 * this host together, and what they need on each card.
 *
 * Each process keeps one small file, its entry: what it has claimed, which levels of
 * host memory (the machine, cgroups) that would come out of, and behind that its cards. It
 * decides nothing (act_limit.c and act_share.c do), and frees nothing.
 *
 * DESIGN. PUMP_LEDGER names a folder, in it is one for each user, named by the user's
 * number and owned by that user; in that the entries, named 0 to SLOTS - 1. A common folder
 * belongs to root, which makes the users' folders: then no user can take the name of
 * another, or bring a reader to look at more than SLOTS names of each user.
 *
 * Claim first, look then: a process writes its larger claim down before it reads the
 * others', so of two that claim the last of a level at least one sees the other. What is
 * claimed and not yet decided upon is told apart (`pending`), so that two that saw each
 * other can try again instead of both giving up. An application's thread waits for no other
 * process: it opens files for each look and closes them, and nothing is mapped that others
 * could cut off.
 *
 * An entry lives as long as a write lock is on it (F_OFD_SETLK), which the kernel takes off
 * with the last descriptor of the file as it was opened then. That one the link thread
 * keeps in its own table (act_link.c): the program cannot close it, a forked child has
 * none, an exec ends it, and namespaces of process numbers do not matter. Others can open
 * an entry for reading only, so the locks that they can place are read locks: they cannot
 * make a dead entry look alive, since it is asked for what would stand against a read lock,
 * and cannot keep a write lock away, since it is placed before others can open the file.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host.h"

#define ENTRY_MAGIC 0x324c504d55500001ull
#define CARDS_MAGIC 0x324c504d55500002ull
#define SLOTS 256      /* processes of a user that can claim */
#define NAMES_MOST 512 /* of a user's folder; if there are more, all slots are tried */
#define USERS_MOST 8192
#define PATH_BYTES 512
#define FIRST_SLOT_NS 200000000u /* how long the first claim waits for our link thread */
#define TURN_TRIES 9             /* for the user's lock: half a second in all */
#define HIGH_DESCRIPTOR 900

struct entry {
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
struct cards {
  uint64_t magic;
  uint64_t check; /* over all that follows */
  struct pump_card cards[PUMP_MAX_DEVICES];
};

/* Where this process's entry is; path "": nowhere. Written by the link thread; `own_lock`,
 * never held over a system call, guards it. A forked child starts again from nothing. */
struct place {
  char path[PATH_BYTES];
  dev_t device;
  ino_t inode;
  uid_t user;
};
static struct place own;
static pthread_mutex_t own_lock = PTHREAD_MUTEX_INITIALIZER;
static int keeper = -1;      /* holds the lock; the link thread's */
static uint32_t looked;      /* futex: the link thread has tried to make an entry */
static uint32_t own_failure; /* errno of that; 0: there is one */
static uint64_t namespace;   /* of process numbers; 0: not looked up */
static uint32_t leaving;     /* the process ends: what it still does is not counted */

static uint64_t hash_of(const void *begin, const void *end) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const unsigned char *byte = begin; byte < (const unsigned char *)end; byte++)
    hash = (hash ^ *byte) * 0x100000001b3u;
  return hash;
}

static uint64_t check_of(const struct entry *entry) {
  return hash_of(&entry->pid, entry + 1);
}

static uint64_t check_of_cards(const struct cards *cards) {
  return hash_of(cards->cards, cards + 1);
}

/* Of process numbers; the same for the life of a process. */
static uint64_t own_namespace(void) {
  struct stat status;
  if (PUMP_LOAD(&namespace) == 0 && stat("/proc/self/ns/pid", &status) == 0)
    PUMP_STORE(&namespace, status.st_ino);
  return PUMP_LOAD(&namespace);
}

/* PUMP_LEDGER as it was at the start: programs rewrite their environment while our thread
 * runs. "": there is none. One that is too long is no folder. */
static char ledger[PATH_BYTES];

bool pump_claims_start(void) {
  const char *name = getenv("PUMP_LEDGER");
  snprintf(ledger, sizeof ledger, "%s", name != NULL ? name : "");
  return ledger[0] != '\0';
}

static const char *folder(void) {
  return ledger[0] != '\0' ? ledger : NULL;
}

static struct place own_place(void) {
  pthread_mutex_lock(&own_lock);
  struct place place = own;
  pthread_mutex_unlock(&own_lock);
  return place;
}

static void set_place(const struct place *place) {
  pthread_mutex_lock(&own_lock);
  own = *place;
  pthread_mutex_unlock(&own_lock);
}

static bool is_at(const struct place *place, const struct stat *status) {
  return status->st_dev == place->device && status->st_ino == place->inode;
}

/* ---- life ---------------------------------------------------------------------- */

/* Whether there is a write lock on it. Where that cannot be told it counts as alive. */
static bool lives(int file) {
  struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
  return fcntl(file, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

static int lock_whole(int file) {
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  return fcntl(file, F_OFD_SETLK, &lock) == 0 ? 0 : -errno;
}

/* ---- an entry of one's own: by the link thread ----------------------------------- */

/* The folder of this process's user, made where that is allowed; or -errno. */
static int open_own_folder(const char *where, uid_t user) {
  char path[PATH_BYTES];
  int n = snprintf(path, sizeof path, "%s/%u", where, (unsigned)user);
  if (n < 0 || n >= (int)sizeof path) return -ENAMETOOLONG;
  bool made = mkdir(path, 0755) == 0;
  int error = errno;
  int found = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (found < 0) return errno == ENOENT ? -error : -errno;
  struct stat status;
  if (made) fchmod(found, 0755); /* whatever the umask */
  if (fstat(found, &status) == 0 && status.st_uid == user) return found;
  close(found);
  return -EPERM; /* another user took the name */
}

/* One process of a user at a time makes an entry: one that finds a dead entry removes it,
 * which must not be one that another process has just put there. Other users cannot open
 * the file that is locked for that. -errno, or a descriptor that is to be closed. */
static int take_turn(int where) {
  int file =
      openat(where, "turn", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
  if (file < 0) return -errno;
  int error = 0;
  for (uint32_t tries = 0; tries <= TURN_TRIES; tries++) {
    error = lock_whole(file);
    if (error != -EAGAIN && error != -EACCES) break;
    const struct timespec pause = {.tv_nsec = 1000000l << tries};
    nanosleep(&pause, NULL);
  }
  if (error == 0) return file;
  close(file);
  return error;
}

/* Removes what is dead; the first free slot, or -EUSERS. */
static int free_slot(int where) {
  int first = -EUSERS;
  for (int slot = 0; slot < SLOTS; slot++) {
    char name[16];
    snprintf(name, sizeof name, "%d", slot);
    int file = openat(where, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    bool alive = file >= 0 ? lives(file) : errno == EMFILE || errno == ENFILE;
    bool missing = file < 0 && errno == ENOENT;
    if (file >= 0) close(file);
    if (alive || (!missing && unlinkat(where, name, 0) != 0)) continue;
    if (first < 0) first = slot;
  }
  return first;
}

/* A new entry, locked before others can open it, in a free slot. Its descriptor, or -errno.
 */
static int make_entry(int where, int *slot) {
  const struct entry empty = {0};
  unlinkat(where, "new", 0);
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

/* Out of the way of a program among whose descriptors it is (act_link.c). */
static int moved_up(int file) {
  int high = fcntl(file, F_DUPFD_CLOEXEC, HIGH_DESCRIPTOR);
  if (high < 0) return file;
  close(file);
  return high;
}

static bool keeps(const struct place *place) {
  struct stat status;
  return keeper >= 0 && fstat(keeper, &status) == 0 && is_at(place, &status);
}

static int enter(const char *where, struct place *place) {
  place->user = geteuid();
  int slot = -1, own_folder = open_own_folder(where, place->user);
  if (own_folder < 0) return own_folder;
  int turn = take_turn(own_folder);
  int file = turn < 0 ? turn : make_entry(own_folder, &slot);
  struct stat status;
  if (file >= 0 && fstat(file, &status) == 0) {
    place->device = status.st_dev;
    place->inode = status.st_ino;
    snprintf(place->path, sizeof place->path, "%.480s/%u/%d", where, (unsigned)place->user,
             slot);
    keeper = moved_up(file);
  }
  if (turn >= 0) close(turn);
  close(own_folder);
  return file < 0 ? file : 0;
}

bool pump_claims_keep(void) {
  const char *where = folder();
  if (where == NULL || PUMP_LOAD(&leaving) != 0) return false;
  struct place place = own_place();
  struct stat status;
  if (place.path[0] != '\0') {
    if (keeps(&place) && place.user == geteuid() && lstat(place.path, &status) == 0 &&
        is_at(&place, &status))
      return false;
    if (keeps(&place)) close(keeper); /* removed, or the program is another user now */
  }
  keeper = -1;
  place.path[0] = '\0';
  int error = enter(where, &place);
  set_place(&place);
  PUMP_STORE(&own_failure, (uint32_t)-error);
  PUMP_STORE_RELEASE(&looked, 1);
  pump_futex_wake(&looked);
  return error == 0;
}

/* ---- what one's own says ------------------------------------------------------------ */

static void complain(const char *where, int error) {
  static uint32_t said;
  bool closed = error == EACCES || error == EPERM || error == EROFS;
  char path[PATH_BYTES + 12], remedy[PUMP_QUOTED_BYTES + 100];
  snprintf(path, sizeof path, "%s/%u", where, (unsigned)geteuid());
  snprintf(remedy, sizeof remedy, "the administrator makes it: install -d -o %u %s",
           (unsigned)geteuid(), PUMP_QUOTED(path));
  pump_log_once(&said, PUMP_LOG_WARNING,
                "cannot keep the ledger of host memory at %s (%s): others do not see what "
                "this process converts, so it gets %s of what the host leaves; %s",
                PUMP_QUOTED(path), strerror(error), PUMP_UNSEEN_SHARE_TEXT,
                closed            ? remedy
                : error == EUSERS ? "fewer processes of this user may use GPUs at a time"
                : error == ENOSPC ? "make room there"
                : error == EMFILE ? "raise ulimit -n"
                : error == ETIMEDOUT
                    ? "its thread has not begun: allow the job one more (ulimit -u)"
                    : "start the job with pump-run");
}

/* -errno where the entry could not be written. */
static int write_own(const void *data, size_t bytes, off_t offset) {
  if (PUMP_LOAD_ACQUIRE(&looked) == 0) /* the process has just begun */
    pump_futex_sleep(&looked, 0, FIRST_SLOT_NS);
  if (PUMP_LOAD_ACQUIRE(&looked) == 0) return -ETIMEDOUT;
  struct place place = own_place();
  if (place.path[0] == '\0') {
    int failure = (int)PUMP_LOAD(&own_failure);
    return failure != 0 ? -failure : -ENOENT;
  }
  int file = open(place.path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return -errno;
  struct stat status;
  struct pump_write_signals signals;
  int error = fstat(file, &status) == 0 && is_at(&place, &status) ? 0 : -ESTALE;
  if (error == 0 && pump_block_write_signals(&signals)) {
    errno = ENOSPC;
    error = pwrite(file, data, bytes, offset) == (ssize_t)bytes ? 0 : -errno;
    pump_restore_write_signals(&signals);
  }
  close(file);
  return error;
}

int pump_claims_write(uint64_t claimed_bytes, uint64_t pending_bytes, bool active,
                      const struct pump_host_memory *first) {
  const char *where = folder();
  if (PUMP_LOAD(&leaving) != 0) return 0;
  if (where == NULL) {
    static uint32_t said;
    pump_log_once(&said, PUMP_LOG_INFO,
                  "PUMP_LEDGER is not set: memory that other jobs convert is not counted");
    return 0;
  }
  struct entry entry = {.magic = ENTRY_MAGIC,
                        .pid = getpid(),
                        .pid_namespace = own_namespace(),
                        .claimed_bytes = claimed_bytes,
                        .pending_bytes = pending_bytes,
                        .active = active,
                        .level_count = first->level_count};
  for (uint32_t i = 0; i < first->level_count; i++) {
    entry.levels[i].id = first->levels[i].id;
    entry.levels[i].first_bytes = first->levels[i].headroom_bytes;
  }
  entry.check = check_of(&entry);
  int error = write_own(&entry, sizeof entry, 0);
  if (error != 0) complain(where, -error);
  return error;
}

int pump_claims_tell(const struct pump_card *told, uint32_t count) {
  struct cards cards = {.magic = CARDS_MAGIC};
  if (PUMP_LOAD(&leaving) != 0 || folder() == NULL) return 0;
  memcpy(cards.cards, told, count * sizeof *told);
  cards.check = check_of_cards(&cards);
  return write_own(&cards, sizeof cards, sizeof(struct entry));
}

/* ---- what those of others say -------------------------------------------------------- */

/* Of an open entry; read again where it is just being written. */
static bool read_sound(int file, struct entry *entry) {
  for (int tries = 0; tries < 3; tries++)
    if (pread(file, entry, sizeof *entry, 0) == (ssize_t)sizeof *entry &&
        entry->magic == ENTRY_MAGIC && entry->level_count <= PUMP_HOST_LEVELS &&
        entry->check == check_of(entry))
      return true;
  return false;
}

static bool read_sound_cards(int file, struct cards *cards) {
  for (int tries = 0; tries < 3; tries++)
    if (pread(file, cards, sizeof *cards, sizeof(struct entry)) == (ssize_t)sizeof *cards &&
        cards->magic == CARDS_MAGIC && cards->check == check_of_cards(cards))
      return true;
  return false;
}

static void count(const struct entry *entry, uid_t user,
                  const struct pump_host_memory *host,
                  struct pump_claims claims[PUMP_HOST_LEVELS]) {
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
        c->largest_user = user;
        c->largest_is_near = entry->pid_namespace == own_namespace();
      }
      c->processes++;
      break;
    }
}

/* What is done with each entry of others: claims are summed, or cards are added. */
struct visit {
  const struct pump_host_memory *host;
  struct pump_claims *claims; /* NULL: cards */
  struct pump_neighbours *neighbours;
};

static void visit_claims(const struct visit *visit, int file, uid_t user) {
  struct entry entry;
  if (read_sound(file, &entry) && entry.claimed_bytes != 0 && lives(file))
    count(&entry, user, visit->host, visit->claims);
}

static void visit_cards(const struct visit *visit, int file) {
  struct cards cards;
  struct pump_neighbours *to = visit->neighbours;
  if (!read_sound_cards(file, &cards) || !lives(file)) return;
  for (uint32_t i = 0; i < PUMP_MAX_DEVICES && to->count < PUMP_NEIGHBOURS_MOST; i++)
    if (cards.cards[i].found_bytes != 0) to->cards[to->count++] = cards.cards[i];
}

/* 0, or -errno: the entry could not be read. */
static int visit_entry(int where, int slot, uid_t user, const struct place *mine,
                       const struct visit *visit) {
  char name[16];
  snprintf(name, sizeof name, "%d", slot);
  int file = openat(where, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return pump_is_shortage(errno) ? -errno : 0;
  struct stat status;
  if (fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == user &&
      !(mine->path[0] != '\0' && is_at(mine, &status))) {
    if (visit->claims != NULL)
      visit_claims(visit, file, user);
    else
      visit_cards(visit, file);
  }
  close(file);
  return 0;
}

/* A number as a name that we would write, at most `most`. */
static bool is_number(const char *name, unsigned long most, unsigned long *number) {
  char *end;
  if (name[0] < '0' || name[0] > '9' || (name[0] == '0' && name[1] != '\0')) return false;
  errno = 0;
  *number = strtoul(name, &end, 10);
  return errno == 0 && *end == '\0' && *number <= most;
}

/* Which slots are worth a look: all of them where a process has put too much there. */
static void find_slots(DIR *files, bool slots[SLOTS]) {
  const struct dirent *each;
  unsigned long slot;
  memset(slots, 0, SLOTS * sizeof *slots);
  for (int left = NAMES_MOST; (each = readdir(files)) != NULL; left--) {
    if (left == 0) {
      memset(slots, 1, SLOTS * sizeof *slots);
      return;
    }
    if (is_number(each->d_name, SLOTS - 1, &slot)) slots[slot] = true;
  }
}

static int visit_user(int where, const char *name, uid_t user, const struct place *mine,
                      const struct visit *visit) {
  int number =
      openat(where, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (number < 0) return pump_is_shortage(errno) ? -errno : 0;
  struct stat status;
  DIR *files =
      fstat(number, &status) == 0 && status.st_uid == user ? fdopendir(number) : NULL;
  if (files == NULL) {
    int error = errno;
    close(number);
    return pump_is_shortage(error) ? -error : 0;
  }
  bool slots[SLOTS];
  int error = 0;
  find_slots(files, slots);
  for (int slot = 0; slot < SLOTS && error == 0; slot++)
    if (slots[slot]) error = visit_entry(number, slot, user, mine, visit);
  closedir(files);
  return error;
}

static int visit_all(const struct visit *visit) {
  const char *where = folder();
  if (where == NULL) return 0;
  DIR *users = opendir(where);
  if (users == NULL) return -errno;
  const struct dirent *each;
  const struct place mine = own_place();
  int error = 0, left = USERS_MOST;
  while (error == 0 && (each = readdir(users)) != NULL) {
    unsigned long user;
    if (!is_number(each->d_name, (uid_t)-2, &user)) continue;
    error = left-- > 0 ? visit_user(dirfd(users), each->d_name, (uid_t)user, &mine, visit)
                       : -E2BIG;
  }
  closedir(users);
  return error;
}

int pump_claims_read(const struct pump_host_memory *host,
                     struct pump_claims claims[PUMP_HOST_LEVELS]) {
  memset(claims, 0, PUMP_HOST_LEVELS * sizeof *claims);
  return visit_all(&(struct visit){.host = host, .claims = claims});
}

int pump_claims_cards(struct pump_neighbours *neighbours) {
  return visit_all(&(struct visit){.neighbours = neighbours});
}

/* ---- end and fork ---------------------------------------------------------------------
 */

void pump_claims_leave(void) {
  PUMP_STORE(&leaving, 1);
  struct place place = own_place();
  struct stat status;
  if (place.path[0] != '\0' && lstat(place.path, &status) == 0 && is_at(&place, &status))
    unlink(place.path);
}

void pump_claims_fork_child(void) {
  /* A copy of the lock's descriptor would keep the parent's claim alive after its end. */
  if (!pump_log_is_apart() && keeps(&own)) close(keeper);
  keeper = -1;
  memset(&own, 0, sizeof own);
  pthread_mutex_init(&own_lock, NULL);
  looked = own_failure = leaving = 0;
  namespace = 0;
}
