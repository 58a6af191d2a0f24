/* noise.h - pseudo-random numbers that depend only on the seed (xorshift64). */
#ifndef PUMP_TESTS_NOISE_H
#define PUMP_TESTS_NOISE_H

#include <stdint.h>

/* Returns a seed's initial state: not 0, and far from the states of neighboring seeds. */
static inline uint64_t noise_begin(uint64_t seed) {
  return (seed * 0x9e3779b97f4a7c15u) | 1;
}

/* Returns the next number of a sequence. `state` must not be 0, which would stay 0. */
static inline uint64_t noise_next(uint64_t *state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

/* Returns a number below `bound` (not 0), from the upper bits, which are more random. */
static inline uint32_t noise_below(uint64_t *state, uint32_t bound) {
  return (uint32_t)(noise_next(state) >> 33) % bound;
}

#endif
