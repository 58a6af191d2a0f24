/* pool_stress.c - tests the pool with a driver that checks every use of memory.
 *
 * This driver executes nothing: a stream consists of two numbers, of operations issued and
 * executed, and the test decides when it advances. So, without asking the pool, the driver
 * knows each 512 bytes' holder, and the operation of a stream after which they were freed.
 * Errors are: to hand memory out twice, to hand it to a stream that is not ordered after
 * the free, and to use a captured or destroyed stream.
 *
 * Usage: `pool_stress model|threads|quiet SEED STEPS`;
 *        `pool_stress cycles|cycles-noisy SEED ITERATIONS`;
 *        `pool_stress CASE 1 0`, for a name in `cases`;
 *        `pool_stress replay 0 0`.
 *
 * `replay` reads lines "INDEX BYTES" (allocate), "INDEX 0" (free) and "65536 0" (an
 * iteration ends).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "check.h"
#include "mapped_absent.h"
#include "noise.h"
#include "shim/memory/rules.h"
#include "shim/pool/convert.h"
#include "shim/pool/pool_state.h"

#define MIB ((uint64_t)1 << 20)
#define BASE 0x7f0000000000u
#define SPACE_BYTES (16u * 1024 * MIB)
#define UNITS (SPACE_BYTES / POOL_UNIT_BYTES)
#define STREAMS 12
#define OURS (STREAMS + 1) /* the pool's own stream, for discards */
#define LAST (OURS + 1)    /* the populator, the last stream of the pool */
#define HELD 4096
#define CONTEXT ((CUcontext)1)
#define DEFAULT_POOL ((CUmemoryPool)0x5000)

#include "pool_stress_driver.h"

/* ---- the program's side ------------------------------------------------------------ */

/* Returns whether the stream's next operation follows one that repopulated the block. */
static bool is_populated(uint64_t unit, const struct stream *s) {
  const struct repopulated *by = repopulated[unit * POOL_UNIT_BYTES / PUMP_BLOCK_BYTES];
  for (uint32_t w = 1; w <= LAST; w++) {
    uint64_t position = by[w].first;
    if (position == 0) continue;
    if (&streams[w] == s || streams[w].executed >= position || s->behind[w] >= position)
      return true;
  }
  return false;
}

/* Checks and notes that `holder` gets these bytes on a stream. */
static void handed_out(uint64_t base, uint64_t bytes, uint32_t holder, uint32_t stream) {
  pthread_mutex_lock(&driver_lock);
  CHECK(base % POOL_UNIT_BYTES == 0);
  uint64_t first = (base - BASE) / POOL_UNIT_BYTES;
  uint64_t count = (bytes + POOL_UNIT_BYTES - 1) / POOL_UNIT_BYTES;
  const struct stream *s = &streams[stream];
  for (uint64_t u = first; u < first + count; u++) {
    CHECK(units[u].holder == 0 && (!units[u].discarded || is_populated(u, s)));
    uint32_t by = units[u].stream;
    CHECK(by == 0 || by == stream || streams[by].executed >= units[u].position ||
          s->behind[by] >= units[u].position);
    units[u] = (struct unit){.holder = holder};
  }
  streams[stream].issued++; /* it writes to them */
  pthread_mutex_unlock(&driver_lock);
}

/* Called before the free: the holder's work is issued, and may use the bytes until the
 * stream reaches that point. `stream` 0: the program has waited for everything. */
static void taken_back(uint64_t base, uint64_t bytes, uint32_t holder, uint32_t stream) {
  pthread_mutex_lock(&driver_lock);
  uint64_t first = (base - BASE) / POOL_UNIT_BYTES;
  uint64_t count = (bytes + POOL_UNIT_BYTES - 1) / POOL_UNIT_BYTES;
  uint64_t position = ++streams[stream].issued;
  for (uint64_t u = first; u < first + count; u++) {
    CHECK(units[u].holder == holder);
    units[u] = (struct unit){.stream = stream, .position = position};
  }
  pthread_mutex_unlock(&driver_lock);
}

