/* gpu_engine_streams.c - calls about streams, events, operations and tickets. */
#include "gpu_engine_state.h"

int gpu_stream_create(struct gpu_engine *engine, uint32_t flags, uint32_t priority) {
  if (flags > GPU_STREAM_NONBLOCKING || priority >= GPU_PRIORITIES) return GPU_INVALID;
  for (uint32_t i = gpu_legacy_streams(engine); i < engine->capacity.streams; i++) {
    if (gpu_streams(engine)[i].state != GPU_STREAM_FREE) continue;
    struct gpu_stream *stream = gpu_stream_edit(engine, i);
    stream->state = GPU_STREAM_LIVE;
    stream->flags = flags;
    stream->owner = engine->uvm.actor;
    stream->queue = gpu_queue_for(engine, stream->owner, priority);
    return (int)i;
  }
  return GPU_FULL;
}

int gpu_stream_destroy(struct gpu_engine *engine, uint32_t stream) {
  if (stream < gpu_legacy_streams(engine) || !gpu_stream_usable(engine, stream))
    return GPU_INVALID;
  struct gpu_stream *s = gpu_stream_edit(engine, stream);
  s->state = s->head == GPU_NONE ? GPU_STREAM_FREE : GPU_STREAM_DYING;
  return GPU_OK;
}

/* Returns a lower bound of the time when the stream is idle. */
static uint64_t stream_earliest(const struct gpu_engine *engine, uint32_t stream) {
  const struct gpu_stream *s = &gpu_streams(engine)[stream];
  return s->head == GPU_NONE ? engine->uvm.now_ns : gpu_op_earliest(engine, s->tail);
}

int gpu_stream_query(struct gpu_engine *engine, uint64_t now_ns,
                     const struct gpu_hooks *hooks, uint32_t stream,
                     uint64_t *earliest_ns) {
  gpu_advance(engine, now_ns, hooks);
  if (!gpu_stream_usable(engine, stream)) return GPU_INVALID;
  *earliest_ns = stream_earliest(engine, stream);
  const struct gpu_stream *streams = gpu_streams(engine);
  uint32_t owner = streams[stream].owner;
  if (stream != owner) return streams[stream].head == GPU_NONE;
  /* The legacy stream includes all blocking ones. */
  for (uint32_t i = 0; i < engine->active_count; i++) {
    uint32_t other = gpu_active(engine)[i];
    if (streams[other].owner == owner && streams[other].flags != GPU_STREAM_NONBLOCKING)
      *earliest_ns = uvm_max(*earliest_ns, stream_earliest(engine, other));
  }
  return gpu_stream_clear(engine, stream);
}

int gpu_event_create(struct gpu_engine *engine) {
  for (uint32_t i = 0; i < engine->capacity.events; i++) {
    uint32_t at = (engine->event_hint + i) % engine->capacity.events;
    if (gpu_events(engine)[at].live || gpu_events(engine)[at].pending > 0) continue;
    struct gpu_event *event = gpu_event_edit(engine, at);
    event->live = 1;
    event->recorded = 0;
    event->time_ns = 0;
    event->owner = engine->uvm.actor;
    engine->event_hint = at + 1;
    return (int)at;
  }
  return GPU_FULL;
}

int gpu_event_destroy(struct gpu_engine *engine, uint32_t event) {
  if (event >= engine->capacity.events || !gpu_events(engine)[event].live)
    return GPU_INVALID;
  gpu_event_edit(engine, event)->live = 0;
  return GPU_OK;
}

int gpu_event_query(struct gpu_engine *engine, uint64_t now_ns,
                    const struct gpu_hooks *hooks, uint32_t event, uint64_t *time_ns) {
  gpu_advance(engine, now_ns, hooks);
  if (event >= engine->capacity.events || !gpu_events(engine)[event].live)
    return GPU_INVALID;
  const struct gpu_event *e = &gpu_events(engine)[event];
  *time_ns = e->time_ns;
  if (!e->recorded || e->completed_version >= e->version) return 1;
  uint32_t op = gpu_op_of(engine, e->ticket);
  *time_ns = op == GPU_NONE ? engine->uvm.now_ns : gpu_op_earliest(engine, op);
  return 0;
}

int gpu_submit(struct gpu_engine *engine, uint64_t now_ns, const struct gpu_hooks *hooks,
               uint32_t stream, const struct gpu_operation *operation,
               struct gpu_submitted *out) {
  gpu_advance(engine, now_ns, hooks);
  return gpu_enqueue(engine, stream, operation, out);
}

int gpu_ticket_query(struct gpu_engine *engine, uint64_t now_ns,
                     const struct gpu_hooks *hooks, uint64_t ticket,
                     uint64_t *earliest_ns) {
  gpu_advance(engine, now_ns, hooks);
  uint32_t op = gpu_op_of(engine, ticket);
  *earliest_ns = op == GPU_NONE ? engine->uvm.now_ns : gpu_op_earliest(engine, op);
  return op == GPU_NONE;
}

int gpu_complete(struct gpu_engine *engine, uint64_t now_ns, const struct gpu_hooks *hooks,
                 uint64_t ticket) {
  gpu_advance(engine, now_ns, hooks);
  uint32_t index = gpu_op_of(engine, ticket);
  if (index == GPU_NONE) return GPU_INVALID;
  if (gpu_ops(engine)[index].kind != GPU_HOST ||
      gpu_ops(engine)[index].phase != GPU_PHASE_OPEN)
    return GPU_INVALID;
  struct gpu_op *op = gpu_op_edit(engine, index);
  op->phase = GPU_PHASE_END;
  op->next_ns = engine->uvm.now_ns;
  gpu_advance(engine, now_ns, hooks);
  return GPU_OK;
}

