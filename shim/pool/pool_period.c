/* pool_period.c - what the program requests again and again, and the places for it.
 *
 * DESIGN. What the pool loses is lost between the pieces of segments: a request takes the
 * shortest piece of the moment, and leaves a rest. Training requests the same in each
 * iteration, so the pool notes large requests and how long each lived. Once the latest ones
 * are as some before, all between is a period, and its requests get places
 * (pool_places.h), which they are given as long as they go on as the period did. The first
 * that does not ends that, and a period is looked for anew.
 *
 * A place is no promise: it is used if it is free, and for that stream, at that moment.
 * Otherwise the request is served as any other, from segments that the period does without
 * before all: among places it would take another's. These segments go back to the driver.
 *
 * Only where all that lives fits (judge in pool_serve.c).
 */
#include <stdlib.h>

#include "pool_places.h"
#include "pool_state.h"

#define RECORDS 4096u /* requests that are remembered */
#define PERIOD_MOST (RECORDS / 2 - 1)
#define PERIOD_LEAST 16u
#define PERIODS_MOST 2u /* that are placed as one, with at most PERIOD_MOST requests */
#define ALIKE 3u        /* requests in a row that are as a period before */
#define EXPECTED 16u    /* requests as expected after which memory is given back */
#define LOOKS_MOST (16u << 20) /* at requests, to place a period: some 60 ms */

struct record {                      /* of a request */
  uint64_t length_bytes, live_bytes; /* of it, and of those that lived before it */
  uint32_t born, ticks; /* when it was served, and how long it lived; 0: it lives */
};

struct step {                   /* a request that is expected */
  uint64_t length_bytes;        /* 0: it is not, for it came once */
  struct pool_segment *segment; /* NULL: it has no place */
  uint64_t offset_bytes;
};

struct pool_period {
  struct record records[RECORDS];
  uint64_t count;      /* requests; the latest one's number */
  uint64_t since;      /* the number behind which they follow each other */
  uint64_t live_bytes; /* of requests */
  uint64_t look_at;    /* the number from which on a period is looked for */
  uint64_t patience;   /* how many requests later the next time */
  uint32_t tick;       /* requests and frees */
  struct step *steps;  /* NULL: no period is known */
  uint32_t step_count, next;
  uint64_t followed; /* steps that came */
};

static struct record *record_of(struct pool_period *period, uint64_t number) {
  return &period->records[number % RECORDS];
}

/* ---- to find a period --------------------------------------------------------------- */

static bool is_alike(struct pool_period *period, uint64_t number, uint64_t distance) {
  const struct record *now = record_of(period, number);
  const struct record *before = record_of(period, number - distance);
  return now->length_bytes == before->length_bytes && now->live_bytes == before->live_bytes;
}

/* How many requests ago the program was where it is now; 0: not in the last periods. Then
 * the latest requests were as long, and as much lived before each; and before the first of
 * these never less did in between, so little lives that is to get another place. */
static uint64_t find_distance(struct pool_period *period) {
  uint64_t known = period->count - period->since, first = period->count - ALIKE + 1;
  for (uint64_t distance = 1; distance <= PERIOD_MOST && distance + ALIKE <= known;
       distance++) {
    if (record_of(period, first - distance)->live_bytes <
        record_of(period, first)->live_bytes)
      return 0;
    uint64_t i = 0;
    while (i < ALIKE && is_alike(period, first + i, distance)) i++;
    if (i == ALIKE && distance >= PERIOD_LEAST) return distance;
  }
  return 0;
}

/* ---- to place it -------------------------------------------------------------------- */

struct draft {
  struct pool_arena *arena;
  struct pool_period *period;
  uint64_t first, distance; /* number of its first request, and how many there are */
  bool keeps;               /* what lives now keeps its place for the next time */
  uint32_t ticks;           /* of the period */
  uint32_t periods;         /* that are placed: several, where something outlives one */
  uint32_t *lives;          /* of each: for how long; 0: for good, or nothing is known */
  struct step *steps;
  struct pool_item *items;
  struct pool_room *rooms;
  struct pool_segment **segments;
  uint32_t item_count, room_count;
  uint64_t beyond_bytes; /* of what pool_place says */
};

