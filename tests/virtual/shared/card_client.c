/* card_client.c - one of several programs that share a card. Each one executes the
 * commands of its standard input on the virtual driver, one a line, and answers:
 *
 *   `plain BYTES`, `managed BYTES`: CODE SLOT.
 *   `free SLOT`, `sync`, `touch SLOT COUNT`, `copy BYTES COUNT`: CODE.
 *   `prefetch SLOT TO_HOST`, `discard SLOT`: CODE.
 *   `call COUNT`: CODE, and the number of host functions that have run.
 *   `share PLACE`: CODE HANDLE, of a new event there.
 *   `open PLACE HANDLE`, `query PLACE`, `await PLACE`, `drop PLACE`, `mark PLACE`: CODE.
 *   `elapsed FROM TO`: milliseconds.
 *   `info`: FREE TOTAL.
 *   `fork`: the answer of the child's cuMemGetInfo.
 *   `random SEED COUNT`: CODE. Runs work of all kinds, without waiting.
 *   `leave`, `vanish`, `exec`: no answer. The program calls exit or _exit, or executes
 *   another program.
 *
 * With the argument "thread" the first thread ends by pthread_exit, and another obeys. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lab/driver/base/driver_types.h"

#define X(level, twin, symbol, name, version, parameters, arguments)                       \
  DECLARE_##twin(symbol, parameters)
#define DECLARE_NONE(symbol, parameters) CUresult symbol parameters;
#define DECLARE_SZ DECLARE_NONE
#define DECLARE_DS DECLARE_NONE
#define DECLARE_EZ DECLARE_NONE
#include "lab/driver/base/driver_list.h"

#define SLOTS 64
#define MARKS 16
#define HOST_BYTES (1ull << 30)

static const char ptx[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
                          ".visible .entry touch(.param .u64 a) { ret; }\n";
static CUdeviceptr slots[SLOTS];
static size_t lengths[SLOTS];
static int managed[SLOTS];
static CUevent marks[MARKS];
static CUstream stream, other;
static CUfunction function;
static void *host;
static int host_calls;

static void on_host(void *unused) {
  (void)unused;
  __atomic_add_fetch(&host_calls, 1, __ATOMIC_RELAXED);
}

static CUresult start(void) {
  CUcontext context;
  CUmodule module;
  CUresult r = cuInit(0);
  if (r == 0) r = cuDevicePrimaryCtxRetain(&context, 0);
  if (r == 0) r = cuCtxSetCurrent(context);
  if (r == 0) r = cuModuleLoadData(&module, ptx);
  if (r == 0) r = cuModuleGetFunction(&function, module, "touch");
  if (r == 0) r = cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  if (r == 0) r = cuStreamCreate(&other, 0);
  if (r == 0) r = cuMemHostAlloc(&host, HOST_BYTES, 0);
  for (int i = 0; r == 0 && i < MARKS; i++) r = cuEventCreate(&marks[i], 0);
  return r;
}

static CUresult allocate(int is_managed, size_t bytes, int *slot) {
  for (*slot = 0; *slot < SLOTS && slots[*slot] != 0;) ++*slot;
  if (*slot == SLOTS) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult r = is_managed ? cuMemAllocManaged(&slots[*slot], bytes, 1)
                          : cuMemAlloc_v2(&slots[*slot], bytes);
  if (r != 0) slots[*slot] = 0;
  lengths[*slot] = bytes;
  managed[*slot] = is_managed;
  return r;
}

static CUresult release(int slot) {
  CUresult r = cuMemFree_v2(slots[slot]);
  slots[slot] = 0;
  return r;
}

static CUresult touch(CUstream where, int slot) {
  void *parameters[] = {&slots[slot]};
  return cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, where, parameters, NULL);
}

/* Runs a step of random work; a lack of memory is allowed. */
static CUresult step(unsigned *seed) {
  int slot = rand_r(seed) % SLOTS, made;
  CUstream where = rand_r(seed) % 2 ? stream : other;
  size_t bytes = (size_t)(1 + rand_r(seed) % 24) << 21;
  CUresult r = 0;
  switch (rand_r(seed) % 10) {
  case 0:
    r = allocate(1, bytes, &made);
    return r == CUDA_ERROR_OUT_OF_MEMORY ? 0 : r;
  case 1:
    r = allocate(0, bytes / 4, &made);
    return r == CUDA_ERROR_OUT_OF_MEMORY ? 0 : r;
  case 2:
    return slots[slot] != 0 && rand_r(seed) % 4 == 0 ? release(slot) : 0;
  case 3:
    return cuMemcpyHtoDAsync_v2(slots[slot], host, slots[slot] ? lengths[slot] : 0, where);
  case 4:
    if (slots[slot] == 0 || !managed[slot]) return 0;
    return cuMemPrefetchAsync(slots[slot], lengths[slot],
                              rand_r(seed) % 3 ? 0 : CU_DEVICE_CPU, where);
  case 5:
    if (slots[slot] == 0 || !managed[slot]) return 0;
    return cuMemDiscardBatchAsync(&slots[slot], &lengths[slot], 1, 0, stream);
  case 6:
    return cuLaunchHostFunc(where, on_host, NULL);
  case 7:
    r = cuEventRecord(marks[slot % MARKS], where);
    return r ? r : cuStreamWaitEvent(stream, marks[(slot + 1) % MARKS], 0);
  case 8:
    return rand_r(seed) % 8 ? 0 : cuCtxSynchronize();
  default:
    return slots[slot] != 0 ? touch(where, slot) : 0;
  }
}

