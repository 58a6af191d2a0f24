/* gpu_engine_run.c - executes an operation, event by event.
 *
 *   QUEUED -> SWEEP <-> (batches) -> STEP -> STEP_END -> SWEEP ... -> ended
 *   Deferred prefetch or discard:     QUEUED -> SLICE ... -> END -> ended
 *   Host callback, caller's prefetch: QUEUED -> OPEN -> END -> ended
 *   Record, wait:                     QUEUED -> ended */
#include "gpu_engine_state.h"

uint32_t gpu_server_of(uint32_t kind) {
  switch (kind) {
  case GPU_KERNEL:
    return GPU_SERVER_COMPUTE;
  case GPU_COPY_H2D:
    return GPU_SERVER_H2D;
  case GPU_COPY_D2H:
    return GPU_SERVER_D2H;
  case GPU_COPY_LOCAL:
  case GPU_MEMSET:
    return GPU_SERVER_LOCAL;
  case GPU_PREFETCH_IN:
  case GPU_PREFETCH_OUT:
  case GPU_DISCARD:
    return GPU_SERVER_WORKER;
  default:
    return GPU_NONE;
  }
}

bool gpu_op_ready(const struct gpu_engine *engine, const struct gpu_op *op) {
  const struct gpu_stream *streams = gpu_streams(engine);
  const struct gpu_op *ops = gpu_ops(engine);
  if (&ops[streams[op->stream].head] != op) return false;
  uint32_t owner = streams[op->stream].owner;
  const struct gpu_stream *legacy = &streams[owner];
  if (op->stream == owner) {
    for (uint32_t i = 0; i < engine->active_count; i++) {
      const struct gpu_stream *other = &streams[gpu_active(engine)[i]];
      if (other != legacy && other->owner == owner &&
          other->flags != GPU_STREAM_NONBLOCKING && ops[other->head].seq < op->seq)
        return false;
    }
  } else if (streams[op->stream].flags != GPU_STREAM_NONBLOCKING &&
             legacy->head != GPU_NONE && ops[legacy->head].seq < op->seq) {
    return false;
  }
  if (op->kind != GPU_EVENT_WAIT) return true;
  return gpu_events(engine)[op->event].completed_version >= op->event_version;
}

uint64_t gpu_head_time(const struct gpu_engine *engine, uint32_t stream) {
  const struct gpu_op *op = &gpu_ops(engine)[gpu_streams(engine)[stream].head];
  if (op->phase == GPU_PHASE_OPEN) return GPU_NEVER;
  if (op->phase != GPU_PHASE_QUEUED) return op->next_ns;
  uint32_t server = gpu_server_of(op->kind);
  if (server != GPU_NONE && engine->running[server] != GPU_NONE) return GPU_NEVER;
  if (!gpu_op_ready(engine, op) || !gpu_queue_reaches(engine, op)) return GPU_NEVER;
  uint64_t ready_ns = op->submit_ns;
  if (op->kind == GPU_KERNEL) ready_ns += uvm_ns(engine->uvm.profile.launch_us);
  return uvm_max(ready_ns, engine->uvm.now_ns);
}

static void release_server(struct gpu_engine *engine, const struct gpu_op *op,
                           uint32_t server) {
  engine->running[server] = GPU_NONE;
  gpu_fairness_op_ended(engine, gpu_streams(engine)[op->stream].owner, server,
                        engine->uvm.now_ns - op->start_ns);
}

static void finish(struct gpu_engine *engine, const struct gpu_hooks *hooks,
                   struct gpu_op *op) {
  uint32_t index = (uint32_t)(op - gpu_ops(engine));
  uint32_t server = gpu_server_of(op->kind);
  uint32_t owner = gpu_streams(engine)[op->stream].owner;
  if (server != GPU_NONE && engine->running[server] == index)
    release_server(engine, op, server);
  uint64_t ticket = gpu_ticket(engine, index), cookie = op->cookie, start_ns = op->start_ns;
  gpu_dequeue(engine, index);
  if (hooks && hooks->finish && owner == engine->uvm.actor)
    hooks->finish(hooks->context, cookie, ticket, start_ns, engine->uvm.now_ns);
}

static const struct gpu_use_node *cursor_node(const struct gpu_engine *engine,
                                              const struct gpu_op *op) {
  return op->cursor_use == GPU_NONE ? NULL : &gpu_uses(engine)[op->cursor_use];
}

