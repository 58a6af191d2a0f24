/* timeline.h - the model of the GPU under the driver's lock: streams, events, effects. */
#ifndef PUMP_VIRTUAL_TIMELINE_H
#define PUMP_VIRTUAL_TIMELINE_H

#include "lab/driver/card/card.h"

struct vd_capture;
struct vd_graph;
struct vd_node;

/* Nodes of one graph; the struct owns both arrays. */
struct vd_nodes {
  struct vd_node **nodes;
  CUgraphEdgeData *edges; /* data of edges to the nodes; all zeros */
  size_t count;
};

struct vd_stream {
  uint32_t magic;
  uint32_t number; /* number in the engine */
  uint64_t id;
  struct vd_context *context;
  unsigned int flags;
  struct vd_settings settings;
  uint64_t last_ticket; /* ticket of the newest submission */
  struct vd_capture *capture;
  struct vd_nodes tail; /* dependencies of the next captured node */
  struct vd_stream *next, **link;
};

struct vd_event {
  uint32_t magic;
  uint32_t number; /* number in the engine */
  unsigned int flags;
  bool recorded;
  bool foreign;     /* another process created it; this one opened it */
  uint64_t ticket;  /* ticket of the last record */
  uint64_t actions; /* actions emitted before the last record ended */
  struct vd_context *context;
  struct vd_capture *capture; /* the capture of the stream that recorded it */
  struct vd_nodes tail;       /* nodes that the record in the capture depends on */
};

/* A capture in progress, and the graph that it fills. */
struct vd_capture {
  struct vd_stream *origin;
  struct vd_graph *graph;
  pthread_t thread;
  uint64_t id;
  int mode;
  bool invalid;
  bool borrowed;        /* the program owns the graph */
  struct vd_nodes left; /* tails of destroyed streams */
  struct vd_capture *next;
};

/* All live streams, and the legacy default stream. */
extern struct vd_streams {
  struct vd_stream *first, legacy;
} vd_streams;

/* Which thread executes an action (actions.c), and how. */
enum vd_manner {
  VD_APART,   /* any thread, without the lock */
  VD_PROGRAM, /* the driver's own thread, without the lock: a function of the program */
  VD_LOCKED,  /* any thread, with the lock */
  VD_POLLED,  /* the driver's own thread calls `run` until it returns true */
};

/* An effect on data. `run` gets `what`, a copy of the data given to vd_action_new(). */
#define VD_ACTION_BYTES 88
typedef bool (*vd_effect_fn)(const void *what);
struct vd_action {
  enum vd_manner manner;
  bool ends_operation; /* ends a GPU_HOST operation: gpu_complete() follows */
  vd_effect_fn run;
  uint64_t ticket;
  void *owned; /* freed with the action */
  struct vd_action *next;
  uint64_t what[VD_ACTION_BYTES / 8];
};

/* timeline.c. Call *_locked with the lock; waits release it for their duration. */
CUresult vd_timeline_start(void);
int vd_worker_start_locked(void); /* starts the actions' thread; -1: failed */
void vd_on_start(void *context, uint64_t cookie, uint64_t ticket, uint64_t time_ns);
static inline uint64_t vd_block_address(uint32_t block) {
  return vd.managed.base + (uint64_t)(block - vd.first_block) * GPU_BLOCK_BYTES;
}
/* Submits an operation; waits while the launch queue is full. `action` may be NULL. */
CUresult vd_submit_locked(struct vd_stream *stream, struct gpu_operation *operation,
                          struct vd_action *action);
CUresult vd_wait_stream_locked(struct vd_stream *stream);
/* Waits for all work submitted until now, in all contexts or, unless NULL, in one. */
CUresult vd_wait_device_locked(void);
CUresult vd_wait_context_locked(const struct vd_context *context);
CUresult vd_wait_event_locked(struct vd_event *event);
bool vd_stream_idle_locked(struct vd_stream *stream);
bool vd_event_done_locked(struct vd_event *event, uint64_t *time_ns);
/* Returns the number of the context whose lock a call on that stream takes. Contexts
 * share the legacy stream, but each has its own lock. */
