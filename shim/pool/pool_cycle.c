/* pool_cycle.c - detects the repeating requests of a training loop, and assigns an
 * address to each request.
 *
 * DESIGN. The pool loses memory between the pieces of segments: a request takes the
 * shortest piece of the moment, and leaves a rest. Training repeats its requests in each
 * iteration. So the pool records large requests and how long each lives. Once the latest
 * match earlier ones, the requests in between are a cycle. Each gets a place, which is an
 * address of its own (pool_places.h), while requests follow the cycle. The first that
 * does not ends it, and the search starts again.
 *
 * A place is not guaranteed: it is used only if it is free for that stream at that
 * moment. Otherwise the request is served like any other, first of all from segments that
 * the cycle does not need: elsewhere it would take another's place. These segments go
 * back to the driver.
 *
 * Places are used only while the peak of live memory fits into the device's budget
 * (judge() in pool_serve.c).
 */
#include <stdlib.h>

#include "pool_places.h"
#include "pool_state.h"

#define RECORDS 4096u /* requests that are recorded */
#define CYCLE_MOST (RECORDS / 2 - 1)
#define CYCLE_LEAST 16u
#define CYCLES_MOST 2u         /* placed as one, with at most CYCLE_MOST requests */
#define ALIKE 3u               /* matching requests in a row that show a cycle */
#define EXPECTED 16u           /* expected requests after which memory is given back */
#define LOOKS_MOST (16u << 20) /* items examined to place a cycle: about 60 ms */

struct record {                      /* a request */
  uint64_t length_bytes, live_bytes; /* of the request; of all that lived before it */
  uint32_t born, ticks; /* when it was served, how long it lived; 0: it lives */
};

struct step {                   /* an expected request */
  uint64_t length_bytes;        /* 0: not expected, because it came once */
  struct pool_segment *segment; /* NULL: it has no place */
  uint64_t offset_bytes;
};

struct pool_cycle {
  struct record records[RECORDS];
  uint64_t count;      /* requests recorded; also the latest one's number */
  uint64_t since;      /* no request after this number is missing */
  uint64_t live_bytes; /* total length of the requests that are not freed */
  uint64_t search_at;  /* number of the request that starts the next search */
  uint64_t backoff;    /* requests until the next search */
  uint32_t tick;       /* counts requests and frees */
  struct step *steps;  /* NULL: no cycle is known */
  uint32_t step_count, next;
  uint64_t followed; /* steps that came as expected */
};

static struct record *record_of(struct pool_cycle *cycle, uint64_t number) {
  return &cycle->records[number % RECORDS];
}

/* ---- finding a cycle --------------------------------------------------------------- */

static bool is_alike(struct pool_cycle *cycle, uint64_t number, uint64_t distance) {
  const struct record *now = record_of(cycle, number);
  const struct record *before = record_of(cycle, number - distance);
  return now->length_bytes == before->length_bytes && now->live_bytes == before->live_bytes;
}

/* Returns how many requests ago the program was at the same point; 0 if there is none.
 * The latest requests must match in length, and in the bytes alive before each. In
 * between, the bytes alive must never fall below those before the first of these
 * requests, so that few blocks have to move. */
static uint64_t find_distance(struct pool_cycle *cycle) {
  uint64_t known = cycle->count - cycle->since, first = cycle->count - ALIKE + 1;
  for (uint64_t distance = 1; distance <= CYCLE_MOST && distance + ALIKE <= known;
       distance++) {
    if (record_of(cycle, first - distance)->live_bytes <
        record_of(cycle, first)->live_bytes)
      return 0;
    uint64_t i = 0;
    while (i < ALIKE && is_alike(cycle, first + i, distance)) i++;
    if (i == ALIKE && distance >= CYCLE_LEAST) return distance;
  }
  return 0;
}

/* ---- placing a cycle --------------------------------------------------------------- */

struct placement {
  struct pool_arena *arena;
  struct pool_cycle *cycle;
  uint64_t first, distance; /* number of the first request; how many there are */
  bool keeps;               /* what lives now keeps its place for the next time */
  uint32_t ticks;           /* of the cycle */
  uint32_t cycles;          /* placed as one: several if something outlives one */
  uint32_t *lifetimes;      /* lifetimes of requests; 0: permanent, or unknown */
  struct step *steps;
  struct pool_item *items;
  struct pool_strip *strips;
  struct pool_segment **segments;
  uint32_t item_count, strip_count;
  uint64_t beyond_bytes; /* result of pool_place */
};

