/* observe_context.c - hooks of the calls that make and end contexts.
 *
 * The act side works inside the program's contexts, so it is told before one goes
 * away; and memory that was allocated in a context ends with it.
 */
#include <errno.h>
#include <stdlib.h>

#include "families.h"
#include "shim/pool/pool.h"

/* The primary context of each device and how often it was retained through us. */
static pthread_mutex_t primary_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
  CUcontext context;
  uint32_t retained;
} primaries[PUMP_MAX_DEVICES];

/* What threads remember of contexts, and of streams in them. */
static void forget_contexts(void) {
  pump_contexts_forget();
  pump_place_forget();
}

void pump_primaries_reset(void) {
  pthread_mutex_init(&primary_lock, NULL);
  for (int i = 0; i < PUMP_MAX_DEVICES; i++) {
    primaries[i].context = NULL;
    primaries[i].retained = 0;
  }
}

/* A context that may be about to end, and what was taken out of the range table for
 * that: before the real call, as with any free, for executors of another context of
 * the device may be moving it. Given back should the context live on. */
struct ending {
  CUcontext context; /* NULL: none ends */
  size_t count, room;
  struct pump_range_info *ranges;
};

static void forget(const struct pump_range_info *info) {
  if (info->kind == PUMP_RANGE_CONVERTED)
    pump_limit_return(info->device, info->length_bytes);
  pump_range_release(info->slot);
}

/* false: no memory to remember it by. */
static bool remember(struct ending *ending, const struct pump_range_info *info) {
  if (ending->count == ending->room) {
    size_t room = ending->room == 0 ? 64 : 2 * ending->room;
    void *grown = realloc(ending->ranges, room * sizeof *ending->ranges);
    if (grown == NULL) return false;
    ending->ranges = grown;
    ending->room = room;
  }
  ending->ranges[ending->count++] = *info;
  return true;
}

/* Before the real call. */
static struct ending going(CUcontext context) {
  struct ending ending = {.context = context};
  struct pump_range_info info;
  uint32_t cursor = 0;
  PUMP_ADD(&pump_calls_seen, 1);
  forget_contexts();
  if (context == NULL) return ending;
  pump_params_forget(); /* its modules end with it, and their handles come back */
  pump_enter();
  pump_act_context_gone(context);
  while (pump_range_remove_next(context, &cursor, &info)) {
    pump_event_range(PUMP_EVENT_FREE, &info);
    pump_act_wait_slot(info.slot);
    if (!remember(&ending, &info)) forget(&info);
  }
  pump_leave();
  return ending;
}

/* After it: the driver has freed what was allocated there, if the context is `over`. */
static void gone(struct ending *ending, bool over) {
  forget_contexts();
  for (size_t i = 0; i < ending->count; i++) {
    struct pump_range_info *info = &ending->ranges[i];
    if (over) {
      forget(info);
    } else {
      pump_range_restore(info);
      pump_event_range(PUMP_EVENT_ALLOC, info);
    }
  }
  if (over && ending->context != NULL) {
    pump_plain_context_gone(ending->context);
    pump_pool_context_gone(ending->context);
  }
  free(ending->ranges);
}

/* After a successful creation, which has made the context current. */
static void created(void) {
  int saved = errno;
  PUMP_ADD(&pump_calls_seen, 1);
  pump_current_device(NULL);
  errno = saved;
}

#define HOOK_CREATE(name, parameters, arguments)                                           \
  CUresult name parameters {                                                               \
    if (pump_inert()) return pump_real.name arguments;                                     \
    CUresult result = pump_real.name arguments;                                            \
    if (result == CUDA_SUCCESS) created();                                                 \
    return result;                                                                         \
  }

HOOK_CREATE(cuCtxCreate_v2, (CUcontext * context, unsigned int flags, CUdevice device),
            (context, flags, device))
HOOK_CREATE(cuCtxCreate_v3,
            (CUcontext * context, CUexecAffinityParam *params, int count,
             unsigned int flags, CUdevice device),
            (context, params, count, flags, device))
HOOK_CREATE(cuCtxCreate_v4,
            (CUcontext * context, CUctxCreateParams *params, unsigned int flags,
             CUdevice device),
            (context, params, flags, device))

#define HOOK_DESTROY(name)                                                                 \
  CUresult name(CUcontext context) {                                                       \
    if (pump_inert()) return pump_real.name(context);                                      \
    int saved = errno;                                                                     \
    struct ending ending = going(context);                                                 \
    CUresult result = pump_real.name(context);                                             \
    gone(&ending, result == CUDA_SUCCESS);                                                 \
    errno = saved;                                                                         \
    return result;                                                                         \
  }

