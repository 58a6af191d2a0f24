/* copy.c - hooks of copies and memsets: operations with exact extents.
 *
 * Asynchronous forms are recorded after their real call. Other forms, and asynchronous
 * copies into pageable memory, may block until earlier work is done, so they are recorded
 * before the call. When a blocking copy to the host returns, the copy and all earlier work
 * on its stream have executed. The hooks for copies of rows, boxes, batches and arrays are
 * in copy_nd.c.
 */
#include <errno.h>

#include "copy.h"

static uint64_t address_of(const void *pointer) {
  return (uint64_t)(uintptr_t)pointer;
}

static struct pump_token copying(uint64_t to, uint64_t from, size_t bytes,
                                 struct pump_at at) {
  struct pump_op op;
  pump_copy_extents(&op, to, from, bytes);
  return pump_copy_begin(&op, at);
}

void pump_copy_arrived(struct pump_token token, struct pump_at at) {
  if (token.seq == 0) return;
  int saved = errno;
  pump_enter();
  pump_progress_issued(token.stream_index, at.stream, token.seq, token.time_ns,
                       token.touched_bytes);
  pump_progress_stream_synced(token.stream_index, token.seq);
  pump_event_sync(token.stream_index, token.seq, token.time_ns);
  pump_leave();
  errno = saved;
}

struct pump_token pump_copy_announce_wait(struct pump_op *op, uint64_t to,
                                          struct pump_at at) {
  unsigned int type = 0;
  struct pump_token none = {0, 0, 0, 0};
  bool known = to == 0 || op->count == 0 ||
               pump_real.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                               to) != CUDA_ERROR_INVALID_VALUE;
  return known ? none : pump_copy_begin(op, at);
}

void pump_copy_follow(struct pump_op *op, struct pump_token token, struct pump_at at) {
  if (token.seq == 0) {
    pump_copy_report(op, at);
    return;
  }
  int saved = errno;
  pump_op_issued(token, at);
  pump_enter();
  pump_event_sync(token.stream_index, token.seq, token.time_ns);
  pump_leave();
  errno = saved;
}

#define HOOK_COPY_BLOCKING(name, per_thread, after, parameters, arguments)                 \
  CUresult name parameters {                                                               \
    if (pump_copy_refused(TO, FROM, bytes)) return CUDA_ERROR_INVALID_VALUE;               \
    if (pump_quiet()) return pump_real.name arguments;                                     \
    struct pump_at at = pump_at(NULL, per_thread);                                         \
    struct pump_token token = copying(TO, FROM, bytes, at);                                \
    CUresult result = pump_real.name arguments;                                            \
    if (result == CUDA_SUCCESS) after(token, at);                                          \
    return result;                                                                         \
  }

/* `may_wait`: the destination may be pageable memory. */
#define HOOK_COPY_ASYNC(name, per_thread, may_wait, parameters, arguments)                 \
  CUresult name parameters {                                                               \
    if (pump_copy_refused(TO, FROM, bytes)) return CUDA_ERROR_INVALID_VALUE;               \
    if (pump_quiet()) return pump_real.name arguments;                                     \
    struct pump_at at = pump_at(stream, per_thread);                                       \
    struct pump_token token = {0, 0, 0, 0};                                                \
    struct pump_op op;                                                                     \
    pump_copy_extents(&op, TO, FROM, bytes);                                               \
    if (may_wait) token = pump_copy_announce_wait(&op, TO, at);                            \
    pump_op_begin_timing(at, token.seq == 0);                                              \
    CUresult result = pump_real.name arguments;                                            \
    if (result == CUDA_SUCCESS) pump_copy_follow(&op, token, at);                          \
    pump_op_end_timing();                                                                  \
    return result;                                                                         \
  }

/* TO and FROM: the two addresses, with the types of the family. */
#define TO to
#define FROM from
#define PLAIN (CUdeviceptr to, CUdeviceptr from, size_t bytes)
#define PLAIN_ASYNC (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
#define PEER                                                                               \
  (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,         \
   size_t bytes)
#define PEER_ASYNC                                                                         \
  (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,         \
   size_t bytes, CUstream stream)
