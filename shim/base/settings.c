/* settings.c - looks up settings: a rule's settings take precedence over the environment.
 * They never enter the environment, because children would inherit them.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "settings.h"

static const char *const *of_rule;

void pump_settings_use(const char *const *lines) {
  of_rule = lines;
}

const char *const *pump_settings_of_rule(void) {
  return of_rule;
}

const char *pump_setting(const char *name) {
  size_t length = strlen(name);
  for (const char *const *line = of_rule; line != NULL && *line != NULL; line++)
    if (strncmp(*line, name, length) == 0 && (*line)[length] == '=')
      return *line + length + 1;
  return getenv(name);
}
