/* job_rules.c - finds the rule that a process matches (job_rules.h). A rule counts only
 * after the whole file has been read: a truncated file matches nothing.
 */
#include <stdint.h>
#include <string.h>

#include "job_rules.h"

static const char header[] = "pump-jobs 1";

/* Backtracks only to the last "*", so steps are at most the product of the lengths. */
static bool glob(const char *pattern, const char *text, uint32_t *steps) {
  const char *star = NULL, *resume = NULL;
  while (*text != '\0') {
    if (*steps == 0) return false;
    (*steps)--;
    if (*pattern == '*') {
      star = ++pattern;
      resume = text;
    } else if (*pattern == '?' || *pattern == *text) {
      pattern++;
      text++;
    } else if (star != NULL) {
      pattern = star;
      text = ++resume;
    } else {
      return false;
    }
  }
  while (*pattern == '*') pattern++;
  return *pattern == '\0';
}

static bool exe_matches(const char *pattern, const char *exe, uint32_t *steps) {
  const char *slash = strrchr(exe, '/');
  bool whole = strchr(pattern, '/') != NULL || slash == NULL;
  return glob(pattern, whole ? exe : slash + 1, steps);
}

/* Returns the rest of a line after its first word; NULL if that is not `word`. */
static const char *text_after(const char *line, const char *word) {
  size_t length = strlen(word);
  bool is =
      strncmp(line, word, length) == 0 && line[length] == ' ' && line[length + 1] != '\0';
  return is ? line + length + 1 : NULL;
}

/* Accepts only names of "PUMP_" and capitals, which no loader or C library reads. */
static bool is_setting(const char *text) {
  if (strncmp(text, "PUMP_", 5) != 0) return false;
  size_t name = 5 + strspn(text + 5, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_");
  return name > 5 && text[name] == '=';
}

struct reading {
  const struct pump_job_facts *facts;
  struct pump_job_rule now, *found;
  uint32_t steps, patterns, settings;
  bool begun, matches, any;
};

/* Ends the rule that precedes a line. Returns NULL, or why the rule is invalid. */
static const char *close_rule(struct reading *r) {
  if (!r->begun) return NULL;
  if (r->patterns == 0) return "a rule has no pattern";
  if (r->matches && !r->any) {
    *r->found = r->now;
    r->any = true;
  }
  return NULL;
}

static const char *take_pattern(struct reading *r, bool matches) {
  r->patterns++;
  r->matches = r->matches && matches;
  return r->steps == 0 ? "its patterns take too long to match" : NULL;
}

/* Parses a line. Returns NULL, or why the line is invalid. */
static const char *parse_line(struct reading *r, const char *line) {
  const char *rest;
  if ((rest = text_after(line, "rule")) != NULL) {
    const char *why = close_rule(r);
    r->now = (struct pump_job_rule){.name = rest};
    r->patterns = r->settings = 0;
    r->begun = r->matches = true;
    return why;
  }
  if (!r->begun) return "a line precedes the first rule";
  bool open = r->matches && !r->any; /* else no pattern needs to be tried */
  if ((rest = text_after(line, "exe")) != NULL)
    return take_pattern(r, open && exe_matches(rest, r->facts->exe, &r->steps));
  if ((rest = text_after(line, "command")) != NULL)
    return take_pattern(r, open && glob(rest, r->facts->command, &r->steps));
  if ((rest = text_after(line, "cgroup")) != NULL)
    return take_pattern(r, open && glob(rest, r->facts->cgroup, &r->steps));
  if (strcmp(line, "without-pumpd") == 0) {
    r->now.without_pumpd = true;
    return NULL;
  }
  if ((rest = text_after(line, "set")) == NULL || !is_setting(rest))
    return "it has an unknown line";
  if (r->settings == PUMP_JOB_SETTINGS) return "a rule has too many settings";
  r->now.settings[r->settings++] = rest;
  return NULL;
}

enum pump_job_answer pump_job_rules_find(char *text, size_t length,
                                         const struct pump_job_facts *facts,
                                         struct pump_job_rule *rule, const char **why) {
  struct reading r = {.facts = facts, .found = rule, .steps = PUMP_JOB_PATTERN_STEPS};
  text[length] = '\0';
  *why = "it has a zero byte";
  if (memchr(text, '\0', length) != NULL) return PUMP_JOB_BROKEN;
  bool first = true;
  for (char *line = text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
    *end = '\0';
    if (first) {
      *why = "no compiled rules of this version";
      if (strcmp(line, header) != 0) return PUMP_JOB_BROKEN;
      first = false;
      continue;
    }
    if (strcmp(line, "end") == 0) {
      *why = close_rule(&r);
      if (*why == NULL && end + 1 != text + length) *why = "it has text after its end";
      if (*why != NULL) return PUMP_JOB_BROKEN;
      return r.any ? PUMP_JOB_MATCH : PUMP_JOB_NONE;
    }
    if ((*why = parse_line(&r, line)) != NULL) return PUMP_JOB_BROKEN;
  }
  *why = first ? "no compiled rules of this version" : "its end is missing";
  return PUMP_JOB_BROKEN;
}
