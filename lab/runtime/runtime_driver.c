/* runtime_driver.c - access to the driver: loading it, contexts, the log. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime.h"

struct rt_driver rt_driver, rt_per_thread;

static pthread_once_t load_once = PTHREAD_ONCE_INIT;
static cudaError_t load_error;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUcontext primary; /* under `lock` */
static void (*virtual_block)(uint64_t address, uint64_t length_bytes);

void rt_log(const char *format, ...) {
  const char *path = getenv("PUMP_VIRTUAL_LOG");
  if (path == NULL || *path == 0) return;
  FILE *file = strcmp(path, "stderr") == 0 ? stderr : fopen(path, "ae");
  if (file == NULL) return;
  va_list arguments;
  va_start(arguments, format);
  fputs("pump runtime: ", file);
  vfprintf(file, format, arguments);
  fputc('\n', file);
  va_end(arguments);
  if (file != stderr) fclose(file);
}

void rt_stub(const char *name) {
  rt_log("%s is not implemented", name);
}

typedef CUresult (*proc_address)(const char *, void **, int, uint64_t, int *);

static void resolve(proc_address find, uint64_t flags, struct rt_driver *out) {
  void *address;
  int status;
/* Looks up all functions of the list; a function that the driver lacks stays NULL. */
#define X(level, twin, symbol, name, version, parameters, arguments)                       \
  address = NULL;                                                                          \
  if (find(#name, &address, version, flags, &status) == CUDA_SUCCESS)                      \
    memcpy(&out->symbol, &address, sizeof address);
#include "lab/driver/base/driver_list.h"
}

static void load(void) {
  load_error = cudaErrorInsufficientDriver;
  if (getenv("PUMP_VIRTUAL_PROFILE") == NULL) {
    fputs("pump: these substitutes for CUDA's runtime libraries need the virtual GPU; take "
          "them out of LD_PRELOAD, or use: pump-run --virtual PROFILE COMMAND\n",
          stderr);
    return;
  }
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  void *symbol = library ? dlsym(library, "cuGetProcAddress_v2") : NULL;
  proc_address find;
  if (symbol == NULL) {
    rt_log("libcuda.so.1: %s", library ? "no cuGetProcAddress_v2" : dlerror());
    return;
  }
  memcpy(&find, &symbol, sizeof symbol);
  resolve(find, CU_GET_PROC_ADDRESS_DEFAULT, &rt_driver);
  resolve(find, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &rt_per_thread);
  symbol = dlsym(library, "pump_virtual_block");
  memcpy(&virtual_block, &symbol, sizeof symbol);
  load_error = cudaSuccess;
}

cudaError_t rt_load(void) {
  pthread_once(&load_once, load);
  return load_error;
}

void rt_block(uint64_t address, uint64_t length_bytes) {
  if (virtual_block != NULL) virtual_block(address, length_bytes);
}

/* Initializes once per process: a forked child tries again and gets the driver's error. */
cudaError_t rt_init(void) {
  static int initialised_in; /* process id */
  int pid = (int)getpid();
  cudaError_t error = rt_load();
  if (error != cudaSuccess || __atomic_load_n(&initialised_in, __ATOMIC_ACQUIRE) == pid)
    return error;
  error = rt_driver.cuInit(0);
  if (error == cudaSuccess) __atomic_store_n(&initialised_in, pid, __ATOMIC_RELEASE);
  return error;
}

static cudaError_t make_current(void) {
  CUdevice device;
  cudaError_t error = rt_init();
  pthread_mutex_lock(&lock);
  if (error == cudaSuccess && primary == NULL) {
    error = rt_driver.cuDeviceGet(&device, 0);
    if (error == cudaSuccess) error = rt_driver.cuDevicePrimaryCtxRetain(&primary, device);
  }
  if (error == cudaSuccess) error = rt_driver.cuCtxSetCurrent(primary);
  pthread_mutex_unlock(&lock);
  return error;
}

cudaError_t rt_enter(void) {
  CUcontext current = NULL;
  cudaError_t error = rt_load();
  if (error != cudaSuccess) return error;
  if (rt_driver.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current != NULL)
    return cudaSuccess;
  return make_current();
}

void rt_forget_context(void) {
  pthread_mutex_lock(&lock);
  primary = NULL;
  pthread_mutex_unlock(&lock);
}
