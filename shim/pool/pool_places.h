/* pool_places.h - where the memory of a period goes: by lifetimes, as arithmetic alone.
 *
 * After SmartPool (Zhang et al., 2019): allocations of training repeat, so their lifetimes
 * are known, and each gets its place before the next period begins: the largest first, in
 * the smallest gap between those that live at the same time. Here the gaps are those of
 * segments that are there already, around what lies in them. What finds no gap takes the
 * place of others, which look for another one: an ejection chain (Glover, 1996).
 */
#ifndef PUMP_POOL_PLACES_H
#define PUMP_POOL_PLACES_H

#include <stdbool.h>
#include <stdint.h>

#define POOL_NONE UINT32_MAX
#define POOL_NO_ROOM UINT64_MAX

struct pool_item {
  uint64_t length_bytes, offset_bytes;
  uint32_t begin, ticks; /* when it begins in the period, and how long it lives */
  uint32_t room;         /* number of the segment that it lies in */
  uint32_t step;         /* the caller's */
  uint32_t behind;       /* the next one in its room by offset; POOL_NONE: it is the last */
  bool at_peak;          /* lives when most bytes do */
  uint32_t new_room;     /* of a placement that is tried; POOL_NONE: it has none */
  uint64_t new_offset_bytes;
  uint32_t losses; /* how often another has taken its place */
};

struct pool_room {
  uint64_t length_bytes;
  bool held;      /* something lies here already */
  bool left_out;  /* nothing of the period lies here */
  uint32_t first; /* the item with the least offset */
};

/* Places the items of a period of `ticks`. The first `stay` of them lie where they are;
 * those behind are sorted. Rooms in which nothing stays are left out as far as the others
 * suffice, the longest first; then the shortest first, with others displaced. looks_most:
 * at items; some four nanoseconds each. Returns how many bytes the rooms that are not left
 * out have beyond what lives at most; POOL_NO_ROOM: all of them do not suffice. */
uint64_t pool_place(struct pool_item *items, uint32_t count, uint32_t stay, uint32_t ticks,
                    struct pool_room *rooms, uint32_t room_count, uint64_t looks_most);

#endif
