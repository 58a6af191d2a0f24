/* gpu_engine_memory.c - calls about memory: ranges, plain allocations, limits, memory in
 * use, and the checks of the whole state. */
#include "gpu_engine_state.h"

bool gpu_blocks_valid(struct gpu_engine *engine, uint32_t first, uint32_t count) {
  if (first <= engine->uvm.block_count && count <= engine->uvm.block_count - first)
    return true;
  uvm_error(&engine->uvm, GPU_ERROR_OUT_OF_BOUNDS, first);
  return false;
}

bool gpu_blocks_live(struct gpu_engine *engine, uint32_t first, uint32_t count,
                     uint32_t error) {
  const struct uvm_block *blocks = uvm_blocks(&engine->uvm);
  for (uint32_t i = first; i < first + count; i++)
    if (!(blocks[i].flags & UVM_LIVE)) {
      uvm_error(&engine->uvm, error, i);
      return false;
    }
  return true;
}

int gpu_range_create(struct gpu_engine *engine, uint64_t now_ns,
                     const struct gpu_hooks *hooks, uint32_t first_block,
                     uint32_t block_count) {
  gpu_advance(engine, now_ns, hooks);
  if (block_count == 0 || !gpu_blocks_valid(engine, first_block, block_count))
    return GPU_INVALID;
  const struct uvm_block *blocks = uvm_blocks(&engine->uvm);
  for (uint32_t i = first_block; i < first_block + block_count; i++)
    if (blocks[i].flags & UVM_LIVE) {
      uvm_error(&engine->uvm, GPU_ERROR_DOUBLE_CREATE, i);
      return GPU_INVALID;
    }
  for (uint32_t i = first_block; i < first_block + block_count; i++) {
    uvm_edit(&engine->uvm, i)->flags = UVM_LIVE;
    if (uvm_journal_filling(&engine->uvm)) uvm_checkpoint(&engine->uvm);
  }
  return GPU_OK;
}

int gpu_range_destroy(struct gpu_engine *engine, uint64_t now_ns,
                      const struct gpu_hooks *hooks, uint32_t first_block,
                      uint32_t block_count, struct gpu_cost *cost) {
  gpu_advance(engine, now_ns, hooks);
  if (block_count == 0 || !gpu_blocks_valid(engine, first_block, block_count) ||
      !gpu_blocks_live(engine, first_block, block_count, GPU_ERROR_DOUBLE_FREE))
    return GPU_INVALID;
  uint64_t begin_ns = engine->uvm.now_ns;
  *cost = (struct gpu_cost){.caller_free_ns = begin_ns, .complete_ns = begin_ns};
  for (uint32_t i = first_block; i < first_block + block_count; i++) {
    uvm_free_block(&engine->uvm, i, &cost->complete_ns);
    if (uvm_journal_filling(&engine->uvm)) uvm_checkpoint(&engine->uvm);
  }
  return GPU_OK;
}

int gpu_plain_reserve(struct gpu_engine *engine, uint64_t now_ns,
                      const struct gpu_hooks *hooks, uint64_t length_bytes,
                      struct gpu_cost *cost) {
  gpu_advance(engine, now_ns, hooks);
  int status = uvm_plain_reserve(&engine->uvm, hooks, length_bytes, cost);
  if (gpu_shared(engine) && status == GPU_OK)
    gpu_owner_edit(engine, engine->uvm.actor)->plain_bytes += length_bytes;
  return status;
}

int gpu_plain_release(struct gpu_engine *engine, uint64_t now_ns,
                      const struct gpu_hooks *hooks, uint64_t length_bytes) {
  gpu_advance(engine, now_ns, hooks);
  if (gpu_shared(engine)) {
    struct gpu_owner *owner = gpu_owner_edit(engine, engine->uvm.actor);
    if (length_bytes > owner->plain_bytes) return GPU_INVALID;
    owner->plain_bytes -= length_bytes;
  }
  return uvm_plain_release(&engine->uvm, length_bytes);
}

int gpu_host_limit(struct gpu_engine *engine, const struct gpu_host *host) {
  uint64_t room = host->memory_bytes / GPU_BLOCK_BYTES;
  if (room == 0 || room > UINT32_MAX || !(host->read_gbps > 0) || !(host->write_gbps > 0) ||
      !(host->read_us >= 0) || !(host->write_us >= 0) || !(host->write_budget_gbps >= 0))
    return GPU_INVALID;
  engine->uvm.host = (struct uvm_host){.facts = *host, .room = (uint32_t)room};
  return GPU_OK;
}

void gpu_leaves_for_flash(struct gpu_engine *engine, uint32_t block) {
  if (engine->uvm.host.room == 0 || !gpu_blocks_valid(engine, block, 1)) return;
  const struct uvm_block *b = &uvm_blocks(&engine->uvm)[block];
  if (b->gpu_pages != 0 && b->place == 0)
    uvm_edit(&engine->uvm, block)->place = GPU_TO_FLASH;
}

