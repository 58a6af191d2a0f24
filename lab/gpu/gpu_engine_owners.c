/* gpu_engine_owners.c - a GPU that several processes share: its live processes, their
 * turns, counters and waiting notes. Also returns the counters of a GPU with one process.
 * See gpu_engine.h. */
#include <string.h>

#include "gpu_engine_state.h"

/* -- counters -- */

/* Adds counters. Members up to `errors` are sums; the last error is the newest known. */
static void add(struct gpu_counters *sum, const struct gpu_counters *more) {
  uint64_t *to = (uint64_t *)sum;
  const uint64_t *from = (const uint64_t *)more;
  for (size_t i = 0; i < sizeof *sum / sizeof *to; i++)
    if (i != offsetof(struct gpu_counters, last_error) / sizeof *to) to[i] += from[i];
  if (more->last_error == GPU_ERROR_NONE) return;
  sum->last_error = more->last_error;
  sum->last_error_block = more->last_error_block;
}
_Static_assert(offsetof(struct gpu_counters, last_error) % 8 == 0 &&
                   offsetof(struct gpu_counters, last_error_block) ==
                       offsetof(struct gpu_counters, last_error) + 4,
               "the two of the last error are one word");

/* Returns the counters of the owner that uvm.counters belong to, including the links'
 * busy time since the last change of account. */
static void current(const struct gpu_engine *engine, struct gpu_counters *out) {
  *out = engine->uvm.counters;
  out->h2d_busy_ns +=
      engine->uvm.links.ways[UVM_LINK_IN].busy_ns - engine->h2d_accounted_ns;
  out->d2h_busy_ns +=
      engine->uvm.links.ways[UVM_LINK_OUT].busy_ns - engine->d2h_accounted_ns;
}

void gpu_account(struct gpu_engine *engine, uint32_t owner) {
  if (!gpu_shared(engine) || engine->account == owner) return;
  current(engine, &gpu_owner_edit(engine, engine->account)->counters);
  engine->h2d_accounted_ns = engine->uvm.links.ways[UVM_LINK_IN].busy_ns;
  engine->d2h_accounted_ns = engine->uvm.links.ways[UVM_LINK_OUT].busy_ns;
  engine->uvm.counters = gpu_owners(engine)[owner].counters;
  engine->account = owner;
}

static void counters_of(const struct gpu_engine *engine, uint32_t owner,
                        struct gpu_counters *out) {
  if (owner == engine->account)
    current(engine, out);
  else
    *out = gpu_owners(engine)[owner].counters;
}

void gpu_counters_get(const struct gpu_engine *engine, struct gpu_counters *out) {
  if (!gpu_shared(engine)) {
    current(engine, out);
    return;
  }
  memset(out, 0, sizeof *out);
  for (uint32_t i = 0; i <= engine->capacity.owners; i++) {
    struct gpu_counters counters;
    counters_of(engine, i, &counters);
    add(out, &counters);
  }
}

/* -- turns -- */

uint32_t gpu_turn(const struct gpu_engine *engine, uint32_t stream, uint64_t time_ns) {
  const struct gpu_stream *streams = gpu_streams(engine);
  const struct gpu_op *head = &gpu_ops(engine)[streams[stream].head];
  uint32_t server = gpu_server_of(head->kind);
  if (head->phase != GPU_PHASE_QUEUED || server == GPU_NONE) return stream;
  uint64_t best_ns = GPU_NEVER, best_seq = GPU_NEVER;
  for (uint32_t i = 0; i < engine->active_count; i++) {
    uint32_t other = gpu_active(engine)[i];
    const struct gpu_op *op = &gpu_ops(engine)[streams[other].head];
    /* An operation that takes no time goes first: an event recorded between two kernels
     * must not cost its process a turn. */
    if (op->phase == GPU_PHASE_QUEUED && gpu_server_of(op->kind) == GPU_NONE &&
        gpu_head_time(engine, other) == time_ns)
      return other;
    if (op->phase != GPU_PHASE_QUEUED || gpu_server_of(op->kind) != server) continue;
    if (gpu_head_time(engine, other) != time_ns) continue;
    uint64_t turn_ns = uvm_max(gpu_owners(engine)[streams[other].owner].served_ns[server],
                               engine->turn_ns[server]);
    if (turn_ns > best_ns || (turn_ns == best_ns && op->seq > best_seq)) continue;
    best_ns = turn_ns;
    best_seq = op->seq;
    stream = other;
  }
  return stream;
}