static bool placement_allocate(struct placement *d) {
  uint32_t pieces = 0;
  for (struct pool_segment *s = d->arena->segments; s != NULL; s = s->next) {
    d->strip_count += s->kind == POOL_LARGE;
    for (struct pool_piece_node *piece = s->first; piece != NULL; piece = piece->after)
      pieces += piece->live && s->kind == POOL_LARGE;
  }
  d->lifetimes = calloc(d->distance, sizeof *d->lifetimes);
  d->steps = calloc(CYCLES_MOST * d->distance, sizeof *d->steps);
  d->items = calloc(CYCLES_MOST * d->distance + pieces, sizeof *d->items);
  d->strips = calloc(d->strip_count, sizeof *d->strips);
  d->segments = calloc(d->strip_count, sizeof(struct pool_segment *));
  return d->lifetimes != NULL && d->steps != NULL && d->items != NULL &&
         d->strips != NULL && d->segments != NULL;
}

static void placement_drop(struct placement *d) {
  free(d->lifetimes);
  free(d->steps);
  free(d->items);
  free(d->strips);
  free(d->segments);
}

/* Returns the request one cycle earlier, if it had the same length. */
static const struct record *earlier(const struct placement *d, uint64_t number) {
  if (number - d->distance <= d->cycle->since || number <= d->distance) return NULL;
  const struct record *one = record_of(d->cycle, number - d->distance);
  return one->length_bytes == record_of(d->cycle, number)->length_bytes ? one : NULL;
}

/* Returns the lifetime of a request; 0 if unknown. A request that still lives will be
 * freed one cycle after the one before it, if that was freed in this cycle. */
static uint32_t expected_lifetime_ticks(const struct placement *d, uint64_t number) {
  const struct record *record = record_of(d->cycle, number), *before = earlier(d, number);
  if (record->ticks != 0) return record->ticks;
  if (before == NULL || before->ticks == 0) return 0;
  uint32_t since = before->born + before->ticks - record_of(d->cycle, d->first)->born;
  return since < d->ticks ? before->born + before->ticks + d->ticks - record->born : 0;
}

/* Adds all lifetimes. If data outlives its iteration, two cycles are placed as one. */
static void set_lifetimes_and_cycles(struct placement *d) {
  uint32_t cycles = CYCLES_MOST * d->distance <= CYCLE_MOST ? CYCLES_MOST : 1;
  for (uint64_t i = 0; i < d->distance; i++) {
    uint32_t ticks = expected_lifetime_ticks(d, d->first + i);
    if (ticks < cycles * d->ticks) d->lifetimes[i] = ticks;
    if (d->lifetimes[i] >= d->ticks) d->cycles = cycles;
  }
}

static struct pool_item item_of(const struct placement *d, uint64_t i, uint32_t cycle) {
  const struct record *record = record_of(d->cycle, d->first + i);
  uint32_t begin = record->born - record_of(d->cycle, d->first)->born;
  return (struct pool_item){.length_bytes = record->length_bytes,
                            .begin = cycle * d->ticks + begin,
                            .ticks = d->lifetimes[i],
                            .step = (uint32_t)(cycle * d->distance + i)};
}

/* Returns whether the request of a live piece comes again. */
static bool comes_again(const struct placement *d, const struct pool_piece_node *piece) {
  return piece->request >= d->first && piece->request < d->cycle->count &&
         d->lifetimes[piece->request - d->first] != 0;
}

static struct pool_item item_of_live_piece(const struct placement *d,
                                           const struct pool_piece_node *piece) {
  if (comes_again(d, piece)) /* it belongs to the last cycle */
    return item_of(d, piece->request - d->first, d->cycles - 1);
  return (struct pool_item){.ticks = d->cycles * d->ticks, .step = POOL_NONE};
}

/* Adds the large segments as strips, and the live pieces that stay in them as items. */
static void add_segments_and_live_pieces(struct placement *d) {
  uint32_t strip = 0;
  for (struct pool_segment *s = d->arena->segments; s != NULL; s = s->next) {
    if (s->kind != POOL_LARGE) continue;
    d->segments[strip] = s;
    d->strips[strip].length_bytes = s->length_bytes;
    for (struct pool_piece_node *piece = s->first; piece != NULL; piece = piece->after) {
      if (!piece->live || (!d->keeps && comes_again(d, piece))) continue;
      struct pool_item item = item_of_live_piece(d, piece);
      item.length_bytes = piece->length_bytes;
      item.offset_bytes = piece->base - s->base;
      item.strip = strip;
      d->items[d->item_count++] = item;
    }
    strip++;
  }
}

