/* settings.h - what a job's configuration says: the rule that made this process a job,
 * where one did, else the environment that pump-run has set.
 */
#ifndef PUMP_SETTINGS_H
#define PUMP_SETTINGS_H

/* The value of PUMP_...; NULL where neither sets it. Valid for the life of the process. */
const char *pump_setting(const char *name);

/* From now on these "NAME=value" come before the environment; NULL ends the list. Before
 * any thread of ours runs. NULL: no rule. */
void pump_settings_use(const char *const *lines);

/* The rule's settings, NULL where no rule made this process a job. */
const char *const *pump_settings_of_rule(void);

#endif