static uint32_t kind_of(const struct gpu_prefetch_call *call) {
  if (call->discard_kind != 0) return GPU_DISCARD;
  return call->to_host ? GPU_PREFETCH_OUT : GPU_PREFETCH_IN;
}

/* Leaves the call on a busy stream to the driver's worker. */
static int defer_prefetch(struct gpu_engine *engine, struct gpu_prefetch_call *call) {
  struct gpu_use use = {.first_block = call->first_block, .block_count = call->block_count};
  struct gpu_operation operation = {
      .kind = kind_of(call),
      .discard_kind = call->discard_kind,
      .use_count = 1,
      .uses = &use,
      .cookie = call->cookie,
  };
  struct gpu_submitted submitted;
  int status = gpu_enqueue(engine, call->stream, &operation, &submitted);
  call->ticket = submitted.ticket;
  call->retry_ns = submitted.retry_ns;
  call->cost.caller_free_ns =
      engine->uvm.now_ns + uvm_ns(engine->uvm.profile.prefetch_call_us);
  call->cost.complete_ns = GPU_NEVER;
  return status;
}

/* Puts an open operation into the idle stream while the caller does the work. */
static int open_prefetch(struct gpu_engine *engine, const struct gpu_hooks *hooks,
                         struct gpu_prefetch_call *call) {
  struct gpu_operation operation = {
      .kind = kind_of(call),
      .discard_kind = call->discard_kind,
      .cookie = call->cookie,
  };
  struct gpu_submitted submitted;
  int status = gpu_enqueue(engine, call->stream, &operation, &submitted);
  call->ticket = submitted.ticket;
  call->retry_ns = submitted.retry_ns;
  if (status != GPU_OK) return status;
  struct gpu_op *op = gpu_op_edit(engine, gpu_op_of(engine, call->ticket));
  op->phase = GPU_PHASE_OPEN;
  op->start_ns = engine->uvm.now_ns;
  gpu_tell_start(engine, hooks, op, call->ticket);
  return GPU_OK;
}

int gpu_prefetch_step(struct gpu_engine *engine, uint64_t now_ns,
                      const struct gpu_hooks *hooks, struct gpu_prefetch_call *call) {
  gpu_advance(engine, now_ns, hooks);
  struct uvm *uvm = &engine->uvm;
  if (!call->begun) {
    if (!gpu_stream_usable(engine, call->stream) || call->block_count == 0 ||
        call->context >= GPU_LOCK_CONTEXTS ||
        !gpu_blocks_valid(engine, call->first_block, call->block_count) ||
        !gpu_blocks_live(engine, call->first_block, call->block_count,
                         GPU_ERROR_COMMAND_ON_FREED))
      return GPU_INVALID;
    if (!gpu_stream_clear(engine, call->stream)) return defer_prefetch(engine, call);
    int status = open_prefetch(engine, hooks, call);
    if (status != GPU_OK) return status;
    call->begun = 1;
  }
  uint32_t index = gpu_op_of(engine, call->ticket);
  if (index == GPU_NONE || call->blocks_done >= call->block_count) return GPU_INVALID;
  struct gpu_op *op = gpu_op_edit(engine, index);
  uint32_t first = call->first_block + call->blocks_done;
  uint32_t count = call->block_count - call->blocks_done;
  if (count > GPU_PREFETCH_SLICE_BLOCKS) count = GPU_PREFETCH_SLICE_BLOCKS;
  struct gpu_cost cost = {.caller_free_ns = uvm->now_ns, .complete_ns = uvm->now_ns};
  bool first_slice = call->blocks_done == 0, two_passes = call->block_count > 1;
  /* If the range was freed during the call, counts an error and skips the slice. */
  if (gpu_blocks_live(engine, first, count, GPU_ERROR_COMMAND_ON_FREED))
    gpu_slice(engine, hooks, op, first, count, first_slice, two_passes, &cost);
  call->blocks_done += count;
  gpu_op_completes(engine, op, cost.complete_ns);
  call->cost = cost;
  call->cost.complete_ns = op->complete_ns;
  gpu_hold_locks(engine, call, cost.caller_free_ns);
  if (call->blocks_done < call->block_count) return GPU_MORE;
  op->phase = GPU_PHASE_END;
  op->next_ns = op->complete_ns;
  return GPU_OK;
}

static bool op_uses(const struct gpu_engine *engine, const struct gpu_op *op,
                    uint32_t first_block, uint32_t block_count) {
  for (uint32_t i = op->first_use; i != GPU_NONE; i = gpu_uses(engine)[i].next) {
    const struct gpu_use *use = &gpu_uses(engine)[i].use;
    if (use->first_block < first_block + block_count &&
        first_block < use->first_block + use->block_count)
      return true;
  }
  return false;
}

uint32_t gpu_uses_pending(const struct gpu_engine *engine, uint32_t first_block,
                          uint32_t block_count) {
  uint32_t found = 0;
  for (uint32_t i = 0; i < engine->active_count; i++) {
    const struct gpu_stream *stream = &gpu_streams(engine)[gpu_active(engine)[i]];
    for (uint32_t at = stream->head; at != GPU_NONE; at = gpu_ops(engine)[at].next)
      found += op_uses(engine, &gpu_ops(engine)[at], first_block, block_count);
  }
  return found;
}
