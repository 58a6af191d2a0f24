/* pool_places.c - see pool_places.h. */
#include "pool_places.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "pump_assert.h"

/* To displace others, an item without a gap looks at one strip in this many, by chance.
 * With all strips the search would cycle. */
#define STRIPS_OF_CHANCE 4u
/* The search ends if strips exceed the peak of live bytes by at most 1/GOOD_ENOUGH. */
#define GOOD_ENOUGH 64u

/* An item in a strip that lives at the same time as an item without a gap. */
struct other {
  uint64_t begin_bytes, end_bytes, cost_of_span;
};

struct placing {
  struct pool_item *items;
  struct pool_strip *strips;
  uint32_t count, stay, ticks, strip_count;
  uint32_t next; /* all items before it have a place */
  uint64_t peak_bytes;
  uint64_t looks, looks_most; /* items examined, now and at most */
  uint32_t chance;
  struct other *others; /* memory for all */
};

struct gap {
  uint32_t strip; /* POOL_NONE: there is none */
  bool unused;    /* no item is in the strip */
  uint64_t offset_bytes, length_bytes;
};

/* Returns whether both live at one time. Lifetimes may wrap at the end of the cycle. */
static bool meet(const struct placing *p, const struct pool_item *a,
                 const struct pool_item *b) {
  uint32_t after_a = b->begin - a->begin, after_b = a->begin - b->begin;
  if (b->begin < a->begin) after_a += p->ticks;
  if (a->begin < b->begin) after_b += p->ticks;
  return after_a < a->ticks || after_b < b->ticks;
}

static void examine_strip(struct placing *p, const struct pool_item *item, uint32_t strip,
                          struct gap *best) {
  uint64_t reset_items = 0;
  bool unused = p->strips[strip].first == POOL_NONE;
  uint32_t next = p->strips[strip].first;
  for (;; next = p->items[next].next_in_strip) {
    const struct pool_item *other = next == POOL_NONE ? NULL : &p->items[next];
    p->looks++;
    if (other != NULL && !meet(p, other, item)) continue;
    uint64_t end = other == NULL ? p->strips[strip].length_bytes : other->new_offset_bytes;
    uint64_t length = end > reset_items ? end - reset_items : 0;
    if (length >= item->length_bytes &&
        (best->strip == POOL_NONE || unused < best->unused ||
         (unused == best->unused && length < best->length_bytes)))
      *best = (struct gap){strip, unused, reset_items, length};
    if (other == NULL) return;
    end = other->new_offset_bytes + other->length_bytes;
    if (end > reset_items) reset_items = end;
  }
}

/* Returns whether the item at that offset would overlap another at the same time. */
static bool collide(const struct placing *p, const struct pool_item *item,
                    uint64_t offset_bytes, const struct pool_item *other) {
  return other->new_offset_bytes < offset_bytes + item->length_bytes &&
         offset_bytes < other->new_offset_bytes + other->length_bytes &&
         meet(p, other, item);
}

/* Returns whether no other item of the strip would overlap the item at that offset. */
static bool is_free(const struct placing *p, const struct pool_item *item, uint32_t strip,
                    uint64_t offset_bytes) {
  uint32_t i = p->strips[strip].first;
  while (i != POOL_NONE && !collide(p, item, offset_bytes, &p->items[i]))
    i = p->items[i].next_in_strip;
  return i == POOL_NONE;
}