static void execute(uint32_t stream, uint64_t most) {
  pthread_mutex_lock(&driver_lock);
  struct stream *s = &streams[stream];
  uint64_t to = s->issued - s->executed < most ? s->issued : s->executed + most;
  bool blocked = false;
  for (uint32_t i = 1; i <= LAST; i++) blocked |= streams[i].executed < s->behind[i];
  if (!blocked) s->executed = to;
  pthread_mutex_unlock(&driver_lock);
}

/* Executes everything issued: an operation waits only for issued operations. */
static void execute_all(void) {
  pthread_mutex_lock(&driver_lock);
  for (uint32_t i = 1; i <= LAST; i++) streams[i].executed = streams[i].issued;
  pthread_mutex_unlock(&driver_lock);
}

/* ---- the rest of the shim -------------------------------------------------------- */

struct pump_real pump_real;
struct pump_present pump_present;
struct pump_shm *pump_shm;
bool pump_off, pump_recording;
uint32_t pump_reporting = 1, pump_captures;
uint64_t pump_calls_seen;
__thread uint32_t pump_reentry_depth __attribute__((tls_model("initial-exec")));
static uint64_t admitted_bytes, limit_bytes = 96 * MIB, told_freed_bytes,
                                told_populated_bytes;
static uint64_t clock_ns, clock_step_ns = 100000;

uint64_t pump_now_ns(void) {
  return __atomic_add_fetch(&clock_ns, clock_step_ns, __ATOMIC_RELAXED);
}
void pump_device_add_bytes(uint32_t device, int64_t range_bytes, int64_t plain_bytes) {
  (void)device, (void)range_bytes, (void)plain_bytes;
}
int pump_current_device(CUcontext *context) {
  if (context != NULL) *context = CONTEXT;
  return 0;
}
bool pump_device_converts(uint32_t device) {
  return device == 0;
}
struct pump_driver_scope pump_driver_scope_open(void) {
  pump_enter();
  return (struct pump_driver_scope){false, 0};
}
void pump_driver_scope_close(struct pump_driver_scope scope) {
  (void)scope;
  pump_leave();
}
bool pump_capturing(CUstream stream) {
  pthread_mutex_lock(&driver_lock);
  bool captured = streams[number_of(stream)].captured;
  pthread_mutex_unlock(&driver_lock);
  return captured;
}
bool pump_rule_stream_ordered(void) {
  return false;
}
bool pump_rule_by_size(size_t bytes) {
  return bytes == 0;
}
int pump_limit_try(uint32_t device, uint64_t bytes) {
  (void)device;
  pthread_mutex_lock(&driver_lock);
  bool fits = admitted_bytes + bytes <= limit_bytes;
  if (fits) admitted_bytes += bytes;
  if (admitted_bytes > most_bytes) most_bytes = admitted_bytes;
  pthread_mutex_unlock(&driver_lock);
  return fits ? 0 : -ENOMEM;
}
void pump_limit_explain(uint32_t device, uint64_t bytes) {
  (void)device, (void)bytes;
  __atomic_fetch_add(&refusals, 1, __ATOMIC_RELAXED);
}
void pump_limit_read(uint64_t *left, uint64_t *whole) {
  pthread_mutex_lock(&driver_lock);
  *left = admitted_bytes < limit_bytes ? limit_bytes - admitted_bytes : 0;
  *whole = limit_bytes;
  pthread_mutex_unlock(&driver_lock);
}
void pump_limit_return(uint32_t device, uint64_t bytes) {
  (void)device;
  pthread_mutex_lock(&driver_lock);
  CHECK(admitted_bytes >= bytes);
  admitted_bytes -= bytes;
  pthread_mutex_unlock(&driver_lock);
}
void pump_peer_keep_on_device(const struct pump_range_info *info) {
  (void)info;
}
void pump_populate_add(uint32_t slot, uint32_t generation) {
  (void)slot, (void)generation;
}
void pump_slot_wait(uint32_t slot) {
  (void)slot;
}
void pump_event_range(uint32_t kind, const struct pump_range_info *info) {
  (void)kind, (void)info;
}
void pump_event_block(uint32_t kind, uint32_t slot, uint64_t offset_bytes,
                      uint64_t length_bytes) {
  CHECK(kind == PUMP_EVENT_DISCARDED || kind == PUMP_EVENT_FREED ||
        kind == PUMP_EVENT_POPULATED);
  if (kind == PUMP_EVENT_FREED)
    __atomic_fetch_add(&told_freed_bytes, length_bytes, __ATOMIC_RELAXED);
  if (kind == PUMP_EVENT_POPULATED)
    __atomic_fetch_add(&told_populated_bytes, length_bytes, __ATOMIC_RELAXED);
  CHECK(slot < PUMP_MAX_RANGES && offset_bytes % PUMP_BLOCK_BYTES == 0 &&
        length_bytes != 0);
}
/* Fails sometimes, as if an executor were working there. */
bool pump_slot_close(uint32_t slot) {
  static uint32_t calls;
  __atomic_fetch_add(&closed[slot], 1, __ATOMIC_SEQ_CST);
  return __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED) % 7 != 0;
}
bool pump_log_once(uint32_t *said, int level, const char *format, ...) {
  (void)level, (void)format;
  return __atomic_exchange_n(said, 1, __ATOMIC_RELAXED) == 0;
}
void pump_slot_open(uint32_t slot) {
  CHECK(__atomic_fetch_sub(&closed[slot], 1, __ATOMIC_SEQ_CST) != 0);
}
void pump_range_free_ended(struct pump_range_info *info, CUresult result) {
  CHECK(result == CUDA_SUCCESS);
  pump_limit_return(info->device, info->length_bytes);
  pump_range_release(info->slot);
}

