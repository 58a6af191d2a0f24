/* driver_objects.h - what the virtual driver keeps: its objects and its own state. */
#ifndef PUMP_VIRTUAL_DRIVER_OBJECTS_H
#define PUMP_VIRTUAL_DRIVER_OBJECTS_H

#include <pthread.h>
#include <stdbool.h>

#include "driver_types.h"
#include "shim/driver/image.h"
#include "virtual/gpu/gpu_engine.h"

#define VD_DRIVER_VERSION 13050
#define VD_MAX_CONTEXTS GPU_LOCK_CONTEXTS
#define VD_LIMITS 12
#define VD_FUNCTION_ATTRIBUTES 16

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

enum vd_memory_kind {
  VD_HOST_PINNED,
  VD_HOST_REGISTERED,
  VD_PLAIN, /* from here on the device's */
  VD_MANAGED,
  VD_MAPPED,  /* memory of cuMemCreate; `flags` is its access */
  VD_RESERVED /* addresses only */
};

/* An array as it was asked for. levels: of a mipmapped one, else 0. */
struct vd_array {
  CUDA_ARRAY3D_DESCRIPTOR shape;
  unsigned int levels;
};

/* Texels of an array, or of a level of one. */
struct vd_texels {
  uint64_t address;
  size_t texel_bytes, row_bytes, pitch, rows, slices;
};

/* One live allocation. */
struct vd_memory {
  uint64_t base;
  uint64_t length_bytes;   /* as asked for */
  uint64_t reserved_bytes; /* as taken from arena and card */
  enum vd_memory_kind kind;
  unsigned int flags;
  uint64_t id;
  struct vd_context *context;
  struct vd_pool *pool;
  void *physical;         /* of VD_MAPPED */
  struct vd_array *array; /* or NULL; owned */
  CUmemLocation preferred, last_prefetch;
  bool accessed_by_gpu, accessed_by_host;
  bool prefetched;
  bool freed;       /* by cuMemFreeAsync: gone when the stream gets there */
  bool sync_memops; /* CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, as the program set it */
  /* Memory of allocation nodes (graph_memory.c): how many of them hold this address,
   * whether the card has given memory, whether it is allocated at present. */
  bool of_graph, backed, live;
  uint32_t holders;
};

struct vd_range_entry {
  uint64_t base, end;
  struct vd_memory *memory;
};

/* Live allocations of one address range, sorted by address. */
struct vd_range_set {
  uint64_t base, end; /* 0, 0: addresses chosen elsewhere */
  struct vd_range_entry *entries;
  size_t count, room;
};

struct vd_context {
  uint32_t magic;
  uint32_t references; /* of the primary context: retains; of others: uses */
  uint64_t id;
  uint32_t number; /* the primary context is 0 */
  bool primary, alive;
  unsigned int flags, api_version;
  int cache_config, shared_config;
  size_t limits[VD_LIMITS];
};

struct vd_capture;
struct vd_graph;
struct vd_node;

/* Nodes of one graph; both arrays are owned. */
struct vd_nodes {
  struct vd_node **nodes;
  CUgraphEdgeData *edges; /* of as many zeros: the data of edges to them */
  size_t count;
};

/* Attributes of a stream or of a kernel node that are given back and change nothing; all
 * zeros: the defaults. */
struct vd_settings {
  CUaccessPolicyWindow window;
  int synchronization, priority, memory_domain, cooperative;
  unsigned char domain_map[2];
  bool domain_map_set;
};

struct vd_stream {
  uint32_t magic;
  uint32_t number; /* in the engine */
  uint64_t id;
  struct vd_context *context;
  unsigned int flags;
  struct vd_settings settings;
  uint64_t last_ticket; /* newest submission */
  struct vd_capture *capture;
  struct vd_nodes tail; /* what the next captured node depends on */
  struct vd_stream *next, **link;
};

struct vd_event {
  uint32_t magic;
  uint32_t number; /* in the engine */
  unsigned int flags;
  bool recorded;
  bool foreign;     /* opened: another process has made it */
  uint64_t ticket;  /* of the last record */
  uint64_t actions; /* actions emitted before the last record ended */
  struct vd_context *context;
  struct vd_capture *capture; /* recorded in a capturing stream ... */
  struct vd_nodes tail;       /* ... behind these */
};

/* Under way; `graph` is what it fills. */
struct vd_capture {
  struct vd_stream *origin;
  struct vd_graph *graph;
  pthread_t thread;
  uint64_t id;
  int mode;
  bool invalid;
  bool borrowed;        /* the graph is the program's own */
  struct vd_nodes left; /* the tails of streams that were destroyed */
  struct vd_capture *next;
};

struct vd_pool {
  uint32_t magic;
  bool is_default;
  uint64_t release_threshold, used_bytes, used_high_bytes;
  uint64_t most_bytes; /* CUmemPoolProps.maxSize; 0: as the card has */
  uint64_t settings[4];
};

/* Memory that a launch touches, as its host library tells (touch.c). */
struct vd_touch {
  uint64_t address, length_bytes;
};
typedef unsigned (*vd_touch_fn)(void **params, const unsigned grid[3],
                                const unsigned block[3], struct vd_touch *out,
                                unsigned most);
typedef int (*vd_touch_any_fn)(const char *kernel, const void *parameters,
                               unsigned parameter_bytes, const unsigned grid[3],
                               const unsigned block[3], struct vd_touch *out,
                               unsigned most);
