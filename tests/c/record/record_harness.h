/* record_harness.h - what the tests of operations and of signatures share: the rest of
 * the shim and the driver as far as hooks need them (record_harness.c), and a reader
 * of the event ring.
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
#define NOW_NS 4711 /* what the clock says, always */

/* What executors were asked last. */
struct told {
  uint64_t issued_seq, touched_bytes, synced_seq, context_seq, event_seq;
  CUstream issued_stream;
  uint64_t event_asked; /* what the driver's answer was about */
  CUevent event_gone, event_distrusted;
  int timed, timed_after, timed_back; /* operations whose time was to be taken */
  int gates, gated_after;             /* launches that were given one */
  CUstream gate_stream;
  CUstream timed_stream;
  int streams_gone, issues, chained, looked_up, issued_many;
  int64_t plain_bytes;
  int compared; /* with what was predicted, `issued` the last time */
  struct pump_issued issued;
  uint32_t moved_by; /* streams have got places that are so much higher */
};
extern struct told told;

/* How the driver answers. */
struct driver {
  CUresult answer;
  CUcontext current;
  size_t sizes[256]; /* of the parameters */
  size_t parameters, questions;
  uint64_t newest_at_call; /* operations reported before the real call */
  int names;               /* how often a name was asked for */
  const char *name;        /* NULL: it does not tell names */
  bool only_kernel_handles, capturing;
  bool kind_known; /* a question of the wrong kind fails the test */
  bool library;    /* the caller is one of those whose memory stays what it is */
};
extern struct driver driver;

void set_up(void);
struct pump_range_info range(uint64_t base, uint64_t blocks); /* converted */
struct pump_range_info managed_range(uint64_t base, uint64_t blocks);
CUresult launch(void **params, void **extra);

/* The next event, gathered from its records, into `head` and `extents` or `payload`;
 * false when there is none. PARAMS and NAME are passed over by next_event. */
extern struct pump_event head;
extern struct pump_extent extents[PUMP_MAX_EXTENTS];
extern unsigned char payload[PUMP_MAX_PAYLOAD_BYTES + PUMP_EVENT_PAYLOAD_BYTES];
bool next_event(void);
bool next_of_any_kind(void);

const uint64_t *uses(const struct pump_range_info *r);

/* Whether extent `i` of the event is that part of the range, and used like that. */
bool extent_is(uint32_t i, const struct pump_range_info *r, uint64_t offset, uint64_t bytes,
               uint64_t access);

/* Runs the scenario that the command line names. */
struct scenario {
  const char *name;
  void (*run)(void);
};
int run_scenario(const struct scenario *scenarios, size_t count, int argc, char **argv);
#define SCENARIO(name) {#name, name}

#endif
