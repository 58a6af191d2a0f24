/* event.c - events: recorded and waited for as operations of the model. */
#include "driver.h"

static struct vd_event *event_of(CUevent handle) {
  struct vd_event *event = (void *)handle;
  return vd_is(event, VD_EVENT) ? event : NULL;
}

CUresult vd_cuEventCreate(CUevent *out, unsigned int flags) {
  if (out == NULL || flags > 7) return CUDA_ERROR_INVALID_VALUE;
  if (flags & CU_EVENT_INTERPROCESS) return CUDA_ERROR_NOT_SUPPORTED;
  vd_lock();
  int number = gpu_event_create(vd.engine);
  struct vd_event *event = number >= 0 ? vd_object_new(VD_EVENT) : NULL;
  if (event != NULL) {
    event->number = (uint32_t)number;
    event->flags = flags;
    event->context = vd_current();
    *out = (CUevent)(void *)event;
  } else if (number >= 0) {
    gpu_event_destroy(vd.engine, (uint32_t)number);
  }
  vd_unlock();
  return event != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult vd_cuEventDestroy_v2(CUevent handle) {
  vd_lock();
  struct vd_event *event = event_of(handle);
  if (event != NULL) {
    gpu_event_destroy(vd.engine, event->number);
    vd_capture_tail_empty(&event->tail);
    vd_object_free(event);
  }
  vd_unlock();
  return event != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult vd_event_record_locked(struct vd_stream *stream, CUevent handle) {
  struct vd_event *event = event_of(handle);
  if (event == NULL) return CUDA_ERROR_INVALID_HANDLE;
  struct gpu_operation operation = {
      .kind = GPU_EVENT_RECORD, .event = event->number, .cookie = (uint64_t)event | 1};
  event->capture = NULL;
  CUresult result = vd_submit_locked(stream, &operation, NULL);
  if (result == CUDA_SUCCESS) event->recorded = true;
  return result;
}

CUresult vd_event_wait_locked(struct vd_stream *stream, CUevent handle) {
  const struct vd_event *event = event_of(handle);
  if (event == NULL) return CUDA_ERROR_INVALID_HANDLE;
  if (!event->recorded) return CUDA_SUCCESS;
  struct gpu_operation operation = {.kind = GPU_EVENT_WAIT, .event = event->number};
  return vd_submit_locked(stream, &operation, NULL);
}

/* A flag of 1: in a capture as a node of its own. */
CUresult vd_cuEventRecordWithFlags(CUevent handle, CUstream stream_handle,
                                   unsigned int flags) {
  if (flags > 1) return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  struct vd_event *event = event_of(handle);
  struct vd_stream *stream = vd_stream_of_locked(stream_handle);
  CUresult result =
      event == NULL || stream == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
  bool captured = false;
  if (result == CUDA_SUCCESS)
    result = vd_capture_record_event_locked(stream, event, flags == 1, &captured);
  if (result == CUDA_SUCCESS && !captured) result = vd_event_record_locked(stream, handle);
  vd_unlock();
  return result;
}

CUresult vd_cuEventRecord(CUevent event, CUstream stream) {
  return vd_cuEventRecordWithFlags(event, stream, 0);
}

CUresult vd_cuStreamWaitEvent(CUstream stream_handle, CUevent handle, unsigned int flags) {
  if (flags > 1) return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  struct vd_event *event = event_of(handle);
  struct vd_stream *stream = vd_stream_of_locked(stream_handle);
  CUresult result =
      event == NULL || stream == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
  bool captured = false;
  if (result == CUDA_SUCCESS)
    result = vd_capture_wait_event_locked(stream, event, flags == 1, &captured);
  if (result == CUDA_SUCCESS && !captured) result = vd_event_wait_locked(stream, handle);
  vd_unlock();
  return result;
}

static CUresult ready_locked(struct vd_event *event) {
  uint64_t time_ns;
  if (event == NULL) return CUDA_ERROR_INVALID_HANDLE;
  if (event->capture != NULL) return CUDA_ERROR_CAPTURED_EVENT;
  if (!event->recorded) return CUDA_SUCCESS;
  return vd_event_done_locked(event, &time_ns) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult vd_cuEventQuery(CUevent handle) {
  vd_lock();
  CUresult result = vd_capture_unsafe_locked("cuEventQuery");
  if (result == CUDA_SUCCESS) result = ready_locked(event_of(handle));
  vd_unlock();
  return result;
}

CUresult vd_cuEventSynchronize(CUevent handle) {
  vd_lock();
  struct vd_event *event = event_of(handle);
  CUresult result = vd_capture_unsafe_locked("cuEventSynchronize");
  if (result == CUDA_SUCCESS) result = ready_locked(event);
  if (result == CUDA_ERROR_NOT_READY) result = vd_wait_event_locked(event);
  vd_unlock();
  return result;
}

CUresult vd_cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
  uint64_t first_ns = 0, last_ns = 0;
  if (milliseconds == NULL) return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  struct vd_event *first = event_of(start), *last = event_of(end);
  CUresult result = CUDA_SUCCESS;
  if (first == NULL || last == NULL || !first->recorded || !last->recorded ||
      ((first->flags | last->flags) & CU_EVENT_DISABLE_TIMING))
    result = CUDA_ERROR_INVALID_HANDLE;
  else if (!vd_event_done_locked(first, &first_ns) || !vd_event_done_locked(last, &last_ns))
    result = CUDA_ERROR_NOT_READY;
  vd_unlock();
  if (result == CUDA_SUCCESS)
    *milliseconds = (float)((double)(int64_t)(last_ns - first_ns) / 1e6);
  return result;
}

CUresult vd_cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end) {
  return vd_cuEventElapsedTime(milliseconds, start, end);
}
