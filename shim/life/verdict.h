/* verdict.h - the reason in the last line of a process that needed pump. */
#ifndef PUMP_VERDICT_H
#define PUMP_VERDICT_H

#include "last_line.h"

/* Appends the reason, if there is one, and logs the details at level info. */
void pump_verdict(struct pump_line *line, const struct pump_moved *moved);

#endif
