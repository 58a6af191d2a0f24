/* settings.h - a job's configuration: the settings of the rule that made this process a
 * job, if any, then the environment that pump-run has set.
 */
#ifndef PUMP_SETTINGS_H
#define PUMP_SETTINGS_H

/* Returns the value of PUMP_..., or NULL. Valid for the life of the process. */
const char *pump_setting(const char *name);

/* Gives these "NAME=value" lines precedence over the environment; NULL ends the list.
 * Call before any thread of ours runs. `lines` NULL: no rule. */
void pump_settings_use(const char *const *lines);

/* Returns the rule's settings, or NULL if no rule made this process a job. */
const char *const *pump_settings_of_rule(void);

#endif
