/* last_line.c - composes and prints a job's last line: numbers in, text out. summary.c
 * and job_end.c decide the numbers and which line is printed.
 *
 * Each text is short enough for the greatest numbers (tests/c/life/case_last_line.c tries
 * them). A text that is cut off anyway ends in "...".
 */
#include "last_line.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim/base/base.h"

#define RANK_BITS 60u

uint64_t pump_line_rank(enum pump_rank kind, uint64_t measure) {
  uint64_t most = (1ull << RANK_BITS) - 1;
  return ((uint64_t)kind << RANK_BITS) | (measure < most ? measure : most);
}

static void append(char text[PUMP_LINE_BYTES], const char *format, va_list arguments) {
  size_t used = strlen(text);
  int n = vsnprintf(text + used, PUMP_LINE_BYTES - used, format, arguments);
  if (n > 0 && (size_t)n >= PUMP_LINE_BYTES - used)
    memcpy(text + PUMP_LINE_BYTES - sizeof "...", "...", sizeof "...");
}

void pump_line_result(struct pump_line *line, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  line->full[0] = '\0';
  append(line->full, format, arguments);
  strcpy(line->brief, line->full);
  va_end(arguments);
}

void pump_line_brief(struct pump_line *line, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  line->brief[0] = '\0';
  append(line->brief, format, arguments);
  va_end(arguments);
}

void pump_line_reason(struct pump_line *line, const char *format, ...) {
  va_list arguments;
  char reason[PUMP_LINE_BYTES] = ": ";
  va_start(arguments, format);
  append(reason, format, arguments);
  va_end(arguments);
  size_t used = strlen(line->full);
  snprintf(line->full + used, sizeof line->full - used, "%s", reason);
}

void pump_line_print(const struct pump_line *line, int status) {
  struct pump_line failed;
  if ((status & 0xff) == 0 || strcmp(line->brief, "") == 0) {
    pump_say_result(line->full);
    return;
  }
  pump_line_result(&failed, "failed with status %d; %s", status & 0xff, line->brief);
  pump_say_result(failed.full);
}

/* ---- numbers ---------------------------------------------------------------------- */

const char *pump_duration_text(char text[PUMP_DURATION_BYTES], uint64_t time_ns) {
  static const struct {
    double below_s, unit_s;
    int decimals;
    const char *name;
  } units[] = {{1, 1e-3, 0, "ms"},
               {10, 1, 2, "s"},
               {60, 1, 1, "s"},
               {3600, 60, 1, "min"},
               {48 * 3600, 3600, 1, "h"},
               {1000 * 86400.0, 86400, 0, "days"},
               {1e300, 365 * 86400.0, 0, "years"}};
  double time_s = (double)time_ns / 1e9;
  size_t i = 0;
  while (time_s >= units[i].below_s) i++;
  snprintf(text, PUMP_DURATION_BYTES, "%.*f %s", units[i].decimals,
           time_s / units[i].unit_s, units[i].name);
  return text;
}

const char *pump_amount_text(char text[PUMP_DURATION_BYTES], uint64_t bytes) {
  if (bytes >= 10ull << 50)
    snprintf(text, PUMP_DURATION_BYTES, "%.0f PiB", (double)bytes / (double)(1ull << 50));
  else
    pump_bytes_text(text, PUMP_DURATION_BYTES, bytes);
  return text;
}

/* Writes " at 1.50x the budget", or nothing if no budget is known. */
static const char *at_text(char text[48], const struct pump_moved *moved) {
  double ratio = moved->budget_bytes == 0
                     ? 0
                     : (double)moved->peak_bytes / (double)moved->budget_bytes;
  text[0] = '\0';
  if (ratio >= 100)
    snprintf(text, 48, " at >99x the budget");
  else if (moved->budget_bytes != 0)
    snprintf(text, 48, " at %.*fx the budget", ratio < 10 ? 2 : 1, ratio);
  return text;
}

static double percent(uint64_t part, uint64_t whole) {
  return part < whole ? 100.0 * (double)part / (double)whole : 100.0;
}

/* ---- the line of a process --------------------------------------------------------- */

bool pump_line_delayed(const struct pump_moved *moved) {
  return moved->delayed_ns > moved->lost_ns / 2 && moved->delayed_ns > moved->of_ns / 100;
}