void gpu_fairness_op_started(struct gpu_engine *engine, uint32_t owner, uint32_t server) {
  if (!gpu_shared(engine)) return;
  uint64_t *served_ns = &gpu_owner_edit(engine, owner)->served_ns[server];
  *served_ns = engine->turn_ns[server] = uvm_max(*served_ns, engine->turn_ns[server]);
}

void gpu_fairness_op_ended(struct gpu_engine *engine, uint32_t owner, uint32_t server,
                           uint64_t taken_ns) {
  if (gpu_shared(engine)) gpu_owner_edit(engine, owner)->served_ns[server] += taken_ns;
}

/* -- notes -- */

static uint32_t waiting(const struct gpu_owner *owner) {
  return owner->notes_tail - owner->notes_head;
}

/* Space is reserved when an operation is accepted, so the note of its start always fits. */
bool gpu_notes_full(const struct gpu_engine *engine, uint32_t owner) {
  if (!gpu_shared(engine)) return false;
  const struct gpu_owner *o = &gpu_owners(engine)[owner];
  return waiting(o) + o->outstanding >= engine->capacity.notes;
}

static void leave_note(struct gpu_engine *engine, uint32_t owner,
                       const struct gpu_note *note) {
  struct gpu_owner *o = gpu_owner_edit(engine, owner);
  uint32_t place = o->notes_tail++ & (engine->capacity.notes - 1);
  *gpu_note_edit(engine, owner * engine->capacity.notes + place) = *note;
}

void gpu_tell_start(struct gpu_engine *engine, const struct gpu_hooks *hooks,
                    const struct gpu_op *op, uint64_t ticket) {
  uint32_t owner = gpu_streams(engine)[op->stream].owner;
  if (gpu_shared(engine) && op->cookie != 0) gpu_owner_edit(engine, owner)->outstanding--;
  if (owner == engine->uvm.actor) {
    if (hooks && hooks->start)
      hooks->start(hooks->context, op->cookie, ticket, op->start_ns);
  } else if (op->cookie != 0) {
    struct gpu_note note = {.cookie = op->cookie,
                            .ticket = ticket,
                            .time_ns = op->start_ns,
                            .kind = GPU_NOTE_START};
    leave_note(engine, owner, &note);
  }
}

void gpu_note_drop(struct uvm *uvm, uint32_t block) {
  struct gpu_engine *engine =
      (struct gpu_engine *)((uintptr_t)uvm - offsetof(struct gpu_engine, uvm));
  uint32_t owner = block / uvm->owner_blocks;
  struct gpu_note note = {.kind = GPU_NOTE_DROP, .block = block};
  if (gpu_notes_full(engine, owner))
    gpu_owner_edit(engine, owner)->lost_notes++;
  else
    leave_note(engine, owner, &note);
}

void gpu_notes_deliver(struct gpu_engine *engine, const struct gpu_hooks *hooks) {
  if (!gpu_shared(engine)) return;
  uint32_t actor = engine->uvm.actor, notes = engine->capacity.notes;
  const struct gpu_owner *owner = &gpu_owners(engine)[actor];
  if (waiting(owner) == 0) return;
  for (uint32_t at = owner->notes_head; at != owner->notes_tail; at++) {
    const struct gpu_note *note = &gpu_notes(engine)[actor * notes + (at & (notes - 1))];
    if (note->kind == GPU_NOTE_START && hooks && hooks->start)
      hooks->start(hooks->context, note->cookie, note->ticket, note->time_ns);
    if (note->kind == GPU_NOTE_DROP && hooks && hooks->drop)
      hooks->drop(hooks->context, note->block);
  }
  gpu_owner_edit(engine, actor)->notes_head = owner->notes_tail;
}

/* -- owners join and leave -- */

int gpu_lock_taken(struct gpu_engine *engine, uint32_t actor) {
  bool undone = uvm_journal_undo(&engine->uvm);
  uvm_journal_arm(&engine->uvm);
  engine->uvm.actor = actor;
  return undone;
}

