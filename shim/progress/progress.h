/* progress.h - which streams there are, and how far each has executed. */
#ifndef PUMP_PROGRESS_H
#define PUMP_PROGRESS_H

#include "shim/memory/memory.h"

/* ---- streams and what they have executed ------------------------------------------ */

/* Index into pump_shm->progress of a stream handle as the program passed it:
 * NULL means the legacy stream of the current context, or with
 * `per_thread_default` (the _ptsz/_ptds twins) the calling thread's own. 0 when
 * the table is full. The look-up takes no lock; the first sight of a stream does. */
uint32_t pump_stream_index(CUstream stream, bool per_thread_default);

/* To be called after the program has destroyed the stream. */
void pump_stream_gone(CUstream stream);
/* After operation `seq` was issued on `stream` (the handle as passed to the
 * driver; NULL and the special handles included), which is believed to touch
 * `touched_bytes` of ranges. Records a marker when one is due, never on a
 * capturing stream. Waits only in a drain (memory/drain.c). */
void pump_progress_issued(uint32_t stream_index, CUstream stream, uint64_t seq,
                          uint64_t now_ns, uint64_t touched_bytes);

/* So many more were issued with the one about to go to pump_progress_issued. */
void pump_progress_issued_many(uint32_t stream_index, uint32_t operations);

/* The operation about to go to pump_progress_issued is a launch that may begin before
 * the one in front of it has ended (programmatic stream serialization, or a programmatic
 * event): markers become rarer on its stream for a while, for one that stands between
 * two such launches would keep them apart. */
void pump_progress_chained(uint32_t stream_index);

/* Before the real call of an operation whose time is to be taken: records an event in front
 * of it, and pump_progress_issued, called next on this thread, one behind it. Where that is
 * not possible, nothing: on capturing streams, and where launches may begin before the one
 * in front of them has ended. */
void pump_progress_time(uint32_t stream_index, CUstream stream);

/* After a synchronising call of the program returned success. `seq_before` is a
 * bound read before that call: header.next_seq - 1. Everything issued on the
 * stream (on every stream of the current context) up to it has executed. */
void pump_progress_stream_synced(uint32_t stream_index, uint64_t seq_before);
void pump_progress_context_synced(uint64_t seq_before);

/* The program recorded one of its own events behind operation `seq` of that stream. */
void pump_progress_event_recorded(CUevent event, uint32_t stream_index, uint64_t seq);
/* Before the program waits for an event, or polls it: what is known of
 * its record, 0 for nothing. Once the answer was "yes", that goes back: it counts unless
 * the event has been recorded anew meanwhile, for then the answer may be about either. */
uint64_t pump_progress_event_asked(CUevent event);
void pump_progress_event_synced(CUevent event, uint64_t asked);
/* Before the program records an event again or destroys it: the record before proves
 * nothing from here on. */
void pump_progress_event_gone(CUevent event);

/* Before the event may be recorded where no hook sees it, by another process or a graph:
 * from then on it proves nothing, until it is destroyed. Both: whether that changed
 * anything. */
bool pump_progress_event_distrust(CUevent event);
bool pump_progress_event_trust(CUevent event);
/* Whether there is any such event. */
bool pump_progress_events_distrusted(void);

/* ---- for the rooms above, by our own threads ------------------------------------ */

/* Everything issued on the stream up to `seq` has executed. */
void pump_progress_advance(uint32_t stream_index, uint64_t seq);
/* The same by a poll; the one before, at `before_ns`, had not seen it. 0: there was none.
 */
void pump_progress_polled(uint32_t stream_index, uint64_t seq, uint64_t before_ns);
/* Where the job is recorded: when that was known of `seq`, as pump_moments_of says it. */
uint64_t pump_progress_moment(uint32_t stream_index, uint64_t seq);
/* Everything up to this one has; from private memory, not from the mapping. */
uint64_t pump_progress_executed(uint32_t stream_index);
/* After an attach: writes the private figures into the new mapping. */
void pump_progress_republish(void);
/* The context is gone: its streams make no more progress. */
void pump_progress_context_gone(CUcontext context);
void pump_progress_fork_child(void);
void pump_event_fork_child(void); /* program_events.c */

/* Records a marker for `seq` on a stream of `context`, whose small number is
 * `context_index`; false when it was skipped. */
bool pump_marker_record(uint32_t device, CUcontext context, uint32_t context_index,
                        uint32_t stream_index, CUstream stream, uint64_t seq);
/* The two halves of taking an operation's time; the second returns whether it recorded a
 * marker for `seq`. One that was begun and does not end goes back. */
void pump_timed_begin(CUcontext context, uint32_t context_index, uint32_t stream_index,
                      CUstream stream);
bool pump_timed_end(uint32_t device, uint32_t stream_index, uint64_t seq);
void pump_timed_give_back(void);
/* Whether the thread has begun one. */
extern __thread bool pump_timed_begun __attribute__((tls_model("initial-exec")));
/* Chooses the thread's next operation. */
void pump_timed_count(void);
/* Operations of this thread until the next whose time is taken. */
extern __thread uint32_t pump_timed_countdown __attribute__((tls_model("initial-exec")));
/* Few markers are left: a stream gets one for each sixteen operations only. */
bool pump_markers_are_few(uint32_t context_index);
uint64_t pump_markers_skipped(void);
void pump_marker_fork_child(void);

/* Wakes the marker thread of the device, whatever it waits for. */
void pump_markers_wake(uint32_t device);

/* ---- gates in front of launches (gates.c) ------------------------------------------ */

/* A bit for each device whose launches may get gates. */
extern uint32_t pump_gates_devices;
/* The job yields to others on the device until then, CLOCK_MONOTONIC, and no longer than
 * PUMP_HOLD_MOST_NS from now; the same time again renews nothing. By the link thread. */
void pump_yield(uint32_t device, uint64_t until_ns);
/* What the worker asks of each device now. By the link thread. */
void pump_gates_adopt(void);
bool pump_yields(uint32_t device);
/* Before the real call of a launch, if any bit is set: its stream waits until the launch's
 * memory is there. Nothing on capturing streams, and where launches may begin before the
 * one in front of them has ended. */
void pump_progress_gate(uint32_t stream_index, CUstream stream);
void pump_gate(uint32_t device, CUcontext context, uint32_t context_index, CUstream stream);
/* For the marker thread, which is in the context: whether its word has to be registered for
 * that life of its pool, and that. */
bool pump_gates_lack(uint32_t context_index, uint32_t life);
void pump_gates_register(uint32_t device, uint32_t context_index, uint32_t life);
/* Opens all, and no more are made. */
void pump_gates_stop(void);
void pump_gates_fork_child(void);

#endif
