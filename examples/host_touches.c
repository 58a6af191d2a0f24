/* host_touches.c - the memory that a kernel touches, for the virtual GPU.
 *
 * By default a kernel touches all memory that its pointers reach. A function in this file
 * lists the parts instead (lab/driver/code/touch.c has the rules). It runs when the
 * kernel is launched and may read device memory.
 */
#include <stdint.h>

/* Marks of a length: the part is only read; the kernel reaches it in no order. */
#define TOUCH_READ (1ull << 63)
#define TOUCH_WIDE (1ull << 62)

struct pump_touch {
  uint64_t address, length_bytes;
};
unsigned pump_touch_gather(void **params, const unsigned grid[3], const unsigned block[3],
                           struct pump_touch *out, unsigned most);
unsigned pump_touch_embedding_bag(void **params, const unsigned grid[3],
                                  const unsigned block[3], struct pump_touch *out,
                                  unsigned most);

/* Lists the rows that the index names, the whole index and the sums. */
unsigned pump_touch_gather(void **params, const unsigned grid[3], const unsigned block[3],
                           struct pump_touch *out, unsigned most) {
  const float *sums = *(float **)params[0], *table = *(float **)params[1];
  const int *index = *(int **)params[2];
  int rows = *(int *)params[3];
  uint64_t row_bytes = (uint64_t)*(int *)params[4] * sizeof *table;
  unsigned count = (unsigned)rows + 2;
  (void)grid, (void)block;
  if (count > most) return count;
  out[0] = (struct pump_touch){(uint64_t)sums, (uint64_t)rows * row_bytes};
  out[1] = (struct pump_touch){(uint64_t)index, (uint64_t)rows * sizeof *index};
  for (int r = 0; r < rows; r++)
    out[r + 2] =
        (struct pump_touch){(uint64_t)table + (uint64_t)index[r] * row_bytes, row_bytes};
  return count;
}

/* Lists the rows that the ids name, all ids and the sums. */
unsigned pump_touch_embedding_bag(void **params, const unsigned grid[3],
                                  const unsigned block[3], struct pump_touch *out,
                                  unsigned most) {
  const float *sums = *(float **)params[0], *table = *(float **)params[1];
  const int *ids = *(int **)params[2];
  uint64_t bags = (uint64_t)*(int *)params[3], reads = bags * (uint64_t)*(int *)params[4];
  uint64_t row_bytes = (uint64_t)*(int *)params[5] * sizeof *table;
  (void)grid, (void)block;
  if (reads + 2 > most) return (unsigned)reads + 2;
  out[0] = (struct pump_touch){(uint64_t)sums, bags * row_bytes};
  out[1] = (struct pump_touch){(uint64_t)ids, reads * sizeof *ids | TOUCH_READ};
  for (uint64_t r = 0; r < reads; r++)
    out[r + 2] = (struct pump_touch){(uint64_t)table + (uint64_t)ids[r] * row_bytes,
                                     row_bytes | TOUCH_READ | TOUCH_WIDE};
  return (unsigned)reads + 2;
}
