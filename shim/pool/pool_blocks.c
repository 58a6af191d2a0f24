/* pool_blocks.c - pieces of segments: cuts, joins, hands out, takes back.
 *
 * Plain data under the pool's lock: it calls no driver function and reads no clock. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pool_state.h"

#define NODES 256u /* nodes allocated at once */
#define TABLE (1u << 16)

/* Guarded by pool_lock. Nodes and maps are reused, and never freed. */
static struct pool_piece_node *spare_nodes;
static struct pump_pool_map *spare_maps;
static struct pool_piece_node *live_table[TABLE]; /* by base */

static struct pool_piece_node *new_node(void) {
  if (spare_nodes == NULL) {
    struct pool_piece_node *nodes = calloc(NODES, sizeof *nodes);
    if (nodes == NULL) return NULL;
    for (uint32_t i = 0; i < NODES; i++) {
      nodes[i].next = spare_nodes;
      spare_nodes = &nodes[i];
    }
  }
  struct pool_piece_node *node = spare_nodes;
  spare_nodes = node->next;
  memset(node, 0, sizeof *node);
  return node;
}

static void drop_node(struct pool_piece_node *node) {
  node->next = spare_nodes;
  spare_nodes = node;
}

/* ---- free pieces of a stream, oldest first ------------------------------------- */

static void queue_put(struct pool_piece_node *piece) {
  if (piece->stream == 0) return;
  struct pool_stream *stream = &piece->segment->arena->streams[piece->stream - 1];
  PUMP_ASSERT(piece->order <= stream->frees, "a piece names a past free of its stream");
  piece->older = stream->newest; /* usually older than `piece`, except if it was joined */
  while (piece->older != NULL && piece->older->order > piece->order)
    piece->older = piece->older->older;
  piece->newer = piece->older != NULL ? piece->older->newer : stream->oldest;
  if (piece->older != NULL)
    piece->older->newer = piece;
  else
    stream->oldest = piece;
  if (piece->newer != NULL)
    piece->newer->older = piece;
  else
    stream->newest = piece;
}

static void queue_remove(struct pool_piece_node *piece) {
  if (piece->stream == 0) return;
  struct pool_stream *stream = &piece->segment->arena->streams[piece->stream - 1];
  if (piece->older != NULL)
    piece->older->newer = piece->newer;
  else
    stream->oldest = piece->newer;
  if (piece->newer != NULL)
    piece->newer->older = piece->older;
  else
    stream->newest = piece->older;
  piece->older = piece->newer = NULL;
}

/* ---- live pieces by base --------------------------------------------------------- */

static struct pool_piece_node **live_chain(uint64_t base) {
  return &live_table[base / POOL_UNIT_BYTES * 0x9e3779b97f4a7c15u >> 48];
}

struct pool_piece_node *pool_live_at(uint64_t base) {
  struct pool_piece_node *piece = *live_chain(base);
  while (piece != NULL && piece->base != base) piece = piece->next;
  return piece;
}

static void live_put(struct pool_piece_node *piece) {
  PUMP_ASSERT(pool_live_at(piece->base) == NULL, "one live piece begins at an address");
  struct pool_piece_node **chain = live_chain(piece->base);
  piece->next = *chain;
  *chain = piece;
}

static void live_remove(struct pool_piece_node *piece) {
  struct pool_piece_node **link = live_chain(piece->base);
  while (*link != piece) link = &(*link)->next;
  *link = piece->next;
}

/* ---- cutting and joining ----------------------------------------------------------- */

static uint64_t offset_of(const struct pool_piece_node *piece) {
  return piece->base - piece->segment->base;
}

static bool is_followed(const struct pool_piece_node *piece) {
  uint64_t segment_end = piece->segment->base + piece->segment->length_bytes;
  return piece->base + piece->length_bytes ==
         (piece->after != NULL ? piece->after->base : segment_end);
}

