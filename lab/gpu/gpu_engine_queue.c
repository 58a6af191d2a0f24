/* gpu_engine_queue.c - adds operations to streams and removes them; lower bounds. */
#include "gpu_engine_state.h"

uint32_t gpu_op_of(const struct gpu_engine *engine, uint64_t ticket) {
  uint32_t op = (uint32_t)ticket;
  if (op >= engine->capacity.operations) return GPU_NONE;
  return gpu_ops(engine)[op].generation == ticket >> 32 ? op : GPU_NONE;
}

bool gpu_stream_usable(const struct gpu_engine *engine, uint32_t stream) {
  return stream < engine->capacity.streams &&
         gpu_streams(engine)[stream].state == GPU_STREAM_LIVE;
}

bool gpu_stream_clear(const struct gpu_engine *engine, uint32_t stream) {
  const struct gpu_stream *streams = gpu_streams(engine);
  uint32_t owner = streams[stream].owner;
  if (streams[stream].head != GPU_NONE) return false;
  if (stream != owner)
    return streams[stream].flags == GPU_STREAM_NONBLOCKING ||
           streams[owner].head == GPU_NONE;
  for (uint32_t i = 0; i < engine->active_count; i++) {
    const struct gpu_stream *other = &streams[gpu_active(engine)[i]];
    if (other->owner == owner && other->flags != GPU_STREAM_NONBLOCKING) return false;
  }
  return true;
}

static void activate(struct gpu_engine *engine, uint32_t stream) {
  gpu_stream_edit(engine, stream)->active_at = engine->active_count;
  *gpu_active_edit(engine, engine->active_count++) = stream;
}

static void deactivate(struct gpu_engine *engine, uint32_t stream) {
  uint32_t at = gpu_streams(engine)[stream].active_at;
  uint32_t last = gpu_active(engine)[--engine->active_count];
  *gpu_active_edit(engine, at) = last;
  gpu_stream_edit(engine, last)->active_at = at;
}

/* Returns the least time that an operation takes. */
static uint64_t bound_of(const struct uvm_profile *profile,
                         const struct gpu_operation *operation) {
  double gbps = 0;
  switch (operation->kind) {
  case GPU_COPY_H2D:
    gbps = profile->copy_h2d_gbps;
    break;
  case GPU_COPY_D2H:
    gbps = profile->copy_d2h_gbps;
    break;
  case GPU_KERNEL:
  case GPU_COPY_LOCAL:
  case GPU_MEMSET:
    return operation->duration_ns;
  default:
    return 0;
  }
  /* Each step is rounded to a nanosecond: allow one for each. */
  uint64_t rounding_ns = operation->length_bytes / GPU_COPY_STEP_BYTES + 1;
  uint64_t time_ns = (uint64_t)((double)operation->length_bytes / gbps);
  return time_ns > rounding_ns ? time_ns - rounding_ns : 0;
}

static bool arguments_valid(struct gpu_engine *engine, uint32_t stream,
                            const struct gpu_operation *operation) {
  if (!gpu_stream_usable(engine, stream)) return false;
  if (operation->kind < GPU_KERNEL || operation->kind > GPU_DISCARD) return false;
  if (operation->duration_ns >> 62 != 0) return false;
  if (operation->use_count > 0 && !operation->uses) return false;
  for (uint32_t i = 0; i < operation->use_count; i++)
    if (!gpu_blocks_valid(engine, operation->uses[i].first_block,
                          operation->uses[i].block_count))
      return false;
  if (operation->kind == GPU_DISCARD && operation->discard_kind != GPU_DISCARD_KEEP &&
      operation->discard_kind != GPU_DISCARD_UNMAP)
    return false;
  if (operation->kind == GPU_EVENT_RECORD && operation->event == GPU_NO_EVENT) return true;
  if (operation->kind == GPU_EVENT_RECORD || operation->kind == GPU_EVENT_WAIT)
    return operation->event < engine->capacity.events &&
           gpu_events(engine)[operation->event].live;
  return true;
}

static void take_uses(struct gpu_engine *engine, struct gpu_op *op,
                      const struct gpu_operation *operation) {
  /* Free nodes are already linked, and the contents of a free node are never read. So
   * only the link of the last one changes, and the journal need not save the others. */
  uint32_t node = engine->free_use, last = GPU_NONE;
  for (uint32_t i = 0; i < operation->use_count; i++) {
    const struct gpu_use_node *free_node = &gpu_uses(engine)[node];
    ((struct gpu_use_node *)(uintptr_t)free_node)->use = operation->uses[i];
    ((struct gpu_use_node *)(uintptr_t)free_node)->step = GPU_NONE;
    op->blocks += operation->uses[i].block_count;
    last = node;
    node = free_node->next;
  }
  if (last == GPU_NONE) return;
  op->first_use = engine->free_use;
  gpu_use_edit(engine, last)->next = GPU_NONE;
  engine->free_use = node;
  engine->free_use_count -= operation->use_count;
}

static void bind_event(struct gpu_engine *engine, uint32_t index) {
  struct gpu_op *op = gpu_op_edit(engine, index);
  if (op->event == GPU_NO_EVENT) return;
  struct gpu_event *event = gpu_event_edit(engine, op->event);
  event->pending++;
  if (op->kind == GPU_EVENT_RECORD) {
    event->version++;
    event->recorded = 1;
    event->ticket = gpu_ticket(engine, index);
  }
  op->event_version = event->version;
}

