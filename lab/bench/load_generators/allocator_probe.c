/* allocator_probe.c - preloaded into PyTorch: logs the blocks that its allocator hands out,
 * independently of pump.
 *
 * DESIGN
 * PyTorch's caching allocator reports each block that it hands out and takes back to
 * c10::reportMemoryUsageToProfiler. Its backend cudaMallocAsync calls the runtime for
 * each block. This library interposes both, and writes a line for each block to
 * $PUMP_BENCH_BLOCKS:
 *
 *   TIME_NS ADDRESS BYTES       CLOCK_MONOTONIC; 0 bytes: taken back.
 *
 * With PUMP_BENCH_MANAGED=1, cudaMalloc allocates managed memory: PyTorch on Unified
 * Memory without pump.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))
#define ATTACH_GLOBAL 1u
#define DEVICE_CUDA 1

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static FILE *file;

/* Logs a block; a length of 0 means that it was taken back. */
static void note(uint64_t base, uint64_t length_bytes) {
  struct timespec time;
  if (base == 0) return;
  clock_gettime(CLOCK_MONOTONIC, &time);
  pthread_mutex_lock(&lock);
  const char *name = getenv("PUMP_BENCH_BLOCKS");
  if (file == NULL && name != NULL && *name != 0) file = fopen(name, "we");
  if (file != NULL)
    fprintf(file, "%llu %llu %llu\n",
            (unsigned long long)time.tv_sec * 1000000000u +
                (unsigned long long)time.tv_nsec,
            (unsigned long long)base, (unsigned long long)length_bytes);
  pthread_mutex_unlock(&lock);
}

__attribute__((destructor)) static void ended(void) {
  if (file != NULL) fclose(file);
}

/* Interposes c10::reportMemoryUsageToProfiler(void *, int64_t, size_t, size_t,
 * c10::Device). A device is two bytes, its type first. */
#define REPORT _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE
EXPORT void REPORT(void *pointer, int64_t bytes, size_t allocated, size_t reserved,
                   uint16_t device) {
  void (*next)(void *, int64_t, size_t, size_t, uint16_t);
  void *found = dlsym(RTLD_NEXT, "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");
  if ((device & 0xff) == DEVICE_CUDA)
    note((uint64_t)pointer, bytes > 0 ? (uint64_t)bytes : 0);
  memcpy(&next, &found, sizeof next); /* the next listeners: pump, then PyTorch itself */
  if (next != NULL) next(pointer, bytes, allocated, reserved, device);
}

/* Returns the runtime's function of that name. The runtime is loaded before this is
 * called. */
static void *runtime(const char *name) {
  void *library = dlopen("libcudart.so.13", RTLD_LAZY | RTLD_NOLOAD);
  void *found = library ? dlsym(library, name) : NULL;
  if (found != NULL) return found;
  fprintf(stderr, "allocator_probe: libcudart.so.13 has no %s\n", name);
  abort();
}

EXPORT int cudaMalloc(void **pointer, size_t length_bytes) {
  const char *managed = getenv("PUMP_BENCH_MANAGED");
  if (managed != NULL && *managed == '1') {
    int (*real)(void **, size_t, unsigned) = runtime("cudaMallocManaged");
    return real(pointer, length_bytes, ATTACH_GLOBAL);
  }
  int (*real)(void **, size_t) = runtime("cudaMalloc");
  return real(pointer, length_bytes);
}

EXPORT int cudaMallocAsync(void **pointer, size_t length_bytes, void *stream) {
  int (*real)(void **, size_t, void *) = runtime("cudaMallocAsync");
  int result = real(pointer, length_bytes, stream);
  if (result == 0) note((uint64_t)*pointer, length_bytes);
  return result;
}

EXPORT int cudaFreeAsync(void *pointer, void *stream) {
  int (*real)(void *, void *) = runtime("cudaFreeAsync");
  note((uint64_t)pointer, 0);
  return real(pointer, stream);
}
