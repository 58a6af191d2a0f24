/* hard.h - shared by the hard_*.c programs: the driver, kernels, checked buffers.
 *
 * The programs are not linked against CUDA. Like the CUDA runtime they dlopen the driver,
 * find cuGetProcAddress_v2 with dlsym, and get all other functions from it. `cu` has the
 * functions with the legacy default stream, `pt` has those with the per-thread one.
 *
 * A `set` is a group of buffers. The launched `mix` kernels (a = a * K + b + seed)
 * determine their contents. The host computes one word of every 4 KiB too, and compares
 * it at the end.
 */
#ifndef HARD_H
#define HARD_H

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pump_cuda.h"
#include "pump_cuda_graph.h"

/* base name, requested version, parameters */
#define CALLS(X)                                                                           \
  X(Init, 2000, (unsigned))                                                                \
  X(DevicePrimaryCtxRetain, 7000, (CUcontext *, CUdevice))                                 \
  X(DevicePrimaryCtxRelease, 11000, (CUdevice))                                            \
  X(DevicePrimaryCtxReset, 11000, (CUdevice))                                              \
  X(CtxCreate, 3020, (CUcontext *, unsigned, CUdevice))                                    \
  X(CtxDestroy, 4000, (CUcontext))                                                         \
  X(CtxSetCurrent, 4000, (CUcontext))                                                      \
  X(CtxGetCurrent, 4000, (CUcontext *))                                                    \
  X(CtxSynchronize, 2000, (void))                                                          \
  X(ModuleLoadData, 2000, (CUmodule *, const void *))                                      \
  X(ModuleUnload, 2000, (CUmodule))                                                        \
  X(ModuleGetFunction, 2000, (CUfunction *, CUmodule, const char *))                       \
  X(MemAlloc, 3020, (CUdeviceptr *, size_t))                                               \
  X(MemAllocManaged, 6000, (CUdeviceptr *, size_t, unsigned))                              \
  X(MemAllocPitch, 3020, (CUdeviceptr *, size_t *, size_t, size_t, unsigned))              \
  X(MemFree, 3020, (CUdeviceptr))                                                          \
  X(MemAllocAsync, 11020, (CUdeviceptr *, size_t, CUstream))                               \
  X(MemAllocFromPoolAsync, 11020, (CUdeviceptr *, size_t, CUmemoryPool, CUstream))         \
  X(MemFreeAsync, 11020, (CUdeviceptr, CUstream))                                          \
  X(DeviceGetDefaultMemPool, 11020, (CUmemoryPool *, CUdevice))                            \
  X(MemPoolCreate, 11020, (CUmemoryPool *, const CUmemPoolProps *))                        \
  X(MemPoolDestroy, 11020, (CUmemoryPool))                                                 \
  X(MemPoolTrimTo, 11020, (CUmemoryPool, size_t))                                          \
  X(MemPoolGetAttribute, 11020, (CUmemoryPool, int, void *))                               \
  X(MemGetInfo, 3020, (size_t *, size_t *))                                                \
  X(MemGetAddressRange, 3020, (CUdeviceptr *, size_t *, CUdeviceptr))                      \
  X(PointerGetAttribute, 4000, (void *, int, CUdeviceptr))                                 \
  X(PointerGetAttributes, 7000, (unsigned, int *, void **, CUdeviceptr))                   \
  X(MemcpyHtoD, 3020, (CUdeviceptr, const void *, size_t))                                 \
  X(MemcpyDtoH, 3020, (void *, CUdeviceptr, size_t))                                       \
  X(MemcpyDtoDAsync, 3020, (CUdeviceptr, CUdeviceptr, size_t, CUstream))                   \
  X(MemsetD32, 3020, (CUdeviceptr, unsigned, size_t))                                      \
  X(MemsetD32Async, 3020, (CUdeviceptr, unsigned, size_t, CUstream))                       \
  X(StreamCreate, 2000, (CUstream *, unsigned))                                            \
  X(StreamDestroy, 4000, (CUstream))                                                       \
  X(StreamSynchronize, 2000, (CUstream))                                                   \
  X(StreamQuery, 2000, (CUstream))                                                         \
  X(StreamWaitEvent, 3020, (CUstream, CUevent, unsigned))                                  \
  X(StreamBeginCapture, 10010, (CUstream, int))                                            \
  X(StreamEndCapture, 10000, (CUstream, CUgraph *))                                        \
  X(StreamIsCapturing, 10000, (CUstream, int *))                                           \
  X(GraphInstantiateWithFlags, 11040, (CUgraphExec *, CUgraph, unsigned long long))        \
  X(GraphLaunch, 10000, (CUgraphExec, CUstream))                                           \
  X(GraphExecDestroy, 10000, (CUgraphExec))                                                \
  X(DeviceGraphMemTrim, 11040, (CUdevice))                                                 \
  X(GraphDestroy, 10000, (CUgraph))                                                        \
  X(GraphCreate, 10000, (CUgraph *, unsigned))                                             \
  X(GraphClone, 10000, (CUgraph *, CUgraph))                                               \
  X(GraphAddKernelNode, 12000,                                                             \
    (CUgraphNode *, CUgraph, const CUgraphNode *, size_t,                                  \
     const CUDA_KERNEL_NODE_PARAMS_v2 *))                                                  \
  X(GraphAddMemcpyNode, 10000,                                                             \
    (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const CUDA_MEMCPY3D *,           \
     CUcontext))                                                                           \
  X(GraphAddMemsetNode, 10000,                                                             \
    (CUgraphNode *, CUgraph, const CUgraphNode *, size_t,                                  \
     const CUDA_MEMSET_NODE_PARAMS_v1 *, CUcontext))                                       \
  X(GraphAddChildGraphNode, 10000,                                                         \
    (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUgraph))                        \
  X(GraphExecKernelNodeSetParams, 12000,                                                   \
    (CUgraphExec, CUgraphNode, const CUDA_KERNEL_NODE_PARAMS_v2 *))                        \
  X(GraphExecMemcpyNodeSetParams, 10020,                                                   \
    (CUgraphExec, CUgraphNode, const CUDA_MEMCPY3D *, CUcontext))                          \
  X(GraphExecUpdate, 12000, (CUgraphExec, CUgraph, CUgraphExecUpdateResultInfo *))         \
  X(GraphNodeSetEnabled, 11060, (CUgraphExec, CUgraphNode, unsigned))                      \
  X(EventCreate, 2000, (CUevent *, unsigned))                                              \
  X(EventDestroy, 4000, (CUevent))                                                         \
  X(EventRecord, 2000, (CUevent, CUstream))                                                \
  X(EventQuery, 2000, (CUevent))                                                           \
  X(EventSynchronize, 2000, (CUevent))                                                     \
  X(LaunchKernel, 4000,                                                                    \
    (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,     \
     CUstream, void **, void **))

