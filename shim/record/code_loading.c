/* code_loading.c - lets pump's threads finish their work before the driver loads code.
 *
 * With lazy loading (the default since CUDA 12.2) the driver loads a function at its first
 * launch. It then holds the context's lock until all work in the context has executed
 * (docs/uvm.md). Meanwhile no thread of pump can prefetch, evict or poll a marker there,
 * so the kernels that the driver waits for get their memory by faults. Pump therefore
 * waits for these kernels itself, before the call, without the lock. The driver then finds
 * the GPU idle.
 *
 * DESIGN. The thread would wait in the driver anyway. If the driver does not load lazily,
 * or has loaded the function, pump does not wait. The program may count on two kernels
 * running at the same time, although CUDA advises against that with lazy loading. So a
 * wait ends if no operation executes for STILL_NS, and is then the last of the process.
 */
#include "record.h"

#define SLEEP_NS 50000u
#define STILL_NS 1000000000u
#define EAGER 1  /* cuda.h: CU_MODULE_EAGER_LOADING */
#define LOADED 1 /* cuda.h: CU_FUNCTION_LOADING_STATE_LOADED */

uint64_t pump_launched[PUMP_LAUNCHED];
static uint32_t loading; /* first launches in progress */
static bool in_vain;     /* a wait has ended without result */

/* Returns whether the driver loads code only when it is needed. */
static bool loads_lazily(void) {
  static uint32_t known; /* the mode + 1; 0: not asked yet. It never changes. */
  uint32_t mode = PUMP_LOAD(&known);
  CUmoduleLoadingMode asked = EAGER;
  if (mode == 0) {
    if (PUMP_HAS(cuModuleGetLoadingMode)) pump_real.cuModuleGetLoadingMode(&asked);
    PUMP_STORE(&known, mode = (uint32_t)asked + 1);
  }
  return mode != EAGER + 1;
}

static bool is_loaded(CUfunction function) {
  CUfunctionLoadingState state = LOADED + 1;
  return !pump_function_is_kernel(function) && PUMP_HAS(cuFuncIsLoaded) &&
         pump_real.cuFuncIsLoaded(&state, function) == CUDA_SUCCESS && state == LOADED;
}

/* Waits until all operations of the context that have a marker have executed. */
static void wait_for_operations(CUcontext context) {
  uint32_t word = 0; /* never changes: a sleep that is not a cancellation point */
  uint64_t seen = 0, seen_ns = 0, pending;
  while ((pending = pump_progress_pending(context)) != 0 && !pump_reports_nothing()) {
    uint64_t now_ns = pump_now_ns();
    if (pending != seen) {
      seen = pending;
      seen_ns = now_ns;
    } else if (now_ns - seen_ns > STILL_NS) {
      PUMP_STORE(&in_vain, true);
      pump_log(PUMP_LOG_INFO, "the GPU made no progress before code was loaded, so pump no "
                              "longer waits for it");
      return;
    }
    pump_futex_sleep(&word, 0, SLEEP_NS);
  }
}

void pump_code_wait_before_load(void) {
  CUcontext context = NULL;
  if (PUMP_LOAD(&in_vain)) return;
  struct pump_driver_scope scope = pump_driver_scope_open();
  if (loads_lazily() && pump_current_device(&context) >= 0) wait_for_operations(context);
  pump_driver_scope_close(scope);
}

bool pump_first_launch(CUfunction function, struct pump_at at) {
  if (pump_reentry_depth != 0) return false;
  PUMP_STORE(pump_launched_bucket(function), (uint64_t)(uintptr_t)function);
  struct pump_driver_scope scope = pump_driver_scope_open();
  CUcontext context = NULL;
  bool loads = !PUMP_LOAD(&in_vain) && loads_lazily() && !is_loaded(function) &&
               pump_current_device(&context) >= 0;
  if (loads) {
    __atomic_fetch_add(&loading, 1, __ATOMIC_SEQ_CST); /* no new gates from now on */
    pump_progress_mark(pump_stream_ref_of(at).stream_index, at.stream);
    wait_for_operations(context);
  }
  pump_driver_scope_close(scope);
  return loads;
}

void pump_first_launched(void) {
  PUMP_ADD(&loading, UINT32_MAX);
}

bool pump_code_is_loading(void) {
  return PUMP_LOAD(&loading) != 0;
}

void pump_launched_forget(void) {
  for (uint32_t i = 0; i < PUMP_LAUNCHED; i++) PUMP_STORE(&pump_launched[i], 0);
}

void pump_code_reset(void) {
  loading = 0;
}
