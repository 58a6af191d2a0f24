/* fake_driver.c - a libcuda.so.1 that only shows which of its functions was called.
 *
 * Every function of driver/hooks.h and fake_extra.h exists under its ELF name and returns
 * its own code. So a caller sees which ABI variant it reached. Environment variables:
 *   FAKE_MODE=work  Some functions keep a little state, so that hooks have an effect: one
 *                   device, host memory as device memory. The other functions succeed.
 *   FAKE_LOG        Names a file that gets one line per call in that mode.
 *   FAKE_HIDDEN=1   Makes cuGetProcAddress return addresses that no symbol has.
 *   FAKE_FAIL       Names a function that fails with CUDA_ERROR_UNKNOWN in that mode.
 */
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fake.h"

static bool works(void) {
  const char *mode = getenv("FAKE_MODE");
  return mode != NULL && strcmp(mode, "work") == 0;
}

void fake_log(const char *format, ...) {
  const char *path = getenv("FAKE_LOG");
  if (path == NULL) return;
  char line[256];
  va_list list;
  va_start(list, format);
  int n = vsnprintf(line, sizeof line, format, list);
  va_end(list);
  int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) return;
  if (write(file, line, (size_t)n) != n) abort();
  close(file);
}

CUresult fake_answer(const char *name, int code) {
  if (!works()) return code;
  const char *fails = getenv("FAKE_FAIL");
  fake_log("%s\n", name);
  return fails != NULL && strcmp(fails, name) == 0 ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

/* Weak, because fake_work.c overrides some. No prototype fits all, but in every ABI of
 * pump callers clean up their arguments. `hidden_` functions have no dynamic symbol. */
#define CODES(name)                                                                        \
  EXPORT __attribute__((weak, noinline)) CUresult name(void);                              \
  CUresult name(void) {                                                                    \
    return fake_answer(#name, code_##name);                                                \
  }                                                                                        \
  static CUresult hidden_##name(void) {                                                    \
    return fake_answer(#name, code_##name);                                                \
  }
#define PUMP_HOOK(name, pfn, parameters, arguments) CODES(name)
#define PUMP_CALL(name, pfn, parameters) CODES(name)
#include "shim/driver/hooks.h"
#define EXTRA(name, pfn) CODES(name)
#include "fake_extra.h"

/* ---- cuGetProcAddress ------------------------------------------------------ */

static const struct function {
  const char *name, *signature;
  void *address, *hidden;
} functions[] = {
#define FUNCTION(name, pfn) {#name, #pfn, (void *)name, (void *)hidden_##name},
#define PUMP_HOOK(name, pfn, parameters, arguments) FUNCTION(name, pfn)
#define PUMP_CALL(name, pfn, parameters) FUNCTION(name, pfn)
#include "shim/driver/hooks.h"
#define EXTRA(name, pfn) FUNCTION(name, pfn)
#include "fake_extra.h"
    FUNCTION(cuGraphInstantiateWithFlags, cuGraphInstantiate_v12000) /* as in cuda.h */
};

/* Finds the newest ABI up to `version`; returns a twin only on request. */
CUresult fake_look_up(const char *symbol, void **pfn, int version, cuuint64_t flags);
CUresult fake_look_up(const char *symbol, void **pfn, int version, cuuint64_t flags) {
  if (symbol == NULL || symbol[0] == '\0') return CUDA_ERROR_INVALID_VALUE;
  const struct function *best = NULL;
  size_t length = strlen(symbol);
  int best_version = 0;
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
    const char *signature = functions[i].signature;
    if (strncmp(signature, symbol, length) != 0) continue;
    if (strncmp(signature + length, "_v", 2) != 0) continue;
    char *end;
    int v = (int)strtol(signature + length + 2, &end, 10);
    if (v > version || (*end == '_' && (flags & 2) == 0) || v < best_version) continue;
    best = &functions[i], best_version = v;
  }
  if (best == NULL) return CUDA_ERROR_NOT_FOUND;
  bool hide = getenv("FAKE_HIDDEN") != NULL && strcmp(symbol, "cuGetProcAddress") != 0;
  *pfn = hide ? best->hidden : best->address;
  return CUDA_SUCCESS;
}
