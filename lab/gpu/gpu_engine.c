/* gpu_engine.c - the engine's state and the passing of time.
 *
 * DESIGN
 * Only the head of a stream ever executes. So the future is known from the time of each
 * head's next action. gpu_advance() picks the earliest action; at equal times it picks
 * the earlier submission. It sets the clock to that time, executes the action and
 * searches again, until the earliest is later than `now`. Actions use only model time, so
 * results do not depend on when the engine was called.
 *
 *   compute:  One kernel at a time; among ready kernels the one submitted first.
 *             Real GPUs overlap small kernels; this one does not.
 *   copies:   One at a time to the device, one from it and one inside it. A copy over
 *             the link is booked in steps of 32 MiB, so that prefetches can interleave.
 *   worker:   The driver's thread for prefetches deferred by a busy stream.
 *   callers:  Threads that prefetch on an idle stream do the work themselves.
 *
 * A kernel is a sweep over its uses in up to 16 steps: step k touches the k-th part of
 * every use and computes the k-th part of its time. Missing blocks of a step are faulted
 * in, in batches of up to 256 faults. The step also waits for blocks in flight, then
 * computes without interruption. Blocks of earlier steps may be evicted, so an operation
 * larger than the memory completes. A kernel that touches a part again in a later use
 * faults again. If all blocks are present, a kernel takes its duration, and starts at least
 * launch_us after its submission. Stalls and computing do not overlap within a kernel.
 *
 * Copies and memsets do the same; their faults are not replayable.
 *
 * Streams share work queues (gpu_engine_connections.c): the head of a stream may have to
 * wait for an earlier operation of another stream.
 *
 * The legacy default stream: an operation in it waits for all earlier operations of
 * blocking streams, and operations of blocking streams wait for its earlier ones. Order
 * of submission is the `seq` of operations.
 */
#include "gpu_engine_state.h"

#include <string.h>

struct layout {
  size_t streams, active, queues, feeds, events, ops, uses, owners, notes, journal, blocks,
      bytes;
};

static size_t place(size_t *at, size_t count, size_t each) {
  size_t here = *at;
  *at = (here + count * each + 15) & ~(size_t)15;
  return here;
}

static bool compute_layout(const struct gpu_capacity *capacity, struct layout *out) {
  const uint32_t most = 1u << 26;
  if (capacity->blocks == 0 || capacity->streams == 0 || capacity->operations == 0 ||
      capacity->uses == 0 || capacity->streams > GPU_MAX_STREAMS ||
      capacity->blocks > most || capacity->events > most || capacity->operations > most ||
      capacity->uses > most)
    return false;
  if (capacity->owners != 0 &&
      (capacity->owners < 2 || capacity->owners > GPU_MAX_OWNERS ||
       capacity->blocks % capacity->owners != 0 || capacity->streams <= capacity->owners ||
       capacity->notes < 2 || capacity->notes > 1u << 20 ||
       (capacity->notes & (capacity->notes - 1)) != 0))
    return false;
  size_t at = (sizeof(struct gpu_engine) + 15) & ~(size_t)15;
  out->streams = place(&at, capacity->streams, sizeof(struct gpu_stream));
  out->active = place(&at, capacity->streams, sizeof(uint32_t));
  uint32_t users = capacity->owners != 0 ? capacity->owners : 1;
  out->queues = place(&at, (size_t)users * GPU_OWNER_QUEUES, sizeof(struct gpu_queue));
  out->feeds = place(&at, users, sizeof(struct gpu_feed));
  out->events = place(&at, capacity->events, sizeof(struct gpu_event));
  out->ops = place(&at, capacity->operations, sizeof(struct gpu_op));
  out->uses = place(&at, capacity->uses, sizeof(struct gpu_use_node));
  out->owners = out->notes = out->journal = at;
  if (capacity->owners != 0) {
    out->owners = place(&at, capacity->owners + 1, sizeof(struct gpu_owner));
    out->notes =
        place(&at, (size_t)capacity->owners * capacity->notes, sizeof(struct gpu_note));
    out->journal = place(&at, 1, sizeof(struct uvm_journal) + UVM_JOURNAL_BYTES);
  }
  out->blocks = place(&at, capacity->blocks, sizeof(struct uvm_block));
  out->bytes = at;
  return true;
}

size_t gpu_engine_bytes(const struct gpu_capacity *capacity) {
  struct layout layout;
  return compute_layout(capacity, &layout) ? layout.bytes : 0;
}

void gpu_engine_part(const struct gpu_capacity *capacity, uint32_t owner,
                     uint64_t *offset_bytes, uint64_t *length_bytes) {
  struct layout layout;
  *offset_bytes = *length_bytes = 0;
  if (!compute_layout(capacity, &layout) || owner > capacity->owners) return;
  *length_bytes = layout.blocks;
  if (owner == capacity->owners) return;
  *length_bytes = (uint64_t)capacity->blocks / capacity->owners * sizeof(struct uvm_block);
  *offset_bytes = layout.blocks + owner * *length_bytes;
}

