/* copy.c - copies and memsets of one dimension, synchronous and in streams.
 *
 * Every copy becomes one operation of the model and one effect on data. An asynchronous
 * copy from pageable host memory stages the data at the call, or waits if the copy is
 * long. A copy into pageable memory waits. So the program may reuse its buffer when the
 * call returns, as with a real driver.
 *
 * The host moves bytes more slowly than a fast link, and a thread that waits for a copy
 * waits for that too. So with the driver's key copies=modelled (only in timing mode),
 * long copies and memsets have no effect on data, and take exactly the model's time. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "memory.h"

#define STAGED_BYTES (1 << 20) /* longer pageable copies wait instead */
#define LONG_BYTES (1 << 20)   /* from this length, copies=modelled moves no data */

static bool moves_data(uint64_t length_bytes) {
  return !vd.copies_modelled || length_bytes < LONG_BYTES;
}

/* Fills *use with the managed blocks of [address, +length); returns 1, or 0 for none. */
uint32_t vd_uses_of(uint64_t address, uint64_t length_bytes, uint16_t access,
                    struct gpu_use *use) {
  const struct vd_memory *memory = vd_range_find(&vd.managed, address);
  if (memory == NULL || length_bytes == 0) return 0;
  uint64_t end = memory->base + memory->reserved_bytes;
  uint64_t last = length_bytes > end - address ? end - 1 : address + length_bytes - 1;
  uint32_t first = vd_memory_block(memory, address);
  *use = (struct gpu_use){.first_block = first,
                          .block_count = vd_memory_block(memory, last) - first + 1,
                          .access = access};
  return 1;
}

/* One end of a copy. */
struct end {
  const struct vd_memory *memory; /* NULL: pageable host memory */
  bool device;
};

/* Returns false if a device pointer of ours is not live, or its memory too short.
 * `array`: the end is in an array, which has no address for programs. */
static bool end_of(uint64_t address, uint64_t length_bytes, bool array, struct end *end) {
  end->memory = vd_memory_at(address);
  if (array != (end->memory != NULL && end->memory->array != NULL)) return false;
  end->device = end->memory != NULL && end->memory->kind >= VD_PLAIN;
  if (end->memory == NULL)
    return (address < vd.managed.base || address >= vd.managed.end) &&
           (address < vd.plain.base || address >= vd.plain.end) &&
           vd_range_find(&vd.reserved, address) == NULL && address != 0;
  if (end->memory->kind == VD_MAPPED) return length_bytes <= vd_mapped_bytes(address);
  return !end->device ||
         length_bytes <= end->memory->base + end->memory->length_bytes - address;
}

static uint64_t span(const struct vd_copy *copy, size_t pitch, size_t slice) {
  return (copy->depth - 1) * slice + (copy->height - 1) * pitch + copy->width_bytes;
}

/* -- effects on data -- */

static bool copy_bytes(const void *what) {
  const struct vd_copy *copy = what;
  for (size_t z = 0; z < copy->depth; z++)
    for (size_t y = 0; y < copy->height; y++) {
      uint64_t to =
          copy->destination + z * copy->destination_slice + y * copy->destination_pitch;
      uint64_t from = copy->source + z * copy->source_slice + y * copy->source_pitch;
      memmove((void *)to, (const void *)from, copy->width_bytes);
    }
  return true;
}

/* Zeroes bytes. Whole pages of our own memory are dropped: the kernel zeroes them. */
static void zero_bytes(uint64_t begin, uint64_t length_bytes) {
  uint64_t first = (begin + 4095) & ~4095ull, last = (begin + length_bytes) & ~4095ull;
  bool ours = (begin >= vd.managed.base && begin < vd.managed.end) ||
              (begin >= vd.plain.base && begin < vd.plain.end);
  if (ours && last > first + 65536 &&
      madvise((void *)first, last - first, MADV_DONTNEED) == 0) {
    memset((void *)begin, 0, first - begin);
    memset((void *)last, 0, begin + length_bytes - last);
    return;
  }
  memset((void *)begin, 0, length_bytes);
}

