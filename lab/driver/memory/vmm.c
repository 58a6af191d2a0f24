/* vmm.c - virtual memory management: addresses separate from memory.
 *
 * Memory of cuMemCreate is a part of one memfd, so it can be mapped anywhere and more than
 * once. It is taken from the GPU when it is created and returned after its last handle and
 * its last mapping have ended. Reserved addresses have no access. `vd.mapped` lists the
 * mappings by address, each separately. This is device memory that is never paged.
 *
 * Handles for other processes are not supported: the contents are in this process's
 * memory. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "memory.h"

#define GRANULARITY GPU_BLOCK_BYTES

/* The memory of a handle. */
struct physical {
  uint32_t magic;
  uint32_t references, mappings;
  uint64_t bytes, offset_bytes; /* offset in the memfd */
  CUmemAllocationProp properties;
};
_Static_assert(sizeof(struct physical) <= VD_OBJECT_BYTES, "too large for an object");

static int memory_file = -1;
static uint64_t file_bytes; /* offsets are never reused: holes take no memory */

static bool misaligned(uint64_t value) {
  return value == 0 || value % GRANULARITY != 0;
}

/* ---- memory --------------------------------------------------------------- */

static bool valid(const CUmemAllocationProp *properties) {
  return properties != NULL && properties->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
         properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
         properties->location.id == 0;
}

static struct physical *physical_of(CUmemGenericAllocationHandle handle) {
  struct physical *physical = (struct physical *)(uintptr_t)handle;
  return vd_is(physical, VD_PHYSICAL) ? physical : NULL;
}