void gpu_lock_given(struct gpu_engine *engine) {
  uvm_journal_commit(&engine->uvm);
}

int gpu_owner_join(struct gpu_engine *engine) {
  for (uint32_t i = 0; i < engine->capacity.owners; i++) {
    if (gpu_owners(engine)[i].present) continue;
    *gpu_owner_edit(engine, i) = (struct gpu_owner){.present = 1};
    gpu_stream_edit(engine, i)->state = GPU_STREAM_LIVE;
    gpu_feed_reset(engine, i);
    return (int)i;
  }
  return GPU_FULL;
}

/* Lets operations continue that wait for a record that was cancelled. */
static void release_waits(struct gpu_engine *engine, const struct gpu_op *op) {
  if (op->kind != GPU_EVENT_RECORD || op->event == GPU_NO_EVENT) return;
  if (gpu_events(engine)[op->event].completed_version < op->event_version)
    gpu_event_edit(engine, op->event)->completed_version = op->event_version;
}

static void cancel(struct gpu_engine *engine, uint32_t stream) {
  while (gpu_streams(engine)[stream].head != GPU_NONE) {
    uint32_t head = gpu_streams(engine)[stream].head;
    release_waits(engine, &gpu_ops(engine)[head]);
    for (uint32_t server = 0; server < GPU_SERVERS; server++)
      if (engine->running[server] == head) engine->running[server] = GPU_NONE;
    gpu_dequeue(engine, head);
    uvm_checkpoint(&engine->uvm);
  }
  if (gpu_streams(engine)[stream].state == GPU_STREAM_FREE) return;
  gpu_stream_edit(engine, stream)->state = GPU_STREAM_FREE;
}

/* May be interrupted at any point and repeated: a leaving owner stays present until
 * everything that it owned is gone. */
void gpu_owner_leave(struct gpu_engine *engine, uint64_t now_ns,
                     const struct gpu_hooks *hooks, uint32_t owner) {
  if (owner >= engine->capacity.owners || !gpu_owners(engine)[owner].present) return;
  gpu_advance(engine, now_ns, hooks);
  struct uvm *uvm = &engine->uvm;
  for (uint32_t i = 0; i < engine->capacity.streams; i++)
    if (gpu_streams(engine)[i].owner == owner) cancel(engine, i);
  for (uint32_t i = 0; i < engine->capacity.events; i++) {
    if (gpu_events(engine)[i].owner != owner || !gpu_events(engine)[i].live) continue;
    gpu_event_edit(engine, i)->live = 0;
    if (uvm_journal_filling(uvm)) uvm_checkpoint(uvm);
  }
  gpu_account(engine, owner);
  for (uint32_t i = owner * uvm->owner_blocks; i < (owner + 1) * uvm->owner_blocks; i++) {
    uint64_t complete_ns = 0;
    if (!(uvm_blocks(uvm)[i].flags & UVM_LIVE)) continue;
    uvm_free_block(uvm, i, &complete_ns);
    if (uvm_journal_filling(uvm)) uvm_checkpoint(uvm);
  }
  gpu_account(engine, engine->capacity.owners);
  add(&uvm->counters, &gpu_owners(engine)[owner].counters);
  struct gpu_owner *leaver = gpu_owner_edit(engine, owner);
  uvm_plain_release(uvm, leaver->plain_bytes);
  *leaver = (struct gpu_owner){0};
  gpu_account(engine, uvm->actor == owner ? engine->capacity.owners : uvm->actor);
  uvm_checkpoint(uvm);
}

int gpu_owner_get(const struct gpu_engine *engine, uint32_t owner,
                  struct gpu_owner_info *out) {
  if (owner >= engine->capacity.owners || !gpu_owners(engine)[owner].present)
    return GPU_INVALID;
  const struct gpu_owner *o = &gpu_owners(engine)[owner];
  *out = (struct gpu_owner_info){
      .plain_bytes = o->plain_bytes,
      .resident_bytes = (uint64_t)engine->uvm.held[owner] * GPU_BLOCK_BYTES,
      .lost_notes = o->lost_notes,
  };
  counters_of(engine, owner, &out->counters);
  return GPU_OK;
}
