/* record.h - turns observations of hooks into extents, operations and ring events. */
#ifndef PUMP_RECORD_H
#define PUMP_RECORD_H

#include "shim/progress/progress.h"

/* ---- operations and events (event.c) ----------------------------- */

/* One operation under construction. Only the first `count` extents, the parts of ranges
 * that the operation uses, are initialized. */
struct pump_op {
  uint32_t count;
  uint32_t dropped;   /* extents beyond PUMP_MAX_EXTENTS */
  uint64_t signature; /* of a launch; else 0 */
  uint32_t identity;  /* identity of the launch's function */
  bool of_graph;      /* a graph's launches may use memory reported as free */
  struct pump_extent extents[PUMP_MAX_EXTENTS];
};

/* A stream as a hook sees it. */
struct pump_at {
  CUstream given;  /* as the program passed it */
  CUstream stream; /* the same stream for the driver's plain functions */
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

/* Adds the pointer at byte `argument` of a launch's parameters. */
void pump_op_argument(struct pump_op *op, const struct pump_hit *hit, uint64_t offset,
                      uint32_t argument);

/* Adds the bytes that a copy or memset touches, in the range of `address` and in adjacent
 * mapped ranges. OVERWRITE holds for blocks that are fully covered and becomes WRITE at
 * both ends: at most three extents per range. */
void pump_op_bytes(struct pump_op *op, uint64_t address, uint64_t bytes, uint32_t access);

/* A reported operation; seq 0: nothing was reported. */
struct pump_token {
  uint64_t seq, time_ns, touched_bytes;
  uint32_t stream_index;
};

/* Starts timing a non-blocking operation before its real call. The macro below selects a
 * sample of operations (progress/timed.c). After the report or a failure, call
 * pump_op_end_timing. */
void pump_op_start_timing(struct pump_at at);
/* Evaluates `may` only for sampled operations. */
#define pump_op_begin_timing(at, may)                                                      \
  do {                                                                                     \
    if (PUMP_UNLIKELY(pump_timed_countdown-- == 0)) {                                      \
      pump_timed_count();                                                                  \
      if (may) pump_op_start_timing(at);                                                   \
    }                                                                                      \
  } while (0)
/* ---- code that the driver loads (code_loading.c) ---- */

#define PUMP_LAUNCHED 4096u
/* Functions that were launched lately, each in a bucket that its handle determines. */
extern uint64_t pump_launched[PUMP_LAUNCHED];
static inline uint64_t *pump_launched_bucket(CUfunction function) {
  return &pump_launched[(uint64_t)(uintptr_t)function * 0x9e3779b97f4a7c15u >> 52];
}
static inline bool pump_was_launched(CUfunction function) {
  return PUMP_LOAD(pump_launched_bucket(function)) == (uint64_t)(uintptr_t)function;
}
/* Waits for the context's operations before the driver loads a function, outside the
 * driver's lock. Returns true if pump_first_launched must follow the real call. Call it
 * before the launch of a function that is not in its bucket. */
bool pump_first_launch(CUfunction function, struct pump_at at);
void pump_first_launched(void);
#define pump_launch_loads(function, at)                                                    \
  (PUMP_UNLIKELY(!pump_was_launched(function)) && pump_first_launch(function, at))
/* Waits in the same way before the driver loads an image, in the current context. */
void pump_code_wait_before_load(void);
bool pump_code_is_loading(void);
/* Forgets all launches after an unload: a handle may be reused for another function. */
void pump_launched_forget(void);
void pump_code_reset(void);

/* Makes a launch's stream wait for its memory (progress/gates.c), before
 * pump_op_begin_timing. Not while code is loaded: the driver would wait for the gate, and
 * the gate for memory that only other calls of the driver can move. */
void pump_op_gate(struct pump_at at, bool large);
#define pump_launch_gate(function, grid_x, at, may)                                        \
  do {                                                                                     \
    bool large_ =                                                                          \
        PUMP_LOAD(&pump_gates_large) != 0 && pump_launches_are_large(function, grid_x);    \
    if (PUMP_UNLIKELY(large_ || PUMP_LOAD(&pump_gates_devices) != 0) &&                    \
        !pump_code_is_loading() && (may))                                                  \
      pump_op_gate(at, large_);                                                            \
  } while (0)
/* Whether the newest such launch touched much of the budget (large_launches.c). */
bool pump_launches_are_large(CUfunction function, uint32_t grid_x);
static inline void pump_op_end_timing(void) {
  if (PUMP_UNLIKELY(pump_timed_begun)) pump_timed_give_back();
}

/* Numbers an operation, sends it to the worker, and records a marker if it is time for
 * one. Does nothing on a capturing stream. Call it after the real call: if the thread
 * then records a marker after number n, all operations up to n were issued. */
void pump_op_report(struct pump_op *op, uint32_t kind, uint64_t function,
                    struct pump_at at);

/* Splits pump_op_report around a real call that blocks, so that the worker can prefetch
 * its blocks during the call. If the call fails, the reported use never happens: at worst
 * a needless transfer. */
struct pump_token pump_op_announce(struct pump_op *op, uint32_t kind, uint64_t function,
                                   struct pump_at at);
void pump_op_issued(struct pump_token token, struct pump_at at);

/* Reports a launch after its real call: reads its parameters, sends the metadata that the
 * worker lacks, and reports the operation. */
struct pump_launch {
  CUfunction function;
  uint32_t grid[3], block[3];
  void **params, **extra;
  struct pump_saved *saved; /* saved parameters, used instead of both; may be NULL */
  bool chained;             /* may begin before the previous launch has ended */
  bool unknown;             /* its parameters were not seen */
};
void pump_launch_report(const struct pump_launch *launch, struct pump_at at);

/* Notes how much of the budget a launch touches (large_launches.c). */
void pump_launch_note_size(const struct pump_launch *launch, bool large);
static inline void pump_launch_touched(const struct pump_launch *launch, uint32_t device,
                                       uint64_t bytes) {
  bool large =
      bytes * PUMP_LARGE_SHARE > PUMP_LOAD(&pump_shm->devices[device].budget_bytes);
  if (PUMP_UNLIKELY(large || PUMP_LOAD(&pump_gates_large) != 0))
    pump_launch_note_size(launch, large);
}

/* Finds the launch's extents and its signature, without a report. */
void pump_launch_describe(const struct pump_launch *launch, struct pump_op *op);

/* Operations of one call, ready to be sent: a graph launch. */
struct pump_ready {
  uint32_t kind;
  uint16_t count, dropped; /* number of extents */
  uint32_t identity;       /* identity of a kernel's function */
  uint64_t signature;
  const struct pump_launch *launch; /* of a kernel; else NULL */
  const struct pump_extent *extents;
};
struct pump_series {
  const struct pump_ready *operations;
  uint32_t count;
  uint64_t graph; /* handle of the executable graph */
  uint64_t *sent; /* pump_metadata_state() when all metadata was last sent */
};
void pump_series_report(const struct pump_series *series, struct pump_at at);

/* Reports ALLOC, FREE, SYNC or HINT. They are not operations and have no number. SYNC and
 * HINT carry the newest operation's number. Only on an active client. `began_ns`: when
 * the synchronising call began. */
void pump_event_range(uint32_t kind, const struct pump_range_info *info);
/* Reports DISCARDED, FREED, DEAD or POPULATED: whole blocks of the range in `slot`. */
void pump_event_block(uint32_t kind, uint32_t slot, uint64_t offset_bytes,
                      uint64_t length_bytes);
void pump_event_sync(uint32_t stream_index, uint64_t seq, uint64_t began_ns);
void pump_event_hint(uint64_t address, uint64_t bytes, struct pump_at at);

/* Sends a PARAMS or NAME payload, cut at PUMP_MAX_PAYLOAD_BYTES. false: ring full. */
bool pump_event_payload(const struct pump_event *head, const void *payload, size_t bytes);

/* Reports, while a trace is recorded, that everything on the stream up to `seq` has
 * executed by `time_ns`. `before_ns`: an earlier poll that had not seen it; 0: none. Call
 * it in the guard. */
void pump_event_progress(uint32_t stream_index, uint64_t seq, uint64_t time_ns,
                         uint64_t before_ns);

/* Reports how long an operation took, or a graph (`seq`: its last one). Call it in the
 * guard. */
void pump_event_timed(uint32_t stream_index, uint64_t seq, uint64_t elapsed_ns);

/* Invalidates all sent metadata after another mapping was attached: names and parameters
 * must be sent again. */
void pump_metadata_void(void);

/* Returns whether the program waited for the GPU while a device was active. */
bool pump_event_waited(void); /* event.c */

/* ---- adding and removing ranges (ranges.c) ------------------------------------------ */

/* Finishes the free of a range that pump_range_remove has removed, after the real call.
 * Returns its bytes to the limit, or restores the range if the driver refused. */
void pump_range_free_ended(struct pump_range_info *info, CUresult result);

/* Makes the program's own managed memory a range. Returns false if the table is full. */
bool pump_managed_add(uint64_t base, uint64_t bytes, uint32_t device, CUcontext context);

/* ---- stream and device of an operation (stream_ref.c) ----------------- */

struct pump_stream_ref {
  uint32_t stream_index; /* into pump_shm->progress */
  uint32_t device;
};

/* Returns an operation's stream and device. Each thread caches some, so that it rarely
 * queries the driver. Call it inside a driver scope. */
struct pump_stream_ref pump_stream_ref_of(struct pump_at at);

/* Invalidates the cache after a stream or context has ended: handles may be reused. */
void pump_stream_refs_forget(void);

/* ---- parameters (launch_params.c) --------------------------------------- */

/* Initializes `words` and adds a launch's arguments. */
struct pump_scan;
void pump_params_scan(struct pump_scan *words, const struct pump_launch *launch);

/* Copies the parameter buffer as the kernel gets it, with zeros in gaps, cut at `capacity`.
 * Returns its full size; 0: unknown. */
size_t pump_params_copy(const struct pump_launch *launch, void *buffer, size_t capacity);

/* ---- function handles (function.c) -------------------------------- */

/* Queries the driver about a CUfunction, or a CUkernel passed for one, in a driver scope.
 * The second returns CUDA_ERROR_INVALID_VALUE if `index` is not below the number of
 * parameters. */
CUresult pump_function_name(CUfunction function, const char **name);
CUresult pump_function_parameter(CUfunction function, size_t index, size_t *offset,
                                 size_t *bytes);
/* Notes a handle that the driver returned, as a CUkernel or as a CUfunction. */
void pump_function_note(const void *handle, bool is_kernel);
bool pump_function_is_kernel(CUfunction function);
void pump_function_reset(void);

/* Copies a launch's parameters, without references to the program's memory. The caller
 * frees the copy. It is empty if the layout is unknown, and NULL if memory is short. */
struct pump_saved *pump_params_save(const struct pump_launch *launch);
size_t pump_params_saved_bytes(const struct pump_saved *saved);

/* Invalidates layouts after an unload: handles may be reused with other layouts. */
void pump_params_forget(void);
/* Returns the number of unloads. */
uint32_t pump_params_epoch(void);
void pump_params_reset(void);

/* ---- words of the parameters (pointer_scan.c) ---------------------------- */

struct pump_scan {
  uint64_t hash;      /* sum of the terms of all words that are not pointers */
  uint64_t low, span; /* bounds of all live ranges */
  uint32_t count, bucket_shift;
  uint32_t dropped;  /* words beyond PUMP_SCAN_WORDS_MOST; 1 if the layout is unknown */
  uint32_t identity; /* identity of the function */
  struct pump_word {
    uint64_t word, terms; /* terms: sum over all positions of the word */
    uint32_t offset;      /* first position */
    uint32_t hint;        /* hint for the look-up */
  } words[PUMP_SCAN_WORDS_MOST];
  uint16_t buckets[PUMP_SCAN_BUCKETS]; /* open addressing: index of a word + 1 */
};

/* Starts a scan of `parameter_bytes` in all. `identity`: of the function. */
void pump_scan_begin(struct pump_scan *words, size_t parameter_bytes, uint32_t identity);
/* Adds one parameter, or a buffer of several, at byte `offset` of the parameter buffer. */
void pump_scan_add(struct pump_scan *words, const void *memory, size_t bytes,
                   uint64_t offset);
/* Looks up all added words. Other work between the two calls hides cache misses. */
void pump_scan_look_ahead(struct pump_scan *words);
void pump_scan_resolve(struct pump_scan *words, struct pump_op *op);
/* Returns the launch's signature, which is never 0. */
uint64_t pump_scan_signature(const struct pump_scan *words,
                             const struct pump_launch *launch);

/* ---- tensor map descriptors (tensor_map.c) ----------------------- */

#define PUMP_TENSOR_MAP_BYTES 128u
#define PUMP_TENSOR_MAP_ALIGN 64u /* cuda.h before version 13 requires no more */

/* `shape`: a hash of the encoded type, rank, sizes and strides; 0: unknown. */
struct pump_tensor {
  uint64_t address, shape;
};

/* Not 0 once a descriptor was encoded. */
extern uint32_t pump_tensor_maps_seen;

/* Finds the contents of the descriptor at `memory`. Returns false if it is unknown. */
bool pump_tensor_find(const void *memory, struct pump_tensor *tensor);
/* Notes the address and shape that a descriptor was encoded with. */
void pump_tensor_note(const CUtensorMap *map, const void *address, uint64_t shape);
static inline uint64_t pump_tensor_mix(uint64_t hash, uint64_t word) {
  __uint128_t product = (__uint128_t)(hash ^ word) * 0x9e3779b97f4a7c15u;
  return (uint64_t)product ^ (uint64_t)(product >> 64);
}
void pump_tensor_reset(void);

/* ---- metadata, sent once (send_metadata.c) ---------------------------------- */

/* Sends the function's name and the launch's parameters, unless the worker has them.
 * Precedes the report of an operation with that signature. Returns false if the ring is
 * full. Call it inside a driver scope. */
bool pump_send_metadata(const struct pump_launch *launch, uint64_t signature,
                        uint32_t identity);

/* Returns a value, never 0; while it does not change, sent metadata remains known. */
uint64_t pump_metadata_state(void);

/* ---- numbered operations --------------------------------------------------------- */

/* An operation that just got its number. `grid`, `block`: of a launch; else NULL. */
struct pump_issued {
  uint64_t seq, signature;
  uint32_t identity, stream, kind;
  const uint32_t *grid, *block;
};

#endif
