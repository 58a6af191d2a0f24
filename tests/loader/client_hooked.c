/* client_hooked.c - allocates and frees with functions that it finds in the given way:
 * linked, handle, default or address.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "pump_cuda.h"

extern CUresult cuInit(unsigned int flags);
extern CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes);
extern CUresult cuMemFree_v2(CUdeviceptr address);
extern CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);
extern CUresult cuCtxSetCurrent(CUcontext context);

#define TIMES 3
#define BYTES (4u << 20)

typedef CUresult ask(const char *, void **, int, cuuint64_t, void *);

static void *find(const char *way, const char *name, const char *asked) {
  void *driver = dlopen("libcuda.so.1", RTLD_LAZY), *found = NULL;
  if (strcmp(way, "handle") == 0) return dlsym(driver, name);
  if (strcmp(way, "default") == 0) return dlsym(RTLD_DEFAULT, name);
  ask *address_of = (ask *)dlsym(driver, "cuGetProcAddress_v2");
  return address_of(asked, &found, 12000, 0, NULL) == CUDA_SUCCESS ? found : NULL;
}

int main(int argc, char **argv) {
  CUresult (*allocate)(CUdeviceptr *, size_t) = cuMemAlloc_v2;
  CUresult (*release)(CUdeviceptr) = cuMemFree_v2;
  CUcontext context = NULL;
  int failed = argc != 2;
  if (!failed && strcmp(argv[1], "linked") != 0) {
    allocate =
        (CUresult (*)(CUdeviceptr *, size_t))find(argv[1], "cuMemAlloc_v2", "cuMemAlloc");
    release = (CUresult (*)(CUdeviceptr))find(argv[1], "cuMemFree_v2", "cuMemFree");
  }
  failed += cuInit(0) != 0 || cuDevicePrimaryCtxRetain(&context, 0) != 0 ||
            cuCtxSetCurrent(context) != 0;
  for (int i = 0; i < TIMES && !failed; i++) {
    CUdeviceptr address = 0;
    failed += allocate(&address, BYTES) != 0 || address == 0 || release(address) != 0;
  }
  printf("failed %d\n", failed);
  return failed;
}
