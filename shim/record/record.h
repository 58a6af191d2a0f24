/* record.h - what a hook saw becomes extents, operations and events of the ring. */
#ifndef PUMP_RECORD_H
#define PUMP_RECORD_H

#include "shim/progress/progress.h"

struct image; /* shim/driver/image.h */

/* ---- operations and events (event.c) ----------------------------- */

/* One operation while it is collected; only what is counted is initialised. */
struct pump_op {
  uint32_t count;
  uint32_t dropped;   /* beyond PUMP_MAX_EXTENTS */
  uint64_t signature; /* of a launch; else 0 */
  uint32_t identity;  /* of its function */
  bool of_graph;      /* its allocator may call memory free that its launches use */
  struct pump_extent extents[PUMP_MAX_EXTENTS];
};

/* A stream as a hook sees it. */
struct pump_at {
  CUstream given;  /* as the program passed it */
  CUstream stream; /* the same for the driver's plain functions */
  bool per_thread; /* called through a _ptsz/_ptds twin */
};

static inline struct pump_at pump_at(CUstream stream, bool per_thread) {
  return (struct pump_at){.given = stream,
                          .stream =
                              stream == NULL && per_thread ? CU_STREAM_PER_THREAD : stream,
                          .per_thread = per_thread};
}

static inline void pump_op_begin(struct pump_op *op) {
  op->count = op->dropped = 0;
  op->signature = 0;
  op->identity = 0;
  op->of_graph = false;
}

/* A pointer that stands at byte `argument` of a launch's parameters. */
void pump_op_argument(struct pump_op *op, const struct pump_hit *hit, uint64_t offset,
                      uint32_t argument);

/* Bytes that a copy or memset reaches, cut at the end of the range they begin in.
 * OVERWRITE is kept for the blocks that lie wholly inside and becomes WRITE for
 * what is left at both ends: at most three extents. */
void pump_op_bytes(struct pump_op *op, uint64_t address, uint64_t bytes, uint32_t access);

/* A reported operation; seq 0: nothing was reported. */
struct pump_token {
  uint64_t seq, time_ns, touched_bytes;
  uint32_t stream_index;
};

/* Before the real call of an operation that does not block, and after it was reported, or
 * has failed: now and then the time of one is taken (progress/timed.c). */
void pump_op_time(struct pump_at at);
/* `may` is worked out for the few alone. */
#define pump_op_ahead(at, may)                                                             \
  do {                                                                                     \
    if (PUMP_UNLIKELY(pump_timed_countdown-- == 0)) {                                      \
      pump_timed_count();                                                                  \
      if (may) pump_op_time(at);                                                           \
    }                                                                                      \
  } while (0)
/* Of a launch, behind the above: its stream waits for its memory (progress/gates.c). */
void pump_op_gate(struct pump_at at);
#define pump_launch_gate(at, may)                                                          \
  do {                                                                                     \
    if (PUMP_UNLIKELY(PUMP_LOAD(&pump_gates_devices) != 0) && (may)) pump_op_gate(at);     \
  } while (0)
static inline void pump_op_behind(void) {
  if (PUMP_UNLIKELY(pump_timed_begun)) pump_timed_give_back();
}

/* Gives the operation its number and sends it to the worker, then records a marker when
 * one is due; nothing at all on a capturing stream. After the real call: a thread that
 * then records a marker behind number n knows that all up to n were issued. */
void pump_op_report(struct pump_op *op, uint32_t kind, uint64_t function,
                    struct pump_at at);

/* The two halves of it, around a real call that blocks and whose blocks the worker
 * should bring in meanwhile. Should that call fail, a use was reported that never
 * happens: at worst a needless transfer. */
struct pump_token pump_op_announce(struct pump_op *op, uint32_t kind, uint64_t function,
                                   struct pump_at at);
void pump_op_issued(struct pump_token token, struct pump_at at);

/* A launch, all of it: reads its parameters, sends what the worker does not know of
 * them, reports. After the real call. */
struct pump_launch {
  CUfunction function;
  uint32_t grid[3], block[3];
  void **params, **extra;
  struct pump_saved *saved; /* not NULL: kept parameters, in place of both */
  bool chained;             /* it may begin before the one in front of it has ended */
  bool unknown;             /* what it is given was not seen */
};
void pump_launch_report(const struct pump_launch *launch, struct pump_at at);

/* The same without the report: finds out what the launch touches, and its signature. */
void pump_launch_describe(const struct pump_launch *launch, struct pump_op *op);

