/* fake_driver.c - a libcuda.so.1 that proves where a call arrived, and nothing else.
 *
 * Every function of driver/hooks.h and fake_extra.h exists under its ELF name and
 * answers a code of its own, so a caller sees which ABI variant it reached. With
 * FAKE_MODE=work a handful of them keep a little state instead (one device, host
 * memory as device memory), so that hooks have something to act on; the rest then
 * succeeds. FAKE_LOG names a file that gets one line per call of that mode.
 * FAKE_HIDDEN=1: cuGetProcAddress hands out addresses that no symbol has.
 * FAKE_FAIL names a function that fails with CUDA_ERROR_UNKNOWN in that mode.
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

/* Weak: fake_work.c has its own of some. No prototype fits all; callers clean up
 * their arguments in every ABI that pump runs on. `hidden_` has no dynamic symbol. */
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
    FUNCTION(cuGraphInstantiateWithFlags, cuGraphInstantiate_v12000) /* as cuda.h has it */
};

/* The newest ABI not newer than `version`; a twin only when it is asked for. */
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
