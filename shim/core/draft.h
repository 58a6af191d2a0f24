/* draft.h - a new file beside one that it is to replace by rename.
 *
 * Its name cannot be known beforehand and nothing is followed or opened in its place, so
 * that neither another user's link nor what a killed process has left is in the way.
 * pump/outputs.py does the same. Allocates through stdio.
 */
#ifndef PUMP_DRAFT_H
#define PUMP_DRAFT_H

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/random.h>
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

#endif
