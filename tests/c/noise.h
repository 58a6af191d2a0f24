/* noise.h - numbers that look random and are the same for the same seed (xorshift64). */
#ifndef PUMP_TESTS_NOISE_H
#define PUMP_TESTS_NOISE_H

#include <stdint.h>

/* The state that a seed begins with: not 0, and far from that of its neighbours. */
static inline uint64_t noise_begin(uint64_t seed) {
  return (seed * 0x9e3779b97f4a7c15u) | 1;
}

/* The next of a sequence. `state`: any but 0, which would stay so. */
static inline uint64_t noise_next(uint64_t *state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

/* Below `bound`, which is not 0; from the upper bits, which are the better ones. */
static inline uint32_t noise_below(uint64_t *state, uint32_t bound) {
  return (uint32_t)(noise_next(state) >> 33) % bound;
}

#endif
