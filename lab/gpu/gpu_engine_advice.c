/* gpu_engine_advice.c - advice on managed memory as a call.
 *
 * Advice takes the lock of the address space for writing: it waits for all readers of the
 * lock, and later calls wait for it (gpu_engine_locks.c). On a shared GPU each process
 * has its own lock, so advice waits only for transfers of the blocks themselves.
 */
#include "gpu_engine_state.h"

static bool refused(struct gpu_engine *engine, uint32_t first, uint32_t count) {
  return count == 0 || !gpu_blocks_valid(engine, first, count) ||
         !gpu_blocks_live(engine, first, count, GPU_ERROR_COMMAND_ON_FREED);
}

int gpu_advise(struct gpu_engine *engine, uint64_t now_ns, const struct gpu_hooks *hooks,
               uint32_t first_block, uint32_t block_count, uint32_t advice,
               struct gpu_cost *cost) {
  struct uvm *uvm = &engine->uvm;
  struct uvm_locks *locks = &uvm->locks;
  gpu_advance(engine, now_ns, hooks);
  if (advice < GPU_ADVICE_READ_MOSTLY || advice > GPU_ADVICE_ACCESSED_BY_ENDS ||
      refused(engine, first_block, block_count))
    return GPU_INVALID;
  uint64_t begin_ns = uvm->now_ns;
  if (!gpu_shared(engine))
    begin_ns = uvm_max(begin_ns, uvm_max(locks->read_until_ns, locks->write_until_ns));
  for (uint32_t i = first_block; i < first_block + block_count; i++) {
    const struct uvm_block *b = &uvm_blocks(uvm)[i];
    begin_ns = uvm_max(begin_ns, uvm_max(uvm_ready_ns(uvm, b), uvm_left_ns(uvm, b)));
  }
  uint64_t end_ns = begin_ns + uvm_ns(uvm->profile.advise_call_us);
  for (uint32_t i = first_block; i < first_block + block_count; i++) {
    end_ns = uvm_advise_block(uvm, i, advice, end_ns);
    if (uvm_journal_filling(uvm)) uvm_checkpoint(uvm);
  }
  if (!gpu_shared(engine)) locks->write_until_ns = end_ns;
  *cost = (struct gpu_cost){.caller_free_ns = end_ns,
                            .complete_ns = end_ns,
                            .waits_from_ns = uvm->now_ns,
                            .waits_until_ns = begin_ns};
  uvm->counters.caller_ns += end_ns - uvm->now_ns;
  return GPU_OK;
}

uint32_t gpu_read_mostly(const struct gpu_engine *engine, uint32_t first_block,
                         uint32_t block_count, uint32_t *kept_blocks) {
  uint32_t found = 0;
  *kept_blocks = 0;
  for (uint32_t i = first_block; i < first_block + block_count; i++) {
    const struct uvm_block *b = &uvm_blocks(&engine->uvm)[i];
    found += (b->flags & UVM_READ_MOSTLY) != 0;
    *kept_blocks += b->gpu_pages != b->host_pages;
  }
  return found;
}

uint32_t gpu_cpu_mapped(const struct gpu_engine *engine, uint32_t block) {
  const struct uvm_block *b = &uvm_blocks(&engine->uvm)[block];
  return b->flags & UVM_CPU_MAPPED ? ~b->gpu_pages | b->host_pages : 0;
}
