/* fuzz_jobs.c - compiled rules of jobs (shim/life/job_rules.c) with arbitrary contents.
 *
 * The input: program, command line and cgroup, each with a zero byte at its end, then the
 * file. For any input, a matching rule has its strings inside the file and names only
 * settings of pump. A truncated file never matches.
 */
#include <stdlib.h>

#include "fuzz_input.h"
#include "shim/life/job_rules.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static enum pump_job_answer find(const uint8_t *file, size_t length,
                                 const struct pump_job_facts *facts) {
  char *text = malloc(length + 1);
  must(text != NULL);
  if (length != 0) memcpy(text, file, length);
  struct pump_job_rule rule = {0};
  const char *why = NULL;
  enum pump_job_answer answer = pump_job_rules_find(text, length, facts, &rule, &why);
  must((answer == PUMP_JOB_BROKEN) == (why != NULL));
  if (answer == PUMP_JOB_MATCH) {
    must(rule.name > text && rule.name < text + length);
    size_t count = 0;
    for (; rule.settings[count] != NULL; count++) {
      must(rule.settings[count] > text && rule.settings[count] < text + length);
      must(strncmp(rule.settings[count], "PUMP_", 5) == 0);
    }
    must(count <= PUMP_JOB_SETTINGS);
  }
  free(text);
  return answer;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  const char *facts[3];
  for (size_t i = 0; i < 3; i++) {
    const uint8_t *end = bytes != 0 ? memchr(data, 0, bytes) : NULL;
    if (end == NULL) return 0;
    facts[i] = (const char *)data;
    bytes -= (size_t)(end - data) + 1;
    data = end + 1;
  }
  const struct pump_job_facts all = {facts[0], facts[1], facts[2]};
  if (bytes >= PUMP_JOBS_BYTES) return 0;
  if (find(data, bytes, &all) != PUMP_JOB_BROKEN && bytes > 1)
    must(find(data, bytes - 1, &all) == PUMP_JOB_BROKEN);
  return 0;
}
