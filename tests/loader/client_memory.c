/* client_memory.c - allocates, queries and frees as given by its arguments; linked to the
 * driver.
 *
 * Each argument is a step that prints its result on its own line. The steps alloc:BYTES,
 * managed:BYTES, pitch:WIDTH:HEIGHT, async:BYTES and pool:BYTES make the current
 * allocation. Further steps:
 *   freeasync  free  free:OFFSET (of the current one)  free:null  info  destroy  detach
 *   create  peer  green  reset  ask:ATTRIBUTE  asks (all four at once)  range
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pump_cuda.h"
#include "pump_cuda_graph.h"

#define PUMP_HOOK(name, pfn, parameters, arguments) extern CUresult name parameters;
#include "shim/driver/hooks.h"

static CUcontext context;
static CUdeviceptr address;
static size_t a, b;

static void ask_one(int attribute) {
  union {
    unsigned int word;
    uint64_t value;
  } data = {.value = 0x5555555555555555};
  CUresult result = cuPointerGetAttribute(&data, attribute, address);
  int wide = attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE ||
             attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER;
  if (wide && attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER)
    printf("%d %s\n", result, data.value == address ? "address" : "none");
  else
    printf("%d %llu\n", result, wide ? (unsigned long long)data.value : data.word);
}

static void ask_all(void) {
  CUpointer_attribute attributes[] = {
      CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
      CU_POINTER_ATTRIBUTE_HOST_POINTER, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  unsigned int type = 9, managed = 9;
  uint64_t host = 9;
  size_t size = 9;
  void *data[] = {&type, &managed, &host, &size};
  CUresult result = cuPointerGetAttributes(4, attributes, data, address);
  printf("%d %u %u %s %zu\n", result, type, managed, host == 0 ? "none" : "address", size);
}

static CUresult step(const char *text) {
  const char *colon = strchr(text, ':');
  a = b = 0;
  if (colon != NULL) a = strtoull(colon + 1, NULL, 10);
  if (colon != NULL && strchr(colon + 1, ':') != NULL)
    b = strtoull(strchr(colon + 1, ':') + 1, NULL, 10);
  if (strncmp(text, "alloc:", 6) == 0) return cuMemAlloc_v2(&address, a);
  if (strncmp(text, "managed:", 8) == 0)
    return cuMemAllocManaged(&address, a, CU_MEM_ATTACH_GLOBAL);
  if (strncmp(text, "pitch:", 6) == 0) {
    CUresult result = cuMemAllocPitch_v2(&address, &a, a, b, 4);
    printf("pitch %zu\n", a);
    return result;
  }
  if (strncmp(text, "async:", 6) == 0) return cuMemAllocAsync(&address, a, NULL);
  if (strncmp(text, "pool:", 5) == 0)
    return cuMemAllocFromPoolAsync(&address, a, (CUmemoryPool)0x3000, NULL);
  if (strcmp(text, "freeasync") == 0) return cuMemFreeAsync(address, NULL);
  if (strcmp(text, "free:null") == 0) return cuMemFree_v2(0);
  if (strncmp(text, "free", 4) == 0) return cuMemFree_v2(address + a);
  if (strcmp(text, "destroy") == 0) return cuCtxDestroy_v2(context);
  if (strcmp(text, "peer") == 0) return cuCtxEnablePeerAccess(context, 0);
  if (strcmp(text, "green") == 0) return cuGreenCtxDestroy((CUgreenCtx)0x4000);
  if (strcmp(text, "reset") == 0) return cuDevicePrimaryCtxReset_v2(0);
  if (strcmp(text, "detach") == 0) return cuCtxDetach(context);
  if (strcmp(text, "create") == 0) return cuCtxCreate_v2(&context, 0, 0);
  if (strcmp(text, "info") == 0) {
    CUresult result = cuMemGetInfo_v2(&a, &b);
    printf("free %zu total %zu\n", a >> 20, b >> 20);
    return result == CUDA_SUCCESS ? cuMemGetInfo_v2(NULL, &b) : result;
  }
  if (strcmp(text, "range") == 0) {
    CUdeviceptr base = 0;
    CUresult result = cuMemGetAddressRange_v2(&base, &a, address + 8);
    printf("range %d %zu\n", base == address, a);
    return result;
  }
  return -1;
}

int main(int argc, char **argv) {
  if (cuInit(0) != CUDA_SUCCESS || cuCtxCreate_v2(&context, 0, 0) != CUDA_SUCCESS) return 1;
  for (int i = 1; i < argc; i++) {
    if (strncmp(argv[i], "ask:", 4) == 0)
      ask_one(atoi(argv[i] + 4));
    else if (strcmp(argv[i], "asks") == 0)
      ask_all();
    else
      printf("%d\n", step(argv[i]));
  }
  return 0;
}
