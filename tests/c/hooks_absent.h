/* hooks_absent.h - stubs for programs that link the shim's executors without its hooks.
 *
 * Include it in one file of such a program. It republishes and records nothing. There is
 * no pool and no plain or mapped memory, and memory of the first device is converted.
 */
#ifndef PUMP_TESTS_HOOKS_ABSENT_H
#define PUMP_TESTS_HOOKS_ABSENT_H

#include "harness_timed.h"
#include "shim/base/upcalls.h"
#include "shim/execute/execute.h"
#include "shim/pool/convert.h"

void pump_range_republish(void) {}
void pump_metadata_void(void) {}
void pump_event_progress(uint32_t stream_index, uint64_t seq, uint64_t time_ns,
                         uint64_t before_ns) {
  (void)stream_index, (void)seq, (void)time_ns, (void)before_ns;
}
static bool nothing_is_dead(CUcontext context, uint64_t now_ns) {
  (void)context, (void)now_ns;
  return false;
}
static void leave(CUcontext context) {
  (void)context;
}
struct harness_timed harness_timed;
void pump_event_timed(uint32_t stream_index, uint64_t seq, uint64_t elapsed_ns) {
  PUMP_STORE(&harness_timed.seq, seq);
  PUMP_STORE(&harness_timed.elapsed_ns, elapsed_ns);
  PUMP_STORE(&harness_timed.stream_index, stream_index);
  __atomic_fetch_add(&harness_timed.count, 1, __ATOMIC_RELEASE);
}
const struct pump_upcalls pump_upcalls = {
    .line_kept = pump_executors_wake_all,
    .executed = pump_event_progress,
    .operations_seen = pump_executors_start,
    .schedule_wake = pump_schedule_wake,
    .operation_issued = pump_schedule_compare,
    .discard_is_due = nothing_is_dead,
    .finish_discards = leave,
};

bool pump_device_prepare(CUdevice device) {
  return device == 0;
}
bool pump_device_converts(uint32_t device) {
  return device == 0;
}
uint64_t pump_plain_peak_bytes(void) {
  return 0;
}
bool pump_plain_refused(void) {
  return false;
}
bool pump_event_waited(void) {
  return false;
}
uint64_t pump_physical_peak_bytes(void) {
  return 0;
}

#endif
