/* driver.h - what the files of the virtual driver share.
 *
 * DESIGN
 *   exports.c   wrappers of every exported function: counted, checked, failed on
 *               request, then vd_<symbol>() is called
 *   timeline/   the model of the GPU under one lock and the real clock; streams, events,
 *               and the effects on data, carried out in the model's order
 *   memory/     allocations of every kind, copies, advice, pools, mappings
 *   code/       modules, libraries, functions, launches, and what these touch
 *   graph/      graphs, captures, allocation nodes
 *   card/       a card that several processes share
 * What these share with each other is declared here, file by file.
 *
 * One lock (`vd.lock`) guards everything except what is constant after cuInit and
 * what says otherwise. It is never held while the program's functions or a host
 * kernel run, nor while a thread sleeps. Of a card that several processes share,
 * vd_lock() takes the card's own lock behind it.
 *
 * Handles are pointers to objects (object.c) that are recycled but never unmapped
 * and carry a magic number, so that a stale handle gives an error.
 */
#ifndef PUMP_VIRTUAL_DRIVER_H
#define PUMP_VIRTUAL_DRIVER_H

#include "driver_objects.h"

/* card.c: a card that several processes share */
struct vd_card_figures {
  const char *name;
  uint32_t processes; /* that are there */
  uint64_t joined, died, peak_bytes;
  int check; /* gpu_check() */
  struct gpu_memory memory;
  struct gpu_counters counters; /* of all processes, also those that have left */
};
bool vd_card_name_set(const char *name, size_t length); /* false: a bad name */
bool vd_card_wanted(void);
const char *vd_card_name(void); /* empty: a private one */
/* `capacity` of one process. Sets vd.engine, vd.shared and vd.first_block. */
CUresult vd_card_join(const struct gpu_capacity *capacity);
void vd_card_leave_locked(void); /* the process's lock must not be given back then */
void vd_card_take(void);
void vd_card_give(void);
/* Frees what processes left behind that were killed; returns their number. */
uint32_t vd_card_reclaim_locked(void);
void vd_card_figures_locked(struct vd_card_figures *out);
void vd_card_own_locked(struct gpu_owner_info *out);

static inline void vd_lock(void) {
  pthread_mutex_lock(&vd.lock);
  if (vd.shared) vd_card_take();
}
static inline void vd_unlock(void) {
  if (vd.shared) vd_card_give();
  pthread_mutex_unlock(&vd.lock);
}
/* Waits without the locks; `until` NULL: without end. */
static inline void vd_wait_locked(pthread_cond_t *condition, const struct timespec *until) {
  if (vd.shared) vd_card_give();
  if (until == NULL)
    pthread_cond_wait(condition, &vd.lock);
  else
    pthread_cond_timedwait(condition, &vd.lock, until);
  if (vd.shared) vd_card_take();
}

/* diagnose.c */
void vd_log(const char *format, ...) __attribute__((format(printf, 1, 2)));
void vd_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char *vd_result_name(CUresult result);

/* timeline.c: what the model calls; upcalls.c: the calls from a lower room to a higher one,
 * each for what only the higher room can do */
extern const struct gpu_hooks vd_hooks;
extern const struct vd_upcalls {
  /* timeline -> graph: a stream is destroyed, and captures no more. */
  void (*stream_ends)(struct vd_stream *stream);
  /* memory, code -> graph: what a capturing stream is to do becomes a node of the graph,
   * and *captured true. */
  CUresult (*capture_copy)(struct vd_stream *stream, const struct vd_copy *copy,
                           bool *captured);
  CUresult (*capture_set)(struct vd_stream *stream, const struct vd_set *set,
                          bool *captured);
  CUresult (*capture_allocation)(struct vd_stream *stream, size_t length_bytes,
                                 CUdeviceptr *out);
  CUresult (*capture_free)(struct vd_stream *stream, CUdeviceptr address);
  CUresult (*capture_kernel)(struct vd_stream *stream, const struct vd_kernel_call *call,
                             const CUlaunchConfig *config, bool *captured);
  /* memory -> graph: the program frees memory of an allocation node. */
  CUresult (*graph_memory_free)(struct vd_memory *memory);
} vd_upcalls;

