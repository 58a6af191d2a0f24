/* pool_stress_cases.h - cases of pool_stress.c, which is the only file that includes them
 * and provides their driver and program.
 */
#ifndef POOL_STRESS_CASES_H
#define POOL_STRESS_CASES_H

/* One stream, and nothing runs: the stream's progress must not be needed. */
static void check_quiet(uint64_t seed, uint32_t steps) {
  clock_step_ns = 1000;
  struct program p = {
      .state = noise_begin(seed), .steps = steps, .first_stream = 1, .stream_count = 1};
  for (uint32_t i = 0; i < steps; i++) {
    allocate(&p);
    give_back(&p);
  }
  CHECK(events_made < steps / 8);
  CHECK(most_bytes <= 96 * MIB);
}

/* Allocates, uses and frees one block; returns whether the pool served it. */
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

/* Uses more streams than there are accounts, and no stream ends. Here several handles
 * name the same stream. */
static void check_crowd(void) {
  for (uint64_t handle = 0; handle < 200; handle++)
    for (uint32_t i = 2; i <= STREAMS; i++) {
      CHECK(come_and_go((CUstream)((uintptr_t)i << 8 | handle), 4096));
      execute_all();
    }
}

/* Lets time pass until something more is discarded, or nothing will be. */
static void lie_idle(void) {
  uint64_t before = discards;
  clock_step_ns = 100000000;
  for (int i = 0; i < 20 && discards == before; i++) {
    pump_enter();
    cuMemPoolTrimTo(DEFAULT_POOL, SPACE_BYTES);
    pump_leave();
    cuMemPoolTrimTo(DEFAULT_POOL, SPACE_BYTES);
    execute_all();
    look_after_the_dead();
  }
}

/* The context ends while memory is in quarantine. */
static void check_gone(void) {
  CHECK(come_and_go(NULL, 30 * MIB));
  execute_all();
  lie_idle();
  CHECK(discards != 0);
  pump_pool_context_gone(CONTEXT);
  for (uint32_t i = 0; i < PUMP_MAX_RANGES; i++) CHECK(closed[i] == 0);
}

/* One repopulation fails: its memory has no owner. The memory next to it shares a block
 * with it, and is repopulated separately. There is no second discard. */
static void check_discarded(void) {
  CHECK(come_and_go(NULL, 30 * MIB));
  execute_all();
  lie_idle();
  execute_all();
  look_after_the_dead();
  CHECK(discards == 1);
  prefetches_to_fail = 1;
  CHECK(!come_and_go(NULL, 3 * MIB) && prefetches_to_fail == 0 &&
        told_populated_bytes == 0);
  CHECK(come_and_go(NULL, 20 * MIB) && wakes == 1 && told_populated_bytes >= 20 * MIB);
  CHECK(come_and_go(NULL, 40 * MIB)); /* new memory was never discarded */
  execute_all();
  lie_idle();
  CHECK(discards == 1);
}

/* An event that was lost to a capture does not block later events. */
static void check_captured(void) {
  CUstream one = stream_of(2), other = stream_of(3);
  CHECK(come_and_go(other, 4096));
  events_to_lose = 1;
  CHECK(come_and_go(one, 40 * MIB));
  execute_all();
  CHECK(come_and_go(one, 4096));
  CHECK(come_and_go(one, 4096));
  execute_all();
  CHECK(come_and_go(other, 40 * MIB)); /* the same memory */
  CHECK(most_bytes < 80 * MIB);
}

static uint64_t kept(CUmemPool_attribute attribute) {
  uint64_t bytes = 0;
  CHECK(pump_pool_usage(DEFAULT_POOL, attribute, &bytes));
  return bytes;
}

/* When the program waits, it must see the same memory returned as by the driver's pool:
 * freed memory that the GPU has reached, beyond the threshold. */
