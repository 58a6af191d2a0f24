/* observe_globals.c - hooks of managed variables of the program's code, and of unloading
 * the code.
 *
 * A __managed__ variable is managed memory that no call of the program has allocated. One
 * of at least a block becomes a range when its address is asked for, and ends with the
 * code that it belongs to: which code that is the driver alone knows, so all of them are
 * taken out before a module or library is unloaded, and those that are still managed
 * memory afterwards come back. Smaller ones are left to demand paging.
 *
 * What the program allocates as managed memory itself (pool/convert.c) becomes a range in
 * the same way.
 */
#include <errno.h>

#include "families.h"
#include "shim/execute/execute.h"

#define GLOBALS_MOST 64u

/* Base addresses; under globals_lock. */
static uint64_t bases[GLOBALS_MOST];
static uint32_t base_count;
static pthread_mutex_t globals_lock = PTHREAD_MUTEX_INITIALIZER;

static bool is_managed(uint64_t address) {
  unsigned int managed = 0;
  return pump_real.cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                         address) == CUDA_SUCCESS &&
         managed != 0;
}

/* false: there are too many. One that ended with its context may still be there. */
static bool remember(uint64_t base) {
  bool known = false;
  pthread_mutex_lock(&globals_lock);
  for (uint32_t i = 0; i < base_count; i++) known |= bases[i] == base;
  if (!known && base_count < GLOBALS_MOST) {
    bases[base_count++] = base;
    known = true;
  }
  pthread_mutex_unlock(&globals_lock);
  return known;
}

static void found(uint64_t base, uint64_t bytes) {
  CUcontext context = NULL;
  struct pump_hit hit;
  if (bytes < PUMP_BLOCK_BYTES) return;
  int saved = errno;
  pump_enter();
  int device = pump_current_device(&context);
  if (device >= 0 && is_managed(base) && !pump_range_lookup(base + bytes / 2, &hit) &&
      !pump_plain_known(base) && remember(base))
    pump_managed_add(base, bytes, (uint32_t)device, context);
  pump_leave();
  errno = saved;
}

#define HOOK_GLOBAL(name, parameters, arguments)                                           \
  CUresult name parameters {                                                               \
    size_t own_bytes = 0;                                                                  \
    CUdeviceptr own_address = 0;                                                           \
    if (pump_inert()) return pump_real.name arguments;                                     \
    if (address == NULL) address = &own_address; /* either may be left out */              \
    if (bytes == NULL) bytes = &own_bytes;                                                 \
    CUresult result = pump_real.name arguments;                                            \
    if (result == CUDA_SUCCESS) found(*address, *bytes);                                   \
    return result;                                                                         \
  }

HOOK_GLOBAL(cuModuleGetGlobal_v2,
            (CUdeviceptr * address, size_t *bytes, CUmodule module, const char *name),
            (address, bytes, module, name))
HOOK_GLOBAL(cuLibraryGetGlobal,
            (CUdeviceptr * address, size_t *bytes, CUlibrary library, const char *name),
            (address, bytes, library, name))
HOOK_GLOBAL(cuLibraryGetManaged,
            (CUdeviceptr * address, size_t *bytes, CUlibrary library, const char *name),
            (address, bytes, library, name))

/* ---- unloading ------------------------------------------------------------ */

struct held {
  uint32_t count, plain_count;
  struct pump_range_info ranges[GLOBALS_MOST];
  struct pump_plain_info plains[GLOBALS_MOST]; /* under READ_MOSTLY (observe_advice.c) */
};

/* Before the real call: nothing of ours works on them while they may end. Those whose
 * context has gone meanwhile are in no table any more. */
static void hold(struct held *held) {
  held->count = held->plain_count = 0;
  pthread_mutex_lock(&globals_lock);
  for (uint32_t i = 0; i < base_count; i++)
    if (pump_range_remove(bases[i], &held->ranges[held->count]) == 0)
      held->count++;
    else if (pump_plain_remove(bases[i], &held->plains[held->plain_count]))
      held->plain_count++;
  base_count = 0;
  pthread_mutex_unlock(&globals_lock);
  for (uint32_t i = 0; i < held->count; i++) {
    pump_event_range(PUMP_EVENT_FREE, &held->ranges[i]);
    pump_act_wait_slot(held->ranges[i].slot);
  }
}

static void settle(struct held *held) {
  for (uint32_t i = 0; i < held->count; i++) {
    struct pump_range_info *info = &held->ranges[i];
    bool lives = is_managed(info->base) && remember(info->base);
    pump_range_free_ended(info, lives ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS);
  }
  for (uint32_t i = 0; i < held->plain_count; i++)
    if (is_managed(held->plains[i].base) && remember(held->plains[i].base))
      pump_plain_add(&held->plains[i]);
}

/* Layouts and code are forgotten before: once the real call is through, another thread
 * may launch another kernel by the same handle. */
#define HOOK_UNLOAD(name, type)                                                            \
  CUresult name(type handle) {                                                             \
    if (pump_inert()) return pump_real.name(handle);                                       \
    struct held held;                                                                      \
    int saved = errno;                                                                     \
    pump_enter();                                                                          \
    pump_params_forget();                                                                  \
    pump_image_forget(handle);                                                             \
    hold(&held);                                                                           \
    CUresult result = pump_real.name(handle);                                              \
    settle(&held);                                                                         \
    pump_leave();                                                                          \
    errno = saved;                                                                         \
    return result;                                                                         \
  }

HOOK_UNLOAD(cuModuleUnload, CUmodule)
HOOK_UNLOAD(cuLibraryUnload, CUlibrary)

void pump_globals_reset(void) {
  pthread_mutex_init(&globals_lock, NULL);
  base_count = 0;
}