/* Cuts the first `length_bytes` off a piece that is in no bin; NULL: out of memory. */
static struct pool_piece_node *cut(struct pool_piece_node *piece, uint64_t length_bytes) {
  struct pool_piece_node *front = new_node();
  if (front == NULL) return NULL;
  front->base = piece->base;
  front->length_bytes = length_bytes;
  front->segment = piece->segment;
  front->stream = piece->stream;
  front->order = piece->order;
  front->before = piece->before;
  front->after = piece;
  if (piece->before != NULL)
    piece->before->after = front;
  else
    piece->segment->first = front;
  piece->before = front;
  piece->base += length_bytes;
  piece->length_bytes -= length_bytes;
  pool_map_begin(piece->segment->map, offset_of(piece), true);
  PUMP_ASSERT(is_followed(front), "pieces fill their segment");
  return front;
}

/* Joins a piece with the next one; both are in no bin and no queue. */
static void join(struct pool_piece_node *piece) {
  struct pool_piece_node *next = piece->after;
  pool_map_begin(piece->segment->map, offset_of(next), false);
  piece->length_bytes += next->length_bytes;
  piece->after = next->after;
  if (piece->after != NULL) piece->after->before = piece;
  if (next->order > piece->order) piece->order = next->order;
  drop_node(next);
  PUMP_ASSERT(is_followed(piece), "pieces fill their segment");
}

static bool may_join(const struct pool_piece_node *neighbour, uint32_t stream) {
  if (neighbour == NULL || neighbour->live || neighbour->quarantined) return false;
  if (neighbour->segment->arena->apart && (neighbour->stream != 0 || stream != 0))
    return false;
  return neighbour->stream == stream || neighbour->stream == 0;
}

static void withdraw(struct pool_piece_node *piece) {
  pool_bin_remove(piece);
  queue_remove(piece);
}

/* Puts a piece that is in no bin among the free ones of piece->stream, joined with its
 * neighbours if possible. Returns the joined piece. */
static struct pool_piece_node *put_free(struct pool_piece_node *piece) {
  if (may_join(piece->after, piece->stream)) {
    withdraw(piece->after);
    join(piece);
  }
  if (may_join(piece->before, piece->stream)) {
    struct pool_piece_node *front = piece->before;
    withdraw(front);
    front->stream = piece->stream;
    join(front);
    piece = front;
  }
  pool_bin_put(piece);
  queue_put(piece);
  return piece;
}

void pool_join_all(struct pool_arena *arena) {
  arena->apart = false;
  for (struct pool_segment *segment = arena->segments; segment != NULL;
       segment = segment->next)
    for (struct pool_piece_node *piece = segment->first; piece != NULL;
         piece = piece->after) {
      if (piece->live || piece->quarantined) continue;
      withdraw(piece);
      piece = put_free(piece);
    }
}

/* ---- hand out, take back ------------------------------------------------------------ */

/* Adds `change` to the number of live pieces of each block that the piece touches. */
static void count_pages(const struct pool_piece_node *piece, int change, uint64_t now_ns) {
  uint64_t first = offset_of(piece) / PUMP_BLOCK_BYTES;
  uint64_t last = (offset_of(piece) + piece->length_bytes - 1) / PUMP_BLOCK_BYTES;
  for (uint64_t i = first; i <= last; i++) {
    struct pool_page *page = &piece->segment->pages[i];
    PUMP_ASSERT(change > 0 || page->live != 0, "a block counts its live pieces");
    page->live += (uint32_t)change;
    if (page->live != 0) continue;
    page->freed_ns = now_ns;
    page->freed_at = piece->segment->arena->handed_bytes;
  }
}

struct pool_piece_node *pool_hand_out(struct pool_piece_node *piece, uint64_t length_bytes,
                                      uint64_t requested_bytes) {
  struct pool_arena *arena = piece->segment->arena;
  struct pool_piece_node *taken = piece;
  PUMP_ASSERT(!piece->live && !piece->quarantined, "memory is handed out once");
  if (piece->length_bytes > length_bytes) {
    pool_bin_remove(piece);
    taken = cut(piece, length_bytes);
    pool_bin_put(piece);
    if (taken == NULL) return NULL;
  } else {
    withdraw(piece);
  }
  taken->live = true;
  taken->request = 0;
  taken->requested_bytes = requested_bytes;
  live_put(taken);
  count_pages(taken, 1, 0);
  pool_map_live(taken->segment->map, offset_of(taken), true);
  arena->handed_bytes += taken->length_bytes;
  pool_usage_add(arena, taken->length_bytes);
  return taken;
}