static void check_kept(void) {
  CUstream one = stream_of(2), other = stream_of(3);
  CHECK(come_and_go(other, 30 * MIB) && come_and_go(one, 40 * MIB));
  uint64_t most = kept(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
  CHECK(most >= 40 * MIB && pump_pool_keeps != 0);
  execute(3, 1000);
  pump_pool_release_kept();
  CHECK(kept(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 40 * MIB && pump_pool_keeps != 0);
  execute_all();
  CHECK(kept(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 40 * MIB);
  pump_captures = 1; /* a capture may have begun: the streams are not queried */
  streams[2].captured = true;
  pump_pool_release_kept();
  streams[2].captured = false;
  pump_captures = 0;
  pump_pool_release_kept();
  CHECK(kept(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0 && pump_pool_keeps == 0);
  CHECK(kept(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) == most);
  CHECK(pump_pool_idle_bytes(0) == mapped_bytes && mapped_bytes >= most);
  threshold_bytes = 24 * MIB;
  pump_pool_apply_attribute(DEFAULT_POOL, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD);
  CHECK(come_and_go(one, 40 * MIB));
  execute_all();
  pump_pool_release_kept();
  CHECK(kept(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 24 * MIB && pump_pool_keeps == 0);
  cuMemPoolTrimTo(DEFAULT_POOL, 8 * MIB);
  CHECK(kept(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 8 * MIB);
  CHECK(kept(CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0);
}

/* Memory that a stream freed is available to all once its work is done, even if the stream
 * is gone. */
static void end_and_execute(CUstream stream) {
  pump_enter();
  pump_pool_stream_ends(stream);
  pump_leave();
  execute_all();
  CHECK(come_and_go(stream_of(3), 40 * MIB)); /* the same memory */
  CHECK(most_bytes < 80 * MIB);
}

/* Another context is current when the stream is destroyed, and must stay current. */
static void check_elsewhere(void) {
  clock_step_ns = 1000;
  CHECK(come_and_go(stream_of(2), 4096)); /* takes its event, so a new one is needed */
  CHECK(come_and_go(stream_of(2), 40 * MIB));
  current = (CUcontext)((uintptr_t)CONTEXT + 64);
  CUcontext before = current;
  pump_enter();
  pump_pool_stream_ends(stream_of(2));
  pump_leave();
  CHECK(current == before);
  current = CONTEXT;
  end_and_execute(stream_of(2));
}

/* The maximum number of events is pending when the stream is destroyed. */
static void check_behind(void) {
  CHECK(come_and_go(stream_of(3), 4096)); /* a second stream: each free gets an event */
  for (uint32_t i = 0; i < POOL_EVENTS; i++) CHECK(come_and_go(stream_of(2), 4096));
  CHECK(come_and_go(stream_of(2), 40 * MIB));
  end_and_execute(stream_of(2));
}

static CUdeviceptr hold(CUstream stream, uint64_t bytes, uint32_t holder) {
  CUdeviceptr address = 0;
  CUresult result = -1;
  pump_enter();
  CHECK(pump_pool_allocate(&address, bytes, NULL, pump_at(stream, false), &result));
  CHECK(result == CUDA_SUCCESS);
  pump_leave();
  handed_out(address, bytes, holder, number_of(stream));
  return address;
}

static void let_go(CUstream stream, CUdeviceptr address, uint64_t bytes, uint32_t holder) {
  CUresult result = -1;
  taken_back(address, bytes, holder, number_of(stream));
  pump_enter();
  CHECK(pump_pool_free_ordered(address, pump_at(stream, false), &result));
  CHECK(result == CUDA_SUCCESS);
  pump_leave();
}

/* A program that runs ahead of the GPU gets back what it has just freed. Memory
 * freed earlier is reused only as a last resort, or once the GPU was done with it and it
 * was discarded. */
static void check_ahead(void) {
  CUstream stream = stream_of(2);
  PUMP_STORE(&pump_shm->devices[0].budget_bytes, 32 * MIB);
  PUMP_STORE(&pump_shm->devices[0].allocated_bytes, 200 * MIB);
  CUdeviceptr first = hold(stream, 6 * MIB, 1);
  let_go(stream, first, 6 * MIB, 1);
  CHECK(told_freed_bytes == 6 * MIB);
  CHECK(hold(stream, 6 * MIB, 2) == first);
  let_go(stream, first, 6 * MIB, 2);
  hold(stream, 10 * MIB, 3);
  CHECK(hold(stream, 6 * MIB, 4) != first && discards == 0);
  execute_all();
  clock_step_ns = 1000000; /* a short step, which does not count as long */
  look_after_the_dead();
  execute_all();
  look_after_the_dead();
  CHECK(discards == 1 && wakes == 0);
  CHECK(hold(stream, 6 * MIB, 5) == first && wakes == 1);
  CHECK(told_populated_bytes == 0); /* not before the GPU reaches it */
  let_go(stream, first, 6 * MIB, 5);
  hold(stream, 9 * MIB, 6);
  limit_bytes = admitted_bytes;
  CHECK(hold(stream, 6 * MIB, 7) == first && refusals == 0);
}

/* With no memory left, a block moves from stream to stream before any stream reaches its
 * free. Each stream waits for the previous stream, and so for all before it. The second
 * stream leaves the block's end unused, so only the first stream has used that part. */
static void check_chain(void) {
  const uint64_t block_bytes = 608 << 10, rest_bytes = (2 * MIB - block_bytes) / 2;
  limit_bytes = 2 * MIB;
  CUdeviceptr block = hold(stream_of(2), block_bytes, 1);
  hold(stream_of(5), rest_bytes, 2);
  hold(stream_of(5), rest_bytes, 3);
  let_go(stream_of(2), block, block_bytes, 1);
  CHECK(hold(stream_of(3), block_bytes - 8192, 4) == block);
  let_go(stream_of(3), block, block_bytes - 8192, 4);
  CHECK(hold(stream_of(4), block_bytes, 5) == block);
  CHECK(streams[4].behind[2] != 0 && streams[2].executed == 0);
}

/* Creates and destroys more pools than there are arenas: each pool must be served. */
static void check_pools(void) {
  const CUmemPoolProps wishes = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location.type = CU_MEM_LOCATION_TYPE_DEVICE};
  for (uint32_t i = 0; i < 3 * POOL_ARENAS; i++) {
    CUmemoryPool pool;
    CUdeviceptr address = 0;
    CUresult result = -1;
    CHECK(cuMemPoolCreate(&pool, &wishes) == CUDA_SUCCESS);
    pump_enter();
    struct pump_at at = pump_at(stream_of(2), false);
    CHECK(pump_pool_allocate(&address, 4096, pool, at, &result));
    CHECK(result == CUDA_SUCCESS);
    CHECK(pump_pool_free_ordered(address, at, &result) && result == CUDA_SUCCESS);
    pump_leave();
    execute_all();
    CHECK(cuMemPoolDestroy(pool) == CUDA_SUCCESS);
  }
  CHECK(most_bytes <= 8 * MIB);
}

/* A pool that the driver does not destroy is still served, with its memory. */
static void check_stays(void) {
  const CUmemPoolProps wishes = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location.type = CU_MEM_LOCATION_TYPE_DEVICE};
  CUmemoryPool pool;
  CUdeviceptr address = 0;
  CUresult result = -1;
  CHECK(cuMemPoolCreate(&pool, &wishes) == CUDA_SUCCESS);
  CUmemoryPool same = pool;
  pump_enter();
  struct pump_at at = pump_at(stream_of(2), false);
  CHECK(pump_pool_allocate(&address, 4096, pool, at, &result) && result == CUDA_SUCCESS);
  pump_leave();
  const struct pool_arena *arena = pool_arena_of(pool, CONTEXT, 0, false);
  destroy_answer = CUDA_ERROR_UNKNOWN;
  CHECK(arena != NULL && cuMemPoolDestroy(pool) == CUDA_ERROR_UNKNOWN);
  CHECK(pump_pool_serves(&same, 0) && pool_arena_of(pool, CONTEXT, 0, false) == arena);
  destroy_answer = CUDA_SUCCESS;
  CHECK(cuMemPoolDestroy(pool) == CUDA_SUCCESS && arena->pool == NULL);
  CHECK(!pump_pool_serves(&same, 0) && arena->used_bytes != 0);
}

/* Address space is used up, and no remaining segment is long enough. Segments are returned
 * when the GPU is done with them, and the request waits for that. */
static void *execute_later(void *unused) {
  (void)unused;
  nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
  execute_all();
  return NULL;
}
static void check_late(void) {
  CUstream stream = stream_of(2);
  limit_bytes = 160 * MIB;
  for (uint32_t i = 0; i < 4; i++) {
    CUdeviceptr block = hold(stream, 20 * MIB, 1);
    let_go(stream, block, 20 * MIB, 1);
    hold(stream, 4096, 2); /* so that the block does not count as just freed */
  }
  CHECK(mapped_bytes == (2 + 2 * 32) * MIB);
  pthread_t gpu;
  CHECK(pthread_create(&gpu, NULL, execute_later, NULL) == 0);
  hold(stream, 100 * MIB, 3);
  pthread_join(gpu, NULL);
  CHECK(refusals == 0 && mapped_bytes <= limit_bytes);
}

/* With a small limit, the pool reserves no more than requested. */
static void check_small(void) {
  limit_bytes = 100 * MIB;
  hold(stream_of(2), 3 * MIB, 1);
  CHECK(mapped_bytes == 32 * MIB);
  hold(stream_of(2), 30 * MIB, 2);
  CHECK(mapped_bytes == 64 * MIB);
  hold(stream_of(2), 6 * MIB, 3);
  hold(stream_of(2), 25 * MIB, 4);
  CHECK(mapped_bytes == 90 * MIB);
}

/* One thread is in the driver with idle memory that another thread needs. */
static pthread_t needy;
static void *need(void *unused) {
  (void)unused;
  pump_pool_free_idle(0);
  pthread_mutex_lock(&driver_lock);
  CHECK(mapped_bytes == 0);
  pthread_mutex_unlock(&driver_lock);
  return NULL;
}
static void needs(void) {
  CHECK(pthread_create(&needy, NULL, need, NULL) == 0);
  nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
}
static void check_relief_waits_for_another_thread(void) {
  for (int frees = 0; frees < 2; frees++) {
    CHECK(come_and_go(NULL, 30 * MIB));
    execute_all();
    if (!frees) meanwhile = needs;
    lie_idle();
    if (frees) meanwhile = needs;
    pump_pool_free_idle(0);
    CHECK(meanwhile == NULL && mapped_bytes == 0);
    pthread_join(needy, NULL);
  }
}

/* Number of requests in an iteration. */
#define REQUESTS 64u

/* A request of each iteration; it is freed `lives` requests later. */
struct repeated {
  uint64_t bytes;
  uint32_t stream, lives;
};

static void give_back_at(struct program *p, uint32_t i) {
  struct held held = p->held[i];
  CUresult result = -1;
  check_piece(&held);
  taken_back(held.base, held.bytes, held.holder, held.stream);
  pump_enter();
  CHECK(pump_pool_free_ordered(held.base, pump_at(stream_of(held.stream), false), &result));
  pump_leave();
  CHECK(result == CUDA_SUCCESS);
  p->held[i] = p->held[--p->count];
}

static void request(struct program *p, struct repeated what) {
  static uint32_t holders;
  struct held held = {.bytes = what.bytes, .holder = ++holders, .stream = what.stream};
  CUdeviceptr address = 0;
  CUresult result = -1;
  pump_enter();
  CHECK(pump_pool_allocate(&address, what.bytes, NULL,
                           pump_at(stream_of(what.stream), false), &result));
  pump_leave();
  if (result != CUDA_SUCCESS) return;
  held.base = address;
  handed_out(held.base, held.bytes, held.holder, held.stream);
  check_piece(&held);
  p->held[p->count++] = held;
}

/* Runs iterations that are all equal, or (`noisy`) sometimes not. */
static void run_cycles(uint64_t seed, uint32_t iterations, bool noisy) {
  static uint64_t due[HELD], last[2 * REQUESTS], same;
  struct repeated all[REQUESTS];
  struct program p = {.state = noise_begin(seed)};
  limit_bytes = 256 * MIB;
  for (uint32_t i = 0; i < REQUESTS; i++) {
    uint32_t longest = noise_below(&p.state, 4) == 0 ? REQUESTS - 1 : 12;
    all[i] = (struct repeated){
        .bytes = MIB / 2 + noise_below(&p.state, 8 * MIB),
        .stream = noisy && noise_below(&p.state, 8) == 0 ? 2 : 1,
        .lives = 1 + (uint32_t)noise_below(&p.state, longest),
    };
  }
  all[0].lives = REQUESTS + 2; /* live until the next iteration's data */
  for (uint64_t now = 0; now < (uint64_t)iterations * REQUESTS; now++) {
    struct repeated what = all[now % REQUESTS];
    bool other = noisy && noise_below(&p.state, 300) == 0;
    if (other) what.bytes = 1 + noise_below(&p.state, 6 * MIB);
    for (uint32_t i = p.count; i-- > 0;)
      if (due[p.held[i].holder % HELD] == now) give_back_at(&p, i);
    uint32_t count = p.count;
    request(&p, what);
    if (p.count > count) {
      due[p.held[count].holder % HELD] = now + what.lives;
      uint64_t *base = &last[now % (2 * REQUESTS)]; /* alternates between two iterations */
      same += p.held[count].base == *base;
      *base = p.held[count].base;
    }
    if (other && noise_below(&p.state, 2) == 0 && p.count > 0)
      give_back_at(&p, (uint32_t)noise_below(&p.state, p.count));
    if (now % 4 == 0) execute(1 + (uint32_t)noise_below(&p.state, 2), 1000);
    if (!noisy) execute_all();
    /* Little memory is missing, or a lot, or none. */
    static const uint64_t wanting[] = {1, 0, 1, SPACE_BYTES};
    PUMP_STORE(&pump_shm->devices[0].allocated_bytes, wanting[noisy ? now / 2048 % 4 : 0]);
    clock_step_ns = noisy ? 1000000 : 100000;
    look_after_the_dead();
    if (!noisy || now % 16 == 0) execute(OURS, 3);
    for (uint32_t w = OURS + 1; w < OURS + PUMP_LOAD(&ours_made); w++) execute(w, 3);
    if (noisy && noise_below(&p.state, 60) == 0)
      cuMemPoolTrimTo(DEFAULT_POOL, noise_below(&p.state, 256) * MIB);
  }
  struct pool_arena *arena = pool_arena_of(DEFAULT_POOL, CONTEXT, 0, false);
  printf("reserved %llu most %llu used %llu same %llu discards %llu\n",
         (unsigned long long)arena->reserved_bytes, (unsigned long long)most_bytes,
         (unsigned long long)arena->used_high_bytes, (unsigned long long)same,
         (unsigned long long)discards);
  if (!noisy) CHECK(pool_cycle_is_confirmed(arena));
  while (p.count > 0) give_back_at(&p, p.count - 1);
  execute_all();
  cuMemPoolTrimTo(DEFAULT_POOL, SPACE_BYTES); /* makes room for events again */
  check_end();
}

/* Replays allocations with a GPU that keeps up and memory for the peak of live bytes.
 * Prints for each iteration the memory reserved at its peak, and at the end the maxima. */
static void replay(void) {
  static uint64_t addresses[1 << 16];
  unsigned long long index, bytes;
  uint64_t most_used = 0, reserved = 0;
  limit_bytes = SPACE_BYTES;
  CUresult result = CUDA_SUCCESS;
  pump_enter();
  while (scanf("%llu %llu", &index, &bytes) == 2) {
    if (index == 1 << 16) {
      printf("iteration reserved %llu\n", (unsigned long long)reserved);
      most_used = 0;
      continue;
    }
    CHECK(index < 1 << 16);
    CUdeviceptr address = addresses[index];
    if (bytes == 0) {
      CHECK(pump_pool_free_ordered(address, pump_at(NULL, false), &result));
    } else {
      CHECK(pump_pool_allocate(&address, bytes, NULL, pump_at(NULL, false), &result));
      addresses[index] = address;
    }
    CHECK(result == CUDA_SUCCESS);
    execute_all();
    look_after_the_dead();
    const struct pool_arena *arena = pool_arena_of(DEFAULT_POOL, CONTEXT, 0, false);
    PUMP_STORE(&pump_shm->devices[0].allocated_bytes, arena->reserved_bytes);
    PUMP_STORE(&pump_shm->devices[0].budget_bytes, arena->peak_bytes);
    if (arena->used_bytes <= most_used) continue;
    most_used = arena->used_bytes;
    reserved = arena->reserved_bytes;
  }
  const struct pool_arena *arena = pool_arena_of(DEFAULT_POOL, CONTEXT, 0, false);
  printf("used %llu reserved %llu\n", (unsigned long long)arena->used_high_bytes,
         (unsigned long long)most_bytes);
}

#endif
