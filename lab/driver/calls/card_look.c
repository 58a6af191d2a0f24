/* card_look.c - the GPU as a tool sees it (driver_card.h): its identity and memory use.
 *
 * If this process has called cuInit, its own engine answers, as for cuMemGetInfo.
 * Otherwise the file of a shared GPU is read without its lock, so a number may be
 * slightly old. The file is never created, joined or written.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "calls.h"
#include "driver_card.h"
#include "lab/driver/card/card_state.h"

_Static_assert(PUMP_CARD_PROCESSES == GPU_MAX_OWNERS, "a place for each");

/* Counts the memory of killed processes as free: it is, once another process checks. */
static void add_processes(const struct card *card, const struct gpu_engine *engine,
                          struct pump_card *out) {
  struct gpu_owner_info info;
  for (uint32_t i = 0; i < GPU_MAX_OWNERS; i++) {
    if (gpu_owner_get(engine, i, &info) != GPU_OK) continue;
    uint64_t bytes = info.plain_bytes + info.resident_bytes;
    if (card_process_is_alive(&card->processes[i]))
      out->processes[out->process_count++] =
          (struct pump_card_process){card->processes[i].pid, bytes};
    else
      out->free_bytes += bytes;
  }
  if (out->free_bytes > out->total_bytes) out->free_bytes = out->total_bytes;
}

static void own_engine(struct pump_card *out) {
  struct gpu_memory memory;
  vd_lock();
  vd_card_reclaim_locked();
  gpu_advance(vd.engine, vd_now_ns(), &vd_hooks);
  gpu_memory_get(vd.engine, &memory);
  out->total_bytes = memory.total_bytes;
  out->free_bytes = memory.free_bytes;
  if (vd.shared)
    add_processes(card_of_process(), vd.engine, out);
  else
    out->processes[out->process_count++] = (struct pump_card_process){
        getpid(), memory.plain_bytes + memory.resident_bytes + memory.unused_bytes};
  vd_unlock();
}

static bool is_the_card(const struct card *card, off_t bytes) {
  return card->magic == CARD_MAGIC && card->version == CARD_VERSION &&
         (off_t)card->bytes == bytes && card->pid_namespace == card_pid_namespace() &&
         strcmp(card->profile_hash, vd.profile_hash) == 0;
}

static void others_card(struct pump_card *out) {
  char path[4096];
  struct stat status;
  struct gpu_memory memory;
  if (card_path(vd_card_name(), path, sizeof path) != 0) return;
  int file = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return;
  void *state = MAP_FAILED;
  if (fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == geteuid() &&
      (status.st_mode & 077) == 0 && status.st_size > (off_t)CARD_STATE_OFFSET)
    state = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (state == MAP_FAILED) return;
  const struct card *card = state;
  if (is_the_card(card, status.st_size)) {
    const struct gpu_engine *engine =
        (const void *)((const uint8_t *)state + CARD_STATE_OFFSET);
    gpu_memory_get(engine, &memory);
    out->total_bytes = memory.total_bytes;
    out->free_bytes = memory.free_bytes;
    add_processes(card, engine, out);
  }
  munmap(state, (size_t)status.st_size);
}

__attribute__((visibility("default"))) int pump_card_read(struct pump_card *out) {
  *out = (struct pump_card){0};
  if (vd_profile_read() != 0) return -1;
  const struct uvm_profile *profile = &vd.profile;
  snprintf(out->name, sizeof out->name, "%s", profile->device_name);
  vd_uuid_text(out->uuid, sizeof out->uuid);
  out->bus = VD_PCI_BUS;
  out->pci_device = (uint32_t)profile->pci_device;
  out->compute_major = (int)profile->compute_major;
  out->compute_minor = (int)profile->compute_minor;
  out->cuda_version = vd_version();
  out->total_bytes = out->free_bytes =
      profile->memory_bytes / GPU_BLOCK_BYTES * GPU_BLOCK_BYTES;
  if (__atomic_load_n(&vd.state, __ATOMIC_ACQUIRE) == VD_READY)
    own_engine(out);
  else if (vd_card_wanted())
    others_card(out);
  return 0;
}

__attribute__((visibility("default"))) void pump_card_lacks(const char *name) {
  vd_log("%s is not implemented", name);
}
