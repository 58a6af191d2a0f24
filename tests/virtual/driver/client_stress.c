/* client_stress.c - six threads use all of the virtual driver at once.
 *
 * Linked with the driver's sources, under a sanitizer. Each thread checks the value that
 * it set. argv[1] is a file of PTX with the kernel "touch(ptr, ptr, ptr, int)". */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "lab/driver/base/driver_types.h"

#define X(level, twin, symbol, name, version, parameters, arguments)                       \
  DECLARE_##twin(symbol, parameters)
#define DECLARE_NONE(symbol, parameters) CUresult symbol parameters;
#define DECLARE_SZ DECLARE_NONE
#define DECLARE_DS DECLARE_NONE
#define DECLARE_EZ DECLARE_NONE
#include "lab/driver/base/driver_list.h"

#define THREADS 6
#define ROUNDS 10
#define MIB (1u << 20)
#define MUST(call)                                                                         \
  do {                                                                                     \
    CUresult result = call;                                                                \
    if (result != CUDA_SUCCESS) {                                                          \
      fprintf(stderr, "%s: %d\n", #call, result);                                          \
      exit(1);                                                                             \
    }                                                                                      \
  } while (0)

static CUcontext context;
static CUfunction function;
static char ptx[65536];
static int host_calls;

static void on_host(void *unused) {
  (void)unused;
  __atomic_add_fetch(&host_calls, 1, __ATOMIC_RELAXED);
}

static void launch(CUstream stream, CUdeviceptr a, CUdeviceptr b) {
  int n = 0;
  void *parameters[] = {&a, &a, &b, &n};
  MUST(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, parameters, NULL));
}

static void replay(CUstream stream, CUdeviceptr a, CUdeviceptr b) {
  CUgraph graph;
  CUgraphExec exec;
  MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  for (int i = 0; i < 5; i++) launch(stream, a, b);
  MUST(cuStreamEndCapture(stream, &graph));
  MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
  MUST(cuGraphDestroy(graph));
  MUST(cuGraphLaunch(exec, stream));
  MUST(cuGraphLaunch(exec, stream));
  MUST(cuStreamSynchronize(stream));
  MUST(cuGraphExecDestroy(exec));
}

static void load_and_unload(void) {
  CUmodule module;
  CUfunction other;
  MUST(cuModuleLoadData(&module, ptx));
  MUST(cuModuleGetFunction(&other, module, "touch"));
  MUST(cuModuleUnload(module));
}

static void one_round(unsigned value, int round) {
  CUstream stream;
  CUevent event;
  CUdeviceptr managed, plain, pooled;
  uint32_t *pinned;
  size_t discarded = 4 * MIB;
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  MUST(cuMemAllocManaged(&managed, 6 * MIB, CU_MEM_ATTACH_GLOBAL));
  MUST(cuMemAlloc_v2(&plain, MIB));
  MUST(cuMemHostAlloc((void **)&pinned, 4096, 0));
  MUST(cuMemsetD32Async(managed, value, MIB, stream));
  for (int i = 0; i < 20; i++) {
    launch(stream, managed, plain);
    int to = i % 2 ? 0 : CU_DEVICE_CPU;
    if (i % 5 == 0) MUST(cuMemPrefetchAsync(managed, 6 * MIB, to, stream));
  }
  MUST(cuLaunchHostFunc(stream, on_host, NULL));
  MUST(cuMemAllocAsync(&pooled, 65536, stream));
  MUST(cuMemFreeAsync(pooled, stream));
  MUST(cuStreamWaitValue32_v2(stream, (CUdeviceptr)&pinned[0], 1, 0));
  MUST(cuMemcpyDtoHAsync_v2(&pinned[1], managed, 4, stream));
  MUST(cuEventRecord(event, stream));
  __atomic_store_n(&pinned[0], 1, __ATOMIC_RELEASE);
  if (round % 3 == 0)
    while (cuEventQuery(event) == CUDA_ERROR_NOT_READY) usleep(50);
  else
    MUST(cuEventSynchronize(event));
  if (pinned[1] != value) {
    fprintf(stderr, "%u instead of %u\n", pinned[1], value);
    exit(1);
  }
  replay(stream, managed, plain);
  MUST(cuMemDiscardBatchAsync(&managed, &discarded, 1, 0, stream));
  load_and_unload();
  MUST(cuMemFree_v2(managed));
  MUST(cuMemFree_v2(plain));
  MUST(cuMemFreeHost(pinned));
  MUST(cuEventDestroy_v2(event));
  MUST(cuStreamDestroy_v2(stream));
}

static void *work(void *number) {
  int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  MUST(cuCtxSetCurrent(context));
  MUST(cuThreadExchangeStreamCaptureMode(&mode));
  for (int round = 0; round < ROUNDS; round++)
    one_round(1000u * (unsigned)(size_t)number + (unsigned)round, round);
  return NULL;
}

int main(int count, char **arguments) {
  pthread_t threads[THREADS];
  CUmodule module;
  FILE *file = count == 2 ? fopen(arguments[1], "r") : NULL;
  if (file == NULL || fread(ptx, 1, sizeof ptx - 1, file) == 0) return 2;
  fclose(file);
  MUST(cuInit(0));
  MUST(cuDevicePrimaryCtxRetain(&context, 0));
  MUST(cuCtxSetCurrent(context));
  MUST(cuModuleLoadData(&module, ptx));
  MUST(cuModuleGetFunction(&function, module, "touch"));
  for (size_t i = 0; i < THREADS; i++)
    pthread_create(&threads[i], NULL, work, (void *)(i + 1));
  for (size_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  MUST(cuCtxSynchronize());
  printf("%d\n", host_calls);
  return host_calls == THREADS * ROUNDS ? 0 : 1;
}
