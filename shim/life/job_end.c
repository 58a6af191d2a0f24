/* job_end.c - chooses the last line of a job: one for all of its processes.
 *
 * A job's first process, which pump-run becomes, is often a shell or a launcher, and its
 * children use CUDA. So processes leave notes in the job's folder, next to the socket of
 * its pumpd. The first process reads them when it ends. If the first process is killed,
 * the job's pumpd reads them (daemon/pumpd/common/last_line.py).
 *
 *   `client`           A process has passed cuInit.
 *   `failed LINE`      cuInit has failed in a process.
 *   `left STATUS`      The first process has ended and could not print the job's line.
 *   `ended RANK FULL`  A process has ended with this line (last_line.h); a tab and the
 *                      brief text follow.
 *   `said`             The job's line has been printed.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "last_line.h"
#include "life.h"
#include "shim/base/glibc.h"

#define NOTES_NAME "clients"
#define ENDED "ended "
#define FAILED "failed "
#define NOTES_MOST 100000 /* lines that are read */
#define NOTE_BYTES (2 * PUMP_LINE_BYTES + 64)

static FILE *initial_stdout;

__attribute__((constructor)) static void keep_stdout(void) {
  initial_stdout = stdout;
}

/* Returns whether this is the process that pump-run became: exec keeps a process's id. */
static bool is_process_of_pump_run(void) {
  const char *first = getenv("PUMP_JOB_PID");
  return first != NULL && strtol(first, NULL, 10) == (long)getpid();
}

static bool notes_path(char *path, size_t capacity) {
  const char *socket = getenv("PUMP_SOCKET");
  const char *slash = socket == NULL ? NULL : strrchr(socket, '/');
  if (slash == NULL || getenv("PUMP_JOB_PID") == NULL) return false;
  int length = snprintf(path, capacity, "%.*s/" NOTES_NAME, (int)(slash - socket), socket);
  return length > 0 && (size_t)length < capacity;
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
    (void)written; /* a lost note costs one line at most */
    pump_restore_write_signals(&signals);
  }
  if (file >= 0) close(file);
  errno = saved;
}

bool pump_job_computes_nothing(void) {
  const char *profile = getenv("PUMP_VIRTUAL_PROFILE");
  return profile != NULL && strstr(profile, ";mode=compute") == NULL;
}

void pump_job_said(void) {
  pump_job_note("said\n");
}

/* Flushes stdout a moment before exit() would, because stdio writes after us in the same
 * thread. Skips a stream that another thread has locked, because it may stay locked.
 * Skips a stream that the program has put in stdout's place, because it may be gone. */
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

/* ---- the end of a process ---------------------------------------------------------- */

/* Notes of the job's processes. `best`: the line of the highest rank. */
struct notes {
  unsigned long long clients, ended;
  struct pump_line failed; /* how cuInit failed; "": it never did */
  bool said;
  bool gone; /* pumpd has ended and removed the folder with the notes */
  struct pump_line best;
};

/* The first process's own line, which it prints even if pumpd has removed the folder. */
static struct pump_line own;
static bool own_known;

static void add_line(struct notes *notes, const struct pump_line *line) {
  notes->ended++;
  if (notes->ended == 1 || line->rank >= notes->best.rank) notes->best = *line;
}

static void add_note(struct notes *notes, char *text) {
  struct pump_line line;
  notes->clients += strcmp(text, "client") == 0;
  notes->said |= strcmp(text, "said") == 0;
  if (strncmp(text, FAILED, sizeof FAILED - 1) == 0)
    pump_line_result(&notes->failed, "%s", text + sizeof FAILED - 1);
  if (strncmp(text, ENDED, sizeof ENDED - 1) != 0) return;
  char *full, *brief;
  line.rank = strtoull(text + sizeof ENDED - 1, &full, 10);
  if (*full != ' ' || (brief = strchr(full, '\t')) == NULL) return;
  *brief++ = '\0';
  snprintf(line.full, sizeof line.full, "%s", full + 1);
  snprintf(line.brief, sizeof line.brief, "%s", brief);
  add_line(notes, &line);
}

/* Reads the notes; false if that is impossible, so that other processes are unknown. */
static bool read_notes(struct notes *notes) {
  char path[4096], text[NOTE_BYTES];
  *notes = (struct notes){0};
  if (!notes_path(path, sizeof path)) return false;
  int number = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
  if (number < 0) {
    if (errno != ENOENT) return false;
    *strrchr(path, '/') = '\0';
    notes->gone = access(path, F_OK) != 0;
    return true;
  }
  FILE *file = fdopen(number, "r");
  if (file == NULL) {
    close(number);
    return false;
  }
  for (int lines = 0; lines < NOTES_MOST && fgets(text, sizeof text, file); lines++) {
    text[strcspn(text, "\n")] = '\0';
    add_note(notes, text);
  }
  fclose(file);
  return true;
}

void pump_job_line(const struct pump_line *line, int status) {
  struct notes notes;
  char text[NOTE_BYTES];
  bool first = is_process_of_pump_run(), known = read_notes(&notes);
  snprintf(text, sizeof text, ENDED "%llu %s\t%s\n", (unsigned long long)line->rank,
           line->full, line->brief);
  if (known) pump_job_note(text);
  if (first) {
    own = *line;
    own_known = true;
  }
  /* If everything fitted, the line is printed at the very end, since a child may have
   * more to report. Without a first process, or after its end, each process that pump had
   * to help prints its own line. */
  if (line->rank < pump_line_rank(PUMP_RANK_REFUSED, 0)) return;
  if (first)
    pump_job_end(status);
  else if (!known || notes.said)
    pump_line_print(line, status);
}

void pump_job_init_failed(int error) {
  char text[PUMP_LINE_BYTES + sizeof FAILED];
  struct pump_line line;
  pump_line_of_refused_init(&line, error);
  snprintf(text, sizeof text, FAILED "%s\n", line.full);
  pump_job_note(text);
}

static void note_status(int status) {
  char text[32];
  snprintf(text, sizeof text, "left %d\n", status & 0xff);
  pump_job_note(text);
}

static void choose(const struct notes *notes, struct pump_line *line) {
  if (notes->ended != 0 && (notes->best.rank != 0 || notes->ended >= notes->clients)) {
    *line = notes->best;
  } else if (notes->clients != 0) {
    pump_line_of_ended(line, notes->clients - notes->ended);
  } else if (notes->failed.full[0] != '\0') {
    *line = notes->failed;
    line->brief[0] = '\0'; /* the program's status follows from this error */
  } else if (notes->gone) {
    pump_line_of_lost_notes(line);
  } else {
    pump_line_of_no_cuda(line);
    pump_log(PUMP_LOG_INFO, "put pump-run directly before the program that uses CUDA. pump "
                            "does not follow into ssh, sudo, containers or static "
                            "programs; check with: pump doctor -- COMMAND");
  }
}

void pump_job_end(int status) {
  struct notes notes;
  struct pump_line line = {0};
  if (!is_process_of_pump_run() || !read_notes(&notes) || notes.said) return;
  /* If standard error is closed, as by many tools at exit, pumpd prints the line. */
  if (fcntl(STDERR_FILENO, F_GETFD) < 0) {
    note_status(status);
    return;
  }
  if (own_known && notes.ended == 0) {
    notes.clients = 1;
    add_line(&notes, &own);
  }
  choose(&notes, &line);
  if (notes.ended > 1)
    pump_log(PUMP_LOG_INFO,
             "%llu processes of this job used CUDA; the last line describes one of them",
             notes.ended);
  pump_line_print(&line, status);
  pump_job_said();
}