static bool draft_make(struct draft *d) {
  uint32_t pieces = 0;
  for (struct pool_segment *s = d->arena->segments; s != NULL; s = s->next) {
    d->room_count += s->kind == POOL_LARGE;
    for (struct pool_piece_node *piece = s->first; piece != NULL; piece = piece->after)
      pieces += piece->live && s->kind == POOL_LARGE;
  }
  d->lives = calloc(d->distance, sizeof *d->lives);
  d->steps = calloc(PERIODS_MOST * d->distance, sizeof *d->steps);
  d->items = calloc(PERIODS_MOST * d->distance + pieces, sizeof *d->items);
  d->rooms = calloc(d->room_count, sizeof *d->rooms);
  d->segments = calloc(d->room_count, sizeof(struct pool_segment *));
  return d->lives != NULL && d->steps != NULL && d->items != NULL && d->rooms != NULL &&
         d->segments != NULL;
}

static void draft_drop(struct draft *d) {
  free(d->lives);
  free(d->steps);
  free(d->items);
  free(d->rooms);
  free(d->segments);
}

/* The request a period earlier, if it was as long. */
static const struct record *earlier(const struct draft *d, uint64_t number) {
  if (number - d->distance <= d->period->since || number <= d->distance) return NULL;
  const struct record *one = record_of(d->period, number - d->distance);
  return one->length_bytes == record_of(d->period, number)->length_bytes ? one : NULL;
}

/* For how long the request of that number lives. What lives still will be freed a period
 * later than the one before it was: in this period, of which the ticks are known. */
static uint32_t life(const struct draft *d, uint64_t number) {
  const struct record *record = record_of(d->period, number), *before = earlier(d, number);
  if (record->ticks != 0) return record->ticks;
  if (before == NULL || before->ticks == 0) return 0;
  uint32_t since = before->born + before->ticks - record_of(d->period, d->first)->born;
  return since < d->ticks ? before->born + before->ticks + d->ticks - record->born : 0;
}

/* The data of an iteration may live until those of the next one are there: two in turn. */
static void add_lives(struct draft *d) {
  uint32_t periods = PERIODS_MOST * d->distance <= PERIOD_MOST ? PERIODS_MOST : 1;
  for (uint64_t i = 0; i < d->distance; i++) {
    uint32_t ticks = life(d, d->first + i);
    if (ticks < periods * d->ticks) d->lives[i] = ticks;
    if (d->lives[i] >= d->ticks) d->periods = periods;
  }
}

static struct pool_item item_of(const struct draft *d, uint64_t i, uint32_t period) {
  const struct record *record = record_of(d->period, d->first + i);
  uint32_t begin = record->born - record_of(d->period, d->first)->born;
  return (struct pool_item){.length_bytes = record->length_bytes,
                            .begin = period * d->ticks + begin,
                            .ticks = d->lives[i],
                            .step = (uint32_t)(period * d->distance + i)};
}

/* It lives now, and its request comes again. */
static bool comes_again(const struct draft *d, const struct pool_piece_node *piece) {
  return piece->request >= d->first && piece->request < d->period->count &&
         d->lives[piece->request - d->first] != 0;
}

static struct pool_item live_item(const struct draft *d,
                                  const struct pool_piece_node *piece) {
  if (comes_again(d, piece)) /* it is of the last period */
    return item_of(d, piece->request - d->first, d->periods - 1);
  return (struct pool_item){.ticks = d->periods * d->ticks, .step = POOL_NONE};
}

static void add_rooms(struct draft *d) {
  uint32_t room = 0;
  for (struct pool_segment *s = d->arena->segments; s != NULL; s = s->next) {
    if (s->kind != POOL_LARGE) continue;
    d->segments[room] = s;
    d->rooms[room].length_bytes = s->length_bytes;
    for (struct pool_piece_node *piece = s->first; piece != NULL; piece = piece->after) {
      if (!piece->live || (!d->keeps && comes_again(d, piece))) continue;
      struct pool_item item = live_item(d, piece);
      item.length_bytes = piece->length_bytes;
      item.offset_bytes = piece->base - s->base;
      item.room = room;
      d->items[d->item_count++] = item;
    }
    room++;
  }
}

