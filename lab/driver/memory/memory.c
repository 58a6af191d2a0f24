/* memory.c - allocation, free, and information about an address.
 *
 * Managed memory owns whole 2 MiB blocks of one arena and may exceed the GPU's memory.
 * Plain memory is taken from the GPU at once. Both are host memory here, mapped without
 * reservation and returned to the kernel when freed. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "memory.h"

#define PLAIN_GRAIN 512 /* the driver guarantees this alignment */

uint32_t vd_memory_block(const struct vd_memory *memory, uint64_t address) {
  (void)memory;
  return vd.first_block + (uint32_t)((address - vd.managed.base) / GPU_BLOCK_BYTES);
}

static struct vd_range_set *set_of(enum vd_memory_kind kind) {
  if (kind == VD_MANAGED) return &vd.managed;
  return kind == VD_PLAIN ? &vd.plain : &vd.host;
}

int vd_plain_reserve_locked(uint64_t length_bytes, struct gpu_cost *cost) {
  int result = gpu_plain_reserve(vd.engine, vd_now_ns(), &vd_hooks, length_bytes, cost);
  if (result != GPU_NO_MEMORY || vd_card_reclaim_locked() == 0) return result;
  return gpu_plain_reserve(vd.engine, vd_now_ns(), &vd_hooks, length_bytes, cost);
}

#define MAPPING_NS 10000 /* order of magnitude of mmap or munmap */

/* Returns when a mapping call, under the address space's lock, ends; not before `other_ns`,
 * when the call's other work ends. */
static uint64_t mapping_ns(uint64_t other_ns) {
  uint64_t end_ns = gpu_map_memory(vd.engine, vd_now_ns(), &vd_hooks, MAPPING_NS);
  return end_ns > other_ns ? end_ns : other_ns;
}

