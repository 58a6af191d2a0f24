/* gpu_engine_locks.c - optional locks of the driver: which calls wait while memory
 * migrates.
 *
 * DESIGN
 *   context   One lock for each context of the process. A prefetch to the host holds its
 *             context's lock during its call. Every other call in that context that
 *             gives the GPU work waits.
 *   space     The locks of the address space (mmap_lock, VA-space lock), as one lock.
 *             Prefetch calls and fault batches hold it for reading; mapping and
 *             unmapping memory hold it for writing. A writer waits for all readers, and
 *             later readers wait for the writer.
 *             Advice is always a writer, even if no locks were requested.
 *
 * The end of each hold is known at its beginning, and holds begin in order of time. So
 * each lock is stored as the time until which it is held. A later caller never overtakes
 * an earlier one. docs/uvm.md gives the evidence. */
#include "gpu_engine_state.h"

int gpu_locks(struct gpu_engine *engine, uint32_t locks) {
  if (locks > (GPU_LOCK_CONTEXT | GPU_LOCK_SPACE) || gpu_shared(engine)) return GPU_INVALID;
  engine->uvm.locks.kinds = locks;
  return GPU_OK;
}

uint64_t gpu_call_ns(const struct gpu_engine *engine, uint32_t call, uint32_t context) {
  const struct uvm_locks *locks = &engine->uvm.locks;
  uint64_t until_ns = locks->context_until_ns[context];
  return call == GPU_CALL_PREFETCH ? uvm_max(until_ns, locks->write_until_ns) : until_ns;
}

uint64_t gpu_map_memory(struct gpu_engine *engine, uint64_t now_ns,
                        const struct gpu_hooks *hooks, uint64_t taken_ns) {
  gpu_advance(engine, now_ns, hooks);
  struct uvm_locks *locks = &engine->uvm.locks;
  uint64_t begin_ns = engine->uvm.now_ns;
  if (!(locks->kinds & GPU_LOCK_SPACE)) return begin_ns + taken_ns;
  begin_ns = uvm_max(begin_ns, uvm_max(locks->read_until_ns, locks->write_until_ns));
  locks->write_until_ns = begin_ns + taken_ns;
  return locks->write_until_ns;
}

void gpu_hold_locks(struct gpu_engine *engine, const struct gpu_prefetch_call *call,
                    uint64_t until_ns) {
  struct uvm_locks *locks = &engine->uvm.locks;
  if ((locks->kinds & GPU_LOCK_CONTEXT) && call != NULL && call->to_host) {
    uint64_t *held_ns = &locks->context_until_ns[call->context];
    *held_ns = uvm_max(*held_ns, until_ns);
  }
  locks->read_until_ns = uvm_max(locks->read_until_ns, until_ns);
}
