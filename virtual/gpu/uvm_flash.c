/* uvm_flash.c - a host whose memory does not hold all that leaves the GPU, and flash
 * behind it. Simulated only: no driver pages managed memory out (docs/simulator.md).
 *
 * Whole blocks. One that comes to a full host is written to flash, and leaves the GPU when
 * it can be written; one that returns to the GPU is read first, or leaves its room in the
 * host to others. So a loop over more than the host holds has the rest of it on flash, and
 * no more. A device that reads and writes at once does both at full rate.
 */
#include "uvm_model.h"

void uvm_host_forget(struct uvm *uvm, uint32_t block) {
  struct uvm_host *host = &uvm->host;
  if (host->room == 0) return;
  struct uvm_block *b = uvm_edit(uvm, block);
  if (b->flags & UVM_IN_HOST) host->held--;
  b->flags &= (uint8_t)~(UVM_IN_HOST | UVM_ON_FLASH);
}

static uint64_t transfer(uint64_t *free_ns, uint64_t earliest_ns, double gbps) {
  uint64_t start_ns = uvm_max(*free_ns, earliest_ns);
  *free_ns = start_ns + (uint64_t)((double)GPU_BLOCK_BYTES / gbps + 0.5);
  return *free_ns;
}

uint64_t uvm_host_take(struct uvm *uvm, uint32_t block, uint64_t earliest_ns) {
  struct uvm_host *host = &uvm->host;
  if (host->room == 0 || (uvm_blocks(uvm)[block].flags & UVM_IN_HOST)) return earliest_ns;
  uvm_host_forget(uvm, block);
  struct uvm_block *b = uvm_edit(uvm, block);
  if (host->held < host->room) {
    host->held++;
    b->flags |= UVM_IN_HOST;
    return earliest_ns;
  }
  b->flags |= UVM_ON_FLASH;
  uvm->counters.flash_write_bytes += GPU_BLOCK_BYTES;
  return transfer(&host->write_free_ns, earliest_ns, host->flash_write_gbps);
}

uint64_t uvm_host_give(struct uvm *uvm, uint32_t block, uint64_t earliest_ns) {
  struct uvm_host *host = &uvm->host;
  if (host->room == 0) return earliest_ns;
  const struct uvm_block *b = &uvm_blocks(uvm)[block];
  if (b->flags & UVM_ON_FLASH) {
    earliest_ns = transfer(&host->read_free_ns, uvm_max(earliest_ns, b->left_ns),
                           host->flash_read_gbps);
    uvm->counters.flash_read_bytes += GPU_BLOCK_BYTES;
  }
  if (!(b->flags & UVM_READ_MOSTLY)) uvm_host_forget(uvm, block);
  return earliest_ns;
}
