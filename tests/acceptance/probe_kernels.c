/* probe_kernels.c - describes to the virtual GPU what the kernels of scripts/gpu_probe
 * touch and compute.
 *
 *   `cc -O2 -fPIC -shared -o probe_kernels.so probe_kernels.c`;
 *   `PUMP_VIRTUAL_KERNELS=./probe_kernels.so pump-run --virtual PROFILE scripts/gpu_probe`.
 *
 * Without this library a kernel touches everything that its pointers reach, and the
 * probe's questions about faults learn nothing. In compute mode the host functions run
 * instead of the kernels. The probe does not know this file: a real GPU runs the real
 * kernels.
 * lab/driver/code/touch.c defines the rules.
 */
#include <stdint.h>
#include <string.h>

struct pump_touch {
  uint64_t address, length_bytes;
};
#define TOUCH_READ (1ull << 63) /* the kernel only reads this part */
#define TOUCH_WIDE (1ull << 62) /* the kernel reaches blocks all over this part at once */

#define SHAPE const unsigned grid[3], const unsigned block[3]
#define TOUCH(kernel)                                                                      \
  unsigned pump_touch_##kernel(void **params, SHAPE, struct pump_touch *out,               \
                               unsigned most);                                             \
  unsigned pump_touch_##kernel(void **params, SHAPE, struct pump_touch *out, unsigned most)
#define HOST(kernel)                                                                       \
  void pump_host_##kernel(void **params, SHAPE);                                           \
  void pump_host_##kernel(void **params, SHAPE)
#define UNUSED_SHAPE (void)grid, (void)block

static uint64_t wide(const void *parameter) {
  uint64_t value;
  memcpy(&value, parameter, sizeof value);
  return value;
}

static uint32_t *words_at(const void *parameter) {
  return (uint32_t *)wide(parameter);
}

/* Lists one word in each of `count` slots: those in `order`, or the first ones if NULL. */
static unsigned slots(const void *data, uint64_t stride_bytes, const uint32_t *order,
                      uint64_t count, struct pump_touch *out, unsigned most) {
  if (count > most) return most + 1;
  for (uint64_t i = 0; i < count; i++) {
    uint64_t slot = order != NULL ? order[i] : i;
    out[i] = (struct pump_touch){(uint64_t)data + slot * stride_bytes,
                                 sizeof(uint32_t) | TOUCH_WIDE};
  }
  return (unsigned)count;
}

/* probe_fill(data, words, value) */
TOUCH(probe_fill) {
  UNUSED_SHAPE;
  if (most >= 1) out[0] = (struct pump_touch){wide(params[0]), wide(params[1]) * 4};
  return 1;
}
HOST(probe_fill) {
  UNUSED_SHAPE;
  uint32_t *data = words_at(params[0]), value;
  memcpy(&value, params[2], sizeof value);
  for (uint64_t i = 0, words = wide(params[1]); i < words; i++) data[i] = value;
}

/* probe_sum(data, quads, sink). The write to the sink is too small to model a fault. */
TOUCH(probe_sum) {
  UNUSED_SHAPE;
  if (most >= 1)
    out[0] = (struct pump_touch){wide(params[0]), wide(params[1]) * 16 | TOUCH_READ};
  return 1;
}
HOST(probe_sum) {
  UNUSED_SHAPE;
  (void)params;
}

/* probe_copy(to, from, quads) */
TOUCH(probe_copy) {
  UNUSED_SHAPE;
  uint64_t length_bytes = wide(params[2]) * 16;
  for (unsigned i = 0; i < 2 && i < most; i++)
    out[i] = (struct pump_touch){wide(params[i]), length_bytes};
  return 2;
}
HOST(probe_copy) {
  UNUSED_SHAPE;
  memmove(words_at(params[0]), words_at(params[1]), wide(params[2]) * 16);
}

/* probe_touch(data, stride_words, order, count) */
TOUCH(probe_touch) {
  UNUSED_SHAPE;
  return slots(words_at(params[0]), wide(params[1]) * 4, words_at(params[2]),
               wide(params[3]), out, most);
}
HOST(probe_touch) {
  UNUSED_SHAPE;
  uint32_t *data = words_at(params[0]);
  const uint32_t *order = words_at(params[2]);
  for (uint64_t i = 0, count = wide(params[3]); i < count; i++)
    data[(order != NULL ? order[i] : i) * wide(params[1])] += 1;
}

/* probe_chain(data, stride_words, count, sink). One thread touches the slots in
 * order; this list has no order, so all faults happen at once. */
TOUCH(probe_chain) {
  UNUSED_SHAPE;
  return slots(words_at(params[0]), wide(params[1]) * 4, NULL, wide(params[2]), out, most);
}
HOST(probe_chain) {
  UNUSED_SHAPE;
  (void)params;
}

/* The kernels below touch no memory. */
TOUCH(probe_struct) {
  UNUSED_SHAPE;
  (void)params, (void)out, (void)most;
  return 0;
}
HOST(probe_struct) {
  UNUSED_SHAPE;
  (void)params;
}
HOST(probe_empty) {
  UNUSED_SHAPE;
  (void)params;
}
HOST(probe_spin) {
  UNUSED_SHAPE;
  (void)params;
}
