/* graph_memory.c - memory that belongs to graphs. Their allocation nodes get device
 * memory from the driver, which nothing can page.
 *
 * Only the driver knows how much it is: allocations of a graph that never live at the
 * same time share memory. A graph takes its memory at its first launch; when it is
 * destroyed, the driver keeps the memory for other graphs. So pump queries the driver
 * after the first launch of each graph that allocates, and when one is destroyed. It also
 * does so when the program trims idle graph memory, after which each graph takes its
 * memory again. The answer counts against the budget like other device memory.
 */
#include <errno.h>
#include <string.h>

#include "memory.h"

uint32_t pump_graph_memory_era = 1;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t counted_bytes[PUMP_MAX_DEVICES];

/* Queries the driver for the device's graph memory, and counts it. Requires the lock. */
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
  pump_device_add_bytes(device, 0, change);
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

void pump_graph_memory_refresh(void) {
  int saved = errno;
  pump_graph_memory_count(pump_current_device(NULL));
  errno = saved;
}

void pump_graph_memory_reset(void) {
  pthread_mutex_init(&lock, NULL);
  pump_graph_memory_era = 1;
  memset(counted_bytes, 0, sizeof counted_bytes);
}
