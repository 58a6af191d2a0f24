/* pool_state.h - inside of the pool; see pool.h.
 *
 * DESIGN. One lock guards everything here; it is never held across a driver call that
 * may wait. Threads of the program take it for some hundred nanoseconds.
 *
 *   arena     one of the driver's pools in one context, as far as we stand in for it
 *   segment   one managed allocation of the arena; a range of the shared table
 *   piece     a part of a segment: live (handed out) or free; together they are all of it
 *   stream    a stream on which something of the arena was freed or allocated
 *
 * Which stream may be given a free piece. One that was freed on a stream belongs to that
 * stream: what it does next comes after everything that it did before. To every other
 * stream it is free (clean: stream 0) once an event that was recorded behind the free has
 * completed. Frees of a stream are numbered, and an event covers all numbers up to the one
 * at which it was recorded. Where only one stream is in use no stream waits for these
 * events, so they are few; with several, every free has one.
 *
 * Neighbours that are free are joined at once if they belong to the same stream, and a
 * clean one joins its neighbour's stream: the whole is then as late as its last part. Where
 * dead memory is to be discarded early (pool_dead.c), only what is clean is joined.
 */
#ifndef PUMP_POOL_STATE_H
#define PUMP_POOL_STATE_H

#include "pool.h"
#include "shim/memory/pool_map.h"

/* Of segments and of what is free in them. */
#define POOL_SMALL 0u
#define POOL_LARGE 1u
#define POOL_SPARE 2u /* large, and a period does without them (pool_period.c) */
#define POOL_KINDS 3u

struct pool_piece_node {
  uint64_t base, length_bytes;
  uint64_t requested_bytes; /* live */
  struct pool_segment *segment;
  struct pool_piece_node *before, *after; /* neighbours in the segment */
  struct pool_piece_node *next, *prev;    /* in its bin; live: `next` in the table */
  struct pool_piece_node *older, *newer;  /* among what its stream has freed */
  /* Of the piece's last free: the number of that free on its stream, and the stream's
   * number in the arena, 0 when clean. A live piece keeps them: an owner that has not used
   * it has not waited for that free either. */
  uint64_t order;
  uint64_t request; /* live: its number among large requests; 0: it has none */
  uint32_t stream;
  bool live;
  bool aside; /* in quarantine: free, in no bin */
};

struct pool_bins {
  uint64_t used[POOL_KINDS][POOL_BINS / 64];
  struct pool_piece_node *first[POOL_KINDS][POOL_BINS];
};

/* A block of the address space (2 MiB). */
struct pool_page {
  uint32_t live;      /* live pieces that reach into it */
  uint32_t discarded; /* 1: to be repopulated before it is used */
  uint64_t freed_ns;  /* when the last of them was freed, */
  uint64_t freed_at;  /* and how much the arena had handed out then; 0: never */
  /* It was repopulated on that stream (number) in front of its free number
   * `repopulate_order`. */
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
  uint64_t order; /* of the newest free that it covers */
};

struct pool_stream {
  bool used, gone;                    /* gone: destroyed, its frees are not all complete */
  CUstream handle;                    /* never NULL: CU_STREAM_LEGACY */
  uint64_t thread;                    /* whose default stream; 0: any thread's */
  uint64_t frees, covered, completed; /* numbers of frees */
  uint64_t covered_ns;
  struct pool_bins *bins;
  struct pool_piece_node *oldest, *newest; /* what it freed and no stream has taken */
  CUevent
      populated; /* behind its latest repopulation in the populator; NULL: there was none */
  CUevent asked; /* on the stream itself, behind its latest request for a repopulation */
  struct pool_event events[POOL_EVENTS];
  uint32_t events_first, events_count;
};

/* Dead memory of an arena (pool_dead.c). */
struct pool_dead {
  CUstream stream;           /* ours; NULL: nothing was ever discarded */
  CUevent done;              /* behind the latest discard */
  CUstream populator;        /* ours: memory is repopulated there; NULL: none was */
  uint32_t populator_stream; /* number of the stream that all work in it is for */
  uint32_t populator_calls;  /* threads that are putting something there */
  uint64_t tick_ns;
  bool broken;
  bool submitted; /* what lies in quarantine has been discarded, up to `done` */
  uint32_t count; /* pieces in quarantine */
  struct pool_piece_node *pieces[POOL_DEAD_MOST];
};

/* Whole blocks of a segment. */
struct pool_span {
  uint64_t offset_bytes, length_bytes; /* 0: none */
};

