/* null_driver.c - a libcuda.so.1 of empty functions that return success, to measure
 * pump's own cost. They run nothing, move nothing and wait for nothing. The few functions
 * that must return data are in null_answers.c.
 *
 * null_function() returns this library's own function of a name, past all interposers.
 *
 * The fake driver that proves where calls arrive is another one: see tests/loader.
 */
#include <string.h>

#include "pump_cuda.h"

#define EXPORT __attribute__((visibility("default")))

/* Weak, because null_answers.c defines some of these. No prototype fits all; callers
 * clean up their arguments in every ABI that pump runs on. */
#define EMPTY(name)                                                                        \
  EXPORT __attribute__((weak, noinline)) CUresult name(void);                              \
  CUresult name(void) {                                                                    \
    return CUDA_SUCCESS;                                                                   \
  }
#define PUMP_HOOK(name, pfn, parameters, arguments) EMPTY(name)
#define PUMP_CALL(name, pfn, parameters) EMPTY(name)
#include "shim/driver/hooks.h"

/* ---- look-up ------------------------------------------------------------------ */

static const struct {
  const char *name;
  void *address;
} functions[] = {
#define PUMP_HOOK(name, pfn, parameters, arguments) {#name, (void *)name},
#define PUMP_CALL(name, pfn, parameters) {#name, (void *)name},
#include "shim/driver/hooks.h"
};

EXPORT void *null_function(const char *name);
void *null_function(const char *name) {
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
    if (strcmp(functions[i].name, name) == 0) return functions[i].address;
  return NULL;
}