static void add_requests(struct draft *d, uint32_t period) {
  for (uint64_t i = 0; i < d->distance; i++) {
    const struct record *record = record_of(d->period, d->first + i);
    bool lives = record->ticks == 0;
    if (lives && earlier(d, d->first + i) == NULL) continue; /* it came once, and stays */
    d->steps[period * d->distance + i].length_bytes = record->length_bytes;
    bool kept = lives && d->keeps && period == d->periods - 1;
    if (d->lives[i] == 0 || kept) continue;
    d->items[d->item_count++] = item_of(d, i, period);
  }
}

static bool draft_place(struct draft *d) {
  add_lives(d);
  add_rooms(d);
  uint32_t stay = d->item_count;
  for (uint32_t i = 0; i < d->periods; i++) add_requests(d, i);
  if (d->item_count == stay) return false;
  d->beyond_bytes = pool_place(d->items, d->item_count, stay, d->periods * d->ticks,
                               d->rooms, d->room_count, LOOKS_MOST);
  return d->beyond_bytes != POOL_NO_ROOM;
}

/* Uses its places from now on. */
static void draft_use(struct draft *d) {
  struct pool_period *period = d->period;
  for (uint32_t i = 0; i < d->item_count; i++) {
    if (d->items[i].step == POOL_NONE) continue;
    struct step *step = &d->steps[d->items[i].step];
    step->segment = d->segments[d->items[i].room];
    step->offset_bytes = d->items[i].offset_bytes;
  }
  for (uint32_t r = 0; r < d->room_count; r++)
    if (d->rooms[r].left_out) pool_segment_is(d->segments[r], POOL_SPARE);
  period->steps = d->steps;
  period->step_count = (uint32_t)(d->periods * d->distance);
  period->next = 0;
  period->followed = 0;
  d->steps = NULL;
}

/* Of the period of the `distance` requests before the latest one. */
static bool draft_of(struct draft *d, struct pool_arena *arena, uint64_t distance,
                     bool keeps) {
  struct pool_period *period = arena->period;
  *d = (struct draft){.arena = arena,
                      .period = period,
                      .first = period->count - distance,
                      .distance = distance,
                      .keeps = keeps,
                      .periods = 1,
                      .beyond_bytes = POOL_NO_ROOM};
  d->ticks = record_of(period, period->count)->born - record_of(period, d->first)->born;
  return draft_make(d) && draft_place(d);
}

/* Places a period. What lives now and does not keep its place is in the way until it is
 * freed; what does may cost segments. */
static bool set_steps(struct pool_arena *arena, uint64_t distance) {
  struct draft kept, moved = {.beyond_bytes = POOL_NO_ROOM};
  bool set = draft_of(&kept, arena, distance, true);
  if (!set || kept.beyond_bytes >= POOL_SEGMENT_LARGE_BYTES)
    set |= draft_of(&moved, arena, distance, false);
  if (set) draft_use(moved.beyond_bytes < kept.beyond_bytes ? &moved : &kept);
  draft_drop(&kept);
  draft_drop(&moved);
  return set;
}

/* ---- to follow it ------------------------------------------------------------------- */

static void drop_steps(struct pool_arena *arena) {
  struct pool_period *period = arena->period;
  free(period->steps);
  period->steps = NULL;
  for (struct pool_segment *s = arena->segments; s != NULL; s = s->next)
    if (s->kind == POOL_SPARE) pool_segment_is(s, POOL_LARGE);
}

/* What did not come as expected for a whole period is not looked for again so soon. */
static void lose_patience(struct pool_period *period) {
  bool came = period->followed >= period->step_count;
  period->patience = came ? PERIOD_LEAST : 2 * period->patience;
  if (period->patience > PERIOD_MOST) period->patience = PERIOD_MOST;
  period->look_at = period->count + period->patience;
}