/* exports.c */
#define X(level, twin, symbol, ...) VD_CALL_##symbol,
enum vd_call {
#include "driver_list.h"
  VD_CALLS
};
struct vd_export {
  const char *name, *symbol, *twin_symbol;
  int version;
  void *function, *twin;
};
extern const struct vd_export vd_exports[VD_CALLS];
extern const struct vd_export vd_lacking[]; /* driver_lacks.h */
extern const size_t vd_lacking_count;
extern uint64_t vd_call_counts[VD_CALLS];
int vd_inject_setup(void); /* 0, or -1 after a log line */
int vd_version(void);      /* the version of CUDA that the driver reports */

/* Implementations, declared from the list: DS and EZ take the default stream. */
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

/* ranges.c */
struct vd_memory *vd_range_find(const struct vd_range_set *set, uint64_t address);
/* The piece of pump's own pool that `address` lies in (shim/pool/pool.h): VD_PIECE_*. */
enum { VD_PIECE_NONE, VD_PIECE_FREE, VD_PIECE_LIVE };
int vd_pool_piece(uint64_t address, uint64_t *base, uint64_t *length_bytes);
/* What of `memory` is an allocation to the program, where `address` lies in it; false:
 * nothing is allocated there. */
bool vd_memory_piece(const struct vd_memory *memory, uint64_t address, uint64_t *base,
                     uint64_t *end);
uint64_t vd_range_gap(const struct vd_range_set *set, uint64_t length_bytes,
                      uint64_t alignment);
int vd_range_add(struct vd_range_set *set, struct vd_memory *memory);
bool vd_range_remove(struct vd_range_set *set, struct vd_memory *memory);
struct vd_memory *vd_memory_at(uint64_t address); /* in any set of memory */

/* departures.c: the log of what leaves the GPU; all under the lock */
bool vd_departures_wanted(void);
void vd_departures_kernel(uint64_t issued_ns);
void vd_departures_note(uint64_t address, uint32_t pages);
void vd_departures_end(void);

/* vmm.c: bytes from `address` on that are mapped without a gap and may be accessed, and
 * where that begins, which includes it */
uint64_t vd_mapped_bytes(uint64_t address);
uint64_t vd_mapped_base(uint64_t address);

/* memory.c, with the lock */
CUresult vd_memory_new(enum vd_memory_kind kind, uint64_t length_bytes,
                       struct vd_memory **out);
CUresult vd_graph_memory_new(uint64_t length_bytes, struct vd_memory **out);
uint64_t vd_memory_release(struct vd_memory *memory); /* without waiting */
/* gpu_plain_reserve(); on a shared card it first frees memory of killed processes if there
 * is too little */
int vd_plain_reserve_locked(uint64_t length_bytes, struct gpu_cost *cost);
void vd_memory_drop_context_locked(const struct vd_context *context);
uint32_t vd_memory_block(const struct vd_memory *memory, uint64_t address);

