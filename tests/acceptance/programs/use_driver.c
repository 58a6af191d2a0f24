/* use_driver.c - tests the driver API, linked directly (nvcc -cudart none -lcuda), and
 * measures a launch's cost for its caller.
 *
 *   `use_driver sweep PTX`: launches examples' kernel `sweep`, prints a hash;
 *   `use_driver cost BATCHES LAUNCHES`: prints ns per launch of an empty kernel, as median
 *   and 90th percentile of the batches.
 *
 * Declares all functions that it calls. Machines without a toolkit also compile it, and
 * then find the driver's functions with dlopen and dlsym.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef void *CUcontext, *CUmodule, *CUfunction, *CUstream;

#define DRIVER(name, ...)                                                                  \
  extern CUresult name(__VA_ARGS__);                                                       \
  static CUresult (*call_##name)(__VA_ARGS__);
#ifdef DIRECT
#define FIND(name) call_##name = name
#else
#define FIND(name) *(void **)&call_##name = look_up(#name)
#endif

DRIVER(cuInit, unsigned)
DRIVER(cuDeviceGet, CUdevice *, int)
DRIVER(cuDevicePrimaryCtxRetain, CUcontext *, CUdevice)
DRIVER(cuCtxSetCurrent, CUcontext)
DRIVER(cuModuleLoadData, CUmodule *, const void *)
DRIVER(cuModuleGetFunction, CUfunction *, CUmodule, const char *)
DRIVER(cuMemAlloc_v2, CUdeviceptr *, size_t)
DRIVER(cuMemcpyHtoD_v2, CUdeviceptr, const void *, size_t)
DRIVER(cuMemcpyDtoH_v2, void *, CUdeviceptr, size_t)
DRIVER(cuCtxSynchronize, void)
DRIVER(cuLaunchKernel, CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
       unsigned, unsigned, CUstream, void **, void **)

#define CHECK(call)                                                                        \
  do {                                                                                     \
    CUresult status_ = call;                                                               \
    if (status_ != 0) {                                                                    \
      fprintf(stderr, "use_driver: %s: %d\n", #call, status_);                             \
      exit(1);                                                                             \
    }                                                                                      \
  } while (0)

enum { ARRAYS = 16, FLOATS = 2 << 20, ROUNDS = 6, POINTERS = 10 };

static const char empty_kernel[] =
    ".version 7.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry empty(.param .u64 p0, .param .u64 p1, .param .u64 p2, .param .u64 "
    "p3,\n"
    ".param .u64 p4, .param .u64 p5, .param .u64 p6, .param .u64 p7, .param .u64 p8,\n"
    ".param .u64 p9)\n{\n  ret;\n}\n";

#ifndef DIRECT
static void *look_up(const char *name) {
  static void *driver;
  if (driver == NULL) driver = dlopen("libcuda.so.1", RTLD_NOW);
  void *found = driver == NULL ? NULL : dlsym(driver, name);
  if (found == NULL) {
    fprintf(stderr, "use_driver: no %s: %s\n", name, dlerror());
    exit(1);
  }
  return found;
}
#endif

static void find_driver(void) {
  FIND(cuInit);
  FIND(cuDeviceGet);
  FIND(cuDevicePrimaryCtxRetain);
  FIND(cuCtxSetCurrent);
  FIND(cuModuleLoadData);
  FIND(cuModuleGetFunction);
  FIND(cuMemAlloc_v2);
  FIND(cuMemcpyHtoD_v2);
  FIND(cuMemcpyDtoH_v2);
  FIND(cuCtxSynchronize);
  FIND(cuLaunchKernel);
}

static void start(void) {
  CUdevice device;
  CUcontext context;
  find_driver();
  CHECK(call_cuInit(0));
  CHECK(call_cuDeviceGet(&device, 0));
  CHECK(call_cuDevicePrimaryCtxRetain(&context, device));
  CHECK(call_cuCtxSetCurrent(context));
}

static CUfunction kernel(const char *image, const char *name) {
  CUmodule module;
  CUfunction function;
  CHECK(call_cuModuleLoadData(&module, image));
  CHECK(call_cuModuleGetFunction(&function, module, name));
  return function;
}

static char *content(const char *path) {
  FILE *file = fopen(path, "r");
  char *text = calloc(1, 8 << 20);
  if (file == NULL || text == NULL || fread(text, 1, (8 << 20) - 1, file) == 0) {
    fprintf(stderr, "use_driver: cannot read %s\n", path);
    exit(1);
  }
  fclose(file);
  return text;
}

static void sweep(const char *ptx) {
  static float host[FLOATS];
  CUdeviceptr arrays[ARRAYS];
  int count = FLOATS, rounds = 2;
  CUfunction function = kernel(content(ptx), "sweep");
  for (int n = 0; n < ARRAYS; n++) {
    for (int i = 0; i < FLOATS; i++) host[i] = (float)(i % 1024 + n);
    CHECK(call_cuMemAlloc_v2(&arrays[n], sizeof host));
    CHECK(call_cuMemcpyHtoD_v2(arrays[n], host, sizeof host));
  }
  for (int round = 0; round < ROUNDS; round++)
    for (int n = 0; n < ARRAYS; n++) {
      void *parameters[] = {&arrays[n], &count, &rounds};
      CHECK(call_cuLaunchKernel(function, FLOATS / 256, 1, 1, 256, 1, 1, 0, NULL,
                                parameters, NULL));
    }
  uint64_t hash = 1469598103934665603u; /* FNV-1a */
  for (int n = 0; n < ARRAYS; n++) {
    CHECK(call_cuMemcpyDtoH_v2(host, arrays[n], sizeof host));
    const unsigned char *bytes = (const unsigned char *)host;
    for (size_t i = 0; i < sizeof host; i++) hash = (hash ^ bytes[i]) * 1099511628211u;
  }
  printf("{\"sha256\": \"%016llx\"}\n", (unsigned long long)hash);
}

static double now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void cost(int batches, int launches) {
  CUdeviceptr arrays[POINTERS];
  void *parameters[POINTERS];
  double *found = calloc((size_t)batches, sizeof *found);
  CUfunction function = kernel(empty_kernel, "empty");
  for (int n = 0; n < POINTERS; n++) {
    CHECK(call_cuMemAlloc_v2(&arrays[n], 4 << 20));
    parameters[n] = &arrays[n];
  }
  for (int batch = -3; batch < batches; batch++) { /* the first batches warm up */
    double began = now_ns();
    for (int i = 0; i < launches; i++)
      CHECK(call_cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL));
    if (batch >= 0) found[batch] = (now_ns() - began) / launches;
    CHECK(call_cuCtxSynchronize());
  }
  qsort(found, (size_t)batches, sizeof *found, by_value);
  printf("{\"launch_ns\": %.1f, \"launch_ns_p90\": %.1f}\n", found[batches / 2],
         found[batches * 9 / 10]);
}

int main(int argc, char **argv) {
  if (argc == 3 && strcmp(argv[1], "sweep") == 0) {
    start();
    sweep(argv[2]);
  } else if (argc == 4 && strcmp(argv[1], "cost") == 0 && atoi(argv[2]) > 0) {
    start();
    cost(atoi(argv[2]), atoi(argv[3]));
  } else {
    fprintf(stderr, "usage: use_driver sweep PTX | cost BATCHES LAUNCHES\n");
    return 2;
  }
  return 0;
}
