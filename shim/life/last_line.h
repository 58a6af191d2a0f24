/* last_line.h - the form of a job's last line, "RESULT" or "RESULT: REASON".
 *
 * The line has at most PUMP_LAST_LINE characters, including "pump: " but not the job's
 * name in brackets. To report something else, choose another reason; never add a clause.
 */
#ifndef PUMP_LAST_LINE_H
#define PUMP_LAST_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PUMP_LAST_LINE 100u
#define PUMP_LINE_BYTES (PUMP_LAST_LINE - sizeof "pump: " + 2) /* with the zero byte */

struct pump_line {
  uint64_t rank;               /* importance: the job's most important line is printed */
  char full[PUMP_LINE_BYTES];  /* for a program that succeeded */
  char brief[PUMP_LINE_BYTES]; /* for a program that failed; follows its status */
};

enum pump_rank {
  PUMP_RANK_LOOKED, /* allocated nothing on a GPU */
  PUMP_RANK_FITTED,
  PUMP_RANK_REFUSED,
  PUMP_RANK_MOVED,
  PUMP_RANK_BYPASSED
};

/* Returns the rank of a kind of line; within a kind the greatest measure wins. */
uint64_t pump_line_rank(enum pump_rank kind, uint64_t measure);

/* Sets both texts: for a program that succeeded, and for one that failed. */
void pump_line_result(struct pump_line *line, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Replaces only the text for a program that failed. */
void pump_line_brief(struct pump_line *line, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Appends ": " and the reason to the full text. */
void pump_line_reason(struct pump_line *line, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Prints the full text; if the status is not zero, the status and the brief text. */
void pump_line_print(const struct pump_line *line, int status);

#define PUMP_DURATION_BYTES 16
/* Writes "999 ms", "59.9 s", "47.9 h", "999 days", "584 years": at most 9 characters. */
const char *pump_duration_text(char text[PUMP_DURATION_BYTES], uint64_t time_ns);
/* Writes "512 MiB", "23.4 GiB", at most "16384 PiB". */
const char *pump_amount_text(char text[PUMP_DURATION_BYTES], uint64_t bytes);

/* ---- the line of a process ---- */

/* Numbers of a process that needed pump. The worker's numbers are not trusted. */
struct pump_moved {
  uint64_t lost_ns, least_ns, most_ns, of_ns; /* of_ns 0: not known */
  uint64_t delayed_ns; /* part of lost_ns: the program waited for a CPU core */
  uint64_t peak_bytes, budget_bytes;
};
void pump_line_of_moved(struct pump_line *line, const struct pump_moved *moved);
/* Returns whether waits for a CPU core are most of the lost time. */
bool pump_line_delayed(const struct pump_moved *moved);
void pump_line_of_fitted(struct pump_line *line, uint64_t peak_bytes, uint64_t budget_bytes,
                         const char *caveat);
void pump_line_of_refused(struct pump_line *line, uint64_t plain_bytes);
void pump_line_of_bypassed(struct pump_line *line);

/* ---- the line of a job if no process has one ---- */

void pump_line_of_ended(struct pump_line *line, unsigned long long processes);
/* Sets the line for an error of cuInit. */
void pump_line_of_refused_init(struct pump_line *line, int error);
void pump_line_of_no_cuda(struct pump_line *line);
/* Sets the line of a job whose processes are unknown. */
void pump_line_of_lost_notes(struct pump_line *line);

#endif
