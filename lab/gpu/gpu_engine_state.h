/* gpu_engine_state.h - the state of gpu_engine.h. Internal to the model.
 *
 * The state is one piece of memory: struct gpu_engine, then the tables at the offsets in
 * it. All links are indices; GPU_NONE ends a list. */
#ifndef PUMP_GPU_ENGINE_STATE_H
#define PUMP_GPU_ENGINE_STATE_H

#include "uvm_model.h"

#define GPU_NONE 0xffffffffu
#define GPU_COPY_STEP_BYTES 33554432u

/* Servers: each executes one operation at a time. */
#define GPU_SERVER_COMPUTE 0
#define GPU_SERVER_H2D 1
#define GPU_SERVER_D2H 2
#define GPU_SERVER_LOCAL 3
#define GPU_SERVER_WORKER 4 /* the driver's thread for deferred prefetches */
#define GPU_SERVERS 5

/* Phases of an operation */
#define GPU_PHASE_QUEUED 0
#define GPU_PHASE_SWEEP 1    /* at next_ns: continue the search for missing blocks */
#define GPU_PHASE_STEP 2     /* at next_ns: the blocks of this step are present, compute */
#define GPU_PHASE_STEP_END 3 /* at next_ns: the step has been computed */
#define GPU_PHASE_SLICE 4    /* at next_ns: the worker takes the next slice */
#define GPU_PHASE_OPEN 5     /* ended by a call from outside the model */
#define GPU_PHASE_END 6      /* at next_ns: ends */

#define GPU_STREAM_FREE 0
#define GPU_STREAM_LIVE 1
#define GPU_STREAM_DYING 2

struct gpu_op {
  uint32_t next; /* in its stream, or in the free list */
  uint32_t generation;
  uint32_t stream;
  uint32_t kind;
  uint32_t phase;
  uint32_t event;
  uint32_t event_version;
  uint32_t discard_kind;
  uint32_t first_use; /* head of the list of use nodes */
  uint32_t steps;
  uint32_t step;
  uint32_t cursor_use; /* progress of a deferred prefetch */
  uint32_t cursor_block;
  uint32_t blocks;   /* total of all uses */
  uint32_t in_queue; /* 1: still in its work queue */
  uint32_t queue_next;
  uint32_t queue_previous;
  uint64_t seq;
  uint64_t cookie;
  uint64_t submit_ns;
  uint64_t start_ns;
  uint64_t next_ns;
  uint64_t duration_ns;
  uint64_t length_bytes;
  uint64_t wait_at;     /* end of the transfers it waits for, on their direction's clock */
  uint64_t complete_ns; /* of a prefetch: end of the transfers booked until now */
  /* accesses in place of the current step; host_blocks: of all its uses, at its start */
  double remote_ns, in_bytes, in_link_ns, out_bytes;
  uint32_t host_blocks;
  uint64_t bound_ns; /* least time that it takes */
  uint64_t ahead_ns; /* sum of bound_ns in its stream up to and including its own */
};

struct gpu_use_node {
  struct gpu_use use;
  uint32_t next;
  uint32_t step; /* the step of the operation that `at` refers to, or GPU_NONE */
  uint32_t at;   /* next visit to a block of the use that the step has to check */
};

struct gpu_stream {
  uint32_t state;
  uint32_t flags;
  uint32_t owner;
  uint32_t queue; /* work queue */
  uint32_t head;
  uint32_t tail;
  uint32_t pending;
  uint32_t active_at;    /* index in the list of streams with operations */
  uint64_t submitted_ns; /* sum of bound_ns of all submitted operations */
  uint64_t finished_ns;
};

/* A work queue: operations in order of submission, until each leaves it. */
struct gpu_queue {
  uint32_t first;
  uint32_t last;
};

/* Assigns queues to an owner's next streams. */
struct gpu_feed {
  uint32_t connections;
  uint32_t created[GPU_PRIORITIES]; /* streams created until now */
};

/* Each record of an event makes a new version. A reused slot continues to count. */
struct gpu_event {
  uint32_t live;
  uint32_t pending; /* operations that refer to it */
  uint32_t version;
  uint32_t completed_version;
  uint64_t time_ns;
  uint64_t ticket;   /* of the latest record */
  uint32_t recorded; /* since it was created */
  uint32_t owner;
};

/* The processes that share the GPU. One more entry at the end sums up departed ones. */
struct gpu_owner {
  uint32_t present;
  uint32_t outstanding; /* operations with a cookie that have not started */
  uint32_t notes_head;  /* counts up; the index is this modulo the capacity */
  uint32_t notes_tail;
  uint64_t lost_notes;
  uint64_t plain_bytes;
  uint64_t served_ns[GPU_SERVERS]; /* see gpu_turn() */
  struct gpu_counters counters;    /* until the last gpu_account() to another owner */
};