int gpu_enqueue(struct gpu_engine *engine, uint32_t stream_number,
                const struct gpu_operation *operation, struct gpu_submitted *out) {
  *out = (struct gpu_submitted){0};
  if (!arguments_valid(engine, stream_number, operation)) return GPU_INVALID;
  if (operation->use_count > engine->capacity.uses) return GPU_FULL;
  const struct gpu_stream *old = &gpu_streams(engine)[stream_number];
  if (old->pending >= GPU_STREAM_QUEUE) {
    out->retry_ns = gpu_op_earliest(engine, old->head);
    return GPU_WAIT;
  }
  bool notes_full = operation->cookie != 0 && gpu_notes_full(engine, old->owner);
  if (engine->free_op_count == 0 || operation->use_count > engine->free_use_count ||
      notes_full) {
    out->retry_ns = gpu_next_event_ns(engine);
    return GPU_WAIT;
  }
  uint32_t index = engine->free_op;
  struct gpu_stream *stream = gpu_stream_edit(engine, stream_number);
  struct gpu_op *op = gpu_op_edit(engine, index);
  engine->free_op = op->next;
  engine->free_op_count--;
  bool names_event =
      operation->kind == GPU_EVENT_RECORD || operation->kind == GPU_EVENT_WAIT;
  *op = (struct gpu_op){
      .next = GPU_NONE,
      .generation = op->generation,
      .stream = stream_number,
      .kind = operation->kind,
      .event = names_event ? operation->event : GPU_NO_EVENT,
      .discard_kind = operation->discard_kind,
      .first_use = GPU_NONE,
      .seq = engine->next_seq++,
      .cookie = operation->cookie,
      .submit_ns = engine->uvm.now_ns,
      .duration_ns = operation->duration_ns,
      .length_bytes = operation->length_bytes,
      .bound_ns = bound_of(&engine->uvm.profile, operation),
  };
  take_uses(engine, op, operation);
  bind_event(engine, index);
  if (gpu_shared(engine) && op->cookie != 0)
    gpu_owner_edit(engine, stream->owner)->outstanding++;
  stream->submitted_ns += op->bound_ns;
  op->ahead_ns = stream->submitted_ns;
  if (stream->head == GPU_NONE) {
    stream->head = index;
    activate(engine, stream_number);
  } else {
    gpu_op_edit(engine, stream->tail)->next = index;
  }
  stream->tail = index;
  stream->pending++;
  gpu_queue_join(engine, index);
  out->ticket = gpu_ticket(engine, index);
  return GPU_OK;
}

void gpu_dequeue(struct gpu_engine *engine, uint32_t index) {
  struct gpu_op *op = gpu_op_edit(engine, index);
  struct gpu_stream *stream = gpu_stream_edit(engine, op->stream);
  if (op->first_use != GPU_NONE) {
    const struct gpu_use_node *nodes = gpu_uses(engine);
    uint32_t last = op->first_use;
    engine->free_use_count++;
    for (; nodes[last].next != GPU_NONE; last = nodes[last].next) engine->free_use_count++;
    gpu_use_edit(engine, last)->next = engine->free_use;
    engine->free_use = op->first_use;
    op->first_use = GPU_NONE;
  }
  if (op->event != GPU_NO_EVENT) gpu_event_edit(engine, op->event)->pending--;
  if (op->in_queue) gpu_queue_leave(engine, index);
  stream->finished_ns += op->bound_ns;
  stream->head = op->next;
  stream->pending--;
  if (stream->head == GPU_NONE) {
    stream->tail = GPU_NONE;
    deactivate(engine, op->stream);
    if (stream->state == GPU_STREAM_DYING) stream->state = GPU_STREAM_FREE;
  }
  if (++op->generation == 0) op->generation = 1;
  op->next = engine->free_op;
  engine->free_op = index;
  engine->free_op_count++;
}

/* Returns the lower bound of the end of an operation at the head of its stream. */
static uint64_t head_earliest(const struct gpu_engine *engine, const struct gpu_op *op) {
  uint64_t now_ns = engine->uvm.now_ns;
  if (op->phase == GPU_PHASE_QUEUED) return now_ns + op->bound_ns;
  if (op->phase == GPU_PHASE_OPEN)
    return op->kind == GPU_HOST ? GPU_NEVER : uvm_max(now_ns, op->complete_ns);
  if (op->kind != GPU_KERNEL && op->kind != GPU_COPY_LOCAL && op->kind != GPU_MEMSET)
    return uvm_max(now_ns, op->next_ns);
  uint32_t computed = op->step + (op->phase == GPU_PHASE_STEP_END ? 1 : 0);
  uint64_t rest_ns =
      op->steps == 0 || computed >= op->steps
          ? 0
          : op->duration_ns - (uint64_t)((double)op->duration_ns * computed / op->steps);
  if (rest_ns > 2) rest_ns -= 2; /* rounding must not make the bound too late */
  return uvm_max(now_ns, op->next_ns) + rest_ns;
}

uint64_t gpu_op_earliest(const struct gpu_engine *engine, uint32_t index) {
  const struct gpu_op *op = &gpu_ops(engine)[index];
  const struct gpu_stream *stream = &gpu_streams(engine)[op->stream];
  const struct gpu_op *head = &gpu_ops(engine)[stream->head];
  uint64_t earliest_ns = head_earliest(engine, head);
  if (earliest_ns == GPU_NEVER || op == head) return earliest_ns;
  return earliest_ns + (op->ahead_ns - head->ahead_ns);
}
