/* pool_state.h - internals of the pool; see pool.h.
 *
 * DESIGN. One lock guards everything here. Only pool_dead_finish holds it across a driver
 * call that may wait. Threads of the program hold it for some hundred nanoseconds.
 *
 *   `arena`     One of the driver's pools in one context, as far as ours replaces it.
 *   `segment`   One managed allocation of the arena; a range of the shared table.
 *   `piece`     A part of a segment: live (handed out) or free. Pieces fill the segment.
 *   `stream`    A stream on which memory of the arena was freed or allocated.
 *
 * Which stream may get a free piece: a piece that was freed on a stream belongs to it,
 * because its next work comes after everything before. To every other stream it is free
 * (clean: stream 0) once an event that was recorded after the free has completed. Frees
 * of a stream are numbered, and an event covers all numbers up to the latest one when it
 * was recorded. If only one stream is in use, no stream waits for these events, so they
 * are few. With several streams, every free has one.
 *
 * Free neighbours are joined at once if they belong to the same stream. A clean piece
 * joins its neighbour's stream: the whole is then as late as its last part. If dead
 * memory is to be discarded early (pool_dead.c), only clean pieces are joined.
 */
#ifndef PUMP_POOL_STATE_H
#define PUMP_POOL_STATE_H

#include "pool.h"
#include "shim/memory/pool_map.h"

/* Kinds of segments, and of the free pieces in them. */
#define POOL_SMALL 0u
#define POOL_LARGE 1u
#define POOL_SPARE 2u /* large, but no cycle needs it (pool_cycle.c) */
#define POOL_KINDS 3u

struct pool_piece_node {
  uint64_t base, length_bytes;
  uint64_t requested_bytes; /* if live */
  struct pool_segment *segment;
  struct pool_piece_node *before, *after; /* neighbours in the segment */
  struct pool_piece_node *next, *prev;    /* in its bin; live: `next` in the live table */
  struct pool_piece_node *older, *newer;  /* its stream's free pieces, by age */
  /* The piece's last free: `order` is its number on its stream, `stream` that stream's
   * number in the arena, 0 when clean. A live piece keeps both: an owner that has not
   * used it has not waited for that free either. */
  uint64_t order;
  uint64_t request; /* live: number among large requests; 0: none */
  uint32_t stream;
  bool live;
  bool quarantined; /* in quarantine: free, but in no bin */
};

struct pool_bins {
  uint64_t used[POOL_KINDS][POOL_BINS / 64];
  struct pool_piece_node *first[POOL_KINDS][POOL_BINS];
};

/* A block of the address space (2 MiB). */
struct pool_page {
  uint32_t live;      /* live pieces that touch it */
  uint32_t discarded; /* 1: to be repopulated before its next use */
  uint64_t freed_ns;  /* when its last piece was freed */
  uint64_t freed_at;  /* handed_bytes of the arena at that time; 0: never freed */
  /* Stream (number) that last repopulated the block, and the number that this counts as
   * among its frees. */
  uint32_t repopulate_stream;
  uint64_t repopulate_order;
};

struct pool_segment {
  uint64_t base, length_bytes;
  struct pool_arena *arena;
  struct pool_segment *next;
  struct pool_piece_node *first;
  struct pump_pool_map *map;
  struct pool_page *pages;
  uint32_t slot, kind;
};

struct pool_event {
  CUevent event;
  uint64_t order; /* number of the stream's newest free before the event */
};

struct pool_stream {
  bool used, gone;                    /* gone: destroyed, but some frees are pending */
  CUstream handle;                    /* never NULL, but CU_STREAM_LEGACY */
  uint64_t thread;                    /* owner of a default stream; 0: any thread */
  uint64_t frees, covered, completed; /* last free, last covered, last completed */
  uint64_t covered_ns;
  struct pool_bins *bins;
  struct pool_piece_node *oldest, *newest; /* freed pieces that no stream has taken */
  CUevent populated; /* after its last repopulation in the populator; NULL: none */
  CUevent asked;     /* on the stream, after its last request to repopulate */
  struct pool_event events[POOL_EVENTS];
  uint32_t events_first, events_count;
};

