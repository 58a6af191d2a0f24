/* exports.c - the exported functions and the tables that cuGetProcAddress reads.
 *
 * Both come from driver_list.h. A wrapper counts the call, fails it if a test requested
 * that, and checks the requirements (driver initialised in this process, current
 * context). Then it calls the implementation. Functions of driver_lacks.h are stubs, each
 * with its own address: the shim distinguishes functions by address.
 *
 * The tables hold addresses, never names: a look-up by dlsym would reach an interposed
 * dlsym. The library is linked with -Bsymbolic, so that an interposer's functions of the
 * same names do not get into the table.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "calls.h"

enum level { ANY, INIT, CTX };

uint64_t vd_call_counts[VD_CALLS];

/* PUMP_VIRTUAL_FAIL and PUMP_VIRTUAL_DELAY_US. Set once, by the first call. */
#define MAX_FAILURES 64
static struct {
  uint32_t call;
  uint64_t nth; /* 0: every call */
  CUresult result;
} failures[MAX_FAILURES];
static uint32_t failure_count;
static uint64_t delay_max_us, delay_seed;
static int newest_version = VD_DRIVER_VERSION; /* PUMP_VIRTUAL_VERSION */
static pthread_once_t inject_once = PTHREAD_ONCE_INIT;
static bool inject_broken;

static int parse_failure(const char *text, size_t length) {
  char name[96];
  unsigned long long nth;
  int code, end = 0;
  const char *colon = memchr(text, ':', length);
  if (colon == NULL || (size_t)(colon - text) >= sizeof name) return -1;
  memcpy(name, text, (size_t)(colon - text));
  name[colon - text] = 0;
  if (sscanf(colon, ":%llu:%d%n", &nth, &code, &end) != 2) return -1;
  if ((size_t)end != length - (size_t)(colon - text) || code <= 0) return -1;
  for (uint32_t i = 0; i < VD_CALLS; i++) {
    if (strcmp(vd_exports[i].symbol, name) != 0) continue;
    if (failure_count == MAX_FAILURES) return -1;
    failures[failure_count].call = i;
    failures[failure_count].nth = nth;
    failures[failure_count++].result = code;
    return 0;
  }
  return -1;
}

static void inject_read(void) {
  const char *text = getenv("PUMP_VIRTUAL_FAIL");
  while (text != NULL && *text) {
    size_t length = strcspn(text, ",");
    if (parse_failure(text, length) != 0) {
      vd_error("PUMP_VIRTUAL_FAIL: must be SYMBOL:N:CODE, not \"%.*s\": an exported "
               "symbol, the number of the failing call (0: each) and a CODE above 0",
               (int)length, text);
      inject_broken = true;
    }
    text += length + (text[length] == ',');
  }
  const char *version = getenv("PUMP_VIRTUAL_VERSION");
  if (version != NULL && (sscanf(version, "%d", &newest_version) != 1 ||
                          newest_version < 12000 || newest_version > VD_DRIVER_VERSION)) {
    vd_error("PUMP_VIRTUAL_VERSION: must be an integer from 12000 to %d, not \"%s\"",
             VD_DRIVER_VERSION, version);
    inject_broken = true;
  }
  const char *delay = getenv("PUMP_VIRTUAL_DELAY_US");
  unsigned long long most = 0, seed = 1;
  if (delay != NULL && sscanf(delay, "%llu:%llu", &most, &seed) < 1) {
    vd_error("PUMP_VIRTUAL_DELAY_US: must be MICROSECONDS or MICROSECONDS:SEED, not \"%s\"",
             delay);
    inject_broken = true;
  }
  delay_max_us = most;
  delay_seed = seed ? seed : 1;
}

int vd_version(void) {
  pthread_once(&inject_once, inject_read);
  return newest_version;
}

int vd_inject_setup(void) {
  pthread_once(&inject_once, inject_read);
  return inject_broken ? -1 : 0;
}

static void delay(void) {
  if (vd_thread.random == 0) {
    static uint64_t threads;
    uint64_t number = __atomic_add_fetch(&threads, 1, __ATOMIC_RELAXED);
    vd_thread.random = delay_seed * 0x9e3779b97f4a7c15u + number * 0xbf58476d1ce4e5b9u;
  }
  vd_thread.random ^= vd_thread.random << 13;
  vd_thread.random ^= vd_thread.random >> 7;
  vd_thread.random ^= vd_thread.random << 17;
  uint64_t us = vd_thread.random % (delay_max_us + 1);
  struct timespec time = {(time_t)(us / 1000000), (long)(us % 1000000) * 1000};
  nanosleep(&time, NULL);
}

static CUresult requested_failure(uint32_t call, uint64_t nth) {
  for (uint32_t i = 0; i < failure_count; i++) {
    if (failures[i].call != call) continue;
    if (failures[i].nth != 0 && failures[i].nth != nth) continue;
    __atomic_add_fetch(&vd.checks.calls_failed_on_request, 1, __ATOMIC_RELAXED);
    return failures[i].result;
  }
  return CUDA_SUCCESS;
}

static inline CUresult initialised(void) {
  int state = __atomic_load_n(&vd.state, __ATOMIC_ACQUIRE);
  if (__builtin_expect(state == VD_READY, 1)) return CUDA_SUCCESS;
  return state == VD_EXITED ? CUDA_ERROR_DEINITIALIZED : CUDA_ERROR_NOT_INITIALIZED;
}