static void set_row(uint64_t row, const struct vd_set *set) {
  if (set->value == 0) {
    zero_bytes(row, set->width * set->element_bytes);
  } else if (set->element_bytes == 1) {
    memset((void *)row, (int)set->value, set->width);
  } else if (set->element_bytes == 2) {
    for (size_t i = 0; i < set->width; i++) ((uint16_t *)row)[i] = (uint16_t)set->value;
  } else {
    for (size_t i = 0; i < set->width; i++) ((uint32_t *)row)[i] = set->value;
  }
}

static bool set_bytes(const void *what) {
  const struct vd_set *set = what;
  for (size_t y = 0; y < set->height; y++) set_row(set->destination + y * set->pitch, set);
  return true;
}

/* Copies pageable source memory into the action. */
static bool stage(struct vd_action *action, uint64_t length_bytes) {
  struct vd_copy *copy = (void *)action->what;
  action->owned = malloc(length_bytes);
  if (action->owned == NULL) return false;
  memcpy(action->owned, (const void *)copy->source, length_bytes);
  copy->source = (uint64_t)action->owned;
  return true;
}

/* When a copy waits: see the top of this file. */
enum manner { QUEUED, AS_ASKED, WAITED };

static CUresult submit_copy(struct vd_stream *stream, const struct vd_copy *copy,
                            enum manner manner) {
  if (copy->width_bytes == 0 || copy->height == 0 || copy->depth == 0) return CUDA_SUCCESS;
  uint64_t to_bytes = span(copy, copy->destination_pitch, copy->destination_slice);
  uint64_t from_bytes = span(copy, copy->source_pitch, copy->source_slice);
  struct end to, from;
  if (!end_of(copy->destination, to_bytes, copy->destination_array != NULL, &to) ||
      !end_of(copy->source, from_bytes, copy->source_array != NULL, &from)) {
    vd_log("copy of %llu bytes from 0x%llx to 0x%llx: an address is not live memory, or "
           "its allocation is too short",
           (unsigned long long)from_bytes, (unsigned long long)copy->source,
           (unsigned long long)copy->destination);
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (manner != QUEUED) {
    bool captured = false;
    CUresult result = vd_upcalls.capture_copy(stream, copy, &captured);
    if (captured || result != CUDA_SUCCESS) return result;
  }
  struct gpu_use uses[2];
  struct gpu_operation operation = {.kind = GPU_COPY_LOCAL, .uses = uses};
  operation.use_count = vd_uses_of(copy->source, from_bytes, GPU_READ, &uses[0]);
  operation.use_count +=
      vd_uses_of(copy->destination, to_bytes, GPU_WRITE, &uses[operation.use_count]);
  operation.length_bytes = copy->width_bytes * copy->height * copy->depth;
  if (to.device && !from.device) operation.kind = GPU_COPY_H2D;
  if (!to.device && from.device) operation.kind = GPU_COPY_D2H;
  if (operation.kind == GPU_COPY_LOCAL)
    operation.duration_ns = uvm_profile_fill_ns(&vd.profile, operation.length_bytes);

  struct vd_action *action = NULL;
  if (moves_data(operation.length_bytes)) {
    action = vd_action_new(VD_APART, copy_bytes, copy, sizeof *copy);
    if (action == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  bool wait = manner == WAITED;
  if (manner != QUEUED) {
    bool pageable = from.memory == NULL && !wait;
    bool long_copy = from_bytes > STAGED_BYTES;
    if (pageable && (long_copy || (action != NULL && !stage(action, from_bytes))))
      wait = true;
    if (to.memory == NULL) wait = true;
  }
  CUresult result = vd_submit_locked(stream, &operation, action);
  if (result == CUDA_SUCCESS && wait) result = vd_wait_stream_locked(stream);
  return result;
}

CUresult vd_copy_submit_locked(struct vd_stream *stream, const struct vd_copy *copy) {
  return submit_copy(stream, copy, QUEUED);
}

CUresult vd_copy(CUstream handle, const struct vd_copy *copy, bool synchronous,
                 const char *what) {
  vd_lock();
  struct vd_stream *stream = vd_stream_of_locked(handle);
  CUresult result = stream == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
  if (result == CUDA_SUCCESS && synchronous) result = vd_capture_unsafe_locked(what);
  if (result == CUDA_SUCCESS)
    result = submit_copy(stream, copy, synchronous ? WAITED : AS_ASKED);
  vd_unlock();
  return result;
}

static CUresult linear(CUstream stream, uint64_t destination, uint64_t source,
                       size_t length_bytes, bool synchronous, const char *what) {
  struct vd_copy copy = {.destination = destination,
                         .source = source,
                         .width_bytes = length_bytes,
                         .height = 1,
                         .depth = 1};
  return vd_copy(stream, &copy, synchronous, what);
}

CUresult vd_cuMemcpy(CUstream stream, CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return linear(stream, to, from, bytes, true, "cuMemcpy");
}
CUresult vd_cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return linear(stream, to, from, bytes, false, "cuMemcpyAsync");
}
CUresult vd_cuMemcpyPeer(CUstream stream, CUdeviceptr to, CUcontext to_context,
                         CUdeviceptr from, CUcontext from_context, size_t bytes) {
  (void)to_context, (void)from_context; /* one device */
  return linear(stream, to, from, bytes, true, "cuMemcpyPeer");
}
CUresult vd_cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                              CUcontext from_context, size_t bytes, CUstream stream) {
  (void)to_context, (void)from_context;
  return linear(stream, to, from, bytes, false, "cuMemcpyPeerAsync");
}
CUresult vd_cuMemcpyHtoD_v2(CUstream stream, CUdeviceptr to, const void *from,
                            size_t bytes) {
  return linear(stream, to, (uint64_t)from, bytes, true, "cuMemcpyHtoD");
}
CUresult vd_cuMemcpyDtoH_v2(CUstream stream, void *to, CUdeviceptr from, size_t bytes) {
  return linear(stream, (uint64_t)to, from, bytes, true, "cuMemcpyDtoH");
}
/* Returns at once, as the real call does: both ends are in stream order. */
CUresult vd_cuMemcpyDtoD_v2(CUstream stream, CUdeviceptr to, CUdeviceptr from,
                            size_t bytes) {
  return linear(stream, to, from, bytes, false, "cuMemcpyDtoD");
}
CUresult vd_cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes,
                                 CUstream stream) {
  return linear(stream, to, (uint64_t)from, bytes, false, "cuMemcpyHtoDAsync");
}
CUresult vd_cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes,
                                 CUstream stream) {
  return linear(stream, (uint64_t)to, from, bytes, false, "cuMemcpyDtoHAsync");
}
CUresult vd_cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                                 CUstream stream) {
  return linear(stream, to, from, bytes, false, "cuMemcpyDtoDAsync");
}

CUresult vd_cuMemcpyWithAttributesAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                                        CUmemcpyAttributes *attributes, CUstream stream) {
  if (attributes == NULL) return CUDA_ERROR_INVALID_VALUE;
  return linear(stream, to, from, bytes, false, "cuMemcpyWithAttributesAsync");
}

/* `*failed`: the index of the refused copy; SIZE_MAX: the call itself was refused. */
CUresult vd_cuMemcpyBatchAsync(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes,
                               size_t count, CUmemcpyAttributes *attributes,
                               size_t *attribute_indices, size_t attribute_count,
                               size_t *failed, CUstream stream) {
  (void)attributes, (void)attribute_indices, (void)attribute_count;
  size_t unused;
  if (failed == NULL) failed = &unused;
  *failed = SIZE_MAX;
  if (count == 0 || to == NULL || from == NULL || bytes == NULL)
    return CUDA_ERROR_INVALID_VALUE;
  if (stream == NULL || stream == CU_STREAM_LEGACY) return CUDA_ERROR_INVALID_HANDLE;
  for (size_t i = 0; i < count; i++) {
    CUresult result = linear(stream, to[i], from[i], bytes[i], false, "cuMemcpyBatchAsync");
    if (result != CUDA_SUCCESS) {
      *failed = i;
      return result;
    }
  }
  return CUDA_SUCCESS;
}

CUresult vd_cuMemcpyBatchAsync_v2(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes,
                                  size_t count, CUmemcpyAttributes *attributes,
                                  size_t *attribute_indices, size_t attribute_count,
                                  CUstream stream) {
  return vd_cuMemcpyBatchAsync(to, from, bytes, count, attributes, attribute_indices,
                               attribute_count, NULL, stream);
}

/* -- memset -- */

