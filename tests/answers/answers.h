/* answers.h - runtime of the program that answer_calls.py generates: right arguments,
 * stale handles, and a record of the answers.
 *
 * Every call has a number. The program prints the number before the call and the answer
 * after it. If a call ends the program, the test restarts the program at the next number.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lab/driver/base/driver_types.h"
#include "shim/include/pump_cuda.h"
#include "shim/include/pump_cuda_graph.h"

#define MIB (1ull << 20)
#define ARGUMENTS 24
#define HANGS_S 3
#define TIMED 8 /* launches in a row, so that pump times at least one of them */

static CUcontext context;
static char buffers[ARGUMENTS][4096] __attribute__((aligned(64)));
static char before[ARGUMENTS][4096];
static uint64_t spare[64];

static const char ptx[] = ".version 7.0\n.target sm_80\n.address_size 64\n"
                          ".visible .entry touch(.param .u64 memory) { ret; }\n"
                          ".visible .global .align 8 .u64 word;\n";

static void *driver(const char *symbol) {
  static void *library;
  if (library == NULL) library = dlopen("libcuda.so.1", RTLD_NOW);
  return library == NULL ? NULL : dlsym(library, symbol);
}

#define D(name, ...) ((CUresult (*)())driver(#name))(__VA_ARGS__)

/* ---- objects: created for a call, destroyed after it ------------------------------- */

#define OBJECTS 64
static struct {
  const char *end; /* destroys the object; NULL: none */
  uint64_t handle;
} made[OBJECTS];
static int made_count;

static uint64_t keep(const char *end, uint64_t handle) {
  if (end != NULL && made_count < OBJECTS) {
    made[made_count].end = end;
    made[made_count++].handle = handle;
  }
  return handle;
}

static void end_from(int first) {
  for (int i = first; i < made_count; i++)
    ((CUresult (*)())driver(made[i].end))(made[i].handle);
  made_count = first;
}

#define MAKE(type, end, call)                                                              \
  static uint64_t new_##type(void) {                                                       \
    uint64_t out = 0;                                                                      \
    (void)(call);                                                                          \
    return out == 0 ? 0 : keep(end, out);                                                  \
  }

static CUmemAllocationProp memory_properties(void) {
  return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
}

static CUresult make_handle(uint64_t *out) {
  CUmemAllocationProp properties = memory_properties();
  return D(cuMemCreate, out, (size_t)2 * MIB, &properties, 0ull);
}
static CUresult make_pool(uint64_t *out) {
  CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  return D(cuMemPoolCreate, out, &properties);
}
static CUresult make_array(uint64_t *out) {
  uint64_t shape[] = {16, 16, 1 | 1ull << 32, 0}; /* as CUDA_ARRAY_DESCRIPTOR */
  return D(cuArrayCreate_v2, out, shape);
}

static CUresult make_mipmapped(uint64_t *out) {
  uint64_t shape[] = {16, 16, 0, 1 | 1ull << 32, 0}; /* as CUDA_ARRAY3D_DESCRIPTOR */
  return D(cuMipmappedArrayCreate, out, shape, 2u);
}
static void nothing(void) {}

MAKE(CUstream, "cuStreamDestroy_v2", D(cuStreamCreate, &out, 1u))
MAKE(CUevent, "cuEventDestroy_v2", D(cuEventCreate, &out, 0u))
MAKE(CUmodule, "cuModuleUnload", D(cuModuleLoadData, &out, ptx))
MAKE(CUfunction, NULL, D(cuModuleGetFunction, &out, new_CUmodule(), "touch"))
MAKE(CUlibrary, "cuLibraryUnload",
     D(cuLibraryLoadData, &out, ptx, NULL, NULL, 0u, NULL, NULL, 0u))
MAKE(CUkernel, NULL, D(cuLibraryGetKernel, &out, new_CUlibrary(), "touch"))
MAKE(CUgraph, "cuGraphDestroy", D(cuGraphCreate, &out, 0u))
MAKE(CUgraphNode, NULL,
     D(cuGraphAddEmptyNode, &out, new_CUgraph(), (void *)NULL, (size_t)0))
