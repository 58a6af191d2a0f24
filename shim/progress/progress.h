/* progress.h - which streams exist, and how far each has executed. */
#ifndef PUMP_PROGRESS_H
#define PUMP_PROGRESS_H

#include "shim/memory/memory.h"

/* ---- streams and their progress ---------------------------------------------------- */

/* Returns the index into pump_shm->progress of a stream handle as the program passed it.
 * NULL means the legacy stream of the current context or, with `per_thread_default` (the
 * _ptsz/_ptds twins), the calling thread's own. Returns 0 if the table is full. Takes a
 * lock only for a stream that is new. */
uint32_t pump_stream_index(CUstream stream, bool per_thread_default);

/* Frees the stream's slot, after the program has destroyed the stream. */
void pump_stream_gone(CUstream stream);
/* Notes that operation `seq` was issued on `stream` (the handle as passed to the driver,
 * including NULL and the special handles). It is believed to touch `touched_bytes` of
 * ranges. Records a marker if one is needed, never on a capturing stream. Waits only in a
 * drain or a hold (memory/drain.c). */
void pump_progress_issued(uint32_t stream_index, CUstream stream, uint64_t seq,
                          uint64_t now_ns, uint64_t touched_bytes);

/* Counts operations that were issued with the next one for pump_progress_issued. */
void pump_progress_issued_many(uint32_t stream_index, uint32_t operations);

/* Announces that the next pump_progress_issued is for a launch that may begin before its
 * predecessor has ended (programmatic stream serialization or event). Markers become
 * rarer on its stream for a while: a marker between two such launches would keep them
 * apart. */
void pump_progress_chained(uint32_t stream_index);

/* Begins to time an operation, before its real call: records an event. The next call of
 * pump_progress_issued on this thread records one after the operation. Does nothing on
 * capturing streams, and if launches may begin before their predecessors have ended. */
void pump_progress_time(uint32_t stream_index, CUstream stream);

/* Records a marker after the stream's newest operation, unless it has one. */
void pump_progress_mark(uint32_t stream_index, CUstream stream);
/* Returns a number that changes while operations of the context execute; 0: all that have
 * a marker have executed. */
uint64_t pump_progress_pending(CUcontext context);

/* Notes that a synchronizing call of the program succeeded: everything up to `seq_before`
 * on the stream (on every stream of the current context) has executed. `seq_before` is
 * header.next_seq - 1, read before that call. */
void pump_progress_stream_synced(uint32_t stream_index, uint64_t seq_before);
void pump_progress_context_synced(uint64_t seq_before);

/* Notes that the program recorded its own event after operation `seq` of the stream. */
void pump_progress_event_recorded(CUevent event, uint32_t stream_index, uint64_t seq);
/* Returns what is known of an event's record, 0 for nothing; call before the program
 * waits for the event or polls it. Once it is complete, pass the result on: it is used
 * unless the event was recorded again, because either record may then be complete. */
uint64_t pump_progress_event_asked(CUevent event);
void pump_progress_event_synced(CUevent event, uint64_t asked);
/* Forgets an event's record, before the program records the event again or destroys it:
 * the record then proves nothing. */
void pump_progress_event_gone(CUevent event);

/* Distrusts an event, before another process or a graph may record it unseen by hooks. It
 * proves nothing until it is destroyed, which ends the distrust. Both return whether this
 * changed anything. */
bool pump_progress_event_distrust(CUevent event);
bool pump_progress_event_trust(CUevent event);
/* Returns whether there is any such event. */
bool pump_progress_events_distrusted(void);

/* ---- for the rooms above, by our own threads ------------------------------------ */

/* Notes that everything issued on the stream up to `seq` has executed. */
void pump_progress_advance(uint32_t stream_index, uint64_t seq);
/* Notes the same from a poll; the previous one, at before_ns (0: none), had not seen
 * it. */