typedef double (*vd_cycles_fn)(void **params, const unsigned grid[3],
                               const unsigned block[3]);

/* CUfunction and CUkernel alike. */
struct vd_function {
  uint32_t magic;
  bool is_kernel; /* belongs to `library`, else to `module` */
  struct vd_module *module;
  struct vd_library *library;
  const struct image_kernel *kernel;
  int attributes[VD_FUNCTION_ATTRIBUTES];
  uint64_t set_attributes; /* bits of those that the program has set */
  void (*host)(void **params, const unsigned grid[3], const unsigned block[3]);
  vd_touch_fn touches; /* NULL: all that the pointers reach */
  vd_cycles_fn cycles; /* NULL: no longer than its bytes take */
  uint64_t *count;     /* launches of all kernels of this name */
};

struct vd_kernel_count {
  struct vd_kernel_count *next;
  uint64_t launches;
  char name[];
};
extern struct vd_kernel_count *vd_kernel_counts;

/* A loaded image (code.c). */
struct vd_code {
  struct image *image;
  struct vd_function **functions; /* one per kernel of the image */
};

struct vd_module {
  uint32_t magic;
  struct vd_code code;
  struct vd_library *library;     /* owns the image when not NULL */
  struct vd_context *context;     /* with which it ends, unless it is a library's */
  struct vd_module *next, **link; /* of all that are no library's */
  struct vd_memory **globals;     /* one per global; created on first use */
};

struct vd_library {
  uint32_t magic;
  struct vd_code code;
  struct vd_module *module; /* created on first use */
};

/* Up to three dimensions; a plain copy has height = depth = 1. */
struct vd_copy {
  uint64_t destination, source;
  size_t width_bytes, height, depth;
  size_t destination_pitch, destination_slice, source_pitch, source_slice;
  CUarray destination_array, source_array; /* that they lie in; NULL: in none */
};

struct vd_set {
  uint64_t destination;
  size_t width, height, pitch; /* elements, rows, bytes */
  uint32_t value;
  uint32_t element_bytes; /* 1, 2 or 4 */
};

struct vd_kernel_call {
  struct vd_function *function;
  unsigned grid[3], block[3], shared_bytes;
  size_t parameter_bytes;
  uint8_t *parameters; /* the parameter buffer */
};

/* Who carries out an action (actions.c), and how. */
enum vd_manner {
  VD_APART,   /* any thread, without the lock */
  VD_PROGRAM, /* the driver's own, without the lock: a function of the program */
  VD_LOCKED,  /* any thread */
  VD_POLLED,  /* the driver's own asks until `run` answers true */
};

/* An effect on data. `run` gets `what`, a copy of what the action was made with. */
#define VD_ACTION_BYTES 88
struct vd_action {
  enum vd_manner manner;
  bool ends_operation; /* of kind GPU_HOST: gpu_complete() after it */
  bool (*run)(const void *what);
  uint64_t ticket;
  void *owned; /* freed with it */
  struct vd_action *next;
  uint64_t what[VD_ACTION_BYTES / 8];
};

/* Work that launches of graphs have submitted. */
struct vd_graph_counts {
  uint64_t launches, kernels, copies, memsets;
};

/* Violations of the rules, counted for the report (report.c). */
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

/* The driver. Writer: the thread in cuInit; afterwards under `lock`. After a fork
 * `state` alone is looked at. */
struct vd_driver {
  int state; /* enum vd_state, atomic */
  pthread_mutex_t lock;
  pthread_cond_t changed; /* CLOCK_MONOTONIC: an action ended, gpu_complete() */
  enum vd_mode mode;
  bool copies_modelled; /* long copies and memsets take their time, and move nothing */
  bool shared;          /* the engine's state is a shared card's */
  uint32_t locks;       /* GPU_LOCK_*: of the driver, that callers wait for */
  bool queues_shared;   /* streams of all priorities have the same work queues */
  uint32_t first_block; /* of the managed arena, in the engine */
  uint32_t discard_kind;
  struct uvm_profile profile;
  char profile_hash[13]; /* Profile.hash() of pump.profiles, as passed; or empty */
  uint32_t card_number;  /* of a card that is not shared: part of its UUID */
  struct gpu_engine *engine;
  struct vd_range_set managed, plain, host, mapped, reserved;
  struct vd_context primary;
  struct vd_context *contexts[VD_MAX_CONTEXTS];
  struct vd_stream *streams; /* all live ones */
  struct vd_stream legacy;
  struct vd_pool pool, *current_pool;
  struct vd_checks checks;
  struct vd_graph_counts graphs;
  uint64_t graph_used_high, graph_reserved_high; /* bytes of graphs' own memory */
  uint64_t next_id;
};
extern struct vd_driver vd;

/* Thread's own. */
#define VD_CONTEXT_DEPTH 64
struct vd_thread {
  struct vd_context *stack[VD_CONTEXT_DEPTH];
  uint32_t depth;
  int capture_mode;                 /* CU_STREAM_CAPTURE_MODE_* */
  struct vd_stream *default_stream; /* per-thread default stream */
  uint64_t default_stream_id;       /* of it while it lives */
  uint64_t random;
};
extern __thread struct vd_thread vd_thread;

static inline struct vd_context *vd_current(void) {
  return vd_thread.depth ? vd_thread.stack[vd_thread.depth - 1] : NULL;
}

#endif