MAKE(CUgraphExec, "cuGraphExecDestroy",
     D(cuGraphInstantiateWithFlags, &out, new_CUgraph(), 0ull))
MAKE(CUmemoryPool, "cuMemPoolDestroy", make_pool(&out))
MAKE(CUarray, "cuArrayDestroy", make_array(&out))
MAKE(CUmipmappedArray, "cuMipmappedArrayDestroy", make_mipmapped(&out))
MAKE(CUuserObject, "cuUserObjectRelease",
     D(cuUserObjectCreate, &out, spare, nothing, 1u, 1u))
MAKE(CUmemGenericAllocationHandle, "cuMemRelease", make_handle(&out))
MAKE(CUdeviceptr, "cuMemFree_v2", D(cuMemAlloc_v2, &out, (size_t)2 * MIB))

static uint64_t new_CUcontext(void) {
  uint64_t out = 0;
  if (D(cuCtxCreate_v2, &out, 0u, 0) != CUDA_SUCCESS) return 0;
  D(cuCtxSetCurrent, context);
  return keep("cuCtxDestroy_v2", out);
}

/* Returns the handle of a destroyed object; the virtual driver reuses handles late. */
static uint64_t stale(uint64_t (*make)(void)) {
  int first = made_count;
  uint64_t handle = make();
  end_from(first);
  return handle;
}

/* ---- arguments ------------------------------------------------------------------------
 */

/* Returns a pointer to the argument's own buffer; also used for results. */
static void *pointed(int argument) {
  return buffers[argument];
}

/* Returns a size that the parameter of that name accepts. */
static uint64_t valid_size_for_parameter(const char *name) {
  int count = strstr(name, "ount") != NULL || strstr(name, "num") != NULL ||
              strstr(name, "length") != NULL;
  int none = strstr(name, "lags") != NULL || strstr(name, "ndex") != NULL ||
             strstr(name, "ffset") != NULL || strstr(name, "lignment") != NULL;
  return none ? 0 : count ? 1 : 64;
}

/* ---- calls -------------------------------------------------------------------------- */

static int number, first_call, current_function_ends;

static void line(const char *text) {
  if (write(1, text, strlen(text)) < 0) _exit(3);
}

static void enter_device(int reset) {
  if (reset) D(cuDevicePrimaryCtxReset_v2, 0);
  D(cuDevicePrimaryCtxRetain, &context, 0);
  D(cuCtxSetCurrent, context);
}

/* Allocates ANSWERS_FILL_MIB MiB, more than the budget, so that the device is active. */
static void fill_device(void) {
  const char *mib = getenv("ANSWERS_FILL_MIB");
  uint64_t memory;
  if (mib != NULL) D(cuMemAlloc_v2, &memory, (size_t)atoi(mib) * MIB);
}

/* Returns whether to make the call of `symbol` with bad `argument` ("-": none). */
static int begin(const char *symbol, const char *argument, const char *how) {
  char text[256];
  if (number++ < first_call) return 0;
  memset(buffers, 0, sizeof buffers);
  memset(spare, 0, sizeof spare);
  D(cuCtxSetCurrent, context);
  snprintf(text, sizeof text, "%d %s %s %s ", number - 1, symbol, argument, how);
  line(text);
  alarm(HANGS_S);
  return 1;
}

static void arguments_ready(void) {
  memcpy(before, buffers, sizeof buffers);
}

/* Prints the result, which arguments were written to, and the context's state. */
static void answered(CUresult result, int argument_count) {
  char text[128], written[ARGUMENTS + 1] = "";
  for (int i = 0; i < argument_count; i++)
    written[i] = memcmp(before[i], buffers[i], sizeof buffers[i]) != 0 ? 'w' : '.';
  int after = D(cuCtxSynchronize);
  snprintf(text, sizeof text, "%d %s %d\n", result, written[0] != 0 ? written : "-", after);
  line(text);
  if (!current_function_ends) end_from(0);
  made_count = 0;
  alarm(0);
}
