/* record_harness.h - shared by the tests of operations and signatures: the parts of the
 * shim and the driver that hooks need (record_harness.c), and a reader of the event ring.
 */
#ifndef RECORD_HARNESS_H
#define RECORD_HARNESS_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "check.h"
#include "pump_ring.h"
#include "shim/execute/execute.h"
#include "shim/pool/convert.h"

#define BLOCK ((uint64_t)PUMP_BLOCK_BYTES)
#define KERNEL ((CUfunction)0x77770000)
#define NOW_NS 4711 /* the fake clock's time, plus told.later_ns */

/* Newest arguments and numbers of calls to the rest of the shim. */
struct told {
  uint64_t issued_seq, touched_bytes, synced_seq, context_seq, event_seq;
  CUstream issued_stream;
  uint64_t event_asked; /* record of the event that the driver's answer was about */
  CUevent event_gone, event_distrusted;
  int timed, timed_after, timed_back; /* timed operations; reports before the newest */
  bool gate_large;
  int gates, gated_after; /* launches with a gate; reports before the newest */
  CUstream gate_stream;
  CUstream timed_stream;
  int streams_gone, issues, chained, looked_up, issued_many;
  int64_t plain_bytes;
  int compared; /* comparisons with a prediction; `issued` is the newest */
  struct pump_issued issued;
  uint32_t moved_by; /* added to stream indexes */
  uint64_t later_ns;
  uint64_t pending;  /* operations with a marker; one executes at each question */
  bool stands_still; /* none executes, and each question takes 0.6 s */
  int marks;
};
extern struct told told;

/* The driver's answers. */
struct driver {
  CUresult answer;
  CUcontext current;
  size_t sizes[256]; /* of the parameters */
  size_t parameters, questions;
  uint64_t newest_at_call; /* operations reported before the real call */
  int names;               /* number of requests for a name */
  const char *name;        /* NULL: names are unavailable */
  bool only_kernel_handles, capturing;
  bool kind_known; /* a query of the wrong kind fails the test */
  bool library;    /* the caller is a library with unconverted memory */
};
extern struct driver driver;

void set_up(void);
struct pump_range_info range(uint64_t base, uint64_t blocks); /* converted */
struct pump_range_info managed_range(uint64_t base, uint64_t blocks);
CUresult launch(void **params, void **extra);

/* Collects the next event from its records into `head` and `extents` or `payload`; returns
 * false if there is none. next_event skips PARAMS and NAME. */
extern struct pump_event head;
extern struct pump_extent extents[PUMP_MAX_EXTENTS];
extern unsigned char payload[PUMP_MAX_PAYLOAD_BYTES + PUMP_EVENT_PAYLOAD_BYTES];
bool next_event(void);
bool next_of_any_kind(void);

const uint64_t *uses(const struct pump_range_info *r);

/* Returns whether extent `i` of the event is that part of the range, with that access. */
bool extent_is(uint32_t i, const struct pump_range_info *r, uint64_t offset, uint64_t bytes,
               uint64_t access);

/* Runs the scenario named on the command line. */
struct scenario {
  const char *name;
  void (*run)(void);
};
int run_scenario(const struct scenario *scenarios, size_t count, int argc, char **argv);
#define SCENARIO(name) {#name, name}

#endif