struct gpu_engine *gpu_engine_create(void *memory, size_t bytes,
                                     const struct gpu_capacity *capacity,
                                     const struct uvm_profile *profile,
                                     uint64_t memory_bytes, uint64_t now_ns) {
  struct layout layout;
  if (memory_bytes == 0) memory_bytes = profile->memory_bytes;
  if (!memory || ((uintptr_t)memory & 7) != 0 || !compute_layout(capacity, &layout) ||
      bytes < layout.bytes || memory_bytes < GPU_BLOCK_BYTES ||
      memory_bytes / GPU_BLOCK_BYTES > UINT32_MAX / 2)
    return NULL;
  bool shared = capacity->owners != 0;
  memset(memory, 0, shared ? layout.blocks : layout.bytes);
  struct gpu_engine *engine = memory;
  engine->capacity = *capacity;
  engine->bytes = layout.bytes;
  engine->next_seq = 1;
  engine->streams_offset = layout.streams;
  engine->active_offset = layout.active;
  engine->queues_offset = layout.queues;
  engine->feeds_offset = layout.feeds;
  engine->events_offset = layout.events;
  engine->ops_offset = layout.ops;
  engine->uses_offset = layout.uses;
  engine->owners_offset = layout.owners;
  engine->notes_offset = layout.notes;
  for (uint32_t i = 0; i < GPU_SERVERS; i++) engine->running[i] = GPU_NONE;
  for (uint32_t i = 0; i < capacity->streams; i++) {
    struct gpu_stream *stream = gpu_stream_edit(engine, i);
    stream->head = stream->tail = GPU_NONE;
    stream->owner = i < gpu_legacy_streams(engine) ? i : 0;
    stream->queue = stream->owner * GPU_OWNER_QUEUES;
  }
  for (uint32_t i = 0; i < gpu_legacy_streams(engine); i++) gpu_feed_reset(engine, i);
  for (uint32_t i = 0; i < gpu_legacy_streams(engine) * GPU_OWNER_QUEUES; i++)
    *gpu_queue_edit(engine, i) = (struct gpu_queue){GPU_NONE, GPU_NONE};
  if (!shared) gpu_stream_edit(engine, 0)->state = GPU_STREAM_LIVE;
  for (uint32_t i = 0; i < capacity->operations; i++) {
    struct gpu_op *op = gpu_op_edit(engine, i);
    op->next = i + 1 < capacity->operations ? i + 1 : GPU_NONE;
    op->generation = 1;
  }
  for (uint32_t i = 0; i < capacity->uses; i++)
    gpu_use_edit(engine, i)->next = i + 1 < capacity->uses ? i + 1 : GPU_NONE;
  engine->free_op_count = capacity->operations;
  engine->free_use_count = capacity->uses;
  uvm_init(&engine->uvm, profile, layout.blocks - offsetof(struct gpu_engine, uvm),
           capacity->blocks, memory_bytes, now_ns);
  if (!shared) return engine;
  engine->account = capacity->owners;
  engine->uvm.owner_blocks = capacity->blocks / capacity->owners;
  engine->uvm.journal_offset = layout.journal - offsetof(struct gpu_engine, uvm);
  struct uvm_journal *journal = (void *)((uintptr_t)memory + layout.journal);
  journal->room_bytes = UVM_JOURNAL_BYTES;
  return engine;
}

/* Returns the stream whose head acts next, and the time; GPU_NONE if no head ever will. */
static uint32_t next_stream(const struct gpu_engine *engine, uint64_t *time_ns) {
  const uint32_t *active = gpu_active(engine);
  uint32_t best = GPU_NONE;
  uint64_t best_ns = GPU_NEVER, best_seq = 0;
  for (uint32_t i = 0; i < engine->active_count; i++) {
    uint64_t head_ns = gpu_head_time(engine, active[i]);
    if (head_ns == GPU_NEVER || head_ns > best_ns) continue;
    uint64_t seq = gpu_ops(engine)[gpu_streams(engine)[active[i]].head].seq;
    if (head_ns == best_ns && seq > best_seq) continue;
    best = active[i];
    best_ns = head_ns;
    best_seq = seq;
  }
  *time_ns = best_ns;
  if (gpu_shared(engine) && best != GPU_NONE) best = gpu_turn(engine, best, best_ns);
  return best;
}

void gpu_advance(struct gpu_engine *engine, uint64_t now_ns,
                 const struct gpu_hooks *hooks) {
  uvm_checkpoint(&engine->uvm);
  for (;;) {
    uint64_t time_ns;
    uint32_t stream = next_stream(engine, &time_ns);
    if (stream == GPU_NONE || time_ns > now_ns) break;
    if (time_ns > engine->uvm.now_ns) engine->uvm.now_ns = time_ns;
    gpu_head_run(engine, hooks, stream);
    uvm_checkpoint(&engine->uvm);
  }
  if (now_ns > engine->uvm.now_ns) engine->uvm.now_ns = now_ns;
  gpu_account(engine, engine->uvm.actor);
}

uint64_t gpu_next_event_ns(const struct gpu_engine *engine) {
  uint64_t time_ns;
  (void)next_stream(engine, &time_ns);
  return time_ns;
}

uint64_t gpu_now_ns(const struct gpu_engine *engine) {
  return engine->uvm.now_ns;
}
