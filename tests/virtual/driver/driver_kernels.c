/* driver_kernels.c - the kernels of driver_programs.py as host functions. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef const unsigned dim3[3];
void pump_host_add(void **p, dim3 grid, dim3 block);
void pump_host_scale(void **p, dim3 grid, dim3 block);
void pump_host_through_struct(void **p, dim3 grid, dim3 block);

void pump_host_add(void **p, dim3 grid, dim3 block) {
  const float *a = *(const float **)p[0], *b = *(const float **)p[1];
  float *c = *(float **)p[2];
  int n = *(const int *)p[3];
  for (unsigned i = 0; i < grid[0] * block[0] && (int)i < n; i++) c[i] = a[i] + b[i];
}

void pump_host_scale(void **p, dim3 grid, dim3 block) {
  float *a = *(float **)p[0], factor = *(const float *)p[1];
  int n = *(const int *)p[2];
  for (unsigned i = 0; i < grid[0] * block[0] && (int)i < n; i++) a[i] *= factor;
}

/* struct Two { float *out; const float *in; int n; } by value, then a char */
void pump_host_through_struct(void **p, dim3 grid, dim3 block) {
  struct {
    float *out;
    const float *in;
    int n;
  } two;
  (void)grid, (void)block;
  memcpy(&two, p[0], sizeof two);
  char bias = *(const char *)p[1];
  for (int i = 0; i < two.n; i++) two.out[i] = two.in[i] + (float)bias;
}

void pump_host_touch(void **p, dim3 grid, dim3 block);
void pump_host_touch(void **p, dim3 grid, dim3 block) {
  (void)p, (void)grid, (void)block;
}

/* Copies the texels of a texture object: an array of one row or linear memory, with 40
 * texels of two floats. */
void pump_host_fetch(void **p, dim3 grid, dim3 block);
void pump_host_fetch(void **p, dim3 grid, dim3 block) {
  struct {
    int type, padding;
    const float *texels; /* an array's handle, or an address */
    char rest[256];
  } resource;
  int (*describe)(void *, unsigned long long);
  void *found = dlsym(RTLD_DEFAULT, "cuTexObjectGetResourceDesc");
  if (found == NULL)
    found = dlsym(dlopen("libcuda.so.1", RTLD_LAZY), "cuTexObjectGetResourceDesc");
  (void)grid, (void)block;
  memcpy(&describe, &found, sizeof describe);
  if (describe(&resource, *(unsigned long long *)p[0]) == 0)
    memcpy(*(float **)p[1], resource.texels, 80 * sizeof(float));
}

struct pump_touch {
  uint64_t address, length_bytes;
};
unsigned pump_touch_scale(void **p, dim3 grid, dim3 block, struct pump_touch *out,
                          unsigned most);

/* Reports the touches in the test's environment: "offset:length,..." bytes from the
 * pointer. */
unsigned pump_touch_scale(void **p, dim3 grid, dim3 block, struct pump_touch *out,
                          unsigned most) {
  const char *text = getenv("TEST_TOUCHES");
  uint64_t base = (uint64_t)*(float **)p[0];
  unsigned count = 0;
  (void)grid, (void)block;
  if (text == NULL) { /* everything, as without this function */
    out[0] = (struct pump_touch){base, 1ull << 40};
    return 1;
  }
  if (*text == '*') return most + 1;
  for (char *end; *text; text = *end ? end + 1 : end) {
    uint64_t offset = strtoull(text, &end, 10), length = strtoull(end + 1, &end, 10);
    out[count++] = (struct pump_touch){base + offset, length};
  }
  return count;
}
