/* capture.c - whether a stream of the program is being captured: then nothing of ours may
 * touch it. The hooks of captures count begins and ends here.
 */
#include "driver.h"

#define CAPTURE_UNJOINED 904 /* CUDA_ERROR_STREAM_CAPTURE_UNJOINED */

/* Captures into a list of graphics commands (CIG). Lifetime: the process; written by the
 * hooks of its begin and end, relaxed; a forked child keeps the driver from starting. */
static uint32_t cig_captures;

uint32_t pump_captures;

/* Asked only while something is being captured. An error answer (a legacy stream beside a
 * capture) counts as capturing. No documentation says whether cuStreamIsCapturing knows a
 * CIG stream, nor which streams have joined it: while there is one, every stream counts as
 * capturing. */
bool pump_capturing(CUstream stream) {
  if (PUMP_LIKELY(__atomic_load_n(&pump_captures, __ATOMIC_ACQUIRE) == 0)) return false;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return PUMP_LOAD(&cig_captures) != 0 || !PUMP_HAS(cuStreamIsCapturing) ||
         pump_real.cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS ||
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* Never below zero: a capture may have begun while the shim was inert. */
static void count_down(uint32_t *counter) {
  uint32_t count = PUMP_LOAD(counter);
  while (count != 0 && !__atomic_compare_exchange_n(counter, &count, count - 1, true,
                                                    __ATOMIC_RELAXED, __ATOMIC_RELAXED));
}

void pump_capture_entered(void) {
  PUMP_ADD(&pump_captures, 1);
}

void pump_capture_left(void) {
  count_down(&pump_captures);
}

void pump_capture_ended(CUresult answer) {
  if (answer == CUDA_SUCCESS || answer == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED ||
      answer == CAPTURE_UNJOINED)
    pump_capture_left();
}

void pump_capture_entered_cig(void) {
  PUMP_ADD(&cig_captures, 1);
  pump_capture_entered();
}

void pump_capture_left_cig(void) {
  count_down(&cig_captures);
  pump_capture_left();
}

void pump_captures_fork_child(void) {
  pump_captures = 0;
}
