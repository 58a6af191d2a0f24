/* driver.h - declarations that all folders of the virtual driver share.
 *
 * FOLDERS, each with one header. A file uses its own folder and the ones above it here.
 *   base/:      Objects, settings, the log, the clock, which context is current.
 *   card/:      A GPU that several processes share; the lock.
 *   timeline/:  The model of the GPU under one lock and the real clock; streams, events,
 *               and the effects on data, carried out in the model's order.
 *   memory/:    Allocations of every kind, copies, advice, pools, mappings.
 *   code/:      Modules, libraries, functions, launches, and the memory they touch.
 *   graph/:     Graphs, captures, allocation nodes.
 *   calls/:     Every exported function: counted, checked, failed on request, then
 *               passed to vd_<symbol>(). Start and exit, contexts, the device, the report.
 * upcalls.h declares the calls from a lower folder to a higher one.
 *
 * One lock (`vd.lock`) guards everything that is not constant after cuInit and not marked
 * otherwise. It is never held while the program's functions or a host kernel run, nor
 * while a thread sleeps. If several processes share the GPU, vd_lock() then takes the
 * GPU's own lock too.
 *
 * Handles are pointers to objects (object.c). Objects are recycled but never unmapped and
 * carry a magic number, so a stale handle gives an error.
 */
#ifndef PUMP_VIRTUAL_DRIVER_H
#define PUMP_VIRTUAL_DRIVER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

#include "driver_types.h"
#include "upcalls.h"

#define VD_MAX_CONTEXTS GPU_LOCK_CONTEXTS
#define VD_LIMITS 12

enum vd_state { VD_COLD = 0, VD_READY = 1, VD_FORKED = 2, VD_EXITED = 3 };
enum vd_mode { VD_TIMING = 0, VD_COMPUTE = 1 };

enum vd_magic {
  VD_FREE_OBJECT = 0,
  VD_CONTEXT = 0x43545800,
  VD_STREAM,
  VD_EVENT,
  VD_MODULE,
  VD_LIBRARY,
  VD_FUNCTION,
  VD_GRAPH,
  VD_GRAPH_EXEC,
  VD_NODE,
  VD_POOL,
  VD_PHYSICAL,
  VD_USER_OBJECT,
  VD_TEXTURE,
  VD_SURFACE,
};

struct vd_memory;
struct vd_stream;

struct vd_range_entry {
  uint64_t base, end;
  struct vd_memory *memory;
};

/* Live allocations of one address range, sorted by address. */
struct vd_range_set {
  uint64_t base, end; /* 0, 0: addresses are chosen elsewhere */
  struct vd_range_entry *entries;
  size_t count, room;
};

struct vd_context {
  uint32_t magic;
  uint32_t references; /* retains of the primary context; uses of the others */
  uint64_t id;
  uint32_t number; /* the primary context is 0 */
  bool primary, alive;
  unsigned int flags, api_version;
  int cache_config, shared_config;
  size_t limits[VD_LIMITS];
};

/* Attributes of a stream or of a kernel node. They are returned on request and have no
 * effect. All zeros: the defaults. */
struct vd_settings {
  CUaccessPolicyWindow window;
  int synchronization, priority, memory_domain, cooperative;
  unsigned char domain_map[2];
  bool domain_map_set;
};

/* Rule violations, counted for the report (report.c). */
struct vd_checks {
  uint64_t prefetch_unknown;
  uint64_t discard_unknown;
  uint64_t discard_live;
  uint64_t discard_pending;
  uint64_t advise_pool;
  uint64_t free_unknown;
  uint64_t capture_invalidated;
  uint64_t managed_stream_operations;
  uint64_t calls_failed_on_request;
};

#define VD_LOCK_LAZY 4u /* see timeline/context_lock.c; the model does not know it */

/* The driver. Written by the thread in cuInit, then under `lock`; after a fork only
 * `state` is read. */