HOOK_DESTROY(cuCtxDestroy)
HOOK_DESTROY(cuCtxDestroy_v2)

/* Gives back one use of the calling thread's current context; with the last one it ends
 * and is no longer current. */
CUresult cuCtxDetach(CUcontext context) {
  if (pump_inert()) return pump_real.cuCtxDetach(context);
  int saved = errno;
  struct ending ending = going(context);
  CUresult result = pump_real.cuCtxDetach(context);
  CUcontext current = context;
  if (PUMP_HAS(cuCtxGetCurrent)) pump_real.cuCtxGetCurrent(&current);
  gone(&ending, result == CUDA_SUCCESS && current != context);
  errno = saved;
  return result;
}

/* ---- primary contexts ----------------------------------------------------- */

static bool in_bounds(CUdevice device) {
  return device >= 0 && device < PUMP_MAX_DEVICES;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  CUresult result = pump_real.cuDevicePrimaryCtxRetain(context, device);
  if (pump_inert() || result != CUDA_SUCCESS || context == NULL || !in_bounds(device))
    return result;
  int saved = errno;
  PUMP_ADD(&pump_calls_seen, 1);
  pthread_mutex_lock(&primary_lock);
  primaries[device].context = *context;
  primaries[device].retained++;
  pthread_mutex_unlock(&primary_lock);
  errno = saved;
  return result;
}

static bool primary_is_active(CUdevice device) {
  unsigned int flags;
  int active = 0;
  return PUMP_HAS(cuDevicePrimaryCtxGetState) &&
         pump_real.cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS &&
         active != 0;
}

/* Our threads leave whatever contexts are known: one of them ends, and which is unknown. */
static void leave_contexts(CUdevice device) {
  pump_enter();
  forget_contexts();
  pump_act_device_gone(device);
  pump_leave();
}

/* The primary context if this call may end it, else NULL. The runtime may have got it by
 * the driver's private tables, past cuDevicePrimaryCtxRetain. */
static CUcontext primary_ending(CUdevice device, bool reset) {
  if (!in_bounds(device)) return NULL;
  pthread_mutex_lock(&primary_lock);
  bool last = reset || primaries[device].retained <= 1;
  CUcontext context = last ? primaries[device].context : NULL;
  pthread_mutex_unlock(&primary_lock);
  if (last && context == NULL && primary_is_active(device)) leave_contexts(device);
  return context;
}

/* After the call has succeeded: whether the context is over. A reset keeps the
 * references that were retained, a release gives one back. What was in the context is
 * gone after a reset, active again or not, and after a release when the driver says
 * that it is no longer active. */
static bool primary_is_over(CUdevice device, bool reset) {
  if (!in_bounds(device)) return false;
  pthread_mutex_lock(&primary_lock);
  if (!reset && primaries[device].retained > 0) primaries[device].retained--;
  pthread_mutex_unlock(&primary_lock);
  return reset || !primary_is_active(device);
}

#define HOOK_PRIMARY_END(name, reset)                                                      \
  CUresult name(CUdevice device) {                                                         \
    if (pump_inert()) return pump_real.name(device);                                       \
    int saved = errno;                                                                     \
    struct ending ending = going(primary_ending(device, reset));                           \
    CUresult result = pump_real.name(device);                                              \
    gone(&ending, result == CUDA_SUCCESS && primary_is_over(device, reset));               \
    errno = saved;                                                                         \
    return result;                                                                         \
  }

HOOK_PRIMARY_END(cuDevicePrimaryCtxRelease, false)
HOOK_PRIMARY_END(cuDevicePrimaryCtxRelease_v2, false)
HOOK_PRIMARY_END(cuDevicePrimaryCtxReset, true)
HOOK_PRIMARY_END(cuDevicePrimaryCtxReset_v2, true)

/* ---- green contexts --------------------------------------------------------- */

/* Ends the CUcontext that cuCtxFromGreenCtx has made of it, in which our threads may
 * work, and gives a use of the primary context back. Memory does not end with it. */
CUresult cuGreenCtxDestroy(CUgreenCtx context) {
  if (pump_inert()) return pump_real.cuGreenCtxDestroy(context);
  int saved = errno;
  PUMP_ADD(&pump_calls_seen, 1);
  for (CUdevice device = 0; device < PUMP_MAX_DEVICES; device++) leave_contexts(device);
  CUresult result = pump_real.cuGreenCtxDestroy(context);
  forget_contexts(); /* what another thread has noted meanwhile */
  errno = saved;
  return result;
}