/* Returns true if what the visit touches is on the GPU, in flight to it, or mapped on the
 * host; else fills `miss`. */
static bool is_present(struct uvm *uvm, struct gpu_op *op, const struct gpu_use *use,
                       uint32_t visit, struct uvm_miss *miss) {
  uint32_t block = gpu_block_of(op, use, visit);
  const struct uvm_block *b = &uvm_blocks(uvm)[block];
  if (!(b->flags & UVM_LIVE)) {
    uvm_error(uvm, GPU_ERROR_USE_OF_FREED, block);
    return true;
  }
  uint32_t pages = gpu_pages_of(op, use, visit) & ~uvm_in_place(uvm, b);
  if (pages == 0) return true;
  /* Duplicates, and discarded pages that were only read since, are mapped read-only. */
  uint32_t access = use->access & (GPU_READ | GPU_WRITE);
  bool refused = access != GPU_READ &&
                 (b->discard == GPU_DISCARD_UNMAP || (pages & b->host_pages) != 0);
  if ((pages & ~b->gpu_pages) != 0 || refused) {
    *miss = (struct uvm_miss){.block = block, .pages = pages, .access = access};
    return false;
  }
  op->wait_at = uvm_max(op->wait_at, b->ready_at);
  return true;
}

static bool in_batch(const struct uvm_miss *misses, uint32_t count, uint32_t block) {
  for (uint32_t i = 0; i < count; i++)
    if (misses[i].block == block) return true;
  return false;
}

/* Returns the number of faults of the miss. A write to a page that is or will be a
 * duplicate faults per 4 KiB. The miss keeps only as many such pages as the batch has
 * `places` for; `rest`: some were left out. */
static uint32_t faults_of(const struct uvm *uvm, struct uvm_miss *miss, uint32_t places,
                          bool *rest) {
  const struct uvm_block *b = &uvm_blocks(uvm)[miss->block];
  uint32_t missing = miss->pages & ~b->gpu_pages;
  *rest = false;
  bool remote = uvm->capacity_blocks == uvm->plain_blocks; /* pages cannot migrate */
  if (!(b->flags & UVM_READ_MOSTLY) || miss->access == GPU_READ || remote)
    return (uint32_t)__builtin_popcount(missing);
  uint32_t left = (missing & b->data_pages) | (miss->pages & b->host_pages), kept = 0;
  uint32_t faults = (uint32_t)__builtin_popcount(missing & ~b->data_pages);
  miss->pages &= ~left;
  for (; left != 0 && faults + UVM_COLLAPSE_FAULTS <= places; left &= left - 1) {
    kept |= left & -left;
    faults += UVM_COLLAPSE_FAULTS;
  }
  miss->pages |= kept;
  *rest = left != 0;
  return faults;
}

/* Keeps the progress made within an operation, if the journal fills up. */
static void checkpoint(struct gpu_engine *engine, const struct gpu_op *op) {
  if (!uvm_journal_filling(&engine->uvm)) return;
  uvm_checkpoint(&engine->uvm);
  (void)gpu_op_edit(engine, (uint32_t)(op - gpu_ops(engine)));
}

/* A batch of faults. */
struct batch {
  struct uvm_miss misses[UVM_BATCH_FAULTS];
  uint32_t count, faults;
  uint32_t most_blocks;
};

/* Returns whether an operation reaches many blocks of this use at once. Memory that
 * cannot migrate is read in place, so it counts as wide. */
static bool is_wide(const struct uvm *uvm, const struct gpu_op *op,
                    const struct gpu_use *use) {
  return op->kind != GPU_KERNEL || gpu_scattered(op, use) ||
         uvm->capacity_blocks == uvm->plain_blocks;
}

/* Accepts the miss stored after the batch's last one; returns whether the batch covers all
 * of it. */
static bool add_miss(const struct uvm *uvm, struct batch *batch, bool wide) {
  struct uvm_miss *miss = &batch->misses[batch->count];
  if (in_batch(batch->misses, batch->count, miss->block)) return false;
  uint32_t missing = miss->pages & ~uvm_blocks(uvm)[miss->block].gpu_pages;
  if (!wide && missing != 0) miss->pages = missing & -missing;
  bool rest;
  uint32_t faults = faults_of(uvm, miss, UVM_BATCH_FAULTS - batch->faults, &rest);
  if (rest && faults == 0) return false; /* needs its own batch */
  batch->faults += faults;
  batch->count++;
  return wide && !rest;
}