/* Operations of one call, ready to be sent: the launch of a graph. */
struct pump_ready {
  uint32_t kind;
  uint16_t count, dropped; /* extents */
  uint32_t identity;       /* of a kernel */
  uint64_t signature;
  const struct pump_launch *launch; /* of a kernel; else NULL */
  const struct pump_extent *extents;
};
struct pump_series {
  const struct pump_ready *operations;
  uint32_t count;
  uint64_t graph; /* handle of the executable graph */
  uint64_t *sent; /* what pump_metadata_state() returned when all was sent last */
};
void pump_series_report(const struct pump_series *series, struct pump_at at);

/* ALLOC, FREE, SYNC and HINT: no operations, no number of their own; SYNC and HINT
 * carry that of the newest operation. Only on an active client. `began_ns`: when the
 * call that has synchronised began. */
void pump_event_range(uint32_t kind, const struct pump_range_info *info);
/* DISCARDED, FREED, DEAD and POPULATED: whole blocks of the range in `slot`. */
void pump_event_block(uint32_t kind, uint32_t slot, uint64_t offset_bytes,
                      uint64_t length_bytes);
void pump_event_sync(uint32_t stream_index, uint64_t seq, uint64_t began_ns);
void pump_event_hint(uint64_t address, uint64_t bytes, struct pump_at at);

/* PARAMS and NAME: `bytes` of payload, cut at PUMP_MAX_PAYLOAD_BYTES. false: no room. */
bool pump_event_payload(const struct pump_event *head, const void *payload, size_t bytes);

/* Reports to a recorder that everything on the stream up to `seq` has executed by
 * `time_ns`, and not when a poll looked at `before_ns`, if it is not 0; nothing at all
 * unless a trace is recorded. Under the guard. */
void pump_event_progress(uint32_t stream_index, uint64_t seq, uint64_t time_ns,
                         uint64_t before_ns);

/* How long the operation took, by events around it; of a graph, its last. Under the guard.
 */
void pump_event_timed(uint32_t stream_index, uint64_t seq, uint64_t elapsed_ns);

/* Another mapping has taken the region's place: names and parameters have to be sent
 * again. After the change. */
void pump_metadata_void(void);

/* Whether the program waited for the GPU while a device was active. */
bool pump_event_waited(void); /* event.c */

/* ---- ranges that come and go (ranges.c) -------------------------------------------- */

/* After the real call that frees a range which pump_range_remove has taken out: gives
 * its bytes back, or undoes the record when the driver has refused. */
void pump_range_free_ended(struct pump_range_info *info, CUresult result);

/* Managed memory of the program's own becomes a range; false: there is no room for it. */
bool pump_managed_add(uint64_t base, uint64_t bytes, uint32_t device, CUcontext context);

/* ---- where an operation goes (place.c) --------------------------- */

struct pump_place {
  uint32_t stream_index; /* into pump_shm->progress */
  uint32_t device;
};

/* Each thread remembers some, so that it rarely queries the driver. Inside a driver scope.
 */
struct pump_place pump_place_of(struct pump_at at);

/* A stream or context has gone: its handle may come back as another's. */
void pump_place_forget(void);

/* ---- parameters (launch_params.c) --------------------------------------- */

/* Adds a launch's arguments to `words`, which it begins. */
struct pump_scan;
void pump_params_scan(struct pump_scan *words, const struct pump_launch *launch);

/* Copies the parameter buffer as the kernel gets it, gaps as zeros, and cuts it at
 * `room`. Returns its whole size, 0 when that is not known. */
size_t pump_params_copy(const struct pump_launch *launch, void *buffer, size_t room);

/* ---- function handles (function.c) -------------------------------- */

/* The driver's answers for a CUfunction, or for a CUkernel passed in its place. The second
 * of them is CUDA_ERROR_INVALID_VALUE from the number of parameters on. In a driver scope.
 */
CUresult pump_function_name(CUfunction function, const char **name);
CUresult pump_function_parameter(CUfunction function, size_t index, size_t *offset,
                                 size_t *bytes);
/* The driver has handed this handle out, as a CUkernel or as a CUfunction. */
void pump_function_note(const void *handle, bool is_kernel);
void pump_function_reset(void);

/* ---- layouts of the loaded code (images.c) ------------------------------------- */

/* Read where the driver does not report them; set at the start. */
extern bool pump_images_wanted;

/* Place and size of a parameter as the loaded code has them; answers as
 * cuFuncGetParamInfo does, CUDA_ERROR_NOT_FOUND for what is not known.
 */
CUresult pump_image_parameter(CUfunction function, size_t index, size_t *offset,
                              size_t *bytes);