static CUresult reserve(struct vd_memory *memory, struct gpu_cost *cost) {
  int result = GPU_OK;
  uint64_t grain = memory->kind == VD_MANAGED ? GPU_BLOCK_BYTES : PLAIN_GRAIN;
  memory->reserved_bytes = (memory->length_bytes + grain - 1) / grain * grain;
  if (memory->kind == VD_PLAIN && memory->reserved_bytes > vd.plain.end - vd.plain.base)
    return CUDA_ERROR_OUT_OF_MEMORY;
  memory->base =
      vd_range_gap(set_of(memory->kind), memory->reserved_bytes,
                   memory->length_bytes >= GPU_BLOCK_BYTES ? GPU_BLOCK_BYTES : grain);
  if (memory->base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  if (memory->of_graph) {
    result = GPU_OK; /* only addresses, until a launch */
  } else if (memory->kind == VD_PLAIN) {
    result = vd_plain_reserve_locked(memory->reserved_bytes, cost);
  } else {
    result = gpu_range_create(vd.engine, vd_now_ns(), &vd_hooks,
                              vd_memory_block(memory, memory->base),
                              (uint32_t)(memory->reserved_bytes / GPU_BLOCK_BYTES));
    if (vd.locks != 0) cost->caller_free_ns = cost->waits_until_ns = mapping_ns(0);
  }
  return result == GPU_OK ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult new_memory(enum vd_memory_kind kind, uint64_t length_bytes, bool of_graph,
                           struct vd_memory **out) {
  if (length_bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (length_bytes > UINT64_MAX / 2) return CUDA_ERROR_OUT_OF_MEMORY;
  struct vd_memory *memory = calloc(1, sizeof *memory);
  if (memory == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  memory->kind = kind;
  memory->length_bytes = length_bytes;
  memory->of_graph = of_graph;
  memory->context = of_graph ? NULL : vd_current();
  struct gpu_cost cost = {0};
  struct vd_begun begun = vd_begin();
  CUresult result = reserve(memory, &cost);
  if (result == CUDA_SUCCESS && vd_range_add(set_of(kind), memory) != 0)
    result = CUDA_ERROR_OUT_OF_MEMORY;
  if (result != CUDA_SUCCESS) {
    free(memory);
    return result;
  }
  memory->id = vd.next_id++;
  *out = memory;
  vd_pay_locked(begun, &cost); /* pays for evictions; other threads do not know it yet */
  return CUDA_SUCCESS;
}

CUresult vd_memory_new(enum vd_memory_kind kind, uint64_t length_bytes,
                       struct vd_memory **out) {
  return new_memory(kind, length_bytes, false, out);
}

CUresult vd_graph_memory_new(uint64_t length_bytes, struct vd_memory **out) {
  return new_memory(VD_PLAIN, length_bytes, true, out);
}

/* Releases memory that no pending work uses; the caller ensures that. Returns the time
 * until which the model keeps the caller busy. */
uint64_t vd_memory_release(struct vd_memory *memory) {
  struct gpu_cost cost = {0};
  vd_range_remove(set_of(memory->kind), memory);
  /* Only whole pages: neighbours may use the first and the last one. */
  uint64_t first = (memory->base + 4095) & ~4095ull;
  uint64_t last = (memory->base + memory->reserved_bytes) & ~4095ull;
  if (last > first) madvise((void *)first, last - first, MADV_DONTNEED);
  if (memory->kind == VD_MANAGED)
    gpu_range_destroy(vd.engine, vd_now_ns(), &vd_hooks,
                      vd_memory_block(memory, memory->base),
                      (uint32_t)(memory->reserved_bytes / GPU_BLOCK_BYTES), &cost);
  if (memory->kind == VD_PLAIN && (!memory->of_graph || memory->backed))
    gpu_plain_release(vd.engine, vd_now_ns(), &vd_hooks, memory->reserved_bytes);
  if (memory->pool != NULL) memory->pool->used_bytes -= memory->reserved_bytes;
  free(memory->array);
  free(memory);
  return vd.locks == 0 ? cost.complete_ns : mapping_ns(cost.complete_ns);
}

/* Releases the context's own memory; pools' and libraries' memory belongs to no context. */
void vd_memory_drop_context_locked(const struct vd_context *context) {
  struct vd_range_set *const sets[] = {&vd.managed, &vd.plain};
  for (int s = 0; s < 2; s++)
    for (size_t i = sets[s]->count; i-- > 0;) {
      struct vd_memory *memory = sets[s]->entries[i].memory;
      if (memory->context == context && memory->pool == NULL) vd_memory_release(memory);
    }
}

static CUresult allocate(enum vd_memory_kind kind, CUdeviceptr *out, size_t length_bytes,
                         unsigned int flags, const char *what) {
  if (out == NULL) return CUDA_ERROR_INVALID_VALUE;
  struct vd_memory *memory;
  vd_lock();
  CUresult result = vd_capture_unsafe_locked(what);
  if (result == CUDA_SUCCESS) result = vd_memory_new(kind, length_bytes, &memory);
  if (result == CUDA_SUCCESS) {
    memory->flags = flags;
    *out = memory->base;
  }
  vd_unlock();
  if (result == CUDA_ERROR_OUT_OF_MEMORY)
    vd_log("%s: cannot allocate %zu bytes", what, length_bytes);
  return result;
}

CUresult vd_cuMemAlloc_v2(CUdeviceptr *out, size_t length_bytes) {
  return allocate(VD_PLAIN, out, length_bytes, 0, "cuMemAlloc");
}

CUresult vd_cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width_bytes,
                               size_t height, unsigned int element_bytes) {
  if (out == NULL || pitch == NULL || width_bytes == 0 || height == 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (element_bytes != 4 && element_bytes != 8 && element_bytes != 16)
    return CUDA_ERROR_INVALID_VALUE;
  size_t row = (width_bytes + 511) / 512 * 512, total;
  if (row < width_bytes || __builtin_mul_overflow(row, height, &total))
    return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = allocate(VD_PLAIN, out, total, 0, "cuMemAllocPitch");
  if (result == CUDA_SUCCESS) *pitch = row;
  return result;
}

CUresult vd_cuMemAllocManaged(CUdeviceptr *out, size_t length_bytes, unsigned int flags) {
  if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)
    return CUDA_ERROR_INVALID_VALUE;
  return allocate(VD_MANAGED, out, length_bytes, flags, "cuMemAllocManaged");
}

/* Waits for all work, as the real call does. */
CUresult vd_cuMemFree_v2(CUdeviceptr address) {
  if (address == 0) return CUDA_SUCCESS;
  vd_lock();
  CUresult result = vd_capture_unsafe_locked("cuMemFree");
  if (result == CUDA_SUCCESS) {
    struct vd_memory *memory = vd_memory_at(address);
    if (memory == NULL || memory->base != address || memory->array != NULL ||
        memory->freed || (memory->kind != VD_PLAIN && memory->kind != VD_MANAGED)) {
      vd.checks.free_unknown++;
      vd_log("cuMemFree: 0x%llx is not a live allocation", address);
      result = CUDA_ERROR_INVALID_VALUE;
    } else if (memory->of_graph) {
      vd_wait_device_locked();
      memory = vd_memory_at(address);
      result = memory != NULL && memory->of_graph ? vd_upcalls.graph_memory_free(memory)
                                                  : CUDA_ERROR_INVALID_VALUE;
    } else {
      uint64_t id = memory->id;
      vd_wait_device_locked();
      memory = vd_memory_at(address); /* another thread may have freed it during the wait */
      if (memory != NULL && memory->id == id)
        vd_wait_until_locked(vd_memory_release(memory));
      else
        result = CUDA_ERROR_INVALID_VALUE;
    }
  }
  vd_unlock();
  return result;
}

CUresult vd_cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
  struct gpu_memory memory;
  vd_lock();
  vd_card_reclaim_locked();
  gpu_advance(vd.engine, vd_now_ns(), &vd_hooks);
  gpu_memory_get(vd.engine, &memory);
  vd_unlock();
  if (free_bytes != NULL) *free_bytes = memory.free_bytes;
  if (total_bytes != NULL) *total_bytes = memory.total_bytes;
  return CUDA_SUCCESS;
}

CUresult vd_cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *length_bytes,
                                    CUdeviceptr address) {
  vd_lock();
  const struct vd_memory *memory = vd_memory_at(address);
  if (memory != NULL && base != NULL) *base = memory->base;
  if (memory != NULL && length_bytes != NULL) *length_bytes = memory->length_bytes;
  vd_unlock();
  return memory != NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

/* -- host memory -- */

static CUresult host_add(uint64_t base, uint64_t length_bytes, enum vd_memory_kind kind,
                         unsigned int flags) {
  struct vd_memory *memory = calloc(1, sizeof *memory);
  if (memory == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  *memory = (struct vd_memory){.base = base,
                               .length_bytes = length_bytes,
                               .reserved_bytes = length_bytes,
                               .kind = kind,
                               .flags = flags,
                               .id = vd.next_id++,
                               .context = vd_current()};
  if (vd_range_add(&vd.host, memory) == 0) return CUDA_SUCCESS;
  free(memory);
  return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}

CUresult vd_cuMemHostAlloc(void **out, size_t length_bytes, unsigned int flags) {
  if (out == NULL || length_bytes == 0 || flags > 7) return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  CUresult result = vd_capture_unsafe_locked("cuMemHostAlloc");
  if (result == CUDA_SUCCESS) {
    void *start = mmap(NULL, length_bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
      result = CUDA_ERROR_OUT_OF_MEMORY;
    else
      result = host_add((uint64_t)start, length_bytes, VD_HOST_PINNED, flags);
    if (result == CUDA_SUCCESS) *out = start;
  }
  vd_unlock();
  return result;
}

CUresult vd_cuMemAllocHost_v2(void **out, size_t length_bytes) {
  return vd_cuMemHostAlloc(out, length_bytes, 0);
}

static struct vd_memory *host_at(const void *start, enum vd_memory_kind kind) {
  struct vd_memory *memory = vd_range_find(&vd.host, (uint64_t)start);
  if (memory == NULL || memory->base != (uint64_t)start || memory->kind != kind)
    return NULL;
  return memory;
}

CUresult vd_cuMemFreeHost(void *start) {
  if (start == NULL) return CUDA_SUCCESS;
  vd_lock();
  CUresult result = vd_capture_unsafe_locked("cuMemFreeHost");
  if (result == CUDA_SUCCESS && host_at(start, VD_HOST_PINNED) == NULL)
    result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) {
    vd_wait_device_locked();
    struct vd_memory *memory = host_at(start, VD_HOST_PINNED);
    if (memory != NULL) {
      vd_range_remove(&vd.host, memory);
      munmap(start, memory->length_bytes);
      free(memory);
    }
  }
  vd_unlock();
  return result;
}

CUresult vd_cuMemHostRegister_v2(void *start, size_t length_bytes, unsigned int flags) {
  if (start == NULL || length_bytes == 0 || flags > 15) return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  CUresult result = host_add((uint64_t)start, length_bytes, VD_HOST_REGISTERED, flags);
  vd_unlock();
  return result;
}

CUresult vd_cuMemHostUnregister(void *start) {
  vd_lock();
  bool inside = vd_range_find(&vd.host, (uint64_t)start) != NULL;
  CUresult result =
      inside ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  if (host_at(start, VD_HOST_REGISTERED) != NULL) {
    vd_wait_device_locked();
    struct vd_memory *memory = host_at(start, VD_HOST_REGISTERED);
    if (memory != NULL) {
      vd_range_remove(&vd.host, memory);
      free(memory);
      result = CUDA_SUCCESS;
    }
  }
  vd_unlock();
  return result;
}

CUresult vd_cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *start,
                                         unsigned int flags) {
  if (out == NULL || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  bool known = vd_range_find(&vd.host, (uint64_t)start) != NULL;
  vd_unlock();
  if (known) *out = (CUdeviceptr)start;
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult vd_cuMemHostGetFlags(unsigned int *flags, void *start) {
  if (flags == NULL) return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  const struct vd_memory *memory = vd_range_find(&vd.host, (uint64_t)start);
  if (memory != NULL) *flags = memory->flags;
  vd_unlock();
  return memory != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
