/* plugin.c - a library that finds the driver by itself. With -DCONSTRUCT its constructor
 * does so, while the loader's lock is held. With -DSTUBS it has its own stubs of driver
 * functions, which load the driver when called; pump's exports precede them.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>

#include "pump_cuda.h"

__attribute__((visibility("default"))) int plugin_run(void);

static int result = 1;

static int run(void) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == NULL) return 10;
  CUresult (*cuInit)(unsigned int) = dlsym(driver, "cuInit");
  CUresult (*look_up)(const char *, void **, int, cuuint64_t, int *) =
      dlsym(driver, "cuGetProcAddress_v2");
  void *alloc = NULL;
  if (cuInit(0) != CUDA_SUCCESS) return 11;
  if (look_up("cuMemAlloc", &alloc, 12000, 0, NULL) != CUDA_SUCCESS) return 12;
  if (alloc == NULL) return 13;
  if (getenv("PLUGIN_RETAINS") == NULL) return 0;
  CUcontext context;
  CUresult (*retain)(CUcontext *, CUdevice) = dlsym(driver, "cuDevicePrimaryCtxRetain");
  return retain(&context, 0);
}

#ifdef STUBS
__attribute__((visibility("default"))) CUresult cuInit(unsigned int flags) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  CUresult (*real)(unsigned int) = driver == NULL ? NULL : dlsym(driver, "cuInit");
  return real == NULL ? CUDA_ERROR_NO_DEVICE : real(flags);
}
int plugin_run(void) {
  return cuInit(0) == CUDA_SUCCESS ? run() : 20;
}
#elif defined(CONSTRUCT)
__attribute__((constructor)) static void construct(void) {
  result = run();
}
int plugin_run(void) {
  return result;
}
#else
int plugin_run(void) {
  return result = run();
}
#endif
