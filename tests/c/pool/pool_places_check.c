/* pool_places_check.c - checks placement by lifetimes: items that live at the same time
 * must not overlap. Compares the space used with the minimum, found by trying all orders of
 * a few items.
 *
 * Usage: pool_places_check strips|least SEED CASES
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "noise.h"
#include "shim/pool/pool_places.h"

#define ITEMS 48u
#define ROOMS 8u
#define TICKS 40u
#define LOOKS (1u << 16)

static bool live_at(const struct pool_item *item, uint32_t tick) {
  return (tick + TICKS - item->begin) % TICKS < item->ticks;
}

static bool collide(const struct pool_item *a, const struct pool_item *b) {
  bool apart = a->strip != b->strip ||
               a->offset_bytes + a->length_bytes <= b->offset_bytes ||
               b->offset_bytes + b->length_bytes <= a->offset_bytes;
  for (uint32_t tick = 0; tick < TICKS && !apart; tick++)
    if (live_at(a, tick) && live_at(b, tick)) return true;
  return false;
}

static struct pool_item random_item(uint64_t *state, uint32_t most_bytes) {
  return (struct pool_item){.length_bytes = 1 + noise_below(state, most_bytes),
                            .begin = (uint32_t)noise_below(state, TICKS),
                            .ticks = 1 + (uint32_t)noise_below(state, TICKS - 1)};
}

static void check_places(const struct pool_item *items, uint32_t count, uint32_t stay,
                         const struct pool_strip *strips) {
  for (uint32_t i = 0; i < count; i++) {
    const struct pool_strip *strip = &strips[items[i].strip];
    CHECK(items[i].offset_bytes + items[i].length_bytes <= strip->length_bytes);
    CHECK(!strip->left_out);
    for (uint32_t j = i < stay ? stay : i + 1; j < count; j++)
      CHECK(!collide(&items[i], &items[j]));
  }
}

/* Some items already occupy the beginning of their strips, always or for a while. */
static void check_rooms(uint64_t seed, uint32_t cases) {
  uint64_t state = noise_begin(seed), placed = 0, left_out = 0;
  for (uint32_t c = 0; c < cases; c++) {
    struct pool_item items[ITEMS], stays[ROOMS];
    struct pool_strip strips[ROOMS];
    uint32_t stay = 0, count = 1 + (uint32_t)noise_below(&state, ITEMS);
    for (uint32_t r = 0; r < ROOMS; r++) {
      strips[r] = (struct pool_strip){.length_bytes = 20 + noise_below(&state, 80)};
      if (stay == count || noise_below(&state, 3) != 0) continue;
      items[stay] = random_item(&state, 20);
      if (noise_below(&state, 2) == 0) items[stay].ticks = TICKS;
      items[stay].strip = r;
      stays[stay] = items[stay];
      stay++;
    }
    for (uint32_t i = stay; i < count; i++) items[i] = random_item(&state, 20);
    uint64_t beyond_bytes = pool_place(items, count, stay, TICKS, strips, ROOMS, LOOKS);
    if (beyond_bytes == POOL_NO_FIT) continue;
    placed++;
    for (uint32_t r = 0; r < ROOMS; r++) left_out += strips[r].left_out;
    for (uint32_t i = 0; i < stay; i++)
      CHECK(items[i].strip == stays[i].strip && items[i].offset_bytes == 0);
    check_places(items, count, stay, strips);
  }
  printf("placed %llu left %llu\n", (unsigned long long)placed,
         (unsigned long long)left_out);
}

/* ---- the minimum ------------------------------------------------------------------ */

static uint64_t least_bytes;

/* Tries all orders, with each item as low as possible; the best one gives the minimum. */
static void try_orders(struct pool_item *items, uint32_t count, uint32_t placed,
                       uint64_t height) {
  if (height >= least_bytes) return;
  if (placed == count) least_bytes = height;
  for (uint32_t i = placed; i < count; i++) {
    struct pool_item one = items[i];
    items[i] = items[placed];
    one.offset_bytes = 0;
    for (uint32_t j = 0; j < placed;) {
      bool moved = collide(&one, &items[j]);
      if (moved) one.offset_bytes = items[j].offset_bytes + items[j].length_bytes;
      j = moved ? 0 : j + 1;
    }
    items[placed] = one;
    uint64_t end = one.offset_bytes + one.length_bytes;
    try_orders(items, count, placed + 1, end > height ? end : height);
    items[placed] = items[i];
    items[i] = one;
  }
}

static void check_least(uint64_t seed, uint32_t cases) {
  uint64_t state = noise_begin(seed), all = 0, all_least = 0, met = 0;
  for (uint32_t c = 0; c < cases; c++) {
    struct pool_item items[7], same[7];
    uint32_t count = 3 + (uint32_t)noise_below(&state, 5);
    for (uint32_t i = 0; i < count; i++) items[i] = random_item(&state, 20);
    memcpy(same, items, sizeof items);
    least_bytes = UINT64_MAX;
    try_orders(same, count, 0, 0);
    struct pool_strip strip = {.length_bytes = 0};
    while (pool_place(items, count, 0, TICKS, &strip, 1, LOOKS) == POOL_NO_FIT)
      strip.length_bytes++;
    CHECK(strip.length_bytes >= least_bytes);
    all += strip.length_bytes;
    all_least += least_bytes;
    met += strip.length_bytes == least_bytes;
  }
  printf("bytes %llu least %llu met %llu\n", (unsigned long long)all,
         (unsigned long long)all_least, (unsigned long long)met);
}

int main(int argc, char **argv) {
  CHECK(argc == 4);
  uint64_t seed = strtoull(argv[2], NULL, 10);
  uint32_t cases = (uint32_t)strtoul(argv[3], NULL, 10);
  if (strcmp(argv[1], "strips") == 0)
    check_rooms(seed, cases);
  else
    check_least(seed, cases);
  return 0;
}