/* clock.c: how time passes. *_locked run with the lock, and release it meanwhile. */
uint64_t vd_now_ns(void);
static inline struct timespec vd_timespec(uint64_t ns) {
  return (struct timespec){(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
}
/* Blocks, and ends on time as far as there is a processor. */
void vd_wait_until(uint64_t end_ns);
void vd_wait_until_locked(uint64_t end_ns);
/* The wake-up time to ask for in order to run at `end_ns`; 0: too near to block. */
uint64_t vd_wake_ns(uint64_t end_ns);
/* The calling thread's timer slack becomes `slack_ns`; returns what it was. */
unsigned long vd_slack_change(unsigned long slack_ns);
/* When the calling thread began a call of the model, and what it had used of the processor.
 */
struct vd_begun {
  uint64_t now_ns;
  uint64_t processor_ns;
};
struct vd_begun vd_begin(void);
/* Works and waits as `cost` says, until the caller is free. */
void vd_pay_locked(struct vd_begun begun, const struct gpu_cost *cost);

/* timeline.c. *_locked run with the lock; waits release it meanwhile. */
CUresult vd_timeline_start(void);
int vd_worker_start_locked(void); /* the thread that runs actions; -1: there is none */
void vd_on_start(void *context, uint64_t cookie, uint64_t ticket, uint64_t time_ns);
void vd_on_leave(void *context, uint32_t block, uint32_t pages);
static inline uint64_t vd_block_address(uint32_t block) {
  return vd.managed.base + (uint64_t)(block - vd.first_block) * GPU_BLOCK_BYTES;
}
/* Submits; waits while the launch queue is full. `action` may be NULL. */
CUresult vd_submit_locked(struct vd_stream *stream, struct gpu_operation *operation,
                          struct vd_action *action);
CUresult vd_wait_stream_locked(struct vd_stream *stream);
CUresult vd_wait_device_locked(void); /* all that was submitted before */
CUresult vd_wait_event_locked(struct vd_event *event);
bool vd_stream_idle_locked(struct vd_stream *stream);
bool vd_event_done_locked(struct vd_event *event, uint64_t *time_ns);
/* The number of the context whose lock a call on that stream takes. Contexts share the
 * legacy stream, but no lock. */
static inline uint32_t vd_lock_number(const struct vd_stream *stream) {
  const struct vd_context *context = stream == &vd.legacy ? vd_current() : stream->context;
  return context != NULL ? context->number : 0;
}
/* Until the driver's locks let a call (GPU_CALL_*) on that stream begin. */
void vd_pass_locked(uint32_t call, const struct vd_stream *stream);
void vd_changed_locked(void);
uint64_t vd_peak_resident_bytes(void);

/* actions.c, with the lock */
struct vd_action *vd_action_new(enum vd_manner manner, bool (*run)(const void *),
                                const void *what, size_t length_bytes);
void vd_action_free(struct vd_action *action);
void vd_action_emit(struct vd_action *action);
void vd_action_pending(int change); /* submitted, not yet started */
bool vd_actions_wanted(void);
/* Runs what is due; `helper` leaves the program's functions to the driver's thread.
 * Returns whether anything ran. */
bool vd_actions_run_locked(bool helper);
uint64_t vd_actions_emitted(void);
bool vd_actions_done(uint64_t emitted);
bool vd_actions_polling(void);
bool vd_actions_poll_locked(uint64_t now_ns);

/* device.c */
bool vd_device_visible(void);

/* event.c: NULL: no event */
static inline struct vd_event *vd_event_of(CUevent handle) {
  struct vd_event *event = (void *)handle;
  return vd_is(event, VD_EVENT) ? event : NULL;
}

/* stream.c */
/* An operation that ends when its action has been carried out. */
CUresult vd_host_operation(CUstream handle, enum vd_manner manner,
                           bool (*run)(const void *), const void *what,
                           size_t length_bytes);
CUresult vd_streams_start(void);
struct vd_stream *vd_stream_of_locked(CUstream handle); /* NULL: invalid */
void vd_streams_drop_context_locked(struct vd_context *context);

/* setting.c: attributes of a stream, or of a kernel node */
#define VD_GREATEST_PRIORITY (-5)
int vd_priority_of(int priority); /* the nearest that there is */
CUresult vd_setting_get(const struct vd_settings *settings, bool of_node, int attribute,
                        CUstreamAttrValue *out);
CUresult vd_setting_set(struct vd_settings *settings, bool of_node, int attribute,
                        const CUstreamAttrValue *value);

/* capture_rules.c: captures under way */
extern struct vd_capture *vd_captures;
void vd_capture_invalidate(struct vd_capture *capture, const char *what);
/* An API call that a capture forbids: CUDA_SUCCESS, or the error to return. */
CUresult vd_capture_unsafe_locked(const char *what);
CUresult vd_capture_refuse_locked(struct vd_stream *stream, const char *what);
/* Work in the legacy stream beside a capture that it would wait for. */
CUresult vd_capture_implicit_locked(struct vd_stream *stream);
void vd_tail_empty(struct vd_nodes *tail);

/* managed.c */
void vd_on_drop(void *context, uint32_t block);

/* copy.c. The two that run what a graph holds: nothing is captured, staged or waited
 * for. */
CUresult vd_copy_submit_locked(struct vd_stream *stream, const struct vd_copy *copy);
CUresult vd_set_submit_locked(struct vd_stream *stream, const struct vd_set *set);
CUresult vd_copy(CUstream handle, const struct vd_copy *copy, bool synchronous,
                 const char *what);
uint32_t vd_uses_of(uint64_t address, uint64_t length_bytes, uint16_t access,
                    struct gpu_use *use);

/* copy_nd.c */
CUresult vd_copy_of_3d_locked(const CUDA_MEMCPY3D *params, struct vd_copy *out);

/* array.c: where the texels of an array lie; false: no array */
bool vd_array_texels_locked(CUarray array, struct vd_texels *texels);

/* texture.c: the memory behind a texture or surface object; false: the word is none */
bool vd_texture_memory_locked(uint64_t word, uint64_t *address, uint64_t *length_bytes);

/* launch.c */
/* Checks a launch and takes its parameters into a buffer that is the caller's. */
CUresult vd_kernel_call_new(CUfunction function, const unsigned grid[3],
                            const unsigned block[3], unsigned shared_bytes,
                            void **parameters, void **extra, struct vd_kernel_call *out);
CUresult vd_kernel_submit_locked(struct vd_stream *stream,
                                 const struct vd_kernel_call *call);

/* stream.c, event.c: what nodes of graphs do */
struct vd_action *vd_action_of_host(const CUDA_HOST_NODE_PARAMS_v1 *host);
CUresult vd_host_submit_locked(struct vd_stream *stream,
                               const CUDA_HOST_NODE_PARAMS_v1 *host);
CUresult vd_event_record_locked(struct vd_stream *stream, CUevent event);
CUresult vd_event_wait_locked(struct vd_stream *stream, CUevent event);

/* function.c */
struct vd_function *vd_function_new(const struct image_kernel *kernel,
                                    struct vd_module *module, struct vd_library *library);
void vd_host_kernels_open(void);
extern vd_touch_any_fn vd_touch_any; /* of the first library that has it, or NULL */

/* touch.c */
struct vd_touched {
  struct vd_touch *parts; /* NULL: nothing is told */
  uint32_t count;
  uint64_t least_ns; /* that it computes at least; 0: nothing is told */
};
void vd_touches_ask(const struct vd_function *function, const unsigned grid[3],
                    const unsigned block[3], uint8_t *buffer, struct vd_touched *out);
struct gpu_use *vd_touches_uses_locked(const struct vd_touched *touched, uint32_t *count,
                                       uint64_t *length_bytes);

/* code.c: `out` takes CUfunction or CUkernel. code NULL: CUDA_ERROR_INVALID_HANDLE. */
bool vd_code_open(struct vd_code *code, struct image *image, struct vd_module *module,
                  struct vd_library *library); /* false: no memory; to be closed too */
void vd_code_close(struct vd_code *code);
CUresult vd_code_find(const struct vd_code *code, const char *name, void *out);
CUresult vd_code_count(const struct vd_code *code, unsigned int *count);
CUresult vd_code_enumerate(const struct vd_code *code, void *out, unsigned int count);

/* module.c */
CUresult vd_image_load(const void *image, size_t length_bytes, struct image **out);
CUresult vd_image_load_file(const char *path, struct image **out);
CUresult vd_module_from(struct image *image, struct vd_library *library,
                        struct vd_module **out);
void vd_module_free_locked(struct vd_module *module);
void vd_modules_drop_context_locked(const struct vd_context *context);
CUresult vd_module_global_locked(struct vd_module *module, const char *name, bool managed,
                                 CUdeviceptr *address, size_t *length_bytes);

/* context.c */
bool vd_context_alive(const struct vd_context *context);

/* device.c */
#define VD_PCI_BUS 1 /* domain, device and function are 0 */
void vd_uuid_text(char *text, size_t bytes);

/* init.c: what PUMP_VIRTUAL_PROFILE says, read where cuInit has not yet; 0, or -1 after an
 * error was told */
int vd_profile_read(void);

/* report.c */
bool vd_lock_at_exit(void); /* false: another thread keeps it */
void vd_report_write(void);

#endif
