/* capture_rules.c - calls that captures in progress forbid: such a call fails and ends
 * the capture.
 *
 * A capture belongs to its origin stream and thread. Other streams join it by waiting for
 * an event recorded in it. Unsafe calls allocate, free or wait. The calling thread's mode
 * decides which captures make an unsafe call fail, and are ended by it:
 *   RELAXED:        None.
 *   THREAD_LOCAL:   Captures of this thread that are not RELAXED.
 *   GLOBAL:         In addition, GLOBAL captures of every thread.
 */
#include <stdlib.h>

#include "timeline.h"

struct vd_capture *vd_captures;

void vd_capture_invalidate(struct vd_capture *capture, const char *what) {
  if (!capture->invalid) {
    vd.checks.capture_invalidated++;
    vd_log("capture %llu ended by %s", (unsigned long long)capture->id, what);
  }
  capture->invalid = true;
}

CUresult vd_capture_unsafe_locked(const char *what) {
  int mode = vd_thread.capture_mode;
  CUresult result = CUDA_SUCCESS;
  if (vd_captures == NULL || mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  for (struct vd_capture *c = vd_captures; c != NULL; c = c->next) {
    bool mine = pthread_equal(c->thread, pthread_self());
    bool concerned = mine ? c->mode != CU_STREAM_CAPTURE_MODE_RELAXED
                          : c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                                mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (!concerned) continue;
    vd_capture_invalidate(c, what);
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

/* Refuses a call on this stream that cannot become part of a graph. */
CUresult vd_capture_refuse_locked(struct vd_stream *stream, const char *what) {
  if (stream->capture == NULL) return CUDA_SUCCESS;
  vd_capture_invalidate(stream->capture, what);
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

/* Refuses work in the legacy stream that would wait for capturing blocking streams. */
CUresult vd_capture_implicit_locked(struct vd_stream *stream) {
  CUresult result = CUDA_SUCCESS;
  if (stream != &vd_streams.legacy) return CUDA_SUCCESS;
  for (struct vd_stream *s = vd_streams.first; s != NULL && vd_captures != NULL;
       s = s->next) {
    if (s->capture == NULL || (s->flags & CU_STREAM_NON_BLOCKING)) continue;
    vd_capture_invalidate(s->capture, "work in the legacy default stream");
    result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  return result;
}

void vd_tail_empty(struct vd_nodes *set) {
  free(set->nodes);
  free(set->edges);
  *set = (struct vd_nodes){0};
}
