/* job_rules.h - compiled rules: which processes become jobs without pump-run, and with
 * which settings. pump/config/job_rules.py writes them. This code does no I/O.
 *
 *   `pump-jobs 1`
 *   `rule NAME`            Begins a rule; all its patterns must match.
 *   `exe PATTERN`          The program's file; without "/", the last part of its path.
 *   `command PATTERN`      The arguments separated by blanks, with the program's name.
 *   `cgroup PATTERN`       The path in /proc/self/cgroup.
 *   `without-pumpd`        Continue if no pumpd can be reached.
 *   `set PUMP_NAME=VALUE`
 *   `end`                  Closes the file.
 *
 * In patterns "*" matches any characters, "?" matches one.
 */
#ifndef PUMP_JOB_RULES_H
#define PUMP_JOB_RULES_H

#include <stdbool.h>
#include <stddef.h>

#define PUMP_JOBS_BYTES 65536u /* of a file, with the zero that the reader adds */
#define PUMP_JOB_SETTINGS 32u
#define PUMP_JOB_PATTERN_STEPS 4000000u /* for all patterns of a file: milliseconds */

struct pump_job_facts {
  const char *exe, *command, *cgroup;
};

struct pump_job_rule {
  const char *name;
  bool without_pumpd;
  /* "PUMP_...=value", with NULL after the last; one place is left for the caller. */
  const char *settings[PUMP_JOB_SETTINGS + 2];
};

enum pump_job_answer { PUMP_JOB_NONE, PUMP_JOB_MATCH, PUMP_JOB_BROKEN };

/* Finds the first matching rule in `text`, which has `length` bytes and space for one
 * more. Changes `text`, and the rule's strings point into it. If any part of the file is
 * broken, returns PUMP_JOB_BROKEN and sets `*why`. */
enum pump_job_answer pump_job_rules_find(char *text, size_t length,
                                         const struct pump_job_facts *facts,
                                         struct pump_job_rule *rule, const char **why);

#endif