static void put(struct placing *p, uint32_t number, uint32_t strip, uint64_t offset_bytes) {
  struct pool_item *item = &p->items[number];
  item->new_strip = strip;
  item->new_offset_bytes = offset_bytes;
  PUMP_ASSERT(is_free(p, item, strip, offset_bytes), "two live items share no byte");
  uint32_t *link = &p->strips[strip].first;
  while (*link != POOL_NONE && p->items[*link].new_offset_bytes < offset_bytes)
    link = &p->items[*link].next_in_strip;
  item->next_in_strip = *link;
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

static bool is_alive_at(const struct placing *p, const struct pool_item *item,
                        uint32_t tick) {
  uint32_t age = tick - item->begin;
  if (tick < item->begin) age += p->ticks;
  return age < item->ticks;
}

/* Computes the peak of live bytes, and marks the items that live then. */
static void mark_peak(struct placing *p) {
  uint32_t peak = 0;
  for (uint32_t i = 0; i < p->count; i++) { /* the peak is where an item begins */
    uint64_t bytes = 0;
    for (uint32_t j = 0; j < p->count; j++)
      if (is_alive_at(p, &p->items[j], p->items[i].begin))
        bytes += p->items[j].length_bytes;
    if (bytes <= p->peak_bytes) continue;
    p->peak_bytes = bytes;
    peak = p->items[i].begin;
  }
  for (uint32_t i = p->stay; i < p->count; i++)
    p->items[i].at_peak = is_alive_at(p, &p->items[i], peak);
}

static struct gap find_gap(struct placing *p, const struct pool_item *item) {
  struct gap best = {.strip = POOL_NONE};
  for (uint32_t r = 0; r < p->strip_count; r++)
    if (!p->strips[r].left_out && p->strips[r].length_bytes >= item->length_bytes)
      examine_strip(p, item, r, &best);
  return best;
}

/* ---- displacing others ------------------------------------------------------------ */

/* Lists what lives in the strip at the item's time, by offset; returns how many. Raises
 * the cost of items that were displaced before, so that the search does not cycle. */
static uint32_t note_others(struct placing *p, const struct pool_item *item,
                            uint32_t strip) {
  uint32_t count = 0;
  for (uint32_t i = p->strips[strip].first; i != POOL_NONE; i = p->items[i].next_in_strip) {
    const struct pool_item *other = &p->items[i];
    p->looks++;
    if (!meet(p, other, item)) continue;
    uint64_t begin_bytes = other->new_offset_bytes, losses = 1 + other->losses;
    p->others[count++] = (struct other){
        .begin_bytes = begin_bytes,
        .end_bytes = begin_bytes + other->length_bytes,
        .cost_of_span = i < p->stay ? UINT64_MAX : other->length_bytes * losses * losses};
  }
  return count;
}

/* Returns the cost of a span's items; UINT64_MAX if one stays, or it reaches `most`. */
static uint64_t cost_of_span(struct placing *p, uint32_t others, uint64_t begin_bytes,
                             uint64_t end_bytes, uint64_t most) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < others && p->others[i].begin_bytes < end_bytes; i++) {
    p->looks++;
    if (p->others[i].end_bytes <= begin_bytes) continue;
    if (p->others[i].cost_of_span >= most - sum) return UINT64_MAX;
    sum += p->others[i].cost_of_span;
  }
  return sum;
}

struct bid {
  struct gap gap;
  uint64_t cost_of_span;
};

static void keep_cheaper_place(struct placing *p, const struct pool_item *item,
                               uint32_t strip, uint32_t others, uint64_t offset_bytes,
                               struct bid *best) {
  uint64_t end_bytes = offset_bytes + item->length_bytes;
  if (end_bytes > p->strips[strip].length_bytes) return;
  uint64_t sum = cost_of_span(p, others, offset_bytes, end_bytes, best->cost_of_span);
  if (sum < best->cost_of_span)
    *best = (struct bid){{.strip = strip, .offset_bytes = offset_bytes}, sum};
}

static uint32_t chance_below(struct placing *p, uint32_t most) {
  p->chance = p->chance * 1664525u + 1013904223u; /* Knuth, TAOCP 2, 3.3.4 */
  return (p->chance >> 8) % most;
}

/* Removes the items that are in the way of `item`. */
static void remove_colliding(struct placing *p, const struct pool_item *item,
                             const struct gap *at) {
  uint32_t *link = &p->strips[at->strip].first;
  while (*link != POOL_NONE) {
    uint32_t number = *link;
    struct pool_item *other = &p->items[number];
    if (!collide(p, item, at->offset_bytes, other)) {
      link = &other->next_in_strip;
      continue;
    }
    *link = other->next_in_strip;
    other->new_strip = POOL_NONE;
    other->losses++;
    if (number < p->next) p->next = number;
  }
}

/* Finds and clears the cheapest place in some of the strips, if there is any. */
static struct gap displace(struct placing *p, const struct pool_item *item) {
  struct bid best = {{.strip = POOL_NONE}, UINT64_MAX};
  p->looks++;
  for (uint32_t r = 0; r < p->strip_count; r++) {
    const struct pool_strip *strip = &p->strips[r];
    if (strip->left_out || strip->length_bytes < item->length_bytes) continue;
    if (chance_below(p, STRIPS_OF_CHANCE) != 0) continue;
    uint32_t others = note_others(p, item, r);
    keep_cheaper_place(p, item, r, others, 0, &best);
    keep_cheaper_place(p, item, r, others, strip->length_bytes - item->length_bytes, &best);
    for (uint32_t i = 0; i < others; i++)
      keep_cheaper_place(p, item, r, others, p->others[i].end_bytes, &best);
  }
  if (best.gap.strip != POOL_NONE) remove_colliding(p, item, &best.gap);
  return best.gap;
}

/* ---- all items --------------------------------------------------------------------- */

typedef int (*order)(const void *, const void *);

