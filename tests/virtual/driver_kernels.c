/* driver_kernels.c - the kernels of driver_programs.py as host functions. */
#include <stdint.h>
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
