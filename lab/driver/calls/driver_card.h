/* driver_card.h - what libnvidia-ml.so.1 of the virtual GPU (lab/nvml) asks this
 * driver: the card's identity and its memory, without a context and without cuInit. */
#ifndef PUMP_VIRTUAL_DRIVER_CARD_H
#define PUMP_VIRTUAL_DRIVER_CARD_H

#include <stdint.h>

#define PUMP_CARD_PROCESSES 16

struct pump_card {
  char name[128], uuid[64];
  uint32_t bus,
      pci_device; /* the rest of its place on PCI is 0; device in NVIDIA's numbers */
  int compute_major, compute_minor, cuda_version;
  uint64_t total_bytes, free_bytes;
  uint32_t process_count; /* that the model counts memory of */
  struct pump_card_process {
    int32_t pid;
    uint64_t bytes;
  } processes[PUMP_CARD_PROCESSES];
};

/* 0, or -1 where PUMP_VIRTUAL_PROFILE names no virtual GPU, which was told. A card that no
 * process uses has all its memory free; a process's own is no other process's card. */
int pump_card_read(struct pump_card *out);
/* A line of the log (PUMP_VIRTUAL_LOG): the caller's function is missing. */
void pump_card_lacks(const char *name);

#endif
