/* random.h - seeded pseudorandom numbers, for the engine and the simulator. */
#ifndef GPU_RANDOM_H
#define GPU_RANDOM_H

#include <stdint.h>

/* Returns the next number in [0, 1) by Steele's splitmix64; `*state` begins as the seed. */
static inline double gpu_random(uint64_t *state) {
  uint64_t mixed = *state += 0x9e3779b97f4a7c15u;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
  return (double)((mixed ^ (mixed >> 31)) >> 11) / 9007199254740992.0;
}

#endif