/* Dead memory of an arena (pool_dead.c). */
struct pool_dead {
  CUstream stream;           /* ours; NULL: nothing was discarded yet */
  CUevent done;              /* after the latest discard */
  CUstream populator;        /* ours, for repopulation; NULL: not needed yet */
  uint32_t populator_stream; /* number of the only stream that it works for */
  uint32_t populator_calls;  /* threads that are submitting work to it */
  uint64_t tick_ns;
  bool broken;
  bool submitted; /* the discard of the pieces was submitted, up to `done` */
  uint32_t count; /* pieces in quarantine */
  struct pool_piece_node *pieces[POOL_DEAD_MOST];
};

/* Whole blocks of a segment. */
struct pool_span {
  uint64_t offset_bytes, length_bytes; /* 0: none */
};

struct pool_arena {
  CUmemoryPool pool; /* NULL: destroyed, lives on for memory in use */
  CUcontext context; /* NULL: unused */
  uint32_t device;
  uint32_t streams_used; /* entries of `streams` ever used */
  uint32_t streams_live;
  uint64_t reserved_bytes;              /* in segments */
  uint64_t kept_bytes, kept_high_bytes; /* that the driver's pool would have reserved */
  uint64_t threshold_bytes;             /* release threshold of the driver's pool */
  uint64_t used_bytes, used_high_bytes; /* in live blocks */
  uint64_t peak_bytes;                  /* largest used_bytes ever */
  uint64_t handed_bytes;                /* handed out in total */
  uint64_t hot_bytes; /* memory counts as just freed until this much is handed out */
  bool apart;         /* pieces that are not clean are not joined */
  bool places;        /* requests of a cycle get places */
  struct pool_segment *segments;
  struct pool_bins clean;
  struct pool_stream streams[POOL_STREAMS]; /* at index number - 1 */
  CUevent *spare;                           /* events that are not in use */
  uint32_t spare_count, spare_capacity;
  struct pool_dead dead;
  struct pool_cycle *cycle; /* NULL: no requests are recorded */
};

extern pthread_mutex_t pool_lock;

/* Release the lock, and take it again, around driver calls on idle memory that is in no
 * list then. pump_pool_free_idle waits until no thread is between the two. */
void pool_suspend_lock(void);
void pool_resume_lock(void);

/* ---- free pieces by size (pool_bins.c), under the lock ------------------------- */

void pool_bin_put(struct pool_piece_node *piece);
void pool_bin_remove(struct pool_piece_node *piece);
/* Returns whether that page holds a live piece, or did until a moment ago. */
bool pool_page_is_hot(const struct pool_segment *segment, uint64_t i);
/* Returns the shortest piece of `kind` with at least `length_bytes` (rounded) that
 * `stream` (number) may use at once: its own or a clean one; NULL if there is none.
 * `hot`: of its own, only pieces that were just freed. */
struct pool_piece_node *pool_find_free(struct pool_arena *arena, uint32_t kind,
                                       uint64_t length_bytes, uint32_t stream, bool hot);

/* ---- pieces (pool_blocks.c), under the lock ---------------------------------- */

/* Hands out `length_bytes` of a free piece; the rest stays free. NULL: out of memory. */
struct pool_piece_node *pool_hand_out(struct pool_piece_node *piece, uint64_t length_bytes,
                                      uint64_t requested_bytes);
/* Returns the free piece that has `length_bytes` at the offset, and that `stream` may use
 * at once, or NULL. */
struct pool_piece_node *pool_find_at(struct pool_segment *segment, uint64_t offset_bytes,
                                     uint64_t length_bytes, uint32_t stream);
