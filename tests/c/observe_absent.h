/* observe_absent.h - the observe side for programs that link only the act side of the shim.
 *
 * For one file of such a program. Nothing is republished, nothing recorded; there is no
 * pool, no plain or mapped memory worth a word, and memory of the first device is
 * converted.
 */
#ifndef PUMP_TESTS_OBSERVE_ABSENT_H
#define PUMP_TESTS_OBSERVE_ABSENT_H

#include "shim/execute/act.h"
#include "shim/execute/act_private.h"
#include "shim/pool/pool.h"

void pump_range_republish(void) {}
void pump_tell_again(void) {}
void pump_event_progress(uint32_t stream_index, uint64_t seq, uint64_t time_ns) {
  (void)stream_index, (void)seq, (void)time_ns;
}
bool pump_pool_dead_due(CUcontext context, uint64_t now_ns) {
  (void)context, (void)now_ns;
  return false;
}
void pump_pool_dead_tick(CUcontext context, uint64_t now_ns) {
  (void)context, (void)now_ns;
}
void pump_pool_dead_leave(CUcontext context) {
  (void)context;
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
uint64_t pump_vmm_peak_bytes(void) {
  return 0;
}

#endif