static bool is_full(const struct batch *batch) {
  return batch->count == batch->most_blocks || batch->faults >= UVM_BATCH_FAULTS;
}

/* Continues through the step's blocks of one use until the batch is full, a block must be
 * checked again, or all have been checked. */
static void collect_use(struct gpu_engine *engine, struct gpu_op *op, uint32_t index,
                        struct batch *batch) {
  struct uvm *uvm = &engine->uvm;
  const struct gpu_use_node *node = &gpu_uses(engine)[index];
  const struct gpu_use *use = &node->use;
  bool wide = is_wide(uvm, op, use);
  uint32_t end = gpu_visits_begin(use, op, op->step + 1);
  uint32_t at = node->step == op->step ? node->at : gpu_visits_begin(use, op, op->step);
  for (; at < end && !is_full(batch); at++) {
    struct uvm_miss *miss = &batch->misses[batch->count];
    if (!is_present(uvm, op, use, at, miss) && !add_miss(uvm, batch, wide)) break;
    gpu_remote_visit(engine, op, use, at);
  }
  if (node->step == op->step && node->at == at) return;
  checkpoint(engine, op);
  struct gpu_use_node *edited = gpu_use_edit(engine, index);
  edited->step = op->step;
  edited->at = at;
}

/* Makes the next batch of this step; it is empty once all blocks have arrived. */
static void collect(struct gpu_engine *engine, struct gpu_op *op, struct batch *batch) {
  struct uvm *uvm = &engine->uvm;
  uint32_t pool = uvm->capacity_blocks - uvm->plain_blocks;
  batch->count = batch->faults = 0;
  batch->most_blocks = op->kind == GPU_KERNEL ? UVM_BATCH_FAULTS : 1;
  if (pool > 0 && pool < batch->most_blocks) batch->most_blocks = pool;
  for (uint32_t i = op->first_use; i != GPU_NONE && !is_full(batch);
       i = gpu_uses(engine)[i].next)
    collect_use(engine, op, i, batch);
}

/* Returns whether a transfer that should have ended by now has not: the other direction
 * has slowed it (uvm_link.h). Then the operation continues to wait. */
static bool waits_on(struct gpu_engine *engine, struct gpu_op *op, uint32_t way) {
  uint64_t end_ns = uvm_link_time(&engine->uvm.links, way, op->wait_at);
  if (end_ns <= engine->uvm.now_ns) return false;
  op->next_ns = end_ns;
  return true;
}

static bool is_link_copy(const struct gpu_op *op) {
  return op->kind == GPU_COPY_H2D || op->kind == GPU_COPY_D2H;
}

static uint32_t way_of(const struct gpu_op *op) {
  return op->kind == GPU_COPY_D2H || op->kind == GPU_PREFETCH_OUT ? UVM_LINK_OUT
                                                                  : UVM_LINK_IN;
}

/* Counts and reports a stall: the operation waits for faults or for pages in flight. */
static void count_stall(struct gpu_engine *engine, const struct gpu_hooks *hooks,
                        const struct gpu_op *op, bool fault) {
  struct gpu_counters *counters = &engine->uvm.counters;
  uint64_t *stall_ns = op->kind != GPU_KERNEL ? &counters->copy_stall_ns
                       : fault                ? &counters->stall_fault_ns
                                              : &counters->stall_arrival_ns;
  *stall_ns += op->next_ns - engine->uvm.now_ns;
  if (hooks && hooks->stall)
    hooks->stall(hooks->context, gpu_ticket(engine, (uint32_t)(op - gpu_ops(engine))),
                 fault, engine->uvm.now_ns, op->next_ns);
}

/* Returns whether a block of this step has not arrived; counts the stall. */
static bool wait_for_arrival(struct gpu_engine *engine, const struct gpu_hooks *hooks,
                             struct gpu_op *op) {
  if (!waits_on(engine, op, UVM_LINK_IN)) return false;
  count_stall(engine, hooks, op, false);
  return true;
}