/* Hands out that part; the rest of the piece stays free. NULL: out of memory. */
struct pool_piece_node *pool_hand_out_at(struct pool_piece_node *piece,
                                         uint64_t offset_bytes, uint64_t length_bytes,
                                         uint64_t requested_bytes);
/* Takes a live piece back as number `order` of `stream`'s frees, or as clean (stream 0).
 * `died`: the whole blocks that hold nothing live afterwards. */
void pool_take_back(struct pool_piece_node *piece, uint32_t stream, uint64_t order,
                    uint64_t now_ns, struct pool_span *died);
/* Joins neighbours that were kept apart. */
void pool_join_all(struct pool_arena *arena);
/* Makes everything clean that `stream` has freed up to number `order`. */
void pool_mark_clean(struct pool_arena *arena, uint32_t stream, uint64_t order);
/* Returns the live piece that begins at `base`, or NULL. */
struct pool_piece_node *pool_live_at(uint64_t base);
/* Returns whether the segment has only one piece, which is free and clean. */
bool pool_segment_idle(const struct pool_segment *segment);
/* Makes a new segment (base, length, arena and kind given) one clean piece, and adds it
 * to the arena; 0 or -ENOMEM. */
int pool_segment_open(struct pool_segment *segment);
/* Changes the kind of a segment. */
void pool_segment_set_kind(struct pool_segment *segment, uint32_t kind);
/* Removes a segment from its arena, whatever is in it. Its map lives on. */
void pool_segment_close(struct pool_segment *segment);
/* Quarantines clean pieces, cut to whole blocks that are not discarded, and were freed
 * before `before_ns` or are not hot. Returns how many, at most `most`. */
uint32_t pool_quarantine(struct pool_arena *arena, uint64_t before_ns,
                         struct pool_piece_node **pieces, uint32_t most);
void pool_end_quarantine(struct pool_piece_node *piece, bool discarded);
/* Returns the blocks of a piece that `stream` must repopulate before it uses them: they
 * are discarded, or another stream has repopulated them and may not have executed it. */
struct pool_span pool_discarded_span(const struct pool_piece_node *piece, uint32_t stream);
/* Records that `stream` has repopulated the blocks, as number `order` of its frees. */
void pool_note_repopulated(struct pool_piece_node *piece, const struct pool_span *span,
                           uint32_t stream, uint64_t order);
void pool_blocks_reset(void);

/* ---- cycles (pool_cycle.c), under the lock ------------------------------------ */

/* Records a large request and reports its number (0: it could not). Returns its place,
 * handed out; NULL if it has none, or none that is free for that stream. */
struct pool_piece_node *pool_cycle_take(struct pool_arena *arena, uint32_t stream,
                                        uint64_t requested_bytes, uint64_t *number);
/* Records which piece the request of that number has got. */
void pool_cycle_note_piece(struct pool_piece_node *piece, uint64_t number);
/* Records that the piece is about to be taken back. */
void pool_cycle_note_free(const struct pool_piece_node *piece);
/* Return whether places are used, and whether enough requests came as expected to give
 * segments of kind POOL_SPARE back. */
bool pool_cycle_is_known(const struct pool_arena *arena);
bool pool_cycle_is_confirmed(const struct pool_arena *arena);
/* Voids the places of the cycle. */
void pool_cycle_drop(struct pool_arena *arena);
/* Voids the places, because requests are not recorded for a while. */
void pool_cycle_pause(struct pool_arena *arena);
/* Frees the cycle, because the arena's pieces are about to end. */
void pool_cycle_end(struct pool_arena *arena);

/* ---- streams (pool_streams.c), under the lock ---------------------------------- */

/* Returns the number of the stream in the arena; 0 if the table is full, or the stream is
 * of another context. Requires a driver scope. */