static void set_up(void) {
  pump_real.cuEventCreate = event_create;
  pump_real.cuEventDestroy_v2 = event_destroy;
  pump_real.cuEventRecord = event_record;
  pump_real.cuEventQuery = event_query;
  pump_real.cuEventSynchronize = event_synchronize;
  pump_real.cuStreamWaitEvent = stream_wait;
  pump_real.cuMemDiscardBatchAsync = discard;
  pump_real.cuMemPrefetchAsync_v2 = prefetch;
  pump_real.cuStreamQuery = stream_query;
  pump_real.cuStreamSynchronize = stream_synchronize;
  pump_real.cuStreamGetCtx = stream_context;
  pump_real.cuCtxGetCurrent = get_current;
  pump_real.cuCtxSetCurrent = set_current;
  pump_real.cuDeviceGetMemPool = get_pool;
  pump_real.cuDeviceGetDefaultMemPool = get_pool;
  pump_real.cuMemPoolCreate = pool_create;
  pump_real.cuMemPoolDestroy = pool_destroy;
  pump_real.cuMemPoolTrimTo = pool_succeeds;
  pump_real.cuMemPoolGetAttribute = pool_attribute;
  pump_real.cuMemAllocManaged = alloc_managed;
  pump_real.cuMemFree_v2 = mem_free;
  memset(&pump_present, 1, sizeof pump_present);
  pump_shm = calloc(1, sizeof *pump_shm);
  units = calloc(UNITS, sizeof *units);
  repopulated = calloc(SPACE_BYTES / PUMP_BLOCK_BYTES, sizeof *repopulated);
  CHECK(pump_shm != NULL && units != NULL && repopulated != NULL);
  pump_shm->header.next_seq = 1;
  pump_shm->devices[0].allocated_bytes = SPACE_BYTES; /* the budget is 0 */
  for (uint32_t i = 1; i <= STREAMS; i++) streams[i].alive = true;
}

/* ---- one thread of the program --------------------------------------------------- */

struct program {
  uint64_t state;
  uint32_t id, steps, first_stream, stream_count, count;
  struct held {
    uint64_t base, bytes;
    uint32_t holder, stream;
  } held[HELD];
};

