/* gpu_engine_connections.c - work queues: the order in which operations reach the engines.
 *
 * DESIGN
 * A GPU takes work from a few hardware queues, and streams share them. Operations leave a
 * queue in order of submission, whatever their streams. So a kernel whose own stream is
 * free may wait for another stream's operation that waits for something.
 *
 * - kernel, copy, memset: Leave the queue for their engine when they are at its front,
 *   and at the head of their stream with all dependencies done. They wait at the
 *   engine, so a busy engine blocks no queue.
 * - event wait: Blocks the queue until the event has happened.
 * - prefetch, discard, host: Block the queue until they have ended. The GPU waits for a
 *   word that the driver or the host writes at the end.
 * - caller's prefetch or discard: Done by its calling thread regardless of the queue.
 *   Later operations in the queue wait for it.
 *
 * A stream keeps its queue: streams of one priority of one process get queues in turn.
 * docs/uvm.md separates the known facts from the assumptions.
 */
#include "gpu_engine_state.h"

void gpu_feed_reset(struct gpu_engine *engine, uint32_t owner) {
  /* The legacy stream uses the first queue of the lowest priority. */
  *gpu_feed_edit(engine, owner) =
      (struct gpu_feed){.connections = GPU_CONNECTIONS, .created = {1}};
}

int gpu_connections(struct gpu_engine *engine, uint32_t connections) {
  if (connections == 0 || connections > GPU_CONNECTIONS_MOST) return GPU_INVALID;
  gpu_feed_edit(engine, engine->uvm.actor)->connections = connections;
  return GPU_OK;
}

uint32_t gpu_queue_for(struct gpu_engine *engine, uint32_t owner, uint32_t priority) {
  struct gpu_feed *feed = gpu_feed_edit(engine, owner);
  uint32_t turn = feed->created[priority]++ % feed->connections;
  return owner * GPU_OWNER_QUEUES + priority * GPU_CONNECTIONS_MOST + turn;
}

void gpu_queue_join(struct gpu_engine *engine, uint32_t index) {
  struct gpu_op *op = gpu_op_edit(engine, index);
  struct gpu_queue *queue = gpu_queue_edit(engine, gpu_streams(engine)[op->stream].queue);
  op->in_queue = 1;
  op->queue_next = GPU_NONE;
  op->queue_previous = queue->last;
  if (queue->last == GPU_NONE)
    queue->first = index;
  else
    gpu_op_edit(engine, queue->last)->queue_next = index;
  queue->last = index;
}

void gpu_queue_leave(struct gpu_engine *engine, uint32_t index) {
  struct gpu_op *op = gpu_op_edit(engine, index);
  struct gpu_queue *queue = gpu_queue_edit(engine, gpu_streams(engine)[op->stream].queue);
  op->in_queue = 0;
  if (op->queue_previous == GPU_NONE)
    queue->first = op->queue_next;
  else
    gpu_op_edit(engine, op->queue_previous)->queue_next = op->queue_next;
  if (op->queue_next == GPU_NONE)
    queue->last = op->queue_previous;
  else
    gpu_op_edit(engine, op->queue_next)->queue_previous = op->queue_previous;
}

bool gpu_kind_holds(uint32_t kind) {
  return gpu_server_of(kind) == GPU_SERVER_WORKER || kind == GPU_HOST;
}

bool gpu_queue_reaches(const struct gpu_engine *engine, const struct gpu_op *op) {
  const struct gpu_op *ops = gpu_ops(engine);
  uint32_t at = gpu_queues(engine)[gpu_streams(engine)[op->stream].queue].first;
  for (; &ops[at] != op; at = ops[at].queue_next)
    if (gpu_kind_holds(ops[at].kind) || !gpu_op_ready(engine, &ops[at])) return false;
  return true;
}

int gpu_check_connections(const struct gpu_engine *engine) {
  const struct gpu_op *ops = gpu_ops(engine);
  uint32_t queued = 0, waiting = 0;
  for (uint32_t q = 0; q < gpu_legacy_streams(engine) * GPU_OWNER_QUEUES; q++) {
    uint32_t previous = GPU_NONE;
    for (uint32_t i = gpu_queues(engine)[q].first; i != GPU_NONE; i = ops[i].queue_next) {
      if (!ops[i].in_queue || ops[i].queue_previous != previous ||
          gpu_streams(engine)[ops[i].stream].queue != q)
        return 108;
      if (previous != GPU_NONE && ops[previous].seq >= ops[i].seq) return 109;
      previous = i;
      if (++queued > engine->capacity.operations) return 110;
    }
    if (gpu_queues(engine)[q].last != previous) return 111;
  }
  for (uint32_t i = 0; i < engine->active_count; i++)
    for (uint32_t at = gpu_streams(engine)[gpu_active(engine)[i]].head; at != GPU_NONE;
         at = ops[at].next) {
      bool waits = ops[at].phase == GPU_PHASE_QUEUED || gpu_kind_holds(ops[at].kind);
      if (waits != (ops[at].in_queue != 0)) return 112;
      waiting += waits;
    }
  return waiting == queued ? 0 : 113;
}
