/* fuzz_folder.h - a folder in memory for the files that C targets write. */
#ifndef FUZZ_FOLDER_H
#define FUZZ_FOLDER_H

#include <fcntl.h>
#include <ftw.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz_input.h"

static char folder_root[] = "/dev/shm/pump-fuzz-XXXXXX";

static int folder_drop(const char *path, const struct stat *status, int kind,
                       struct FTW *place) {
  (void)status, (void)kind, (void)place;
  return remove(path);
}

static void folder_end(void) {
  nftw(folder_root, folder_drop, 8, FTW_DEPTH | FTW_PHYS);
}

/* Returns a path in the folder, valid for four calls. Creates the folder once. */
static inline const char *in_folder(const char *format, ...) {
  static char paths[4][200];
  static unsigned at;
  if (strchr(folder_root, 'X') != NULL &&
      strcmp(strrchr(folder_root, '-'), "-XXXXXX") == 0) {
    must(mkdtemp(folder_root) != NULL && chmod(folder_root, 0755) == 0);
    atexit(folder_end);
  }
  char *path = paths[at++ % 4];
  int n = snprintf(path, sizeof paths[0], "%s/", folder_root);
  va_list words;
  va_start(words, format);
  vsnprintf(path + n, sizeof paths[0] - (size_t)n, format, words);
  va_end(words);
  return path;
}

/* Writes a new file; returns a descriptor for reading and writing. */
static inline int folder_file(const char *path, const void *data, size_t bytes) {
  int file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  must(file >= 0 && write(file, data, bytes) == (ssize_t)bytes);
  return file;
}

#endif