struct pool_arena {
  CUmemoryPool pool; /* NULL: destroyed, lives on for what is still out */
  CUcontext context; /* NULL: unused */
  uint32_t device;
  uint32_t streams_used; /* entries of `streams` ever used */
  uint32_t streams_live;
  uint64_t reserved_bytes;              /* of segments */
  uint64_t kept_bytes, kept_high_bytes; /* what the driver's pool would have reserved */
  uint64_t threshold_bytes;             /* what that would keep when the program waits */
  uint64_t used_bytes, used_high_bytes; /* of live blocks */
  uint64_t peak_bytes;                  /* most of them ever */
  uint64_t handed_bytes;                /* in all */
  uint64_t hot_bytes; /* what was freed counts as just freed while that is handed out */
  bool apart;         /* pieces that are not clean are not joined */
  bool places;        /* what a period requests has places */
  struct pool_segment *segments;
  struct pool_bins clean;
  struct pool_stream streams[POOL_STREAMS]; /* number - 1 */
  CUevent *spare;                           /* events that are not recorded */
  uint32_t spare_count, spare_room;
  struct pool_dead dead;
  struct pool_period *period; /* NULL: nothing is noted of requests */
};

extern pthread_mutex_t pool_lock;

/* Release the lock, and take it again, around driver calls on idle memory that no list
 * shows meanwhile. pump_pool_relieve waits until no thread is between the two. */
void pool_unlock_busy(void);
void pool_lock_busy(void);

/* ---- free pieces by size (pool_bins.c), under the lock ------------------------- */

void pool_bin_put(struct pool_piece_node *piece);
void pool_bin_remove(struct pool_piece_node *piece);
/* The page of that number holds a live piece, or did a moment ago. */
bool pool_page_is_hot(const struct pool_segment *segment, uint64_t i);
/* A piece of `kind` of at least `length_bytes` (rounded) that `stream` (number) may use at
 * once, the shortest of its own and the clean ones; NULL: none. `hot`: of its own only what
 * was just freed. */
struct pool_piece_node *pool_find_free(struct pool_arena *arena, uint32_t kind,
                                       uint64_t length_bytes, uint32_t stream, bool hot);

/* ---- pieces (pool_blocks.c), under the lock ---------------------------------- */

/* Hands `length_bytes` of a free piece out; the rest stays free. NULL: memory is short. */
struct pool_piece_node *pool_take(struct pool_piece_node *piece, uint64_t length_bytes,
                                  uint64_t requested_bytes);
/* The free piece with room for `length_bytes` at the offset that `stream` may use at once,
 * or NULL. */
struct pool_piece_node *pool_find_at(struct pool_segment *segment, uint64_t offset_bytes,
                                     uint64_t length_bytes, uint32_t stream);
/* Hands that out; what lies around it stays free. NULL: memory is short. */
struct pool_piece_node *pool_take_at(struct pool_piece_node *piece, uint64_t offset_bytes,
                                     uint64_t length_bytes, uint64_t requested_bytes);
/* Takes a live piece back as number `order` of `stream`'s frees, or clean (stream 0).
 * `died`: the whole blocks that hold nothing live after it. */
void pool_give(struct pool_piece_node *piece, uint32_t stream, uint64_t order,
               uint64_t now_ns, struct pool_span *died);
/* Joins neighbours that were kept apart. */
void pool_settle(struct pool_arena *arena);
/* What `stream` has freed up to number `order` becomes clean. */
void pool_clean(struct pool_arena *arena, uint32_t stream, uint64_t order);
/* The live piece that begins at `base`, or NULL. */
struct pool_piece_node *pool_live_at(uint64_t base);
/* The segment's only piece is free and clean. */
bool pool_segment_idle(const struct pool_segment *segment);
/* Makes one clean piece of a new segment (base, length, arena and kind given), and puts
 * it into the arena; -ENOMEM. */
int pool_segment_open(struct pool_segment *segment);
/* Changes the kind of a segment. */
void pool_segment_is(struct pool_segment *segment, uint32_t kind);
/* Takes a segment out of its arena, whatever is in it. Its map lives on. */
void pool_segment_close(struct pool_segment *segment);
/* Sets clean pieces aside, cut to whole blocks that are not discarded, and were freed
 * before `before_ns` or are not hot; how many of at most `most`. */
uint32_t pool_set_aside(struct pool_arena *arena, uint64_t before_ns,
                        struct pool_piece_node **pieces, uint32_t most);
void pool_unset_aside(struct pool_piece_node *piece, bool discarded);
/* The blocks of a piece that `stream` has to repopulate before it uses them: they are
 * discarded, or were repopulated in the order of another stream, which may not have come to
 * it. */
struct pool_span pool_discarded_span(const struct pool_piece_node *piece, uint32_t stream);
/* They were repopulated on `stream`, in front of its free number `order`. */
void pool_repopulated(struct pool_piece_node *piece, const struct pool_span *span,
                      uint32_t stream, uint64_t order);
void pool_blocks_reset(void);

/* ---- periods (pool_period.c), under the lock ------------------------------------ */

/* Notes a large request, under its number (0: it could not). The place that it has, handed
 * out; NULL: it has none that is free, and for that stream. */