void gpu_op_completes(const struct gpu_engine *engine, struct gpu_op *op,
                      uint64_t time_ns) {
  op->complete_ns = uvm_max(op->complete_ns, time_ns);
  op->wait_at = uvm_max(op->wait_at, uvm_link_at(&engine->uvm.links, way_of(op), time_ns));
}

static void sweep(struct gpu_engine *engine, const struct gpu_hooks *hooks,
                  struct gpu_op *op) {
  struct batch batch;
  struct uvm *uvm = &engine->uvm;
  bool kernel = op->kind == GPU_KERNEL;
  collect(engine, op, &batch);
  if (batch.count > 0) {
    op->next_ns = uvm_fault_batch(uvm, hooks, batch.misses, batch.count, kernel);
    count_stall(engine, hooks, op, true);
    return; /* continues after the replay */
  }
  op->phase = GPU_PHASE_STEP;
  op->next_ns = uvm->now_ns;
  wait_for_arrival(engine, hooks, op);
}

/* Returns this step's part of `whole`; the parts add up exactly. */
static uint64_t step_part(const struct gpu_op *op, uint64_t whole) {
  uint64_t quotient = whole / op->steps, rest = whole % op->steps;
  return quotient + (rest * (op->step + 1)) / op->steps - (rest * op->step) / op->steps;
}

static void compute_step(struct gpu_engine *engine, struct gpu_op *op) {
  struct uvm *uvm = &engine->uvm;
  const struct uvm_profile *profile = &uvm->profile;
  op->phase = GPU_PHASE_STEP_END;
  if (!is_link_copy(op)) {
    uint64_t part_ns = step_part(op, op->duration_ns);
    op->next_ns = uvm->now_ns + part_ns;
    if (op->kind == GPU_KERNEL) uvm->counters.compute_busy_ns += part_ns;
    gpu_remote_step(engine, op);
    return;
  }
  bool in = op->kind == GPU_COPY_H2D;
  uint64_t length_bytes = step_part(op, op->length_bytes);
  op->next_ns =
      uvm_link_book(&uvm->links, way_of(op), uvm->now_ns, uvm->now_ns, length_bytes,
                    in ? profile->copy_h2d_gbps : profile->copy_d2h_gbps);
  op->wait_at = uvm_link_at(&uvm->links, way_of(op), op->next_ns);
  *(in ? &uvm->counters.h2d_copy_bytes : &uvm->counters.d2h_copy_bytes) += length_bytes;
  gpu_remote_step(engine, op);
}

static void start_sweep(struct gpu_engine *engine, const struct gpu_hooks *hooks,
                        struct gpu_op *op) {
  uint32_t most = 1;
  for (uint32_t n = op->first_use; n != GPU_NONE; n = gpu_uses(engine)[n].next)
    if (gpu_uses(engine)[n].use.block_count > most)
      most = gpu_uses(engine)[n].use.block_count;
  op->steps = most < GPU_KERNEL_STEPS ? most : GPU_KERNEL_STEPS;
  if (is_link_copy(op)) op->steps = (uint32_t)(op->length_bytes / GPU_COPY_STEP_BYTES) + 1;
  if (op->kind == GPU_KERNEL)
    engine->uvm.counters.kernels++;
  else
    engine->uvm.counters.copies++;
  gpu_remote_start(engine, op);
  op->phase = GPU_PHASE_SWEEP;
  sweep(engine, hooks, op);
}

void gpu_slice(struct gpu_engine *engine, const struct gpu_hooks *hooks,
               const struct gpu_op *op, uint32_t first, uint32_t count, bool first_slice,
               bool two_passes, struct gpu_cost *cost) {
  struct uvm *uvm = &engine->uvm;
  if (op->kind == GPU_PREFETCH_IN)
    uvm_prefetch_in(uvm, hooks, first, count, first_slice, two_passes, cost);
  else if (op->kind == GPU_PREFETCH_OUT)
    uvm_prefetch_out(uvm, hooks, first, count, first_slice, two_passes, cost);
  else
    uvm_discard(uvm, hooks, first, count, op->discard_kind, first_slice, cost);
}