/* Computes the length from the first to the last byte; false: the memset is invalid. */
static bool extent_of(const struct vd_set *what, uint64_t *length_bytes) {
  uint64_t row, gaps;
  return !__builtin_mul_overflow(what->width, what->element_bytes, &row) &&
         what->destination % what->element_bytes == 0 &&
         (what->height <= 1 || what->pitch >= row) &&
         !__builtin_mul_overflow(what->height - 1, what->pitch, &gaps) &&
         !__builtin_add_overflow(gaps, row, length_bytes);
}

/* Returns whether a synchronous memset waits: only for host and managed memory. */
static bool waits_for_set(const struct vd_memory *memory) {
  return memory->kind < VD_PLAIN || memory->kind == VD_MANAGED;
}

CUresult vd_set_submit_locked(struct vd_stream *stream, const struct vd_set *what) {
  struct end end;
  uint64_t total;
  if (what->width == 0 || what->height == 0) return CUDA_SUCCESS;
  if (!extent_of(what, &total) || !end_of(what->destination, total, false, &end) ||
      end.memory == NULL)
    return CUDA_ERROR_INVALID_VALUE;
  struct vd_action *action = NULL;
  struct gpu_use use;
  struct gpu_operation operation = {.kind = GPU_MEMSET, .uses = &use};
  operation.use_count = vd_uses_of(what->destination, total, GPU_WRITE, &use);
  operation.length_bytes = what->width * what->element_bytes * what->height;
  operation.duration_ns = uvm_profile_fill_ns(&vd.profile, operation.length_bytes);
  if (moves_data(operation.length_bytes)) {
    action = vd_action_new(VD_APART, set_bytes, what, sizeof *what);
    if (action == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  return vd_submit_locked(stream, &operation, action);
}

static CUresult set(CUstream handle, const struct vd_set *what, bool synchronous,
                    const char *name) {
  uint64_t total;
  if (what->width == 0 || what->height == 0) return CUDA_SUCCESS;
  if (!extent_of(what, &total)) return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  struct vd_stream *stream = vd_stream_of_locked(handle);
  CUresult result = stream == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
  if (result == CUDA_SUCCESS && synchronous) result = vd_capture_unsafe_locked(name);
  struct end end;
  if (result == CUDA_SUCCESS &&
      (!end_of(what->destination, total, false, &end) || end.memory == NULL))
    result = CUDA_ERROR_INVALID_VALUE;
  bool captured = false, waits = result == CUDA_SUCCESS && waits_for_set(end.memory);
  if (result == CUDA_SUCCESS) result = vd_upcalls.capture_set(stream, what, &captured);
  if (result == CUDA_SUCCESS && !captured) result = vd_set_submit_locked(stream, what);
  if (result == CUDA_SUCCESS && synchronous && waits)
    result = vd_wait_stream_locked(stream);
  vd_unlock();
  return result;
}

#define SET(address, elements, rows, row_pitch, number, bytes)                             \
  (&(struct vd_set){address, elements, rows, row_pitch, number, bytes})

#define SETS(suffix, type, bytes)                                                          \
  CUresult vd_cuMemset##suffix##_v2(CUstream stream, CUdeviceptr address, type value,      \
                                    size_t count) {                                        \
    return set(stream, SET(address, count, 1, 0, value, bytes), true, "cuMemset" #suffix); \
  }                                                                                        \
  CUresult vd_cuMemset##suffix##Async(CUdeviceptr address, type value, size_t count,       \
                                      CUstream stream) {                                   \
    return set(stream, SET(address, count, 1, 0, value, bytes), false, "cuMemsetAsync");   \
  }                                                                                        \
  CUresult vd_cuMemsetD2##suffix##_v2(CUstream stream, CUdeviceptr address, size_t pitch,  \
                                      type value, size_t width, size_t height) {           \
    return set(stream, SET(address, width, height, pitch, value, bytes), true,             \
               "cuMemsetD2" #suffix);                                                      \
  }                                                                                        \
  CUresult vd_cuMemsetD2##suffix##Async(CUdeviceptr address, size_t pitch, type value,     \
                                        size_t width, size_t height, CUstream stream) {    \
    return set(stream, SET(address, width, height, pitch, value, bytes), false,            \
               "cuMemsetD2Async");                                                         \
  }

SETS(D8, unsigned char, 1)
SETS(D16, unsigned short, 2)
SETS(D32, unsigned int, 4)
