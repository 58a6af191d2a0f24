/* client_life.c - processes that do something unusual around the driver. Each command
 * prints "ok" if everything is as without pump, else the failed check. Needs only libc.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pump_cuda.h"

#define CHECK(condition)                                                                   \
  do {                                                                                     \
    if (!(condition)) {                                                                    \
      printf("line %d: %s\n", __LINE__, #condition);                                       \
      return 1;                                                                            \
    }                                                                                      \
  } while (0)

static const char *self;

static void *driver_function(const char *name) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  return driver == NULL ? NULL : dlsym(driver, name);
}

static int init(void) {
  CUresult (*cuInit)(unsigned int) = driver_function("cuInit");
  return cuInit == NULL ? -1 : cuInit(0);
}

/* The first query of libcudart: an empty name with version 0. */
static int empty_name(void) {
  CUresult (*v1)(const char *, void **, int, cuuint64_t) =
      driver_function("cuGetProcAddress");
  CUresult (*v2)(const char *, void **, int, cuuint64_t, int *) =
      driver_function("cuGetProcAddress_v2");
  void *address = NULL;
  CHECK(v1("", &address, 0, 0) == CUDA_ERROR_INVALID_VALUE && address == NULL);
  CHECK(v2("", &address, 0, 0, NULL) == CUDA_ERROR_INVALID_VALUE && address == NULL);
  CHECK(v2(NULL, &address, 12000, 0, NULL) == CUDA_ERROR_INVALID_VALUE);
  CHECK(v2("cuNoSuchFunction", &address, 12000, 0, NULL) == CUDA_ERROR_NOT_FOUND);
  CHECK(v2("cuMemAlloc", NULL, 0, 0, NULL) == CUDA_ERROR_NOT_FOUND);
  return 0;
}

/* Without a driver there must be no sign of one. */
static int missing(void) {
  extern CUresult cuInit(unsigned int) __attribute__((weak));
  CHECK(dlopen("libcuda.so.1", RTLD_NOW) == NULL);
  dlerror();
  CHECK(dlsym(RTLD_DEFAULT, "cuInit") == NULL);
  const char *error = dlerror();
  CHECK(error != NULL && strstr(error, "cuInit") != NULL);
  void *program = dlopen(NULL, RTLD_NOW);
  CHECK(dlsym(program, "cuMemAlloc_v2") == NULL);
  CHECK(cuInit == NULL || cuInit(0) != CUDA_SUCCESS);
  return 0;
}

/* errno and dlerror belong to the program. */
static int traces(void) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  errno = 77;
  CHECK(dlsym(driver, "cuMemAlloc_v2") != NULL && errno == 77 && dlerror() == NULL);
  CHECK(dlsym(driver, "cuNotThere") == NULL && dlerror() != NULL && dlerror() == NULL);
  errno = 78;
  CHECK(init() == CUDA_SUCCESS && errno == 78);
  CUcontext context;
  CUdeviceptr address;
  CUresult (*create)(CUcontext *, unsigned int, CUdevice) =
      driver_function("cuCtxCreate_v2");
  CUresult (*alloc)(CUdeviceptr *, size_t) = driver_function("cuMemAlloc_v2");
  errno = 79;
  CHECK(create(&context, 0, 0) == CUDA_SUCCESS && errno == 79);
  CHECK(alloc(&address, 8 << 20) == CUDA_SUCCESS && errno == 79);
  return 0;
}

static void *look_up_all(void *unused) {
  (void)unused;
  static const char *const some[] = {"cuInit", "cuMemAlloc_v2", "cuLaunchKernel_ptsz",
                                     "cuGetProcAddress_v2", "cuMemsetD8_v2"};
  for (int i = 0; i < 2000; i++) {
    void *address = driver_function(some[i % 5]);
    Dl_info info;
    if (address == NULL || dladdr(address, &info) == 0) return (void *)1;
    if (getenv("EXPECT_WRAPPER") != NULL && strstr(info.dli_fname, "libpump") == NULL)
      return (void *)2;
    if (i == 0 && init() != CUDA_SUCCESS) return (void *)3;
  }
  return NULL;
}

static int threads(void) {
  pthread_t thread[8];
  for (int i = 0; i < 8; i++) pthread_create(&thread[i], NULL, look_up_all, NULL);
  for (int i = 0; i < 8; i++) {
    void *result;
    pthread_join(thread[i], &result);
    CHECK(result == NULL);
  }
  return 0;
}