static uint64_t random_size(uint64_t *state) {
  uint64_t power = noise_below(state, 24);
  if (noise_below(state, 6) != 0) power %= 20;
  return 1 + noise_below(state, (uint64_t)1 << power) + ((uint64_t)1 << power) / 2;
}

static uint32_t random_stream(struct program *p) {
  return p->first_stream + (uint32_t)noise_below(&p->state, p->stream_count);
}

static void check_piece(const struct held *held) {
  uint64_t base = 0, length = 0, inside = held->base + held->bytes / 2;
  CHECK(pump_pool_piece(inside, &base, &length) == PUMP_POOL_PIECE_LIVE);
  CHECK(base == held->base && length >= held->bytes);
  CHECK(length - held->bytes < POOL_UNIT_BYTES || (length - held->bytes) * 32 <= length);
}

static void allocate(struct program *p) {
  if (p->count == HELD) return;
  static uint32_t holders;
  struct held held = {.bytes = random_size(&p->state), .stream = random_stream(p)};
  held.holder = __atomic_add_fetch(&holders, 1, __ATOMIC_RELAXED);
  CUdeviceptr address = 0;
  CUresult result = -1;
  pump_enter();
  bool served = pump_pool_allocate(&address, held.bytes, NULL,
                                   pump_at(stream_of(held.stream), false), &result);
  pump_leave();
  CHECK(served && (result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY));
  if (result != CUDA_SUCCESS) return;
  held.base = address;
  handed_out(held.base, held.bytes, held.holder, held.stream);
  check_piece(&held);
  p->held[p->count++] = held;
}

static void give_back(struct program *p) {
  if (p->count == 0) return;
  uint32_t i = (uint32_t)noise_below(&p->state, p->count);
  struct held held = p->held[i];
  check_piece(&held);
  bool ordered = noise_below(&p->state, 40) != 0;
  uint32_t stream = noise_below(&p->state, 16) == 0 ? random_stream(p) : held.stream;
  if (stream != held.stream || !ordered) execute_all(); /* the program waits */
  CUresult result = -1;
  p->held[i] = p->held[--p->count];
  taken_back(held.base, held.bytes, held.holder, ordered ? stream : 0);
  pump_enter();
  bool ours = ordered ? pump_pool_free_ordered(held.base, pump_at(stream_of(stream), false),
                                               &result)
                      : pump_pool_free_now(held.base, &result);
  pump_leave();
  CHECK(ours && result == CUDA_SUCCESS);
}

/* Allocates memory and frees it unused with cuMemFree: its previous holder may still run.
 */
static void allocate_in_vain(struct program *p) {
  struct pump_at at = pump_at(stream_of(random_stream(p)), false);
  CUdeviceptr address = 0;
  CUresult result = -1;
  pump_enter();
  CHECK(pump_pool_allocate(&address, random_size(&p->state), NULL, at, &result));
  if (result == CUDA_SUCCESS)
    CHECK(pump_pool_free_now(address, &result) && result == CUDA_SUCCESS);
  pump_leave();
}

/* Does the marker thread's work for dead memory. */
static void look_after_the_dead(void) {
  uint64_t now_ns = pump_now_ns();
  pump_enter();
  if (pump_pool_discard_is_due(CONTEXT, now_ns)) pump_pool_discard_dead(CONTEXT, now_ns);
  pump_leave();
}

static void step(struct program *p) {
  /* Sometimes everything fits. */
  if (p->id == 0 && p->steps % 2048 == 0)
    PUMP_STORE(&pump_shm->devices[0].allocated_bytes,
               p->steps / 2048 % 3 != 0 ? SPACE_BYTES : 0);
  if (p->id == 0 && p->steps % 8 == 0) {
    look_after_the_dead();
    execute(OURS, 1 + noise_below(&p->state, 3));
    for (uint32_t w = OURS + 1; w < OURS + PUMP_LOAD(&ours_made); w++)
      execute(w, noise_below(&p->state, 3));
  }
  uint64_t what = noise_below(&p->state, 100);
  /* The load alternates: the pool fills up and then runs nearly empty. */
  uint64_t share = (p->steps / 512) % 2 ? 35 : 60;
  if (what < share)
    allocate(p);
  else if (what < 90)
    give_back(p);
  else if (what < 92)
    allocate_in_vain(p);
  else if (what < 99)
    execute(random_stream(p), 1 + noise_below(&p->state, 40));
  else
    cuMemPoolTrimTo(DEFAULT_POOL, noise_below(&p->state, 64) * MIB);
}

