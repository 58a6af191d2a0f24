/* pool_stress_driver.h - the driver of pool_stress.c, which includes it once. It executes
 * nothing and knows the owner of each piece of memory.
 */
#ifndef POOL_STRESS_DRIVER_H
#define POOL_STRESS_DRIVER_H

/* ---- the driver: all under `driver_lock` ------------------------------------------ */

static pthread_mutex_t driver_lock = PTHREAD_MUTEX_INITIALIZER;

static struct stream {
  bool alive, captured;
  uint64_t issued, executed;
  uint64_t behind[LAST + 1]; /* by other stream: the operation that this one waits for */
} streams[LAST + 1];

struct event {
  uint32_t stream;
  bool lost; /* a capture began between query and record */
  uint64_t position;
  uint64_t
      behind[LAST + 1]; /* operations that its stream waited for; waiters inherit these */
};
static uint64_t events_made, events_gone, events_to_lose;

/* State of 512 bytes: held, or freed after an operation of a stream. */
static struct unit {
  uint32_t holder; /* 0: none */
  uint32_t stream; /* 0: free to all */
  bool discarded;  /* since it was held */
  uint64_t position;
} *units;
/* Operations that repopulated a block after its discard, by stream: the first one, which
 * orders it, and the newest. */
static struct repopulated {
  uint64_t first, newest;
} (*repopulated)[LAST + 1];
static uint32_t ours_made;
static CUresult destroy_answer = CUDA_SUCCESS;
static uint32_t prefetches_to_fail;
static uint64_t next_base = BASE, mapped_bytes, most_bytes, refusals, discards, wakes;
static uint32_t closed[PUMP_MAX_RANGES];
static void (*meanwhile)(void); /* called once, at the next discard or free */
static struct {
  uint64_t base, bytes;
} mapped[512];

static uint32_t number_of(CUstream stream) {
  return stream == NULL || stream == CU_STREAM_LEGACY ? 1
                                                      : (uint32_t)((uintptr_t)stream >> 8);
}
static CUstream stream_of(uint32_t number) {
  return number == 1 ? NULL : (CUstream)((uintptr_t)number << 8);
}

static __thread CUcontext current = CONTEXT;

