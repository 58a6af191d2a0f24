/* pages.c - tests the libraries of a wheel on a machine with another CPU architecture. It
 * allocates more memory than the virtual GPU has, and checks that it reads back its own
 * data. scripts/release runs it under qemu with libpump.so preloaded.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef uint64_t address;
int cuInit(unsigned flags);
int cuDeviceGet(int *device, int ordinal);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxSetCurrent(void *context);
int cuMemAlloc_v2(address *memory, size_t bytes);
int cuMemsetD32_v2(address memory, unsigned value, size_t count);
int cuMemcpyDtoH_v2(void *to, address from, size_t bytes);
int cuMemFree_v2(address memory);

#define CALL(call)                                                                         \
  do {                                                                                     \
    int result_ = call;                                                                    \
    if (result_ != 0) {                                                                    \
      fprintf(stderr, "%s: CUDA error %d\n", #call, result_);                              \
      exit(1);                                                                             \
    }                                                                                      \
  } while (0)

enum { PIECES = 24 };
static const size_t piece_bytes = (size_t)8 << 20;

int main(void) {
  void *context;
  address pieces[PIECES];
  int device;
  CALL(cuInit(0));
  CALL(cuDeviceGet(&device, 0));
  CALL(cuDevicePrimaryCtxRetain(&context, device));
  CALL(cuCtxSetCurrent(context));
  for (unsigned i = 0; i < PIECES; i++) {
    CALL(cuMemAlloc_v2(&pieces[i], piece_bytes));
    CALL(cuMemsetD32_v2(pieces[i], 0xc0ffee00u + i, piece_bytes / 4));
  }
  uint32_t *seen = malloc(piece_bytes);
  for (unsigned i = 0; i < PIECES && seen != NULL; i++) {
    CALL(cuMemcpyDtoH_v2(seen, pieces[i], piece_bytes));
    for (size_t word = 0; word < piece_bytes / 4; word++)
      if (seen[word] != 0xc0ffee00u + i) {
        fprintf(stderr, "piece %u, word %zu: %x\n", i, word, seen[word]);
        return 1;
      }
    CALL(cuMemFree_v2(pieces[i]));
  }
  free(seen);
  printf("%zu MiB written and read\n", PIECES * (piece_bytes >> 20));
  return seen == NULL;
}
