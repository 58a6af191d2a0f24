/* draft.h - a new file beside one that it is to replace by rename, and what may be
 * replaced.
 *
 * The draft's name cannot be known beforehand and nothing is followed or opened in its
 * place, so that neither another user's link nor what a killed process has left is in the
 * way. pump/outputs.py does the same. Allocates through stdio.
 */
#ifndef PUMP_DRAFT_H
#define PUMP_DRAFT_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define PUMP_DRAFT_BYTES (4096 + 16)

/* PATH.part-XXXXXXXX, open for writing, its name in `partial`; NULL, and errno, for none.
 */
static inline FILE *pump_draft(const char *path, char partial[PUMP_DRAFT_BYTES]) {
  uint32_t word;
  if (getrandom(&word, sizeof word, GRND_NONBLOCK) != sizeof word) return NULL;
  snprintf(partial, PUMP_DRAFT_BYTES, "%s.part-%08x", path, word);
  int descriptor =
      open(partial, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (descriptor < 0) return NULL;
  FILE *file = fdopen(descriptor, "w");
  if (file == NULL) close(descriptor);
  return file;
}

#define PUMP_HEAD_BYTES 64

/* Nothing, an empty file, or one that begins with `head`, shorter than PUMP_HEAD_BYTES:
 * whatever else is there stays, links and devices included. */
static inline bool pump_may_replace(const char *path, const char *head) {
  struct stat there;
  if (lstat(path, &there) != 0) return errno == ENOENT;
  if (!S_ISREG(there.st_mode)) return false;
  if (there.st_size == 0) return true;
  char found[PUMP_HEAD_BYTES];
  size_t length = strlen(head);
  int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return false;
  bool ours = length < sizeof found && pread(file, found, length, 0) == (ssize_t)length &&
              memcmp(found, head, length) == 0;
  close(file);
  return ours;
}

#endif
