/* nvml_memory.c - memory of the virtual GPU, and the processes that use it. */
#include <stddef.h>
#include <string.h>

#include "nvml.h"

#define WHOLE_GPU 0xffffffffu /* not a MIG instance */

NVML(nvmlDeviceGetMemoryInfo, nvmlDevice_t device, nvmlMemory_t *memory) {
  struct pump_card card;
  nvmlReturn_t result = nvml_ask(device, memory, &card);
  if (result != NVML_SUCCESS) return result;
  *memory =
      (nvmlMemory_t){card.total_bytes, card.free_bytes, card.total_bytes - card.free_bytes};
  return NVML_SUCCESS;
}

/* The model reserves no memory for a driver. */
NVML(nvmlDeviceGetMemoryInfo_v2, nvmlDevice_t device, nvmlMemory_v2_t *memory) {
  struct pump_card card;
  nvmlReturn_t result = nvml_ask(device, memory, &card);
  if (result != NVML_SUCCESS) return result;
  if (memory->version != NVML_MEMORY_V2) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  *memory = (nvmlMemory_v2_t){.version = memory->version,
                              .total = card.total_bytes,
                              .free = card.free_bytes,
                              .used = card.total_bytes - card.free_bytes};
  return NVML_SUCCESS;
}

/* Lists the processes. If `rows` is NULL or short, sets *count to the needed number. */
static nvmlReturn_t list(nvmlDevice_t device, unsigned *count, void *rows,
                         size_t row_bytes) {
  struct pump_card card;
  nvmlReturn_t result = nvml_ask(device, count, &card);
  if (result != NVML_SUCCESS) return result;
  unsigned room = rows == NULL ? 0 : *count;
  *count = card.process_count;
  if (room < card.process_count) return NVML_ERROR_INSUFFICIENT_SIZE;
  for (unsigned i = 0; i < card.process_count; i++) {
    nvmlProcessInfo_t row = {(unsigned)card.processes[i].pid, card.processes[i].bytes,
                             WHOLE_GPU, WHOLE_GPU};
    memcpy((char *)rows + i * row_bytes, &row, row_bytes); /* the old row is a prefix */
  }
  return NVML_SUCCESS;
}
_Static_assert(offsetof(nvmlProcessInfo_t, gpuInstanceId) == sizeof(nvmlProcessInfo_v1_t),
               "the old row is the beginning of the new one");

NVML(nvmlDeviceGetComputeRunningProcesses, nvmlDevice_t device, unsigned *count,
     nvmlProcessInfo_v1_t *rows) {
  return list(device, count, rows, sizeof *rows);
}

NVML(nvmlDeviceGetComputeRunningProcesses_v2, nvmlDevice_t device, unsigned *count,
     nvmlProcessInfo_t *rows) {
  return list(device, count, rows, sizeof *rows);
}

NVML(nvmlDeviceGetComputeRunningProcesses_v3, nvmlDevice_t device, unsigned *count,
     nvmlProcessInfo_t *rows) {
  return list(device, count, rows, sizeof *rows);
}
