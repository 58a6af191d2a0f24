/* client_rules.c - allocates through libraries, as its arguments request; linked to the
 * driver.
 *
 * Each argument is a step that prints its result on its own line:
 *   `load:FILE`      Loads FILE with dlopen as the current library.
 *   `through:BYTES`  The current library allocates.
 *   `deep:BYTES`     The current library calls this program, which allocates 40 calls deep.
 *   `alloc:BYTES`    This program allocates.
 *   `handle`         The current library gets an IPC handle of the last allocation.
 *   `range`          This program gets a handle of a part of the last allocation.
 *   `sync`           This program sets SYNC_MEMOPS on the last allocation.
 *   `kind`           The current library queries IS_MANAGED in two ways.
 *   `kernel:NAME`    This program looks up a kernel.
 *   `called:NAME`    The current library calls this program, which looks up a kernel.
 *   `wait`, `write`, `batch`  Make a stream memory operation on the last allocation.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pump_cuda.h"
#include "pump_cuda_graph.h"

#define PUMP_HOOK(name, pfn, parameters, arguments) extern CUresult name parameters;
#include "shim/driver/hooks.h"

static CUdeviceptr address;
static void *library;

static CUresult plainly(size_t bytes) {
  return cuMemAlloc_v2(&address, bytes);
}

/* Recurses without tail calls, so that each call leaves a frame. */
static CUresult down(int calls, size_t bytes) {
  volatile CUresult result = calls == 0 ? plainly(bytes) : 0;
  if (calls != 0) result = down(calls - 1, bytes);
  return result;
}

static CUresult deeply(size_t bytes) {
  return down(40, bytes);
}

static void *of_library(const char *name) {
  void *found = library == NULL ? NULL : dlsym(library, name);
  if (found == NULL) exit(3);
  return found;
}

static CUresult through(size_t bytes) {
  CUresult (*allocate)(CUdeviceptr *, size_t);
  *(void **)&allocate = of_library("allocate");
  return allocate(&address, bytes);
}

static CUresult through_deeply(size_t bytes) {
  CUresult (*call)(CUresult (*)(size_t), size_t);
  *(void **)&call = of_library("call_back");
  return call(deeply, bytes);
}

static CUresult ask_for_handle(void) {
  CUresult (*ask)(CUdeviceptr);
  *(void **)&ask = of_library("ask_for_handle");
  return ask(address);
}

static CUresult set_sync(void) {
  unsigned int yes = 1;
  return cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address);
}

static CUresult ask_kind(unsigned int *kinds) {
  CUresult (*ask)(CUdeviceptr, unsigned int *);
  *(void **)&ask = of_library("ask_kind");
  return ask(address, kinds);
}

static const char *kernel_name;

static CUresult ask_for_kernel(size_t unused) {
  CUfunction function;
  (void)unused;
  volatile CUresult result = cuModuleGetFunction(&function, NULL, kernel_name);
  return result;
}

static CUresult called_for_kernel(void) {
  CUresult (*call)(CUresult (*)(size_t), size_t);
  *(void **)&call = of_library("call_back");
  return call(ask_for_kernel, 0);
}

static void batch(void) {
  CUstreamBatchMemOpParams operations[2] = {
      {.operation = CU_STREAM_MEM_OP_BARRIER},
      {.value_op = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32, .address = address}}};
  printf("%d\n", cuStreamBatchMemOp_v2(NULL, 2, operations, 0));
}

int main(int argc, char **argv) {
  CUcontext context;
  unsigned int kinds[2] = {9, 9};
  if (cuInit(0) != CUDA_SUCCESS || cuCtxCreate_v2(&context, 0, 0) != CUDA_SUCCESS) return 1;
  for (int i = 1; i < argc; i++) {
    const char *colon = strchr(argv[i], ':');
    size_t bytes = colon == NULL ? 0 : strtoull(colon + 1, NULL, 10);
    if (strncmp(argv[i], "load:", 5) == 0)
      printf("%d\n", (library = dlopen(colon + 1, RTLD_NOW)) == NULL);
    else if (strncmp(argv[i], "through:", 8) == 0)
      printf("%d\n", through(bytes));
    else if (strncmp(argv[i], "deep:", 5) == 0)
      printf("%d\n", through_deeply(bytes));
    else if (strncmp(argv[i], "alloc:", 6) == 0)
      printf("%d\n", plainly(bytes));
    else if (strncmp(argv[i], "kernel:", 7) == 0)
      kernel_name = colon + 1, printf("%d\n", ask_for_kernel(0));
    else if (strncmp(argv[i], "called:", 7) == 0)
      kernel_name = colon + 1, printf("%d\n", called_for_kernel());
    else if (strcmp(argv[i], "handle") == 0)
      printf("%d\n", ask_for_handle());
    else if (strcmp(argv[i], "range") == 0)
      printf("%d\n", cuMemGetHandleForAddressRange(&address, address, 4096, 1, 0));
    else if (strcmp(argv[i], "sync") == 0)
      printf("%d\n", set_sync());
    else if (strcmp(argv[i], "kind") == 0)
      printf("%d", ask_kind(kinds)), printf(" %u %u\n", kinds[0], kinds[1]);
    else if (strcmp(argv[i], "wait") == 0)
      printf("%d\n", cuStreamWaitValue32_v2(NULL, address, 0, 0));
    else if (strcmp(argv[i], "write") == 0)
      printf("%d\n", cuStreamWriteValue64_ptsz(NULL, address, 0, 0));
    else if (strcmp(argv[i], "batch") == 0)
      batch();
  }
  return 0;
}