static void *run(void *argument) {
  struct program *p = argument;
  for (; p->steps > 0; p->steps--) step(p);
  while (p->count > 0) give_back(p);
  return NULL;
}

/* Executes everything. Then nothing may be in use, and all memory can be returned. */
static void check_end(void) {
  execute_all();
  pump_enter();
  pump_pool_finish_discards(CONTEXT);
  pump_leave();
  pump_enter();
  for (uint32_t i = 2; i <= STREAMS; i++) {
    pump_pool_stream_ends(stream_of(i));
    execute_all();
  }
  pump_leave();
  pthread_mutex_lock(&pool_lock);
  struct pool_arena *arena = pool_arena_of(DEFAULT_POOL, CONTEXT, 0, false);
  CHECK(arena != NULL);
  CHECK(arena->used_bytes == 0);
  pthread_mutex_unlock(&pool_lock);
  execute_all();
  cuMemPoolTrimTo(DEFAULT_POOL, 0);
  execute_all(); /* the last events of the default stream */
  cuMemPoolTrimTo(DEFAULT_POOL, 0);
  for (uint32_t i = 0; i < PUMP_MAX_RANGES; i++) CHECK(closed[i] == 0);
  CHECK(arena->reserved_bytes == 0 && mapped_bytes == 0 && admitted_bytes == 0);
}

#include "pool_stress_cases.h"

static const struct {
  const char *name;
  void (*check)(void);
} cases[] = {
    {"crowd", check_crowd},         {"gone", check_gone},
    {"captured", check_captured},   {"chain", check_chain},
    {"pools", check_pools},         {"stays", check_stays},
    {"discarded", check_discarded}, {"elsewhere", check_elsewhere},
    {"behind", check_behind},       {"ahead", check_ahead},
    {"late", check_late},           {"small", check_small},
    {"kept", check_kept},           {"busy", check_relief_waits_for_another_thread}};

int main(int argc, char **argv) {
  CHECK(argc == 4);
  set_up();
  if (strcmp(argv[1], "replay") == 0) {
    replay();
    return 0;
  }
  for (uint32_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    if (strcmp(argv[1], cases[c].name) != 0) continue;
    cases[c].check();
    return 0;
  }
  uint64_t seed = strtoull(argv[2], NULL, 10) * 0x9e3779b97f4a7c15u + 1;
  uint32_t steps = (uint32_t)strtoul(argv[3], NULL, 10);
  static struct program programs[4];
  pthread_t threads[4];
  bool many = strcmp(argv[1], "threads") == 0;
  if (strncmp(argv[1], "cycles", 6) == 0) {
    run_cycles(seed, steps, argv[1][6] != 0);
    return 0;
  }
  if (strcmp(argv[1], "quiet") == 0) {
    check_quiet(seed, steps);
    return 0;
  }
  for (uint32_t i = 0; i < (many ? 4 : 1); i++) {
    programs[i] = (struct program){.state = noise_begin(seed + i), .id = i, .steps = steps};
    programs[i].first_stream = many ? 1 + 3 * i : 1;
    programs[i].stream_count = many ? 3 : STREAMS;
    if (many) CHECK(pthread_create(&threads[i], NULL, run, &programs[i]) == 0);
  }
  if (!many) run(&programs[0]);
  for (uint32_t i = 0; many && i < 4; i++) pthread_join(threads[i], NULL);
  check_end();
  printf("refused %llu most %llu events %llu discards %llu wakes %llu\n",
         (unsigned long long)refusals, (unsigned long long)(most_bytes >> 20),
         (unsigned long long)events_made, (unsigned long long)discards,
         (unsigned long long)wakes);
  return 0;
}