/* A framework that keeps memory itself may request a little more or less. */
static bool is_step(const struct step *step, uint64_t length_bytes) {
  uint64_t off_bytes = step->length_bytes > length_bytes
                           ? step->length_bytes - length_bytes
                           : length_bytes - step->length_bytes;
  return off_bytes <= step->length_bytes / 8;
}

/* The step that a request of that length is; NULL: none. One without a place may not come.
 */
static const struct step *next_step(struct pool_period *period, uint64_t length_bytes) {
  for (uint32_t i = 0; i < period->step_count; i++) {
    const struct step *step = &period->steps[period->next];
    bool same = is_step(step, length_bytes);
    if (!same && step->segment != NULL) return NULL;
    period->next = (period->next + 1) % period->step_count;
    period->followed++;
    if (same) return step;
  }
  return NULL;
}

static void look(struct pool_arena *arena) {
  struct pool_period *period = arena->period;
  if (period->steps != NULL || period->count < period->look_at) return;
  uint64_t distance = find_distance(period);
  if (distance != 0 && !set_steps(arena, distance))
    period->look_at = period->count + period->patience;
}

static struct pool_period *period_of(struct pool_arena *arena) {
  if (arena->period != NULL) return arena->period;
  struct pool_period *period = calloc(1, sizeof *period);
  if (period == NULL) return NULL;
  period->look_at = period->patience = PERIOD_LEAST;
  arena->period = period;
  return period;
}

/* What is requested, in whole units; classes are for what is kept in bins. */
static uint64_t exact(uint64_t requested_bytes) {
  return (requested_bytes + POOL_UNIT_BYTES - 1) / POOL_UNIT_BYTES * POOL_UNIT_BYTES;
}

struct pool_piece_node *pool_period_take(struct pool_arena *arena, uint32_t stream,
                                         uint64_t requested_bytes, uint64_t *number) {
  struct pool_period *period = period_of(arena);
  uint64_t length_bytes = exact(requested_bytes);
  *number = 0;
  if (period == NULL) return NULL;
  *number = ++period->count;
  *record_of(period, *number) = (struct record){.length_bytes = length_bytes,
                                                .live_bytes = period->live_bytes,
                                                .born = period->tick++};
  look(arena);
  if (period->steps == NULL) return NULL;
  const struct step *step = next_step(period, length_bytes);
  if (step == NULL) pool_period_drop(arena);
  if (step == NULL || step->segment == NULL) return NULL;
  pool_dead_poll(&arena->dead); /* it may lie there */
  struct pool_piece_node *piece =
      pool_find_at(step->segment, step->offset_bytes, length_bytes, stream);
  if (piece == NULL) return NULL;
  return pool_take_at(piece, step->offset_bytes, length_bytes, requested_bytes);
}

void pool_period_serve(struct pool_piece_node *piece, uint64_t number) {
  struct pool_period *period = piece->segment->arena->period;
  if (number == 0 || period == NULL) return;
  piece->request = number;
  period->live_bytes += exact(piece->requested_bytes);
}

void pool_period_free(const struct pool_piece_node *piece) {
  struct pool_period *period = piece->segment->arena->period;
  if (piece->request == 0) return;
  period->live_bytes -= exact(piece->requested_bytes);
  if (piece->request + RECORDS <= period->count) return;
  struct record *record = record_of(period, piece->request);
  record->ticks = period->tick++ - record->born;
}

bool pool_period_follows(const struct pool_arena *arena) {
  return arena->period != NULL && arena->period->steps != NULL;
}

bool pool_period_came(const struct pool_arena *arena) {
  return pool_period_follows(arena) && arena->period->followed >= EXPECTED;
}

void pool_period_drop(struct pool_arena *arena) {
  if (!pool_period_follows(arena)) return;
  drop_steps(arena);
  lose_patience(arena->period);
}

void pool_period_pause(struct pool_arena *arena) {
  pool_period_drop(arena);
  if (arena->period != NULL) arena->period->since = arena->period->count;
}

void pool_period_end(struct pool_arena *arena) {
  if (arena->period == NULL) return;
  free(arena->period->steps);
  free(arena->period);
  arena->period = NULL;
}
