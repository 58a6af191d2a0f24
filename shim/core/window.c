/* window.c - see window.h.
 *
 * DESIGN
 * Operations stand in a ring in issue order, and in a list per stream. Each
 * (operation, block) pair is a use; uses stand in a second ring and are chained
 * per block, oldest first: next_entry[block] is the first use whose operation
 * has not executed, last_entry[block] the newest one. Streams retire out of
 * issue order, so a chain may run through uses of executed operations; they are
 * skipped when the head moves. A ring slot is reused only after everything
 * older has executed, so every link met on the way is still valid.
 *
 * `frontier` of a stream: no operation before it misses a block. It only moves
 * back when a block leaves that an operation before it needs, which the rule
 * "never evict what is needed sooner" makes rare; so looking for missing blocks
 * costs, over time, one look at each use.
 */
#include "window.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "pump_abi.h"

#define EXPORT __attribute__((visibility("default")))

#define OPS (1u << 14)
#define USES (1u << 21)
#define NONE (-1)

struct op {
  uint64_t seq;
  uint64_t rank;     /* how many operations its stream issued before it */
  int64_t first_use; /* position in the use ring */
  int64_t next;      /* position of the next operation of its stream, or NONE */
  uint32_t uses;
  uint32_t stream;
  bool executed;
};

struct use {
  int64_t block; /* NONE once the block is gone */
  int64_t op;
  int64_t next; /* next use of the same block, or NONE */
};

struct stream {
  int64_t head, tail; /* first and last operation not retired, or NONE */
  int64_t frontier;   /* NONE: nothing to look at */
  uint64_t issued;
  bool listed; /* stands in `busy` */
};

struct pump_window {
  struct pump_columns table;
  int64_t *next_entry, *last_entry;
  uint32_t *seen; /* per block: the look that reported it last */
  uint32_t look;
  int64_t clock;
  uint32_t high; /* blocks at and above this one were never created */
  int64_t op_head, op_tail;
  int64_t use_head, use_tail;
  struct op ops[OPS];
  struct use uses[USES];
  struct stream streams[PUMP_MAX_STREAMS];
  uint32_t busy[PUMP_MAX_STREAMS];
  uint32_t busy_count;
};

static struct op *op_at(struct pump_window *w, int64_t position) {
  return &w->ops[(uint64_t)position & (OPS - 1)];
}

static struct use *use_at(struct pump_window *w, int64_t position) {
  return &w->uses[(uint64_t)position & (USES - 1)];
}

EXPORT struct pump_window *pump_window_new(const struct pump_columns *columns) {
  struct pump_window *w = calloc(1, sizeof *w);
  if (w == NULL) return NULL;
  w->table = *columns;
  size_t n = columns->capacity;
  w->next_entry = malloc(n * sizeof *w->next_entry);
  w->last_entry = malloc(n * sizeof *w->last_entry);
  w->seen = calloc(n, sizeof *w->seen);
  if (w->next_entry == NULL || w->last_entry == NULL || w->seen == NULL) {
    pump_window_delete(w);
    return NULL;
  }
  for (size_t i = 0; i < n; i++) {
    w->next_entry[i] = w->last_entry[i] = NONE;
    w->table.next_use[i] = PUMP_NOT_NEEDED;
  }
  for (size_t i = 0; i < PUMP_MAX_STREAMS; i++)
    w->streams[i] = (struct stream){.head = NONE, .tail = NONE, .frontier = NONE};
  return w;
}

EXPORT void pump_window_delete(struct pump_window *w) {
  if (w == NULL) return;
  free(w->next_entry);
  free(w->last_entry);
  free(w->seen);
  free(w);
}

EXPORT uint32_t pump_window_depth(const struct pump_window *w) {
  uint32_t depth = 0;
  for (int64_t i = w->op_tail; i < w->op_head; i++)
    depth += !w->ops[(uint64_t)i & (OPS - 1)].executed;
  return depth;
}

/* ---- block states -------------------------------------------------------- */

static void lower_frontier(struct pump_window *w, int64_t block) {
  int64_t entry = w->next_entry[block];
  if (entry == NONE) return;
  int64_t position = use_at(w, entry)->op;
  struct stream *stream = &w->streams[op_at(w, position)->stream];
  if (stream->frontier == NONE || position < stream->frontier) stream->frontier = position;
}

static void set_state(struct pump_window *w, int64_t block, uint32_t state) {
  uint8_t *slot = &w->table.state[block];
  int64_t *counts = &w->table.counts[w->table.device[block] * PUMP_BLOCK_STATES];
  counts[*slot]--;
  counts[state]++;
  /* LEAVING -> RESIDENT is an eviction that did not happen: it moved nothing. Prefetching
   * a resident block, on the other hand, makes it the newest of the driver's list. */
  if (state == PUMP_BLOCK_RESIDENT && *slot != PUMP_BLOCK_LEAVING)
    w->table.migrated[block] = ++w->clock;
  *slot = (uint8_t)state;
  if (state != PUMP_BLOCK_RESIDENT && state != PUMP_BLOCK_ARRIVING)
    lower_frontier(w, block);
}

