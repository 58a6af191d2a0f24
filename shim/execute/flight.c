/* flight.c - bounds the bytes that a device's executors have in the driver.
 *
 * A thread reserves bytes before it validates and submits a slice, and releases them
 * after the slice has ended. A slice larger than the bound may run if it is the only one.
 */
#include "executors.h"

uint32_t pump_flight_bound(uint32_t device, uint32_t direction) {
  uint64_t half = PUMP_LOAD(&pump_shm->devices[device].budget_bytes) / 2;
  uint64_t most = pump_direction_bounds(direction)->flight_bytes;
  return (uint32_t)(half < most ? half : most);
}

static bool fits(uint64_t in_flight, uint64_t bytes, uint32_t bound) {
  return in_flight == 0 || (in_flight < bound && bytes <= bound - in_flight);
}

bool pump_flight_fits(uint32_t device, uint32_t direction, uint64_t bytes,
                      uint32_t most_bytes) {
  struct pump_direction *state = &pump_executors_of(device)->directions[direction];
  uint32_t bound = pump_flight_bound(device, direction);
  if (bound > most_bytes) bound = most_bytes;
  bool fit = fits(PUMP_LOAD(&state->flight_bytes), bytes, bound);
  if (pump_recording && !fit) PUMP_STORE(&state->lacked_ns, pump_now_ns());
  return fit;
}

bool pump_flight_reserve(struct pump_direction *direction, uint32_t bytes, uint32_t bound) {
  uint32_t in_flight = PUMP_LOAD(&direction->flight_bytes);
  do {
    if (!fits(in_flight, bytes, bound)) return false;
  } while (!__atomic_compare_exchange_n(&direction->flight_bytes, &in_flight,
                                        in_flight + bytes, true, __ATOMIC_SEQ_CST,
                                        __ATOMIC_RELAXED));
  return true;
}

void pump_flight_release(struct pump_direction *direction, uint32_t bytes) {
  PUMP_ASSERT(bytes <= __atomic_load_n(&direction->flight_bytes, __ATOMIC_SEQ_CST),
              "only reserved bytes are released");
  __atomic_fetch_sub(&direction->flight_bytes, bytes, __ATOMIC_SEQ_CST);
  if (pump_recording) PUMP_STORE(&direction->released_ns, pump_now_ns());
  if (__atomic_load_n(&direction->flight_waiters, __ATOMIC_SEQ_CST) != 0)
    pump_futex_wake(&direction->flight_bytes);
}
