/* range_fuzz.c - compares the range table and its index with a naive model, then tests them
 * with concurrent readers and writers. Links only memory/range_table.c of the shim.
 *
 * Usage: range_fuzz model|threads SEED ROUNDS
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "pump_ring.h"
#include "shim/memory/memory.h"

#define BLOCK ((uint64_t)PUMP_BLOCK_BYTES)

static struct pump_shm *region;
struct pump_shm *pump_shm;
static int64_t accounted[PUMP_MAX_DEVICES];

/* The caller holds the lock. */
void pump_device_add_bytes(uint32_t device, int64_t range_bytes, int64_t plain_bytes) {
  CHECK(device < PUMP_MAX_DEVICES && plain_bytes == 0);
  accounted[device] += range_bytes;
}

static uint64_t next_random(uint64_t *state) { /* splitmix64 */
  uint64_t z = *state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

/* A range's other fields are functions of its base and length, so that a torn answer is
 * detected. */
static uint32_t device_for(uint64_t base) {
  return (uint32_t)(base >> 21) % PUMP_MAX_DEVICES;
}
static uint64_t requested_for(uint64_t base, uint64_t length) {
  return base * 31 ^ length * 17 ^ 0x1234;
}
static CUcontext context_for(uint64_t base) {
  return (CUcontext)(uintptr_t)(1 + (base >> 23) % 3);
}

static struct pump_range_info make(uint64_t base, uint64_t length, uint32_t kind) {
  return (struct pump_range_info){.base = base,
                                  .length_bytes = length,
                                  .requested_bytes = requested_for(base, length),
                                  .kind = kind,
                                  .device = device_for(base),
                                  .context = context_for(base)};
}

static void check_hit(const struct pump_hit *hit, uint64_t address) {
  CHECK(hit->slot < PUMP_MAX_RANGES && hit->generation != 0);
  CHECK(address >= hit->base && address - hit->base < hit->length_bytes);
  CHECK(hit->device == device_for(hit->base));
  CHECK(hit->requested_bytes == requested_for(hit->base, hit->length_bytes));
  CHECK(hit->kind == PUMP_RANGE_CONVERTED || hit->kind == PUMP_RANGE_MANAGED);
}

/* ---- comparison with a model ---------------------------------------------- */

#define MODEL 200
static struct pump_range_info model[MODEL];
static int live;
static uint32_t generation_of[PUMP_MAX_RANGES];

/* Four regions: low, across two leaves, high, and at the end of the address space. */
static uint64_t some_base(uint64_t *seed) {
  static const uint64_t regions[] = {1ull << 21, (1ull << 34) - 40 * (2ull << 20),
                                     0x7f0000000000, (1ull << 47) - 80 * (2ull << 20)};
  return regions[next_random(seed) % 4] + next_random(seed) % 96 * BLOCK;
}

static uint64_t first_owned(const struct pump_range_info *r) {
  return (r->base + BLOCK - 1) / BLOCK;
}
static uint64_t end_owned(const struct pump_range_info *r) {
  return (r->base + r->length_bytes) / BLOCK;
}

static void forget(int i) {
  model[i] = model[--live];
}

static void model_add(uint64_t *seed) {
  uint64_t base = some_base(seed), length = (1 + next_random(seed) % 12) * BLOCK;
  uint32_t kind = PUMP_RANGE_CONVERTED;
  if (next_random(seed) % 4 == 0) { /* managed memory need not be aligned */
    kind = PUMP_RANGE_MANAGED;
    base += next_random(seed) % 512 * 4096;
    length += next_random(seed) % 512 * 4096;
  }
  struct pump_range_info info = make(base, length, kind);
  bool outside = base >= 1ull << 47 || base + length > 1ull << 47;
  if (live == MODEL) return;
  int slot = pump_range_add(&info);
  if (outside || first_owned(&info) >= end_owned(&info)) {
    CHECK(slot == -ERANGE);
    return;
  }
  CHECK(slot >= 0 && (uint32_t)slot == info.slot);
  CHECK(info.generation > generation_of[slot] || generation_of[slot] == 0);
  uint64_t displaced = 0;
  for (int i = live; i-- > 0;) {
    if (first_owned(&model[i]) >= end_owned(&info) ||
        end_owned(&model[i]) <= first_owned(&info))
      continue;
    if (model[i].kind == PUMP_RANGE_CONVERTED) displaced += model[i].length_bytes;
    generation_of[model[i].slot] = model[i].generation;
    forget(i);
  }
  CHECK(info.displaced_bytes == displaced);
  for (int i = 0; i < live; i++) CHECK(model[i].slot != info.slot);
  model[live++] = info;
}

static void model_remove(uint64_t *seed) {
  struct pump_range_info info;
  if (live == 0) return;
  int i = (int)(next_random(seed) % (uint64_t)live);
  if (next_random(seed) % 4 == 0) { /* not a base: nothing happens */
    CHECK(pump_range_remove(model[i].base + 8, &info) == -ENOENT);
    return;
  }
  CHECK(pump_range_remove(model[i].base, &info) == 0);
  CHECK(info.slot == model[i].slot && info.generation == model[i].generation);
  CHECK(info.length_bytes == model[i].length_bytes && info.kind == model[i].kind);
  CHECK(info.requested_bytes == model[i].requested_bytes);
  CHECK(info.device == model[i].device && info.context == model[i].context);
  if (next_random(seed) % 3 == 0) { /* the driver refused */
    pump_range_restore(&info);
    CHECK(info.generation != model[i].generation && info.slot == model[i].slot);
    model[i] = info;
    return;
  }
  pump_range_release(info.slot);
  generation_of[info.slot] = info.generation;
  forget(i);
}

static void model_lookup(uint64_t *seed) {
  uint64_t address = some_base(seed) + next_random(seed) % (BLOCK * 2);
  if (live > 0 && next_random(seed) % 2 == 0) {
    const struct pump_range_info *r = &model[next_random(seed) % (uint64_t)live];
    uint64_t edges[] = {r->base, r->base - 1, r->base + r->length_bytes - 1,
                        r->base + r->length_bytes};
    address = edges[next_random(seed) % 4];
  }
  const struct pump_range_info *expected = NULL;
  uint64_t block = address / BLOCK;
  for (int i = 0; i < live; i++)
    if (block >= first_owned(&model[i]) && block < end_owned(&model[i]))
      expected = &model[i];
  struct pump_hit hit;
  bool found = pump_range_lookup(address, &hit);
  CHECK(found == (expected != NULL));
  if (!found) return;
  check_hit(&hit, address);
  CHECK(hit.slot == expected->slot && hit.generation == expected->generation);
}

static void model_table(void) {
  int64_t bytes[PUMP_MAX_DEVICES] = {0};
  int found = 0;
  uint64_t high = PUMP_LOAD(&region->header.range_high);
  for (uint64_t slot = 0; slot < high; slot++) {
    struct pump_range copy;
    CHECK(pump_range_read(&region->ranges[slot], &copy));
    if (copy.range_kind == PUMP_RANGE_FREE) continue;
    found++;
    int i = 0;
    while (i < live && model[i].slot != slot) i++;
    CHECK(i < live && copy.generation == model[i].generation);
    CHECK(copy.base == model[i].base && copy.length_bytes == model[i].length_bytes);
    CHECK(copy.device == model[i].device && copy.range_kind == model[i].kind);
    bytes[copy.device] +=
        (int64_t)((end_owned(&model[i]) - first_owned(&model[i])) * BLOCK);
  }
  CHECK(found == live);
  CHECK(memcmp(bytes, accounted, sizeof bytes) == 0);
}

static void model_context(uint64_t *seed) {
  CUcontext context = (CUcontext)(uintptr_t)(1 + next_random(seed) % 3);
  struct pump_range_info info;
  uint32_t cursor = 0;
  int expected = 0, removed = 0;
  for (int i = 0; i < live; i++) expected += model[i].context == context;
  while (pump_range_remove_next(context, &cursor, &info)) {
    CHECK(info.context == context);
    pump_range_release(info.slot);
    removed++;
  }
  CHECK(removed == expected);
  for (int i = live; i-- > 0;) {
    if (model[i].context != context) continue;
    generation_of[model[i].slot] = model[i].generation;
    forget(i);
  }
}

/* The worker can overwrite the region; republishing restores it. */
static void model_scribbled(uint64_t *seed) {
  uint64_t high = PUMP_LOAD(&region->header.range_high);
  for (int i = 0; i < 50 && high > 0; i++) {
    uint64_t *words = (uint64_t *)&region->ranges[next_random(seed) % high];
    words[next_random(seed) % 8] = next_random(seed); /* last uses are only hints */
  }
  region->header.range_high = next_random(seed);
  pthread_mutex_lock(&pump_range_lock);
  pump_range_republish();
  pthread_mutex_unlock(&pump_range_lock);
  CHECK(region->header.range_high == high);
  model_table();
}

static void against_the_model(uint64_t seed, uint64_t rounds) {
  for (uint64_t i = 0; i < rounds; i++) {
    uint64_t version = region->header.range_version;
    switch (next_random(&seed) % 8) {
    case 0:
    case 1:
      model_add(&seed);
      break;
    case 2:
      model_remove(&seed);
      break;
    default:
      model_lookup(&seed);
      CHECK(version == region->header.range_version);
    }
    if (i % 256 == 0) model_table();
    if (i % 1024 == 1023) model_context(&seed);
    if (i % 1024 == 511) model_scribbled(&seed);
  }
  CHECK(live <= MODEL);
  model_table();
}

/* ---- the full table ------------------------------------------------------- */

static void a_full_table(void) {
  struct pump_range_info info;
  for (uint64_t i = 0; i < PUMP_MAX_RANGES; i++) {
    info = make((i + 1) * BLOCK, BLOCK, PUMP_RANGE_CONVERTED);
    CHECK(pump_range_add(&info) >= 0);
  }
  info = make((PUMP_MAX_RANGES + 9ull) * BLOCK, BLOCK, PUMP_RANGE_CONVERTED);
  CHECK(pump_range_add(&info) == -ENOSPC);
  CHECK(region->shim_counters.ranges_untracked == 1);
  struct pump_range_info gone;
  CHECK(pump_range_remove(7 * BLOCK, &gone) == 0);
  CHECK(pump_range_add(&info) == -ENOSPC); /* not before it is released */
  pump_range_release(gone.slot);
  CHECK(pump_range_add(&info) >= 0 && info.slot == gone.slot);
  CHECK(region->header.range_high == PUMP_MAX_RANGES);
}

/* ---- threads -------------------------------------------------------------- */

#define WINDOW 64 /* blocks of each writer */
static bool stop;
static uint64_t thread_seed, thread_rounds;

static uint64_t window_base(uint64_t writer) {
  return (1ull << 34) + (writer * WINDOW - 32) * BLOCK;
}

static void *writer(void *argument) {
  uint64_t number = (uint64_t)(uintptr_t)argument, seed = thread_seed + number;
  struct pump_range_info mine[WINDOW / 4];
  bool have[WINDOW / 4] = {false};
  for (uint64_t i = 0; i < thread_rounds; i++) {
    uint64_t place = next_random(&seed) % (WINDOW / 4);
    if (have[place]) {
      struct pump_range_info info;
      CHECK(pump_range_remove(mine[place].base, &info) == 0);
      CHECK(info.generation == mine[place].generation);
      if (next_random(&seed) % 8 == 0) {
        pump_range_restore(&info);
        mine[place] = info;
        continue;
      }
      pump_range_release(info.slot);
    } else {
      uint64_t length = (1 + next_random(&seed) % 4) * BLOCK;
      mine[place] =
          make(window_base(number) + place * 4 * BLOCK, length, PUMP_RANGE_CONVERTED);
      CHECK(pump_range_add(&mine[place]) >= 0 && mine[place].displaced_bytes == 0);
    }
    have[place] = !have[place];
  }
  return NULL;
}

static void *reader(void *argument) {
  uint64_t seed = thread_seed ^ (uint64_t)(uintptr_t)argument, hits = 0;
  while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
    uint64_t address =
        window_base(next_random(&seed) % 2) + next_random(&seed) % (WINDOW * BLOCK);
    struct pump_hit hit;
    if (!pump_range_lookup(address, &hit)) continue;
    check_hit(&hit, address);
    hits++;
    struct pump_extent extent = {.slot = hit.slot,
                                 .generation = hit.generation,
                                 .offset_bytes = address - hit.base,
                                 .length_access = (hit.base + hit.length_bytes - address)
                                                  << 2};
    pump_range_touch(&extent, hits);
    struct pump_range copy;
    if (pump_range_read(&region->ranges[hit.slot], &copy) &&
        copy.range_kind != PUMP_RANGE_FREE)
      CHECK(copy.device == device_for(copy.base) && copy.length_bytes % BLOCK == 0);
  }
  return (void *)(uintptr_t)hits;
}