void pump_line_of_moved(struct pump_line *line, const struct pump_moved *moved) {
  char at[48], of[PUMP_DURATION_BYTES];
  uint64_t whole = moved->of_ns, least = moved->least_ns, most = moved->most_ns;
  at_text(at, moved);
  pump_duration_text(of, whole);
  line->rank = pump_line_rank(PUMP_RANK_MOVED, whole);
  if (whole == 0)
    pump_line_result(line, "ran%s; time lost to memory is unknown", at);
  else if (most <= whole / 100)
    pump_line_result(line, "lost under 1 %% of %s to memory%s", of, at);
  else if (most > least && most - least > whole / 5)
    pump_line_result(line, "lost %.0f to %.0f %% of %s to memory%s", percent(least, whole),
                     percent(most, whole), of, at);
  else
    pump_line_result(line, "lost about %.0f %% of %s to memory%s",
                     percent(moved->lost_ns, whole), of, at);
  pump_line_brief(line, "ran%s", at);
}

void pump_line_of_fitted(struct pump_line *line, uint64_t peak_bytes, uint64_t budget_bytes,
                         const char *caveat) {
  char peak[PUMP_DURATION_BYTES], budget[PUMP_DURATION_BYTES];
  if (peak_bytes == 0) {
    line->rank = pump_line_rank(PUMP_RANK_LOOKED, 0);
    pump_line_result(line, "this job allocated no GPU memory, so pump did nothing");
    pump_line_brief(line, "this job allocated no GPU memory");
    return;
  }
  line->rank = pump_line_rank(PUMP_RANK_FITTED, peak_bytes);
  pump_line_result(line, "everything fitted on the GPU, so pump did nothing");
  pump_line_brief(line, "everything fitted on the GPU");
  pump_amount_text(peak, peak_bytes);
  pump_amount_text(budget, budget_bytes);
  if (caveat != NULL)
    pump_line_reason(line, "%s", caveat);
  else if (budget_bytes != 0)
    pump_line_reason(line, "peak %s of %s", peak, budget);
  else
    pump_line_reason(line, "peak %s", peak);
}

void pump_line_of_refused(struct pump_line *line, uint64_t plain_bytes) {
  char plain[PUMP_DURATION_BYTES];
  pump_amount_text(plain, plain_bytes);
  line->rank = pump_line_rank(PUMP_RANK_REFUSED, plain_bytes);
  pump_line_result(line, "out of GPU memory");
  if (plain_bytes != 0)
    pump_line_reason(line, "only partly intercepted, %s of GPU memory cannot be paged",
                     plain);
  else
    pump_line_reason(line, "pump cannot page the refused memory");
  pump_line_brief(line, "out of GPU memory that pump cannot page");
}

void pump_line_of_bypassed(struct pump_line *line) {
  line->rank = pump_line_rank(PUMP_RANK_BYPASSED, 0);
  pump_line_result(line, "not intercepted, so pump did nothing");
  pump_line_reason(line, "the program called the driver directly");
  pump_line_brief(line, "not intercepted, so pump did nothing");
}

/* ---- the line of a job if no process has one --------------------------------------- */

void pump_line_of_ended(struct pump_line *line, unsigned long long processes) {
  pump_line_result(line, "pump's effect is unknown");
  pump_line_reason(line, "%llu process(es) ended by a signal or _exit", processes);
  pump_line_brief(line, "%llu process(es) ended by a signal or _exit", processes);
}

/* Returns the usual cause of an error of cuInit (CUDA Driver API, CUresult). */
static const char *cause_of(int error) {
  const char *visible = getenv("CUDA_VISIBLE_DEVICES");
  switch (error) {
  case 2:
    return "no host memory or address space left (ulimit -v)";
  case 34:
    return "the stub libcuda of the CUDA toolkit was loaded";
  case 46:
    return "the GPU is busy, in exclusive mode or being reset";
  case 100:
  case 101:
    return visible != NULL ? "CUDA_VISIBLE_DEVICES names no GPU of this machine"
                           : "the driver finds no GPU";
  case 802:
    return "the fabric manager is not ready";
  case 803:
    return "libcuda and the kernel driver differ in version";
  case 804:
    return "cuda-compat does not support this GPU";
  case 999:
    return "try: modprobe nvidia_uvm, then a reboot";
  default:
    return "see CUresult in cuda.h";
  }
}

void pump_line_of_refused_init(struct pump_line *line, int error) {
  pump_line_result(line, "cuInit failed with error %d", error);
  pump_line_reason(line, "%s", cause_of(error));
}

void pump_line_of_lost_notes(struct pump_line *line) {
  pump_line_result(line, "pump's effect is unknown");
  pump_line_reason(line, "the job's pumpd exited before the job");
  pump_line_brief(line, "the job's pumpd exited before the job");
}

void pump_line_of_no_cuda(struct pump_line *line) {
  pump_line_result(line, "no process of this job used CUDA, so pump did nothing");
  pump_line_reason(line, "pump saw no call of cuInit");
  pump_line_brief(line, "no process of this job used CUDA");
}
