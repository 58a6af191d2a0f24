/* card_file.c - the file of a shared GPU: found, opened safely, locked, removed.
 *
 * A process that joins or leaves holds a file lock (flock), so that one process creates
 * the file and the last one removes it. The lock ends with its holder, and others wait
 * for it for a limited time. The GPU's own lock is a different one, inside the file.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "card_state.h"

#define FOLDER "/dev/shm"
#define TIMEOUT_NS 10000000000ull
#define LOOK_NS 2000000ull
#define STALE_MOST 64 /* files checked at once */

int card_path(const char *name, char *path, size_t bytes) {
  const char *folder = getenv("PUMP_VIRTUAL_CARDS");
  if (folder == NULL || *folder == 0) folder = FOLDER;
  int length =
      snprintf(path, bytes, "%s/pump-card-%u-%s", folder, (unsigned)geteuid(), name);
  if (length > 0 && (size_t)length < bytes) return 0;
  vd_error("shared card: PUMP_VIRTUAL_CARDS is too long for a path");
  return -1;
}

/* Returns 1: our own file. 0: it was removed in between. -1: refused with a message. */
static int check(int file, const char *path) {
  struct stat status, named;
  if (fstat(file, &status) != 0 || status.st_nlink == 0) return 0;
  if (!S_ISREG(status.st_mode) || status.st_uid != geteuid() || status.st_nlink != 1 ||
      (status.st_mode & 077) != 0) {
    vd_error("shared card: %s must be this user's file with mode 0600; remove it", path);
    return -1;
  }
  if (lstat(path, &named) != 0) return 0;
  return named.st_ino == status.st_ino && named.st_dev == status.st_dev;
}

static int lock_file(int file, const char *path, uint64_t until_ns) {
  while (flock(file, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      vd_error("shared card: cannot lock %s: %s", path, strerror(errno));
      return -1;
    }
    if (vd_now_ns() > until_ns) {
      vd_error("shared card: another process has locked %s for %.0f s; stop it, or choose "
               "another name",
               path, (double)TIMEOUT_NS / 1e9);
      return -1;
    }
    vd_wait_until(vd_now_ns() + LOOK_NS);
  }
  return 0;
}

static int open_file(const char *path, int flags) {
  uint64_t until_ns = vd_now_ns() + TIMEOUT_NS;
  while (vd_now_ns() < until_ns) {
    int file = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | flags, 0600);
    if (file < 0) {
      if (flags == 0 && errno == ENOENT) return -1;
      vd_error("shared card: cannot open %s: %s", path, strerror(errno));
      return -1;
    }
    int state = check(file, path);
    if (state == 1 && lock_file(file, path, until_ns) != 0) state = -1;
    if (state == 1) state = check(file, path);
    if (state == 1) return file;
    card_close(file);
    if (state < 0 || flags == 0) return -1;
  }
  vd_error("shared card: other processes keep removing and creating %s", path);
  return -1;
}

/* Unlocks explicitly: a mapping of the file would keep the lock after close(). */
void card_close(int file) {
  flock(file, LOCK_UN);
  close(file);
}

int card_open(const char *path) {
  return open_file(path, O_CREAT);
}

int card_open_existing(const char *path) {
  return open_file(path, 0);
}

/* Returns whether no process uses the locked file or ever will. */
static bool is_stale(int file) {
  struct stat status;
  if (fstat(file, &status) != 0) return false;
  if (status.st_size < (off_t)sizeof(struct card)) return true; /* its creator was killed */
  const struct card *card = mmap(NULL, sizeof *card, PROT_READ, MAP_SHARED, file, 0);
  if (card == MAP_FAILED) return false;
  bool stale = true;
  if (card->magic == CARD_MAGIC && card->version == CARD_VERSION) {
    /* Process numbers of another namespace are unknown here. */
    stale = card->pid_namespace == card_pid_namespace();
    for (uint32_t i = 0; stale && i < GPU_MAX_OWNERS; i++)
      stale = !card_process_is_alive(&card->processes[i]);
  }
  munmap((void *)(uintptr_t)card, sizeof *card);
  return stale;
}

void card_remove_stale(const char *path) {
  char prefix[64], other[4096];
  size_t folder_length = (size_t)(strrchr(path, '/') - path);
  snprintf(prefix, sizeof prefix, "pump-card-%u-", (unsigned)geteuid());
  snprintf(other, sizeof other, "%.*s", (int)folder_length, path);
  DIR *folder = opendir(other);
  if (folder == NULL) return;
  int looked = 0;
  for (struct dirent *entry; looked < STALE_MOST && (entry = readdir(folder)) != NULL;) {
    if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0) continue;
    looked++;
    int length =
        snprintf(other, sizeof other, "%.*s/%s", (int)folder_length, path, entry->d_name);
    if (length < 0 || (size_t)length >= sizeof other || strcmp(other, path) == 0) continue;
    int file = open(other, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) continue;
    if (flock(file, LOCK_EX | LOCK_NB) == 0 && check(file, other) == 1 && is_stale(file) &&
        unlink(other) == 0)
      vd_log("shared card: removed %s, because its last process ended", other);
    card_close(file);
  }
  closedir(folder);
}
