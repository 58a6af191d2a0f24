/* hard_work.c - programs that do many things at the same time and check every result.
 *
 * Usage: hard_work CASE. Prints "right" (exit status 0) or an error (exit status 9).
 */
#include "hard.h"

static CUcontext context;
static CUfunction mix;

/* ---- threads: own streams, legacy and per-thread default streams --------------- */

static void *on_some_stream(void *number) {
  unsigned me = (unsigned)(uintptr_t)number;
  CUstream own;
  MUST(cu.CtxSetCurrent(context));
  MUST(cu.StreamCreate(&own, me & 1 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
  struct set *set = set_make(4, me + 1);
  for (int i = 0; i < 60; i++) {
    switch (me) {
    case 0:
    case 1:
      set_step(set, &cu, mix, own);
      break;
    case 2:
      set_step(set, &cu, mix, NULL);
      break;
    case 3:
      set_step(set, &pt, mix, NULL);
      break;
    case 4: /* both names of the per-thread stream */
      set_step(set, i & 1 ? &cu : &pt, mix, i & 1 ? CU_STREAM_PER_THREAD : NULL);
      break;
    default: /* the legacy and the per-thread stream wait for each other */
      set_step(set, i & 1 ? &cu : &pt, mix, i % 3 == 0 ? CU_STREAM_LEGACY : NULL);
    }
    if (i % 20 == 19) MUST(pt.StreamSynchronize(NULL));
  }
  MUST(cu.StreamSynchronize(own));
  MUST(pt.StreamSynchronize(NULL));
  MUST(cu.StreamSynchronize(NULL));
  MUST(cu.StreamDestroy(own));
  set_check(set);
  return NULL;
}

static void threads(void) {
  in_threads(6, on_some_stream);
}

/* ---- streams and events by the thousand ----------------------------------------- */

static void churn(void) {
  struct set *set = set_make(24, 5);
  CUevent last = NULL;
  for (int i = 0; i < 2500; i++) {
    CUstream stream;
    CUevent event;
    MUST(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cu.EventCreate(&event, CU_EVENT_DISABLE_TIMING));
    MUST(cu.EventQuery(event)); /* never recorded, but its handle may be reused */
    if (last != NULL) MUST(cu.StreamWaitEvent(stream, last, 0));
    if (i % 10 == 0) set_step(set, &cu, mix, stream);
    MUST(cu.EventRecord(event, stream));
    if (last != NULL) MUST(cu.EventDestroy(last));
    last = event;
    if (i % 500 == 499) MUST(cu.EventSynchronize(last)); /* GPU streams are limited */
    MUST(cu.StreamDestroy(stream));                      /* with work in flight */
  }
  MUST(cu.EventSynchronize(last));
  MUST(cu.EventDestroy(last));
  set_check(set);
}

static void *one_call(void *number) { /* each thread has its own default stream */
  struct set *set = number;
  MUST(cu.CtxSetCurrent(context));
  set_step(set, &pt, mix, NULL);
  MUST(pt.StreamSynchronize(NULL));
  return NULL;
}

static void short_lived_threads(void) {
  struct set *set = set_make(24, 6);
  for (int i = 0; i < 1200; i++) { /* more threads than stream slots */
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, one_call, set) == 0);
    pthread_join(thread, NULL);
  }
  set_check(set);
}

/* ---- allocation and free while kernels run on other memory ----------------------- */

static bool storming;

static void *storm(void *number) {
  uint32_t random = 77u + (uint32_t)(uintptr_t)number;
  CUdeviceptr held[8] = {0};
  MUST(cu.CtxSetCurrent(context));
  for (int i = 0; i < 400 && __atomic_load_n(&storming, __ATOMIC_ACQUIRE); i++) {
    random = random * 1664525u + 1013904223u;
    CUdeviceptr *one = &held[random >> 8 & 7];
    if (*one != 0) {
      unsigned first, mine = (unsigned)(uintptr_t)number + 1;
      MUST(cu.MemcpyDtoH(&first, *one, sizeof first));
      if (first != mine) FAIL("%x instead of %u at %llx", first, mine, *one);
      MUST(cu.MemFree(*one));
      *one = 0;
      continue;
    }
    size_t bytes = (size_t)(random >> 16) * (random >> 8 & 63) % (4 * MIB) + 4;
    MUST(cu.MemAlloc(one, bytes));
    MUST(pt.MemsetD32(*one, (unsigned)(uintptr_t)number + 1, bytes / 4));
  }
  for (int i = 0; i < 8; i++)
    if (held[i] != 0) MUST(cu.MemFree(held[i]));
  return NULL;
}

