/* mix_kernels.c - host function of job.py's kernel, for compute mode. */
#include <stdint.h>

void pump_host_mix(void **params, const unsigned grid[3], const unsigned block[3]);

/* a[i] = a[i] * K + b[i] + seed */
void pump_host_mix(void **params, const unsigned grid[3], const unsigned block[3]) {
  (void)grid;
  (void)block;
  uint64_t *a = *(uint64_t **)params[0];
  const uint64_t *b = *(const uint64_t **)params[1];
  uint64_t n = *(uint64_t *)params[2], seed = *(uint64_t *)params[3];
  for (uint64_t i = 0; i < n; i++) a[i] = a[i] * 6364136223846793005u + b[i] + seed;
}