struct pool_piece_node *pool_period_take(struct pool_arena *arena, uint32_t stream,
                                         uint64_t requested_bytes, uint64_t *number);
/* What the request of that number has got. */
void pool_period_serve(struct pool_piece_node *piece, uint64_t number);
/* The piece is about to be taken back. */
void pool_period_free(const struct pool_piece_node *piece);
/* Whether places are used; and enough requests came as expected to do without POOL_SPARE.
 */
bool pool_period_follows(const struct pool_arena *arena);
bool pool_period_came(const struct pool_arena *arena);
/* Its places are void. */
void pool_period_drop(struct pool_arena *arena);
/* Requests are not noted for a while. */
void pool_period_pause(struct pool_arena *arena);
/* Frees what is known; the arena's pieces are about to go. */
void pool_period_end(struct pool_arena *arena);

/* ---- streams (pool_streams.c), under the lock ---------------------------------- */

/* Number of the stream in the arena; 0: the table is full, or it is of another context.
 * In a driver scope. */
uint32_t pool_stream_number(struct pool_arena *arena, struct pump_at at);
/* Looks which events are complete, and cleans what they cover. */
void pool_poll(struct pool_arena *arena);
/* After a free on `stream`, without the lock, in a driver scope: records an event if one is
 * due. `soon`: it is waited for. */
void pool_cover(struct pool_arena *arena, uint32_t stream, CUstream handle, bool soon);
/* The same before the stream ends: records one behind all that was freed on it, whichever
 * context is current. */
void pool_cover_last(struct pool_arena *arena, uint32_t stream, CUstream handle);

/* Learns which frees of all streams the GPU has come to, and records events behind the
 * others, where that can be done; under the lock, in a scope. */
void pool_catch_up(struct pool_arena *arena);
/* Bytes that were freed, that no stream has taken, and that the GPU may not have come to.
 */
uint64_t pool_pending_bytes(const struct pool_arena *arena);

/* ---- segments (pool_segments.c) -------------------------------------------------- */

/* Allocates a segment with room for `length_bytes` and puts it into the arena. Called
 * and left with the lock held, which is released meanwhile. 0; -EAGAIN: the driver's own
 * pool has to serve; -ENOMEM: out of memory, and that was said. */
int pool_grow(struct pool_arena *arena, uint32_t kind, uint64_t length_bytes);
/* Gives idle segments back to the driver as long as `keep_bytes` stay reserved. The same
 * rules for the lock. */
void pool_trim(struct pool_arena *arena, uint64_t keep_bytes);
/* Gives one idle segment of kind POOL_SPARE back: the driver may wait for the device at
 * each. The same rules for the lock. */
void pool_trim_spare(struct pool_arena *arena);

/* ---- dead memory (pool_dead.c) ----------------------------------------------------- */

/* Dead memory of the arena is thrown away: the device is oversubscribed, and its driver
 * can. */
bool pool_saves(const struct pool_arena *arena);
/* Without the lock, in a driver scope, before the program hears of the live piece at
 * `base`: brings its blocks in `span` back, in the order of the stream. false: it must not
 * be used.
 */
bool pool_repopulate(struct pool_arena *arena, uint32_t stream, uint64_t base,
                     const struct pool_span *span, struct pump_at at);
/* Under the lock: its context has gone, with what lies in quarantine. */
void pool_dead_forget(struct pool_dead *dead);
/* Under the lock: ends a quarantine whose discard has executed. */
void pool_dead_poll(struct pool_dead *dead);
/* Under the lock: ends a quarantine whose discard is with the driver, and waits for that
 * alone, before memory is refused. */
void pool_dead_finish(struct pool_dead *dead);

/* The driver's pools (driver_pools.c), under the lock: blocks were handed out, blocks came
 * back, segments went. */
void pool_figures_grow(struct pool_arena *arena, uint64_t bytes);
void pool_figures_shrink(struct pool_arena *arena, uint64_t bytes);
void pool_figures_bound(struct pool_arena *arena);
/* The arena stands in for its pool from now on. */
void pool_figures_begin(struct pool_arena *arena);
/* Forgets the pools of an earlier life (start of a process). */
void driver_pools_reset(void);

/* ---- arenas (pool_serve.c) --------------------------------------------------------- */

/* Under the lock; NULL: none (`make`: the table is full). */
struct pool_arena *pool_arena_of(CUmemoryPool pool, CUcontext context, uint32_t device,
                                 bool make);

/* Gives back to the driver what lies idle on the device, in all arenas or (`all` false)
 * in those whose pool was destroyed. The rules of pool_trim. */
void pool_trim_device(uint32_t device, bool all);
/* Number `i` of POOL_ARENAS; NULL: it was never used. */
struct pool_arena *pool_arena_at(uint32_t i);

#endif
