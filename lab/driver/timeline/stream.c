/* stream.c - streams, and host functions in them.
 *
 * The legacy default stream is the model's stream 0, shared by all contexts. The
 * per-thread default stream is an ordinary blocking stream, created on first use.
 */
#include <string.h>

#include "timeline.h"

struct vd_streams vd_streams;

static struct vd_stream *new_locked(unsigned int flags, int priority) {
  uint32_t kind =
      flags & CU_STREAM_NON_BLOCKING ? GPU_STREAM_NONBLOCKING : GPU_STREAM_BLOCKING;
  uint32_t queues = vd.queues_shared ? 0 : (uint32_t)-priority;
  int number = gpu_stream_create(vd.engine, kind, queues);
  if (number < 0) {
    vd_log("more than %d streams", GPU_MAX_STREAMS);
    return NULL;
  }
  struct vd_stream *stream = vd_object_new(VD_STREAM);
  if (stream == NULL) {
    gpu_stream_destroy(vd.engine, (uint32_t)number);
    return NULL;
  }
  stream->number = (uint32_t)number;
  stream->id = vd.next_id++;
  stream->context = vd_current();
  stream->flags = flags;
  stream->settings.priority = priority;
  stream->next = vd_streams.first;
  stream->link = &vd_streams.first;
  if (vd_streams.first != NULL) vd_streams.first->link = &stream->next;
  vd_streams.first = stream;
  return stream;
}

static void destroy_locked(struct vd_stream *stream) {
  vd_upcalls.stream_ends(stream);
  vd_tail_empty(&stream->tail);
  gpu_stream_destroy(vd.engine, stream->number);
  *stream->link = stream->next;
  if (stream->next != NULL) stream->next->link = stream->link;
  vd_object_free(stream);
}

void vd_streams_drop_context_locked(struct vd_context *context) {
  for (struct vd_stream *stream = vd_streams.first, *next; stream != NULL; stream = next) {
    next = stream->next;
    if (stream->context == context) destroy_locked(stream);
  }
}

/* Its destructor ends a thread's default stream with the thread. */
static pthread_key_t default_stream_key;

/* Checks the id too, because another stream may reuse the handle. */
static struct vd_stream *own_default_stream(void) {
  struct vd_stream *stream = vd_thread.default_stream;
  bool own = vd_is(stream, VD_STREAM) && stream->id == vd_thread.default_stream_id;
  return own ? stream : NULL;
}

static void thread_ended(void *unused) {
  (void)unused;
  if (__atomic_load_n(&vd.state, __ATOMIC_ACQUIRE) != VD_READY) return;
  vd_lock();
  struct vd_stream *stream = own_default_stream();
  if (stream != NULL) destroy_locked(stream);
  vd_unlock();
}

CUresult vd_streams_start(void) {
  vd_streams.legacy.magic = VD_STREAM;
  vd_streams.legacy.id = vd.next_id++;
  if (pthread_key_create(&default_stream_key, thread_ended) == 0) return CUDA_SUCCESS;
  vd_error("no thread-specific key left for per-thread default streams");
  return CUDA_ERROR_OPERATING_SYSTEM;
}

static struct vd_stream *default_stream_locked(void) {
  struct vd_stream *stream = own_default_stream();
  if (stream != NULL && stream->context == vd_current()) return stream;
  stream = new_locked(CU_STREAM_DEFAULT, 0);
  vd_thread.default_stream = stream;
  vd_thread.default_stream_id = stream != NULL ? stream->id : 0;
  if (stream != NULL) pthread_setspecific(default_stream_key, stream);
  return stream;
}

struct vd_stream *vd_stream_of_locked(CUstream handle) {
  if (handle == NULL || handle == CU_STREAM_LEGACY) return &vd_streams.legacy;
  if (handle == CU_STREAM_PER_THREAD) return default_stream_locked();
  struct vd_stream *stream = (void *)handle;
  return vd_is(stream, VD_STREAM) ? stream : NULL;
}