uint32_t gpu_host_place(const struct gpu_engine *engine, uint32_t block) {
  return uvm_blocks(&engine->uvm)[block].place;
}

uint32_t gpu_host_room(const struct gpu_engine *engine) {
  return engine->uvm.host.room - engine->uvm.host.held;
}

int gpu_flash_write(struct gpu_engine *engine, uint64_t now_ns,
                    const struct gpu_hooks *hooks, uint32_t block, uint64_t *free_ns) {
  gpu_advance(engine, now_ns, hooks);
  if (!gpu_blocks_valid(engine, block, 1)) return GPU_INVALID;
  return uvm_flash_write(&engine->uvm, block, free_ns);
}

int gpu_flash_read(struct gpu_engine *engine, uint64_t now_ns,
                   const struct gpu_hooks *hooks, uint32_t block, uint64_t *free_ns) {
  gpu_advance(engine, now_ns, hooks);
  if (!gpu_blocks_valid(engine, block, 1)) return GPU_INVALID;
  return uvm_flash_read(&engine->uvm, block, free_ns);
}

int gpu_host_drop(struct gpu_engine *engine, uint64_t now_ns, const struct gpu_hooks *hooks,
                  uint32_t block) {
  gpu_advance(engine, now_ns, hooks);
  if (!gpu_blocks_valid(engine, block, 1)) return GPU_INVALID;
  return uvm_host_drop(&engine->uvm, block);
}

void gpu_host_victims(struct gpu_engine *engine, const uint32_t *blocks, uint32_t count) {
  struct uvm_host *host = &engine->uvm.host;
  host->victims_taken = host->victims_made = 0;
  for (uint32_t i = 0; i < count && i < GPU_HOST_VICTIMS; i++)
    if (gpu_blocks_valid(engine, blocks[i], 1))
      host->victims[host->victims_made++] = blocks[i];
}

int gpu_jitter(struct gpu_engine *engine, double share, uint64_t seed) {
  if (!(share >= 0) || !(share < 1)) return GPU_INVALID;
  engine->uvm.pace = (struct uvm_pace){.share = share, .now = 1, .state = seed};
  return GPU_OK;
}

void gpu_memory_get(const struct gpu_engine *engine, struct gpu_memory *out) {
  const struct uvm *uvm = &engine->uvm;
  const uint64_t block_bytes = GPU_BLOCK_BYTES;
  uint64_t in_use =
      (uint64_t)uvm->lists[GPU_LIST_USED].count + uvm->lists[GPU_LIST_DISCARDED].count;
  out->total_bytes = uvm->capacity_blocks * block_bytes;
  out->plain_bytes = uvm->plain_bytes;
  out->resident_bytes = in_use * block_bytes;
  out->unused_bytes = uvm->lists[GPU_LIST_UNUSED].count * block_bytes;
  out->free_bytes = uvm->free_blocks * block_bytes;
}

/* Checks that streams, operations and uses match: returns 0, or the broken invariant. */
static int check_queues(const struct gpu_engine *engine) {
  const struct gpu_op *ops = gpu_ops(engine);
  uint32_t pending = 0, uses = 0, active = 0;
  for (uint32_t s = 0; s < engine->capacity.streams; s++) {
    const struct gpu_stream *stream = &gpu_streams(engine)[s];
    uint32_t length = 0;
    for (uint32_t i = stream->head; i != GPU_NONE; i = ops[i].next) {
      if (ops[i].stream != s || ++length > engine->capacity.operations) return 101;
      for (uint32_t u = ops[i].first_use; u != GPU_NONE; u = gpu_uses(engine)[u].next)
        if (++uses > engine->capacity.uses) return 102;
    }
    if (length != stream->pending) return 103;
    if (length > 0 && (stream->active_at >= engine->active_count ||
                       gpu_active(engine)[stream->active_at] != s))
      return 104;
    active += length > 0;
    pending += length;
  }
  if (active != engine->active_count) return 105;
  if (pending + engine->free_op_count != engine->capacity.operations) return 106;
  if (uses + engine->free_use_count != engine->capacity.uses) return 107;
  return 0;
}

int gpu_check(const struct gpu_engine *engine) {
  uint32_t present = 1;
  for (uint32_t i = 0; i < engine->capacity.owners; i++)
    if (gpu_owners(engine)[i].present)
      present |= 1u << i;
    else
      present &= ~(1u << i);
  struct gpu_counters counters;
  gpu_counters_get(engine, &counters);
  int broken = uvm_check(&engine->uvm, &counters, present);
  if (broken == 0) broken = check_queues(engine);
  return broken != 0 ? broken : gpu_check_connections(engine);
}
