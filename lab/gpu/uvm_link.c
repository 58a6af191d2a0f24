/* uvm_link.c - books transfers on the link. See uvm_link.h. */
#include "uvm_link.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

/* A point in the spans of both directions. All values are relative to the last booking: a
 * double would lose nanoseconds of a clock that has run for a long time. */
struct point {
  double time_ns;
  double at[2];      /* clock readings */
  double busy_ns[2]; /* total until this point */
  uint32_t next[2];  /* first unfinished span */
};

static double least(double a, double b) {
  return a < b ? a : b;
}

static double since(const struct uvm_link *link, uint64_t at) {
  return (double)(int64_t)(at - link->clock_at);
}

static struct point origin(const struct uvm_links *links) {
  return (struct point){.at = {links->ways[0].clock_rest, links->ways[1].clock_rest}};
}

/* Advances to `time_ns`, or until the clock of `way` reads `at`. */
static void walk(const struct uvm_links *links, struct point *point, double time_ns,
                 uint32_t way, double at) {
  while (point->time_ns < time_ns && point->at[way] < at) {
    bool busy[2];
    double change_at[2]; /* when the direction next becomes busy or idle */
    for (uint32_t i = 0; i < 2; i++) {
      const struct uvm_link *link = &links->ways[i];
      uint32_t *next = &point->next[i];
      while (*next < link->count && since(link, link->end_at[*next]) <= point->at[i])
        ++*next;
      bool more = *next < link->count;
      busy[i] = more && since(link, link->begin_at[*next]) <= point->at[i];
      change_at[i] =
          more ? since(link, busy[i] ? link->end_at[*next] : link->begin_at[*next])
               : INFINITY;
    }
    bool both = busy[0] && busy[1];
    double step_ns = time_ns - point->time_ns;
    for (uint32_t i = 0; i < 2; i++) {
      double rate = both ? links->ways[i].duplex : 1;
      double to_at = i == way ? least(change_at[i], at) : change_at[i];
      step_ns = least(step_ns, (to_at - point->at[i]) / rate);
    }
    for (uint32_t i = 0; i < 2; i++) {
      double to_at = i == way ? least(change_at[i], at) : change_at[i];
      double rate = both ? links->ways[i].duplex : 1;
      bool reached = (to_at - point->at[i]) / rate <= step_ns;
      point->at[i] = reached ? to_at : point->at[i] + step_ns * rate;
      if (busy[i]) point->busy_ns[i] += step_ns;
    }
    point->time_ns += step_ns;
  }
}

uint64_t uvm_link_at(const struct uvm_links *links, uint32_t way, uint64_t time_ns) {
  if (time_ns <= links->now_ns) return links->ways[way].clock_at;
  struct point point = origin(links);
  walk(links, &point, (double)(time_ns - links->now_ns), way, INFINITY);
  return links->ways[way].clock_at + (uint64_t)(point.at[way] + 0.5);
}

uint64_t uvm_link_time(const struct uvm_links *links, uint32_t way, uint64_t at) {
  if (at <= links->ways[way].clock_at) return links->now_ns;
  struct point point = origin(links);
  walk(links, &point, INFINITY, way, since(&links->ways[way], at));
  return links->now_ns + (uint64_t)(point.time_ns + 0.5);
}

static void remove_spans(struct uvm_link *link, uint32_t at, uint32_t count) {
  uint32_t rest = link->count - at - count;
  memmove(link->begin_at + at, link->begin_at + at + count, rest * sizeof(uint64_t));
  memmove(link->end_at + at, link->end_at + at + count, rest * sizeof(uint64_t));
  link->count -= count;
}

/* Advances the links to `now_ns` and forgets finished spans. */
static void pass(struct uvm_links *links, uint64_t now_ns) {
  if (now_ns <= links->now_ns) return;
  struct point point = origin(links);
  walk(links, &point, (double)(now_ns - links->now_ns), 0, INFINITY);
  for (uint32_t i = 0; i < 2; i++) {
    struct uvm_link *link = &links->ways[i];
    uint64_t whole = (uint64_t)point.at[i];
    link->clock_at += whole;
    link->clock_rest = point.at[i] - (double)whole;
    remove_spans(link, 0, point.next[i]);
  }
  links->now_ns = now_ns;
}

static void merge_with_next(struct uvm_link *link, uint32_t at) {
  link->begin_at[at + 1] = link->begin_at[at];
  remove_spans(link, at, 1);
}

/* Puts a busy span before position `at`. */
static void insert(struct uvm_link *link, uint32_t at, uint64_t begin_at, uint64_t end_at) {
  if (at > 0 && link->end_at[at - 1] == begin_at) {
    link->end_at[at - 1] = end_at;
    if (at < link->count && link->begin_at[at] == end_at) merge_with_next(link, at - 1);
    return;
  }
  if (at < link->count && link->begin_at[at] == end_at) {
    link->begin_at[at] = begin_at;
    return;
  }
  if (link->count == UVM_LINK_SPANS) {
    /* The table is full: close the earliest gap, which cannot be booked any more. */
    if (at == 0) {
      link->begin_at[0] = begin_at;
      return;
    }
    merge_with_next(link, 0);
    if (at == 1) return; /* the span is inside the closed gap */
    at--;
  }
  uint32_t rest = link->count - at;
  memmove(link->begin_at + at + 1, link->begin_at + at, rest * sizeof(uint64_t));
  memmove(link->end_at + at + 1, link->end_at + at, rest * sizeof(uint64_t));
  link->begin_at[at] = begin_at;
  link->end_at[at] = end_at;
  link->count++;
}

uint64_t uvm_link_book(struct uvm_links *links, uint32_t way, uint64_t now_ns,
                       uint64_t earliest_ns, uint64_t length_bytes, double gbps) {
  if (length_bytes == 0) return earliest_ns;
  pass(links, now_ns);
  struct uvm_link *link = &links->ways[way], *other = &links->ways[!way];
  uint64_t work_ns = (uint64_t)((double)length_bytes / gbps + 0.5);
  uint64_t begin_at = uvm_link_at(links, way, earliest_ns);
  uint32_t span = 0;
  for (; span < link->count; span++) {
    if (begin_at + work_ns <= link->begin_at[span]) break;
    if (link->end_at[span] > begin_at) begin_at = link->end_at[span];
  }
  insert(link, span, begin_at, begin_at + work_ns);

  struct point end = origin(links);
  walk(links, &end, INFINITY, way, since(link, begin_at));
  struct point begin = end;
  walk(links, &end, INFINITY, way, since(link, begin_at + work_ns));
  link->busy_ns += (uint64_t)(end.time_ns - begin.time_ns + 0.5);
  double met_ns = end.busy_ns[!way] - begin.busy_ns[!way]; /* overlap of both directions */
  other->busy_ns += (uint64_t)(met_ns * (1 - other->duplex) + 0.5);
  return links->now_ns + (uint64_t)(end.time_ns + 0.5);
}
