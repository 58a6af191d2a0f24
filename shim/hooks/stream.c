/* stream.c - hooks of streams, events, synchronisation and capture.
 *
 * When the program itself waits, or polls and finds work complete, progress is known at
 * no cost. The newest operation's number is read before such a call, because later
 * operations are not covered.
 */
#include <errno.h>

#include "shim/pool/pool.h"

/* Processes the result of a call in which the program waits (`waited`) or polls. */
static CUresult waited(CUresult result) {
  return pump_pool_waited(result);
}

static CUresult polled(CUresult result) {
  return result;
}

/* Notes a stream's progress. `began_ns`: when the program began to wait; 0: polled. */
static void stream_done(struct pump_at at, uint64_t seq, uint64_t began_ns) {
  int saved = errno;
  pump_enter();
  uint32_t index = pump_stream_ref_of(at).stream_index;
  pump_progress_stream_synced(index, seq);
  if (began_ns != 0) pump_event_sync(index, seq, began_ns);
  pump_leave();
  errno = saved;
}

#define HOOK_STREAM_DONE(name, per_thread, how)                                            \
  CUresult name(CUstream stream) {                                                         \
    if (pump_quiet()) return how(pump_real.name(stream));                                  \
    uint64_t seq = pump_newest_seq(), began_ns = how == waited ? pump_now_ns() : 0;        \
    CUresult result = how(pump_real.name(stream));                                         \
    if (result == CUDA_SUCCESS) stream_done(pump_at(stream, per_thread), seq, began_ns);   \
    return result;                                                                         \
  }

HOOK_STREAM_DONE(cuStreamSynchronize, false, waited)
HOOK_STREAM_DONE(cuStreamSynchronize_ptsz, true, waited)
HOOK_STREAM_DONE(cuStreamQuery, false, polled)
HOOK_STREAM_DONE(cuStreamQuery_ptsz, true, polled)

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority) {
  CUresult result = pump_real.cuStreamCreateWithPriority(stream, flags, priority);
  if (result == CUDA_SUCCESS && !pump_quiet()) pump_priority_note(priority);
  return result;
}

static void context_done(uint64_t seq, uint64_t began_ns) {
  int saved = errno;
  pump_enter();
  pump_progress_context_synced(seq);
  pump_event_sync(0, seq, began_ns);
  pump_leave();
  errno = saved;
}

CUresult cuCtxSynchronize(void) {
  if (pump_quiet()) return waited(pump_real.cuCtxSynchronize());
  uint64_t seq = pump_newest_seq(), began_ns = pump_now_ns();
  CUresult result = waited(pump_real.cuCtxSynchronize());
  if (result == CUDA_SUCCESS) context_done(seq, began_ns);
  return result;
}

/* Synchronizes one context. The result proves progress only if that context is current. */
CUresult cuCtxSynchronize_v2(CUcontext context) {
  if (pump_quiet()) return waited(pump_real.cuCtxSynchronize_v2(context));
  uint64_t seq = pump_newest_seq(), began_ns = pump_now_ns();
  CUresult result = waited(pump_real.cuCtxSynchronize_v2(context));
  CUcontext current = NULL;
  if (result == CUDA_SUCCESS && pump_current_device(&current) >= 0 &&
      (context == NULL || context == current))
    context_done(seq, began_ns);
  return result;
}

/* ---- events --------------------------------------------------------------- */

/* Notes an event record, except during capture: the graph runs later. */
static void recorded(CUevent event, struct pump_at at, uint64_t seq) {
  int saved = errno;
  pump_enter();
  if (!pump_capturing(at.stream))
    pump_progress_event_recorded(event, pump_stream_ref_of(at).stream_index, seq);
  pump_leave();
  errno = saved;
}

/* Invalidates the earlier record of an event that is recorded again or destroyed. */
static void forget(CUevent event) {
  pump_enter();
  pump_progress_event_gone(event);
  pump_leave();
}

