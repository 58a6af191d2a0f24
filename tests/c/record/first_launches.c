/* first_launches.c - launches that make the driver load code (record/code_loading.c).
 *
 * Built like operations.c. Usage: first_launches SCENARIO
 */
#include "record_harness.h"

#define OTHER ((CUfunction)0x77780000)
#define LAZY 2 /* cuda.h: CU_MODULE_LAZY_LOADING */

static int mode = LAZY, loaded;
static uint64_t pending_at_call;

static CUresult loading_mode(int *out) {
  CHECK(pump_reentry_depth != 0);
  *out = mode;
  return CUDA_SUCCESS;
}
static CUresult is_loaded(int *out, CUfunction function) {
  CHECK(pump_reentry_depth != 0 && function != NULL);
  *out = loaded;
  return CUDA_SUCCESS;
}
static CUresult real_launch(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                            unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                            unsigned int block_z, unsigned int shared, CUstream stream,
                            void **params, void **extra) {
  (void)function, (void)grid_x, (void)grid_y, (void)grid_z, (void)block_x, (void)block_y;
  (void)block_z, (void)shared, (void)stream, (void)params, (void)extra;
  pending_at_call = told.pending;
  return CUDA_SUCCESS;
}

/* Launches the function behind three operations; returns how many had not executed when
 * the driver was called. */
static uint64_t left_by(CUfunction function) {
  pump_real.cuModuleGetLoadingMode = loading_mode;
  pump_real.cuFuncIsLoaded = is_loaded;
  pump_real.cuLaunchKernel = real_launch;
  told.pending = 3;
  CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, (CUstream)0x42, NULL, NULL) ==
        CUDA_SUCCESS);
  CHECK(next_event() && pump_reentry_depth == 0 && !pump_code_is_loading());
  return pending_at_call;
}

static void a_first_launch_waits_until_earlier_operations_have_executed(void) {
  CHECK(left_by(KERNEL) == 0 && told.marks == 1);
  CHECK(left_by(KERNEL) == 3 && told.marks == 1);
  CHECK(left_by(OTHER) == 0 && told.marks == 2);
}

static void an_image_is_loaded_after_earlier_operations(void) {
  left_by(KERNEL);
  told.pending = 3;
  pump_code_wait_before_load();
  CHECK(told.pending == 0);
}

static void after_an_unload_a_handle_may_be_another_function(void) {
  left_by(KERNEL);
  pump_params_forget();
  CHECK(left_by(KERNEL) == 0 && told.marks == 2);
}

static void no_launch_waits_where_code_is_loaded_at_once(void) {
  mode = 1;
  CHECK(left_by(KERNEL) == 3 && told.marks == 0);
  pump_code_wait_before_load();
  CHECK(told.pending == 3);
}

static void no_launch_waits_for_a_function_that_is_loaded(void) {
  loaded = 1;
  CHECK(left_by(KERNEL) == 3 && told.marks == 0);
  pump_function_note(KERNEL, true); /* a kernel's handle cannot be asked */
  pump_params_forget();
  CHECK(left_by(KERNEL) == 0);
}

/* The kernels may wait for the one that is launched. */
static void where_the_gpu_stands_still_the_launch_goes_on_and_later_ones_do_not_wait(void) {
  told.stands_still = true;
  CHECK(left_by(KERNEL) == 3 && told.later_ns > 1000000000 && told.later_ns < 3000000000);
  uint64_t before_ns = told.later_ns;
  CHECK(left_by(OTHER) == 3 && told.later_ns == before_ns && told.marks == 1);
  pump_code_wait_before_load();
  CHECK(told.later_ns == before_ns);
}

/* The driver would wait for the gate, and the gate for memory. */
static void a_function_s_first_launch_has_no_gate(void) {
  pump_gates_devices = 1;
  left_by(KERNEL);
  CHECK(told.gates == 0);
  left_by(KERNEL);
  CHECK(told.gates == 1);
  CHECK(pump_first_launch(OTHER, pump_at((CUstream)0x42, false))); /* by another thread */
  cuLaunchKernel(KERNEL, 1, 1, 1, 1, 1, 1, 0, (CUstream)0x42, NULL, NULL);
  CHECK(told.gates == 1);
  pump_first_launched();
  left_by(KERNEL);
  CHECK(told.gates == 2);
}

int main(int argc, char **argv) {
  const struct scenario scenarios[] = {
      SCENARIO(a_first_launch_waits_until_earlier_operations_have_executed),
      SCENARIO(an_image_is_loaded_after_earlier_operations),
      SCENARIO(after_an_unload_a_handle_may_be_another_function),
      SCENARIO(no_launch_waits_where_code_is_loaded_at_once),
      SCENARIO(no_launch_waits_for_a_function_that_is_loaded),
      SCENARIO(where_the_gpu_stands_still_the_launch_goes_on_and_later_ones_do_not_wait),
      SCENARIO(a_function_s_first_launch_has_no_gate),
  };
  return run_scenario(scenarios, sizeof scenarios / sizeof scenarios[0], argc, argv);
}
