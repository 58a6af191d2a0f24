/* verdict.h - the one reason of the last line of a process that needed pump. */
#ifndef PUMP_VERDICT_H
#define PUMP_VERDICT_H

#include "last_line.h"

/* Appends the reason, if there is one, and logs what it means at level info. */
void pump_verdict(struct pump_line *line, const struct pump_moved *moved);

#endif
