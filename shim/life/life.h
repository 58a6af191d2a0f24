/* life.h - begin and end of the shim in a process. */
#ifndef PUMP_LIFE_H
#define PUMP_LIFE_H

#include "last_line.h"
#include "shim/base/base.h"

/* After the real cuInit succeeded, in every process, a forked child that calls
 * cuInit itself included. Starts the link thread, nothing heavier. Idempotent. */
void pump_threads_start(void);

/* In the child of a fork (pthread_atfork): forgets every thread, lock and
 * descriptor of the parent. The child is inert until its own pump_threads_start. */
void pump_threads_fork_child(void);

/* Whether pump serves this process: false where PUMP_JOBS names rules and none matches
 * (jobs.c). At cuInit, under the lock of the start. */
bool pump_jobs_serve(void);

/* The line of this process, what recordings and level info add, and the file that
 * PUMP_SUMMARY names, if it names one; callable once. status: that the program ends with.
 */
void pump_summary_print(int status);

/* Writes that file. line: the process's own, also where another one is the job's. */
void pump_summary_write(const char *line);

/* ---- the last line of a job (job_end.c) ---- */

/* Appends a line to the notes in the job's folder; without such a folder does nothing. */
void pump_job_note(const char *line);
/* This process ends with this line: notes it, and prints it where no later one can. */
void pump_job_line(const struct pump_line *line, int status);
/* cuInit has failed in this process. */
void pump_job_init_failed(int error);
/* The job has had its line. */
void pump_job_said(void);
/* At the end of a process, before pump's last lines: where standard output and standard
 * error are the same file, what the program has written stands there first. */
void pump_job_flush(void);
/* Whether a virtual GPU runs in timing mode, so that no kernel computes anything. */
bool pump_job_computes_nothing(void);
#define PUMP_NOTHING_COMPUTED "timing mode, nothing was computed"
/* At the end of a process, after all else: in the job's first one, the job's line where no
 * process has had one. */
void pump_job_end(int status);

#endif
