/* overhead_launch.c - times kernel launches through pump and past it, alternately.
 *
 * Usage: overhead_launch KERNEL RANGES CONTENT LAUNCHES BATCHES
 *
 *   KERNEL    Name of a kernel of the null driver: p10, s1048, s4096.
 *   RANGES    Number of live ranges of 2 MiB. Pump tracks managed memory like its own,
 *             and here it needs no host memory.
 *   CONTENT   Content of the words: pointers, table, numbers or fresh.
 *   LAUNCHES  Number of launches that are timed together.
 *   BATCHES   Number of such measurements, after a quarter as many for warm-up.
 *
 * With pointers, each word points into a random range, half of these to its start. With
 * table, every other word is a pointer, and the others are numbers. There are a tenth as
 * many different pointers as words, as in by-value tables whose entries are mostly stale.
 * With numbers, all words are small numbers and zeros. They are the same in all launches,
 * as in the iterations of a training, so the worker knows them already. With fresh, the
 * numbers differ in each launch.
 *
 * Prints one JSON object: the median ns of a launch with and without pump, and pump's
 * counters. A batch begins when the worker has read all earlier events.
 */
#include <inttypes.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "pump_abi.h"
#include "pump_cuda.h"

#define BLOCK ((uint64_t)PUMP_BLOCK_BYTES)
#define MAX_WORDS 512
#define SETS 64 /* argument sets: few enough to stay in the caches, as in programs */
#define WAIT_S 20

CUresult cuInit(unsigned int flags);
CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device);
CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority);
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name);
CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned int flags);
CUresult cuStreamSynchronize(CUstream stream);
typedef CUresult launch_function(CUfunction function, unsigned int grid_x,
                                 unsigned int grid_y, unsigned int grid_z,
                                 unsigned int block_x, unsigned int block_y,
                                 unsigned int block_z, unsigned int shared_bytes,
                                 CUstream stream, void **params, void **extra);
launch_function cuLaunchKernel;
void *null_function(const char *name);

/* Words of all launches, packed without gaps: rows of whole pages would share a few cache
 * lines. */
static uint64_t words[SETS * MAX_WORDS];
static void *params[SETS * MAX_WORDS];
static size_t word_count; /* words of one launch */
static CUdeviceptr *bases;
static uint64_t range_count;

static void fail(const char *what) {
  fprintf(stderr, "overhead_launch: %s\n", what);
  exit(1);
}

static uint64_t next_random(void) { /* splitmix64 */
  static uint64_t state = 1;
  uint64_t z = state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t pointer(void) {
  uint64_t base = bases[next_random() % range_count];
  return next_random() % 2 == 0 ? base : base + 65536 + next_random() % 4000 * 256;
}

/* Fills the words of a batch; each launch gets different pointers. */
static void fill(const char *content) {
  static uint64_t numbers[MAX_WORDS];
  uint64_t table[MAX_WORDS];
  size_t different = word_count < 10 ? 1 : word_count / 10;
  for (size_t i = 0; i < different; i++) table[i] = pointer();
  for (size_t i = 1; i < word_count && numbers[0] == 0; i++)
    numbers[i] = next_random() % 4 == 0 ? 0 : next_random() % 100000;
  numbers[0] = 1;
  for (size_t i = 0; i < SETS * word_count; i++) {
    size_t column = i % word_count;
    if (strcmp(content, "pointers") == 0)
      words[i] = pointer();
    else if (strcmp(content, "table") == 0 && column % 2 == 0)
      words[i] = table[next_random() % different];
    else if (strcmp(content, "fresh") == 0)
      words[i] = next_random() % 100000;
    else
      words[i] = numbers[column];
  }
}

static double timed(launch_function *launch, CUfunction kernel, CUstream stream,
                    unsigned int launches) {
  uint64_t begin = now_ns();
  for (unsigned int i = 0; i < launches; i++)
    if (launch(kernel, 128, 1, 1, 256, 1, 1, 0, stream, &params[i % SETS * word_count],
               NULL) != 0)
      fail("a launch failed");
  return (double)(now_ns() - begin) / launches;
}

/* Returns the region that pump shares with its worker, or NULL without pump. */
static struct pump_shm *find_region(void) {
  FILE *maps = fopen("/proc/self/maps", "r");
  char line[512];
  struct pump_shm *found = NULL;
  while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
    uint64_t from, to;
    if (sscanf(line, "%" SCNx64 "-%" SCNx64, &from, &to) != 2) continue;
    if (strstr(line, "memfd:") == NULL || to - from < sizeof(struct pump_shm)) continue;
    found = (struct pump_shm *)(uintptr_t)from;
  }
  if (maps != NULL) fclose(maps);
  return found;
}

#define LOAD(word) __atomic_load_n(&(word), __ATOMIC_RELAXED)

/* Waits for a worker and returns the shared region. While it attaches, pump also maps the
 * memory at a second address for some milliseconds. So two searches must find the same
 * region. */