static CUresult event_create(CUevent *event, unsigned int flags) {
  CHECK(flags == CU_EVENT_DISABLE_TIMING && pump_reentry_depth != 0 && current == CONTEXT);
  *event = calloc(1, sizeof(struct event));
  __atomic_fetch_add(&events_made, 1, __ATOMIC_RELAXED);
  return CUDA_SUCCESS;
}
static CUresult event_destroy(CUevent event) {
  free(event);
  __atomic_fetch_add(&events_gone, 1, __ATOMIC_RELAXED);
  return CUDA_SUCCESS;
}
static CUresult event_record(CUevent event, CUstream stream) {
  struct event *e = (struct event *)event;
  pthread_mutex_lock(&driver_lock);
  struct stream *s = &streams[number_of(stream)];
  CHECK(s->alive && !s->captured);
  *e = (struct event){.stream = number_of(stream), .position = ++s->issued};
  memcpy(e->behind, s->behind, sizeof e->behind);
  e->lost = events_to_lose != 0;
  if (e->lost) events_to_lose--;
  pthread_mutex_unlock(&driver_lock);
  return CUDA_SUCCESS;
}
static CUresult event_synchronize(CUevent event) {
  const struct event *e = (struct event *)event;
  pthread_mutex_lock(&driver_lock);
  struct stream *s = &streams[e->stream];
  if (s->executed < e->position) s->executed = e->position;
  pthread_mutex_unlock(&driver_lock);
  return CUDA_SUCCESS;
}
static CUresult event_query(CUevent event) {
  const struct event *e = (struct event *)event;
  pthread_mutex_lock(&driver_lock);
  bool complete = streams[e->stream].executed >= e->position, lost = e->lost;
  pthread_mutex_unlock(&driver_lock);
  if (lost) return CUDA_ERROR_UNKNOWN;
  return complete ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
static CUresult stream_wait(CUstream stream, CUevent event, unsigned int flags) {
  const struct event *e = (struct event *)event;
  CHECK(flags == 0);
  pthread_mutex_lock(&driver_lock);
  struct stream *s = &streams[number_of(stream)];
  CHECK(s->alive && !s->captured);
  /* A wait for the populator must not add a wait for another stream of the program. That
   * stream may wait for the host, and the host for this one. */
  for (uint32_t i = 1; i <= STREAMS && e->stream == LAST; i++)
    CHECK(&streams[i] == s || streams[i].executed >= e->behind[i] ||
          s->behind[i] >= e->behind[i]);
  if (s->behind[e->stream] < e->position) s->behind[e->stream] = e->position;
  for (uint32_t i = 1; i <= LAST; i++)
    if (s->behind[i] < e->behind[i]) s->behind[i] = e->behind[i];
  pthread_mutex_unlock(&driver_lock);
  return CUDA_SUCCESS;
}
static CUresult stream_query(CUstream stream) {
  pthread_mutex_lock(&driver_lock);
  const struct stream *s = &streams[number_of(stream)];
  CHECK(s->alive && !s->captured);
  bool idle = s->executed == s->issued;
  pthread_mutex_unlock(&driver_lock);
  return idle ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
static CUresult stream_synchronize(CUstream stream) {
  (void)stream;
  CHECK(!"the pool waits");
  return CUDA_SUCCESS;
}
static CUresult stream_context(CUstream stream, CUcontext *context) {
  pthread_mutex_lock(&driver_lock);
  CHECK(streams[number_of(stream)].alive);
  pthread_mutex_unlock(&driver_lock);
  *context = CONTEXT;
  return CUDA_SUCCESS;
}
static CUresult get_current(CUcontext *context) {
  *context = current;
  return CUDA_SUCCESS;
}
static CUresult set_current(CUcontext context) {
  CHECK(pump_reentry_depth != 0);
  current = context;
  return CUDA_SUCCESS;
}
static CUresult get_pool(CUmemoryPool *pool, CUdevice device) {
  CHECK(device == 0);
  *pool = DEFAULT_POOL;
  return CUDA_SUCCESS;
}
static CUresult pool_create(CUmemoryPool *pool, const CUmemPoolProps *wishes) {
  static uintptr_t last = 0x6000;
  (void)wishes;
  *pool = (CUmemoryPool)++last;
  return CUDA_SUCCESS;
}
/* Another thread may get the handle at once: the pool must have forgotten it. */
static CUresult pool_destroy(CUmemoryPool pool) {
  CUmemoryPool same = pool;
  CHECK(pool != DEFAULT_POOL && !pump_pool_serves(&same, 0));
  CHECK(pool_arena_of(pool, CONTEXT, 0, false) == NULL);
  return destroy_answer;
}
static cuuint64_t threshold_bytes;
static CUresult pool_attribute(CUmemoryPool pool, CUmemPool_attribute attribute,
                               void *value) {
  CHECK(pool != NULL && attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD);
  memcpy(value, &threshold_bytes, sizeof threshold_bytes);
  return CUDA_SUCCESS;
}
static CUresult pool_succeeds(CUmemoryPool pool, size_t bytes) {
  (void)bytes;
  CHECK(pool == DEFAULT_POOL);
  return CUDA_SUCCESS;
}

CUresult pump_stream_make(CUstream *stream) {
  pthread_mutex_lock(&driver_lock);
  CHECK(ours_made <= LAST - OURS);
  streams[OURS + ours_made].alive = true;
  *stream = stream_of(OURS + PUMP_ADD(&ours_made, 1)); /* the first discards */
  pthread_mutex_unlock(&driver_lock);
  return CUDA_SUCCESS;
}
static struct unit *units_at(uint64_t address, uint64_t bytes) {
  CHECK(address % PUMP_BLOCK_BYTES == 0 && bytes % PUMP_BLOCK_BYTES == 0 && bytes != 0);
  return &units[(address - BASE) / POOL_UNIT_BYTES];
}
static void something_happens_meanwhile(void) {
  void (*happens)(void) = __atomic_exchange_n(&meanwhile, NULL, __ATOMIC_SEQ_CST);
  if (happens != NULL) happens();
}
/* Plays the driver's discard. Checks that the memory has no owner, that everything issued
 * before its free has executed, and that no executor can reach it. */
static CUresult discard(CUdeviceptr *addresses, size_t *lengths, size_t count,
                        unsigned long long flags, CUstream stream) {
  CHECK(number_of(stream) == OURS && flags == 0 && count > 0);
  something_happens_meanwhile();
  pthread_mutex_lock(&driver_lock);
  uint64_t position = ++streams[OURS].issued;
  for (size_t i = 0; i < count; i++) {
    struct unit *first = units_at(addresses[i], lengths[i]);
    struct pump_hit hit;
    CHECK(pump_range_lookup(addresses[i], &hit) && PUMP_LOAD(&closed[hit.slot]) != 0);
    for (uint64_t b = 0; b < lengths[i] / PUMP_BLOCK_BYTES; b++) {
      struct repopulated *by = repopulated[(addresses[i] - BASE) / PUMP_BLOCK_BYTES + b];
      for (uint32_t w = 1; w <= LAST; w++) CHECK(streams[w].executed >= by[w].newest);
      memset(by, 0, sizeof *repopulated);
    }
    for (uint64_t u = 0; u < lengths[i] / POOL_UNIT_BYTES; u++) {
      CHECK(first[u].holder == 0);
      CHECK(first[u].stream == 0 || first[u].stream == OURS ||
            streams[first[u].stream].executed >= first[u].position);
      first[u].discarded = true;
      first[u].stream = OURS;
      first[u].position = position;
    }
  }
  discards++;
  pthread_mutex_unlock(&driver_lock);
  return CUDA_SUCCESS;
}
/* May include live neighbors, since it changes no data. */
static CUresult prefetch(CUdeviceptr address, size_t bytes, CUmemLocation location,
                         unsigned int flags, CUstream stream) {
  CHECK(number_of(stream) != OURS && flags == 0);
  CHECK(location.type == CU_MEM_LOCATION_TYPE_DEVICE && location.id == 0);
  if (prefetches_to_fail != 0 && prefetches_to_fail-- != 0) return CUDA_ERROR_UNKNOWN;
  pthread_mutex_lock(&driver_lock);
  uint64_t position = ++streams[number_of(stream)].issued;
  CHECK(units_at(address, bytes) != NULL);
  for (uint64_t b = 0; b < bytes / PUMP_BLOCK_BYTES; b++) {
    struct repopulated *by =
        &repopulated[(address - BASE) / PUMP_BLOCK_BYTES + b][number_of(stream)];
    by->newest = position;
    if (by->first == 0) by->first = position;
  }
  wakes++;
  pthread_mutex_unlock(&driver_lock);
  return CUDA_SUCCESS;
}

static CUresult alloc_managed(CUdeviceptr *address, size_t bytes, unsigned int flags) {
  CHECK(flags == CU_MEM_ATTACH_GLOBAL && bytes % PUMP_BLOCK_BYTES == 0);
  pthread_mutex_lock(&driver_lock);
  CHECK(next_base + bytes <= BASE + SPACE_BYTES);
  uint32_t i = 0;
  while (mapped[i].base != 0) i++;
  CHECK(i < 511);
  *address = mapped[i].base = next_base;
  mapped[i].bytes = bytes;
  next_base += bytes;
  mapped_bytes += bytes;
  pthread_mutex_unlock(&driver_lock);
  return CUDA_SUCCESS;
}
/* The memory must have no owner, and the program's streams must have reached its free. The
 * call waits for the pool's own operations: on a block that was repopulated, returned
 * unused and trimmed. */
static CUresult mem_free(CUdeviceptr address) {
  something_happens_meanwhile();
  pthread_mutex_lock(&driver_lock);
  uint32_t i = 0;
  while (mapped[i].base != address) CHECK(++i < 512);
  struct unit *first = &units[(address - BASE) / POOL_UNIT_BYTES];
  for (uint64_t u = 0; u < mapped[i].bytes / POOL_UNIT_BYTES; u++) {
    CHECK(first[u].holder == 0);
    uint32_t by = first[u].stream;
    CHECK(by == 0 || by == OURS || streams[by].executed >= first[u].position);
  }
  mapped_bytes -= mapped[i].bytes;
  mapped[i].base = 0;
  pthread_mutex_unlock(&driver_lock);
  return CUDA_SUCCESS;
}

#endif
