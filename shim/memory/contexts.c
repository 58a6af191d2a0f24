/* contexts.c - the table of the program's contexts, with the device of each and a small
 * number for it.
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "memory.h"

/* Changes under `lock`; readers take none. A forked child starts with an empty table. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
  CUcontext context; /* NULL: unused; stored last */
  CUdevice device;
} contexts[PUMP_MAX_CONTEXTS];

/* Incremented whenever a context ends: its handle may be reused for another context, so
 * threads must not trust what they remember. Starts at 1, `noted` at 0. */
static uint32_t epoch = 1;

static __thread struct {
  CUcontext context;
  uint32_t epoch;
  int device;
} noted __attribute__((tls_model("initial-exec")));

int pump_context_device(CUcontext context, uint32_t *index) {
  if (context == NULL) return -1;
  for (uint32_t i = 0; i < PUMP_MAX_CONTEXTS; i++)
    if (__atomic_load_n(&contexts[i].context, __ATOMIC_ACQUIRE) == context) {
      if (index != NULL) *index = i;
      return PUMP_LOAD(&contexts[i].device);
    }
  return -1;
}

CUcontext pump_context_by_index(uint32_t index, uint32_t device) {
  CUcontext context = __atomic_load_n(&contexts[index].context, __ATOMIC_ACQUIRE);
  return PUMP_LOAD(&contexts[index].device) == (CUdevice)device ? context : NULL;
}

void pump_context_note(CUdevice device, CUcontext context) {
  if (context == NULL || device < 0 || device >= PUMP_MAX_DEVICES) return;
  if (pump_context_device(context, NULL) == device) return;
  int saved = errno;
  pthread_mutex_lock(&lock);
  uint32_t at = PUMP_MAX_CONTEXTS;
  for (uint32_t i = PUMP_MAX_CONTEXTS; i-- > 0;) {
    if (contexts[i].context == context) { /* destroyed without a hook and created again */
      at = i;
      break;
    }
    if (contexts[i].context == NULL) at = i;
  }
  if (at < PUMP_MAX_CONTEXTS) {
    PUMP_STORE(&contexts[at].device, device);
    __atomic_store_n(&contexts[at].context, context, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&lock);
  errno = saved;
}

CUcontext pump_context_of_device(uint32_t device) {
  for (uint32_t i = 0; i < PUMP_MAX_CONTEXTS; i++) {
    CUcontext context = pump_context_by_index(i, device);
    if (context != NULL) return context;
  }
  return NULL;
}

uint32_t pump_contexts_remove(CUcontext context, CUdevice *device,
                              CUcontext ended[PUMP_MAX_CONTEXTS]) {
  uint32_t count = 0;
  pthread_mutex_lock(&lock);
  for (uint32_t i = 0; i < PUMP_MAX_CONTEXTS; i++) {
    CUcontext each = contexts[i].context;
    if (each == NULL || (context != NULL ? each != context : contexts[i].device != *device))
      continue;
    *device = contexts[i].device;
    ended[count++] = each;
    __atomic_store_n(&contexts[i].context, NULL, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&lock);
  return count;
}

int pump_current_device(CUcontext *context) {
  CUcontext current = NULL;
  if (!PUMP_HAS(cuCtxGetCurrent) || !PUMP_HAS(cuCtxGetDevice)) return -1;
  if (pump_real.cuCtxGetCurrent(&current) != CUDA_SUCCESS || current == NULL) return -1;
  if (context != NULL) *context = current;
  uint32_t now = PUMP_LOAD_ACQUIRE(&epoch);
  if (PUMP_LIKELY(noted.context == current && noted.epoch == now)) return noted.device;
  CUdevice device;
  if (pump_real.cuCtxGetDevice(&device) != CUDA_SUCCESS) return -1;
  bool ready = pump_device_prepare(device);
  if (ready) {
    pump_enter();
    pump_context_note(device, current);
    pump_leave();
    noted.context = current;
    noted.epoch = now;
    noted.device = device;
  }
  return ready ? device : -1;
}

void pump_contexts_forget(void) {
  PUMP_ADD(&epoch, 1);
}

void pump_contexts_fork_child(void) {
  pthread_mutex_init(&lock, NULL);
  memset(contexts, 0, sizeof contexts);
  pump_contexts_forget(); /* voids what this thread noted before the fork */
}

/* ---- primary contexts ----------------------------------------------------------- */

/* The primary context of each device, and how often the program has retained it. */
static pthread_mutex_t primary_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
  CUcontext context;
  uint32_t retained;
} primaries[PUMP_MAX_DEVICES];

void pump_primaries_reset(void) {
  pthread_mutex_init(&primary_lock, NULL);
  for (int i = 0; i < PUMP_MAX_DEVICES; i++) {
    primaries[i].context = NULL;
    primaries[i].retained = 0;
  }
}

static bool in_bounds(CUdevice device) {
  return device >= 0 && device < PUMP_MAX_DEVICES;
}

void pump_primary_retained(CUdevice device, CUcontext context) {
  if (!in_bounds(device)) return;
  pthread_mutex_lock(&primary_lock);
  primaries[device].context = context;
  primaries[device].retained++;
  pthread_mutex_unlock(&primary_lock);
}

static bool primary_is_active(CUdevice device) {
  unsigned int flags;
  int active = 0;
  return PUMP_HAS(cuDevicePrimaryCtxGetState) &&
         pump_real.cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS &&
         active != 0;
}

/* Returns a primary context that will not end soon, else any context, else NULL. */
static CUcontext known_context(void) {
  CUcontext context = NULL;
  for (int i = 0; i < PUMP_MAX_DEVICES && context == NULL; i++) {
    pthread_mutex_lock(&primary_lock);
    if (primaries[i].retained != 0) context = primaries[i].context;
    pthread_mutex_unlock(&primary_lock);
    if (context != NULL && !primary_is_active(i)) context = NULL;
  }
  for (uint32_t i = 0; i < PUMP_MAX_DEVICES && context == NULL; i++)
    context = pump_context_of_device(i);
  return context;
}

bool pump_context_borrow(void) {
  CUcontext context = NULL;
  if (!PUMP_HAS(cuCtxGetCurrent) || !PUMP_HAS(cuCtxSetCurrent) ||
      pump_real.cuCtxGetCurrent(&context) != CUDA_SUCCESS || context != NULL)
    return false;
  context = known_context();
  return context != NULL && pump_real.cuCtxSetCurrent(context) == CUDA_SUCCESS;
}

void pump_context_return(bool borrowed) {
  if (borrowed) pump_real.cuCtxSetCurrent(NULL);
}

CUcontext pump_primary_that_may_end(CUdevice device, bool reset, bool *unknown) {
  *unknown = false;
  if (!in_bounds(device)) return NULL;
  pthread_mutex_lock(&primary_lock);
  bool last = reset || primaries[device].retained <= 1;
  CUcontext context = last ? primaries[device].context : NULL;
  pthread_mutex_unlock(&primary_lock);
  *unknown = last && context == NULL && primary_is_active(device);
  return context;
}

bool pump_primary_has_ended(CUdevice device, bool reset) {
  if (!in_bounds(device)) return false;
  pthread_mutex_lock(&primary_lock);
  if (!reset && primaries[device].retained > 0) primaries[device].retained--;
  pthread_mutex_unlock(&primary_lock);
  return reset || !primary_is_active(device);
}