static void *storm_of_kernels(void *unused) {
  (void)unused;
  CUstream stream;
  MUST(cu.CtxSetCurrent(context));
  MUST(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  struct set *set = set_make(18, 3);
  for (int i = 0; i < 300; i++) set_step(set, &cu, mix, stream);
  MUST(cu.StreamSynchronize(stream));
  __atomic_store_n(&storming, false, __ATOMIC_RELEASE);
  MUST(cu.StreamDestroy(stream));
  set_check(set);
  return NULL;
}

static void *storm_body(void *number) {
  return number == NULL ? storm_of_kernels(NULL) : storm(number);
}

static void storms(void) {
  storming = true;
  in_threads(4, storm_body);
}

/* ---- launch buffers --------------------------------------------------------------- */

static void extra(void) {
  struct set *set = set_make(24, 8);
  for (int i = 0; i < 200; i++) {
    unsigned target = set_random(set, 24), source = set_random(set, 24);
    uint64_t words[4] = {set->buffers[target], set->buffers[source], WORDS, 0};
    words[3] = set_apply(set, target, source);
    size_t bytes = sizeof words;
    void *buffer[] = {CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_BUFFER_POINTER,
                      words, CU_LAUNCH_PARAM_END};
    MUST(cu.LaunchKernel(mix, 64, 1, 1, 256, 1, 1, 0, NULL, NULL, buffer));
  }
  MUST(cu.CtxSynchronize());
  set_check(set);
}

/* ---- answers to the program ----------------------------------------------------- */

static void pointer_answers(CUdeviceptr base, size_t bytes, bool managed) {
  CUdeviceptr found = 0;
  size_t length = 0;
  MUST(cu.MemGetAddressRange(&found, &length, base + bytes - 1));
  CHECK(found == base && length == bytes);
  MUST(cu.MemGetAddressRange(NULL, &length, base));
  MUST(cu.MemGetAddressRange(&found, NULL, base));
  unsigned type = 77, is_managed = 77;
  int ordinal = 77;
  void *host = &host;
  int names[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                 CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_HOST_POINTER};
  void *answers[] = {&type, &is_managed, &ordinal, &host};
  MUST(cu.PointerGetAttributes(4, names, answers, base + 8));
  CHECK(type == CU_MEMORYTYPE_DEVICE && ordinal == 0 && (is_managed & 1) == managed);
  CHECK(managed || host == NULL);
  type = is_managed = 77;
  MUST(cu.PointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, base + 8));
  MUST(cu.PointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, base + 8));
  CHECK(type == CU_MEMORYTYPE_DEVICE && (is_managed & 1) == managed);
  CUresult result =
      cu.PointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, base + 8);
  CHECK(result == (managed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE));
}

static void answers(void) {
  CUdeviceptr held[32], managed;
  size_t free_bytes, total_bytes, before = 0, pitch;
  MUST(cu.MemGetInfo(&before, &total_bytes));
  CHECK(total_bytes == 64 * MIB && before <= total_bytes && before > 48 * MIB);
  for (int i = 0; i < 24; i++) {
    MUST(cu.MemAlloc(&held[i], BUFFER_BYTES - 1000));
    MUST(cu.MemGetInfo(&free_bytes, &total_bytes));
    CHECK(total_bytes == 64 * MIB && free_bytes <= before);
    CHECK(free_bytes <= 64 * MIB - (size_t)(i + 1 > 16 ? 16 : i + 1) * BUFFER_BYTES);
    pointer_answers(held[i], BUFFER_BYTES - 1000, false);
  }
  CHECK(free_bytes == 0);
  MUST(cu.MemAllocManaged(&managed, 3 * MIB, CU_MEM_ATTACH_GLOBAL));
  pointer_answers(managed, 3 * MIB, true);
  MUST(cu.MemFree(managed));
  CHECK(cu.MemFree(held[0] + 4096) != CUDA_SUCCESS); /* not the start of an allocation */
  for (int i = 0; i < 24; i++) MUST(cu.MemFree(held[i]));
  CHECK(cu.MemFree(held[3]) != CUDA_SUCCESS); /* second free */
  CHECK(cu.PointerGetAttribute(&pitch, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, held[3]) != 0);
  MUST(cu.MemAllocPitch(&held[0], &pitch, 4097, 1024, 8));
  CHECK(pitch >= 4097);
  pointer_answers(held[0], pitch * 1024, false);
  MUST(cu.MemFree(held[0]));
  MUST(cu.MemGetInfo(&free_bytes, &total_bytes));
  CHECK(free_bytes > before - 2 * BUFFER_BYTES);
}

int main(int count, char **words) {
  static const struct hard_case cases[] = {
      {"threads", threads}, {"churn", churn},
      {"storms", storms},   {"extra", extra},
      {"answers", answers}, {"short_lived_threads", short_lived_threads}};
  load_driver();
  context = start();
  mix = load_mix(NULL);
  return run_case(count, words, cases, sizeof cases / sizeof *cases);
}