static bool inside(const struct pump_window *w, int64_t first, int64_t count) {
  return first >= 0 && count > 0 && first < w->table.capacity &&
         count <= w->table.capacity - first;
}

EXPORT void pump_window_set(struct pump_window *w, const int64_t *blocks, uint32_t count,
                            uint32_t state) {
  for (uint32_t i = 0; i < count; i++) {
    if (inside(w, blocks[i], 1) && w->table.state[blocks[i]] != PUMP_BLOCK_FREE)
      set_state(w, blocks[i], state);
  }
}

EXPORT void pump_window_create(struct pump_window *w, int64_t first, int64_t count,
                               uint32_t device, uint32_t state) {
  if (!inside(w, first, count)) return;
  if (first + count > w->high) w->high = (uint32_t)(first + count);
  for (int64_t b = first; b < first + count; b++) {
    w->table.counts[w->table.device[b] * PUMP_BLOCK_STATES + w->table.state[b]]--;
    w->table.device[b] = (uint8_t)(device & (PUMP_MAX_DEVICES - 1));
    w->table.state[b] = PUMP_BLOCK_FREE;
    w->table.counts[w->table.device[b] * PUMP_BLOCK_STATES + PUMP_BLOCK_FREE]++;
    w->table.last_use[b] = 0;
    w->table.migrated[b] = 0;
    set_state(w, b, state);
  }
}

EXPORT void pump_window_destroy(struct pump_window *w, int64_t first, int64_t count) {
  if (!inside(w, first, count)) return;
  for (int64_t b = first; b < first + count; b++) {
    for (int64_t e = w->next_entry[b]; e != NONE; e = use_at(w, e)->next)
      use_at(w, e)->block = NONE;
    w->next_entry[b] = w->last_entry[b] = NONE;
    w->table.next_use[b] = PUMP_NOT_NEEDED;
    set_state(w, b, PUMP_BLOCK_FREE);
  }
}

/* ---- appending ----------------------------------------------------------- */

static void add_use(struct pump_window *w, int64_t position, int64_t block) {
  struct op *op = op_at(w, position);
  int64_t entry = w->use_head++;
  *use_at(w, entry) = (struct use){.block = block, .op = position, .next = NONE};
  op->uses++;
  if (w->next_entry[block] == NONE) {
    w->next_entry[block] = entry;
    w->table.next_use[block] = (int64_t)op->seq;
  } else {
    use_at(w, w->last_entry[block])->next = entry;
  }
  w->last_entry[block] = entry;
  w->table.last_use[block] = (int64_t)op->seq;
}

static void enlist(struct pump_window *w, int64_t position) {
  struct op *op = op_at(w, position);
  struct stream *stream = &w->streams[op->stream];
  op->rank = stream->issued++;
  if (stream->head == NONE) {
    stream->head = position;
  } else {
    op_at(w, stream->tail)->next = position;
  }
  stream->tail = position;
  if (stream->frontier == NONE) stream->frontier = position;
  if (!stream->listed) {
    stream->listed = true;
    w->busy[w->busy_count++] = op->stream;
  }
}

static void make_room(struct pump_window *w, int64_t uses, uint32_t *lost) {
  struct pump_retired unseen = {0};
  while (w->op_head - w->op_tail >= OPS || w->use_head + uses - w->use_tail > USES) {
    if (w->op_tail == w->op_head) return; /* one operation larger than the ring */
    struct op *oldest = op_at(w, w->op_tail);
    pump_window_retire(w, oldest->stream, oldest->seq, &unseen);
    (*lost)++;
  }
}

EXPORT uint32_t pump_window_append(struct pump_window *w, uint32_t operations,
                                   const uint64_t *seq, const uint32_t *stream,
                                   const uint32_t *use_begin, const int64_t *first,
                                   const int64_t *count) {
  uint32_t lost = 0;
  for (uint32_t i = 0; i < operations; i++) {
    int64_t uses = 0;
    for (uint32_t u = use_begin[i]; u < use_begin[i + 1]; u++)
      if (inside(w, first[u], count[u])) uses += count[u];
    if (uses > USES) uses = USES;
    make_room(w, uses, &lost);
    int64_t position = w->op_head++;
    *op_at(w, position) = (struct op){.seq = seq[i],
                                      .first_use = w->use_head,
                                      .next = NONE,
                                      .stream = stream[i] & (PUMP_MAX_STREAMS - 1)};
    enlist(w, position);
    int64_t end = w->use_head + uses;
    for (uint32_t u = use_begin[i]; u < use_begin[i + 1]; u++) {
      if (!inside(w, first[u], count[u])) continue;
      for (int64_t b = first[u]; b < first[u] + count[u] && w->use_head < end; b++)
        if (w->table.state[b] != PUMP_BLOCK_FREE) add_use(w, position, b);
    }
  }
  return lost;
}

