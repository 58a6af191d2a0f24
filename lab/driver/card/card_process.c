/* card_process.c - checks whether a process that uses the shared GPU still lives. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "card_state.h"

/* Field numbers of /proc/PID/stat, as in proc(5). */
#define FIELD_STATE 3
#define FIELD_THREADS 20
#define FIELD_START_TIME 22
#define FIELD_START_STACK 28

struct stat_line {
  char state;
  uint64_t threads, started, stack_top;
};

/* Returns 1: read. 0: no such process. -1: unknown. */
static int read_stat(int32_t pid, struct stat_line *out) {
  char path[32], text[1024];
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return errno == ENOENT ? 0 : -1;
  ssize_t length = read(file, text, sizeof text - 1);
  int error = errno;
  close(file);
  if (length <= 0) return length < 0 && error == ESRCH ? 0 : -1;
  text[length] = 0;
  char *at = strrchr(text, ')'); /* the name before it may contain any character */
  if (at == NULL || at[1] == 0) return -1;
  *out = (struct stat_line){.state = at[2]};
  at += 2;
  for (int field = FIELD_STATE; field <= FIELD_START_STACK && at != NULL; field++) {
    if (field == FIELD_THREADS) out->threads = strtoull(at, NULL, 10);
    if (field == FIELD_START_TIME) out->started = strtoull(at, NULL, 10);
    if (field == FIELD_START_STACK) out->stack_top = strtoull(at, NULL, 10);
    at = strchr(at, ' ');
    if (at != NULL) at++;
  }
  return 1;
}

void card_process_self(struct card_process *out) {
  struct stat_line line = {0};
  *out = (struct card_process){.pid = getpid()};
  if (read_stat(out->pid, &line) != 1) return;
  out->started = line.started;
  out->stack_top = line.stack_top;
}

/* Returns whether all threads have ended. An ended first thread is a zombie until then. */
static bool ended(const struct stat_line *line) {
  return (line->state == 'Z' || line->state == 'X') && line->threads <= 1;
}

bool card_process_is_alive(const struct card_process *process) {
  struct stat_line line;
  if (process->pid <= 0) return false;
  int found = read_stat(process->pid, &line);
  if (found < 0) return kill(process->pid, 0) == 0 || errno != ESRCH;
  if (found == 0 || ended(&line)) return false;
  if (process->started != 0 && line.started != process->started) return false;
  return process->stack_top == 0 || line.stack_top == 0 ||
         line.stack_top == process->stack_top;
}

/* Process numbers are comparable only within one namespace. */
uint64_t card_pid_namespace(void) {
  struct stat status;
  return stat("/proc/self/ns/pid", &status) == 0 ? (uint64_t)status.st_ino : 0;
}