HOOK_COPY_BLOCKING(cuMemcpy, false, pump_op_issued, PLAIN, (to, from, bytes))
HOOK_COPY_BLOCKING(cuMemcpy_ptds, true, pump_op_issued, PLAIN, (to, from, bytes))
HOOK_COPY_BLOCKING(cuMemcpyDtoD_v2, false, pump_op_issued, PLAIN, (to, from, bytes))
HOOK_COPY_BLOCKING(cuMemcpyDtoD_v2_ptds, true, pump_op_issued, PLAIN, (to, from, bytes))
HOOK_COPY_BLOCKING(cuMemcpyPeer, false, pump_op_issued, PEER,
                   (to, to_context, from, from_context, bytes))
HOOK_COPY_BLOCKING(cuMemcpyPeer_ptds, true, pump_op_issued, PEER,
                   (to, to_context, from, from_context, bytes))
HOOK_COPY_ASYNC(cuMemcpyAsync, false, true, PLAIN_ASYNC, (to, from, bytes, stream))
HOOK_COPY_ASYNC(cuMemcpyAsync_ptsz, true, true, PLAIN_ASYNC, (to, from, bytes, stream))
HOOK_COPY_ASYNC(cuMemcpyDtoDAsync_v2, false, false, PLAIN_ASYNC, (to, from, bytes, stream))
HOOK_COPY_ASYNC(cuMemcpyDtoDAsync_v2_ptsz, true, false, PLAIN_ASYNC,
                (to, from, bytes, stream))
HOOK_COPY_ASYNC(cuMemcpyPeerAsync, false, false, PEER_ASYNC,
                (to, to_context, from, from_context, bytes, stream))
HOOK_COPY_ASYNC(cuMemcpyPeerAsync_ptsz, true, false, PEER_ASYNC,
                (to, to_context, from, from_context, bytes, stream))
#define WITH_ATTRIBUTES                                                                    \
  (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUmemcpyAttributes *attributes,         \
   CUstream stream)
HOOK_COPY_ASYNC(cuMemcpyWithAttributesAsync, false, true, WITH_ATTRIBUTES,
                (to, from, bytes, attributes, stream))
HOOK_COPY_ASYNC(cuMemcpyWithAttributesAsync_ptsz, true, true, WITH_ATTRIBUTES,
                (to, from, bytes, attributes, stream))

#undef FROM
#define FROM address_of(from)
#define H_TO_D (CUdeviceptr to, const void *from, size_t bytes)
#define H_TO_D_ASYNC (CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
HOOK_COPY_BLOCKING(cuMemcpyHtoD_v2, false, pump_op_issued, H_TO_D, (to, from, bytes))
HOOK_COPY_BLOCKING(cuMemcpyHtoD_v2_ptds, true, pump_op_issued, H_TO_D, (to, from, bytes))
HOOK_COPY_ASYNC(cuMemcpyHtoDAsync_v2, false, false, H_TO_D_ASYNC, (to, from, bytes, stream))
HOOK_COPY_ASYNC(cuMemcpyHtoDAsync_v2_ptsz, true, false, H_TO_D_ASYNC,
                (to, from, bytes, stream))

#undef TO
#undef FROM
#define TO address_of(to)
#define FROM from
#define D_TO_H (void *to, CUdeviceptr from, size_t bytes)
#define D_TO_H_ASYNC (void *to, CUdeviceptr from, size_t bytes, CUstream stream)
HOOK_COPY_BLOCKING(cuMemcpyDtoH_v2, false, pump_copy_arrived, D_TO_H, (to, from, bytes))
HOOK_COPY_BLOCKING(cuMemcpyDtoH_v2_ptds, true, pump_copy_arrived, D_TO_H, (to, from, bytes))
HOOK_COPY_ASYNC(cuMemcpyDtoHAsync_v2, false, true, D_TO_H_ASYNC, (to, from, bytes, stream))
HOOK_COPY_ASYNC(cuMemcpyDtoHAsync_v2_ptsz, true, true, D_TO_H_ASYNC,
                (to, from, bytes, stream))

/* ---- memsets -------------------------------------------------------------- */

static void set(uint64_t to, uint64_t pitch, uint64_t row_bytes, uint64_t height,
                struct pump_at at) {
  struct pump_op op;
  pump_set_extents(&op, to, pitch, row_bytes, height);
  if (op.count != 0) pump_op_report(&op, PUMP_EVENT_MEMSET, 0, at);
}

