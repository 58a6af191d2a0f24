/* sanitized.c - a program that test_sanitizers.py builds with AddressSanitizer.
 *
 * Usage: sanitized [spoil]. Copies a byte to the virtual GPU and back; `spoil` reads
 * freed memory.
 */
#include <stdio.h>
#include <stdlib.h>

typedef unsigned long long address_t;
int cuInit(unsigned int flags);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxSetCurrent(void *context);
int cuMemAlloc_v2(address_t *address, size_t bytes);
int cuMemcpyHtoD_v2(address_t to, const void *from, size_t bytes);
int cuMemcpyDtoH_v2(void *to, address_t from, size_t bytes);

#define BYTES (4u << 20)

int main(int count, char **words) {
  void *context;
  address_t memory;
  (void)words;
  char *bytes = malloc(BYTES);
  bytes[BYTES - 1] = 42;
  int failed = cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) ||
               cuCtxSetCurrent(context) || cuMemAlloc_v2(&memory, BYTES) ||
               cuMemcpyHtoD_v2(memory, bytes, BYTES);
  bytes[BYTES - 1] = 0;
  if (!failed) failed = cuMemcpyDtoH_v2(bytes, memory, BYTES);
  printf("failed %d byte %d\n", failed, bytes[BYTES - 1]);
  fflush(stdout);
  free(bytes);
  return count > 1 ? bytes[BYTES - 1] : 0;
}
