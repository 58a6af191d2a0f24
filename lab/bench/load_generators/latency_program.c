/* latency_program.c - measures the time from a kernel launch to its prefetch call.
 *
 *   latency_program SAMPLES PAUSE_US    one line a sample: microseconds, or "missing".
 *
 * The launched kernels, a few milliseconds apart, use blocks that are not on the GPU. The
 * program runs under pump-run with a budget of half its memory. It uses ranges of one
 * block in turn, so each should be evicted before its next use. A launch is not measured
 * if its block is still on the GPU, by the driver's log. The first round is not measured
 * either.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "latency.h"
#include "pump_cuda.h"

#define RANGES 512
#define BLOCK ((size_t)2 << 20)
#define TIMEOUT_NS 200000000u
#define WARM_UP (RANGES + 32)

CUresult cuInit(unsigned int flags);
CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device);
CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority);
CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes);
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name);
CUresult cuLaunchKernel(CUfunction function, unsigned int gx, unsigned int gy,
                        unsigned int gz, unsigned int bx, unsigned int by, unsigned int bz,
                        unsigned int shared_bytes, CUstream stream, void **params,
                        void **extra);

static void must(CUresult result, const char *call) {
  if (result == CUDA_SUCCESS) return;
  fprintf(stderr, "%s: CUDA error %d\n", call, result);
  exit(1);
}

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void sleep_us(uint64_t us) {
  struct timespec pause = {.tv_sec = (time_t)(us / 1000000),
                           .tv_nsec = (long)(us % 1000000) * 1000};
  nanosleep(&pause, NULL);
}

/* Returns the time of the first prefetch that covers `address`, starting with number
 * `from`; 0 if there is none within TIMEOUT_NS. */
static uint64_t prefetch_ns(uint64_t from, CUdeviceptr address) {
  uint64_t until_ns = now_ns() + TIMEOUT_NS;
  for (uint64_t at = from;;) {
    const struct latency_call *call = &latency_log.calls[at % LATENCY_CALLS];
    if (__atomic_load_n(&call->sequence, __ATOMIC_ACQUIRE) == at + 1) {
      if (address >= call->address && address - call->address < call->bytes)
        return call->time_ns;
      at++;
    } else if (now_ns() > until_ns) {
      return 0;
    } else {
      sleep_us(100); /* leaves the CPU to the measured threads */
    }
  }
}

static uint64_t launch(CUfunction kernel, CUstream stream, CUdeviceptr address) {
  void *params[] = {&address};
  uint64_t before_ns = now_ns();
  must(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL), "cuLaunchKernel");
  return before_ns;
}

static void measure(long samples, uint64_t pause_us) {
  static CUdeviceptr ranges[RANGES];
  CUcontext context;
  CUstream stream;
  CUfunction kernel;
  must(cuInit(0), "cuInit");
  must(cuCtxCreate_v2(&context, 0, 0), "cuCtxCreate");
  must(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0), "cuStreamCreate");
  must(cuModuleGetFunction(&kernel, NULL, "p1"), "cuModuleGetFunction");
  for (int i = 0; i < RANGES; i++) must(cuMemAlloc_v2(&ranges[i], BLOCK), "cuMemAlloc");
  sleep_us(1000000); /* the worker starts */
  long measured = -WARM_UP;
  for (long i = 0; measured < samples && i < WARM_UP + 3 * samples; i++) {
    CUdeviceptr address = ranges[i % RANGES];
    bool there =
        __atomic_load_n(latency_there(&latency_log, address), __ATOMIC_ACQUIRE) != 0;
    uint64_t from = __atomic_load_n(&latency_log.reserved, __ATOMIC_ACQUIRE);
    __atomic_store_n(&latency_log.closed, 1, __ATOMIC_RELEASE);
    uint64_t begin_ns = launch(kernel, stream, address), end_ns = 0;
    bool wanted = measured >= 0 && !there;
    if (wanted) end_ns = prefetch_ns(from, address);
    __atomic_store_n(&latency_log.closed, 0, __ATOMIC_RELEASE);
    if (wanted && end_ns == 0) puts("missing");
    if (wanted && end_ns != 0) printf("%.3f\n", (double)(end_ns - begin_ns) / 1000);
    measured += measured < 0 || wanted;
    sleep_us(measured < 0 ? 500 : pause_us + (uint64_t)(rand() % 1000));
  }
}

int main(int argc, char **argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: %s SAMPLES PAUSE_US\n", argv[0]);
    return 2;
  }
  measure(atol(argv[1]), strtoull(argv[2], NULL, 10));
  return 0;
}
