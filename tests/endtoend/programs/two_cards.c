/* two_cards.c - a libcuda.so.1 with two devices: two copies of the virtual driver.
 *
 * Each function calls the copy of the thread's current context. two_cards.py writes a
 * trampoline for each function that this file does not define. This file defines the
 * functions that name a device or a context, because a copy only knows device 0. It
 * supports only primary contexts, and no traffic between the devices.
 *
 * Calls enter the copies at symbol offsets: the dynamic loader might resolve a name of
 * the driver to pump's function.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "two_cards_table.h" /* COPIES, OFFSETS, STUBS, AT_name; from two_cards.py */

#define CARDS 2
#define DEPTH 16
#define SUCCESS 0
#define INVALID_VALUE 1
#define INVALID_DEVICE 101
#define OF_DEVICE 1u /* CU_MEM_LOCATION_TYPE_DEVICE */
#define ORDINAL 9    /* CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL */

typedef long (*any)(long, long, long, long, long, long);

static char *bases[CARDS];
static void *contexts[CARDS]; /* primary contexts, once retained */
static __thread int current, before[DEPTH], depth;

static void load(void) {
  for (int i = 0; i < CARDS; i++) {
    struct link_map *map = dlopen(COPIES[i], RTLD_NOW | RTLD_LOCAL);
    if (map == NULL) abort();
    bases[i] = (char *)map->l_addr;
  }
}

static any entry(int card, int function) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, load);
  return (any)(void *)(bases[card] + OFFSETS[function]);
}

/* Resolves a function for the trampolines. */
void *two_cards_entry(int function) {
  return (void *)entry(current, function);
}

#define ON(card, name, a, b, c, d, e)                                                      \
  (int)entry(card, AT_##name)((long)(a), (long)(b), (long)(c), (long)(d), (long)(e), 0)

/* ---- devices ------------------------------------------------------------------------ */

int cuInit(unsigned int flags) {
  int result = SUCCESS;
  for (int i = 0; i < CARDS && result == SUCCESS; i++)
    result = ON(i, cuInit, flags, 0, 0, 0, 0);
  return result;
}

int cuDeviceGetCount(int *count) {
  *count = CARDS;
  return SUCCESS;
}

int cuDeviceGet(int *device, int ordinal) {
  if (ordinal < 0 || ordinal >= CARDS) return INVALID_DEVICE;
  *device = ordinal;
  return SUCCESS;
}

int cuDeviceCanAccessPeer(int *can, int device, int peer) {
  (void)device, (void)peer;
  *can = 0;
  return SUCCESS;
}

#define BAD(device) ((device) < 0 || (device) >= CARDS)
#define DEVICE_FIRST(name)                                                                 \
  int name(int device, long b, long c) {                                                   \
    return BAD(device) ? INVALID_DEVICE : ON(device, name, 0, b, c, 0, 0);                 \
  }
#define DEVICE_SECOND(name)                                                                \
  int name(long a, int device) {                                                           \
    return BAD(device) ? INVALID_DEVICE : ON(device, name, a, 0, 0, 0, 0);                 \
  }
#define DEVICE_THIRD(name)                                                                 \
  int name(long a, long b, int device) {                                                   \
    return BAD(device) ? INVALID_DEVICE : ON(device, name, a, b, 0, 0, 0);                 \
  }
DEVICE_FIRST(cuDevicePrimaryCtxGetState)
DEVICE_FIRST(cuDevicePrimaryCtxRelease_v2)
DEVICE_FIRST(cuDevicePrimaryCtxSetFlags_v2)
DEVICE_SECOND(cuDeviceGetDefaultMemPool)
DEVICE_SECOND(cuDeviceGetMemPool)
DEVICE_SECOND(cuDeviceTotalMem_v2)
DEVICE_THIRD(cuDeviceComputeCapability)
DEVICE_THIRD(cuDeviceGetAttribute)
DEVICE_THIRD(cuDeviceGetName)
DEVICE_THIRD(cuDeviceGetPCIBusId)

int cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
  if (BAD(device)) return INVALID_DEVICE;
  int result = ON(device, cuDeviceGetUuid_v2, uuid, 0, 0, 0, 0);
  if (result == SUCCESS) uuid[15] ^= (unsigned char)device;
  return result;
}

