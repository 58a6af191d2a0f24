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

/* Whether pump serves this process: false where PUMP_JOBS names rules and none matches
 * (jobs.c). At cuInit, under the lock of the start. */
bool pump_jobs_serve(void);

/* One line on stderr: what pump did, or that it had nothing to do; registered at exit by
 * pump_threads_start, callable once. */
void pump_summary_print(void);

/* Before that line: why pump was of little use, where it was. */
void pump_verdict_print(void);

/* Writes the file that PUMP_SUMMARY names, if it names one; at exit, after the line. */
void pump_summary_write(void);

/* ---- the last line of a job (job_end.c) ---- */

/* Appends a line to the notes in the job's folder; without such a folder does nothing. */
void pump_job_note(const char *line);
/* This process ends, and pump left it alone; the job's first process says so at its end. */
void pump_job_fitted(uint64_t peak_bytes, uint64_t budget_bytes);
/* The job has had its line. */
void pump_job_said(void);
/* At the end of a process, before pump's last lines: where standard output and standard
 * error are the same file, what the program has written stands there first. */
void pump_job_flush(void);
/* What belongs behind each last line: "", or that the virtual GPU has computed nothing. */
const char *pump_job_caveat(void);
/* At the end of a process, behind all else: in the job's first one, the job's line where no
 * process has had one. */
void pump_job_end(void);

#endif