static struct pump_token setting(uint64_t to, uint64_t pitch, uint64_t row_bytes,
                                 uint64_t height, struct pump_at at) {
  struct pump_op op;
  struct pump_token none = {0, 0, 0, 0};
  pump_set_extents(&op, to, pitch, row_bytes, height);
  return op.count == 0 ? none : pump_op_announce(&op, PUMP_EVENT_MEMSET, 0, at);
}

/* Returns 0 on overflow: then the driver refuses the call. */
static uint64_t bytes_of(uint64_t elements, uint64_t element_bytes) {
  uint64_t bytes;
  return __builtin_mul_overflow(elements, element_bytes, &bytes) ? 0 : bytes;
}

static bool set_refused(uint64_t to, uint64_t pitch, uint64_t row_bytes, uint64_t height) {
  const struct pump_box box = {.width_bytes = row_bytes,
                               .height = height,
                               .depth = 1,
                               .to = {.address = to, .pitch = pitch}};
  return pump_box_refused(&box);
}

/* Hooks a memset without "Async". On managed memory it waits until it is done (documented
 * behaviour of the driver); on device memory it does not wait. */
#define HOOK_SET_BLOCKING(name, per_thread, pitch, row_bytes, height, parameters,          \
                          arguments)                                                       \
  CUresult name parameters {                                                               \
    if (set_refused(to, pitch, row_bytes, height)) return CUDA_ERROR_INVALID_VALUE;        \
    if (pump_quiet()) return pump_real.name arguments;                                     \
    struct pump_at at = pump_at(NULL, per_thread);                                         \
    struct pump_token token = setting(to, pitch, row_bytes, height, at);                   \
    CUresult result = pump_real.name arguments;                                            \
    if (result == CUDA_SUCCESS) pump_op_issued(token, at);                                 \
    return result;                                                                         \
  }

#define HOOK_SET_ASYNC(name, per_thread, pitch, row_bytes, height, parameters, arguments)  \
  CUresult name parameters {                                                               \
    if (set_refused(to, pitch, row_bytes, height)) return CUDA_ERROR_INVALID_VALUE;        \
    if (pump_quiet()) return pump_real.name arguments;                                     \
    CUresult result = pump_real.name arguments;                                            \
    if (result == CUDA_SUCCESS)                                                            \
      set(to, pitch, row_bytes, height, pump_at(stream, per_thread));                      \
    return result;                                                                         \
  }

#define HOOKS_SET(bits, type)                                                              \
  HOOK_SET_BLOCKING(cuMemsetD##bits##_v2, false, 0, bytes_of(count, sizeof(type)), 1,      \
                    (CUdeviceptr to, type value, size_t count), (to, value, count))        \
  HOOK_SET_BLOCKING(cuMemsetD##bits##_v2_ptds, true, 0, bytes_of(count, sizeof(type)), 1,  \
                    (CUdeviceptr to, type value, size_t count), (to, value, count))        \
  HOOK_SET_ASYNC(cuMemsetD##bits##Async, false, 0, bytes_of(count, sizeof(type)), 1,       \
                 (CUdeviceptr to, type value, size_t count, CUstream stream),              \
                 (to, value, count, stream))                                               \
  HOOK_SET_ASYNC(cuMemsetD##bits##Async_ptsz, true, 0, bytes_of(count, sizeof(type)), 1,   \
                 (CUdeviceptr to, type value, size_t count, CUstream stream),              \
                 (to, value, count, stream))                                               \
  HOOK_SET_BLOCKING(                                                                       \
      cuMemsetD2D##bits##_v2, false, pitch, bytes_of(width, sizeof(type)), height,         \
      (CUdeviceptr to, size_t pitch, type value, size_t width, size_t height),             \
      (to, pitch, value, width, height))                                                   \
  HOOK_SET_BLOCKING(                                                                       \
      cuMemsetD2D##bits##_v2_ptds, true, pitch, bytes_of(width, sizeof(type)), height,     \
      (CUdeviceptr to, size_t pitch, type value, size_t width, size_t height),             \
      (to, pitch, value, width, height))                                                   \
  HOOK_SET_ASYNC(cuMemsetD2D##bits##Async, false, pitch, bytes_of(width, sizeof(type)),    \
                 height,                                                                   \
                 (CUdeviceptr to, size_t pitch, type value, size_t width, size_t height,   \
                  CUstream stream),                                                        \
                 (to, pitch, value, width, height, stream))                                \
  HOOK_SET_ASYNC(cuMemsetD2D##bits##Async_ptsz, true, pitch,                               \
                 bytes_of(width, sizeof(type)), height,                                    \
                 (CUdeviceptr to, size_t pitch, type value, size_t width, size_t height,   \
                  CUstream stream),                                                        \
                 (to, pitch, value, width, height, stream))