static void share(CUevent *place) {
  CUipcEventHandle handle = {{0}};
  CUresult r = cuEventCreate(place, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS);
  if (r == 0) r = cuIpcGetEventHandle(&handle, *place);
  printf("%d ", r);
  for (size_t i = 0; i < sizeof handle; i++)
    printf("%02x", (unsigned char)handle.reserved[i]);
  printf("\n");
}

static CUresult open_event(CUevent *place, const char *digits) {
  CUipcEventHandle handle;
  for (size_t i = 0; i < sizeof handle; i++) {
    unsigned byte = 0;
    sscanf(digits + 2 * i, "%2x", &byte);
    handle.reserved[i] = (char)byte;
  }
  return cuIpcOpenEventHandle(place, handle);
}

static void child(void) {
  size_t free_bytes, total_bytes;
  CUresult r = cuMemGetInfo_v2(&free_bytes, &total_bytes);
  exit(r == CUDA_ERROR_NOT_INITIALIZED ? 7 : 8);
}

static CUresult obey(const char *verb, long long a, long long b, const char *rest) {
  CUresult r = 0;
  int slot = 0, status;
  size_t free_bytes, total_bytes;
  float milliseconds = 0;
  if (strcmp(verb, "plain") == 0 || strcmp(verb, "managed") == 0) {
    r = allocate(verb[0] == 'm', (size_t)a, &slot);
    printf("%d %d\n", r, slot);
  } else if (strcmp(verb, "info") == 0) {
    cuMemGetInfo_v2(&free_bytes, &total_bytes);
    printf("%zu %zu\n", free_bytes, total_bytes);
  } else if (strcmp(verb, "elapsed") == 0) {
    cuEventElapsedTime_v2(&milliseconds, marks[a], marks[b]);
    printf("%.6f\n", (double)milliseconds);
  } else if (strcmp(verb, "fork") == 0) {
    pid_t pid = fork();
    if (pid == 0) child();
    waitpid(pid, &status, 0);
    printf("%d\n", WEXITSTATUS(status));
  } else if (strcmp(verb, "share") == 0) {
    share(&marks[a]);
  } else if (strcmp(verb, "leave") == 0) {
    exit(0);
  } else if (strcmp(verb, "vanish") == 0) {
    _exit(0);
  } else if (strcmp(verb, "exec") == 0) {
    execlp("sleep", "sleep", "1000", (char *)NULL);
  } else {
    if (strcmp(verb, "free") == 0) r = release((int)a);
    if (strcmp(verb, "sync") == 0) r = cuCtxSynchronize();
    if (strcmp(verb, "mark") == 0) r = cuEventRecord(marks[a], stream);
    if (strcmp(verb, "open") == 0) r = open_event(&marks[a], rest);
    if (strcmp(verb, "query") == 0) r = cuEventQuery(marks[a]);
    if (strcmp(verb, "await") == 0) r = cuStreamWaitEvent(stream, marks[a], 0);
    if (strcmp(verb, "drop") == 0) r = cuEventDestroy_v2(marks[a]);
    if (strcmp(verb, "prefetch") == 0)
      r = cuMemPrefetchAsync(slots[a], lengths[a], b ? CU_DEVICE_CPU : 0, stream);
    if (strcmp(verb, "discard") == 0)
      r = cuMemDiscardBatchAsync(&slots[a], &lengths[a], 1, 0, stream);
    for (long long i = 0; r == 0 && i < b; i++) {
      if (strcmp(verb, "touch") == 0) r = touch(stream, (int)a);
      if (strcmp(verb, "copy") == 0)
        r = cuMemcpyHtoDAsync_v2(slots[0], host, (size_t)a, stream);
    }
    if (strcmp(verb, "random") == 0) {
      unsigned seed = (unsigned)a;
      for (long long i = 0; r == 0 && i < b; i++) r = step(&seed);
    }
    if (strcmp(verb, "call") == 0) {
      for (long long i = 0; r == 0 && i < a; i++)
        r = cuLaunchHostFunc(stream, on_host, NULL);
      if (r == 0) r = cuStreamSynchronize(stream);
      printf("%d %d\n", r, host_calls);
    } else {
      printf("%d\n", r);
    }
  }
  return r;
}

static void *obey_all(void *unused) {
  char line[256], verb[32], rest[160];
  (void)unused;
  setvbuf(stdout, NULL, _IOLBF, 0);
  printf("%d\n", start());
  while (fgets(line, sizeof line, stdin) != NULL) {
    long long a = 0, b = 0;
    rest[0] = 0;
    sscanf(line, "%*s %*s %159s", rest);
    if (sscanf(line, "%31s %lld %lld", verb, &a, &b) >= 1) obey(verb, a, b, rest);
  }
  exit(0);
}

int main(int count, char **words) {
  pthread_t thread;
  if (count < 2 || strcmp(words[1], "thread") != 0) obey_all(NULL);
  if (pthread_create(&thread, NULL, obey_all, NULL) == 0) pthread_exit(NULL);
  return 1;
}
