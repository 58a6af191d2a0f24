/* uvm_flash.c - a host whose memory does not hold all that leaves the GPU, and flash
 * behind it. Simulated only: no driver pages managed memory out (docs/simulator.md).
 *
 * DESIGN. Whole blocks. One that is not on the GPU is in the host, on flash, or in both:
 * then it leaves the host without a copy. On the GPU a block may be written, and no page
 * table tells the CPU of that, so its copies are void as soon as it returns there (the
 * kernel gives swap space back in the same case: docs/decisions/0064-flash.md). Only
 * duplicates keep them.
 *
 * One that comes to a full host has the next of the victims go to flash, which the caller
 * names ahead, and leaves the GPU when that was written. Without victims it goes to flash
 * itself. One that returns is read first, or gives its host memory back. So a loop over
 * more than the host holds has the rest of it on flash, and no more.
 *
 * The device reads and writes at once at full rates. A transfer is complete a latency
 * after its last byte, and the next one begins in the meantime. A budget of writes is one
 * in the mean since the beginning: what was not written may be written later.
 */
#include "uvm_model.h"

void uvm_host_forget(struct uvm *uvm, uint32_t block) {
  struct uvm_host *host = &uvm->host;
  if (host->room == 0) return;
  struct uvm_block *b = uvm_edit(uvm, block);
  if (b->place & GPU_IN_HOST) host->held--;
  b->place = 0;
}

/* Books a block from `earliest_ns` on; returns when it is complete. */
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

/* The next victim leaves the host; returns when, or GPU_NEVER: there is none. */
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

/* ---- ahead of need ---------------------------------------------------------------- */

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
