/* driver_card.h - answers for libnvidia-ml.so.1 of the virtual GPU (lab/nvml): the GPU's
 * identity and memory, without a context or cuInit. */
#ifndef PUMP_VIRTUAL_DRIVER_CARD_H
#define PUMP_VIRTUAL_DRIVER_CARD_H

#include <stdint.h>

#define PUMP_CARD_PROCESSES 16

struct pump_card {
  char name[128], uuid[64];
  uint32_t bus,
      pci_device; /* other parts of the PCI address are 0; NVIDIA's device number */
  int compute_major, compute_minor, cuda_version;
  uint64_t total_bytes, free_bytes;
  uint32_t process_count; /* processes whose memory the model counts */
  struct pump_card_process {
    int32_t pid;
    uint64_t bytes;
  } processes[PUMP_CARD_PROCESSES];
};

/* Reads the GPU's state: returns 0, or -1 with an error message if PUMP_VIRTUAL_PROFILE
 * names no virtual GPU. A GPU that no process uses has all its memory free. A private GPU
 * is visible only to its own process. */
int pump_card_read(struct pump_card *out);
/* Logs (PUMP_VIRTUAL_LOG) that NVML function `name` is not implemented. */
void pump_card_lacks(const char *name);

#endif
