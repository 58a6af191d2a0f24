/* act.h - what the act side of the shim offers to the observe side.
 *
 * Act = link to pumpd, executors, markers and progress, limit, log, summary.
 * It hooks nothing and decides nothing: hooks call in here, the worker's
 * commands are validated and carried out here. Every function may be called
 * from any application thread under the recursion guard, leaves errno, the
 * current context and the capture mode as it found them, and reports no error
 * of its own to the program; -errno is returned where a caller must know.
 *
 * Order of calls
 *   pump_act_start            the real cuInit has succeeded
 *   pump_act_context_seen     a context exists on a device (again is fine)
 *   pump_act_populate, pump_progress_issued   start the executors of the device
 *   pump_act_context_gone     before the program destroys or resets the context
 *   (exit)                    registered by pump_act_start: stops every thread
 *                             within one second, prints the summary
 */
#ifndef PUMP_ACT_H
#define PUMP_ACT_H

#include <stdbool.h>
#include <stdint.h>

#include "pump_abi.h"
#include "pump_cuda.h"

/* ---- life ---------------------------------------------------------------- */

/* After the real cuInit succeeded, in every process, a forked child that calls
 * cuInit itself included. Starts the link thread, nothing heavier. Idempotent. */
void pump_act_start(void);

/* In the child of a fork (pthread_atfork): forgets every thread, lock and
 * descriptor of the parent. The child is inert until its own pump_act_start. */
void pump_act_fork_child(void);

/* `context` exists on `device`. Remembered; executors start at the first
 * populate or operation. Cheap when known already. */
void pump_act_context_seen(CUdevice device, CUcontext context);
/* Device of a context seen before, or -1; `*index` (may be NULL) its small number. */
int pump_context_device(CUcontext context, uint32_t *index);

/* Before `context` is destroyed or reset: its executors leave the driver and
 * destroy their streams and events (bounded: at most the running slices). A
 * later pump_act_context_seen starts them again. */
void pump_act_context_gone(CUcontext context);
/* The same of each known context of the device: one of them ends, and which is unknown.
 * Those that live on are seen again with their next call. */
void pump_act_device_gone(CUdevice device);

/* ---- executors ----------------------------------------------------------- */

/* A new range that shall become resident: queued for the in-threads of its
 * device, carried out while everything fits into the budget. Never waits. */
void pump_act_populate(uint32_t slot, uint32_t generation);

/* After the range in `slot` was marked dead (its generation has changed in the
 * table): returns once no slice runs on it. Queued commands are not waited for. */
void pump_act_wait_slot(uint32_t slot);

/* Keeps executors off a range, as long as it is not opened again: what they are asked for
 * there ends as STALE. true: none is at work on it now. Every call needs its opening. */
bool pump_slot_close(uint32_t slot);
void pump_slot_open(uint32_t slot);

/* ---- limit --------------------------------------------------------------- */

/* May `bytes` (whole blocks) more be converted? 0, and they count until returned.
 * -ENOSPC: the host could not take them, but the device still has room for them as
 * plain memory. -ENOMEM: no, after one line on stderr that names the limit and the
 * remedy. */
int pump_limit_admit(uint32_t device, uint64_t bytes);
/* The same without the line, for who can still do something about it. */
int pump_limit_try(uint32_t device, uint64_t bytes);
void pump_limit_explain(uint32_t device, uint64_t bytes);
void pump_limit_return(uint32_t device, uint64_t bytes);
/* left: bytes that may still be converted; whole: all that may, UINT64_MAX where nothing
 * bounds it. */
void pump_limit_room(uint64_t *left, uint64_t *whole);

/* ---- neighbours (act_share.c) --------------------------------------------- */

#define PUMP_NEIGHBOURS_MOST 256 /* those beyond count as absent */

/* A card as processes under pump tell each other of it. */
struct pump_card {
  uint8_t uuid[16];
  uint64_t found_bytes; /* free before any of them had anything there, as far as is known */
  uint64_t plain_bytes; /* of the process, which cannot make way */
  uint64_t need_bytes;  /* these, and what it would have resident besides */
};

/* What others have on cards, as the ledger says. */
struct pump_neighbours {
  uint32_t count;
  struct pump_card cards[PUMP_NEIGHBOURS_MOST];
};
/* -errno: not all of them could be read. */
int pump_neighbours_look(struct pump_neighbours *neighbours);

/* How many of them use the card; `*found_bytes` becomes the most that one of them found. */
uint32_t pump_neighbours_on(const struct pump_neighbours *neighbours,
                            const uint8_t uuid[16], uint64_t *found_bytes);

/* Of `bytes` of the card, what is this process's while it needs all that it can get: each
 * has what it needs as far as it is not more than everybody's equal share. */
uint64_t pump_neighbours_leave(const struct pump_neighbours *neighbours,
                               const uint8_t uuid[16], uint64_t bytes);