static void add_requests(struct placement *d, uint32_t cycle) {
  for (uint64_t i = 0; i < d->distance; i++) {
    const struct record *record = record_of(d->cycle, d->first + i);
    bool alive = record->ticks == 0;
    if (alive && earlier(d, d->first + i) == NULL) continue; /* it came once, and stays */
    d->steps[cycle * d->distance + i].length_bytes = record->length_bytes;
    bool kept = alive && d->keeps && cycle == d->cycles - 1;
    if (d->lifetimes[i] == 0 || kept) continue;
    d->items[d->item_count++] = item_of(d, i, cycle);
  }
}

/* Finds a place for each item. Returns false if they do not fit. */
static bool placement_search(struct placement *d) {
  set_lifetimes_and_cycles(d);
  add_segments_and_live_pieces(d);
  uint32_t stay = d->item_count;
  for (uint32_t i = 0; i < d->cycles; i++) add_requests(d, i);
  if (d->item_count == stay) return false;
  d->beyond_bytes = pool_place(d->items, d->item_count, stay, d->cycles * d->ticks,
                               d->strips, d->strip_count, LOOKS_MOST);
  return d->beyond_bytes != POOL_NO_FIT;
}

/* Adopts the places that were found. */
static void placement_use(struct placement *d) {
  struct pool_cycle *cycle = d->cycle;
  for (uint32_t i = 0; i < d->item_count; i++) {
    if (d->items[i].step == POOL_NONE) continue;
    struct step *step = &d->steps[d->items[i].step];
    step->segment = d->segments[d->items[i].strip];
    step->offset_bytes = d->items[i].offset_bytes;
  }
  for (uint32_t r = 0; r < d->strip_count; r++)
    if (d->strips[r].left_out) pool_segment_set_kind(d->segments[r], POOL_SPARE);
  cycle->steps = d->steps;
  cycle->step_count = (uint32_t)(d->cycles * d->distance);
  cycle->next = 0;
  cycle->followed = 0;
  d->steps = NULL;
}

/* Finds places for the `distance` requests before the latest one. */
static bool placement_of(struct placement *d, struct pool_arena *arena, uint64_t distance,
                         bool keeps) {
  struct pool_cycle *cycle = arena->cycle;
  *d = (struct placement){.arena = arena,
                          .cycle = cycle,
                          .first = cycle->count - distance,
                          .distance = distance,
                          .keeps = keeps,
                          .cycles = 1,
                          .beyond_bytes = POOL_NO_FIT};
  d->ticks = record_of(cycle, cycle->count)->born - record_of(cycle, d->first)->born;
  return placement_allocate(d) && placement_search(d);
}

/* Places a cycle. Live pieces that do not keep their place are in the way until they are
 * freed; pieces that keep it may cost segments. */
static bool place_cycle(struct pool_arena *arena, uint64_t distance) {
  struct placement kept, moved = {.beyond_bytes = POOL_NO_FIT};
  bool set = placement_of(&kept, arena, distance, true);
  if (!set || kept.beyond_bytes >= POOL_SEGMENT_LARGE_BYTES)
    set |= placement_of(&moved, arena, distance, false);
  if (set) placement_use(moved.beyond_bytes < kept.beyond_bytes ? &moved : &kept);
  placement_drop(&kept);
  placement_drop(&moved);
  return set;
}

/* ---- following a cycle ------------------------------------------------------------- */

static void drop_steps(struct pool_arena *arena) {
  struct pool_cycle *cycle = arena->cycle;
  free(cycle->steps);
  cycle->steps = NULL;
  for (struct pool_segment *s = arena->segments; s != NULL; s = s->next)
    if (s->kind == POOL_SPARE) pool_segment_set_kind(s, POOL_LARGE);
}

/* Increases the backoff, unless a whole cycle came as expected. */
static void raise_backoff(struct pool_cycle *cycle) {
  bool came = cycle->followed >= cycle->step_count;
  cycle->backoff = came ? CYCLE_LEAST : 2 * cycle->backoff;
  if (cycle->backoff > CYCLE_MOST) cycle->backoff = CYCLE_MOST;
  cycle->search_at = cycle->count + cycle->backoff;
}

/* Tolerates small differences: frameworks that cache memory may request more or less. */
static bool is_step(const struct step *step, uint64_t length_bytes) {
  uint64_t off_bytes = step->length_bytes > length_bytes
                           ? step->length_bytes - length_bytes
                           : length_bytes - step->length_bytes;
  return off_bytes <= step->length_bytes / 8;
}