#define HOOK_RECORD(name, per_thread, parameters, arguments)                               \
  CUresult name parameters {                                                               \
    if (pump_quiet()) return pump_real.name arguments;                                     \
    uint64_t seq = pump_newest_seq();                                                      \
    forget(event);                                                                         \
    CUresult result = pump_real.name arguments;                                            \
    if (result == CUDA_SUCCESS) recorded(event, pump_at(stream, per_thread), seq);         \
    return result;                                                                         \
  }

HOOK_RECORD(cuEventRecord, false, (CUevent event, CUstream stream), (event, stream))
HOOK_RECORD(cuEventRecord_ptsz, true, (CUevent event, CUstream stream), (event, stream))
HOOK_RECORD(cuEventRecordWithFlags, false,
            (CUevent event, CUstream stream, unsigned int flags), (event, stream, flags))
HOOK_RECORD(cuEventRecordWithFlags_ptsz, true,
            (CUevent event, CUstream stream, unsigned int flags), (event, stream, flags))

/* Hooks a call that records an event on all streams of a context. Pump learns progress
 * only from events on one stream, so it only forgets the event's earlier record. */
#define HOOK_RECORD_ALL(name, type)                                                        \
  CUresult name(type context, CUevent event) {                                             \
    if (!pump_quiet()) forget(event);                                                      \
    return pump_real.name(context, event);                                                 \
  }

HOOK_RECORD_ALL(cuCtxRecordEvent, CUcontext)
HOOK_RECORD_ALL(cuGreenCtxRecordEvent, CUgreenCtx)

static void note_event_completed(CUevent event, uint64_t known_record) {
  int saved = errno;
  pump_enter();
  pump_progress_event_synced(event, known_record);
  pump_leave();
  errno = saved;
}

#define HOOK_EVENT_DONE(name, how)                                                         \
  CUresult name(CUevent event) {                                                           \
    if (pump_quiet()) return how(pump_real.name(event));                                   \
    uint64_t known = pump_progress_event_asked(event);                                     \
    CUresult result = how(pump_real.name(event));                                          \
    if (result == CUDA_SUCCESS && known != 0) note_event_completed(event, known);          \
    return result;                                                                         \
  }

HOOK_EVENT_DONE(cuEventSynchronize, waited)
HOOK_EVENT_DONE(cuEventQuery, polled)

/* Invalidates the event before the real call: after it, another thread may get the handle
 * for a new event and record it. */
#define HOOK_EVENT_DESTROY(name)                                                           \
  CUresult name(CUevent event) {                                                           \
    if (pump_quiet() && !pump_progress_events_distrusted()) return pump_real.name(event);  \
    forget(event);                                                                         \
    bool other = pump_progress_event_trust(event);                                         \
    CUresult result = pump_real.name(event);                                               \
    if (other && result != CUDA_SUCCESS) pump_progress_event_distrust(event);              \
    return result;                                                                         \
  }

HOOK_EVENT_DESTROY(cuEventDestroy)
HOOK_EVENT_DESTROY(cuEventDestroy_v2)

/* Also runs while dormant, because the event may outlive that state. */
CUresult cuIpcGetEventHandle(CUipcEventHandle *handle, CUevent event) {
  if (pump_inert()) return pump_real.cuIpcGetEventHandle(handle, event);
  bool fresh = pump_progress_event_distrust(event);
  CUresult result = pump_real.cuIpcGetEventHandle(handle, event);
  if (fresh && result != CUDA_SUCCESS) pump_progress_event_trust(event);
  return result;
}

CUresult cuIpcOpenEventHandle(CUevent *event, CUipcEventHandle handle) {
  CUresult result = pump_real.cuIpcOpenEventHandle(event, handle);
  if (result == CUDA_SUCCESS && !pump_inert()) pump_progress_event_distrust(*event);
  return result;
}

/* ---- the end of a stream -------------------------------------------------- */

#define HOOK_STREAM_DESTROY(name)                                                          \
  CUresult name(CUstream stream) {                                                         \
    if (pump_inert()) return pump_real.name(stream);                                       \
    int saved = errno;                                                                     \
    pump_enter();                                                                          \
    pump_pool_stream_ends(stream);                                                         \
    CUresult result = pump_real.name(stream);                                              \
    pump_leave();                                                                          \
    errno = saved;                                                                         \
    if (result != CUDA_SUCCESS) return result;                                             \
    pump_enter();                                                                          \
    pump_stream_gone(stream);                                                              \
    pump_stream_refs_forget();                                                             \
    pump_leave();                                                                          \
    errno = saved;                                                                         \
    return result;                                                                         \
  }