CUresult vd_cuStreamCreateWithPriority(CUstream *out, unsigned int flags, int priority) {
  if (out == NULL || flags > CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  vd_pass_loads_locked(vd_current());
  struct vd_stream *stream = new_locked(flags, vd_priority_of(priority));
  vd_unlock();
  if (stream == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = (CUstream)(void *)stream;
  return CUDA_SUCCESS;
}

CUresult vd_cuStreamCreate(CUstream *out, unsigned int flags) {
  return vd_cuStreamCreateWithPriority(out, flags, 0);
}

/* Returns at once; the stream's work still finishes. */
CUresult vd_cuStreamDestroy_v2(CUstream handle) {
  vd_lock();
  struct vd_stream *stream = (void *)handle;
  bool own = handle != NULL && handle != CU_STREAM_LEGACY &&
             handle != CU_STREAM_PER_THREAD && vd_is(stream, VD_STREAM);
  if (own) destroy_locked(stream);
  vd_unlock();
  return own ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* -- queries -- */

#define STREAM_QUERY(symbol, type, field)                                                  \
  CUresult vd_##symbol(CUstream handle, type *out) {                                       \
    if (out == NULL) return CUDA_ERROR_INVALID_VALUE;                                      \
    vd_lock();                                                                             \
    const struct vd_stream *stream = vd_stream_of_locked(handle);                          \
    if (stream != NULL) *out = (type)stream->field;                                        \
    vd_unlock();                                                                           \
    return stream != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;                      \
  }
STREAM_QUERY(cuStreamGetPriority, int, settings.priority)
STREAM_QUERY(cuStreamGetFlags, unsigned int, flags)
STREAM_QUERY(cuStreamGetId, unsigned long long, id)

CUresult vd_cuStreamGetCtx(CUstream handle, CUcontext *out) {
  if (out == NULL) return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  const struct vd_stream *stream = vd_stream_of_locked(handle);
  if (stream != NULL)
    *out =
        (CUcontext)(void *)(stream == &vd_streams.legacy ? vd_current() : stream->context);
  vd_unlock();
  return stream != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* There are no green contexts, so no stream belongs to one. */
CUresult vd_cuStreamGetCtx_v2(CUstream handle, CUcontext *out, CUgreenCtx *green) {
  CUresult result = vd_cuStreamGetCtx(handle, out);
  if (result == CUDA_SUCCESS && green != NULL) *green = NULL;
  return result;
}

CUresult vd_cuStreamGetDevice(CUstream handle, CUdevice *out) {
  CUcontext context;
  if (out == NULL) return CUDA_ERROR_INVALID_VALUE;
  *out = 0;
  return vd_cuStreamGetCtx(handle, &context);
}

/* -- attributes -- */

CUresult vd_cuStreamGetAttribute(CUstream handle, int attribute, CUstreamAttrValue *out) {
  if (out == NULL) return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  const struct vd_stream *stream = vd_stream_of_locked(handle);
  CUresult result = stream == NULL
                        ? CUDA_ERROR_INVALID_HANDLE
                        : vd_setting_get(&stream->settings, false, attribute, out);
  vd_unlock();
  return result;
}

CUresult vd_cuStreamSetAttribute(CUstream handle, int attribute,
                                 const CUstreamAttrValue *value) {
  if (value == NULL) return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  struct vd_stream *stream = vd_stream_of_locked(handle);
  CUresult result = stream == NULL
                        ? CUDA_ERROR_INVALID_HANDLE
                        : vd_setting_set(&stream->settings, false, attribute, value);
  vd_unlock();
  return result;
}

CUresult vd_cuStreamCopyAttributes(CUstream to_handle, CUstream from_handle) {
  vd_lock();
  struct vd_stream *to = vd_stream_of_locked(to_handle);
  const struct vd_stream *from = vd_stream_of_locked(from_handle);
  bool known = to != NULL && from != NULL;
  if (known) to->settings = from->settings;
  vd_unlock();
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* Returns the stream, after loads in its context. NULL: invalid. */
static struct vd_stream *after_loads_locked(CUstream handle) {
  const struct vd_stream *stream = vd_stream_of_locked(handle);
  if (stream != NULL) vd_pass_loads_locked(stream->context);
  return vd_stream_of_locked(handle); /* it may have been destroyed meanwhile */
}

CUresult vd_cuStreamQuery(CUstream handle) {
  vd_lock();
  struct vd_stream *stream = after_loads_locked(handle);
  CUresult result = stream == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
  if (result == CUDA_SUCCESS) result = vd_capture_refuse_locked(stream, "cuStreamQuery");
  if (result == CUDA_SUCCESS && !vd_stream_idle_locked(stream))
    result = CUDA_ERROR_NOT_READY;
  vd_unlock();
  return result;
}

CUresult vd_cuStreamSynchronize(CUstream handle) {
  vd_lock();
  struct vd_stream *stream = after_loads_locked(handle);
  CUresult result = stream == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
  if (result == CUDA_SUCCESS)
    result = vd_capture_refuse_locked(stream, "cuStreamSynchronize");
  if (result == CUDA_SUCCESS) result = vd_wait_stream_locked(stream);
  vd_unlock();
  return result;
}

/* -- operations that the CPU ends -- */

static bool call_function(const void *what) {
  const CUDA_HOST_NODE_PARAMS_v1 *host = what;
  host->fn(host->userData);
  return true;
}

struct callback {
  CUstreamCallback function;
  CUstream stream;
  void *user_data;
};

static bool call_back(const void *what) {
  const struct callback *callback = what;
  callback->function(callback->stream, CUDA_SUCCESS, callback->user_data);
  return true;
}

struct vd_action *vd_action_of_host(const CUDA_HOST_NODE_PARAMS_v1 *host) {
  return vd_action_new(VD_PROGRAM, call_function, host, sizeof *host);
}

/* Submits a host operation; `action` NULL: out of memory. */
static CUresult submit_host(struct vd_stream *stream, struct vd_action *action) {
  struct gpu_operation operation = {.kind = GPU_HOST};
  if (action == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  action->ends_operation = true;
  return vd_submit_locked(stream, &operation, action);
}

CUresult vd_host_operation(CUstream handle, enum vd_manner manner, vd_effect_fn run,
                           const void *what, size_t length_bytes) {
  vd_lock();
  struct vd_stream *stream = vd_stream_of_locked(handle);
  CUresult result = stream == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
  if (result == CUDA_SUCCESS)
    result = vd_capture_refuse_locked(stream, "a callback or memory operation");
  if (result == CUDA_SUCCESS) result = vd_capture_implicit_locked(stream);
  if (result == CUDA_SUCCESS)
    result = submit_host(stream, vd_action_new(manner, run, what, length_bytes));
  vd_unlock();
  return result;
}

CUresult vd_host_submit_locked(struct vd_stream *stream,
                               const CUDA_HOST_NODE_PARAMS_v1 *host) {
  return submit_host(stream, vd_action_of_host(host));
}

CUresult vd_cuStreamAddCallback(CUstream handle, CUstreamCallback callback, void *user_data,
                                unsigned int flags) {
  if (callback == NULL || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  struct callback call = {callback, handle, user_data};
  return vd_host_operation(handle, VD_PROGRAM, call_back, &call, sizeof call);
}