void pump_progress_polled(uint32_t stream_index, uint64_t seq, uint64_t before_ns);
/* What the last check of a device's streams has seen. */
struct pump_presumed {
  uint64_t checked_ns;
  uint64_t signs[PUMP_MAX_STREAMS]; /* changes with each operation issued or executed */
};
/* Presumes that operations without a marker have executed (pump_marker_presumes).
 * Recordings do not get such times. */
void pump_progress_presume(uint32_t device, struct pump_presumed *presumed,
                           uint64_t now_ns);
/* In recorded jobs, returns when `seq` was known to have executed (pump_moments_find). */
uint64_t pump_progress_moment(uint32_t stream_index, uint64_t seq);
/* Returns the newest executed operation, from private memory, not from the mapping. */
uint64_t pump_progress_executed(uint32_t stream_index);
/* Writes the private numbers into the new mapping after an attach. */
void pump_progress_republish(void);
/* Ends the streams of a context that is gone. */
void pump_progress_context_gone(CUcontext context);
void pump_progress_fork_child(void);
void pump_event_fork_child(void); /* program_events.c */

/* Records a marker for `seq` on a stream of `context`, with small number `context_index`.
 * Returns false if the marker was skipped. */
bool pump_marker_record(uint32_t device, CUcontext context, uint32_t context_index,
                        uint32_t stream_index, CUstream stream, uint64_t seq);
/* Begins and ends to time an operation; the end returns whether it recorded a marker for
 * `seq`. give_back returns a marker that was begun but does not end. */
void pump_timed_begin(CUcontext context, uint32_t context_index, uint32_t stream_index,
                      CUstream stream);
bool pump_timed_end(uint32_t device, uint32_t stream_index, uint64_t seq);
void pump_timed_give_back(void);
/* Whether the thread is timing an operation. */
extern __thread bool pump_timed_begun __attribute__((tls_model("initial-exec")));
/* Chooses the thread's next operation to time. */
void pump_timed_count(void);
/* Operations of this thread until the next one to time. */
extern __thread uint32_t pump_timed_countdown __attribute__((tls_model("initial-exec")));
/* Returns whether few markers are left: a stream then gets one per sixteen operations. */
bool pump_markers_are_few(uint32_t context_index);
uint64_t pump_markers_skipped(void);
void pump_marker_fork_child(void);

/* Wakes the device's marker thread, whatever it waits for. */
void pump_markers_wake(uint32_t device);

/* ---- gates before launches (gates.c) ----------------------------------------------- */

/* A bit for each device whose launches all get gates, because the job yields. */
extern uint32_t pump_gates_devices;
/* Whether functions with large launches are known, whose launches get gates as well. */
extern uint32_t pump_gates_large;
/* Makes the job yield to others on the device until then (CLOCK_MONOTONIC), at most for
 * PUMP_HOLD_MOST_NS. Repeating a time renews nothing. By the link thread. */
void pump_yield_set(uint32_t device, uint64_t until_ns);
/* Adopts the worker's requests for all devices. By the link thread. */
void pump_gates_adopt(void);
bool pump_job_yields(uint32_t device);
/* Makes the stream of a launch wait until the launch's memory is resident, if the job
 * yields or the launch is `large`. Call before the real call. Does nothing on capturing
 * streams, and if launches may begin before their predecessors have ended. */
void pump_progress_gate(uint32_t stream_index, CUstream stream, bool large);
/* Returns whether a gate can be made now. */
bool pump_gates_may(uint32_t device, bool large);
void pump_gate(uint32_t device, CUcontext context, uint32_t context_index, CUstream stream);
/* Returns whether the context's word must be registered for that epoch of its pool, and
 * registers it. For the marker thread, which is in the context. */
bool pump_gates_lack(uint32_t context_index, uint32_t epoch);
void pump_gates_register(uint32_t device, uint32_t context_index, uint32_t epoch);
/* Opens all gates, and makes no more. */
void pump_gates_stop(void);
void pump_gates_fork_child(void);

#endif