HOOK_STREAM_DESTROY(cuStreamDestroy)
HOOK_STREAM_DESTROY(cuStreamDestroy_v2)

/* ---- capture -------------------------------------------------------------- */

/* The count is raised before the begin and lowered after the end. Too high a count costs
 * a query per operation; too low a count would put a marker into the program's graph. */
#define HOOK_CAPTURE_BEGIN(name, parameters, arguments)                                    \
  CUresult name parameters {                                                               \
    if (pump_inert()) return pump_real.name arguments;                                     \
    pump_capture_entered();                                                                \
    pump_pool_capture_begins();                                                            \
    CUresult result = pump_real.name arguments;                                            \
    if (result != CUDA_SUCCESS) pump_capture_left();                                       \
    return result;                                                                         \
  }

#define BEGIN_TO_GRAPH                                                                     \
  (CUstream stream, CUgraph graph, const CUgraphNode *dependencies,                        \
   const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode)

HOOK_CAPTURE_BEGIN(cuStreamBeginCapture, (CUstream stream), (stream))
HOOK_CAPTURE_BEGIN(cuStreamBeginCapture_ptsz, (CUstream stream), (stream))
HOOK_CAPTURE_BEGIN(cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode),
                   (stream, mode))
HOOK_CAPTURE_BEGIN(cuStreamBeginCapture_v2_ptsz,
                   (CUstream stream, CUstreamCaptureMode mode), (stream, mode))
HOOK_CAPTURE_BEGIN(cuStreamBeginCaptureToGraph, BEGIN_TO_GRAPH,
                   (stream, graph, dependencies, edges, count, mode))
HOOK_CAPTURE_BEGIN(cuStreamBeginCaptureToGraph_ptsz, BEGIN_TO_GRAPH,
                   (stream, graph, dependencies, edges, count, mode))

#define BEGIN_AGAIN                                                                        \
  (CUstream stream, CUstreamCaptureMode mode, CUgraph graph,                               \
   CUgraphRecaptureCallback callback, void *data)

HOOK_CAPTURE_BEGIN(cuStreamBeginRecaptureToGraph, BEGIN_AGAIN,
                   (stream, mode, graph, callback, data))
HOOK_CAPTURE_BEGIN(cuStreamBeginRecaptureToGraph_ptsz, BEGIN_AGAIN,
                   (stream, mode, graph, callback, data))

#define HOOK_CAPTURE_END(name)                                                             \
  CUresult name(CUstream stream, CUgraph *graph) {                                         \
    CUresult result = pump_real.name(stream, graph);                                       \
    if (!pump_inert()) pump_capture_ended(result);                                         \
    return result;                                                                         \
  }

HOOK_CAPTURE_END(cuStreamEndCapture)
HOOK_CAPTURE_END(cuStreamEndCapture_ptsz)

#define HOOK_CIG(suffix)                                                                   \
  CUresult cuStreamBeginCaptureToCig##suffix(CUstream stream,                              \
                                             CUstreamCigCaptureParams *params) {           \
    if (pump_inert()) return pump_real.cuStreamBeginCaptureToCig##suffix(stream, params);  \
    pump_capture_entered_cig();                                                            \
    pump_pool_capture_begins();                                                            \
    CUresult result = pump_real.cuStreamBeginCaptureToCig##suffix(stream, params);         \
    if (result != CUDA_SUCCESS) pump_capture_left_cig();                                   \
    return result;                                                                         \
  }                                                                                        \
  CUresult cuStreamEndCaptureToCig##suffix(CUstream stream) {                              \
    CUresult result = pump_real.cuStreamEndCaptureToCig##suffix(stream);                   \
    if (!pump_inert() && result == CUDA_SUCCESS) pump_capture_left_cig();                  \
    return result;                                                                         \
  }

HOOK_CIG()
HOOK_CIG(_ptsz)