HOOKS_SET(8, unsigned char)
HOOKS_SET(16, unsigned short)
HOOKS_SET(32, unsigned int)

/* ---- the program's own prefetches and discards ----------------------------- */

/* Returns whether a hint is refused. Device memory can be neither prefetched nor
 * discarded (cuda.h: only managed or pageable memory). Converted memory must behave the
 * same, since the driver would move it without the worker's knowledge. */
static bool hints_refused(const CUdeviceptr *addresses, size_t count) {
  if (pump_inert() || !pump_list_given(addresses, count, sizeof *addresses)) return false;
  for (size_t i = 0; i < count; i++)
    if (pump_converted(addresses[i])) return true;
  return false;
}

#define HOOK_HINT(name, at, parameters, arguments)                                         \
  CUresult name parameters {                                                               \
    if (hints_refused(&address, 1)) return CUDA_ERROR_INVALID_VALUE;                       \
    if (pump_quiet()) return pump_real.name arguments;                                     \
    CUresult result = pump_real.name arguments;                                            \
    if (result == CUDA_SUCCESS) pump_event_hint(address, bytes, at);                       \
    return result;                                                                         \
  }

#define PREFETCH (CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream)
#define PREFETCH_V2                                                                        \
  (CUdeviceptr address, size_t bytes, CUmemLocation location, unsigned int flags,          \
   CUstream stream)
HOOK_HINT(cuMemPrefetchAsync, pump_at(stream, false), PREFETCH,
          (address, bytes, device, stream))
HOOK_HINT(cuMemPrefetchAsync_ptsz, pump_at(stream, true), PREFETCH,
          (address, bytes, device, stream))
HOOK_HINT(cuMemPrefetchAsync_v2, pump_at(stream, false), PREFETCH_V2,
          (address, bytes, location, flags, stream))
HOOK_HINT(cuMemPrefetchAsync_v2_ptsz, pump_at(stream, true), PREFETCH_V2,
          (address, bytes, location, flags, stream))

#define HOOK_HINTS(name, per_thread, parameters, arguments)                                \
  CUresult name parameters {                                                               \
    if (hints_refused(addresses, count)) return CUDA_ERROR_INVALID_VALUE;                  \
    if (pump_quiet()) return pump_real.name arguments;                                     \
    CUresult result = pump_real.name arguments;                                            \
    for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++)                           \
      pump_event_hint(addresses[i], lengths[i], pump_at(stream, per_thread));              \
    return result;                                                                         \
  }

#define PREFETCHES                                                                         \
  (CUdeviceptr * addresses, size_t *lengths, size_t count, CUmemLocation *locations,       \
   size_t *indices, size_t location_count, unsigned long long flags, CUstream stream)
#define PREFETCHES_ARGUMENTS                                                               \
  (addresses, lengths, count, locations, indices, location_count, flags, stream)
#define DISCARDS                                                                           \
  (CUdeviceptr * addresses, size_t *lengths, size_t count, unsigned long long flags,       \
   CUstream stream)
HOOK_HINTS(cuMemPrefetchBatchAsync, false, PREFETCHES, PREFETCHES_ARGUMENTS)
HOOK_HINTS(cuMemPrefetchBatchAsync_ptsz, true, PREFETCHES, PREFETCHES_ARGUMENTS)
HOOK_HINTS(cuMemDiscardBatchAsync, false, DISCARDS,
           (addresses, lengths, count, flags, stream))
HOOK_HINTS(cuMemDiscardBatchAsync_ptsz, true, DISCARDS,
           (addresses, lengths, count, flags, stream))
HOOK_HINTS(cuMemDiscardAndPrefetchBatchAsync, false, PREFETCHES, PREFETCHES_ARGUMENTS)
HOOK_HINTS(cuMemDiscardAndPrefetchBatchAsync_ptsz, true, PREFETCHES, PREFETCHES_ARGUMENTS)