struct api {
#define X(name, version, parameters) CUresult(*name) parameters;
  CALLS(X)
#undef X
};
extern struct api cu, pt;

#define MIB ((size_t)1 << 20)
#define FAIL(...) (fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), _exit(9))
#define CHECK(condition)                                                                   \
  ((condition) ? (void)0 : (void)FAIL("%s:%d: not so: %s", __FILE__, __LINE__, #condition))
#define MUST(call)                                                                         \
  do {                                                                                     \
    CUresult result_ = (call);                                                             \
    if (result_ != CUDA_SUCCESS)                                                           \
      FAIL("%s:%d: %d: %s", __FILE__, __LINE__, result_, #call);                           \
  } while (0)

#define SET_MAX 24
#define BUFFER_BYTES (4 * MIB)
#define WORDS (BUFFER_BYTES / 8)
#define STRIDE 512
#define SAMPLES (WORDS / STRIDE)

struct set {
  unsigned count;
  uint32_t random, seed;
  unsigned period, draws;
  CUdeviceptr buffers[SET_MAX];
  uint64_t model[SET_MAX][SAMPLES]; /* word i * STRIDE + i % STRIDE of each buffer */
};

extern const char *const mix_ptx;

void load_driver(void); /* dlopen and lookups, no CUDA call yet */
CUfunction load_mix(CUmodule *module);
struct set *set_make(unsigned count, uint32_t seed);
uint32_t set_random(struct set *set, uint32_t below);
/* Applies one mix to the model and returns its seed. */
uint64_t set_apply(struct set *set, unsigned target, unsigned source);
/* Launches a random mix through `api` on `stream` and applies it to the model. */
void set_step(struct set *set, const struct api *api, CUfunction mix, CUstream stream);
CUresult try_launch_mix(const struct api *api, CUfunction mix, CUstream stream,
                        CUdeviceptr target, CUdeviceptr source, uint64_t seed);
void launch_mix(const struct api *api, CUfunction mix, CUstream stream, CUdeviceptr target,
                CUdeviceptr source, uint64_t seed);
/* Copies all buffers back, compares and frees them. All work must be finished. */
void set_check(struct set *set);
void set_check_values(struct set *set);
void set_free(struct set *set);
/* Retains the primary context and makes it current. */
CUcontext start(void);
void in_threads(unsigned count, void *(*body)(void *));

struct hard_case {
  const char *name;
  void (*run)(void);
};
/* Runs the case words[1], prints "right" and returns 0; fails for an unknown case. */
int run_case(int count, char **words, const struct hard_case *cases, size_t length);

#endif