static inline uint64_t pump_image_key(const void *handle) {
  return (uint64_t)(uintptr_t)handle;
}
/* A module or library was loaded from these bytes, SIZE_MAX: of unknown length; from that
 * file. */
void pump_image_read(uint64_t handle, const void *bytes, size_t length_bytes);
void pump_image_file(uint64_t handle, const char *path);
/* Keeps the image, which may be NULL, or that of a library, by the handle. */
void pump_image_keep(uint64_t handle, uint64_t library, struct image *image);
/* The function of that name in a module; the function of a kernel handle. */
void pump_image_name(uint64_t function, uint64_t module, const char *name);
void pump_image_same(uint64_t function, uint64_t kernel);
/* Before a module or library is unloaded. */
void pump_image_forget(const void *handle);
void pump_images_reset(void);

/* A copy of a launch's parameters that refers to no memory of the program, the
 * caller's to free; empty when nothing is known of them. NULL: no memory. */
struct pump_saved *pump_params_save(const struct pump_launch *launch);
size_t pump_params_saved_bytes(const struct pump_saved *saved);

/* A module or library went away: handles may be used again with other layouts. */
void pump_params_forget(void);
/* How often that has happened. */
uint32_t pump_params_epoch(void);
void pump_params_reset(void);

/* ---- the words among them (pointer_scan.c) ------------------------------ */

struct pump_scan {
  uint64_t hash;      /* sum of the terms of all words that are no pointers */
  uint64_t low, span; /* where live ranges may be */
  uint32_t count, place_shift;
  uint32_t beyond;   /* words beyond PUMP_SCAN_WORDS_MOST, not looked at */
  uint32_t identity; /* of the function */
  struct pump_word {
    uint64_t word, terms; /* terms: of all places where it stands */
    uint32_t offset;      /* of the first of them */
    uint32_t hint;        /* of the look-up */
  } words[PUMP_SCAN_WORDS_MOST];
  uint16_t places[PUMP_SCAN_PLACES]; /* open addressing: number of a word + 1 */
};

/* `parameter_bytes` in all will be added. `identity`: of the function. */
void pump_scan_begin(struct pump_scan *words, size_t parameter_bytes, uint32_t identity);
/* Adds one parameter, or one buffer of them, that stands at byte `offset` of the parameter
 * buffer. */
void pump_scan_add(struct pump_scan *words, const void *memory, size_t bytes,
                   uint64_t offset);
/* Once all are added. Other work may be done in between: cache lines are on their way. */
void pump_scan_look_ahead(struct pump_scan *words);
void pump_scan_resolve(struct pump_scan *words, struct pump_op *op);
/* Never 0. */
uint64_t pump_scan_signature(const struct pump_scan *words,
                             const struct pump_launch *launch);

/* ---- tensor map descriptors (tensor_map.c) ----------------------- */

#define PUMP_TENSOR_MAP_BYTES 128u
#define PUMP_TENSOR_MAP_ALIGN 64u /* cuda.h before 13 asks for no more */

/* `shape`: a hash of all that was encoded but the address; 0: not known. */
struct pump_tensor {
  uint64_t address, shape;
};

/* Not 0 once one was encoded. */
extern uint32_t pump_tensor_maps_seen;

/* What the descriptor in those PUMP_TENSOR_MAP_BYTES was encoded for; false: unknown. */
bool pump_tensor_find(const void *memory, struct pump_tensor *tensor);
/* What the descriptor was encoded for. */
void pump_tensor_note(const CUtensorMap *map, const void *address, uint64_t shape);
static inline uint64_t pump_tensor_mix(uint64_t hash, uint64_t word) {
  __uint128_t product = (__uint128_t)(hash ^ word) * 0x9e3779b97f4a7c15u;
  return (uint64_t)product ^ (uint64_t)(product >> 64);
}
void pump_tensor_reset(void);

/* ---- metadata, sent once (send_metadata.c) ---------------------------------- */

/* Before an operation with that signature is reported: the function's name and the
 * launch's parameters, unless the worker has them. false: no room. Inside a driver scope.
 */
bool pump_send_metadata(const struct pump_launch *launch, uint64_t signature,
                        uint32_t identity);

/* As long as this stays the same, what was sent is known; never 0. */
uint64_t pump_metadata_state(void);

/* ---- the operation and its number ----------------------------------------------- */

/* An operation that was just given its number. `grid`, `block`: of a launch, else NULL. */
struct pump_issued {
  uint64_t seq, signature;
  uint32_t identity, stream, kind;
  const uint32_t *grid, *block;
};

#endif
