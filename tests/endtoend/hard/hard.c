/* hard.c - see hard.h. */
#include "hard.h"

struct api cu, pt;

const char *const mix_ptx =
    ".version 7.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry mix(.param .u64 mix_param_0, .param .u64 mix_param_1,\n"
    "                    .param .u64 mix_param_2, .param .u64 mix_param_3)\n{\n  ret;\n}\n";

typedef CUresult (*get_address)(const char *, void **, int, cuuint64_t, int *);

static void fill(struct api *api, get_address get, cuuint64_t flags) {
#define X(name, version, parameters)                                                       \
  MUST(get("cu" #name, (void **)&api->name, version, flags, NULL));
  CALLS(X)
#undef X
}

void load_driver(void) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == NULL) FAIL("%s", dlerror());
  get_address get;
  *(void **)&get = dlsym(driver, "cuGetProcAddress_v2");
  CHECK(get != NULL);
  fill(&cu, get, CU_GET_PROC_ADDRESS_LEGACY_STREAM);
  fill(&pt, get, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
  CHECK(cu.LaunchKernel != pt.LaunchKernel);
}

CUcontext start(void) {
  CUcontext context;
  MUST(cu.Init(0));
  MUST(cu.DevicePrimaryCtxRetain(&context, 0));
  MUST(cu.CtxSetCurrent(context));
  static bool waited; /* for a worker to attach: without a worker little of pump runs */
  if (!waited) usleep(700000);
  waited = true;
  return context;
}

CUfunction load_mix(CUmodule *module) {
  CUmodule loaded;
  CUfunction mix;
  MUST(cu.ModuleLoadData(&loaded, mix_ptx));
  MUST(cu.ModuleGetFunction(&mix, loaded, "mix"));
  if (module != NULL) *module = loaded;
  return mix;
}

/* Returns HARD_PERIOD, the number of draws that repeat like an iteration; 0: none. */
static unsigned period(void) {
  const char *text = getenv("HARD_PERIOD");
  return text != NULL ? (unsigned)atoi(text) : 0;
}

uint32_t set_random(struct set *set, uint32_t below) {
  if (set->period != 0 && set->draws++ % set->period == 0) set->random = set->seed;
  set->random = set->random * 1664525u + 1013904223u;
  return (set->random >> 8) % below;
}

struct set *set_make(unsigned count, uint32_t seed) {
  struct set *set = calloc(1, sizeof *set);
  uint64_t *words = malloc(BUFFER_BYTES);
  CHECK(set != NULL && words != NULL && count <= SET_MAX);
  set->count = count;
  set->random = set->seed = seed;
  set->period = period();
  for (unsigned b = 0; b < count; b++) {
    for (size_t i = 0; i < WORDS; i++) words[i] = i + b * 1000003u + seed;
    for (size_t i = 0; i < SAMPLES; i++) set->model[b][i] = words[i * STRIDE + i % STRIDE];
    MUST(cu.MemAlloc(&set->buffers[b], BUFFER_BYTES));
    MUST(cu.MemcpyHtoD(set->buffers[b], words, BUFFER_BYTES));
  }
  free(words);
  return set;
}

uint64_t set_apply(struct set *set, unsigned target, unsigned source) {
  uint64_t seed = set_random(set, 1u << 20);
  for (size_t i = 0; i < SAMPLES; i++)
    set->model[target][i] =
        set->model[target][i] * 6364136223846793005u + set->model[source][i] + seed;
  return seed;
}

CUresult try_launch_mix(const struct api *api, CUfunction mix, CUstream stream,
                        CUdeviceptr target, CUdeviceptr source, uint64_t seed) {
  uint64_t words = WORDS;
  void *params[] = {&target, &source, &words, &seed};
  unsigned grid = 1 + (unsigned)seed % 255; /* differs, as in real programs */
  return api->LaunchKernel(mix, grid, 1, 1, 256, 1, 1, 0, stream, params, NULL);
}

void launch_mix(const struct api *api, CUfunction mix, CUstream stream, CUdeviceptr target,
                CUdeviceptr source, uint64_t seed) {
  MUST(try_launch_mix(api, mix, stream, target, source, seed));
}

void set_step(struct set *set, const struct api *api, CUfunction mix, CUstream stream) {
  unsigned target = set_random(set, set->count), source = set_random(set, set->count);
  uint64_t seed = set_apply(set, target, source);
  launch_mix(api, mix, stream, set->buffers[target], set->buffers[source], seed);
}

void set_check_values(struct set *set) {
  uint64_t *words = malloc(BUFFER_BYTES);
  CHECK(words != NULL);
  for (unsigned b = 0; b < set->count; b++) {
    MUST(cu.MemcpyDtoH(words, set->buffers[b], BUFFER_BYTES));
    for (size_t i = 0; i < SAMPLES; i++)
      if (words[i * STRIDE + i % STRIDE] != set->model[b][i])
        FAIL("buffer %u, word %zu is wrong", b, i * STRIDE + i % STRIDE);
  }
  free(words);
}

void set_free(struct set *set) {
  for (unsigned b = 0; b < set->count; b++) MUST(cu.MemFree(set->buffers[b]));
  free(set);
}

void set_check(struct set *set) {
  set_check_values(set);
  set_free(set);
}

void in_threads(unsigned count, void *(*body)(void *)) {
  pthread_t threads[64];
  CHECK(count <= 64);
  for (uintptr_t i = 0; i < count; i++)
    CHECK(pthread_create(&threads[i], NULL, body, (void *)i) == 0);
  for (unsigned i = 0; i < count; i++) CHECK(pthread_join(threads[i], NULL) == 0);
}

int run_case(int count, char **words, const struct hard_case *cases, size_t length) {
  for (size_t i = 0; i < length; i++)
    if (count == 2 && strcmp(words[1], cases[i].name) == 0) {
      cases[i].run();
      puts("right");
      return 0;
    }
  FAIL("which case?");
}
