/* hook.c - a user's own hook of driver functions, which counts calls. Finds the originals
 * with dlsym(RTLD_NEXT), or with HOOK_BY_HANDLE in a driver that it loads itself.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "pump_cuda.h"

static int allocated, freed;

static void *original(const char *name) {
  void *where = RTLD_NEXT;
  if (getenv("HOOK_BY_HANDLE") != NULL) where = dlopen("libcuda.so.1", RTLD_LAZY);
  return dlsym(where, name);
}

__attribute__((visibility("default"))) CUresult cuMemAlloc_v2(CUdeviceptr *address,
                                                              size_t bytes) {
  CUresult (*next)(CUdeviceptr *, size_t) = original("cuMemAlloc_v2");
  allocated++;
  return next(address, bytes);
}

__attribute__((visibility("default"))) CUresult cuMemFree_v2(CUdeviceptr address) {
  CUresult (*next)(CUdeviceptr) = original("cuMemFree_v2");
  freed++;
  return next(address);
}

__attribute__((destructor)) static void tell(void) {
  printf("hook: %d allocated, %d freed\n", allocated, freed);
}
