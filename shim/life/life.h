/* life.h - begin and end of the shim in a process. */
#ifndef PUMP_LIFE_H
#define PUMP_LIFE_H

#include "shim/base/base.h"

/* After the real cuInit succeeded, in every process, a forked child that calls
 * cuInit itself included. Starts the link thread, nothing heavier. Idempotent. */
void pump_threads_start(void);

/* In the child of a fork (pthread_atfork): forgets every thread, lock and
 * descriptor of the parent. The child is inert until its own pump_threads_start. */
void pump_threads_fork_child(void);

/* One line on stderr when pump did anything; registered at exit by
 * pump_threads_start, callable once. */
void pump_summary_print(void);

/* Before that line: why pump was of little use, where it was. */
void pump_verdict_print(void);

/* Writes the file that PUMP_SUMMARY names, if it names one; at exit, after the line. */
void pump_summary_write(void);

#endif
