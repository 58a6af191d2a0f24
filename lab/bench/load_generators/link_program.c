/* link_program.c - measures the rates that executors reach on the virtual GPU's link.
 *
 *   link_program DRIVER SLICE_MIB ROUNDS    one JSON object a line: a phase of a round.
 *
 * The program links the shim's executors, without pump-run, hooks or daemon. It acts as
 * the worker and renews the schedule before it ends. First one half of a range moves to
 * the host while the other half moves to the GPU (both). Then the first half moves to the
 * GPU (in), and then the other half moves to the host (out). So every phase moves bytes
 * that are on the other side.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "hooks_absent.h"
#include "shim/execute/executors.h"
#include "shim/link/link.h"
#include "shim/memory/host.h"

#define HALF_BLOCKS 512 /* 1 GiB */
#define HALF_BYTES ((uint64_t)HALF_BLOCKS * PUMP_BLOCK_BYTES)

/* ---- stubs for the rest of the shim -------------------------------------------------- */

struct pump_real pump_real;
struct pump_present pump_present;
bool pump_off;
uint32_t pump_reporting = 1;
__thread uint32_t pump_reentry_depth __attribute__((tls_model("initial-exec")));
uint64_t pump_calls_seen;
bool pump_recording;
struct pump_shm *pump_shm;
pthread_mutex_t pump_range_lock = PTHREAD_MUTEX_INITIALIZER;

uint64_t pump_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

struct pump_driver_scope pump_driver_scope_open(void) {
  return (struct pump_driver_scope){false, CU_STREAM_CAPTURE_MODE_RELAXED};
}
void pump_driver_scope_close(struct pump_driver_scope scope) {
  (void)scope;
}

bool pump_capturing(CUstream stream) {
  (void)stream;
  return false;
}

/* No block is duplicated. */
void (*pump_driver_page_map)(uint64_t address, uint64_t *entries, uint32_t count);
void pump_read_mostly_note(uint64_t first_block, uint64_t end_block, bool set) {
  (void)first_block, (void)end_block, (void)set;
}
bool pump_read_mostly_is_set(uint64_t address) {
  (void)address;
  return false;
}
bool pump_peer_may_reach(uint32_t device) {
  (void)device;
  return false;
}
bool pump_range_lookup(uint64_t address, struct pump_hit *hit) {
  (void)address, (void)hit;
  return false;
}

/* The budget is fixed, the GPU is not shared, and nothing is counted. */
uint32_t pump_device_adopt_budgets(void) {
  return 0;
}
void pump_device_adopted_budgets(uint32_t device, uint64_t *least, uint64_t *most) {
  (void)device;
  *least = *most = 0;
}
bool pump_device_read_use(uint32_t device, struct pump_gpu_use *gpu) {
  (void)device, (void)gpu;
  return false;
}
uint32_t pump_device_share(const struct pump_neighbours *neighbours) {
  (void)neighbours;
  return 0;
}
void pump_plain_add_own(uint32_t device, CUcontext context, uint64_t bytes) {
  (void)device, (void)context, (void)bytes;
}