static void under_threads(uint64_t seed, uint64_t rounds) {
  pthread_t writers[2], readers[3];
  thread_seed = seed;
  thread_rounds = rounds;
  for (uintptr_t i = 0; i < 3; i++)
    pthread_create(&readers[i], NULL, reader, (void *)(i + 10));
  for (uintptr_t i = 0; i < 2; i++) pthread_create(&writers[i], NULL, writer, (void *)i);
  for (int i = 0; i < 2; i++) pthread_join(writers[i], NULL);
  __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
  uint64_t hits = 0;
  for (int i = 0; i < 3; i++) {
    void *result;
    pthread_join(readers[i], &result);
    hits += (uint64_t)(uintptr_t)result;
  }
  printf("hits %llu\n", (unsigned long long)hits);
  CHECK(hits > 100);
}

int main(int argc, char **argv) {
  CHECK(argc == 4);
  pump_shm = region = calloc(1, sizeof *region);
  CHECK(region != NULL);
  region->header.next_seq = 1;
  uint64_t seed = strtoull(argv[2], NULL, 10), rounds = strtoull(argv[3], NULL, 10);
  if (strcmp(argv[1], "model") == 0) {
    against_the_model(seed, rounds);
    pump_range_reset();
    memset(region, 0, sizeof *region);
    memset(accounted, 0, sizeof accounted);
    memset(generation_of, 0, sizeof generation_of);
    live = 0;
    against_the_model(seed + 1, rounds / 4);
  } else if (strcmp(argv[1], "full") == 0) {
    a_full_table();
  } else {
    under_threads(seed, rounds);
  }
  free(region);
  return 0;
}
