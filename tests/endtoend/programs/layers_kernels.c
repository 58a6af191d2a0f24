/* layers_kernels.c - host functions of layers_job.py's kernels, for the virtual GPU. */
#include <stdint.h>

#define FACTOR 6364136223846793005u
#define TOUCH_READ (1ull << 63) /* as in lab/driver/code/touch.c */

struct pump_touch {
  uint64_t address, length_bytes;
};
#define SHAPE const unsigned grid[3], const unsigned block[3]
void pump_host_layer(void **params, SHAPE);
void pump_host_update(void **params, SHAPE);
unsigned pump_touch_layer(void **params, SHAPE, struct pump_touch *out, unsigned most);

/* hidden[i % m] = hidden[i % m] * FACTOR + weights[i], for i < n */
void pump_host_layer(void **params, SHAPE) {
  (void)grid, (void)block;
  uint64_t *hidden = *(uint64_t **)params[0];
  const uint64_t *weights = *(const uint64_t **)params[1];
  uint64_t n = *(uint64_t *)params[2], m = *(uint64_t *)params[3];
  for (uint64_t i = 0; i < n; i++) hidden[i % m] = hidden[i % m] * FACTOR + weights[i];
}

unsigned pump_touch_layer(void **params, SHAPE, struct pump_touch *out, unsigned most) {
  (void)grid, (void)block, (void)most;
  out[0] = (struct pump_touch){*(uint64_t *)params[0], *(uint64_t *)params[3] * 8};
  out[1] =
      (struct pump_touch){*(uint64_t *)params[1], *(uint64_t *)params[2] * 8 | TOUCH_READ};
  return 2;
}

/* weights[i] = weights[i] * FACTOR + seed, for i < n */
void pump_host_update(void **params, SHAPE) {
  (void)grid, (void)block;
  uint64_t *weights = *(uint64_t **)params[0];
  uint64_t n = *(uint64_t *)params[1], seed = *(uint64_t *)params[2];
  for (uint64_t i = 0; i < n; i++) weights[i] = weights[i] * FACTOR + seed;
}
