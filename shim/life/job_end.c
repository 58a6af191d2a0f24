/* job_end.c - the last line of a job, where none of its processes had one of its own.
 *
 * A job's first process, the one that pump-run becomes, is often a shell or a launcher, and
 * the programs that use CUDA are its children. So processes leave notes in the job's
 * folder, beside the socket of its pumpd, and the first process reads them when it ends. A
 * process that pump helped prints its own line (summary.c). The job's pumpd reads the same
 * notes where the first process is killed (daemon/pumpd/common/last_line.py).
 *
 *   client              a process has passed cuInit
 *   fitted PEAK BUDGET  one has ended that pump left alone; bytes. PEAK is 0 where it only
 *                       looked for GPUs, as launchers do
 *   said                the job has had its line
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "life.h"
#include "shim/base/glibc.h"
#include "shim/memory/host.h"

#define NOTES_NAME "clients"
#define FITTED "fitted "
#define NOTES_BYTES 65536 /* that are read; a longer file has its first ones */

static FILE *initial_stdout;

__attribute__((constructor)) static void keep_stdout(void) {
  initial_stdout = stdout;
}

/* The process that pump-run became: its id is kept over exec, and no other has it. */
static bool is_first(void) {
  const char *first = getenv("PUMP_JOB_PID");
  return first != NULL && strtol(first, NULL, 10) == (long)getpid();
}

static bool notes_path(char *path, size_t room) {
  const char *socket = getenv("PUMP_SOCKET");
  const char *slash = socket == NULL ? NULL : strrchr(socket, '/');
  if (slash == NULL || getenv("PUMP_JOB_PID") == NULL) return false;
  int length = snprintf(path, room, "%.*s/" NOTES_NAME, (int)(slash - socket), socket);
  return length > 0 && (size_t)length < room;
}

void pump_job_note(const char *line) {
  char path[4096];
  struct pump_write_signals signals;
  if (!notes_path(path, sizeof path)) return;
  int saved = errno;
  int file =
      open(path, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
  if (file >= 0 && pump_block_write_signals(&signals)) {
    ssize_t written = write(file, line, strlen(line));
    (void)written; /* a note that is lost costs a line at most */
    pump_restore_write_signals(&signals);
  }
  if (file >= 0) close(file);
  errno = saved;
}

const char *pump_job_caveat(void) {
  const char *profile = getenv("PUMP_VIRTUAL_PROFILE");
  if (profile == NULL || strstr(profile, ";mode=compute") != NULL) return "";
  return "; virtual GPU in timing mode: nothing was computed, so losses mean "
         "nothing (--virtual-set mode=compute computes)";
}

/* What the first process notes of itself: it has the line to print, also where pumpd has
 * taken the folder away. */
static struct {
  bool known;
  uint64_t peak_bytes, budget_bytes;
} own;

void pump_job_fitted(uint64_t peak_bytes, uint64_t budget_bytes) {
  char line[96];
  snprintf(line, sizeof line, FITTED "%llu %llu\n", (unsigned long long)peak_bytes,
           (unsigned long long)budget_bytes);
  pump_job_note(line);
  own.known = true;
  own.peak_bytes = peak_bytes;
  own.budget_bytes = budget_bytes;
}

void pump_job_said(void) {
  pump_job_note("said\n");
}

/* exit() writes what stdio holds only after us, in the same thread: here it does so a
 * moment earlier. Not where another thread is inside of the stream, for it might never
 * leave, and not a stream that the program has put in its place, for it may be gone. */
void pump_job_flush(void) {
  struct stat out, error;
  if (fstat(STDOUT_FILENO, &out) != 0 || fstat(STDERR_FILENO, &error) != 0 ||
      out.st_dev != error.st_dev || out.st_ino != error.st_ino)
    return;
  if (!pump_has_glibc() || stdout != initial_stdout || fileno(stdout) != STDOUT_FILENO ||
      ftrylockfile(stdout) != 0)
    return;
  fflush_unlocked(stdout);
  funlockfile(stdout);
}

/* ---- the end of the first process -------------------------------------------------- */

struct notes {
  unsigned long long clients, fitted, looked, peak_bytes, budget_bytes;
  bool said;
};

static void add_fitted(struct notes *notes, uint64_t peak_bytes, uint64_t budget_bytes) {
  if (peak_bytes == 0) {
    notes->looked++;
    return;
  }
  notes->fitted++;
  if (peak_bytes < notes->peak_bytes) return;
  notes->peak_bytes = peak_bytes;
  notes->budget_bytes = budget_bytes;
}

static void say_fitted(const struct notes *notes) {
  char peak[32], budget[32], of[64] = "", others[64] = "";
  pump_bytes_text(peak, sizeof peak, notes->peak_bytes);
  pump_bytes_text(budget, sizeof budget, notes->budget_bytes);
  if (notes->budget_bytes != 0) snprintf(of, sizeof of, " of a budget of %s", budget);
  if (notes->fitted > 1)
    snprintf(others, sizeof others, ", the most of %llu processes", notes->fitted);
  pump_say("peak %s%s%s: all of it fitted on the GPU, so pump did nothing%s", peak, of,
           others, pump_job_caveat());
}

/* False where there is no folder for notes: nothing is known of other processes. */
static bool read_notes(struct notes *notes) {
  static char text[NOTES_BYTES];
  char path[4096];
  *notes = (struct notes){0};
  if (!notes_path(path, sizeof path)) return false;
  int file = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return errno == ENOENT;
  ssize_t length = read(file, text, sizeof text - 1);
  close(file);
  if (length < 0) return false;
  text[length] = '\0';
  for (char *line = text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
    *end = '\0';
    notes->clients += strcmp(line, "client") == 0;
    notes->said |= strcmp(line, "said") == 0;
    if (strncmp(line, FITTED, sizeof FITTED - 1) != 0) continue;
    char *rest;
    unsigned long long peak = strtoull(line + sizeof FITTED - 1, &rest, 10);
    add_fitted(notes, peak, strtoull(rest, NULL, 10));
  }
  return true;
}

void pump_job_end(void) {
  struct notes notes;
  /* Without standard error, which many tools close at exit, pumpd has the line to print. */
  if (fcntl(STDERR_FILENO, F_GETFD) < 0) return;
  if (!is_first() || !read_notes(&notes) || notes.said) return;
  if (own.known && notes.clients == 0) {
    notes.clients = 1;
    add_fitted(&notes, own.peak_bytes, own.budget_bytes);
  }
  if (notes.fitted != 0) {
    say_fitted(&notes);
  } else if (notes.clients != 0 && notes.looked == notes.clients) {
    pump_say("this job used CUDA and allocated no GPU memory, so pump did nothing");
  } else if (notes.clients != 0) {
    pump_say(
        "%llu process(es) of this job used CUDA and ended before pump could sum up what "
        "it did: by a signal (Ctrl-C, SIGTERM, a time limit) or _exit; pump-run --record "
        "FILE keeps the figures even then, for pump report FILE",
        notes.clients - notes.looked);
  } else {
    pump_say("no process of this job used CUDA (none called cuInit), so pump did nothing; "
             "if one should have, put pump-run in front of that program itself: pump does "
             "not follow into ssh, sudo, containers or statically linked programs; pump "
             "doctor -- COMMAND tells more");
  }
  pump_job_said();
}