static inline uint32_t vd_lock_number(const struct vd_stream *stream) {
  const struct vd_context *context =
      stream == &vd_streams.legacy ? vd_current() : stream->context;
  return context != NULL ? context->number : 0;
}
void vd_changed_locked(void);
uint64_t vd_peak_resident_bytes(void);
void vd_wait_until_locked(uint64_t end_ns);
/* Calls vd_pay() without the lock. */
void vd_pay_locked(struct vd_begun begun, const struct gpu_cost *cost);

/* context_lock.c; call these with the lock */
/* Waits until the driver's locks let a call (GPU_CALL_*) on that stream begin. */
void vd_pass_locked(uint32_t call, const struct vd_stream *stream);
/* Waits until no thread loads a function in that context. NULL: returns at once. */
void vd_pass_loads_locked(const struct vd_context *context);
/* Loads a function before its first launch in that stream, if loading is lazy. `loaded`:
 * whether it was loaded before; set to true. */
void vd_load_locked(const struct vd_stream *stream, bool *loaded);

/* actions.c; call these with the lock */
struct vd_action *vd_action_new(enum vd_manner manner, vd_effect_fn run, const void *what,
                                size_t length_bytes);
void vd_action_free(struct vd_action *action);
void vd_action_emit(struct vd_action *action);
void vd_action_pending(int change); /* submitted, not yet started */
bool vd_actions_wanted(void);
/* Runs the started actions; a `helper` leaves functions of the program to the driver's
 * thread. Returns whether any action ran. */
bool vd_actions_run_locked(bool helper);
uint64_t vd_actions_emitted(void);
bool vd_actions_done(uint64_t emitted);
bool vd_actions_polling(void);
bool vd_actions_poll_locked(uint64_t now_ns);

/* events_log.c: the log of events on the GPU; call these with the lock */
void vd_log_launch(uint64_t ticket, uint64_t issued_ns, const char *name,
                   const struct gpu_operation *operation);
void vd_log_start(uint64_t ticket, uint64_t time_ns);
void vd_on_finish(void *context, uint64_t cookie, uint64_t ticket, uint64_t start_ns,
                  uint64_t end_ns);
void vd_on_move(void *context, const struct gpu_move *move);
void vd_on_stall(void *context, uint64_t ticket, bool fault, uint64_t from_ns,
                 uint64_t until_ns);

/* event.c; NULL: no event */
static inline struct vd_event *vd_event_of(CUevent handle) {
  struct vd_event *event = (void *)handle;
  return vd_is(event, VD_EVENT) ? event : NULL;
}

/* stream.c */
struct vd_action *vd_action_of_host(const CUDA_HOST_NODE_PARAMS_v1 *host);
/* Submits an operation that ends when its action has run. */
CUresult vd_host_operation(CUstream handle, enum vd_manner manner, vd_effect_fn run,
                           const void *what, size_t length_bytes);
CUresult vd_streams_start(void);
struct vd_stream *vd_stream_of_locked(CUstream handle); /* NULL: invalid */
void vd_streams_drop_context_locked(struct vd_context *context);

/* stream.c, event.c: submit, even if the stream captures */
CUresult vd_host_submit_locked(struct vd_stream *stream,
                               const CUDA_HOST_NODE_PARAMS_v1 *host);
CUresult vd_event_record_locked(struct vd_stream *stream, CUevent event);
CUresult vd_event_wait_locked(struct vd_stream *stream, CUevent event);

/* capture_rules.c: captures in progress */
extern struct vd_capture *vd_captures;
void vd_capture_invalidate(struct vd_capture *capture, const char *what);
/* Returns CUDA_SUCCESS, or an error if a capture forbids the API call. */
CUresult vd_capture_unsafe_locked(const char *what);
CUresult vd_capture_refuse_locked(struct vd_stream *stream, const char *what);
/* Checks work in the legacy stream, which would wait for a capturing stream. */
CUresult vd_capture_implicit_locked(struct vd_stream *stream);
void vd_tail_empty(struct vd_nodes *tail);

/* Both are objects (base/object.c). */
_Static_assert(sizeof(struct vd_stream) <= VD_OBJECT_BYTES, "stream");
_Static_assert(sizeof(struct vd_event) <= VD_OBJECT_BYTES, "event");

#endif
