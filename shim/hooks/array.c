/* array.c - counts device memory without addresses: arrays and imported memory.
 *
 * This memory cannot be paged. It counts against the budget, by its handle, until it is
 * destroyed or its context ends. An array's shape determines its size
 * (memory/array_bytes.c). Imported memory is assumed to be on the device, which is usual
 * for the other interfaces (Vulkan, a dma-buf of another driver).
 *
 * A multicast object has no memory of its own: the memory bound to it comes from
 * cuMemCreate (vmm.c). The same applies to an array that is sparse or mapped later.
 */
#include <errno.h>

#include "shim/memory/memory.h"

/* Returns context and device. Chooses the device's budget before memory is allocated. */
static struct pump_plain_info here(void) {
  struct pump_plain_info info = {0};
  PUMP_ADD(&pump_calls_seen, 1);
  int device = pump_current_device(&info.context);
  info.device = device >= 0 ? (uint32_t)device : PUMP_MAX_DEVICES;
  return info;
}

#define HOOK_CREATE(name, handle, bytes, parameters, arguments)                            \
  CUresult name parameters {                                                               \
    if (pump_inert()) return pump_real.name arguments;                                     \
    int saved = errno;                                                                     \
    pump_enter();                                                                          \
    struct pump_plain_info info = here();                                                  \
    CUresult result = pump_real.name arguments;                                            \
    if (result == CUDA_SUCCESS) pump_array_count(info, *(handle), bytes);                  \
    pump_leave();                                                                          \
    errno = saved;                                                                         \
    return result;                                                                         \
  }

/* Uncounts memory before the real call: after it, another thread may get the handle. */
#define HOOK_DESTROY(name, type)                                                           \
  CUresult name(type handle) {                                                             \
    if (pump_inert()) return pump_real.name(handle);                                       \
    struct pump_plain_info info;                                                           \
    bool counted = pump_plain_remove((uintptr_t)handle, &info);                            \
    CUresult result = pump_real.name(handle);                                              \
    if (counted && result != CUDA_SUCCESS) pump_plain_add(&info);                          \
    return result;                                                                         \
  }

static uint64_t flat_bytes(const CUDA_ARRAY_DESCRIPTOR *shape) {
  const CUDA_ARRAY3D_DESCRIPTOR whole = {.Width = shape->Width,
                                         .Height = shape->Height,
                                         .Format = shape->Format,
                                         .NumChannels = shape->NumChannels};
  return pump_array_bytes(&whole, 1);
}

HOOK_CREATE(cuArrayCreate_v2, array, flat_bytes(shape),
            (CUarray * array, const CUDA_ARRAY_DESCRIPTOR *shape), (array, shape))
HOOK_CREATE(cuArray3DCreate_v2, array, pump_array_bytes(shape, 1),
            (CUarray * array, const CUDA_ARRAY3D_DESCRIPTOR *shape), (array, shape))
HOOK_DESTROY(cuArrayDestroy, CUarray)
HOOK_CREATE(cuMipmappedArrayCreate, array, pump_array_bytes(shape, levels),
            (CUmipmappedArray * array, const CUDA_ARRAY3D_DESCRIPTOR *shape,
             unsigned int levels),
            (array, shape, levels))
HOOK_DESTROY(cuMipmappedArrayDestroy, CUmipmappedArray)
HOOK_CREATE(cuImportExternalMemory, memory, description->size,
            (CUexternalMemory * memory,
             const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *description),
            (memory, description))
HOOK_DESTROY(cuDestroyExternalMemory, CUexternalMemory)
