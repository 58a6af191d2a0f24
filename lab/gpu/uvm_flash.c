/* uvm_flash.c - a host with too little memory for all evicted blocks, and a flash tier.
 * Only simulated: no driver pages managed memory out (docs/simulator.md).
 *
 * DESIGN. The unit is a whole block. A block that is not on the GPU is in the host, on
 * flash, or in both; then it leaves the host without a copy. A block on the GPU may be
 * written, and no page table reports that to the CPU. So its other copies become invalid
 * when it returns to the GPU (the kernel frees swap space in the same case:
 * docs/decisions/0064-flash.md). Only duplicates keep them.
 *
 * The caller names victims in advance. When a block arrives at a full host, the next
 * victim moves to flash, and the block leaves the GPU after that write. Without victims
 * the block itself goes to flash. A block that returns to the GPU is first read from
 * flash, or frees its host memory. So a loop over more data than the host holds keeps
 * only the excess on flash.
 *
 * The device reads and writes at the same time, at full rates. A transfer is complete one
 * latency after its last byte, and the next one begins before that. The write budget is a
 * mean since the beginning: unused budget may be spent later. */
#include "uvm_model.h"

void uvm_host_forget(struct uvm *uvm, uint32_t block) {
  struct uvm_host *host = &uvm->host;
  if (host->room == 0) return;
  struct uvm_block *b = uvm_edit(uvm, block);
  if (b->place & GPU_IN_HOST) host->held--;
  b->place = 0;
}

/* Books a block from `earliest_ns`; returns the end. */
static uint64_t transfer(uint64_t *free_ns, uint64_t earliest_ns, double gbps,
                         double latency_us) {
  uint64_t start_ns = uvm_max(*free_ns, earliest_ns);
  *free_ns = start_ns + (uint64_t)((double)GPU_BLOCK_BYTES / gbps + 0.5);
  return *free_ns + uvm_ns(latency_us);
}

static uint64_t write_block(struct uvm *uvm, uint64_t earliest_ns) {
  struct uvm_host *host = &uvm->host;
  const struct gpu_host *facts = &host->facts;
  uvm->counters.flash_write_bytes += GPU_BLOCK_BYTES;
  if (facts->write_budget_gbps > 0) {
    double all_bytes = (double)uvm->counters.flash_write_bytes;
    double within_ns =
        all_bytes / facts->write_budget_gbps - (double)GPU_BLOCK_BYTES / facts->write_gbps;
    if (within_ns > 0) earliest_ns = uvm_max(earliest_ns, (uint64_t)(within_ns + 1));
  }
  return transfer(&host->write_free_ns, earliest_ns, facts->write_gbps, facts->write_us);
}

static uint64_t read_block(struct uvm *uvm, uint64_t earliest_ns) {
  struct uvm_host *host = &uvm->host;
  uvm->counters.flash_read_bytes += GPU_BLOCK_BYTES;
  return transfer(&host->read_free_ns, earliest_ns, host->facts.read_gbps,
                  host->facts.read_us);
}

/* Moves the next victim out of the host; returns when, or GPU_NEVER without a victim. */
static uint64_t make_room(struct uvm *uvm, uint64_t earliest_ns) {
  struct uvm_host *host = &uvm->host;
  while (host->victims_taken < host->victims_made) {
    uint32_t block = host->victims[host->victims_taken++];
    struct uvm_block *b = uvm_edit(uvm, block);
    if (!(b->place & GPU_IN_HOST)) continue;
    uint64_t left_ns = uvm_max(earliest_ns, uvm_left_ns(uvm, b));
    if (!(b->place & GPU_ON_FLASH)) {
      left_ns = write_block(uvm, left_ns);
      uvm_set_left(uvm, b, left_ns);
    }
    b->place = GPU_ON_FLASH;
    host->held--;
    return left_ns;
  }
  return GPU_NEVER;
}

uint64_t uvm_host_take(struct uvm *uvm, uint32_t block, uint64_t earliest_ns) {
  struct uvm_host *host = &uvm->host;
  if (host->room == 0 || (uvm_blocks(uvm)[block].place & GPU_IN_HOST)) return earliest_ns;
  bool past = uvm_blocks(uvm)[block].place == GPU_TO_FLASH;
  uvm_host_forget(uvm, block);
  uint64_t room_ns = GPU_NEVER;
  if (!past) room_ns = host->held < host->room ? earliest_ns : make_room(uvm, earliest_ns);
  struct uvm_block *b = uvm_edit(uvm, block);
  if (room_ns == GPU_NEVER) {
    b->place = GPU_ON_FLASH;
    return write_block(uvm, earliest_ns);
  }
  host->held++;
  b->place = GPU_IN_HOST;
  return room_ns;
}

uint64_t uvm_host_give(struct uvm *uvm, uint32_t block, uint64_t earliest_ns) {
  struct uvm_host *host = &uvm->host;
  if (host->room == 0) return earliest_ns;
  const struct uvm_block *b = &uvm_blocks(uvm)[block];
  if (b->place == GPU_ON_FLASH)
    earliest_ns = read_block(uvm, uvm_max(earliest_ns, uvm_left_ns(uvm, b)));
  if (!(b->flags & UVM_READ_MOSTLY)) uvm_host_forget(uvm, block);
  return earliest_ns;
}

/* ---- in advance ------------------------------------------------------------------- */

int uvm_flash_write(struct uvm *uvm, uint32_t block, uint64_t *free_ns) {
  struct uvm_block *b = uvm_edit(uvm, block);
  if (b->place != GPU_IN_HOST) return GPU_INVALID;
  uvm_set_left(uvm, b, write_block(uvm, uvm_max(uvm->now_ns, uvm_left_ns(uvm, b))));
  b->place |= GPU_ON_FLASH;
  *free_ns = uvm->host.write_free_ns;
  return GPU_OK;
}

int uvm_flash_read(struct uvm *uvm, uint32_t block, uint64_t *free_ns) {
  struct uvm_host *host = &uvm->host;
  struct uvm_block *b = uvm_edit(uvm, block);
  if (b->place != GPU_ON_FLASH || host->held >= host->room) return GPU_INVALID;
  uvm_set_left(uvm, b, read_block(uvm, uvm_max(uvm->now_ns, uvm_left_ns(uvm, b))));
  b->place |= GPU_IN_HOST;
  host->held++;
  *free_ns = host->read_free_ns;
  return GPU_OK;
}

int uvm_host_drop(struct uvm *uvm, uint32_t block) {
  struct uvm_block *b = uvm_edit(uvm, block);
  if (b->place != (GPU_IN_HOST | GPU_ON_FLASH) || uvm_left_ns(uvm, b) > uvm->now_ns)
    return GPU_INVALID;
  b->place = GPU_ON_FLASH;
  uvm->host.held--;
  return GPU_OK;
}
