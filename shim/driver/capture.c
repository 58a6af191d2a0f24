/* capture.c - tracks whether a stream of the program is being captured: pump must not
 * touch such a stream. The hooks of captures count their begins and ends here.
 */
#include "driver.h"

#define CAPTURE_UNJOINED 904 /* CUDA_ERROR_STREAM_CAPTURE_UNJOINED */

/* Captures into a list of graphics commands (CIG). Process-wide; the hooks of begin and
 * end write it, relaxed. Kept over fork: the driver does not start in a forked child. */
static uint32_t cig_captures;

uint32_t pump_captures;

/* Queries the driver only during a capture. An error (a legacy stream during a capture)
 * counts as capturing. Documentation leaves open whether cuStreamIsCapturing knows a CIG
 * stream and the streams that joined it. So during a CIG capture every stream counts as
 * capturing. */
bool pump_capturing(CUstream stream) {
  if (PUMP_LIKELY(__atomic_load_n(&pump_captures, __ATOMIC_ACQUIRE) == 0)) return false;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return PUMP_LOAD(&cig_captures) != 0 || !PUMP_HAS(cuStreamIsCapturing) ||
         pump_real.cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS ||
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* Decrements, but never below zero: a capture may have begun while the shim was inert. */
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
