/* numa.c - keeps executors on the NUMA node of their GPU.
 *
 * UVM allocates a block's host pages on the node of the thread that requests the
 * migration (uvm_va_block_context_get_node: numa_mem_id). This holds for a prefetch to
 * the host and for a prefetch to the GPU that evicts. The pages stay there for the
 * lifetime of the block. So these threads run on the CPU cores of the GPU's node.
 *
 * A location of type HOST_NUMA could name the node as well, but costs memory. The driver
 * then looks for host pages only on that node, allocates a second set for a block that
 * has pages elsewhere, and frees neither (block_populate_pages_cpu). See
 * docs/decisions/0040-nodes.md.
 *
 * PUMP_SYS_ROOT replaces /sys, only for tests.
 */
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "executors.h"
#include "shim/memory/host.h"

enum { PCI_BUS = 33, PCI_DEVICE = 34, PCI_DOMAIN = 50, HOST_NUMA_ID = 134 };

#define TEXT_BYTES 4096

__attribute__((format(printf, 2, 3))) static bool read_sys(char text[TEXT_BYTES],
                                                           const char *format, ...) {
  const char *root = getenv("PUMP_SYS_ROOT");
  char path[1024];
  int used = snprintf(path, sizeof path, "%s/", root != NULL ? root : "/sys");
  if (used < 0 || used >= (int)sizeof path) return false;
  va_list values;
  va_start(values, format);
  int more = vsnprintf(path + used, sizeof path - (size_t)used, format, values);
  va_end(values);
  return more > 0 && more < (int)sizeof path - used &&
         pump_text_read(path, text, TEXT_BYTES) == 0;
}

static int attribute(CUdevice device, CUdevice_attribute which) {
  int value = -1;
  if (!PUMP_HAS(cuDeviceGetAttribute) ||
      pump_real.cuDeviceGetAttribute(&value, which, device) != CUDA_SUCCESS)
    return -1;
  return value;
}

/* Returns the GPU's node, or -1. Falls back to sysfs for drivers before CUDA 12.2. */
static int node_of(CUdevice device) {
  char text[TEXT_BYTES];
  int node = attribute(device, HOST_NUMA_ID);
  if (node >= 0) return node;
  int domain = attribute(device, PCI_DOMAIN), bus = attribute(device, PCI_BUS),
      slot = attribute(device, PCI_DEVICE);
  if (domain < 0 || bus < 0 || slot < 0 ||
      !read_sys(text, "bus/pci/devices/%04x:%02x:%02x.0/numa_node", (unsigned)domain,
                (unsigned)bus, (unsigned)slot))
    return -1;
  return atoi(text);
}

/* Chooses from `all` the CPU cores in a list such as "0-15,32". */
static void choose(cpu_set_t *chosen, const cpu_set_t *all, const char *list) {
  CPU_ZERO(chosen);
  for (const char *at = list; *at >= '0' && *at <= '9';) {
    char *end;
    unsigned long first = strtoul(at, &end, 10), last = first;
    if (*end == '-') last = strtoul(end + 1, &end, 10);
    for (unsigned long i = first; i <= last && i < CPU_SETSIZE; i++)
      if (CPU_ISSET(i, all)) CPU_SET(i, chosen);
    at = *end == ',' ? end + 1 : end;
  }
}

void pump_thread_bind_to_gpu(uint32_t device) {
  cpu_set_t all, near;
  char list[TEXT_BYTES];
  int node = node_of((CUdevice)device);
  if (node < 0 || !read_sys(list, "devices/system/node/node%d/cpulist", node) ||
      sched_getaffinity(0, sizeof all, &all) != 0)
    return;
  choose(&near, &all, list);
  if (CPU_COUNT(&near) != 0 && !CPU_EQUAL(&near, &all))
    sched_setaffinity(0, sizeof near, &near);
}
