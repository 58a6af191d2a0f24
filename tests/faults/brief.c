/* brief.c - a very short oversubscribed job, the victim of the fault campaigns.
 *
 * `brief short` prints "right" and exits with 0, or reports an error and exits with 9. It
 * runs for BRIEF_MS milliseconds and uses its memory at least twice. With BRIEF_UNTIL it
 * also runs until this file exists. With BRIEF_THREADS it ends as soon as this file
 * exists, after writing the names of its threads into it. At the end the job checks that
 * its descriptors_checksum are unchanged, except for numbers from 900, which the shim uses.
 */
#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <time.h>

#include "hard.h"

#define STEPS_LEAST 16
#define OURS_BELOW 900

static double now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

/* Returns the sum of the squared numbers, which differs for most sets of
 * descriptors_checksum. */
static unsigned long descriptors_checksum(void) {
  unsigned long sum = 0;
  DIR *folder = opendir("/proc/self/fd");
  CHECK(folder != NULL);
  for (struct dirent *each; (each = readdir(folder)) != NULL;) {
    unsigned long number = strtoul(each->d_name, NULL, 10);
    if (number != (unsigned long)dirfd(folder) && number < OURS_BELOW)
      sum += number * number;
  }
  closedir(folder);
  return sum;
}

/* Writes the thread names if the file exists. */
static bool wrote_threads(const char *path) {
  int file = path == NULL ? -1 : open(path, O_WRONLY | O_CLOEXEC);
  if (file < 0) return false;
  DIR *tasks = opendir("/proc/self/task");
  CHECK(tasks != NULL);
  for (struct dirent *each; (each = readdir(tasks)) != NULL;) {
    char name[320];
    snprintf(name, sizeof name, "/proc/self/task/%s/comm", each->d_name);
    int comm = open(name, O_RDONLY | O_CLOEXEC);
    ssize_t n = comm < 0 ? 0 : read(comm, name, sizeof name);
    if (comm >= 0) close(comm);
    CHECK(n <= 0 || write(file, name, (size_t)n) == n);
  }
  closedir(tasks);
  close(file);
  return true;
}

static void brief(void) {
  CUmodule module;
  const char *wanted = getenv("BRIEF_MS"), *file = getenv("BRIEF_UNTIL");
  double until_ms = now_ms() + (wanted != NULL ? atof(wanted) : 0);
  unsigned long before = descriptors_checksum();
  getpriority(PRIO_PROCESS, 0); /* inject.c starts counting here */
  CUcontext context;
  MUST(cu.Init(0));
  MUST(cu.DevicePrimaryCtxRetain(&context, 0));
  MUST(cu.CtxSetCurrent(context)); /* start() of hard.c would wait for a worker */
  CUfunction mix = load_mix(&module);
  struct set *set = set_make(8, 3);
  const char *threads = getenv("BRIEF_THREADS");
  for (int i = 0;
       i < STEPS_LEAST || now_ms() < until_ms || (file != NULL && access(file, F_OK) != 0);
       i++) {
    if (i >= STEPS_LEAST && wrote_threads(threads)) break;
    set_step(set, &cu, mix, NULL);
    MUST(cu.StreamSynchronize(NULL));
  }
  set_check(set);
  unsigned long after = descriptors_checksum();
  for (int i = 0; after != before && i < 100;
       i++) { /* wait for a descriptor that the shim is moving now */
    usleep(10000);
    after = descriptors_checksum();
  }
  if (after != before) FAIL("descriptors_checksum: %lu before, %lu after", before, after);
}

int main(int count, char **words) {
  static const struct hard_case cases[] = {{"short", brief}};
  load_driver();
  return run_case(count, words, cases, sizeof cases / sizeof *cases);
}
