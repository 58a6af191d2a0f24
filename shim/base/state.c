/* state.c - state that every room of the shim reads: whether pump works in this process,
 * how many devices are active, where the region is, and the time.
 */
#include "base.h"
#include "glibc.h"
#include "pump_clock.h"

bool pump_off = true;
uint32_t pump_reporting;
uint64_t pump_calls_seen;
bool pump_recording;
struct pump_shm *pump_shm;
__thread uint32_t pump_reentry_depth __attribute__((tls_model("initial-exec")));

static pump_clock_function clock_of_kernel = clock_gettime;

__attribute__((constructor)) static void find_clock(void) {
  if (pump_has_glibc()) clock_of_kernel = pump_clock_find();
}

uint64_t pump_now_ns(void) {
  return pump_clock_ns(clock_of_kernel);
}

void pump_give_up(const char *reason) {
  static uint32_t said;
  __atomic_store_n(&pump_off, true, __ATOMIC_RELEASE);
  __atomic_store_n(&pump_reporting, 0, __ATOMIC_RELEASE);
  pump_log_once(
      &said, PUMP_LOG_ERROR,
      "%s: pump is off for the rest of this process, and the program keeps running",
      reason);
}

void pump_state_fork_child(void) {
  pump_off = true;
  pump_reporting = 0;
  pump_calls_seen = 0;
  pump_reentry_depth = 0;
  pump_shm = NULL; /* not mapped in the child */
}
