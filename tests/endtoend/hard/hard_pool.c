/* hard_pool.c - programs that allocate and free in stream order, and check their memory
 * from the allocation to the free.
 *
 * Usage: hard_pool CASE. Prints "right" (exit status 0) or an error (exit status 9).
 */
#include "hard.h"

static CUcontext context;
static CUfunction stamp, verify;
static CUdeviceptr wrong; /* counts words that another owner changed */

static const char stamp_ptx[] =
    ".version 7.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry stamp(.param .u64 a, .param .u64 b, .param .u64 c)\n{\n  ret;\n}\n"
    ".visible .entry verify(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d)\n"
    "{\n  ret;\n}\n";

static void begin(void) {
  CUmodule module;
  if (context == NULL) load_driver();
  context = start();
  MUST(cu.ModuleLoadData(&module, stamp_ptx));
  MUST(cu.ModuleGetFunction(&stamp, module, "stamp"));
  MUST(cu.ModuleGetFunction(&verify, module, "verify"));
  MUST(cu.MemAlloc(&wrong, 4096));
  MUST(cu.MemsetD32(wrong, 0, 1024));
}

static void check_end(void) {
  uint64_t count = 1;
  MUST(cu.CtxSynchronize());
  MUST(cu.MemcpyDtoH(&count, wrong, sizeof count));
  if (count != 0) FAIL("%llu words changed under their owner", (unsigned long long)count);
}

struct block {
  CUdeviceptr address;
  uint64_t words, number;
};

static void use(const struct api *api, CUfunction function, const struct block *block,
                CUstream stream) {
  struct block b = *block;
  CUdeviceptr result = wrong;
  void *params[] = {&b.address, &b.words, &b.number, &result};
  MUST(api->LaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

static struct block make(const struct api *api, uint64_t bytes, CUstream stream) {
  static uint64_t numbers;
  struct block block = {.words = bytes / 8};
  block.number = __atomic_add_fetch(&numbers, 1, __ATOMIC_RELAXED) << 32;
  MUST(api->MemAllocAsync(&block.address, bytes, stream));
  use(api, stamp, &block, stream);
  return block;
}

static void drop(const struct api *api, const struct block *block, CUstream stream) {
  use(api, verify, block, stream);
  MUST(api->MemFreeAsync(block->address, stream));
}

static uint32_t next(uint32_t *state, uint32_t below) {
  *state = *state * 1664525u + 1013904223u;
  return (*state >> 8) % below;
}

static uint64_t some_bytes(uint32_t *state) {
  uint32_t what = next(state, 8);
  if (what < 3) return 8 + next(state, 65536);
  return what < 6 ? 65536 + next(state, 1u << 20) : MIB + next(state, 4u << 20);
}

/* ---- many streams in many threads ------------------------------------------------- */

#define THREADS 4
#define STREAMS 4
#define KEPT 14 /* blocks per thread */

static void *storm(void *number) {
  uint32_t state = (uint32_t)(uintptr_t)number * 7919 + 1;
  struct block kept[KEPT] = {{0}};
  uint32_t on[KEPT] = {0};
  CUstream streams[STREAMS] = {NULL};
  MUST(cu.CtxSetCurrent(context));
  for (int i = 1; i < STREAMS; i++)
    MUST(cu.StreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
  for (int step = 0; step < 700; step++) {
    uint32_t i = next(&state, KEPT), stream = next(&state, STREAMS);
    /* Number 0 is the default stream, either per-thread or legacy. */
    const struct api *api = (uintptr_t)number & 1 ? &pt : &cu;
    if (kept[i].address != 0) {
      if (next(&state, 6) == 0) { /* freed on another stream, in order */
        CUevent event;
        MUST(cu.EventCreate(&event, CU_EVENT_DISABLE_TIMING));
        MUST(api->EventRecord(event, streams[on[i]]));
        MUST(api->StreamWaitEvent(streams[stream], event, 0));
        MUST(cu.EventDestroy(event));
        on[i] = stream;
      }
      drop(api, &kept[i], streams[on[i]]);
      kept[i].address = 0;
    } else {
      on[i] = stream;
      kept[i] = make(api, some_bytes(&state), streams[stream]);
    }
    if (next(&state, 64) == 0) MUST(api->StreamSynchronize(streams[stream]));
    if (stream != 0 && next(&state, 96) == 0) { /* destroys a stream with work in flight */
      for (uint32_t k = 0; k < KEPT; k++)
        if (kept[k].address != 0 && on[k] == stream) {
          drop(api, &kept[k], streams[stream]);
          kept[k].address = 0;
        }
      MUST(cu.StreamDestroy(streams[stream]));
      MUST(cu.StreamCreate(&streams[stream], CU_STREAM_NON_BLOCKING));
    }
  }
  for (int i = 0; i < KEPT; i++)
    if (kept[i].address != 0)
      drop((uintptr_t)number & 1 ? &pt : &cu, &kept[i], streams[on[i]]);
  for (int i = 1; i < STREAMS; i++) MUST(cu.StreamDestroy(streams[i]));
  if ((uintptr_t)number & 1) MUST(pt.StreamSynchronize(NULL));
  return NULL;
}

static void streams(void) {
  begin();
  in_threads(THREADS, storm);
  check_end();
}

/* ---- answers to a program -------------------------------------------------------- */

static uint64_t figure(CUmemoryPool pool, int attribute) {
  uint64_t value = 1;
  MUST(cu.MemPoolGetAttribute(pool, attribute, &value));
  return value;
}

static void ask(const struct block *block, CUmemoryPool pool) {
  CUdeviceptr inside = block->address + block->words * 4, base = 0;
  CUmemoryPool of = NULL;
  unsigned managed = 9, type = 9;
  size_t bytes = 0, size = 0;
  MUST(cu.MemGetAddressRange(&base, &bytes, inside));
  CHECK(base == block->address && bytes == block->words * 8);
  MUST(cu.PointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside));
  MUST(cu.PointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside));
  MUST(cu.PointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, inside));
  MUST(cu.PointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside));
  MUST(cu.PointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, inside));
  CHECK(base == block->address && size == block->words * 8);
  CHECK(managed == 0 && type == CU_MEMORYTYPE_DEVICE && of == pool);
}

