/* client_next.c - linked to the driver, run under interposer.so and libpump.so. */
#include <stdio.h>
#include <unistd.h>

#include "pump_cuda.h"

extern CUresult cuInit(unsigned int flags);
extern CUresult cuDriverGetVersion(int *version);
extern CUresult cuMemFree_v2(CUdeviceptr address);

int main(void) {
  int init = cuInit(0);
  printf("%d %d %d %d\n", getppid() > 0, init, cuDriverGetVersion(NULL), cuMemFree_v2(0));
  return 0;
}