static int use(void) {
  CUcontext context;
  CUdeviceptr address;
  size_t free_bytes, total_bytes;
  CUresult (*create)(CUcontext *, unsigned int, CUdevice) =
      driver_function("cuCtxCreate_v2");
  CUresult (*alloc)(CUdeviceptr *, size_t) = driver_function("cuMemAlloc_v2");
  CUresult (*release)(CUdeviceptr) = driver_function("cuMemFree_v2");
  CUresult (*info)(size_t *, size_t *) = driver_function("cuMemGetInfo_v2");
  CHECK(create(&context, 0, 0) == CUDA_SUCCESS);
  CHECK(alloc(&address, 8 << 20) == CUDA_SUCCESS);
  CHECK(info(&free_bytes, &total_bytes) == CUDA_SUCCESS);
  CHECK(free_bytes > total_bytes / 2 && free_bytes % (2 << 20) == 0);
  CHECK(release(address) == CUDA_SUCCESS);
  CHECK(release(address) != CUDA_SUCCESS);
  return 0;
}

static int in_child(int (*work)(void)) {
  pid_t child = fork();
  if (child == 0) _exit(work());
  int status;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  return 0;
}

static int child_without_init(void) {
  CUresult (*release)(CUdeviceptr) = driver_function("cuMemFree_v2");
  CUresult (*launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                     unsigned, CUstream, void **, void **) =
      driver_function("cuLaunchKernel");
  CHECK(release(0) == CUDA_SUCCESS);
  CHECK(launch(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) == CUDA_SUCCESS);
  return 0;
}

static int child_with_init(void) {
  CHECK(init() == CUDA_SUCCESS);
  return use();
}

/* Children before and after cuInit, a child that calls cuInit again, and further work. */
static int forks(void) {
  CHECK(in_child(child_with_init) == 0);
  CHECK(init() == CUDA_SUCCESS && use() == 0);
  CHECK(in_child(child_without_init) == 0);
  CHECK(in_child(child_with_init) == 0);
  return use();
}

/* A child that ends with exit and runs its exit handlers. */
static int fork_exit(void) {
  CHECK(init() == CUDA_SUCCESS && use() == 0);
  pid_t child = fork();
  if (child == 0) exit(0);
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  return 0;
}

static int exec_self(void) {
  CHECK(init() == CUDA_SUCCESS && use() == 0);
  fflush(stdout);
  execl(self, self, "use", (char *)NULL);
  return 1;
}

static int init_and_use(void) {
  CHECK(init() == CUDA_SUCCESS);
  return use();
}

/* Loads a library with these flags; the library finds the driver by itself. */
static int plugin(int flags) {
  void *library = dlopen(getenv("PLUGIN"), RTLD_NOW | flags);
  CHECK(library != NULL);
  int (*run)(void) = dlsym(library, "plugin_run");
  CHECK(run != NULL && run() == 0);
  return 0;
}

static int deepbind(void) {
  return plugin(RTLD_DEEPBIND);
}
static int no_deepbind(void) {
  return plugin(0);
}

/* cuInit goes through pump; the library's own calls do not. */
static int init_then_deepbind(void) {
  CHECK(init() == CUDA_SUCCESS);
  return plugin(RTLD_DEEPBIND);
}

static int init_then_plugin(void) {
  CHECK(init() == CUDA_SUCCESS);
  return plugin(0);
}

/* In a pipeline the output arrives completely, and so does its end. */
static int chatter(void) {
  CHECK(init() == CUDA_SUCCESS && use() == 0);
  for (int i = 0; i < 1000; i++) printf("line %d\n", i);
  return 0;
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    int (*run)(void);
  } commands[] = {{"empty", empty_name},
                  {"missing", missing},
                  {"traces", traces},
                  {"threads", threads},
                  {"forks", forks},
                  {"exec", exec_self},
                  {"use", init_and_use},
                  {"deepbind", deepbind},
                  {"plugin", no_deepbind},
                  {"chatter", chatter},
                  {"fork_exit", fork_exit},
                  {"init_deepbind", init_then_deepbind},
                  {"init_plugin", init_then_plugin}};
  self = argv[0];
  for (size_t i = 0; argc > 1 && i < sizeof commands / sizeof *commands; i++) {
    if (strcmp(argv[1], commands[i].name) != 0) continue;
    int result = commands[i].run();
    if (result == 0) printf("ok\n");
    return result;
  }
  return 2;
}