static void answers(void) {
  CUmemoryPool pool;
  CUdeviceptr address;
  begin();
  MUST(cu.DeviceGetDefaultMemPool(&pool, 0));
  uint64_t used = figure(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
  struct block small = make(&cu, 4000, NULL), large = make(&cu, 3 * MIB, NULL);
  ask(&small, pool);
  ask(&large, pool);
  CHECK(figure(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) - used >= 3 * MIB + 4000);
  CHECK(figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 3 * MIB + 4000);
  /* Wrong addresses and second frees get the same answer as from the driver. */
  CHECK(cu.MemFreeAsync(large.address + 512, NULL) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cu.MemFree(large.address + 512) == CUDA_ERROR_INVALID_VALUE);
  drop(&cu, &large, NULL);
  CHECK(cu.MemFreeAsync(large.address, NULL) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cu.MemFree(large.address) == CUDA_ERROR_INVALID_VALUE);
  MUST(cu.StreamSynchronize(NULL));
  MUST(cu.MemFree(small.address)); /* free by the other kind of call */
  MUST(cu.MemAlloc(&address, 64 * 1024));
  MUST(cu.MemFreeAsync(address, NULL));
  CHECK(figure(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == used);
  MUST(cu.MemAllocAsync(&address, 0, NULL));
  CHECK(address == 0);
  CHECK(cu.MemAllocAsync(NULL, 4096, NULL) == CUDA_ERROR_INVALID_VALUE);
  MUST(cu.CtxSynchronize());
  MUST(cu.MemPoolTrimTo(pool, 0));
  MUST(cu.MemPoolTrimTo(pool, 0));
  check_end();
}

/* ---- pools of its own, captures, contexts -------------------------------------------- */

static void own_pools(void) {
  CUmemPoolProps wishes = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                           .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  begin();
  for (int round = 0; round < 20; round++) {
    CUmemoryPool pool;
    CUdeviceptr address[6];
    MUST(cu.MemPoolCreate(&pool, &wishes));
    for (int i = 0; i < 6; i++) {
      MUST(cu.MemAllocFromPoolAsync(&address[i], 5 * MIB, pool, NULL));
      struct block block = {address[i], 5 * MIB / 8, (uint64_t)i << 40};
      use(&cu, stamp, &block, NULL);
      ask(&block, pool);
    }
    for (int i = 0; i < 6; i++) {
      struct block block = {address[i], 5 * MIB / 8, (uint64_t)i << 40};
      drop(&cu, &block, NULL);
    }
    CHECK(figure(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0);
    MUST(cu.MemPoolDestroy(pool));
  }
  check_end();
}

/* Memory allocated in a capture belongs to the graph and is the same in each replay. */
static void capture_own(CUstream stream, int mode, const struct block *outside) {
  CUgraph graph;
  CUgraphExec exec;
  MUST(cu.StreamBeginCapture(stream, mode));
  struct block inside = make(&cu, 3 * MIB, stream), second = make(&cu, 5 * MIB, stream);
  use(&cu, verify, outside, stream);
  CHECK(cu.MemFreeAsync(outside->address, stream) == CUDA_ERROR_INVALID_VALUE);
  drop(&cu, &inside, stream);
  drop(&cu, &second, stream);
  MUST(cu.StreamEndCapture(stream, &graph));
  MUST(cu.GraphInstantiateWithFlags(&exec, graph, 0));
  for (int i = 0; i < 3; i++) {
    MUST(cu.GraphLaunch(exec, stream));
    struct block between = make(&cu, 9 * MIB, stream);
    drop(&cu, &between, stream);
  }
  MUST(cu.StreamSynchronize(stream));
  MUST(cu.GraphExecDestroy(exec));
  MUST(cu.GraphDestroy(graph));
}

/* Pump does nothing inside a capture, but its pool keeps serving other streams. */
static void captures(void) {
  CUstream captured, other;
  CUgraph graph = NULL;
  begin();
  MUST(cu.StreamCreate(&captured, CU_STREAM_NON_BLOCKING));
  MUST(cu.StreamCreate(&other, CU_STREAM_NON_BLOCKING));
  struct block before = make(&cu, 3 * MIB, captured);
  MUST(cu.StreamSynchronize(captured));
  for (int mode = 0; mode < 3; mode++) {
    MUST(cu.StreamBeginCapture(captured, mode));
    use(&cu, verify, &before, captured);
    struct block beside = make(&cu, 40 * MIB, other); /* the pool must grow */
    drop(&cu, &beside, other);
    MUST(cu.StreamEndCapture(captured, &graph));
    MUST(cu.GraphDestroy(graph));
    capture_own(captured, mode, &before);
  }
  drop(&cu, &before, captured);
  MUST(cu.DeviceGraphMemTrim(0));
  check_end();
}

/* Memory kept by the pool has no owner, so other allocations can use it. */
static void room(void) {
  struct block blocks[8];
  CUdeviceptr address;
  begin();
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < 8; i++) blocks[i] = make(&cu, 9 * MIB, NULL);
    for (int i = 0; i < 8; i++) drop(&cu, &blocks[i], NULL);
    MUST(cu.CtxSynchronize());
    MUST(cu.MemAlloc(&address, 70 * MIB));
    MUST(cu.MemFree(address));
  }
  check_end();
}

/* Five blocks need four segments of 32 MiB in order of arrival, and three if sorted by
 * length. Because the requests repeat, the pool returns the fourth segment. */
static void repeats(void) {
  static const uint64_t lengths[] = {14 * MIB, 14 * MIB, 18 * MIB, 18 * MIB, 18 * MIB};
  int (*piece)(uint64_t, uint64_t *, uint64_t *) = dlsym(RTLD_DEFAULT, "pump_pool_piece");
  struct block blocks[5];
  CUdeviceptr first[5]; /* addresses in order of arrival */
  int left = 5;
  begin();
  CHECK(piece != NULL);
  for (int round = 0; round < 1000 && left == 5; round++) {
    for (int i = 0; i < 5; i++) blocks[i] = make(&cu, lengths[i], NULL);
    for (int i = 0; i < 5 && round == 0; i++) first[i] = blocks[i].address;
    for (int i = 0; i < 5; i++) drop(&cu, &blocks[i], NULL);
    MUST(cu.CtxSynchronize());
    usleep(10000); /* pump's thread maintains the pool */
    left = 0;
    for (int i = 0; i < 5; i++)
      left += piece(first[i], &(uint64_t){0}, &(uint64_t){0}) != 0;
  }
  CHECK(left == 4 || left == 3); /* the segment of one block or of two */
  check_end();
}

static void contexts(void) {
  for (int round = 0; round < 6; round++) {
    begin();
    struct block kept[4];
    for (int i = 0; i < 4; i++) kept[i] = make(&cu, 9 * MIB, NULL);
    for (int i = 0; i < 2; i++) drop(&cu, &kept[i], NULL);
    check_end();
    MUST(cu.DevicePrimaryCtxReset(0)); /* two blocks are never freed */
    CHECK(cu.MemFreeAsync(kept[3].address, NULL) != CUDA_SUCCESS);
  }
}

int main(int count, char **words) {
  static const struct hard_case cases[] = {{"streams", streams},     {"answers", answers},
                                           {"own_pools", own_pools}, {"captures", captures},
                                           {"room", room},           {"repeats", repeats},
                                           {"contexts", contexts}};
  return run_case(count, words, cases, sizeof cases / sizeof *cases);
}