static void reset_items(struct placing *p, order by) {
  qsort(&p->items[p->stay], p->count - p->stay, sizeof *p->items, by);
  for (uint32_t r = 0; r < p->strip_count; r++) p->strips[r].first = POOL_NONE;
  for (uint32_t i = 0; i < p->stay; i++)
    put(p, i, p->items[i].strip, p->items[i].offset_bytes);
  for (uint32_t i = p->stay; i < p->count; i++) {
    p->items[i].new_strip = POOL_NONE;
    p->items[i].losses = 0;
  }
  p->next = p->stay;
}

/* Places all items in that order, in strips that are not left out; if that fails, it
 * changes no place. Items without a gap displace others until `looks_most` is reached. */
static bool place_by(struct placing *p, order by, uint64_t looks_most) {
  reset_items(p, by);
  while (p->next < p->count) {
    uint32_t number = p->next;
    const struct pool_item *item = &p->items[number];
    if (item->new_strip != POOL_NONE) {
      p->next++;
      continue;
    }
    struct gap gap = find_gap(p, item);
    if (gap.strip == POOL_NONE && p->looks >= looks_most) return false;
    if (gap.strip == POOL_NONE) gap = displace(p, item);
    if (gap.strip != POOL_NONE) put(p, number, gap.strip, gap.offset_bytes);
  }
  for (uint32_t i = p->stay; i < p->count; i++) {
    p->items[i].strip = p->items[i].new_strip;
    p->items[i].offset_bytes = p->items[i].new_offset_bytes;
  }
  return true;
}

/* Tries both orders, because the better one differs between programs. */
static bool place(struct placing *p) {
  return place_by(p, by_length, 0) || place_by(p, by_peak, 0);
}

/* Places items, with half of the remaining looks for displacing. */
static bool place_displacing(struct placing *p) {
  uint64_t left = p->looks < p->looks_most ? p->looks_most - p->looks : 0;
  return place_by(p, by_length, p->looks + left / 2);
}

static uint64_t strip_bytes(const struct placing *p) {
  uint64_t bytes = 0;
  for (uint32_t r = 0; r < p->strip_count; r++)
    if (!p->strips[r].left_out) bytes += p->strips[r].length_bytes;
  return bytes;
}

static bool may_fit(const struct placing *p) {
  return strip_bytes(p) >= p->peak_bytes && p->looks < p->looks_most;
}

static bool is_used(const struct placing *p, uint32_t strip) {
  uint32_t i = p->stay;
  while (i < p->count && p->items[i].strip != strip) i++;
  return i < p->count;
}

/* Returns the next segment (strip) to leave out: one that was not tried and holds
 * nothing that must stay. It is the shortest one if `shortest`, else the longest; POOL_NONE
 * if there is none. */
static uint32_t next_strip(const struct placing *p, const bool *tried, bool shortest) {
  uint32_t best = POOL_NONE;
  for (uint32_t r = 0; r < p->strip_count; r++) {
    if (tried[r] || p->strips[r].occupied || p->strips[r].left_out) continue;
    uint64_t length_bytes = p->strips[r].length_bytes;
    if (best == POOL_NONE || (shortest ? length_bytes < p->strips[best].length_bytes
                                       : length_bytes > p->strips[best].length_bytes))
      best = r;
  }
  return best;
}

static void leave_out(struct placing *p, bool *tried, bool displacing) {
  memset(tried, 0, p->strip_count * sizeof *tried);
  for (uint32_t r; (r = next_strip(p, tried, displacing)) != POOL_NONE;) {
    if (displacing && strip_bytes(p) <= p->peak_bytes + p->peak_bytes / GOOD_ENOUGH) return;
    tried[r] = p->strips[r].left_out = true;
    if (is_used(p, r))
      p->strips[r].left_out = may_fit(p) && (displacing ? place_displacing(p) : place(p));
  }
}

uint64_t pool_place(struct pool_item *items, uint32_t count, uint32_t stay, uint32_t ticks,
                    struct pool_strip *strips, uint32_t strip_count, uint64_t looks_most) {
  struct placing p = {.items = items,
                      .strips = strips,
                      .count = count,
                      .stay = stay,
                      .ticks = ticks,
                      .strip_count = strip_count,
                      .looks_most = looks_most};
  bool *tried = calloc(strip_count, sizeof *tried);
  p.others = calloc(count, sizeof *p.others);
  for (uint32_t r = 0; r < strip_count; r++)
    strips[r].occupied = strips[r].left_out = false;
  for (uint32_t i = 0; i < stay; i++) strips[items[i].strip].occupied = true;
  mark_peak(&p);
  bool fits = tried != NULL && p.others != NULL && may_fit(&p) &&
              (place(&p) || place_displacing(&p));
  if (fits) leave_out(&p, tried, false);
  if (fits) leave_out(&p, tried, true);
  free(tried);
  free(p.others);
  return fits ? strip_bytes(&p) - p.peak_bytes : POOL_NO_FIT;
}