/* ---- contexts ------------------------------------------------------------------------ */

int cuDevicePrimaryCtxRetain(void **context, int device) {
  if (BAD(device)) return INVALID_DEVICE;
  int result = ON(device, cuDevicePrimaryCtxRetain, context, 0, 0, 0, 0);
  if (result == SUCCESS) __atomic_store_n(&contexts[device], *context, __ATOMIC_RELEASE);
  return result;
}

static int card_of(const void *context) {
  for (int i = 0; i < CARDS; i++)
    if (__atomic_load_n(&contexts[i], __ATOMIC_ACQUIRE) == context) return i;
  return 0;
}

int cuCtxSetCurrent(void *context) {
  if (context == NULL)
    for (int i = 0; i < CARDS; i++) ON(i, cuCtxSetCurrent, NULL, 0, 0, 0, 0);
  current = context == NULL ? 0 : card_of(context);
  return context == NULL ? SUCCESS : ON(current, cuCtxSetCurrent, context, 0, 0, 0, 0);
}

int cuCtxPushCurrent_v2(void *context) {
  int card = card_of(context), result = ON(card, cuCtxPushCurrent_v2, context, 0, 0, 0, 0);
  if (result != SUCCESS) return result;
  if (depth == DEPTH) abort();
  before[depth++] = current;
  current = card;
  return SUCCESS;
}

int cuCtxPopCurrent_v2(void **context) {
  int result = ON(current, cuCtxPopCurrent_v2, context, 0, 0, 0, 0);
  if (result == SUCCESS && depth > 0) current = before[--depth];
  return result;
}

int cuCtxGetDevice(int *device) {
  int result = ON(current, cuCtxGetDevice, device, 0, 0, 0, 0);
  if (result == SUCCESS) *device = current;
  return result;
}

/* ---- memory ------------------------------------------------------------------------ */

/* Renames any device to device 0. A location is two words in a register: type, number. */
static uint64_t own(uint64_t location) {
  return (uint32_t)location == OF_DEVICE ? OF_DEVICE : location;
}

int cuMemPrefetchAsync(long address, long bytes, int device, void *stream) {
  return ON(current, cuMemPrefetchAsync, address, bytes, device < 0 ? device : 0, stream,
            0);
}

int cuMemPrefetchAsync_v2(long address, long bytes, uint64_t location, unsigned int flags,
                          void *stream) {
  return ON(current, cuMemPrefetchAsync_v2, address, bytes, own(location), flags, stream);
}

int cuMemAdvise(long address, long bytes, int advice, int device) {
  return ON(current, cuMemAdvise, address, bytes, advice, device < 0 ? device : 0, 0);
}

int cuMemAdvise_v2(long address, long bytes, int advice, uint64_t location) {
  return ON(current, cuMemAdvise_v2, address, bytes, advice, own(location), 0);
}

int cuPointerGetAttribute(void *value, int attribute, long address) {
  int result = ON(current, cuPointerGetAttribute, value, attribute, address, 0, 0);
  if (result == SUCCESS && attribute == ORDINAL) *(int *)value = current;
  return result;
}

/* ---- lookups ---------------------------------------------------------------------- */

static void *outward(const void *found) {
  ptrdiff_t offset = (const char *)found - bases[0];
  for (size_t i = 0; i < FUNCTIONS; i++)
    if (OFFSETS[i] == offset) return STUBS[i];
  return NULL;
}

static int translated(int result, void **function) {
  if (result != SUCCESS || function == NULL || *function == NULL) return result;
  *function = outward(*function);
  return *function == NULL ? INVALID_VALUE : SUCCESS;
}

int cuGetProcAddress(const char *name, void **function, int version, uint64_t flags) {
  return translated(ON(0, cuGetProcAddress, name, function, version, flags, 0), function);
}

int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags,
                        void *status) {
  return translated(ON(0, cuGetProcAddress_v2, name, function, version, flags, status),
                    function);
}
