/* capture.c - stream capture: what is recorded, what is refused, who is invalidated.
 *
 * A capture belongs to its origin stream and thread. Other streams join it by
 * waiting for an event recorded in it. Unsafe calls (those that allocate, free or
 * wait) fail in a thread that a capture concerns, and end that capture:
 *   thread in mode RELAXED        none
 *   THREAD_LOCAL                  captures of this thread that are not RELAXED
 *   GLOBAL                        those, and every thread's GLOBAL ones
 */
#include <stdlib.h>

#include "capture.h"

static struct vd_capture *captures;

static void invalidate(struct vd_capture *capture, const char *what) {
  if (!capture->invalid) {
    vd.checks.capture_invalidated++;
    vd_log("capture %llu ended by %s", (unsigned long long)capture->id, what);
  }
  capture->invalid = true;
}

CUresult vd_capture_unsafe_locked(const char *what) {
  int mode = vd_thread.capture_mode;
  CUresult result = CUDA_SUCCESS;
  if (captures == NULL || mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  for (struct vd_capture *c = captures; c != NULL; c = c->next) {
    bool mine = pthread_equal(c->thread, pthread_self());
    bool concerned = mine ? c->mode != CU_STREAM_CAPTURE_MODE_RELAXED
                          : c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                                mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (!concerned) continue;
    invalidate(c, what);
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

/* A call that cannot become part of a graph, on this stream. */
CUresult vd_capture_refuse_locked(struct vd_stream *stream, const char *what) {
  if (stream->capture == NULL) return CUDA_SUCCESS;
  invalidate(stream->capture, what);
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

/* Work in the legacy stream would wait for blocking streams that capture. */
static CUresult implicit(struct vd_stream *stream) {
  CUresult result = CUDA_SUCCESS;
  if (stream != &vd.legacy) return CUDA_SUCCESS;
  for (struct vd_stream *s = vd.streams; s != NULL && captures != NULL; s = s->next) {
    if (s->capture == NULL || (s->flags & CU_STREAM_NON_BLOCKING)) continue;
    invalidate(s->capture, "work in the legacy default stream");
    result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  return result;
}

CUresult vd_capture_take_locked(struct vd_stream *stream,
                                const struct gpu_operation *operation,
                                struct vd_action *action, int node_type, bool *captured) {
  struct vd_capture *capture = stream->capture;
  if (capture == NULL) return implicit(stream);
  if (capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  CUresult result = vd_graph_add(capture->graph, operation, action, node_type);
  if (result != CUDA_SUCCESS) return result;
  *captured = true;
  stream->capture_dirty = true;
  return CUDA_SUCCESS;
}

CUresult vd_capture_record_event_locked(struct vd_stream *stream, struct vd_event *event,
                                        bool *captured) {
  struct vd_capture *capture = stream->capture;
  if (capture == NULL) return implicit(stream);
  if (capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  event->capture = capture;
  event->capture_stream = stream;
  *captured = true;
  return CUDA_SUCCESS;
}

CUresult vd_capture_wait_event_locked(struct vd_stream *stream, struct vd_event *event,
                                      bool *captured) {
  struct vd_capture *capture = event->capture;
  if (capture == NULL) {
    if (stream->capture == NULL) return implicit(stream);
    if (!event->recorded) {
      *captured = true;
      return CUDA_SUCCESS;
    }
    invalidate(stream->capture, "a wait for an event from outside");
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  bool live = false;
  for (struct vd_capture *c = captures; c != NULL; c = c->next) live |= c == capture;
  if (!live) return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  if (stream->capture != NULL && stream->capture != capture) {
    invalidate(capture, "a merge with another capture");
    invalidate(stream->capture, "a merge with another capture");
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  if (stream == &vd.legacy) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  stream->capture = capture;
  /* The other stream's work up to the event has been joined here. */
  if (event->capture_stream != stream && vd_is(event->capture_stream, VD_STREAM) &&
      event->capture_stream->capture_dirty) {
    event->capture_stream->capture_dirty = false;
    stream->capture_dirty = true;
  }
  *captured = true;
  return CUDA_SUCCESS;
}

/* -- begin and end -- */

CUresult vd_cuStreamBeginCapture_v2(CUstream handle, int mode) {
  if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
    return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  struct vd_stream *stream = vd_stream_of_locked(handle);
  CUresult result = CUDA_SUCCESS;
  if (stream == NULL)
    result = CUDA_ERROR_INVALID_HANDLE;
  else if (stream == &vd.legacy)
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  else if (stream->capture != NULL)
    result = CUDA_ERROR_ILLEGAL_STATE;
  if (result == CUDA_SUCCESS) {
    struct vd_capture *capture = calloc(1, sizeof *capture);
    struct vd_graph *graph = vd_graph_new(VD_GRAPH);
    if (capture == NULL || graph == NULL) {
      free(capture);
      if (graph != NULL) vd_graph_free_locked(graph);
      result = CUDA_ERROR_OUT_OF_MEMORY;
    } else {
      *capture = (struct vd_capture){.origin = stream,
                                     .graph = graph,
                                     .thread = pthread_self(),
                                     .id = vd.next_id++,
                                     .mode = mode,
                                     .next = captures};
      captures = capture;
      stream->capture = capture;
      stream->capture_dirty = false;
    }
  }
  vd_unlock();
  return result;
}

CUresult vd_cuStreamBeginCapture(CUstream stream) {
  return vd_cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

/* Takes the capture off all its streams; true if one had work that nobody joined. */
static bool detach(struct vd_capture *capture) {
  bool unjoined = false;
  for (struct vd_stream *s = vd.streams; s != NULL; s = s->next) {
    if (s->capture != capture) continue;
    if (s != capture->origin && s->capture_dirty) unjoined = true;
    s->capture = NULL;
    s->capture_dirty = false;
  }
  struct vd_capture **link = &captures;
  while (*link != capture) link = &(*link)->next;
  *link = capture->next;
  return unjoined;
}

CUresult vd_cuStreamEndCapture(CUstream handle, CUgraph *out) {
  if (out == NULL) return CUDA_ERROR_INVALID_VALUE;
  *out = NULL;
  vd_lock();
  struct vd_stream *stream = vd_stream_of_locked(handle);
  struct vd_capture *capture = stream ? stream->capture : NULL;
  CUresult result = CUDA_SUCCESS;
  if (stream == NULL)
    result = CUDA_ERROR_INVALID_HANDLE;
  else if (capture == NULL)
    result = CUDA_ERROR_ILLEGAL_STATE;
  else if (capture->origin != stream)
    result = CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  else if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
           !pthread_equal(capture->thread, pthread_self()))
    result = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  if (result == CUDA_SUCCESS) {
    bool unjoined = detach(capture);
    if (capture->invalid)
      result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (unjoined)
      result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    if (result == CUDA_SUCCESS)
      *out = (CUgraph)(void *)capture->graph;
    else
      vd_graph_free_locked(capture->graph);
    free(capture);
  }
  vd_unlock();
  return result;
}

/* A stream that captures is destroyed: the capture dies with its origin. */
void vd_capture_forget_stream_locked(struct vd_stream *stream) {
  struct vd_capture *capture = stream->capture;
  if (capture == NULL) return;
  invalidate(capture, "the end of a stream of it");
  stream->capture = NULL;
  if (capture->origin != stream) return;
  detach(capture);
  vd_graph_free_locked(capture->graph);
  free(capture);
}

/* -- queries -- */

static CUresult info(CUstream handle, int *status, uint64_t *id, CUgraph *graph) {
  if (status == NULL) return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  struct vd_stream *stream = vd_stream_of_locked(handle);
  CUresult result = stream == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
  if (result == CUDA_SUCCESS) {
    const struct vd_capture *capture = stream->capture;
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (capture != NULL)
      *status = capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                 : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (capture != NULL && id != NULL) *id = capture->id;
    if (graph != NULL) *graph = capture ? (CUgraph)(void *)capture->graph : NULL;
  }
  vd_unlock();
  return result;
}

CUresult vd_cuStreamIsCapturing(CUstream stream, int *status) {
  return info(stream, status, NULL, NULL);
}

CUresult vd_cuStreamGetCaptureInfo(CUstream stream, int *status, uint64_t *id) {
  return info(stream, status, id, NULL);
}

CUresult vd_cuStreamGetCaptureInfo_v2(CUstream stream, int *status, uint64_t *id,
                                      CUgraph *graph, const CUgraphNode **dependencies,
                                      size_t *count) {
  if (dependencies != NULL) *dependencies = NULL; /* a list: none are kept */
  if (count != NULL) *count = 0;
  return info(stream, status, id, graph);
}

CUresult vd_cuStreamGetCaptureInfo_v3(CUstream stream, int *status, uint64_t *id,
                                      CUgraph *graph, const CUgraphNode **dependencies,
                                      const CUgraphEdgeData **edges, size_t *count) {
  if (edges != NULL) *edges = NULL;
  return vd_cuStreamGetCaptureInfo_v2(stream, status, id, graph, dependencies, count);
}

CUresult vd_cuThreadExchangeStreamCaptureMode(int *mode) {
  if (mode == NULL || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL ||
      *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
    return CUDA_ERROR_INVALID_VALUE;
  int old = vd_thread.capture_mode;
  vd_thread.capture_mode = *mode;
  *mode = old;
  return CUDA_SUCCESS;
}
