/* job_rules.h - compiled rules: which process becomes a job without pump-run, and with what
 * settings. pump/config/job_rules.py writes them. No I/O here.
 *
 *   pump-jobs 1
 *   rule NAME             begins a rule; all its patterns must match
 *   exe PATTERN           the program's file; without "/" the last part of its path
 *   command PATTERN       the arguments with blanks between, the program's name included
 *   cgroup PATTERN        as /proc/self/cgroup has it
 *   without-pumpd         go on where no pumpd can be reached
 *   set PUMP_NAME=VALUE
 *   end                   closes the file
 *
 * Patterns: "*" stands for any characters, "?" for one.
 */
#ifndef PUMP_JOB_RULES_H
#define PUMP_JOB_RULES_H

#include <stdbool.h>
#include <stddef.h>

#define PUMP_JOBS_BYTES 65536u /* of a file, the zero that the reader adds included */
#define PUMP_JOB_SETTINGS 32u
#define PUMP_JOB_PATTERN_STEPS 4000000u /* of all patterns of a file: milliseconds */

struct pump_job_facts {
  const char *exe, *command, *cgroup;
};

struct pump_job_rule {
  const char *name;
  bool without_pumpd;
  /* "PUMP_...=value", NULL behind the last; one place is the caller's. */
  const char *settings[PUMP_JOB_SETTINGS + 2];
};

enum pump_job_answer { PUMP_JOB_NONE, PUMP_JOB_MATCH, PUMP_JOB_BROKEN };

/* The first rule in `text` that matches; its strings lie in `text`, which is changed.
 * `length` bytes, and room for one more. PUMP_JOB_BROKEN: `*why` says so, whatever stands
 * before the fault. */
enum pump_job_answer pump_job_rules_find(char *text, size_t length,
                                         const struct pump_job_facts *facts,
                                         struct pump_job_rule *rule, const char **why);

#endif