/* Returns the step of a request of that length, or NULL. Steps without a place may be
 * left out. */
static const struct step *next_step(struct pool_cycle *cycle, uint64_t length_bytes) {
  for (uint32_t i = 0; i < cycle->step_count; i++) {
    const struct step *step = &cycle->steps[cycle->next];
    bool same = is_step(step, length_bytes);
    if (!same && step->segment != NULL) return NULL;
    cycle->next = (cycle->next + 1) % cycle->step_count;
    cycle->followed++;
    if (same) return step;
  }
  return NULL;
}

static void search_if_due(struct pool_arena *arena) {
  struct pool_cycle *cycle = arena->cycle;
  if (cycle->steps != NULL || cycle->count < cycle->search_at) return;
  uint64_t distance = find_distance(cycle);
  if (distance != 0 && !place_cycle(arena, distance))
    cycle->search_at = cycle->count + cycle->backoff;
}

static struct pool_cycle *cycle_of(struct pool_arena *arena) {
  if (arena->cycle != NULL) return arena->cycle;
  struct pool_cycle *cycle = calloc(1, sizeof *cycle);
  if (cycle == NULL) return NULL;
  cycle->search_at = cycle->backoff = CYCLE_LEAST;
  arena->cycle = cycle;
  return cycle;
}

/* Rounds a request to whole units. Size classes are only for pieces in bins. */
static uint64_t exact(uint64_t requested_bytes) {
  return (requested_bytes + POOL_UNIT_BYTES - 1) / POOL_UNIT_BYTES * POOL_UNIT_BYTES;
}

struct pool_piece_node *pool_cycle_take(struct pool_arena *arena, uint32_t stream,
                                        uint64_t requested_bytes, uint64_t *number) {
  struct pool_cycle *cycle = cycle_of(arena);
  uint64_t length_bytes = exact(requested_bytes);
  *number = 0;
  if (cycle == NULL) return NULL;
  *number = ++cycle->count;
  *record_of(cycle, *number) = (struct record){
      .length_bytes = length_bytes, .live_bytes = cycle->live_bytes, .born = cycle->tick++};
  search_if_due(arena);
  if (cycle->steps == NULL) return NULL;
  const struct step *step = next_step(cycle, length_bytes);
  if (step == NULL) pool_cycle_drop(arena);
  if (step == NULL || step->segment == NULL) return NULL;
  pool_dead_poll(&arena->dead); /* the place may be in quarantine */
  struct pool_piece_node *piece =
      pool_find_at(step->segment, step->offset_bytes, length_bytes, stream);
  if (piece == NULL) return NULL;
  return pool_hand_out_at(piece, step->offset_bytes, length_bytes, requested_bytes);
}

void pool_cycle_note_piece(struct pool_piece_node *piece, uint64_t number) {
  struct pool_cycle *cycle = piece->segment->arena->cycle;
  if (number == 0 || cycle == NULL) return;
  piece->request = number;
  cycle->live_bytes += exact(piece->requested_bytes);
}

void pool_cycle_note_free(const struct pool_piece_node *piece) {
  struct pool_cycle *cycle = piece->segment->arena->cycle;
  if (piece->request == 0) return;
  PUMP_ASSERT(exact(piece->requested_bytes) <= cycle->live_bytes,
              "the requests that live are counted");
  cycle->live_bytes -= exact(piece->requested_bytes);
  if (piece->request + RECORDS <= cycle->count) return;
  struct record *record = record_of(cycle, piece->request);
  record->ticks = cycle->tick++ - record->born;
}

bool pool_cycle_is_known(const struct pool_arena *arena) {
  return arena->cycle != NULL && arena->cycle->steps != NULL;
}

bool pool_cycle_is_confirmed(const struct pool_arena *arena) {
  return pool_cycle_is_known(arena) && arena->cycle->followed >= EXPECTED;
}

void pool_cycle_drop(struct pool_arena *arena) {
  if (!pool_cycle_is_known(arena)) return;
  drop_steps(arena);
  raise_backoff(arena->cycle);
}

void pool_cycle_pause(struct pool_arena *arena) {
  pool_cycle_drop(arena);
  if (arena->cycle != NULL) arena->cycle->since = arena->cycle->count;
}

void pool_cycle_end(struct pool_arena *arena) {
  if (arena->cycle == NULL) return;
  free(arena->cycle->steps);
  free(arena->cycle);
  arena->cycle = NULL;
}
