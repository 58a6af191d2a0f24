/* pool_stress_cases.h - the single cases of pool_stress.c, which alone includes it and
 * whose driver and program they use.
 */
#ifndef POOL_STRESS_CASES_H
#define POOL_STRESS_CASES_H

/* One stream, and nothing that runs: nobody needs to know how far it is. */
static void check_quiet(uint64_t seed, uint32_t steps) {
  clock_step_ns = 1000;
  struct program p = {.state = seed, .steps = steps, .first_stream = 1, .stream_count = 1};
  for (uint32_t i = 0; i < steps; i++) {
    allocate(&p);
    give_back(&p);
  }
  CHECK(events_made < steps / 8);
  CHECK(most_bytes <= 96 * MIB);
}

/* One block allocated, used and freed; whether the pool served it. */
static bool come_and_go(CUstream stream, uint64_t bytes) {
  CUdeviceptr address = 0;
  CUresult result = -1;
  pump_enter();
  bool served = pump_pool_allocate(&address, bytes, NULL, pump_at(stream, false), &result);
  if (served) {
    CHECK(result == CUDA_SUCCESS);
    handed_out(address, bytes, 1, number_of(stream));
    taken_back(address, bytes, 1, number_of(stream));
    CHECK(pump_pool_free_ordered(address, pump_at(stream, false), &result));
    CHECK(result == CUDA_SUCCESS);
  }
  pump_leave();
  return served;
}

/* More streams than there are accounts, of which none ever ends. Here several handles are
 * the same stream. */
static void check_crowd(void) {
  for (uint64_t handle = 0; handle < 200; handle++)
    for (uint32_t i = 2; i <= STREAMS; i++) {
      CHECK(come_and_go((CUstream)((uintptr_t)i << 8 | handle), 4096));
      execute_all();
    }
}

/* The context goes while memory is in quarantine. */
static void check_gone(void) {
  CHECK(come_and_go(NULL, 30 * MIB));
  execute_all();
  clock_step_ns = 100000000;
  for (int i = 0; i < 20 && discards == 0; i++) {
    pump_enter();
    cuMemPoolTrimTo(DEFAULT_POOL, SPACE_BYTES);
    pump_leave();
    cuMemPoolTrimTo(DEFAULT_POOL, SPACE_BYTES);
    execute_all();
    look_after_the_dead();
  }
  CHECK(discards != 0);
  pump_pool_context_gone(CONTEXT);
  for (uint32_t i = 0; i < PUMP_MAX_RANGES; i++) CHECK(closed[i] == 0);
}

/* An event that a capture has taken does not stand in the way of all later ones. */
static void check_captured(void) {
  CUstream one = stream_of(2), other = stream_of(3);
  CHECK(come_and_go(other, 4096));
  events_to_lose = 1;
  CHECK(come_and_go(one, 40 * MIB));
  execute_all();
  CHECK(come_and_go(one, 4096));
  CHECK(come_and_go(one, 4096));
  execute_all();
  CHECK(come_and_go(other, 40 * MIB)); /* the same room */
  CHECK(most_bytes < 80 * MIB);
}

/* Replays recorded allocations on one stream, and tells what they took. */
static void replay(void) {
  static uint64_t addresses[1 << 16];
  unsigned long long index, bytes;
  limit_bytes = SPACE_BYTES;
  CUresult result = CUDA_SUCCESS;
  pump_enter();
  while (scanf("%llu %llu", &index, &bytes) == 2) {
    CHECK(index < 1 << 16);
    CUdeviceptr address = addresses[index];
    if (bytes == 0) {
      CHECK(pump_pool_free_ordered(address, pump_at(NULL, false), &result));
    } else {
      CHECK(pump_pool_allocate(&address, bytes, NULL, pump_at(NULL, false), &result));
      addresses[index] = address;
    }
    CHECK(result == CUDA_SUCCESS);
  }
  const struct pool_arena *arena = pool_arena_of(DEFAULT_POOL, CONTEXT, 0, false);
  printf("used %llu reserved %llu\n", (unsigned long long)arena->used_high_bytes,
         (unsigned long long)arena->reserved_high_bytes);
}

#endif