uint32_t pool_stream_number(struct pool_arena *arena, struct pump_at at);
/* Polls the events, and makes clean what the completed ones cover. */
void pool_poll(struct pool_arena *arena);
/* Records an event that covers the latest frees on `stream`. If only one stream is in use,
 * it does so once per POOL_EVENT_FREES frees or POOL_EVENT_NS, or at once if `soon`.
 * Requires a driver scope. Called without the lock. */
void pool_record_event(struct pool_arena *arena, uint32_t stream, CUstream handle,
                       bool soon);
/* Records an event that covers all frees of a stream that is about to end, whichever
 * context is current. */
void pool_record_last_event(struct pool_arena *arena, uint32_t stream, CUstream handle);

/* Finds out which frees of all streams the GPU has reached, and records events after the
 * others if possible. Requires the lock and a driver scope. */
void pool_catch_up(struct pool_arena *arena);
/* Returns the bytes that were freed, that no stream has taken, and that the GPU may not
 * have reached. */
uint64_t pool_pending_bytes(const struct pool_arena *arena);

/* ---- segments (pool_segments.c) -------------------------------------------------- */

/* Adds a segment of at least `length_bytes` to the arena. Requires the lock, and
 * releases it in between. Returns 0; -EAGAIN: the driver's own pool has to serve;
 * -ENOMEM: out of memory, which the caller explains. */
int pool_grow(struct pool_arena *arena, uint32_t kind, uint64_t length_bytes);
/* Gives idle segments back to the driver while `keep_bytes` stay reserved. Handles the
 * lock as pool_grow does. */
void pool_trim(struct pool_arena *arena, uint64_t keep_bytes);
/* Gives one idle segment of kind POOL_SPARE back, because the driver may wait for the
 * device each time. Handles the lock in the same way. */
void pool_trim_spare(struct pool_arena *arena);

/* ---- dead memory (pool_dead.c) ----------------------------------------------------- */

/* Returns whether dead memory is discarded: the device is oversubscribed, and its driver
 * can do that. */
bool pool_discards_dead(const struct pool_arena *arena);
/* Repopulates the blocks in `span` of the live piece at `base`, in the order of the
 * stream, before the program gets the piece. Returns false if the piece must not be used.
 * Requires a driver scope. Called without the lock. */
bool pool_repopulate(struct pool_arena *arena, uint32_t stream, uint64_t base,
                     const struct pool_span *span, struct pump_at at);
/* Forgets the quarantine of a context that has ended. Requires the lock. */
void pool_dead_forget(struct pool_dead *dead);
/* Ends a quarantine whose discard has executed. Requires the lock. */
void pool_dead_poll(struct pool_dead *dead);
/* Ends a quarantine whose discard was submitted, and waits only for that, before memory
 * is refused. Requires the lock. */
void pool_dead_finish(struct pool_dead *dead);

/* Update what the driver's pools would report (driver_pools.c), after blocks were handed
 * out or taken back, or segments ended. Require the lock. */
void pool_usage_add(struct pool_arena *arena, uint64_t bytes);
void pool_usage_subtract(struct pool_arena *arena, uint64_t bytes);
void pool_usage_bound(struct pool_arena *arena);
/* Starts the numbers of an arena, which now replaces its pool. */
void pool_usage_begin(struct pool_arena *arena);
/* Forgets all pools, at the start of a process. */
void driver_pools_reset(void);

/* ---- arenas (pool_serve.c) --------------------------------------------------------- */

/* Returns the arena; NULL: none, or (`make`) the table is full. Requires the lock. */
struct pool_arena *pool_arena_of(CUmemoryPool pool, CUcontext context, uint32_t device,
                                 bool make);

/* Gives idle memory of the device back to the driver, in all arenas, or (`all` false) in
 * arenas of destroyed pools. Handles the lock as pool_trim does. */
void pool_trim_device(uint32_t device, bool all);
/* Returns number `i` of POOL_ARENAS; NULL if it was never used. */
struct pool_arena *pool_arena_at(uint32_t i);

#endif
