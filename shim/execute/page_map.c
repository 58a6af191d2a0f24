/* page_map.c - finds which pages of a block are mapped for the CPU.
 *
 * It reads the process's own page map (proc_pid_pagemap(5)), so it causes no fault.
 * Reading the memory itself would migrate it away from a running kernel.
 */
#include <fcntl.h>
#include <unistd.h>

#include "executors.h"

#define PRESENT (1ull << 63)
#define ENTRIES_AT_ONCE 128

struct pump_page_map pump_page_map_open(void) {
  int file = -1;
  /* Not /proc/self: it names the first thread, which may have ended. */
  if (pump_driver_page_map == NULL)
    file = open("/proc/thread-self/pagemap", O_RDONLY | O_CLOEXEC);
  return (struct pump_page_map){.file = file};
}

void pump_page_map_close(struct pump_page_map map) {
  if (map.file >= 0) close(map.file);
}

static bool read_entries(struct pump_page_map map, uint64_t address, uint64_t *entries) {
  if (pump_driver_page_map != NULL) {
    pump_driver_page_map(address, entries, ENTRIES_AT_ONCE);
    return true;
  }
  size_t bytes = ENTRIES_AT_ONCE * sizeof *entries;
  off_t at = (off_t)(address / 4096 * sizeof *entries);
  return map.file >= 0 && pread(map.file, entries, bytes, at) == (ssize_t)bytes;
}

int pump_page_map_count_mapped(struct pump_page_map map, uint64_t address) {
  uint64_t entries[ENTRIES_AT_ONCE];
  int mapped = 0;
  for (uint32_t page = 0; page < PUMP_BLOCK_PAGES; page += ENTRIES_AT_ONCE) {
    if (!read_entries(map, address + page * 4096ull, entries)) return -1;
    for (uint32_t i = 0; i < ENTRIES_AT_ONCE; i++) mapped += (entries[i] & PRESENT) != 0;
  }
  return mapped;
}