/* Moves up to a slice of blocks of one use, in the worker. */
static void run_slice(struct gpu_engine *engine, const struct gpu_hooks *hooks,
                      struct gpu_op *op) {
  struct uvm *uvm = &engine->uvm;
  const struct gpu_use_node *node = cursor_node(engine, op);
  while (node && op->cursor_block >= node->use.block_count) {
    op->cursor_use = node->next;
    op->cursor_block = 0;
    node = cursor_node(engine, op);
  }
  if (!node) {
    release_server(engine, op, GPU_SERVER_WORKER); /* its copies may continue */
    op->phase = GPU_PHASE_END;
    op->next_ns = uvm_max(uvm->now_ns, op->complete_ns);
    return;
  }
  uint32_t first = node->use.first_block + op->cursor_block;
  uint32_t count = node->use.block_count - op->cursor_block;
  if (count > GPU_PREFETCH_SLICE_BLOCKS) count = GPU_PREFETCH_SLICE_BLOCKS;
  bool first_slice = op->cursor_use == op->first_use && op->cursor_block == 0;
  op->cursor_block += count;
  op->phase = GPU_PHASE_SLICE;
  op->next_ns = uvm->now_ns;
  if (!gpu_blocks_live(engine, first, count, GPU_ERROR_COMMAND_ON_FREED)) return;
  struct gpu_cost cost;
  gpu_slice(engine, hooks, op, first, count, first_slice, op->blocks > 1, &cost);
  gpu_hold_locks(engine, NULL, cost.caller_free_ns);
  op->next_ns = cost.caller_free_ns;
  gpu_op_completes(engine, op, cost.complete_ns);
}

static void record_event(struct gpu_engine *engine, const struct gpu_op *op) {
  if (op->event == GPU_NO_EVENT) return;
  if (op->event_version <= gpu_events(engine)[op->event].completed_version)
    return; /* a later record completed first */
  struct gpu_event *event = gpu_event_edit(engine, op->event);
  event->completed_version = op->event_version;
  event->time_ns = engine->uvm.now_ns;
}

static void start(struct gpu_engine *engine, const struct gpu_hooks *hooks,
                  struct gpu_op *op) {
  uint32_t index = (uint32_t)(op - gpu_ops(engine));
  uint32_t server = gpu_server_of(op->kind);
  if (server != GPU_NONE) {
    engine->running[server] = index;
    gpu_fairness_op_started(engine, gpu_streams(engine)[op->stream].owner, server);
  }
  op->start_ns = op->next_ns = engine->uvm.now_ns;
  if (!gpu_kind_holds(op->kind)) gpu_queue_leave(engine, index);
  gpu_tell_start(engine, hooks, op, gpu_ticket(engine, index));
  switch (op->kind) {
  case GPU_PREFETCH_IN:
  case GPU_PREFETCH_OUT:
  case GPU_DISCARD:
    op->cursor_use = op->first_use;
    run_slice(engine, hooks, op);
    return;
  case GPU_HOST:
    op->phase = GPU_PHASE_OPEN;
    return;
  case GPU_EVENT_RECORD:
    record_event(engine, op);
    break;
  case GPU_EVENT_WAIT:
    break;
  default:
    start_sweep(engine, hooks, op);
    return;
  }
  finish(engine, hooks, op);
}

void gpu_head_run(struct gpu_engine *engine, const struct gpu_hooks *hooks,
                  uint32_t stream) {
  struct gpu_op *op = gpu_op_edit(engine, gpu_streams(engine)[stream].head);
  gpu_account(engine, gpu_streams(engine)[stream].owner);
  switch (op->phase) {
  case GPU_PHASE_QUEUED:
    start(engine, hooks, op);
    return;
  case GPU_PHASE_SWEEP:
    sweep(engine, hooks, op);
    return;
  case GPU_PHASE_STEP:
    if (!wait_for_arrival(engine, hooks, op)) compute_step(engine, op);
    return;
  case GPU_PHASE_SLICE:
    run_slice(engine, hooks, op);
    return;
  case GPU_PHASE_STEP_END:
    if ((is_link_copy(op) || op->host_blocks != 0) && waits_on(engine, op, way_of(op)))
      return;
    if (++op->step < op->steps) {
      op->phase = GPU_PHASE_SWEEP;
      op->wait_at = 0;
      sweep(engine, hooks, op);
      return;
    }
    break;
  default: /* END */
    if ((op->kind == GPU_PREFETCH_IN || op->kind == GPU_PREFETCH_OUT) &&
        waits_on(engine, op, way_of(op)))
      return;
    break;
  }
  finish(engine, hooks, op);
}
