/* hard_life.c - contexts, modules and their objects, created and destroyed repeatedly.
 *
 * Usage: hard_life CASE. Prints "right" (exit status 0) or an error (exit status 9).
 */
#include "hard.h"

/* ---- contexts ------------------------------------------------------------------- */

/* Destroys a second context together with its memory and work, while the primary context
 * keeps working. */
static void contexts(void) {
  CUcontext primary = start(), seen;
  CUfunction mix = load_mix(NULL);
  struct set *set = set_make(12, 1);
  size_t free_bytes, total_bytes;
  MUST(cu.MemGetInfo(&free_bytes, &total_bytes));
  for (unsigned round = 0; round < 8; round++) {
    CUcontext beside;
    MUST(cu.CtxCreate(&beside, 0, 0)); /* becomes current */
    CUfunction its_mix = load_mix(NULL);
    struct set *its = set_make(12, round + 2);
    CUstream stream;
    MUST(cu.StreamCreate(&stream, CU_STREAM_DEFAULT)); /* in order with the NULL stream */
    CUdeviceptr small;
    for (int i = 0; i < 40; i++) MUST(cu.MemAlloc(&small, MIB / 2 - 1)); /* the context's */
    for (int i = 0; i < 40; i++) {
      MUST(cu.CtxSetCurrent(primary));
      set_step(set, &cu, mix, NULL);
      MUST(cu.CtxSetCurrent(beside));
      set_step(its, &cu, its_mix, i & 1 ? stream : NULL);
    }
    MUST(cu.CtxSynchronize());
    set_check_values(its);
    free(its); /* the context's end frees the memory and stops the work */
    MUST(cu.CtxDestroy(beside));
    MUST(cu.CtxGetCurrent(&seen));
    CHECK(seen != beside);
    MUST(cu.CtxSetCurrent(primary));
  }
  size_t free_now;
  MUST(cu.MemGetInfo(&free_now, &total_bytes));
  CHECK(free_now + 2 * MIB >= free_bytes); /* their memory is free */
  MUST(cu.CtxSynchronize());
  set_check(set);
}

/* Creates and destroys the only context repeatedly. */
static void contexts_in_a_row(void) {
  MUST(cu.Init(0));
  for (unsigned round = 0; round < 12; round++) {
    CUcontext context;
    MUST(cu.CtxCreate(&context, 0, 0));
    CUfunction mix = load_mix(NULL);
    struct set *set = set_make(24, round + 1);
    for (int i = 0; i < 40; i++) set_step(set, &pt, mix, NULL);
    if (round % 3 != 0) { /* else destroyed with work in flight */
      MUST(cu.CtxSynchronize());
      set_check_values(set);
    }
    free(set);
    MUST(cu.CtxDestroy(context));
  }
}

static void primary_reset(void) {
  for (unsigned round = 0; round < 10; round++) {
    start();
    CUfunction mix = load_mix(NULL);
    struct set *set = set_make(24, round + 1);
    for (int i = 0; i < 40; i++) set_step(set, &cu, mix, NULL);
    if (round & 1) {
      MUST(cu.CtxSynchronize());
      set_check_values(set);
    }
    free(set);
    if (round % 3 == 0) MUST(cu.DevicePrimaryCtxReset(0));
    MUST(cu.DevicePrimaryCtxRelease(0));
  }
}

/* ---- modules: handles come back with other parameters ---------------------------- */

#define HEAD ".version 7.0\n.target sm_80\n.address_size 64\n"
static const char wide_ptx[] = HEAD
    ".visible .entry wide(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d,\n"
    ".param .u64 e, .param .u64 f, .param .u64 g, .param .u64 h, .param .u64 i)\n"
    "{\n  ret;\n}\n";
static const char slim_ptx[] = HEAD ".visible .entry slim(.param .u64 a)\n{\n  ret;\n}\n";

#define HANDLES 64

static CUfunction load(CUmodule *module, const char *ptx, const char *name) {
  CUfunction function;
  MUST(cu.ModuleLoadData(module, ptx));
  MUST(cu.ModuleGetFunction(&function, *module, name));
  return function;
}

/* Launches a kernel. The addresses after its own parameters must not be read. */
static void launch(CUfunction function, unsigned count, uint64_t *values) {
  void *params[16];
  for (unsigned i = 0; i < 16; i++) params[i] = i < count ? &values[i] : (void *)8;
  MUST(cu.LaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, params, NULL));
}

/* Runs a wide and a slim kernel, each in its own module or context. */
static unsigned one_life(bool by_context, CUdeviceptr words, CUfunction *wide, unsigned n) {
  CUmodule module;
  CUcontext context;
  CUdeviceptr own = words;
  unsigned reused = 0;
  if (by_context) MUST(cu.CtxCreate(&context, 0, 0));
  if (by_context) MUST(cu.MemAlloc(&own, BUFFER_BYTES));
  wide[n % HANDLES] = load(&module, wide_ptx, "wide");
  launch(wide[n % HANDLES], 9, (uint64_t[]){1, 2, 3, 4, 5, 6, own, WORDS, 1});
  MUST(cu.CtxSynchronize());
  if (by_context) {
    MUST(cu.CtxDestroy(context));
    MUST(cu.CtxCreate(&context, 0, 0));
    MUST(cu.MemAlloc(&own, BUFFER_BYTES));
  } else {
    MUST(cu.ModuleUnload(module));
  }
  CUfunction slim = load(&module, slim_ptx, "slim");
  for (unsigned i = 0; i < HANDLES; i++) reused += wide[i] == slim;
  launch(slim, 1, (uint64_t[]){own});
  MUST(cu.CtxSynchronize());
  if (by_context)
    MUST(cu.CtxDestroy(context));
  else
    MUST(cu.ModuleUnload(module));
  return reused;
}

static void lives(bool by_context) {
  CUcontext primary = start();
  CUfunction mix = load_mix(NULL), wide[HANDLES] = {NULL};
  struct set *set = set_make(20, 4);
  CUdeviceptr words;
  uint64_t first;
  unsigned reused = 0, rounds = 60;
  MUST(cu.MemAlloc(&words, BUFFER_BYTES));
  MUST(cu.MemsetD32(words, 0, BUFFER_BYTES / 4));
  for (unsigned n = 0; n < rounds; n++) {
    set_step(set, &cu, mix, NULL);
    reused += one_life(by_context, words, wide, n);
    MUST(cu.CtxSetCurrent(primary));
  }
  MUST(cu.MemcpyDtoH(&first, words, sizeof first));
  CHECK(first == (by_context ? 0 : 2 * rounds));
  CHECK(reused > 0); /* else the test is void */
  set_check(set);
}

static void modules(void) {
  lives(false);
}
static void modules_of_contexts(void) {
  lives(true);
}

int main(int count, char **words) {
  static const struct hard_case cases[] = {{"contexts", contexts},
                                           {"contexts_in_a_row", contexts_in_a_row},
                                           {"primary_reset", primary_reset},
                                           {"modules", modules},
                                           {"modules_of_contexts", modules_of_contexts}};
  load_driver();
  return run_case(count, words, cases, sizeof cases / sizeof *cases);
}