static struct pump_shm *attached(void) {
  uint64_t deadline_ns = now_ns() + WAIT_S * 1000000000ull;
  for (struct pump_shm *before = NULL;;) {
    struct pump_shm *region = find_region();
    if (region != NULL && region == before && LOAD(region->header.worker_heartbeat_ns) != 0)
      return region;
    if (now_ns() > deadline_ns) fail("no worker has attached");
    before = region;
    usleep(300000);
  }
}

static void wait_for_worker(struct pump_shm *region) {
  uint64_t deadline_ns = now_ns() + WAIT_S * 1000000000ull;
  while (LOAD(region->header.event_head) != LOAD(region->header.event_tail)) {
    if (now_ns() > deadline_ns) fail("the worker reads no more records");
    usleep(100);
  }
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double percentile(double *values, size_t count, double share) {
  qsort(values, count, sizeof *values, by_value);
  return values[(size_t)((double)(count - 1) * share)];
}

static void pin_to_last_cpu(void) {
  cpu_set_t allowed, last;
  int chosen = -1;
  sched_getaffinity(0, sizeof allowed, &allowed);
  for (int i = 0; i < CPU_SETSIZE; i++)
    if (CPU_ISSET(i, &allowed)) chosen = i;
  CPU_ZERO(&last);
  CPU_SET(chosen, &last);
  sched_setaffinity(0, sizeof last, &last);
}

int main(int argc, char **argv) {
  if (argc != 6) fail("usage: overhead_launch KERNEL RANGES CONTENT LAUNCHES BATCHES");
  range_count = strtoull(argv[2], NULL, 10);
  unsigned int launches = (unsigned int)strtoul(argv[4], NULL, 10);
  size_t batches = strtoul(argv[5], NULL, 10);
  bool structure = argv[1][0] == 's';
  word_count = strtoul(argv[1] + 1, NULL, 10) / (structure ? sizeof(uint64_t) : 1);
  bases = calloc(range_count, sizeof *bases);
  double *with = calloc(batches, sizeof *with), *without = calloc(batches, sizeof *without);
  double *added = calloc(batches, sizeof *added);
  if (word_count == 0 || word_count > MAX_WORDS || range_count == 0 || launches == 0 ||
      batches == 0 || bases == NULL || with == NULL || without == NULL || added == NULL)
    fail("a number is out of range");
  CUcontext context;
  CUstream stream;
  CUfunction kernel;
  if (cuInit(0) != 0 || cuCtxCreate_v2(&context, 0, 0) != 0 ||
      cuStreamCreateWithPriority(&stream, 0, 0) != 0 ||
      cuModuleGetFunction(&kernel, NULL, argv[1]) != 0)
    fail("the driver does not start");
  for (uint64_t i = 0; i < range_count; i++)
    if (cuMemAllocManaged(&bases[i], BLOCK, 1) != 0) fail("an allocation failed");
  for (size_t i = 0; i < SETS * word_count; i++) params[i] = &words[i];

  struct pump_shm *region = getenv("PUMP_SOCKET") == NULL ? NULL : attached();
  launch_function *plain = (launch_function *)null_function("cuLaunchKernel");
  pin_to_last_cpu();
  uint64_t operations = 0, dropped = 0, markers = 0, signatures = 0;
  for (size_t i = 0; i < batches + batches / 4; i++) { /* the first quarter warms up */
    size_t at = i < batches / 4 ? 0 : i - batches / 4;
    fill(argv[3]);
    cuStreamSynchronize(stream);
    if (region != NULL) wait_for_worker(region);
    if (i == batches / 4 && region != NULL) {
      operations = LOAD(region->shim_counters.operations);
      dropped = LOAD(region->shim_counters.events_dropped);
      markers = LOAD(region->shim_counters.markers);
      signatures = LOAD(region->shim_counters.signatures);
    }
    if (i % 2 == 0) without[at] = timed(plain, kernel, stream, launches);
    with[at] = timed(cuLaunchKernel, kernel, stream, launches);
    if (i % 2 == 1) without[at] = timed(plain, kernel, stream, launches);
    added[at] = with[at] - without[at];
  }
  if (region != NULL) {
    operations = LOAD(region->shim_counters.operations) - operations;
    dropped = LOAD(region->shim_counters.events_dropped) - dropped;
    markers = LOAD(region->shim_counters.markers) - markers;
    signatures = LOAD(region->shim_counters.signatures) - signatures;
  }
  printf("{\"added_ns\": %.2f, \"added_ns_p10\": %.2f, \"added_ns_p90\": %.2f, "
         "\"with_ns\": %.2f, "
         "\"without_ns\": %.2f, \"operations\": %" PRIu64 ", \"dropped\": %" PRIu64
         ", \"markers\": %" PRIu64 ", \"signatures\": %" PRIu64 ", \"worker\": %s}\n",
         percentile(added, batches, 0.5), percentile(added, batches, 0.1),
         percentile(added, batches, 0.9), percentile(with, batches, 0.5),
         percentile(without, batches, 0.5), operations, dropped, markers, signatures,
         region == NULL ? "false" : "true");
  return 0;
}