/* ---- progress ------------------------------------------------------------ */

/* Index into pump_shm->progress of a stream handle as the program passed it:
 * NULL means the legacy stream of the current context, or with
 * `per_thread_default` (the _ptsz/_ptds twins) the calling thread's own. 0 when
 * the table is full. The look-up takes no lock; the first sight of a stream does. */
uint32_t pump_stream_index(CUstream stream, bool per_thread_default);

/* After the program destroyed the stream. */
void pump_stream_gone(CUstream stream);
/* The program has made a stream of that priority (act_stream.c). */
void pump_priority_used(int priority);
/* A non-blocking stream of our own in the current context, of a priority that the program
 * does not use if there is one. */
CUresult pump_stream_make(CUstream *stream);

/* After operation `seq` was issued on `stream` (the handle as passed to the
 * driver; NULL and the special handles included), which is believed to touch
 * `touched_bytes` of ranges. Records a marker when one is due, never on a
 * capturing stream; never waits. */
void pump_progress_issued(uint32_t stream_index, CUstream stream, uint64_t seq,
                          uint64_t now_ns, uint64_t touched_bytes);

/* So many more were issued with the one about to be told to pump_progress_issued. */
void pump_progress_issued_many(uint32_t stream_index, uint32_t operations);

/* The operation about to be told to pump_progress_issued is a launch that may begin before
 * the one in front of it has ended (programmatic stream serialization, or a programmatic
 * event): markers become rarer on its stream for a while, for one that stands between
 * two such launches would keep them apart. */
void pump_progress_chained(uint32_t stream_index);

/* After a synchronising call of the program returned success. `seq_before` is a
 * bound read before that call: header.next_seq - 1. Everything issued on the
 * stream (on every stream of the current context) up to it has executed. */
void pump_progress_stream_synced(uint32_t stream_index, uint64_t seq_before);
void pump_progress_context_synced(uint64_t seq_before);

/* The program recorded one of its own events behind operation `seq` of that stream. */
void pump_progress_event_recorded(CUevent event, uint32_t stream_index, uint64_t seq);
/* Before the program waits for an event, or asks whether it is complete: what is known of
 * its record, 0 for nothing. Once the answer was "yes", that goes back: it counts unless
 * the event has been recorded anew meanwhile, for then the answer may be about either. */
uint64_t pump_progress_event_asked(CUevent event);
void pump_progress_event_synced(CUevent event, uint64_t asked);
/* Before the program records an event again or destroys it: what was recorded before tells
 * nothing any more. */
void pump_progress_event_gone(CUevent event);

/* Before the event may be recorded where no hook sees it, by another process or a graph:
 * from then on nothing is believed of it, until it is destroyed. Both: whether that changed
 * anything. */
bool pump_progress_event_distrust(CUevent event);
bool pump_progress_event_trust(CUevent event);
/* Whether there is any such event. */
bool pump_progress_events_distrusted(void);

/* ---- plans --------------------------------------------------------------- */

/* An operation that was just given its number. `grid`, `block`: of a launch, else NULL. */
struct pump_issued {
  uint64_t seq, signature, function;
  uint32_t stream, kind;
  const uint32_t *grid, *block;
};

/* While header.armed is not 0: what was planned is void if the operation is another one
 * than was foreseen. */
void pump_plan_compare(const struct pump_issued *issued);

/* ---- log ----------------------------------------------------------------- */

#define PUMP_LOG_ERROR 0
#define PUMP_LOG_WARNING 1
#define PUMP_LOG_INFO 2
#define PUMP_LOG_DEBUG 3

/* One line "pump: ..." to PUMP_LOG_FILE, else to stderr. No newline in `format`.
 * Allocates nothing and keeps errno. */
void pump_log(int level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same, but only the first time for `*said` (a static word, initially 0);
 * true when this call was the first. */
bool pump_log_once(uint32_t *said, int level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Bytes of a name in a message; the rest of it is cut off. */
#define PUMP_QUOTED_BYTES 640

/* A name of others' making (a path, a symbol, a variable's text) for a message, in `text`:
 * as it is where a shell would read it as one plain word, else in single quotes, with \xNN
 * for what ends lines, quotes or steers terminals (pump/names.py does the same). */
const char *pump_quoted(char text[PUMP_QUOTED_BYTES], const char *name);
#define PUMP_QUOTED(name) pump_quoted((char[PUMP_QUOTED_BYTES]){0}, name)

/* One line on stderr when pump did anything; registered at exit by
 * pump_act_start, callable once. */
void pump_summary_print(void);

/* Before that line: why pump was of little use, where it was. */
void pump_verdict_print(void);

/* Writes the file that PUMP_SUMMARY names, if it names one; at exit, after the line. */
void pump_summary_write(void);

#endif