static void load_driver(const char *path) {
  void *driver = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  if (driver == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    exit(1);
  }
#define PUMP_HOOK(name, pfn, parameters, arguments)                                        \
  *(void **)&pump_real.name = dlsym(driver, #name);                                        \
  pump_present.name = pump_real.name != NULL;
#define PUMP_CALL(name, pfn, parameters) PUMP_HOOK(name, pfn, parameters, )
#include "shim/driver/hooks.h"
}

static void must(CUresult result, const char *call) {
  if (result == CUDA_SUCCESS) return;
  fprintf(stderr, "%s: CUDA error %d\n", call, result);
  exit(1);
}

/* ---- the worker ---------------------------------------------------------------------- */

#define FEW (PUMP_SCHEDULE_ENTRIES / 4) /* entries left when the schedule is renewed */

/* The slices of a phase in one direction; counts of slices. */
struct list {
  uint64_t first_block; /* offset in the range */
  uint32_t slices, taken, ended;
};

static uint32_t slice_blocks;
static struct list lists[PUMP_DIRECTIONS];
static uint64_t phases, versions;

static uint64_t ticket_of(uint32_t direction, uint32_t slice) {
  return (phases << 32) + 2 * slice + direction;
}

static struct pump_entry entry_of(uint32_t direction, uint32_t slice) {
  const struct list *list = &lists[direction];
  uint64_t block = list->first_block + (uint64_t)slice * slice_blocks;
  return (struct pump_entry){
      .command = {.ticket = ticket_of(direction, slice),
                  .generation = 1,
                  .offset_bytes = block * PUMP_BLOCK_BYTES,
                  .length_bytes = (uint64_t)slice_blocks * PUMP_BLOCK_BYTES,
                  .observed_seq = direction == PUMP_TO_HOST ? UINT64_MAX : 0}};
}

/* Returns whether few entries are left, and the phase has more slices. */
static bool runs_out(uint32_t direction) {
  const struct pump_schedule *schedule = &pump_shm->schedules[0];
  uint64_t cursor = PUMP_LOAD_ACQUIRE(&schedule->cursor);
  uint32_t listed = schedule->count[direction];
  return lists[direction].taken + listed < lists[direction].slices &&
         listed - pump_schedule_taken_count(cursor, direction) < FEW;
}

/* Puts a new schedule in force, with the next slices of both directions. */
static void renew(void) {
  struct pump_schedule *schedule = &pump_shm->schedules[0];
  uint64_t cursor = pump_schedule_withdraw(schedule);
  for (uint32_t d = 0; d < PUMP_DIRECTIONS; d++) {
    struct list *list = &lists[d];
    list->taken += pump_schedule_taken_count(cursor, d);
    uint32_t count = 0;
    for (; count < PUMP_SCHEDULE_ENTRIES && list->taken + count < list->slices; count++)
      schedule->entries[d][count] = entry_of(d, list->taken + count);
    PUMP_STORE(&schedule->count[d], count);
  }
  PUMP_STORE_RELEASE(&pump_shm->header.valid_seq, PUMP_ALL_VALID);
  PUMP_STORE_RELEASE(&schedule->cursor, ++versions << 32);
  for (uint32_t d = 0; d < PUMP_DIRECTIONS; d++)
    pump_wake(&pump_shm->executors[0][d].asleep, &pump_shm->executors[0][d].wakes);
}

static void note_ends(uint32_t direction) {
  struct list *list = &lists[direction];
  for (; list->ended < list->slices; list->ended++) {
    uint64_t ticket = ticket_of(direction, list->ended);
    const struct pump_entry_end *end =
        &pump_shm->entry_ends[ticket % PUMP_SCHEDULE_TICKETS];
    if (PUMP_LOAD_ACQUIRE(&end->ticket) != ticket) return;
    if (end->result != PUMP_RESULT_MOVED) {
      fprintf(stderr, "an entry ended with result %u\n", end->result);
      exit(1);
    }
  }
}

static void begin_list(uint32_t direction, uint64_t first_block, uint64_t blocks) {
  lists[direction] = (struct list){.first_block = first_block,
                                   .slices = (uint32_t)(blocks / slice_blocks)};
}

static bool over(const struct list *list) {
  return list->ended == list->slices;
}

/* Runs a phase. Prints bytes per nanosecond of each direction until the first one
 * ended. */
static void run_phase(const char *phase, int round) {
  uint64_t begin_ns = pump_now_ns();
  double gbps[PUMP_DIRECTIONS] = {0, 0};
  bool measured = false;
  phases++;
  renew();
  while (!over(&lists[0]) || !over(&lists[1])) {
    bool one_over = false;
    for (uint32_t d = 0; d < PUMP_DIRECTIONS; d++) {
      if (over(&lists[d])) continue;
      if (runs_out(d)) renew();
      note_ends(d);
      one_over |= over(&lists[d]);
    }
    if (one_over && !measured) {
      measured = true;
      for (uint32_t d = 0; d < PUMP_DIRECTIONS; d++)
        gbps[d] = (double)lists[d].ended * slice_blocks * PUMP_BLOCK_BYTES /
                  (double)(pump_now_ns() - begin_ns);
    }
    struct timespec nap = {.tv_nsec = 200000};
    nanosleep(&nap, NULL);
  }
  const struct pump_direction *in = &pump_executors_of(0)->directions[PUMP_TO_GPU];
  const struct pump_direction *out = &pump_executors_of(0)->directions[PUMP_TO_HOST];
  printf("{\"phase\": \"%s\", \"round\": %d, \"in_gbps\": %.2f, \"out_gbps\": %.2f, "
         "\"in_threads\": %u, \"out_threads\": %u}\n",
         phase, round, gbps[PUMP_TO_GPU], gbps[PUMP_TO_HOST], PUMP_LOAD(&in->wanted),
         PUMP_LOAD(&out->wanted));
  pump_schedule_withdraw(&pump_shm->schedules[0]);
  begin_list(PUMP_TO_GPU, 0, 0);
  begin_list(PUMP_TO_HOST, 0, 0);
}

static void begin(const char *driver) {
  load_driver(driver);
  pump_shm = mmap(NULL, sizeof *pump_shm, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pump_shm == MAP_FAILED) exit(1);
  CUcontext context;
  CUdeviceptr base;
  must(pump_real.cuInit(0), "cuInit");
  must(pump_real.cuCtxCreate_v2(&context, 0, 0), "cuCtxCreate");
  must(pump_real.cuMemAllocManaged(&base, 2 * HALF_BYTES, CU_MEM_ATTACH_GLOBAL),
       "cuMemAllocManaged");
  struct pump_range *range = &pump_shm->ranges[0];
  range->generation = 1;
  range->range_kind = PUMP_RANGE_MANAGED;
  range->base = base;
  range->length_bytes = 2 * HALF_BYTES;
  pump_shm->devices[0].budget_bytes = 4 * HALF_BYTES;
  pump_shm->header.next_seq = 1; /* operation 0 counts as issued */
  pump_context_note(0, context);
  pump_executors_start(0, true);
}

int main(int argc, char **argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: %s DRIVER SLICE_MIB ROUNDS\n", argv[0]);
    return 2;
  }
  slice_blocks = (uint32_t)strtoul(argv[2], NULL, 10) / 2;
  if (slice_blocks == 0 || HALF_BLOCKS % slice_blocks != 0 ||
      slice_blocks * PUMP_BLOCK_BYTES > PUMP_SLICE_BYTES) {
    fprintf(stderr, "SLICE_MIB must be a power of two from 2 to 32\n");
    return 2;
  }
  begin(argv[1]);
  begin_list(PUMP_TO_HOST, 0, 0);
  begin_list(PUMP_TO_GPU, 0, 2 * HALF_BLOCKS);
  run_phase("populate", 0);
  begin_list(PUMP_TO_HOST, HALF_BLOCKS, HALF_BLOCKS);
  begin_list(PUMP_TO_GPU, 0, 0);
  run_phase("out", 0);
  for (int round = 1; round <= atoi(argv[3]); round++) {
    begin_list(PUMP_TO_HOST, 0, HALF_BLOCKS);
    begin_list(PUMP_TO_GPU, HALF_BLOCKS, HALF_BLOCKS);
    run_phase("both", round);
    begin_list(PUMP_TO_GPU, 0, HALF_BLOCKS);
    run_phase("in", round);
    begin_list(PUMP_TO_HOST, HALF_BLOCKS, HALF_BLOCKS);
    run_phase("out", round);
  }
  return 0;
}
