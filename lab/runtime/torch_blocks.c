/* torch_blocks.c - reports the blocks of PyTorch's caching allocator to the virtual GPU.
 *
 * `c10::reportMemoryUsageToProfiler` is called by PyTorch's caching allocator for each
 * block that it hands out or takes back. The library libc10_cuda.so finds that function
 * by name, so this one, in a preloaded library, is called instead. The shim interposes
 * the same function and calls this one; the two share nothing. */
#include <dlfcn.h>
#include <string.h>

#include "cudart.h"

/* c10::reportMemoryUsageToProfiler(void *, int64_t, size_t, size_t, c10::Device). A
 * device is two bytes, its type first. */
#define C10_REPORT _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE
#define C10_REPORT_NAME "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"
#define C10_CUDA 1
typedef void c10_report(void *pointer, int64_t change_bytes, size_t allocated_bytes,
                        size_t reserved_bytes, uint16_t device);

/* Turns off PyTorch's use of cuDNN, like torch.backends.cudnn.enabled = False. The
 * stand-in for cuDNN has no operations, while PyTorch has its own kernels for them. A
 * program allocates memory before it needs any. */
static void disable_cudnn(void) {
  void *library = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  if (library == NULL) return;
  void *find_context = dlsym(library, "_ZN2at13globalContextEv");
  void *find_enable = dlsym(library, "_ZN2at7Context19setUserEnabledCuDNNEb");
  dlclose(library);
  void *(*context)(void);
  void (*enable)(void *context, bool enabled);
  if (find_context == NULL || find_enable == NULL) return;
  memcpy(&context, &find_context, sizeof context);
  memcpy(&enable, &find_enable, sizeof enable);
  enable(context(), false);
}

/* Returns the hidden original. Python loads PyTorch outside the global scope. */
static c10_report *original(void) {
  static c10_report *function;
  c10_report *known = __atomic_load_n(&function, __ATOMIC_RELAXED);
  if (known != NULL) return known;
  void *found = dlsym(RTLD_NEXT, C10_REPORT_NAME);
  void *library = found == NULL ? dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD) : NULL;
  if (library != NULL) {
    found = dlsym(library, C10_REPORT_NAME);
    dlclose(library);
  }
  memcpy(&known, &found, sizeof known);
  disable_cudnn();
  __atomic_store_n(&function, known, __ATOMIC_RELAXED);
  return known;
}

RT_EXPORT c10_report C10_REPORT;
void C10_REPORT(void *pointer, int64_t change_bytes, size_t allocated_bytes,
                size_t reserved_bytes, uint16_t device) {
  c10_report *next = original();
  if (next != NULL) next(pointer, change_bytes, allocated_bytes, reserved_bytes, device);
  if ((device & 0xff) == C10_CUDA)
    rt_block(rt_address(pointer), change_bytes > 0 ? (uint64_t)change_bytes : 0);
}
