/* event.c - events: records and waits are operations of the model.
 *
 * An event that another process opens has one slot in a shared GPU's state, so both
 * processes use the same event; its creator destroys it. Events of a private GPU cannot
 * be opened. */
#include <string.h>
#include <unistd.h>

#include "timeline.h"

CUresult vd_cuEventCreate(CUevent *out, unsigned int flags) {
  if (out == NULL || flags > 7) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & CU_EVENT_INTERPROCESS) && !(flags & CU_EVENT_DISABLE_TIMING))
    return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  vd_pass_loads_locked(vd_current());
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
  struct vd_event *event = vd_event_of(handle);
  if (event != NULL) {
    if (!event->foreign) gpu_event_destroy(vd.engine, event->number);
    vd_tail_empty(&event->tail);
    vd_object_free(event);
  }
  vd_unlock();
  return event != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* Returns whether the event may have a record; if it is shared, only the model knows. */
static bool is_recorded(const struct vd_event *event) {
  return event->recorded || (event->flags & CU_EVENT_INTERPROCESS) != 0;
}

CUresult vd_event_record_locked(struct vd_stream *stream, CUevent handle) {
  struct vd_event *event = vd_event_of(handle);
  if (event == NULL) return CUDA_ERROR_INVALID_HANDLE;
  struct gpu_operation operation = {
      .kind = GPU_EVENT_RECORD, .event = event->number, .cookie = (uint64_t)event | 1};
  event->capture = NULL;
  CUresult result = vd_submit_locked(stream, &operation, NULL);
  if (result == CUDA_SUCCESS) event->recorded = true;
  return result;
}

CUresult vd_event_wait_locked(struct vd_stream *stream, CUevent handle) {
  const struct vd_event *event = vd_event_of(handle);
  if (event == NULL) return CUDA_ERROR_INVALID_HANDLE;
  if (!is_recorded(event)) return CUDA_SUCCESS;
  struct gpu_operation operation = {.kind = GPU_EVENT_WAIT, .event = event->number};
  return vd_submit_locked(stream, &operation, NULL);
}

static void pass_loads_locked(CUevent handle) {
  const struct vd_event *event = vd_event_of(handle);
  if (event != NULL) vd_pass_loads_locked(event->context);
}

static CUresult ready_locked(struct vd_event *event) {
  uint64_t time_ns;
  if (event == NULL) return CUDA_ERROR_INVALID_HANDLE;
  if (event->capture != NULL) return CUDA_ERROR_CAPTURED_EVENT;
  if (!is_recorded(event)) return CUDA_SUCCESS;
  return vd_event_done_locked(event, &time_ns) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult vd_cuEventQuery(CUevent handle) {
  vd_lock();
  pass_loads_locked(handle);
  CUresult result = vd_capture_unsafe_locked("cuEventQuery");
  if (result == CUDA_SUCCESS) result = ready_locked(vd_event_of(handle));
  vd_unlock();
  return result;
}

CUresult vd_cuEventSynchronize(CUevent handle) {
  vd_lock();
  pass_loads_locked(handle);
  struct vd_event *event = vd_event_of(handle);
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
  struct vd_event *first = vd_event_of(start), *last = vd_event_of(end);
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

/* ---- shared with other processes --------------------------------------------- */

struct ipc_event {
  char magic[8];
  int32_t pid;
  uint32_t number;
  char card[48]; /* name of the shared GPU; empty for a private one */
};
_Static_assert(sizeof(struct ipc_event) == sizeof(CUipcEventHandle), "it is the handle");

static struct ipc_event ipc_event(uint32_t number) {
  struct ipc_event handle = {.magic = "vevent", .pid = getpid(), .number = number};
  const char *name = vd_card_name();
  memcpy(handle.card, name, strnlen(name, sizeof handle.card));
  return handle;
}

CUresult vd_cuIpcGetEventHandle(CUipcEventHandle *out, CUevent handle) {
  if (out == NULL) return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  const struct vd_event *event = vd_event_of(handle);
  bool right = event != NULL && (event->flags & CU_EVENT_INTERPROCESS) && !event->foreign;
  if (right) {
    struct ipc_event made = ipc_event(event->number);
    memcpy(out, &made, sizeof made);
  }
  vd_unlock();
  return right ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* Opens an event: not in the process that created it, and only on the same shared GPU. */
CUresult vd_cuIpcOpenEventHandle(CUevent *out, CUipcEventHandle given) {
  struct ipc_event handle;
  memcpy(&handle, &given, sizeof handle);
  if (out == NULL || memcmp(handle.magic, "vevent", 7) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (handle.pid == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  vd_lock();
  struct ipc_event own = ipc_event(handle.number);
  bool same = vd.shared && memcmp(own.card, handle.card, sizeof own.card) == 0;
  struct vd_event *event = same ? vd_object_new(VD_EVENT) : NULL;
  if (event != NULL) {
    event->number = handle.number;
    event->flags = CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    event->foreign = true;
    event->context = vd_current();
    *out = (CUevent)(void *)event;
  }
  vd_unlock();
  if (!same) return CUDA_ERROR_NOT_SUPPORTED;
  return event != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
