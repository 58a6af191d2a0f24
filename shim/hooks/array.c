/* array.c - device memory without addresses: arrays and what is imported, for the
 * figures only.
 *
 * It cannot be paged and counts against the budget, by its handle, until it is destroyed or
 * its context ends. Sizes of arrays follow from their shape (memory/array_bytes.c).
 * Imported memory is taken for the device's, where the other interface (Vulkan, a dma-buf
 * of another driver) has it as a rule.
 *
 * A multicast object has no memory of its own: what is bound to it is cuMemCreate's
 * (vmm.c). Nor has an array that is sparse or mapped later: that is bound to it as
 * well.
 */
#include <errno.h>

#include "shim/memory/memory.h"

/* Before the real call: the device's budget is chosen before memory is taken. */
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

/* Before the real call: afterwards another thread may be given the same handle. */
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