/* ---- retiring ------------------------------------------------------------ */

/* The use `entry` of `block` has executed: the chain's head moves on. */
static void advance_chain(struct pump_window *w, int64_t entry, int64_t block) {
  if (w->next_entry[block] != entry) return;
  int64_t next = use_at(w, entry)->next;
  while (next != NONE && op_at(w, use_at(w, next)->op)->executed)
    next = use_at(w, next)->next;
  w->next_entry[block] = next;
  if (next == NONE) {
    w->last_entry[block] = NONE;
    w->table.next_use[block] = PUMP_NOT_NEEDED;
  } else {
    w->table.next_use[block] = (int64_t)op_at(w, use_at(w, next)->op)->seq;
  }
}

static void retire_op(struct pump_window *w, struct op *op, struct pump_retired *out) {
  bool hit = true;
  op->executed = true;
  for (uint32_t i = 0; i < op->uses; i++) {
    int64_t entry = op->first_use + i;
    int64_t block = use_at(w, entry)->block;
    if (block == NONE) continue;
    uint8_t state = w->table.state[block];
    out->blocks++;
    if (state == PUMP_BLOCK_RESIDENT || state == PUMP_BLOCK_DOUBTED) {
      out->blocks_hit++;
    } else {
      hit = false;
      if (state == PUMP_BLOCK_ARRIVING) {
        out->blocks_late++;
      } else {
        out->blocks_missing++;
        /* A LEAVING block stays so: its completion decides where it is. */
        if (state != PUMP_BLOCK_LEAVING) set_state(w, block, PUMP_BLOCK_RESIDENT);
      }
    }
    advance_chain(w, entry, block);
  }
  out->operations++;
  out->operations_hit += hit;
}

EXPORT void pump_window_retire(struct pump_window *w, uint32_t stream_index,
                               uint64_t executed_seq, struct pump_retired *out) {
  struct stream *stream = &w->streams[stream_index & (PUMP_MAX_STREAMS - 1)];
  while (stream->head != NONE && op_at(w, stream->head)->seq <= executed_seq) {
    struct op *op = op_at(w, stream->head);
    retire_op(w, op, out);
    if (stream->frontier == stream->head) stream->frontier = op->next;
    stream->head = op->next;
  }
  if (stream->head == NONE) stream->tail = stream->frontier = NONE;
  while (w->op_tail < w->op_head && op_at(w, w->op_tail)->executed) {
    w->use_tail = op_at(w, w->op_tail)->first_use + op_at(w, w->op_tail)->uses;
    w->op_tail++;
  }
}

/* ---- looking ahead ------------------------------------------------------- */

/* Where missing blocks are collected: columns of at most `max` rows. */
struct collection {
  int64_t *blocks, *need;
  uint32_t *stream;
  uint32_t device, max, found;
};

/* Appends the missing blocks of one operation; false when there is no more space. */
static bool collect(struct pump_window *w, const struct op *op, struct collection *out,
                    bool *complete) {
  for (uint32_t i = 0; i < op->uses; i++) {
    int64_t block = use_at(w, op->first_use + i)->block;
    if (block == NONE) continue;
    uint8_t state = w->table.state[block];
    if (state == PUMP_BLOCK_RESIDENT || state == PUMP_BLOCK_ARRIVING) continue;
    *complete = false;
    if (state == PUMP_BLOCK_LEAVING || w->table.device[block] != out->device) continue;
    if (w->seen[block] == w->look) continue;
    if (out->found == out->max) return false;
    w->seen[block] = w->look;
    out->blocks[out->found] = block;
    out->need[out->found] = (int64_t)op->seq;
    out->stream[out->found] = op->stream;
    out->found++;
  }
  return true;
}

/* Of all streams, the one whose cursor stands nearest to its head; of equals, the
 * one whose operation was issued first. */
static uint32_t nearest(const struct pump_window *w, const int64_t *cursor) {
  uint32_t best = w->busy_count;
  uint64_t best_distance = UINT64_MAX;
  for (uint32_t i = 0; i < w->busy_count; i++) {
    if (cursor[i] == NONE) continue;
    const struct stream *stream = &w->streams[w->busy[i]];
    uint64_t distance = w->ops[(uint64_t)cursor[i] & (OPS - 1)].rank -
                        w->ops[(uint64_t)stream->head & (OPS - 1)].rank;
    if (distance < best_distance ||
        (distance == best_distance && cursor[i] < cursor[best])) {
      best_distance = distance;
      best = i;
    }
  }
  return best;
}

