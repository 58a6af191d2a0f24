/* witness.c - preloaded into PyTorch: what its allocator hands out, independently of pump.
 *
 * DESIGN
 * PyTorch's caching allocator reports each block that it hands out and takes back to
 * c10::reportMemoryUsageToProfiler; its backend cudaMallocAsync calls the runtime for each.
 * This library stands in front of both. It writes a line for each to $PUMP_BENCH_BLOCKS
 *
 *   TIME_NS ADDRESS BYTES       CLOCK_MONOTONIC; 0 bytes: taken back
 *
 * and tells the virtual GPU where such a block ends (pump_witness_piece), since a real
 * kernel stays inside its tensors and a modelled one would run on to the end of the
 * segment. With PUMP_BENCH_MANAGED=1 cudaMalloc gives managed memory: PyTorch on Unified
 * Memory, nothing else. It is none of pump's: pump neither sees nor asks it.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))
#define ATTACH_GLOBAL 1u
#define DEVICE_CUDA 1
enum { NONE, FREE, LIVE };

struct span {
  uint64_t base, end;
};
struct set {
  struct span *spans;
  size_t count, room;
};

/* segments: where an address in no block is stale. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct set blocks, segments;
static FILE *file;

/* Index of the first span that ends above the address. */
static size_t position(const struct set *set, uint64_t address) {
  size_t low = 0, high = set->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (set->spans[middle].end > address)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

static bool holds(const struct set *set, size_t at, uint64_t address) {
  return at < set->count && set->spans[at].base <= address;
}

static bool contains(const struct set *set, uint64_t address) {
  return holds(set, position(set, address), address);
}

static void add(struct set *set, uint64_t base, uint64_t length_bytes) {
  size_t at = position(set, base);
  if (set->count == set->room) {
    set->room = set->room ? 2 * set->room : 1024;
    set->spans = realloc(set->spans, set->room * sizeof *set->spans);
    if (set->spans == NULL) abort();
  }
  memmove(&set->spans[at + 1], &set->spans[at], (set->count - at) * sizeof *set->spans);
  set->spans[at] = (struct span){base, base + length_bytes};
  set->count++;
}

static void drop(struct set *set, uint64_t base) {
  size_t at = position(set, base);
  if (!holds(set, at, base) || set->spans[at].base != base) return;
  set->count--;
  memmove(&set->spans[at], &set->spans[at + 1], (set->count - at) * sizeof *set->spans);
}

/* A block that is handed out in no segment of cudaMalloc: PyTorch has mapped its memory
 * (expandable segments). What it has used there stays a segment, mapped or not. */
static void cover(uint64_t base, uint64_t end) {
  size_t at;
  pthread_mutex_lock(&lock);
  if (contains(&blocks, base)) base = end; /* of cudaMallocAsync */
  while (base < end && (at = position(&segments, base)) < segments.count &&
         segments.spans[at].base < end) {
    const struct span *span = &segments.spans[at];
    if (span->base > base) add(&segments, base, span->base - base);
    base = segments.spans[position(&segments, base)].end;
  }
  if (base < end) add(&segments, base, end - base);
  pthread_mutex_unlock(&lock);
}

/* length_bytes 0: the block is taken back. */
static void note(uint64_t base, uint64_t length_bytes) {
  struct timespec time;
  if (base == 0) return;
  clock_gettime(CLOCK_MONOTONIC, &time);
  pthread_mutex_lock(&lock);
  if (length_bytes > 0)
    add(&blocks, base, length_bytes);
  else
    drop(&blocks, base);
  const char *name = getenv("PUMP_BENCH_BLOCKS");
  if (file == NULL && name != NULL && *name != 0) file = fopen(name, "we");
  if (file != NULL)
    fprintf(file, "%llu %llu %llu\n",
            (unsigned long long)time.tv_sec * 1000000000u +
                (unsigned long long)time.tv_nsec,
            (unsigned long long)base, (unsigned long long)length_bytes);
  pthread_mutex_unlock(&lock);
}

__attribute__((destructor)) static void ended(void) {
  if (file != NULL) fclose(file);
}

EXPORT int pump_witness_piece(uint64_t address, uint64_t *base, uint64_t *length_bytes) {
  pthread_mutex_lock(&lock);
  size_t at = position(&blocks, address);
  int found = contains(&segments, address) ? FREE : NONE;
  if (holds(&blocks, at, address)) {
    *base = blocks.spans[at].base;
    *length_bytes = blocks.spans[at].end - *base;
    found = LIVE;
  }
  pthread_mutex_unlock(&lock);
  return found;
}

/* c10::reportMemoryUsageToProfiler(void *, int64_t, size_t, size_t, c10::Device): a device
 * is two bytes, its type first. */
#define REPORT _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE
EXPORT void REPORT(void *pointer, int64_t bytes, size_t allocated, size_t reserved,
                   uint16_t device) {
  void (*next)(void *, int64_t, size_t, size_t, uint16_t);
  void *found = dlsym(RTLD_NEXT, "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");
  if ((device & 0xff) == DEVICE_CUDA) {
    uint64_t base = (uint64_t)pointer, length_bytes = bytes > 0 ? (uint64_t)bytes : 0;
    cover(base, base + length_bytes);
    note(base, length_bytes);
  }
  memcpy(&next, &found, sizeof next); /* pump listens behind us, and then PyTorch itself */
  if (next != NULL) next(pointer, bytes, allocated, reserved, device);
}

/* The runtime's function of that name: the runtime is loaded before this is called. */
static void *runtime(const char *name) {
  void *library = dlopen("libcudart.so.13", RTLD_LAZY | RTLD_NOLOAD);
  void *found = library ? dlsym(library, name) : NULL;
  if (found != NULL) return found;
  fprintf(stderr, "witness: libcudart.so.13 has no %s\n", name);
  abort();
}

EXPORT int cudaMalloc(void **pointer, size_t length_bytes) {
  const char *managed = getenv("PUMP_BENCH_MANAGED");
  int result;
  if (managed != NULL && *managed == '1') {
    int (*real)(void **, size_t, unsigned) = runtime("cudaMallocManaged");
    result = real(pointer, length_bytes, ATTACH_GLOBAL);
  } else {
    int (*real)(void **, size_t) = runtime("cudaMalloc");
    result = real(pointer, length_bytes);
  }
  pthread_mutex_lock(&lock);
  if (result == 0) add(&segments, (uint64_t)*pointer, length_bytes);
  pthread_mutex_unlock(&lock);
  return result;
}

EXPORT int cudaFree(void *pointer) {
  int (*real)(void *) = runtime("cudaFree");
  pthread_mutex_lock(&lock);
  drop(&segments, (uint64_t)pointer);
  pthread_mutex_unlock(&lock);
  return real(pointer);
}

EXPORT int cudaMallocAsync(void **pointer, size_t length_bytes, void *stream) {
  int (*real)(void **, size_t, void *) = runtime("cudaMallocAsync");
  int result = real(pointer, length_bytes, stream);
  if (result == 0) note((uint64_t)*pointer, length_bytes);
  return result;
}

EXPORT int cudaFreeAsync(void *pointer, void *stream) {
  int (*real)(void *, void *) = runtime("cudaFreeAsync");
  note((uint64_t)pointer, 0);
  return real(pointer, stream);
}
