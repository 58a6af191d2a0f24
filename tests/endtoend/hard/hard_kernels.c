/* hard_kernels.c - host kernels of hard_life.c and hard_pool.c, for compute mode. */
#include <stdint.h>

void pump_host_wide(void **params, const unsigned grid[3], const unsigned block[3]);
void pump_host_slim(void **params, const unsigned grid[3], const unsigned block[3]);
void pump_host_stamp(void **params, const unsigned grid[3], const unsigned block[3]);
void pump_host_verify(void **params, const unsigned grid[3], const unsigned block[3]);

static void add(uint64_t *words, uint64_t count, uint64_t number) {
  for (uint64_t i = 0; i < count; i++) words[i] += number;
}

/* wide(junk x 6, words, count, number) */
void pump_host_wide(void **params, const unsigned grid[3], const unsigned block[3]) {
  (void)grid, (void)block;
  add(*(uint64_t **)params[6], *(uint64_t *)params[7], *(uint64_t *)params[8]);
}

/* slim(words): adds 1 to the first word of every 4 KiB of 4 MiB */
void pump_host_slim(void **params, const unsigned grid[3], const unsigned block[3]) {
  (void)grid, (void)block;
  for (uint64_t i = 0; i < 1024; i++) add(*(uint64_t **)params[0] + i * 512, 1, 1);
}

#define EACH 64 /* distance of the checked words */

/* stamp(words, count, number): writes the owner's number */
void pump_host_stamp(void **params, const unsigned grid[3], const unsigned block[3]) {
  (void)grid, (void)block;
  uint64_t *words = *(uint64_t **)params[0], count = *(uint64_t *)params[1];
  for (uint64_t i = 0; i < count; i += EACH) words[i] = *(uint64_t *)params[2] + i;
}

/* verify(words, count, number, wrong): counts words that lost the owner's number */
void pump_host_verify(void **params, const unsigned grid[3], const unsigned block[3]) {
  (void)grid, (void)block;
  uint64_t *words = *(uint64_t **)params[0], count = *(uint64_t *)params[1], wrong = 0;
  for (uint64_t i = 0; i < count; i += EACH)
    wrong += words[i] != *(uint64_t *)params[2] + i;
  if (wrong != 0) __atomic_fetch_add(*(uint64_t **)params[3], wrong, __ATOMIC_RELAXED);
}