static void drop_idle_streams(struct pump_window *w) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < w->busy_count; i++) {
    uint32_t index = w->busy[i];
    if (w->streams[index].head == NONE) {
      w->streams[index].listed = false;
    } else {
      w->busy[kept++] = index;
    }
  }
  w->busy_count = kept;
}

EXPORT uint32_t pump_window_missing(struct pump_window *w, uint32_t device, uint32_t max,
                                    int64_t *blocks, int64_t *need, uint32_t *stream) {
  int64_t cursor[PUMP_MAX_STREAMS];
  struct collection out = {
      .blocks = blocks, .need = need, .stream = stream, .device = device, .max = max};
  if (++w->look == 0) { /* wrapped: forget what older looks marked */
    memset(w->seen, 0, w->table.capacity * sizeof *w->seen);
    w->look = 1;
  }
  drop_idle_streams(w);
  for (uint32_t i = 0; i < w->busy_count; i++) cursor[i] = w->streams[w->busy[i]].frontier;
  for (;;) {
    uint32_t i = nearest(w, cursor);
    if (i == w->busy_count) return out.found;
    struct stream *nearby = &w->streams[w->busy[i]];
    struct op *op = op_at(w, cursor[i]);
    bool complete = true;
    if (!collect(w, op, &out, &complete)) return out.found;
    if (complete && nearby->frontier == cursor[i]) nearby->frontier = op->next;
    cursor[i] = op->next;
  }
}

/* ---- who would leave ----------------------------------------------------- */

#define LEAVERS_MAX 256

/* A block that leaves earlier has a smaller key. Needed blocks lie above all
 * unneeded ones, and the later they are needed the lower. */
static int64_t leaving_key(const struct pump_window *w, uint32_t by, size_t block) {
  if (by != PUMP_BY_NEED) return w->table.migrated[block];
  int64_t next_use = w->table.next_use[block];
  return next_use == PUMP_NOT_NEEDED ? w->table.last_use[block] - PUMP_NOT_NEEDED
                                     : -next_use;
}

/* A candidate for leaving. Equal keys go by number, so that the blocks of one tensor,
 * which are all needed at the same time, leave side by side in few commands. */
struct leaver {
  int64_t key, block;
};

static bool leaves_later(struct leaver a, struct leaver b) {
  return a.key > b.key || (a.key == b.key && a.block > b.block);
}

/* One step of a heap whose root leaves last of all: the one to be replaced. */
static void sift_down(struct leaver *heap, uint32_t count, uint32_t i) {
  for (;;) {
    uint32_t child = 2 * i + 1;
    if (child >= count) return;
    if (child + 1 < count && leaves_later(heap[child + 1], heap[child])) child++;
    if (!leaves_later(heap[child], heap[i])) return;
    struct leaver moved = heap[i];
    heap[i] = heap[child];
    heap[child] = moved;
    i = child;
  }
}

static void make_heap(struct leaver *heap, uint32_t count) {
  for (uint32_t i = count / 2; i-- > 0;) sift_down(heap, count, i);
}

static bool may_leave(const struct pump_window *w, size_t block, uint32_t device,
                      uint32_t by) {
  uint8_t state = w->table.state[block];
  bool doubted = state == PUMP_BLOCK_DOUBTED && by != PUMP_BY_MIGRATION_SURE;
  return (state == PUMP_BLOCK_RESIDENT || doubted) && w->table.device[block] == device;
}

EXPORT uint32_t pump_window_leavers(struct pump_window *w, uint32_t device, uint32_t by,
                                    uint32_t max, int64_t *blocks) {
  struct leaver heap[LEAVERS_MAX];
  uint32_t found = 0;
  if (max > LEAVERS_MAX) max = LEAVERS_MAX;
  if (max == 0) return 0;
  for (size_t b = 0; b < w->high; b++) {
    if (!may_leave(w, b, device, by)) continue;
    struct leaver candidate = {.key = leaving_key(w, by, b), .block = (int64_t)b};
    if (found < max) {
      heap[found++] = candidate;
      if (found == max) make_heap(heap, max);
    } else if (leaves_later(heap[0], candidate)) {
      heap[0] = candidate;
      sift_down(heap, max, 0);
    }
  }
  if (found < max) make_heap(heap, found);
  for (uint32_t left = found; left > 0;
       left--) { /* heap sort: who leaves last comes last */
    blocks[left - 1] = heap[0].block;
    heap[0] = heap[left - 1];
    sift_down(heap, left - 1, 0);
  }
  return found;
}
