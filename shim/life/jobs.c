/* jobs.c - decides whether this process becomes a job. Without PUMP_JOBS it always does,
 * as for pump-run. Otherwise a compiled rule must match (job_rules.h), and a pumpd must
 * be available if the rule needs one. Runs once per process, at cuInit, and never waits.
 *
 * A bad file costs one log line, and the process then runs without pump.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include "job_rules.h"
#include "life.h"
#include "shim/base/settings.h"
#include "shim/link/link.h"

/* The folder that root has made for all users' host claims (pump/base/paths.py). */
#define LEDGER_OF_ALL "/dev/shm/pump"

static char rules[PUMP_JOBS_BYTES], command[4096], cgroups[4096], exe[4096];
static char ledger[4200];
static struct pump_job_rule rule;
static char files[4096]; /* PUMP_JOBS: paths separated by colons */
static bool by_rules;    /* PUMP_JOBS is set */

/* Returns the reason not to read a file; NULL if it may be read. */
static const char *distrust(const struct stat *status) {
  if (!S_ISREG(status->st_mode)) return "it is not a regular file";
  if (status->st_uid != 0 && status->st_uid != geteuid()) return "another user owns it";
  if ((status->st_mode & (S_IWGRP | S_IWOTH)) != 0) return "other users may write to it";
  if (status->st_size >= (off_t)sizeof rules) return "it is too long";
  return NULL;
}

/* Reads up to `capacity` bytes and appends a zero. Returns the length, or -1 on errors. */
static ssize_t read_all(int file, char *text, size_t capacity) {
  size_t used = 0;
  while (used < capacity) {
    ssize_t n = read(file, text + used, capacity - used);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return -1;
    if (n == 0) break;
    used += (size_t)n;
  }
  text[used] = '\0';
  return (ssize_t)used;
}

static ssize_t read_proc(const char *path, char *text, size_t bytes) {
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return -1;
  ssize_t length = read_all(file, text, bytes - 1);
  close(file);
  return length;
}

/* Collects facts of this thread: /proc/self is the first thread, which may have ended. */
static void find_facts(struct pump_job_facts *facts) {
  ssize_t length = readlink("/proc/thread-self/exe", exe, sizeof exe - 1);
  exe[length > 0 ? length : 0] = '\0';
  length = read_proc("/proc/thread-self/cmdline", command, sizeof command);
  while (length > 0 && command[length - 1] == '\0') length--;
  for (ssize_t i = 0; i < length; i++)
    if (command[i] == '\0') command[i] = ' ';
  /* The line of version 2, or else the first line. */
  length = read_proc("/proc/thread-self/cgroup", cgroups, sizeof cgroups);
  char *line = length > 0 ? strstr(cgroups, "0::") : NULL;
  if (length > 0 && line == NULL) line = cgroups;
  char *path = line != NULL ? strchr(line, '/') : NULL;
  if (path != NULL) path[strcspn(path, "\n")] = '\0';
  *facts = (struct pump_job_facts){exe, command, path != NULL ? path : ""};
}

static enum pump_job_answer look_into(const char *path,
                                      const struct pump_job_facts *facts) {
  int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
  if (file < 0 && (errno == ENOENT || errno == ENOTDIR)) return PUMP_JOB_NONE;
  struct stat status;
  const char *why = strerror(errno);
  ssize_t length = -1;
  if (file >= 0 && fstat(file, &status) == 0 && (why = distrust(&status)) == NULL) {
    length = read_all(file, rules, sizeof rules - 1);
    if (length < 0) why = strerror(errno);
  }
  if (file >= 0) close(file);
  if (length >= 0) {
    enum pump_job_answer answer =
        pump_job_rules_find(rules, (size_t)length, facts, &rule, &why);
    if (answer != PUMP_JOB_BROKEN) return answer;
  }
  pump_log(PUMP_LOG_WARNING,
           "ignoring the rules in %s, %s: this process runs without pump. Run: pump enable",
           PUMP_QUOTED(path), why);
  return PUMP_JOB_BROKEN;
}

static void add_setting(const char *line) {
  size_t at = 0;
  while (rule.settings[at] != NULL) at++;
  if (at <= PUMP_JOB_SETTINGS) rule.settings[at] = line;
}

static void add_ledger(void) {
  struct stat status;
  char runtime[128];
  if (lstat(LEDGER_OF_ALL, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == 0 &&
      (status.st_mode & (S_IWGRP | S_IWOTH)) == 0)
    snprintf(ledger, sizeof ledger, "PUMP_LEDGER=" LEDGER_OF_ALL);
  else if (pump_link_runtime_folder(runtime, sizeof runtime))
    snprintf(ledger, sizeof ledger, "PUMP_LEDGER=%s/pump-host", runtime);
  else
    return;
  add_setting(ledger);
}

static bool decide(void) {
  struct pump_job_facts facts;
  enum pump_job_answer answer = PUMP_JOB_NONE;
  find_facts(&facts);
  char path[sizeof files], *rest;
  strcpy(path, files);
  for (char *one = strtok_r(path, ":", &rest); one != NULL && answer == PUMP_JOB_NONE;
       one = strtok_r(NULL, ":", &rest))
    if (one[0] == '/') answer = look_into(one, &facts);
  if (answer != PUMP_JOB_MATCH) return false;
  if (!pump_link_activates() && !rule.without_pumpd) {
    pump_log(PUMP_LOG_WARNING,
             "rule %s matches this process, but its user's pump-jobs.socket is not "
             "running, so pump is off. Run: systemctl --user start pump-jobs.socket (or "
             "set without_pumpd = true in the rule)",
             PUMP_QUOTED(rule.name));
    return false;
  }
  add_ledger();
  pump_settings_use(rule.settings);
  pump_log_configure();
  pump_log(PUMP_LOG_INFO, "rule %s serves this process", PUMP_QUOTED(rule.name));
  return true;
}

/* Runs at load, because the program may change its environment before cuInit. */
__attribute__((constructor)) static void jobs_load(void) {
  const char *text = getenv("PUMP_JOBS");
  by_rules = text != NULL;
  if (by_rules && strlen(text) < sizeof files) strcpy(files, text);
}

bool pump_jobs_serve(void) {
  static pid_t decided;
  static bool serve;
  if (decided != getpid()) {
    decided = getpid();
    serve = !by_rules || (getauxval(AT_SECURE) == 0 && decide());
  }
  return serve;
}
