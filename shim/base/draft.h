/* draft.h - a draft file next to the file that it will replace by rename, and a check
 * whether a file may be replaced.
 *
 * A draft's name cannot be predicted, and its creation follows no link and opens no
 * existing file. So neither another user's link nor the leftovers of a killed process
 * interfere. pump/base/outputs.py does the same. Allocates through stdio.
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

/* Opens PATH.part-XXXXXXXX for writing and puts its name into `partial`. Returns NULL,
 * with errno set, on failure. */
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

/* Returns whether `path` is absent, empty, or a file that begins with `head` (shorter
 * than PUMP_HEAD_BYTES). Links, devices and all other files must stay. */
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