static bool is_free_for(const struct pool_piece_node *piece, uint32_t stream) {
  return piece != NULL && !piece->live && !piece->quarantined &&
         (piece->stream == 0 || piece->stream == stream);
}

struct pool_piece_node *pool_find_at(struct pool_segment *segment, uint64_t offset_bytes,
                                     uint64_t length_bytes, uint32_t stream) {
  struct pool_piece_node *piece = segment->first;
  while (piece != NULL && offset_of(piece) + piece->length_bytes <= offset_bytes)
    piece = piece->after;
  if (!is_free_for(piece, stream)) return NULL;
  /* A clean piece and one of the stream may be next to each other. */
  while (offset_of(piece) + piece->length_bytes < offset_bytes + length_bytes) {
    if (!is_free_for(piece->after, stream)) return NULL;
    withdraw(piece->after);
    withdraw(piece);
    if (piece->stream == 0) piece->stream = piece->after->stream;
    join(piece);
    pool_bin_put(piece);
    queue_put(piece);
  }
  return piece;
}

struct pool_piece_node *pool_hand_out_at(struct pool_piece_node *piece,
                                         uint64_t offset_bytes, uint64_t length_bytes,
                                         uint64_t requested_bytes) {
  uint64_t before_bytes = offset_bytes - offset_of(piece);
  if (before_bytes != 0) {
    pool_bin_remove(piece);
    struct pool_piece_node *front = cut(piece, before_bytes);
    pool_bin_put(piece);
    if (front == NULL) return NULL;
    pool_bin_put(front);
    queue_put(front);
  }
  return pool_hand_out(piece, length_bytes, requested_bytes);
}

/* Returns the blocks that the piece touches and that hold nothing live. */
static struct pool_span dead_span(const struct pool_piece_node *piece) {
  const struct pool_page *pages = piece->segment->pages;
  uint64_t first = offset_of(piece) / PUMP_BLOCK_BYTES;
  uint64_t end = (offset_of(piece) + piece->length_bytes - 1) / PUMP_BLOCK_BYTES + 1;
  if (pages[first].live != 0) first++;
  if (first < end && pages[end - 1].live != 0) end--;
  return (struct pool_span){.offset_bytes = first * PUMP_BLOCK_BYTES,
                            .length_bytes = (end - first) * PUMP_BLOCK_BYTES};
}

void pool_take_back(struct pool_piece_node *piece, uint32_t stream, uint64_t order,
                    uint64_t now_ns, struct pool_span *died) {
  pool_usage_subtract(piece->segment->arena, piece->length_bytes);
  live_remove(piece);
  pool_map_live(piece->segment->map, offset_of(piece), false);
  count_pages(piece, -1, now_ns);
  *died = dead_span(piece);
  piece->live = false;
  piece->stream = stream;
  piece->order = order;
  put_free(piece);
}

void pool_mark_clean(struct pool_arena *arena, uint32_t stream, uint64_t order) {
  struct pool_stream *of = &arena->streams[stream - 1];
  while (of->oldest != NULL && of->oldest->order <= order) {
    struct pool_piece_node *piece = of->oldest;
    withdraw(piece);
    piece->stream = 0;
    piece->order = 0;
    put_free(piece);
  }
}

/* ---- quarantine --------------------------------------------------------------------- */

static bool is_dead(const struct pool_segment *segment, uint64_t i, uint64_t before_ns) {
  const struct pool_page *page = &segment->pages[i];
  return page->live == 0 && page->discarded == 0 &&
         (page->freed_ns <= before_ns ||
          (segment->arena->apart && page->freed_at != 0 && !pool_page_is_hot(segment, i)));
}

