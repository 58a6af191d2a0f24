/* life.h - begin and end of the shim in a process. */
#ifndef PUMP_LIFE_H
#define PUMP_LIFE_H

#include "last_line.h"
#include "shim/base/base.h"

/* Starts the link thread, and nothing heavier. Call after the real cuInit has succeeded,
 * in every process, including a forked child that calls cuInit itself. Idempotent. */
void pump_threads_start(void);

/* Forgets every thread, lock and descriptor of the parent, in the child of a fork
 * (pthread_atfork). The child is inert until its own pump_threads_start. */
void pump_threads_fork_child(void);

/* Returns whether pump serves this process: false if PUMP_JOBS names rules and none
 * matches (jobs.c). Call at cuInit, under the lock of the start. */
bool pump_jobs_serve(void);

/* Prints this process's line and what recordings and level info add, and writes the file
 * of PUMP_SUMMARY, if set. Works once. status: the program's exit status. */
void pump_summary_print(int status);

/* Writes PUMP_SUMMARY's file. line: the process's own, even if another is the job's. */
void pump_summary_write(const char *line);

/* ---- the last line of a job (job_end.c) ---- */

/* Appends a line to the notes in the job's folder, if there is such a folder. */
void pump_job_note(const char *line);
/* Notes that this process ends with this line, and prints it if no later process can. */
void pump_job_line(const struct pump_line *line, int status);
/* Notes that cuInit has failed in this process. */
void pump_job_init_failed(int error);
/* Notes that the job's line has been printed. */
void pump_job_said(void);
/* Flushes stdout at the end of a process, before pump's last lines: if stdout and stderr
 * are the same file, the program's output comes first. */
void pump_job_flush(void);
/* Returns whether a virtual GPU runs in timing mode, in which kernels compute nothing. */
bool pump_job_computes_nothing(void);
#define PUMP_NOTHING_COMPUTED "timing mode, nothing was computed"
/* Runs last in a process; the job's first process prints the job's line if it is
 * missing. */
void pump_job_end(int status);

#endif