struct vd_driver {
  int state; /* enum vd_state, atomic */
  pthread_mutex_t lock;
  pthread_cond_t changed; /* CLOCK_MONOTONIC: an action ended, gpu_complete() */
  enum vd_mode mode;
  bool copies_modelled; /* long copies and memsets take time but move no data */
  bool shared;          /* the engine's state belongs to a shared GPU */
  uint32_t locks; /* GPU_LOCK_*, VD_LOCK_LAZY: locks of the driver that callers wait for */
  bool queues_shared;   /* streams of all priorities share the same work queues */
  uint32_t owner;       /* this process in a shared GPU; else 0 */
  uint32_t first_block; /* first block of the managed arena, in the engine */
  uint32_t discard_kind;
  struct uvm_profile profile;
  char profile_hash[13]; /* Profile.hash() of pump_lab.profiles, as passed in; or empty */
  uint32_t card_number;  /* part of the UUID of a GPU that is not shared */
  struct gpu_engine *engine;
  struct vd_range_set managed, plain, host, mapped, reserved;
  struct vd_context primary;
  struct vd_context *contexts[VD_MAX_CONTEXTS];
  struct vd_checks checks;
  uint64_t next_id;
};
extern struct vd_driver vd;

/* State of one thread. */
#define VD_CONTEXT_DEPTH 64
struct vd_thread {
  struct vd_context *stack[VD_CONTEXT_DEPTH];
  uint32_t depth;
  int capture_mode;                 /* CU_STREAM_CAPTURE_MODE_* */
  struct vd_stream *default_stream; /* the per-thread default stream */
  uint64_t default_stream_id;       /* id of default_stream while it lives */
  uint64_t random;
};
extern __thread struct vd_thread vd_thread;

static inline struct vd_context *vd_current(void) {
  return vd_thread.depth ? vd_thread.stack[vd_thread.depth - 1] : NULL;
}

/* diagnose.c */
void vd_log(const char *format, ...) __attribute__((format(printf, 1, 2)));
void vd_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char *vd_result_name(CUresult result);
/* Returns the log of events (PUMP_VIRTUAL_EVENTS), open until vd_record_end(); NULL if
 * there is none. Call both under the lock. */
FILE *vd_record(void);
void vd_record_end(void);

/* Implementations, declared from the list; DS and EZ take the default stream. */
#define VD_PARAMETERS(...) __VA_ARGS__
#define VD_DECLARE_NONE(symbol, parameters) CUresult vd_##symbol parameters;
#define VD_DECLARE_SZ VD_DECLARE_NONE
#define VD_DECLARE_DS(symbol, parameters)                                                  \
  CUresult vd_##symbol(CUstream stream, VD_PARAMETERS parameters);
#define VD_DECLARE_EZ VD_DECLARE_DS
#define X(level, twin, symbol, name, version, parameters, arguments)                       \
  VD_DECLARE_##twin(symbol, parameters)
#include "driver_list.h"

/* object.c: zeroed objects of at most VD_OBJECT_BYTES, under the lock */
#define VD_OBJECT_BYTES 256
void *vd_object_new(enum vd_magic magic);
void vd_object_free(void *object);
static inline bool vd_is(const void *object, enum vd_magic magic) {
  return object != NULL && *(const uint32_t *)object == (uint32_t)magic;
}

/* setting.c: attributes of a stream, or of a kernel node */
#define VD_GREATEST_PRIORITY (-5)
int vd_priority_of(int priority); /* the nearest valid priority */
CUresult vd_setting_get(const struct vd_settings *settings, bool of_node, int attribute,
                        CUstreamAttrValue *out);
CUresult vd_setting_set(struct vd_settings *settings, bool of_node, int attribute,
                        const CUstreamAttrValue *value);

/* clock.c: passes time */
uint64_t vd_now_ns(void);
static inline struct timespec vd_timespec(uint64_t ns) {
  return (struct timespec){(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
}
/* Blocks until `end_ns`, and ends on time if a CPU core is free. */
void vd_wait_until(uint64_t end_ns);
/* Returns the wake-up time to request in order to run at `end_ns`; 0: too near to block. */
uint64_t vd_wake_ns(uint64_t end_ns);
/* Sets the calling thread's timer slack to `slack_ns`; returns the old value. */
unsigned long vd_slack_change(unsigned long slack_ns);
/* When the calling thread began a call of the model, and its CPU time by then. */
struct vd_begun {
  uint64_t now_ns;
  uint64_t processor_ns;
};
struct vd_begun vd_begin(void);
/* Works and waits as `cost` requires until the caller is free. Call it without the lock. */
void vd_pay(struct vd_begun begun, const struct gpu_cost *cost);

/* current.c */
bool vd_context_alive(const struct vd_context *context);
CUresult vd_context_push(struct vd_context *context); /* makes it the current one */

_Static_assert(sizeof(struct vd_context) <= VD_OBJECT_BYTES, "context");

#endif