#define GPU_NOTE_START 1
#define GPU_NOTE_DROP 2

struct gpu_note {
  uint64_t cookie;
  uint64_t ticket;
  uint64_t time_ns;
  uint32_t kind;
  uint32_t block;
};

struct gpu_engine {
  struct gpu_capacity capacity;
  uint32_t active_count;
  uint64_t bytes;
  uint64_t next_seq;
  uint64_t streams_offset; /* all offsets are relative to this struct */
  uint64_t active_offset;
  uint64_t queues_offset;
  uint64_t feeds_offset;
  uint64_t events_offset;
  uint64_t ops_offset;
  uint64_t uses_offset;
  uint64_t owners_offset;
  uint64_t notes_offset;
  uint32_t running[GPU_SERVERS];
  uint32_t free_op;
  uint32_t free_op_count;
  uint32_t free_use;
  uint32_t free_use_count;
  uint32_t event_hint; /* where the search for a free event starts */
  /* used by a shared GPU */
  uint32_t account; /* owner (process) that is charged for changes of uvm.counters */
  uint64_t turn_ns[GPU_SERVERS];
  uint64_t h2d_accounted_ns; /* link busy time that is already charged to an owner */
  uint64_t d2h_accounted_ns;
  struct uvm uvm; /* must be last: see uvm_journal.c */
};

/* Tables are const. To change an entry, get it from its _edit() function, which saves it
 * in the journal first. */
#define GPU_TABLE(type, name, member, edit)                                                \
  static inline const type *name(const struct gpu_engine *engine) {                        \
    return (const type *)((uintptr_t)engine + (uintptr_t)engine->member);                  \
  }                                                                                        \
  static inline type *edit(struct gpu_engine *engine, uint32_t index) {                    \
    type *entry = (type *)((uintptr_t)engine + (uintptr_t)engine->member) + index;         \
    if (engine->uvm.journal_offset != 0)                                                   \
      uvm_journal_save(&engine->uvm, entry, sizeof *entry);                                \
    return entry;                                                                          \
  }
GPU_TABLE(struct gpu_stream, gpu_streams, streams_offset, gpu_stream_edit)
GPU_TABLE(uint32_t, gpu_active, active_offset, gpu_active_edit)
GPU_TABLE(struct gpu_queue, gpu_queues, queues_offset, gpu_queue_edit)
GPU_TABLE(struct gpu_feed, gpu_feeds, feeds_offset, gpu_feed_edit)
GPU_TABLE(struct gpu_event, gpu_events, events_offset, gpu_event_edit)
GPU_TABLE(struct gpu_op, gpu_ops, ops_offset, gpu_op_edit)
GPU_TABLE(struct gpu_use_node, gpu_uses, uses_offset, gpu_use_edit)
GPU_TABLE(struct gpu_owner, gpu_owners, owners_offset, gpu_owner_edit)
GPU_TABLE(struct gpu_note, gpu_notes, notes_offset, gpu_note_edit)
#undef GPU_TABLE

static inline bool gpu_shared(const struct gpu_engine *engine) {
  return engine->capacity.owners != 0;
}

/* Returns how many streams are legacy default streams; they are the first ones. */
static inline uint32_t gpu_legacy_streams(const struct gpu_engine *engine) {
  return gpu_shared(engine) ? engine->capacity.owners : 1;
}

static inline uint64_t gpu_ticket(const struct gpu_engine *engine, uint32_t op) {
  return (uint64_t)gpu_ops(engine)[op].generation << 32 | op;
}

/* Returns the operation of a ticket, or GPU_NONE if it has ended or never existed. */
uint32_t gpu_op_of(const struct gpu_engine *engine, uint64_t ticket);

/* gpu_engine_connections.c: work queues */
#define GPU_OWNER_QUEUES (GPU_PRIORITIES * GPU_CONNECTIONS_MOST)
/* Call it before the owner creates a stream. */
void gpu_feed_reset(struct gpu_engine *engine, uint32_t owner);
/* Returns the queue for a new stream of that owner. */
uint32_t gpu_queue_for(struct gpu_engine *engine, uint32_t owner, uint32_t priority);
void gpu_queue_join(struct gpu_engine *engine, uint32_t op);
void gpu_queue_leave(struct gpu_engine *engine, uint32_t op);
/* Returns whether all earlier operations in its queue left it or wait only for an
 * engine. */
bool gpu_queue_reaches(const struct gpu_engine *engine, const struct gpu_op *op);
/* Returns whether the operation blocks its queue until its end, not only its start. */
bool gpu_kind_holds(uint32_t kind);
/* Returns 0, or the number of the broken invariant. */
int gpu_check_connections(const struct gpu_engine *engine);

/* gpu_engine_locks.c: keeps the driver's locks held until `until_ns`, by a prefetch call
 * or, if `call` is NULL, by the driver's worker */
