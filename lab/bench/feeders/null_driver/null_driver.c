/* null_driver.c - a libcuda.so.1 of empty functions that return success, to measure
 * what pump itself costs. It runs nothing, moves nothing and waits for nothing; the
 * few functions that must tell something are in null_answers.c.
 *
 * null_function gives this library's own function of a name, past all that interposes.
 *
 * Not a fake: tests/loader has one that proves where calls arrive.
 */
#include <string.h>

#include "pump_cuda.h"

#define EXPORT __attribute__((visibility("default")))

/* Weak: null_answers.c has its own of some. No prototype fits all; callers clean up
 * their arguments in every ABI that pump runs on. */
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
