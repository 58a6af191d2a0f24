/* bracket.c - the guard around our own driver calls on an application thread. */
#include "driver.h"

struct pump_bracket pump_bracket_open(void) {
  struct pump_bracket bracket = {false, CU_STREAM_CAPTURE_MODE_RELAXED};
  pump_enter();
  if (PUMP_HAS(cuThreadExchangeStreamCaptureMode))
    bracket.exchanged =
        pump_real.cuThreadExchangeStreamCaptureMode(&bracket.mode) == CUDA_SUCCESS;
  return bracket;
}

void pump_bracket_close(struct pump_bracket bracket) {
  if (bracket.exchanged) pump_real.cuThreadExchangeStreamCaptureMode(&bracket.mode);
  pump_leave();
}