void gpu_hold_locks(struct gpu_engine *engine, const struct gpu_prefetch_call *call,
                    uint64_t until_ns);

/* gpu_engine_queue.c: adds operations to streams and removes them */
int gpu_enqueue(struct gpu_engine *engine, uint32_t stream,
                const struct gpu_operation *operation, struct gpu_submitted *out);
void gpu_dequeue(struct gpu_engine *engine, uint32_t op);
/* Returns a sound lower bound for the end of an operation. */
uint64_t gpu_op_earliest(const struct gpu_engine *engine, uint32_t op);
bool gpu_stream_usable(const struct gpu_engine *engine, uint32_t stream);
/* Returns whether a new operation in this stream need not wait in stream order. */
bool gpu_stream_clear(const struct gpu_engine *engine, uint32_t stream);

/* gpu_engine_owners.c: does nothing on a GPU that is not shared */
/* Charges the model's counters to this owner, beginning with this call. */
void gpu_account(struct gpu_engine *engine, uint32_t owner);
/* Reports the start of an operation to its owner, by a hook or a note. */
void gpu_tell_start(struct gpu_engine *engine, const struct gpu_hooks *hooks,
                    const struct gpu_op *op, uint64_t ticket);
/* Picks the next stream to serve among those whose heads wait for the same engine as the
 * head of `stream`. Start-time fair queueing (Goyal and others 1996). */
uint32_t gpu_turn(const struct gpu_engine *engine, uint32_t stream, uint64_t time_ns);
/* Counts an owner's time on a server, from an operation's start to its end. */
void gpu_fairness_op_started(struct gpu_engine *engine, uint32_t owner, uint32_t server);
void gpu_fairness_op_ended(struct gpu_engine *engine, uint32_t owner, uint32_t server,
                           uint64_t taken_ns);
/* Returns whether there is no space for the note of another operation with a cookie. */
bool gpu_notes_full(const struct gpu_engine *engine, uint32_t owner);

/* gpu_engine_visits.c: an operation's steps visit the blocks of its uses */
/* Returns whether a kernel may reach any block of the use at any time. */
bool gpu_scattered(const struct gpu_op *op, const struct gpu_use *use);
/* Returns how often each block of a use is visited. */
uint32_t gpu_visits_of(const struct gpu_op *op, const struct gpu_use *use);
/* Returns the first visit (of a use) of step `step`; step `steps` is the end. */
uint32_t gpu_visits_begin(const struct gpu_use *use, const struct gpu_op *op,
                          uint32_t step);
/* Return the block of a visit, and its pages that the visit touches. */
uint32_t gpu_block_of(const struct gpu_op *op, const struct gpu_use *use, uint32_t visit);
uint32_t gpu_pages_of(const struct gpu_op *op, const struct gpu_use *use, uint32_t visit);

/* Accesses in place, on the host: */
/* Counts the operation's blocks on the host. */
void gpu_remote_start(struct gpu_engine *engine, struct gpu_op *op);
/* Adds what the visit accesses in place to the step. */
void gpu_remote_visit(struct gpu_engine *engine, struct gpu_op *op,
                      const struct gpu_use *use, uint32_t visit);
/* Delays the end of the step until its accesses in place have ended. */
void gpu_remote_step(struct gpu_engine *engine, struct gpu_op *op);

/* gpu_engine_run.c: executes operations */
uint32_t gpu_server_of(uint32_t kind);
/* Notes that a prefetch or discard is not complete before `time_ns`. */
void gpu_op_completes(const struct gpu_engine *engine, struct gpu_op *op, uint64_t time_ns);
/* Moves some blocks of a prefetch or discard, for the caller or the driver's worker. */
void gpu_slice(struct gpu_engine *engine, const struct gpu_hooks *hooks,
               const struct gpu_op *op, uint32_t first, uint32_t count, bool first_slice,
               bool two_passes, struct gpu_cost *cost);
/* Returns whether the operation is at the head of its stream and its other dependencies,
 * the legacy stream and events, are done. */
bool gpu_op_ready(const struct gpu_engine *engine, const struct gpu_op *op);
/* Returns the time of the next action of the stream's head; GPU_NEVER if it cannot act. */
uint64_t gpu_head_time(const struct gpu_engine *engine, uint32_t stream);
/* Executes that action; the engine's time must be its time. */
void gpu_head_run(struct gpu_engine *engine, const struct gpu_hooks *hooks,
                  uint32_t stream);

/* gpu_engine_memory.c */
bool gpu_blocks_valid(struct gpu_engine *engine, uint32_t first, uint32_t count);
/* Like gpu_blocks_valid(); counts `error` and returns false if a block is not live. */
bool gpu_blocks_live(struct gpu_engine *engine, uint32_t first, uint32_t count,
                     uint32_t error);

#endif
