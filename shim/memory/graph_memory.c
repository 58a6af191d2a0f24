/* graph_memory.c - memory that belongs to graphs: their allocation nodes get it
 * from the driver, it is device memory, and nothing can page it.
 *
 * How much it is the driver alone knows: allocations of a graph that never live together
 * share memory, it is taken when a graph is first launched, and kept for other graphs when
 * one is destroyed. So pump queries the driver behind the first launch of each graph that
 * allocates, where one is destroyed and where the program has what is idle given back,
 * after which each graph takes its memory anew; the answer counts against the budget as
 * other device memory does.
 */
#include <errno.h>
#include <string.h>

#include "memory.h"

uint32_t pump_graph_memory_era = 1;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t counted_bytes[PUMP_MAX_DEVICES];

/* Under the lock: queries the driver for the device's figures, and counts them. */
static void count(uint32_t device) {
  uint64_t bytes = 0;
  if (!PUMP_HAS(cuDeviceGetGraphMemAttribute) ||
      pump_real.cuDeviceGetGraphMemAttribute(
          (CUdevice)device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &bytes) != CUDA_SUCCESS)
    return;
  int64_t change = (int64_t)(bytes - counted_bytes[device]);
  if (change == 0) return;
  counted_bytes[device] = bytes;
  pthread_mutex_lock(&pump_range_lock);
  pump_device_account(device, 0, change);
  pthread_mutex_unlock(&pump_range_lock);
}

void pump_graph_memory_count(CUdevice device) {
  if (device < 0 || device >= PUMP_MAX_DEVICES) return;
  int saved = errno;
  struct pump_driver_scope scope = pump_driver_scope_open();
  pthread_mutex_lock(&lock);
  count((uint32_t)device);
  pthread_mutex_unlock(&lock);
  pump_driver_scope_close(scope);
  errno = saved;
}

void pump_graph_memory_look(void) {
  int saved = errno;
  pump_graph_memory_count(pump_current_device(NULL));
  errno = saved;
}

void pump_graph_memory_reset(void) {
  pthread_mutex_init(&lock, NULL);
  pump_graph_memory_era = 1;
  memset(counted_bytes, 0, sizeof counted_bytes);
}
