/* pool_places.c - see pool_places.h. */
#include "pool_places.h"

#include <stddef.h>
#include <stdlib.h>

/* Items looked at until no more rooms are left out: some 20 ms. */
#define LOOKS_MOST (8u << 20)

struct placing {
  struct pool_item *items;
  struct pool_room *rooms;
  uint32_t count, stay, ticks, room_count;
  uint64_t looks;
};

struct gap {
  uint32_t room; /* POOL_NONE: there is no gap */
  bool unused;   /* no item lies in the room */
  uint64_t offset_bytes, length_bytes;
};

/* Whether both live at one time; a life may go round the end of the period. */
static bool meet(const struct placing *p, const struct pool_item *a,
                 const struct pool_item *b) {
  uint32_t behind_a = b->begin - a->begin, behind_b = a->begin - b->begin;
  if (b->begin < a->begin) behind_a += p->ticks;
  if (a->begin < b->begin) behind_b += p->ticks;
  return behind_a < a->ticks || behind_b < b->ticks;
}

static void look(struct placing *p, const struct pool_item *item, uint32_t room,
                 struct gap *best) {
  uint64_t start = 0;
  bool unused = p->rooms[room].first == POOL_NONE;
  uint32_t next = p->rooms[room].first;
  for (;; next = p->items[next].behind) {
    const struct pool_item *other = next == POOL_NONE ? NULL : &p->items[next];
    p->looks++;
    if (other != NULL && !meet(p, other, item)) continue;
    uint64_t end = other == NULL ? p->rooms[room].length_bytes : other->new_offset_bytes;
    uint64_t length = end > start ? end - start : 0;
    if (length >= item->length_bytes &&
        (best->room == POOL_NONE || unused < best->unused ||
         (unused == best->unused && length < best->length_bytes)))
      *best = (struct gap){room, unused, start, length};
    if (other == NULL) return;
    end = other->new_offset_bytes + other->length_bytes;
    if (end > start) start = end;
  }
}

static void put(struct placing *p, uint32_t number, uint32_t room, uint64_t offset_bytes) {
  struct pool_item *item = &p->items[number];
  item->new_room = room;
  item->new_offset_bytes = offset_bytes;
  uint32_t *link = &p->rooms[room].first;
  while (*link != POOL_NONE && p->items[*link].new_offset_bytes < offset_bytes)
    link = &p->items[*link].behind;
  item->behind = *link;
  *link = number;
}

static int compare(uint64_t a, uint64_t b) {
  return a == b ? 0 : a < b ? 1 : -1;
}

static int by_length(const void *one, const void *other) {
  const struct pool_item *a = one, *b = other;
  int order = compare(a->length_bytes, b->length_bytes);
  return order != 0 ? order : compare(b->begin, a->begin);
}

static int by_peak(const void *one, const void *other) {
  const struct pool_item *a = one, *b = other;
  return a->at_peak == b->at_peak ? by_length(a, b) : b->at_peak - a->at_peak;
}

static bool lives_at(const struct placing *p, const struct pool_item *item, uint32_t tick) {
  uint32_t age = tick - item->begin;
  if (tick < item->begin) age += p->ticks;
  return age < item->ticks;
}

/* Marks what lives when most bytes do. */
static void mark_peak(struct placing *p) {
  uint64_t most = 0;
  uint32_t peak = 0;
  for (uint32_t i = p->stay; i < p->count; i++) { /* it is where one begins */
    uint64_t bytes = 0;
    for (uint32_t j = p->stay; j < p->count; j++)
      if (lives_at(p, &p->items[j], p->items[i].begin)) bytes += p->items[j].length_bytes;
    if (bytes <= most) continue;
    most = bytes;
    peak = p->items[i].begin;
  }
  for (uint32_t i = p->stay; i < p->count; i++)
    p->items[i].at_peak = lives_at(p, &p->items[i], peak);
}

/* Places all in that order in the rooms that are not left out, or changes no place. */
static bool place_by(struct placing *p, int (*order)(const void *, const void *)) {
  qsort(&p->items[p->stay], p->count - p->stay, sizeof *p->items, order);
  for (uint32_t r = 0; r < p->room_count; r++) p->rooms[r].first = POOL_NONE;
  for (uint32_t i = 0; i < p->stay; i++)
    put(p, i, p->items[i].room, p->items[i].offset_bytes);
  for (uint32_t i = p->stay; i < p->count; i++) {
    struct gap best = {.room = POOL_NONE};
    for (uint32_t r = 0; r < p->room_count; r++)
      if (!p->rooms[r].left_out && p->rooms[r].length_bytes >= p->items[i].length_bytes)
        look(p, &p->items[i], r, &best);
    if (best.room == POOL_NONE) return false;
    put(p, i, best.room, best.offset_bytes);
  }
  for (uint32_t i = p->stay; i < p->count; i++) {
    p->items[i].room = p->items[i].new_room;
    p->items[i].offset_bytes = p->items[i].new_offset_bytes;
  }
  return true;
}

/* Which order is better differs from program to program. */
static bool place(struct placing *p) {
  return place_by(p, by_length) || place_by(p, by_peak);
}

static bool is_used(const struct placing *p, uint32_t room) {
  uint32_t i = p->stay;
  while (i < p->count && p->items[i].room != room) i++;
  return i < p->count;
}

/* The longest room of which that can be, and was not tried; POOL_NONE: there is none. */
static uint32_t next_room(const struct placing *p, const bool *tried) {
  uint32_t best = POOL_NONE;
  for (uint32_t r = 0; r < p->room_count; r++)
    if (!tried[r] && !p->rooms[r].held &&
        (best == POOL_NONE || p->rooms[r].length_bytes > p->rooms[best].length_bytes))
      best = r;
  return best;
}

bool pool_place(struct pool_item *items, uint32_t count, uint32_t stay, uint32_t ticks,
                struct pool_room *rooms, uint32_t room_count) {
  struct placing p = {items, rooms, count, stay, ticks, room_count, 0};
  bool *tried = calloc(room_count, sizeof *tried);
  if (tried == NULL) return false;
  for (uint32_t r = 0; r < room_count; r++) rooms[r].held = rooms[r].left_out = false;
  for (uint32_t i = 0; i < stay; i++) rooms[items[i].room].held = true;
  mark_peak(&p);
  bool fits = place(&p);
  for (uint32_t r; fits && (r = next_room(&p, tried)) != POOL_NONE;) {
    tried[r] = rooms[r].left_out = true;
    if (is_used(&p, r)) rooms[r].left_out = p.looks < LOOKS_MOST && place(&p);
  }
  free(tried);
  return fits;
}
