/* uvm_flash.c - a host whose memory does not hold all that leaves the GPU, and flash
 * behind it. Simulated only: no driver pages managed memory out (docs/simulator.md).
 *
 * Whole blocks. One that comes to a full host pushes the one that came first out to
 * flash, and waits for its write; one that returns to the GPU is read first, and leaves
 * its room to others. A device that reads and writes at once does both at full rate.
 */
#include "uvm_model.h"

static void forget(struct uvm *uvm, uint32_t block) {
  struct uvm_host *host = &uvm->host;
  if (!(uvm_blocks(uvm)[block].flags & UVM_IN_HOST)) return;
  struct uvm_block *b = uvm_edit(uvm, block);
  if (b->host_previous == UVM_NO_BLOCK)
    host->oldest = b->host_next;
  else
    uvm_edit(uvm, b->host_previous)->host_next = b->host_next;
  if (b->host_next == UVM_NO_BLOCK)
    host->newest = b->host_previous;
  else
    uvm_edit(uvm, b->host_next)->host_previous = b->host_previous;
  b->flags &= (uint8_t)~UVM_IN_HOST;
  host->held--;
}

void uvm_host_forget(struct uvm *uvm, uint32_t block) {
  if (uvm->host.room == 0) return;
  forget(uvm, block);
  uvm_edit(uvm, block)->flags &= (uint8_t)~UVM_ON_FLASH;
}

static uint64_t transfer(uint64_t *free_ns, uint64_t earliest_ns, double gbps) {
  uint64_t start_ns = uvm_max(*free_ns, earliest_ns);
  *free_ns = start_ns + (uint64_t)((double)GPU_BLOCK_BYTES / gbps + 0.5);
  return *free_ns;
}

static uint64_t push_out_oldest(struct uvm *uvm) {
  struct uvm_host *host = &uvm->host;
  uint32_t oldest = host->oldest;
  struct uvm_block *b = uvm_edit(uvm, oldest);
  forget(uvm, oldest);
  b->flags |= UVM_ON_FLASH;
  b->left_ns = transfer(&host->write_free_ns, uvm_max(b->left_ns, uvm->now_ns),
                        host->flash_write_gbps);
  uvm->counters.flash_write_bytes += GPU_BLOCK_BYTES;
  return b->left_ns;
}

uint64_t uvm_host_take(struct uvm *uvm, uint32_t block, uint64_t earliest_ns) {
  struct uvm_host *host = &uvm->host;
  if (host->room == 0 || (uvm_blocks(uvm)[block].flags & UVM_IN_HOST)) return earliest_ns;
  struct uvm_block *b = uvm_edit(uvm, block);
  if (host->held == host->room) earliest_ns = uvm_max(earliest_ns, push_out_oldest(uvm));
  b->flags = (uint8_t)((b->flags & ~UVM_ON_FLASH) | UVM_IN_HOST);
  b->host_previous = host->newest;
  b->host_next = UVM_NO_BLOCK;
  if (host->newest == UVM_NO_BLOCK)
    host->oldest = block;
  else
    uvm_edit(uvm, host->newest)->host_next = block;
  host->newest = block;
  host->held++;
  return earliest_ns;
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
  uvm_host_forget(uvm, block);
  return earliest_ns;
}