static inline CUresult enter(uint32_t call, enum level level) {
  uint64_t nth = __atomic_add_fetch(&vd_call_counts[call], 1, __ATOMIC_RELAXED);
  pthread_once(&inject_once, inject_read);
  if (__builtin_expect(delay_max_us != 0, 0)) delay();
  if (__builtin_expect(failure_count != 0, 0)) {
    CUresult result = requested_failure(call, nth);
    if (result != CUDA_SUCCESS) return result;
  }
  if (__builtin_expect(vd_exports[call].version > newest_version, 0))
    return CUDA_ERROR_NOT_FOUND;
  if (level == ANY) return CUDA_SUCCESS;
  CUresult result = initialised();
  if (__builtin_expect(result != CUDA_SUCCESS, 0) || level == INIT) return result;
  struct vd_context *context = vd_current();
  if (__builtin_expect(context == NULL, 0)) return CUDA_ERROR_INVALID_CONTEXT;
  return vd_context_alive(context) ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

/* Logs an error, except of functions of level ANY: look-ups log their own misses. */
static inline CUresult leave(const char *symbol, enum level level, CUresult result) {
  if (__builtin_expect(result != CUDA_SUCCESS, 0) && result != CUDA_ERROR_NOT_READY &&
      level != ANY)
    vd_log("%s: %s", symbol, vd_result_name(result));
  return result;
}

static inline CUstream per_thread(CUstream stream) {
  return stream == NULL ? CU_STREAM_PER_THREAD : stream;
}

#define VD_EXPORT __attribute__((visibility("default")))

#define WRAPPER(level, symbol, exported, parameters, arguments, prologue)                  \
  VD_EXPORT CUresult exported parameters;                                                  \
  VD_EXPORT CUresult exported parameters {                                                 \
    prologue;                                                                              \
    CUresult result = enter(VD_CALL_##symbol, level);                                      \
    if (result == CUDA_SUCCESS) result = vd_##symbol arguments;                            \
    return leave(#exported, level, result);                                                \
  }

#define WRAP_NONE(level, symbol, p, a) WRAPPER(level, symbol, symbol, p, a, (void)0)
#define WRAP_SZ(level, symbol, p, a)                                                       \
  WRAPPER(level, symbol, symbol, p, a, (void)0)                                            \
  WRAPPER(level, symbol, symbol##_ptsz, p, a, stream = per_thread(stream))
#define BESIDE(...) (stream, __VA_ARGS__)
#define WRAP_DEFAULT(level, symbol, twin, p, a)                                            \
  WRAPPER(level, symbol, symbol, p, BESIDE a, CUstream stream = CU_STREAM_LEGACY)          \
  WRAPPER(level, symbol, twin, p, BESIDE a, CUstream stream = CU_STREAM_PER_THREAD)
#define WRAP_DS(level, symbol, p, a) WRAP_DEFAULT(level, symbol, symbol##_ptds, p, a)
#define WRAP_EZ(level, symbol, p, a) WRAP_DEFAULT(level, symbol, symbol##_ptsz, p, a)

#define X(level, twin, symbol, name, version, parameters, arguments)                       \
  WRAP_##twin(level, symbol, parameters, arguments)
#include "lab/driver/base/driver_list.h"

#define ROW_NONE(symbol) NULL, (void *)symbol, NULL
#define ROW_SZ(symbol) #symbol "_ptsz", (void *)symbol, (void *)symbol##_ptsz
#define ROW_DS(symbol) #symbol "_ptds", (void *)symbol, (void *)symbol##_ptds
#define ROW_EZ(symbol) #symbol "_ptsz", (void *)symbol, (void *)symbol##_ptsz
#define ROW(name, symbol, version, twin_symbol, function, twin)                            \
  {name, symbol, twin_symbol, version, function, twin},
#define ROW_EXPAND(...) ROW(__VA_ARGS__)
#define X(level, twin, symbol, name, version, ...)                                         \
  ROW_EXPAND(#name, #symbol, version, ROW_##twin(symbol))
const struct vd_export vd_exports[VD_CALLS] = {
#include "lab/driver/base/driver_list.h"
};

/* -- functions that this driver lacks -- */

static CUresult lacking(const char *symbol, int version) {
  pthread_once(&inject_once, inject_read);
  CUresult result = version > newest_version ? CUDA_ERROR_NOT_FOUND : initialised();
  if (result == CUDA_SUCCESS) result = CUDA_ERROR_NOT_SUPPORTED;
  return leave(symbol, INIT, result);
}

/* The caller cleans the stack in both ABIs, so a stub may take any arguments. */
#define LACKING(symbol, version)                                                           \
  VD_EXPORT CUresult symbol(void);                                                         \
  VD_EXPORT CUresult symbol(void) {                                                        \
    return lacking(#symbol, version);                                                      \
  }
#define LACKING_NONE(symbol, version) LACKING(symbol, version)
#define LACKING_SZ(symbol, version) LACKING(symbol, version) LACKING(symbol##_ptsz, version)
#define LACKING_DS(symbol, version) LACKING(symbol, version) LACKING(symbol##_ptds, version)
#define VD_LACKS(twin, symbol, name, version) LACKING_##twin(symbol, version)
#include "driver_lacks.h"

#define VD_LACKS(twin, symbol, name, version)                                              \
  ROW_EXPAND(#name, #symbol, version, ROW_##twin(symbol))
const struct vd_export vd_lacking[] = {
#include "driver_lacks.h"
};
const size_t vd_lacking_count = sizeof vd_lacking / sizeof *vd_lacking;
