/* last_line.h - the form of a job's last line, "RESULT" or "RESULT: REASON".
 *
 * The line has at most PUMP_LAST_LINE characters with "pump: " in front; the job's name in
 * brackets is not counted. A later change chooses another reason; it adds no clause.
 */
#ifndef PUMP_LAST_LINE_H
#define PUMP_LAST_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PUMP_LAST_LINE 100u
#define PUMP_LINE_BYTES (PUMP_LAST_LINE - sizeof "pump: " + 2) /* with the zero byte */

struct pump_line {
  uint64_t rank;               /* of a job's lines the one of highest rank is printed */
  char full[PUMP_LINE_BYTES];  /* after a program that succeeded */
  char brief[PUMP_LINE_BYTES]; /* after one that failed: what follows its status */
};

enum pump_rank {
  PUMP_RANK_LOOKED, /* allocated nothing on a GPU */
  PUMP_RANK_FITTED,
  PUMP_RANK_REFUSED,
  PUMP_RANK_MOVED,
  PUMP_RANK_BYPASSED
};

/* The rank of a kind of line; among lines of a kind the greatest measure wins. */
uint64_t pump_line_rank(enum pump_rank kind, uint64_t measure);

/* Sets both texts. */
void pump_line_result(struct pump_line *line, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Replaces the brief text. */
void pump_line_brief(struct pump_line *line, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Appends ": " and the reason to the full text. */
void pump_line_reason(struct pump_line *line, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Prints the line: the brief text after the status, where that is not zero. */
void pump_line_print(const struct pump_line *line, int status);

#define PUMP_DURATION_BYTES 16
/* "999 ms", "59.9 s", "59.9 min", "47.9 h", "999 days", "584 years": at most 9 characters.
 */
const char *pump_duration_text(char text[PUMP_DURATION_BYTES], uint64_t time_ns);
/* "512 MiB", "23.4 GiB", "16384.0 PiB" at most. */
const char *pump_amount_text(char text[PUMP_DURATION_BYTES], uint64_t bytes);

/* ---- what a process's line says ---- */

/* Numbers of a process that needed pump. Those of the worker are not trusted. */
struct pump_moved {
  uint64_t lost_ns, least_ns, most_ns, of_ns; /* of_ns 0: not known */
  uint64_t delayed_ns; /* of lost_ns: the program waited for a processor */
  uint64_t peak_bytes, budget_bytes;
};
void pump_line_of_moved(struct pump_line *line, const struct pump_moved *moved);
/* Most of the time lost is waits for a processor. */
bool pump_line_delayed(const struct pump_moved *moved);
void pump_line_of_fitted(struct pump_line *line, uint64_t peak_bytes, uint64_t budget_bytes,
                         const char *caveat);
void pump_line_of_refused(struct pump_line *line, uint64_t plain_bytes);
void pump_line_of_bypassed(struct pump_line *line);

/* ---- what a job's line says where no process has one ---- */

void pump_line_of_ended(struct pump_line *line, unsigned long long processes);
/* cuInit has answered this. */
void pump_line_of_refused_init(struct pump_line *line, int error);
void pump_line_of_no_cuda(struct pump_line *line);
/* Nothing is known of the job's processes. */
void pump_line_of_lost_notes(struct pump_line *line);

#endif
