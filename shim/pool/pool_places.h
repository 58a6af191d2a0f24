/* pool_places.h - assigns the memory of a cycle by lifetimes, as pure arithmetic.
 *
 * After SmartPool (Zhang et al., 2019): allocations of training repeat, so their
 * lifetimes are known, and each gets its place before the next cycle begins. The largest
 * is placed first, into the smallest gap between allocations alive at the same time. Here
 * the gaps are in existing segments (strips), around their contents. An item without a
 * gap displaces others, which then need another place: an ejection chain (Glover, 1996).
 */
#ifndef PUMP_POOL_PLACES_H
#define PUMP_POOL_PLACES_H

#include <stdbool.h>
#include <stdint.h>

#define POOL_NONE UINT32_MAX
#define POOL_NO_FIT UINT64_MAX

struct pool_item {
  uint64_t length_bytes, offset_bytes;
  uint32_t begin, ticks;  /* when it is allocated in the cycle, and for how long */
  uint32_t strip;         /* number of its segment */
  uint32_t step;          /* for the caller */
  uint32_t next_in_strip; /* next one in its strip by offset; POOL_NONE: it is the last */
  bool at_peak;           /* lives at the peak of live bytes */
  uint32_t new_strip;     /* its segment in the placement being tried; POOL_NONE: none */
  uint64_t new_offset_bytes;
  uint32_t losses; /* how often another has displaced it */
};

struct pool_strip {
  uint64_t length_bytes;
  bool occupied;  /* something is here already */
  bool left_out;  /* nothing of the cycle is here */
  uint32_t first; /* item with the lowest offset */
};

/* Places the items of a cycle of `ticks`. The first `stay` items do not move; the others
 * are sorted. Rooms in which nothing stays are left out if the others suffice: first the
 * longest ones, then, with displacing, the shortest ones. `looks_most`: limit of items
 * examined, about four nanoseconds each. Returns by how many bytes the other strips
 * exceed the peak of live bytes; POOL_NO_FIT if all strips do not suffice. */
uint64_t pool_place(struct pool_item *items, uint32_t count, uint32_t stay, uint32_t ticks,
                    struct pool_strip *strips, uint32_t strip_count, uint64_t looks_most);

#endif