static CUresult grow_file(uint64_t bytes) {
  if (memory_file < 0) memory_file = memfd_create("pump-virtual-memory", MFD_CLOEXEC);
  if (memory_file < 0 || ftruncate(memory_file, (off_t)(file_bytes + bytes)) != 0) {
    vd_error("cannot create a memory file for cuMemCreate");
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  file_bytes += bytes;
  return CUDA_SUCCESS;
}

static CUresult create_locked(size_t bytes, const CUmemAllocationProp *properties,
                              CUmemGenericAllocationHandle *out) {
  struct gpu_cost cost = {0};
  struct vd_begun begun = vd_begin();
  struct physical *physical = vd_object_new(VD_PHYSICAL);
  if (physical == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = CUDA_SUCCESS;
  if (vd_plain_reserve_locked(bytes, &cost) != GPU_OK) {
    vd_log("cuMemCreate: cannot allocate %zu bytes", bytes);
    result = CUDA_ERROR_OUT_OF_MEMORY;
  } else if ((result = grow_file(bytes)) != CUDA_SUCCESS) {
    gpu_plain_release(vd.engine, vd_now_ns(), &vd_hooks, bytes);
  }
  if (result != CUDA_SUCCESS) {
    vd_object_free(physical);
    return result;
  }
  physical->references = 1;
  physical->bytes = bytes;
  physical->offset_bytes = file_bytes - bytes;
  physical->properties = *properties;
  *out = (CUmemGenericAllocationHandle)(uintptr_t)physical;
  vd_pay_locked(begun, &cost);
  return CUDA_SUCCESS;
}

CUresult vd_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                        const CUmemAllocationProp *properties, unsigned long long flags) {
  if (handle == NULL || flags != 0 || misaligned(bytes) || !valid(properties))
    return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  CUresult result = create_locked(bytes, properties, handle);
  vd_unlock();
  return result;
}

static void end_if_unused_locked(struct physical *physical) {
  if (physical->references != 0 || physical->mappings != 0) return;
  fallocate(memory_file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
            (off_t)physical->offset_bytes, (off_t)physical->bytes);
  gpu_plain_release(vd.engine, vd_now_ns(), &vd_hooks, physical->bytes);
  vd_object_free(physical);
}

CUresult vd_cuMemRelease(CUmemGenericAllocationHandle handle) {
  vd_lock();
  struct physical *physical = physical_of(handle);
  bool referenced = physical != NULL && physical->references != 0;
  if (referenced) {
    physical->references--;
    end_if_unused_locked(physical);
  }
  vd_unlock();
  return referenced ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult vd_cuMemGetAllocationGranularity(size_t *granularity,
                                          const CUmemAllocationProp *properties,
                                          int option) {
  if (granularity == NULL || !valid(properties) || option < 0 || option > 1)
    return CUDA_ERROR_INVALID_VALUE;
  *granularity = GRANULARITY;
  return CUDA_SUCCESS;
}

CUresult vd_cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *properties,
                                                   CUmemGenericAllocationHandle handle) {
  vd_lock();
  const struct physical *physical = physical_of(handle);
  bool known = physical != NULL && properties != NULL;
  if (known) *properties = physical->properties;
  vd_unlock();
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- addresses ------------------------------------------------------------ */

static CUresult add_range(struct vd_range_set *set, enum vd_memory_kind kind, uint64_t base,
                          uint64_t bytes, void *physical) {
  struct vd_memory *memory = calloc(1, sizeof *memory);
  if (memory == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  *memory = (struct vd_memory){.base = base,
                               .length_bytes = bytes,
                               .reserved_bytes = bytes,
                               .kind = kind,
                               .id = vd.next_id++,
                               .physical = physical,
                               .context = vd_current()};
  if (vd_range_add(set, memory) == 0) return CUDA_SUCCESS;
  free(memory);
  return CUDA_ERROR_INVALID_VALUE; /* overlaps */
}

CUresult vd_cuMemAddressReserve(CUdeviceptr *out, size_t bytes, size_t alignment,
                                CUdeviceptr wish, unsigned long long flags) {
  if (out == NULL || flags != 0 || misaligned(bytes) || alignment > 1ull << 40)
    return CUDA_ERROR_INVALID_VALUE;
  if ((alignment & (alignment - 1)) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (alignment < GRANULARITY) alignment = GRANULARITY;
  char *start = mmap((void *)(uintptr_t)wish, bytes + alignment, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  uint64_t base = ((uint64_t)start + alignment - 1) / alignment * alignment;
  uint64_t before = base - (uint64_t)start, after = alignment - before;
  if (before != 0) munmap(start, before);
  if (after != 0) munmap((char *)base + bytes, after);
  vd_lock();
  CUresult result = add_range(&vd.reserved, VD_RESERVED, base, bytes, NULL);
  vd_unlock();
  if (result == CUDA_SUCCESS)
    *out = base;
  else
    munmap((void *)base, bytes);
  return result;
}

static bool anything_mapped(uint64_t base, uint64_t bytes) {
  for (uint64_t at = base; at < base + bytes; at += GRANULARITY)
    if (vd_range_find(&vd.mapped, at) != NULL) return true;
  return false;
}

CUresult vd_cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  vd_lock();
  struct vd_memory *memory = vd_range_find(&vd.reserved, address);
  bool whole = memory != NULL && memory->base == address && memory->length_bytes == bytes;
  if (whole && anything_mapped(address, bytes)) whole = false;
  if (whole) {
    vd_range_remove(&vd.reserved, memory);
    munmap((void *)(uintptr_t)address, bytes);
    free(memory);
  }
  vd_unlock();
  return whole ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- mappings ------------------------------------------------------------- */

static CUresult map_locked(uint64_t base, size_t bytes, struct physical *physical) {
  const struct vd_memory *reserved = vd_range_find(&vd.reserved, base);
  if (reserved == NULL || bytes > reserved->base + reserved->length_bytes - base)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = add_range(&vd.mapped, VD_MAPPED, base, bytes, physical);
  if (result != CUDA_SUCCESS) return result;
  if (mmap((void *)(uintptr_t)base, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, memory_file,
           (off_t)physical->offset_bytes) == MAP_FAILED) {
    struct vd_memory *memory = vd_range_find(&vd.mapped, base);
    vd_range_remove(&vd.mapped, memory);
    free(memory);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  physical->mappings++;
  return CUDA_SUCCESS;
}

CUresult vd_cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                     CUmemGenericAllocationHandle handle, unsigned long long flags) {
  if (misaligned(address) || misaligned(bytes) || offset != 0 || flags != 0)
    return CUDA_ERROR_INVALID_VALUE; /* cuda.h: the offset must be zero */
  vd_lock();
  struct physical *physical = physical_of(handle);
  CUresult result = physical == NULL || bytes > physical->bytes
                        ? CUDA_ERROR_INVALID_VALUE
                        : map_locked(address, bytes, physical);
  vd_unlock();
  return result;
}

static void unmap_locked(struct vd_memory *memory) {
  struct physical *physical = memory->physical;
  vd_range_remove(&vd.mapped, memory);
  mmap((void *)(uintptr_t)memory->base, memory->length_bytes, PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  physical->mappings--;
  end_if_unused_locked(physical);
  free(memory);
}

/* Returns the mapping that begins at `at` and ends at or before `end`, or NULL. */
static struct vd_memory *whole_mapping(uint64_t at, uint64_t end) {
  struct vd_memory *memory = vd_range_find(&vd.mapped, at);
  return memory != NULL && memory->base == at && memory->length_bytes <= end - at ? memory
                                                                                  : NULL;
}

/* Returns whether whole mappings fill [address, +bytes). */
static bool filled(uint64_t address, size_t bytes) {
  uint64_t end = address + bytes, at = address;
  const struct vd_memory *memory;
  while (at < end && (memory = whole_mapping(at, end)) != NULL) at += memory->length_bytes;
  return at == end && bytes != 0;
}

CUresult vd_cuMemUnmap(CUdeviceptr address, size_t bytes) {
  vd_lock();
  vd_wait_device_locked(); /* no work may use it, so correct programs never wait */
  bool whole = filled(address, bytes);
  for (uint64_t at = address; whole && at < address + bytes;) {
    struct vd_memory *memory = whole_mapping(at, address + bytes);
    at += memory->length_bytes;
    unmap_locked(memory);
  }
  vd_unlock();
  return whole ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult vd_cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access,
                           size_t count) {
  if (access == NULL || count == 0) return CUDA_ERROR_INVALID_VALUE;
  int flags = 0;
  for (size_t i = 0; i < count; i++) {
    if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        access[i].location.id != 0)
      return CUDA_ERROR_INVALID_DEVICE;
    flags = access[i].flags;
  }
  int protection = flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? PROT_READ | PROT_WRITE
                   : flags == CU_MEM_ACCESS_FLAGS_PROT_READ    ? PROT_READ
                                                               : PROT_NONE;
  vd_lock();
  bool whole = filled(address, bytes);
  for (uint64_t at = address; whole && at < address + bytes;) {
    struct vd_memory *memory = whole_mapping(at, address + bytes);
    memory->flags = (unsigned int)flags;
    at += memory->length_bytes;
  }
  if (whole) mprotect((void *)(uintptr_t)address, bytes, protection);
  vd_unlock();
  return whole ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult vd_cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
                           CUdeviceptr address) {
  if (flags == NULL || location == NULL) return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  const struct vd_memory *memory = vd_range_find(&vd.mapped, address);
  if (memory != NULL)
    *flags = location->type == CU_MEM_LOCATION_TYPE_DEVICE ? memory->flags : 0;
  vd_unlock();
  return memory != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult vd_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle,
                                        void *address) {
  if (handle == NULL) return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  const struct vd_memory *memory = vd_range_find(&vd.mapped, (uint64_t)address);
  if (memory != NULL) {
    struct physical *physical = memory->physical;
    physical->references++;
    *handle = (CUmemGenericAllocationHandle)(uintptr_t)physical;
  }
  vd_unlock();
  return memory != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static const struct vd_memory *accessible(uint64_t address) {
  const struct vd_memory *memory = vd_range_find(&vd.mapped, address);
  return memory != NULL && memory->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE ? memory : NULL;
}

uint64_t vd_mapped_bytes(uint64_t address) {
  uint64_t at = address;
  const struct vd_memory *memory;
  while ((memory = accessible(at)) != NULL) at = memory->base + memory->length_bytes;
  return at - address;
}

uint64_t vd_mapped_base(uint64_t address) {
  const struct vd_memory *memory = accessible(address), *before;
  if (memory == NULL) return address;
  while ((before = accessible(memory->base - 1)) != NULL) memory = before;
  return memory->base;
}

/* ---- other processes ------------------------------------------------------ */

CUresult vd_cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle,
                                         int type, unsigned long long flags) {
  (void)type, (void)flags;
  vd_lock();
  bool known = out != NULL && physical_of(handle) != NULL;
  vd_unlock();
  return known ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
}

CUresult vd_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle,
                                           void *os_handle, int type) {
  (void)os_handle, (void)type;
  return handle == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
}

/* Checks that memory of cuMemAlloc is at the address: only this has such handles. */
static CUresult shareable(uint64_t address, const char *what,
                          const struct vd_memory **out) {
  const struct vd_memory *memory = vd_memory_at(address);
  if (memory != NULL && memory->kind == VD_PLAIN) {
    *out = memory;
    return CUDA_SUCCESS;
  }
  vd_log("%s of 0x%llx: must be memory of cuMemAlloc", what, (unsigned long long)address);
  return CUDA_ERROR_INVALID_VALUE;
}

struct ipc_handle {
  char magic[8];
  uint64_t pid, base;
};

CUresult vd_cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr address) {
  const struct vd_memory *memory;
  if (out == NULL) return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  CUresult result = shareable(address, "cuIpcGetMemHandle", &memory);
  if (result == CUDA_SUCCESS) {
    struct ipc_handle handle = {"virtual", (uint64_t)getpid(), memory->base};
    memset(out, 0, sizeof *out);
    memcpy(out, &handle, sizeof handle);
  }
  vd_unlock();
  return result;
}

/* Refuses all handles: the creator must not open its own, and other processes cannot
 * reach the memory. */
CUresult vd_cuIpcOpenMemHandle_v2(CUdeviceptr *out, CUipcMemHandle given,
                                  unsigned int flags) {
  struct ipc_handle handle;
  memcpy(&handle, &given, sizeof handle);
  if (out == NULL || flags > 1 || memcmp(handle.magic, "virtual", 8) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  return handle.pid == (uint64_t)getpid() ? CUDA_ERROR_INVALID_CONTEXT
                                          : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult vd_cuIpcOpenMemHandle(CUdeviceptr *out, CUipcMemHandle given, unsigned int flags) {
  return vd_cuIpcOpenMemHandle_v2(out, given, flags);
}

CUresult vd_cuIpcCloseMemHandle(CUdeviceptr address) {
  (void)address; /* no handle was ever opened */
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult vd_cuMemGetHandleForAddressRange(void *out, CUdeviceptr address, size_t bytes,
                                          int type, unsigned long long flags) {
  const struct vd_memory *memory;
  (void)type, (void)flags;
  if (out == NULL || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  CUresult result = shareable(address, "cuMemGetHandleForAddressRange", &memory);
  vd_unlock();
  return result == CUDA_SUCCESS ? CUDA_ERROR_NOT_SUPPORTED : result;
}