/* Finds the first run of dead blocks wholly in the piece, as offsets in the segment. */
static bool find_dead(const struct pool_piece_node *piece, uint64_t before_ns,
                      uint64_t *from, uint64_t *to) {
  uint64_t begin = offset_of(piece), end = begin + piece->length_bytes;
  uint64_t first = (begin + PUMP_BLOCK_BYTES - 1) / PUMP_BLOCK_BYTES;
  uint64_t last = end / PUMP_BLOCK_BYTES;
  const struct pool_segment *segment = piece->segment;
  while (first < last && !is_dead(segment, first, before_ns)) first++;
  *from = first * PUMP_BLOCK_BYTES;
  while (first < last && is_dead(segment, first, before_ns)) first++;
  *to = first * PUMP_BLOCK_BYTES;
  return *to > *from;
}

/* Cuts [from, to) out of a clean piece; NULL if memory is short. */
static struct pool_piece_node *cut_quarantined(struct pool_piece_node *piece, uint64_t from,
                                               uint64_t to) {
  PUMP_ASSERT(piece->stream == 0, "only memory that the GPU is done with is discarded");
  pool_bin_remove(piece);
  if (from > offset_of(piece)) {
    struct pool_piece_node *front = cut(piece, from - offset_of(piece));
    if (front != NULL) pool_bin_put(front);
  }
  struct pool_piece_node *run = piece;
  if (from == offset_of(piece) && to - from < piece->length_bytes) {
    run = cut(piece, to - from);
    pool_bin_put(piece);
  } else if (from != offset_of(piece)) {
    pool_bin_put(piece);
    return NULL;
  }
  if (run != NULL) run->quarantined = true;
  return run;
}

uint32_t pool_quarantine(struct pool_arena *arena, uint64_t before_ns,
                         struct pool_piece_node **pieces, uint32_t most) {
  uint32_t count = 0;
  uint64_t from, to;
  for (uint32_t kind = 0; kind < POOL_KINDS; kind++)
    for (uint32_t bin = pool_bin(PUMP_BLOCK_BYTES); bin < POOL_BINS; bin++) {
      /* If a place were not free at its request, the request would take another's. */
      if (kind == POOL_LARGE && pool_cycle_is_known(arena)) continue;
      if ((arena->clean.used[kind][bin / 64] >> bin % 64 & 1) == 0) continue;
      struct pool_piece_node *piece = arena->clean.first[kind][bin], *next;
      for (; piece != NULL && count < most; piece = next) {
        next = piece->next;
        if (!find_dead(piece, before_ns, &from, &to)) continue;
        struct pool_piece_node *run = cut_quarantined(piece, from, to);
        if (run == NULL) return count;
        pieces[count++] = run;
      }
    }
  return count;
}

void pool_end_quarantine(struct pool_piece_node *piece, bool discarded) {
  struct pool_page *pages = piece->segment->pages;
  uint64_t first = offset_of(piece) / PUMP_BLOCK_BYTES;
  PUMP_ASSERT(piece->quarantined, "a quarantine ends once");
  for (uint64_t i = 0; discarded && i < piece->length_bytes / PUMP_BLOCK_BYTES; i++)
    pages[first + i].discarded = 1;
  piece->quarantined = false;
  put_free(piece);
}

static bool is_populated(const struct pool_arena *arena, const struct pool_page *page,
                         uint32_t stream) {
  if (page->discarded != 0) return false;
  return page->repopulate_stream == 0 || page->repopulate_stream == stream ||
         arena->streams[page->repopulate_stream - 1].completed >= page->repopulate_order;
}

struct pool_span pool_discarded_span(const struct pool_piece_node *piece, uint32_t stream) {
  uint64_t first = offset_of(piece) / PUMP_BLOCK_BYTES, from = UINT64_MAX, to = 0;
  uint64_t last = (offset_of(piece) + piece->length_bytes - 1) / PUMP_BLOCK_BYTES;
  for (uint64_t i = first; i <= last; i++) {
    if (is_populated(piece->segment->arena, &piece->segment->pages[i], stream)) continue;
    if (from == UINT64_MAX) from = i;
    to = i + 1;
  }
  if (from == UINT64_MAX) return (struct pool_span){0, 0};
  return (struct pool_span){.offset_bytes = from * PUMP_BLOCK_BYTES,
                            .length_bytes = (to - from) * PUMP_BLOCK_BYTES};
}

