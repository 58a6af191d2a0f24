/* driver_scope.c - the guard around our own driver calls on an application thread. */
#include "driver.h"

struct pump_driver_scope pump_driver_scope_open(void) {
  struct pump_driver_scope scope = {false, CU_STREAM_CAPTURE_MODE_RELAXED};
  pump_enter();
  if (PUMP_HAS(cuThreadExchangeStreamCaptureMode))
    scope.exchanged =
        pump_real.cuThreadExchangeStreamCaptureMode(&scope.mode) == CUDA_SUCCESS;
  return scope;
}

void pump_driver_scope_close(struct pump_driver_scope scope) {
  if (scope.exchanged) pump_real.cuThreadExchangeStreamCaptureMode(&scope.mode);
  pump_leave();
}