void pool_note_repopulated(struct pool_piece_node *piece, const struct pool_span *span,
                           uint32_t stream, uint64_t order) {
  uint64_t first = span->offset_bytes / PUMP_BLOCK_BYTES;
  for (uint64_t i = 0; i < span->length_bytes / PUMP_BLOCK_BYTES; i++) {
    struct pool_page *page = &piece->segment->pages[first + i];
    page->discarded = 0;
    page->repopulate_stream = stream;
    page->repopulate_order = order;
  }
  piece->order = order; /* its owner may free it before that has executed */
  piece->stream = stream;
}

/* ---- segments ----------------------------------------------------------------------- */

bool pool_segment_idle(const struct pool_segment *segment) {
  const struct pool_piece_node *piece = segment->first;
  return piece->after == NULL && !piece->live && !piece->quarantined && piece->stream == 0;
}

/* Returns an empty map, possibly a reused one, for `words` words of begins, or NULL. */
static struct pump_pool_map *new_map(uint32_t words) {
  for (struct pump_pool_map **link = &spare_maps; *link != NULL; link = &(*link)->next) {
    struct pump_pool_map *map = *link;
    if (map->capacity < words || map->capacity / 2 > words) continue;
    *link = map->next;
    PUMP_STORE(&map->words, words);
    return map;
  }
  return pool_map_new(words);
}

int pool_segment_open(struct pool_segment *segment) {
  uint64_t units = segment->length_bytes / POOL_UNIT_BYTES;
  segment->pages = calloc(segment->length_bytes / PUMP_BLOCK_BYTES, sizeof *segment->pages);
  segment->map = new_map((uint32_t)(units / 64));
  struct pool_piece_node *piece = new_node();
  if (segment->pages == NULL || segment->map == NULL || piece == NULL) {
    free(segment->pages);
    if (piece != NULL) drop_node(piece);
    if (segment->map != NULL) {
      segment->map->next = spare_maps;
      spare_maps = segment->map;
    }
    return -ENOMEM;
  }
  piece->base = segment->base;
  piece->length_bytes = segment->length_bytes;
  piece->segment = segment;
  segment->first = piece;
  pool_map_begin(segment->map, 0, true);
  struct pool_arena *arena = segment->arena;
  segment->next = arena->segments;
  arena->segments = segment;
  arena->reserved_bytes += segment->length_bytes;
  pool_bin_put(piece);
  return 0;
}

void pool_segment_set_kind(struct pool_segment *segment, uint32_t kind) {
  for (uint32_t pass = 0; pass < 2; pass++) {
    for (struct pool_piece_node *piece = segment->first; piece != NULL;
         piece = piece->after) {
      if (piece->live || piece->quarantined) continue;
      if (pass == 0)
        pool_bin_remove(piece);
      else
        pool_bin_put(piece);
    }
    segment->kind = kind;
  }
}

void pool_segment_close(struct pool_segment *segment) {
  struct pool_arena *arena = segment->arena;
  if (segment->kind == POOL_LARGE) pool_cycle_drop(arena);
  while (segment->first != NULL) {
    struct pool_piece_node *piece = segment->first;
    segment->first = piece->after;
    pool_map_begin(segment->map, offset_of(piece), false);
    pool_map_live(segment->map, offset_of(piece), false);
    if (piece->live) {
      arena->used_bytes -= piece->length_bytes;
      live_remove(piece);
    } else if (!piece->quarantined) {
      withdraw(piece);
    }
    drop_node(piece);
  }
  struct pool_segment **link = &arena->segments;
  while (*link != segment) link = &(*link)->next;
  *link = segment->next;
  arena->reserved_bytes -= segment->length_bytes;
  pool_usage_bound(arena);
  segment->map->next = spare_maps;
  spare_maps = segment->map;
  free(segment->pages);
  free(segment);
}

void pool_blocks_reset(void) {
  memset(live_table, 0, sizeof live_table);
  spare_nodes = NULL; /* a forked child has only copies */
  spare_maps = NULL;
}
